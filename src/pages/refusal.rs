//! How a page says no: what went wrong, and what to do. Who has not signed in is asked to. Never decides.

use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use maud::html;
use url::form_urlencoded;

use super::door::go;
use super::entry;
use super::layout::{Page, heading};
use super::parts::icon;
use super::text::short;
use super::viewer::Viewer;
use crate::api::ApiState;
use crate::api::problem::{Kind, Problem};
use crate::api::routes::Refused;

pub(super) fn page(api: &ApiState, refused: &Refused<'_>) -> Response {
    let api = refused.caller.map_or_else(|| api.clone(), |caller| api.clone().asked_by(caller.clone()));
    let viewer = Viewer::of(api, refused.uri, refused.headers);
    let problem = refused.problem;
    if problem.kind == Kind::Unauthorized && viewer.is_at_portal() {
        let shut = entry::asked(&viewer, StatusCode::UNAUTHORIZED, Some(problem));
        return shut.unwrap_or_else(IntoResponse::into_response);
    }
    if problem.kind == Kind::Unauthorized && *refused.method == Method::GET {
        let next = viewer.back_to(Some(viewer.here.clone()));
        let query: String = form_urlencoded::byte_serialize(next.as_bytes()).collect();
        let to = if next == "/" { "/sign-in".to_owned() } else { format!("/sign-in?next={query}") };
        return go(&to).unwrap_or_else(IntoResponse::into_response);
    }
    let told = told(&viewer, problem, refused.request_id);
    let mut response = told.unwrap_or_else(|problem| problem.kind.status().into_response());
    if let Some(seconds) = problem.retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn told(viewer: &Viewer, problem: &Problem, request_id: &str) -> Result<Response, Problem> {
    let status = problem.kind.status();
    let next = match problem.kind {
        Kind::Forbidden if viewer.is_at_portal() => "Ask whoever gave you the link for one that may do this.",
        Kind::Forbidden => "Sign in with a key of another role, or ask whoever runs this server.",
        Kind::NotFound => "Look at the address again, or search for the id above.",
        Kind::Unauthorized => "Sign in again; what was in the form was not done.",
        Kind::CrossOrigin => "Go back, load the page again, and repeat it. Nothing was changed.",
        Kind::BadQuery | Kind::BadCursor => "Correct it in the address, or begin without it.",
        Kind::AlreadySo | Kind::NothingToReplay | Kind::NotPending | Kind::Changed | Kind::ReplayNotThere => {
            "Somebody else was faster, or the form was sent twice. Nothing was done a second time."
        }
        Kind::TooMany => "Wait a moment, then repeat it.",
        Kind::Internal => "The server's log says more, under this request's id.",
        Kind::OutcomeUnknown => "Look at the history before you repeat it.",
        _ => "Go back; nothing was changed.",
    };
    let body = html! {
        (heading(html! { (problem.kind.title()) }, html! {}))
        section.card.refused {
            p { (icon("alert")) " " (short(&problem.detail)) "." }
            p { (next) }
            p {
                @if viewer.role.is_some() { a href=(viewer.to("/")) { "To the overview" } }
                @else { a href=(viewer.to("/sign-in")) { "Sign in" } }
            }
            p.dim { "Status " (status.as_u16()) " · " code { (problem.kind.code()) } " · request " code { (short(request_id)) } }
        }
    };
    viewer.page(status, Page { title: problem.kind.title(), part: "", body, live: None })
}
