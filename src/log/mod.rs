//! The event-sourced log: appends batches of entries with their bodies and view rows as one durable write,
//! and reads them back.
//!
//! One [`Log`] belongs to the one writer; everybody else reads [`Snapshot`]s that the writer takes between
//! appends. Knows bytes, batches and entries; never what a fact means, and never reads a clock.

pub mod batch;
pub mod body;
pub mod chain;
pub mod codec;
pub mod disk;
mod error;
pub mod fjall_disk;
#[cfg(test)]
mod golden;
pub mod mark;
pub mod memory;
mod snapshot;
mod verify;
pub mod watchdog;

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use hooklog_projections::fact::Entry;
use hooklog_projections::ids::{Seq, StoreId};
use hooklog_projections::time::Timestamp;

pub use self::batch::Record;
pub use self::body::{Body, BodySlot};
pub use self::chain::Chain;
pub use self::disk::{Change, Disk, Order, Read, Space};
pub use self::error::Error;
pub use self::fjall_disk::FjallDisk;
pub use self::mark::{Mark, Marked};
pub use self::memory::MemoryDisk;
pub use self::snapshot::{Bucket, ENTRIES_MAX, Snapshot};
pub use self::verify::{Damage, Verified, verify_chain};
pub use self::watchdog::Watchdog;

/// The format of stores written now: the rows of `meta`, the keys of all spaces.
pub const FORMAT: u32 = 1;

/// The database's folder within the store's.
pub const DATABASE_FOLDER: &str = "db";

mod row {
    //! Keys of `meta`.

    /// [`super::FORMAT`], u32 BE.
    pub(super) const FORMAT: &[u8] = b"format";
    /// The store id, 16 bytes.
    pub(super) const STORE: &[u8] = b"store";
    /// All [`super::Bucket`]s, `codec`.
    pub(super) const BUCKETS: &[u8] = b"buckets";
    /// View name → active version, `codec`.
    pub(super) const VIEWS: &[u8] = b"views";
    /// Heartbeats written, u64 BE; the mark knows the last one that was acknowledged.
    pub(super) const BEAT: &[u8] = b"beat";
}

/// What may be set.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// A bucket that was appended this many bytes (records and bodies) is followed by a new one.
    pub bucket_bytes_max: u64,
    /// Below this much free space nothing is opened, and [`Log::has_room`] is false.
    pub free_bytes_min: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { bucket_bytes_max: 512 << 20, free_bytes_min: 256 << 20 }
    }
}

/// What an append writes, all or nothing.
#[derive(Clone, Debug, Default)]
pub struct Pending {
    /// Dense from the log's head; times never going back. May be empty if only rows change.
    pub entries: Vec<Entry>,
    /// Bodies of these entries.
    pub bodies: Vec<(BodySlot, Body)>,
    /// Rows of views.
    pub changes: Vec<Change>,
    /// Views that switch to another version with this batch.
    pub views: Vec<(&'static str, u32)>,
}

/// Keys written since the log was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Records, one a batch.
    pub log: u64,
    /// Bodies.
    pub body: u64,
    /// Rows of views, removals included.
    pub view: u64,
    /// Rows of `meta`: founding, rolls, switched views, heartbeats.
    pub meta: u64,
}

impl Written {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.log + self.body + self.view + self.meta
    }
}

/// A log as it was found.
pub enum Opened {
    /// Without an entry: [`Log::found`] it before the first append.
    Fresh(Log),
    /// With entries.
    Existing(Log),
}

impl Opened {
    /// The log, however it was found.
    pub fn into_log(self) -> Log {
        match self {
            Opened::Fresh(log) | Opened::Existing(log) => log,
        }
    }
}

/// The log, as its one writer has it.
pub struct Log {
    disk: Arc<dyn Disk>,
    mark: Mark,
    options: Options,
    /// Reads of the newest state; only the writer's.
    now: Snapshot,
    /// Whose log; `None` until founded.
    store: Option<StoreId>,
    /// Whether the next append stores the store's own rows.
    founding: bool,
    /// Whether the stored bucket table names buckets beyond the head.
    lost_buckets: bool,
    /// Bytes appended to the newest bucket, as far as known.
    bucket_bytes: u64,
    poisoned: bool,
    free_bytes: u64,
    /// Whether a commit has proved the disk since the last heartbeat.
    proved: bool,
    /// Heartbeats that the disk took.
    beat: u64,
    written: Written,
}

impl Log {
    /// Opens the store in a folder: the database in `db`, the mark beside it.
    ///
    /// # Errors
    /// As [`FjallDisk::open`] and [`Log::open`].
    pub fn open_folder(
        folder: &Path,
        settings: fjall_disk::Settings,
        options: Options,
    ) -> Result<Opened, Error> {
        let (disk, mark) = open_folder(folder, settings)?;
        Log::open(disk, mark, options)
    }

    /// Opens a log and compares it with its mark.
    ///
    /// # Errors
    /// [`Error::NewerFormat`], [`Error::NoRoom`]; [`Error::NoMark`], [`Error::BehindMark`],
    /// [`Error::ChainBroken`], [`Error::ForeignMark`] if log and mark disagree; [`Error::Damaged`],
    /// [`Error::Io`].
    pub fn open(disk: Arc<dyn Disk>, mark: Mark, options: Options) -> Result<Opened, Error> {
        let mut log = Log::read(disk, mark, options)?;
        let free = log.disk.free_bytes()?;
        if free < options.free_bytes_min {
            return Err(Error::NoRoom { free, floor: options.free_bytes_min });
        }
        log.compare_with_mark()?;
        log.forget_lost_buckets()?;
        if let Some(marked) = log.marked() {
            log.mark.write(marked)?;
            log.mark.sync()?;
            Ok(Opened::Existing(log))
        } else {
            Ok(Opened::Fresh(log))
        }
    }

    /// Opens a log as it is and marks its head, whatever the mark said: entries that were acknowledged and are
    /// not there are given up. All views are dropped, since nobody knows what they lost: build them again.
    /// Only ever on a person's word.
    ///
    /// # Errors
    /// As [`Log::open`], but for those that compare with the mark.
    pub fn accept_head(disk: Arc<dyn Disk>, mark: Mark, options: Options) -> Result<Opened, Error> {
        let mut log = Log::read(disk, mark, options)?;
        log.forget_lost_buckets()?;
        log.disk.write(&[Change::remove(Space::Meta, row::VIEWS)])?;
        log.now.views = Arc::default();
        log.sweep_views(&[])?;
        // Reading sets the counter past that of both slots.
        log.mark.read()?;
        if let Some(marked) = log.marked() {
            log.mark.reset(marked)?;
            Ok(Opened::Existing(log))
        } else {
            log.mark.reset(Marked {
                store: StoreId(0),
                seq: Seq(0),
                chain: Chain::genesis(),
                beat: log.beat,
            })?;
            Ok(Opened::Fresh(log))
        }
    }

    /// Gives a fresh log its identity. It is stored with the first append.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the log has entries; else those of the disk and the mark.
    pub fn found(&mut self, store: StoreId) -> Result<(), Error> {
        if self.head() > Seq(0) {
            return Err(Error::Misuse("a log with entries is founded already".into()));
        }
        // Marked before anything can be acknowledged: from now on a lost mark means a lost mark.
        self.mark.read()?;
        self.mark.reset(Marked { store, seq: Seq(0), chain: Chain::genesis(), beat: self.beat })?;
        self.store = Some(store);
        self.founding = true;
        Ok(())
    }

    /// The store's id; `None` before it is founded.
    pub fn store(&self) -> Option<StoreId> {
        self.store
    }

    /// Appends a batch with all that belongs to it as one synced write, then moves the mark.
    ///
    /// # Errors
    /// [`Error::Misuse`] and [`Error::NoSpace`] if the batch is not fit to be written: nothing was, and the log
    /// goes on. After any other error the outcome is unknown, and every later append answers
    /// [`Error::Poisoned`]: open the store again.
    pub fn append(&mut self, pending: Pending) -> Result<(), Error> {
        if self.poisoned {
            return Err(Error::Poisoned);
        }
        let prepared = match self.prepare(pending).and_then(|prepared| {
            self.disk.write(&prepared.changes)?;
            Ok(prepared)
        }) {
            Ok(prepared) => prepared,
            Err(error) => {
                self.poisoned = !matches!(error, Error::NoSpace(_) | Error::Misuse(_));
                return Err(error);
            }
        };
        self.proved = true;
        let rolled = self.finish(prepared);
        if let Some(marked) = self.marked()
            && let Err(error) = self.mark.write(marked)
        {
            self.poisoned = true;
            return Err(error);
        }
        if let Some(old) = rolled {
            // Else its last memtable would pin journals until the process ends.
            for space in [Space::Log(old), Space::Body(old)] {
                if let Err(error) = self.disk.rotate(space) {
                    tracing::warn!(%space, %error, "could not flush a full bucket");
                }
            }
        }
        Ok(())
    }

    /// Makes another version of a view the one in use, durably. To switch together with rows, put it into
    /// [`Pending::views`].
    ///
    /// # Errors
    /// As [`Log::append`].
    pub fn set_view_version(&mut self, name: &'static str, version: u32) -> Result<(), Error> {
        self.append(Pending { views: vec![(name, version)], ..Pending::default() })
    }

    /// Proves every few seconds that the disk still takes writes: writes a row unless an append did so since
    /// the last call. Syncs the mark and looks at the free space.
    ///
    /// # Errors
    /// As [`Log::append`]; the log is poisoned afterwards.
    pub fn heartbeat(&mut self) -> Result<(), Error> {
        if self.poisoned {
            return Err(Error::Poisoned);
        }
        self.beat().inspect_err(|_| self.poisoned = true)
    }

    /// Makes the mark survive a power cut. Cheap; for once a second.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Full`]; the log is poisoned afterwards.
    pub fn sync_mark(&mut self) -> Result<(), Error> {
        self.mark.sync().inspect_err(|_| self.poisoned = true)
    }

    /// Whether there is enough free space to take in more, as of the last [`Log::heartbeat`]. What is needed to
    /// finish what was taken in may be appended in any case.
    pub fn has_room(&self) -> bool {
        self.free_bytes >= self.options.free_bytes_min
    }

    /// What is free on the disk, as of the last [`Log::heartbeat`].
    pub fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    /// Whether a write failed, so that no other will be taken.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    /// Keys written since it was opened.
    pub fn keys_written(&self) -> Written {
        self.written
    }

    /// The disk, for views that are made, loaded and dropped beside the log.
    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Drops every space of a view that is neither in use nor to be kept. Leaves the log alone.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn sweep_views(&self, keep: &[Space]) -> Result<(), Error> {
        let keep: Vec<_> = keep.iter().map(Space::to_string).collect();
        let used = |name: &str| {
            self.now.views.iter().any(|(view, version)| name == format!("view-{view}.v{version}"))
        };
        for name in self.disk.spaces() {
            if name.starts_with("view-") && !used(&name) && !keep.contains(&name) {
                self.disk.drop_named(&name)?;
            }
        }
        Ok(())
    }

    /// The state as it is now, for any thread. Take one after each append; do not keep one while idle.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        let Snapshot { head, last_at, chain, ref buckets, ref views, .. } = self.now;
        let (buckets, views) = (buckets.clone(), views.clone());
        Arc::new(Snapshot { read: self.disk.snapshot(), head, last_at, chain, buckets, views })
    }

    /// Reads of the newest state, for the writer itself.
    pub fn now(&self) -> &Snapshot {
        &self.now
    }

    /// The last entry; 0 if there is none.
    pub fn head(&self) -> Seq {
        self.now.head
    }

    /// When it happened.
    pub fn last_at(&self) -> Timestamp {
        self.now.last_at
    }

    /// As [`Snapshot::view_version`].
    pub fn view_version(&self, name: &str) -> Option<u32> {
        self.now.view_version(name)
    }

    /// As [`Snapshot::entry`].
    ///
    /// # Errors
    /// As there.
    pub fn entry(&self, seq: Seq) -> Result<Option<Entry>, Error> {
        self.now.entry(seq)
    }

    /// As [`Snapshot::entries`].
    ///
    /// # Errors
    /// As there.
    pub fn entries(&self, from: Seq, limit: usize) -> Result<Vec<Entry>, Error> {
        self.now.entries(from, limit)
    }

    /// As [`Snapshot::batch_at`].
    ///
    /// # Errors
    /// As there.
    pub fn batch_at(&self, seq: Seq) -> Result<Option<Record>, Error> {
        self.now.batch_at(seq)
    }

    /// As [`Snapshot::body`].
    ///
    /// # Errors
    /// As there.
    pub fn body(&self, slot: BodySlot) -> Result<Option<Body>, Error> {
        self.now.body(slot)
    }

    /// As [`Snapshot::get`].
    ///
    /// # Errors
    /// As there.
    pub fn get(&self, space: Space, key: &[u8]) -> Result<Option<Bytes>, Error> {
        self.now.get(space, key)
    }

    /// As [`Snapshot::range`].
    ///
    /// # Errors
    /// As there.
    pub fn range(
        &self,
        space: Space,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        order: Order,
        visit: &mut disk::Visit<'_>,
    ) -> Result<(), Error> {
        self.now.range(space, from, to, order, visit)
    }

    /// Flushes what is in memory, so that the next start is quick, and syncs the mark.
    ///
    /// # Errors
    /// Those of the disk and the mark; nothing acknowledged depends on it.
    pub fn close(mut self) -> Result<(), Error> {
        self.mark.sync()?;
        if self.poisoned { Ok(()) } else { self.disk.settle() }
    }

    fn read(disk: Arc<dyn Disk>, mark: Mark, options: Options) -> Result<Log, Error> {
        disk.ensure(Space::Meta)?;
        if let Some(format) = disk.get(Space::Meta, row::FORMAT)? {
            let format = format.as_ref().try_into().map(u32::from_be_bytes);
            let found = format.map_err(|_| Error::Damaged("the row `format` is no number".into()))?;
            if found > FORMAT {
                return Err(Error::NewerFormat { what: "store", found, known: FORMAT });
            }
        }
        let store = match disk.get(Space::Meta, row::STORE)? {
            None => None,
            Some(bytes) => match bytes.as_ref().try_into() {
                Ok(bytes) => Some(StoreId(u128::from_be_bytes(bytes))),
                Err(_) => return Err(Error::Damaged("the row `store` is no id".into())),
            },
        };
        let beat = match disk.get(Space::Meta, row::BEAT)? {
            None => 0,
            Some(bytes) => match bytes.as_ref().try_into() {
                Ok(bytes) => u64::from_be_bytes(bytes),
                Err(_) => return Err(Error::Damaged("the row `beat` is no number".into())),
            },
        };
        let buckets: Vec<Bucket> = table(&*disk, row::BUCKETS)?;
        let views: BTreeMap<String, u32> = table(&*disk, row::VIEWS)?;
        let now = Snapshot {
            read: disk.clone(),
            head: Seq(0),
            last_at: Timestamp(0),
            chain: Chain::genesis(),
            buckets: Arc::new(buckets),
            views: Arc::new(views),
        };
        let mut log = Log {
            disk,
            mark,
            options,
            now,
            store,
            founding: false,
            lost_buckets: false,
            bucket_bytes: 0,
            poisoned: false,
            free_bytes: u64::MAX,
            proved: false,
            beat,
            written: Written::default(),
        };
        log.find_head()?;
        log.look_for_room()?;
        Ok(log)
    }

    fn find_head(&mut self) -> Result<(), Error> {
        let Some(store) = self.store else { return self.expect_no_log() };
        for bucket in self.now.buckets.clone().iter().rev() {
            let record = match self.now.last_batch(*bucket) {
                // A bucket whose first batch was lost with its space; the mark will tell.
                Ok(None) | Err(Error::NoSpace(_)) => continue,
                Ok(Some(record)) => record,
                Err(error) => return Err(error),
            };
            let header = record.header();
            if header.store != store {
                return Err(Error::Damaged(format!("entry {} is of store {}", header.last, header.store)));
            }
            if !record.proves_itself() {
                return Err(Error::Damaged(format!("entry {} is not what was written", header.last)));
            }
            self.now.head = header.last;
            self.now.chain = header.chain;
            self.now.last_at = record.last_at()?;
            break;
        }
        // Buckets that were lost together with entries: what is appended next must not lie below their first.
        let next = self.head().next();
        let kept = self.now.buckets.partition_point(|bucket| bucket.first <= next);
        if kept < self.now.buckets.len() {
            self.now.buckets = Arc::new(self.now.buckets[..kept].to_vec());
            self.lost_buckets = true;
        }
        if let Some(newest) = self.now.buckets.last() {
            self.bucket_bytes =
                self.disk.space_bytes(Space::Log(newest.id)) + self.disk.space_bytes(Space::Body(newest.id));
        }
        Ok(())
    }

    fn forget_lost_buckets(&mut self) -> Result<(), Error> {
        if self.lost_buckets {
            let table = codec::encode(&*self.now.buckets);
            self.disk.write(&[Change::put(Space::Meta, row::BUCKETS, table)])?;
            self.lost_buckets = false;
        }
        Ok(())
    }

    /// A store without an id must be without batches: else `meta` was lost, and a second log would begin on
    /// top of the first.
    fn expect_no_log(&self) -> Result<(), Error> {
        for name in self.disk.spaces() {
            let Some(bucket) = name.strip_prefix("log.").and_then(|id| id.parse().ok()) else { continue };
            let mut empty = true;
            let space = Space::Log(bucket);
            self.disk.range(space, Bound::Unbounded, Bound::Unbounded, Order::Ascending, &mut |_, _| {
                empty = false;
                ControlFlow::Break(())
            })?;
            if !empty {
                return Err(Error::Damaged(format!("{name} holds entries, but the store has no id")));
            }
        }
        Ok(())
    }

    fn compare_with_mark(&mut self) -> Result<(), Error> {
        let log = self.head();
        let Some(marked) = self.mark.read()? else {
            return if log == Seq(0) { Ok(()) } else { Err(Error::NoMark { log }) };
        };
        if marked.seq > log {
            return Err(Error::BehindMark { log, mark: marked.seq });
        }
        match self.store {
            Some(store) if store != marked.store => {
                return Err(Error::ForeignMark { log: store, mark: marked.store });
            }
            _ => {}
        }
        // The log's own rows may have been flushed out of a journal that was cut; those of a heartbeat were not.
        if marked.beat > self.beat {
            return Err(Error::Cut { log });
        }
        if marked.seq == Seq(0) {
            return Ok(());
        }
        let header = self.now.batch_at(marked.seq)?.map(|record| *record.header());
        match header {
            Some(header) if header.last == marked.seq && header.chain == marked.chain => Ok(()),
            _ => Err(Error::ChainBroken { seq: marked.seq }),
        }
    }

    /// What the mark should say; `None` if there is no entry.
    fn marked(&self) -> Option<Marked> {
        let store = self.store?;
        (self.head() > Seq(0)).then_some(Marked {
            store,
            seq: self.head(),
            chain: self.now.chain,
            beat: self.beat,
        })
    }

    fn prepare(&self, pending: Pending) -> Result<Prepared, Error> {
        let misuse = |what: String| Err(Error::Misuse(what));
        let Pending { entries, bodies, changes: rows, views } = pending;
        let mut prepared =
            Prepared { changes: Vec::with_capacity(rows.len() + bodies.len() + 4), ..Prepared::default() };
        let mut bucket = self.now.buckets.last().copied();
        if let (Some(first), Some(last)) = (entries.first(), entries.last()) {
            let Some(store) = self.store else {
                return misuse("a log is founded before its first append".into());
            };
            if first.seq != self.head().next() {
                return misuse(format!("entry {} appended after {}", first.seq, self.head()));
            }
            let mut before = self.last_at();
            for entry in &entries {
                if entry.at < before {
                    return misuse(format!("entry {} happened before the one before it", entry.seq));
                }
                before = entry.at;
            }
            let record = Record::write(store, self.now.chain, &entries)?;
            let full = self.bucket_bytes >= self.options.bucket_bytes_max;
            let open = match bucket.filter(|_| !full && !self.founding) {
                Some(bucket) => bucket,
                None => {
                    let id = bucket.map_or(1, |bucket| bucket.id + 1);
                    let next = Bucket { id, first: first.seq, first_at: first.at };
                    self.begin(next, store, &mut prepared)?;
                    next
                }
            };
            bucket = Some(open);
            prepared.appended += record.bytes().len() as u64;
            let key = first.seq.0.to_be_bytes().to_vec();
            prepared.changes.push(Change::put(Space::Log(open.id), key, record.bytes().clone()));
            prepared.written.log += 1;
            prepared.head = Some((last.seq, last.at, record.header().chain));
        }
        for (slot, body) in bodies {
            let (Some(bucket), Some(first), Some(last)) = (bucket, entries.first(), entries.last()) else {
                return misuse("a body without its entry".into());
            };
            if !(first.seq..=last.seq).contains(&slot.seq()) {
                return misuse(format!("a body of entry {}, which is not in the batch", slot.seq()));
            }
            let stored = body.encode();
            prepared.appended += stored.len() as u64;
            prepared.changes.push(Change::put(Space::Body(bucket.id), slot.key().to_vec(), stored));
            prepared.written.body += 1;
        }
        if let Some(row) = rows.iter().find(|row| !matches!(row.space, Space::View { .. })) {
            return misuse(format!("a view's row in the space {}", row.space));
        }
        prepared.written.view += rows.len() as u64;
        prepared.changes.extend(rows);
        if !views.is_empty() {
            let mut table = BTreeMap::clone(&self.now.views);
            table.extend(views.iter().map(|(name, version)| ((*name).to_owned(), *version)));
            prepared.changes.push(Change::put(Space::Meta, row::VIEWS, codec::encode(&table)));
            prepared.written.meta += 1;
            prepared.views = Some(table);
        }
        Ok(prepared)
    }

    /// Makes a bucket's spaces; its row, and at the first the store's, ride in the batch.
    fn begin(&self, next: Bucket, store: StoreId, prepared: &mut Prepared) -> Result<(), Error> {
        self.disk.ensure(Space::Log(next.id))?;
        self.disk.ensure(Space::Body(next.id))?;
        let mut put = |key: &'static [u8], value: Vec<u8>| {
            prepared.changes.push(Change::put(Space::Meta, key, value));
            prepared.written.meta += 1;
        };
        let mut buckets = Vec::new();
        if self.founding {
            put(row::FORMAT, FORMAT.to_be_bytes().to_vec());
            put(row::STORE, store.to_bytes().to_vec());
        } else {
            buckets.extend_from_slice(&self.now.buckets);
        }
        buckets.push(next);
        put(row::BUCKETS, codec::encode(&buckets));
        prepared.buckets = Some(buckets);
        Ok(())
    }

    /// Takes over what was written. Answers the bucket that is full now, if one is.
    fn finish(&mut self, prepared: Prepared) -> Option<u32> {
        let Written { log, body, view, meta } = prepared.written;
        self.written.log += log;
        self.written.body += body;
        self.written.view += view;
        self.written.meta += meta;
        if let Some((head, at, chain)) = prepared.head {
            self.now.head = head;
            self.now.last_at = at;
            self.now.chain = chain;
        }
        if let Some(views) = prepared.views {
            self.now.views = Arc::new(views);
        }
        let mut rolled = None;
        if let Some(buckets) = prepared.buckets {
            rolled = self.now.buckets.last().map(|bucket| bucket.id);
            self.founding = false;
            self.now.buckets = Arc::new(buckets);
            self.bucket_bytes = 0;
        }
        self.bucket_bytes += prepared.appended;
        rolled
    }

    fn beat(&mut self) -> Result<(), Error> {
        if !self.proved {
            let beat = self.beat + 1;
            self.disk.write(&[Change::put(Space::Meta, row::BEAT, beat.to_be_bytes().to_vec())])?;
            self.beat = beat;
            self.written.meta += 1;
            if let Some(marked) = self.marked() {
                self.mark.write(marked)?;
            }
        }
        self.proved = false;
        self.mark.sync()?;
        self.look_for_room()
    }

    fn look_for_room(&mut self) -> Result<(), Error> {
        self.free_bytes = self.disk.free_bytes()?;
        Ok(())
    }
}

#[derive(Default)]
struct Prepared {
    changes: Vec<Change>,
    written: Written,
    /// Bytes of records and bodies.
    appended: u64,
    head: Option<(Seq, Timestamp, Chain)>,
    buckets: Option<Vec<Bucket>>,
    views: Option<BTreeMap<String, u32>>,
}

/// The database and the mark of a store's folder, for [`Log::open`] and [`Log::accept_head`].
///
/// # Errors
/// As [`FjallDisk::open`] and [`Mark::file`].
pub fn open_folder(folder: &Path, settings: fjall_disk::Settings) -> Result<(Arc<dyn Disk>, Mark), Error> {
    std::fs::create_dir_all(folder)?;
    // The database first: its lock guards the mark as well.
    let disk = FjallDisk::open(&folder.join(DATABASE_FOLDER), settings)?;
    let mark = Mark::file(folder)?;
    Ok((Arc::new(disk), mark))
}

fn table<T: serde::de::DeserializeOwned + Default>(disk: &dyn Disk, key: &[u8]) -> Result<T, Error> {
    disk.get(Space::Meta, key)?.map_or_else(|| Ok(T::default()), |bytes| codec::decode(&bytes))
}
