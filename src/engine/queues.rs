//! Worker queues: deliveries that workers claim, in place of requests that the courier makes. The same facts, the
//! same policies; a lease stands where a connection would.
//!
//! A claim is recorded as `Attempted` before its worker hears of it. A worker that is not heard of for a lease's
//! length loses its job, which uses up no try; what it says after that is refused. Never knows HTTP.

use hooklog_projections::fact::{Actor, Fact, Failure, Response};
use hooklog_projections::ids::{DeliveryKey, EndpointKey, LeaseId, Seq};
use hooklog_projections::lifecycle::Delivery;
use hooklog_projections::policy::{ErrorClass, Text};
use hooklog_projections::time::{Millis, Timestamp};

use super::command::{Answer, Rejection};
use super::leases::{CLAIM_MAX, CLAIM_WAIT_MAX, Held, Job, LEASE};
use super::outcome::Asked;
use super::{Decision, Engine, Fatal, INTERRUPTIONS_ALONE, InFlight, Ticket, of};
use crate::clock::Chance;
use crate::delivery::classify::{Ruling, Verdict};
use crate::scheduler::{LaneLimits, Start, Target};

/// How a worker's attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobEnd {
    /// The job is done.
    Done,
    /// It failed; uses up a try.
    Failed {
        /// For people: kept as the delivery's last error.
        error: Text,
        /// What follows.
        then: Then,
    },
    /// The worker never began it, and gives it back: uses up no try.
    Untouched,
}

/// What follows a failed job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Another try, when the schedule says so.
    Retry,
    /// Another try, exactly so much later.
    RetryAfter(Millis),
    /// Nothing: it is dead.
    Dead,
}

impl Engine {
    /// A worker waits for jobs. It is answered when it gets some, or after `wait`.
    pub(super) fn claim(
        &mut self,
        ticket: Ticket,
        queue: EndpointKey,
        max: u32,
        wait: Millis,
    ) -> Result<Result<(), Rejection>, Fatal> {
        if !self.sending {
            return Ok(Err(Rejection::Draining));
        }
        if self.endpoint(queue)?.is_none_or(|endpoint| endpoint.settings.queue.is_none()) {
            return Ok(Err(Rejection::UnknownQueue));
        }
        let until = self.now + wait.min(CLAIM_WAIT_MAX);
        self.leases.wait(queue, ticket, max.clamp(1, CLAIM_MAX), until);
        self.relimit(queue)?;
        Ok(Ok(()))
    }

    /// A worker was heard of: its lease lasts from now.
    pub(super) fn extend_lease(&mut self, lease: LeaseId) -> Decision<Answer> {
        let Some((attempted, _)) = self.held(lease) else { return Ok(Err(Rejection::LeaseOver)) };
        let until = self.now + LEASE;
        self.leases.extend(attempted, until);
        Ok(Ok(Answer::Lease { until }))
    }

    /// A worker has ended its attempt.
    pub(super) fn end_lease(
        &mut self,
        lease: LeaseId,
        end: JobEnd,
        chance: &mut dyn Chance,
    ) -> Decision<Answer> {
        let Some((attempted, held)) = self.held(lease) else { return Ok(Err(Rejection::LeaseOver)) };
        let out = self.take_back(attempted, held);
        match end {
            JobEnd::Done => {
                let row = self.in_flight_row(&out)?;
                let took = self.now.since(held.started_at);
                let response = Response {
                    status: 0,
                    body: None,
                    truncated: false,
                    took,
                    address: None,
                    course: None,
                    fields: Vec::new(),
                };
                let fact = Fact::Delivered {
                    of: of(out.delivery, out.endpoint, row.latest),
                    attempt: row.attempts,
                    response,
                    rule: "worker-done".into(),
                };
                self.record(Actor::Hooklog, fact)?;
            }
            JobEnd::Failed { error, then } => {
                let (ruling, rule, asked) = match then {
                    Then::Retry => (Ruling::Retry, "worker-failed", None),
                    Then::RetryAfter(wait) => (Ruling::Retry, "worker-later", Some(Asked::exactly(wait))),
                    Then::Dead => (Ruling::Dead, "worker-permanent", None),
                };
                let verdict = Verdict { ruling, rule };
                let took = self.now.since(held.started_at);
                let failure = Failure::Error {
                    class: ErrorClass::Worker,
                    detail: error,
                    took,
                    reason: None,
                    address: None,
                    course: None,
                };
                self.failed(&out, verdict, failure, true)?;
                let policies = self.policies(out.endpoint)?;
                self.after_failure(&out, &policies, verdict, asked, chance)?;
            }
            JobEnd::Untouched => {
                self.uncounted(&out, ErrorClass::NotSent, "the worker gave it back before it began")?;
            }
        }
        self.queue_ended(out.endpoint)?;
        Ok(Ok(Answer::LeaseEnded { delivery: out.delivery }))
    }

    /// The worker that was given a job was gone already.
    pub(super) fn handle_unclaimed(&mut self, lease: LeaseId) -> Result<(), Fatal> {
        let Some((attempted, held)) = self.held(lease) else { return Ok(()) };
        let out = self.take_back(attempted, held);
        self.uncounted(&out, ErrorClass::NotSent, "the worker was gone before it got the job")?;
        self.queue_ended(out.endpoint)
    }

    /// Jobs whose workers are silent for too long go back on their queues.
    pub(super) fn expire_leases(&mut self) -> Result<(), Fatal> {
        while let Some((attempted, held)) = self.leases.ran_out(self.now) {
            if !self.has_room() {
                self.batch.turn.more = true;
                return Ok(());
            }
            let out = self.take_back(attempted, held);
            tracing::warn!(delivery = %out.delivery.seq, "a worker was not heard of: its job goes back");
            let detail = "its worker was not heard of until the lease was over";
            self.uncounted(&out, ErrorClass::LeaseExpired, detail)?;
            self.queue_ended(out.endpoint)?;
        }
        Ok(())
    }

    /// Gives out what waits, as far as workers want it and the batch has room.
    pub(super) fn give_out(&mut self) -> Result<(), Fatal> {
        if !self.sending {
            return Ok(());
        }
        while self.has_room() {
            match self.poll_queues()? {
                Some(start) => self.give_one(start)?,
                None => return Ok(()),
            }
        }
        self.batch.turn.more = true;
        Ok(())
    }

    /// Answers the workers that wait no more.
    pub(super) fn answer_claims(&mut self) -> Result<(), Fatal> {
        for (queue, ticket, jobs) in self.leases.answered(self.now, !self.sending) {
            self.batch.turn.answers.push((ticket, Ok(Answer::Claimed { jobs })));
            self.relimit(queue)?;
        }
        Ok(())
    }

    /// A queue's limits: as much as its workers want, while nothing holds it.
    pub(super) fn queue_limits(
        &self,
        key: EndpointKey,
        held: bool,
        cap: u32,
        rate: Option<u32>,
    ) -> LaneLimits {
        let (wanted, out) = self.leases.wanted(key);
        LaneLimits {
            // Nothing is sent, so no receiver is shared.
            target: Target::of(""),
            in_flight_max: cap.min(out.saturating_add(wanted)),
            held: held || wanted == 0,
            gate_until: Timestamp(0),
            slow: false,
            breaker: None,
            rate_per_second: rate,
        }
    }

    fn give_one(&mut self, start: Start) -> Result<(), Fatal> {
        let Some(row) = self.startable(&start)? else { return Ok(()) };
        let queue = start.endpoint;
        if row.interruptions >= INTERRUPTIONS_ALONE {
            let (_, out) = self.leases.wanted(queue);
            self.leases.leave_alone(queue);
            if out > 0 {
                // It goes back to the front, and nothing behind it starts before it.
                self.queues.handle_unsent(queue, self.now);
                self.waits(queue, start.due_at, start.delivery)?;
                return Ok(());
            }
            tracing::error!(
                event = %row.event, interruptions = row.interruptions,
                "workers are lost under this delivery again and again: it is given out alone"
            );
        }
        let key = DeliveryKey { account: queue.account, seq: start.delivery };
        let (attempted, job) = self.job(key, queue, &row, start.due_at)?;
        self.leases.give(attempted, self.now, job);
        self.relimit(queue)
    }

    fn job(
        &mut self,
        delivery: DeliveryKey,
        endpoint: EndpointKey,
        row: &Delivery,
        due_at: Timestamp,
    ) -> Result<(Seq, Job), Fatal> {
        let (attempted, _) = self.record_attempt(delivery, endpoint, row, due_at)?;
        let job = Job {
            lease: self.published.ids().lease_id(attempted, self.now),
            until: self.now + LEASE,
            delivery,
            endpoint,
            event: row.event.clone(),
            event_type: row.event_type.clone(),
            accepted: row.accepted,
            enqueued_at: row.enqueued_at,
            number: row.attempts + 1,
            try_number: row.tries + 1,
            run: row.run,
        };
        Ok((attempted, job))
    }

    fn held(&self, lease: LeaseId) -> Option<(Seq, Held)> {
        let (attempted, at) = self.published.ids().lease_seq(lease)?;
        Some((attempted, self.leases.held(attempted, at)?))
    }

    fn take_back(&mut self, attempted: Seq, held: Held) -> InFlight {
        self.leases.end(attempted);
        InFlight { delivery: held.delivery, endpoint: held.endpoint, alone: false }
    }

    fn queue_ended(&mut self, queue: EndpointKey) -> Result<(), Fatal> {
        self.queues.handle_ended(queue, self.now);
        self.relimit(queue)
    }
}
