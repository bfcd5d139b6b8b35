//! An engine on a memory disk with a clock that is told the time, and receivers that answer from a script.
//! Stands in for: the driver, the network, the process.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use hooklog::clock::SeededChance;
use hooklog::delivery::{Answer as Heard, Fault, Outcome};
use hooklog::engine::command::body_ref;
use hooklog::engine::{
    Answer, Attempt, Command, Engine, Enqueue, Input, Rejection, Scope, ServerPolicy, Ticket,
};
use hooklog::log::mark::MemoryMark;
use hooklog::log::memory::MemoryDisk;
use hooklog::log::{self, Body, Log, Mark};
use hooklog::secrets::MasterKey;
use hooklog_projections::fact::{
    AccountSettings, Actor, EndpointSettings, Entry, Fact, Failure, Schemes, Sealed,
};
use hooklog_projections::ids::{AccountId, DeliveryKey, EndpointId, EndpointKey, EventId, Seq};
use hooklog_projections::lifecycle::State;
use hooklog_projections::policy::{ErrorClass, ResponsePolicy, Rollout, Schedule};
use hooklog_projections::time::{Millis, Timestamp};

pub const START: Timestamp = Timestamp(1_796_000_000_000);

pub struct Stage {
    pub disk: MemoryDisk,
    pub mark: MemoryMark,
    master: MasterKey,
    chance: SeededChance,
    pub engine: Option<Engine>,
    pub now: Timestamp,
    pub out: BTreeMap<Seq, (Attempt, Timestamp)>,
    scripts: BTreeMap<EndpointId, VecDeque<String>>,
    names: BTreeMap<String, EndpointKey>,
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
            out: BTreeMap::new(),
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
        let mut engine =
            Engine::start(opened, &self.master, ServerPolicy::default(), self.now, &mut self.chance)
                .expect("the engine starts");
        engine.set_sending(true);
        self.engine = Some(engine);
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
                    if option("retries") == Some("off") { Rollout::Off } else { Rollout::On },
                );
            }
            ["endpoint", name, wanted, "answers", rest @ ..] => {
                let end = rest.iter().position(|w| *w == "policy").unwrap_or(rest.len());
                let policy = rest.get(end + 1).map(|name| match *name {
                    "ukue" => ResponsePolicy::Ukue,
                    "ledger-strict" => ResponsePolicy::LedgerStrict,
                    other => panic!("no policy {other}"),
                });
                self.endpoint(name, wanted, &rest[..end], policy);
            }
            ["event", id, event_type] => {
                let answer = self.enqueue(id, event_type, b"{}");
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
        let key = EndpointKey { account: account(), endpoint: EndpointId(self.names.len() as u128 + 1) };
        let settings = EndpointSettings {
            url: format!("https://{name}.customer.net/").into(),
            event_types: vec![wanted.into()],
            description: "".into(),
            schedule: None,
            response_policy: policy,
            timeout: Millis(10_000),
            in_flight_max: 8,
            schemes: Schemes { standard: true, ledger: true },
            headers: Vec::new(),
            rate_per_second: None,
            disable_after: None,
            body_form: Default::default(),
        };
        let created = self.ask(Command::CreateEndpoint { key, settings, signing: Vec::new() });
        created.expect("it is new");
        self.names.insert(name.to_owned(), key);
        self.scripts.insert(key.endpoint, script.iter().map(|word| (*word).to_owned()).collect());
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
        let body = Body { salt: [3; 16], bytes: Bytes::from_static(bytes) };
        self.ask(Command::Enqueue(Box::new(Enqueue {
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
        })))
    }

    pub fn ask(&mut self, command: Command) -> Result<Answer, Rejection> {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.turn(Some(Input::Command { ticket, actor: Actor::Cli, command })).expect("it is answered")
    }

    /// One turn; the answer to its command, if it had one.
    fn turn(&mut self, input: Option<Input>) -> Option<Result<Answer, Rejection>> {
        let engine = self.engine.as_mut().expect("it runs");
        engine.begin(self.now);
        if let Some(input) = input {
            engine.handle(input, &mut self.chance).expect("the engine goes on");
        }
        let turn = engine.finish().expect("the engine goes on");
        if turn.entries > 0
            && let Some(after) = &mut self.after_batch
        {
            after(self.disk.crash(), self.mark.after_kill());
        }
        for attempt in turn.attempts {
            let script = self.scripts.get(&attempt.endpoint.endpoint).and_then(|script| script.front());
            let took = match script.map(String::as_str) {
                Some("timeout") => 10_000,
                Some("hang") => u64::MAX / 4,
                _ => 20,
            };
            self.out.insert(attempt.delivery.seq, (attempt, self.now + Millis(took)));
        }
        turn.answers.into_iter().next().map(|(_, answer)| answer)
    }

    /// Lets time pass, each thing at its moment.
    pub fn run_until(&mut self, until: Timestamp) {
        self.turn(None);
        loop {
            let wake = self.engine.as_ref().expect("it runs").next_wake();
            let ends = self.out.values().map(|(_, at)| *at).min();
            let Some(next) = [wake, ends].into_iter().flatten().min().filter(|at| *at <= until) else {
                break;
            };
            self.now = self.now.max(next);
            let ended = self.out.iter().find(|(_, (_, at))| *at <= self.now).map(|(seq, _)| *seq);
            let input = ended.map(|seq| {
                let (attempt, _) = self.out.remove(&seq).expect("it was found");
                Input::Outcome { delivery: seq, outcome: self.answer(&attempt) }
            });
            self.turn(input);
        }
        self.now = until;
    }

    fn answer(&mut self, attempt: &Attempt) -> Outcome {
        let script = self.scripts.get_mut(&attempt.endpoint.endpoint).expect("a receiver has a script");
        let word = if script.len() > 1 { script.pop_front() } else { script.front().cloned() };
        let word = word.expect("a script has a word");
        let heard = |status: u16, headers| {
            Ok(Heard { status, headers, body: Bytes::from_static(b"so"), truncated: false, address: None })
        };
        let result = match word.as_str() {
            "timeout" | "hang" => Err(Fault::new(ErrorClass::Timeout, "no answer within 10 s")),
            "refused" => Err(Fault::new(ErrorClass::Connect, "connection refused")),
            status => match status.split_once('/') {
                Some((status, after)) => {
                    heard(status.parse().expect("a status"), vec![("retry-after", after.to_owned())])
                }
                None => heard(status.parse().expect("a status"), Vec::new()),
            },
        };
        Outcome::of(result, Millis(20))
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
        self.turn(None);
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
        let page = view.history(account(), &Default::default(), None, 100).expect("it can be read");
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

fn schedule(name: &str) -> Schedule {
    match name {
        "ledger-5" => Schedule::Ledger5,
        "ukue" => Schedule::Ukue,
        other => panic!("no schedule {other}"),
    }
}

fn span_of(text: &str) -> Millis {
    let (number, unit) = text.split_at(text.len() - 1);
    let number: u64 = number.parse().expect("a number");
    Millis::from_secs(
        number
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
