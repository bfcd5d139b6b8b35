//! What happened in each hour, per endpoint and per account: how attempts ended and how long they took, and which
//! gates a receiver asked for.
//!
//! Settled: folds from the entry alone, and costs no key of a delivery's own. Never knows what is charted.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::fact::{Entry, Fact, Failure, Response};
use crate::ids::{AccountId, EndpointId, EndpointKey};
use crate::policy::ErrorClass;
use crate::tables::{Cadence, Table, Tables};
use crate::time::{Millis, Timestamp};

/// The figures of each hour.
pub struct Hours;

/// The gates of each hour.
pub struct Gates;

/// An hour of an endpoint, or of all endpoints of an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HourKey {
    /// Whose.
    pub account: AccountId,
    /// Which; `None`: all of the account's.
    pub endpoint: Option<EndpointId>,
    /// Hours since 1970.
    pub hour: u32,
}

/// How an attempt can end: by the first digit of an answer's status, or by the error.
pub const CLASSES: usize = 17;

/// The words of the classes, in the order of [`Hour::classes`].
pub const CLASS_NAMES: [&str; CLASSES] = [
    "2xx",
    "3xx",
    "4xx",
    "5xx",
    "dns",
    "connect",
    "tls",
    "timeout",
    "closed",
    "protocol",
    "egress_denied",
    "interrupted",
    "not_sent",
    "done",
    "worker",
    "lease_expired",
    "other",
];

/// Buckets of a duration. The n-th holds what took at most 2^(n/2) ms; the last one all above 32 s.
pub const TOOK_BUCKETS: usize = 32;

/// The figures of one hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hour {
    /// Deliveries that arrived.
    pub delivered: u64,
    /// Attempts that failed, those that used up no try included.
    pub failed: u64,
    /// Deliveries that were given up.
    pub dead: u64,
    /// Deliveries that were called off.
    pub cancelled: u64,
    /// Runs that a replay began.
    pub replayed: u64,
    /// Attempts that ended, by [`CLASS_NAMES`].
    pub classes: [u64; CLASSES],
    /// Attempts that left and ended, by how long they took.
    pub took: [u64; TOOK_BUCKETS],
}

impl Hour {
    /// Adds another hour's figures.
    pub fn add(&mut self, other: &Hour) {
        self.delivered += other.delivered;
        self.failed += other.failed;
        self.dead += other.dead;
        self.cancelled += other.cancelled;
        self.replayed += other.replayed;
        self.classes.iter_mut().zip(other.classes).for_each(|(to, from)| *to += from);
        self.took.iter_mut().zip(other.took).for_each(|(to, from)| *to += from);
    }

    /// Attempts that ended.
    pub fn attempts(&self) -> u64 {
        self.delivered + self.failed
    }

    /// A duration that `percent` of the attempts did not exceed, rounded up to its bucket; `None` without one.
    pub fn took_at(&self, percent: u64) -> Option<Millis> {
        let total: u64 = self.took.iter().sum();
        let rank = (total * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let bucket = self.took.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(Millis(bucket_max(bucket)))
    }

    fn ended(&mut self, class: usize, took: Option<Millis>) {
        self.classes[class] += 1;
        if let Some(took) = took {
            let bucket = (0..TOOK_BUCKETS - 1).find(|n| took.0 <= bucket_max(*n));
            self.took[bucket.unwrap_or(TOOK_BUCKETS - 1)] += 1;
        }
    }
}

/// The longest duration of a bucket, ms: powers of two, and between them their mean by factor.
fn bucket_max(bucket: usize) -> u64 {
    let whole = 1u64 << (bucket / 2);
    if bucket.is_multiple_of(2) { whole } else { whole * 1_414 / 1_000 }
}

/// Gates asked for in an hour, oldest first: (when, until when). An end at 0 is a resume, which lifts all.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatesOfHour(pub Vec<(Timestamp, Timestamp)>);

/// A gate that ends before one that is known changes nothing and is not kept; a minute apart, as gates are, no more
/// than this fit in an hour. Beyond it the newest replaces the last.
const GATES_MAX: usize = 120;

/// No gate is longer, so one that was asked for earlier is over.
pub const GATE_HOURS: u32 = 24;

impl Table for Hours {
    const NAME: &'static str = "hours";
    const CADENCE: Cadence = Cadence::Settled;
    type Key = HourKey;
    type Value = Hour;
}

impl Table for Gates {
    const NAME: &'static str = "gates";
    const CADENCE: Cadence = Cadence::Settled;
    type Key = HourKey;
    type Value = GatesOfHour;
}

/// The hour of a moment.
pub fn hour_of(at: Timestamp) -> u32 {
    u32::try_from(at.0 / 3_600_000).unwrap_or(u32::MAX)
}

/// Folds ends of attempts and of deliveries, and gates.
pub fn fold<T: Tables>(tables: &mut T, entry: &Entry) -> Result<(), T::Error> {
    match &entry.fact {
        Fact::EndpointGated { key, until } => return gated(tables, key, entry.at, *until),
        Fact::EndpointResumed { key } => return gated(tables, key, entry.at, Timestamp(0)),
        _ => {}
    }
    let Some(of) = entry.fact.of() else { return Ok(()) };
    let change: &dyn Fn(&mut Hour) = match &entry.fact {
        Fact::Delivered { response, .. } => &|hour| {
            hour.delivered += 1;
            hour.ended(of_response(response), Some(response.took));
        },
        Fact::Failed { failure: Failure::Answered(response), .. } => &|hour| {
            hour.failed += 1;
            hour.ended(of_response(response), Some(response.took));
        },
        Fact::Failed { failure: Failure::Error { class, took, .. }, .. } => &|hour| {
            hour.failed += 1;
            let left =
                !matches!(class, ErrorClass::Interrupted | ErrorClass::NotSent | ErrorClass::LeaseExpired);
            hour.ended(of_error(*class), left.then_some(*took));
        },
        Fact::Dead { .. } => &|hour| hour.dead += 1,
        Fact::Cancelled { .. } => &|hour| hour.cancelled += 1,
        Fact::Replayed { .. } => &|hour| hour.replayed += 1,
        _ => return Ok(()),
    };
    for endpoint in [None, Some(of.endpoint)] {
        let key = HourKey { account: of.account, endpoint, hour: hour_of(entry.at) };
        let mut hour = tables.get::<Hours>(&key)?.unwrap_or_default();
        change(&mut hour);
        tables.put::<Hours>(&key, &hour)?;
    }
    Ok(())
}

fn gated<T: Tables>(
    tables: &mut T,
    key: &EndpointKey,
    at: Timestamp,
    until: Timestamp,
) -> Result<(), T::Error> {
    let key = HourKey { account: key.account, endpoint: Some(key.endpoint), hour: hour_of(at) };
    let mut gates = tables.get::<Gates>(&key)?.unwrap_or_default();
    let newest = gates.0.last().map_or(Timestamp(0), |(_, until)| *until);
    if until != Timestamp(0) && until <= newest {
        return Ok(());
    }
    if gates.0.len() >= GATES_MAX {
        gates.0.pop();
    }
    gates.0.push((at, until));
    tables.put::<Gates>(&key, &gates)
}

/// How an attempt ended, as one of [`CLASS_NAMES`]; `None` for facts that end none.
pub fn class_of(fact: &Fact) -> Option<&'static str> {
    let class = match fact {
        Fact::Delivered { response, .. } | Fact::Failed { failure: Failure::Answered(response), .. } => {
            of_response(response)
        }
        Fact::Failed { failure: Failure::Error { class, .. }, .. } => of_error(*class),
        _ => return None,
    };
    Some(CLASS_NAMES[class])
}

fn of_response(response: &Response) -> usize {
    // A worker did it.
    let Some(status) = response.code() else { return 13 };
    match status / 100 {
        2 => 0,
        3 => 1,
        4 => 2,
        5 => 3,
        // Statuses that HTTP does not know.
        _ => 16,
    }
}

fn of_error(class: ErrorClass) -> usize {
    match class {
        ErrorClass::Dns => 4,
        ErrorClass::Connect => 5,
        ErrorClass::Tls => 6,
        ErrorClass::Timeout => 7,
        ErrorClass::Closed => 8,
        ErrorClass::Protocol => 9,
        ErrorClass::EgressDenied => 10,
        ErrorClass::Interrupted => 11,
        ErrorClass::NotSent => 12,
        ErrorClass::Worker => 14,
        ErrorClass::LeaseExpired => 15,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_the_ends_of_buckets() {
        let mut hour = Hour::default();
        assert_eq!(hour.took_at(50), None);
        for took in 1..=100 {
            hour.ended(0, Some(Millis(took)));
        }
        // Fifty of them took at most 50 ms, which lies in the bucket up to 64.
        assert_eq!((hour.took_at(50), hour.took_at(95)), (Some(Millis(64)), Some(Millis(128))));
        let mut slow = Hour::default();
        slow.ended(7, Some(Millis(3_600_000)));
        slow.ended(7, Some(Millis(0)));
        assert_eq!((slow.took_at(50), slow.took_at(95)), (Some(Millis(1)), Some(Millis(bucket_max(31)))));
        hour.add(&slow);
        assert_eq!((hour.took.iter().sum::<u64>(), hour.classes[7]), (102, 2));
        let maxima: Vec<u64> = (0..TOOK_BUCKETS).map(bucket_max).collect();
        assert!(maxima.windows(2).all(|pair| pair[0] <= pair[1]), "{maxima:?}");
    }
}
