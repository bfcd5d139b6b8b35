//! The addresses of the answer page and what its forms do: an event's page, a delivery's and an attempt's, which are the
//! same with that one opened. Never knows what the page looks like.

use axum::extract::{Path, Request};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use hooklog_projections::access::Role;
use hooklog_projections::ids::{AccountId, AttemptId, DeliveryId};
use hooklog_projections::time::Timestamp;

use super::answer::Sheet;
use super::door::go;
use super::layout::{Live, Page};
use super::viewer::Viewer;
use crate::api::answer;
use crate::api::deliveries;
use crate::api::endpoints::REASON_CHARS_MAX;
use crate::api::events::{ScopeWord, Wish, replay_of};
use crate::api::form::Form;
use crate::api::policies::as_of;
use crate::api::problem::Problem;
use crate::api::query::Params;

/// What an address asks for.
#[derive(Default)]
pub(super) struct Asked {
    pub account: Option<AccountId>,
    pub at: Option<Timestamp>,
    /// The delivery that is opened.
    pub delivery: Option<DeliveryId>,
    pub attempt: Option<AttemptId>,
    pub done: Option<String>,
}

impl Asked {
    fn read(viewer: &Viewer, uri: &Uri) -> Result<Asked, Problem> {
        let mut params = Params::of(uri);
        let account = viewer.api.account_filter(&mut params)?;
        let at = params.one_of("at", moment_of);
        let (done, attempt) = (params.one("done"), None);
        params.finish()?;
        Ok(Asked { account, at, delivery: None, attempt, done })
    }
}

/// RFC 3339, or what a browser's field for a moment gives, which has no offset and is meant as UTC.
fn moment_of(text: &str) -> Result<Timestamp, String> {
    let wrong = || "a time is wanted, as 2026-11-30T09:14:02Z".to_owned();
    let text = text.replace(' ', "+");
    as_of(&text).or_else(|| as_of(&format!("{text}Z"))).ok_or_else(wrong)
}

pub(super) async fn show(
    viewer: Viewer,
    Path(event): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let asked = Asked::read(&viewer, request.uri())?;
    shown(viewer, event, asked).await
}

pub(super) async fn of_delivery(
    viewer: Viewer,
    Path(delivery): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let asked = Asked::read(&viewer, request.uri())?;
    opened(viewer, delivery, asked).await
}

pub(super) async fn of_attempt(
    viewer: Viewer,
    Path(attempt): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let asked = Asked::read(&viewer, request.uri())?;
    let (account, named) = (asked.account, attempt.clone());
    let delivery = viewer.api.read(move |_, view| answer::delivery_of_attempt(view, &named, account)).await?;
    opened(viewer, delivery.to_string(), Asked { attempt: attempt.parse().ok(), ..asked }).await
}

async fn opened(viewer: Viewer, delivery: String, asked: Asked) -> Result<Response, Problem> {
    let account = asked.account;
    let found = viewer.api.read(move |_, view| answer::event_of_delivery(view, &delivery, account)).await?;
    let (account, event, delivery) = found;
    let asked = Asked { account: Some(account), delivery: Some(delivery), ..asked };
    shown(viewer, event.as_str().to_owned(), asked).await
}

async fn shown(viewer: Viewer, event: String, asked: Asked) -> Result<Response, Problem> {
    let (account, at) = (asked.account, asked.at);
    let seen = viewer.api.read(move |api, view| answer::of_event(api, view, &event, account, at)).await?;
    let title =
        format!("{} · {}", seen.event.event_type.chars().take(60).collect::<String>(), seen.id.as_str());
    let only: Vec<_> = seen.deliveries.iter().map(|told| told.id.to_string()).collect();
    let query = format!("account_id={}", seen.account);
    let live = seen.as_of.is_none().then(|| Live { query, swaps: false, only: only.join(" ") });
    let body = Sheet { viewer: &viewer, seen: &seen, asked: &asked }.body();
    viewer.page(StatusCode::OK, Page { title: &title, part: "/events", body, live })
}

/// All that there is of an event, as a file to keep or to hand on.
pub(super) async fn evidence(
    viewer: Viewer,
    Path(event): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let asked = Asked::read(&viewer, request.uri())?;
    let (account, at) = (asked.account, asked.at);
    let seen = viewer.api.read(move |api, view| answer::of_event(api, view, &event, account, at)).await?;
    let text = serde_json::to_vec_pretty(&answer::evidence(&viewer.api, &seen));
    let text = text.map_err(|error| Problem::internal(&error))?;
    let headers = [
        (CONTENT_TYPE, "application/json".to_owned()),
        (CONTENT_DISPOSITION, format!("attachment; filename=\"{}.json\"", seen.id.as_str())),
        (CONTENT_SECURITY_POLICY, "sandbox".to_owned()),
    ];
    Ok((headers, text).into_response())
}

/// Replays of an event: all of it that is dead.
pub(super) async fn act(
    viewer: Viewer,
    Path(event): Path<String>,
    uri: Uri,
    mut form: Form,
) -> Result<Response, Problem> {
    let asked = Asked::read(&viewer, &uri)?;
    let what = form.take("do")?.unwrap_or_default();
    let reason = wanted_reason(&viewer, &mut form, &what)?;
    let confirmed = form.take("confirm")?.is_some();
    let once = form.once(&viewer.api, &what)?;
    form.finish()?;
    let scope = match what.as_str() {
        "replay" => ScopeWord::Dead,
        "replay-missing" => ScopeWord::Missing,
        "replay-all" => ScopeWord::All,
        _ => return Err(unknown()),
    };
    let account = asked.account;
    let wish = Wish::of(scope, confirmed, reason)?;
    once.settle(replay_of(&viewer.api, event.clone(), account, wish).await)?;
    back(&viewer, &format!("/events/{event}"), account, "replayed")
}

/// Replays a delivery, hurries it, or calls it off.
pub(super) async fn act_on_delivery(
    viewer: Viewer,
    Path(delivery): Path<String>,
    uri: Uri,
    mut form: Form,
) -> Result<Response, Problem> {
    let asked = Asked::read(&viewer, &uri)?;
    let what = form.take("do")?.unwrap_or_default();
    let reason = wanted_reason(&viewer, &mut form, &what)?;
    let confirmed = form.take("confirm")?.is_some();
    let once = form.once(&viewer.api, &what)?;
    form.finish()?;
    let (api, account) = (&viewer.api, asked.account);
    let key = deliveries::named(api, delivery.clone(), account).await?;
    let done = match what.as_str() {
        "replay" => {
            let scope = if confirmed { ScopeWord::All } else { ScopeWord::Dead };
            once.settle(deliveries::replay_of(api, key, Wish::of(scope, confirmed, reason)?).await)?;
            "replayed"
        }
        "retry-now" => {
            once.settle(deliveries::hurry(api, key).await)?;
            "hurried"
        }
        "cancel" => {
            once.settle(deliveries::call_off(api, key, reason).await)?;
            "cancelled"
        }
        _ => return Err(unknown()),
    };
    back(&viewer, &format!("/deliveries/{delivery}"), account, done)
}

fn unknown() -> Problem {
    Problem::query("do", "the form asks for nothing that is known here")
}

/// Support says why it sends something again; whose events they are need not.
fn wanted_reason(viewer: &Viewer, form: &mut Form, what: &str) -> Result<String, Problem> {
    let reason = form.words("reason", REASON_CHARS_MAX)?;
    let wanted = viewer.role == Some(Role::Support) && what != "retry-now";
    if wanted && reason.is_empty() {
        return Err(Problem::query("reason", "say why, for those who read the history"));
    }
    Ok(reason)
}

fn back(viewer: &Viewer, path: &str, account: Option<AccountId>, done: &str) -> Result<Response, Problem> {
    let path = format!("{path}?done={done}");
    go(&viewer.to(&account.map_or(path.clone(), |account| viewer.in_account(&path, account))))
}
