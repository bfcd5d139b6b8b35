//! The first page: how it goes, what fails, what is newest; or the first steps, where there is nothing yet.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use hooklog_projections::account::Hold;
use hooklog_projections::hour::{Hour, hour_of};
use hooklog_projections::time::{Millis, Timestamp};
use maud::{Markup, html};

use super::chart::{Column, stacked};
use super::layout::{Live, Page, fresh, heading};
use super::parts::{address, ago, badge, deliveries, endpoint_path, icon, outcomes, ratio, toned, when};
use super::text::{count, short};
use super::viewer::Viewer;
use crate::api::overview::{HOURS, Overview, Troubled, read};
use crate::api::problem::Problem;
use crate::api::query::Params;
use crate::engine::health::LATE;
use crate::explain::span;

pub(super) const OUTCOMES: [&str; 4] = ["delivered", "refused (3xx, 4xx)", "server error (5xx)", "no answer"];
pub(super) const TONES: [&str; 4] = ["good", "refuse", "bad", "silent"];

pub(super) async fn show(viewer: Viewer, request: Request) -> Result<Response, Problem> {
    Params::of(request.uri()).finish()?;
    let account = viewer.account;
    let seen = viewer.api.read(move |api, view| read(api, view, account)).await?;
    let body = if seen.counts.accepted == 0 { first_steps(&viewer, &seen) } else { running(&viewer, &seen) };
    let live = Live { query: String::new(), swaps: true, only: String::new() };
    viewer.page(StatusCode::OK, Page { title: "Overview", part: "/", body, live: Some(live) })
}

fn running(viewer: &Viewer, seen: &Overview) -> Markup {
    let name = |id| seen.names.get(&id).map(|name| &**name);
    let body = html! {
        (strip(seen))
        section.card { (chart(seen)) }
        @if !seen.troubled.is_empty() { (troubled(viewer, seen)) }
        section {
            h2 { "Newest deliveries" }
            (deliveries(viewer, "The newest deliveries", &seen.newest, name))
        }
        @if !seen.complete { p.note { (icon("info")) " There are more accounts or endpoints than are looked at here; the figures of the strip are of the first ones." } }
    };
    html! { (heading(html! { "Overview" }, html! {})) (fresh(viewer, body)) }
}

fn late(seen: &Overview) -> Option<Millis> {
    (seen.late > LATE).then_some(seen.late)
}

fn strip(seen: &Overview) -> Markup {
    let last = hour_of(seen.now);
    let since = Timestamp(u64::from(last.saturating_sub(1)) * 3_600_000);
    let mut hour = Hour::default();
    seen.hours.range(last.saturating_sub(1)..).for_each(|(_, figures)| hour.add(figures));
    let today = last - last % 24;
    let dead: u64 = seen.hours.range(today..).map(|(_, figures)| figures.dead).sum();
    let due = (seen.late > Millis(0)).then(|| span(seen.late));
    let since = crate::explain::moment_near(since, seen.now);
    let since = format!("since {}", since.strip_suffix(":00 UTC").unwrap_or(&since));
    let p95 = hour.took_at(95).map_or_else(|| "–".into(), span);
    let counts = &seen.counts;
    let good = if hour.attempts() == 0 {
        "off"
    } else if hour.failed * 20 > hour.attempts() {
        "bad"
    } else {
        "good"
    };
    html! {
        dl.strip {
            (toned("Oldest due", due.as_deref().unwrap_or("on time"), if due.is_some() { "late through this server" } else { "nothing waits for this server" }, if late(seen).is_some() { "bad" } else { "off" }))
            (toned("Backlog", &count(counts.pending), &format!("{} in flight", count(counts.in_flight)), "off"))
            (toned("Success", &ratio(hour.delivered, hour.attempts()), &since, good))
            (toned("p95 of an attempt", &p95, &since, "off"))
            (toned("Dead today", &count(dead), &format!("{} dead now", count(counts.dead)), if dead > 0 { "bad" } else { "good" }))
        }
    }
}

fn chart(seen: &Overview) -> Markup {
    let last = hour_of(seen.now);
    let columns: Vec<_> = (last - (HOURS - 1)..=last)
        .map(|hour| {
            let parts = seen.hours.get(&hour).map_or([0; 4], outcomes);
            Column { label: format!("{:02}:00", hour % 24), parts }
        })
        .collect();
    stacked("Attempts by outcome, last 24 hours (UTC)", &columns, TONES, OUTCOMES)
}

fn troubled(viewer: &Viewer, seen: &Overview) -> Markup {
    html! {
        section {
            h2 { "Endpoints to look at" }
            table.rows {
                caption.unseen { "Endpoints that only fail, or are held" }
                thead { tr {
                    th scope="col" { "Endpoint" }
                    @if !viewer.is_customer() { th scope="col" { "Account" } }
                    th scope="col" { "State" }
                    th scope="col" { "Since" }
                    th.number scope="col" { "Failures" }
                    th.number scope="col" { "Waiting" }
                } }
                tbody { @for one in &seen.troubled { tr {
                    th.main scope="row" data-label="Endpoint" { a.row href=(viewer.to(&endpoint_path(viewer, one.key))) { (address(&one.endpoint.settings.url, one.endpoint.settings.queue.as_deref())) } }
                    @if !viewer.is_customer() { td data-label="Account" { (short(seen.names.get(&one.key.account).map_or("", |name| name))) } }
                    td data-label="State" { (hold(one)) }
                    td data-label="Since" { (ago(one.since(), seen.now)) }
                    td.number data-label="Failures" { (count(one.lane.failures)) }
                    td.number data-label="Waiting" { (count(one.lane.waiting)) }
                } } }
            }
            @if seen.troubled_count > seen.troubled.len() { p.note { (count(seen.troubled_count as u64)) " in all; these are the longest." } }
        }
    }
}

fn hold(one: &Troubled) -> Markup {
    match &one.endpoint.hold {
        Some(Hold::Paused { .. }) => badge("wait", "hold", "paused"),
        Some(Hold::Disabled { .. }) => badge("bad", "stop", "disabled"),
        Some(Hold::Removed { .. }) => badge("off", "stop", "removed"),
        None => badge("bad", "alert", "failing"),
    }
}

/// Nothing was taken in yet: what to type.
fn first_steps(viewer: &Viewer, seen: &Overview) -> Markup {
    let url = viewer.api.base_url();
    let done =
        |done: bool| if done { badge("good", "check", "done") } else { badge("off", "clock", "to do") };
    let body = html! {
        section.card.first {
            h2 { "Nothing was sent yet" }
            @if viewer.is_customer() {
                p { "As soon as an event of yours is sent, it is shown here." }
                @if !seen.has_endpoints { p { "No endpoint is there yet to send it to." } }
            } @else {
                p { "Three commands, on this machine, and this page shows the first delivery." }
                ol.steps {
                    li { h3 { "An account " (done(seen.has_accounts)) }
                        pre.code { code { "hooklog accounts create Acme --owner-email ops@acme.example" } } }
                    li { h3 { "An endpoint of it " (done(seen.has_endpoints)) }
                        pre.code { code { "hooklog endpoints create --account acct_… https://example.com/hooks" } } }
                    li { h3 { "An event " (done(false)) }
                        pre.code { code { "hooklog send --account acct_… --type payment.settled --data '{\"amount\":\"12.00\"}' --wait" } } }
                }
                p.dim { "Or from a program: " code { "POST " (url) "/v1/events" } ", as " a href="/docs/api" { "the API's description" } " has it." }
            }
            p.dim { "Nothing was taken in as of " (when(seen.now, seen.now)) "." }
        }
    };
    html! { (heading(html! { "Overview" }, html! {})) (fresh(viewer, body)) }
}
