//! What an attempt's end leads to: delivered, another try, or dead; decided here and recorded with its rule.

use std::net::SocketAddr;
use std::time::Duration;

use hooklog_projections::course::Course;
use hooklog_projections::fact::{Actor, DeadReason, DisabledReason, Fact, Failure, Response};
use hooklog_projections::ids::{DeliveryKey, EndpointKey, Seq};
use hooklog_projections::lane::Lanes;
use hooklog_projections::lifecycle::State;
use hooklog_projections::policy::{ErrorClass, ResponsePolicy, Schedule, Text};
use hooklog_projections::tables::Tables;
use hooklog_projections::time::{Micros, Millis, Timestamp};

use super::command::TEST_TYPE;
use super::server_policy::OnGone;
use super::{CachedAccount, Engine, Fatal, InFlight, of};
use crate::clock::Chance;
use crate::delivery::classify::{Heard, Ruling, Verdict, classify};
use crate::delivery::{Answer, CONTENT_LENGTH, Fault, Outcome};
use crate::log::{Body, BodySlot};
use crate::scheduler::RetryPolicy;

/// The policies that hold for one delivery: the endpoint's, else its account's, else the server's.
pub(super) struct Policies {
    pub(super) schedule: Schedule,
    pub(super) responses: ResponsePolicy,
    pub(super) retries: bool,
}

/// When the other side wants to be asked again.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    wait: Millis,
    exactly: bool,
}

impl Asked {
    /// That much later, whatever the schedule says.
    pub(super) fn exactly(wait: Millis) -> Asked {
        Asked { wait, exactly: true }
    }
}

impl Engine {
    pub(super) fn handle_outcome(
        &mut self,
        delivery: Seq,
        outcome: Outcome,
        chance: &mut dyn Chance,
    ) -> Result<(), Fatal> {
        let Some(out) = self.in_flight.remove(&delivery) else {
            tracing::error!(%delivery, "an outcome without an attempt in flight was dropped");
            return Ok(());
        };
        self.suspect_out &= !out.alone;
        let policies = self.policies(out.endpoint)?;
        let retry_after = outcome.result.as_ref().ok().and_then(|answer| answer.retry_after(self.now));
        let heard = match &outcome.result {
            Ok(answer) => Heard::Status { code: answer.status, has_retry_after: retry_after.is_some() },
            Err(fault) => Heard::Error(fault.class),
        };
        let verdict = classify(policies.responses, heard);
        let course = course(&outcome);
        let row = self.in_flight_row(&out)?;
        match (verdict.ruling, outcome.result) {
            (Ruling::Delivered, Ok(answer)) => {
                // Of a success only what was left out is told.
                let mut fields = fields(&answer);
                fields.retain(|(name, _)| &**name == CONTENT_LENGTH);
                let response = Response { fields, ..self.response(&answer, outcome.took, course, chance) };
                let fact = Fact::Delivered {
                    of: of(out.delivery, out.endpoint, row.latest),
                    attempt: row.attempts,
                    response,
                    rule: verdict.rule.into(),
                };
                self.record(Actor::Hooklog, fact)?;
                if row.run == 1 {
                    let after = Duration::from_millis(self.now.since(row.enqueued_at).0);
                    self.metrics.arrived(after, row.attempts == 1);
                }
            }
            (_, result) => {
                let failure = match result {
                    Ok(answer) => Failure::Answered(Response {
                        fields: fields(&answer),
                        ..self.response(&answer, outcome.took, course, chance)
                    }),
                    Err(Fault { class, reason, detail, address }) => Failure::Error {
                        class,
                        detail: detail.into(),
                        took: outcome.took,
                        reason: reason.map(|reason| reason.name().into()),
                        address: address.map(text),
                        course: Some(course),
                    },
                };
                self.failed(&out, verdict, failure, true)?;
                if let Some(span) = retry_after {
                    let until = self.now + self.policy.played(span);
                    self.record(Actor::Hooklog, Fact::EndpointGated { key: out.endpoint, until })?;
                }
                // The schedule's first wait is the least (`ukue`: as asked; but a moment that has passed asks for
                // nothing, and all tries at once would be a death within seconds).
                let exactly = policies.schedule == Schedule::Ukue;
                let asked = retry_after.filter(|wait| !exactly || wait.0 > 0);
                let asked = asked.map(|wait| Asked { wait, exactly });
                self.after_failure(&out, &policies, verdict, asked, chance)?;
                self.disable_if_failing(out.endpoint)?;
            }
        }
        self.scheduler.handle_ended(out.endpoint, self.now);
        self.relimit(out.endpoint)
    }

    /// The request never left: the attempt uses up no try, and the delivery is due at once again.
    pub(super) fn handle_not_sent(&mut self, delivery: Seq) -> Result<(), Fatal> {
        let Some(out) = self.in_flight.remove(&delivery) else { return Ok(()) };
        self.suspect_out &= !out.alone;
        self.uncounted(&out, ErrorClass::NotSent, "the server stopped before the request left")?;
        self.scheduler.handle_ended(out.endpoint, self.now);
        Ok(())
    }

    /// An attempt that never was, or whose outcome nobody knows; due again now.
    pub(super) fn uncounted(
        &mut self,
        out: &InFlight,
        class: ErrorClass,
        detail: &'static str,
    ) -> Result<(), Fatal> {
        let rule = match class {
            ErrorClass::Interrupted => "interrupted",
            ErrorClass::LeaseExpired => "lease-expired",
            _ => "not-sent",
        };
        let verdict = Verdict { ruling: Ruling::Retry, rule };
        let failure = Failure::Error {
            class,
            detail: detail.into(),
            took: Millis(0),
            reason: None,
            address: None,
            course: None,
        };
        self.failed(out, verdict, failure, false)?;
        self.reschedule(out, self.now, rule)
    }

    pub(super) fn failed(
        &mut self,
        out: &InFlight,
        verdict: Verdict,
        failure: Failure,
        counted: bool,
    ) -> Result<(), Fatal> {
        let row = self.in_flight_row(out)?;
        let fact = Fact::Failed {
            of: of(out.delivery, out.endpoint, row.latest),
            attempt: row.attempts,
            failure,
            rule: verdict.rule.into(),
            counted,
        };
        self.record(Actor::Hooklog, fact).map(drop)
    }

    pub(super) fn after_failure(
        &mut self,
        out: &InFlight,
        policies: &Policies,
        verdict: Verdict,
        asked: Option<Asked>,
        chance: &mut dyn Chance,
    ) -> Result<(), Fatal> {
        let reason = match verdict.ruling {
            Ruling::Delivered => unreachable!("a success is no failure"),
            Ruling::Dead | Ruling::Gone => DeadReason::Refused,
            Ruling::Retry if !policies.retries => DeadReason::RetriesOff,
            Ruling::Retry => {
                let row = self.in_flight_row(out)?;
                let retry = RetryPolicy::of(&policies.schedule);
                match retry.wait(row.tries, row.max_tries, chance.draw()) {
                    Some(wait) => {
                        let (wait, rule) = match asked {
                            Some(Asked { wait, exactly: true }) => (wait, "retry-after"),
                            Some(Asked { wait, .. }) => (wait.max(retry.nominal(1)), "retry-after"),
                            None => (wait, "schedule"),
                        };
                        let due_at = self.now + self.policy.played(wait);
                        // A deadline comes before a late try: it is dead then, without another request.
                        let (due_at, rule) = match row.expire_at {
                            Some(end) if end <= due_at => (end.max(self.now), "deadline"),
                            _ => (due_at, rule),
                        };
                        return self.reschedule(out, due_at, rule);
                    }
                    None => DeadReason::Exhausted,
                }
            }
        };
        let row = self.in_flight_row(out)?;
        let fact = Fact::Dead {
            of: of(out.delivery, out.endpoint, row.latest),
            reason,
            was_due_at: None,
            tell_owner: policies.retries && &*row.event_type != TEST_TYPE,
        };
        self.record(Actor::Hooklog, fact)?;
        if verdict.ruling == Ruling::Gone && self.policy.on_gone == OnGone::Disable {
            self.disable(out.endpoint, DisabledReason::Gone)?;
        }
        Ok(())
    }

    /// Disables an endpoint that has done nothing but fail for too long, or notes once that its owner is to hear of
    /// it, where the operator wants that.
    fn disable_if_failing(&mut self, key: EndpointKey) -> Result<(), Fatal> {
        let lane = self.rows.over(&**self.log.disk()).get::<Lanes>(&key)?.unwrap_or_default();
        let own = self.endpoint(key)?.and_then(|endpoint| endpoint.settings.disable_after);
        let after = own.unwrap_or(self.policy.disable_after);
        match lane.failing_since {
            Some(since) if self.now.since(since) >= after => {
                self.disable(key, DisabledReason::Failing { since })
            }
            Some(since) if self.policy.keeps_failing(since, self.now) && !lane.noticed => {
                // An account without retries is told nothing, as of its deaths.
                if self.policies(key)?.retries {
                    self.record(Actor::Hooklog, Fact::EndpointKeptFailing { key, since })?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn disable(&mut self, key: EndpointKey, reason: DisabledReason) -> Result<(), Fatal> {
        if self.endpoint(key)?.is_some_and(|endpoint| endpoint.hold.is_none()) {
            self.record(Actor::Hooklog, Fact::EndpointDisabled { key, reason })?;
        }
        Ok(())
    }

    fn reschedule(&mut self, out: &InFlight, due_at: Timestamp, rule: &'static str) -> Result<(), Fatal> {
        let row = self.in_flight_row(out)?;
        let fact = Fact::Rescheduled {
            of: of(out.delivery, out.endpoint, row.latest),
            due_at,
            was_due_at: None,
            rule: rule.into(),
        };
        self.record(Actor::Hooklog, fact)?;
        self.waits(out.endpoint, due_at, out.delivery.seq)
    }

    /// The kept part of an answer; its body goes beside the log.
    fn response(
        &mut self,
        answer: &Answer,
        took: Millis,
        course: Box<Course>,
        chance: &mut dyn Chance,
    ) -> Response {
        let body = (!answer.body.is_empty()).then(|| {
            let mut salt = [0; 16];
            chance.fill(&mut salt);
            let body = Body { salt, bytes: answer.body.clone() };
            let content_type = answer.field("content-type").next().unwrap_or_default();
            let body_ref = super::command::body_ref(&body, content_type);
            // The entry that says so is the next to be recorded.
            let seq = Seq(self.log.head().0 + self.batch.entries.len() as u64 + 1);
            self.batch.bytes += body.bytes.len();
            self.batch.bodies.push((BodySlot::Response(seq), body));
            body_ref
        });
        Response {
            status: answer.status,
            body,
            truncated: answer.truncated,
            took,
            address: answer.address.map(text),
            course: Some(course),
            fields: Vec::new(),
        }
    }

    pub(super) fn in_flight_row(
        &mut self,
        out: &InFlight,
    ) -> Result<hooklog_projections::lifecycle::Delivery, Fatal> {
        let row = self.delivery(out.delivery)?;
        let row = row.filter(|row| matches!(row.state, State::InFlight { .. } | State::Deciding { .. }));
        row.ok_or_else(|| {
            let what = format!("delivery {} is in flight in memory, but not on disk", out.delivery.seq);
            Fatal::Log(crate::log::Error::Misuse(what))
        })
    }

    pub(super) fn policies(&mut self, key: EndpointKey) -> Result<Policies, Fatal> {
        let account = self.account(key.account)?;
        let (endpoint, owner) = match account.as_deref() {
            Some(CachedAccount { row, endpoints }) => {
                (endpoints.get(&key.endpoint).map(|endpoint| &endpoint.settings), Some(&row.settings))
            }
            None => (None, None),
        };
        let schedule = endpoint
            .and_then(|settings| settings.schedule.clone())
            .or_else(|| owner.and_then(|settings| settings.schedule.clone()))
            .unwrap_or_else(|| self.policy.schedule.clone());
        let responses = endpoint
            .and_then(|settings| settings.response_policy)
            .or_else(|| owner.and_then(|settings| settings.response_policy))
            .unwrap_or(self.policy.response_policy);
        let retries = owner.is_none_or(|settings| self.policy.retries(key.account, settings));
        Ok(Policies { schedule, responses, retries })
    }

    /// Takes over what the last process had in flight, as memory will know it.
    pub(super) fn was_in_flight(delivery: DeliveryKey, endpoint: EndpointKey) -> InFlight {
        InFlight { delivery, endpoint, alone: false }
    }
}

/// How an attempt went, as it is recorded.
fn course(outcome: &Outcome) -> Box<Course> {
    let micros = |time: Duration| Micros(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    let timings = &outcome.timings;
    Box::new(Course {
        queue: Millis(u64::try_from(timings.queue.as_millis()).unwrap_or(u64::MAX)),
        dns: timings.dns.map(micros),
        connect: timings.connect.map(micros),
        tls: timings.tls.map(micros),
        first_byte: timings.first_byte.map(micros),
        body: timings.body.map(micros),
        reused: outcome.reused,
        resent: outcome.resent,
        in_vain: outcome.in_vain.iter().copied().map(text).collect(),
    })
}

/// What a head says that is of use to whoever mends the receiver. The content type stands with the body.
fn fields(answer: &Answer) -> Vec<(Text, Text)> {
    let told = answer.headers.iter().filter(|(name, _)| *name != "content-type");
    told.map(|(name, value)| ((*name).into(), value.as_str().into())).collect()
}

fn text(address: SocketAddr) -> Text {
    address.to_string().into()
}
