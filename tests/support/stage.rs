//! An engine on a memory disk with clocks that are told the time, and receivers that answer from a script.
//! Stands in for: the driver, the network, the process. Every request is remembered; none may leave beside
//! another of its delivery, nor before its record.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use hooklog::clock::{SeededChance, Steady};
use hooklog::delivery::{Answer as Heard, Fault, Outcome};
use hooklog::engine::command::body_ref;
use hooklog::engine::{
    Answer, Attempt, Command, Engine, Enqueue, Input, Job, JobEnd, Rejection, Scope, ServerPolicy, Ticket,
};
use hooklog::log::mark::MemoryMark;
use hooklog::log::memory::MemoryDisk;
use hooklog::log::{self, Body, BodySlot, Disk, Log, Mark};
use hooklog::secrets::MasterKey;
use hooklog::views::{Place, check};
use hooklog_projections::counts::Counts;
use hooklog_projections::fact::{
    AccountSettings, Actor, EndpointSettings, Entry, Fact, Failure, Schemes, Sealed,
};
use hooklog_projections::ids::{AccountId, DeliveryKey, EndpointId, EndpointKey, EventId, LeaseId, Seq};
use hooklog_projections::lifecycle::{Delivery, State};
use hooklog_projections::policy::{ErrorClass, ResponsePolicy, Rollout, Schedule};
use hooklog_projections::time::{Millis, Timestamp};

pub const START: Timestamp = Timestamp(1_796_000_000_000);

/// The longest that the driver sleeps.
const SLEEP_MAX: Millis = Millis(1_000);

/// A request that left.
#[derive(Clone, Debug)]
pub struct Sent {
    pub at: Timestamp,
    pub delivery: Seq,
    pub endpoint: EndpointId,
    pub event: EventId,
    pub number: u32,
    /// The due time that it was sent for.
    pub due_at: Timestamp,
    pub url: String,
}

/// Answers in place of the scripts: a word, given the attempt and the moment.
pub type Receiver = Box<dyn FnMut(&Attempt, Timestamp) -> String>;

pub struct Stage {
    pub disk: MemoryDisk,
    pub mark: MemoryMark,
    master: MasterKey,
    chance: SeededChance,
    pub engine: Option<Engine>,
    /// The true time, from which the monotonic clock counts.
    pub now: Timestamp,
    /// How wrong the wall clock is, in milliseconds.
    pub wall_error: i64,
    steady: Steady,
    pub policy: ServerPolicy,
    /// How long a receiver takes to answer.
    pub latency: Millis,
    /// Requests that end together are told in one turn, at most so many.
    pub told_at_once: usize,
    idle_turns: u32,
    pub receiver: Option<Receiver>,
    pub out: BTreeMap<Seq, (Attempt, Timestamp)>,
    pub sent: Vec<Sent>,
    /// All answers, in the order in which they were given.
    pub answers: Vec<(Ticket, Result<Answer, Rejection>)>,
    /// Deliveries that were acknowledged, with what their body must be.
    pub known: BTreeMap<Seq, Bytes>,
    scripts: BTreeMap<EndpointId, VecDeque<String>>,
    pub names: BTreeMap<String, EndpointKey>,
    next_ticket: u64,
    picture: String,
    seen: Seq,
    /// Called after each batch, with disk and mark as a crash would leave them.
    pub after_batch: Option<Box<dyn FnMut(MemoryDisk, MemoryMark)>>,
}

pub fn account() -> AccountId {
    AccountId(1)
}

impl Stage {
    pub fn new() -> Stage {
        Stage::on(MemoryDisk::new(), MemoryMark::default(), START)
    }

    pub fn on(disk: MemoryDisk, mark: MemoryMark, now: Timestamp) -> Stage {
        let mut stage = Stage {
            disk,
            mark,
            master: MasterKey::from_bytes([7; 32].into()),
            chance: SeededChance::new(1),
            engine: None,
            now,
            wall_error: 0,
            steady: Steady::start(now, now, Millis(now.0)),
            policy: ServerPolicy::default(),
            latency: Millis(20),
            told_at_once: 1,
            idle_turns: 0,
            receiver: None,
            out: BTreeMap::new(),
            sent: Vec::new(),
            answers: Vec::new(),
            known: BTreeMap::new(),
            scripts: BTreeMap::new(),
            names: BTreeMap::new(),
            next_ticket: 0,
            picture: String::new(),
            seen: Seq(1),
            after_batch: None,
        };
        stage.start();
        stage
    }

    /// Plays a story to its end; the picture of its log.
    pub fn play(story: &str) -> String {
        let mut stage = Stage::new();
        for line in story.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            stage.line(line);
        }
        stage.summary();
        stage.picture
    }

    pub fn start(&mut self) {
        let opened =
            Log::open(Arc::new(self.disk.clone()), Mark::memory(&self.mark), log::Options::default());
        let opened = opened.expect("the log opens");
        let (wall, policy) = (self.wall(), self.policy.clone());
        let mut engine =
            Engine::start(opened, &self.master, policy, wall, &mut self.chance).expect("the engine starts");
        engine.set_sending(true);
        let last = engine.published().view().snapshot().last_at();
        self.steady = Steady::start(wall, last, Millis(self.now.0));
        self.engine = Some(engine);
    }

    /// What the wall clock shows.
    pub fn wall(&self) -> Timestamp {
        Timestamp(self.now.0.saturating_add_signed(self.wall_error))
    }

    /// What the engine takes the time to be.
    pub fn moment(&mut self) -> Timestamp {
        self.steady.read(self.wall(), Millis(self.now.0))
    }

    fn line(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if !matches!(words[0], "account" | "endpoint") {
            let _ = writeln!(self.picture, "> {line}");
        }
        match words.as_slice() {
            ["account", options @ ..] => {
                let option = |name| options.iter().position(|w| *w == name).map(|at| options[at + 1]);
                self.account(
                    option("schedule").map(schedule),
                    match option("retries") {
                        Some("off") => Rollout::Off,
                        Some("default") => Rollout::Default,
                        _ => Rollout::On,
                    },
                );
            }
            ["endpoint", name, wanted, "answers", rest @ ..] => {
                const OPTIONS: [&str; 4] = ["policy", "rate", "cap", "disable-after"];
                let end = rest.iter().position(|word| OPTIONS.contains(word)).unwrap_or(rest.len());
                let (script, options) = rest.split_at(end);
                self.endpoint_with(name, wanted, script, |settings| {
                    for option in options.chunks(2) {
                        match option {
                            ["policy", name] => settings.response_policy = Some(policy(name)),
                            ["rate", rate] => settings.rate_per_second = Some(number(rate)),
                            ["cap", cap] => settings.in_flight_max = number(cap),
                            ["disable-after", span] => settings.disable_after = Some(span_of(span)),
                            other => panic!("no option {other:?}"),
                        }
                    }
                });
            }
            ["server", "retries-percent", percent] => {
                // A flag of the server: it takes a restart.
                self.policy.retries_percent = number::<u8>(percent);
                self.crash();
            }
            ["event", id, event_type, options @ ..] => {
                let (names, now) = (self.names.clone(), self.now);
                let answer = self.enqueue_with(id, event_type, b"{}", |enqueue| {
                    for option in options.chunks(2) {
                        match option {
                            ["to", name] => enqueue.endpoint = Some(names[*name].endpoint),
                            ["in", span] => enqueue.deliver_at = Some(now + span_of(span)),
                            ["until", span] => enqueue.expire_at = Some(now + span_of(span)),
                            ["tries", tries] => enqueue.max_tries = Some(number(tries)),
                            other => panic!("no option {other:?}"),
                        }
                    }
                });
                self.say(answer);
            }
            ["wait", span] => {
                let until = self.now + span_of(span);
                self.run_until(until);
            }
            ["pause", name] => {
                let key = self.names[*name];
                let answer = self.ask(Command::PauseEndpoint { key, reason: "maintenance".into() });
                self.say(answer);
            }
            ["resume", name] => {
                let key = self.names[*name];
                let answer = self.ask(Command::ResumeEndpoint { key });
                self.say(answer);
            }
            ["replay", id, rest @ ..] => {
                let scope = if rest == ["all"] { Scope::All } else { Scope::Dead };
                let event = id.parse().expect("an event id");
                let answer = self.ask(Command::ReplayEvent {
                    account: account(),
                    event,
                    scope,
                    reason: "asked".into(),
                });
                self.say(answer);
            }
            [wish @ ("retry-now" | "cancel"), id] => {
                for delivery in self.deliveries(id) {
                    let answer = self.ask(match *wish {
                        "cancel" => Command::Cancel { delivery, reason: "asked".into() },
                        _ => Command::RetryNow { delivery },
                    });
                    self.say(answer);
                }
            }
            ["crash"] => self.crash(),
            _ => panic!("not a line of a story: {line}"),
        }
        self.draw();
    }

    pub fn account(&mut self, schedule: Option<Schedule>, webhook_retries: Rollout) {
        let settings = AccountSettings {
            name: "Acme".into(),
            owner_email: Some("owner@acme.example".into()),
            schedule,
            response_policy: None,
            webhook_retries,
        };
        let secret = Sealed(vec![0]);
        self.ask(Command::CreateAccount { account: account(), settings, secret }).expect("it is new");
    }

    pub fn endpoint(&mut self, name: &str, wanted: &str, script: &[&str], policy: Option<ResponsePolicy>) {
        self.endpoint_with(name, wanted, script, |settings| settings.response_policy = policy);
    }

    /// An endpoint with settings of its own.
    pub fn endpoint_with(
        &mut self,
        name: &str,
        wanted: &str,
        script: &[&str],
        change: impl FnOnce(&mut EndpointSettings),
    ) -> EndpointKey {
        let key = EndpointKey { account: account(), endpoint: EndpointId(self.names.len() as u128 + 1) };
        self.endpoint_at(key, name, wanted, script, change);
        key
    }

    /// An endpoint of any account.
    pub fn endpoint_at(
        &mut self,
        key: EndpointKey,
        name: &str,
        wanted: &str,
        script: &[&str],
        change: impl FnOnce(&mut EndpointSettings),
    ) {
        let mut settings = EndpointSettings {
            url: format!("https://{name}.customer.net/").into(),
            event_types: vec![wanted.into()],
            ..EndpointSettings::default()
        };
        change(&mut settings);
        let created = self.ask(Command::CreateEndpoint { key, settings, signing: Vec::new(), secret: None });
        created.expect("it is new");
        self.names.insert(name.to_owned(), key);
        self.scripts.insert(key.endpoint, script.iter().map(|word| (*word).to_owned()).collect());
    }

    /// A worker queue, with settings of its own.
    pub fn queue_with(&mut self, name: &str, change: impl FnOnce(&mut EndpointSettings)) -> EndpointKey {
        self.endpoint_with(name, "*", &[], |settings| {
            settings.url = "".into();
            settings.queue = Some(name.into());
            settings.schemes = Schemes { standard: false, ledger: false };
            settings.in_flight_max = 1_000;
            settings.schedule = Some(Schedule::Ukue);
            change(settings);
        })
    }

    /// What a worker is given that does not wait.
    pub fn claim(&mut self, queue: EndpointKey, max: u32) -> Vec<Job> {
        match self.ask(Command::Claim { queue, max, wait: Millis(0) }) {
            Ok(Answer::Claimed { jobs }) => jobs,
            other => panic!("not a claim's answer: {other:?}"),
        }
    }

    /// A worker waits. What it is given is among the answers, one day.
    pub fn wait_for(&mut self, queue: EndpointKey, max: u32, wait: Millis) -> Ticket {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        let command = Command::Claim { queue, max, wait };
        self.turn([Input::Command { ticket, actor: Actor::Cli, command }]);
        ticket
    }

    /// What was answered to a worker that waited; `None` as long as it waits.
    pub fn given(&self, ticket: Ticket) -> Option<Vec<Job>> {
        self.answers.iter().find(|(to, _)| *to == ticket).map(|(_, answer)| match answer {
            Ok(Answer::Claimed { jobs }) => jobs.clone(),
            other => panic!("not a claim's answer: {other:?}"),
        })
    }

    /// One turn with anything that the engine may be told.
    pub fn inputs(&mut self, inputs: impl IntoIterator<Item = Input>) {
        self.turn(inputs);
    }

    /// A worker ends its attempt.
    pub fn end(&mut self, lease: LeaseId, end: JobEnd) -> Result<(), Rejection> {
        self.ask(Command::EndLease { lease, end }).map(drop)
    }

    /// A worker is still at it.
    pub fn extend(&mut self, lease: LeaseId) -> Result<Timestamp, Rejection> {
        self.ask(Command::ExtendLease { lease }).map(|answer| match answer {
            Answer::Lease { until } => until,
            other => panic!("not a lease's answer: {other:?}"),
        })
    }

    /// Changes an endpoint's settings.
    pub fn change(
        &mut self,
        key: EndpointKey,
        change: impl FnOnce(&mut EndpointSettings),
    ) -> Result<Answer, Rejection> {
        let row = {
            let view = self.engine.as_ref().expect("it runs").published().view();
            view.endpoint(key).expect("it can be read").expect("it is known")
        };
        let (version, mut settings) = (row.version, row.settings);
        change(&mut settings);
        self.ask(Command::ChangeEndpoint { key, version, settings, new_key: None, secret: None })
    }

    /// Gives endpoints that a log already knows, from the first on, receivers that are well.
    pub fn receivers_that_are_well(&mut self, names: &[&str]) {
        for (n, name) in names.iter().enumerate() {
            let endpoint = EndpointId(n as u128 + 1);
            self.names.insert((*name).to_owned(), EndpointKey { account: account(), endpoint });
            self.scripts.insert(endpoint, VecDeque::from(["200".to_owned()]));
        }
    }

    pub fn enqueue(&mut self, id: &str, event_type: &str, bytes: &'static [u8]) -> Result<Answer, Rejection> {
        self.enqueue_with(id, event_type, bytes, |_| ())
    }

    /// An event with wishes of its own.
    pub fn enqueue_with(
        &mut self,
        id: &str,
        event_type: &str,
        bytes: &'static [u8],
        change: impl FnOnce(&mut Enqueue),
    ) -> Result<Answer, Rejection> {
        let mut enqueue = event(id, event_type, bytes);
        change(&mut enqueue);
        let answer = self.ask(Command::Enqueue(Box::new(enqueue)));
        self.acknowledged(&answer, bytes);
        answer
    }

    /// Many events, as many to a turn as fit into one.
    pub fn enqueue_many(&mut self, ids: impl IntoIterator<Item = String>, event_type: &str) {
        let mut ids = ids.into_iter().peekable();
        while ids.peek().is_some() {
            let now = self.moment();
            let engine = self.engine.as_mut().expect("it runs");
            engine.begin(now);
            while engine.has_room()
                && let Some(id) = ids.next()
            {
                self.next_ticket += 1;
                let (ticket, actor) = (Ticket(self.next_ticket), Actor::Cli);
                let command = Command::Enqueue(Box::new(event(&id, event_type, b"{}")));
                engine
                    .handle(Input::Command { ticket, actor, command }, &mut self.chance)
                    .expect("it goes on");
            }
            for answer in self.finish() {
                self.acknowledged(&answer, b"{}");
            }
        }
    }

    /// Tells the engine of an answer, whether or not a request is out.
    pub fn tell(&mut self, delivery: Seq, word: &str) {
        self.out.remove(&delivery);
        self.turn([Input::Outcome { delivery, outcome: outcome(word) }]);
    }

    /// Gives a receiver another script.
    pub fn script(&mut self, name: &str, words: &[&str]) {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        self.scripts.insert(self.names[name].endpoint, words);
    }

    /// A turn whose write fails: nobody is answered, nothing is handed out, the engine is of no more use.
    pub fn turn_that_fails(&mut self, inputs: impl IntoIterator<Item = Input>) {
        let now = self.moment();
        let engine = self.engine.as_mut().expect("it runs");
        engine.begin(now);
        for input in inputs {
            engine.handle(input, &mut self.chance).expect("deciding does not write");
        }
        assert!(engine.finish().is_err(), "the write was to fail");
    }

    fn acknowledged(&mut self, answer: &Result<Answer, Rejection>, bytes: &'static [u8]) {
        if let Ok(Answer::Accepted { deliveries, duplicate: false, .. }) = answer {
            self.known.extend(deliveries.iter().map(|seq| (*seq, Bytes::from_static(bytes))));
        }
    }

    pub fn ask(&mut self, command: Command) -> Result<Answer, Rejection> {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.turn([Input::Command { ticket, actor: Actor::Cli, command }]).expect("it is answered")
    }

    /// One turn; the answer to its command, if it had one.
    fn turn(&mut self, inputs: impl IntoIterator<Item = Input>) -> Option<Result<Answer, Rejection>> {
        let now = self.moment();
        let engine = self.engine.as_mut().expect("it runs");
        engine.begin(now);
        for input in inputs {
            engine.handle(input, &mut self.chance).expect("the engine goes on");
        }
        self.finish().into_iter().next()
    }

    /// Ends the turn, and takes more as long as there is more to start; all answers.
    fn finish(&mut self) -> Vec<Result<Answer, Rejection>> {
        let mut answers = Vec::new();
        loop {
            let engine = self.engine.as_mut().expect("it runs");
            let turn = engine.finish().expect("the engine goes on");
            if turn.entries > 0
                && let Some(after) = &mut self.after_batch
            {
                after(self.disk.crash(), self.mark.after_kill());
            }
            turn.attempts.into_iter().for_each(|attempt| self.leave(attempt));
            answers.extend(turn.answers.iter().map(|(_, answer)| answer.clone()));
            self.answers.extend(turn.answers);
            if !turn.more {
                return answers;
            }
        }
    }

    fn leave(&mut self, attempt: Attempt) {
        let script = self.scripts.get(&attempt.endpoint.endpoint).and_then(|script| script.front());
        let took = match script.map(String::as_str).filter(|_| self.receiver.is_none()) {
            Some("timeout") => Millis(10_000),
            Some("drips") => Millis(9_000),
            Some("black-hole") => Millis(5_000),
            Some("hang") => Millis(u64::MAX / 4),
            _ => self.latency,
        };
        let seq = attempt.delivery.seq;
        let view = self.engine.as_ref().expect("it runs").published().view();
        let row = view.delivery(attempt.delivery).expect("it can be read").expect("it is on disk");
        let State::InFlight { attempted, .. } = row.state else { panic!("a request left before its record") };
        assert_eq!((row.attempts, &row.event), (attempt.number, &attempt.event));
        let Fact::Attempted { due_at, .. } = view.entry(attempted).expect("it can be read").fact else {
            panic!("another fact where the attempt was recorded")
        };
        self.sent.push(Sent {
            at: self.now,
            delivery: seq,
            endpoint: attempt.endpoint.endpoint,
            event: attempt.event.clone(),
            number: attempt.number,
            due_at,
            url: attempt.target.settings.url.to_string(),
        });
        let before = self.out.insert(seq, (attempt, self.now + took));
        assert!(before.is_none(), "two requests of {seq} at a time");
    }

    /// Lets time pass, each thing at its moment.
    pub fn run_until(&mut self, until: Timestamp) {
        self.turn([]);
        while let Some(next) = self.next().filter(|at| *at <= until) {
            self.now = next;
            self.step();
        }
        self.now = until;
    }

    /// Lets so much time pass.
    pub fn run_for(&mut self, span: Millis) {
        self.run_until(self.now + span);
    }

    /// Goes on until nothing more happens by itself.
    pub fn run_to_rest(&mut self) {
        self.turn([]);
        while let Some(next) = self.next() {
            self.now = next;
            self.step();
        }
    }

    /// When something happens next, as the driver would wake for it.
    fn next(&mut self) -> Option<Timestamp> {
        let moment = self.moment();
        let agree = self.wall() == moment;
        let wake = self.engine.as_ref().expect("it runs").next_wake().map(|at| at.since(moment));
        let nap = wake.map(|span| if agree { span } else { span.min(SLEEP_MAX) });
        let ends = self.out.values().map(|(_, at)| at.since(self.now)).min();
        // A request that hangs ends by itself when its process does.
        let next = [nap, ends].into_iter().flatten().min().filter(|span| span.0 < u64::MAX / 8)?;
        Some(self.now + next)
    }

    /// One turn now, with the requests that have ended.
    fn step(&mut self) {
        let ended: Vec<Seq> = {
            let ended = self.out.iter().filter(|(_, (_, at))| *at <= self.now);
            ended.map(|(seq, _)| *seq).take(self.told_at_once).collect()
        };
        let (mut inputs, before) = (Vec::with_capacity(ended.len()), self.head());
        for delivery in ended {
            let (attempt, _) = self.out.remove(&delivery).expect("it was found");
            inputs.push(Input::Outcome { delivery, outcome: self.answer(&attempt) });
        }
        self.turn(inputs);
        self.idle_turns = if self.head() == before { self.idle_turns + 1 } else { 0 };
        assert!(self.idle_turns < 100_000, "it is woken again and again for nothing");
    }

    /// The chain value of the head: equal chains are equal bytes.
    pub fn chain(&self) -> String {
        format!("{:?}", self.engine.as_ref().expect("it runs").published().view().snapshot().chain())
    }

    /// When the newest entry was made.
    pub fn last_at(&self) -> Timestamp {
        self.engine.as_ref().expect("it runs").published().view().snapshot().last_at()
    }

    /// The log's head.
    pub fn head(&self) -> Seq {
        self.engine.as_ref().expect("it runs").published().view().head()
    }

    fn answer(&mut self, attempt: &Attempt) -> Outcome {
        let word = match &mut self.receiver {
            Some(receiver) => receiver(attempt, self.now),
            None => {
                let script =
                    self.scripts.get_mut(&attempt.endpoint.endpoint).expect("a receiver has a script");
                let word = if script.len() > 1 { script.pop_front() } else { script.front().cloned() };
                word.expect("a script has a word")
            }
        };
        outcome(&word)
    }

    pub fn crash(&mut self) {
        self.disk = self.disk.crash();
        for (seq, _) in std::mem::take(&mut self.out) {
            let row = self.engine.as_ref().and_then(|engine| {
                let view = engine.published().view();
                view.delivery(DeliveryKey { account: account(), seq }).ok().flatten()
            });
            // A receiver that hung has lost the connection; it goes on with its script.
            if let Some(script) = row.and_then(|row| self.scripts.get_mut(&row.endpoint))
                && script.len() > 1
            {
                script.pop_front();
            }
        }
        self.engine = None;
        self.start();
        self.turn([]);
    }

    /// A delivery as it is now.
    pub fn delivery(&self, seq: Seq) -> Delivery {
        let view = self.engine.as_ref().expect("it runs").published().view();
        let row = view.delivery(DeliveryKey { account: account(), seq }).expect("it can be read");
        row.expect("it is known")
    }

    /// The figures of the store.
    pub fn counts(&self) -> Counts {
        let view = self.engine.as_ref().expect("it runs").published().view();
        view.counts(None).expect("they can be read")
    }

    /// What the list of the cases says of every store at any moment.
    pub fn always_true(&mut self) {
        let mut requests: BTreeMap<Seq, u32> = BTreeMap::new();
        let mut numbers: BTreeMap<Seq, u32> = BTreeMap::new();
        for sent in &self.sent {
            *requests.entry(sent.delivery).or_default() += 1;
            let before = numbers.insert(sent.delivery, sent.number).unwrap_or(0);
            assert!(sent.number > before, "attempts count up from 1: {sent:?}");
            assert_eq!(sent.event, self.delivery(sent.delivery).event, "webhook-id is constant");
        }
        let engine = self.engine.as_mut().expect("it runs");
        let wakes = engine.next_wake();
        engine.settle();
        let turn = engine.finish().expect("the engine goes on");
        if let Some(attempt) = turn.attempts.first() {
            panic!("{} could have started before", attempt.delivery.seq);
        }
        let engine = self.engine.as_ref().expect("it runs");
        let view = engine.published().view();
        let (mut counts, mut runnable) = (Counts::default(), false);
        for (seq, bytes) in &self.known {
            let key = DeliveryKey { account: account(), seq: *seq };
            let row = view.delivery(key).expect("it can be read").expect("nothing is lost");
            counts.add(row.state.status());
            let endpoint = EndpointKey { account: account(), endpoint: row.endpoint };
            let place = view.endpoint(endpoint).expect("it can be read");
            if place.as_ref().is_some_and(|place| place.settings.queue.is_some()) {
                // Workers make no requests, and nobody wakes for them while they do not ask.
                assert!(!requests.contains_key(seq), "a request for a queue's delivery");
                continue;
            }
            let requests = requests.get(seq).copied().unwrap_or(0);
            assert!(requests <= row.attempts, "a request without its record: {row:?}");
            assert!(requests + row.interruptions >= row.attempts || row.run > 1, "a record without request");
            assert!(row.tries + row.interruptions <= row.attempts);
            let body = view.body(BodySlot::Event(row.accepted)).expect("it can be read");
            assert_eq!(&body.expect("it is kept").bytes, bytes, "the body is what came in");
            let held = place.is_none_or(|row| row.hold.is_some());
            match row.state {
                State::InFlight { .. } => assert!(self.out.contains_key(seq), "{seq} is in flight nowhere"),
                State::Pending { .. } => {
                    runnable |= !held;
                    let oldest = view.oldest_due(endpoint).expect("it can be read");
                    assert!(oldest.is_some(), "{seq} waits, but nothing is due at its endpoint");
                }
                State::Deciding { .. } => panic!("{seq} was left undecided"),
                _ => {}
            }
        }
        assert!(!runnable || wakes.is_some() || !self.out.is_empty(), "what waits is never looked at again");
        let told = view.counts(None).expect("they can be read");
        assert!(told.conserved(), "{told:?}");
        assert_eq!(counts, Counts { accepted: 0, ..told }, "the figures are those of the rows");
        let snapshot = view.snapshot().clone();
        let (generation, disk) = (view.generation(), Arc::new(self.disk.clone()) as Arc<dyn Disk>);
        let report = check::check(disk, generation, &mut || Ok(snapshot.clone()), &mut |_, _, _| {});
        assert_eq!(report.expect("it can be checked").findings, Vec::<String>::new());
    }

    fn deliveries(&self, event: &str) -> Vec<DeliveryKey> {
        let event: EventId = event.parse().expect("an event id");
        let view = self.engine.as_ref().expect("it runs").published().view();
        let row = view.event(account(), &event).expect("it can be read").expect("it is known");
        row.delivery_seqs().map(|seq| DeliveryKey { account: account(), seq }).collect()
    }

    fn say(&mut self, answer: Result<Answer, Rejection>) {
        let _ = match answer {
            Ok(Answer::Accepted { duplicate: true, .. }) => {
                writeln!(self.picture, "  the first answer again")
            }
            Ok(_) => Ok(()),
            Err(rejection) => writeln!(self.picture, "  refused: {rejection}"),
        };
    }

    /// Adds what was appended since to the picture.
    fn draw(&mut self) {
        let entries = {
            let view = self.engine.as_ref().expect("it runs").published().view();
            view.snapshot().entries(self.seen.next(), usize::MAX).expect("the log can be read")
        };
        for entry in &entries {
            self.seen = entry.seq;
            let text = self.spell(entry);
            if let Some(text) = text {
                let _ = writeln!(self.picture, "  {:>4} {} {text}", entry.seq.0, offset(entry.at));
            }
        }
    }

    fn spell(&self, entry: &Entry) -> Option<String> {
        let name = |endpoint: EndpointId| {
            let found = self.names.iter().find(|(_, key)| key.endpoint == endpoint);
            found.map_or_else(|| endpoint.to_string(), |(name, _)| name.clone())
        };
        Some(match &entry.fact {
            Fact::Accepted { event, event_type, deliveries, .. } => {
                format!("Accepted {event} {event_type}, {deliveries} to deliver")
            }
            Fact::Enqueued { key, due_at, .. } => {
                format!("Enqueued d{} to {}, due {}", entry.seq, name(key.endpoint), offset(*due_at))
            }
            Fact::Attempted { of, attempt, try_number, run, .. } => {
                format!("Attempted d{}: attempt {attempt}, try {try_number} of run {run}", of.delivery)
            }
            Fact::Delivered { of, response, rule, .. } => {
                format!("Delivered d{}: {} [{rule}]", of.delivery, response.status)
            }
            Fact::Failed { of, failure, rule, counted, .. } => {
                let what = match failure {
                    Failure::Answered(response) => response.status.to_string(),
                    Failure::Error { detail, .. } => detail.to_string(),
                };
                let counted = if *counted { "" } else { ", uses up no try" };
                format!("Failed d{}: {what} [{rule}]{counted}", of.delivery)
            }
            Fact::Rescheduled { of, due_at, rule, .. } => {
                format!("Rescheduled d{}: due {} [{rule}]", of.delivery, offset(*due_at))
            }
            Fact::Dead { of, reason, tell_owner, .. } => {
                let told = if *tell_owner { ", its owner is to be told" } else { "" };
                format!("Dead d{}: {reason:?}{told}", of.delivery)
            }
            Fact::Replayed { of, run, .. } => format!("Replayed d{}: run {run}", of.delivery),
            Fact::Cancelled { of, .. } => format!("Cancelled d{}", of.delivery),
            Fact::EndpointPaused { key, .. } => format!("EndpointPaused {}", name(key.endpoint)),
            Fact::EndpointResumed { key } => format!("EndpointResumed {}", name(key.endpoint)),
            Fact::EndpointDisabled { key, reason } => {
                format!("EndpointDisabled {}: {reason:?}", name(key.endpoint))
            }
            Fact::EndpointGated { key, until } => {
                format!("EndpointGated {} until {}", name(key.endpoint), offset(*until))
            }
            _ => return None,
        })
    }

    fn summary(&mut self) {
        let view = self.engine.as_ref().expect("it runs").published().view();
        let counts = view.counts(None).expect("they can be read");
        assert!(counts.conserved());
        let page = view.history(account(), &Default::default(), Place::First, 100).expect("it can be read");
        let mut lines = String::new();
        for (key, row) in page.rows.iter().rev() {
            let state = match &row.state {
                State::Pending { due_at } => format!("pending, due {}", offset(*due_at)),
                state => state.status().as_str().to_owned(),
            };
            let _ = writeln!(
                lines,
                "= d{} {} {state}; run {}, {} attempts",
                key.seq, row.event, row.run, row.attempts
            );
        }
        self.picture += &lines;
        let _ = writeln!(
            self.picture,
            "= enqueued {} = pending {} + in flight {} + delivered {} + dead {} + cancelled {}",
            counts.enqueued,
            counts.pending,
            counts.in_flight,
            counts.delivered,
            counts.dead,
            counts.cancelled
        );
    }
}

/// An event as a producer sends it.
pub fn event(id: &str, event_type: &str, bytes: &'static [u8]) -> Enqueue {
    let body = Body { salt: [3; 16], bytes: Bytes::from_static(bytes) };
    Enqueue {
        account: account(),
        event: id.parse().expect("an event id"),
        event_type: event_type.into(),
        body_ref: body_ref(&body, "application/json"),
        body,
        utf8: true,
        deliver_at: None,
        max_tries: None,
        expire_at: None,
        endpoint: None,
    }
}

/// What a word of a script means.
pub fn outcome(word: &str) -> Outcome {
    let heard = |status: u16, headers| {
        Ok(Heard { status, headers, body: Bytes::from_static(b"so"), truncated: false, address: None })
    };
    let result = match word {
        "timeout" | "hang" => Err(Fault::new(ErrorClass::Timeout, "no answer within 10 s")),
        "refused" => Err(Fault::new(ErrorClass::Connect, "connection refused")),
        // A whole head, then a body that comes byte by byte; and an address that swallows everything.
        "drips" => return Outcome::of(heard(200, Vec::new()), Millis(9_000)),
        "black-hole" => {
            return Outcome::of(Err(Fault::new(ErrorClass::Connect, "no connection")), Millis(5_000));
        }
        status => match status.split_once('/') {
            Some((status, after)) => heard(number(status), vec![("retry-after", after.to_owned())]),
            None => heard(number(status), Vec::new()),
        },
    };
    Outcome::of(result, Millis(20))
}

fn number<N: FromStr>(text: &str) -> N {
    text.parse().unwrap_or_else(|_| panic!("{text} is no number"))
}

fn policy(name: &str) -> ResponsePolicy {
    match name {
        "ukue" => ResponsePolicy::Ukue,
        "ledger-strict" => ResponsePolicy::LedgerStrict,
        other => panic!("no policy {other}"),
    }
}

fn schedule(name: &str) -> Schedule {
    match name {
        "ledger-5" => Schedule::Ledger5,
        "ukue" => Schedule::Ukue,
        other => panic!("no schedule {other}"),
    }
}

fn span_of(text: &str) -> Millis {
    let (digits, unit) = text.split_at(text.len() - 1);
    Millis::from_secs(
        number::<u64>(digits)
            * match unit {
                "s" => 1,
                "m" => 60,
                "h" => 3600,
                other => panic!("no unit {other}"),
            },
    )
}

/// Time since the story began, as h:mm:ss.mmm.
fn offset(at: Timestamp) -> String {
    let ms = at.since(START).0;
    format!("+{}:{:02}:{:02}.{:03}", ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60, ms % 1000)
}
