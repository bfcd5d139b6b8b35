//! How each endpoint fares: what waits for it, its gate, and since when it has only failed.
//!
//! A row with something waiting is the endpoint's wake entry: the scheduler finds all work through these
//! rows, and a pause touches none of what waits. Settled: folds from the entry alone.

use serde::{Deserialize, Serialize};

use crate::fact::{Entry, Fact, Failure, Response};
use crate::ids::EndpointKey;
use crate::policy::ErrorClass;
use crate::tables::{Cadence, Table, Tables};
use crate::time::{Millis, Timestamp};

/// Who takes this long holds a permit that others could use, whatever comes of it: a success whose body drips until
/// the time-out, a failure at the last moment, a name or a connection that never comes (5 s each).
pub const PROMPT: Millis = Millis::from_secs(5);

/// The lanes by endpoint.
pub struct Lanes;

/// An endpoint's traffic as it is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lane {
    /// Deliveries that wait.
    pub waiting: u64,
    /// Deliveries with a request out.
    pub in_flight: u64,
    /// No attempt starts before (`Retry-After`).
    pub gate_until: Timestamp,
    /// The first failure since the last success.
    pub failing_since: Option<Timestamp>,
    /// Failures since the last success.
    pub failures: u64,
    /// What the last finished attempt says of how long the next will take.
    pub pace: Pace,
    /// The newest failure.
    pub failed_at: Timestamp,
    /// Failures since the last success that say that the endpoint is down: no answer, or a 5xx.
    pub down: u32,
    /// Whether it was noticed, since the last success, that it keeps failing.
    pub noticed: bool,
}

/// How soon an endpoint answers, by its last finished attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pace {
    /// It has had none yet.
    #[default]
    Unknown,
    /// It ended within [`PROMPT`], and before its time-out.
    Prompt,
    /// It took longer.
    Slow,
}

impl Pace {
    fn of(took: Millis) -> Pace {
        if took < PROMPT { Pace::Prompt } else { Pace::Slow }
    }
}

impl Table for Lanes {
    const NAME: &'static str = "lanes";
    const CADENCE: Cadence = Cadence::Settled;
    type Key = EndpointKey;
    type Value = Lane;
}

/// Folds whatever an endpoint's traffic shows.
pub fn fold<T: Tables>(tables: &mut T, entry: &Entry) -> Result<(), T::Error> {
    let key = match &entry.fact {
        Fact::Enqueued { key, .. }
        | Fact::EndpointGated { key, .. }
        | Fact::EndpointKeptFailing { key, .. }
        | Fact::EndpointResumed { key } => *key,
        fact => match fact.of() {
            Some(of) => of.endpoint_key(),
            None => return Ok(()),
        },
    };
    let before = tables.get::<Lanes>(&key)?.unwrap_or_default();
    let mut lane = before;
    match &entry.fact {
        Fact::Enqueued { .. } | Fact::Replayed { .. } => lane.waiting += 1,
        // A person who resumes it wants to see: it starts afresh.
        Fact::EndpointResumed { .. } => {
            (lane.failing_since, lane.failures, lane.down, lane.pace) = (None, 0, 0, Pace::Unknown);
            lane.noticed = false;
            lane.gate_until = Timestamp(0);
        }
        Fact::EndpointKeptFailing { .. } => lane.noticed = true,
        Fact::EndpointGated { until, .. } => lane.gate_until = lane.gate_until.max(*until),
        Fact::Attempted { .. } => {
            lane.waiting = lane.waiting.wrapping_sub(1);
            lane.in_flight += 1;
        }
        Fact::Delivered { response, .. } => {
            lane.in_flight = lane.in_flight.wrapping_sub(1);
            lane.failing_since = None;
            lane.failures = 0;
            lane.down = 0;
            lane.noticed = false;
            lane.pace = Pace::of(response.took);
        }
        Fact::Failed { counted, failure, .. } => {
            lane.in_flight = lane.in_flight.wrapping_sub(1);
            if *counted {
                lane.failures += 1;
                lane.failing_since = lane.failing_since.or(Some(entry.at));
                lane.failed_at = entry.at;
                lane.pace = match failure {
                    Failure::Error { class: ErrorClass::Timeout, .. } => Pace::Slow,
                    Failure::Error { took, .. } | Failure::Answered(Response { took, .. }) => Pace::of(*took),
                };
                lane.down = match failure {
                    Failure::Error { class: ErrorClass::NotSent | ErrorClass::Worker, .. } => lane.down,
                    Failure::Answered(response) if response.status < 500 => 0,
                    _ => lane.down.saturating_add(1),
                };
            }
        }
        Fact::Rescheduled { was_due_at: None, .. } => lane.waiting += 1,
        Fact::Dead { was_due_at: Some(_), .. } | Fact::Cancelled { .. } => {
            lane.waiting = lane.waiting.wrapping_sub(1);
        }
        _ => {}
    }
    if lane == before { Ok(()) } else { tables.put::<Lanes>(&key, &lane) }
}
