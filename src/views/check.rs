//! The check that views are exactly the log: a shadow is folded beside the live ones and compared with them,
//! range by range, while the writer goes on.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use bytes::Bytes;
use hooklog_projections::counts::{Counts, CountsTable};
use hooklog_projections::delivery::{Dead, Deliveries, Due, InFlight};
use hooklog_projections::fact::{BodyRef, Entry, Fact, Failure};
use hooklog_projections::ids::{AccountId, DeliveryKey, Seq};
use hooklog_projections::lifecycle::{Delivery, State, Status};
use hooklog_projections::tables::{Key, Table};
use hooklog_projections::{FoldError, TABLES};

use super::shadow::Shadow;
use crate::log::{self, BodySlot, Disk, Order, Snapshot, Space, codec, verify_chain};

/// The generation that checks fold into; never a live one.
const CHECK_GENERATION: u32 = u32::MAX;
/// Rows compared in one snapshot.
const RANGE_ROWS: usize = 10_000;
/// Findings after which a check stops looking for more.
const FINDINGS_MAX: usize = 100;

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Entries whose chain and bodies were proved.
    pub entries: u64,
    /// Rows compared with the shadow.
    pub rows: u64,
    /// What is wrong; empty if all is well.
    pub findings: Vec<String>,
}

impl Report {
    /// Whether the store is exactly what its log says.
    pub fn clean(&self) -> bool {
        self.findings.is_empty()
    }

    fn find(&mut self, finding: impl Into<String>) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding.into());
        }
    }
}

/// Proves chain, bodies, views and conservation.
///
/// `settled` yields a new published state whose settled tables are all on disk; `generation` is the live
/// views'. `progress` hears (stage, done, of).
///
/// # Errors
/// Those of a disk that cannot be read or written: then nothing is proved. All else is a finding.
pub fn check(
    disk: Arc<dyn Disk>,
    generation: u32,
    settled: &mut dyn FnMut() -> Result<Arc<Snapshot>, log::Error>,
    progress: &mut dyn FnMut(&'static str, u64, u64),
) -> Result<Report, log::Error> {
    let mut report = Report::default();
    check_chain(settled, &mut report, progress)?;
    if !report.clean() {
        return Ok(report);
    }
    let mut shadow = Shadow::begin(disk, CHECK_GENERATION)?;
    let result = check_views(&mut shadow, generation, settled, &mut report, progress);
    shadow.drop_spaces()?;
    match result {
        Ok(()) => {}
        Err(FoldError::Illegal(illegal)) => report.find(illegal.to_string()),
        Err(FoldError::Rows(error)) => return Err(error),
    }
    Ok(report)
}

fn check_chain(
    settled: &mut dyn FnMut() -> Result<Arc<Snapshot>, log::Error>,
    report: &mut Report,
    progress: &mut dyn FnMut(&'static str, u64, u64),
) -> Result<(), log::Error> {
    let first = settled()?;
    let head = first.head();
    let mut newest = first;
    let verified = verify_chain(
        &mut || {
            if let Ok(snapshot) = settled() {
                newest = snapshot;
            }
            newest.clone()
        },
        Seq(1),
        head,
        &mut check_bodies,
        &mut |at| {
            progress("chain", at.0, head.0);
            ControlFlow::Continue(())
        },
    );
    match verified {
        Ok(verified) => report.entries = verified.entries,
        Err(damage) => report.find(damage.to_string()),
    }
    Ok(())
}

fn check_bodies(snapshot: &Snapshot, entry: &Entry) -> Result<(), String> {
    let (slot, named): (BodySlot, &BodyRef) = match &entry.fact {
        Fact::Accepted { body, .. } => (BodySlot::Event(entry.seq), body),
        Fact::Delivered { response, .. } | Fact::Failed { failure: Failure::Answered(response), .. } => {
            match &response.body {
                Some(body) => (BodySlot::Response(entry.seq), body),
                None => return Ok(()),
            }
        }
        _ => return Ok(()),
    };
    let what = match slot {
        BodySlot::Event(_) => "the event's body",
        BodySlot::Response(_) => "the response's body",
    };
    match snapshot.body(slot) {
        Err(error) => Err(format!("{what} cannot be read: {error}")),
        Ok(None) => Err(format!("{what} is missing")),
        Ok(Some(body)) if body.hash() != named.hash || body.bytes.len() as u64 != u64::from(named.len) => {
            Err(format!("{what} is not the one that was recorded"))
        }
        Ok(Some(_)) => Ok(()),
    }
}

fn check_views(
    shadow: &mut Shadow,
    generation: u32,
    settled: &mut dyn FnMut() -> Result<Arc<Snapshot>, log::Error>,
    report: &mut Report,
    progress: &mut dyn FnMut(&'static str, u64, u64),
) -> Result<(), FoldError<log::Error>> {
    shadow.catch_up(settled, 0, &mut |at, head| progress("fold", at.0, head.0))?;
    shadow.load().map_err(FoldError::Rows)?;
    recount(shadow, report).map_err(FoldError::Rows)?;
    for (n, (name, _)) in TABLES.into_iter().enumerate() {
        progress("compare", n as u64, TABLES.len() as u64);
        let mut from: Option<Bytes> = None;
        loop {
            // The writer went on meanwhile: the shadow follows to the very state that is compared.
            let snapshot = settled().map_err(FoldError::Rows)?;
            let fixed = snapshot.clone();
            shadow.catch_up(&mut || Ok(fixed.clone()), 0, &mut |_, _| {})?;
            from = compare(shadow, &snapshot, name, generation, from, report).map_err(FoldError::Rows)?;
            if from.is_none() || report.findings.len() >= FINDINGS_MAX {
                break;
            }
        }
    }
    Ok(())
}

/// Compares one range of a table; where the next begins (exclusive), if there is one.
fn compare(
    shadow: &Shadow,
    snapshot: &Snapshot,
    name: &'static str,
    generation: u32,
    from: Option<Bytes>,
    report: &mut Report,
) -> Result<Option<Bytes>, log::Error> {
    let from = from.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    let mut live: BTreeMap<Bytes, Bytes> = BTreeMap::new();
    let space = Space::View { name, version: generation };
    snapshot.range(space, from, Bound::Unbounded, Order::Ascending, &mut |key, value| {
        live.insert(Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
        if live.len() < RANGE_ROWS { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    let end = if live.len() < RANGE_ROWS { None } else { live.keys().next_back().cloned() };
    let to = end.as_deref().map_or(Bound::Unbounded, Bound::Included);
    let folded = shadow.rows(name, from, to)?;
    report.rows += folded.len() as u64;
    for (key, value) in &folded {
        match live.remove(key) {
            Some(found) if found == value => {}
            Some(_) => report.find(format!("view {name}: the row {} is not what the log says", hex(key))),
            None => report.find(format!("view {name}: the row {} is missing", hex(key))),
        }
    }
    for key in live.keys() {
        report.find(format!("view {name}: the row {} should not be there", hex(key)));
    }
    Ok(end)
}

/// Counts the deliveries one by one and compares: with the counts, and with the lists cut from them.
fn recount(shadow: &Shadow, report: &mut Report) -> Result<(), log::Error> {
    let mut counted: BTreeMap<Option<AccountId>, Counts> = BTreeMap::new();
    shadow.walk(Deliveries::NAME, &mut |key, value| {
        let delivery: Delivery = codec::decode(value)?;
        if let State::Deciding { .. } = delivery.state {
            report.find(format!("delivery {} was left between two facts", hex(key)));
        }
        let account = DeliveryKey::read(key).map(|key| key.account);
        for key in [None, account] {
            counted.entry(key).or_default().add(delivery.state.status());
        }
        Ok(())
    })?;
    let total = counted.get(&None).copied().unwrap_or_default();
    let lists =
        [(Due::NAME, Status::Pending), (InFlight::NAME, Status::InFlight), (Dead::NAME, Status::Dead)];
    for (name, status) in lists {
        let mut rows = 0;
        shadow.walk(name, &mut |_, _| {
            rows += 1;
            Ok(())
        })?;
        if rows != total.of(status) {
            let (deliveries, status) = (total.of(status), status.as_str());
            report.find(format!("{rows} rows in the view {name}, but {deliveries} deliveries are {status}"));
        }
    }
    shadow.walk(CountsTable::NAME, &mut |key, value| {
        let counts: Counts = codec::decode(value)?;
        let account = Option::<AccountId>::read(key).flatten();
        let found = counted.remove(&account).unwrap_or_default();
        let who = account.map_or("the store".to_owned(), |account| account.to_string());
        if !counts.conserved() {
            report.find(format!("{who}: deliveries are not conserved: {counts:?}"));
        }
        if (Counts { accepted: counts.accepted, ..found }) != counts {
            report.find(format!("{who}: counted {found:?}, but the view says {counts:?}"));
        }
        Ok(())
    })?;
    for account in counted.into_keys().flatten() {
        report.find(format!("{account}: has deliveries, but no counts"));
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
