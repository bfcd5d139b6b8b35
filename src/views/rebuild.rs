//! Making all views anew from the log, beside the live ones, and switching over in one batch.

use std::sync::Arc;

use hooklog_projections::ids::Seq;
use hooklog_projections::{FoldError, TABLES};

use super::rows::Rows;
use super::settled::{SETTLED_SPACE, settled_mark, settled_row};
use super::shadow::Shadow;
use crate::log::{self, Disk, Log, Pending, Snapshot};

/// Entries that the switch itself folds: few enough for one batch.
const LEFT_FOR_SWITCH: u64 = 1_000;

/// Why a rebuild did not come to its end. The live views are as they were.
pub type Error = FoldError<log::Error>;

/// Views that are ready to be switched to.
pub struct Rebuilt {
    shadow: Shadow,
    generation: u32,
}

/// Folds the log into a new generation of views, up to a little before its head. Runs on any thread while
/// the writer goes on; `fresh` yields new snapshots, `progress` hears (folded up to, head).
pub fn rebuild(
    disk: Arc<dyn Disk>,
    live_generation: u32,
    fresh: &mut dyn FnMut() -> Result<Arc<Snapshot>, log::Error>,
    progress: &mut dyn FnMut(Seq, Seq),
) -> Result<Rebuilt, Error> {
    let generation = live_generation + 1;
    let mut shadow = Shadow::begin(disk, generation).map_err(FoldError::Rows)?;
    shadow.catch_up(fresh, LEFT_FOR_SWITCH, progress)?;
    shadow.load().map_err(FoldError::Rows)?;
    Ok(Rebuilt { shadow, generation })
}

/// Folds the rest and makes the new generation the live one, in one batch; then drops the old one. Only the
/// writer calls it. Answers the live generation.
pub fn switch(log: &mut Log, rebuilt: Rebuilt) -> Result<u32, Error> {
    let Rebuilt { mut shadow, generation } = rebuilt;
    while shadow.upto() < log.head() {
        for entry in log.entries(shadow.upto().next(), 1_000).map_err(FoldError::Rows)? {
            shadow.fold(&entry)?;
        }
    }
    let mut changes = shadow.changes();
    changes.push(settled_mark(log.head()));
    log.disk().ensure(SETTLED_SPACE).map_err(FoldError::Rows)?;
    let views = TABLES.iter().map(|(name, _)| (*name, generation)).chain([("settled", 1)]).collect();
    let switched = log.append(Pending { changes, views, ..Pending::default() });
    switched.map_err(FoldError::Rows)?;
    Ok(generation)
}

/// Rebuilds a store that nothing else uses.
pub fn rebuild_stopped(log: &mut Log, progress: &mut dyn FnMut(Seq, Seq)) -> Result<(), Error> {
    let live = log.view_version(TABLES[0].0).unwrap_or(0);
    let snapshot = log.snapshot();
    let rebuilt = rebuild(log.disk().clone(), live, &mut || Ok(snapshot.clone()), progress)?;
    drop(snapshot);
    switch(log, rebuilt)?;
    log.sweep_views(&[]).map_err(FoldError::Rows)
}

/// Writes the settled tables of a store that nothing else uses, as its engine would at a stop.
pub fn settle_stopped(log: &mut Log) -> Result<(), Error> {
    let row = settled_row(log).map_err(FoldError::Rows)?;
    let (Some(row), Some(generation)) = (row, log.view_version(TABLES[0].0)) else { return Ok(()) };
    let mut rows = Rows::new(generation, Default::default());
    let mut next = row.upto.next();
    while next <= log.head() {
        for entry in log.entries(next, 1_000).map_err(FoldError::Rows)? {
            let mut live = rows.over(&**log.disk());
            hooklog_projections::fold_settled(&mut live, &entry).map_err(FoldError::Rows)?;
            next = entry.seq.next();
        }
    }
    let mut changes = rows.settling_changes();
    changes.push(settled_mark(log.head()));
    log.append(Pending { changes, ..Pending::default() }).map_err(FoldError::Rows)
}
