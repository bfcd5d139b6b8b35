//! `/v1/deliveries`: listed with filters, shown with their attempts, replayed, hurried and called off. Never
//! knows how one is sent.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;

use axum::extract::{Path, Request};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use hooklog_projections::ids::{AccountId, DeliveryId, DeliveryKey};
use hooklog_projections::lifecycle::Delivery;
use hooklog_projections::time::Timestamp;
use serde_json::json as object;

use super::ApiState;
use super::attempts;
use super::events::{ReplayedOut, Wish, account_and_moment, account_of, reason, replayed, sight, sight_at};
use super::fields::Fields;
use super::paging::{Asked, PageOut, reply};
use super::policies::{error_class, moment_text, status_range};
use super::problem::{Kind, Problem};
use super::query::Params;
use super::queues;
use super::rim::{json, small_body_or_none};
use super::wire::{DeliveryOut, Include};
use crate::engine::Command;
use crate::views::View;
use crate::views::history::Filter;

pub(super) async fn list(api: ApiState, request: Request) -> Result<Response, Problem> {
    let found = listed(&api, request.uri()).await?;
    reply(request.uri(), found)
}

/// What the query of an address selects.
pub(crate) async fn listed(api: &ApiState, uri: &Uri) -> Result<PageOut<DeliveryOut>, Problem> {
    let mut params = Params::of(uri);
    let named = api.account_named(&mut params)?;
    let queue = params.one("queue");
    let mut filter = filter(&mut params);
    let include = include(&mut params);
    let asked = Asked::read(&mut params);
    let account = api.scope(named)?;
    params.finish()?;
    let account = match queue {
        // A queue is one endpoint, and that has one account.
        Some(queue) => {
            let (key, _) = api.read(move |api, view| queues::find(api, view, &queue)).await?;
            if filter.endpoint.replace(key.endpoint).is_some_and(|other| other != key.endpoint) {
                return Err(Problem::query("endpoint_id", "`queue` names another endpoint"));
            }
            if named.is_some_and(|named| named != key.account) {
                return Err(Problem::query("account_id", "the queue is another account's"));
            }
            Some(key.account)
        }
        None => account,
    };
    let wanted = Wanted { account, filter, asked };
    api.read(move |api, view| page_of(api, view, wanted, include)).await
}

/// A page of a list of deliveries.
pub(crate) struct Wanted {
    /// Whose; everybody's if absent.
    pub account: Option<AccountId>,
    pub filter: Filter,
    pub asked: Asked,
}

/// A page of deliveries, newest first.
pub(crate) fn page_of(
    api: &ApiState,
    view: &View<'_>,
    wanted: Wanted,
    include: Include,
) -> Result<PageOut<DeliveryOut>, Problem> {
    let Wanted { account, filter, asked } = wanted;
    // Filters of equal effect are the same list.
    let list = match account {
        Some(account) => format!("deliveries {account} {filter:?}"),
        None => format!("deliveries {filter:?}"),
    };
    let paging = asked.of(api, list)?;
    let published = api.shared.handle.published();
    let place = paging.place.map(|id| published.ids().delivery_seq(DeliveryId(id)).unwrap_or_default());
    let mut sights = BTreeMap::new();
    let found = match account {
        Some(account) => {
            sights.insert(account, sight(api, view, account)?);
            view.history(account, &filter, place, paging.limit)?
        }
        None => view.history_of_all(&filter, place, paging.limit)?,
    };
    let page = found.shown(
        |(key, row)| {
            let sight = match sights.entry(key.account) {
                Slot::Occupied(slot) => slot.into_mut(),
                Slot::Vacant(slot) => slot.insert(sight(api, view, key.account)?),
            };
            sight.delivery(key, &row, include)
        },
        |(seq, at)| published.ids().delivery_id(seq, at).0,
    )?;
    Ok(paging.out(api, page))
}

fn filter(params: &mut Params) -> Filter {
    let (statuses, event_type) = (params.statuses(), params.event_type());
    let (since, until) = params.span();
    let endpoint = params.read("endpoint_id");
    let mut http = params.each("http_status", |word| status_range(word).map_err(|wrong| wrong.detail));
    let mut errors = params.each("error", |word| error_class(word).map_err(|wrong| wrong.detail));
    http.sort();
    errors.sort();
    Filter { statuses, endpoint, event_type, since, until, http, errors }
}

fn include(params: &mut Params) -> Include {
    let words = params.each("include", |word| match word {
        "payload" | "last_error" => Ok(word == "payload"),
        _ => Err("payload or last_error is wanted".to_owned()),
    });
    Include { payload: words.contains(&true), last_error: words.contains(&false) }
}

pub(super) async fn show(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let (account, at) = account_and_moment(&api, request.uri())?;
    let out = api.read(move |api, view| explained(api, view, &id, account, at)).await?;
    json(StatusCode::OK, &out)
}

fn explained(
    api: &ApiState,
    view: &View<'_>,
    id: &str,
    account: Option<AccountId>,
    at: Option<Timestamp>,
) -> Result<DeliveryOut, Problem> {
    let (key, _) = find(view, id, account)?;
    explained_row(api, view, key, at)
}

/// A delivery that must be there, with its answer sentence.
pub(super) fn explained_row(
    api: &ApiState,
    view: &View<'_>,
    key: DeliveryKey,
    at: Option<Timestamp>,
) -> Result<DeliveryOut, Problem> {
    let missing = || Problem::internal(&format!("the delivery at {} is missing", key.seq));
    let now = view.delivery(key)?.ok_or_else(missing)?;
    let mut sight = sight_at(api, view, key.account, at)?;
    let row = sight.row(&now)?.ok_or_else(|| {
        let since = moment_text(now.enqueued_at);
        Problem::new(Kind::NotFound, format!("there was no such delivery then: it was enqueued at {since}"))
    })?;
    let mut out = sight.delivery(key, &row, Include { payload: false, last_error: true })?;
    out.explanation = Some(sight.explain(key, &row)?);
    Ok(out)
}

pub(super) async fn attempts(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let (account, at) = account_and_moment(&api, request.uri())?;
    let data = api
        .read(move |api, view| {
            let (key, row) = find(view, &id, account)?;
            let then = sight_at(api, view, key.account, at)?.row(&row)?;
            let mut attempts = attempts::of(view, &then.map_or(Ok(Vec::new()), |row| view.story(&row))?)?;
            if api.is_customer() {
                attempts.iter_mut().for_each(attempts::AttemptOut::hide_internals);
            }
            Ok(attempts)
        })
        .await?;
    json(StatusCode::OK, &object!({ "data": data }))
}

pub(super) async fn replay(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let delivery = named(&api, id, account_of(&api, request.uri())?).await?;
    let body = small_body_or_none(request).await?;
    let out = replay_of(&api, delivery, Wish::read(&body)?).await?;
    json(StatusCode::ACCEPTED, &out)
}

/// Begins a new run of a delivery.
pub(crate) async fn replay_of(
    api: &ApiState,
    delivery: DeliveryKey,
    wish: Wish,
) -> Result<ReplayedOut, Problem> {
    let reason = wish.reason.into();
    replayed(api, Command::ReplayDelivery { delivery, scope: wish.scope, reason }).await
}

pub(super) async fn retry_now(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let delivery = named(&api, id, account_of(&api, request.uri())?).await?;
    let body = small_body_or_none(request).await?;
    Fields::read_or_empty(&body)?.finish()?;
    json(StatusCode::ACCEPTED, &hurry(&api, delivery).await?)
}

/// Has a delivery that waits tried at once.
pub(crate) async fn hurry(api: &ApiState, delivery: DeliveryKey) -> Result<ReplayedOut, Problem> {
    replayed(api, Command::RetryNow { delivery }).await
}

pub(super) async fn cancel(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let delivery = named(&api, id.clone(), account_of(&api, request.uri())?).await?;
    let body = small_body_or_none(request).await?;
    let mut fields = Fields::read_or_empty(&body)?;
    let reason = reason(&mut fields);
    fields.finish()?;
    call_off(&api, delivery, reason).await?;
    let out = api.read(move |api, view| explained(api, view, &id, Some(delivery.account), None)).await?;
    json(StatusCode::OK, &out)
}

/// Calls a delivery that waits off.
pub(crate) async fn call_off(api: &ApiState, delivery: DeliveryKey, reason: String) -> Result<(), Problem> {
    api.ask(Command::Cancel { delivery, reason: reason.into() }).await.map(drop)
}

/// The delivery that a path names, within an account, if one is named.
pub(crate) async fn named(
    api: &ApiState,
    id: String,
    account: Option<AccountId>,
) -> Result<DeliveryKey, Problem> {
    api.read(move |_, view| find(view, &id, account).map(|(key, _)| key)).await
}

/// The delivery of an id, within the account that was named, if one was.
pub(super) fn find(
    view: &View<'_>,
    id: &str,
    account: Option<AccountId>,
) -> Result<(DeliveryKey, Delivery), Problem> {
    let none = || Problem::new(Kind::NotFound, "there is no such delivery");
    let id: DeliveryId = id.parse().map_err(|_| none())?;
    let key = match account {
        Some(account) => view.delivery_in(account, id)?,
        None => view.delivery_named(id)?,
    };
    let key = key.ok_or_else(none)?;
    Ok((key, view.delivery(key)?.ok_or_else(none)?))
}
