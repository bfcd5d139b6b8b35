//! What happened and what is so: the vocabulary of the delivery log and the folds over it.
//!
//! No clock, no chance, no disk, no network, no async: given the same entries, the same rows. One fold runs
//! live, on a rebuild, and on the shadow that a check compares; [`tables::Tables`] is the door to the rows.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod access;
pub mod account;
pub mod answer;
pub mod audit;
pub mod change;
pub mod counts;
pub mod course;
pub mod delivery;
pub mod event;
pub mod fact;
pub mod hour;
pub mod identity;
pub mod ids;
pub mod lane;
pub mod lifecycle;
pub mod policy;
pub mod replay;
pub mod tables;
pub mod telling;
pub mod time;

use fact::Entry;
use tables::{Cadence, Table, Tables};

/// A fold that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum FoldError<E: core::error::Error + 'static> {
    /// The entry contradicts the log before it.
    #[error(transparent)]
    Illegal(#[from] lifecycle::Illegal),
    /// The rows could not be read or written.
    #[error("a view's row could not be read or written: {0}")]
    Rows(E),
}

/// Folds one entry into every view.
pub fn fold<T: Tables>(tables: &mut T, entry: &Entry) -> Result<(), FoldError<T::Error>> {
    identity::fold(tables, entry).map_err(FoldError::Rows)?;
    account::fold(tables, entry).map_err(FoldError::Rows)?;
    change::fold(tables, entry).map_err(FoldError::Rows)?;
    access::fold(tables, entry).map_err(FoldError::Rows)?;
    audit::fold(tables, entry).map_err(FoldError::Rows)?;
    event::fold(tables, entry).map_err(FoldError::Rows)?;
    delivery::fold(tables, entry)?;
    telling::fold(tables, entry).map_err(FoldError::Rows)?;
    replay::fold(tables, entry).map_err(FoldError::Rows)?;
    answer::fold(tables, entry).map_err(FoldError::Rows)?;
    fold_settled(tables, entry).map_err(FoldError::Rows)
}

/// Folds one entry into the settled views alone: what a start does for the entries after the last settling.
pub fn fold_settled<T: Tables>(tables: &mut T, entry: &Entry) -> Result<(), T::Error> {
    counts::fold(tables, entry)?;
    lane::fold(tables, entry)?;
    event::fold_types(tables, entry)?;
    hour::fold(tables, entry)
}

/// Every table there is, with its cadence: what a rebuild makes and a check compares.
pub const TABLES: [(&str, Cadence); 25] = [
    named::<identity::Identity>(),
    named::<account::Accounts>(),
    named::<account::Endpoints>(),
    named::<account::Queues>(),
    named::<access::ApiKeys>(),
    named::<access::PortalLinks>(),
    named::<audit::Audit>(),
    named::<event::Events>(),
    named::<delivery::Deliveries>(),
    named::<delivery::EndpointHistory>(),
    named::<delivery::Due>(),
    named::<delivery::InFlight>(),
    named::<delivery::Dead>(),
    named::<telling::Owed>(),
    named::<counts::CountsTable>(),
    named::<lane::Lanes>(),
    named::<change::Changes>(),
    named::<hour::Hours>(),
    named::<hour::Gates>(),
    named::<event::Unrouted>(),
    named::<delivery::DeadGroups>(),
    named::<replay::Replays>(),
    named::<replay::Running>(),
    named::<answer::Requests>(),
    named::<event::EventTypes>(),
];

const fn named<T: Table>() -> (&'static str, Cadence) {
    (T::NAME, T::CADENCE)
}
