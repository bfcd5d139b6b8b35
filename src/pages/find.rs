//! `/find`: any id leads to its page. Never knows what is there.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use hooklog_projections::ids::{AccountId, AttemptId, DeliveryId, EndpointId, ReplayId};
use maud::html;

use super::door::go;
use super::layout::{Page, heading};
use super::parts::id;
use super::text::line;
use super::viewer::Viewer;
use crate::api::access::Right;
use crate::api::events;
use crate::api::problem::{Kind, Problem};
use crate::api::query::Params;

pub(super) async fn find(viewer: Viewer, request: Request) -> Result<Response, Problem> {
    let mut params = Params::of(request.uri());
    let wanted = params.one("q").unwrap_or_default().trim().to_owned();
    params.finish()?;
    if wanted.is_empty() {
        return go(&viewer.to("/"));
    }
    if let Some(part) = part_of(&viewer, &wanted) {
        return go(&viewer.to(&format!("{part}/{wanted}")));
    }
    let account = viewer.account;
    let asked = wanted.clone();
    let found = viewer.api.read(move |_, view| events::find(view, &asked, account)).await;
    match found {
        Ok((account, event, _)) => {
            let query = if viewer.is_customer() { String::new() } else { format!("?account_id={account}") };
            go(&viewer.to(&format!("/events/{}{query}", event.as_str())))
        }
        Err(problem) if problem.kind == Kind::Ambiguous => several(&viewer, &wanted, &problem),
        Err(problem) if problem.kind == Kind::NotFound => nothing(&viewer, &wanted),
        Err(problem) => Err(problem),
    }
}

/// Where an id of ours leads, by what it is one of; senders choose those of events.
fn part_of(viewer: &Viewer, id: &str) -> Option<&'static str> {
    match () {
        () if id.parse::<DeliveryId>().is_ok() => Some("/deliveries"),
        () if id.parse::<AttemptId>().is_ok() => Some("/attempts"),
        () if id.parse::<EndpointId>().is_ok() => Some("/endpoints"),
        () if id.parse::<ReplayId>().is_ok() => Some("/replays"),
        () if id.parse::<AccountId>().is_ok() && viewer.may(Right::Oversee) => Some("/accounts"),
        () => None,
    }
}

fn several(viewer: &Viewer, wanted: &str, problem: &Problem) -> Result<Response, Problem> {
    let body = html! {
        (heading(html! { "Which one?" }, html! {}))
        p { "Several accounts have an event of the id " (id(wanted)) "." }
        ul.choices { @for account in &problem.candidates {
            li { a href=(viewer.to(&format!("/events/{wanted}?account_id={account}"))) { (account.to_string()) } }
        } }
    };
    viewer.page(StatusCode::MULTIPLE_CHOICES, Page { title: "Which one?", part: "", body, live: None })
}

fn nothing(viewer: &Viewer, wanted: &str) -> Result<Response, Problem> {
    let body = html! {
        (heading(html! { "Nothing is known by this id" }, html! {}))
        section.card {
            p { "Looked for " code { (line(wanted, 80)) } " among events; an id of a delivery, a request, an endpoint, a replay or an account leads to its page." }
            h2 { "What it may be" }
            ul {
                li { "An event that was refused when it was handed in: then it was never taken, and whoever sent it was told why." }
                li { "A slip of the pen: ids are case-sensitive where the sender chose them." }
                li { "An event of " @if viewer.is_customer() { "somebody else" } @else { "another store" } "." }
            }
            p { "To see whether it would be taken in now, send it again under the same id: what is there already is not sent twice." }
        }
    };
    viewer.page(StatusCode::NOT_FOUND, Page { title: "Nothing found", part: "", body, live: None })
}
