//! Metrics as they are registered and described: one entry gives the series, its line in `docs/metrics.md`, and the
//! only labels it can ever have.
//!
//! A label's value is a `&'static str`: it is written in this program, so no URL, id, path or word of a customer can
//! become one. Never knows what is measured.

use std::fmt::Write as _;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Labels with their values.
type Labels<const N: usize> = [(&'static str, &'static str); N];
/// A number that goes up and down.
pub(super) type Number = Gauge<u64, AtomicU64>;
/// Seconds that go up and down.
pub(super) type Seconds = Gauge<f64, AtomicU64>;

/// A metric, for people.
#[derive(Clone, Debug)]
pub struct Described {
    /// As scraped: with its unit, and `_total` of a counter.
    pub name: String,
    /// `counter`, `gauge`, `histogram` or `info`.
    pub kind: &'static str,
    /// Empty if it is a plain number.
    pub unit: &'static str,
    /// Its labels, and what they can be.
    pub labels: Vec<(&'static str, String)>,
    /// What it says.
    pub help: &'static str,
}

/// What is registered.
#[derive(Default)]
pub(super) struct Book {
    pub(super) registry: Registry,
    pub(super) described: Vec<Described>,
}

/// A label and what it can be: all its values, or words for them.
pub(super) enum Of<'a> {
    /// These, each of which is there from the start, at zero.
    Values(&'a [&'static str]),
    /// What the words say; a series is there from its first use on.
    Words(&'static str),
}

impl Of<'_> {
    fn text(&self) -> String {
        match self {
            Of::Words(words) => (*words).to_owned(),
            Of::Values(values) => {
                let mut text = String::new();
                for (n, value) in values.iter().enumerate() {
                    let _ = write!(text, "{}`{value}`", if n > 0 { ", " } else { "" });
                }
                text
            }
        }
    }
}

/// Counts by labels.
#[derive(Clone)]
pub(super) struct Counts<const N: usize> {
    names: [&'static str; N],
    family: Family<Labels<N>, Counter>,
}

/// Numbers by labels.
#[derive(Clone)]
pub(super) struct Numbers<const N: usize> {
    names: [&'static str; N],
    family: Family<Labels<N>, Number>,
}

/// Durations by labels.
#[derive(Clone)]
pub(super) struct Durations<const N: usize> {
    names: [&'static str; N],
    family: Family<Labels<N>, Histogram, Buckets>,
}

/// Makes histograms of the same buckets.
#[derive(Clone, Copy)]
pub(super) struct Buckets(&'static [f64]);

impl prometheus_client::metrics::family::MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

fn labels<const N: usize>(names: [&'static str; N], values: [&'static str; N]) -> Labels<N> {
    std::array::from_fn(|n| (names[n], values[n]))
}

impl<const N: usize> Counts<N> {
    pub(super) fn count(&self, values: [&'static str; N]) {
        self.count_by(values, 1);
    }

    /// Zero makes the series.
    pub(super) fn count_by(&self, values: [&'static str; N], by: u64) {
        self.family.get_or_create(&labels(self.names, values)).inc_by(by);
    }
}

impl<const N: usize> Numbers<N> {
    pub(super) fn set(&self, values: [&'static str; N], number: u64) {
        self.family.get_or_create(&labels(self.names, values)).set(number);
    }
}

impl<const N: usize> Durations<N> {
    pub(super) fn took(&self, values: [&'static str; N], time: Duration) {
        self.family.get_or_create(&labels(self.names, values)).observe(time.as_secs_f64());
    }
}

/// A help text for the registry, which puts the last stop itself.
fn unstopped(help: &'static str) -> &'static str {
    help.trim_end_matches('.')
}

impl Book {
    fn describe(
        &mut self,
        (name, kind, unit): (String, &'static str, &'static str),
        labels: Vec<(&'static str, String)>,
        help: &'static str,
    ) {
        self.described.push(Described { name, kind, unit, labels, help });
    }

    pub(super) fn counts<const N: usize>(
        &mut self,
        name: &str,
        help: &'static str,
        of: [(&'static str, Of<'_>); N],
    ) -> Counts<N> {
        let counts = Counts { names: std::array::from_fn(|n| of[n].0), family: Family::default() };
        self.registry.register(name, unstopped(help), counts.family.clone());
        let labels = of.iter().map(|(name, of)| (*name, of.text())).collect();
        self.describe((format!("{name}_total"), "counter", ""), labels, help);
        if let [(_, Of::Values(values))] = &of[..] {
            values.iter().for_each(|value| counts.count_by([*value; N], 0));
        }
        counts
    }

    pub(super) fn count(&mut self, name: &str, help: &'static str) -> Counter {
        let counter = Counter::default();
        self.registry.register(name, unstopped(help), counter.clone());
        self.describe((format!("{name}_total"), "counter", ""), Vec::new(), help);
        counter
    }

    pub(super) fn numbers(
        &mut self,
        name: &str,
        help: &'static str,
        (label, values): (&'static str, &[&'static str]),
    ) -> Numbers<1> {
        let numbers = Numbers { names: [label], family: Family::default() };
        self.registry.register(name, unstopped(help), numbers.family.clone());
        values.iter().for_each(|value| numbers.set([value], 0));
        self.describe((name.to_owned(), "gauge", ""), vec![(label, Of::Values(values).text())], help);
        numbers
    }

    pub(super) fn number(&mut self, name: &str, help: &'static str) -> Number {
        let number = Number::default();
        self.registry.register(name, unstopped(help), number.clone());
        self.describe((name.to_owned(), "gauge", ""), Vec::new(), help);
        number
    }

    pub(super) fn bytes(&mut self, name: &str, help: &'static str) -> Number {
        let number = Number::default();
        self.registry.register_with_unit(name, unstopped(help), Unit::Bytes, number.clone());
        self.describe((format!("{name}_bytes"), "gauge", "bytes"), Vec::new(), help);
        number
    }

    pub(super) fn seconds(&mut self, name: &str, help: &'static str) -> Seconds {
        let seconds = Seconds::default();
        self.registry.register_with_unit(name, unstopped(help), Unit::Seconds, seconds.clone());
        self.describe((format!("{name}_seconds"), "gauge", "seconds"), Vec::new(), help);
        seconds
    }

    pub(super) fn duration(&mut self, name: &str, help: &'static str, buckets: &'static [f64]) -> Histogram {
        let histogram = Histogram::new(buckets.iter().copied());
        self.registry.register_with_unit(name, unstopped(help), Unit::Seconds, histogram.clone());
        self.describe((format!("{name}_seconds"), "histogram", "seconds"), Vec::new(), help);
        histogram
    }

    pub(super) fn durations<const N: usize>(
        &mut self,
        name: &str,
        help: &'static str,
        buckets: &'static [f64],
        of: [(&'static str, Of<'_>); N],
    ) -> Durations<N> {
        let family = Family::new_with_constructor(Buckets(buckets));
        let durations = Durations { names: std::array::from_fn(|n| of[n].0), family };
        self.registry.register_with_unit(name, unstopped(help), Unit::Seconds, durations.family.clone());
        let told = of.iter().map(|(name, of)| (*name, of.text())).collect();
        self.describe((format!("{name}_seconds"), "histogram", "seconds"), told, help);
        if let [(_, Of::Values(values))] = &of[..] {
            let all = values.iter().map(|value| labels(durations.names, [*value; N]));
            all.for_each(|labels| drop(durations.family.get_or_create(&labels)));
        }
        durations
    }

    pub(super) fn info(&mut self, name: &str, help: &'static str, label: (&'static str, &'static str)) {
        let info = prometheus_client::metrics::info::Info::new([label]);
        self.registry.register(name, unstopped(help), info);
        let labels = vec![(label.0, "as `hooklog --version` says it".to_owned())];
        self.describe((format!("{name}_info"), "info", ""), labels, help);
    }
}
