//! The bulk replays: what each was asked to do, how far it is, and what became of what it sent.
//!
//! How far it is comes from the facts it leaves, so that whoever goes on with it after a crash begins where it
//! was. Never knows how fast it goes.

use serde::{Deserialize, Serialize};

use crate::fact::{Actor, BulkFilter, Entry, Fact, Routing};
use crate::ids::{AccountId, ReplayId, Seq};
use crate::lifecycle::State;
use crate::policy::Text;
use crate::tables::{Table, Tables};
use crate::time::Timestamp;

/// Every bulk replay by account and id, which sort by time.
pub struct Replays;

/// Those under way.
pub struct Running;

/// A bulk replay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replay {
    /// It takes only what stood in the log before.
    pub started: Seq,
    /// It takes only what had ended by then.
    pub started_at: Timestamp,
    /// Who asked.
    pub by: Actor,
    /// What it takes.
    pub filter: BulkFilter,
    /// As the asker put it.
    pub reason: Text,
    /// At most so many begin in a second.
    pub rate_per_second: u32,
    /// By which subscriptions it chooses.
    pub routing: Routing,
    /// How many the plan found.
    pub planned: u64,
    /// Whether it goes on.
    pub state: Phase,
    /// It goes on after this position.
    pub upto: Seq,
    /// Sent again.
    pub replayed: u64,
    /// Matched, but could not be replayed any more.
    pub skipped: u64,
    /// Of those sent again: arrived.
    pub delivered: u64,
    /// Of those sent again: given up again.
    pub dead: u64,
    /// Of those sent again: called off.
    pub cancelled: u64,
}

/// Whether a bulk replay goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// It does.
    Running,
    /// Somebody called it off.
    Cancelled {
        /// When.
        at: Timestamp,
    },
    /// It is through.
    Ended {
        /// When.
        at: Timestamp,
    },
}

impl Replay {
    /// Of those sent again, how many wait or have a request out.
    pub fn open(&self) -> u64 {
        self.replayed.saturating_sub(self.delivered + self.dead + self.cancelled)
    }
}

impl Table for Replays {
    const NAME: &'static str = "replays";
    type Key = (AccountId, ReplayId);
    type Value = Replay;
}

impl Table for Running {
    const NAME: &'static str = "replays_running";
    type Key = (AccountId, ReplayId);
    type Value = ();
}

/// Folds the facts of bulk replays, and each one that they begin.
pub fn fold<T: Tables>(tables: &mut T, entry: &Entry) -> Result<(), T::Error> {
    match &entry.fact {
        Fact::BulkReplayStarted { id, account, filter, reason, rate_per_second, routing, planned } => {
            let row = Replay {
                started: entry.seq,
                started_at: entry.at,
                by: entry.actor.clone(),
                filter: filter.clone(),
                reason: reason.clone(),
                rate_per_second: *rate_per_second,
                routing: *routing,
                planned: *planned,
                state: Phase::Running,
                upto: Seq(0),
                replayed: 0,
                skipped: 0,
                delivered: 0,
                dead: 0,
                cancelled: 0,
            };
            tables.put::<Running>(&(*account, *id), &())?;
            tables.put::<Replays>(&(*account, *id), &row)
        }
        Fact::BulkReplayAdvanced { id, account, upto, skipped } => change(tables, (*account, *id), |row| {
            row.upto = row.upto.max(*upto);
            row.skipped += u64::from(*skipped);
        }),
        Fact::BulkReplayCancelled { id, account } => {
            tables.delete::<Running>(&(*account, *id))?;
            change(tables, (*account, *id), |row| row.state = Phase::Cancelled { at: entry.at })
        }
        Fact::BulkReplayEnded { id, account, .. } => {
            tables.delete::<Running>(&(*account, *id))?;
            change(tables, (*account, *id), |row| row.state = Phase::Ended { at: entry.at })
        }
        Fact::Replayed { of, bulk: Some(id), .. } => change(tables, (of.account, *id), |row| {
            row.upto = row.upto.max(of.delivery);
            row.replayed += 1;
        }),
        Fact::Enqueued { key, accepted, bulk: Some(id), .. } => change(tables, (key.account, *id), |row| {
            row.upto = row.upto.max(*accepted);
            row.replayed += 1;
        }),
        _ => Ok(()),
    }
}

/// A delivery of a bulk replay is in a new state: counted if its run has ended.
pub(crate) fn moved<T: Tables>(
    tables: &mut T,
    key: (AccountId, ReplayId),
    state: &State,
) -> Result<(), T::Error> {
    match state {
        State::Delivered { .. } => change(tables, key, |row| row.delivered += 1),
        State::Dead { .. } => change(tables, key, |row| row.dead += 1),
        State::Cancelled { .. } => change(tables, key, |row| row.cancelled += 1),
        State::Pending { .. } | State::InFlight { .. } | State::Deciding { .. } => Ok(()),
    }
}

fn change<T: Tables>(
    tables: &mut T,
    key: (AccountId, ReplayId),
    edit: impl FnOnce(&mut Replay),
) -> Result<(), T::Error> {
    match tables.get::<Replays>(&key)? {
        Some(mut row) => {
            edit(&mut row);
            tables.put::<Replays>(&key, &row)
        }
        None => Ok(()),
    }
}
