//! How the rest of the program speaks to the engine: asks and waits, reads what was published, and sees how
//! it fares. Never blocks an async thread for long, and never decides.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use hooklog_projections::fact::Actor;
use hooklog_projections::ids::Seq;
use hooklog_projections::time::Millis;
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use super::driver::{Control, Message, STUCK_AFTER};
use super::{Answer, Command, Engine, Rejection};
use crate::log::{self, Disk, Snapshot, Watchdog};
use crate::views::View;
use crate::views::check::{self, Report};
use crate::views::query::Published;
use crate::views::rebuild;

/// Speaks to a running engine. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    sender: Sender<Message>,
    room: Arc<Semaphore>,
    published: Arc<Published>,
    disk: Arc<dyn Disk>,
    health: Arc<Health>,
    /// One rebuild or check at a time.
    maintenance: Arc<tokio::sync::Mutex<()>>,
}

/// How the engine fares, for health checks and monitors.
#[derive(Default)]
pub struct Health {
    pub(super) watchdog: Watchdog,
    pub(super) ended: Arc<Notify>,
    pub(super) owed: Notify,
    closing: CancellationToken,
    pub(super) bulk: Notify,
    draining: AtomicBool,
    has_ended: AtomicBool,
    room: AtomicBool,
    in_flight: AtomicU64,
    turned_at: AtomicU64,
    /// How far the views are folded anew, and how far there is to go.
    rebuilding: Mutex<Option<(Seq, Seq)>>,
    error: Mutex<Option<String>>,
}

impl Health {
    /// Why nothing is taken in, if so.
    pub fn trouble(&self, monotonic: Millis) -> Option<String> {
        if self.has_ended.load(Ordering::Acquire) {
            let error = self.error.lock().expect("no holder panics").clone();
            return Some(error.unwrap_or_else(|| "stopped".into()));
        }
        if self.draining.load(Ordering::Acquire) {
            return Some("draining".into());
        }
        if self.watchdog.stuck_for(monotonic.0).is_some_and(|stuck| stuck >= STUCK_AFTER.0) {
            return Some("a write to the store does not return".into());
        }
        if !self.room.load(Ordering::Acquire) {
            return Some("the disk is nearly full".into());
        }
        None
    }

    /// Whether a write has been under way for so long that it will not return.
    pub fn stuck(&self, monotonic: Millis) -> bool {
        self.watchdog.stuck_for(monotonic.0).is_some_and(|stuck| stuck >= STUCK_AFTER.0)
    }

    /// How far the views are folded anew, and how far there is to go, while they are.
    pub fn rebuilding(&self) -> Option<(Seq, Seq)> {
        *self.rebuilding.lock().expect("no holder panics")
    }

    /// Requests out.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Acquire)
    }

    /// Waits until deliveries died whose owner is to be told. One waiter.
    pub async fn owed(&self) {
        self.owed.notified().await;
    }

    /// Cancelled when the engine drains, or has ended: whoever only listens is to go.
    pub fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    /// Waits until a bulk replay began or was called off. One waiter.
    pub async fn bulk(&self) {
        self.bulk.notified().await;
    }

    pub(super) fn turned(&self, engine: &Engine, monotonic: Millis) {
        self.room.store(engine.log.has_room(), Ordering::Release);
        self.in_flight.store(engine.in_flight.len() as u64, Ordering::Release);
        self.turned_at.store(monotonic.0, Ordering::Release);
    }

    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
        self.closing.cancel();
    }

    pub(super) fn end(&self, error: Option<String>) {
        *self.error.lock().expect("no holder panics") = error;
        self.has_ended.store(true, Ordering::Release);
        self.closing.cancel();
        self.ended.notify_waiters();
        self.ended.notify_one();
    }
}

/// Tells how far a rebuild is, until it ends in whatever way.
struct Rebuilding<'a>(&'a Health);

impl Rebuilding<'_> {
    fn at(&self, upto: Seq, of: Seq) {
        *self.0.rebuilding.lock().expect("no holder panics") = Some((upto, of));
    }
}

impl Drop for Rebuilding<'_> {
    fn drop(&mut self) {
        *self.0.rebuilding.lock().expect("no holder panics") = None;
    }
}

impl Handle {
    pub(super) fn new(
        sender: Sender<Message>,
        room: Arc<Semaphore>,
        published: Arc<Published>,
        disk: Arc<dyn Disk>,
        health: Arc<Health>,
    ) -> Handle {
        Handle { sender, room, published, disk, health, maintenance: Arc::default() }
    }

    /// Asks for something; the answer is durable. Waits while the queue is full.
    ///
    /// # Errors
    /// The engine's refusal; [`Rejection::Draining`] or [`Rejection::OutcomeUnknown`] if it has ended before
    /// or while it was asked.
    pub async fn ask(&self, actor: Actor, command: Command) -> Result<Answer, Rejection> {
        let room = self.room.clone().acquire_owned().await.map_err(|_| Rejection::Draining)?;
        let (reply, answer) = oneshot::channel();
        let message = Message::Ask { actor, command, reply, _room: room };
        self.sender.send(message).map_err(|_| Rejection::Draining)?;
        answer.await.unwrap_or(Err(Rejection::OutcomeUnknown))
    }

    /// What is so, as of the last batch.
    pub fn view(&self) -> View<'_> {
        self.published.view()
    }

    /// The published states, for whoever outlives this handle.
    pub fn published(&self) -> &Arc<Published> {
        &self.published
    }

    /// How the engine fares.
    pub fn health(&self) -> &Arc<Health> {
        &self.health
    }

    /// Folds all views anew and switches to them, while everything goes on. Blocks its thread: call it from a
    /// blocking one. `progress` hears (folded up to, head).
    ///
    /// # Errors
    /// The live views stay if it fails.
    pub fn rebuild(&self, progress: &mut dyn FnMut(Seq, Seq)) -> Result<(), rebuild::Error> {
        let _alone = self.maintenance.blocking_lock();
        let generation = self.published.view().generation();
        let mut fresh = || Ok(self.published.view().snapshot().clone());
        let telling = Rebuilding(&self.health);
        let rebuilt = rebuild::rebuild(self.disk.clone(), generation, &mut fresh, &mut |upto, of| {
            telling.at(upto, of);
            progress(upto, of);
        })?;
        let (reply, switched) = oneshot::channel();
        let gone = || rebuild::Error::Rows(log::Error::Poisoned);
        self.sender.send(Message::Control(Control::Switch(Box::new(rebuilt), reply))).map_err(|_| gone())?;
        switched.blocking_recv().map_err(|_| gone())?
    }

    /// Checks that the store is exactly what its log says, while everything goes on. Blocks its thread: call
    /// it from a blocking one. `progress` hears (stage, done, of).
    ///
    /// # Errors
    /// Those of a disk that cannot be read; all else is in the report.
    pub fn check(&self, progress: &mut dyn FnMut(&'static str, u64, u64)) -> Result<Report, log::Error> {
        let _alone = self.maintenance.blocking_lock();
        let generation = self.published.view().generation();
        check::check(self.disk.clone(), generation, &mut || self.settled(), progress)
    }

    /// A published state whose settled tables are on disk.
    fn settled(&self) -> Result<Arc<Snapshot>, log::Error> {
        let (reply, snapshot) = oneshot::channel();
        let gone = |_| log::Error::Poisoned;
        self.sender.send(Message::Control(Control::Settle(reply))).map_err(|_| log::Error::Poisoned)?;
        snapshot.blocking_recv().map_err(gone)
    }
}
