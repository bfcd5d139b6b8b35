//! What people ask of a delivery: replay, retry now, cancel.

use hooklog_projections::event::Events;
use hooklog_projections::fact::{Actor, Ended, Fact};
use hooklog_projections::ids::{AccountId, DeliveryKey, EndpointKey, EventId, ReplayId};
use hooklog_projections::lifecycle::{Delivery, State};
use hooklog_projections::policy::Text;
use hooklog_projections::tables::Tables;

use super::command::{Answer, Rejection, Scope};
use super::{Decision, Engine, Fatal, of};

impl Engine {
    pub(super) fn replay_event(
        &mut self,
        actor: Actor,
        account: AccountId,
        event: EventId,
        scope: Scope,
        reason: Text,
    ) -> Decision<Answer> {
        if scope == Scope::Missing {
            return self.replay_missing(actor, account, event);
        }
        let Some(row) = self.rows.over(&**self.log.disk()).get::<Events>(&(account, event))? else {
            return Ok(Err(Rejection::UnknownEvent));
        };
        let keys: Vec<_> = row.delivery_seqs().map(|seq| DeliveryKey { account, seq }).collect();
        self.replay_all(actor, &keys, scope, reason)
    }

    pub(super) fn replay_delivery(
        &mut self,
        actor: Actor,
        delivery: DeliveryKey,
        scope: Scope,
        reason: Text,
    ) -> Decision<Answer> {
        if self.delivery(delivery)?.is_none() {
            return Ok(Err(Rejection::UnknownDelivery));
        }
        self.replay_all(actor, &[delivery], scope, reason)
    }

    fn replay_all(
        &mut self,
        actor: Actor,
        keys: &[DeliveryKey],
        scope: Scope,
        reason: Text,
    ) -> Decision<Answer> {
        let (mut deliveries, mut statuses, mut barred) = (Vec::new(), Vec::new(), Vec::new());
        for key in keys {
            let Some(row) = self.delivery(*key)? else { continue };
            let was = match (&row.state, scope) {
                (State::Dead { .. }, _) => Ended::Dead,
                (State::Delivered { .. }, Scope::All) => Ended::Delivered,
                (state, _) => {
                    statuses.push(state.status());
                    continue;
                }
            };
            match self.barred(endpoint_of(*key, &row))? {
                Some(rejection) => barred.push(rejection),
                None => {
                    self.replay_one(actor.clone(), *key, &row, was, reason.clone(), None)?;
                    deliveries.push(*key);
                }
            }
        }
        statuses.sort();
        statuses.dedup();
        Ok(match barred.pop() {
            None if deliveries.is_empty() => Err(Rejection::NothingToReplay { statuses }),
            Some(rejection) if deliveries.is_empty() => Err(rejection),
            last => Ok(Answer::Replayed { deliveries, refused: barred.into_iter().chain(last).collect() }),
        })
    }

    /// Begins a new run of an ended delivery.
    pub(super) fn replay_one(
        &mut self,
        actor: Actor,
        key: DeliveryKey,
        row: &Delivery,
        was: Ended,
        reason: Text,
        bulk: Option<ReplayId>,
    ) -> Result<(), Fatal> {
        let endpoint = endpoint_of(key, row);
        let fact = Fact::Replayed {
            of: of(key, endpoint, row.latest),
            was,
            run: row.run + 1,
            due_at: self.now,
            reason,
            bulk,
        };
        self.record(actor, fact)?;
        self.waits(endpoint, self.now, key.seq)
    }

    pub(super) fn retry_now(&mut self, actor: Actor, delivery: DeliveryKey) -> Decision<Answer> {
        let (row, due_at) = match self.pending(delivery, "tried at once")? {
            Ok(found) => found,
            Err(rejection) => return Ok(Err(rejection)),
        };
        let endpoint = endpoint_of(delivery, &row);
        if let Some(rejection) = self.held_back(endpoint)? {
            return Ok(Err(rejection));
        }
        let fact = Fact::Rescheduled {
            of: of(delivery, endpoint, row.latest),
            due_at: self.now,
            was_due_at: Some(due_at),
            rule: "retry-now".into(),
        };
        self.record(actor, fact)?;
        let now = self.now;
        self.lanes(endpoint)?.handle_gone(endpoint, (due_at, delivery.seq), now);
        self.waits(endpoint, self.now, delivery.seq)?;
        Ok(Ok(Answer::Replayed { deliveries: vec![delivery], refused: Vec::new() }))
    }

    pub(super) fn cancel(&mut self, actor: Actor, delivery: DeliveryKey, reason: Text) -> Decision<Answer> {
        let (row, due_at) = match self.pending(delivery, "cancelled")? {
            Ok(found) => found,
            Err(rejection) => return Ok(Err(rejection)),
        };
        let endpoint = endpoint_of(delivery, &row);
        self.record(actor, Fact::Cancelled { of: of(delivery, endpoint, row.latest), due_at, reason })?;
        let now = self.now;
        self.lanes(endpoint)?.handle_gone(endpoint, (due_at, delivery.seq), now);
        Ok(Ok(Answer::Done))
    }

    /// A waiting delivery and its due time, or why it is none.
    #[allow(clippy::type_complexity)]
    fn pending(
        &mut self,
        key: DeliveryKey,
        wish: &'static str,
    ) -> Result<Result<(Delivery, hooklog_projections::time::Timestamp), Rejection>, Fatal> {
        let Some(row) = self.delivery(key)? else {
            return Ok(Err(Rejection::UnknownDelivery));
        };
        // One that is held back to be sent alone has left the scheduler; it starts soon by itself.
        let parked = self.alone.iter().any(|start| start.delivery == key.seq);
        Ok(match row.state {
            State::Pending { due_at } if !parked => Ok((row, due_at)),
            _ => Err(Rejection::NotPending { status: row.state.status(), wish }),
        })
    }
}

fn endpoint_of(delivery: DeliveryKey, row: &Delivery) -> EndpointKey {
    EndpointKey { account: delivery.account, endpoint: row.endpoint }
}
