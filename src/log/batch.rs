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
