//! `/v1/explain/{id}`: the answer page of any id, as JSON. The sentences are `crate::explain`'s.

use axum::extract::{Path, Request};
use axum::http::StatusCode;
use axum::response::Response;
use hooklog_projections::account::Hold;
use hooklog_projections::ids::{AccountId, AttemptId, DeliveryId, DeliveryKey, EndpointId};
use hooklog_projections::lifecycle::Delivery;
use hooklog_projections::time::Timestamp;
use serde::Serialize;

use super::events::{account_and_moment, sight_at};
use super::openapi::words;
use super::policies::moment_text;
use super::problem::Problem;
use super::rim::json;
use super::wire::{DeliveryOut, Include};
use super::{ApiState, accounts, deliveries, endpoints, events, tried};
use crate::explain::{Explanation, moment_near};
use crate::views::View;

#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Answer)]
pub(super) struct ExplainOut {
    id: String,
    #[schema(value_type = words::Kind)]
    kind: &'static str,
    #[schema(value_type = String)]
    account_id: AccountId,
    #[serde(flatten)]
    explanation: Explanation,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    as_of: Option<String>,
    deliveries: Vec<DeliveryOut>,
}

pub(super) async fn explain(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let (account, at) = account_and_moment(&api, request.uri())?;
    let out = api
        .read(move |api, view| {
            let mut out = if id.parse::<DeliveryId>().is_ok() {
                let found = deliveries::find(view, &id, account)?;
                of_delivery(api, view, id, "delivery", found, at)
            } else if id.parse::<AttemptId>().is_ok() {
                let found = tried::delivery_of(view, &id, account)?;
                of_delivery(api, view, id, "attempt", found, at)
            } else if id.parse::<AccountId>().is_ok() || id.parse::<EndpointId>().is_ok() {
                of_now(api, view, id, account, at)
            } else {
                of_event(api, view, id, account, at)
            }?;
            out.as_of = at.map(moment_text);
            Ok(out)
        })
        .await?;
    json(StatusCode::OK, &out)
}

/// What is told of an attempt is told of its delivery.
fn of_delivery(
    api: &ApiState,
    view: &View<'_>,
    id: String,
    kind: &'static str,
    (key, row): (DeliveryKey, Delivery),
    at: Option<Timestamp>,
) -> Result<ExplainOut, Problem> {
    let mut sight = sight_at(api, view, key.account, at)?;
    let (mut deliveries, explanation) = (Vec::new(), sight.explain(key, &row)?);
    if let Some(row) = sight.row(&row)? {
        deliveries.push(sight.delivery(key, &row, Include { payload: false, last_error: true })?);
    }
    Ok(ExplainOut { id, kind, account_id: key.account, explanation, as_of: None, deliveries })
}

fn of_event(
    api: &ApiState,
    view: &View<'_>,
    id: String,
    account: Option<AccountId>,
    at: Option<Timestamp>,
) -> Result<ExplainOut, Problem> {
    let (account_id, _, row) = events::find(view, &id, account)?;
    let mut sight = sight_at(api, view, account_id, at)?;
    let (mut deliveries, mut answers) = (Vec::new(), Vec::new());
    for (key, delivery) in sight.deliveries(&row)? {
        let mut out = sight.delivery(key, &delivery, Include { payload: false, last_error: true })?;
        let answer = sight.explain(key, &delivery)?;
        out.explanation = Some(answer.clone());
        deliveries.push(out);
        answers.push((delivery.state.status(), answer));
    }
    let explanation = sight.explain_event(&row, &answers);
    Ok(ExplainOut { id, kind: "event", account_id, explanation, as_of: None, deliveries })
}

/// Accounts and endpoints have figures, which are known as they are now.
fn of_now(
    api: &ApiState,
    view: &View<'_>,
    id: String,
    account: Option<AccountId>,
    at: Option<Timestamp>,
) -> Result<ExplainOut, Problem> {
    if at.is_some() {
        let detail =
            "what was is told of events and deliveries; accounts and endpoints are told as they are now";
        return Err(Problem::query("at", detail));
    }
    match id.parse::<EndpointId>() {
        Ok(endpoint) => of_endpoint(api, view, id, endpoint, account),
        Err(_) => {
            let account = accounts::account_id(api, &id)?;
            of_account(view, id, account)
        }
    }
}

fn of_account(view: &View<'_>, id: String, account_id: AccountId) -> Result<ExplainOut, Problem> {
    let row = accounts::known(view, account_id)?;
    let counts = view.counts(Some(account_id))?;
    let endpoints = view.endpoints(account_id)?.iter().filter(|(_, endpoint)| !endpoint.removed()).count();
    let explanation = Explanation {
        sentence: format!(
            "Deliveries of {}: {} in all, of which delivered {}, waiting {}, in flight {}, dead {}, cancelled {}.",
            row.settings.name,
            counts.enqueued,
            counts.delivered,
            counts.pending,
            counts.in_flight,
            counts.dead,
            counts.cancelled
        ),
        reasons: vec![format!("Endpoints of it: {endpoints}.")],
        next_step: if counts.dead > 0 { "Look at the dead ones." } else { "Nothing to do." }.into(),
    };
    Ok(ExplainOut { id, kind: "account", account_id, explanation, as_of: None, deliveries: Vec::new() })
}

fn of_endpoint(
    api: &ApiState,
    view: &View<'_>,
    id: String,
    endpoint: EndpointId,
    account: Option<AccountId>,
) -> Result<ExplainOut, Problem> {
    let (key, row) = endpoints::lookup(view, endpoint, account)?;
    let (lane, now) = (view.lane(key)?, api.now());
    let url = url::Url::parse(&row.settings.url).ok();
    let host = match &row.settings.queue {
        Some(queue) => format!("Queue `{queue}`"),
        None => url.as_ref().and_then(|url| url.host_str()).unwrap_or("The endpoint").to_owned(),
    };
    let (sentence, next_step) = match &row.hold {
        Some(Hold::Paused { at, .. }) => (
            format!(
                "{host} is paused since {}; {} deliveries are held.",
                moment_near(*at, now),
                lane.waiting
            ),
            "Resume the endpoint; what it holds goes out in order.",
        ),
        Some(Hold::Disabled { at, .. }) => (
            format!(
                "{host} is disabled since {}; {} deliveries are held.",
                moment_near(*at, now),
                lane.waiting
            ),
            "Ask its owner whether the URL is right, then resume the endpoint.",
        ),
        Some(Hold::Removed { at, .. }) => (
            format!("{host} was removed at {}; nothing is sent to it any more.", moment_near(*at, now)),
            "Nothing to do; its history stays. Make a new endpoint if it is wanted after all.",
        ),
        None => match lane.failing_since {
            Some(since) => (
                format!(
                    "{host} only fails since {}: {} attempts; {} deliveries wait.",
                    moment_near(since, now),
                    lane.failures,
                    lane.waiting
                ),
                "Ask its owner to mend it; what waits is tried again by its schedule.",
            ),
            None => (format!("{host} runs; {} deliveries wait.", lane.waiting), "Nothing to do."),
        },
    };
    let mut reasons = Vec::new();
    if lane.gate_until > now {
        reasons.push(format!("It asked to be left alone until {}.", moment_near(lane.gate_until, now)));
    }
    let explanation = Explanation { sentence, reasons, next_step: next_step.into() };
    Ok(ExplainOut {
        id,
        kind: "endpoint",
        account_id: key.account,
        explanation,
        as_of: None,
        deliveries: Vec::new(),
    })
}
