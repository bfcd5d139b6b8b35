//! Outages of any size on a stage. Stands in for: a customer's server that is down for hours.

use std::collections::BTreeMap;
use std::time::Instant;

use hooklog::scheduler::{PAGE, RetryPolicy};
use hooklog_projections::ids::Seq;
use hooklog_projections::lifecycle::State;
use hooklog_projections::policy::{Rollout, Schedule};
use hooklog_projections::time::{Millis, Timestamp};

use super::stage::{Sent, Stage};

const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600 * SECOND;
const RATE: u32 = 50;
const CAP: usize = 8;

/// The most requests that any second saw, wherever it begins.
fn fullest_second(sent: &[&Sent]) -> usize {
    let within =
        |n: usize| sent[n..].iter().take_while(|other| other.at.since(sent[n].at).0 < SECOND).count();
    (0..sent.len()).map(within).max().unwrap_or(0)
}

/// Requests went out in the order of their due times.
fn oldest_first(sent: &[&Sent]) {
    for pair in sent.windows(2) {
        assert!((pair[0].due_at, pair[0].delivery) < (pair[1].due_at, pair[1].delivery), "{pair:?}");
    }
}

/// Six hours down, with so many events on the way, and an endpoint beside it that is well.
pub fn outage(events: u64) {
    let watch = Instant::now();
    let mut stage = Stage::new();
    stage.account(None, Rollout::On);
    stage.told_at_once = 64;
    let ill = stage.endpoint_with("ill", "ill.*", &["200"], |settings| {
        settings.rate_per_second = Some(RATE);
        settings.in_flight_max = CAP as u32;
    });
    let well = stage.endpoint_with("well", "well.*", &["200"], |_| ());
    let began = stage.now;
    let heals = began + Millis(6 * HOUR);
    stage.receiver = Some(Box::new(move |attempt, now| {
        let down = attempt.endpoint == ill && now < heals;
        if down { ["503", "refused", "timeout"][attempt.delivery.seq.0 as usize % 3] } else { "200" }.into()
    }));
    // Events come evenly, a handful at a time; every minute one for the endpoint beside.
    let mut asked: BTreeMap<String, Timestamp> = BTreeMap::new();
    let (steps, mut sent_in) = (6 * 60, 0);
    for minute in 0..steps {
        let upto = events * (minute + 1) / steps;
        stage.enqueue_many((sent_in..upto).map(|n| format!("ill-{n}")), "ill.x");
        sent_in = upto;
        let name = format!("well-{minute}");
        asked.insert(name.clone(), stage.now);
        stage.enqueue(&name, "well.x", b"{}").unwrap();
        assert!(stage.out.values().filter(|(attempt, _)| attempt.endpoint == ill).count() <= CAP);
        stage.run_for(Millis(60 * SECOND));
    }
    assert_eq!(stage.now, heals);
    let before = stage.sent.len();
    let waiting = stage.counts().pending;
    assert_eq!(stage.counts().dead, 0, "no schedule ends within six hours");
    for minute in 0..60 * 16 {
        let name = format!("well-after-{minute}");
        asked.insert(name.clone(), stage.now);
        stage.enqueue(&name, "well.x", b"{}").unwrap();
        stage.run_for(Millis(60 * SECOND));
    }
    stage.run_to_rest();

    let to = |endpoint| move |sent: &&Sent| sent.endpoint == endpoint;
    let ill_sent: Vec<&Sent> = stage.sent.iter().filter(to(ill.endpoint)).collect();
    let after: Vec<&Sent> = stage.sent[before..].iter().filter(to(ill.endpoint)).collect();
    assert!(fullest_second(&ill_sent) <= RATE as usize, "{} in one second", fullest_second(&ill_sent));
    oldest_first(&after);
    assert_eq!(stage.counts().delivered, stage.known.len() as u64, "all are delivered");
    for sent in stage.sent.iter().filter(to(well.endpoint)) {
        assert_eq!(sent.at, asked[sent.event.as_str()], "the endpoint beside it waits for nothing");
    }
    let first = after[0].at.since(heals).0;
    assert!(first <= 30 * SECOND, "the first delivery came {first} ms after it was well again");
    // What was due when it healed has gone out as soon as the rate allows.
    let backlog: Vec<_> = after.iter().filter(|sent| sent.due_at <= heals).collect();
    let last = backlog.last().map_or(0, |sent| sent.at.since(heals).0);
    let least = backlog.len() as u64 * SECOND / u64::from(RATE);
    assert!(last <= first + least + 2 * SECOND, "{} due at the end took {last} ms", backlog.len());
    println!(
        "outage: {events} events, {} requests in the six hours, {waiting} waiting at the end; the first delivery \
         {first} ms after it, {} due by then all out {last} ms after it, fullest second {}; played in {:?}",
        before,
        backlog.len(),
        fullest_second(&after),
        watch.elapsed()
    );
    stage.always_true();
}

/// So much is due at once at a start, and another start comes in the middle of it.
pub fn drain_after_a_restart(events: u64) {
    let watch = Instant::now();
    let mut stage = Stage::new();
    stage.account(None, Rollout::On);
    stage.told_at_once = 64;
    let shop = stage.endpoint_with("shop", "*", &["200"], |settings| {
        settings.rate_per_second = Some(RATE * 10);
        settings.in_flight_max = 64;
    });
    stage.ask(hooklog::engine::Command::PauseEndpoint { key: shop, reason: "an outage".into() }).unwrap();
    stage.enqueue_many((0..events).map(|n| format!("evt-{n}")), "payment.settled");
    assert!(stage.engine.as_ref().unwrap().due_held() <= PAGE);
    stage.crash();
    let began = stage.now;
    stage.ask(hooklog::engine::Command::ResumeEndpoint { key: shop }).unwrap();
    let mut held = 0;
    let mut restarted = false;
    while stage.counts().pending > 0 {
        stage.run_for(Millis(SECOND));
        held = held.max(stage.engine.as_ref().unwrap().due_held());
        assert!(stage.out.len() <= 64);
        if !restarted && stage.counts().delivered > events / 2 {
            stage.crash();
            restarted = true;
        }
    }
    stage.run_to_rest();
    let took = stage.now.since(began).0;
    let sent: Vec<&Sent> = stage.sent.iter().collect();
    assert!(held <= PAGE, "{held} entries in memory");
    assert!(fullest_second(&sent) <= RATE as usize * 10, "{} in one second", fullest_second(&sent));
    let mut last = Seq(0);
    for sent in sent.iter().filter(|sent| sent.number == 1) {
        assert!(sent.delivery > last, "oldest first");
        last = sent.delivery;
    }
    assert_eq!(stage.counts().delivered, events);
    let again = sent.len() as u64 - events;
    assert!(again <= 64, "{again} were sent twice");
    let least = events * SECOND / u64::from(RATE * 10);
    assert!(took <= least + 5 * SECOND, "{took} ms for {least}");
    println!(
        "restart: {events} due at once drained in {took} ms (the rate allows {least}), {held} entries in memory \
         at most, fullest second {}, {again} sent twice over a restart in the middle; played in {:?}",
        fullest_second(&sent),
        watch.elapsed()
    );
    stage.always_true();
}

/// It never comes back: every delivery has all its tries, and dies no later than jitter might let it.
pub fn never_again(events: u64) {
    let mut stage = Stage::new();
    stage.account(None, Rollout::On);
    stage.told_at_once = 64;
    stage.endpoint("gone", "*", &["refused"], None);
    let mut begun = BTreeMap::new();
    for n in 0..events {
        let now = stage.now;
        stage.enqueue(&format!("evt-{n}"), "payment.settled", b"{}").unwrap();
        begun.insert(*stage.known.keys().last().expect("it was taken"), now);
        stage.run_for(Millis(2 * HOUR / events));
    }
    stage.run_to_rest();
    let policy = RetryPolicy::of(&Schedule::Ledger);
    let total = policy.cumulative().last().expect("it has tries").0;
    let holds = u64::from(policy.tries(None)) * policy.hold_max().0;
    assert!(holds <= total / 10, "all holds together are what jitter might be");
    let mut latest = 0;
    for (seq, began) in &begun {
        let row = stage.delivery(*seq);
        let State::Dead { at, .. } = row.state else { panic!("{row:?}") };
        assert_eq!((row.tries, row.attempts), (6, 6));
        latest = latest.max(at.since(*began).0);
    }
    let requests = 6 * stage.latency.0 * (1 + events / CAP as u64);
    assert!(latest <= total + total / 10 + holds + requests, "{latest}");
    println!("never again: the schedule takes {total} ms, the last death came {latest} ms after its event");
    stage.always_true();
}
