//! Reads of the log at one moment: entries, batches, bodies and view rows that belong together.
//!
//! Never writes, and never outlives a second of work: walk long stretches with a cursor and fresh snapshots.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bytes::Bytes;
use hooklog_projections::fact::Entry;
use hooklog_projections::ids::Seq;
use hooklog_projections::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::Error;
use super::batch::Record;
use super::body::{Body, BodySlot};
use super::chain::Chain;
use super::disk::{Order, Read, Space, Visit};

/// The most entries that one call returns: about what a read may touch in a second.
pub const ENTRIES_MAX: usize = 20_000;

/// A stretch of the log that is stored, and could be dropped, as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// From 1; names its spaces.
    pub id: u32,
    /// Its first entry.
    pub first: Seq,
    /// When that happened.
    pub first_at: Timestamp,
}

/// The log and the views after one batch.
pub struct Snapshot {
    pub(super) read: Arc<dyn Read>,
    pub(super) head: Seq,
    pub(super) last_at: Timestamp,
    pub(super) chain: Chain,
    pub(super) buckets: Arc<Vec<Bucket>>,
    pub(super) views: Arc<BTreeMap<String, u32>>,
}

impl Snapshot {
    /// The last entry; 0 if there is none.
    pub fn head(&self) -> Seq {
        self.head
    }

    /// When it happened.
    pub fn last_at(&self) -> Timestamp {
        self.last_at
    }

    /// The chain's value after it.
    pub fn chain(&self) -> Chain {
        self.chain
    }

    /// The stretches of the log, oldest first.
    pub fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// The version of a view that is in use; `None` if there is none yet.
    pub fn view_version(&self, name: &str) -> Option<u32> {
        self.views.get(name).copied()
    }

    /// One row of a view.
    ///
    /// # Errors
    /// As [`Read::get`].
    pub fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, Error> {
        self.read.get(space, key)
    }

    /// Rows of a view, as [`Read::range`].
    ///
    /// # Errors
    /// As [`Read::range`].
    pub fn range(
        &self,
        space: Space,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        self.read.range(space, from, to, order, visit)
    }

    /// One entry; `None` if the log does not hold it.
    ///
    /// # Errors
    /// As [`Read::get`], and those of a record or a value that cannot be read.
    pub fn entry(&self, seq: Seq) -> Result<Option<Entry>, Error> {
        match self.batch_at(seq)? {
            Some(record) => record.entry(seq),
            None => Ok(None),
        }
    }

    /// The batch that holds an entry; `None` if the log does not.
    ///
    /// # Errors
    /// As [`Snapshot::entry`].
    pub fn batch_at(&self, seq: Seq) -> Result<Option<Record>, Error> {
        let Some(bucket) = self.bucket_of(seq) else { return Ok(None) };
        Ok(self.batch_before(bucket, seq)?.filter(|record| record.header().last >= seq))
    }

    /// Entries in order from `from` on, at most `limit` and [`ENTRIES_MAX`].
    ///
    /// # Errors
    /// As [`Snapshot::entry`].
    pub fn entries(&self, from: Seq, limit: usize) -> Result<Vec<Entry>, Error> {
        let limit = limit.min(ENTRIES_MAX);
        let mut entries = Vec::new();
        if limit == 0 {
            return Ok(entries);
        }
        let mut failed = None;
        self.records(from, &mut |record| {
            for entry in record.entries_from(from) {
                match entry {
                    Ok(entry) => entries.push(entry),
                    Err(error) => {
                        failed = Some(error);
                        return ControlFlow::Break(());
                    }
                }
                if entries.len() == limit {
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        failed.map_or(Ok(entries), Err)
    }

    /// Visits batches in order, from the one that holds `from` (or the first after it) to the head, until the
    /// visitor breaks.
    ///
    /// # Errors
    /// As [`Snapshot::entry`]; batches before the damage have been visited.
    pub fn records(&self, from: Seq, visit: &mut dyn FnMut(Record) -> ControlFlow<()>) -> Result<(), Error> {
        let from = from.max(Seq(1));
        if from > self.head {
            return Ok(());
        }
        let begin = self.buckets.partition_point(|bucket| bucket.first <= from).saturating_sub(1);
        let mut start = from;
        if let Some(bucket) = self.buckets.get(begin)
            && let Some(record) = self.batch_before(*bucket, from)?
            && record.header().last >= from
        {
            start = record.header().first;
        }
        for bucket in &self.buckets[begin.min(self.buckets.len())..] {
            let mut outcome = Ok(());
            let mut broke = false;
            let start = start.0.to_be_bytes();
            let mut row = |key: &[u8], value: &[u8]| {
                let flow = match self.record(key, Bytes::copy_from_slice(value)) {
                    Ok(record) if record.header().first > self.head => ControlFlow::Break(()),
                    Ok(record) => visit(record),
                    Err(error) => {
                        outcome = Err(error);
                        ControlFlow::Break(())
                    }
                };
                broke = flow.is_break();
                flow
            };
            let from = Bound::Included(&start[..]);
            self.read.range(Space::Log(bucket.id), from, Bound::Unbounded, Order::Ascending, &mut row)?;
            outcome?;
            if broke {
                break;
            }
        }
        Ok(())
    }

    /// A body; `None` if there is none, or no more.
    ///
    /// # Errors
    /// As [`Read::get`], and those of [`Body::decode`].
    pub fn body(&self, slot: BodySlot) -> Result<Option<Body>, Error> {
        let Some(bucket) = self.bucket_of(slot.seq()) else { return Ok(None) };
        let stored = self.read.get(Space::Body(bucket.id), &slot.key())?;
        stored.map(|stored| Body::decode(&stored)).transpose()
    }

    /// The last batch of a bucket.
    pub(super) fn last_batch(&self, bucket: Bucket) -> Result<Option<Record>, Error> {
        self.batch_before(bucket, Seq(u64::MAX))
    }

    fn bucket_of(&self, seq: Seq) -> Option<Bucket> {
        let after = self.buckets.partition_point(|bucket| bucket.first <= seq);
        after.checked_sub(1).map(|at| self.buckets[at])
    }

    /// The last batch of a bucket that begins at or before a seq.
    fn batch_before(&self, bucket: Bucket, seq: Seq) -> Result<Option<Record>, Error> {
        let mut found = None;
        let upto = seq.0.to_be_bytes();
        self.read.range(
            Space::Log(bucket.id),
            Bound::Unbounded,
            Bound::Included(&upto[..]),
            Order::Descending,
            &mut |key, value| {
                found = Some((Bytes::copy_from_slice(key), Bytes::copy_from_slice(value)));
                ControlFlow::Break(())
            },
        )?;
        found.map(|(key, value)| self.record(&key, value)).transpose()
    }

    /// A record that says it belongs where it lies.
    fn record(&self, key: &[u8], value: Bytes) -> Result<Record, Error> {
        let record = Record::read(value)?;
        if key == record.header().first.0.to_be_bytes() {
            Ok(record)
        } else {
            Err(Error::Damaged(format!("the log record of entry {} lies elsewhere", record.header().first)))
        }
    }
}
