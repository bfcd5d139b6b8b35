//! The memory twin of the disk: the same promises, no files, and faults on demand.
//!
//! For tests and simulation, and deterministic. Rows keep their older versions while a snapshot may read
//! them, so a snapshot costs nothing to take. Never knows entries, batches or marks.

use std::collections::{BTreeMap, VecDeque};
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::Error;
use super::disk::{Change, Disk, Order, Read, Rows, Space, Visit, check_keys};

/// Rows copied under the lock at a time when a range is walked.
const RANGE_CHUNK: usize = 64;

/// How a write fails. The disk is poisoned afterwards, whichever it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// [`Error::Full`]; nothing is applied.
    Full,
    /// [`Error::Io`]: the sync failed and nobody can tell what reached the platter.
    Unknown {
        /// Whether it did; reads do not see it, only [`MemoryDisk::crash`] does.
        applied: bool,
    },
}

/// A disk in memory. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct MemoryDisk(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    thawed: Condvar,
}

#[derive(Debug)]
struct State {
    spaces: Spaces,
    /// The version of the last write.
    version: u64,
    /// Versions that snapshots read, with their number.
    held: BTreeMap<u64, usize>,
    /// Rows whose older versions can go once no snapshot reads below the version.
    stale: VecDeque<(u64, Space, Bytes)>,
    /// What a failed write left on the platter.
    afloat: Vec<Change>,
    fault: Option<Fault>,
    poisoned: bool,
    frozen: bool,
    free_bytes: u64,
}

type Spaces = BTreeMap<Space, Arc<Mutex<Table>>>;
type Table = BTreeMap<Bytes, Row>;
/// Values by the version that set them, oldest first.
type Row = Vec<(u64, Option<Bytes>)>;

impl Default for MemoryDisk {
    fn default() -> MemoryDisk {
        MemoryDisk::with(Spaces::new(), 0)
    }
}

impl MemoryDisk {
    /// An empty disk with 1 TiB free.
    pub fn new() -> MemoryDisk {
        MemoryDisk::default()
    }

    fn with(spaces: Spaces, version: u64) -> MemoryDisk {
        let state = State {
            spaces,
            version,
            held: BTreeMap::new(),
            stale: VecDeque::new(),
            afloat: Vec::new(),
            fault: None,
            poisoned: false,
            frozen: false,
            free_bytes: 1 << 40,
        };
        MemoryDisk(Arc::new(Shared { state: Mutex::new(state), thawed: Condvar::new() }))
    }

    /// The next write fails so.
    pub fn fail_next_write(&self, fault: Fault) {
        self.lock().fault = Some(fault);
    }

    /// As after a failure in the background: the next write finds out.
    pub fn poison(&self) {
        self.lock().poisoned = true;
    }

    /// Writes block until [`MemoryDisk::thaw`].
    pub fn freeze(&self) {
        self.lock().frozen = true;
    }

    /// Lets blocked writes go on.
    pub fn thaw(&self) {
        self.lock().frozen = false;
        self.0.thawed.notify_all();
    }

    /// Sets what [`Disk::free_bytes`] answers.
    pub fn set_free_bytes(&self, bytes: u64) {
        self.lock().free_bytes = bytes;
    }

    /// What the process finds when it starts again: another disk that holds every completed write, and no
    /// fault. This one stays as it is.
    pub fn crash(&self) -> MemoryDisk {
        let state = self.lock();
        let spaces = state
            .spaces
            .iter()
            .map(|(space, table)| {
                let newest = |row: &Row| row.last().and_then(|(_, value)| value.clone());
                let rows = lock(table)
                    .iter()
                    .filter_map(|(key, row)| Some((key.clone(), vec![(0, Some(newest(row)?))])))
                    .collect();
                (*space, Arc::new(Mutex::new(rows)))
            })
            .collect();
        let next = MemoryDisk::with(spaces, 0);
        {
            let mut found = next.lock();
            found.free_bytes = state.free_bytes;
            found.apply(state.afloat.iter().cloned());
        }
        next
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0.state)
    }

    fn newest(&self) -> View {
        let state = self.lock();
        View { spaces: state.spaces.clone(), version: state.version }
    }
}

impl State {
    fn apply(&mut self, changes: impl IntoIterator<Item = Change>) {
        self.version += 1;
        for Change { space, key, value } in changes {
            let removed = value.is_none();
            let mut table = lock(&self.spaces[&space]);
            let row = table.entry(key.clone()).or_default();
            match row.last_mut() {
                Some((version, last)) if *version == self.version => *last = value,
                _ => row.push((self.version, value)),
            }
            if row.len() > 1 || removed {
                self.stale.push_back((self.version, space, key));
            }
        }
        self.forget();
    }

    /// Drops what no snapshot can read any more.
    fn forget(&mut self) {
        let oldest = self.held.keys().next().copied().unwrap_or(self.version);
        while self.stale.front().is_some_and(|(version, ..)| *version <= oldest) {
            let Some((_, space, key)) = self.stale.pop_front() else { break };
            let Some(table) = self.spaces.get(&space) else { continue };
            let mut table = lock(table);
            let Some(row) = table.get_mut(&key) else { continue };
            let visible = row.partition_point(|(version, _)| *version <= oldest);
            row.drain(..visible.saturating_sub(1));
            if matches!(row.as_slice(), [(version, None)] if *version <= oldest) {
                table.remove(&key);
            }
        }
    }
}

impl Read for MemoryDisk {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, Error> {
        let state = self.lock();
        let table = state.spaces.get(&space).ok_or_else(|| Error::NoSpace(space.to_string()))?;
        Ok(seen(lock(table).get(key), state.version))
    }

    fn range(
        &self,
        space: Space,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        self.newest().range(space, from, to, order, visit)
    }
}

impl Disk for MemoryDisk {
    fn write(&self, changes: &[Change]) -> Result<(), Error> {
        check_keys(changes)?;
        let mut state = self.lock();
        while state.frozen {
            state = self.0.thawed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(change) = changes.iter().find(|change| !state.spaces.contains_key(&change.space)) {
            return Err(Error::NoSpace(change.space.to_string()));
        }
        if state.poisoned {
            return Err(Error::Poisoned);
        }
        let fault = state.fault.take();
        match fault {
            None => state.apply(changes.iter().cloned()),
            Some(Fault::Unknown { applied: true }) => state.afloat = changes.to_vec(),
            Some(_) => {}
        }
        state.poisoned = fault.is_some();
        match fault {
            None => Ok(()),
            Some(Fault::Full) => Err(Error::Full),
            Some(Fault::Unknown { .. }) => Err(std::io::Error::other("the sync failed").into()),
        }
    }

    fn snapshot(&self) -> Arc<dyn Read> {
        let mut state = self.lock();
        let version = state.version;
        *state.held.entry(version).or_default() += 1;
        Arc::new(Snapshot { disk: self.clone(), view: View { spaces: state.spaces.clone(), version } })
    }

    fn ensure(&self, space: Space) -> Result<(), Error> {
        self.lock().spaces.entry(space).or_default();
        Ok(())
    }

    fn drop_named(&self, name: &str) -> Result<(), Error> {
        self.lock().spaces.retain(|space, _| space.to_string() != name);
        Ok(())
    }

    fn spaces(&self) -> Vec<String> {
        let mut names: Vec<_> = self.lock().spaces.keys().map(Space::to_string).collect();
        names.sort_unstable();
        names
    }

    fn ingest(&self, space: Space, rows: &mut Rows<'_>) -> Result<(), Error> {
        let rows: Vec<_> = rows.map(|(key, value)| Change { space, key, value }).collect();
        if rows.windows(2).any(|pair| pair[0].key >= pair[1].key) {
            return Err(Error::Misuse("a bulk load's keys do not ascend".into()));
        }
        let mut state = self.lock();
        if !state.spaces.contains_key(&space) {
            return Err(Error::NoSpace(space.to_string()));
        }
        if state.poisoned {
            return Err(Error::Poisoned);
        }
        state.apply(rows);
        Ok(())
    }

    fn rotate(&self, space: Space) -> Result<(), Error> {
        let state = self.lock();
        if state.spaces.contains_key(&space) { Ok(()) } else { Err(Error::NoSpace(space.to_string())) }
    }

    fn settle(&self) -> Result<(), Error> {
        if self.lock().poisoned { Err(Error::Poisoned) } else { Ok(()) }
    }

    fn free_bytes(&self) -> Result<u64, Error> {
        Ok(self.lock().free_bytes)
    }

    fn used_bytes(&self) -> Result<u64, Error> {
        let spaces = self.lock().spaces.clone();
        Ok(spaces.keys().map(|space| self.space_bytes(*space)).sum())
    }

    fn space_bytes(&self, space: Space) -> u64 {
        let Some(table) = self.lock().spaces.get(&space).cloned() else { return 0 };
        let bytes = |row: &Row| match row.last() {
            Some((_, Some(value))) => value.len() as u64,
            _ => 0,
        };
        lock(&table).iter().map(|(key, row)| key.len() as u64 + bytes(row)).sum()
    }
}

/// One version of the disk.
#[derive(Debug)]
struct View {
    spaces: Spaces,
    version: u64,
}

impl View {
    fn table(&self, space: Space) -> Result<&Mutex<Table>, Error> {
        self.spaces.get(&space).map(|table| &**table).ok_or_else(|| Error::NoSpace(space.to_string()))
    }

    fn range(
        &self,
        space: Space,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        let table = self.table(space)?;
        let own = |bound: Bound<&[u8]>| bound.map(Bytes::copy_from_slice);
        let (mut from, mut to) = (own(from), own(to));
        loop {
            if is_empty(&from, &to) {
                return Ok(());
            }
            // Copied out, so that a visitor may read this disk too.
            let mut last = None;
            let mut seen_rows = Vec::new();
            {
                let table = lock(table);
                let mut take = |(key, row): (&Bytes, &Row)| {
                    last = Some(key.clone());
                    seen_rows.extend(seen(Some(row), self.version).map(|value| (key.clone(), value)));
                };
                let rows = table.range((from.clone(), to.clone()));
                match order {
                    Order::Ascending => rows.take(RANGE_CHUNK).for_each(&mut take),
                    Order::Descending => rows.rev().take(RANGE_CHUNK).for_each(&mut take),
                }
            }
            let Some(last) = last else { return Ok(()) };
            for (key, value) in seen_rows {
                if let ControlFlow::Break(()) = visit(&key, &value) {
                    return Ok(());
                }
            }
            match order {
                Order::Ascending => from = Bound::Excluded(last),
                Order::Descending => to = Bound::Excluded(last),
            }
        }
    }
}

/// A version that is kept readable until this is dropped.
#[derive(Debug)]
struct Snapshot {
    disk: MemoryDisk,
    view: View,
}

impl Read for Snapshot {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, Error> {
        Ok(seen(lock(self.view.table(space)?).get(key), self.view.version))
    }

    fn range(
        &self,
        space: Space,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        self.view.range(space, from, to, order, visit)
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let mut state = self.disk.lock();
        if let Some(readers) = state.held.get_mut(&self.view.version) {
            *readers -= 1;
            if *readers == 0 {
                state.held.remove(&self.view.version);
            }
        }
        state.forget();
    }
}

/// The value that a version sees.
fn seen(row: Option<&Row>, version: u64) -> Option<Bytes> {
    row?.iter().rev().find(|(set_at, _)| *set_at <= version)?.1.clone()
}

/// Whether no key lies between the bounds; `BTreeMap::range` panics on some of these.
pub(super) fn is_empty<T: AsRef<[u8]>>(from: &Bound<T>, to: &Bound<T>) -> bool {
    match (from, to) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(from), Bound::Included(to)) => from.as_ref() > to.as_ref(),
        (Bound::Included(from) | Bound::Excluded(from), Bound::Included(to) | Bound::Excluded(to)) => {
            from.as_ref() >= to.as_ref()
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
