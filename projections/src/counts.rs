//! How many deliveries are in each status, per account and in all: the figures of conservation.
//!
//! Settled: folds from the entry alone, so it never looks at a delivery.

use serde::{Deserialize, Serialize};

use crate::fact::{Ended, Entry, Fact};
use crate::ids::AccountId;
use crate::lifecycle::Status;
use crate::tables::{Cadence, Table, Tables};

/// The figures by account; under `None` those of the whole store.
pub struct CountsTable;

/// How many deliveries are in each status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Events taken in.
    pub accepted: u64,
    /// Deliveries ever begun.
    pub enqueued: u64,
    /// Waiting.
    pub pending: u64,
    /// With a request out, or maybe out.
    pub in_flight: u64,
    /// Arrived.
    pub delivered: u64,
    /// Given up.
    pub dead: u64,
    /// Called off.
    pub cancelled: u64,
}

impl Table for CountsTable {
    const NAME: &'static str = "counts";
    const CADENCE: Cadence = Cadence::Settled;
    type Key = Option<AccountId>;
    type Value = Counts;
}

impl Counts {
    /// Whether every delivery ever begun is in exactly one status.
    pub fn conserved(&self) -> bool {
        self.enqueued
            == self
                .pending
                .wrapping_add(self.in_flight)
                .wrapping_add(self.delivered)
                .wrapping_add(self.dead)
                .wrapping_add(self.cancelled)
    }

    /// How many are in a status.
    pub fn of(&self, status: Status) -> u64 {
        match status {
            Status::Pending => self.pending,
            Status::InFlight => self.in_flight,
            Status::Delivered => self.delivered,
            Status::Dead => self.dead,
            Status::Cancelled => self.cancelled,
        }
    }

    /// Counts one delivery more in a status; rebuilds and checks recount with it.
    pub fn add(&mut self, status: Status) {
        *self.slot(status) += 1;
        self.enqueued += 1;
    }

    fn slot(&mut self, status: Status) -> &mut u64 {
        match status {
            Status::Pending => &mut self.pending,
            Status::InFlight => &mut self.in_flight,
            Status::Delivered => &mut self.delivered,
            Status::Dead => &mut self.dead,
            Status::Cancelled => &mut self.cancelled,
        }
    }

    /// A wrong move would go below zero; it wraps, so that a check of conservation shows it and no fold dies.
    fn move_one(&mut self, from: Status, to: Status) {
        let slot = self.slot(from);
        *slot = slot.wrapping_sub(1);
        let slot = self.slot(to);
        *slot = slot.wrapping_add(1);
    }
}

/// Folds whatever moves a delivery from one status to another.
pub fn fold<T: Tables>(tables: &mut T, entry: &Entry) -> Result<(), T::Error> {
    let (account, change): (AccountId, fn(&mut Counts)) = match &entry.fact {
        Fact::Accepted { account, .. } => (*account, |c| c.accepted += 1),
        Fact::Enqueued { key, .. } => (key.account, |c| c.add(Status::Pending)),
        Fact::Attempted { of, .. } => (of.account, |c| c.move_one(Status::Pending, Status::InFlight)),
        Fact::Delivered { of, .. } => (of.account, |c| c.move_one(Status::InFlight, Status::Delivered)),
        Fact::Rescheduled { of, was_due_at: None, .. } => {
            (of.account, |c| c.move_one(Status::InFlight, Status::Pending))
        }
        Fact::Dead { of, was_due_at: None, .. } => {
            (of.account, |c| c.move_one(Status::InFlight, Status::Dead))
        }
        Fact::Dead { of, was_due_at: Some(_), .. } => {
            (of.account, |c| c.move_one(Status::Pending, Status::Dead))
        }
        Fact::Replayed { of, was: Ended::Dead, .. } => {
            (of.account, |c| c.move_one(Status::Dead, Status::Pending))
        }
        Fact::Replayed { of, was: Ended::Delivered, .. } => {
            (of.account, |c| c.move_one(Status::Delivered, Status::Pending))
        }
        Fact::Cancelled { of, .. } => (of.account, |c| c.move_one(Status::Pending, Status::Cancelled)),
        _ => return Ok(()),
    };
    for key in [None, Some(account)] {
        let mut counts = tables.get::<CountsTable>(&key)?.unwrap_or_default();
        change(&mut counts);
        tables.put::<CountsTable>(&key, &counts)?;
    }
    Ok(())
}
