//! Deliveries of an account page by page, newest first or back towards the newest, through a filter.
//!
//! What has an index is read from it; else rows are looked through, so many a page, and the page says how far it
//! got. A row that is only looked at is not decoded: its few members that filters ask for are read in place. Never
//! writes, and never knows who may see what.

use std::ops::ControlFlow;

use hooklog_projections::account::Endpoints;
use hooklog_projections::delivery::{Dead, Deliveries, Due, EndpointHistory, InFlight};
use hooklog_projections::fact::StatusRange;
use hooklog_projections::ids::{AccountId, DeliveryKey, EndpointId, EndpointKey, Seq};
use hooklog_projections::lifecycle::{Delivery, LastAttempt, State, Status};
use hooklog_projections::policy::ErrorClass;
use hooklog_projections::tables::{EndpointDelivery, Key};
use hooklog_projections::time::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::View;
use super::paging::{Page, Place};
use super::query::{SCAN_MAX, type_matches};
use crate::log::{self, Order, codec};

/// What a row counts that lies elsewhere than the one before, in rows that are read in order: a look-up finds its own
/// block and decodes it, the next row of a table lies in the one at hand. In a store of 5 M deliveries, 5 to 7 µs
/// against 1.3 to 1.8 µs.
pub(super) const LOOKUP_COST: usize = 4;

/// Rows of other tables that a page looks up.
pub const LOOKUPS_MAX: usize = SCAN_MAX / LOOKUP_COST;

/// Where a page of deliveries stands: a delivery, and when it was enqueued.
pub type At = (Seq, Timestamp);

/// A page of deliveries, newest first.
pub type History = Page<(DeliveryKey, Delivery), At>;

/// Which deliveries of an account a page shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only these statuses; empty: all.
    pub statuses: Vec<Status>,
    /// Only of this endpoint.
    pub endpoint: Option<EndpointId>,
    /// Only of this type: exact, or a prefix before `*`.
    pub event_type: Option<String>,
    /// Enqueued at or after.
    pub since: Option<Timestamp>,
    /// Enqueued before.
    pub until: Option<Timestamp>,
    /// The newest attempt was answered with one of these, if any is given.
    pub http: Vec<StatusRange>,
    /// The newest attempt failed with one of these, if any is given. With `http`: either.
    pub errors: Vec<ErrorClass>,
}

/// How far a search goes.
#[derive(Clone, Copy)]
pub(super) struct Within {
    /// The first entry that is not of the list.
    pub end: Option<Seq>,
    /// It is given up after so many rows, a look-up being [`LOOKUP_COST`] of them.
    pub rows: usize,
    /// Of what waits or is out, so many are read from their tables.
    pub open: usize,
}

/// What filters ask of a delivery.
#[derive(Debug, PartialEq, Eq)]
struct Looks<'a> {
    event_type: &'a str,
    endpoint: EndpointId,
    enqueued_at: Timestamp,
    status: Status,
    last: Option<(Option<u16>, Option<ErrorClass>)>,
}

/// A [`Delivery`] as it is stored, of which nothing is copied but what filters ask for. The members are its own, in
/// its order.
#[derive(Deserialize)]
struct Glance<'a> {
    _event: IgnoredAny,
    event_type: &'a str,
    _accepted: IgnoredAny,
    endpoint: EndpointId,
    enqueued_at: Timestamp,
    state: State,
    _run: IgnoredAny,
    _attempts: IgnoredAny,
    _tries: IgnoredAny,
    _interruptions: IgnoredAny,
    _max_tries: IgnoredAny,
    _latest: IgnoredAny,
    last_attempt: Option<LastAttempt>,
    _expire_at: IgnoredAny,
    _bulk: IgnoredAny,
}

impl Filter {
    /// Whether a delivery is of the list.
    pub fn matches(&self, row: &Delivery) -> bool {
        self.takes(&Looks::of(row))
    }

    fn takes(&self, row: &Looks<'_>) -> bool {
        (self.statuses.is_empty() || self.statuses.contains(&row.status))
            && self.endpoint.is_none_or(|endpoint| row.endpoint == endpoint)
            && self.event_type.as_deref().is_none_or(|wanted| type_matches(wanted, row.event_type))
            && self.since.is_none_or(|since| row.enqueued_at >= since)
            && self.until.is_none_or(|until| row.enqueued_at < until)
            && self.ended_so(row)
    }

    fn ended_so(&self, row: &Looks<'_>) -> bool {
        if self.http.is_empty() && self.errors.is_empty() {
            return true;
        }
        let (status, error) = row.last.unwrap_or_default();
        let within = |status| self.http.iter().any(|range| (range.from..=range.to).contains(&status));
        status.is_some_and(within) || error.is_some_and(|error| self.errors.contains(&error))
    }
}

impl<'a> Looks<'a> {
    fn of(row: &'a Delivery) -> Looks<'a> {
        Looks {
            event_type: &row.event_type,
            endpoint: row.endpoint,
            enqueued_at: row.enqueued_at,
            status: row.state.status(),
            last: row.last_attempt.as_ref().map(|last| (last.status, last.error)),
        }
    }

    /// Those of a stored row.
    fn at(row: &'a [u8]) -> Result<Looks<'a>, log::Error> {
        let row: Glance<'a> = codec::glance(row)?;
        Ok(Looks {
            event_type: row.event_type,
            endpoint: row.endpoint,
            enqueued_at: row.enqueued_at,
            status: row.state.status(),
            last: row.last_attempt.map(|last| (last.status, last.error)),
        })
    }
}

impl View<'_> {
    /// A page of an account's deliveries, newest first.
    pub fn history(
        &self,
        account: AccountId,
        filter: &Filter,
        place: Place<At>,
        limit: usize,
    ) -> Result<History, log::Error> {
        let within = Within { end: self.end_of(filter)?, rows: SCAN_MAX, open: SCAN_MAX };
        Ok(self.history_within(account, filter, within, place, limit)?.0)
    }

    /// Where a list ends by its `until`: the first entry that is not of it.
    pub(super) fn end_of(&self, filter: &Filter) -> Result<Option<Seq>, log::Error> {
        filter.until.map(|until| self.first_since(until)).transpose()
    }

    /// The same within bounds. Answers also how many rows the search has cost.
    pub(super) fn history_within(
        &self,
        account: AccountId,
        filter: &Filter,
        within: Within,
        place: Place<At>,
        limit: usize,
    ) -> Result<(History, usize), log::Error> {
        let before = within.end.unwrap_or(Seq(u64::MAX));
        let from = match (place.map(|(seq, _)| seq), within.end) {
            // Towards the newest, the walk itself ends there.
            (from @ Place::UpTo(_), _) => from,
            (Place::After(seq), _) => Place::After(seq.min(before)),
            (Place::First, Some(end)) => Place::After(end),
            (Place::First, None) => Place::First,
        };
        let mut walk = Walk {
            view: self,
            filter,
            before,
            back: place.leads_back(),
            limit,
            rows_max: within.rows,
            cost: 0,
            found: Vec::new(),
            last: None,
            stopped: None,
        };
        if let Some(few) = self.few(account, filter, within.open)? {
            walk.through(account, from, few)?;
        } else if filter.statuses == [Status::Dead] {
            let key = |seq| DeliveryKey { account, seq };
            self.visit::<Dead>(&account.bytes(), from.map(key), Order::Descending, &mut |key, _| {
                walk.look(key, None)
            })?;
        } else if let Some(endpoint) = filter.endpoint {
            let endpoint = EndpointKey { account, endpoint };
            let place = from.map(|delivery| EndpointDelivery { endpoint, delivery });
            let key = |key: EndpointDelivery| DeliveryKey { account, seq: key.delivery };
            self.visit::<EndpointHistory>(&endpoint.bytes(), place, Order::Descending, &mut |at, _| {
                walk.look(key(at), None)
            })?;
        } else {
            let place = from.map(|seq| DeliveryKey { account, seq });
            self.visit::<Deliveries>(&account.bytes(), place, Order::Descending, &mut |key, row| {
                walk.look(key, Some(row))
            })?;
        }
        let Walk { found, last, stopped, cost, .. } = walk;
        let page = place.page(found, limit, |(key, row)| (key.seq, row.enqueued_at), stopped);
        Ok((Page { searched_to: stopped.and(last).map(|(_, at)| at), ..page }, cost))
    }

    /// The deliveries that have one of the wanted statuses, newest first, where the tables of what waits and what is
    /// out, or the counts, say so at once; `None` if that would be longer than a look through the history.
    fn few(&self, account: AccountId, filter: &Filter, most: usize) -> Result<Option<Vec<Seq>>, log::Error> {
        let counts = self.counts(Some(account))?;
        let count = |status: &Status| match status {
            Status::Pending => counts.pending,
            Status::InFlight => counts.in_flight,
            Status::Delivered => counts.delivered,
            Status::Dead => counts.dead,
            Status::Cancelled => counts.cancelled,
        };
        let wanted = &filter.statuses;
        let all: u64 = wanted.iter().map(count).sum();
        if !wanted.is_empty() && all == 0 {
            return Ok(Some(Vec::new()));
        }
        let open = |status: &Status| matches!(status, Status::Pending | Status::InFlight);
        if wanted.is_empty() || !wanted.iter().all(open) || all > most as u64 {
            return Ok(None);
        }
        let mut few = Vec::new();
        if wanted.contains(&Status::Pending) {
            let at = match filter.endpoint {
                Some(endpoint) => vec![EndpointKey { account, endpoint }],
                None => self.waited_at(account)?,
            };
            for endpoint in at {
                self.visit::<Due>(&endpoint.bytes(), Place::First, Order::Ascending, &mut |key, _| {
                    few.push(key.delivery);
                    Ok(bounded(&few))
                })?;
            }
        }
        if wanted.contains(&Status::InFlight) {
            self.visit::<InFlight>(&account.bytes(), Place::First, Order::Ascending, &mut |key, _| {
                few.push(key.seq);
                Ok(bounded(&few))
            })?;
        }
        few.sort_unstable_by(|a, b| b.cmp(a));
        Ok(Some(few))
    }

    /// The endpoints of an account that something waits at. Where nothing does, what was sent lately may still lie as
    /// so many deleted rows in the table of what is due, and all of them would be walked over.
    fn waited_at(&self, account: AccountId) -> Result<Vec<EndpointKey>, log::Error> {
        let mut found = Vec::new();
        self.visit::<Endpoints>(&account.bytes(), Place::First, Order::Ascending, &mut |key, _| {
            if self.lane(key)?.waiting > 0 {
                found.push(key);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }
}

/// More may have begun to wait since they were counted.
fn bounded(few: &[Seq]) -> ControlFlow<()> {
    if few.len() < 2 * SCAN_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

/// One walk through a history.
struct Walk<'v, 'p> {
    view: &'v View<'p>,
    filter: &'v Filter,
    /// The list ends before this.
    before: Seq,
    /// Towards the newest.
    back: bool,
    limit: usize,
    rows_max: usize,
    cost: usize,
    found: Vec<(DeliveryKey, Delivery)>,
    last: Option<At>,
    stopped: Option<At>,
}

impl Walk<'_, '_> {
    /// Walks through a few, newest first.
    fn through(&mut self, account: AccountId, from: Place<Seq>, few: Vec<Seq>) -> Result<(), log::Error> {
        let mut few: Vec<Seq> = few.into_iter().filter(|seq| from.holds(|at| at.cmp(seq))).collect();
        if self.back {
            few.reverse();
        }
        for seq in few {
            if self.look(DeliveryKey { account, seq }, None)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Looks at one delivery; breaks when the page is full, the search too long, or time out of range.
    fn look(&mut self, key: DeliveryKey, row: Option<&[u8]>) -> Result<ControlFlow<()>, log::Error> {
        if key.seq >= self.before {
            return Ok(ControlFlow::Break(()));
        }
        let looked_up;
        let (cost, row) = match row {
            Some(row) => (1, row),
            None => {
                let space = self.view.space::<Deliveries>();
                let there = self.view.snapshot().get(space, &key.bytes())?;
                let missing = || log::Error::Damaged(format!("delivery {} is missing", key.seq));
                looked_up = there.ok_or_else(missing)?;
                (LOOKUP_COST, &looked_up[..])
            }
        };
        let looks = Looks::at(row)?;
        let at = (key.seq, looks.enqueued_at);
        if self.filter.since.is_some_and(|since| looks.enqueued_at < since) {
            return Ok(ControlFlow::Break(()));
        }
        if self.cost + cost > self.rows_max {
            self.stopped = if self.back { Some(at) } else { self.last };
            return Ok(ControlFlow::Break(()));
        }
        self.cost += cost;
        self.last = Some(at);
        if self.filter.takes(&looks) {
            self.found.push((key, codec::decode(row)?));
        }
        Ok(if self.found.len() > self.limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}

#[cfg(test)]
mod tests {
    use hooklog_projections::fact::DeadReason;
    use hooklog_projections::ids::ReplayId;
    use hooklog_projections::time::Millis;

    use super::*;

    #[test]
    fn a_glance_sees_what_the_whole_row_says() {
        let at = Timestamp(1_700_000_000_000);
        let states = [
            State::Pending { due_at: at },
            State::InFlight { attempted: Seq(1 << 40), started_at: at },
            State::Deciding { counted: true },
            State::Delivered { at },
            State::Dead { at, reason: DeadReason::RetriesOff },
            State::Cancelled { at },
        ];
        let last = |status, error| LastAttempt { attempt: 3, at, took: Millis(12), status, error };
        let lasts = [
            None,
            Some(last(Some(503), None)),
            Some(last(None, Some(ErrorClass::Timeout))),
            Some(last(None, None)),
        ];
        for state in states {
            for last_attempt in lasts.clone() {
                for event_type in ["", "payment.settled", &"x".repeat(300)] {
                    let row = Delivery {
                        event: "evt-1".parse().expect("it fits"),
                        event_type: event_type.into(),
                        accepted: Seq(7),
                        endpoint: EndpointId(u128::MAX - 1),
                        enqueued_at: at,
                        state: state.clone(),
                        run: 2,
                        attempts: 70_000,
                        tries: 5,
                        interruptions: 0,
                        max_tries: Some(9),
                        latest: Seq(u64::MAX),
                        last_attempt: last_attempt.clone(),
                        expire_at: Some(at),
                        bulk: Some(ReplayId(1)),
                    };
                    let stored = codec::encode(&row);
                    assert_eq!(Looks::at(&stored).expect("it can be read"), Looks::of(&row));
                    for cut in [0, 1, 2, stored.len() / 2, stored.len() - 1] {
                        assert!(Looks::at(&stored[..cut]).is_err(), "{cut} bytes");
                    }
                }
            }
        }
    }
}
