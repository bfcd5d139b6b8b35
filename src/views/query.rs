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
use hooklog_projections::counts::{Counts, CountsTable};
use hooklog_projections::delivery::{Deliveries, Due};
use hooklog_projections::event::{Event, Events};
use hooklog_projections::fact::{Entry, Fact};
use hooklog_projections::ids::{
    AccountId, ApiKeyId, DeliveryKey, EndpointId, EndpointKey, EventId, PortalLinkId, Seq,
};
use hooklog_projections::lane::{Lane, Lanes};
use hooklog_projections::lifecycle::Delivery;
use hooklog_projections::tables::{Cadence, DueKey, Key, Table};
use hooklog_projections::telling::{Owed, Owing};
use hooklog_projections::time::Timestamp;
use tokio::sync::watch;

use super::paging::{PageOf, Place};
use super::rows::{Settled, bad_key, read_row};
use crate::ids::IdCodec;
use crate::log::{self, Body, BodySlot, Order, Snapshot, Space, codec};

/// Rows that a page without an index looks through.
pub const SCAN_MAX: usize = 10_000;

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

/// Rows of a table.
pub type RowsOf<T> = Vec<(<T as Table>::Key, <T as Table>::Value)>;

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

    /// A page of all accounts, oldest first.
    pub fn accounts_page(
        &self,
        place: Place<AccountId>,
        limit: usize,
    ) -> Result<PageOf<Accounts>, log::Error> {
        self.page::<Accounts>(&[], place, Order::Ascending, limit)
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

    /// Keys of the API, oldest first.
    pub fn api_keys(&self, place: Place<ApiKeyId>, limit: usize) -> Result<PageOf<ApiKeys>, log::Error> {
        self.page::<ApiKeys>(&[], place, Order::Ascending, limit)
    }

    /// A link of the portal that was not used yet.
    pub fn portal_link(&self, link: PortalLinkId) -> Result<Option<PortalLink>, log::Error> {
        self.row::<PortalLinks>(&link)
    }

    /// The worker queue of a name.
    pub fn queue(&self, name: &str) -> Result<Option<EndpointKey>, log::Error> {
        // No disk takes an empty key.
        if name.is_empty() { Ok(None) } else { self.row::<Queues>(&name.into()) }
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

    /// What owners are yet to be told, by endpoint, from behind one on.
    pub fn owed(
        &self,
        after: Option<EndpointKey>,
        limit: usize,
    ) -> Result<Vec<(EndpointKey, Owing)>, log::Error> {
        let after = after.map(|key| key.bytes());
        let from = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        self.range::<Owed>(from, Bound::Unbounded, Order::Ascending, limit)
    }

    /// What an endpoint's owner is yet to be told.
    pub fn owing(&self, key: EndpointKey) -> Result<Owing, log::Error> {
        Ok(self.row::<Owed>(&key)?.unwrap_or_default())
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

fn account_bounds(account: AccountId) -> (Vec<u8>, Vec<u8>) {
    let from = account.bytes();
    let to = [from.as_slice(), &[0xff; 16]].concat();
    (from, to)
}
