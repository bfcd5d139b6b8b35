//! Bulk replays, as the writer sees them: begun, gone on with in small steps, called off. Whatever a step brings is
//! looked at again here, for time has passed since it was found. Never searches, and never knows how fast it goes.

use std::ops::Bound;

use hooklog_projections::delivery::EndpointHistory;
use hooklog_projections::event::{Event, Events};
use hooklog_projections::fact::{Actor, BulkFilter, BulkOf, Ended, Fact, Routing};
use hooklog_projections::ids::{AccountId, DeliveryKey, EndpointKey, EventId, ReplayId, Seq};
use hooklog_projections::lifecycle::State;
use hooklog_projections::policy::Text;
use hooklog_projections::replay::{Phase, Replay, Replays, Running};
use hooklog_projections::tables::{EndpointDelivery, Tables};

use super::command::{Answer, BULK_RUNNING_MAX, BULK_STEP_MAX, BulkStep, BulkTake, FAN_OUT_MAX, Rejection};
use super::{Decision, Engine, Fatal};
use crate::log::BodySlot;

impl Engine {
    #[allow(clippy::too_many_arguments)]
    pub(super) fn start_bulk(
        &mut self,
        actor: Actor,
        (account, id): (AccountId, ReplayId),
        filter: BulkFilter,
        reason: Text,
        rate_per_second: u32,
        routing: Routing,
        planned: u64,
    ) -> Decision<Answer> {
        if !self.accepting {
            return Ok(Err(Rejection::Draining));
        }
        if self.account(account)?.is_none() {
            return Ok(Err(Rejection::UnknownAccount));
        }
        if let Some(endpoint) = filter.endpoint
            && self.endpoint(EndpointKey { account, endpoint })?.is_none()
        {
            return Ok(Err(Rejection::UnknownEndpoint));
        }
        let live = self.rows.over(&**self.log.disk());
        let running = live.range::<Running>(Bound::Unbounded, Bound::Unbounded, BULK_RUNNING_MAX)?;
        if running.len() >= BULK_RUNNING_MAX {
            return Ok(Err(Rejection::TooManyReplays));
        }
        self.record(
            actor,
            Fact::BulkReplayStarted { id, account, filter, reason, rate_per_second, routing, planned },
        )?;
        self.batch.turn.bulk = true;
        Ok(Ok(Answer::Done))
    }

    pub(super) fn cancel_bulk(&mut self, actor: Actor, account: AccountId, id: ReplayId) -> Decision<Answer> {
        match self.running(account, id)? {
            Err(rejection) => Ok(Err(rejection)),
            Ok(_) => {
                self.record(actor, Fact::BulkReplayCancelled { id, account })?;
                self.batch.turn.bulk = true;
                Ok(Ok(Answer::Done))
            }
        }
    }

    pub(super) fn step_bulk(&mut self, step: BulkStep) -> Decision<Answer> {
        if !self.accepting {
            return Ok(Err(Rejection::Draining));
        }
        let BulkStep { account, id, after, upto, take, skipped, last } = step;
        let row = match self.running(account, id)? {
            Ok(row) if row.upto == after && take.len() <= BULK_STEP_MAX => row,
            Ok(_) => return Ok(Err(Rejection::ReplayNotThere { state: "elsewhere by now" })),
            Err(rejection) => return Ok(Err(rejection)),
        };
        let (mut replayed, mut missed) = (0, 0);
        for take in take {
            let done = match take {
                BulkTake::Delivery(seq) => self.take_delivery(&row, DeliveryKey { account, seq }, id)?,
                BulkTake::Event(event) => match row.filter.endpoint {
                    Some(endpoint) => {
                        let key = EndpointKey { account, endpoint };
                        self.send_late(row.by.clone(), key, &event, Some(id))?.is_ok()
                    }
                    None => false,
                },
            };
            if done { replayed += 1 } else { missed += 1 }
        }
        if replayed == 0 || missed + skipped > 0 {
            let skipped = missed + skipped;
            self.record(Actor::Hooklog, Fact::BulkReplayAdvanced { id, account, upto, skipped })?;
        }
        if last {
            let (replayed, skipped) =
                (row.replayed + u64::from(replayed), row.skipped + u64::from(missed + skipped));
            self.record(Actor::Hooklog, Fact::BulkReplayEnded { id, account, replayed, skipped })?;
        }
        Ok(Ok(Answer::Stepped { replayed, skipped: missed }))
    }

    /// Sends one delivery again, if it is still what it was when the replay began.
    fn take_delivery(&mut self, bulk: &Replay, key: DeliveryKey, id: ReplayId) -> Result<bool, Fatal> {
        let Some(row) = self.delivery(key)? else { return Ok(false) };
        let was = match (&row.state, bulk.filter.of) {
            (State::Dead { at, .. }, BulkOf::Dead) if *at <= bulk.started_at => Ended::Dead,
            (State::Delivered { at }, BulkOf::Delivered) if *at <= bulk.started_at => Ended::Delivered,
            _ => return Ok(false),
        };
        let place = EndpointKey { account: key.account, endpoint: row.endpoint };
        if self.barred(place)?.is_some() {
            return Ok(false);
        }
        self.replay_one(bulk.by.clone(), key, &row, was, bulk.reason.clone(), Some(id))?;
        Ok(true)
    }

    fn running(&mut self, account: AccountId, id: ReplayId) -> Decision<Replay> {
        let row = self.rows.over(&**self.log.disk()).get::<Replays>(&(account, id))?;
        Ok(match row {
            None => Err(Rejection::UnknownReplay),
            Some(row) => match row.state {
                Phase::Running => Ok(row),
                Phase::Cancelled { .. } => Err(Rejection::ReplayNotThere { state: "cancelled" }),
                Phase::Ended { .. } => Err(Rejection::ReplayNotThere { state: "through" }),
            },
        })
    }

    /// Why nothing is sent again to an endpoint, if so. A paused one takes it, and holds it.
    pub(super) fn barred(&mut self, key: EndpointKey) -> Result<Option<Rejection>, Fatal> {
        use hooklog_projections::account::Hold;
        let endpoint = key.endpoint;
        Ok(match self.endpoint(key)?.as_ref().map(|row| &row.hold) {
            None => Some(Rejection::UnknownEndpoint),
            Some(Some(Hold::Removed { .. })) => Some(Rejection::Removed { endpoint }),
            Some(Some(Hold::Disabled { .. })) => Some(Rejection::Disabled { endpoint }),
            Some(Some(Hold::Paused { .. }) | None) => None,
        })
    }

    /// Why nothing that waits for an endpoint goes out, whoever wishes it.
    pub(super) fn held_back(&mut self, key: EndpointKey) -> Result<Option<Rejection>, Fatal> {
        use hooklog_projections::account::Hold;
        let hold = self.endpoint(key)?.and_then(|row| row.hold.clone());
        let paused = matches!(hold, Some(Hold::Paused { .. }));
        Ok(if paused { Some(Rejection::Paused { endpoint: key.endpoint }) } else { self.barred(key)? })
    }

    /// Makes a delivery of an event for an endpoint that never got it.
    pub(super) fn send_late(
        &mut self,
        actor: Actor,
        key: EndpointKey,
        event: &EventId,
        bulk: Option<ReplayId>,
    ) -> Decision<Seq> {
        let name = (key.account, event.clone());
        let Some(row) = self.rows.over(&**self.log.disk()).get::<Events>(&name)? else {
            return Ok(Err(Rejection::UnknownEvent));
        };
        if let Some(rejection) = self.barred(key)? {
            return Ok(Err(rejection));
        }
        if self.has_got(key, &row)? {
            return Ok(Err(Rejection::NothingToReplay { statuses: Vec::new() }));
        }
        let matching = row.delivery_seqs().count() + 1;
        if matching > FAN_OUT_MAX {
            return Ok(Err(Rejection::FanOutTooWide { matching }));
        }
        let signs = self.endpoint(key)?.is_some_and(|row| row.settings.schemes.standard);
        if signs {
            let slot = BodySlot::Event(row.accepted);
            let fresh = self.batch.bodies.iter().find(|(at, _)| *at == slot).map(|(_, body)| body.clone());
            let body = match fresh {
                Some(body) => Some(body),
                None => self.log.body(slot)?,
            };
            if body.is_none_or(|body| std::str::from_utf8(&body.bytes).is_err()) {
                return Ok(Err(Rejection::NotUtf8 { endpoint: key.endpoint }));
            }
        }
        let enqueued = Fact::Enqueued {
            key,
            event: event.clone(),
            accepted: row.accepted,
            event_type: row.event_type.clone(),
            due_at: self.now,
            max_tries: None,
            expire_at: None,
            late: true,
            bulk,
        };
        let seq = self.record(actor, enqueued)?;
        self.waits(key, self.now, seq)?;
        Ok(Ok(seq))
    }

    /// Whether an event has a delivery to an endpoint, whatever became of it.
    fn has_got(&mut self, key: EndpointKey, event: &Event) -> Result<bool, Fatal> {
        let mut live = self.rows.over(&**self.log.disk());
        for delivery in event.delivery_seqs() {
            let place = EndpointDelivery { endpoint: key, delivery };
            if live.get::<EndpointHistory>(&place)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sends an event to every endpoint that wants it now and never got it.
    pub(super) fn replay_missing(
        &mut self,
        actor: Actor,
        account: AccountId,
        event: EventId,
    ) -> Decision<Answer> {
        let name = (account, event.clone());
        let Some(row) = self.rows.over(&**self.log.disk()).get::<Events>(&name)? else {
            return Ok(Err(Rejection::UnknownEvent));
        };
        let Some(cached) = self.account(account)? else { return Ok(Err(Rejection::UnknownAccount)) };
        let wants = cached.endpoints.iter().filter(|(_, endpoint)| endpoint.wants(&row.event_type));
        let wanting: Vec<_> =
            wants.map(|(endpoint, _)| EndpointKey { account, endpoint: *endpoint }).collect();
        let (mut deliveries, mut refused) = (Vec::new(), Vec::new());
        for key in wanting {
            match self.send_late(actor.clone(), key, &event, None)? {
                Ok(seq) => deliveries.push(DeliveryKey { account, seq }),
                // Those who have it already are no reason to refuse.
                Err(Rejection::NothingToReplay { .. }) => {}
                Err(rejection) => refused.push(rejection),
            }
        }
        Ok(match refused.pop() {
            None if deliveries.is_empty() => Err(Rejection::NothingMissing),
            Some(rejection) if deliveries.is_empty() => Err(rejection),
            last => Ok(Answer::Replayed { deliveries, refused: refused.into_iter().chain(last).collect() }),
        })
    }
}
