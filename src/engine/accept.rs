//! Taking an event in: one batch with the event, its body, all its deliveries, and, where nothing waits
//! before them, the attempts that are about to start.

use bytes::Bytes;
use hooklog_projections::event::{Event, Events};
use hooklog_projections::fact::{Actor, DeadReason, Fact};
use hooklog_projections::ids::{DeliveryKey, EndpointId, EndpointKey, Seq};
use hooklog_projections::lifecycle::Delivery;
use hooklog_projections::tables::Tables;

use super::command::{Answer, Enqueue, FAN_OUT_MAX, Rejection};
use super::{CachedAccount, Decision, Engine, Fatal, of};
use crate::log::BodySlot;

impl Engine {
    pub(super) fn accept(&mut self, actor: Actor, enqueue: Enqueue, given_up: bool) -> Decision<Answer> {
        if !self.accepting {
            return Ok(Err(Rejection::Draining));
        }
        let Some(account) = self.account(enqueue.account)? else {
            return Ok(Err(Rejection::UnknownAccount));
        };
        let name = (enqueue.account, enqueue.event.clone());
        if let Some(event) = self.rows.over(&**self.log.disk()).get::<Events>(&name)? {
            return self.again(&enqueue, &event);
        }
        if !self.log.has_room() {
            return Ok(Err(Rejection::NoRoom));
        }
        let targets = match targets(&account, &enqueue) {
            Ok(targets) => targets,
            Err(rejection) => return Ok(Err(rejection)),
        };
        let accepted = self.record(
            actor.clone(),
            Fact::Accepted {
                account: enqueue.account,
                event: enqueue.event.clone(),
                event_type: enqueue.event_type.clone(),
                body: enqueue.body_ref.clone(),
                deliveries: targets.len() as u32,
            },
        )?;
        let due_at = enqueue.deliver_at.map_or(self.now, |at| at.max(self.now));
        let mut deliveries = Vec::with_capacity(targets.len());
        for endpoint in &targets {
            let key = EndpointKey { account: enqueue.account, endpoint: *endpoint };
            let enqueued = Fact::Enqueued {
                key,
                event: enqueue.event.clone(),
                accepted,
                event_type: enqueue.event_type.clone(),
                due_at,
                max_tries: enqueue.max_tries,
                expire_at: enqueue.expire_at,
                late: false,
                bulk: None,
            };
            let seq = self.record(actor.clone(), enqueued.clone())?;
            deliveries.push((
                key,
                seq,
                Delivery::begun(&enqueued, seq, self.now).expect("it is an Enqueued"),
            ));
        }
        let bytes = enqueue.body.bytes.clone();
        self.batch.bytes += bytes.len();
        self.batch.bodies.push((BodySlot::Event(accepted), enqueue.body));
        let seqs = deliveries.iter().map(|(_, seq, _)| *seq).collect();
        for (key, seq, row) in deliveries {
            if given_up {
                let fact = Fact::Dead {
                    of: of(DeliveryKey { account: key.account, seq }, key, seq),
                    reason: DeadReason::Imported,
                    was_due_at: Some(due_at),
                    tell_owner: false,
                };
                self.record(actor.clone(), fact)?;
                continue;
            }
            self.start_or_wait(key, seq, &row, &bytes, &enqueue.body_ref.content_type)?;
        }
        Ok(Ok(Answer::Accepted { accepted, at: self.now, deliveries: seqs, duplicate: false }))
    }

    /// Nothing waits before it and a permit is free: its attempt rides in the same batch.
    fn start_or_wait(
        &mut self,
        key: EndpointKey,
        seq: Seq,
        row: &Delivery,
        bytes: &Bytes,
        content_type: &str,
    ) -> Result<(), Fatal> {
        let hooklog_projections::lifecycle::State::Pending { due_at } = row.state else {
            unreachable!("a delivery begins pending")
        };
        if self.endpoint(key)?.is_some_and(|endpoint| endpoint.settings.queue.is_some()) {
            return self.waits(key, due_at, seq);
        }
        let limits = self.lane_limits(key)?;
        let at_once = self.sending && self.alone.is_empty() && due_at <= self.now;
        if at_once && self.scheduler.reserve(key, limits, self.now) {
            let delivery = DeliveryKey { account: key.account, seq };
            let fresh = Some((bytes.clone(), content_type.into()));
            return self.attempt(delivery, key, row, due_at, false, fresh);
        }
        self.waits(key, due_at, seq)
    }

    /// The id was used before: the same answer for the same bytes, a refusal for others.
    fn again(&mut self, enqueue: &Enqueue, event: &Event) -> Decision<Answer> {
        let slot = BodySlot::Event(event.accepted);
        let in_batch = self.batch.bodies.iter().find(|(at, _)| *at == slot).map(|(_, body)| body.clone());
        let body = match in_batch {
            Some(body) => Some(body),
            None => self.log.body(slot)?,
        };
        let same = event.event_type == enqueue.event_type
            && event.body.content_type == enqueue.body_ref.content_type
            && body.is_some_and(|body| body.bytes == enqueue.body.bytes);
        Ok(if same {
            Ok(Answer::Accepted {
                accepted: event.accepted,
                at: event.accepted_at,
                deliveries: event.delivery_seqs().collect(),
                duplicate: true,
            })
        } else {
            Err(Rejection::EventIdReused)
        })
    }
}

/// The endpoints that an event goes to: the one it is aimed at, or all that subscribed.
fn targets(account: &CachedAccount, enqueue: &Enqueue) -> Result<Vec<EndpointId>, Rejection> {
    let targets: Vec<_> = match enqueue.endpoint {
        Some(aimed) => match account.endpoints.get(&aimed) {
            Some(endpoint) if !endpoint.removed() => vec![aimed],
            Some(_) => return Err(Rejection::Removed { endpoint: aimed }),
            None => return Err(Rejection::UnknownEndpoint),
        },
        None => {
            let all = account.endpoints.iter();
            all.filter(|(_, endpoint)| endpoint.wants(&enqueue.event_type)).map(|(id, _)| *id).collect()
        }
    };
    if targets.len() > FAN_OUT_MAX {
        return Err(Rejection::FanOutTooWide { matching: targets.len() });
    }
    let signs = |id: &&EndpointId| account.endpoints[*id].settings.schemes.standard;
    match targets.iter().find(signs).filter(|_| !enqueue.utf8) {
        Some(endpoint) => Err(Rejection::NotUtf8 { endpoint: *endpoint }),
        None => Ok(targets),
    }
}
