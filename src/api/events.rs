//! `/v1/events`: taken in one by one, in batches and raw; shown, replayed. Never knows who receives one.

use axum::body::Bytes;
use axum::extract::{Extension, Path, Request};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures::future::join_all;
use hooklog_projections::event::Event;
use hooklog_projections::ids::{AccountId, DeliveryId, DeliveryKey, EventId, Seq};
use hooklog_projections::time::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json as object};

use super::access::no_delivery;
use super::accounts::known;
use super::attempts::attempt_of;
use super::endpoints::REASON_CHARS_MAX;
use super::envelope::{self, About};
use super::fields::{Fields, bad, flag, parse, text, word};
use super::paging::{Asked, PageOut, reply};
use super::policies::moment_text;
use super::problem::{Kind, Problem};
use super::query::Params;
use super::rim::{RequestId, json, json_body, small_body_or_none, whole};
use super::wire::{self, DeliveryRef, Sight, timeline_entry};
use super::{ApiState, idempotency, unexpected};
use crate::engine::{Answer, Command, Scope};
use crate::explain::{Explanation, explain_event};
use crate::log::{BodySlot, Order};
use crate::views::events::Events;
use crate::views::{Page, Place, View};

/// Events of one batch.
const BATCH_MAX: usize = 500;
/// Bytes of one batch.
const BATCH_BYTES_MAX: usize = 8 << 20;
/// Bytes of a raw event's content type.
const CONTENT_TYPE_BYTES_MAX: usize = 200;

#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Accepted)]
pub(crate) struct AcceptedOut {
    #[schema(value_type = String)]
    pub id: EventId,
    #[schema(value_type = String)]
    pub account_id: AccountId,
    pub r#type: String,
    #[schema(format = DateTime)]
    pub accepted_at: String,
    pub deliveries: Vec<DeliveryRef>,
    pub duplicate: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub explanation: Option<Explanation>,
}

pub(super) async fn create(api: ApiState, request: Request) -> Result<Response, Problem> {
    no_delivery(request.headers())?;
    let body = json_body(request, api.event_bytes_max()).await?;
    let (status, out) = accept(&api, envelope::read(&api, Fields::read(&body)?, 0)?).await?;
    respond(&api, status, &out)
}

/// An event in a list: as it came in.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = ListedEvent)]
pub(crate) struct ListedOut {
    #[schema(value_type = String)]
    pub id: EventId,
    #[schema(value_type = String)]
    pub account_id: AccountId,
    pub r#type: String,
    #[schema(format = DateTime)]
    pub accepted_at: String,
    pub size: u32,
    pub content_type: String,
    /// To how many endpoints it went; none if nobody had subscribed.
    pub delivery_count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = serde_json::Value)]
    pub payload: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    payload_base64: Option<String>,
}

/// An account's events, newest first.
pub(super) async fn list(api: ApiState, request: Request) -> Result<Response, Problem> {
    let found = listed(&api, request.uri()).await?;
    reply(request.uri(), found)
}

/// What the query of an address selects.
pub(crate) async fn listed(api: &ApiState, uri: &Uri) -> Result<PageOut<ListedOut>, Problem> {
    let mut params = Params::of(uri);
    let account = api.account_param(&mut params)?;
    let unmatched = params.one_of("status", |word| match word {
        "unmatched" => Ok(()),
        _ => Err("unmatched is wanted: events that nobody had subscribed to".to_owned()),
    });
    let with_payload = !params
        .each("include", |word| match word {
            "payload" => Ok(()),
            _ => Err("payload is wanted".to_owned()),
        })
        .is_empty();
    let (event_type, (since, until)) = (params.event_type(), params.span());
    let asked = Asked::read(&mut params);
    let account = params.finish_with(account)?;
    let paging =
        asked.of(api, format!("events {account} {unmatched:?} {event_type:?} {since:?} {until:?}"))?;
    let (place, limit) = (paging.place, paging.limit);
    let page = api
        .read(move |api, view| {
            known(view, account)?;
            let ids = api.shared.handle.published().ids();
            let place = place.map(|id| ids.delivery_seq(DeliveryId(id)).unwrap_or_default());
            let until = until.map(|until| view.first_since(until)).transpose()?;
            let since = since.map(|since| view.first_since(since)).transpose()?;
            let (mut after, mut before) =
                (Seq(since.map_or(0, |first| first.0 - 1)), until.unwrap_or(Seq(u64::MAX)));
            let order = match place {
                Place::First => Order::Descending,
                Place::After((seq, _)) => {
                    before = before.min(seq);
                    Order::Descending
                }
                Place::UpTo((seq, _)) => {
                    after = after.max(Seq(seq.0.saturating_sub(1)));
                    Order::Ascending
                }
            };
            let wanted = event_type.as_deref();
            let range = (after, before);
            let found = match unmatched {
                _ if after.next() >= before => Events::default(),
                Some(()) => view.unmatched(account, range, wanted, order, limit)?,
                None => view.events(account, range, wanted, order, limit)?,
            };
            let upto = found.upto.map(|upto| view.entry(upto)).transpose()?;
            let searched_to = upto.as_ref().filter(|_| found.rows.len() < limit).map(|entry| entry.at);
            // On the way back the page before ends with whatever follows.
            let beyond =
                upto.map(|entry| (if place.leads_back() { entry.seq.next() } else { entry.seq }, entry.at));
            let page = place.page(found.rows, limit, |(_, row)| (row.accepted, row.accepted_at), beyond);
            Page { searched_to, ..page }.shown(
                |(id, row)| listed_out(view, account, id, &row, with_payload),
                |(seq, at)| ids.delivery_id(seq, at).0,
            )
        })
        .await?;
    Ok(paging.out(api, page))
}

fn listed_out(
    view: &View<'_>,
    account_id: AccountId,
    id: EventId,
    row: &Event,
    with_payload: bool,
) -> Result<ListedOut, Problem> {
    let (payload, payload_base64) =
        if with_payload { wire::payload(view, row.accepted)? } else { (None, None) };
    Ok(ListedOut {
        id,
        account_id,
        r#type: row.event_type.to_string(),
        accepted_at: moment_text(row.accepted_at),
        size: row.body.len,
        content_type: row.body.content_type.to_string(),
        delivery_count: row.delivery_seqs().count() as u64,
        payload,
        payload_base64,
    })
}

pub(super) async fn raw(api: ApiState, request: Request) -> Result<Response, Problem> {
    no_delivery(request.headers())?;
    let mut params = Params::of(request.uri());
    let account = api.account_param(&mut params)?;
    let event_type = params.one_of("type", |text| {
        envelope::event_type(text).map(|()| text.to_owned()).map_err(|wrong| wrong.detail)
    });
    let event = params.read_as_given("id");
    let endpoint = params.read_as_given("endpoint_id");
    if event_type.is_none() {
        params.fail("type", "name the event's type");
    }
    let (account, event_type) = params.finish_with(account.zip(event_type))?;
    let content_type = content_type(request.headers())?;
    let body = whole(request.into_body(), api.event_bytes_max()).await?;
    let about =
        About { account, event, event_type, deliver_at: None, max_tries: None, expire_at: None, endpoint };
    let (status, out) = accept(&api, envelope::raw(&api, about, &content_type, body)?).await?;
    respond(&api, status, &out)
}

/// Every event is asked for by itself; the engine commits them together.
pub(super) async fn batch(
    api: ApiState,
    Extension(request_id): Extension<RequestId>,
    request: Request,
) -> Result<Response, Problem> {
    no_delivery(request.headers())?;
    let body = json_body(request, BATCH_BYTES_MAX).await?;
    let mut fields = Fields::read(&body)?;
    let events = fields.required("events", |value| {
        let events: Vec<&RawValue> = parse(value, "a list of events")?;
        match events.len() {
            1..=BATCH_MAX => Ok(events),
            other => Err(bad("length", format!("1 to {BATCH_MAX} events are taken; there are {other}"))),
        }
    });
    fields.finish()?;
    let events = events.unwrap_or_default().into_iter().enumerate();
    let results = join_all(events.map(|(at, event)| {
        let read =
            Fields::of(event, format!("/events/{at}")).and_then(|fields| envelope::read(&api, fields, at));
        let api = &api;
        async move {
            match read {
                Ok(command) => accept(api, command).await,
                Err(problem) => Err(problem),
            }
        }
    }))
    .await;
    let results: Vec<Value> = results
        .iter()
        .map(|result| match result {
            Ok((status, out)) => with_status(*status, out),
            Err(problem) => with_status(problem.kind.status(), &problem.wire(&request_id.0)),
        })
        .collect();
    json(StatusCode::ACCEPTED, &object!({ "results": results }))
}

fn with_status(status: StatusCode, value: &impl Serialize) -> Value {
    let mut value = serde_json::to_value(value).unwrap_or_default();
    value["status"] = status.as_u16().into();
    value
}

pub(super) fn respond(api: &ApiState, status: StatusCode, out: &AcceptedOut) -> Result<Response, Problem> {
    let location = format!("/v1/events/{}?account_id={}", out.id, out.account_id);
    let response = ([(LOCATION, location)], json(status, out)?).into_response();
    Ok(idempotency::marked(api, out.duplicate, response))
}

/// Takes one event in; what it answers is durable.
pub(super) async fn accept(api: &ApiState, command: Command) -> Result<(StatusCode, AcceptedOut), Problem> {
    let (Command::Enqueue(enqueue) | Command::EnqueueGivenUp(enqueue)) = &command else {
        unreachable!("an event is taken in by no other command")
    };
    let (account, event) = (enqueue.account, enqueue.event.clone());
    api.spend_event(account)?;
    let event_type = enqueue.event_type.to_string();
    let Answer::Accepted { accepted: _, at, deliveries, duplicate } = (match api.ask(command).await? {
        answer @ Answer::Accepted { .. } => answer,
        other => return Err(unexpected(other)),
    }) else {
        unreachable!("matched above")
    };
    let deliveries = if duplicate {
        api.read(move |_, view| references(view, account, &deliveries)).await?
    } else {
        // Written a moment ago, so they lie in memory: a thread of its own would cost more than the read.
        references(&api.shared.handle.view(), account, &deliveries)?
    };
    let explanation = deliveries.is_empty().then(|| explain_event(&event_type, at, &[], api.now(), false));
    let status = if duplicate { StatusCode::OK } else { StatusCode::ACCEPTED };
    let out = AcceptedOut {
        id: event,
        account_id: account,
        r#type: event_type,
        accepted_at: moment_text(at),
        deliveries,
        duplicate,
        explanation,
    };
    Ok((status, out))
}

fn references(view: &View<'_>, account: AccountId, deliveries: &[Seq]) -> Result<Vec<DeliveryRef>, Problem> {
    let mut out = Vec::with_capacity(deliveries.len());
    for seq in deliveries {
        let key = DeliveryKey { account, seq: *seq };
        let row = view.delivery(key)?;
        let row = row.ok_or_else(|| Problem::internal(&format!("the delivery at {seq} is missing")))?;
        out.push(DeliveryRef { id: view.delivery_id(key, &row), endpoint_id: Some(row.endpoint) });
    }
    Ok(out)
}

pub(super) async fn show(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let (account, at) = account_and_moment(&api, request.uri())?;
    let out = api
        .read(move |api, view| {
            let (account, id, row) = find(view, &id, account)?;
            sight_at(api, view, account, at)?.event(&id, &row)
        })
        .await?;
    json(StatusCode::OK, &out)
}

pub(crate) async fn payload(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let account = account_of(&api, request.uri())?;
    let (id, bytes) = api
        .read(move |_, view| {
            let (_, id, row) = find(view, &id, account)?;
            let body = view.body(BodySlot::Event(row.accepted))?;
            let body = body.ok_or_else(|| Problem::internal(&format!("the body of {id} is missing")))?;
            Ok((id, body.bytes))
        })
        .await?;
    // A browser saves it, and never runs it.
    let headers = [
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
        (CONTENT_DISPOSITION, format!("attachment; filename=\"{id}.bin\"")),
        (CONTENT_SECURITY_POLICY, "sandbox".to_owned()),
    ];
    Ok((headers, bytes).into_response())
}

pub(super) async fn timeline(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let account = account_of(&api, request.uri())?;
    let data = api
        .read(move |api, view| {
            let (account, _, row) = find(view, &id, account)?;
            let mut entries = vec![(view.entry(row.accepted)?, None)];
            for (key, delivery) in sight(api, view, account)?.deliveries(&row)? {
                let id = view.delivery_id(key, &delivery);
                let story = view.story(&delivery)?;
                let told = view.tellings_of(&story, Seq(u64::MAX))?;
                entries.extend(told.into_iter().map(|entry| (entry, Some(id))));
                let story = story.into_iter().filter(|entry| entry.seq != row.accepted);
                entries.extend(story.map(|entry| (entry, Some(id))));
            }
            entries.sort_by_key(|(entry, _)| entry.seq);
            let sees_all = !api.is_customer();
            let shown = entries
                .iter()
                .map(|(entry, id)| Ok(timeline_entry(entry, *id, attempt_of(view, entry)?, sees_all)));
            shown.collect::<Result<Vec<_>, Problem>>()
        })
        .await?;
    json(StatusCode::OK, &object!({ "data": data }))
}

pub(super) async fn replay(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let account = account_of(&api, request.uri())?;
    let body = small_body_or_none(request).await?;
    json(StatusCode::ACCEPTED, &replay_of(&api, id, account, Wish::read(&body)?).await?)
}

/// Replays an event, in the account that is named or the only one that has it.
pub(crate) async fn replay_of(
    api: &ApiState,
    id: String,
    account: Option<AccountId>,
    wish: Wish,
) -> Result<ReplayedOut, Problem> {
    let (account, event) =
        api.read(move |_, view| find(view, &id, account).map(|(account, id, _)| (account, id))).await?;
    let reason = wish.reason.into();
    replayed(api, Command::ReplayEvent { account, event, scope: wish.scope, reason }).await
}

/// The deliveries that got a new run.
#[derive(Serialize)]
pub(crate) struct ReplayedOut {
    deliveries: Vec<DeliveryRef>,
    /// Why others of the event got none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<String>,
}

/// What a replay is asked with.
pub(crate) struct Wish {
    pub scope: Scope,
    pub reason: String,
}

/// The words of scopes.
#[derive(Clone, Copy, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ScopeWord {
    Dead,
    All,
    Missing,
}

impl Wish {
    pub(super) fn read(body: &Bytes) -> Result<Wish, Problem> {
        let mut fields = Fields::read_or_empty(body)?;
        let scope = fields.optional("scope", word::<ScopeWord>("`dead`, `all`, `missing`"));
        let confirm = fields.optional("confirm", flag).unwrap_or(false);
        let reason = reason(&mut fields);
        fields.finish()?;
        Wish::of(scope.unwrap_or(ScopeWord::Dead), confirm, reason)
    }

    /// # Errors
    /// 422 for delivered ones that are not confirmed.
    pub(crate) fn of(scope: ScopeWord, confirm: bool, reason: String) -> Result<Wish, Problem> {
        let scope = match scope {
            ScopeWord::All if !confirm => {
                let detail = "`all` sends delivered ones again, which a receiver may act on twice: add \
                              \"confirm\": true if that is meant";
                return Err(Problem::new(Kind::ConfirmNeeded, detail));
            }
            ScopeWord::All => Scope::All,
            ScopeWord::Missing => Scope::Missing,
            ScopeWord::Dead => Scope::Dead,
        };
        Ok(Wish { scope, reason })
    }
}

/// The member `reason`, as anyone puts it.
pub(super) fn reason(fields: &mut Fields<'_>) -> String {
    fields
        .optional("reason", |value| match value.get() {
            "\"\"" => Ok(String::new()),
            _ => text(REASON_CHARS_MAX)(value),
        })
        .unwrap_or_default()
}

/// Asks for a new run, and names the deliveries that got one.
pub(super) async fn replayed(api: &ApiState, command: Command) -> Result<ReplayedOut, Problem> {
    api.spend_replay()?;
    let (keys, refused) = match api.ask(command).await? {
        Answer::Replayed { deliveries, refused } => (deliveries, refused),
        other => return Err(unexpected(other)),
    };
    let deliveries = api
        .read(move |_, view| {
            let mut out = Vec::with_capacity(keys.len());
            for key in keys {
                if let Some(row) = view.delivery(key)? {
                    out.push(DeliveryRef {
                        id: view.delivery_id(key, &row),
                        endpoint_id: Some(row.endpoint),
                    });
                }
            }
            Ok(out)
        })
        .await?;
    Ok(ReplayedOut { deliveries, refused: refused.iter().map(ToString::to_string).collect() })
}

/// The parameter `account_id`, which is all that a request about one event or delivery takes.
pub(crate) fn account_of(api: &ApiState, uri: &Uri) -> Result<Option<AccountId>, Problem> {
    let mut params = Params::of(uri);
    let account = api.account_filter(&mut params)?;
    params.finish()?;
    Ok(account)
}

/// The parameters `account_id` and `at`: what a question about one event or delivery takes.
pub(super) fn account_and_moment(
    api: &ApiState,
    uri: &Uri,
) -> Result<(Option<AccountId>, Option<Timestamp>), Problem> {
    let mut params = Params::of(uri);
    let (account, at) = (api.account_filter(&mut params)?, params.as_of());
    params.finish()?;
    Ok((account, at))
}

/// The event of an id: in the account that was named, else in the only one that has it.
pub(crate) fn find(
    view: &View<'_>,
    id: &str,
    account: Option<AccountId>,
) -> Result<(AccountId, EventId, Event), Problem> {
    let none = || Problem::new(Kind::NotFound, "there is no such event");
    let id: EventId = id.parse().map_err(|_| none())?;
    let account = match account {
        Some(account) => account,
        None => match view.accounts_with_event(&id)?.as_slice() {
            [] => return Err(none()),
            [only] => *only,
            several => {
                let detail = format!("{} accounts have an event of this id: add ?account_id=", several.len());
                let problem = Problem::new(Kind::Ambiguous, detail);
                return Err(Problem { candidates: several.to_vec(), ..problem });
            }
        },
    };
    let row = view.event(account, &id)?.ok_or_else(none)?;
    Ok((account, id, row))
}

/// The deliveries of an account that is known to be there.
pub(super) fn sight<'a>(
    api: &'a ApiState,
    view: &'a View<'a>,
    account: AccountId,
) -> Result<Sight<'a>, Problem> {
    sight_at(api, view, account, None)
}

/// The same as they were at an earlier moment, if one is asked for.
pub(super) fn sight_at<'a>(
    api: &'a ApiState,
    view: &'a View<'a>,
    account: AccountId,
    at: Option<Timestamp>,
) -> Result<Sight<'a>, Problem> {
    let sight = Sight::of(api, view, account)?.ok_or_else(super::accounts::no_account)?;
    match at {
        Some(at) => sight.at(at),
        None => Ok(sight),
    }
}

fn content_type(headers: &HeaderMap) -> Result<String, Problem> {
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok("application/octet-stream".into()) };
    match value.to_str() {
        Ok(value) if value.len() <= CONTENT_TYPE_BYTES_MAX && value.contains('/') => Ok(value.to_owned()),
        _ => Err(Problem::new(Kind::NotJsonType, "the Content-Type is no media type of at most 200 bytes")),
    }
}
