//! How the engine fares: what health checks, monitors, pages and alerts ask. All of it is in memory, told by the
//! writer between turns, so it answers also while the writer hangs in a commit.
//!
//! Never reads a clock: the monotonic moment is an argument. Never decides what follows.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use hooklog_projections::counts::Counts;
use hooklog_projections::ids::{AccountId, Seq};
use hooklog_projections::time::{Millis, Timestamp};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Engine;
use super::driver::STUCK_AFTER;
use crate::log::Watchdog;
use crate::metrics::Metrics;
use crate::scheduler::{Holder, Look};

/// An attempt that is late through us by this much is an alarm (the brief's limit).
pub const LATE: Millis = Millis::from_secs(300);
/// What is late by less is none: the writer looks once a second.
const LOOKS_APART: Millis = Millis(2_000);
/// The scheduler is asked at least once a second; who was not for so long is stuck.
const TICK_MAX: Millis = Millis::from_secs(30);

/// How the engine fares.
pub struct Health {
    pub(super) watchdog: Watchdog,
    pub(super) ended: Arc<Notify>,
    pub(super) owed: Notify,
    closing: CancellationToken,
    pub(super) bulk: Notify,
    draining: AtomicBool,
    has_ended: AtomicBool,
    in_flight: AtomicU64,
    /// Milliseconds of the monotonic clock, plus one; 0 before the first time.
    ticked_at: AtomicU64,
    /// How far the views are folded anew, and how far there is to go.
    rebuilding: Mutex<Option<(Seq, Seq)>>,
    figures: Mutex<Figures>,
    looked: Mutex<Option<Arc<Looked>>>,
    error: Mutex<Option<String>>,
    metrics: Arc<Metrics>,
}

/// The store's figures as of the last turn, read as one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Deliveries of all accounts.
    pub counts: Counts,
    /// The log's newest position.
    pub head: Seq,
    /// Requests that may be out at a time.
    pub in_flight_max: u64,
    /// What is free on the disk.
    pub free_bytes: u64,
    has_room: bool,
}

/// What waited when the writer last looked.
#[derive(Debug)]
pub struct Looked {
    look: Look,
    /// The engine's time, and the monotonic clock's, of the same moment.
    now: Timestamp,
    at: Millis,
}

impl Looked {
    /// The engine's time by now, however long ago the look was.
    fn by(&self, monotonic: Millis) -> Timestamp {
        self.now + Millis(monotonic.0.saturating_sub(self.at.0))
    }
}

impl Health {
    pub(super) fn new(metrics: Arc<Metrics>) -> Health {
        Health {
            watchdog: Watchdog::default(),
            ended: Arc::default(),
            owed: Notify::default(),
            closing: CancellationToken::default(),
            bulk: Notify::default(),
            draining: AtomicBool::default(),
            has_ended: AtomicBool::default(),
            in_flight: AtomicU64::default(),
            ticked_at: AtomicU64::default(),
            rebuilding: Mutex::default(),
            figures: Mutex::default(),
            looked: Mutex::default(),
            error: Mutex::default(),
            metrics,
        }
    }

    /// Why nothing is taken in, if so.
    pub fn trouble(&self, monotonic: Millis) -> Option<String> {
        if self.has_ended.load(Ordering::Acquire) {
            let error = self.error.lock().expect("no holder panics").clone();
            return Some(error.unwrap_or_else(|| "stopped".into()));
        }
        if self.draining.load(Ordering::Acquire) {
            return Some("draining".into());
        }
        if self.stuck(monotonic) {
            return Some("a write to the store does not return".into());
        }
        if !self.figures().has_room {
            return Some("the disk is nearly full".into());
        }
        None
    }

    /// Why somebody should look, if so: nothing is taken in, the scheduler stands, or something is late through us.
    pub fn ailment(&self, monotonic: Millis) -> Option<String> {
        self.trouble(monotonic).or_else(|| {
            let late = self.late(monotonic);
            if late > LATE {
                return Some(format!("the oldest due attempt is {} s late", late.0 / 1_000));
            }
            let silent = self.silent_for(monotonic).filter(|silent| *silent > TICK_MAX);
            silent.map(|silent| format!("the scheduler has stood still for {} s", silent.0 / 1_000))
        })
    }

    /// Whether a write has been under way for so long that it will not return.
    pub fn stuck(&self, monotonic: Millis) -> bool {
        self.write_age(monotonic) >= STUCK_AFTER
    }

    /// For how long the write that is under way has been; 0 if none is.
    pub fn write_age(&self, monotonic: Millis) -> Millis {
        Millis(self.watchdog.stuck_for(monotonic.0).unwrap_or(0))
    }

    /// How late the oldest due attempt is through us; 0 if none is.
    pub fn late(&self, monotonic: Millis) -> Millis {
        self.since(monotonic, |look| look.first)
    }

    /// The same of one account.
    pub fn late_of(&self, account: AccountId, monotonic: Millis) -> Millis {
        self.since(monotonic, |look| look.late.get(&account).copied())
    }

    /// How long the oldest has been due that its endpoint's own limits hold back; 0 if none is.
    pub fn held_for(&self, monotonic: Millis) -> Millis {
        self.since(monotonic, |look| look.oldest_held)
    }

    fn since(&self, monotonic: Millis, of: impl FnOnce(&Look) -> Option<Timestamp>) -> Millis {
        let looked = self.looked.lock().expect("no holder panics").clone();
        let since = looked.and_then(|looked| Some(looked.by(monotonic).since(of(&looked.look)?)));
        since.filter(|since| *since >= LOOKS_APART).unwrap_or_default()
    }

    /// Attempts that could start but for our own limits.
    pub fn due(&self) -> u64 {
        self.looked.lock().expect("no holder panics").as_ref().map_or(0, |looked| looked.look.due)
    }

    /// How many endpoints limits of their own hold back, by what.
    pub fn held(&self) -> [(&'static str, u64); Holder::ALL.len()] {
        let looked = self.looked.lock().expect("no holder panics").clone();
        let count = |holder| looked.as_ref().map_or(0, |looked| looked.look.held_by(holder));
        Holder::ALL.map(|holder| (holder.as_str(), count(holder)))
    }

    /// For how long the scheduler has not been asked what may start; `None` if it never was.
    pub fn silent_for(&self, monotonic: Millis) -> Option<Millis> {
        match self.ticked_at.load(Ordering::Acquire) {
            0 => None,
            at => Some(Millis(monotonic.0.saturating_sub(at - 1))),
        }
    }

    /// How far the views are folded anew, and how far there is to go, while they are.
    pub fn rebuilding(&self) -> Option<(Seq, Seq)> {
        *self.rebuilding.lock().expect("no holder panics")
    }

    /// Requests out.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Acquire)
    }

    /// The store's figures as of the last turn.
    pub fn figures(&self) -> Figures {
        *self.figures.lock().expect("no holder panics")
    }

    /// What is counted and measured.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
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
        self.in_flight.store(engine.in_flight.len() as u64, Ordering::Release);
        if engine.sending {
            self.ticked_at.store(monotonic.0.saturating_add(1), Ordering::Release);
        }
        *self.figures.lock().expect("no holder panics") = Figures {
            counts: engine.counts,
            head: engine.log.head(),
            in_flight_max: engine.policy.in_flight_max as u64,
            free_bytes: engine.log.free_bytes(),
            has_room: engine.log.has_room(),
        };
    }

    pub(super) fn looked(&self, look: Look, now: Timestamp, at: Millis) {
        *self.looked.lock().expect("no holder panics") = Some(Arc::new(Looked { look, now, at }));
    }

    pub(super) fn rebuilds(&self, far: Option<(Seq, Seq)>) {
        *self.rebuilding.lock().expect("no holder panics") = far;
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
