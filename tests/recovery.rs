//! The log cut short after every batch it ever had: each time the engine starts, nothing acknowledged is
//! missing, the views are exactly the log, and every delivery comes to its end.

mod support;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use hooklog::log::Disk;
use hooklog::log::mark::MemoryMark;
use hooklog::log::memory::MemoryDisk;
use hooklog::views::{Place, check};
use hooklog_projections::ids::DeliveryKey;
use hooklog_projections::lifecycle::State;
use hooklog_projections::policy::Rollout;
use hooklog_projections::time::{Millis, Timestamp};
use support::stage::{Stage, account};

#[test]
fn a_log_cut_after_any_batch_starts_again_and_loses_nothing() {
    let states: Rc<RefCell<Vec<(MemoryDisk, MemoryMark)>>> = Rc::default();
    let mut stage = Stage::new();
    stage.account(None, Rollout::On);
    stage.endpoint("well", "*", &["200"], None);
    stage.endpoint("ill", "*", &["500", "timeout", "503", "429/600", "refused", "503", "200"], None);
    let seen = states.clone();
    stage.after_batch = Some(Box::new(move |disk, mark| seen.borrow_mut().push((disk, mark))));
    for n in 0..4 {
        stage.enqueue(&format!("evt_{n}"), "payment.settled", b"{}").unwrap();
        stage.run_until(stage.now + Millis::from_secs(3 * 3600));
    }
    stage.after_batch = None;
    let states = states.borrow();
    assert!(states.len() > 20, "only {} batches", states.len());
    for (n, (disk, mark)) in states.iter().enumerate() {
        let mut again = Stage::on(disk.crash(), mark.after_kill(), stage.now);
        again.receivers_that_are_well(&["well", "ill"]);
        settle(&mut again, n);
    }
}

fn settle(stage: &mut Stage, n: usize) {
    stage.run_until(stage.now + Millis::from_secs(40 * 24 * 3600));
    let engine = stage.engine.as_mut().expect("it runs");
    engine.begin(Timestamp(0));
    engine.settle();
    engine.finish().unwrap();
    let view = engine.published().view();
    let counts = view.counts(None).unwrap();
    assert_eq!((counts.pending, counts.in_flight), (0, 0), "after batch {n}: {counts:?}");
    let page = view.history(account(), &Default::default(), Place::First, 100).unwrap();
    for (DeliveryKey { seq, .. }, row) in page.rows {
        assert!(
            matches!(row.state, State::Delivered { .. } | State::Dead { .. }),
            "after batch {n}: {seq} is {row:?}"
        );
    }
    let (snapshot, generation) = (view.snapshot().clone(), view.generation());
    let disk: Arc<dyn Disk> = Arc::new(stage.disk.clone());
    let report = check::check(disk, generation, &mut || Ok(snapshot.clone()), &mut |_, _, _| {}).unwrap();
    assert_eq!(report.findings, Vec::<String>::new(), "after batch {n}");
}
