//! The disk on fjall. Settings and habits follow from measurements (`docs/decisions.md`): small memtables and
//! journals for a short restart, LZ4 everywhere, larger blocks where rows are appended only.
//!
//! Never takes a snapshot on its own account, and never knows entries, batches or marks.

use std::cell::Cell;
use std::collections::HashMap;
use std::ops::{Bound, ControlFlow};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use fjall::config::{BlockSizePolicy, CompressionPolicy};
use fjall::{
    AbstractTree, CompressionType, Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode,
    Readable,
};

use super::Error;
use super::disk::{Change, Disk, Order, Read, Rows, Space, Visit, check_keys};
use super::memory::is_empty;

/// What may be set. Everything else is measured and fixed.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The block cache, shared by all spaces.
    pub cache_bytes: u64,
    /// Memtable of log and bodies.
    pub memtable_bytes: u64,
    /// Memtable of every other space.
    pub view_memtable_bytes: u64,
}

/// Journals kept before memtables are flushed to free them: start-up after a crash replays at most this much,
/// about 13 ms a MiB.
const JOURNAL_BYTES_MAX: u64 = 128 << 20;

/// Threads that flush and compact. With more than one, fjall 3.1.13 keeps the first for flushes: it hands each
/// compaction it is given back to the queue and takes it out again, without a pause, for as long as another
/// compacts. That is a busy core, which on two cores is half of what there is to deliver with.
const WORKERS: usize = 1;

/// No memtable is full for fjall: who writes also rotates. fjall 3.1.13 has its worker do it, which it asks again
/// with each write until it is done, through a queue of 1,000 messages; a worker that rotates sends a flush into the
/// same queue, and if that has filled up while it compacted, waits for room in it that only it could make, for ever.
const NEVER_FULL: u64 = u64::MAX;

/// Blocks of append-only spaces: half a percent more compression for each doubling, and reads that take 13 µs.
const APPEND_BLOCK_BYTES: u32 = 16 << 10;

/// How often a flush that is waited for is looked at: fjall has no signal for it.
const FLUSH_POLL: Duration = Duration::from_millis(2);

impl Default for Settings {
    fn default() -> Settings {
        Settings { cache_bytes: 64 << 20, memtable_bytes: 16 << 20, view_memtable_bytes: 8 << 20 }
    }
}

/// A fjall database in a folder. Clones are the same database, and keep it open.
#[derive(Clone)]
pub struct FjallDisk(Arc<Inner>);

struct Inner {
    database: Database,
    folder: PathBuf,
    settings: Settings,
    handles: RwLock<Arc<Handles>>,
}

/// The row of `meta` that is written after each drop of a space; read by nobody.
const DROPPED: &[u8] = b"dropped";

/// Every space of the database. A snapshot keeps the handles of its time: asking fjall again takes a global
/// lock, and a keyspace younger than a snapshot cannot be read through it.
#[derive(Clone, Default)]
struct Handles {
    named: HashMap<String, Keyspace>,
    /// The same, for those that were asked for: saves writing a name for each read.
    known: HashMap<Space, Keyspace>,
}

impl FjallDisk {
    /// Opens the database in a folder, or makes one.
    ///
    /// # Errors
    /// [`Error::InUse`] if it is open elsewhere, [`Error::Damaged`] if it cannot be recovered, [`Error::Io`],
    /// [`Error::Full`].
    pub fn open(folder: &Path, settings: Settings) -> Result<FjallDisk, Error> {
        let builder = Database::builder(folder)
            .cache_size(settings.cache_bytes)
            .max_journaling_size(JOURNAL_BYTES_MAX)
            .worker_threads(WORKERS);
        // Lengths in a journal are believed until they contradict each other; then recovery panics.
        let database = caught(|| builder.open())
            .ok_or_else(|| Error::Damaged("its journal cannot be replayed".into()))?
            .map_err(explain)?;
        let mut handles = Handles::default();
        for name in database.list_keyspace_names() {
            let handle = database.keyspace(&name, KeyspaceCreateOptions::default).map_err(explain)?;
            handles.named.insert(name.to_string(), handle);
        }
        Ok(FjallDisk(Arc::new(Inner {
            database,
            folder: folder.to_owned(),
            settings,
            handles: RwLock::new(Arc::new(handles)),
        })))
    }

    fn handles(&self) -> Arc<Handles> {
        self.0.handles.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change_handles(&self, change: impl FnOnce(&mut Handles)) {
        let mut handles = self.0.handles.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut handles));
    }

    fn handle(&self, space: Space) -> Result<Keyspace, Error> {
        let handles = self.handles();
        if let Some(handle) = handles.known.get(&space) {
            return Ok(handle.clone());
        }
        let handle = handles.find(space)?.clone();
        self.change_handles(|handles| {
            handles.known.insert(space, handle.clone());
        });
        Ok(handle)
    }

    fn options(&self, space: Space) -> KeyspaceCreateOptions {
        let base = KeyspaceCreateOptions::default()
            .max_memtable_size(NEVER_FULL)
            .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4));
        match space {
            Space::Log(_) | Space::Body(_) => {
                base.data_block_size_policy(BlockSizePolicy::all(APPEND_BLOCK_BYTES))
            }
            Space::View { .. } | Space::Meta => base,
        }
    }

    /// A memtable that is larger is made a file.
    fn memtable_bytes(&self, space: Space) -> u64 {
        match space {
            Space::Log(_) | Space::Body(_) => self.0.settings.memtable_bytes,
            Space::View { .. } | Space::Meta => self.0.settings.view_memtable_bytes,
        }
    }
}

impl Handles {
    fn find(&self, space: Space) -> Result<&Keyspace, Error> {
        if let Some(handle) = self.known.get(&space) {
            return Ok(handle);
        }
        let name = space.to_string();
        self.named.get(&name).ok_or(Error::NoSpace(name))
    }
}

/// What comes of a call, unless it panics. That is an answer here, so nothing is printed of it.
fn caught<T>(call: impl FnOnce() -> T) -> Option<T> {
    thread_local! {
        static EXPECTED: Cell<bool> = const { Cell::new(false) };
    }
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !EXPECTED.get() {
                before(panic);
            }
        }));
    });
    EXPECTED.set(true);
    let result = catch_unwind(AssertUnwindSafe(call));
    EXPECTED.set(false);
    result.ok()
}

impl Read for FjallDisk {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, Error> {
        let value = self.handle(space)?.get(key).map_err(explain)?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn range(
        &self,
        space: Space,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        let handle = self.handle(space)?;
        if is_empty(&from, &to) {
            return Ok(());
        }
        walk(handle.range::<&[u8], _>((from, to)), order, visit)
    }
}

impl Disk for FjallDisk {
    fn write(&self, changes: &[Change]) -> Result<(), Error> {
        check_keys(changes)?;
        let mut batch = OwnedWriteBatch::with_capacity(self.0.database.clone(), changes.len())
            .durability(Some(PersistMode::SyncAll));
        let mut touched: Vec<(Space, Keyspace)> = Vec::new();
        for change in changes {
            let at = match touched.iter().position(|(space, _)| *space == change.space) {
                Some(at) => at,
                None => {
                    touched.push((change.space, self.handle(change.space)?));
                    touched.len() - 1
                }
            };
            let handle = &touched[at].1;
            match &change.value {
                Some(value) => batch.insert(handle, &*change.key, &**value),
                None => batch.remove(handle, &*change.key),
            }
        }
        batch.commit().map_err(explain)?;
        for (space, handle) in touched {
            if handle.tree.active_memtable().size() > self.memtable_bytes(space) {
                handle.rotate_memtable().map_err(explain)?;
            }
        }
        Ok(())
    }

    fn snapshot(&self) -> Arc<dyn Read> {
        Arc::new(Snapshot { snapshot: self.0.database.snapshot(), handles: self.handles() })
    }

    fn ensure(&self, space: Space) -> Result<(), Error> {
        let name = space.to_string();
        if self.handles().named.contains_key(&name) {
            return Ok(());
        }
        let handle = self.0.database.keyspace(&name, || self.options(space)).map_err(explain)?;
        self.change_handles(|handles| {
            handles.named.insert(name, handle.clone());
            handles.known.insert(space, handle);
        });
        Ok(())
    }

    fn drop_named(&self, name: &str) -> Result<(), Error> {
        let mut handle = None;
        self.change_handles(|handles| {
            handle = handles.named.remove(name);
            handles.known.retain(|space, _| space.to_string() != name);
        });
        let Some(handle) = handle else { return Ok(()) };
        self.0.database.delete_keyspace(handle).map_err(explain)?;
        // A new keyspace may get the number of a dropped one. After a restart fjall counts its writes on from
        // the newest in any keyspace, and that of the drop itself is not among them: the new keyspace would
        // be older than the drop, and gone at the next start. A synced write after the drop is newer.
        match self.handle(Space::Meta) {
            Ok(_) => self.write(&[Change::put(Space::Meta, DROPPED, name.as_bytes().to_vec())]),
            Err(_) => Ok(()),
        }
    }

    fn spaces(&self) -> Vec<String> {
        let mut names: Vec<_> = self.handles().named.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    fn ingest(&self, space: Space, rows: &mut Rows<'_>) -> Result<(), Error> {
        let handle = self.handle(space)?;
        let mut load = handle.start_ingestion().map_err(explain)?;
        let mut before: Option<Bytes> = None;
        for (key, value) in rows {
            if before.is_some_and(|before| before >= key) {
                return Err(Error::Misuse("a bulk load's keys do not ascend".into()));
            }
            match value {
                Some(value) => load.write(&*key, &*value),
                None => load.write_tombstone(&*key),
            }
            .map_err(explain)?;
            before = Some(key);
        }
        load.finish().map_err(explain)
    }

    fn rotate(&self, space: Space) -> Result<(), Error> {
        self.handle(space)?.rotate_memtable().map_err(explain)?;
        Ok(())
    }

    fn settle(&self) -> Result<(), Error> {
        let handles = self.handles();
        for handle in handles.named.values() {
            if handle.tree.active_memtable().size() > 0 {
                handle.rotate_memtable().map_err(explain)?;
            }
        }
        for handle in handles.named.values() {
            while handle.tree.sealed_memtable_count() > 0 {
                // A worker that died never finishes; only a sync tells.
                self.0.database.persist(PersistMode::SyncAll).map_err(explain)?;
                std::thread::sleep(FLUSH_POLL);
            }
        }
        Ok(())
    }

    fn free_bytes(&self) -> Result<u64, Error> {
        let stat = rustix::fs::statvfs(&self.0.folder).map_err(std::io::Error::from)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn used_bytes(&self) -> Result<u64, Error> {
        self.0.database.disk_space().map_err(explain)
    }

    fn space_bytes(&self, space: Space) -> u64 {
        self.handle(space).map_or(0, |handle| handle.disk_space())
    }
}

/// A fjall snapshot with the handles of its time.
struct Snapshot {
    snapshot: fjall::Snapshot,
    handles: Arc<Handles>,
}

impl Read for Snapshot {
    fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, Error> {
        let value = self.snapshot.get(self.handles.find(space)?, key).map_err(explain)?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    }

    fn range(
        &self,
        space: Space,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        order: Order,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        let handle = self.handles.find(space)?;
        if is_empty(&from, &to) {
            return Ok(());
        }
        walk(self.snapshot.range::<&[u8], _>(handle, (from, to)), order, visit)
    }
}

fn walk(mut rows: fjall::Iter, order: Order, visit: &mut Visit<'_>) -> Result<(), Error> {
    let mut next = || match order {
        Order::Ascending => rows.next(),
        Order::Descending => rows.next_back(),
    };
    while let Some(row) = next() {
        let (key, value) = row.into_inner().map_err(explain)?;
        if let ControlFlow::Break(()) = visit(&key, &value) {
            break;
        }
    }
    Ok(())
}

fn explain(error: fjall::Error) -> Error {
    use fjall::LsmError;
    match error {
        fjall::Error::Locked => Error::InUse,
        fjall::Error::Poisoned => Error::Poisoned,
        fjall::Error::Io(e) | fjall::Error::Storage(LsmError::Io(e)) => e.into(),
        fjall::Error::KeyspaceDeleted => Error::NoSpace("that was dropped".into()),
        other => Error::Damaged(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(version: u32) -> Space {
        Space::View { name: "events", version }
    }

    /// With fjall's own rotation this hangs for ever, see [`NEVER_FULL`].
    #[test]
    fn writes_beside_a_long_compaction_do_not_hang_the_store() {
        let folder = tempfile::tempdir().unwrap();
        let settings = Settings { view_memtable_bytes: 8 << 10, ..Settings::default() };
        let disk = FjallDisk::open(folder.path(), settings).unwrap();
        let spaces: Vec<_> = (1..=60).map(view).collect();
        spaces.iter().for_each(|space| disk.ensure(*space).unwrap());
        // Eight runs over the same keys are what a compaction takes its time for.
        let large = view(100);
        disk.ensure(large).unwrap();
        for run in 0..8u32 {
            let row = |n: u32| {
                (Bytes::from((n * 8 + run).to_be_bytes().to_vec()), Some(Bytes::from_static(b"row")))
            };
            disk.ingest(large, &mut (0..100_000).map(row)).unwrap();
        }
        let (done, ended) = std::sync::mpsc::channel();
        let writer = disk.clone();
        std::thread::spawn(move || {
            let runs = || writer.handle(large).unwrap().l0_table_count();
            let (mut round, mut after) = (0u32, 0);
            // While it compacts, and a while longer.
            while after < 60 {
                after += u32::from(runs() < 4);
                round += 1;
                let row = |space: &Space| Change::put(*space, round.to_be_bytes().to_vec(), vec![7; 600]);
                writer.write(&spaces.iter().map(row).collect::<Vec<_>>()).unwrap();
                // As the engine does now and then, so that journals can go.
                if round % 50 == 0 {
                    spaces.iter().for_each(|space| writer.rotate(*space).unwrap());
                }
            }
            done.send((spaces, round)).unwrap();
        });
        let (spaces, rounds) = ended.recv_timeout(Duration::from_secs(120)).expect("the store goes on");
        assert!(rounds > 60, "it was not compacted beside the writes");
        for space in spaces {
            assert_eq!(disk.get(space, &rounds.to_be_bytes()).unwrap().as_deref(), Some(&[7; 600][..]));
        }
    }

    #[test]
    fn a_space_that_is_made_after_others_were_dropped_is_there_at_every_later_start() {
        let folder = tempfile::tempdir().unwrap();
        let open = || FjallDisk::open(folder.path(), Settings::default()).unwrap();
        let first = open();
        first.ensure(Space::Meta).unwrap();
        first.write(&[Change::put(Space::Meta, &b"row"[..], &b"1"[..])]).unwrap();
        drop(first);
        for round in 1..=4 {
            // As a check leaves it: spaces made and dropped, and nothing written after them.
            let check = open();
            for version in 100..110 {
                check.ensure(view(version)).unwrap();
            }
            for version in 100..110 {
                check.drop_space(view(version)).unwrap();
            }
            drop(check);
            // As a rebuild does next.
            let rebuild = open();
            rebuild.ensure(view(round)).unwrap();
            let mut rows = std::iter::once((Bytes::from_static(b"key"), Some(Bytes::from_static(b"value"))));
            rebuild.ingest(view(round), &mut rows).unwrap();
            drop(rebuild);
            let later = open();
            let names: Vec<_> = (1..=round).map(|version| view(version).to_string()).collect();
            assert_eq!(later.spaces(), [vec!["meta".to_owned()], names].concat(), "round {round}");
            for version in 1..=round {
                assert_eq!(later.get(view(version), b"key").unwrap().as_deref(), Some(&b"value"[..]));
            }
        }
    }
}
