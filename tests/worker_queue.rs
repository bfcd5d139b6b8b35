//! Worker queues on the simulated clock: claimed, ended in every way, lost with their workers, given out again,
//! and what a worker that comes too late is told.

mod support;

use hooklog::engine::leases::{CLAIM_WAIT_MAX, LEASE};
use hooklog::engine::{Command, Input, JobEnd, Rejection, Scope, Then};
use hooklog_projections::fact::{DeadReason, Fact, Failure};
use hooklog_projections::ids::{EndpointId, EndpointKey, LeaseId, Seq};
use hooklog_projections::lifecycle::{Delivery, State, Status};
use hooklog_projections::policy::{ErrorClass, Rollout};
use hooklog_projections::time::{Millis, Timestamp};
use support::stage::{Stage, account};

const SECOND: Millis = Millis(1_000);

fn stage() -> (Stage, EndpointKey) {
    let mut stage = Stage::new();
    stage.account(None, Rollout::On);
    let queue = stage.queue_with("webhooks", |_| ());
    (stage, queue)
}

fn failed(error: &str, then: Then) -> JobEnd {
    JobEnd::Failed { error: error.into(), then }
}

/// The only delivery there is.
fn only(stage: &Stage) -> Delivery {
    let seq = *stage.known.keys().next().expect("something was enqueued");
    stage.delivery(seq)
}

fn due_at(row: &Delivery) -> Timestamp {
    match row.state {
        State::Pending { due_at } => due_at,
        _ => panic!("it does not wait: {row:?}"),
    }
}

/// What the newest attempt failed of, as the log has it.
fn last_error(stage: &Stage, row: &Delivery) -> String {
    let view = stage.engine.as_ref().expect("it runs").published().view();
    let story = view.story(row).expect("it can be read");
    let newest = story.into_iter().rev().find_map(|entry| match entry.fact {
        Fact::Failed { failure: Failure::Error { class: ErrorClass::Worker, detail, .. }, .. } => {
            Some(detail)
        }
        _ => None,
    });
    newest.expect("it failed").to_string()
}

#[test]
fn jobs_are_claimed_in_the_order_in_which_they_are_due_and_done() {
    let (mut stage, queue) = stage();
    for n in 1..=3 {
        stage.enqueue(&format!("evt_{n}"), "invoice.paid", b"{}").unwrap();
    }
    let jobs = stage.claim(queue, 2);
    let events: Vec<_> = jobs.iter().map(|job| job.event.as_str()).collect();
    assert_eq!(events, ["evt_1", "evt_2"]);
    for job in &jobs {
        let row = stage.delivery(job.delivery.seq);
        assert!(matches!(row.state, State::InFlight { .. }), "claimed before its record: {row:?}");
        assert_eq!((job.number, job.try_number, job.run, row.attempts), (1, 1, 1, 1));
        assert_eq!(job.until, stage.now + LEASE);
    }
    stage.run_for(Millis(250));
    stage.end(jobs[0].lease, JobEnd::Done).unwrap();
    let row = stage.delivery(jobs[0].delivery.seq);
    assert_eq!(row.state.status(), Status::Delivered);
    let last = row.last_attempt.expect("there was one");
    assert_eq!((last.status, last.error, last.took), (None, None, Millis(250)));
    // Who ends a job twice is told that it is over.
    assert_eq!(stage.end(jobs[0].lease, JobEnd::Done), Err(Rejection::LeaseOver));
    let rest = stage.claim(queue, 10);
    assert_eq!(rest.len(), 1);
    assert!(stage.claim(queue, 10).is_empty());
    assert!(stage.sent.is_empty(), "the courier was never asked");
    stage.always_true();
    let counts = stage.counts();
    assert_eq!((counts.delivered, counts.in_flight, counts.pending), (1, 2, 0));
}

#[test]
fn a_plain_error_waits_out_its_backoff() {
    let (mut stage, queue) = stage();
    stage.enqueue("evt_1", "invoice.paid", b"{}").unwrap();
    let job = stage.claim(queue, 1).remove(0);
    stage.end(job.lease, failed("connection refused", Then::Retry)).unwrap();
    let row = only(&stage);
    let wait = due_at(&row).since(stage.now);
    assert!((10_000..=11_000).contains(&wait.0), "{wait:?}");
    assert_eq!((row.tries, last_error(&stage, &row)), (1, "connection refused".to_owned()));
    stage.run_for(Millis(wait.0 - 1));
    assert!(stage.claim(queue, 1).is_empty(), "before it was due");
    stage.run_for(Millis(1));
    let again = stage.claim(queue, 1).remove(0);
    assert_eq!((again.number, again.try_number), (2, 2));
    assert_ne!(again.lease, job.lease);
    stage.end(again.lease, JobEnd::Done).unwrap();
    stage.always_true();
}

#[test]
fn a_permanent_error_is_dead_at_once_and_a_retry_starts_again_at_the_first_try() {
    let (mut stage, queue) = stage();
    stage.enqueue("evt_1", "invoice.paid", b"{}").unwrap();
    let job = stage.claim(queue, 1).remove(0);
    stage.end(job.lease, failed("answered 410 Gone", Then::Dead)).unwrap();
    let row = only(&stage);
    assert!(matches!(row.state, State::Dead { reason: DeadReason::Refused, .. }), "{row:?}");
    assert_eq!((row.tries, last_error(&stage, &row)), (1, "answered 410 Gone".to_owned()));
    stage.run_for(Millis::from_secs(24 * 3600));
    assert!(stage.claim(queue, 1).is_empty());
    let (delivery, reason) = (job.delivery, "the customer asked".into());
    stage.ask(Command::ReplayDelivery { delivery, scope: Scope::Dead, reason }).unwrap();
    let again = stage.claim(queue, 1).remove(0);
    assert_eq!((again.number, again.try_number, again.run), (2, 1, 2));
}

#[test]
fn retry_after_is_exact_and_counts_toward_the_tries() {
    let (mut stage, queue) = stage();
    stage.enqueue_with("evt_1", "invoice.paid", b"{}", |enqueue| enqueue.max_tries = Some(2)).unwrap();
    let job = stage.claim(queue, 1).remove(0);
    stage.end(job.lease, failed("answered 429", Then::RetryAfter(Millis(3_217)))).unwrap();
    assert_eq!(due_at(&only(&stage)), stage.now + Millis(3_217));
    stage.run_for(Millis(3_217));
    let job = stage.claim(queue, 1).remove(0);
    stage.end(job.lease, failed("answered 429", Then::RetryAfter(SECOND))).unwrap();
    let row = only(&stage);
    assert!(matches!(row.state, State::Dead { reason: DeadReason::Exhausted, .. }), "{row:?}");
}

#[test]
fn a_throttled_job_keeps_no_other_job_from_starting() {
    let (mut stage, queue) = stage();
    stage.enqueue("evt_1", "invoice.paid", b"{}").unwrap();
    stage.enqueue("evt_2", "invoice.paid", b"{}").unwrap();
    for _ in 0..8 {
        // As many failures as open a URL's breaker.
        let job = stage.claim(queue, 1).remove(0);
        stage.end(job.lease, failed("answered 429", Then::RetryAfter(Millis(0)))).unwrap();
    }
    let job = stage.claim(queue, 1).remove(0);
    stage.end(job.lease, failed("answered 429", Then::RetryAfter(Millis::from_secs(3600)))).unwrap();
    assert_eq!(stage.claim(queue, 1).len(), 1);
}

#[test]
fn thirty_tries_take_21_to_24_hours() {
    let (mut stage, queue) = stage();
    stage.enqueue("evt_1", "invoice.paid", b"{}").unwrap();
    let began = stage.now;
    for n in 1..=30 {
        let job = stage.claim(queue, 1).remove(0);
        assert_eq!(job.try_number, n);
        stage.end(job.lease, failed("no answer", Then::Retry)).unwrap();
        let row = only(&stage);
        if let State::Pending { due_at } = row.state {
            stage.run_until(due_at);
        }
    }
    let hours = stage.now.since(began).0 as f64 / 3_600_000.0;
    assert!((21.0..=24.0).contains(&hours), "{hours}");
    assert_eq!(only(&stage).state.status(), Status::Dead);
}

#[test]
fn a_lost_workers_job_is_back_within_a_minute_and_what_it_says_then_is_refused() {
    let (mut stage, queue) = stage();
    stage.enqueue("evt_1", "invoice.paid", b"{}").unwrap();
    let lost = stage.claim(queue, 1).remove(0);
    stage.run_for(Millis(59_999));
    assert!(stage.claim(queue, 1).is_empty(), "its worker may still be at it");
    stage.run_for(Millis(1));
    let row = only(&stage);
    assert_eq!((row.tries, row.interruptions), (0, 1), "a lost worker uses up no try");
    let found = stage.claim(queue, 1).remove(0);
    assert_eq!((found.number, found.try_number), (2, 1));
    for end in [JobEnd::Done, failed("too late", Then::Dead), JobEnd::Untouched] {
        assert_eq!(stage.end(lost.lease, end), Err(Rejection::LeaseOver));
    }
    assert_eq!(stage.extend(lost.lease), Err(Rejection::LeaseOver));
    assert!(matches!(only(&stage).state, State::InFlight { .. }), "the second worker's attempt goes on");
    stage.end(found.lease, JobEnd::Done).unwrap();
    assert_eq!(only(&stage).state.status(), Status::Delivered);
    stage.always_true();
}

#[test]
fn a_worker_that_is_heard_of_keeps_its_job() {
    let (mut stage, queue) = stage();
    stage.enqueue("evt_1", "invoice.paid", b"{}").unwrap();
    let job = stage.claim(queue, 1).remove(0);
    for _ in 0..10 {
        stage.run_for(Millis(50_000));
        assert_eq!(stage.extend(job.lease), Ok(stage.now + LEASE));
        assert!(stage.claim(queue, 1).is_empty());
    }
    stage.end(job.lease, JobEnd::Done).unwrap();
    let row = only(&stage);
    assert_eq!((row.attempts, row.interruptions), (1, 0));
    assert_eq!(row.last_attempt.unwrap().took, Millis(500_000));
}

#[test]
fn a_worker_that_waits_is_given_work_the_moment_there_is_some() {
    let (mut stage, queue) = stage();
    let (first, second) = (stage.wait_for(queue, 5, SECOND), stage.wait_for(queue, 5, CLAIM_WAIT_MAX));
    stage.run_for(Millis(400));
    assert_eq!(stage.given(first), None);
    stage.enqueue("evt_1", "invoice.paid", b"{}").unwrap();
    let jobs = stage.given(first).expect("it waited longest");
    assert_eq!(jobs.len(), 1);
    assert_eq!(stage.given(second), None, "one job is for one worker");
    // A job that fails is due again later; whoever waits then is given it at that moment.
    stage.end(jobs[0].lease, failed("later", Then::RetryAfter(Millis(7_000)))).unwrap();
    stage.run_for(Millis(6_999));
    assert_eq!(stage.given(second), None);
    stage.run_for(Millis(1));
    assert_eq!(stage.given(second).expect("it is due").len(), 1);
    // Nothing to do for as long as it waits.
    let third = stage.wait_for(queue, 5, SECOND);
    stage.run_for(Millis(999));
    assert_eq!(stage.given(third), None);
    stage.run_for(Millis(1));
    assert_eq!(stage.given(third), Some(Vec::new()));
}

#[test]
fn a_worker_that_left_while_it_waited_loses_nothing() {
    let (mut stage, queue) = stage();
    let ticket = stage.wait_for(queue, 1, CLAIM_WAIT_MAX);
    stage.enqueue("evt_1", "invoice.paid", b"{}").unwrap();
    let job = stage.given(ticket).expect("there is work").remove(0);
    // The driver finds that nobody takes the answer.
    stage.inputs([Input::Unclaimed { lease: job.lease }]);
    let row = only(&stage);
    assert_eq!((due_at(&row), row.tries, row.interruptions), (stage.now, 0, 0));
    let again = stage.claim(queue, 1).remove(0);
    // A worker that stops gives back what it has not begun.
    stage.end(again.lease, JobEnd::Untouched).unwrap();
    assert_eq!(stage.claim(queue, 1)[0].try_number, 1);
}

#[test]
fn what_workers_are_lost_under_is_given_out_alone() {
    let (mut stage, queue) = stage();
    stage.enqueue("evt_bad", "invoice.paid", b"{}").unwrap();
    for _ in 0..3 {
        assert_eq!(stage.claim(queue, 1).len(), 1);
        stage.run_for(LEASE);
    }
    for n in 1..=4 {
        stage.enqueue(&format!("evt_{n}"), "invoice.paid", b"{}").unwrap();
    }
    assert_eq!(only(&stage).interruptions, 3);
    let suspect = stage.claim(queue, 10);
    let events: Vec<_> = suspect.iter().map(|job| job.event.as_str()).collect();
    assert_eq!(events, ["evt_bad"], "nothing beside it");
    assert!(stage.claim(queue, 10).is_empty());
    stage.run_for(LEASE);
    // Lost again: it is due behind the others now, and waits until those are done.
    let others = stage.claim(queue, 10);
    assert_eq!(others.len(), 4);
    assert!(stage.claim(queue, 10).is_empty());
    for (n, job) in others.iter().enumerate() {
        assert!(stage.claim(queue, 10).is_empty(), "{n} of the others are out");
        stage.end(job.lease, JobEnd::Done).unwrap();
    }
    let suspect = stage.claim(queue, 10);
    assert_eq!(suspect.len(), 1);
    stage.end(suspect[0].lease, failed("it dies", Then::Dead)).unwrap();
    stage.enqueue("evt_5", "invoice.paid", b"{}").unwrap();
    assert_eq!(stage.claim(queue, 10).len(), 1);
    stage.always_true();
}

#[test]
fn a_restart_takes_every_lease_back() {
    let (mut stage, queue) = stage();
    stage.enqueue("evt_1", "invoice.paid", b"{}").unwrap();
    let before = stage.claim(queue, 1).remove(0);
    stage.crash();
    let row = only(&stage);
    assert_eq!((row.tries, row.interruptions), (0, 1));
    assert_eq!(stage.end(before.lease, JobEnd::Done), Err(Rejection::LeaseOver));
    let after = stage.claim(queue, 1).remove(0);
    assert_eq!(stage.extend(before.lease), Err(Rejection::LeaseOver));
    stage.end(after.lease, JobEnd::Done).unwrap();
    stage.always_true();
}

#[test]
fn a_delivery_id_is_no_lease_and_other_numbers_neither() {
    let (mut stage, queue) = stage();
    stage.enqueue("evt_1", "invoice.paid", b"{}").unwrap();
    let job = stage.claim(queue, 1).remove(0);
    for lease in [LeaseId(job.lease.0 ^ 1), LeaseId(0)] {
        assert_eq!(stage.extend(lease), Err(Rejection::LeaseOver));
        assert_eq!(stage.end(lease, JobEnd::Done), Err(Rejection::LeaseOver));
    }
    assert!(stage.extend(job.lease).is_ok());
}

#[test]
fn pausing_cancelling_hurrying_and_deadlines_are_as_for_urls() {
    let (mut stage, queue) = stage();
    stage.enqueue("evt_1", "invoice.paid", b"{}").unwrap();
    let waiting = stage.wait_for(queue, 1, CLAIM_WAIT_MAX);
    let first = stage.given(waiting).expect("there is work").remove(0);
    stage.ask(Command::PauseEndpoint { key: queue, reason: "maintenance".into() }).unwrap();
    let waiting = stage.wait_for(queue, 1, CLAIM_WAIT_MAX);
    stage.end(first.lease, failed("no answer", Then::RetryAfter(Millis(0)))).unwrap();
    assert_eq!(stage.given(waiting), None, "held, not lost");
    stage.ask(Command::ResumeEndpoint { key: queue }).unwrap();
    let job = stage.given(waiting).expect("it runs again").remove(0);
    stage.end(job.lease, failed("no answer", Then::Retry)).unwrap();
    // Hurried, then called off.
    stage.ask(Command::RetryNow { delivery: job.delivery }).unwrap();
    let job = stage.claim(queue, 1).remove(0);
    let cancel = Command::Cancel { delivery: job.delivery, reason: "asked".into() };
    assert!(matches!(stage.ask(cancel.clone()), Err(Rejection::NotPending { .. })));
    stage.end(job.lease, failed("no answer", Then::Retry)).unwrap();
    stage.ask(cancel).unwrap();
    stage.run_for(Millis::from_secs(100));
    assert!(stage.claim(queue, 1).is_empty());
    // Put off, and of no use after a while.
    let (from, until) = (stage.now + Millis(5_000), stage.now + Millis(9_000));
    stage
        .enqueue_with("evt_2", "invoice.paid", b"{}", |enqueue| {
            (enqueue.deliver_at, enqueue.expire_at) = (Some(from), Some(until));
        })
        .unwrap();
    assert!(stage.claim(queue, 1).is_empty());
    stage.run_until(until);
    assert!(stage.claim(queue, 1).is_empty());
    let dead = stage.counts();
    assert_eq!((dead.dead, dead.cancelled, dead.pending), (1, 1, 0));
    stage.always_true();
}

#[test]
fn a_queue_and_a_url_share_the_log_and_no_permit() {
    let mut stage = Stage::new();
    stage.policy.in_flight_max = 1;
    stage.crash();
    stage.account(None, Rollout::On);
    let queue = stage.queue_with("webhooks", |settings| settings.event_types = vec!["invoice.*".into()]);
    stage.endpoint("shop", "*", &["200"], None);
    for n in 0..20 {
        stage.enqueue(&format!("evt_{n}"), "invoice.paid", b"{}").unwrap();
    }
    let jobs = stage.claim(queue, 100);
    assert_eq!(jobs.len(), 20, "workers take no permit of the requests");
    stage.run_for(SECOND);
    assert_eq!(stage.sent.len(), 20, "and leave them theirs");
    for job in jobs {
        stage.end(job.lease, JobEnd::Done).unwrap();
    }
    assert_eq!(stage.counts().delivered, 40);
    stage.always_true();
}

#[test]
fn names_are_unique_and_a_queue_stays_one() {
    let (mut stage, queue) = stage();
    let row = {
        let view = stage.engine.as_ref().unwrap().published().view();
        view.endpoint(queue).unwrap().unwrap()
    };
    let other = EndpointKey { account: account(), endpoint: EndpointId(77) };
    let again = Command::CreateEndpoint { key: other, settings: row.settings, signing: vec![], secret: None };
    assert_eq!(stage.ask(again), Err(Rejection::QueueExists { name: "webhooks".into() }));
    for name in [None, Some("others".into())] {
        let changed = stage.change(queue, |settings| settings.queue = name);
        assert_eq!(changed, Err(Rejection::QueueFixed));
    }
    stage.endpoint("shop", "*", &["200"], None);
    let claim = |key| Command::Claim { queue: key, max: 1, wait: Millis(0) };
    let (shop, nobody) = (stage.names["shop"], other);
    assert_eq!(stage.ask(claim(shop)), Err(Rejection::UnknownQueue));
    assert_eq!(stage.ask(claim(nobody)), Err(Rejection::UnknownQueue));
}

#[test]
fn a_drain_sends_workers_home_and_still_hears_what_they_did() {
    let (mut stage, queue) = stage();
    stage.enqueue("evt_1", "invoice.paid", b"{}").unwrap();
    let job = stage.claim(queue, 1).remove(0);
    let waiting = stage.wait_for(queue, 1, CLAIM_WAIT_MAX);
    stage.engine.as_mut().unwrap().set_sending(false);
    stage.run_for(Millis(0));
    assert_eq!(stage.given(waiting), Some(Vec::new()));
    let claim = Command::Claim { queue, max: 1, wait: Millis(0) };
    assert_eq!(stage.ask(claim), Err(Rejection::Draining));
    stage.end(job.lease, JobEnd::Done).unwrap();
    assert_eq!(only(&stage).state.status(), Status::Delivered);
}

#[test]
fn a_cap_and_a_rate_hold_for_workers_too() {
    let mut stage = Stage::new();
    stage.account(None, Rollout::On);
    let capped = stage.queue_with("capped", |settings| {
        settings.in_flight_max = 3;
        settings.event_types = vec!["a.*".into()];
    });
    let slow = stage.queue_with("slow", |settings| {
        settings.rate_per_second = Some(2);
        settings.event_types = vec!["b.*".into()];
    });
    stage.run_for(SECOND);
    for n in 0..10 {
        stage.enqueue(&format!("evt_a{n}"), "a.b", b"{}").unwrap();
        stage.enqueue(&format!("evt_b{n}"), "b.b", b"{}").unwrap();
    }
    let jobs = stage.claim(capped, 100);
    assert_eq!(jobs.len(), 3);
    assert!(stage.claim(capped, 100).is_empty());
    stage.end(jobs[0].lease, JobEnd::Done).unwrap();
    assert_eq!(stage.claim(capped, 100).len(), 1);
    let mut claimed = 0;
    for _ in 0..40 {
        claimed += stage.claim(slow, 100).len();
        stage.run_for(Millis(100));
    }
    assert!((8..=9).contains(&claimed), "{claimed} in four seconds");
}

#[test]
fn a_job_that_a_worker_waits_for_writes_no_more_keys_than_a_request() {
    let (mut stage, queue) = stage();
    let keys = |stage: &mut Stage| stage.engine.as_mut().unwrap().log_mut().keys_written();
    let before = keys(&mut stage);
    stage.enqueue("evt_1", "invoice.paid", b"{}").unwrap();
    let job = stage.claim(queue, 1).remove(0);
    stage.run_for(Millis(50_000));
    stage.extend(job.lease).unwrap();
    stage.end(job.lease, JobEnd::Done).unwrap();
    let after = keys(&mut stage);
    // One body less than a request with an answer; but the due entry is written, and taken out by the claim.
    assert_eq!((after.body - before.body, after.view - before.view), (1, 9));
    // Nor is it where a worker waits: it comes and goes in one batch, and the delivery is written twice.
    let ticket = stage.wait_for(queue, 1, CLAIM_WAIT_MAX);
    stage.enqueue("evt_2", "invoice.paid", b"{}").unwrap();
    let job = stage.given(ticket).expect("it waits").remove(0);
    stage.end(job.lease, JobEnd::Done).unwrap();
    let last = keys(&mut stage);
    assert_eq!((last.body - after.body, last.view - after.view), (1, 6));
}

#[test]
fn ten_thousand_jobs_are_all_given_once() {
    let (mut stage, queue) = stage();
    stage.enqueue_many((0..10_000).map(|n| format!("evt_{n}")), "invoice.paid");
    let mut seen = std::collections::BTreeSet::<Seq>::new();
    loop {
        let jobs = stage.claim(queue, 100);
        if jobs.is_empty() {
            break;
        }
        for job in jobs {
            assert!(seen.insert(job.delivery.seq), "given twice");
            stage.end(job.lease, JobEnd::Done).unwrap();
        }
    }
    assert_eq!((seen.len(), stage.counts().delivered), (10_000, 10_000));
}
