//! Starting attempts: what the scheduler lets go, recorded before it leaves; and suspects, sent alone.

use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use hooklog_projections::account::Endpoint;
use hooklog_projections::delivery::Due;
use hooklog_projections::fact::{Actor, DeadReason, Fact};
use hooklog_projections::ids::{DeliveryKey, EndpointKey, Seq};
use hooklog_projections::lifecycle::{Delivery, State};
use hooklog_projections::policy::Text;
use hooklog_projections::tables::{DueKey, Key};
use hooklog_projections::time::Timestamp;

use super::command::TEST_TYPE;
use super::{Attempt, Engine, Fatal, INTERRUPTIONS_ALONE, InFlight, of};
use crate::log::{self, Log};
use crate::scheduler::{DueEntry, DueSource, Start};
use crate::views::rows::Rows;

impl Engine {
    /// Records an attempt for each delivery that may start now, as far as the batch has room.
    pub(super) fn start_due(&mut self) -> Result<(), Fatal> {
        if !self.sending {
            return Ok(());
        }
        while self.has_room() && !self.waits_to_be_alone() {
            let start = match self.alone.pop_front() {
                Some(start) if self.lane_limits(start.endpoint)?.held => {
                    // It was held meanwhile: it goes back and waits with the others.
                    self.scheduler.handle_unsent(start.endpoint, self.now);
                    self.waits(start.endpoint, start.due_at, start.delivery)?;
                    continue;
                }
                Some(start) => start,
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
        self.batch.turn.more |= !self.waits_to_be_alone();
        Ok(())
    }

    /// The next delivery that a worker is to be given.
    pub(super) fn poll_queues(&mut self) -> Result<Option<Start>, Fatal> {
        let mut source = DueRows { rows: &mut self.rows, log: &self.log };
        Ok(self.queues.poll(self.now, &mut source)?)
    }

    /// Nothing starts until what is out has ended: a suspect is out, or waits to be.
    pub(super) fn waits_to_be_alone(&self) -> bool {
        !self.in_flight.is_empty() && (!self.alone.is_empty() || self.suspect_out)
    }

    /// What was polled, if it waits still and is of use. Else it went back.
    pub(super) fn startable(&mut self, start: &Start) -> Result<Option<Delivery>, Fatal> {
        let now = self.now;
        let key = DeliveryKey { account: start.endpoint.account, seq: start.delivery };
        let row = match self.delivery(key) {
            // One row that cannot be read keeps nobody else from starting. It stays due, for a rebuild or the
            // next start to find.
            Err(Fatal::Log(error @ (log::Error::Damaged(_) | log::Error::BadValue(_)))) => {
                tracing::error!(
                    delivery = %start.delivery, %error,
                    "a delivery's row is damaged, it is not sent; `hooklog store rebuild` makes the rows anew"
                );
                self.lanes(start.endpoint)?.handle_unsent(start.endpoint, now);
                return Ok(None);
            }
            row => row?.filter(|row| row.state == State::Pending { due_at: start.due_at }),
        };
        let Some(row) = row else {
            // The scheduler's page was older than the log: what it knew is looked up again.
            tracing::error!(delivery = %start.delivery, "a due entry without a waiting delivery was skipped");
            self.lanes(start.endpoint)?.handle_unsent(start.endpoint, now);
            return Ok(None);
        };
        if row.expire_at.is_some_and(|end| end <= self.now) {
            self.expire(key, start.endpoint, &row, start.due_at)?;
            self.lanes(start.endpoint)?.handle_unsent(start.endpoint, now);
            return Ok(None);
        }
        Ok(Some(row))
    }

    fn start_one(&mut self, start: Start) -> Result<(), Fatal> {
        let Some(row) = self.startable(&start)? else { return Ok(()) };
        let key = DeliveryKey { account: start.endpoint.account, seq: start.delivery };
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

    /// Its deadline passed while it waited.
    fn expire(
        &mut self,
        key: DeliveryKey,
        endpoint: EndpointKey,
        row: &Delivery,
        due_at: Timestamp,
    ) -> Result<(), Fatal> {
        let tell_owner = self.policies(endpoint)?.retries && &*row.event_type != TEST_TYPE;
        let fact = Fact::Dead {
            of: of(key, endpoint, row.latest),
            reason: DeadReason::Expired,
            was_due_at: Some(due_at),
            tell_owner,
        };
        self.record(Actor::Hooklog, fact).map(drop)
    }

    /// Records that a request is about to leave, and lines it up to do so once that is durable.
    pub(super) fn attempt(
        &mut self,
        delivery: DeliveryKey,
        endpoint: EndpointKey,
        row: &Delivery,
        due_at: Timestamp,
        alone: bool,
        fresh: Option<(Bytes, Text)>,
    ) -> Result<(), Fatal> {
        let (_, target) = self.record_attempt(delivery, endpoint, row, due_at)?;
        let account = self.account(endpoint.account)?.expect("a delivery's account exists");
        let signing = target.live_keys(self.now);
        self.suspect_out |= alone;
        self.in_flight.insert(delivery.seq, InFlight { delivery, endpoint, alone });
        self.batch.turn.attempts.push(Attempt {
            delivery,
            endpoint,
            number: row.attempts + 1,
            run: row.run,
            event: row.event.clone(),
            accepted: row.accepted,
            fresh,
            target,
            signing,
            account_secret: account.row.secret.clone(),
            due_at,
        });
        Ok(())
    }

    /// Records that an attempt is about to begin; where, and to whom.
    pub(super) fn record_attempt(
        &mut self,
        delivery: DeliveryKey,
        endpoint: EndpointKey,
        row: &Delivery,
        due_at: Timestamp,
    ) -> Result<(Seq, Arc<Endpoint>), Fatal> {
        let target = self.endpoint(endpoint)?.expect("a delivery's endpoint exists");
        let fact = Fact::Attempted {
            of: of(delivery, endpoint, row.latest),
            due_at,
            attempt: row.attempts + 1,
            try_number: row.tries + 1,
            run: row.run,
            endpoint_version: target.version,
            signed_with: target.live_keys(self.now).iter().map(|key| key.id).collect(),
        };
        Ok((self.record(Actor::Hooklog, fact)?, target))
    }
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
