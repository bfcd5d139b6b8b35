//! Up to where the settled tables are on disk, and by which folds the views were made: one row.

use hooklog_projections::ids::Seq;
use hooklog_projections::tables::FOLDS_VERSION;
use serde::{Deserialize, Serialize};

use crate::log::{self, Change, Log, Space, codec};

/// The space of the row.
pub const SETTLED_SPACE: Space = Space::View { name: "settled", version: 1 };

const KEY: &[u8] = b"upto";

/// The row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettledRow {
    /// Entries up to here are in the settled tables on disk.
    pub upto: Seq,
    /// [`FOLDS_VERSION`] of the views.
    pub folds: u32,
}

/// The change that marks the settled tables as written up to an entry.
pub fn settled_mark(upto: Seq) -> Change {
    Change::put(SETTLED_SPACE, KEY, codec::encode(&SettledRow { upto, folds: FOLDS_VERSION }))
}

/// The row as it is on disk; `None` before a store is founded.
pub fn settled_row(log: &Log) -> Result<Option<SettledRow>, log::Error> {
    log.get(SETTLED_SPACE, KEY)?.as_deref().map(codec::decode).transpose()
}
