//! The rows of the batch that is being made, and of settled tables since they were last written.
//!
//! What a batch changes is seen by the decisions that follow in it, written with it as one, and gone with it
//! if it fails. Never knows what a row means.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::ops::ControlFlow;
use std::sync::{Arc, RwLock};

use bytes::Bytes;
use hooklog_projections::TABLES;
use hooklog_projections::tables::{Cadence, Key, Table, Tables};

use super::query::RowsOf;
use crate::log::{self, Change, Order, Read, Snapshot, Space, codec};

/// The rows of settled tables that are newer than those on disk, by table and key. `None`: removed.
pub type Settled = BTreeMap<(&'static str, Bytes), Option<Bytes>>;

/// What has been done to the rows of one table, by key.
#[derive(Default)]
pub(super) struct Touched(BTreeMap<Bytes, TouchedRow>);

struct TouchedRow {
    /// It was not there before: if it goes again, nothing was ever done.
    new: bool,
    now: Option<Bytes>,
}

impl Touched {
    /// What was done to a row, if anything; `Some(None)`: removed.
    pub(super) fn get(&self, key: &[u8]) -> Option<Option<&Bytes>> {
        self.0.get(key).map(|row| row.now.as_ref())
    }

    /// Sets or removes a row.
    pub(super) fn set<T: Table>(&mut self, key: Bytes, now: Option<Bytes>) {
        // A list (rows without a value) is only ever put to by the fact that enters it: the row was not there.
        let new = size_of::<T::Value>() == 0 && now.is_some();
        match self.0.get_mut(&key) {
            Some(row) => row.now = now,
            None => drop(self.0.insert(key, TouchedRow { new, now })),
        }
    }

    /// What must be done on disk, in the order of keys.
    pub(super) fn changes(&self) -> impl Iterator<Item = (&Bytes, &Option<Bytes>)> {
        self.0.iter().filter(|(_, row)| row.now.is_some() || !row.new).map(|(key, row)| (key, &row.now))
    }

    /// What was done to the rows between two keys.
    pub(super) fn range(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> impl Iterator<Item = (&Bytes, Option<&Bytes>)> {
        self.0.range::<[u8], _>((from, to)).map(|(key, row)| (key, row.now.as_ref()))
    }

    /// How many rows were touched.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// The rows of the batch in the making.
pub struct Rows {
    generation: u32,
    batch: HashMap<&'static str, Touched>,
    settled_batch: Settled,
    settled: Arc<RwLock<Settled>>,
}

impl Rows {
    /// No rows yet, over the views of a generation.
    pub fn new(generation: u32, settled: Arc<RwLock<Settled>>) -> Rows {
        Rows { generation, batch: HashMap::new(), settled_batch: Settled::new(), settled }
    }

    /// The generation whose rows these are.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// The tables as the batch sees them, over what is on disk.
    pub fn over<'a>(&'a mut self, disk: &'a dyn Read) -> Live<'a> {
        Live { rows: self, disk }
    }

    /// The changes of this batch that go to disk with it. Rows that came and went in it are not among them.
    pub fn changes(&self) -> Vec<Change> {
        let mut out = Vec::new();
        for (name, _) in TABLES.iter().filter(|(_, cadence)| *cadence == Cadence::EveryBatch) {
            let space = Space::View { name, version: self.generation };
            let changes = self.batch.get(name).into_iter().flat_map(Touched::changes);
            out.extend(changes.map(|(key, value)| Change { space, key: key.clone(), value: value.clone() }));
        }
        out
    }

    /// The changes that write all settled rows, those of this batch included.
    pub fn settling_changes(&self) -> Vec<Change> {
        let mut all = self.settled.read().expect("no holder panics").clone();
        all.extend(self.settled_batch.iter().map(|(key, row)| (key.clone(), row.clone())));
        let space = |name| Space::View { name, version: self.generation };
        all.into_iter().map(|((name, key), value)| Change { space: space(name), key, value }).collect()
    }

    /// How many settled rows are not on disk.
    pub fn unsettled(&self) -> usize {
        self.settled.read().expect("no holder panics").len() + self.settled_batch.len()
    }

    /// The batch is durable: its settled rows stay in memory, all else is on disk.
    pub fn committed(&mut self) {
        self.batch.clear();
        let mut settled = self.settled.write().expect("no holder panics");
        settled.append(&mut self.settled_batch);
    }

    /// The batch wrote all settled rows, and readers see it.
    pub fn settled(&mut self) {
        self.settled.write().expect("no holder panics").clear();
    }

    /// The views of another generation are the live ones.
    pub fn switched(&mut self, generation: u32) {
        self.generation = generation;
    }
}

/// The tables as the next decision sees them.
pub struct Live<'a> {
    rows: &'a mut Rows,
    disk: &'a dyn Read,
}

impl Live<'_> {
    /// The rows of a table between two keys, ascending, at most `limit`; those of the batch included.
    pub fn range<T: Table>(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        limit: usize,
    ) -> Result<RowsOf<T>, log::Error> {
        let space = Space::View { name: T::NAME, version: self.rows.generation };
        let mut found: BTreeMap<Bytes, Bytes> = BTreeMap::new();
        let batch = self.rows.batch.get(T::NAME);
        let settled = self.rows.settled.read().expect("no holder panics");
        let newer = |key: &[u8]| -> Option<Option<Bytes>> {
            if let Some(row) = batch.and_then(|rows| rows.get(key)) {
                return Some(row.cloned());
            }
            if T::CADENCE == Cadence::EveryBatch {
                return None;
            }
            let key = (T::NAME, Bytes::copy_from_slice(key));
            self.rows.settled_batch.get(&key).or_else(|| settled.get(&key)).cloned()
        };
        self.disk.range(space, from, to, Order::Ascending, &mut |key, value| {
            match newer(key) {
                Some(None) => {}
                Some(Some(row)) => drop(found.insert(Bytes::copy_from_slice(key), row)),
                None => drop(found.insert(Bytes::copy_from_slice(key), Bytes::copy_from_slice(value))),
            }
            if found.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if let Some(rows) = batch {
            for (key, row) in rows.range(from, to) {
                if let Some(value) = row {
                    found.insert(key.clone(), value.clone());
                }
            }
        }
        if T::CADENCE == Cadence::Settled {
            let inside = |key: &Bytes| {
                let after = match from {
                    Bound::Included(from) => key.as_ref() >= from,
                    Bound::Excluded(from) => key.as_ref() > from,
                    Bound::Unbounded => true,
                };
                let before = match to {
                    Bound::Included(to) => key.as_ref() <= to,
                    Bound::Excluded(to) => key.as_ref() < to,
                    Bound::Unbounded => true,
                };
                after && before
            };
            for map in [&*settled, &self.rows.settled_batch] {
                for ((name, key), row) in map {
                    if *name == T::NAME && inside(key) {
                        match row {
                            Some(value) => drop(found.insert(key.clone(), value.clone())),
                            None => drop(found.remove(key)),
                        }
                    }
                }
            }
        }
        found
            .into_iter()
            .take(limit)
            .map(|(key, value)| {
                let key = T::Key::read(&key).ok_or_else(|| bad_key(T::NAME))?;
                Ok((key, codec::decode(&value)?))
            })
            .collect()
    }
}

/// A key on disk that its table cannot read.
pub(crate) fn bad_key(table: &str) -> log::Error {
    log::Error::Damaged(format!(
        "a key of the view {table} cannot be read; `hooklog store rebuild` makes it anew"
    ))
}

impl Tables for Live<'_> {
    type Error = log::Error;

    fn get<T: Table>(&mut self, key: &T::Key) -> Result<Option<T::Value>, log::Error> {
        let key = key.bytes();
        if T::CADENCE == Cadence::Settled {
            let key = (T::NAME, Bytes::from(key));
            let row = match self.rows.settled_batch.get(&key) {
                Some(row) => Some(row.clone()),
                None => self.rows.settled.read().expect("no holder panics").get(&key).cloned(),
            };
            return match row {
                Some(row) => row.as_deref().map(codec::decode).transpose(),
                None => read_disk_row::<T>(self.disk, self.rows.generation, &key.1),
            };
        }
        match self.rows.batch.get(T::NAME).and_then(|rows| rows.get(key.as_slice())) {
            Some(row) => row.map(|row| codec::decode(row)).transpose(),
            None => read_disk_row::<T>(self.disk, self.rows.generation, &key),
        }
    }

    fn put<T: Table>(&mut self, key: &T::Key, value: &T::Value) -> Result<(), log::Error> {
        self.set::<T>(key, Some(Bytes::from(codec::encode(value))));
        Ok(())
    }

    fn delete<T: Table>(&mut self, key: &T::Key) -> Result<(), log::Error> {
        self.set::<T>(key, None);
        Ok(())
    }
}

impl Live<'_> {
    fn set<T: Table>(&mut self, key: &T::Key, now: Option<Bytes>) {
        let key = Bytes::from(key.bytes());
        if T::CADENCE == Cadence::Settled {
            self.rows.settled_batch.insert((T::NAME, key), now);
            return;
        }
        self.rows.batch.entry(T::NAME).or_default().set::<T>(key, now);
    }
}

/// A row as it is on disk.
pub(super) fn read_disk_row<T: Table>(
    disk: &dyn Read,
    generation: u32,
    key: &[u8],
) -> Result<Option<T::Value>, log::Error> {
    let space = Space::View { name: T::NAME, version: generation };
    disk.get(space, key)?.as_deref().map(codec::decode).transpose()
}

/// A row as a published state has it.
pub(super) fn read_row<T: Table>(
    snapshot: &Snapshot,
    generation: u32,
    key: &[u8],
) -> Result<Option<T::Value>, log::Error> {
    let space = Space::View { name: T::NAME, version: generation };
    snapshot.get(space, key)?.as_deref().map(codec::decode).transpose()
}
