//! `/v1/stream`: the facts as they commit, as server-sent events.
//!
//! Each subscriber is a place in the log and a filter: it reads from the published state when there is more and
//! its reader took what was sent before. So none is missed or told twice, also over a restart, and a slow reader
//! holds two pages of memory and never the writer. Never knows who asks.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures::stream;
use hooklog_projections::fact::{Entry, Fact};
use hooklog_projections::ids::{AccountId, DeliveryId, DeliveryKey, EndpointId, EventId, Seq};
use hooklog_projections::lifecycle::{Delivery, Status};
use hooklog_projections::time::Timestamp;
use serde_json::{Value, json as object};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::ApiState;
use super::attempts::attempt_of;
use super::problem::{Kind, Problem};
use super::query::Params;
use super::wire::{Sight, timeline_entry};
use crate::views::query::type_matches;
use crate::views::{View, paging};

/// Subscribers at a time: each costs a read of every batch.
pub const SUBSCRIBERS_MAX: usize = 64;
/// What the cursors of positions are for; one resumes with other filters too.
const LIST: &str = "stream";
/// Entries that one look at the log passes.
const PAGE_ENTRIES: usize = 1_000;
/// Bytes of one page, give or take one event.
const PAGE_BYTES: usize = 256 * 1024;
/// Nothing for so long, and a comment is sent: proxies and readers see that it lives.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// A reader that takes nothing for so long is let go; it resumes by its last id.
const STALLED: Duration = Duration::from_secs(60);
/// After a batch, before it is read: what commits meanwhile is read with it.
const GATHER: Duration = Duration::from_millis(10);
/// What a reader is told to wait before it comes back.
const RETRY_MS: u64 = 2_000;

/// Room for subscribers, and the word that they are to go.
pub(super) struct Streams {
    room: Arc<Semaphore>,
    end: CancellationToken,
}

impl Default for Streams {
    fn default() -> Streams {
        Streams { room: Arc::new(Semaphore::new(SUBSCRIBERS_MAX)), end: CancellationToken::new() }
    }
}

/// How many are open.
pub(super) fn open(api: &ApiState) -> u64 {
    SUBSCRIBERS_MAX.saturating_sub(api.shared.streams.room.available_permits()) as u64
}

impl ApiState {
    /// Ends every stream, with its farewell: a listener that stops would wait for them for ever.
    pub fn end_streams(&self) {
        self.shared.streams.end.cancel();
    }
}

/// Which facts a subscriber hears.
#[derive(Debug, Default)]
struct Wanted {
    account: Option<AccountId>,
    endpoint: Option<EndpointId>,
    event_type: Option<String>,
    statuses: Vec<Status>,
    facts: Vec<String>,
}

/// A place in the log: after this entry.
#[derive(Clone, Copy, Debug)]
struct Place {
    seq: Seq,
    at: Timestamp,
}

/// What one look at the log yields.
struct Page {
    text: String,
    upto: Place,
    more: bool,
}

pub(crate) async fn stream(api: ApiState, request: Request) -> Result<Response, Problem> {
    let mut params = Params::of(request.uri());
    let wanted = Wanted::read(&api, &mut params)?;
    let since = params.since();
    params.finish()?;
    let last = request.headers().get("last-event-id").map(|value| value.to_str().unwrap_or("?").to_owned());
    if api.shared.handle.health().closing().is_cancelled() {
        return Err(Problem::new(Kind::Draining, "the server is stopping: come back with Last-Event-ID"));
    }
    let Ok(room) = api.shared.streams.room.clone().try_acquire_owned() else {
        let detail = format!("{SUBSCRIBERS_MAX} streams are open, and no more may be");
        return Err(Problem::new(Kind::TooManyStreams, detail));
    };
    let after = api.read(move |api, view| begin(api, view, last.as_deref(), since)).await?;
    let (sender, receiver) = mpsc::channel::<Bytes>(1);
    let _feeding = tokio::spawn(feed(api, wanted, after, sender, room));
    let pages = stream::unfold(receiver, |mut receiver| async {
        let page = receiver.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(page), receiver))
    });
    let mut response = Body::from_stream(pages).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

impl Wanted {
    fn read(api: &ApiState, params: &mut Params) -> Result<Wanted, Problem> {
        let account = api.account_filter(params)?;
        let facts = params.each("fact", |name| {
            let fits = name.len() <= 32 && name.bytes().all(|b| b.is_ascii_alphabetic());
            let wrong = || "names of facts are wanted, as `Delivered,Dead`".to_owned();
            fits.then(|| name.to_owned()).ok_or_else(wrong)
        });
        let (statuses, event_type) = (params.statuses(), params.event_type());
        Ok(Wanted { account, endpoint: params.read("endpoint_id"), event_type, statuses, facts })
    }

    /// What can be told from the fact alone.
    fn takes(&self, fact: &Fact, of: &About<'_>) -> bool {
        self.account.is_none_or(|wanted| wanted == of.account)
            && self.endpoint.is_none_or(|wanted| of.endpoint == Some(wanted))
            && (self.facts.is_empty() || self.facts.iter().any(|name| name == fact.name()))
            && (self.statuses.is_empty() || status(fact).is_some_and(|now| self.statuses.contains(&now)))
    }

    fn takes_type(&self, event_type: Option<&str>) -> bool {
        match (&self.event_type, event_type) {
            (None, _) => true,
            (Some(wanted), Some(event_type)) => type_matches(wanted, event_type),
            (Some(_), None) => false,
        }
    }
}

/// What a fact is about, as far as it says so itself.
struct About<'a> {
    account: AccountId,
    endpoint: Option<EndpointId>,
    delivery: Option<Seq>,
    event: Option<(&'a EventId, &'a str)>,
}

impl About<'_> {
    /// `None` for facts of the store itself, which nobody hears.
    fn of(entry: &Entry) -> Option<About<'_>> {
        let of_account = |account| About { account, endpoint: None, delivery: None, event: None };
        Some(match &entry.fact {
            Fact::AccountCreated { account, .. }
            | Fact::AccountChanged { account, .. }
            | Fact::AccountSecretChanged { account, .. } => of_account(*account),
            Fact::EndpointCreated { key, .. }
            | Fact::EndpointChanged { key, .. }
            | Fact::SigningKeysChanged { key, .. }
            | Fact::EndpointSecretChanged { key, .. }
            | Fact::EndpointPaused { key, .. }
            | Fact::EndpointDisabled { key, .. }
            | Fact::EndpointResumed { key }
            | Fact::EndpointGated { key, .. }
            | Fact::EndpointKeptFailing { key, .. }
            | Fact::TellingBegan { key }
            | Fact::OwnerTold { key, .. } => {
                About { endpoint: Some(key.endpoint), ..of_account(key.account) }
            }
            Fact::Accepted { account, event, event_type, .. } => {
                About { event: Some((event, event_type)), ..of_account(*account) }
            }
            Fact::Enqueued { key, event, event_type, .. } => About {
                account: key.account,
                endpoint: Some(key.endpoint),
                delivery: Some(entry.seq),
                event: Some((event, event_type)),
            },
            fact => {
                let of = fact.of()?;
                About {
                    account: of.account,
                    endpoint: Some(of.endpoint),
                    delivery: Some(of.delivery),
                    event: None,
                }
            }
        })
    }
}

/// The status that a fact puts its delivery in.
fn status(fact: &Fact) -> Option<Status> {
    match fact {
        Fact::Enqueued { .. } | Fact::Rescheduled { .. } | Fact::Replayed { .. } => Some(Status::Pending),
        Fact::Attempted { .. } => Some(Status::InFlight),
        Fact::Delivered { .. } => Some(Status::Delivered),
        Fact::Dead { .. } => Some(Status::Dead),
        Fact::Cancelled { .. } => Some(Status::Cancelled),
        _ => None,
    }
}

/// Where a subscriber begins: after its last event, at a moment, or now.
fn begin(
    api: &ApiState,
    view: &View<'_>,
    last: Option<&str>,
    since: Option<Timestamp>,
) -> Result<Place, Problem> {
    if let Some(last) = last {
        let foreign = || {
            let detail = "Last-Event-ID is not an id of this store's stream; without one it begins now";
            Problem::new(Kind::BadCursor, detail)
        };
        let Ok(paging::Place::After(id)) = api.shared.cursors.read(LIST, last) else { return Err(foreign()) };
        let (seq, at) =
            api.shared.handle.published().ids().delivery_seq(DeliveryId(id)).ok_or_else(foreign)?;
        // A store that was restored from an older copy may have another entry there, or none.
        let there = view.snapshot().entry(seq)?.filter(|entry| entry.at == at);
        return there.map(|_| Place { seq, at }).ok_or_else(foreign);
    }
    let seq = match since {
        Some(since) => Seq(view.first_since(since)?.0.saturating_sub(1).max(1)),
        None => view.head(),
    };
    Ok(Place { seq, at: view.entry(seq)?.at })
}

/// Reads and sends until the reader goes, stalls, or the server stops.
async fn feed(
    api: ApiState,
    wanted: Wanted,
    mut after: Place,
    sender: mpsc::Sender<Bytes>,
    _room: OwnedSemaphorePermit,
) {
    let wanted = Arc::new(wanted);
    let mut heads = api.shared.handle.published().heads();
    let closing = api.shared.handle.health().closing().clone();
    let end = api.shared.streams.end.clone();
    let mut text = format!("retry: {RETRY_MS}\nid: {}\n\n", id(&api, after));
    loop {
        // Before it is looked: else is last, so that what commits meanwhile is looked for again.
        let leaving = closing.is_cancelled() || end.is_cancelled();
        heads.mark_unchanged();
        let reading = wanted.clone();
        let read = move |api: &ApiState, view: &View<'_>| match api.still_let_in(view)? {
            true => read(api, view, &reading, after).map(Some),
            false => Ok(None),
        };
        let page = match api.read(read).await {
            Ok(Some(page)) => page,
            Ok(None) => {
                let why = object!({ "detail": "the key holds no more" });
                text.push_str(&format!("event: revoked\ndata: {why}\n\n"));
                give(&sender, &mut text).await;
                return;
            }
            // Logged where it happened. The reader comes back after what it has.
            Err(_) => return,
        };
        after = page.upto;
        text.push_str(&page.text);
        if leaving && !page.more {
            let why = object!({ "detail": "the server stops: come back with Last-Event-ID" });
            text.push_str(&format!("event: drain\nid: {}\ndata: {why}\n\n", id(&api, after)));
        }
        if !text.is_empty() && !give(&sender, &mut text).await || leaving && !page.more {
            return;
        }
        if page.more {
            continue;
        }
        tokio::select! {
            changed = heads.changed() => match changed {
                Ok(()) => tokio::time::sleep(GATHER).await,
                Err(_) => return,
            },
            () = tokio::time::sleep(KEEP_ALIVE) => {
                text = format!(": nothing new\nid: {}\n\n", id(&api, after));
            }
            () = closing.cancelled() => {}
            () = end.cancelled() => {}
            () = sender.closed() => return,
        }
    }
}

/// Hands a page on; `false` if nobody takes it.
async fn give(sender: &mpsc::Sender<Bytes>, text: &mut String) -> bool {
    let page = Bytes::from(std::mem::take(text));
    matches!(tokio::time::timeout(STALLED, sender.send(page)).await, Ok(Ok(())))
}

fn id(api: &ApiState, place: Place) -> String {
    let ids = api.shared.handle.published().ids();
    api.shared.cursors.write(LIST, paging::Place::After(ids.delivery_id(place.seq, place.at).0))
}

/// What a subscriber hears of the next entries.
fn read(api: &ApiState, view: &View<'_>, wanted: &Wanted, after: Place) -> Result<Page, Problem> {
    let mut page = Page { text: String::new(), upto: after, more: false };
    if view.head() <= after.seq {
        return Ok(page);
    }
    let mut sights = HashMap::new();
    for entry in view.snapshot().entries(after.seq.next(), PAGE_ENTRIES)? {
        page.upto = Place { seq: entry.seq, at: entry.at };
        if let Some(told) = told(api, view, wanted, &entry, &mut sights)? {
            page.text.push_str(&format!("id: {}\ndata: {told}\n\n", id(api, page.upto)));
        }
        if page.text.len() >= PAGE_BYTES {
            break;
        }
    }
    page.more = page.upto.seq < view.head();
    Ok(page)
}

/// An entry as a timeline shows it, with whose it is; `None` if it is not for this subscriber.
fn told<'a>(
    api: &'a ApiState,
    view: &'a View<'a>,
    wanted: &Wanted,
    entry: &Entry,
    sights: &mut HashMap<AccountId, Option<Sight<'a>>>,
) -> Result<Option<Value>, Problem> {
    let Some(about) = About::of(entry).filter(|about| wanted.takes(&entry.fact, about)) else {
        return Ok(None);
    };
    let row: Option<(DeliveryKey, Delivery)> = match about.delivery {
        Some(seq) => {
            let key = DeliveryKey { account: about.account, seq };
            view.delivery(key)?.map(|row| (key, row))
        }
        None => None,
    };
    let of_row = row.as_ref().map(|(_, row)| (&row.event, &*row.event_type));
    let event = about.event.or(of_row);
    if !wanted.takes_type(event.map(|(_, event_type)| event_type)) {
        return Ok(None);
    }
    let delivery = row.as_ref().map(|(key, row)| view.delivery_id(*key, row));
    let mut out = timeline_entry(entry, delivery, attempt_of(view, entry)?, !api.is_customer());
    out["account_id"] = object!(about.account);
    if let Some((event, event_type)) = event {
        out["event_id"] = object!(event);
        out["event_type"] = object!(event_type);
    }
    let sight = match sights.entry(about.account) {
        Slot::Occupied(slot) => slot.into_mut(),
        Slot::Vacant(slot) => slot.insert(Sight::of(api, view, about.account)?),
    };
    if let Some(sight) = sight {
        if let Some(endpoint) = about.endpoint {
            out["endpoint_id"] = object!(endpoint);
            out["endpoint_host"] = object!(sight.host(endpoint)?);
        }
        if let Some((_, row)) = &row {
            out["tries"] = sight.tries(row)?.into();
        }
    }
    if let Some(status) = status(&entry.fact) {
        out["status"] = status.as_str().into();
    }
    Ok(Some(out))
}
