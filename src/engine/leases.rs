//! Who waits for work of which queue, and who holds which delivery until when. In memory only: what a lease was
//! given for stands in the log as `Attempted`, and a new process takes every old lease back.
//!
//! Sans-I/O: the moment is an argument. Never knows rows, facts, or how a worker is spoken to.

use std::collections::{BTreeSet, HashMap};

use hooklog_projections::ids::{DeliveryKey, EndpointKey, EventId, LeaseId, Seq};
use hooklog_projections::policy::Text;
use hooklog_projections::time::{Millis, Timestamp};

use super::Ticket;

/// How long a worker may be silent before its job goes back on the queue.
pub const LEASE: Millis = Millis::from_secs(60);
/// The most jobs that one claim takes: a part of a batch, so that others get their turn.
pub const CLAIM_MAX: u32 = 100;
/// The longest that a claim waits for work.
pub const CLAIM_WAIT_MAX: Millis = Millis::from_secs(20);

/// A delivery of a queue in the hands of a worker. Its record is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The worker's proof that it is still its own.
    pub lease: LeaseId,
    /// Until when, unless it is extended.
    pub until: Timestamp,
    /// Which delivery.
    pub delivery: DeliveryKey,
    /// Of which queue.
    pub endpoint: EndpointKey,
    /// What.
    pub event: EventId,
    /// `payment.settled`.
    pub event_type: Text,
    /// Where its body lies.
    pub accepted: Seq,
    /// When it was enqueued.
    pub enqueued_at: Timestamp,
    /// Counts every attempt of the delivery, from 1.
    pub number: u32,
    /// Counts the tries of this run, from 1.
    pub try_number: u32,
    /// From 1.
    pub run: u32,
}

/// A worker that waits.
struct Claim {
    ticket: Ticket,
    /// Jobs that it would still take.
    left: u32,
    until: Timestamp,
    jobs: Vec<Job>,
}

/// What a worker holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) delivery: DeliveryKey,
    pub(super) endpoint: EndpointKey,
    pub(super) started_at: Timestamp,
    until: Timestamp,
}

/// One queue's workers.
#[derive(Default)]
struct Queue {
    claims: Vec<Claim>,
    /// Jobs out.
    out: u32,
    /// A suspect is out, or waits until nothing else is: nothing more is given out.
    alone: bool,
}

/// All queues' workers.
#[derive(Default)]
pub(super) struct Leases {
    queues: HashMap<EndpointKey, Queue>,
    /// What is held, by the position of its `Attempted`.
    held: HashMap<Seq, Held>,
    ends: BTreeSet<(Timestamp, Seq)>,
    /// No claim waits less long than until then.
    soonest: Option<Timestamp>,
    /// A claim got something since they were last answered.
    given: bool,
}

impl Leases {
    /// A worker waits for up to `max` jobs.
    pub(super) fn wait(&mut self, queue: EndpointKey, ticket: Ticket, max: u32, until: Timestamp) {
        let claim = Claim { ticket, left: max, until, jobs: Vec::new() };
        self.queues.entry(queue).or_default().claims.push(claim);
        self.soonest = Some(self.soonest.map_or(until, |soonest| soonest.min(until)));
    }

    /// Jobs that the waiting workers would take, and jobs that are out; nothing is wanted while a suspect is.
    pub(super) fn wanted(&self, queue: EndpointKey) -> (u32, u32) {
        let Some(queue) = self.queues.get(&queue) else { return (0, 0) };
        let wanted = queue.claims.iter().map(|claim| claim.left).sum();
        (if queue.alone && queue.out > 0 { 0 } else { wanted }, queue.out)
    }

    /// From now on nothing more is given out until nothing is.
    pub(super) fn leave_alone(&mut self, queue: EndpointKey) {
        self.queues.entry(queue).or_default().alone = true;
    }

    /// Gives a job, recorded at `attempted`, to the worker that has waited longest.
    pub(super) fn give(&mut self, attempted: Seq, now: Timestamp, job: Job) {
        let held = Held { delivery: job.delivery, endpoint: job.endpoint, started_at: now, until: job.until };
        self.held.insert(attempted, held);
        self.ends.insert((job.until, attempted));
        self.given = true;
        let queue = self.queues.entry(job.endpoint).or_default();
        queue.out += 1;
        if let Some(claim) = queue.claims.iter_mut().find(|claim| claim.left > 0) {
            claim.left -= 1;
            claim.jobs.push(job);
        }
    }

    /// What the lease of an attempt holds, if it is not over.
    pub(super) fn held(&self, attempted: Seq, at: Timestamp) -> Option<Held> {
        self.held.get(&attempted).copied().filter(|held| held.started_at == at)
    }

    /// A worker was heard of.
    pub(super) fn extend(&mut self, attempted: Seq, until: Timestamp) {
        if let Some(held) = self.held.get_mut(&attempted) {
            self.ends.remove(&(held.until, attempted));
            held.until = held.until.max(until);
            self.ends.insert((held.until, attempted));
        }
    }

    /// A lease is over, one way or another.
    pub(super) fn end(&mut self, attempted: Seq) {
        let Some(held) = self.held.remove(&attempted) else { return };
        self.ends.remove(&(held.until, attempted));
        if let Some(queue) = self.queues.get_mut(&held.endpoint) {
            queue.out -= 1;
            queue.alone &= queue.out > 0;
        }
        self.forget(held.endpoint);
    }

    /// A lease that ran out by `now`.
    pub(super) fn ran_out(&self, now: Timestamp) -> Option<(Seq, Held)> {
        let (_, attempted) = self.ends.first().filter(|(at, _)| *at <= now)?;
        Some((*attempted, *self.held.get(attempted)?))
    }

    /// Takes the workers that wait no more: those that got something, that waited long enough, and with
    /// `all` everybody. With them the queues that they waited for.
    pub(super) fn answered(&mut self, now: Timestamp, all: bool) -> Vec<(EndpointKey, Ticket, Vec<Job>)> {
        let mut answered = Vec::new();
        if !all && !self.given && self.soonest.is_none_or(|at| at > now) {
            return answered;
        }
        for (key, queue) in &mut self.queues {
            let over = |claim: &mut Claim| all || !claim.jobs.is_empty() || claim.until <= now;
            let done = queue.claims.extract_if(.., over);
            answered.extend(done.map(|claim| (*key, claim.ticket, claim.jobs)));
        }
        // In the order in which they came: a map has none.
        answered.sort_by_key(|(_, ticket, _)| *ticket);
        answered.iter().for_each(|(key, ..)| self.forget(*key));
        self.given = false;
        let left = self.queues.values().flat_map(|queue| queue.claims.iter());
        self.soonest = left.map(|claim| claim.until).min();
        answered
    }

    /// When something happens by itself.
    pub(super) fn next_wake(&self) -> Option<Timestamp> {
        let ends = self.ends.first().map(|(at, _)| *at);
        [ends, self.soonest].into_iter().flatten().min()
    }

    fn forget(&mut self, key: EndpointKey) {
        if self.queues.get(&key).is_some_and(|queue| queue.claims.is_empty() && queue.out == 0) {
            self.queues.remove(&key);
        }
    }
}
