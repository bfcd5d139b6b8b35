//! The deliveries as they are now, newest first per account, and the lists cut from them: due, in flight,
//! dead, owed to an owner, and by endpoint.
//!
//! The rows of [`Deliveries`] are the per-account history: one key serves both, since a delivery is named by
//! its position. Never knows a clock: what is due is listed by its due time, whatever the time is.

use crate::FoldError::{self, Rows};
use crate::fact::{DisabledReason, Entry, Fact};
use crate::ids::{DeliveryKey, EndpointKey};
use crate::lifecycle::{Delivery, Illegal, State};
use crate::tables::{DueKey, EndpointDelivery, Table, Tables};

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

/// What an account's owner is yet to be told, by endpoint: deliveries that died, and under its own position
/// that Hooklog disabled the endpoint.
pub struct Owed;

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

impl Table for Owed {
    const NAME: &'static str = "owed";
    type Key = EndpointDelivery;
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
    if let Fact::OwnerTold { key, deliveries, .. } = &entry.fact {
        for delivery in deliveries {
            tables.delete::<Owed>(&EndpointDelivery { endpoint: *key, delivery: *delivery }).map_err(Rows)?;
        }
        return Ok(());
    }
    if let Fact::EndpointDisabled { key, reason: DisabledReason::Gone | DisabledReason::Failing { .. } } =
        &entry.fact
    {
        let place = EndpointDelivery { endpoint: *key, delivery: entry.seq };
        return tables.put::<Owed>(&place, &()).map_err(Rows);
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
    if let Fact::Dead { tell_owner: true, .. } = &entry.fact {
        let place = EndpointDelivery { endpoint: of.endpoint_key(), delivery: of.delivery };
        tables.put::<Owed>(&place, &()).map_err(Rows)?;
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
