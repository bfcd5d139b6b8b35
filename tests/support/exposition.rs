//! OpenMetrics text, read back. Stands in for: a Prometheus that scrapes.
#![allow(dead_code)]

/// What was scraped.
#[derive(Debug)]
pub struct Exposition {
    /// Each line that is no comment.
    pub samples: Vec<Sample>,
}

/// One series at one moment.
#[derive(Clone, Debug)]
pub struct Sample {
    /// With `_total`, `_bucket` and the like.
    pub name: String,
    /// As written.
    pub labels: Vec<(String, String)>,
    /// Its value.
    pub value: f64,
}

impl Exposition {
    /// Reads all of it; a line that cannot be read is a failure.
    pub fn of(text: &str) -> Exposition {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        Exposition { samples: lines.map(Sample::of).collect() }
    }

    /// All samples of a name.
    pub fn all(&self, name: &str) -> Vec<&Sample> {
        self.samples.iter().filter(|sample| sample.name == name).collect()
    }

    /// The only sample of a name that has these labels.
    #[track_caller]
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let has = |sample: &&&Sample| {
            labels.iter().all(|(name, value)| sample.labels.iter().any(|(n, v)| n == name && v == value))
        };
        let all = self.all(name);
        match all.iter().filter(has).collect::<Vec<_>>()[..] {
            [only] => only.value,
            _ => panic!("not one {name} with {labels:?}: {all:?}"),
        }
    }
}

impl Sample {
    fn of(line: &str) -> Sample {
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
        let (name, labels) = match series.split_once('{') {
            None => (series, Vec::new()),
            Some((name, labels)) => {
                let labels = labels.strip_suffix('}').unwrap_or_else(|| panic!("no labels: {line}"));
                // No value here holds a quotation mark.
                let each = labels.split("\",").filter(|label| !label.is_empty());
                let label = |label: &str| {
                    let (name, value) = label.split_once("=\"").unwrap_or_else(|| panic!("no label: {line}"));
                    (name.to_owned(), value.trim_end_matches('"').to_owned())
                };
                (name, each.map(label).collect())
            }
        };
        let value = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
        Sample { name: name.to_owned(), labels, value }
    }
}
