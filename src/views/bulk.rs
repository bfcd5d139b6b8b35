//! What a bulk replay finds, stretch by stretch, oldest first: for its plan, and for each of its steps. A stretch is
//! bounded in rows; whoever wants the next one takes a new state. Never writes, and never decides how fast.

use std::ops::{Bound, ControlFlow};

use hooklog_projections::account::{Endpoint, Hold};
use hooklog_projections::delivery::{Dead, DeadGroup, DeadGroups, Deliveries, EndpointHistory};
use hooklog_projections::event::Event;
use hooklog_projections::fact::{BulkFilter, BulkOf, Routing};
use hooklog_projections::ids::{AccountId, DeliveryKey, EndpointId, EndpointKey, EventId, ReplayId, Seq};
use hooklog_projections::lifecycle::{Delivery, State, Status};
use hooklog_projections::replay::{Replay, Replays, Running};
use hooklog_projections::tables::{DeadGroupKey, EndpointDelivery, Key, Table};
use hooklog_projections::time::Timestamp;

use super::View;
use super::history::Filter;
use super::paging::{Page, Place};
use super::query::{RowsOf, SCAN_MAX};
use super::rows::bad_key;
use crate::log::{self, Order, codec};

/// What is looked for, and where.
#[derive(Clone, Debug)]
pub struct Search {
    /// Whose.
    pub account: AccountId,
    /// What.
    pub filter: BulkFilter,
    /// By which subscriptions.
    pub routing: Routing,
    /// After this position.
    pub after: Seq,
    /// Before this one.
    pub before: Seq,
    /// Only what had ended by then.
    pub ended_by: Timestamp,
}

/// A stretch that was looked through.
#[derive(Debug, Default)]
pub struct Stretch {
    /// What is to be sent again, ascending.
    pub found: Vec<Found>,
    /// What matches but cannot be sent again: its endpoint is disabled or removed.
    pub barred: Vec<Found>,
    /// Nothing else matches up to here.
    pub upto: Seq,
    /// Nothing follows.
    pub last: bool,
}

/// One thing that a bulk replay takes.
#[derive(Clone, Debug)]
pub enum Found {
    /// A delivery.
    Delivery(DeliveryKey, Delivery),
    /// An event that the filter's endpoint never got.
    Event(EventId, Event),
}

impl View<'_> {
    /// The next stretch: at most `limit` found, at most [`SCAN_MAX`] rows.
    pub fn replayable(&self, search: &Search, limit: usize) -> Result<Stretch, log::Error> {
        let mut search = search.clone();
        if let Some(since) = search.filter.since {
            search.after = search.after.max(Seq(self.first_since(since)?.0 - 1));
        }
        if let Some(until) = search.filter.until {
            search.before = search.before.min(self.first_since(until)?);
        }
        if search.after.next() >= search.before {
            return Ok(Stretch { upto: search.after, last: true, ..Stretch::default() });
        }
        match search.filter.of {
            BulkOf::Missing => self.missing(&search, limit),
            BulkOf::Dead | BulkOf::Delivered => self.ended(&search, limit),
        }
    }

    fn ended(&self, search: &Search, limit: usize) -> Result<Stretch, log::Error> {
        let account = search.account;
        let mut walk = Walk {
            filter: as_list(&search.filter),
            endpoints: self.endpoints_ever(account)?,
            search,
            limit,
            seen: 0,
            stretch: Stretch { upto: search.after, ..Stretch::default() },
        };
        let ended = match search.filter.endpoint {
            _ if search.filter.of == BulkOf::Dead => {
                self.walk_up::<Dead>(account.bytes(), search, |key| key, &mut walk)?
            }
            Some(endpoint) => {
                let prefix = EndpointKey { account, endpoint }.bytes();
                let key = |key: EndpointDelivery| DeliveryKey { account, seq: key.delivery };
                self.walk_up::<EndpointHistory>(prefix, search, key, &mut walk)?
            }
            None => self.walk_up::<Deliveries>(account.bytes(), search, |key| key, &mut walk)?,
        };
        walk.stretch.last = ended;
        Ok(walk.stretch)
    }

    /// Whether it came to the end of the range.
    fn walk_up<T: Table>(
        &self,
        prefix: Vec<u8>,
        search: &Search,
        delivery: impl Fn(T::Key) -> DeliveryKey,
        walk: &mut Walk<'_>,
    ) -> Result<bool, log::Error> {
        let edge = |seq: Seq| [prefix.as_slice(), &seq.0.to_be_bytes()].concat();
        let (from, to) = (edge(search.after), edge(search.before));
        let (mut failed, mut ended) = (None, true);
        let (from, to) = (Bound::Excluded(from.as_slice()), Bound::Excluded(to.as_slice()));
        self.snapshot().range(self.space::<T>(), from, to, Order::Ascending, &mut |key, value| {
            let step = T::Key::read(key).ok_or_else(|| bad_key(T::NAME)).and_then(|key| {
                let key = delivery(key);
                let row = if T::NAME == Deliveries::NAME {
                    codec::decode(value)?
                } else {
                    let missing = || log::Error::Damaged(format!("delivery {} is missing", key.seq));
                    self.delivery(key)?.ok_or_else(missing)?
                };
                Ok(walk.step(key, row))
            });
            match step {
                Ok(ControlFlow::Continue(())) => ControlFlow::Continue(()),
                Ok(ControlFlow::Break(())) => {
                    ended = false;
                    ControlFlow::Break(())
                }
                Err(error) => {
                    failed = Some(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        failed.map_or(Ok(ended), Err)
    }

    fn missing(&self, search: &Search, limit: usize) -> Result<Stretch, log::Error> {
        let account = search.account;
        let end = |upto| Stretch { upto, last: true, ..Stretch::default() };
        let Some(endpoint) = search.filter.endpoint else { return Ok(end(search.after)) };
        let key = EndpointKey { account, endpoint };
        let Some(row) = self.endpoint(key)? else { return Ok(end(search.after)) };
        let range = (search.after, search.before);
        // Most events have been got, as a rule: many are looked at for one that has not.
        let page =
            self.events(account, range, search.filter.event_type.as_deref(), Order::Ascending, EVENTS)?;
        let mut stretch = Stretch { upto: search.after, ..Stretch::default() };
        for (event, found) in page.rows {
            if stretch.found.len() >= limit {
                return Ok(stretch);
            }
            stretch.upto = found.accepted;
            if row.wants(&found.event_type) && !self.got(key, &found)? {
                let found = Found::Event(event, found);
                if barred(&row) { stretch.barred.push(found) } else { stretch.found.push(found) }
            }
        }
        match page.upto {
            Some(upto) => stretch.upto = upto,
            None => stretch.last = true,
        }
        Ok(stretch)
    }

    /// Whether an event has a delivery to an endpoint, whatever became of it.
    fn got(&self, endpoint: EndpointKey, event: &Event) -> Result<bool, log::Error> {
        for delivery in event.delivery_seqs() {
            if self.row::<EndpointHistory>(&EndpointDelivery { endpoint, delivery })?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// All endpoints that an account has or had.
    fn endpoints_ever(&self, account: AccountId) -> Result<Vec<(EndpointId, Endpoint)>, log::Error> {
        let rows = self.endpoints(account)?;
        Ok(rows.into_iter().map(|(key, row)| (key.endpoint, row)).collect())
    }

    /// A bulk replay.
    pub fn replay(&self, account: AccountId, id: ReplayId) -> Result<Option<Replay>, log::Error> {
        self.row::<Replays>(&(account, id))
    }

    /// The bulk replay of an id, whoever's it is: one look per account.
    pub fn find_replay(&self, id: ReplayId) -> Result<Option<(AccountId, Replay)>, log::Error> {
        let mut after = None;
        loop {
            let page = self.accounts(after, 1000)?;
            let Some((last, _)) = page.last() else { return Ok(None) };
            after = Some(*last);
            for (account, _) in &page {
                if let Some(row) = self.replay(*account, id)? {
                    return Ok(Some((*account, row)));
                }
            }
        }
    }

    /// Bulk replays of an account, newest first.
    pub fn replays(
        &self,
        account: AccountId,
        place: Place<ReplayId>,
        limit: usize,
    ) -> Result<Page<(ReplayId, Replay), ReplayId>, log::Error> {
        let place = place.map(|id| (account, id));
        let page = self.page::<Replays>(&account.bytes(), place, Order::Descending, limit)?;
        Ok(page.map(|((_, id), row)| (id, row), |(_, id)| id))
    }

    /// Bulk replays that run; a store has a bounded number.
    pub fn replays_running(&self) -> Result<Vec<(AccountId, ReplayId)>, log::Error> {
        let all = (Bound::Unbounded, Bound::Unbounded);
        let rows = self.range::<Running>(all.0, all.1, Order::Ascending, SCAN_MAX)?;
        Ok(rows.into_iter().map(|(key, ())| key).collect())
    }

    /// Groups of dead deliveries: of an account, of one of its endpoints, or of all; at most [`SCAN_MAX`].
    pub fn dead_groups(
        &self,
        of: Option<(AccountId, Option<EndpointId>)>,
    ) -> Result<RowsOf<DeadGroups>, log::Error> {
        let prefix = match of {
            None => Vec::new(),
            Some((account, None)) => account.bytes(),
            Some((account, Some(endpoint))) => EndpointKey { account, endpoint }.bytes(),
        };
        // Keys go on with an endpoint, a reason of a few and text: none begins with 33 of the highest byte.
        let to = [prefix.as_slice(), &[0xff; 33]].concat();
        let rows: Vec<(DeadGroupKey, DeadGroup)> = self.range::<DeadGroups>(
            Bound::Included(&prefix),
            Bound::Included(&to),
            Order::Ascending,
            SCAN_MAX,
        )?;
        Ok(rows)
    }
}

/// Events that one stretch looks at.
const EVENTS: usize = 2_000;

struct Walk<'s> {
    filter: Filter,
    endpoints: Vec<(EndpointId, Endpoint)>,
    search: &'s Search,
    limit: usize,
    seen: usize,
    stretch: Stretch,
}

impl Walk<'_> {
    fn step(&mut self, key: DeliveryKey, row: Delivery) -> ControlFlow<()> {
        if self.seen >= SCAN_MAX || self.stretch.found.len() >= self.limit {
            return ControlFlow::Break(());
        }
        self.seen += 1;
        self.stretch.upto = key.seq;
        let ended = match row.state {
            State::Dead { at, .. } | State::Delivered { at } => at <= self.search.ended_by,
            _ => false,
        };
        if !ended || !self.filter.matches(&row) {
            return ControlFlow::Continue(());
        }
        let at = self.endpoints.binary_search_by_key(&row.endpoint, |(id, _)| *id);
        let endpoint = at.ok().map(|at| &self.endpoints[at].1);
        let bars = endpoint.is_none_or(barred);
        let chosen = match self.search.routing {
            Routing::AsThen => true,
            Routing::AsNow => endpoint.is_some_and(|endpoint| endpoint.wants(&row.event_type)),
        };
        if chosen {
            let found = Found::Delivery(key, row);
            if bars { self.stretch.barred.push(found) } else { self.stretch.found.push(found) }
        }
        ControlFlow::Continue(())
    }
}

/// Whether nothing is sent again to an endpoint. A paused one takes it, and holds it.
fn barred(endpoint: &Endpoint) -> bool {
    matches!(endpoint.hold, Some(Hold::Disabled { .. } | Hold::Removed { .. }))
}

/// The same choice, as lists make it.
fn as_list(filter: &BulkFilter) -> Filter {
    Filter {
        statuses: vec![if filter.of == BulkOf::Dead { Status::Dead } else { Status::Delivered }],
        endpoint: filter.endpoint,
        event_type: filter.event_type.as_deref().map(str::to_owned),
        since: filter.since,
        until: filter.until,
        http: filter.http.clone(),
        errors: filter.errors.clone(),
    }
}
