//! The full sizes of what the other tests play scaled down, with their figures printed. Not among the tests of
//! `cargo test`; `tests/run --long` runs them, optimised.

mod support;

use hooklog_projections::ids::Seq;
use hooklog_projections::lifecycle::Status;
use hooklog_projections::policy::{Rollout, Schedule};
use hooklog_projections::time::Millis;
use support::outage::{drain_after_a_restart, never_again, outage};
use support::stage::Stage;

const HOUR: u64 = 3_600_000;

#[test]
fn six_hours_down_with_ten_thousand_deliveries() {
    outage(10_000);
}

#[test]
fn a_restart_with_a_hundred_thousand_due_at_once() {
    drain_after_a_restart(100_000);
}

#[test]
fn two_thousand_deliveries_to_an_endpoint_that_never_comes_back() {
    never_again(2_000);
}

/// C79: the attempt that a counter of 16 bits could not hold, and the two around it.
#[test]
fn c79_a_delivery_of_65_537_attempts_goes_on_as_before() {
    let mut stage = Stage::new();
    stage.account(None, Rollout::On);
    stage.policy.disable_after = Millis(u64::MAX);
    stage.start();
    stage.endpoint_with("shop", "*", &["500"], |settings| settings.schedule = Some(Schedule::Ukue));
    stage.enqueue_with("evt_1", "a.b", b"{}", |event| event.max_tries = Some(65_537)).unwrap();
    stage.run_to_rest();
    let gaps = stage.sent.windows(2).map(|pair| pair[1].at.since(pair[0].at).0);
    assert!(gaps.skip(9).all(|gap| (HOUR..=HOUR + HOUR / 10 + 1_000).contains(&gap)));
    let seq: Seq = *stage.known.keys().next().expect("it was taken");
    let row = stage.delivery(seq);
    assert_eq!((row.state.status(), row.attempts, stage.sent.len()), (Status::Dead, 65_537, 65_537));
}
