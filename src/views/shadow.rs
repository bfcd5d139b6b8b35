//! A second set of views, folded anew beside the live ones: loaded in bulk, chunk by chunk.
//!
//! Serves rebuilds (it becomes the live set) and checks (it is compared, then dropped). Never touches the
//! live views.

use std::collections::{BTreeMap, HashMap};
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bytes::Bytes;
use hooklog_projections::fact::Entry;
use hooklog_projections::ids::Seq;
use hooklog_projections::tables::{Key, Table, Tables};
use hooklog_projections::{FoldError, TABLES};

use super::rows::{Touched, read_disk_row};
use crate::log::{self, Change, Disk, Order, Snapshot, Space, codec};

/// Rows held in memory before a chunk is loaded: about 100 MB.
const CHUNK_ROWS: usize = 400_000;
/// Entries read from one snapshot, so that none is held for long.
const STRETCH: usize = 10_000;

/// Looks at one row (key, value); an error ends the walk.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<(), log::Error> + 'a;

/// Views in the making.
pub struct Shadow {
    disk: Arc<dyn Disk>,
    generation: u32,
    touched: HashMap<&'static str, Touched>,
    upto: Seq,
}

impl Shadow {
    /// Empty views of a generation; whatever lay there is dropped.
    pub fn begin(disk: Arc<dyn Disk>, generation: u32) -> Result<Shadow, log::Error> {
        let shadow = Shadow { disk, generation, touched: HashMap::new(), upto: Seq(0) };
        shadow.drop_spaces()?;
        for (name, _) in TABLES {
            shadow.disk.ensure(Space::View { name, version: generation })?;
        }
        Ok(shadow)
    }

    /// The last entry folded.
    pub fn upto(&self) -> Seq {
        self.upto
    }

    /// Folds entries up to the head of the snapshots that `fresh` yields, until fewer than `leave` are left.
    pub fn catch_up(
        &mut self,
        fresh: &mut dyn FnMut() -> Result<Arc<Snapshot>, log::Error>,
        leave: u64,
        progress: &mut dyn FnMut(Seq, Seq),
    ) -> Result<(), FoldError<log::Error>> {
        loop {
            let snapshot = fresh().map_err(FoldError::Rows)?;
            if self.upto.0 + leave >= snapshot.head().0 {
                return Ok(());
            }
            let entries = snapshot.entries(self.upto.next(), STRETCH).map_err(FoldError::Rows)?;
            if entries.is_empty() {
                let missing = format!("entry {} is missing", self.upto.next());
                return Err(FoldError::Rows(log::Error::Damaged(missing)));
            }
            let head = snapshot.head();
            drop(snapshot);
            for entry in &entries {
                self.fold(entry)?;
            }
            if self.touched.values().map(Touched::len).sum::<usize>() >= CHUNK_ROWS {
                self.load().map_err(FoldError::Rows)?;
            }
            progress(self.upto, head);
        }
    }

    /// Folds one entry, the next.
    pub fn fold(&mut self, entry: &Entry) -> Result<(), FoldError<log::Error>> {
        hooklog_projections::fold(self, entry)?;
        self.upto = entry.seq;
        Ok(())
    }

    /// Moves what is in memory to disk, in bulk.
    pub fn load(&mut self) -> Result<(), log::Error> {
        for (name, _) in TABLES {
            if let Some(touched) = self.touched.remove(name) {
                let space = Space::View { name, version: self.generation };
                let mut rows = touched.changes().map(|(key, value)| (key.clone(), value.clone()));
                self.disk.ingest(space, &mut rows)?;
            }
        }
        Ok(())
    }

    /// What is in memory, as changes that ride in a batch.
    pub fn changes(&self) -> Vec<Change> {
        let mut out = Vec::new();
        for (name, touched) in &self.touched {
            let space = Space::View { name, version: self.generation };
            let changes = touched.changes();
            out.extend(changes.map(|(key, value)| Change { space, key: key.clone(), value: value.clone() }));
        }
        out
    }

    /// The raw rows of a table between two keys.
    pub fn rows(
        &self,
        name: &'static str,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
    ) -> Result<BTreeMap<Bytes, Bytes>, log::Error> {
        let space = Space::View { name, version: self.generation };
        let mut found = BTreeMap::new();
        self.disk.range(space, from, to, Order::Ascending, &mut |key, value| {
            found.insert(Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
            ControlFlow::Continue(())
        })?;
        for (key, row) in self.touched.get(name).into_iter().flat_map(|touched| touched.range(from, to)) {
            match row {
                Some(value) => drop(found.insert(key.clone(), value.clone())),
                None => drop(found.remove(key)),
            }
        }
        Ok(found)
    }

    /// Visits all rows of a table that are on disk (after [`Shadow::load`]: all), a page at a time.
    pub fn walk(&self, name: &'static str, visit: &mut Visit<'_>) -> Result<(), log::Error> {
        let space = Space::View { name, version: self.generation };
        let mut after: Option<Bytes> = None;
        loop {
            let (mut seen, mut last, mut failed) = (0, None, Ok(()));
            let from = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
            self.disk.range(space, from, Bound::Unbounded, Order::Ascending, &mut |key, value| {
                seen += 1;
                failed = visit(key, value);
                if seen < STRETCH && failed.is_ok() {
                    return ControlFlow::Continue(());
                }
                last = Some(Bytes::copy_from_slice(key));
                ControlFlow::Break(())
            })?;
            failed?;
            match last {
                Some(key) => after = Some(key),
                None => return Ok(()),
            }
        }
    }

    /// Drops its spaces.
    pub fn drop_spaces(&self) -> Result<(), log::Error> {
        for (name, _) in TABLES {
            self.disk.drop_space(Space::View { name, version: self.generation })?;
        }
        Ok(())
    }
}

impl Tables for Shadow {
    type Error = log::Error;

    fn get<T: Table>(&mut self, key: &T::Key) -> Result<Option<T::Value>, log::Error> {
        let key = key.bytes();
        match self.touched.get(T::NAME).and_then(|touched| touched.get(&key)) {
            Some(row) => row.map(|row| codec::decode(row)).transpose(),
            None => read_disk_row::<T>(&*self.disk, self.generation, &key),
        }
    }

    fn put<T: Table>(&mut self, key: &T::Key, value: &T::Value) -> Result<(), log::Error> {
        let touched = self.touched.entry(T::NAME).or_default();
        touched.set::<T>(key.bytes().into(), Some(codec::encode(value).into()));
        Ok(())
    }

    fn delete<T: Table>(&mut self, key: &T::Key) -> Result<(), log::Error> {
        self.touched.entry(T::NAME).or_default().set::<T>(key.bytes().into(), None);
        Ok(())
    }
}
