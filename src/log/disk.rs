//! The one door to disk: spaces of sorted keys, atomic durable writes, snapshots, bulk loads.
//!
//! Says what a disk must do; [`fjall_disk`](super::fjall_disk) and [`memory`](super::memory) do it. Never
//! knows entries, batches or marks.

use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bytes::Bytes;

use super::Error;

/// A sorted map of keys on disk. Spaces share one atomic write and one snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Space {
    /// Few, short rows: format, store id, bucket table, active views.
    Meta,
    /// Batches of one bucket: first seq (BE) → record.
    Log(u32),
    /// Bodies of one bucket: seq (BE) ‖ kind → stored body.
    Body(u32),
    /// Rows of one fold, in one version of it.
    View {
        /// The table's name: lower-case letters, digits and `_`.
        name: &'static str,
        /// Goes up whenever the fold or its keys change.
        version: u32,
    },
}

impl fmt::Display for Space {
    /// The name on disk.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Space::Meta => f.write_str("meta"),
            Space::Log(bucket) => write!(f, "log.{bucket:08}"),
            Space::Body(bucket) => write!(f, "body.{bucket:08}"),
            Space::View { name, version } => write!(f, "view-{name}.v{version}"),
        }
    }
}

/// Which way a range is walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Smallest key first.
    Ascending,
    /// Largest key first.
    Descending,
}

/// One row set or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Where.
    pub space: Space,
    /// Which row.
    pub key: Bytes,
    /// What it holds from now on; `None` removes it.
    pub value: Option<Bytes>,
}

impl Change {
    /// Sets a row.
    pub fn put(space: Space, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Change {
        Change { space, key: key.into(), value: Some(value.into()) }
    }

    /// Removes a row; fine if there is none.
    pub fn remove(space: Space, key: impl Into<Bytes>) -> Change {
        Change { space, key: key.into(), value: None }
    }
}

/// No disk takes an empty key.
pub(super) fn check_keys(changes: &[Change]) -> Result<(), Error> {
    match changes.iter().find(|change| change.key.is_empty()) {
        Some(change) => Err(Error::Misuse(format!("an empty key in the space {}", change.space))),
        None => Ok(()),
    }
}

/// Looks at one row of a range (key, value) and says whether to go on.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// Rows for a bulk load: strictly ascending keys; `None` removes.
pub type Rows<'a> = dyn Iterator<Item = (Bytes, Option<Bytes>)> + 'a;

/// Reads of one consistent state.
pub trait Read: Send + Sync {
    /// The value of a key; a copy that keeps nothing else alive.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the space does not exist in this state, [`Error::Damaged`] or [`Error::Io`] if
    /// it cannot be read.
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, Error>;

    /// Visits the rows between two bounds in order until the visitor breaks. An empty or inverted range
    /// visits nothing.
    ///
    /// # Errors
    /// As [`Read::get`]; rows before the damage have been visited.
    fn range(
        &self,
        space: Space,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error>;
}

/// What the one writer does. Its own reads (as [`Read`]) see the newest state; only the writer may use them,
/// between its writes.
pub trait Disk: Read {
    /// Applies all changes as one: after `Ok` they are synced, after `Err` the outcome is unknown and every
    /// later write answers [`Error::Poisoned`].
    ///
    /// # Errors
    /// [`Error::Full`], [`Error::Io`], [`Error::Poisoned`]; [`Error::NoSpace`], and [`Error::Misuse`] for an
    /// empty key, before anything is written.
    fn write(&self, changes: &[Change]) -> Result<(), Error>;

    /// The state as it is now, for any thread. Only the writer calls it, and only between writes: taken
    /// during one it could show half of it. Short-lived: it pins memory and files.
    fn snapshot(&self) -> Arc<dyn Read>;

    /// Makes a space if there is none; durable on return.
    ///
    /// # Errors
    /// [`Error::Io`] and the like.
    fn ensure(&self, space: Space) -> Result<(), Error>;

    /// Removes a space with all it holds, by its name on disk. Snapshots taken before still read it.
    ///
    /// # Errors
    /// [`Error::Io`] and the like; none if there is no such space.
    fn drop_named(&self, name: &str) -> Result<(), Error>;

    /// Removes a space with all it holds. Snapshots taken before still read it.
    ///
    /// # Errors
    /// As [`Disk::drop_named`].
    fn drop_space(&self, space: Space) -> Result<(), Error> {
        self.drop_named(&space.to_string())
    }

    /// The names of all spaces, sorted.
    fn spaces(&self) -> Vec<String>;

    /// Loads rows past the journal, all at once; durable on return. They win over what the space held.
    ///
    /// # Errors
    /// [`Error::Misuse`] if keys do not ascend (nothing is loaded); else as [`Disk::write`].
    fn ingest(&self, space: Space, rows: &mut Rows<'_>) -> Result<(), Error>;

    /// Starts to move what a space holds in memory into files, so that it pins neither memory nor journals.
    /// Does not wait.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Io`].
    fn rotate(&self, space: Space) -> Result<(), Error>;

    /// Moves everything in memory into files and waits for it: the next start has nothing to replay.
    ///
    /// # Errors
    /// [`Error::Poisoned`], [`Error::Io`].
    fn settle(&self) -> Result<(), Error>;

    /// Bytes that may still be written to the file system.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn free_bytes(&self) -> Result<u64, Error>;

    /// Bytes on disk, journals included.
    ///
    /// # Errors
    /// [`Error::Io`].
    fn used_bytes(&self) -> Result<u64, Error>;

    /// Bytes on disk of one space; what is still in memory is not counted. 0 if there is none.
    fn space_bytes(&self, space: Space) -> u64;
}
