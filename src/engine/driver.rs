//! The thread around the engine: feeds it what comes in, hands out answers, and lets attempts go.
//!
//! One OS thread writes, for a commit can block; each attempt is a task of the async runtime. Never decides
//! anything.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use futures::FutureExt;
use hooklog_projections::fact::Actor;
use hooklog_projections::ids::{LeaseId, Seq};
use hooklog_projections::policy::ErrorClass;
use hooklog_projections::time::{Millis, Timestamp};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::task::TaskTracker;

use super::handle::Handle;
use super::health::Health;
use super::{Answer, Attempt, Command, Engine, Fatal, Input, Rejection, Ticket, Turn};
use crate::clock::{Clock, Jump, Steady, SystemChance};
use crate::delivery::{Fault, Outcome};
use crate::log::{self, Snapshot};
use crate::views::rebuild::{self, Rebuilt};

/// Wishes that may wait for the writer; the next one waits for room.
const QUEUE_MAX: usize = 4_096;
/// The longest the writer sleeps: bounds how late a jump of the wall clock is seen, and made up for.
const SLEEP_MAX: Millis = Millis(1_000);
/// Between two proofs that the store still takes writes.
const HEARTBEAT: Millis = Millis(5_000);
/// Between two looks at what is late.
const LOOK: Millis = Millis(1_000);
/// Between two syncs of the mark: what a power cut can make it forget.
const MARK_SYNC: Millis = Millis(1_000);
/// Between two flushes of what is rarely written, so that it pins no journals.
const ROTATE: Millis = Millis(3_600_000);
/// A commit that takes longer than this will not return.
pub const STUCK_AFTER: Millis = Millis(10_000);

/// Carries one recorded attempt to its receiver.
pub trait Courier: Send + Sync + 'static {
    /// Sends it and waits for the end, which comes within the endpoint's time-out.
    fn carry(&self, attempt: Attempt) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>>;
}

/// What comes in.
pub(super) enum Message {
    Ask { actor: Actor, command: Command, reply: Reply, _room: OwnedSemaphorePermit },
    Ended { delivery: Seq, outcome: Outcome },
    Unclaimed { lease: LeaseId },
    Control(Control),
}

pub(super) type Reply = oneshot::Sender<Result<Answer, Rejection>>;

/// What is asked of the writer itself.
pub(super) enum Control {
    /// Write the settled tables and answer with what is published then.
    Settle(oneshot::Sender<Arc<Snapshot>>),
    /// Make rebuilt views the live ones.
    Switch(Box<Rebuilt>, oneshot::Sender<Result<(), rebuild::Error>>),
    /// Make no more attempts, take no more events. Answers when the last attempt was let go.
    Drain(oneshot::Sender<()>),
    /// Start nothing, as if the scheduler were at fault; or go on.
    FaultScheduler(bool),
    /// End.
    Stop,
}

/// A running engine.
pub struct Running {
    /// Speaks to it.
    pub handle: Handle,
    thread: JoinHandle<Result<(), Fatal>>,
    tasks: TaskTracker,
    sender: Sender<Message>,
}

/// Runs an engine on a thread of its own; `courier` makes its attempts, on `runtime`.
pub fn run(
    engine: Engine,
    courier: Arc<dyn Courier>,
    clock: Arc<dyn Clock>,
    runtime: tokio::runtime::Handle,
) -> Running {
    let (sender, receiver) = channel();
    let health = Arc::new(Health::new(engine.metrics.clone()));
    let handle = Handle::new(
        sender.clone(),
        Arc::new(Semaphore::new(QUEUE_MAX)),
        engine.published().clone(),
        engine.log.disk().clone(),
        health.clone(),
    );
    let tasks = TaskTracker::new();
    let steady = Steady::start(clock.now(), engine.log.last_at(), clock.monotonic());
    let driver = Driver {
        engine,
        receiver,
        sender: sender.clone(),
        courier,
        clock,
        steady,
        runtime,
        tasks: tasks.clone(),
        health,
        waiting: HashMap::new(),
        settles: Vec::new(),
        drains: Vec::new(),
        next_ticket: 0,
    };
    let thread = std::thread::Builder::new().name("hooklog-writer".into());
    let thread = thread.spawn(move || driver.run()).expect("the system has a thread to spare");
    Running { handle, thread, tasks, sender }
}

impl Running {
    /// Stops in order: no new attempts and events, what is in flight gets `limit` to end, then the store is
    /// closed. Attempts still out then are interrupted: the next start sends them again.
    pub async fn stop(self, limit: Duration) -> Result<(), Fatal> {
        let (reply, drained) = oneshot::channel();
        let _ = self.sender.send(Message::Control(Control::Drain(reply)));
        let ended = async {
            // Attempts of the turn that the wish came into are out only after it.
            let _ = drained.await;
            self.tasks.close();
            self.tasks.wait().await;
        };
        if tokio::time::timeout(limit, ended).await.is_err() && !self.tasks.is_empty() {
            tracing::warn!(attempts = self.tasks.len(), "attempts were still out at the end of the drain");
        }
        let _ = self.sender.send(Message::Control(Control::Stop));
        self.ended().await
    }

    /// Waits until the engine ends by itself, which only an error makes it do.
    pub async fn ended(self) -> Result<(), Fatal> {
        let ended = tokio::task::spawn_blocking(move || self.thread.join()).await;
        match ended {
            Ok(Ok(result)) => result,
            _ => Err(Fatal::Log(log::Error::Misuse("the writer panicked".into()))),
        }
    }

    /// Notified when the engine has ended.
    pub fn on_end(&self) -> Arc<Notify> {
        self.handle.health().ended.clone()
    }
}

/// When the writer last did what it does now and then.
struct Upkeep {
    beat_at: Millis,
    marked_at: Millis,
    rotated_at: Millis,
    /// `None`: look at once.
    looked_at: Option<Millis>,
    /// Something was appended since the mark was synced.
    unmarked: bool,
}

struct Driver {
    engine: Engine,
    receiver: Receiver<Message>,
    sender: Sender<Message>,
    courier: Arc<dyn Courier>,
    clock: Arc<dyn Clock>,
    steady: Steady,
    runtime: tokio::runtime::Handle,
    tasks: TaskTracker,
    health: Arc<Health>,
    waiting: HashMap<Ticket, Reply>,
    settles: Vec<oneshot::Sender<Arc<Snapshot>>>,
    drains: Vec<oneshot::Sender<()>>,
    next_ticket: u64,
}

impl Driver {
    fn run(mut self) -> Result<(), Fatal> {
        // A panic is the end of the engine too, and everybody who waits for one must hear of it.
        let result = catch_unwind(AssertUnwindSafe(|| self.turns()))
            .unwrap_or_else(|_| Err(Fatal::Log(log::Error::Misuse("the writer panicked".into()))));
        self.health.end(result.as_ref().err().map(ToString::to_string));
        for (_, reply) in self.waiting.drain() {
            let _ = reply.send(Err(Rejection::OutcomeUnknown));
        }
        if let Err(error) = &result {
            tracing::error!(%error, "the writer stopped: nothing more is accepted or sent");
        } else if let Err(error) = self.engine.log.close() {
            tracing::warn!(%error, "the store could not be flushed; the next start takes a little longer");
        }
        result
    }

    fn turns(&mut self) -> Result<(), Fatal> {
        let now = self.clock.monotonic();
        let mut upkeep =
            Upkeep { beat_at: now, marked_at: now, rotated_at: now, looked_at: None, unmarked: false };
        let mut more = true;
        loop {
            let first = if more { None } else { self.wait() };
            let mut stop = false;
            let (now, at) = (self.now(), self.clock.monotonic());
            self.engine.begin(now);
            let mut next = first.or_else(|| self.poll());
            while let Some(message) = next {
                stop |= self.take(message)?;
                next = if self.engine.has_room() && !stop { self.poll() } else { None };
            }
            self.health.watchdog.enter(self.clock.monotonic().0);
            let began = self.clock.elapsed();
            let turn = self.engine.finish();
            self.health.watchdog.leave();
            let turn = turn?;
            if turn.entries > 0 {
                self.engine.metrics.synced(self.clock.elapsed().saturating_sub(began));
            }
            more = turn.more || !self.engine.has_room();
            self.health.turned(&self.engine, self.clock.monotonic());
            let wrote = turn.entries > 0;
            for settle in self.settles.drain(..) {
                let _ = settle.send(self.engine.log.snapshot());
            }
            self.hand_out(turn);
            for drained in self.drains.drain(..) {
                let _ = drained.send(());
            }
            self.look(&mut upkeep, at);
            self.upkeep(&mut upkeep, wrote)?;
            if stop {
                let now = self.now();
                self.engine.begin(now);
                self.engine.settle();
                self.engine.finish()?;
                return Ok(());
            }
        }
    }

    /// Tells what is late, once a second; the turn began at `at`.
    fn look(&mut self, upkeep: &mut Upkeep, at: Millis) {
        if upkeep.looked_at.is_none_or(|before| at.0.saturating_sub(before.0) >= LOOK.0) {
            upkeep.looked_at = Some(at);
            let look = self.engine.look();
            self.health.looked(look, self.engine.now(), at);
        }
    }

    /// What is done every second, every few seconds, and every hour. All of it waits for the disk.
    fn upkeep(&mut self, upkeep: &mut Upkeep, wrote: bool) -> Result<(), Fatal> {
        let now = self.clock.monotonic();
        self.health.watchdog.enter(now.0);
        let done = self.kept_up(upkeep, wrote, now);
        self.health.watchdog.leave();
        done
    }

    fn kept_up(&mut self, upkeep: &mut Upkeep, wrote: bool, now: Millis) -> Result<(), Fatal> {
        let over = |since: Millis, span: Millis| now.0.saturating_sub(since.0) >= span.0;
        upkeep.unmarked |= wrote;
        if over(upkeep.beat_at, HEARTBEAT) {
            (upkeep.beat_at, upkeep.marked_at, upkeep.unmarked) = (now, now, false);
            self.engine.log.heartbeat()?;
            self.engine.republish();
        } else if upkeep.unmarked && over(upkeep.marked_at, MARK_SYNC) {
            (upkeep.marked_at, upkeep.unmarked) = (now, false);
            self.engine.log.sync_mark()?;
        }
        if over(upkeep.rotated_at, ROTATE) {
            upkeep.rotated_at = now;
            self.engine.rotate()?;
        }
        Ok(())
    }

    /// Sleeps until something comes in or something is due.
    fn wait(&mut self) -> Option<Message> {
        let now = self.now();
        let sleep = self.engine.next_wake().map_or(SLEEP_MAX, |at| at.since(now).min(SLEEP_MAX));
        // The driver itself holds a sender: all that can go wrong is that nothing came.
        self.receiver.recv_timeout(Duration::from_millis(sleep.0)).ok()
    }

    /// The moment, whatever the wall clock does. Due times are compared with it, entries stamped.
    fn now(&mut self) -> Timestamp {
        let now = self.steady.read(self.clock.now(), self.clock.monotonic());
        match self.steady.jumped() {
            Some(Jump::Ahead(by)) => tracing::warn!(
                by_ms = by.0,
                "the wall clock jumped ahead; if it stays so, this is made up for from five minutes on"
            ),
            Some(Jump::Behind(by)) => tracing::warn!(
                by_ms = by.0,
                "the wall clock is behind; time goes on a little slower here until both agree"
            ),
            None => {}
        }
        now
    }

    fn poll(&self) -> Option<Message> {
        self.receiver.try_recv().ok()
    }

    /// Takes one message into the turn; whether it is the last.
    fn take(&mut self, message: Message) -> Result<bool, Fatal> {
        let mut chance = SystemChance;
        match message {
            Message::Ask { actor, command, reply, _room } => {
                self.next_ticket += 1;
                let ticket = Ticket(self.next_ticket);
                self.waiting.insert(ticket, reply);
                self.engine.handle(Input::Command { ticket, actor, command }, &mut chance)?;
            }
            Message::Ended { delivery, outcome } => {
                self.engine.handle(Input::Outcome { delivery, outcome }, &mut chance)?;
            }
            Message::Unclaimed { lease } => {
                self.engine.handle(Input::Unclaimed { lease }, &mut chance)?;
            }
            Message::Control(Control::Settle(reply)) => {
                self.engine.settle();
                self.settles.push(reply);
            }
            Message::Control(Control::Switch(rebuilt, reply)) => {
                // The batch in the making is of the old views: it goes first.
                let turn = self.engine.finish()?;
                self.hand_out(turn);
                let switched = self.engine.switch(*rebuilt);
                let fatal = switched.is_err();
                let _ = reply.send(switched);
                if fatal {
                    return Err(Fatal::Log(log::Error::Poisoned));
                }
            }
            Message::Control(Control::Drain(reply)) => {
                self.engine.set_sending(false);
                self.engine.set_accepting(false);
                self.health.drain();
                self.drains.push(reply);
            }
            Message::Control(Control::FaultScheduler(stands)) => self.engine.set_sending(!stands),
            Message::Control(Control::Stop) => return Ok(true),
        }
        Ok(false)
    }

    /// What a turn did is durable: whoever waits for any of it hears so, and its requests leave.
    fn hand_out(&mut self, turn: Turn) {
        self.answer(turn.answers);
        if !turn.attempts.is_empty() {
            self.let_go(turn.attempts);
        }
        if turn.owed {
            self.health.owed.notify_one();
        }
        if turn.bulk {
            self.health.bulk.notify_one();
        }
    }

    /// The answers are durable. Jobs for a worker that has gone meanwhile are taken back at once.
    fn answer(&mut self, answers: Vec<(Ticket, Result<Answer, Rejection>)>) {
        for (ticket, answer) in answers {
            let Some(reply) = self.waiting.remove(&ticket) else { continue };
            if let Err(Ok(Answer::Claimed { jobs })) = reply.send(answer) {
                for job in jobs {
                    let _ = self.sender.send(Message::Unclaimed { lease: job.lease });
                }
            }
        }
    }

    /// The records are durable: the requests may leave.
    fn let_go(&mut self, attempts: Vec<Attempt>) {
        let now = self.now();
        for attempt in attempts {
            let (courier, sender) = (self.courier.clone(), self.sender.clone());
            let delivery = attempt.delivery.seq;
            let waited = Duration::from_millis(now.since(attempt.due_at).0);
            self.engine.metrics.started(waited);
            self.tasks.spawn_on(
                async move {
                    let carried = AssertUnwindSafe(courier.carry(attempt)).catch_unwind().await;
                    let mut outcome = carried.unwrap_or_else(|_| {
                        tracing::error!(%delivery, "a fault in Hooklog: carrying an attempt panicked");
                        let detail = "a fault in Hooklog; the operator's log says more";
                        Outcome::of(Err(Fault::new(ErrorClass::NotSent, detail)), Millis(0))
                    });
                    outcome.timings.queue += waited;
                    let _ = sender.send(Message::Ended { delivery, outcome });
                },
                &self.runtime,
            );
        }
    }
}
