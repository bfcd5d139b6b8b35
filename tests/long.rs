//! The full sizes of what the other tests play scaled down, with their figures printed. Not among the tests of
//! `cargo test`; `tests/run --long` runs them, optimised.

mod support;

#[path = "support/sender.rs"]
mod sender;
#[path = "support/slow.rs"]
mod slow;
#[path = "support/steady.rs"]
mod steady;
#[path = "support/tls_receiver.rs"]
mod tls_receiver;
use support::{receiver, server};

use std::time::Duration;

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

/// C64 as the case has it: 2 s for a connection, 5 s in all, 210 requests at once, each within 0.3 s of its limit. Its
/// answers after 4.9 s and 5.1 s are as much further from the limit.
#[tokio::test(flavor = "multi_thread")]
async fn c64_every_phase_ends_in_time_with_two_hundred_at_once() {
    let limits = slow::Limits {
        connect: Duration::from_secs(2),
        total: Duration::from_secs(5),
        early: Duration::from_millis(4_600),
        late: Duration::from_millis(5_400),
        each: 30,
    };
    let over = slow::everybody(limits).await;
    println!("c64: the latest of {} requests ended {over:?} after its limit", 7 * limits.each);
    assert!(over <= Duration::from_millis(300), "{over:?}");
}

/// C128 as the case has it: 3,000 endpoints on 20 hosts and a busy one, half an hour, then 100,000 attempts to a host
/// that refuses.
#[tokio::test(flavor = "multi_thread")]
async fn c128_half_an_hour_of_many_endpoints_over_https() {
    let folder = tempfile::tempdir().expect("a folder");
    let load = steady::Load {
        hosts: 20,
        endpoints: 3_000,
        time: Duration::from_secs(30 * 60),
        busy_per_second: 200,
        others_per_second: 20,
        refused: 100_000,
    };
    let seen = steady::live(folder.path(), load).await;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let memory: Vec<_> = seen.memory.iter().map(|bytes| format!("{:.1}", mib(*bytes))).collect();
    println!(
        "c128: {} delivered; at most {} files and {} connections in TIME_WAIT; {:.1} % of the busy host's requests \
         over a kept connection; MiB by tenths of the time: {}; refused: {:.1} MiB after half of the attempts, \
         {:.1} after all, {} files",
        seen.delivered,
        seen.files_most,
        seen.time_wait_most,
        seen.reused_percent,
        memory.join(" "),
        mib(seen.refused_memory.0),
        mib(seen.refused_memory.1),
        seen.refused_files,
    );
    assert!(seen.files_most < 900 && seen.refused_files < 900, "{seen:?}");
    assert!(seen.time_wait_most < 1_000 && seen.reused_percent > 90.0, "{seen:?}");
    // Ten minutes each: the last against those in the middle.
    let mean = |tenths: &[u64]| tenths.iter().sum::<u64>() as f64 / tenths.len() as f64;
    let (middle, last) = (mean(&seen.memory[3..7]), mean(&seen.memory[6..]));
    println!(
        "c128: the last ten minutes took {:+.1} % more memory than the middle ten",
        (last / middle - 1.0) * 100.0
    );
    assert!(last <= middle * 1.05, "{seen:?}");
}
