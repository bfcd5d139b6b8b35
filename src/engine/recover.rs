//! The start: a log is founded or taken up again, what was in flight is due again, and the scheduler learns
//! where work waits.

use std::ops::Bound;
use std::sync::{Arc, RwLock};

use hooklog_projections::TABLES;
use hooklog_projections::counts::CountsTable;
use hooklog_projections::delivery::{Deliveries, InFlight as InFlightTable};
use hooklog_projections::fact::{Actor, Entry, Fact};
use hooklog_projections::identity::{self, Identity, StoreRow, TheStore};
use hooklog_projections::ids::{EndpointKey, Seq, StoreId};
use hooklog_projections::lane::Lanes;
use hooklog_projections::policy::ErrorClass;
use hooklog_projections::tables::{FOLDS_VERSION, Table, Tables};
use hooklog_projections::time::Timestamp;
use zeroize::Zeroizing;

use super::{Batch, Engine, Fatal, NO_LIMITS, ServerPolicy, limits, metrics};
use crate::clock::Chance;
use crate::ids::{IdCodec, drawn};
use crate::log::{self, Log, Opened, Pending, Space};
use crate::scheduler::Scheduler;
use crate::secrets::{self, MasterKey, Purpose};
use crate::views::query::Published;
use crate::views::rows::{Rows, Settled};
use crate::views::settled::{SETTLED_SPACE, settled_mark, settled_row};

/// Why the engine cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The log, or a decision.
    #[error(transparent)]
    Fatal(#[from] Fatal),
    /// The store's id key cannot be opened.
    #[error("the store cannot be read with this master key: {0}")]
    MasterKey(#[from] secrets::Error),
    /// The log does not begin as a log must.
    #[error("the store does not begin with its founding; restore it from a backup")]
    Unfounded,
    /// A re-sealing was begun and not ended.
    #[error(
        "the store is sealed under two master keys, for its re-sealing was cut short: run `hooklog store reseal` \
         again with the old key and the same new one"
    )]
    HalfResealed,
    /// The views were made by other folds.
    #[error(
        "the store's views were made by another version of Hooklog (folds {found}, this one has {FOLDS_VERSION}); \
         run `hooklog store rebuild` once"
    )]
    OtherFolds {
        /// Their version.
        found: u32,
    },
}

impl From<log::Error> for StartError {
    fn from(error: log::Error) -> StartError {
        StartError::Fatal(Fatal::Log(error))
    }
}

/// What the store is; its views must be of these folds.
pub(super) fn store_row(log: &Log) -> Result<StoreRow, StartError> {
    let folds = settled_row(log)?.ok_or(StartError::Unfounded)?.folds;
    if folds != FOLDS_VERSION {
        return Err(StartError::OtherFolds { found: folds });
    }
    let generation = log.view_version(Identity::NAME).ok_or(StartError::Unfounded)?;
    let mut rows = Rows::new(generation, Default::default());
    let row = rows.over(&**log.disk()).get::<Identity>(&TheStore)?;
    row.ok_or(StartError::Unfounded)
}

/// The codec of a store's public ids; proves the master key.
fn id_codec(row: &StoreRow, master: &MasterKey) -> Result<IdCodec, StartError> {
    let key = master.open(&Purpose::StoreIdKey { store: row.store }, &row.id_key)?;
    let key: [u8; 32] = key.as_slice().try_into().map_err(|_| StartError::Unfounded)?;
    Ok(IdCodec::new(key, 0))
}

impl Engine {
    /// Takes up a log, or founds it. Appends what the end of the last process left open.
    pub fn start(
        opened: Opened,
        master: &MasterKey,
        policy: ServerPolicy,
        now: Timestamp,
        chance: &mut dyn Chance,
    ) -> Result<Engine, StartError> {
        let log = match opened {
            Opened::Existing(log) => log,
            Opened::Fresh(log) => found(log, master, now, chance)?,
        };
        if store_row(&log)?.resealing.is_some() {
            return Err(StartError::HalfResealed);
        }
        let mut engine = Engine::take_up(log, master, policy, now)?;
        engine.release_interrupted()?;
        engine.find_backlog()?;
        engine.find_requests()?;
        Ok(engine)
    }

    /// Takes up a log as it is: nothing is appended, and nothing is sent.
    pub(super) fn take_up(
        log: Log,
        master: &MasterKey,
        policy: ServerPolicy,
        now: Timestamp,
    ) -> Result<Engine, StartError> {
        let ids = Arc::new(id_codec(&store_row(&log)?, master)?);
        let row = settled_row(&log)?.ok_or(StartError::Unfounded)?;
        let generation = log.view_version(TABLES[0].0).ok_or(StartError::Unfounded)?;
        let keep: Vec<_> = TABLES.map(|(name, _)| Space::View { name, version: generation }).into();
        log.sweep_views(&[keep, vec![SETTLED_SPACE]].concat())?;

        let settled = Arc::new(RwLock::new(Settled::new()));
        let mut rows = Rows::new(generation, settled.clone());
        let mut next = row.upto.next();
        while next <= log.head() {
            for entry in log.entries(next, 1000)? {
                hooklog_projections::fold_settled(&mut rows.over(&**log.disk()), &entry)?;
                next = entry.seq.next();
            }
        }
        let counts = rows.over(&**log.disk()).get::<CountsTable>(&None)?.unwrap_or_default();
        rows.committed();

        let published = Arc::new(Published::new(log.snapshot(), generation, settled, ids));
        Ok(Engine {
            scheduler: Scheduler::new(limits(&policy), now.max(log.last_at())),
            queues: Scheduler::new(NO_LIMITS, now.max(log.last_at())),
            leases: Default::default(),
            queues_first: false,
            now: now.max(log.last_at()),
            log,
            rows,
            published,
            policy,
            accounts: Default::default(),
            in_flight: Default::default(),
            alone: Default::default(),
            suspect_out: false,
            removed: Default::default(),
            requests: Default::default(),
            batch: Batch::default(),
            settled_at: row.upto,
            sending: false,
            accepting: true,
            counts,
            metrics: metrics(),
        })
    }

    /// What had a request out when the last process ended is due again: its outcome is unknown.
    fn release_interrupted(&mut self) -> Result<(), Fatal> {
        loop {
            let live = self.rows.over(&**self.log.disk());
            let rows = live.range::<InFlightTable>(Bound::Unbounded, Bound::Unbounded, 100)?;
            if rows.is_empty() {
                return Ok(());
            }
            tracing::info!(attempts = rows.len(), "attempts of the last process were interrupted");
            for (delivery, ()) in rows {
                let row = self.rows.over(&**self.log.disk()).get::<Deliveries>(&delivery)?;
                let Some(row) = row else {
                    let what = format!("delivery {} is in flight but missing", delivery.seq);
                    return Err(Fatal::Log(log::Error::Damaged(what)));
                };
                let endpoint = EndpointKey { account: delivery.account, endpoint: row.endpoint };
                let out = Engine::was_in_flight(delivery, endpoint);
                let queue = self.endpoint(endpoint)?.is_some_and(|row| row.settings.queue.is_some());
                let detail = match queue {
                    true => "the server stopped while a worker had it",
                    false => "the server stopped while the request was out",
                };
                self.uncounted(&out, ErrorClass::Interrupted, detail)?;
            }
            self.finish()?;
        }
    }

    fn find_backlog(&mut self) -> Result<(), Fatal> {
        let live = self.rows.over(&**self.log.disk());
        let lanes = live.range::<Lanes>(Bound::Unbounded, Bound::Unbounded, usize::MAX)?;
        self.scheduler = Scheduler::new(limits(&self.policy), self.now);
        self.queues = Scheduler::new(NO_LIMITS, self.now);
        let now = self.now;
        for (key, _) in lanes.into_iter().filter(|(_, lane)| lane.waiting > 0) {
            if self.endpoint(key)?.is_some_and(|endpoint| endpoint.removed()) {
                self.removed.insert(key);
            }
            let limits = self.lane_limits(key)?;
            self.lanes(key)?.handle_backlog(key, limits, now);
        }
        Ok(())
    }
}

/// The first entry of a new store, with all its spaces.
fn found(
    mut log: Log,
    master: &MasterKey,
    now: Timestamp,
    chance: &mut dyn Chance,
) -> Result<Log, log::Error> {
    let store = StoreId(drawn(now, chance));
    let (mut key, mut nonce) = (Zeroizing::new([0; 32]), [0; 24]);
    chance.fill(&mut key[..]);
    chance.fill(&mut nonce);
    let id_key = master.seal(&Purpose::StoreIdKey { store }, &key[..], nonce);
    log.found(store)?;
    for (name, _) in TABLES {
        log.disk().ensure(Space::View { name, version: 1 })?;
    }
    log.disk().ensure(SETTLED_SPACE)?;
    let entry = Entry { seq: Seq(1), at: now, actor: Actor::Hooklog, fact: Fact::Founded { store, id_key } };
    let mut rows = Rows::new(1, Default::default());
    identity::fold(&mut rows.over(&**log.disk()), &entry)?;
    let mut changes = rows.changes();
    changes.push(settled_mark(Seq(1)));
    log.append(Pending {
        entries: vec![entry],
        changes,
        views: TABLES.iter().map(|(name, _)| (*name, 1)).chain([("settled", 1)]).collect(),
        ..Pending::default()
    })?;
    Ok(log)
}
