//! The engine on its own thread, on both disks: rebuilds and checks beside live traffic, damage that is found
//! and named, and what happens to those who wait when the store fails.

mod support;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use hooklog::clock::{Chance, Clock, ManualClock, SeededChance, SystemClock};
use hooklog::delivery::{Answer as Heard, Outcome};
use hooklog::engine::command::body_ref;
use hooklog::engine::driver::{self, Courier, Running};
use hooklog::engine::handle::Handle;
use hooklog::engine::{
    Answer, Attempt, Command, Engine, Enqueue, Rejection, Scope, ServerPolicy, StartError,
};
use hooklog::log::mark::MemoryMark;
use hooklog::log::memory::{Fault, MemoryDisk};
use hooklog::log::{self, Body, Change, Disk, Log, Mark, Order, Read, Space};
use hooklog::secrets::MasterKey;
use hooklog::views::check;
use hooklog::views::query::Published;
use hooklog_projections::TABLES;
use hooklog_projections::fact::{AccountSettings, Actor, EndpointSettings, Sealed};
use hooklog_projections::ids::{AccountId, EndpointId, EndpointKey, Seq};
use hooklog_projections::lifecycle::State;
use hooklog_projections::policy::{Jitter, Rollout, Schedule};
use hooklog_projections::time::{Millis, Timestamp};
use support::case::LONG;
use tokio::sync::mpsc;

const ACCOUNT: AccountId = AccountId(1);

/// Answers 500 to about every third request, else 204; proves that each was recorded before it left. Which ones, the
/// delivery and its attempt say, and no delivery fails twice in a row: a count over all requests can fall into step
/// with the retries of one delivery, so that it fails each time until it is given up.
struct Receiver {
    published: Arc<Published>,
    ended: mpsc::UnboundedSender<Seq>,
}

impl Courier for Receiver {
    fn carry(&self, attempt: Attempt) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>> {
        Box::pin(async move {
            let row = self.published.view().delivery(attempt.delivery).unwrap().expect("it is on disk");
            assert!(matches!(row.state, State::InFlight { .. }), "left before its record: {row:?}");
            let n = attempt.delivery.seq.0 + u64::from(attempt.number);
            let status = if n.is_multiple_of(3) { 500 } else { 204 };
            let _ = self.ended.send(attempt.delivery.seq);
            let heard =
                Heard { status, headers: vec![], body: Bytes::new(), truncated: false, address: None };
            Outcome::of(Ok(heard), Millis(1))
        })
    }
}

fn master() -> MasterKey {
    MasterKey::from_bytes([7; 32].into())
}

struct Started {
    running: Running,
    ended: mpsc::UnboundedReceiver<Seq>,
}

fn start(disk: Arc<dyn Disk>, mark: Mark, clock: Arc<dyn Clock>) -> Started {
    let opened = Log::open(disk, mark, options()).expect("the log opens");
    let mut engine =
        Engine::start(opened, &master(), ServerPolicy::default(), clock.now(), &mut SeededChance::new(1))
            .expect("the engine starts");
    engine.set_sending(true);
    let (sender, ended) = mpsc::unbounded_channel();
    let courier = Receiver { published: engine.published().clone(), ended: sender };
    let running = driver::run(engine, Arc::new(courier), clock, tokio::runtime::Handle::current());
    Started { running, ended }
}

fn options() -> log::Options {
    log::Options { bucket_bytes_max: 256 << 10, free_bytes_min: 0 }
}

async fn furnish(handle: &Handle) {
    let settings = AccountSettings {
        name: "Acme".into(),
        owner_email: None,
        schedule: Some(Schedule::Custom {
            waits: vec![Millis(1); 20],
            jitter: Jitter { minus_percent: 0, plus_percent: 0 },
        }),
        response_policy: None,
        webhook_retries: Rollout::On,
    };
    let secret = Sealed(vec![0]);
    let made = Command::CreateAccount { account: ACCOUNT, settings, secret };
    handle.ask(Actor::Cli, made).await.expect("it is new");
    for n in 1..=3 {
        let key = EndpointKey { account: ACCOUNT, endpoint: EndpointId(n) };
        let settings = EndpointSettings {
            url: format!("https://r{n}.customer.net/").into(),
            ..EndpointSettings::default()
        };
        let made = Command::CreateEndpoint { key, settings, signing: vec![], secret: None };
        handle.ask(Actor::Cli, made).await.expect("it is new");
    }
}

async fn enqueue(handle: &Handle, n: u64) -> Result<Answer, Rejection> {
    let body = Body { salt: SeededChance::new(n).bytes(), bytes: Bytes::from(format!("{{\"n\":{n}}}")) };
    let enqueue = Enqueue {
        account: ACCOUNT,
        event: format!("evt-{n}").parse().unwrap(),
        event_type: "a.b".into(),
        body_ref: body_ref(&body, "application/json"),
        body,
        utf8: true,
        deliver_at: None,
        max_tries: None,
        expire_at: None,
        endpoint: None,
    };
    handle.ask(Actor::Cli, Command::Enqueue(Box::new(enqueue))).await
}

/// Waits until `delivered` deliveries are; each request's end is a signal to look again.
async fn until_delivered(started: &mut Started, delivered: u64) {
    let begun = Instant::now();
    loop {
        let counts = started.running.handle.view().counts(None).unwrap();
        if counts.delivered >= delivered {
            return;
        }
        assert_eq!(counts.dead, 0, "one was given up: {counts:?}");
        assert!(begun.elapsed() < 5 * LONG, "it stands still, or is very slow: {counts:?}");
        // The last outcomes are recorded after the last signal: an empty question waits for the writer.
        if started.ended.try_recv().is_err() {
            let key = EndpointKey { account: ACCOUNT, endpoint: EndpointId(99) };
            let _ = started.running.handle.ask(Actor::Cli, Command::ResumeEndpoint { key }).await;
        }
    }
}

async fn rebuild_and_check(handle: &Handle) -> check::Report {
    let handle = handle.clone();
    tokio::task::spawn_blocking(move || {
        handle.rebuild(&mut |_, _| {}).expect("the rebuild ends");
        handle.check(&mut |_, _, _| {}).expect("the check ends")
    })
    .await
    .expect("no panic")
}

async fn traffic_with_maintenance(disk: Arc<dyn Disk>, mark: Mark) {
    let mut started = start(disk, mark, SystemClock::start());
    let handle = started.running.handle.clone();
    furnish(&handle).await;
    let feeder = {
        let handle = handle.clone();
        tokio::spawn(async move {
            for n in 0..1_500 {
                assert!(matches!(enqueue(&handle, n).await, Ok(Answer::Accepted { .. })));
            }
        })
    };
    for _ in 0..3 {
        let report = rebuild_and_check(&handle).await;
        assert_eq!(report.findings, Vec::<String>::new());
    }
    feeder.await.unwrap();
    until_delivered(&mut started, 4_500).await;
    let report = rebuild_and_check(&handle).await;
    assert_eq!(report.findings, Vec::<String>::new());
    assert!(report.rows > 4_500 * 2, "{} rows", report.rows);
    let counts = handle.view().counts(None).unwrap();
    assert!(counts.conserved() && counts.delivered == 4_500, "{counts:?}");
    assert!(handle.view().generation() >= 4, "each rebuild makes a generation");
    started.running.stop(std::time::Duration::from_secs(5)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn rebuilds_and_checks_go_on_beside_live_traffic_in_memory() {
    traffic_with_maintenance(Arc::new(MemoryDisk::new()), Mark::memory(&MemoryMark::default())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rebuilds_and_checks_go_on_beside_live_traffic_on_fjall() {
    let folder = tempfile::tempdir().unwrap();
    let settings = log::fjall_disk::Settings { memtable_bytes: 256 << 10, ..Default::default() };
    let (disk, mark) = log::open_folder(folder.path(), settings).unwrap();
    traffic_with_maintenance(disk, mark).await;
}

/// A store with some history at rest.
async fn at_rest() -> (MemoryDisk, MemoryMark) {
    let (disk, mark) = (MemoryDisk::new(), MemoryMark::default());
    let mut started = start(Arc::new(disk.clone()), Mark::memory(&mark), SystemClock::start());
    furnish(&started.running.handle).await;
    for n in 0..20 {
        enqueue(&started.running.handle, n).await.unwrap();
    }
    until_delivered(&mut started, 60).await;
    started.running.stop(std::time::Duration::from_secs(5)).await.unwrap();
    (disk.crash(), mark)
}

fn report(disk: &MemoryDisk, mark: &MemoryMark) -> check::Report {
    let log = Log::open(Arc::new(disk.clone()), Mark::memory(mark), options()).unwrap().into_log();
    let snapshot = log.snapshot();
    let generation = log.view_version(TABLES[0].0).unwrap();
    check::check(log.disk().clone(), generation, &mut || Ok(snapshot.clone()), &mut |_, _, _| {}).unwrap()
}

fn first_row(disk: &MemoryDisk, space: Space) -> Option<(Bytes, Bytes)> {
    let mut found = None;
    let (all, order) = (std::ops::Bound::Unbounded, Order::Ascending);
    disk.range(space, all, all, order, &mut |key, value| {
        found = Some((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
        std::ops::ControlFlow::Break(())
    })
    .unwrap();
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_that_is_not_what_the_log_says_is_found_in_every_view() {
    let (disk, mark) = at_rest().await;
    assert_eq!(report(&disk, &mark).findings, Vec::<String>::new());
    for (name, _) in TABLES {
        let space = Space::View { name, version: 1 };
        let disk = disk.crash();
        let added = Change::put(space, vec![0xee; 48], vec![1, 0xc0]);
        disk.write(&[added]).unwrap();
        let findings = report(&disk, &mark).findings;
        assert!(
            findings.iter().any(|f| f.contains(name) && f.contains("should not be there")),
            "{findings:?}"
        );
        let Some((key, _)) = first_row(&disk.crash(), space).filter(|(key, _)| key.first() != Some(&0xee))
        else {
            continue;
        };
        let gone = disk.crash();
        gone.write(&[Change::remove(space, key.clone())]).unwrap();
        let findings = report(&gone, &mark).findings;
        assert!(findings.iter().any(|f| f.contains(name) && f.contains("is missing")), "{findings:?}");
        let changed = disk.crash();
        changed.write(&[Change::put(space, key, vec![1, 0xc2])]).unwrap();
        let findings = report(&changed, &mark).findings;
        assert!(
            findings.iter().any(|f| f.contains(name) && f.contains("not what the log says")),
            "{findings:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_not_the_recorded_one_is_found_and_named() {
    let (disk, mark) = at_rest().await;
    let (key, value) = first_row(&disk, Space::Body(1)).expect("there are bodies");
    let mut other = value.to_vec();
    *other.last_mut().unwrap() ^= 1;
    disk.write(&[Change::put(Space::Body(1), key, other)]).unwrap();
    let findings = report(&disk, &mark).findings;
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(findings[0].contains("the event's body is not the one that was recorded"), "{findings:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_master_key_opens_nothing() {
    let (disk, mark) = at_rest().await;
    let opened = Log::open(Arc::new(disk), Mark::memory(&mark), options()).unwrap();
    let other = MasterKey::from_bytes([8; 32].into());
    let started =
        Engine::start(opened, &other, ServerPolicy::default(), Timestamp(0), &mut SeededChance::new(1));
    let error = started.err().expect("it does not start");
    assert!(matches!(error, StartError::MasterKey(_)), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failed_write_nobody_is_told_yes_and_nothing_leaves() {
    for fault in [Fault::Full, Fault::Unknown { applied: true }, Fault::Unknown { applied: false }] {
        let (disk, mark) = (MemoryDisk::new(), MemoryMark::default());
        let mut started = start(Arc::new(disk.clone()), Mark::memory(&mark), SystemClock::start());
        let handle = started.running.handle.clone();
        furnish(&handle).await;
        disk.fail_next_write(fault);
        assert_eq!(enqueue(&handle, 1).await, Err(Rejection::OutcomeUnknown));
        assert!(started.running.ended().await.is_err());
        assert!(started.ended.try_recv().is_err(), "a request left");
        let trouble = handle.health().trouble(Millis(0)).expect("it is told");
        assert!(!trouble.is_empty());
        assert!(enqueue(&handle, 2).await.is_err(), "nothing more is taken in");

        // The caller repeats with the same id once the server runs: one event, whatever had happened.
        let mut started = start(Arc::new(disk.crash()), Mark::memory(&mark), SystemClock::start());
        let again = enqueue(&started.running.handle, 1).await;
        let applied = fault == Fault::Unknown { applied: true };
        assert!(matches!(again, Ok(Answer::Accepted { duplicate, .. }) if duplicate == applied), "{again:?}");
        until_delivered(&mut started, 3).await;
        assert_eq!(started.running.handle.view().counts(None).unwrap().enqueued, 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poisoned_store_is_noticed_while_idle() {
    let (disk, mark) = (MemoryDisk::new(), MemoryMark::default());
    let clock = ManualClock::at(Timestamp(1_000_000));
    let started = start(Arc::new(disk.clone()), Mark::memory(&mark), clock.clone());
    let handle = started.running.handle.clone();
    furnish(&handle).await;
    disk.poison();
    // No append: only the heartbeat can tell. A question that writes nothing wakes the writer.
    let key = EndpointKey { account: ACCOUNT, endpoint: EndpointId(99) };
    for _ in 0..3 {
        clock.advance(Millis(5_000));
        let _ = handle.ask(Actor::Cli, Command::ResumeEndpoint { key }).await;
    }
    assert!(started.running.ended().await.is_err());
    assert!(handle.health().trouble(Millis(0)).is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_that_never_returns_is_noticed() {
    let (disk, mark) = (MemoryDisk::new(), MemoryMark::default());
    let clock = ManualClock::at(Timestamp(1_000_000));
    let started = start(Arc::new(disk.clone()), Mark::memory(&mark), clock.clone());
    let handle = started.running.handle.clone();
    furnish(&handle).await;
    disk.freeze();
    let asked = tokio::spawn({
        let handle = handle.clone();
        async move { enqueue(&handle, 1).await }
    });
    while !handle.health().stuck(clock.monotonic()) {
        clock.advance(Millis(100));
        tokio::task::yield_now().await;
    }
    assert!(handle.health().trouble(clock.monotonic()).is_some());
    disk.thaw();
    assert!(asked.await.unwrap().is_ok());
    assert!(!handle.health().stuck(clock.monotonic()));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_clicks_on_replay_make_one_run() {
    let (disk, mark) = at_rest().await;
    let mut started = start(Arc::new(disk), Mark::memory(&mark), SystemClock::start());
    let handle = started.running.handle.clone();
    let replay = || {
        let command = Command::ReplayEvent {
            account: ACCOUNT,
            event: "evt-1".parse().unwrap(),
            scope: Scope::All,
            reason: "asked".into(),
        };
        handle.ask(Actor::Cli, command)
    };
    let (one, two) = tokio::join!(replay(), replay());
    let runs = [&one, &two].iter().filter(|answer| answer.is_ok()).count();
    assert!(runs >= 1);
    until_delivered(&mut started, 60).await;
    let view = handle.view();
    let event = view.event(ACCOUNT, &"evt-1".parse().unwrap()).unwrap().unwrap();
    for seq in event.delivery_seqs() {
        let key = hooklog_projections::ids::DeliveryKey { account: ACCOUNT, seq };
        let row = view.delivery(key).unwrap().unwrap();
        assert!(row.run as usize <= 1 + runs, "{row:?}");
    }
}
