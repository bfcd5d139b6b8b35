//! What can go wrong with the log, each with what it means and what to do. Never knows who is told.

use std::io;
use std::sync::Arc;

use hooklog_projections::ids::{Seq, StoreId};

/// Why the log could not be opened, read or written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// Another process (or another part of this one) has the store open.
    #[error(
        "the store is in use by another process; stop it first, or give the command to the running server"
    )]
    InUse,
    /// The file system is full. The outcome of the write is unknown.
    #[error("the disk is full; free some space and start again (what was acknowledged is safe)")]
    Full,
    /// An earlier write failed, perhaps in the background. Nothing can be written until the store is opened
    /// again.
    #[error(
        "the store refuses writes after a failed one; restart to recover (what was acknowledged is safe)"
    )]
    Poisoned,
    /// An operating-system error. After a write the outcome is unknown.
    #[error("the store could not be read or written: {0}")]
    Io(#[source] Arc<io::Error>),
    /// Bytes on disk are not what was written.
    #[error("the store is damaged: {0}; restore it from a backup")]
    Damaged(String),
    /// The store, a record or a value was written by a newer Hooklog.
    #[error(
        "the store was written by a newer Hooklog ({what} version {found}, this one knows {known}); use that one"
    )]
    NewerFormat {
        /// What carries the version.
        what: &'static str,
        /// The version found.
        found: u32,
        /// The newest version this program reads.
        known: u32,
    },
    /// There is a log but no readable mark beside it.
    #[error(
        "the log ends at entry {log} but its mark is missing or unreadable, so nobody can tell whether \
         acknowledged entries were lost; restore from a backup, or run `hooklog store accept-head` to go on \
         with the log as it is"
    )]
    NoMark {
        /// The last entry of the log.
        log: Seq,
    },
    /// The log ends before the last acknowledged entry.
    #[error(
        "the log ends at entry {log}, but entry {mark} was acknowledged: entries were lost, most likely \
         through a damaged disk; restore from a backup, or run `hooklog store accept-head` to give the lost \
         entries up"
    )]
    BehindMark {
        /// The last entry of the log.
        log: Seq,
        /// The last acknowledged entry.
        mark: Seq,
    },
    /// The log is whole, but rows that were written after it are not there: views may have lost rows too.
    #[error(
        "the log is whole up to entry {log}, but the database lost what it wrote after it, most likely \
         through a damaged disk; restore from a backup, or run `hooklog store accept-head` to build all views \
         again from the log"
    )]
    Cut {
        /// The last entry of the log.
        log: Seq,
    },
    /// The log at the mark's position is not the log that was acknowledged.
    #[error(
        "entry {seq} is not the one that was acknowledged: the log was changed or replaced; restore from a \
         backup, or run `hooklog store accept-head` to go on with the log as it is"
    )]
    ChainBroken {
        /// The mark's position.
        seq: Seq,
    },
    /// The mark belongs to another store.
    #[error(
        "the mark beside the log is of another store ({mark}, the log is of {log}); put back the mark that \
         belongs to it, or run `hooklog store accept-head` to go on with the log as it is"
    )]
    ForeignMark {
        /// The log's store.
        log: StoreId,
        /// The mark's store.
        mark: StoreId,
    },
    /// Too little free space to start.
    #[error("{free} bytes are free on the store's disk and {floor} are needed; free some space first")]
    NoRoom {
        /// Bytes free.
        free: u64,
        /// Bytes needed.
        floor: u64,
    },
    /// A space that does not exist was read or written.
    #[error("the store has no space {0}")]
    NoSpace(String),
    /// A value is not of the shape its place demands.
    #[error("a stored value cannot be read: {0}")]
    BadValue(String),
    /// A caller broke a rule of this room; nothing was written.
    #[error("a fault in Hooklog: {0}")]
    Misuse(String),
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::Full,
            _ => Error::Io(Arc::new(error)),
        }
    }
}
