//! The parts of the API's answers that commands look into. What they only pass on stays the API's own bytes.
//!
//! Unknown members are ignored: a newer server may say more.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A page of a list.
#[derive(Deserialize)]
pub struct Page {
    /// The items, as they came.
    pub data: Vec<Box<RawValue>>,
    /// Where the next page starts.
    #[serde(default)]
    pub next_cursor: Option<String>,
}

/// A delivery.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Delivery {
    /// `dlv_…`
    pub id: String,
    /// `evt_…`, or the caller's own.
    pub event_id: String,
    /// `payment.settled`
    pub event_type: String,
    /// Whose.
    pub account_id: String,
    /// Where to.
    pub endpoint_id: String,
    /// Where to.
    pub endpoint_url: String,
    /// Or to whose workers.
    pub queue: Option<String>,
    /// pending, in_flight, delivered, dead, cancelled.
    pub status: String,
    /// Why a pending one does not leave.
    pub held_by: Option<String>,
    /// When the next try is.
    pub due_at: Option<String>,
    /// From 1.
    pub run: u32,
    /// Tries used in this run.
    #[serde(rename = "try")]
    pub tried: u32,
    /// Tries there are.
    pub tries: u32,
    /// POSTs in all runs.
    pub attempts: u32,
    /// When it was enqueued.
    pub created_at: String,
    /// The newest attempt.
    pub last_attempt: Option<LastAttempt>,
    /// Why it is dead.
    pub dead_reason: Option<String>,
}

/// The newest attempt, in short.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct LastAttempt {
    /// When.
    pub at: String,
    /// What was answered.
    pub status_code: Option<u16>,
    /// Why nothing was.
    pub error: Option<String>,
}

/// An attempt.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Attempt {
    /// From 1, over all runs.
    pub number: u32,
    /// From 1.
    pub run: u32,
    /// `att_…`
    pub id: String,
    /// Which try of the run.
    #[serde(rename = "try")]
    pub tried: u32,
    /// When it began.
    pub started_at: String,
    /// How long it took.
    pub took_ms: Option<u64>,
    /// in_flight, delivered, failed.
    pub status: String,
    /// The rule that judged it.
    pub rule: Option<String>,
    /// What was answered.
    pub status_code: Option<u16>,
    /// Why nothing was.
    pub error: Option<String>,
    /// More of why.
    pub detail: Option<String>,
    /// The body of what was answered, as far as it is kept.
    pub response_body: Option<String>,
    /// There was more of it.
    pub response_truncated: bool,
    /// Where the time went.
    pub timings: Timings,
}

/// Where an attempt's time went, as far as its parts took place.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Timings {
    /// Before it left.
    pub queue_ms: u64,
    /// Resolving the name.
    pub dns_us: Option<u64>,
    /// TCP.
    pub connect_us: Option<u64>,
    /// The handshake.
    pub tls_us: Option<u64>,
    /// Waiting for the receiver.
    pub first_byte_us: Option<u64>,
    /// Reading the rest.
    pub body_us: Option<u64>,
}

/// An event that was taken in.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Accepted {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub account_id: String,
    /// Its deliveries.
    pub deliveries: Vec<Identified>,
    /// It had been taken in before.
    pub duplicate: bool,
}

/// Anything of which only the id matters.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Identified {
    /// Its id.
    pub id: String,
    /// Where to, for deliveries.
    pub endpoint_id: String,
}

/// An answer to the question whether something was sent.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Explanation {
    /// The answer.
    pub sentence: String,
    /// More of it.
    pub reasons: Vec<String>,
    /// What to do.
    pub next_step: String,
    /// Those it is about.
    pub deliveries: Vec<Delivery>,
}

/// An event, as it is sent to the API. The data is the caller's bytes.
#[derive(Serialize)]
pub struct NewEvent<'a> {
    /// Whose.
    pub account_id: &'a str,
    /// The caller's own id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<&'a str>,
    /// Its type.
    #[serde(rename = "type")]
    pub event_type: &'a str,
    /// Its data.
    pub data: &'a RawValue,
    /// Not before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deliver_at: Option<&'a str>,
    /// Another number of tries than the schedule's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tries: Option<u32>,
    /// To this endpoint only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint_id: Option<&'a str>,
    /// It was given up elsewhere.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub given_up: bool,
}

/// What an item of a batch came to.
#[derive(Deserialize)]
pub struct BatchItem {
    /// As it would have been alone.
    pub status: u16,
    /// The event or the problem.
    #[serde(flatten)]
    pub rest: serde_json::Map<String, serde_json::Value>,
}

/// What a batch came to.
#[derive(Deserialize)]
pub struct BatchAnswer {
    /// In the batch's order.
    pub results: Vec<BatchItem>,
}

impl Delivery {
    /// Where it goes: a host, or a queue.
    pub fn to(&self) -> String {
        self.queue.as_ref().map_or_else(|| host(&self.endpoint_url), |queue| format!("queue {queue}"))
    }

    /// The newest attempt's end, in a word.
    pub fn last(&self) -> String {
        match &self.last_attempt {
            Some(LastAttempt { status_code: Some(code), .. }) => code.to_string(),
            Some(LastAttempt { error: Some(error), .. }) => error.clone(),
            _ => String::new(),
        }
    }

    /// What happens next.
    pub fn next(&self) -> String {
        match (&self.held_by, &self.due_at, &self.dead_reason) {
            (Some(held), _, _) => format!("held: {held}"),
            (None, Some(due), _) => seconds(due),
            (None, None, Some(reason)) => reason.clone(),
            _ => String::new(),
        }
    }
}

impl Timings {
    /// The longest part of the request itself, and the wait before it where that was longer; nothing below a
    /// millisecond.
    pub fn longest(&self) -> Option<(&'static str, u64)> {
        let parts = [
            ("queue", Some(self.queue_ms)),
            ("dns", self.dns_us.map(|us| us / 1000)),
            ("connect", self.connect_us.map(|us| us / 1000)),
            ("tls", self.tls_us.map(|us| us / 1000)),
            ("first byte", self.first_byte_us.map(|us| us / 1000)),
            ("body", self.body_us.map(|us| us / 1000)),
        ];
        let parts = parts.into_iter().filter_map(|(name, ms)| Some((name, ms?)));
        parts.filter(|(_, ms)| *ms > 0).max_by_key(|(_, ms)| *ms)
    }
}

/// Whether people are shown times as this machine's clock has them.
static LOCAL: AtomicBool = AtomicBool::new(false);

/// Shows times so from now on.
pub fn show_local_times() {
    LOCAL.store(true, Ordering::Relaxed);
}

/// A moment of the API without its milliseconds, in UTC or as this machine's clock has it.
pub fn seconds(moment: &str) -> String {
    if LOCAL.load(Ordering::Relaxed)
        && let Ok(at) = moment.parse::<jiff::Timestamp>()
    {
        return at
            .to_zoned_datetime(jiff::tz::TimeZone::system())
            .strftime("%Y-%m-%dT%H:%M:%S%:z")
            .to_string();
    }
    match moment.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => moment.to_owned(),
    }
}

/// The host in a URL, or all of it.
pub fn host(url: &str) -> String {
    let parsed = url::Url::parse(url).ok();
    let host = parsed.as_ref().and_then(|url| {
        let host = url.host_str()?;
        Some(url.port().map_or(host.to_owned(), |port| format!("{host}:{port}")))
    });
    host.unwrap_or_else(|| url.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_part_of_an_attempt_is_named() {
        let told = |json: &str| serde_json::from_str::<Timings>(json).expect("timings").longest();
        assert_eq!(told(r#"{"queue_ms":3,"dns_us":900,"first_byte_us":41000}"#), Some(("first byte", 41)));
        assert_eq!(told(r#"{"queue_ms":60,"connect_us":41000,"new":1}"#), Some(("queue", 60)));
        assert_eq!(told(r#"{"queue_ms":0,"dns_us":999}"#), None, "all below a millisecond");
    }
}
