//! The events as accepted: the idempotency index, and the way from an event to its deliveries.
//!
//! Never knows how a delivery fares.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::fact::{BodyRef, Entry, Fact};
use crate::ids::{AccountId, DeliveryKey, EventId, Seq};
use crate::policy::Text;
use crate::tables::{Cadence, Table, Tables};
use crate::time::Timestamp;

/// Every event by account and id.
pub struct Events;

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Where it was accepted. Its deliveries are the next `deliveries` positions, and those in `late`.
    pub accepted: Seq,
    /// When.
    pub accepted_at: Timestamp,
    /// `payment.settled`.
    pub event_type: Text,
    /// What is sent.
    pub body: BodyRef,
    /// How many endpoints it went to when it was accepted.
    pub deliveries: u32,
    /// Its deliveries to endpoints that it was sent to later, oldest first.
    pub late: Vec<Seq>,
}

/// Events that no endpoint had subscribed to, by account and position: no delivery leads to them.
pub struct Unrouted;

impl Table for Unrouted {
    const NAME: &'static str = "unrouted";
    type Key = DeliveryKey;
    type Value = EventId;
}

/// The types of an account's events, by name; and under the empty name how many there are.
///
/// Settled: folds from the entry alone, and costs no key of an event's own.
pub struct EventTypes;

/// When events of one type came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenType {
    /// The first.
    pub first_at: Timestamp,
    /// The last.
    pub last_at: Timestamp,
    /// How many. Under the empty name: how many types there are, and one more than [`TYPES_MAX`] if there are others.
    pub events: u64,
}

/// Types of one account that are told apart: whoever makes types of ids would otherwise have a row each for ever.
pub const TYPES_MAX: u64 = 1_000;

impl Table for EventTypes {
    const NAME: &'static str = "event-types";
    const CADENCE: Cadence = Cadence::Settled;
    type Key = (AccountId, Text);
    type Value = SeenType;
}

impl Event {
    /// The positions that name its deliveries, oldest first.
    pub fn delivery_seqs(&self) -> impl Iterator<Item = Seq> + use<'_> {
        let first = self.accepted.0 + 1;
        (first..first + u64::from(self.deliveries)).map(Seq).chain(self.late.iter().copied())
    }
}

impl Table for Events {
    const NAME: &'static str = "events";
    type Key = (AccountId, EventId);
    type Value = Event;
}

/// Folds `Accepted`, and `Enqueued` where it came late.
pub fn fold<T: Tables>(tables: &mut T, entry: &Entry) -> Result<(), T::Error> {
    match &entry.fact {
        Fact::Accepted { account, event, event_type, body, deliveries } => {
            if *deliveries == 0 {
                tables.put::<Unrouted>(&DeliveryKey { account: *account, seq: entry.seq }, event)?;
            }
            let row = Event {
                accepted: entry.seq,
                accepted_at: entry.at,
                event_type: event_type.clone(),
                body: body.clone(),
                deliveries: *deliveries,
                late: Vec::new(),
            };
            tables.put::<Events>(&(*account, event.clone()), &row)
        }
        Fact::Enqueued { key, event, late: true, .. } => {
            let name = (key.account, event.clone());
            match tables.get::<Events>(&name)? {
                Some(mut row) => {
                    row.late.push(entry.seq);
                    tables.put::<Events>(&name, &row)
                }
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

/// Folds the types of `Accepted`.
pub fn fold_types<T: Tables>(tables: &mut T, entry: &Entry) -> Result<(), T::Error> {
    let Fact::Accepted { account, event_type, .. } = &entry.fact else { return Ok(()) };
    let fresh = |events| SeenType { first_at: entry.at, last_at: entry.at, events };
    let key = (*account, event_type.clone());
    if let Some(row) = tables.get::<EventTypes>(&key)? {
        let row = SeenType { last_at: entry.at, events: row.events + 1, ..row };
        return tables.put::<EventTypes>(&key, &row);
    }
    let of_all = (*account, "".into());
    let known = tables.get::<EventTypes>(&of_all)?.unwrap_or(fresh(0));
    if known.events <= TYPES_MAX {
        let all = SeenType { last_at: entry.at, events: known.events + 1, ..known };
        tables.put::<EventTypes>(&of_all, &all)?;
    }
    if known.events < TYPES_MAX { tables.put::<EventTypes>(&key, &fresh(1)) } else { Ok(()) }
}
