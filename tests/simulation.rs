//! Engine, scheduler, folds and log on a simulated clock, disk and network, driven by a seed: days pass in
//! milliseconds, and everything fails. Safety after every step, liveness at the end; the same seed gives the
//! same log, byte for byte.
//!
//! A failure prints its seed; `HOOKLOG_SEED=n cargo test --test simulation` runs that one alone.

#[path = "simulation/workers.rs"]
mod workers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use hooklog::clock::{Chance, SeededChance};
use hooklog::delivery::{self, Outcome};
use hooklog::engine::command::body_ref;
use hooklog::engine::{
    Answer, Attempt, Command, Engine, Enqueue, Fatal, Input, Rejection, Scope, ServerPolicy, StartError,
    Ticket, Turn,
};
use hooklog::log::mark::MemoryMark;
use hooklog::log::memory::{Fault, MemoryDisk};
use hooklog::log::{self, Body, Disk, Log, Mark};
use hooklog::secrets::MasterKey;
use hooklog::views::check;
use hooklog::views::rebuild;
use hooklog_projections::fact::{AccountSettings, Actor, EndpointSettings, Fact, Sealed};
use hooklog_projections::ids::{AccountId, DeliveryKey, EndpointId, EndpointKey, EventId, LeaseId, Seq};
use hooklog_projections::lifecycle::State;
use hooklog_projections::policy::{ErrorClass, Rollout};
use hooklog_projections::time::{Millis, Timestamp};
use workers::{Workers, queue};

const ENDPOINTS: u128 = 5;
const START: Timestamp = Timestamp(1_796_000_000_000);
const HOUR: u64 = 3_600_000;

/// What a receiver does just now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mood {
    Well,
    Failing,
    Refusing,
    Hanging,
    Throttling,
    Gone,
}

/// An attempt whose request has left.
struct Out {
    attempt: Attempt,
    ends_at: Timestamp,
}

/// What the simulated caller knows about one delivery's requests.
#[derive(Default)]
struct Heard {
    requests: u64,
    accepted: u64,
}

struct World {
    seed: u64,
    chance: SeededChance,
    disk: MemoryDisk,
    mark: MemoryMark,
    master: MasterKey,
    engine: Option<Engine>,
    now: Timestamp,
    moods: BTreeMap<EndpointId, Mood>,
    out: BTreeMap<Seq, Out>,
    /// Events whose acceptance was answered, with the number of their deliveries.
    acknowledged: BTreeMap<EventId, usize>,
    heard: BTreeMap<Seq, Heard>,
    /// Requests that may repeat one whose outcome was lost.
    interrupted: BTreeMap<Seq, u64>,
    /// Requests that ended, and whose end is not yet durable.
    unrecorded: Vec<Seq>,
    next_event: u64,
    next_ticket: u64,
    asked: BTreeMap<Ticket, Asked>,
    workers: Workers,
    crashes: u64,
}

enum Asked {
    Enqueue(EventId),
    Claim,
    Extend(LeaseId),
    /// A job's end, whether it was done, and whether its worker had reason to believe in its lease.
    End {
        seq: Seq,
        done: bool,
        valid: bool,
    },
    Other,
}

fn account() -> AccountId {
    AccountId(1)
}

fn endpoint_key(n: u128) -> EndpointKey {
    EndpointKey { account: account(), endpoint: EndpointId(n) }
}

impl World {
    fn new(seed: u64) -> World {
        let mut world = World {
            seed,
            chance: SeededChance::new(seed),
            disk: MemoryDisk::new(),
            mark: MemoryMark::default(),
            master: MasterKey::from_bytes([7; 32].into()),
            engine: None,
            now: START,
            moods: (1..=ENDPOINTS).map(|n| (EndpointId(n), Mood::Well)).collect(),
            out: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            heard: BTreeMap::new(),
            interrupted: BTreeMap::new(),
            unrecorded: Vec::new(),
            next_event: 0,
            next_ticket: 0,
            asked: BTreeMap::new(),
            workers: Workers::default(),
            crashes: 0,
        };
        world.start();
        world.found();
        world
    }

    /// Opens the store as a new process would.
    fn start(&mut self) {
        let opened = Log::open(
            Arc::new(self.disk.clone()),
            Mark::memory(&self.mark),
            log::Options { bucket_bytes_max: 64 << 10, ..log::Options::default() },
        )
        .unwrap_or_else(|error| panic!("seed {}: the log does not open: {error}", self.seed));
        let policy = ServerPolicy { in_flight_max: 12, ..ServerPolicy::default() };
        let mut engine = match Engine::start(opened, &self.master, policy, self.now, &mut self.chance) {
            Ok(engine) => engine,
            Err(StartError::Fatal(error)) => panic!("seed {}: the engine does not start: {error}", self.seed),
            Err(error) => panic!("seed {}: {error}", self.seed),
        };
        engine.set_sending(true);
        self.engine = Some(engine);
    }

    fn found(&mut self) {
        let settings = AccountSettings {
            name: "Acme".into(),
            owner_email: None,
            schedule: None,
            response_policy: None,
            webhook_retries: Rollout::On,
        };
        let secret = Sealed(vec![0]);
        self.ask(Command::CreateAccount { account: account(), settings, secret }, Asked::Other);
        for n in 1..=ENDPOINTS + 1 {
            let is_queue = endpoint_key(n) == queue();
            let url = if is_queue { String::new() } else { format!("https://r{n}.customer.net/") };
            let settings = EndpointSettings {
                url: url.into(),
                event_types: vec![if n == 1 { "*".into() } else { format!("t{n}.*").into() }],
                in_flight_max: 3,
                rate_per_second: (n == 4).then_some(20),
                disable_after: (n == 3).then_some(Millis(48 * HOUR)),
                queue: is_queue.then(|| "jobs".into()),
                ..EndpointSettings::default()
            };
            let command =
                Command::CreateEndpoint { key: endpoint_key(n), settings, signing: Vec::new(), secret: None };
            self.ask(command, Asked::Other);
        }
        self.turn();
    }

    fn ask(&mut self, command: Command, asked: Asked) {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.asked.insert(ticket, asked);
        self.input(Input::Command { ticket, actor: Actor::Cli, command });
    }

    fn input(&mut self, input: Input) {
        let engine = self.engine.as_mut().expect("it runs");
        engine.begin(self.now);
        if let Err(error) = engine.handle(input, &mut self.chance) {
            panic!("seed {}: {error}", self.seed);
        }
    }

    /// Ends the turn; an unknown outcome ends the process, and another one starts.
    fn turn(&mut self) {
        loop {
            let engine = self.engine.as_mut().expect("it runs");
            engine.begin(self.now);
            match engine.finish() {
                Ok(turn) => {
                    let more = turn.more;
                    let wake = engine.next_wake();
                    self.take(turn);
                    if !more {
                        // Nothing that may start is left: no need to be asked again at once.
                        assert!(wake.is_none_or(|at| at > self.now), "seed {}: woken at {wake:?}", self.seed);
                        return;
                    }
                }
                Err(Fatal::Log(_)) => {
                    self.crash();
                    return;
                }
                Err(error) => panic!("seed {}: {error}", self.seed),
            }
        }
    }

    fn take(&mut self, turn: Turn) {
        self.unrecorded.clear();
        for (ticket, answer) in turn.answers {
            match (self.asked.remove(&ticket), answer) {
                (Some(Asked::Enqueue(event)), Ok(Answer::Accepted { deliveries, .. })) => {
                    self.acknowledged.insert(event, deliveries.len());
                }
                (Some(Asked::Claim), Ok(Answer::Claimed { jobs })) => self.given(jobs),
                (Some(Asked::Extend(lease)), answer) => {
                    let until = answer.map(|answer| match answer {
                        Answer::Lease { until } => until,
                        other => panic!("not a lease's answer: {other:?}"),
                    });
                    self.extended(lease, until);
                }
                (Some(Asked::End { seq, done, valid }), answer) => {
                    self.ended(seq, done, valid, answer.map(drop));
                }
                (_, Err(Rejection::OutcomeUnknown)) => panic!("the engine never says so itself"),
                _ => {}
            }
        }
        for attempt in turn.attempts {
            self.leave(attempt);
        }
    }

    /// A request leaves. Its record must be durable, and it must be the only one of its delivery.
    fn leave(&mut self, attempt: Attempt) {
        let seq = attempt.delivery.seq;
        assert!(attempt.endpoint != queue(), "seed {}: a request for a queue's delivery", self.seed);
        assert!(!self.out.contains_key(&seq), "seed {}: two requests of {seq} at a time", self.seed);
        self.recorded(attempt.delivery, attempt.endpoint, attempt.number);
        self.heard.entry(seq).or_default().requests += 1;
        let took = match self.moods[&attempt.endpoint.endpoint] {
            Mood::Hanging => 10_000,
            _ => 5 + self.chance.below(400),
        };
        self.out.insert(seq, Out { attempt, ends_at: self.now + Millis(took) });
    }

    /// What begins now was recorded before, and nothing held it then.
    fn recorded(&self, delivery: DeliveryKey, endpoint: EndpointKey, number: u32) {
        let view = self.engine.as_ref().expect("it runs").published().view();
        let row = view.delivery(delivery).unwrap().expect("the delivery is on disk");
        assert!(
            matches!(row.state, State::InFlight { .. }) && row.attempts == number,
            "seed {}: an attempt began before its record",
            self.seed
        );
        if view.endpoint(endpoint).unwrap().expect("it exists").hold.is_some() {
            // Only if it was recorded first, in the very batch that holds it from now on.
            let State::InFlight { attempted, .. } = row.state else { unreachable!("checked above") };
            let since = view.snapshot().entries(attempted, usize::MAX).unwrap();
            let held = since.iter().any(|entry| {
                matches!(&entry.fact, Fact::EndpointPaused { key, .. } | Fact::EndpointDisabled { key, .. }
                    if *key == endpoint)
            });
            assert!(held, "seed {}: an attempt began at a held endpoint", self.seed);
        }
    }

    /// Requests whose time has come end.
    fn end_requests(&mut self) {
        let ended: Vec<Seq> =
            self.out.iter().filter(|(_, out)| out.ends_at <= self.now).map(|(seq, _)| *seq).collect();
        for seq in ended {
            // A crash on the way has taken the rest with it.
            let Some(out) = self.out.remove(&seq) else { break };
            let outcome = self.answer(&out.attempt);
            if self.engine.as_ref().is_some_and(|engine| !engine.has_room()) {
                self.turn();
            }
            if let Ok(answer) = &outcome.result
                && answer.status < 300
            {
                self.heard.entry(seq).or_default().accepted += 1;
            }
            self.unrecorded.push(seq);
            self.input(Input::Outcome { delivery: seq, outcome });
        }
        self.turn();
    }

    fn answer(&mut self, attempt: &Attempt) -> Outcome {
        let status = |status: u16, headers: Vec<(&'static str, String)>| {
            Ok(delivery::Answer {
                status,
                headers,
                body: Bytes::from_static(b"hm"),
                truncated: false,
                address: None,
            })
        };
        let fault = |class| Err(delivery::Fault::new(class, "simulated"));
        let result = match self.moods[&attempt.endpoint.endpoint] {
            Mood::Well => status(if self.chance.below(20) == 0 { 500 } else { 204 }, vec![]),
            Mood::Failing => match self.chance.below(3) {
                0 => status(503, vec![]),
                1 => fault(ErrorClass::Connect),
                _ => fault(ErrorClass::Closed),
            },
            Mood::Refusing => status(422, vec![]),
            Mood::Hanging => fault(ErrorClass::Timeout),
            Mood::Throttling => status(429, vec![("retry-after", (1 + self.chance.below(900)).to_string())]),
            Mood::Gone => status(410, vec![]),
        };
        Outcome::of(result, Millis(5))
    }

    /// The process dies; what it had not finished is unknown, and another one starts.
    fn crash(&mut self) {
        self.crashes += 1;
        let asked = std::mem::take(&mut self.asked);
        self.orphan(&asked);
        self.disk = self.disk.crash();
        for seq in std::mem::take(&mut self.unrecorded) {
            *self.interrupted.entry(seq).or_default() += 1;
        }
        for (seq, _) in std::mem::take(&mut self.out) {
            *self.interrupted.entry(seq).or_default() += 1;
            // The receiver may have had it, or not.
            if self.chance.below(2) == 0 {
                self.heard.entry(seq).or_default().accepted += 1;
            }
        }
        self.engine = None;
        self.start();
        self.turn();
    }

    fn enqueue(&mut self) {
        let again = self.next_event > 0 && self.chance.below(10) == 0;
        let n = if again { self.chance.below(self.next_event) } else { self.next_event };
        self.next_event = self.next_event.max(n + 1);
        let event: EventId = format!("evt-{n}").parse().expect("it fits");
        let body = Body {
            salt: self.chance.bytes(),
            bytes: Bytes::from(format!("{{\"id\":\"evt-{n}\",\"n\":{n}}}")),
        };
        let deliver_at = (n % 7 == 0).then(|| START + Millis(n * 60_000));
        let command = Command::Enqueue(Box::new(Enqueue {
            account: account(),
            event: event.clone(),
            event_type: format!("t{}.x", 1 + n % (ENDPOINTS as u64 + 1)).into(),
            body_ref: body_ref(&body, "application/json"),
            body,
            utf8: true,
            deliver_at,
            max_tries: None,
            expire_at: (n % 11 == 0).then(|| self.now.max(deliver_at.unwrap_or_default()) + Millis(HOUR)),
            endpoint: None,
        }));
        self.ask(command, Asked::Enqueue(event));
    }

    fn some_delivery(&mut self) -> Option<DeliveryKey> {
        let known: Vec<_> = self.heard.keys().copied().collect();
        let at = self.chance.below(known.len().max(1) as u64) as usize;
        known.get(at).map(|seq| DeliveryKey { account: account(), seq: *seq })
    }

    fn step(&mut self) {
        if self.chance.below(3) == 0 {
            let wait = Millis([0, 500, 20_000][self.chance.below(3) as usize]);
            self.claim(wait);
        }
        match self.chance.below(100) {
            0..=34 => {
                for _ in 0..1 + self.chance.below(6) {
                    self.enqueue();
                }
            }
            35..=64 => {
                let limit = [500, 20_000, HOUR, 6 * HOUR][self.chance.below(4) as usize];
                self.now = self.now + Millis(self.chance.below(limit));
                self.end_requests();
                self.work();
            }
            65..=74 => {
                let n = 1 + u128::from(self.chance.below(ENDPOINTS as u64));
                let moods = [
                    Mood::Well,
                    Mood::Well,
                    Mood::Failing,
                    Mood::Refusing,
                    Mood::Hanging,
                    Mood::Throttling,
                    Mood::Gone,
                ];
                let mood = moods[self.chance.below(moods.len() as u64) as usize];
                self.moods.insert(EndpointId(n), mood);
            }
            75..=81 => {
                let key = endpoint_key(1 + u128::from(self.chance.below(ENDPOINTS as u64 + 1)));
                let command = match self.chance.below(3) {
                    0 => Command::PauseEndpoint { key, reason: "maintenance".into() },
                    _ => Command::ResumeEndpoint { key },
                };
                self.ask(command, Asked::Other);
            }
            82..=88 => {
                if let Some(delivery) = self.some_delivery() {
                    let scope = if self.chance.below(2) == 0 { Scope::Dead } else { Scope::All };
                    // Two clicks in one batch make one run.
                    for _ in 0..2 {
                        let command = Command::ReplayDelivery { delivery, scope, reason: "asked".into() };
                        self.ask(command, Asked::Other);
                    }
                }
            }
            89..=91 => {
                if let Some(delivery) = self.some_delivery() {
                    self.ask(Command::RetryNow { delivery }, Asked::Other);
                }
            }
            92..=93 => {
                if let Some(delivery) = self.some_delivery() {
                    self.ask(Command::Cancel { delivery, reason: "asked".into() }, Asked::Other);
                }
            }
            94..=96 => self.crash(),
            97 => self.disk.fail_next_write(Fault::Full),
            98 => self.disk.fail_next_write(Fault::Unknown { applied: true }),
            _ => self.disk.fail_next_write(Fault::Unknown { applied: false }),
        }
        self.turn();
        self.safe();
    }

    /// What holds after every step.
    fn safe(&self) {
        let view = self.engine.as_ref().expect("it runs").published().view();
        for who in [None, Some(account())] {
            let counts = view.counts(who).unwrap();
            assert!(counts.conserved(), "seed {}: not conserved: {counts:?}", self.seed);
        }
        for out in self.out.values() {
            let row = view.delivery(out.attempt.delivery).unwrap().expect("it is on disk");
            assert!(matches!(row.state, State::InFlight { .. }), "seed {}: {row:?}", self.seed);
        }
        self.leases_hold();
    }

    /// Everything heals; whatever was accepted must come to an end.
    fn settle(&mut self) {
        for mood in self.moods.values_mut() {
            *mood = Mood::Well;
        }
        self.workers.well = true;
        // Twice: a fault that was still to come takes the first with it.
        for _ in 0..2 {
            for n in 1..=ENDPOINTS + 1 {
                self.ask(Command::ResumeEndpoint { key: endpoint_key(n) }, Asked::Other);
            }
            self.turn();
        }
        // An end is at most the schedule's total away, or a gate's 24 h.
        let deadline = self.now + Millis(30 * 24 * HOUR);
        loop {
            let wake = self.engine.as_ref().expect("it runs").next_wake();
            let ends = self.out.values().map(|out| out.ends_at).min();
            let Some(next) = [wake, ends, self.next_work()].into_iter().flatten().min() else { break };
            self.now = self.now.max(next);
            assert!(self.now < deadline, "seed {}: it never comes to rest", self.seed);
            self.end_requests();
            self.claim(Millis(0));
            self.work();
        }
    }

    fn check(&mut self) {
        let engine = self.engine.as_mut().expect("it runs");
        engine.settle();
        engine.finish().unwrap();
        let view = engine.published().view();
        let counts = view.counts(None).unwrap();
        assert_eq!((counts.pending, counts.in_flight), (0, 0), "seed {}: {counts:?}", self.seed);
        for (event, deliveries) in &self.acknowledged {
            let row = view.event(account(), event).unwrap();
            let row =
                row.unwrap_or_else(|| panic!("seed {}: {event} was acknowledged and is lost", self.seed));
            assert_eq!(row.deliveries as usize, *deliveries);
            for seq in row.delivery_seqs() {
                let delivery = view.delivery(DeliveryKey { account: account(), seq }).unwrap().unwrap();
                let heard = self.heard.get(&seq).map_or(0, |heard| heard.accepted);
                if matches!(delivery.state, State::Delivered { .. }) {
                    assert!(heard > 0, "seed {}: {seq} is delivered, but nobody got it", self.seed);
                }
                let excused = self.interrupted.get(&seq).copied().unwrap_or(0);
                assert!(
                    heard <= u64::from(delivery.run) + excused,
                    "seed {}: {seq} arrived {heard} times",
                    self.seed
                );
                let requests = self.heard.get(&seq).map_or(0, |heard| heard.requests);
                assert!(requests <= u64::from(delivery.attempts), "seed {}: unrecorded requests", self.seed);
            }
        }
        let snapshot = view.snapshot().clone();
        let generation = view.generation();
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let report = check::check(disk, generation, &mut || Ok(snapshot.clone()), &mut |_, _, _| {}).unwrap();
        assert_eq!(report.findings, Vec::<String>::new(), "seed {}", self.seed);
        assert!(report.rows > 0);
    }

    /// The chain value of the head: equal chains are equal bytes.
    fn chain(&self) -> String {
        format!("{:?}", self.engine.as_ref().expect("it runs").published().view().snapshot().chain())
    }
}

fn run(seed: u64, steps: usize) -> World {
    let mut world = World::new(seed);
    for _ in 0..steps {
        world.step();
    }
    world.settle();
    world.check();
    world
}

fn seeds(count: u64) -> Vec<u64> {
    match std::env::var("HOOKLOG_SEED") {
        Ok(seed) => vec![seed.parse().expect("HOOKLOG_SEED is a number")],
        Err(_) => (1..=count).collect(),
    }
}

#[test]
fn fifty_seeds_are_safe_after_every_step_and_live_at_the_end() {
    let (mut crashes, mut events, mut claimed, mut refused) = (0, 0, 0, 0);
    for seed in seeds(50) {
        let world = run(seed, 300);
        crashes += world.crashes;
        events += world.acknowledged.len();
        claimed += world.workers.claimed;
        refused += world.workers.refused;
    }
    // A check that could not fail would be one that nothing was tried on.
    assert!(crashes > 50 || std::env::var("HOOKLOG_SEED").is_ok(), "only {crashes} crashes");
    assert!(refused > 50 || std::env::var("HOOKLOG_SEED").is_ok(), "only {refused} workers came too late");
    println!(
        "{events} events acknowledged, {crashes} crashes, {claimed} jobs claimed, {refused} words refused"
    );
}

#[test]
fn the_same_seed_gives_the_same_log_byte_for_byte() {
    for seed in 1..=5 {
        assert_eq!(run(seed, 200).chain(), run(seed, 200).chain(), "seed {seed}");
    }
    let distinct: BTreeSet<_> = (1..=5).map(|seed| run(seed, 200).chain()).collect();
    assert_eq!(distinct.len(), 5);
}

#[test]
fn views_made_anew_are_the_same_bytes() {
    for seed in 1..=5 {
        let mut world = run(seed, 200);
        let before = dump(&world);
        world.engine = None;
        let opened = Log::open(
            Arc::new(world.disk.clone()),
            Mark::memory(&world.mark),
            log::Options { bucket_bytes_max: 64 << 10, ..log::Options::default() },
        );
        let mut log = opened.unwrap().into_log();
        rebuild::rebuild_stopped(&mut log, &mut |_, _| {}).unwrap();
        drop(log);
        assert_eq!(dump(&world), before, "seed {seed}");
    }
}

/// All rows of all views, by table and key, whatever their generation.
fn dump(world: &World) -> BTreeMap<(String, Vec<u8>), Vec<u8>> {
    use std::ops::{Bound, ControlFlow};
    let mut out = BTreeMap::new();
    let log = Log::open(
        Arc::new(world.disk.crash()),
        Mark::memory(&world.mark),
        log::Options { bucket_bytes_max: 64 << 10, ..log::Options::default() },
    );
    let log = log.unwrap().into_log();
    for (name, _) in hooklog_projections::TABLES {
        let version = log.view_version(name).unwrap();
        let space = log::Space::View { name, version };
        let rows = &mut |key: &[u8], value: &[u8]| {
            out.insert((name.to_owned(), key.to_vec()), value.to_vec());
            ControlFlow::Continue(())
        };
        log.range(space, Bound::Unbounded, Bound::Unbounded, log::Order::Ascending, rows).unwrap();
    }
    out
}
