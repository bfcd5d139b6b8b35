//! The mark: a small file beside the database that says how far the log was acknowledged.
//!
//! A database whose journal is damaged may open without its last entries and say nothing; the mark says so.
//! Two slots are written in turn, so that a torn write leaves the other. Never knows entries; whether a log
//! and a mark agree is judged by [`Log`](super::Log).

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hooklog_projections::ids::{Seq, StoreId};
use sha2::{Digest, Sha256};

use super::Error;
use super::chain::Chain;

/// The name of the file in the store's folder.
pub const FILE: &str = "mark";

const SLOT_BYTES: usize = 128;
const MAGIC: &[u8; 8] = b"hooklog1";
/// The slots lie in different sectors and pages: one bad block spares the other.
const SLOT_AT: [u64; 2] = [0, 4096];
const SUM_BYTES: usize = 16;

type Slot = [u8; SLOT_BYTES];

/// How far the log was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marked {
    /// Whose log.
    pub store: StoreId,
    /// Its last acknowledged entry; 0 before the first.
    pub seq: Seq,
    /// The chain after it.
    pub chain: Chain,
    /// The last heartbeat that the database took.
    pub beat: u64,
}

/// The two slots, wherever they are kept.
#[derive(Debug)]
pub struct Mark {
    keep: Keep,
    /// Writes so far; the slot is its lowest bit.
    counter: u64,
    /// Whether something was written since the last sync.
    unsynced: bool,
}

#[derive(Debug)]
enum Keep {
    File(File),
    Memory(MemoryMark),
}

impl Mark {
    /// The mark of a store's folder; the file is made if there is none.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn file(folder: &Path) -> Result<Mark, Error> {
        let path = folder.join(FILE);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        File::open(folder)?.sync_all()?;
        Ok(Mark { keep: Keep::File(file), counter: 0, unsynced: false })
    }

    /// A mark in memory, for tests and simulation.
    pub fn memory(slots: &MemoryMark) -> Mark {
        Mark { keep: Keep::Memory(slots.clone()), counter: 0, unsynced: false }
    }

    /// The newest readable slot; `None` if neither can be read.
    ///
    /// # Errors
    /// [`Error::Io`]; a damaged slot is none.
    pub fn read(&mut self) -> Result<Option<Marked>, Error> {
        let mut newest = None;
        for slot in 0..2 {
            if let Some(bytes) = self.keep.read(slot)?
                && let Some((counter, marked)) = parse(&bytes)
                && newest.is_none_or(|(other, _)| counter > other)
            {
                newest = Some((counter, marked));
            }
        }
        if let Some((counter, _)) = newest {
            self.counter = counter;
        }
        Ok(newest.map(|(_, marked)| marked))
    }

    /// Overwrites the older slot. Survives the process; survives a power cut after [`Mark::sync`].
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Full`].
    pub fn write(&mut self, marked: Marked) -> Result<(), Error> {
        self.counter += 1;
        self.keep.write((self.counter & 1) as usize, &render(self.counter, marked))?;
        self.unsynced = true;
        Ok(())
    }

    /// Overwrites both slots and syncs: nothing remembers what was marked before.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Full`].
    pub fn reset(&mut self, marked: Marked) -> Result<(), Error> {
        self.write(marked)?;
        self.write(marked)?;
        self.sync()
    }

    /// Makes the last write durable; nothing to do if it is.
    ///
    /// # Errors
    /// [`Error::Io`], [`Error::Full`].
    pub fn sync(&mut self) -> Result<(), Error> {
        if self.unsynced {
            match &self.keep {
                Keep::File(file) => file.sync_data()?,
                Keep::Memory(slots) => slots.sync(),
            }
            self.unsynced = false;
        }
        Ok(())
    }
}

impl Keep {
    fn read(&self, slot: usize) -> Result<Option<Slot>, Error> {
        match self {
            Keep::File(file) => {
                let mut bytes = [0; SLOT_BYTES];
                match file.read_exact_at(&mut bytes, SLOT_AT[slot]) {
                    Ok(()) => Ok(Some(bytes)),
                    Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
                    Err(e) => Err(e.into()),
                }
            }
            Keep::Memory(slots) => Ok(slots.lock().now[slot]),
        }
    }

    fn write(&self, slot: usize, bytes: &Slot) -> Result<(), Error> {
        match self {
            Keep::File(file) => Ok(file.write_all_at(bytes, SLOT_AT[slot])?),
            Keep::Memory(slots) => {
                slots.lock().now[slot] = Some(*bytes);
                Ok(())
            }
        }
    }
}

/// The memory twin of the file: clones share their slots, as two opens of one file do.
#[derive(Clone, Debug, Default)]
pub struct MemoryMark(Arc<Mutex<Slots>>);

#[derive(Debug, Default)]
struct Slots {
    now: [Option<Slot>; 2],
    synced: [Option<Slot>; 2],
}

impl MemoryMark {
    /// What a killed process leaves: every write.
    pub fn after_kill(&self) -> MemoryMark {
        let now = self.lock().now;
        MemoryMark(Arc::new(Mutex::new(Slots { now, synced: now })))
    }

    /// What a power cut leaves at worst: only what was synced.
    pub fn after_power_cut(&self) -> MemoryMark {
        let synced = self.lock().synced;
        MemoryMark(Arc::new(Mutex::new(Slots { now: synced, synced })))
    }

    /// Loses the file.
    pub fn lose(&self) {
        *self.lock() = Slots::default();
    }

    /// Damages one slot (0 or 1), as a torn write does.
    pub fn tear(&self, slot: usize) {
        if let Some(bytes) = &mut self.lock().now[slot] {
            bytes[40] ^= 1;
        }
    }

    fn sync(&self) {
        let mut slots = self.lock();
        slots.synced = slots.now;
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// magic 8 ‖ counter 8 ‖ store 16 ‖ seq 8 ‖ chain 32 ‖ beat 8 ‖ zeros ‖ the first 16 bytes of SHA-256 over all before.
fn render(counter: u64, marked: Marked) -> Slot {
    let mut bytes = [0; SLOT_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..16].copy_from_slice(&counter.to_be_bytes());
    bytes[16..32].copy_from_slice(&marked.store.to_bytes());
    bytes[32..40].copy_from_slice(&marked.seq.0.to_be_bytes());
    bytes[40..72].copy_from_slice(&marked.chain.0);
    bytes[72..80].copy_from_slice(&marked.beat.to_be_bytes());
    let sum = sum(&bytes);
    bytes[SLOT_BYTES - SUM_BYTES..].copy_from_slice(&sum);
    bytes
}

fn parse(bytes: &Slot) -> Option<(u64, Marked)> {
    if &bytes[..8] != MAGIC || bytes[SLOT_BYTES - SUM_BYTES..] != sum(bytes) {
        return None;
    }
    let u64_at = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
    let store = StoreId(u128::from_be_bytes(bytes[16..32].try_into().expect("16 bytes")));
    let chain = Chain(bytes[40..72].try_into().expect("32 bytes"));
    Some((u64_at(8), Marked { store, seq: Seq(u64_at(32)), chain, beat: u64_at(72) }))
}

fn sum(bytes: &Slot) -> [u8; SUM_BYTES] {
    let digest: [u8; 32] = Sha256::digest(&bytes[..SLOT_BYTES - SUM_BYTES]).into();
    digest[..SUM_BYTES].try_into().expect("16 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(seq: u64) -> Marked {
        Marked { store: StoreId(7), seq: Seq(seq), chain: Chain::genesis().next(seq, &[]), beat: seq + 1 }
    }

    #[test]
    fn the_newest_slot_counts_even_if_it_lies_lower() {
        let folder = tempfile::tempdir().unwrap();
        let mut mark = Mark::file(folder.path()).unwrap();
        assert_eq!(mark.read().unwrap(), None);
        for seq in [1, 5, 9, 4] {
            mark.write(marked(seq)).unwrap();
            let mut again = Mark::file(folder.path()).unwrap();
            assert_eq!(again.read().unwrap(), Some(marked(seq)));
        }
        mark.sync().unwrap();
    }

    #[test]
    fn a_torn_slot_leaves_the_other() {
        let slots = MemoryMark::default();
        let mut mark = Mark::memory(&slots);
        mark.write(marked(1)).unwrap();
        mark.write(marked(2)).unwrap();
        slots.tear(0);
        assert_eq!(Mark::memory(&slots).read().unwrap(), Some(marked(1)));
        slots.tear(1);
        assert_eq!(Mark::memory(&slots).read().unwrap(), None);
    }

    #[test]
    fn any_flipped_bit_of_a_slot_is_seen() {
        let good = render(3, marked(3));
        assert_eq!(parse(&good), Some((3, marked(3))));
        for bit in 0..SLOT_BYTES * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse(&bad), None, "bit {bit}");
        }
    }

    #[test]
    fn a_power_cut_takes_what_was_not_synced() {
        let slots = MemoryMark::default();
        let mut mark = Mark::memory(&slots);
        mark.write(marked(1)).unwrap();
        mark.sync().unwrap();
        mark.write(marked(2)).unwrap();
        assert_eq!(Mark::memory(&slots.after_power_cut()).read().unwrap(), Some(marked(1)));
        assert_eq!(Mark::memory(&slots.after_kill()).read().unwrap(), Some(marked(2)));
    }
}
