//! A disk that counts the rows which are read. Stands in for: nothing; whatever lies below does the work.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use hooklog::log::disk::{Rows, Visit};
use hooklog::log::{self, Change, Disk, Order, Read, Space};

/// Counts what is looked at.
pub struct Counting<R: ?Sized> {
    rows: Arc<AtomicU64>,
    below: Arc<R>,
}

impl<R: ?Sized> Counting<R> {
    /// Of nothing yet.
    pub fn over(below: Arc<R>) -> Counting<R> {
        Counting { rows: Arc::default(), below }
    }

    /// The rows that were read so far, by this and all its snapshots.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }
}

impl<R: ?Sized> Clone for Counting<R> {
    fn clone(&self) -> Counting<R> {
        Counting { rows: self.rows.clone(), below: self.below.clone() }
    }
}

impl<R: Read + ?Sized> Read for Counting<R> {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, log::Error> {
        self.rows.fetch_add(1, Ordering::Relaxed);
        self.below.get(space, key)
    }

    fn range(
        &self,
        space: Space,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), log::Error> {
        self.below.range(space, from, to, order, &mut |key, value| {
            self.rows.fetch_add(1, Ordering::Relaxed);
            visit(key, value)
        })
    }
}

impl<D: Disk + ?Sized> Disk for Counting<D> {
    fn write(&self, changes: &[Change]) -> Result<(), log::Error> {
        self.below.write(changes)
    }

    fn snapshot(&self) -> Arc<dyn Read> {
        Arc::new(Counting { rows: self.rows.clone(), below: self.below.snapshot() })
    }

    fn ensure(&self, space: Space) -> Result<(), log::Error> {
        self.below.ensure(space)
    }

    fn drop_named(&self, name: &str) -> Result<(), log::Error> {
        self.below.drop_named(name)
    }

    fn spaces(&self) -> Vec<String> {
        self.below.spaces()
    }

    fn ingest(&self, space: Space, rows: &mut Rows<'_>) -> Result<(), log::Error> {
        self.below.ingest(space, rows)
    }

    fn rotate(&self, space: Space) -> Result<(), log::Error> {
        self.below.rotate(space)
    }

    fn settle(&self) -> Result<(), log::Error> {
        self.below.settle()
    }

    fn free_bytes(&self) -> Result<u64, log::Error> {
        self.below.free_bytes()
    }

    fn used_bytes(&self) -> Result<u64, log::Error> {
        self.below.used_bytes()
    }

    fn space_bytes(&self, space: Space) -> u64 {
        self.below.space_bytes(space)
    }
}
