//! The server's own policies: what holds where neither endpoint nor account says otherwise.

use hooklog_projections::fact::{AccountSettings, EndpointSettings};
use hooklog_projections::ids::AccountId;
use hooklog_projections::lane::Lane;
use hooklog_projections::policy::{ResponsePolicy, Rollout, Schedule};
use hooklog_projections::time::{Millis, Timestamp};
use sha2::{Digest, Sha256};

use super::command::ENDPOINTS_MAX;
use crate::delivery::request::SignatureHeader;
use crate::scheduler::{Breaker, RetryPolicy};

/// Failures in a row, none of them a client error, after which an endpoint is taken to be down.
pub const BREAKER_FAILURES: u32 = 5;
/// Between two probes of an endpoint that is down: at first, then doubling up to the most. A backlog begins to
/// drain at most that long after the endpoint is well again.
const BREAKER_PAUSE: Millis = Millis(1_000);
const BREAKER_PAUSE_MAX: Millis = Millis(30_000);

/// Server-wide defaults and limits.
#[derive(Clone, Debug)]
pub struct ServerPolicy {
    /// The retry schedule.
    pub schedule: Schedule,
    /// The response policy.
    pub response_policy: ResponsePolicy,
    /// How many of a hundred accounts have retries, for those that do not say (`webhook_retries`).
    pub retries_percent: u8,
    /// Waits of the schedule are divided by this: 1 but in demonstrations and tests.
    pub wait_divisor: u32,
    /// Requests out at a time, over all endpoints.
    pub in_flight_max: usize,
    /// Requests out at a time to one receiver (scheme, host and port), whosever endpoints lead there: rule S16.
    /// Half of all if absent.
    pub target_in_flight_max: Option<usize>,
    /// The most endpoints of an account.
    pub endpoints_max: usize,
    /// What a 410 does to its endpoint.
    pub on_gone: OnGone,
    /// Nothing but failures for this long disables an endpoint.
    pub disable_after: Millis,
    /// Nothing but failures for this long, and the endpoint's owner is told; nobody is if absent.
    pub failing_notice_after: Option<Millis>,
    /// Carries the signature made with an account's secret.
    pub signature_header: SignatureHeader,
}

/// What a 410 does to its endpoint, beside ending the delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnGone {
    /// It is disabled: what waits is held.
    Disable,
    /// Nothing.
    Dead,
}

impl Default for ServerPolicy {
    fn default() -> ServerPolicy {
        ServerPolicy {
            schedule: Schedule::Ledger,
            response_policy: ResponsePolicy::Ledger,
            retries_percent: 100,
            wait_divisor: 1,
            in_flight_max: 256,
            target_in_flight_max: None,
            endpoints_max: ENDPOINTS_MAX,
            on_gone: OnGone::Disable,
            // Five days, as the field does it.
            disable_after: Millis::from_secs(5 * 24 * 3600),
            failing_notice_after: None,
            signature_header: SignatureHeader::default(),
        }
    }
}

impl ServerPolicy {
    /// Whether the owner of an endpoint that has only failed since then is to hear of it by now.
    pub fn keeps_failing(&self, since: Timestamp, now: Timestamp) -> bool {
        self.failing_notice_after.is_some_and(|after| now.since(since) >= self.played(after))
    }

    /// Whether an account's failed deliveries are retried. As the percentage grows, accounts only join.
    pub fn retries(&self, account: AccountId, settings: &AccountSettings) -> bool {
        match settings.webhook_retries {
            Rollout::On => true,
            Rollout::Off => false,
            Rollout::Default => {
                let hash = Sha256::digest(account.to_bytes());
                u16::from_be_bytes([hash[0], hash[1]]) % 100 < u16::from(self.retries_percent)
            }
        }
    }

    /// How many tries a delivery has, with the policies that hold for it now.
    pub fn tries(
        &self,
        account: AccountId,
        owner: &AccountSettings,
        endpoint: &EndpointSettings,
        max_tries: Option<u32>,
    ) -> u32 {
        if !self.retries(account, owner) {
            return 1;
        }
        RetryPolicy::of(self.schedule_of(owner, endpoint)).tries(max_tries)
    }

    /// The schedule that holds for an endpoint.
    pub fn schedule_of<'a>(
        &'a self,
        owner: &'a AccountSettings,
        endpoint: &'a EndpointSettings,
    ) -> &'a Schedule {
        endpoint.schedule.as_ref().or(owner.schedule.as_ref()).unwrap_or(&self.schedule)
    }

    /// The circuit breaker of an endpoint with that schedule; `None` while it is closed.
    pub fn breaker(&self, lane: &Lane, schedule: &Schedule) -> Option<Breaker> {
        let beyond = lane.down.checked_sub(BREAKER_FAILURES)?;
        let hold_max = self.played(RetryPolicy::of(schedule).hold_max());
        let pause = self.played(Millis((BREAKER_PAUSE.0 << beyond.min(5)).min(BREAKER_PAUSE_MAX.0)));
        Some(Breaker { probe_at: lane.failed_at + pause.min(hold_max), hold_max })
    }

    /// A wait as it is played.
    pub fn played(&self, wait: Millis) -> Millis {
        Millis(wait.0 / u64::from(self.wait_divisor.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn settings(webhook_retries: Rollout) -> AccountSettings {
        AccountSettings {
            name: "Acme".into(),
            owner_email: None,
            schedule: None,
            response_policy: None,
            webhook_retries,
        }
    }

    fn at(percent: u8) -> ServerPolicy {
        ServerPolicy { retries_percent: percent, ..ServerPolicy::default() }
    }

    proptest! {
        #[test]
        fn accounts_only_join_as_the_percentage_grows(account: u128, less in 0u8..=100, more in 0u8..=100) {
            let (account, less, more) = (AccountId(account), less.min(more), less.max(more));
            let default = settings(Rollout::Default);
            prop_assert!(!at(less).retries(account, &default) || at(more).retries(account, &default));
            prop_assert!(!at(0).retries(account, &default) && at(100).retries(account, &default));
            // Those that say so themselves are asked nothing: internal accounts first.
            prop_assert!(at(less).retries(account, &settings(Rollout::On)));
            prop_assert!(!at(more).retries(account, &settings(Rollout::Off)));
        }
    }

    #[test]
    fn ten_per_cent_are_about_a_tenth_and_the_same_ones_at_every_start() {
        let (policy, default) = (at(10), settings(Rollout::Default));
        let joined: Vec<u128> = (0..10_000).filter(|n| policy.retries(AccountId(*n), &default)).collect();
        assert!((900..=1_100).contains(&joined.len()), "{}", joined.len());
        // Spelled out: another hash would take retries from accounts that have them.
        assert_eq!(joined[..8], [1, 9, 17, 20, 26, 31, 33, 48]);
    }
}
