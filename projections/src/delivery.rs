//! The deliveries as they are now, newest first per account, and the lists cut from them: due, in flight,
//! dead (one by one and in groups), and by endpoint.
//!
//! The rows of [`Deliveries`] are the per-account history: one key serves both, since a delivery is named by
//! its position. Never knows a clock: what is due is listed by its due time, whatever the time is.

use serde::{Deserialize, Serialize};

use crate::FoldError::{self, Rows};
use crate::fact::{Entry, Fact};
use crate::ids::{DeliveryKey, EndpointKey};
use crate::lifecycle::{Delivery, Illegal, State};
use crate::replay;
use crate::tables::{DeadGroupKey, DueKey, EndpointDelivery, Table, Tables};
use crate::time::Timestamp;

/// Every delivery by account and position.
pub struct Deliveries;

/// Every delivery by endpoint and position.
pub struct EndpointHistory;

/// What waits, by endpoint and due time. What is in flight is not in it.
pub struct Due;

/// What may have a request out.
pub struct InFlight;

/// What was given up, by account and position.
pub struct Dead;

/// What was given up, counted by endpoint, reason and type. A group without any has no row.
pub struct DeadGroups;

/// How many of a group are dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadGroup {
    /// From 1.
    pub count: u64,
    /// The first death since the group was last empty.
    pub first_at: Timestamp,
    /// The newest death.
    pub last_at: Timestamp,
}

impl Table for DeadGroups {
    const NAME: &'static str = "dead_groups";
    type Key = DeadGroupKey;
    type Value = DeadGroup;
}

impl Table for Deliveries {
    const NAME: &'static str = "deliveries";
    type Key = DeliveryKey;
    type Value = Delivery;
}

impl Table for EndpointHistory {
    const NAME: &'static str = "endpoint_history";
    type Key = EndpointDelivery;
    type Value = ();
}

impl Table for Due {
    const NAME: &'static str = "due";
    type Key = DueKey;
    type Value = ();
}

impl Table for InFlight {
    const NAME: &'static str = "in_flight";
    type Key = DeliveryKey;
    type Value = ();
}

impl Table for Dead {
    const NAME: &'static str = "dead";
    type Key = DeliveryKey;
    type Value = ();
}

/// Folds the facts of deliveries, through the full machine.
pub fn fold<T: Tables>(tables: &mut T, entry: &Entry) -> Result<(), FoldError<T::Error>> {
    if let Fact::Enqueued { key, .. } = &entry.fact {
        let row = Delivery::begun(&entry.fact, entry.seq, entry.at).expect("it is an Enqueued");
        let place = EndpointDelivery { endpoint: *key, delivery: entry.seq };
        let delivery = DeliveryKey { account: key.account, seq: entry.seq };
        list(tables, *key, delivery, &row.state).map_err(Rows)?;
        tables.put::<EndpointHistory>(&place, &()).map_err(Rows)?;
        return tables.put::<Deliveries>(&delivery, &row).map_err(Rows);
    }
    let Some(of) = entry.fact.of() else { return Ok(()) };
    let delivery = of.delivery_key();
    let Some(mut row) = tables.get::<Deliveries>(&delivery).map_err(Rows)? else {
        return Err(FoldError::Illegal(Illegal::Unknown {
            fact: entry.fact.name(),
            seq: entry.seq,
            delivery: of.delivery,
        }));
    };
    let before = row.state.clone();
    row.apply(&entry.fact, entry.seq, entry.at)?;
    unlist(tables, of.endpoint_key(), delivery, &before).map_err(Rows)?;
    list(tables, of.endpoint_key(), delivery, &row.state).map_err(Rows)?;
    group(tables, of.endpoint_key(), &row, &before).map_err(Rows)?;
    if let Some(bulk) = row.bulk {
        replay::moved(tables, (of.account, bulk), &row.state).map_err(Rows)?;
    }
    tables.put::<Deliveries>(&delivery, &row).map_err(Rows)
}

fn list<T: Tables>(
    tables: &mut T,
    endpoint: EndpointKey,
    key: DeliveryKey,
    state: &State,
) -> Result<(), T::Error> {
    match state {
        State::Pending { due_at } => {
            tables.put::<Due>(&DueKey { endpoint, due_at: *due_at, delivery: key.seq }, &())
        }
        State::InFlight { .. } => tables.put::<InFlight>(&key, &()),
        State::Dead { .. } => tables.put::<Dead>(&key, &()),
        State::Deciding { .. } | State::Delivered { .. } | State::Cancelled { .. } => Ok(()),
    }
}

fn unlist<T: Tables>(
    tables: &mut T,
    endpoint: EndpointKey,
    key: DeliveryKey,
    state: &State,
) -> Result<(), T::Error> {
    match state {
        State::Pending { due_at } => {
            tables.delete::<Due>(&DueKey { endpoint, due_at: *due_at, delivery: key.seq })
        }
        State::InFlight { .. } => tables.delete::<InFlight>(&key),
        State::Dead { .. } => tables.delete::<Dead>(&key),
        State::Deciding { .. } | State::Delivered { .. } | State::Cancelled { .. } => Ok(()),
    }
}

/// Counts a delivery into the group that it died into, or out of it.
fn group<T: Tables>(
    tables: &mut T,
    endpoint: EndpointKey,
    row: &Delivery,
    before: &State,
) -> Result<(), T::Error> {
    let key = |reason: &_| DeadGroupKey {
        endpoint,
        reason: Clone::clone(reason),
        event_type: row.event_type.clone(),
    };
    if let State::Dead { reason, .. } = before {
        let key = key(reason);
        if let Some(group) = tables.get::<DeadGroups>(&key)? {
            match group.count {
                0 | 1 => tables.delete::<DeadGroups>(&key)?,
                count => tables.put::<DeadGroups>(&key, &DeadGroup { count: count - 1, ..group })?,
            }
        }
    }
    if let State::Dead { reason, at } = &row.state {
        let key = key(reason);
        let group = tables.get::<DeadGroups>(&key)?;
        let group = group.unwrap_or(DeadGroup { count: 0, first_at: *at, last_at: *at });
        let group = DeadGroup { count: group.count + 1, last_at: *at, ..group };
        tables.put::<DeadGroups>(&key, &group)?;
    }
    Ok(())
}
