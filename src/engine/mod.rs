//! The one writer: every command and every outcome goes through it, in order, and becomes facts.
//!
//! A turn takes inputs, decides, appends one batch, and only then hands out answers and attempts. Each input
//! sees what those before it in the same turn did. No clock, network or thread in here but in [`driver`]:
//! the moment and the draws are arguments, the log is the only door. Never knows routes, pages or flags.

mod accept;
pub mod command;
pub mod courier;
pub mod driver;
mod endpoints;
pub mod handle;
mod outcome;
mod recover;
mod replay;
pub mod server_policy;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use hooklog_projections::FoldError;
use hooklog_projections::account::{Account, Accounts, Endpoint, Endpoints};
use hooklog_projections::delivery::{Deliveries, Due};
use hooklog_projections::fact::{Actor, Entry, Fact, Of, Sealed, SigningKey};
use hooklog_projections::ids::{AccountId, DeliveryKey, EndpointId, EndpointKey, EventId, Seq};
use hooklog_projections::lane::Lanes;
use hooklog_projections::lifecycle::{Delivery, Illegal, State};
use hooklog_projections::policy::Text;
use hooklog_projections::tables::{DueKey, Key, Tables};
use hooklog_projections::time::Timestamp;

use crate::clock::Chance;
use crate::delivery::Outcome;
use crate::log::{self, Body, BodySlot, Log, Pending};
use crate::scheduler::{DueEntry, DueSource, LaneLimits, Limits, Scheduler, Start};
use crate::views::query::Published;
use crate::views::rows::Rows;
use crate::views::settled::settled_mark;
pub use command::{Answer, Command, Enqueue, Rejection, Scope};
pub use recover::StartError;
pub use server_policy::ServerPolicy;

/// Entries after which a batch takes no further input (storage: group commit is saturated near 100).
pub const BATCH_ENTRIES: usize = 256;
/// Bytes after which a batch takes no further input.
pub const BATCH_BYTES: usize = 1 << 20;
/// Entries between two writings of the settled tables; bounds what a start folds again (about 20 ms).
pub const SETTLE_ENTRIES: u64 = 4096;
/// Accounts whose rows are kept in memory.
const ACCOUNTS_CACHED: usize = 10_000;
/// Interruptions after which a delivery is suspected of killing the process, and sent alone.
pub const INTERRUPTIONS_ALONE: u32 = 3;

/// Who waits for an answer; drawn by the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// What the engine is told.
#[derive(Debug)]
pub enum Input {
    /// Somebody wishes something.
    Command {
        /// Who waits.
        ticket: Ticket,
        /// Who wishes.
        actor: Actor,
        /// What.
        command: Command,
    },
    /// An attempt ended.
    Outcome {
        /// The delivery's position.
        delivery: Seq,
        /// How.
        outcome: Outcome,
    },
    /// An attempt was recorded, but its request did not leave: the server is stopping.
    NotSent {
        /// The delivery's position.
        delivery: Seq,
    },
}

/// An attempt to make, recorded already.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Which delivery.
    pub delivery: DeliveryKey,
    /// Where to.
    pub endpoint: EndpointKey,
    /// Counts every POST of the delivery, from 1.
    pub number: u32,
    /// From 1.
    pub run: u32,
    /// What.
    pub event: EventId,
    /// Where its body lies.
    pub accepted: Seq,
    /// The body and its content type, if the event came in this very turn; else it is read.
    pub fresh: Option<(Bytes, Text)>,
    /// The endpoint as it is now.
    pub target: Arc<Endpoint>,
    /// The keys that sign it, newest first.
    pub signing: Vec<SigningKey>,
    /// The account's webhook secret.
    pub account_secret: Sealed,
}

/// What a turn did, durable and published.
#[derive(Debug, Default)]
pub struct Turn {
    /// Who gets which answer.
    pub answers: Vec<(Ticket, Result<Answer, Rejection>)>,
    /// Attempts to make now.
    pub attempts: Vec<Attempt>,
    /// Entries appended.
    pub entries: usize,
    /// Deliveries died whose owner is to be told.
    pub owed: bool,
    /// There is more to start than fitted in: take another turn at once.
    pub more: bool,
}

/// The engine must stop. What it had answered is durable; what it had not is unknown to the asker.
#[derive(Debug, thiserror::Error)]
pub enum Fatal {
    /// The log cannot be read or written.
    #[error(transparent)]
    Log(#[from] log::Error),
    /// A decision contradicts the log: a fault in Hooklog. Nothing of it was written.
    #[error("a fault in Hooklog: {0}")]
    Illegal(#[from] Illegal),
}

impl From<FoldError<log::Error>> for Fatal {
    fn from(error: FoldError<log::Error>) -> Fatal {
        match error {
            FoldError::Illegal(illegal) => Fatal::Illegal(illegal),
            FoldError::Rows(error) => Fatal::Log(error),
        }
    }
}

/// The engine of one partition.
pub struct Engine {
    log: Log,
    rows: Rows,
    published: Arc<Published>,
    scheduler: Scheduler,
    policy: ServerPolicy,
    accounts: HashMap<AccountId, Arc<CachedAccount>>,
    in_flight: HashMap<Seq, InFlight>,
    /// Suspects that wait for everything else to end.
    alone: VecDeque<Start>,
    batch: Batch,
    now: Timestamp,
    settled_at: Seq,
    sending: bool,
    accepting: bool,
}

struct CachedAccount {
    row: Account,
    endpoints: BTreeMap<EndpointId, Arc<Endpoint>>,
}

/// A request that is out, as memory knows it.
struct InFlight {
    delivery: DeliveryKey,
    endpoint: EndpointKey,
    alone: bool,
}

#[derive(Default)]
struct Batch {
    entries: Vec<Entry>,
    bodies: Vec<(BodySlot, Body)>,
    bytes: usize,
    turn: Turn,
    settle: bool,
}

/// A decision: done, refused, or the end of the engine.
type Decision<T> = Result<Result<T, Rejection>, Fatal>;

impl Engine {
    /// Begins a turn at a moment; the engine's time never goes back.
    pub fn begin(&mut self, now: Timestamp) {
        self.now = now.max(self.log.last_at());
    }

    /// Whether the turn has room for another input.
    pub fn has_room(&self) -> bool {
        self.batch.entries.len() < BATCH_ENTRIES && self.batch.bytes < BATCH_BYTES
    }

    /// Takes one input into the turn.
    pub fn handle(&mut self, input: Input, chance: &mut dyn Chance) -> Result<(), Fatal> {
        match input {
            Input::Command { ticket, actor, command } => {
                let answer = self.decide(actor, command)?;
                self.batch.turn.answers.push((ticket, answer));
            }
            Input::Outcome { delivery, outcome } => self.handle_outcome(delivery, outcome, chance)?,
            Input::NotSent { delivery } => self.handle_not_sent(delivery)?,
        }
        Ok(())
    }

    /// Ends the turn: starts what is due, appends the batch, publishes it. After an error nothing of the
    /// turn may be answered but [`Rejection::OutcomeUnknown`], and the engine is of no more use.
    pub fn finish(&mut self) -> Result<Turn, Fatal> {
        self.start_due()?;
        self.batch.turn.entries = self.batch.entries.len();
        if !self.batch.entries.is_empty() || self.batch.settle {
            self.commit()?;
        }
        Ok(std::mem::take(&mut self.batch).turn)
    }

    /// When the next turn is needed, if nothing happens before.
    pub fn next_wake(&self) -> Option<Timestamp> {
        if self.sending { self.scheduler.next_wake() } else { None }
    }

    /// What readers see.
    pub fn published(&self) -> &Arc<Published> {
        &self.published
    }

    /// The log, for rebuilds, checks and the heartbeat; between turns only.
    pub fn log_mut(&mut self) -> &mut Log {
        &mut self.log
    }

    /// Requests out.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Starts or stops making attempts.
    pub fn set_sending(&mut self, sending: bool) {
        self.sending = sending;
    }

    /// Starts or stops taking events in.
    pub fn set_accepting(&mut self, accepting: bool) {
        self.accepting = accepting;
    }

    /// Makes the turn write the settled tables, so that what it publishes holds every row.
    pub fn settle(&mut self) {
        self.batch.settle = true;
    }

    fn decide(&mut self, actor: Actor, command: Command) -> Decision<Answer> {
        match command {
            Command::Enqueue(enqueue) => self.accept(actor, *enqueue),
            Command::CreateAccount { account, settings, secret } => {
                self.create_account(actor, account, settings, secret)
            }
            Command::ChangeAccount { account, settings } => self.change_account(actor, account, settings),
            Command::CreateEndpoint { key, settings, signing } => {
                self.create_endpoint(actor, key, settings, signing)
            }
            Command::ChangeEndpoint { key, version, settings, signing } => {
                self.change_endpoint(actor, key, version, settings, signing)
            }
            Command::PauseEndpoint { key, reason } => self.pause_endpoint(actor, key, reason),
            Command::DisableEndpoint { key, reason } => self.disable_endpoint(actor, key, reason),
            Command::ResumeEndpoint { key } => self.resume_endpoint(actor, key),
            Command::ReplayEvent { account, event, scope, reason } => {
                self.replay_event(actor, account, event, scope, reason)
            }
            Command::ReplayDelivery { delivery, scope, reason } => {
                self.replay_delivery(actor, delivery, scope, reason)
            }
            Command::RetryNow { delivery } => self.retry_now(actor, delivery),
            Command::Cancel { delivery, reason } => self.cancel(actor, delivery, reason),
            Command::OwnerTold { key, deliveries, channel } => {
                self.record(actor, Fact::OwnerTold { key, deliveries, channel })?;
                Ok(Ok(Answer::Done))
            }
        }
    }

    /// Adds a fact to the batch and folds it at once; its position.
    fn record(&mut self, actor: Actor, fact: Fact) -> Result<Seq, Fatal> {
        let seq = Seq(self.log.head().0 + self.batch.entries.len() as u64 + 1);
        let entry = Entry { seq, at: self.now, actor, fact };
        hooklog_projections::fold(&mut self.rows.over(&**self.log.disk()), &entry)?;
        match &entry.fact {
            Fact::AccountChanged { account, .. } => drop(self.accounts.remove(account)),
            Fact::EndpointCreated { key, .. }
            | Fact::EndpointChanged { key, .. }
            | Fact::EndpointPaused { key, .. }
            | Fact::EndpointDisabled { key, .. }
            | Fact::EndpointResumed { key } => drop(self.accounts.remove(&key.account)),
            Fact::Dead { tell_owner: true, .. } => self.batch.turn.owed = true,
            _ => {}
        }
        self.batch.entries.push(entry);
        Ok(seq)
    }

    fn commit(&mut self) -> Result<(), Fatal> {
        let last = Seq(self.log.head().0 + self.batch.entries.len() as u64);
        let settle = self.batch.settle || last.0 - self.settled_at.0 >= SETTLE_ENTRIES;
        let mut changes = self.rows.changes();
        if settle {
            changes.extend(self.rows.settling_changes());
            changes.push(settled_mark(last));
        }
        self.log.append(Pending {
            entries: std::mem::take(&mut self.batch.entries),
            bodies: std::mem::take(&mut self.batch.bodies),
            changes,
            views: Vec::new(),
        })?;
        self.rows.committed();
        self.published.publish(self.log.snapshot(), self.rows.generation());
        if settle {
            self.rows.settled();
            self.settled_at = last;
        }
        Ok(())
    }

    /// Records an attempt for each delivery that may start now, as far as the batch has room.
    fn start_due(&mut self) -> Result<(), Fatal> {
        if !self.sending {
            return Ok(());
        }
        while self.has_room() {
            if self.in_flight.values().any(|out| out.alone) {
                return Ok(());
            }
            let start = match self.alone.pop_front() {
                Some(start) if self.lane_limits(start.endpoint)?.held => {
                    // It was held meanwhile: it goes back and waits with the others.
                    self.scheduler.handle_ended(start.endpoint, self.now);
                    self.waits(start.endpoint, start.due_at, start.delivery)?;
                    continue;
                }
                Some(start) if self.in_flight.is_empty() => start,
                Some(start) => {
                    self.alone.push_front(start);
                    return Ok(());
                }
                None => {
                    let mut source = DueRows { rows: &mut self.rows, log: &self.log };
                    match self.scheduler.poll(self.now, &mut source)? {
                        Some(start) => start,
                        None => return Ok(()),
                    }
                }
            };
            self.start_one(start)?;
        }
        self.batch.turn.more = true;
        Ok(())
    }

    fn start_one(&mut self, start: Start) -> Result<(), Fatal> {
        let key = DeliveryKey { account: start.endpoint.account, seq: start.delivery };
        let row = self.delivery(key)?.filter(|row| row.state == State::Pending { due_at: start.due_at });
        let Some(row) = row else {
            // The scheduler's page was older than the log: what it knew is looked up again.
            tracing::error!(delivery = %start.delivery, "a due entry without a waiting delivery was skipped");
            self.scheduler.handle_ended(start.endpoint, self.now);
            return Ok(());
        };
        let alone = row.interruptions >= INTERRUPTIONS_ALONE;
        if alone && !self.in_flight.is_empty() {
            self.alone.push_back(start);
            return Ok(());
        }
        if alone {
            tracing::error!(
                event = %row.event, interruptions = row.interruptions,
                "the process died under this delivery again and again: it is sent alone"
            );
        }
        self.attempt(key, start.endpoint, &row, start.due_at, alone, None)
    }

    /// Records that a request is about to leave, and lines it up to do so once that is durable.
    fn attempt(
        &mut self,
        delivery: DeliveryKey,
        endpoint: EndpointKey,
        row: &Delivery,
        due_at: Timestamp,
        alone: bool,
        fresh: Option<(Bytes, Text)>,
    ) -> Result<(), Fatal> {
        let account = self.account(endpoint.account)?.expect("a delivery's account exists");
        let target = account.endpoints.get(&endpoint.endpoint).expect("a delivery's endpoint exists").clone();
        let now = self.now;
        let live = |key: &&SigningKey| key.expires_at.is_none_or(|end| now < end);
        let signing: Vec<_> = target.signing.iter().filter(live).cloned().collect();
        let (number, run) = (row.attempts + 1, row.run);
        self.record(
            Actor::Hooklog,
            Fact::Attempted {
                of: of(delivery, endpoint, row.latest),
                due_at,
                attempt: number,
                try_number: row.tries + 1,
                run,
                endpoint_version: target.version,
                signed_with: signing.iter().map(|key| key.id).collect(),
            },
        )?;
        self.in_flight.insert(delivery.seq, InFlight { delivery, endpoint, alone });
        self.batch.turn.attempts.push(Attempt {
            delivery,
            endpoint,
            number,
            run,
            event: row.event.clone(),
            accepted: row.accepted,
            fresh,
            target,
            signing,
            account_secret: account.row.secret.clone(),
        });
        Ok(())
    }

    /// An account with its endpoints, as this turn sees them.
    fn account(&mut self, account: AccountId) -> Result<Option<Arc<CachedAccount>>, Fatal> {
        if let Some(cached) = self.accounts.get(&account) {
            return Ok(Some(cached.clone()));
        }
        let mut live = self.rows.over(&**self.log.disk());
        let Some(row) = live.get::<Accounts>(&account)? else { return Ok(None) };
        let from = account.bytes();
        let to = [from.as_slice(), &[0xff; 16]].concat();
        let endpoints = live
            .range::<Endpoints>(Bound::Included(&from), Bound::Included(&to), usize::MAX)?
            .into_iter()
            .map(|(key, endpoint)| (key.endpoint, Arc::new(endpoint)))
            .collect();
        let cached = Arc::new(CachedAccount { row, endpoints });
        if self.accounts.len() >= ACCOUNTS_CACHED {
            self.accounts.clear();
        }
        self.accounts.insert(account, cached.clone());
        Ok(Some(cached))
    }

    fn endpoint(&mut self, key: EndpointKey) -> Result<Option<Arc<Endpoint>>, Fatal> {
        Ok(self.account(key.account)?.and_then(|account| account.endpoints.get(&key.endpoint).cloned()))
    }

    fn delivery(&mut self, key: DeliveryKey) -> Result<Option<Delivery>, Fatal> {
        Ok(self.rows.over(&**self.log.disk()).get::<Deliveries>(&key)?)
    }

    /// An endpoint's limits as the scheduler takes them.
    fn lane_limits(&mut self, key: EndpointKey) -> Result<LaneLimits, Fatal> {
        let lane = self.rows.over(&**self.log.disk()).get::<Lanes>(&key)?.unwrap_or_default();
        let endpoint = self.endpoint(key)?;
        Ok(LaneLimits {
            in_flight_max: endpoint.as_ref().map_or(1, |row| row.settings.in_flight_max),
            held: endpoint.is_none_or(|row| row.hold.is_some()),
            gate_until: lane.gate_until,
            slow: lane.timed_out,
        })
    }

    /// Tells the scheduler of a delivery that waits from now on.
    fn waits(&mut self, key: EndpointKey, due_at: Timestamp, delivery: Seq) -> Result<(), Fatal> {
        let limits = self.lane_limits(key)?;
        self.scheduler.handle_waiting(key, limits, (due_at, delivery), self.now);
        Ok(())
    }

    /// Tells the scheduler of an endpoint's limits as they are now.
    fn relimit(&mut self, key: EndpointKey) -> Result<(), Fatal> {
        let limits = self.lane_limits(key)?;
        self.scheduler.handle_limits(key, limits, self.now);
        Ok(())
    }
}

fn of(delivery: DeliveryKey, endpoint: EndpointKey, previous: Seq) -> Of {
    Of { account: delivery.account, endpoint: endpoint.endpoint, delivery: delivery.seq, previous }
}

/// The due view as the turn sees it.
struct DueRows<'a> {
    rows: &'a mut Rows,
    log: &'a Log,
}

impl DueSource for DueRows<'_> {
    type Error = log::Error;

    fn due_after(
        &mut self,
        endpoint: EndpointKey,
        after: DueEntry,
        limit: usize,
    ) -> Result<Vec<DueEntry>, log::Error> {
        let from = DueKey { endpoint, due_at: after.0, delivery: after.1 }.bytes();
        let to = [endpoint.bytes().as_slice(), &[0xff; 16]].concat();
        let live = self.rows.over(&**self.log.disk());
        let rows = live.range::<Due>(Bound::Excluded(&from), Bound::Included(&to), limit)?;
        Ok(rows.into_iter().map(|(key, ())| (key.due_at, key.delivery)).collect())
    }
}

fn limits(policy: &ServerPolicy) -> Limits {
    Limits { in_flight_max: policy.in_flight_max }
}

impl Engine {
    /// Makes rebuilt views the live ones. Between turns only.
    fn switch(
        &mut self,
        rebuilt: crate::views::rebuild::Rebuilt,
    ) -> Result<(), crate::views::rebuild::Error> {
        let generation = crate::views::rebuild::switch(&mut self.log, rebuilt)?;
        self.rows.switched(generation);
        self.published.publish(self.log.snapshot(), generation);
        self.rows.settled();
        self.settled_at = self.log.head();
        self.accounts.clear();
        if let Err(error) = self.log.sweep_views(&[]) {
            tracing::warn!(%error, "old views could not be dropped; the next start does it");
        }
        Ok(())
    }

    /// Publishes the same state in a new snapshot, so that the old one pins nothing while all is idle.
    fn republish(&self) {
        self.published.publish(self.log.snapshot(), self.rows.generation());
    }
}
