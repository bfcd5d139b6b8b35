//! Walks the log and proves that it is whole: dense, in order, one store, an unbroken chain.
//!
//! Proves nothing about views, and never knows what a fact means: bodies are checked by the caller, who does.

use std::ops::ControlFlow;
use std::sync::Arc;

use hooklog_projections::fact::Entry;
use hooklog_projections::ids::{Seq, StoreId};
use hooklog_projections::time::Timestamp;

use super::Error;
use super::batch::Record;
use super::chain::Chain;
use super::snapshot::{ENTRIES_MAX, Snapshot};

/// A log that is not whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("entry {seq}: {what}")]
pub struct Damage {
    /// The first entry that cannot be vouched for.
    pub seq: Seq,
    /// What is wrong with it.
    pub what: String,
}

/// What was found whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Entries.
    pub entries: u64,
    /// Batches.
    pub batches: u64,
    /// The last entry.
    pub last: Seq,
    /// The chain's value after it.
    pub chain: Chain,
}

/// Checks the batches that hold `from` to `to` (both included; clipped to the log), each against the one
/// before.
///
/// `fresh` yields a new snapshot every 20,000 entries, so that none is held for long. `check` sees every entry
/// and may find fault with it (a body that does not match its hash). `progress` hears the last entry found
/// whole after each stretch and may break off.
///
/// # Errors
/// The first [`Damage`]; a batch that cannot be read is damage too.
pub fn verify_chain(
    fresh: &mut dyn FnMut() -> Arc<Snapshot>,
    from: Seq,
    to: Seq,
    check: &mut dyn FnMut(&Snapshot, &Entry) -> Result<(), String>,
    progress: &mut dyn FnMut(Seq) -> ControlFlow<()>,
) -> Result<Verified, Damage> {
    let mut snapshot = fresh();
    let to = to.min(snapshot.head());
    let mut walk = Walk::start(&snapshot, from.max(Seq(1)))?;
    while walk.next <= to {
        let begun_at = walk.next;
        let mut damage = None;
        let walked = snapshot.records(walk.next, &mut |record| {
            if record.header().first > to {
                return ControlFlow::Break(());
            }
            match walk.step(&record, &mut |entry| check(&snapshot, entry)) {
                Err(found) => {
                    damage = Some(found);
                    ControlFlow::Break(())
                }
                Ok(()) if walk.next.0 - begun_at.0 >= ENTRIES_MAX as u64 => ControlFlow::Break(()),
                Ok(()) => ControlFlow::Continue(()),
            }
        });
        if let Some(damage) = damage {
            return Err(damage);
        }
        if let Err(error) = walked {
            return Err(walk.damage(error.to_string()));
        }
        if walk.next == begun_at {
            return Err(walk.damage("it is missing"));
        }
        if walk.found.last == snapshot.head() && walk.found.chain != snapshot.chain() {
            return Err(walk.damage("the log's head has another chain value"));
        }
        if progress(walk.found.last).is_break() {
            break;
        }
        snapshot = fresh();
    }
    Ok(walk.found)
}

struct Walk {
    /// The next entry to be seen.
    next: Seq,
    store: Option<StoreId>,
    at: Timestamp,
    found: Verified,
}

impl Walk {
    /// Stands before the batch that holds an entry, knowing the one before that.
    fn start(snapshot: &Snapshot, from: Seq) -> Result<Walk, Damage> {
        let mut walk = Walk {
            next: from,
            store: None,
            at: Timestamp(0),
            found: Verified { entries: 0, batches: 0, last: Seq(0), chain: Chain::genesis() },
        };
        if from > snapshot.head() {
            return Ok(walk);
        }
        let broken = |seq: Seq, error: Error| Damage { seq, what: error.to_string() };
        walk.next = match snapshot.batch_at(from).map_err(|error| broken(from, error))? {
            Some(record) => record.header().first,
            None => return Err(walk.damage("it is missing")),
        };
        if walk.next > Seq(1) {
            let before = Seq(walk.next.0 - 1);
            let record = snapshot.batch_at(before).map_err(|error| broken(before, error))?;
            let record = record.ok_or_else(|| Damage { seq: before, what: "it is missing".into() })?;
            walk.store = Some(record.header().store);
            walk.at = record.last_at().map_err(|error| broken(before, error))?;
            walk.found.last = before;
            walk.found.chain = record.header().chain;
        }
        Ok(walk)
    }

    fn step(
        &mut self,
        record: &Record,
        check: &mut dyn FnMut(&Entry) -> Result<(), String>,
    ) -> Result<(), Damage> {
        let header = record.header();
        if header.first != self.next {
            return Err(self.damage(format!("it is missing; the next batch begins at {}", header.first)));
        }
        if self.store.is_some_and(|store| store != header.store) {
            return Err(self.damage(format!("its batch is of another store, {}", header.store)));
        }
        if header.previous != self.found.chain {
            return Err(self.damage("its batch does not follow from the one before"));
        }
        if !record.proves_itself() {
            return Err(self.damage("its batch is not what was written"));
        }
        for (seq, entry) in (header.first.0..).map(Seq).zip(record.entries_from(header.first)) {
            let entry = entry.map_err(|error| Damage { seq, what: error.to_string() })?;
            if entry.at < self.at {
                return Err(Damage { seq, what: "it happened before the one before it".into() });
            }
            check(&entry).map_err(|what| Damage { seq, what })?;
            self.at = entry.at;
        }
        self.store = Some(header.store);
        self.next = header.last.next();
        self.found.entries += header.last.0 - header.first.0 + 1;
        self.found.batches += 1;
        self.found.last = header.last;
        self.found.chain = header.chain;
        Ok(())
    }

    fn damage(&self, what: impl Into<String>) -> Damage {
        Damage { seq: self.next, what: what.into() }
    }
}
