//! What one event costs in keys (design: at most 8 for an event delivered to one endpoint at the first try),
//! counted on the real writes.

mod support;

use hooklog::log::memory::MemoryDisk;
use hooklog_projections::policy::Rollout;
use hooklog_projections::time::Millis;
use support::stage::Stage;

fn stage(script: &[&str]) -> Stage {
    let mut stage = Stage::new();
    stage.account(None, Rollout::On);
    stage.endpoint("shop", "*", script, None);
    stage
}

fn keys(stage: &mut Stage) -> hooklog::log::Written {
    stage.engine.as_mut().expect("it runs").log_mut().keys_written()
}

#[test]
fn an_event_delivered_at_the_first_try_writes_at_most_eight_keys() {
    // The receiver's answer has a body: the dearest way there is.
    let mut stage = stage(&["200"]);
    let before = keys(&mut stage);
    stage.enqueue("evt_1", "payment.settled", b"{}").unwrap();
    stage.run_until(stage.now + Millis(100));
    let after = keys(&mut stage);
    let (body, view) = (after.body - before.body, after.view - before.view);
    println!(
        "body {body} + views {view}; log {} and meta {} are shared by a batch",
        after.log - before.log,
        after.meta - before.meta
    );
    assert_eq!(body, 2, "the event's body and the response's");
    // Event, delivery twice, endpoint history, in flight in and out.
    assert_eq!(view, 6);
    assert_eq!(after.meta, before.meta);
    assert_eq!(after.log - before.log, 2, "one a batch");
}

#[test]
fn settled_tables_cost_their_rows_once_in_thousands_of_entries() {
    let mut stage = stage(&["200"]);
    let before = keys(&mut stage);
    for n in 0..3_000 {
        stage.enqueue(&format!("evt_{n}"), "payment.settled", b"{}").unwrap();
        stage.run_until(stage.now + Millis(100));
    }
    let after = keys(&mut stage);
    let per_event = (after.body + after.view - before.body - before.view) as f64 / 3_000.0;
    println!("{per_event:.3} keys an event");
    assert!(per_event <= 8.01, "{per_event}");
}

#[test]
fn what_comes_and_goes_in_one_batch_is_never_written() {
    // The due entry of a delivery that starts at once is not among the writes.
    let mut stage = stage(&["200"]);
    stage.enqueue("evt_1", "payment.settled", b"{}").unwrap();
    assert_eq!(rows(&stage.disk, "due"), 0);
}

fn rows(disk: &MemoryDisk, name: &'static str) -> usize {
    use std::ops::{Bound, ControlFlow};

    use hooklog::log::{Order, Read, Space};
    let mut seen = 0;
    let space = Space::View { name, version: 1 };
    disk.range(space, Bound::Unbounded, Bound::Unbounded, Order::Ascending, &mut |_, _| {
        seen += 1;
        ControlFlow::Continue(())
    })
    .unwrap();
    seen
}
