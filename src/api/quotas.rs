//! How much an account may ask for: events taken in, and replays by its own keys (rules A10 and A31); and how every
//! answer that counts against a quota says how it stands.
//!
//! Counted in memory; a restart begins anew. Never knows what is asked.

use std::fmt::Write;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

use axum::http::{HeaderMap, HeaderValue};
use hooklog_projections::ids::AccountId;
use hooklog_projections::time::Millis;

use super::ApiState;
use super::limits::{Room, Windows};
use super::problem::{Kind, Problem};

/// The most that an account may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Events taken in for one account in a minute.
    pub events_per_minute: u32,
    /// Replays, tests and hurried tries that an account's own keys ask for in an hour. An operator and support have
    /// no such limit.
    pub replays_per_hour: u32,
}

impl Default for Quotas {
    fn default() -> Quotas {
        Quotas { events_per_minute: 1_000_000, replays_per_hour: 1_000 }
    }
}

/// What was asked for lately.
pub(super) struct Spent {
    events: Windows<AccountId>,
    replays: Windows<AccountId>,
    /// The operator is told of an account once in such a span, not of each event that is refused.
    told: Windows<AccountId>,
}

impl Spent {
    pub(super) fn new(quotas: Quotas) -> Spent {
        Spent {
            events: Windows::new(quotas.events_per_minute, Millis::from_secs(60)),
            replays: Windows::new(quotas.replays_per_hour, Millis::from_secs(3_600)),
            told: Windows::new(1, Millis::from_secs(60)),
        }
    }
}

/// How one quota stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Its name, for programs.
    pub name: &'static str,
    /// How often within a window.
    most: u32,
    /// The window, s.
    window: u64,
    room: Room,
}

impl Quota {
    /// Counts one.
    ///
    /// # Errors
    /// The quota, if it is used up; then nothing is counted.
    pub(super) fn take<K: Hash + Eq + Copy>(
        name: &'static str,
        windows: &Windows<K>,
        key: K,
        now: Millis,
    ) -> Result<Quota, Quota> {
        let (most, window) = windows.policy();
        let quota = |room| Quota { name, most, window, room };
        let taken = windows.take(key, now);
        taken.map(quota).map_err(|seconds| quota(Room { left: 0, seconds }))
    }

    /// The refusal of what is over the quota.
    pub(super) fn used_up(self, detail: impl Into<String>) -> Problem {
        let retry_after = Some(self.room.seconds);
        Problem { retry_after, quota: Some(Box::new(self)), ..Problem::new(Kind::TooMany, detail) }
    }
}

/// The quotas that a request counted against, to be told with its answer.
#[derive(Clone, Default)]
pub(super) struct Told(Arc<Mutex<Vec<Quota>>>);

impl Told {
    /// Notes how a quota stands; of several of one name the fullest is told.
    fn note(&self, quota: Quota) {
        let mut all = self.0.lock().expect("no holder panics");
        match all.iter_mut().find(|known| known.name == quota.name) {
            Some(known) if known.room.left <= quota.room.left => {}
            Some(known) => *known = quota,
            None => all.push(quota),
        }
    }

    /// Writes the fields, if there is anything to tell.
    pub(super) fn write(&self, headers: &mut HeaderMap) {
        write(&self.0.lock().expect("no holder panics"), headers);
    }
}

/// Writes `RateLimit` and `RateLimit-Policy` as in draft-ietf-httpapi-ratelimit-headers-10, §3 and §4: two lists of
/// Structured Fields. The one place that knows the draft.
pub(super) fn write(quotas: &[Quota], headers: &mut HeaderMap) {
    if quotas.is_empty() {
        return;
    }
    let (mut policy, mut limit) = (String::new(), String::new());
    for Quota { name, most, window, room } in quotas {
        let comma = if policy.is_empty() { "" } else { ", " };
        let _ = write!(policy, "{comma}\"{name}\";q={most};w={window}");
        let _ = write!(limit, "{comma}\"{name}\";r={};t={}", room.left, room.seconds);
    }
    for (name, value) in [("ratelimit-policy", policy), ("ratelimit", limit)] {
        if let Ok(value) = HeaderValue::try_from(value) {
            headers.insert(name, value);
        }
    }
}

impl ApiState {
    /// Counts one event of an account.
    pub(super) fn spend_event(&self, account: AccountId) -> Result<(), Problem> {
        let taken = Quota::take("events", &self.shared.spent.events, account, self.monotonic());
        if taken.is_err() && self.shared.spent.told.take(account, self.monotonic()).is_ok() {
            let most = self.shared.options.quotas.events_per_minute;
            tracing::warn!(%account, most, "an account has used up its events of a minute: more are refused");
        }
        self.counted(taken, |most| {
            format!("the account has handed in {most} events within a minute, the most")
        })
    }

    /// Counts one replay, if the account itself asks for it.
    pub(super) fn spend_replay(&self) -> Result<(), Problem> {
        let Some(account) = self.caller.account else { return Ok(()) };
        let taken = Quota::take("replays", &self.shared.spent.replays, account, self.monotonic());
        self.counted(taken, |most| {
            format!("the account has asked for {most} replays within an hour, the most")
        })
    }

    fn counted(
        &self,
        taken: Result<Quota, Quota>,
        detail: impl FnOnce(u32) -> String,
    ) -> Result<(), Problem> {
        let (Ok(quota) | Err(quota)) = taken;
        self.told.note(quota);
        taken.map(drop).map_err(|quota| quota.used_up(detail(quota.most)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_told_as_the_draft_has_them_and_the_fullest_counts() {
        let (told, windows) = (Told::default(), Windows::new(2, Millis::from_secs(60)));
        let mut headers = HeaderMap::new();
        told.write(&mut headers);
        assert!(headers.is_empty(), "nothing was counted");
        let mut taken = Vec::new();
        for (name, key, now) in
            [("a", 1, 0), ("a", 1, 500), ("b", 2, 1_000), ("a", 3, 2_000), ("a", 1, 31_000)]
        {
            let quota = Quota::take(name, &windows, key, Millis(now));
            let (Ok(told_one) | Err(told_one)) = quota;
            told.note(told_one);
            taken.push(quota.is_ok());
        }
        assert_eq!(taken, [true, true, true, true, false]);
        told.write(&mut headers);
        assert_eq!(headers["ratelimit-policy"], "\"a\";q=2;w=60, \"b\";q=2;w=60");
        assert_eq!(headers["ratelimit"], "\"a\";r=0;t=60, \"b\";r=1;t=60");
    }
}
