//! How much an account may ask for: events taken in, and replays by its own keys (rules A10 and A31).
//!
//! Counted in memory; a restart begins anew. Never knows what is asked.

use hooklog_projections::ids::AccountId;
use hooklog_projections::time::Millis;

use super::ApiState;
use super::limits::Windows;
use super::problem::{Kind, Problem};

/// The most that an account may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Events taken in for one account in a minute.
    pub events_per_minute: u32,
    /// Replays and hurried tries that an account's own keys ask for in an hour. An operator and support have no
    /// such limit.
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
}

impl Spent {
    pub(super) fn new(quotas: Quotas) -> Spent {
        Spent {
            events: Windows::new(quotas.events_per_minute, Millis::from_secs(60)),
            replays: Windows::new(quotas.replays_per_hour, Millis::from_secs(3_600)),
        }
    }
}

impl ApiState {
    /// Counts one event of an account.
    pub(super) fn spend_event(&self, account: AccountId) -> Result<(), Problem> {
        let quotas = &self.shared.options.quotas;
        let spent = self.shared.spent.events.take(account, self.monotonic());
        spent.map_err(|seconds| {
            let most = quotas.events_per_minute;
            used_up(seconds, format!("the account has handed in {most} events within a minute, the most"))
        })
    }

    /// Counts one replay, if the account itself asks for it.
    pub(super) fn spend_replay(&self) -> Result<(), Problem> {
        let Some(account) = self.caller.account else { return Ok(()) };
        let spent = self.shared.spent.replays.take(account, self.monotonic());
        spent.map_err(|seconds| {
            let most = self.shared.options.quotas.replays_per_hour;
            used_up(seconds, format!("the account has asked for {most} replays within an hour, the most"))
        })
    }
}

fn used_up(seconds: u64, detail: String) -> Problem {
    Problem { retry_after: Some(seconds), ..Problem::new(Kind::TooMany, detail) }
}
