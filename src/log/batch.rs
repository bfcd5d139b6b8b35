//! Log format v1: the record of one batch. A header, a table of offsets, the entries; every integer
//! big-endian. One entry is sliced out without decoding the others.
//!
//! | bytes | what |
//! | --- | --- |
//! | 0 | version, 1 |
//! | 1 | flags, 0 |
//! | 2–17 | store id |
//! | 18–21 | partition, 0 for now |
//! | 22–29 | epoch, 0 for now |
//! | 30–37 | first seq |
//! | 38–45 | last seq |
//! | 46–77 | chain before |
//! | 78–109 | chain after: over all the record's other bytes |
//! | 110– | one u32 per entry: where it ends, counted from the end of this table |
//! | | the entries: time, actor, fact (`codec`); the seq is the place |
//!
//! Pure. Never knows where a record is kept, nor what a fact means.

use std::ops::Range;

use bytes::Bytes;
use hooklog_projections::fact::{Actor, Entry, Fact};
use hooklog_projections::ids::{Seq, StoreId};
use hooklog_projections::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::Error;
use super::chain::Chain;
use super::codec;

/// The version of records written now.
pub const VERSION: u8 = 1;

/// Bytes before the table of offsets.
pub const HEADER_BYTES: usize = 110;

/// A record may not be larger: far above any real batch (1 MiB), far below what its u32 fields can hold.
pub const RECORD_BYTES_MAX: usize = 256 << 20;

const AFTER: Range<usize> = 78..110;
const OFFSET_BYTES: usize = 4;

/// What a record says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The store it was written for.
    pub store: StoreId,
    /// Always 0 for now.
    pub partition: u32,
    /// Always 0 for now.
    pub epoch: u64,
    /// Its first entry.
    pub first: Seq,
    /// Its last entry.
    pub last: Seq,
    /// The chain's value before it.
    pub previous: Chain,
    /// The chain's value after it.
    pub chain: Chain,
}

/// A record whose lengths have all been checked. Its chain and its entries have not.
#[derive(Clone, Debug)]
pub struct Record {
    header: Header,
    count: usize,
    bytes: Bytes,
}

/// An entry without its seq: that is its place.
#[derive(Serialize)]
struct StoredRef<'a> {
    at: Timestamp,
    actor: &'a Actor,
    fact: &'a Fact,
}

#[derive(Deserialize)]
struct Stored {
    at: Timestamp,
    actor: Actor,
    fact: Fact,
}

impl Record {
    /// Writes a batch. Its chain follows from `previous`.
    ///
    /// # Errors
    /// [`Error::Misuse`] if there is no entry, the seqs are not dense from at least 1, or the record would be
    /// larger than [`RECORD_BYTES_MAX`].
    pub fn write(store: StoreId, previous: Chain, entries: &[Entry]) -> Result<Record, Error> {
        let misuse = |what: &str| Err(Error::Misuse(format!("a batch {what}")));
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
            return misuse("has no entry");
        };
        let (first, last) = (first.seq, last.seq);
        if first.0 == 0 || entries.iter().zip(first.0..).any(|(entry, seq)| entry.seq.0 != seq) {
            return misuse("is not dense");
        }
        let mut out = Vec::with_capacity(HEADER_BYTES + entries.len() * 128);
        out.extend([VERSION, 0]);
        out.extend(store.to_bytes());
        out.extend(0u32.to_be_bytes());
        out.extend(0u64.to_be_bytes());
        out.extend(first.0.to_be_bytes());
        out.extend(last.0.to_be_bytes());
        out.extend(previous.0);
        out.resize(HEADER_BYTES + entries.len() * OFFSET_BYTES, 0);
        let data = out.len();
        for (n, entry) in entries.iter().enumerate() {
            let stored = StoredRef { at: entry.at, actor: &entry.actor, fact: &entry.fact };
            out.extend(codec::encode(&stored));
            if out.len() > RECORD_BYTES_MAX {
                return misuse("is too large");
            }
            let end = (out.len() - data) as u32;
            let slot = HEADER_BYTES + n * OFFSET_BYTES;
            out[slot..slot + OFFSET_BYTES].copy_from_slice(&end.to_be_bytes());
        }
        let chain = chain_after(previous, first, &out);
        out[AFTER].copy_from_slice(&chain.0);
        let header = Header { store, partition: 0, epoch: 0, first, last, previous, chain };
        Ok(Record { header, count: entries.len(), bytes: out.into() })
    }

    /// Reads a stored record and checks every length in it.
    ///
    /// # Errors
    /// [`Error::NewerFormat`] for a later version, [`Error::Damaged`] for anything that [`Record::write`] does
    /// not write.
    pub fn read(bytes: Bytes) -> Result<Record, Error> {
        let damaged = |what: &str| Err(Error::Damaged(format!("a log record {what}")));
        match bytes.first() {
            None => return damaged("is empty"),
            Some(0) => return damaged("has version 0"),
            Some(&VERSION) => {}
            Some(&found) => {
                return Err(Error::NewerFormat {
                    what: "log record",
                    found: found.into(),
                    known: VERSION.into(),
                });
            }
        }
        if bytes.len() < HEADER_BYTES {
            return damaged("is shorter than its header");
        }
        if bytes[1] != 0 {
            return damaged("has unknown flags");
        }
        let header = Header {
            store: StoreId(u128::from_be_bytes(array(&bytes, 2))),
            partition: u32::from_be_bytes(array(&bytes, 18)),
            epoch: u64::from_be_bytes(array(&bytes, 22)),
            first: Seq(u64::from_be_bytes(array(&bytes, 30))),
            last: Seq(u64::from_be_bytes(array(&bytes, 38))),
            previous: Chain(array(&bytes, 46)),
            chain: Chain(array(&bytes, AFTER.start)),
        };
        if header.first.0 == 0 || header.last < header.first {
            return damaged("has no sensible range of entries");
        }
        let room = (bytes.len() - HEADER_BYTES) / OFFSET_BYTES;
        let count = match usize::try_from(header.last.0 - header.first.0) {
            Ok(more) if more < room => more + 1,
            _ => return damaged("is shorter than its table"),
        };
        let record = Record { header, count, bytes };
        let mut before = 0;
        for n in 0..count {
            let end = record.end(n);
            if end <= before {
                return damaged("has a table that does not ascend");
            }
            before = end;
        }
        if record.data() + before != record.bytes.len() {
            return damaged("has another length than its table says");
        }
        Ok(record)
    }

    /// What it says of itself.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The bytes as stored.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Whether the chain value it carries follows from the one before and its bytes.
    pub fn proves_itself(&self) -> bool {
        chain_after(self.header.previous, self.header.first, &self.bytes) == self.header.chain
    }

    /// One entry, the others left alone. `None` if the batch does not hold it.
    ///
    /// # Errors
    /// Those of [`codec::decode`].
    pub fn entry(&self, seq: Seq) -> Result<Option<Entry>, Error> {
        if seq < self.header.first || seq > self.header.last {
            return Ok(None);
        }
        self.nth((seq.0 - self.header.first.0) as usize).map(Some)
    }

    /// All entries in order, from a seq on.
    pub fn entries_from(&self, from: Seq) -> impl Iterator<Item = Result<Entry, Error>> + '_ {
        let skip = from.0.saturating_sub(self.header.first.0).min(self.count as u64) as usize;
        (skip..self.count).map(|n| self.nth(n))
    }

    /// When its last entry happened.
    ///
    /// # Errors
    /// Those of [`codec::decode`].
    pub fn last_at(&self) -> Result<Timestamp, Error> {
        self.nth(self.count - 1).map(|entry| entry.at)
    }

    fn data(&self) -> usize {
        HEADER_BYTES + self.count * OFFSET_BYTES
    }

    fn end(&self, n: usize) -> usize {
        u32::from_be_bytes(array(&self.bytes, HEADER_BYTES + n * OFFSET_BYTES)) as usize
    }

    fn nth(&self, n: usize) -> Result<Entry, Error> {
        let from = if n == 0 { 0 } else { self.end(n - 1) };
        let slice = &self.bytes[self.data() + from..self.data() + self.end(n)];
        let Stored { at, actor, fact } = codec::decode(slice)?;
        Ok(Entry { seq: Seq(self.header.first.0 + n as u64), at, actor, fact })
    }
}

/// The chain after a record: numbered by its first seq, over its bytes but for the 32 that hold the result.
fn chain_after(previous: Chain, first: Seq, bytes: &[u8]) -> Chain {
    previous.next(first.0, &[&bytes[..AFTER.start], &bytes[AFTER.end..]])
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("the slice has N bytes")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use hooklog_projections::fact::Sealed;
    use hooklog_projections::ids::{AccountId, EndpointId, EndpointKey};
    use proptest::prelude::*;

    use super::super::golden;
    use super::*;

    fn entry(seq: u64, reason: &str) -> Entry {
        let key = EndpointKey { account: AccountId(1), endpoint: EndpointId(2) };
        let actor = match seq % 3 {
            0 => Actor::Hooklog,
            1 => Actor::Api("ci".into()),
            _ => Actor::Cli,
        };
        let fact = Fact::EndpointPaused { key, reason: reason.into() };
        Entry { seq: Seq(seq), at: Timestamp(1_760_000_000_000 + seq), actor, fact }
    }

    fn all(record: &Record) -> Vec<Entry> {
        record.entries_from(Seq(0)).collect::<Result<_, _>>().unwrap()
    }

    #[test]
    fn the_golden_record_is_written_and_read() {
        let store = StoreId(0x0191_0000_0000_7000_8000_0000_0000_0051);
        let founded = Fact::Founded { store, id_key: Sealed(vec![9; 72]) };
        let entries = [
            Entry { seq: Seq(1), at: Timestamp(1_760_000_000_000), actor: Actor::Cli, fact: founded },
            entry(2, "maintenance"),
            entry(3, ""),
            entry(4, "again"),
        ];
        let record = Record::write(store, Chain::genesis(), &entries).unwrap();
        let golden = golden::check(Path::new("batch"), record.bytes());
        let read = Record::read(golden.into()).unwrap();
        assert_eq!(read.header(), record.header());
        assert!(read.proves_itself());
        assert_eq!(all(&read), entries);
    }

    #[test]
    fn one_entry_is_read_though_its_neighbours_are_broken() {
        let entries = [entry(5, "one"), entry(6, "two"), entry(7, "three")];
        let record = Record::write(StoreId(1), Chain::genesis(), &entries).unwrap();
        let mut bytes = record.bytes().to_vec();
        let (data, end) = (record.data(), record.data() + record.end(0));
        bytes[data..end].fill(0xff);
        bytes[record.data() + record.end(1)..].fill(0xff);
        let broken = Record::read(bytes.into()).unwrap();
        assert_eq!(broken.entry(Seq(6)).unwrap(), Some(entry(6, "two")));
        assert!(broken.entry(Seq(5)).is_err());
        assert_eq!(broken.entry(Seq(8)).unwrap(), None);
        assert_eq!(broken.entry(Seq(4)).unwrap(), None);
        assert!(!broken.proves_itself());
    }

    #[test]
    fn only_dense_batches_are_written() {
        let write = |entries: &[Entry]| Record::write(StoreId(1), Chain::genesis(), entries);
        for entries in [vec![], vec![entry(0, "")], vec![entry(1, ""), entry(3, "")]] {
            assert!(matches!(write(&entries), Err(Error::Misuse(_))));
        }
    }

    #[test]
    fn a_later_version_is_named() {
        let record = Record::write(StoreId(1), Chain::genesis(), &[entry(1, "")]).unwrap();
        let mut bytes = record.bytes().to_vec();
        bytes[0] = 2;
        assert!(matches!(Record::read(bytes.into()), Err(Error::NewerFormat { found: 2, .. })));
    }

    /// Reads everything there is to read.
    fn exercise(bytes: Vec<u8>) -> Option<Record> {
        let record = Record::read(bytes.into()).ok()?;
        record.entries_from(Seq(0)).for_each(drop);
        let _ = record.last_at();
        let _ = record.entry(record.header().last);
        Some(record)
    }

    proptest! {
        #[test]
        fn roundtrip(
            first in 1u64..1 << 60,
            reasons in proptest::collection::vec(".{0,40}", 1..20),
            from in 0u64..30,
        ) {
            let entries: Vec<_> = reasons.iter().zip(first..).map(|(r, seq)| entry(seq, r)).collect();
            let previous = Chain::genesis().next(first, &[]);
            let record = Record::write(StoreId(9), previous, &entries).unwrap();
            let read = Record::read(record.bytes().clone()).unwrap();
            prop_assert_eq!(read.header(), record.header());
            prop_assert!(read.proves_itself());
            prop_assert_eq!(all(&read), entries.clone());
            prop_assert_eq!(read.last_at().unwrap(), entries.last().unwrap().at);
            for entry in &entries {
                prop_assert_eq!(read.entry(entry.seq).unwrap(), Some(entry.clone()));
            }
            let tail: Vec<_> = read.entries_from(Seq(first + from)).map(Result::unwrap).collect();
            prop_assert_eq!(&tail[..], &entries[entries.len().min(from as usize)..]);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            exercise(bytes);
        }

        #[test]
        fn no_damage_passes_unseen(at in any::<prop::sample::Index>(), bit in 0u8..8, cut in any::<bool>()) {
            let entries = [entry(1, "one"), entry(2, "two"), entry(3, "three")];
            let record = Record::write(StoreId(1), Chain::genesis(), &entries).unwrap();
            let mut bytes = record.bytes().to_vec();
            let at = at.index(bytes.len());
            if cut { bytes.truncate(at) } else { bytes[at] ^= 1 << bit }
            prop_assert!(exercise(bytes).is_none_or(|record| !record.proves_itself()));
        }
    }
}
