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
    if wanted.parse::<DeliveryId>().is_ok() {
        return go(&viewer.to(&format!("/deliveries/{wanted}")));
    }
    if wanted.parse::<AttemptId>().is_ok() {
        return go(&viewer.to(&format!("/attempts/{wanted}")));
    }
    if wanted.parse::<EndpointId>().is_ok() {
        return go(&viewer.to(&format!("/endpoints/{wanted}")));
    }
    if wanted.parse::<ReplayId>().is_ok() {
        return go(&viewer.to(&format!("/replays/{wanted}")));
    }
    if wanted.parse::<AccountId>().is_ok() && viewer.may(Right::Oversee) {
        return go(&viewer.to(&format!("/accounts/{wanted}")));
    }
    let account = viewer.account;
    let asked = wanted.clone();
    let found = viewer.api.read(move |_, view| events::find(view, &asked, account)).await;
    match found {
        Ok((account, event, _)) => {
            go(&viewer.to(&viewer.in_account(&format!("/events/{}", event.as_str()), account)))
        }
        Err(problem) if problem.kind == Kind::Ambiguous => several(&viewer, &wanted, &problem),
        Err(problem) if problem.kind == Kind::NotFound => nothing(&viewer, &wanted),
        Err(problem) => Err(problem),
    }
}

fn several(viewer: &Viewer, wanted: &str, problem: &Problem) -> Result<Response, Problem> {
    let body = html! {
        (heading(html! { "Which one?" }, html! {}))
        p { "Several accounts have an event of the id " (id(wanted)) "." }
        ul.choices { @for account in &problem.candidates {
            li { a href=(viewer.to(&viewer.in_account(&format!("/events/{wanted}"), *account))) { (account.to_string()) } }
        } }
    };
    viewer.page(StatusCode::MULTIPLE_CHOICES, Page { title: "Which one?", part: "", body, live: None })
}

fn nothing(viewer: &Viewer, wanted: &str) -> Result<Response, Problem> {
    let body = html! {
        (heading(html! { "Nothing is known by this id" }, html! {}))
        section.card {
            p { "Looked for " code { (line(wanted, 80)) } " among events, deliveries, endpoints" @if !viewer.is_customer() { ", accounts" } " and replays." }
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
