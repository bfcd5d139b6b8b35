//! The server itself: whether it takes events, what is in its store, and how it is checked.

use axum::http::{StatusCode, Uri};
use axum::response::Response;
use maud::html;

use super::layout::{Page, heading};
use super::parts::{badge, icon, id};
use super::text::count;
use super::viewer::Viewer;
use crate::api::health::{figures, trouble};
use crate::api::problem::Problem;
use crate::api::query::Params;

pub(super) async fn show(viewer: Viewer, uri: Uri) -> Result<Response, Problem> {
    Params::of(&uri).finish()?;
    let figures = figures(&viewer.api).await?;
    let n = |name: &str| figures[name].as_u64().unwrap_or_default();
    let of = |name: &str| figures["deliveries"][name].as_u64().unwrap_or_default();
    let conserved = figures["conserved"] == true;
    let body = html! {
        (heading(html! { "System" }, html! {}))
        @if trouble(&viewer.api).is_none() { p.banner.good { (icon("check")) span { b { "Ready." } " Events are taken in and sent." } } }
        section.card { h2 { "Store" }
            dl.facts {
                dt { "Store" } dd { (id(figures["store_id"].as_str().unwrap_or_default())) }
                dt { "Entries in the log" } dd { (count(n("head"))) }
                dt { "Events" } dd { (count(n("events"))) }
                dt { "Deliveries" } dd { (count(of("enqueued"))) " = " (count(of("pending"))) " pending + " (count(of("in_flight"))) " in flight + " (count(of("delivered"))) " delivered + " (count(of("dead"))) " dead + " (count(of("cancelled"))) " cancelled "
                    @if conserved { (badge("good", "check", "adds up")) } @else { (badge("bad", "alert", "does not add up")) } }
                dt { "Requests out" } dd { (count(n("in_flight"))) }
                dt { "Version" } dd { (env!("CARGO_PKG_VERSION")) }
            }
        }
        section.card { h2 { "Checks" }
            p { "Prove that everything shown is exactly what the log says, while it runs:" }
            pre.code { code { "hooklog store verify" } }
            p { "Fold all views anew from the log, beside the live ones:" }
            pre.code { code { "hooklog store rebuild" } }
            p.links { a href="/docs/api" { "The API's description" } " · " a href="/healthz" { "healthz" } " · " a href="/readyz" { "readyz" } }
        }
    };
    viewer.page(StatusCode::OK, Page { title: "System", part: "/system", body, live: None })
}
