//! The events as accepted: the idempotency index, and the way from an event to its deliveries.
//!
//! Never knows how a delivery fares.

use serde::{Deserialize, Serialize};

use crate::fact::{BodyRef, Entry, Fact};
use crate::ids::{AccountId, EventId, Seq};
use crate::policy::Text;
use crate::tables::{Table, Tables};
use crate::time::Timestamp;

/// Every event by account and id.
pub struct Events;

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Where it was accepted. Its deliveries are the next `deliveries` positions.
    pub accepted: Seq,
    /// When.
    pub accepted_at: Timestamp,
    /// `payment.settled`.
    pub event_type: Text,
    /// What is sent.
    pub body: BodyRef,
    /// How many endpoints it went to.
    pub deliveries: u32,
}

impl Event {
    /// The positions that name its deliveries.
    pub fn delivery_seqs(&self) -> impl Iterator<Item = Seq> + use<> {
        let first = self.accepted.0 + 1;
        (first..first + u64::from(self.deliveries)).map(Seq)
    }
}

impl Table for Events {
    const NAME: &'static str = "events";
    type Key = (AccountId, EventId);
    type Value = Event;
}

/// Folds `Accepted`.
pub fn fold<T: Tables>(tables: &mut T, entry: &Entry) -> Result<(), T::Error> {
    let Fact::Accepted { account, event, event_type, body, deliveries } = &entry.fact else {
        return Ok(());
    };
    tables.put::<Events>(
        &(*account, event.clone()),
        &Event {
            accepted: entry.seq,
            accepted_at: entry.at,
            event_type: event_type.clone(),
            body: body.clone(),
            deliveries: *deliveries,
        },
    )
}
