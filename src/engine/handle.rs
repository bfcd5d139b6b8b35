//! How the rest of the program speaks to the engine: asks and waits, reads what was published, and sees how
//! it fares. Never blocks an async thread for long, and never decides.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use hooklog_projections::fact::Actor;
use hooklog_projections::ids::Seq;
use tokio::sync::{Semaphore, oneshot};

use super::driver::{Control, Message};
pub use super::health::Health;
use super::{Answer, Command, Rejection};
use crate::log::{self, Disk, Snapshot};
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

/// Tells how far a rebuild is, until it ends in whatever way.
struct Rebuilding<'a>(&'a Health);

impl Rebuilding<'_> {
    fn at(&self, upto: Seq, of: Seq) {
        self.0.rebuilds(Some((upto, of)));
    }
}

impl Drop for Rebuilding<'_> {
    fn drop(&mut self) {
        self.0.rebuilds(None);
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

    /// Makes the scheduler stand still and nothing else, as a fault in it would, or go on: for tests of what notices.
    #[doc(hidden)]
    pub fn fault_scheduler(&self, stands: bool) {
        let _ = self.sender.send(Message::Control(Control::FaultScheduler(stands)));
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
