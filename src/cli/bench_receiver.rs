//! `hooklog bench-receiver`, hidden: the other side of `bench`, in a process of its own so that its work is not
//! counted as the server's. Answers 200, counts distinct event ids, and notes how old each event is; below
//! [`HANG`] it answers nothing.
//!
//! For loopback only; keeps at most as many ids and ages as it was told to expect.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};

use super::bench::monotonic_micros;
use super::exit::{Exit, Failure};
use super::output::Output;
use super::receiver::{self, Reaction, Received, Script};

/// Ids and ages that are kept, whatever is expected.
const EVENTS_MAX: usize = 5_000_000;

/// What is sent to a path that begins with this is left without an answer.
pub const HANG: &str = "/hang";

/// Receives.
#[derive(clap::Args)]
pub struct Args {}

/// What was received since the last reset.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Stats {
    /// Requests.
    pub requests: u64,
    /// Event ids.
    pub distinct: u64,
    /// Requests without an answer.
    pub hanging: u64,
    /// When the newest came, on the machine's monotonic clock.
    pub last_at_micros: u64,
    /// From create to received, the half and all but one in a hundred; zero if nothing came.
    pub p50_micros: u64,
    /// See above.
    pub p99_micros: u64,
}

#[derive(Default)]
struct Count {
    stats: Stats,
    ids: HashSet<u64>,
    ages: Vec<u32>,
}

struct Counting {
    count: Mutex<Count>,
    hash: RandomState,
}

impl Script for Counting {
    fn react(&self, request: Received) -> Reaction {
        let mut count = self.count.lock().expect("no holder panics");
        match (request.method.as_str(), request.path.as_str()) {
            // Asked often; only the other one sorts.
            ("GET", "/count") => answer(&count.stats),
            ("GET", "/stats") => answer(&count.answer()),
            ("POST", "/reset") => {
                *count = Count::default();
                Reaction::Answer(200, b"{}".to_vec())
            }
            (_, path) if path.starts_with(HANG) => {
                count.stats.hanging += 1;
                Reaction::Hang
            }
            _ => {
                let id = self.hash.hash_one(request.header("webhook-id"));
                count.take(id, created_at(&request.body), monotonic_micros());
                Reaction::Answer(200, Vec::new())
            }
        }
    }
}

fn answer(stats: &Stats) -> Reaction {
    Reaction::Answer(200, serde_json::to_vec(stats).expect("numbers are JSON"))
}

impl Count {
    fn take(&mut self, id: u64, created_at: Option<u64>, now: u64) {
        self.stats.requests += 1;
        self.stats.last_at_micros = now;
        if self.ids.len() >= EVENTS_MAX || !self.ids.insert(id) {
            return;
        }
        self.stats.distinct += 1;
        if let Some(created_at) = created_at {
            self.ages.push(u32::try_from(now.saturating_sub(created_at)).unwrap_or(u32::MAX));
        }
    }

    fn answer(&mut self) -> Stats {
        self.ages.sort_unstable();
        let at = |percent: usize| {
            let index = (self.ages.len() * percent / 100).min(self.ages.len().saturating_sub(1));
            self.ages.get(index).copied().map_or(0, u64::from)
        };
        Stats { p50_micros: at(50), p99_micros: at(99), ..self.stats.clone() }
    }
}

/// The number after the first `"at":` of a body: when the event was made.
fn created_at(body: &[u8]) -> Option<u64> {
    let name = b"\"at\":";
    let at = body.windows(name.len()).position(|window| window == name)? + name.len();
    let digits = body[at..].iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(None, |number: Option<u64>, digit| {
        Some(number.unwrap_or(0).saturating_mul(10).saturating_add(u64::from(digit - b'0')))
    })
}

/// Receives until the process is ended.
pub async fn run(_: Args, out: &mut Output) -> Result<Exit, Failure> {
    let (listener, address) = receiver::listen().await?;
    out.line(format!("{address}"))?;
    let script = Arc::new(Counting { count: Mutex::default(), hash: RandomState::new() });
    receiver::receive(listener, script).await;
    Ok(Exit::Fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_says_when_it_was_made() {
        assert_eq!(created_at(br#"{"id":"x","data":{"at":1234,"pad":""}}"#), Some(1234));
        assert_eq!(created_at(br#"{"data":{"at":"x"}}"#), None);
        assert_eq!(created_at(b""), None);
    }

    #[test]
    fn distinct_events_are_counted_once() {
        let mut count = Count::default();
        for (id, now) in [(1, 30), (2, 40), (1, 90)] {
            count.take(id, Some(20), now);
        }
        let stats = count.answer();
        assert_eq!((stats.requests, stats.distinct, stats.last_at_micros), (3, 2, 90));
        assert_eq!((stats.p50_micros, stats.p99_micros), (20, 20));
    }
}
