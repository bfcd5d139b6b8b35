//! What went wrong in other webhook senders around clocks, by the number of the case: C74, C76. The engine's
//! turns are timed as the driver times them, by a steady clock over a wall clock that is made to lie.
//!
//! The clock by itself is `src/clock.rs`'s tests.

mod support;

use std::collections::BTreeMap;
use std::process::Command as Process;

use hooklog::clock::ManualClock;
use hooklog_projections::ids::Seq;
use hooklog_projections::lifecycle::{State, Status};
use hooklog_projections::policy::{Jitter, Rollout, Schedule};
use hooklog_projections::time::{Millis, Timestamp};
use serde_json::json;
use support::case::{Hook, Setup, VECTORS_AT, World, delivery, logs};
use support::receiver::answer;
use support::stage::Stage;

const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
/// The longest wait of the `ledger` schedule, with its jitter.
const BACKOFF_MAX: u64 = 43_200 * SECOND * 11 / 10;

/// Deliveries in backoff, of every age: events over twelve hours to an endpoint that answers 500.
fn in_backoff(events: u64) -> Stage {
    let mut stage = Stage::new();
    stage.account(None, Rollout::On);
    // A 500 of a receiver that is up: no breaker mixes in.
    stage.endpoint_with("shop", "*", &["429"], |settings| settings.in_flight_max = 100);
    for n in 0..events {
        stage.enqueue(&format!("evt-{n}"), "payment.settled", b"{}").unwrap();
        stage.run_for(Millis(12 * HOUR / events));
    }
    assert_eq!(stage.counts().pending, events);
    stage
}

fn requests(stage: &Stage, from: usize) -> BTreeMap<Seq, u32> {
    let mut requests = BTreeMap::new();
    for sent in &stage.sent[from..] {
        *requests.entry(sent.delivery).or_default() += 1;
    }
    requests
}

fn longest_wait(stage: &mut Stage) -> u64 {
    let now = stage.moment();
    let due = stage.known.keys().filter_map(|seq| match stage.delivery(*seq).state {
        State::Pending { due_at } => Some(due_at.since(now).0),
        _ => None,
    });
    due.max().unwrap_or(0)
}

/// No fact is ever deleted, nor any body (design §5: facts are kept for ever, trimming is opt-in), so of the case's
/// parts the one on retention does not arise.
#[test]
fn c74_half_a_day_ahead_for_a_minute_sends_nothing_twice() {
    let mut stage = in_backoff(1_000);
    let before = stage.sent.len();
    stage.wall_error = 12 * HOUR as i64;
    stage.run_for(Millis(MINUTE));
    let extra = requests(&stage, before);
    assert!(extra.values().all(|count| *count <= 1), "{extra:?}");
    assert!(extra.len() < 50, "only what was due in that minute: {}", extra.len());
    stage.wall_error = 0;
    assert!(longest_wait(&mut stage) <= BACKOFF_MAX + MINUTE);
    let back = stage.now;
    stage.run_until(back + Millis(BACKOFF_MAX + MINUTE));
    let seen = requests(&stage, before);
    let waiting = stage.known.keys().filter(|seq| stage.delivery(**seq).state.status() == Status::Pending);
    for seq in waiting {
        assert!(seen.contains_key(seq), "{seq} waited longer than its backoff and a minute");
    }
    stage.always_true();
}

/// The whole service by two clocks that disagree: the jump is logged, nothing is sent for it, no due time moves, and
/// what was due is sent when it is due by the clock that did not jump.
#[tokio::test(flavor = "multi_thread")]
async fn c74_a_jump_is_logged_and_moves_nothing() {
    let clock = ManualClock::at(VECTORS_AT);
    let world = World::with(Setup { clock: Some(clock.clone()), ..Setup::default() });
    // An answer of a receiver that is up: no breaker mixes in.
    let mut hook = Hook::scripted(vec![answer(429, "", "")]).await;
    let account = world.account().await;
    world.endpoint_of(&account, &hook.url("/"), json!({ "in_flight_max": 100 })).await;
    let mut before = BTreeMap::new();
    for n in 0..20 {
        let id = delivery(&world.event(&account, &format!("e{n}"), "1").await);
        before.insert(id.clone(), world.until_tried(&id, 1).await["due_at"].clone());
    }
    for hours in [12, -12] {
        let told = logs().len();
        clock.mislead(hours * HOUR as i64);
        for _ in 0..25 {
            // By the clock that is right not even the first of them is due within so long.
            world.advance_secs(1).await;
        }
        let logged = String::from_utf8_lossy(&logs()[told..]).into_owned();
        let word = if hours > 0 { "the wall clock jumped ahead" } else { "the wall clock is behind" };
        assert!(logged.contains(word), "{hours}");
        clock.mislead(0);
        for (id, due_at) in &before {
            let row = world.delivery(id).await;
            assert_eq!((&row["status"], &row["due_at"]), (&json!("pending"), due_at), "{row}");
        }
        assert_eq!(hook.count(), 20, "nothing was sent");
        if hours > 0 {
            // Both clocks agree before the next jump; still nothing is due.
            world.turn().await;
        }
    }
    world.advance_secs(67).await;
    for id in before.keys() {
        world.until_tried(id, 2).await;
    }
    assert_eq!(hook.count(), 40);
    world.always_true(&mut [&mut hook]).await;
}

#[test]
fn c74_an_hour_either_way_neither_stalls_nor_floods() {
    for (error, hours) in [(HOUR as i64, 3), (-(HOUR as i64), 14)] {
        let mut stage = in_backoff(200);
        // The rate of requests when all is well, for comparison: an hour's worth.
        let (from, usual) = (stage.sent.len(), stage.now);
        stage.run_until(usual + Millis(HOUR));
        let usual = stage.sent.len() - from;
        let from = stage.sent.len();
        stage.wall_error = error;
        for minute in 0..hours * 60 {
            let (before, shown) = (stage.sent.len(), stage.moment());
            stage.run_for(Millis(MINUTE));
            let moved = stage.moment().since(shown).0;
            assert!(moved >= MINUTE * 9 / 10 - 1, "minute {minute}: {moved}");
            assert!(moved <= MINUTE * 10 + 2 * SECOND, "minute {minute}: {moved}");
            // Ten minutes' worth at the very most, and never all at once.
            assert!(stage.sent.len() - before <= usual.max(20), "minute {minute}");
        }
        assert_eq!(stage.moment(), stage.wall(), "both clocks agree in the end");
        assert!(stage.sent.len() > from, "nothing was sent in all that time");
        // Of one delivery, no two requests came closer than its shortest wait allows.
        let mut last: BTreeMap<Seq, Timestamp> = BTreeMap::new();
        for sent in &stage.sent {
            if let Some(before) = last.insert(sent.delivery, sent.at) {
                assert!(sent.at.since(before).0 >= 54 * SECOND / 10);
            }
        }
        stage.always_true();
    }
}

#[test]
fn c74_a_start_after_the_clock_was_set_back_goes_on_from_the_log() {
    let mut stage = in_backoff(50);
    let before = stage.sent.len();
    let last = stage.last_at();
    stage.wall_error = -(12 * HOUR as i64);
    stage.crash();
    assert!(stage.moment() >= last, "it never goes back behind its own entries");
    stage.run_for(Millis(BACKOFF_MAX * 10 / 9 + MINUTE));
    let seen = requests(&stage, before);
    for seq in stage.known.keys() {
        let row = stage.delivery(*seq);
        assert!(seen.contains_key(seq) || row.state.status() != Status::Pending, "{seq} stalls: {row:?}");
    }
    stage.always_true();
}

/// Two-hour retries over the changes of summer time, as a picture of their due times. Printed for
/// [`c76_no_time_zone_changes_a_due_time`], which runs this test again under other zones.
#[test]
fn c76_two_hours_are_two_hours_over_a_change_of_summer_time() {
    let jitter = Jitter { minus_percent: 0, plus_percent: 0 };
    let schedule = Schedule::Custom { waits: vec![Millis(2 * HOUR)], jitter };
    // 2026-03-29 01:30 and 2026-10-25 02:30 (both of them) in Berlin, and New Year's night in Apia.
    for begins in [1_774_744_200_000, 1_792_888_200_000, 1_792_891_800_000, 1_798_711_200_000] {
        let mut stage = Stage::on(Default::default(), Default::default(), Timestamp(begins));
        stage.account(Some(schedule.clone()), Rollout::On);
        stage.latency = Millis(0);
        stage.endpoint("shop", "*", &["500", "200"], None);
        stage.enqueue("evt_1", "payment.settled", b"{}").unwrap();
        stage.run_for(Millis(HOUR));
        // A start under whatever zone this is.
        stage.crash();
        stage.run_for(Millis(2 * HOUR));
        let at: Vec<u64> = stage.sent.iter().map(|sent| sent.at.0 - begins).collect();
        assert_eq!(at, [0, 2 * HOUR]);
        stage.always_true();
        println!("picture {begins} {at:?} {:?}", stage.chain());
    }
}

#[test]
fn c76_no_time_zone_changes_a_due_time() {
    let under = |zone: &str| {
        let tests = std::env::current_exe().expect("this file has a path");
        let out = Process::new(tests)
            .args(["--exact", "c76_two_hours_are_two_hours_over_a_change_of_summer_time", "--nocapture"])
            .env("TZ", zone)
            .output()
            .expect("it runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
        let out = String::from_utf8(out.stdout).expect("text");
        let picture: Vec<_> = out.lines().filter_map(|line| line.split_once("picture ")).collect();
        assert_eq!(picture.len(), 4);
        picture.iter().map(|(_, picture)| (*picture).to_owned()).collect::<Vec<_>>()
    };
    let utc = under("UTC");
    for zone in ["Europe/Berlin", "America/St_Johns", "Asia/Kathmandu", "Pacific/Apia"] {
        assert_eq!(under(zone), utc, "{zone}");
    }
}

/// Nothing asks for the zone of the machine: there is no other way for it to enter. But `--local` does, to show
/// moments to a person.
#[test]
fn c76_nothing_reads_the_local_zone() {
    let mut folders = vec![std::path::PathBuf::from("src"), "projections/src".into()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder can be read") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path == std::path::Path::new("src/cli/wire.rs") {
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("a source file can be read");
            for word in ["TimeZone::system", "Zoned::now", "\"TZ\"", "localtime"] {
                assert!(!text.contains(word), "{}: {word}", path.display());
            }
        }
    }
}
