//! Retry schedules, response policies and the like as JSON: `"ledger"`, `{"waits":["1m","5m"]}`.
//!
//! Never knows what a schedule does.

use hooklog_projections::fact::StatusRange;
use hooklog_projections::policy::{ErrorClass, Jitter, ResponsePolicy, Rollout, Schedule};
use hooklog_projections::time::{Millis, Timestamp};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::fields::{Bad, Fields, bad, number, parse, word};
use crate::scheduler::retry::{WAIT_MAX, WAITS_MAX};

/// A preset's name, or waits of one's own: texts as `90s`, `5m`, `2h`, `1d`, or seconds, with
/// `jitter_percent` (10; 0–100) to both sides.
pub fn schedule(value: &RawValue) -> Result<Schedule, Bad> {
    if value.get().starts_with('"') {
        let presets = "`ledger`, `ledger-5`, `ukue`, `standard-webhooks`, or {\"waits\":[…]}";
        return word::<Preset>(presets)(value).map(Preset::schedule);
    }
    let first = |problem: super::problem::Problem| match problem.errors.into_iter().next() {
        Some(error) => Bad { code: error.code, detail: format!("{}: {}", error.pointer, error.detail) },
        None => bad("bad-schedule", problem.detail),
    };
    let mut fields = Fields::of(value, "").map_err(first)?;
    let waits = fields.required("waits", waits);
    let percent = fields.optional("jitter_percent", number(0, 100)).unwrap_or(10) as u8;
    fields.finish().map_err(first)?;
    let jitter = Jitter { minus_percent: percent, plus_percent: percent };
    Ok(Schedule::Custom { waits: waits.unwrap_or_default(), jitter })
}

/// The shape that [`schedule`] reads.
pub fn schedule_json(schedule: &Schedule) -> Value {
    match schedule {
        Schedule::Ledger => "ledger".into(),
        Schedule::Ledger5 => "ledger-5".into(),
        Schedule::Ukue => "ukue".into(),
        Schedule::StandardWebhooks => "standard-webhooks".into(),
        Schedule::Custom { waits, jitter } => json!({
            "waits": waits.iter().map(|wait| span_text(*wait)).collect::<Vec<_>>(),
            "jitter_percent": jitter.plus_percent,
        }),
    }
}

/// `ledger`, `ledger-strict`, `ukue`, `standard-webhooks`.
pub fn response_policy(value: &RawValue) -> Result<ResponsePolicy, Bad> {
    word("`ledger`, `ledger-strict`, `ukue`, `standard-webhooks`")(value)
}

/// `on`, `off`, `default`.
pub fn rollout(value: &RawValue) -> Result<Rollout, Bad> {
    word("`on`, `off`, `default`")(value)
}

/// `503`, or `5xx` for all of a class.
pub fn status_range(text: &str) -> Result<StatusRange, Bad> {
    let wrong = || bad("bad-status", "a status as `503`, or a class as `5xx`, is wanted");
    let range = match text.strip_suffix("xx").or_else(|| text.strip_suffix("XX")) {
        Some(class) => {
            let class: u16 = class.parse().map_err(|_| wrong())?;
            StatusRange { from: class.saturating_mul(100), to: class.saturating_mul(100).saturating_add(99) }
        }
        None => {
            let status = text.parse().map_err(|_| wrong())?;
            StatusRange { from: status, to: status }
        }
    };
    if (100..=999).contains(&range.from) { Ok(range) } else { Err(wrong()) }
}

/// `timeout`, `dns` and so on: a class of errors.
pub fn error_class(text: &str) -> Result<ErrorClass, Bad> {
    serde_json::from_value(text.into()).map_err(|_| {
        let detail =
            "dns, connect, tls, timeout, closed, protocol, egress_denied, interrupted or not_sent is wanted";
        bad("unknown-word", detail)
    })
}

/// RFC 3339 with any offset, to the millisecond.
pub fn moment(text: &str) -> Option<Timestamp> {
    let at: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(at.as_millisecond()).ok().map(Timestamp)
}

/// As [`moment`], for a state as of then: one without parts of a second means all of that second, as people read it
/// off a page that shows none.
pub fn as_of(text: &str) -> Option<Timestamp> {
    let at = moment(text)?;
    Some(if text.contains('.') { at } else { Timestamp(at.0 + 999) })
}

/// As [`moment`], for the edge of a range: of a finer one the millisecond that follows, since what is before it is
/// before that too, and what is not is not.
pub fn edge(text: &str) -> Option<Timestamp> {
    let at: jiff::Timestamp = text.parse().ok()?;
    let nanos = u128::try_from(at.as_nanosecond()).ok()?;
    u64::try_from(nanos.div_ceil(1_000_000)).ok().map(Timestamp)
}

/// RFC 3339, UTC, three digits of a second.
pub fn moment_text(at: Timestamp) -> String {
    crate::explain::moment(at)
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Preset {
    Ledger,
    #[serde(rename = "ledger-5")]
    Ledger5,
    Ukue,
    StandardWebhooks,
}

impl Preset {
    fn schedule(self) -> Schedule {
        match self {
            Preset::Ledger => Schedule::Ledger,
            Preset::Ledger5 => Schedule::Ledger5,
            Preset::Ukue => Schedule::Ukue,
            Preset::StandardWebhooks => Schedule::StandardWebhooks,
        }
    }
}

fn waits(value: &RawValue) -> Result<Vec<Millis>, Bad> {
    let waits: Vec<&RawValue> = parse(value, "a list of waits")?;
    if waits.len() > WAITS_MAX {
        return Err(bad("length", format!("at most {WAITS_MAX} waits are taken; there are {}", waits.len())));
    }
    waits.into_iter().map(wait).collect()
}

fn wait(value: &RawValue) -> Result<Millis, Bad> {
    let wrong = || bad("bad-wait", "a wait is `90s`, `5m`, `2h`, `1d` or a number of seconds");
    let secs = match serde_json::from_str::<u64>(value.get()) {
        Ok(secs) => Some(secs),
        Err(_) => {
            let text: String = parse(value, "a wait").map_err(|_| wrong())?;
            let unit = text.chars().last().and_then(|unit| match unit {
                's' => Some(1),
                'm' => Some(60),
                'h' => Some(3600),
                'd' => Some(86_400),
                _ => None,
            });
            let unit = unit.ok_or_else(wrong)?;
            let count: u64 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
            count.checked_mul(unit)
        }
    };
    match secs {
        Some(secs @ 1..) if Millis::from_secs(secs) <= WAIT_MAX => Ok(Millis::from_secs(secs)),
        _ => Err(bad("out-of-range", "a wait is 1 second to 30 days")),
    }
}

fn span_text(span: Millis) -> String {
    let secs = span.0 / 1000;
    match [(86_400, 'd'), (3600, 'h'), (60, 'm')]
        .into_iter()
        .find(|(unit, _)| secs > 0 && secs.is_multiple_of(*unit))
    {
        Some((unit, name)) => format!("{}{name}", secs / unit),
        None => format!("{secs}s"),
    }
}
