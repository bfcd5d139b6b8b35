//! The one writer: every command and every outcome goes through it, in order, and becomes facts.
//!
//! A turn takes inputs, decides, appends one batch, and only then hands out answers and attempts. Each input
//! sees what those before it in the same turn did. No clock, network or thread in here but in [`driver`]:
//! the moment and the draws are arguments, the log is the only door. Never knows routes, pages or flags.

mod accept;
mod access;
mod attempt;
mod bulk;
pub mod command;
pub mod courier;
pub mod driver;
mod endpoints;
pub mod handle;
pub mod health;
pub mod leases;
mod outcome;
mod queues;
mod recover;
mod replay;
pub mod requests;
mod reseal;
pub mod server_policy;
mod telling;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use hooklog_projections::account::{Account, Accounts, Endpoint, Endpoints};
use hooklog_projections::answer::RequestHash;
use hooklog_projections::counts::{Counts, CountsTable};
use hooklog_projections::delivery::Deliveries;
use hooklog_projections::fact::{Actor, Entry, Fact, Of, Sealed, SigningKey};
use hooklog_projections::ids::{AccountId, DeliveryKey, EndpointId, EndpointKey, EventId, LeaseId, Seq};
use hooklog_projections::lane::{Lanes, Pace};
use hooklog_projections::lifecycle::{Delivery, Illegal};
use hooklog_projections::policy::Text;
use hooklog_projections::tables::{Key, Tables};
use hooklog_projections::time::Timestamp;
use hooklog_projections::{FoldError, TABLES};

use crate::clock::Chance;
use crate::delivery::Outcome;
use crate::log::{self, Body, BodySlot, Log, Pending, Space};
use crate::metrics::Metrics;
use crate::scheduler::{Holder, LaneLimits, Limits, Look, Scheduler, Start, Target};
use crate::views::query::Published;
use crate::views::rows::Rows;
use crate::views::settled::{SETTLED_SPACE, settled_mark};
pub use command::{AccessCommand, Answer, BulkStep, BulkTake, Command, Enqueue, Rejection, Scope};
pub use leases::Job;
use leases::Leases;
pub use queues::{JobEnd, Then};
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
    /// A job was given to a worker that was gone by then.
    Unclaimed {
        /// What it was given with.
        lease: LeaseId,
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
    /// When it was due.
    pub due_at: Timestamp,
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
    /// A bulk replay began or was called off.
    pub bulk: bool,
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
    /// What waits for workers. Theirs are no requests of this process, so they share no limit with those.
    queues: Scheduler,
    leases: Leases,
    /// The next turn begins with what workers want: neither keeps the other from its room in the batch.
    queues_first: bool,
    policy: ServerPolicy,
    accounts: HashMap<AccountId, Arc<CachedAccount>>,
    in_flight: HashMap<Seq, InFlight>,
    /// Suspects that wait for everything else to end.
    alone: VecDeque<Start>,
    /// One of them is out.
    suspect_out: bool,
    /// Requests under a key, oldest first.
    requests: VecDeque<(Timestamp, RequestHash)>,
    /// Removed endpoints for which something may wait yet.
    removed: BTreeSet<EndpointKey>,
    batch: Batch,
    now: Timestamp,
    settled_at: Seq,
    sending: bool,
    accepting: bool,
    /// Deliveries of all accounts, as of the last batch.
    counts: Counts,
    metrics: Arc<Metrics>,
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
            Input::Command { ticket, command: Command::Claim { queue, max, wait }, .. } => {
                // Answered by `finish`, in this turn or in a later one.
                if let Err(rejection) = self.claim(ticket, queue, max, wait)? {
                    self.batch.turn.answers.push((ticket, Err(rejection)));
                }
            }
            Input::Command { ticket, actor, command } => {
                let answer = self.decide(actor, command, chance)?;
                self.batch.turn.answers.push((ticket, answer));
            }
            Input::Outcome { delivery, outcome } => self.handle_outcome(delivery, outcome, chance)?,
            Input::NotSent { delivery } => self.handle_not_sent(delivery)?,
            Input::Unclaimed { lease } => self.handle_unclaimed(lease)?,
        }
        Ok(())
    }

    /// Ends the turn: starts what is due, appends the batch, publishes it. After an error nothing of the
    /// turn may be answered but [`Rejection::OutcomeUnknown`], and the engine is of no more use.
    pub fn finish(&mut self) -> Result<Turn, Fatal> {
        self.expire_leases()?;
        self.sweep_removed()?;
        self.queues_first = !self.queues_first;
        if self.queues_first {
            self.give_out()?;
            self.start_due()?;
        } else {
            self.start_due()?;
            self.give_out()?;
        }
        self.answer_claims()?;
        self.batch.turn.more |= !self.removed.is_empty();
        self.batch.turn.entries = self.batch.entries.len();
        if !self.batch.entries.is_empty() || self.batch.settle {
            self.commit()?;
        }
        Ok(std::mem::take(&mut self.batch).turn)
    }

    /// When the next turn is needed, if nothing happens before.
    pub fn next_wake(&self) -> Option<Timestamp> {
        let requests = self.scheduler.next_wake().filter(|_| self.sending && !self.waits_to_be_alone());
        let queues = self.queues.next_wake().filter(|_| self.sending);
        [requests, queues, self.leases.next_wake()].into_iter().flatten().min()
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

    /// Due entries in memory; all others lie on disk only.
    pub fn due_held(&self) -> usize {
        self.scheduler.held() + self.queues.held()
    }

    /// What waits now, and for whom: for us, or for its endpoint's own limits.
    pub fn look(&mut self) -> Look {
        let mut look = self.scheduler.look(self.now);
        look.add(self.queues.look(self.now).of_queues());
        for start in &self.alone {
            let from = start.due_at.max(self.scheduler.began_at());
            look.ready(start.endpoint.account, from, self.now);
        }
        look
    }

    /// The engine's time.
    pub fn now(&self) -> Timestamp {
        self.now
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

    fn decide(&mut self, actor: Actor, command: Command, chance: &mut dyn Chance) -> Decision<Answer> {
        match command {
            Command::Claim { .. } => unreachable!("a claim is not answered at once"),
            Command::ExtendLease { lease } => self.extend_lease(lease),
            Command::EndLease { lease, end } => self.end_lease(lease, end, chance),
            Command::Enqueue(enqueue) => self.accept(actor, *enqueue, false),
            Command::EnqueueGivenUp(enqueue) => self.accept(actor, *enqueue, true),
            Command::CreateAccount { account, settings, secret } => {
                self.create_account(actor, account, settings, secret)
            }
            Command::ChangeAccount { account, settings } => self.change_account(actor, account, settings),
            Command::ChangeAccountSecret { account, secret } => {
                self.change_account_secret(actor, account, secret)
            }
            Command::CreateEndpoint { key, settings, signing, secret } => {
                self.create_endpoint(actor, key, settings, signing, secret)
            }
            Command::ChangeEndpoint { key, version, settings, new_key, secret } => {
                self.change_endpoint(actor, (key, version), settings, new_key, secret)
            }
            Command::ChangeEndpointSecret { key, secret } => self.change_endpoint_secret(actor, key, secret),
            Command::RotateSigningKey { key, new, overlap } => {
                self.rotate_signing_key(actor, key, new, overlap)
            }
            Command::RetireSigningKey { key, id } => self.retire_signing_key(actor, key, id),
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
            Command::Access(command) => self.decide_access(actor, command),
            Command::StartBulkReplay { id, account, filter, reason, rate_per_second, routing, planned } => {
                self.start_bulk(actor, (account, id), filter, reason, rate_per_second, routing, planned)
            }
            Command::StepBulkReplay(step) => self.step_bulk(step),
            Command::CancelBulkReplay { account, id } => self.cancel_bulk(actor, account, id),
            Command::TakeRequest { key, request } => self.take_request(actor, key, request),
            Command::EndRequest { key, answer } => self.end_request(actor, key, answer),
            Command::RemoveEndpoint { key, reason } => self.remove_endpoint(actor, key, reason),
            Command::BeginTelling { key } => self.begin_telling(actor, key),
            Command::OwnerTold { key, began, channel, refused } => {
                self.owner_told(actor, (key, began), channel, refused)
            }
        }
    }

    /// Adds a fact to the batch and folds it at once; its position.
    fn record(&mut self, actor: Actor, fact: Fact) -> Result<Seq, Fatal> {
        let seq = Seq(self.log.head().0 + self.batch.entries.len() as u64 + 1);
        let entry = Entry { seq, at: self.now, actor, fact };
        hooklog_projections::fold(&mut self.rows.over(&**self.log.disk()), &entry)?;
        match &entry.fact {
            Fact::AccountChanged { account, .. } | Fact::AccountSecretChanged { account, .. } => {
                drop(self.accounts.remove(account));
            }
            Fact::EndpointCreated { key, .. }
            | Fact::EndpointChanged { key, .. }
            | Fact::SigningKeysChanged { key, .. }
            | Fact::EndpointSecretChanged { key, .. }
            | Fact::EndpointPaused { key, .. }
            | Fact::EndpointDisabled { key, .. }
            | Fact::EndpointRemoved { key, .. }
            | Fact::EndpointResumed { key } => drop(self.accounts.remove(&key.account)),
            _ => {}
        }
        if matches!(
            entry.fact,
            Fact::Dead { tell_owner: true, .. }
                | Fact::EndpointDisabled { .. }
                | Fact::EndpointKeptFailing { .. }
        ) {
            self.batch.turn.owed = true;
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
        let counts = self.rows.over(&**self.log.disk()).get::<CountsTable>(&None)?.unwrap_or_default();
        self.metrics.appending(&self.batch.entries);
        self.log.append(Pending {
            entries: std::mem::take(&mut self.batch.entries),
            bodies: std::mem::take(&mut self.batch.bodies),
            changes,
            views: Vec::new(),
        })?;
        self.rows.committed();
        self.counts = counts;
        self.published.publish(self.log.snapshot(), self.rows.generation());
        if settle {
            self.rows.settled();
            self.settled_at = last;
        }
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
        if let Some(queue) = endpoint.as_ref().filter(|row| row.settings.queue.is_some()) {
            let Endpoint { settings, hold, .. } = &**queue;
            return Ok(self.queue_limits(
                key,
                hold.is_some(),
                settings.in_flight_max,
                settings.rate_per_second,
            ));
        }
        let breaker = match lane.down {
            0 => None,
            _ => {
                let schedule = self.policies(key)?.schedule;
                self.policy.breaker(&lane, &schedule)
            }
        };
        Ok(LaneLimits {
            target: Target::of(endpoint.as_ref().map_or("", |row| &row.settings.url)),
            // Who did not answer in time is asked by one request only.
            in_flight_max: match lane.pace {
                Pace::Slow => 1,
                _ => endpoint.as_ref().map_or(1, |row| row.settings.in_flight_max),
            },
            held: endpoint.as_ref().is_none_or(|row| row.hold.is_some()),
            gate_until: lane.gate_until,
            slow: lane.pace != Pace::Prompt,
            breaker,
            rate_per_second: endpoint.and_then(|row| row.settings.rate_per_second),
        })
    }

    /// Tells the scheduler of a delivery that waits from now on.
    fn waits(&mut self, key: EndpointKey, due_at: Timestamp, delivery: Seq) -> Result<(), Fatal> {
        if self.endpoint(key)?.is_some_and(|endpoint| endpoint.removed()) {
            self.removed.insert(key);
        }
        let (limits, now) = (self.lane_limits(key)?, self.now);
        self.lanes(key)?.handle_waiting(key, limits, (due_at, delivery), now);
        Ok(())
    }

    /// Tells the scheduler of an endpoint's limits as they are now.
    fn relimit(&mut self, key: EndpointKey) -> Result<(), Fatal> {
        let (limits, now) = (self.lane_limits(key)?, self.now);
        self.lanes(key)?.handle_limits(key, limits, now);
        Ok(())
    }

    /// Who schedules for an endpoint.
    fn lanes(&mut self, key: EndpointKey) -> Result<&mut Scheduler, Fatal> {
        let queue = self.endpoint(key)?.is_some_and(|endpoint| endpoint.settings.queue.is_some());
        Ok(if queue { &mut self.queues } else { &mut self.scheduler })
    }
}

fn of(delivery: DeliveryKey, endpoint: EndpointKey, previous: Seq) -> Of {
    Of { account: delivery.account, endpoint: endpoint.endpoint, delivery: delivery.seq, previous }
}

fn limits(policy: &ServerPolicy) -> Limits {
    let half = policy.in_flight_max.div_ceil(2);
    Limits {
        in_flight_max: policy.in_flight_max,
        target_in_flight_max: policy.target_in_flight_max.unwrap_or(half),
    }
}

/// All metrics, with the words that this floor has for their labels.
fn metrics() -> Arc<Metrics> {
    Arc::new(Metrics::new(&Holder::ALL.map(Holder::as_str)))
}

/// How many workers there are is not for this process to say.
const NO_LIMITS: Limits = Limits { in_flight_max: usize::MAX, target_in_flight_max: usize::MAX };

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

    /// Moves what the views hold in memory to files: a rarely written one would pin journals, and make the
    /// next start replay them.
    fn rotate(&self) -> Result<(), log::Error> {
        let version = self.rows.generation();
        let views = TABLES.iter().map(|(name, _)| Space::View { name, version });
        views.chain([Space::Meta, SETTLED_SPACE]).try_for_each(|space| self.log.disk().rotate(space))
    }

    /// Publishes the same state in a new snapshot, so that the old one pins nothing while all is idle.
    fn republish(&self) {
        self.published.publish(self.log.snapshot(), self.rows.generation());
    }
}
