//! Reads of what is so, from one published state: for pages, the API and the CLI.
//!
//! Every list is a range read with a limit; what has no index is looked through for at most [`SCAN_MAX`] rows,
//! and the page says how far back it got. Never writes, and never knows who may see what.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::{Arc, RwLock};

use bytes::Bytes;
use hooklog_projections::access::{ApiKey, ApiKeys, PortalLink, PortalLinks};
use hooklog_projections::account::{Account, Accounts, Endpoint, Endpoints, Queues};
use hooklog_projections::audit::{Audit, AuditKey};
use hooklog_projections::counts::{Counts, CountsTable};
use hooklog_projections::delivery::{Dead, Deliveries, Due, EndpointHistory, InFlight, Owed};
use hooklog_projections::event::{Event, Events};
use hooklog_projections::fact::{Entry, Fact, StatusRange};
use hooklog_projections::ids::{
    AccountId, ApiKeyId, DeliveryKey, EndpointId, EndpointKey, EventId, PortalLinkId, Seq,
};
use hooklog_projections::lane::{Lane, Lanes};
use hooklog_projections::lifecycle::{Delivery, Status};
use hooklog_projections::policy::ErrorClass;
use hooklog_projections::tables::{Cadence, DueKey, EndpointDelivery, Key, Table};
use hooklog_projections::time::Timestamp;
use tokio::sync::watch;

use super::rows::{Settled, bad_key, read_row};
use crate::ids::IdCodec;
use crate::log::{self, Body, BodySlot, Order, Snapshot, Space, codec};

/// Rows that a page without an index looks through.
pub const SCAN_MAX: usize = 20_000;

/// Facts that the story of one delivery shows; a delivery has at most a few hundred.
pub const STORY_MAX: usize = 10_000;

/// What the writer last published, for every reader.
pub struct Published {
    current: RwLock<(Arc<Snapshot>, u32)>,
    settled: Arc<RwLock<Settled>>,
    ids: Arc<IdCodec>,
    heads: watch::Sender<Seq>,
}

impl Published {
    /// The first state, over the views of `generation`.
    pub fn new(
        snapshot: Arc<Snapshot>,
        generation: u32,
        settled: Arc<RwLock<Settled>>,
        ids: Arc<IdCodec>,
    ) -> Published {
        let heads = watch::Sender::new(snapshot.head());
        Published { current: RwLock::new((snapshot, generation)), settled, ids, heads }
    }

    /// Replaces the state. Only the writer calls it, after each commit and before it answers.
    pub fn publish(&self, snapshot: Arc<Snapshot>, generation: u32) {
        let head = snapshot.head();
        *self.current.write().expect("no holder panics") = (snapshot, generation);
        self.heads.send_if_modified(|known| std::mem::replace(known, head) != head);
    }

    /// Changes whenever a batch was published, and then holds its last entry: for whoever waits for more.
    pub fn heads(&self) -> watch::Receiver<Seq> {
        self.heads.subscribe()
    }

    /// The state now. Short-lived: it pins memory and files for as long as it is held.
    pub fn view(&self) -> View<'_> {
        let (snapshot, generation) = self.current.read().expect("no holder panics").clone();
        View { snapshot, generation, published: self }
    }

    /// The codec of public ids.
    pub fn ids(&self) -> &IdCodec {
        &self.ids
    }
}

/// One published state.
pub struct View<'a> {
    snapshot: Arc<Snapshot>,
    generation: u32,
    pub(super) published: &'a Published,
}

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

/// A page of deliveries, newest first.
#[derive(Debug)]
pub struct Page {
    /// The deliveries.
    pub rows: Vec<(DeliveryKey, Delivery)>,
    /// Where the next page starts (exclusive), with the moment it was enqueued; `None` on the last page.
    pub next: Option<(Seq, Timestamp)>,
    /// The page is short because [`SCAN_MAX`] rows were looked through: how far back that got.
    pub searched_back_to: Option<Timestamp>,
}

/// A page of administrative entries, newest first.
#[derive(Debug)]
pub struct AuditPage {
    /// The entries.
    pub entries: Vec<Entry>,
    /// Where the next page starts (exclusive); `None` on the last page.
    pub next: Option<Seq>,
    /// The page is short because [`SCAN_MAX`] rows were looked through: how far back that got.
    pub searched_back_to: Option<Timestamp>,
}

/// Rows of a table.
pub type RowsOf<T> = Vec<(<T as Table>::Key, <T as Table>::Value)>;

impl Filter {
    /// Whether a delivery is of the list.
    pub fn matches(&self, row: &Delivery) -> bool {
        (self.statuses.is_empty() || self.statuses.contains(&row.state.status()))
            && self.endpoint.is_none_or(|endpoint| row.endpoint == endpoint)
            && self.event_type.as_deref().is_none_or(|wanted| type_matches(wanted, &row.event_type))
            && self.since.is_none_or(|since| row.enqueued_at >= since)
            && self.until.is_none_or(|until| row.enqueued_at < until)
            && self.ended_so(row)
    }

    fn ended_so(&self, row: &Delivery) -> bool {
        if self.http.is_empty() && self.errors.is_empty() {
            return true;
        }
        let last = row.last_attempt.as_ref();
        let status = last.and_then(|last| last.status);
        let answered = status
            .is_some_and(|status| self.http.iter().any(|range| (range.from..=range.to).contains(&status)));
        answered || last.and_then(|last| last.error).is_some_and(|error| self.errors.contains(&error))
    }
}

/// Whether an event type is wanted: `payment.settled`, `payment.*`, `*`.
pub fn type_matches(wanted: &str, event_type: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(prefix) => event_type.starts_with(prefix),
        None => wanted == event_type,
    }
}

impl View<'_> {
    /// The snapshot below.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// The generation of its views.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// The last entry that this state includes.
    pub fn head(&self) -> Seq {
        self.snapshot.head()
    }

    /// An account.
    pub fn account(&self, account: AccountId) -> Result<Option<Account>, log::Error> {
        self.row::<Accounts>(&account)
    }

    /// Accounts after one, oldest first.
    pub fn accounts(
        &self,
        after: Option<AccountId>,
        limit: usize,
    ) -> Result<Vec<(AccountId, Account)>, log::Error> {
        let from = after.map(|id| id.bytes());
        let from = from.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        self.range::<Accounts>(from, Bound::Unbounded, Order::Ascending, limit)
    }

    /// An endpoint.
    pub fn endpoint(&self, key: EndpointKey) -> Result<Option<Endpoint>, log::Error> {
        self.row::<Endpoints>(&key)
    }

    /// The endpoint of an id, whoever owns it: one look per account.
    pub fn find_endpoint(&self, id: EndpointId) -> Result<Option<(EndpointKey, Endpoint)>, log::Error> {
        let mut after = None;
        loop {
            let page = self.accounts(after, 1000)?;
            let Some((last, _)) = page.last() else { return Ok(None) };
            after = Some(*last);
            for (account, _) in &page {
                let key = EndpointKey { account: *account, endpoint: id };
                if let Some(row) = self.endpoint(key)? {
                    return Ok(Some((key, row)));
                }
            }
        }
    }

    /// A key of the API.
    pub fn api_key(&self, key: ApiKeyId) -> Result<Option<ApiKey>, log::Error> {
        self.row::<ApiKeys>(&key)
    }

    /// Keys of the API after one, oldest first.
    pub fn api_keys(
        &self,
        after: Option<ApiKeyId>,
        limit: usize,
    ) -> Result<Vec<(ApiKeyId, ApiKey)>, log::Error> {
        let from = after.map(|id| id.bytes());
        let from = from.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        self.range::<ApiKeys>(from, Bound::Unbounded, Order::Ascending, limit)
    }

    /// A link of the portal that was not used yet.
    pub fn portal_link(&self, link: PortalLinkId) -> Result<Option<PortalLink>, log::Error> {
        self.row::<PortalLinks>(&link)
    }

    /// Administrative entries of an account, or of the whole store, newest first, before a position.
    pub fn audit(
        &self,
        account: Option<AccountId>,
        before: Option<Seq>,
        limit: usize,
        wanted: impl Fn(&Entry) -> bool,
    ) -> Result<AuditPage, log::Error> {
        let mut page = AuditPage { entries: Vec::new(), next: None, searched_back_to: None };
        let from = AuditKey { account, seq: Seq(0) }.bytes();
        let (mut before, mut seen) = (before.unwrap_or(Seq(u64::MAX)), 0);
        while seen < SCAN_MAX {
            let to = AuditKey { account, seq: before }.bytes();
            let bounds = (Bound::Included(from.as_slice()), Bound::Excluded(to.as_slice()));
            let rows = self.range::<Audit>(bounds.0, bounds.1, Order::Descending, limit + 1)?;
            let is_last = rows.len() <= limit;
            for (key, ()) in rows {
                let entry = self.entry(key.seq)?;
                (before, seen) = (key.seq, seen + 1);
                if !wanted(&entry) {
                    page.searched_back_to = Some(entry.at);
                } else if page.entries.len() == limit {
                    page.next = page.entries.last().map(|entry| entry.seq);
                    page.searched_back_to = None;
                    return Ok(page);
                } else {
                    page.entries.push(entry);
                }
            }
            if is_last {
                page.searched_back_to = None;
                return Ok(page);
            }
        }
        page.next = Some(before);
        Ok(page)
    }

    /// The worker queue of a name.
    pub fn queue(&self, name: &str) -> Result<Option<EndpointKey>, log::Error> {
        // No disk takes an empty key.
        if name.is_empty() { Ok(None) } else { self.row::<Queues>(&name.into()) }
    }

    /// Whether the owner is yet to be told of a dead delivery.
    pub fn is_owed(&self, place: EndpointDelivery) -> Result<bool, log::Error> {
        Ok(self.row::<Owed>(&place)?.is_some())
    }

    /// All endpoints of an account, oldest first; an account has a bounded number.
    pub fn endpoints(&self, account: AccountId) -> Result<Vec<(EndpointKey, Endpoint)>, log::Error> {
        let (from, to) = account_bounds(account);
        self.range::<Endpoints>(Bound::Included(&from), Bound::Included(&to), Order::Ascending, usize::MAX)
    }

    /// An event.
    pub fn event(&self, account: AccountId, event: &EventId) -> Result<Option<Event>, log::Error> {
        self.row::<Events>(&(account, event.clone()))
    }

    /// The accounts that have an event of this id: one look per account, a bloom filter answers most.
    pub fn accounts_with_event(&self, event: &EventId) -> Result<Vec<AccountId>, log::Error> {
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let page = self.accounts(after, 1000)?;
            let Some((last, _)) = page.last() else { return Ok(found) };
            after = Some(*last);
            for (account, _) in &page {
                if self.event(*account, event)?.is_some() {
                    found.push(*account);
                }
            }
        }
    }

    /// A delivery.
    pub fn delivery(&self, key: DeliveryKey) -> Result<Option<Delivery>, log::Error> {
        self.row::<Deliveries>(&key)
    }

    /// Deliveries of an account, newest first, before a position.
    pub fn history(
        &self,
        account: AccountId,
        filter: &Filter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Page, log::Error> {
        let mut to = before.unwrap_or(Seq(u64::MAX));
        if let Some(until) = filter.until {
            to = to.min(self.first_since(until)?);
        }
        // One more than is asked for, so that the last page knows that it is the last.
        let limit_and_one = limit.saturating_add(1);
        let mut walk =
            Walk { view: self, filter, limit: limit_and_one, rows: Vec::new(), seen: 0, last: None };
        if let Some(few) = self.few(account, filter)? {
            for seq in few.into_iter().filter(|seq| *seq < to) {
                if walk.step(DeliveryKey { account, seq }, None)?.is_break() {
                    break;
                }
            }
        } else if filter.statuses == [Status::Dead] {
            self.walk_keys::<Dead>(account_prefix(account), to, |key| key, &mut walk)?;
        } else if let Some(endpoint) = filter.endpoint {
            let prefix = EndpointKey { account, endpoint }.bytes();
            let key = |key: EndpointDelivery| DeliveryKey { account, seq: key.delivery };
            self.walk_keys::<EndpointHistory>(prefix, to, key, &mut walk)?;
        } else {
            self.walk_keys::<Deliveries>(account_prefix(account), to, |key| key, &mut walk)?;
        }
        let Walk { mut rows, seen, last, .. } = walk;
        if rows.len() > limit {
            rows.truncate(limit);
            let next = rows.last().map(|(key, row)| (key.seq, row.enqueued_at));
            return Ok(Page { rows, next, searched_back_to: None });
        }
        let cut = last.filter(|_| seen >= SCAN_MAX);
        Ok(Page { rows, next: cut, searched_back_to: cut.map(|(_, at)| at) })
    }

    /// The deliveries that have one of the wanted statuses, newest first, where the tables of what waits and what is
    /// out, or the counts, say so at once; `None` if that would be longer than a look through the history.
    fn few(&self, account: AccountId, filter: &Filter) -> Result<Option<Vec<Seq>>, log::Error> {
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
        if wanted.is_empty() || !wanted.iter().all(open) || all > SCAN_MAX as u64 {
            return Ok(None);
        }
        let mut few = Vec::new();
        if wanted.contains(&Status::Pending) {
            let prefix = match filter.endpoint {
                Some(endpoint) => EndpointKey { account, endpoint }.bytes(),
                None => account_prefix(account),
            };
            let to = [prefix.as_slice(), &[0xff; 33]].concat();
            let bounds = (Bound::Included(prefix.as_slice()), Bound::Included(to.as_slice()));
            let due = self.range::<Due>(bounds.0, bounds.1, Order::Ascending, SCAN_MAX)?;
            few.extend(due.into_iter().map(|(key, ())| key.delivery));
        }
        if wanted.contains(&Status::InFlight) {
            let (from, to) = account_bounds(account);
            let bounds = (Bound::Included(from.as_slice()), Bound::Included(to.as_slice()));
            let out = self.range::<InFlight>(bounds.0, bounds.1, Order::Ascending, SCAN_MAX)?;
            few.extend(out.into_iter().map(|(key, ())| key.seq));
        }
        few.sort_unstable_by(|a, b| b.cmp(a));
        Ok(Some(few))
    }

    /// The first entry at or after a moment, or the one after the head; times in the log never go back, so it is found by halving.
    pub fn first_since(&self, moment: Timestamp) -> Result<Seq, log::Error> {
        let (mut from, mut to) = (Seq(1), self.head().next());
        while from < to {
            let middle = Seq(from.0 + (to.0 - from.0) / 2);
            match self.snapshot.entry(middle)? {
                Some(entry) if entry.at >= moment => to = middle,
                _ => from = middle.next(),
            }
        }
        Ok(from)
    }

    fn walk_keys<T: Table>(
        &self,
        prefix: Vec<u8>,
        to: Seq,
        delivery: impl Fn(T::Key) -> DeliveryKey,
        walk: &mut Walk<'_, '_>,
    ) -> Result<(), log::Error> {
        let mut end = prefix.clone();
        end.extend(to.0.to_be_bytes());
        let mut failed = None;
        let visit = &mut |key: &[u8], value: &[u8]| {
            let step = T::Key::read(key).ok_or_else(|| bad_key(T::NAME)).and_then(|key| {
                let row = if T::NAME == Deliveries::NAME { Some(codec::decode(value)?) } else { None };
                walk.step(delivery(key), row)
            });
            step.unwrap_or_else(|error| {
                failed = Some(error);
                ControlFlow::Break(())
            })
        };
        let (from, to) = (Bound::Included(prefix.as_slice()), Bound::Excluded(end.as_slice()));
        self.snapshot.range(self.space::<T>(), from, to, Order::Descending, visit)?;
        failed.map_or(Ok(()), Err)
    }

    /// Every fact of a delivery, oldest first, begun with its event's `Accepted`.
    pub fn story(&self, row: &Delivery) -> Result<Vec<Entry>, log::Error> {
        let mut story = Vec::new();
        let mut next = Some(row.latest);
        while let Some(seq) = next.filter(|_| story.len() < STORY_MAX) {
            let entry = self.entry(seq)?;
            next = match &entry.fact {
                Fact::Enqueued { accepted, .. } => Some(*accepted),
                fact => fact.of().map(|of| of.previous),
            };
            story.push(entry);
        }
        story.reverse();
        Ok(story)
    }

    /// An entry that must be there.
    pub fn entry(&self, seq: Seq) -> Result<Entry, log::Error> {
        self.snapshot.entry(seq)?.ok_or_else(|| log::Error::Damaged(format!("entry {seq} is missing")))
    }

    /// An event's or a response's body.
    pub fn body(&self, slot: BodySlot) -> Result<Option<Body>, log::Error> {
        self.snapshot.body(slot)
    }

    /// The figures of an account, or of the whole store.
    pub fn counts(&self, account: Option<AccountId>) -> Result<Counts, log::Error> {
        Ok(self.settled_row::<CountsTable>(&account)?.unwrap_or_default())
    }

    /// An endpoint's traffic.
    pub fn lane(&self, key: EndpointKey) -> Result<Lane, log::Error> {
        Ok(self.settled_row::<Lanes>(&key)?.unwrap_or_default())
    }

    /// Dead deliveries whose owner is yet to be told, by endpoint.
    pub fn owed(&self, limit: usize) -> Result<Vec<EndpointDelivery>, log::Error> {
        let rows = self.range::<Owed>(Bound::Unbounded, Bound::Unbounded, Order::Ascending, limit)?;
        Ok(rows.into_iter().map(|(key, ())| key).collect())
    }

    /// The oldest due entry of an endpoint. May walk over what was lately sent: for people, not for loops.
    pub fn oldest_due(&self, key: EndpointKey) -> Result<Option<DueKey>, log::Error> {
        let from = key.bytes();
        let to = [from.as_slice(), &[0xff; 16]].concat();
        let rows = self.range::<Due>(Bound::Included(&from), Bound::Included(&to), Order::Ascending, 1)?;
        Ok(rows.first().map(|(key, ())| *key))
    }

    pub(super) fn row<T: Table>(&self, key: &T::Key) -> Result<Option<T::Value>, log::Error> {
        read_row::<T>(&self.snapshot, self.generation, &key.bytes())
    }

    /// Memory first, then the newest published state: a row leaves memory only after it was published.
    fn settled_row<T: Table>(&self, key: &T::Key) -> Result<Option<T::Value>, log::Error> {
        debug_assert_eq!(T::CADENCE, Cadence::Settled);
        let bytes = key.bytes();
        let newest = {
            let settled = self.published.settled.read().expect("no holder panics");
            settled.get(&(T::NAME, bytes.clone().into())).cloned()
        };
        match newest {
            Some(row) => row.as_deref().map(codec::decode).transpose(),
            None => {
                let view = self.published.view();
                read_row::<T>(&view.snapshot, view.generation, &bytes)
            }
        }
    }

    /// Rows of a settled table, both ends included: memory first, as [`settled_row`](Self::settled_row).
    pub(super) fn settled_range<T: Table>(
        &self,
        from: &T::Key,
        to: &T::Key,
        limit: usize,
    ) -> Result<RowsOf<T>, log::Error> {
        debug_assert_eq!(T::CADENCE, Cadence::Settled);
        let (from, to) = (Bytes::from(from.bytes()), Bytes::from(to.bytes()));
        let newest: Vec<(Bytes, Option<Bytes>)> = {
            let settled = self.published.settled.read().expect("no holder panics");
            let range = settled.range((T::NAME, from.clone())..=(T::NAME, to.clone()));
            range.map(|((_, key), row)| (key.clone(), row.clone())).collect()
        };
        let view = self.published.view();
        let mut rows: BTreeMap<Bytes, Bytes> = BTreeMap::new();
        let bounds = (Bound::Included(&from[..]), Bound::Included(&to[..]));
        view.snapshot.range(view.space::<T>(), bounds.0, bounds.1, Order::Ascending, &mut |key, value| {
            rows.insert(Bytes::copy_from_slice(key), Bytes::copy_from_slice(value));
            if rows.len() < limit { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        for (key, row) in newest {
            match row {
                Some(row) => drop(rows.insert(key, row)),
                None => drop(rows.remove(&key)),
            }
        }
        let read = |(key, row): (Bytes, Bytes)| {
            Ok((T::Key::read(&key).ok_or_else(|| bad_key(T::NAME))?, codec::decode(&row)?))
        };
        rows.into_iter().take(limit).map(read).collect()
    }

    pub(super) fn range<T: Table>(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        order: Order,
        limit: usize,
    ) -> Result<RowsOf<T>, log::Error> {
        let mut rows = Vec::new();
        let mut failed = None;
        if limit == 0 {
            return Ok(rows);
        }
        self.snapshot.range(self.space::<T>(), from, to, order, &mut |key, value| {
            let row = T::Key::read(key).ok_or_else(|| bad_key(T::NAME));
            match row.and_then(|key| Ok((key, codec::decode(value)?))) {
                Ok(row) => rows.push(row),
                Err(error) => failed = Some(error),
            }
            if failed.is_some() || rows.len() >= limit {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?;
        failed.map_or(Ok(rows), Err)
    }

    pub(super) fn space<T: Table>(&self) -> Space {
        Space::View { name: T::NAME, version: self.generation }
    }
}

/// One walk back through a history.
struct Walk<'v, 'p> {
    view: &'v View<'p>,
    filter: &'v Filter,
    limit: usize,
    rows: Vec<(DeliveryKey, Delivery)>,
    seen: usize,
    last: Option<(Seq, Timestamp)>,
}

impl Walk<'_, '_> {
    /// Looks at one delivery; breaks when the page is full, the scan too long, or time out of range.
    fn step(&mut self, key: DeliveryKey, row: Option<Delivery>) -> Result<ControlFlow<()>, log::Error> {
        let row = match row {
            Some(row) => row,
            None => match self.view.delivery(key)? {
                Some(row) => row,
                None => return Err(log::Error::Damaged(format!("delivery {} is missing", key.seq))),
            },
        };
        self.seen += 1;
        self.last = Some((key.seq, row.enqueued_at));
        if self.filter.since.is_some_and(|since| row.enqueued_at < since) {
            self.seen = 0;
            self.last = None;
            return Ok(ControlFlow::Break(()));
        }
        if self.filter.matches(&row) {
            self.rows.push((key, row));
        }
        let go_on = self.rows.len() < self.limit && self.seen < SCAN_MAX;
        Ok(if go_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    }
}

fn account_prefix(account: AccountId) -> Vec<u8> {
    account.bytes()
}

fn account_bounds(account: AccountId) -> (Vec<u8>, Vec<u8>) {
    let from = account.bytes();
    let to = [from.as_slice(), &[0xff; 16]].concat();
    (from, to)
}
