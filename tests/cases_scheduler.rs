//! What went wrong in other webhook senders around due times, limits and the lives of endpoints, by the number
//! of the case. Played on a stage: days pass in milliseconds, and the list of what is always true is checked
//! after each.
//!
//! What of these cases needs a real process (kills, freezes, stops, second starts) is in
//! `tests/cases_process.rs`: C70, C73, C82.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hooklog::clock::SeededChance;
use hooklog::engine::{Answer, Command, Input, Ticket};
use hooklog::log::memory::Fault;
use hooklog::log::{self, Change, Disk, Log, Mark, Space};
use hooklog::scheduler::RetryPolicy;
use hooklog::views::{Place, rebuild};
use hooklog_projections::delivery::Deliveries;
use hooklog_projections::fact::{Actor, DeadReason, DisabledReason, EndpointSettings};
use hooklog_projections::ids::{DeliveryKey, EndpointId, Seq};
use hooklog_projections::lifecycle::{State, Status};
use hooklog_projections::policy::{Jitter, Rollout, Schedule};
use hooklog_projections::tables::{Key, Table};
use hooklog_projections::time::Millis;
use support::stage::{START, Sent, Stage, account, event, outcome};

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// A stage with an account whose deliveries are retried.
fn stage() -> Stage {
    let mut stage = Stage::new();
    stage.account(None, Rollout::On);
    stage
}

/// Waits of whole minutes, without jitter.
fn exactly(minutes: &[u64]) -> Option<Schedule> {
    let waits = minutes.iter().map(|minutes| Millis(minutes * MINUTE)).collect();
    Some(Schedule::Custom { waits, jitter: Jitter { minus_percent: 0, plus_percent: 0 } })
}

fn only(stage: &Stage) -> Seq {
    assert_eq!(stage.known.len(), 1);
    *stage.known.keys().next().expect("there is one")
}

/// When requests left, in minutes since the stage was set; without the times that receivers took.
fn minutes(sent: &[Sent]) -> Vec<u64> {
    sent.iter().map(|sent| sent.at.since(START).0 / MINUTE).collect()
}

#[test]
fn c67_every_state_that_waits_is_found_by_the_running_scheduler_and_by_a_start() {
    for restarts in [false, true] {
        let mut stage = stage();
        stage.endpoint("shop", "*", &["500", "500", "200"], None);
        stage.enqueue("evt_1", "payment.settled", b"{}").unwrap();
        // Each try is seen before the next may be due.
        for (tries, after) in [1_000, 2 * MINUTE, 10 * MINUTE].into_iter().enumerate() {
            stage.run_for(Millis(after));
            assert_eq!(stage.sent.len(), tries + 1);
            stage.always_true();
            if restarts {
                stage.crash();
                stage.always_true();
            }
        }
        let row = stage.delivery(only(&stage));
        assert_eq!((row.state.status(), row.tries, row.attempts), (Status::Delivered, 3, 3));
        assert_eq!(stage.sent.len(), 3);
    }
}

#[test]
fn c68_tries_and_waits_are_the_documented_pair_exactly() {
    let cases: [(&[u64], Option<u32>, &[u64]); 4] = [
        (&[1, 5, 30, 120, 720], None, &[0, 1, 6, 36, 156, 876]),
        (&[1, 5, 30, 120], None, &[0, 1, 6, 36, 156]),
        (&[1, 5, 30, 120, 720], Some(1), &[0]),
        (&[], None, &[0]),
    ];
    for (waits, max_tries, at) in cases {
        let mut stage = stage();
        stage.latency = Millis(0);
        stage.endpoint_with("shop", "*", &["500"], |settings| settings.schedule = exactly(waits));
        stage.enqueue_with("evt_1", "payment.settled", b"{}", |event| event.max_tries = max_tries).unwrap();
        let last = START + Millis(at[at.len() - 1] * MINUTE);
        stage.run_until(last - Millis(1));
        stage.always_true();
        stage.run_until(last + Millis(1));
        let row = stage.delivery(only(&stage));
        assert_eq!(row.state, State::Dead { at: last, reason: DeadReason::Exhausted }, "at its last failure");
        {
            let view = stage.engine.as_ref().unwrap().published().view();
            assert_eq!(view.owed(None, 10).unwrap().len(), 1, "its owner is to be told now");
        }
        stage.run_for(Millis(30 * DAY));
        assert_eq!(minutes(&stage.sent), at);
        let numbers: Vec<_> = stage.sent.iter().map(|sent| sent.number as usize).collect();
        assert_eq!(numbers, (1..=at.len()).collect::<Vec<_>>());
        stage.always_true();
    }
    // The presets, whose waits have a spread of ten per cent.
    for (schedule, tries, total) in [(Schedule::Ledger, 6, 52_560), (Schedule::Ledger5, 5, 52_500)] {
        let mut stage = Stage::new();
        stage.account(Some(schedule), Rollout::On);
        stage.endpoint("shop", "*", &["500"], None);
        stage.enqueue("evt_1", "payment.settled", b"{}").unwrap();
        stage.run_for(Millis(30 * DAY));
        let last = stage.sent.last().unwrap().at.since(START).0 / 1_000;
        assert_eq!(stage.sent.len(), tries);
        assert!((total * 9 / 10..=total * 11 / 10).contains(&last), "{last}");
        stage.always_true();
    }
}

/// No leases here: what is in flight is marked, one process owns the store, and a start takes over all marks
/// at once. So a result that comes late comes from a dead process and reaches nobody; one that is told twice
/// is dropped. What ended stays so until somebody asks for a replay.
#[test]
fn c71_a_late_or_repeated_result_changes_nothing() {
    let mut stage = stage();
    let mut chance = SeededChance::new(71);
    stage.latency = Millis(1_000);
    stage.endpoint_with("shop", "*", &["200"], |settings| settings.in_flight_max = 100);
    let mut crashes = 0;
    for round in 0..100 {
        stage.enqueue_many((0..20).map(|n| format!("evt-{round}-{n}")), "payment.settled");
        // Some have been answered and recorded when the process dies, some have not.
        stage.run_for(Millis(chance.below(1_500)));
        if chance.below(3) == 0 {
            let late: Vec<Seq> = stage.out.keys().copied().collect();
            stage.crash();
            crashes += 1;
            let again: BTreeSet<Seq> = stage.out.keys().copied().collect();
            // The dead process' results: of what is not out again, the new one knows of no request.
            for delivery in late.into_iter().filter(|seq| !again.contains(seq)) {
                stage.tell(delivery, "500");
                assert!(!stage.delivery(delivery).state.status().eq(&Status::Dead));
            }
        }
    }
    stage.run_to_rest();
    let ended: Vec<_> = stage.known.keys().copied().collect();
    let before = stage.head();
    for delivery in &ended {
        stage.tell(*delivery, "500");
    }
    assert_eq!(stage.head(), before, "a result of nothing in flight is no fact");
    assert_eq!((stage.counts().delivered, stage.known.len()), (2_000, 2_000));
    for seq in ended {
        let row = stage.delivery(seq);
        // At most one more request for each crash that it was in flight at.
        assert_eq!(row.attempts, 1 + row.interruptions);
        assert!(row.interruptions <= crashes);
    }
    assert!(crashes > 20, "{crashes}");
    stage.always_true();
}

#[test]
fn c77_after_an_outage_what_is_overdue_goes_out_in_turns_and_a_restart_resets_nothing() {
    // 50 endpoints, one of which has three quarters of it all; half of them answer 503.
    let attempts = |restarts: usize| {
        let mut stage = stage();
        stage.policy.in_flight_max = 64;
        stage.start();
        stage.told_at_once = 64;
        let mut keys = Vec::new();
        for n in 0..50 {
            let script = if n % 2 == 0 { "200" } else { "503" };
            let key = stage.endpoint_with(&format!("e{n}"), &format!("t{n}"), &[script], |_| ());
            stage.ask(Command::PauseEndpoint { key, reason: "the outage".into() }).unwrap();
            keys.push(key);
        }
        stage.enqueue_many((0..1_500).map(|n| format!("big-{n}")), "t0");
        for endpoint in 1..50 {
            stage.enqueue_many((0..10).map(|n| format!("e{endpoint}-{n}")), &format!("t{endpoint}"));
        }
        stage.endpoint("new", "new.*", &["200"], None);
        for key in &keys {
            stage.ask(Command::ResumeEndpoint { key: *key }).unwrap();
            assert!(stage.out.len() <= 64);
        }
        stage.crash();
        let per_endpoint = |stage: &Stage| {
            let mut out: BTreeMap<_, usize> = BTreeMap::new();
            for (attempt, _) in stage.out.values() {
                *out.entry(attempt.endpoint).or_default() += 1;
            }
            out.values().copied().max().unwrap_or(0)
        };
        // None has answered yet: all are of the half that such endpoints share.
        assert_eq!((stage.out.len(), per_endpoint(&stage)), (32, 1), "half of the permits, in turns");
        let asked = stage.now;
        stage.enqueue("evt_new", "new.one", b"{}").unwrap();
        for restart in 0..restarts.max(1) {
            for _ in 0..20 {
                stage.run_for(Millis(7));
                assert!(stage.out.len() <= 64 && per_endpoint(&stage) <= 8);
            }
            if restarts > 0 {
                stage.crash();
                assert!(restart < 3 || stage.delivery(only_of(&stage, "evt_new")).attempts > 0);
            }
        }
        let new = stage.sent.iter().find(|sent| sent.event.as_str() == "evt_new").expect("it was sent");
        assert!(new.at.since(asked).0 < 1_000, "{}", new.at.since(asked).0);
        stage.run_for(Millis(3 * MINUTE));
        assert_eq!(stage.counts().delivered, 1_500 + 24 * 10 + 1);
        stage.always_true();
        stage.known.keys().map(|seq| (*seq, stage.delivery(*seq))).collect::<BTreeMap<_, _>>()
    };
    let (without, with) = (attempts(0), attempts(5));
    for (seq, row) in &without {
        let other = &with[seq];
        assert!(other.tries.abs_diff(row.tries) <= 1, "{seq}: {} tries, then {}", row.tries, other.tries);
        assert_eq!(other.attempts, other.tries + other.interruptions);
    }
}

fn only_of(stage: &Stage, event: &str) -> Seq {
    let mut all = stage.known.keys().filter(|seq| stage.delivery(**seq).event.as_str() == event);
    *all.next().expect("it is known")
}

#[test]
fn c79_waits_never_overflow_nor_shrink_however_many_tries_there_are() {
    let ukue = RetryPolicy::of(&Schedule::Ukue);
    let mut before = Millis(0);
    for used in 1..=100_000 {
        let wait = ukue.wait(used, Some(u32::MAX), 0).expect("there are more tries");
        assert!(wait >= before && wait <= Millis(HOUR), "try {used}: {wait:?} after {before:?}");
        assert!(used < 10 || wait == Millis(HOUR));
        before = wait;
    }
    for waits in [vec![Millis(u64::MAX)], vec![Millis(1), Millis(u64::MAX), Millis(u64::MAX)]] {
        let jitter = Jitter { minus_percent: 100, plus_percent: 100 };
        let policy = RetryPolicy::of(&Schedule::Custom { waits, jitter });
        assert!(policy.wait(65_536, Some(u32::MAX), u64::MAX).is_some());
    }
    // A delivery that goes past 63, 64, 65, 127, 255 and 256; 65,536 of them are `tests/long.rs`'s.
    let mut stage = stage();
    stage.policy.disable_after = Millis(u64::MAX);
    stage.start();
    stage.endpoint_with("shop", "*", &["500"], |settings| settings.schedule = Some(Schedule::Ukue));
    stage.enqueue_with("evt_1", "a.b", b"{}", |event| event.max_tries = Some(100_000)).unwrap();
    stage.run_for(Millis(300 * HOUR));
    let gaps: Vec<_> = stage.sent.windows(2).map(|pair| pair[1].at.since(pair[0].at).0).collect();
    assert!(gaps.len() > 260, "{}", gaps.len());
    assert!(gaps[9..].iter().all(|gap| (HOUR..=HOUR + 6 * MINUTE + 1_000).contains(gap)), "{gaps:?}");
    stage.always_true();
}

#[test]
fn c80_what_cannot_run_hides_nothing_behind_it() {
    let mut stage = stage();
    // 500 of a paused endpoint, 300 behind a Retry-After, 100 of a disabled one: all older.
    let paused = stage.endpoint_with("paused", "p.*", &["200"], |_| ());
    stage.ask(Command::PauseEndpoint { key: paused, reason: "maintenance".into() }).unwrap();
    stage.endpoint("gated", "g.*", &["503/3600"], None);
    let gone = stage.endpoint_with("gone", "d.*", &["410"], |_| ());
    stage.enqueue("first", "g.x", b"{}").unwrap();
    stage.enqueue("last", "d.x", b"{}").unwrap();
    stage.run_for(Millis(1_000));
    stage.enqueue_many((0..500).map(|n| format!("p-{n}")), "p.x");
    stage.enqueue_many((0..300).map(|n| format!("g-{n}")), "g.x");
    stage.enqueue_many((0..100).map(|n| format!("d-{n}")), "d.x");
    // 600 whose deadline passes at once, at an endpoint with a rate of one a second: they cost no rate.
    stage.endpoint_with("late", "l.*", &["200"], |settings| settings.rate_per_second = Some(1));
    stage.enqueue("l-first", "l.x", b"{}").unwrap();
    let end = stage.now + Millis(100);
    for n in 0..600 {
        stage.enqueue_with(&format!("l-{n}"), "l.x", b"{}", |event| event.expire_at = Some(end)).unwrap();
    }
    stage.run_for(Millis(900));
    stage.endpoint("well", "w.*", &["200"], None);
    let before = stage.sent.len();
    for restart in [false, true] {
        if restart {
            stage.run_for(Millis(100));
            stage.crash();
        }
        let event = format!("w-{restart}");
        stage.enqueue(&event, "w.x", b"{}").unwrap();
        assert_eq!(stage.sent.last().unwrap().event.as_str(), event, "at once");
    }
    stage.enqueue("l-last", "l.x", b"{}").unwrap();
    stage.run_for(Millis(2_000));
    let sent: Vec<_> = stage.sent[before..].iter().map(|sent| sent.event.as_str().to_owned()).collect();
    assert_eq!(sent, ["w-false", "w-true", "l-last"]);
    assert_eq!((stage.counts().dead, stage.counts().pending), (601, 901));
    let view = stage.engine.as_ref().unwrap().published().view();
    let hold = view.endpoint(gone).unwrap().unwrap().hold;
    assert!(hold.is_some(), "a 410 disables");
    stage.always_true();
}

/// Rows that cannot be read stand first in line. They are said to be damaged, once in each process; whoever is
/// behind them goes; and since the log is the truth, views made anew bring them back.
#[test]
fn c80_records_that_cannot_be_read_hide_nothing_and_come_back_with_a_rebuild() {
    let mut stage = stage();
    let shop = stage.endpoint_with("shop", "*", &["200"], |_| ());
    stage.ask(Command::PauseEndpoint { key: shop, reason: "maintenance".into() }).unwrap();
    stage.enqueue_many((0..200).map(|n| format!("bad-{n}")), "a.b");
    let space = Space::View { name: Deliveries::NAME, version: 1 };
    let bad: Vec<Seq> = stage.known.keys().copied().collect();
    for seq in &bad {
        let key = DeliveryKey { account: account(), seq: *seq }.bytes();
        stage.disk.write(&[Change::put(space, key, vec![1, 0xc1])]).unwrap();
    }
    stage.enqueue_many(["good".to_owned()], "a.b");
    for restart in [false, true] {
        if restart {
            stage.crash();
        } else {
            stage.ask(Command::ResumeEndpoint { key: shop }).unwrap();
        }
        stage.run_for(Millis(HOUR));
        assert_eq!(stage.sent.len(), 1);
        assert_eq!((stage.sent[0].event.as_str(), stage.counts().delivered), ("good", 1));
        assert_eq!(stage.engine.as_ref().unwrap().next_wake(), None, "they are not tried in a loop");
    }
    stage.engine = None;
    stage.disk = stage.disk.crash();
    let opened = Log::open(Arc::new(stage.disk.clone()), Mark::memory(&stage.mark), log::Options::default());
    rebuild::rebuild_stopped(&mut opened.unwrap().into_log(), &mut |_, _| {}).unwrap();
    stage.start();
    stage.run_for(Millis(HOUR));
    assert_eq!((stage.sent.len(), stage.counts().delivered), (201, 201));
    stage.always_true();
}

#[test]
fn c83_nothing_is_sent_that_is_not_durable_and_all_that_is_will_be() {
    // A commit that fails: nobody is told yes, nothing leaves; the producer's repeat makes one delivery.
    for applied in [false, true] {
        let mut stage = stage();
        stage.endpoint("shop", "*", &["200"], None);
        stage.disk.fail_next_write(Fault::Unknown { applied });
        let command = Command::Enqueue(Box::new(event("evt_1", "payment.settled", b"{}")));
        stage.turn_that_fails([Input::Command { ticket: Ticket(99), actor: Actor::Cli, command }]);
        assert!(stage.sent.is_empty(), "a request left before its record");
        stage.crash();
        stage.run_for(Millis(1_000));
        let again = stage.enqueue("evt_1", "payment.settled", b"{}").unwrap();
        let Answer::Accepted { duplicate, deliveries, .. } = again else { panic!("{again:?}") };
        assert_eq!(duplicate, applied, "the same event, if the write was done after all");
        stage.known.extend(deliveries.iter().map(|seq| (*seq, bytes::Bytes::from_static(b"{}"))));
        stage.run_to_rest();
        assert_eq!((stage.counts().enqueued, stage.counts().delivered), (1, 1));
        assert_eq!(stage.delivery(only(&stage)).attempts, if applied { 2 } else { 1 });
        // The record of the first attempt was durable, its request never left: documented as interrupted.
        assert_eq!(stage.sent.len(), 1);
    }
}

/// The engine does not write on after a failed write: the outcome is unknown, the process says so and ends.
/// Its successor sends what was in flight once more, under the same id.
#[test]
fn c85_an_answer_that_could_not_be_recorded_costs_one_more_request_each() {
    let mut stage = stage();
    stage.endpoint_with("shop", "*", &["200"], |settings| settings.in_flight_max = 100);
    stage.enqueue("before", "payment.settled", b"{}").unwrap();
    stage.run_to_rest();
    stage.enqueue_many((0..100).map(|n| format!("evt-{n}")), "payment.settled");
    assert_eq!(stage.out.len(), 100);
    stage.disk.fail_next_write(Fault::Unknown { applied: false });
    let out: Vec<Seq> = stage.out.keys().copied().collect();
    stage.turn_that_fails(
        out.into_iter().map(|delivery| Input::Outcome { delivery, outcome: outcome("200") }),
    );
    assert_eq!(stage.sent.len(), 101, "no second request by the process that could not record the first");
    stage.crash();
    stage.run_to_rest();
    assert_eq!((stage.sent.len(), stage.counts().delivered), (201, 101));
    stage.always_true();
}

/// The design has no deletion: an endpoint is disabled, which is one fact, atomic by itself. What waits stays
/// where it is, held and readable, until somebody resumes the endpoint or cancels; nothing of it is mailed.
#[test]
fn c104_a_disabled_endpoint_starts_nothing_and_keeps_its_history() {
    let mut stage = stage();
    let shop = stage.endpoint_with("shop", "*", &["200"], |_| ());
    stage.enqueue("before", "payment.settled", b"{}").unwrap();
    stage.run_to_rest();
    stage.latency = Millis(500);
    stage.enqueue_many((0..1_008).map(|n| format!("evt-{n}")), "payment.settled");
    assert_eq!(stage.out.len(), 8);
    let reason = DisabledReason::Requested("no longer used".into());
    stage.ask(Command::DisableEndpoint { key: shop, reason }).unwrap();
    for crash in [false, true] {
        if crash {
            stage.crash();
        }
        stage.run_for(Millis(HOUR));
        let counts = stage.counts();
        assert_eq!(
            (counts.delivered, counts.pending, counts.dead),
            (9, 1_000, 0),
            "what was out is recorded"
        );
        assert_eq!(stage.sent.len(), 9);
        stage.always_true();
    }
    // The same URL again gets only what is new.
    stage.endpoint_with("again", "*", &["200"], |settings| {
        settings.url = "https://shop.customer.net/".into();
    });
    stage
        .enqueue_with("evt-new", "payment.settled", b"{}", |event| {
            event.endpoint = Some(EndpointId(2));
        })
        .unwrap();
    stage.run_for(Millis(HOUR));
    assert_eq!((stage.sent.len(), stage.counts().delivered), (10, 10));
    // Calling them off makes them cancelled, which tells nobody.
    for seq in stage.known.keys().copied().collect::<Vec<_>>() {
        if stage.delivery(seq).state.status() == Status::Pending {
            let delivery = DeliveryKey { account: account(), seq };
            stage.ask(Command::Cancel { delivery, reason: "the endpoint is gone".into() }).unwrap();
        }
    }
    assert_eq!(stage.counts().cancelled, 1_000);
    let view = stage.engine.as_ref().unwrap().published().view();
    assert_eq!(view.owed(None, 10).unwrap(), []);
    assert_eq!(view.history(account(), &Default::default(), Place::First, 2_000).unwrap().rows.len(), 1_010);
    stage.ask(Command::ResumeEndpoint { key: shop }).unwrap();
    stage.run_for(Millis(HOUR));
    assert_eq!(stage.sent.len(), 10);
    stage.always_true();
}

#[test]
fn c106_a_change_holds_for_every_attempt_that_starts_after_it() {
    let mut stage = stage();
    let shop = stage.endpoint_with("shop", "payment.*", &["200"], |_| ());
    let mut event = 0;
    let mut send = |stage: &mut Stage| {
        event += 1;
        stage.enqueue(&format!("evt-{event}"), "payment.settled", b"{}").unwrap();
        stage.out.values().last().map(|(attempt, _)| attempt.clone())
    };
    for n in 0..200 {
        let url = format!("https://shop.customer.net/{}", ["a", "b"][n % 2]);
        stage.change(shop, |settings| settings.url = url.clone().into()).unwrap();
        if n % 10 == 9 {
            stage.crash();
        }
        let attempt = send(&mut stage).expect("it leaves at once");
        assert_eq!(&*attempt.target.settings.url, url);
        stage.run_for(Millis(1_000));
    }
    // Time-out and headers go with the attempt as well.
    stage
        .change(shop, |settings| {
            settings.timeout = Millis(3_000);
            settings.headers = vec![("x-shop".into(), "1".into())];
        })
        .unwrap();
    let attempt = send(&mut stage).expect("it leaves at once");
    assert_eq!(attempt.target.settings.timeout, Millis(3_000));
    assert_eq!(attempt.target.settings.headers.len(), 1);
    stage.run_for(Millis(1_000));
    // A retry of what came before the change goes to where the endpoint is now.
    stage.script("shop", &["500", "200"]);
    send(&mut stage);
    stage.run_for(Millis(1_000));
    stage.change(shop, |settings| settings.url = "https://moved.customer.net/".into()).unwrap();
    stage.run_for(Millis(HOUR));
    assert_eq!(stage.sent.last().unwrap().url, "https://moved.customer.net/");
    // A rate holds from the next request on.
    stage.change(shop, |settings| settings.rate_per_second = Some(1)).unwrap();
    let before = stage.sent.len();
    for _ in 0..5 {
        send(&mut stage);
    }
    stage.run_for(Millis(10_000));
    let at: Vec<_> = stage.sent[before..].iter().map(|sent| sent.at).collect();
    assert!(at.len() == 5 && at.windows(2).all(|pair| pair[1].since(pair[0]).0 >= 1_000), "{at:?}");
    // Held; let go; and of another type.
    let reason = DisabledReason::Requested("asked".into());
    stage.ask(Command::DisableEndpoint { key: shop, reason }).unwrap();
    let before = stage.sent.len();
    send(&mut stage);
    stage.run_for(Millis(HOUR));
    assert_eq!(stage.sent.len(), before);
    stage
        .change(shop, |settings: &mut EndpointSettings| settings.event_types = vec!["invoice.*".into()])
        .unwrap();
    stage.ask(Command::ResumeEndpoint { key: shop }).unwrap();
    assert_eq!(stage.sent.len(), before + 1, "what was enqueued before the filter changed is still its own");
    stage.run_for(Millis(2_000));
    send(&mut stage);
    assert_eq!(stage.sent.len(), before + 1, "nobody wants it any more");
    stage.run_to_rest();
    stage.always_true();
}
