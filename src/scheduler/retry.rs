//! Retry policies: which wait comes before which try. Pure data and one draw.
//!
//! Never knows what failed, nor a clock.

use hooklog_projections::policy::{Jitter, Schedule};
use hooklog_projections::time::Millis;

const PLUS_MINUS_TEN: Jitter = Jitter { minus_percent: 10, plus_percent: 10 };
const UP_TO_TEN: Jitter = Jitter { minus_percent: 0, plus_percent: 10 };

/// The longest wait that a schedule of one's own may hold: 30 days.
pub const WAIT_MAX: Millis = Millis::from_secs(30 * 24 * 3600);
/// The most waits that a schedule of one's own may hold.
pub const WAITS_MAX: usize = 100;

/// The wait of a schedule that has none, if an event brings more tries than it has.
const WAIT_OF_NONE: Millis = Millis::from_secs(60);

/// A schedule, worked out: the waits in order and the spread around each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    waits: Vec<Millis>,
    jitter: Jitter,
}

impl RetryPolicy {
    /// The policy that a schedule names (design: *The life of a delivery*; the brief's plan, step 4).
    pub fn of(schedule: &Schedule) -> RetryPolicy {
        let secs = |list: &[u64]| list.iter().copied().map(Millis::from_secs).collect();
        match schedule {
            Schedule::Ledger => {
                RetryPolicy { waits: secs(&[60, 300, 1800, 7200, 43200]), jitter: PLUS_MINUS_TEN }
            }
            Schedule::Ledger5 => {
                RetryPolicy { waits: secs(&[300, 1800, 7200, 43200]), jitter: PLUS_MINUS_TEN }
            }
            Schedule::Ukue => RetryPolicy {
                waits: (0..29).map(|n| Millis::from_secs((10u64 << n.min(9)).min(3600))).collect(),
                jitter: UP_TO_TEN,
            },
            Schedule::StandardWebhooks => RetryPolicy {
                waits: secs(&[5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400]),
                jitter: PLUS_MINUS_TEN,
            },
            Schedule::Custom { waits, jitter } => RetryPolicy { waits: waits.clone(), jitter: *jitter },
        }
    }

    /// How many tries there are: one more than waits. `max_tries` of an event overrides it.
    pub fn tries(&self, max_tries: Option<u32>) -> u32 {
        max_tries.unwrap_or(self.waits.len() as u32 + 1).max(1)
    }

    /// The nominal wait before try `tries_used + 1`. Past the end of the list the last wait goes on, for
    /// events that bring a larger `max_tries`; of an empty list, a minute: never none.
    pub fn nominal(&self, tries_used: u32) -> Millis {
        let index = (tries_used.max(1) - 1) as usize;
        self.waits.get(index).or(self.waits.last()).copied().unwrap_or(WAIT_OF_NONE)
    }

    /// The wait before the next try, or `None` if all tries are used up. `draw` is any number; equal draws
    /// give equal waits.
    pub fn wait(&self, tries_used: u32, max_tries: Option<u32>, draw: u64) -> Option<Millis> {
        if tries_used >= self.tries(max_tries) {
            return None;
        }
        let nominal = self.nominal(tries_used).0;
        let shorter = percent(nominal, self.jitter.minus_percent);
        let spread = shorter.saturating_add(percent(nominal, self.jitter.plus_percent));
        Some(Millis((nominal - shorter).saturating_add(draw % spread.saturating_add(1))))
    }

    /// For how long a breaker may hold a try back: a tenth of all waits, shared by the tries, so that all
    /// holds together move a death no later than jitter might.
    pub fn hold_max(&self) -> Millis {
        let total = self.cumulative().last().copied().unwrap_or_default();
        Millis(total.0 / 10 / u64::from(self.tries(None)))
    }

    /// The nominal moments of all tries, counted from the first.
    pub fn cumulative(&self) -> Vec<Millis> {
        let mut at = Millis(0);
        let mut out = vec![at];
        for wait in &self.waits {
            at = Millis(at.0.saturating_add(wait.0));
            out.push(at);
        }
        out
    }

    /// The spread around each wait.
    pub fn jitter(&self) -> Jitter {
        self.jitter
    }
}

fn percent(of: u64, percent: u8) -> u64 {
    (u128::from(of) * u128::from(percent.min(100)) / 100) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spell(schedule: Schedule) -> String {
        let policy = RetryPolicy::of(&schedule);
        let secs: Vec<_> = policy.cumulative().iter().map(|at| (at.0 / 1000).to_string()).collect();
        format!("{} tries at {} s", policy.tries(None), secs.join(" "))
    }

    #[test]
    fn the_presets_are_those_of_the_brief() {
        insta::assert_snapshot!(spell(Schedule::Ledger), @"6 tries at 0 60 360 2160 9360 52560 s");
        insta::assert_snapshot!(spell(Schedule::Ledger5), @"5 tries at 0 300 2100 9300 52500 s");
        insta::assert_snapshot!(spell(Schedule::Ukue), @"30 tries at 0 10 30 70 150 310 630 1270 2550 5110 8710 12310 15910 19510 23110 26710 30310 33910 37510 41110 44710 48310 51910 55510 59110 62710 66310 69910 73510 77110 s");
        insta::assert_snapshot!(spell(Schedule::StandardWebhooks), @"10 tries at 0 5 305 2105 9305 27305 63305 113705 185705 272105 s");
    }

    #[test]
    fn ukue_takes_between_21_and_24_hours() {
        let policy = RetryPolicy::of(&Schedule::Ukue);
        let total = |draw: u64| -> u64 {
            (1..policy.tries(None)).map(|n| policy.wait(n, None, draw).unwrap().0).sum()
        };
        let hours = |ms: u64| ms as f64 / 3_600_000.0;
        assert!(hours(total(0)) >= 21.0, "{}", hours(total(0)));
        assert!(hours(policy.cumulative().last().unwrap().0) * 1.1 <= 24.0);
    }

    #[test]
    fn the_fifth_failed_retry_is_the_last() {
        let policy = RetryPolicy::of(&Schedule::Ledger);
        assert!(policy.wait(5, None, 0).is_some());
        assert_eq!(policy.wait(6, None, 0), None);
        assert_eq!(policy.wait(1, Some(1), 0), None);
        assert!(policy.wait(50, Some(60), 0).is_some());
        let none = Jitter { minus_percent: 0, plus_percent: 0 };
        let single = RetryPolicy::of(&Schedule::Custom { waits: Vec::new(), jitter: none });
        assert_eq!(single.wait(1, None, 0), None);
        assert_eq!(single.wait(1, Some(100), 0), Some(Millis::from_secs(60)), "not a hundred at once");
    }

    proptest! {
        #[test]
        fn a_wait_stays_within_its_spread(tries in 1u32..200_000, draw: u64, max in 1u32..u32::MAX) {
            for schedule in [Schedule::Ledger, Schedule::Ledger5, Schedule::Ukue, Schedule::StandardWebhooks] {
                let policy = RetryPolicy::of(&schedule);
                if let Some(wait) = policy.wait(tries, Some(max), draw) {
                    let nominal = policy.nominal(tries).0;
                    prop_assert!(wait.0 >= nominal - nominal / 10 && wait.0 <= nominal + nominal / 10);
                    prop_assert!(wait.0 > 0);
                }
            }
        }

        #[test]
        fn no_list_overflows(waits in proptest::collection::vec(any::<u64>(), 0..8), draw: u64, used: u32,
                             minus: u8, plus: u8) {
            let waits = waits.into_iter().map(Millis).collect();
            let jitter = Jitter { minus_percent: minus, plus_percent: plus };
            let policy = RetryPolicy::of(&Schedule::Custom { waits, jitter });
            let _ = (policy.wait(used, None, draw), policy.cumulative());
        }
    }
}
