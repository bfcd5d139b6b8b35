//! One suite for the log on both of its disks: what fjall promises, the memory twin promises too.
//!
//! Faults that only the twin can play, and damage that only files can take, follow at the end.

use std::collections::BTreeMap;
use std::fs;
use std::ops::{Bound, ControlFlow};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use bytes::Bytes;
use hooklog::log::fjall_disk::Settings;
use hooklog::log::mark::MemoryMark;
use hooklog::log::memory::Fault;
use hooklog::log::{
    Body, BodySlot, Chain, Change, Damage, Disk, Error, FjallDisk, Log, Mark, Marked, MemoryDisk, Opened,
    Options, Order, Pending, Read, Record, Snapshot, Space, Verified, Watchdog, open_folder, verify_chain,
};
use hooklog_projections::fact::{Actor, Entry, Fact};
use hooklog_projections::ids::{AccountId, EndpointId, EndpointKey, Seq, StoreId};
use hooklog_projections::time::Timestamp;

const STORE: StoreId = StoreId(0x51);
/// One row per entry: seq → its time.
const ROWS: Space = Space::View { name: "rows", version: 1 };
/// One row: the log's head.
const TIP: Space = Space::View { name: "tip", version: 1 };

/// A store that can be closed, damaged and opened again.
enum Twin {
    Memory { disk: MemoryDisk, mark: MemoryMark },
    Fjall { folder: tempfile::TempDir },
}

impl Twin {
    fn memory() -> Twin {
        Twin::Memory { disk: MemoryDisk::new(), mark: MemoryMark::default() }
    }

    fn fjall() -> Twin {
        Twin::Fjall { folder: tempfile::tempdir().unwrap() }
    }

    /// Disk and mark as the next process finds them. Everything opened before must have been dropped.
    fn parts(&mut self) -> (Arc<dyn Disk>, Mark) {
        match self {
            Twin::Memory { disk, mark } => {
                *disk = disk.crash();
                *mark = mark.after_kill();
                (Arc::new(disk.clone()), Mark::memory(mark))
            }
            Twin::Fjall { folder } => open_folder(folder.path(), small()).unwrap(),
        }
    }

    fn open_with(&mut self, options: Options) -> Result<Opened, Error> {
        let (disk, mark) = self.parts();
        Log::open(disk, mark, options)
    }

    fn open(&mut self) -> Result<Opened, Error> {
        self.open_with(Options::default())
    }

    fn existing(&mut self) -> Log {
        match self.open().unwrap() {
            Opened::Existing(log) => log,
            Opened::Fresh(_) => panic!("the log is empty"),
        }
    }

    /// A founded log with its two views.
    fn founded(&mut self, options: Options) -> Log {
        let Opened::Fresh(mut log) = self.open_with(options).unwrap() else { panic!("not fresh") };
        log.found(STORE).unwrap();
        log.disk().ensure(ROWS).unwrap();
        log.disk().ensure(TIP).unwrap();
        log
    }

    /// The log as it is, its views built again.
    fn accepted(&mut self) -> Opened {
        let (disk, mark) = self.parts();
        let opened = Log::accept_head(disk, mark, Options::default()).unwrap();
        let (Opened::Fresh(log) | Opened::Existing(log)) = &opened;
        assert!(log.disk().spaces().iter().all(|name| !name.starts_with("view-")));
        log.disk().ensure(ROWS).unwrap();
        log.disk().ensure(TIP).unwrap();
        let mut rows = (1..=log.head().0).map(|seq| (key(seq).into(), Some(key(entry(seq).at.0).into())));
        log.disk().ingest(ROWS, &mut rows).unwrap();
        opened
    }

    fn lose_mark(&mut self) {
        match self {
            Twin::Memory { mark, .. } => mark.lose(),
            Twin::Fjall { folder } => fs::remove_file(folder.path().join("mark")).unwrap(),
        }
    }

    /// Alters rows behind the log's back.
    fn tamper(&mut self, changes: &[Change]) {
        self.parts().0.write(changes).unwrap();
    }
}

fn small() -> Settings {
    Settings { cache_bytes: 1 << 20, memtable_bytes: 256 << 10, view_memtable_bytes: 64 << 10 }
}

fn entry(seq: u64) -> Entry {
    let key = EndpointKey { account: AccountId(1), endpoint: EndpointId(2) };
    let fact = Fact::EndpointPaused { key, reason: format!("reason {seq}").into() };
    Entry { seq: Seq(seq), at: Timestamp(1000 + seq), actor: Actor::Cli, fact }
}

fn body(seq: u64) -> Body {
    Body { salt: [seq as u8; 16], bytes: Bytes::from(format!("body {seq}")) }
}

fn key(seq: u64) -> Vec<u8> {
    seq.to_be_bytes().to_vec()
}

/// The next `count` entries, each with a body and a row, and the row of the head.
fn next(log: &Log, count: u64) -> Pending {
    let first = log.head().0 + 1;
    let seqs = first..first + count;
    let mut changes: Vec<_> =
        seqs.clone().map(|seq| Change::put(ROWS, key(seq), key(entry(seq).at.0))).collect();
    changes.push(Change::put(TIP, &b"tip"[..], key(seqs.end - 1)));
    Pending {
        entries: seqs.clone().map(entry).collect(),
        bodies: seqs.map(|seq| (BodySlot::Event(Seq(seq)), body(seq))).collect(),
        changes,
        views: vec![],
    }
}

fn grow(log: &mut Log, batches: &[u64]) {
    for count in batches {
        log.append(next(log, *count)).unwrap();
    }
}

/// Walks the whole log, bodies and rows included.
fn verify(log: &Log) -> Result<Verified, Damage> {
    let check = &mut |snapshot: &Snapshot, found: &Entry| {
        let seq = found.seq.0;
        let read = |error: Error| error.to_string();
        if *found != entry(seq) {
            return Err("another entry".into());
        }
        if snapshot.body(BodySlot::Event(found.seq)).map_err(read)? != Some(body(seq)) {
            return Err("another body".into());
        }
        if snapshot.get(ROWS, &key(seq)).map_err(read)? != Some(key(found.at.0).into()) {
            return Err("another row".into());
        }
        Ok(())
    };
    let mut fresh = || log.snapshot();
    verify_chain(&mut fresh, Seq(1), Seq(u64::MAX), check, &mut |_| ControlFlow::Continue(()))
}

/// Walks a part of the log and nothing else.
fn verify_part(log: &Log, from: u64, to: u64) -> Result<Verified, Damage> {
    let check = &mut |_: &Snapshot, _: &Entry| Ok(());
    let go_on = &mut |_| ControlFlow::Continue(());
    verify_chain(&mut || log.snapshot(), Seq(from), Seq(to), check, go_on)
}

fn keys(read: &dyn Read, space: Space, from: Bound<&[u8]>, to: Bound<&[u8]>, order: Order) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let visit = &mut |key: &[u8], _: &[u8]| {
        keys.push(key.to_vec());
        ControlFlow::Continue(())
    };
    read.range(space, from, to, order, visit).unwrap();
    keys
}

/// Runs each story on both disks.
macro_rules! on_both {
    ($($story:ident)*) => {
        mod memory {
            $(#[test] fn $story() { super::$story(super::Twin::memory()) })*
        }
        mod fjall {
            $(#[test] fn $story() { super::$story(super::Twin::fjall()) })*
        }
    };
}

on_both! {
    what_was_appended_is_read_back
    one_batch_may_hold_rows_only
    a_snapshot_does_not_see_later_writes
    an_unfit_batch_is_refused_and_the_log_goes_on
    ranges_are_walked_both_ways_within_their_bounds
    a_log_is_found_again_as_it_was_left
    a_store_that_was_only_founded_is_fresh
    full_buckets_are_followed_by_new_ones
    a_log_that_ends_before_its_mark_is_refused
    a_log_without_its_mark_is_refused
    a_log_that_lost_a_whole_bucket_goes_on_once_accepted
    a_log_that_lost_everything_goes_on_once_accepted
    a_mark_of_another_log_is_refused
    a_lost_heartbeat_is_noticed
    a_store_without_its_meta_rows_is_refused
    damage_is_found_and_named
    a_newer_format_is_refused
    a_full_disk_is_not_opened
    a_heartbeat_writes_only_when_nothing_else_did
    rows_are_loaded_in_bulk_and_dropped_with_their_space
    a_view_is_switched_in_one_batch
    every_published_snapshot_is_whole
}

fn what_was_appended_is_read_back(mut twin: Twin) {
    let mut log = twin.founded(Options::default());
    grow(&mut log, &[1, 3, 2]);
    assert_eq!(log.head(), Seq(6));
    assert_eq!(log.last_at(), entry(6).at);
    let snapshot = log.snapshot();
    for seq in 1..=6 {
        assert_eq!(snapshot.entry(Seq(seq)).unwrap(), Some(entry(seq)));
        assert_eq!(log.entry(Seq(seq)).unwrap(), Some(entry(seq)));
        assert_eq!(snapshot.body(BodySlot::Event(Seq(seq))).unwrap(), Some(body(seq)));
        assert_eq!(snapshot.body(BodySlot::Response(Seq(seq))).unwrap(), None);
    }
    for seq in [0, 7, u64::MAX] {
        assert_eq!(snapshot.entry(Seq(seq)).unwrap(), None);
        assert_eq!(snapshot.body(BodySlot::Event(Seq(seq))).unwrap(), None);
        assert!(snapshot.entries(Seq(seq.max(7)), 9).unwrap().is_empty());
    }
    let batch = snapshot.batch_at(Seq(3)).unwrap().unwrap();
    assert_eq!((batch.header().first, batch.header().last), (Seq(2), Seq(4)));
    assert_eq!(batch.header().store, STORE);
    assert_eq!(snapshot.entries(Seq(3), 3).unwrap(), [entry(3), entry(4), entry(5)]);
    assert_eq!(snapshot.entries(Seq(0), 100).unwrap(), (1..=6).map(entry).collect::<Vec<_>>());
    assert_eq!(snapshot.entries(Seq(1), 0).unwrap(), []);
    assert_eq!(snapshot.get(TIP, b"tip").unwrap(), Some(key(6).into()));
    let written = log.keys_written();
    assert_eq!((written.log, written.body, written.view, written.meta), (3, 6, 9, 3));
    let verified = verify(&log).unwrap();
    assert_eq!((verified.entries, verified.batches, verified.last), (6, 3, Seq(6)));
    assert_eq!(verified.chain, snapshot.chain());
}

fn one_batch_may_hold_rows_only(mut twin: Twin) {
    let mut log = twin.founded(Options::default());
    grow(&mut log, &[2]);
    let row = Change::put(TIP, &b"other"[..], &b"x"[..]);
    log.append(Pending { changes: vec![row], ..Pending::default() }).unwrap();
    log.append(Pending { changes: vec![Change::remove(ROWS, key(1))], ..Pending::default() }).unwrap();
    assert_eq!(log.head(), Seq(2));
    drop(log);
    let log = twin.existing();
    assert_eq!(log.get(TIP, b"other").unwrap(), Some(Bytes::from_static(b"x")));
    assert_eq!(log.get(ROWS, &key(1)).unwrap(), None);
    assert_eq!(verify(&log).unwrap_err(), Damage { seq: Seq(1), what: "another row".into() });
}

fn a_snapshot_does_not_see_later_writes(mut twin: Twin) {
    let mut log = twin.founded(Options { bucket_bytes_max: 300, ..Options::default() });
    grow(&mut log, &[2]);
    let before = log.snapshot();
    grow(&mut log, &[2, 2, 2]);
    let change = Change::remove(ROWS, key(1));
    log.append(Pending { changes: vec![change], ..Pending::default() }).unwrap();
    assert_eq!(before.head(), Seq(2));
    assert_eq!(before.entries(Seq(1), 100).unwrap(), [entry(1), entry(2)]);
    assert_eq!(before.entry(Seq(3)).unwrap(), None);
    assert_eq!(before.body(BodySlot::Event(Seq(3))).unwrap(), None);
    assert_eq!(before.get(TIP, b"tip").unwrap(), Some(key(2).into()));
    assert_eq!(before.get(ROWS, &key(1)).unwrap(), Some(key(1001).into()));
    let mut rows = 0;
    let visit = &mut |_: &[u8], _: &[u8]| {
        rows += 1;
        ControlFlow::Continue(())
    };
    before.range(ROWS, Bound::Unbounded, Bound::Unbounded, Order::Ascending, visit).unwrap();
    assert_eq!(rows, 2);
    assert!(log.snapshot().buckets().len() > before.buckets().len());
    assert_eq!(log.snapshot().get(ROWS, &key(1)).unwrap(), None);
}

fn an_unfit_batch_is_refused_and_the_log_goes_on(mut twin: Twin) {
    let Opened::Fresh(mut log) = twin.open().unwrap() else { panic!("not fresh") };
    let only = |entries: Vec<Entry>| Pending { entries, ..Pending::default() };
    assert!(matches!(log.append(only(vec![entry(1)])), Err(Error::Misuse(_))), "not founded");
    log.found(STORE).unwrap();
    log.disk().ensure(ROWS).unwrap();
    log.disk().ensure(TIP).unwrap();
    grow(&mut log, &[1]);
    assert!(matches!(log.found(STORE), Err(Error::Misuse(_))), "founded twice");
    let early = Entry { at: Timestamp(1000), ..entry(2) };
    for pending in [
        only(vec![entry(3)]),
        only(vec![entry(1)]),
        only(vec![entry(2), entry(4)]),
        only(vec![early.clone()]),
        only(vec![entry(2), Entry { seq: Seq(3), ..early }]),
        Pending { bodies: vec![(BodySlot::Event(Seq(1)), body(1))], ..only(vec![entry(2)]) },
        Pending { bodies: vec![(BodySlot::Event(Seq(1)), body(1))], ..only(vec![]) },
        Pending { changes: vec![Change::remove(Space::Meta, key(1))], ..only(vec![entry(2)]) },
        Pending { changes: vec![Change::remove(Space::Log(1), key(1))], ..only(vec![]) },
        Pending { changes: vec![Change::put(ROWS, Bytes::new(), Bytes::new())], ..only(vec![entry(2)]) },
    ] {
        assert!(matches!(log.append(pending.clone()), Err(Error::Misuse(_))), "{pending:?}");
    }
    let nowhere = Change::remove(Space::View { name: "nowhere", version: 1 }, key(1));
    let pending = Pending { changes: vec![nowhere], ..only(vec![entry(2)]) };
    assert!(matches!(log.append(pending), Err(Error::NoSpace(_))));
    assert!(!log.is_poisoned());
    grow(&mut log, &[1]);
    assert_eq!(verify(&log).unwrap().entries, 2);
}

fn ranges_are_walked_both_ways_within_their_bounds(mut twin: Twin) {
    let disk = twin.parts().0;
    disk.ensure(ROWS).unwrap();
    let mut model = BTreeMap::new();
    for n in 0..200u8 {
        model.insert(vec![n / 2, n], ());
        disk.write(&[Change::put(ROWS, vec![n / 2, n], &b"v"[..])]).unwrap();
    }
    for n in (0..200u8).step_by(3) {
        model.remove(&vec![n / 2, n]);
        disk.write(&[Change::remove(ROWS, vec![n / 2, n])]).unwrap();
    }
    let snapshot = disk.snapshot();
    let ends: [&[u8]; 6] = [&[], &[0], &[7, 14], &[7, 15], &[99, 199], &[255]];
    let bounds: Vec<_> = ends
        .iter()
        .flat_map(|end| [Bound::Included(*end), Bound::Excluded(*end)])
        .chain([Bound::Unbounded])
        .collect();
    for from in &bounds {
        for to in &bounds {
            let above = |key: &[u8]| match from {
                Bound::Included(from) => key >= *from,
                Bound::Excluded(from) => key > *from,
                Bound::Unbounded => true,
            };
            let below = |key: &[u8]| match to {
                Bound::Included(to) => key <= *to,
                Bound::Excluded(to) => key < *to,
                Bound::Unbounded => true,
            };
            let mut expected: Vec<_> = model.keys().filter(|key| above(key) && below(key)).cloned().collect();
            for read in [&*disk as &dyn Read, &*snapshot] {
                assert_eq!(keys(read, ROWS, *from, *to, Order::Ascending), expected, "{from:?} {to:?}");
            }
            expected.reverse();
            assert_eq!(keys(&*snapshot, ROWS, *from, *to, Order::Descending), expected, "{from:?} {to:?}");
        }
    }
    let mut seen = 0;
    let visit = &mut |_: &[u8], _: &[u8]| {
        seen += 1;
        if seen == 5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    snapshot.range(ROWS, Bound::Unbounded, Bound::Unbounded, Order::Descending, visit).unwrap();
    assert_eq!(seen, 5);
}

fn a_log_is_found_again_as_it_was_left(mut twin: Twin) {
    let mut log = twin.founded(Options::default());
    log.set_view_version("rows", 1).unwrap();
    grow(&mut log, &[1, 4]);
    let chain = log.now().chain();
    drop(log);
    for settled in [false, true, false] {
        let log = twin.existing();
        assert_eq!((log.store(), log.head(), log.last_at()), (Some(STORE), Seq(5), entry(5).at));
        assert_eq!(log.now().chain(), chain);
        assert_eq!(log.view_version("rows"), Some(1));
        assert_eq!(log.view_version("tip"), None);
        assert_eq!(verify(&log).unwrap().entries, 5);
        if settled {
            log.close().unwrap();
        }
    }
    let mut log = twin.existing();
    grow(&mut log, &[3]);
    assert_eq!(verify(&log).unwrap().batches, 3);
}

fn a_store_that_was_only_founded_is_fresh(mut twin: Twin) {
    drop(twin.founded(Options::default()));
    let Opened::Fresh(mut log) = twin.open().unwrap() else { panic!("it has no entry") };
    log.found(StoreId(9)).unwrap();
    log.append(Pending { entries: vec![entry(1)], ..Pending::default() }).unwrap();
    drop(log);
    assert_eq!(twin.existing().store(), Some(StoreId(9)));
}

fn full_buckets_are_followed_by_new_ones(mut twin: Twin) {
    let options = Options { bucket_bytes_max: 2000, ..Options::default() };
    let mut log = twin.founded(options);
    for _ in 0..30 {
        grow(&mut log, &[2]);
    }
    let rows = log.keys_written().meta;
    let buckets = log.now().buckets().to_vec();
    assert!(buckets.len() > 3, "{buckets:?}");
    assert_eq!(rows, 2 + buckets.len() as u64, "one row for each roll");
    for (n, bucket) in buckets.iter().enumerate() {
        assert_eq!(bucket.id, n as u32 + 1);
        assert_eq!(bucket.first_at, entry(bucket.first.0).at);
        assert_eq!(log.batch_at(bucket.first).unwrap().unwrap().header().first, bucket.first);
    }
    assert_eq!(log.entries(Seq(2), 57).unwrap(), (2..=58).map(entry).collect::<Vec<_>>());
    assert_eq!(verify(&log).unwrap().entries, 60);
    drop(log);
    let Opened::Existing(mut log) = twin.open_with(options).unwrap() else { panic!("it has entries") };
    assert_eq!(log.now().buckets(), buckets);
    assert_eq!(log.head(), Seq(60));
    grow(&mut log, &[2; 20]);
    assert!(log.now().buckets().len() > buckets.len());
    assert_eq!(verify(&log).unwrap().entries, 100);
}

fn a_log_that_ends_before_its_mark_is_refused(mut twin: Twin) {
    let mut log = twin.founded(Options::default());
    grow(&mut log, &[1, 2, 2]);
    drop(log);
    twin.tamper(&[Change::remove(Space::Log(1), key(4))]);
    let error = twin.open().err().unwrap();
    assert!(matches!(error, Error::BehindMark { log: Seq(3), mark: Seq(5) }), "{error}");
    assert!(error.to_string().contains("restore") && error.to_string().contains("accept-head"), "{error}");
    assert!(twin.open().is_err(), "asking again changes nothing");

    let log = twin.accepted().into_log();
    assert_eq!(log.head(), Seq(3));
    drop(log);
    let mut log = twin.existing();
    grow(&mut log, &[4]);
    drop(log);
    assert_eq!(verify(&twin.existing()).unwrap().entries, 7);
}

fn a_log_without_its_mark_is_refused(mut twin: Twin) {
    let mut log = twin.founded(Options::default());
    grow(&mut log, &[1, 2]);
    drop(log);
    twin.lose_mark();
    let error = twin.open().err().unwrap();
    assert!(matches!(error, Error::NoMark { log: Seq(3) }), "{error}");
    drop(twin.accepted());
    assert_eq!(verify(&twin.existing()).unwrap().entries, 3);
}

fn a_log_that_lost_a_whole_bucket_goes_on_once_accepted(mut twin: Twin) {
    let mut log = twin.founded(Options { bucket_bytes_max: 600, ..Options::default() });
    grow(&mut log, &[2, 2, 2, 2, 2, 2]);
    let buckets = log.now().buckets().to_vec();
    assert!(buckets.len() >= 3);
    drop(log);
    // All batches from the second bucket's last-but-one entry on.
    let cut = buckets[1].first.0;
    let mut changes = Vec::new();
    for bucket in &buckets[1..] {
        changes.extend((cut..=12).map(|seq| Change::remove(Space::Log(bucket.id), key(seq))));
    }
    changes.push(Change::remove(Space::Log(1), key(cut - 2)));
    twin.tamper(&changes);
    assert!(matches!(twin.open(), Err(Error::BehindMark { .. })));
    drop(twin.accepted());
    let mut log = twin.existing();
    assert_eq!(log.head(), Seq(cut - 3));
    grow(&mut log, &[5, 5]);
    drop(log);
    let log = twin.existing();
    assert_eq!(verify(&log).unwrap().last, Seq(cut + 7));
}

fn a_log_that_lost_everything_goes_on_once_accepted(mut twin: Twin) {
    let mut log = twin.founded(Options::default());
    grow(&mut log, &[1]);
    drop(log);
    twin.tamper(&[Change::remove(Space::Log(1), key(1))]);
    assert!(matches!(twin.open(), Err(Error::BehindMark { log: Seq(0), mark: Seq(1) })));
    let Opened::Fresh(mut log) = twin.accepted() else { panic!("nothing is left") };
    log.found(StoreId(77)).unwrap();
    grow(&mut log, &[2, 1]);
    drop(log);
    let log = twin.existing();
    assert_eq!(log.store(), Some(StoreId(77)));
    assert_eq!(verify(&log).unwrap().entries, 3);
}

fn a_mark_of_another_log_is_refused(mut twin: Twin) {
    let mut log = twin.founded(Options::default());
    grow(&mut log, &[1, 2]);
    let chain = log.now().chain();
    drop(log);
    let good = Marked { store: STORE, seq: Seq(3), chain, beat: 0 };
    let open_marked = |twin: &mut Twin, marked: Marked| {
        let (disk, mut mark) = twin.parts();
        mark.read().unwrap();
        mark.reset(marked).unwrap();
        drop((disk, mark));
        twin.open()
    };
    let other = open_marked(&mut twin, Marked { store: StoreId(9), ..good });
    assert!(matches!(other, Err(Error::ForeignMark { log: STORE, mark: StoreId(9) })));
    let other = open_marked(&mut twin, Marked { chain: Chain::genesis(), ..good });
    assert!(matches!(other, Err(Error::ChainBroken { seq: Seq(3) })));
    let other = open_marked(&mut twin, Marked { seq: Seq(2), ..good });
    assert!(matches!(other, Err(Error::ChainBroken { seq: Seq(2) })), "no batch ends there");
    assert!(open_marked(&mut twin, good).is_ok());
}

fn a_lost_heartbeat_is_noticed(mut twin: Twin) {
    let mut log = twin.founded(Options::default());
    grow(&mut log, &[1, 2]);
    log.set_view_version("rows", 1).unwrap();
    for _ in 0..3 {
        log.heartbeat().unwrap();
    }
    drop(log);
    assert_eq!(twin.existing().view_version("rows"), Some(1));
    twin.tamper(&[Change::put(Space::Meta, &b"beat"[..], key(1))]);
    let error = twin.open().err().unwrap();
    assert!(matches!(error, Error::Cut { log: Seq(3) }), "{error}");
    let log = twin.accepted().into_log();
    assert_eq!(log.view_version("rows"), None);
    drop(log);
    assert_eq!(verify(&twin.existing()).unwrap().entries, 3);
}

fn a_store_without_its_meta_rows_is_refused(mut twin: Twin) {
    let mut log = twin.founded(Options::default());
    grow(&mut log, &[1]);
    drop(log);
    let gone = ["format", "store", "buckets"].map(|row| Change::remove(Space::Meta, row));
    twin.tamper(&gone);
    assert!(matches!(twin.open(), Err(Error::Damaged(_))));
}

fn damage_is_found_and_named(mut twin: Twin) {
    let mut log = twin.founded(Options::default());
    grow(&mut log, &[1, 2, 3, 2, 1]);
    let records: Vec<Record> = [1, 2, 4, 7, 9].map(|seq| log.batch_at(Seq(seq)).unwrap().unwrap()).to_vec();
    let put = |seq: u64, bytes: Vec<u8>| Change::put(Space::Log(1), key(seq), bytes);
    let restore: Vec<_> = records.iter().map(|r| put(r.header().first.0, r.bytes().to_vec())).collect();
    drop(log);

    let mut check = |what: &str, changes: &[Change], first_bad: u64| {
        let (disk, mark) = twin.parts();
        disk.write(changes).unwrap();
        let log = Log::open(disk, mark, Options::default()).unwrap().into_log();
        let damage = verify_part(&log, 1, u64::MAX).unwrap_err();
        assert_eq!(damage.seq, Seq(first_bad), "{what}: {damage}");
        log.disk().write(&restore).unwrap();
        assert_eq!(verify(&log).unwrap().entries, 9, "{what} was put right again");
    };
    for at in [0, 2, 30, 38, 46, 78, 110, 130, 150] {
        let mut bytes = records[2].bytes().to_vec();
        bytes[at] ^= 1;
        check(&format!("byte {at} of a record flipped"), &[put(4, bytes)], 4);
    }
    check("a record cut short", &[put(4, records[2].bytes()[..200].to_vec())], 4);
    check("a batch left out", &[Change::remove(Space::Log(1), key(4))], 4);
    let swapped = [put(2, records[3].bytes().to_vec()), put(7, records[1].bytes().to_vec())];
    check("two batches swapped", &swapped, 2);
    let forged = [entry(4), Entry { actor: Actor::Hooklog, ..entry(5) }, entry(6)];
    let forged = Record::write(STORE, records[1].header().chain, &forged).unwrap();
    check("a batch rewritten with its own chain", &[put(4, forged.bytes().to_vec())], 7);
    let early = [entry(4), Entry { at: Timestamp(1), ..entry(5) }, entry(6)];
    let early = Record::write(STORE, records[1].header().chain, &early).unwrap();
    check("a time that goes back", &[put(4, early.bytes().to_vec())], 5);
    let foreign = Record::write(StoreId(9), records[1].header().chain, &[entry(4), entry(5), entry(6)]);
    check("a batch of another store", &[put(4, foreign.unwrap().bytes().to_vec())], 4);

    let body_row = Change::put(Space::Body(1), BodySlot::Event(Seq(8)).key().to_vec(), body(1).encode());
    let (disk, mark) = twin.parts();
    disk.write(&[body_row]).unwrap();
    let log = Log::open(disk, mark, Options::default()).unwrap().into_log();
    assert_eq!(verify(&log).unwrap_err(), Damage { seq: Seq(8), what: "another body".into() });
    let part = |from, to| verify_part(&log, from, to).unwrap();
    assert_eq!((part(5, 6).entries, part(5, 6).last), (3, Seq(6)));
    assert_eq!(part(5, 100).entries, 6);
    assert_eq!(part(100, 200).entries, 0);
}

fn a_newer_format_is_refused(mut twin: Twin) {
    let mut log = twin.founded(Options::default());
    grow(&mut log, &[1]);
    drop(log);
    twin.tamper(&[Change::put(Space::Meta, &b"format"[..], 2u32.to_be_bytes().to_vec())]);
    let error = twin.open().err().unwrap();
    assert!(matches!(error, Error::NewerFormat { what: "store", found: 2, known: 1 }), "{error}");
}

fn a_full_disk_is_not_opened(mut twin: Twin) {
    let error = twin.open_with(Options { free_bytes_min: u64::MAX, ..Options::default() }).err().unwrap();
    assert!(matches!(error, Error::NoRoom { floor: u64::MAX, .. }), "{error}");
}

fn a_heartbeat_writes_only_when_nothing_else_did(mut twin: Twin) {
    let mut log = twin.founded(Options::default());
    grow(&mut log, &[1]);
    let before = log.keys_written();
    log.heartbeat().unwrap();
    assert_eq!(log.keys_written(), before);
    log.heartbeat().unwrap();
    log.heartbeat().unwrap();
    assert_eq!(log.keys_written().total(), before.total() + 2);
    assert_eq!(log.keys_written().meta, before.meta + 2);
    assert_eq!(log.head(), Seq(1));
    assert!(log.has_room());
    grow(&mut log, &[1]);
    drop(log);
    assert_eq!(verify(&twin.existing()).unwrap().entries, 2);
}

fn rows_are_loaded_in_bulk_and_dropped_with_their_space(mut twin: Twin) {
    let disk = twin.parts().0;
    let row = |n: u64, value: &'static str| (Bytes::from(key(n)), Some(Bytes::from_static(value.as_bytes())));
    assert!(matches!(disk.ingest(ROWS, &mut [row(1, "a")].into_iter()), Err(Error::NoSpace(_))));
    disk.ensure(ROWS).unwrap();
    disk.ensure(ROWS).unwrap();
    disk.write(&[Change::put(ROWS, key(2), &b"old"[..]), Change::put(ROWS, key(3), &b"old"[..])]).unwrap();
    let before = disk.snapshot();
    let gone = (Bytes::from(key(3)), None);
    disk.ingest(ROWS, &mut [row(1, "a"), row(2, "b"), gone, row(4, "d")].into_iter()).unwrap();
    disk.ingest(ROWS, &mut [row(4, "e")].into_iter()).unwrap();
    disk.ingest(ROWS, &mut std::iter::empty()).unwrap();
    let out_of_order = disk.ingest(ROWS, &mut [row(7, "a"), row(6, "b")].into_iter());
    assert!(matches!(out_of_order, Err(Error::Misuse(_))));
    let get = |read: &dyn Read, n: u64| read.get(ROWS, &key(n)).unwrap();
    let text = |text: &'static str| Some(Bytes::from_static(text.as_bytes()));
    drop(disk.snapshot());
    let after = disk.snapshot();
    let all = |read: &dyn Read| [1, 2, 3, 4, 6, 7].map(|n| get(read, n));
    assert_eq!(all(&*before), [None, text("old"), text("old"), None, None, None]);
    assert_eq!(all(&*after), [text("a"), text("b"), None, text("e"), None, None]);
    drop((before, after, disk));

    let disk = twin.parts().0;
    assert_eq!(all(&*disk), [text("a"), text("b"), None, text("e"), None, None]);
    let before = disk.snapshot();
    assert_eq!(disk.spaces(), ["view-rows.v1"]);
    disk.drop_space(ROWS).unwrap();
    disk.drop_space(ROWS).unwrap();
    assert_eq!(disk.spaces(), [""; 0]);
    assert_eq!(get(&*before, 2), text("b"), "a snapshot outlives the space");
    assert!(matches!(disk.get(ROWS, &key(2)), Err(Error::NoSpace(_))));
    assert!(matches!(disk.snapshot().get(ROWS, &key(2)), Err(Error::NoSpace(_))));
    assert!(matches!(disk.write(&[Change::remove(ROWS, key(2))]), Err(Error::NoSpace(_))));
    disk.ensure(ROWS).unwrap();
    assert_eq!(get(&*disk, 2), None, "the new one is empty");
    drop((before, disk));
    let disk = twin.parts().0;
    assert_eq!(disk.spaces(), ["view-rows.v1"]);
    assert_eq!(get(&*disk, 2), None);
}

fn a_view_is_switched_in_one_batch(mut twin: Twin) {
    const SECOND: Space = Space::View { name: "rows", version: 2 };
    let mut log = twin.founded(Options::default());
    grow(&mut log, &[1]);
    log.set_view_version("rows", 1).unwrap();
    log.set_view_version("tip", 1).unwrap();
    log.disk().ensure(SECOND).unwrap();
    log.disk().ingest(SECOND, &mut [(key(1).into(), Some(key(9).into()))].into_iter()).unwrap();
    log.disk().ensure(Space::View { name: "rows", version: 3 }).unwrap();
    let before = log.snapshot();
    let mut pending = next(&log, 1);
    pending.views.push(("rows", 2));
    pending.changes.push(Change::put(SECOND, key(2), key(8)));
    log.append(pending).unwrap();
    assert_eq!(before.view_version("rows"), Some(1));
    assert_eq!(log.snapshot().view_version("rows"), Some(2));
    drop((before, log));

    let log = twin.existing();
    assert_eq!(log.view_version("rows"), Some(2));
    assert_eq!(log.get(SECOND, &key(1)).unwrap(), Some(key(9).into()));
    assert_eq!(log.get(SECOND, &key(2)).unwrap(), Some(key(8).into()));
    log.sweep_views(&[Space::View { name: "rows", version: 3 }]).unwrap();
    let views: Vec<_> = log.disk().spaces().into_iter().filter(|name| name.starts_with("view-")).collect();
    assert_eq!(views, ["view-rows.v2", "view-rows.v3", "view-tip.v1"]);
}

/// Readers look at what the writer publishes between appends, while flushes and compactions go on: in every
/// snapshot the rows are exactly those of its log.
fn every_published_snapshot_is_whole(mut twin: Twin) {
    let mut log = twin.founded(Options { bucket_bytes_max: 1 << 20, ..Options::default() });
    let published = Mutex::new(log.snapshot());
    let done = AtomicBool::new(false);
    let looked = std::thread::scope(|scope| {
        let reader = || {
            let mut looked = 0u64;
            while !done.load(Ordering::Acquire) {
                let snapshot = published.lock().unwrap().clone();
                let head = snapshot.head();
                let tip = snapshot.get(TIP, b"tip").unwrap();
                assert_eq!(tip, (head > Seq(0)).then(|| key(head.0).into()), "at {head}");
                assert_eq!(snapshot.entry(head.next()).unwrap(), None);
                if head > Seq(0) {
                    assert_eq!(snapshot.entry(head).unwrap(), Some(entry(head.0)));
                    let body = snapshot.body(BodySlot::Event(head)).unwrap();
                    assert_eq!(body.map(|body| body.bytes.len()), Some(2000));
                    let mut last = None;
                    let visit = &mut |key: &[u8], _: &[u8]| {
                        last = Some(key.to_vec());
                        ControlFlow::Break(())
                    };
                    snapshot
                        .range(ROWS, Bound::Unbounded, Bound::Unbounded, Order::Descending, visit)
                        .unwrap();
                    assert_eq!(last, Some(key(head.0)));
                }
                looked += 1;
            }
            looked
        };
        let readers = [scope.spawn(reader), scope.spawn(reader)];
        for round in 0..3000u64 {
            let mut pending = next(&log, 1 + round % 3);
            for (n, (_, body)) in pending.bodies.iter_mut().enumerate() {
                let noise = (0..2000u64).map(|i| (i * i * 31 + round * 7 + n as u64) as u8);
                body.bytes = noise.collect();
            }
            log.append(pending).unwrap();
            *published.lock().unwrap() = log.snapshot();
        }
        done.store(true, Ordering::Release);
        readers.map(|reader| reader.join().unwrap())
    });
    assert!(looked.iter().all(|looked| *looked > 0));
    assert_eq!(log.head(), Seq(6000));
    assert!(log.now().buckets().len() > 5);
}

// Faults that only the memory twin can play.

fn memory_log(options: Options) -> (MemoryDisk, MemoryMark, Log) {
    let mut twin = Twin::memory();
    let mut log = twin.founded(options);
    grow(&mut log, &[1, 2]);
    let Twin::Memory { disk, mark } = twin else { unreachable!() };
    (disk, mark, log)
}

fn reopen(disk: &MemoryDisk, mark: &MemoryMark) -> Result<Log, Error> {
    Log::open(Arc::new(disk.crash()), Mark::memory(&mark.after_kill()), Options::default())
        .map(Opened::into_log)
}

#[test]
fn a_failed_write_ends_all_writing() {
    let (disk, mark, mut log) = memory_log(Options::default());
    disk.fail_next_write(Fault::Full);
    assert!(matches!(log.append(next(&log, 1)), Err(Error::Full)));
    assert!(log.is_poisoned());
    assert!(matches!(log.append(next(&log, 1)), Err(Error::Poisoned)));
    assert!(matches!(log.heartbeat(), Err(Error::Poisoned)));
    assert_eq!(log.head(), Seq(3));
    assert_eq!(verify(&log).unwrap().entries, 3, "reads go on");
    assert_eq!(verify(&reopen(&disk, &mark).unwrap()).unwrap().entries, 3);
}

#[test]
fn an_unknown_outcome_is_one_or_the_other() {
    for applied in [false, true] {
        let (disk, mark, mut log) = memory_log(Options::default());
        disk.fail_next_write(Fault::Unknown { applied });
        assert!(matches!(log.append(next(&log, 2)), Err(Error::Io(_))));
        assert!(matches!(log.append(next(&log, 2)), Err(Error::Poisoned)));
        assert_eq!(log.snapshot().get(TIP, b"tip").unwrap(), Some(key(3).into()));
        let mut log = reopen(&disk, &mark).unwrap();
        assert_eq!(log.head(), Seq(if applied { 5 } else { 3 }));
        grow(&mut log, &[1]);
        assert_eq!(verify(&log).unwrap().last, log.head());
    }
}

#[test]
fn a_heartbeat_finds_a_poisoned_disk() {
    let (disk, _, mut log) = memory_log(Options::default());
    log.heartbeat().unwrap();
    disk.poison();
    assert!(!log.is_poisoned());
    assert!(matches!(log.heartbeat(), Err(Error::Poisoned)));
    assert!(log.is_poisoned());
}

#[test]
fn room_is_looked_for_at_each_heartbeat() {
    let (disk, mark, mut log) = memory_log(Options { free_bytes_min: 1000, ..Options::default() });
    assert!(log.has_room());
    disk.set_free_bytes(999);
    assert!(log.has_room(), "not yet looked");
    log.heartbeat().unwrap();
    assert!(!log.has_room());
    grow(&mut log, &[1]);
    disk.set_free_bytes(1000);
    log.heartbeat().unwrap();
    assert!(log.has_room());
    disk.set_free_bytes(999);
    assert!(matches!(reopen(&disk, &mark), Err(Error::NoRoom { free: 999, .. })));
}

#[test]
fn a_commit_that_hangs_is_noticed() {
    let (disk, _, mut log) = memory_log(Options::default());
    let dog = Arc::new(Watchdog::default());
    disk.freeze();
    std::thread::scope(|scope| {
        let (began, begins) = mpsc::channel();
        let writer = scope.spawn({
            let dog = dog.clone();
            move || {
                dog.enter(100);
                began.send(()).unwrap();
                let outcome = log.append(next(&log, 1));
                dog.leave();
                outcome
            }
        });
        begins.recv().unwrap();
        assert_eq!(dog.stuck_for(10_100), Some(10_000));
        disk.thaw();
        writer.join().unwrap().unwrap();
        assert_eq!(dog.stuck_for(20_000), None);
    });
}

/// Every prefix of the log with every mark: a mark that lies behind or at the head is fine, one ahead is not.
#[test]
fn a_log_cut_short_at_any_batch_recovers_or_says_so() {
    let mut twin = Twin::memory();
    let mut log = twin.founded(Options { bucket_bytes_max: 1000, ..Options::default() });
    let Twin::Memory { disk, mark } = &twin else { unreachable!() };
    let mut states = vec![(0, disk.crash(), mark.after_kill())];
    for batch in 0..12 {
        grow(&mut log, &[1 + batch % 3]);
        states.push((log.head().0, disk.crash(), mark.after_kill()));
    }
    assert!(log.now().buckets().len() > 2);
    for (head, disk, _) in &states {
        for (marked, _, mark) in &states {
            match reopen(disk, mark) {
                Ok(mut log) => {
                    assert!(marked <= head);
                    assert_eq!(log.head(), Seq(*head));
                    assert_eq!(verify(&log).unwrap().entries, *head);
                    if *head == 0 {
                        log.found(STORE).unwrap();
                    }
                    grow(&mut log, &[2]);
                    assert_eq!(verify(&log).unwrap().entries, head + 2);
                }
                Err(Error::BehindMark { log: Seq(log), mark: Seq(mark) }) => {
                    assert_eq!((log, mark), (*head, *marked));
                    assert!(marked > head);
                }
                Err(other) => panic!("{head} entries, marked {marked}: {other}"),
            }
        }
    }
}

/// No snapshot is held for the whole of a long walk, and the caller may break it off.
#[test]
fn a_long_walk_takes_fresh_snapshots() {
    let mut log = Twin::memory().founded(Options::default());
    for _ in 0..100 {
        let first = log.head().0 + 1;
        let entries = (first..first + 450).map(entry).collect();
        log.append(Pending { entries, ..Pending::default() }).unwrap();
    }
    let walk = |stop_at: u64| {
        let (mut snapshots, mut heard) = (0, vec![]);
        let mut fresh = || {
            snapshots += 1;
            log.snapshot()
        };
        let mut progress = |seq: Seq| {
            heard.push(seq.0);
            if seq.0 < stop_at { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let check = &mut |_: &Snapshot, _: &Entry| Ok(());
        let found = verify_chain(&mut fresh, Seq(1), Seq(u64::MAX), check, &mut progress).unwrap();
        (found.entries, snapshots, heard)
    };
    let (entries, snapshots, heard) = walk(u64::MAX);
    assert_eq!((entries, &heard[..]), (45_000, &[20_250, 40_500, 45_000][..]));
    assert!(snapshots >= 3);
    assert_eq!(walk(1).0, 20_250);
}

/// A power cut may take the mark's last writes; a mark that lies behind is no reason to refuse.
#[test]
fn a_mark_behind_the_log_is_fine() {
    let (disk, mark, mut log) = memory_log(Options::default());
    log.sync_mark().unwrap();
    grow(&mut log, &[1, 1]);
    for mark in [mark.after_power_cut(), mark.after_kill()] {
        assert_eq!(reopen(&disk, &mark).unwrap().head(), Seq(5));
        mark.tear(0);
        assert_eq!(reopen(&disk, &mark).unwrap().head(), Seq(5));
    }
    mark.tear(0);
    mark.tear(1);
    assert!(matches!(reopen(&disk, &mark), Err(Error::NoMark { log: Seq(5) })));
}

// What only files can suffer.

#[test]
fn a_store_in_use_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, _mark) = open_folder(folder.path(), small()).unwrap();
    let second = open_folder(folder.path(), small());
    assert!(matches!(second, Err(Error::InUse)));
    drop((disk, second));
    assert!(open_folder(folder.path(), small()).is_ok());
}

/// The files of a folder as bytes; trailing zeros (a journal is allocated ahead) as a length.
struct Image(Vec<(PathBuf, Vec<u8>, u64)>);

impl Image {
    fn take(folder: &Path) -> Image {
        fn walk(root: &Path, folder: &Path, files: &mut Vec<(PathBuf, Vec<u8>, u64)>) {
            for item in fs::read_dir(folder).unwrap() {
                let path = item.unwrap().path();
                if path.is_dir() {
                    walk(root, &path, files);
                } else {
                    let mut bytes = fs::read(&path).unwrap();
                    let len = bytes.len() as u64;
                    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                    bytes.truncate(used);
                    files.push((path.strip_prefix(root).unwrap().to_owned(), bytes, len));
                }
            }
        }
        let mut files = Vec::new();
        walk(folder, folder, &mut files);
        files.sort();
        Image(files)
    }

    fn put(&self, folder: &Path) {
        for (path, bytes, len) in &self.0 {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, bytes).unwrap();
            fs::File::options().write(true).open(&path).unwrap().set_len(*len).unwrap();
        }
    }
}

/// What a process killed after each append leaves: all of it.
#[test]
fn a_killed_process_leaves_every_batch() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { bucket_bytes_max: 2000, ..Options::default() };
    let Opened::Fresh(mut log) = Log::open_folder(folder.path(), small(), options).unwrap() else {
        panic!("not fresh")
    };
    log.found(STORE).unwrap();
    log.disk().ensure(ROWS).unwrap();
    log.disk().ensure(TIP).unwrap();
    for batch in 0..10 {
        grow(&mut log, &[1 + batch % 4]);
        let copy = tempfile::tempdir().unwrap();
        Image::take(folder.path()).put(copy.path());
        let found = Log::open_folder(copy.path(), small(), options).unwrap().into_log();
        assert_eq!(found.head(), log.head());
        assert_eq!(verify(&found).unwrap().entries, log.head().0);
        assert_eq!(found.get(TIP, b"tip").unwrap(), Some(key(log.head().0).into()));
    }
}

/// A byte flipped anywhere is an error at opening, an error at reading, or harmless. Never is something
/// acknowledged gone from the log without a word.
///
/// One weakness is known and shows here: fjall's journal does not checksum a batch's own number, so that a bit
/// flipped there may leave a view with an older row. The log is immune (its keys are written once), and
/// comparing views with their log finds it.
#[test]
fn a_flipped_byte_is_never_a_silent_loss() {
    for settled in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { bucket_bytes_max: 8000, ..Options::default() };
        let mut log = Log::open_folder(folder.path(), small(), options).unwrap().into_log();
        log.found(STORE).unwrap();
        log.disk().ensure(ROWS).unwrap();
        log.disk().ensure(TIP).unwrap();
        log.set_view_version("rows", 1).unwrap();
        for batch in 0..40 {
            grow(&mut log, &[1 + batch % 5]);
        }
        log.heartbeat().unwrap();
        log.heartbeat().unwrap();
        assert!(log.now().buckets().len() > 1);
        if settled {
            log.close().unwrap();
        } else {
            drop(log);
        }
        let image = Image::take(folder.path());

        let mut outcomes: BTreeMap<&str, u32> = BTreeMap::new();
        for file in 0..image.0.len() {
            let name = image.0[file].0.to_string_lossy().into_owned();
            let used = image.0[file].1.len();
            let flips = used.min(if used > 10_000 { 48 } else { 4 });
            for n in 0..flips {
                let mut damaged = Image(image.0.clone());
                damaged.0[file].1[used * (2 * n + 1) / (2 * flips)] ^= 1 << (n % 8);
                let outcome = outcome_of(&damaged, options).unwrap_or_else(|lost| panic!("{name}: {lost}"));
                assert!(outcome != STALE || name.ends_with(".jnl"), "{name}: {outcome}");
                *outcomes.entry(outcome).or_default() += 1;
            }
        }
        println!("settled {settled}: {outcomes:?}");
        assert!(outcomes.len() > 1, "nothing was found: {outcomes:?}");
    }
}

const STALE: &str = "found by comparing views";

/// How the damage shows, or what was lost in silence.
fn outcome_of(image: &Image, options: Options) -> Result<&'static str, String> {
    let copy = tempfile::tempdir().unwrap();
    image.put(copy.path());
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let log = match Log::open_folder(copy.path(), small(), options) {
            Ok(Opened::Existing(log)) => log,
            Ok(Opened::Fresh(_)) => return Err("it opens as an empty store".into()),
            Err(Error::BehindMark { .. } | Error::Cut { .. }) => return Ok("found by the mark"),
            Err(_) => return Ok("refused"),
        };
        match verify(&log) {
            Ok(verified) if verified.last == Seq(120) => {}
            Ok(verified) => return Err(format!("it ends at {}", verified.last)),
            Err(damage) if damage.what == "another row" => return Ok(STALE),
            Err(damage) if damage.what.starts_with("another") => return Err(damage.to_string()),
            Err(_) => return Ok("found by verify"),
        }
        match log.get(TIP, b"tip") {
            Ok(tip) if tip == Some(key(120).into()) => Ok("harmless"),
            Ok(_) => Ok(STALE),
            Err(_) => Ok("found by reading"),
        }
    }));
    outcome.unwrap_or_else(|_| Err("it panicked".into()))
}

#[test]
fn the_database_alone_keeps_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let disk = FjallDisk::open(folder.path(), Settings::default()).unwrap();
    disk.ensure(ROWS).unwrap();
    disk.write(&[Change::put(ROWS, key(1), &b"x"[..])]).unwrap();
    disk.rotate(ROWS).unwrap();
    disk.settle().unwrap();
    assert!(disk.space_bytes(ROWS) > 0);
    assert!(disk.used_bytes().unwrap() >= disk.space_bytes(ROWS));
    assert!(disk.free_bytes().unwrap() > 0);
}

#[test]
fn spaces_made_after_a_drop_and_a_restart_stay() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let open = || FjallDisk::open(folder.path(), Settings::default()).unwrap();
    let all = |version| names.map(|name| Space::View { name, version });
    let disk = open();
    disk.ensure(Space::Meta).unwrap();
    disk.write(&[Change::put(Space::Meta, b"k".to_vec(), b"v".to_vec())]).unwrap();
    all(1).iter().for_each(|space| disk.ensure(*space).unwrap());
    all(1).iter().for_each(|space| disk.drop_space(*space).unwrap());
    drop(disk);
    let disk = open();
    all(2).iter().for_each(|space| disk.ensure(*space).unwrap());
    drop(disk);
    let spaces = open().spaces();
    for space in all(2) {
        assert!(spaces.contains(&space.to_string()), "{space} is gone: {spaces:?}");
    }
}
