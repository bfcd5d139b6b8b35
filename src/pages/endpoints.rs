//! Endpoints: how each fares, and one by itself with its settings, its holds and what can be done about them.

use axum::extract::Path;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use hooklog_projections::account::{Endpoint, Hold};
use hooklog_projections::fact::DisabledReason;
use hooklog_projections::hour::Hour;
use hooklog_projections::ids::EndpointId;
use hooklog_projections::time::Timestamp;
use maud::{Markup, html};

use super::chart::{Column, spark, stacked};
use super::door::go;
use super::layout::{Page, heading};
use super::list::{Field, Names, Query, filters, nothing};
use super::overview::{OUTCOMES, TONES};
use super::parts::{
    account, action, address, ago, badge, endpoint_path, icon, id, outcomes, ratio, reason_field, tile, when,
};
use super::signing;
use super::text::{count, line};
use super::viewer::Viewer;
use crate::api::access::Right;
use crate::api::endpoints::{REASON_CHARS_MAX, find_in, hold, let_go, try_out};
use crate::api::events::account_of;
use crate::api::fleet::{self, Ship};
use crate::api::form::Form;
use crate::api::problem::{Kind, Problem};
use crate::api::query::Params;
use crate::explain::span;

pub(super) async fn list(viewer: Viewer, uri: Uri) -> Result<Response, Problem> {
    let query = Query::of(&uri);
    let account = account_of(&viewer.api, &uri)?;
    let names = Names::read(&viewer).await?;
    let (ships, all) = viewer.api.read(move |api, view| fleet::read(api, view, account)).await?;
    let body = html! {
        (heading(html! { "Endpoints" }, html! {}))
        (filters(&viewer, &query, &names, &[Field::Account]))
        @if ships.is_empty() {
            (nothing(&query, "endpoints", html! {
                @if viewer.is_customer() { p { "No endpoint is set up for you yet." } }
                @else { p { "Make one from this machine:" } pre.code { code { "hooklog endpoints create --account acct_… https://example.com/hooks" } } }
            }))
        } @else { (table(&viewer, &ships)) }
        @if !all { p.note { "There are more endpoints; choose an account to see its own." } }
    };
    viewer.page(StatusCode::OK, Page { title: "Endpoints", part: "/endpoints", body, live: None })
}

/// Endpoints in rows, with their last day.
pub(super) fn table(viewer: &Viewer, ships: &[Ship]) -> Markup {
    html! {
        table.rows {
            caption.unseen { "Endpoints and their last 24 hours" }
            thead { tr {
                th scope="col" { "Endpoint" }
                @if !viewer.is_customer() { th scope="col" { "Account" } }
                th scope="col" { "State" } th scope="col" { "24 hours" }
                th.number scope="col" { "Success" } th.number scope="col" { "p95" } th.number scope="col" { "Waiting" }
            } }
            tbody { @for ship in ships {
                @let day = ship.day();
                tr {
                    th.main scope="row" data-label="Endpoint" {
                        a.row href=(viewer.to(&endpoint_path(viewer, ship.key))) { (address(&ship.endpoint.settings.url, ship.endpoint.settings.queue.as_deref())) }
                    }
                    @if !viewer.is_customer() { td data-label="Account" { (account(viewer, ship.key.account, &ship.account_name)) } }
                    td data-label="State" { (state(ship)) }
                    td data-label="24 hours" { (sparkline(ship)) }
                    td.number data-label="Success" { (ratio(day.delivered, day.attempts())) }
                    td.number data-label="p95" { @match day.took_at(95) { Some(took) => (span(took)), None => "–" } }
                    td.number data-label="Waiting" { (count(ship.lane.waiting)) }
                }
            } }
        }
    }
}

fn sparkline(ship: &Ship) -> Markup {
    let hours: Vec<(u64, u64)> = ship.hours.iter().map(|hour| (hour.delivered, hour.failed)).collect();
    let day = ship.day();
    spark(&hours, &format!("{} delivered, {} failed in 24 hours", day.delivered, day.failed))
}

/// An endpoint's state: held, failing, or running.
pub(super) fn state(ship: &Ship) -> Markup {
    match &ship.endpoint.hold {
        Some(Hold::Paused { .. }) => badge("wait", "hold", "paused"),
        Some(Hold::Disabled { reason: DisabledReason::Requested(_), .. }) => badge("bad", "stop", "disabled"),
        Some(Hold::Disabled { .. }) => badge("bad", "stop", "disabled by us"),
        Some(Hold::Removed { .. }) => badge("off", "stop", "removed"),
        None if ship.lane.failing_since.is_some() => badge("bad", "alert", "failing"),
        None if ship.lane.failures > 0 => badge("wait", "alert", "unsteady"),
        None => badge("good", "check", "active"),
    }
}

pub(super) async fn show(viewer: Viewer, Path(id): Path<String>, uri: Uri) -> Result<Response, Problem> {
    let mut params = Params::of(&uri);
    let account = viewer.api.account_filter(&mut params)?;
    let done = params.one("done");
    params.finish()?;
    let endpoint: EndpointId =
        id.parse().map_err(|_| Problem::new(Kind::NotFound, "there is no such endpoint"))?;
    let ship = viewer.api.read(move |api, view| fleet::one(api, view, endpoint, account)).await?;
    let body = sheet(&viewer, &ship, done.as_deref());
    let title = super::parts::host(&ship.endpoint.settings.url);
    viewer.page(StatusCode::OK, Page { title: &title, part: "/endpoints", body, live: None })
}

fn sheet(viewer: &Viewer, ship: &Ship, done: Option<&str>) -> Markup {
    let settings = &ship.endpoint.settings;
    let deliveries =
        viewer.in_account(&format!("/deliveries?endpoint_id={}", ship.key.endpoint), ship.key.account);
    let day = ship.day();
    html! {
        (heading(
            html! { (address(&settings.url, settings.queue.as_deref())) },
            html! { (id(&ship.key.endpoint.to_string())) @if !viewer.is_customer() { (account(viewer, ship.key.account, &ship.account_name)) } (state(ship)) },
        ))
        @if let Some(words) = done.and_then(notice) { p.banner.good role="status" { (icon("check")) span { (words) } } }
        @if let Some(hold) = &ship.endpoint.hold { (held(hold, viewer.now, ship.lane.waiting)) }
        @else if let Some(since) = ship.lane.failing_since {
            p.banner.bad { (icon("alert")) span { b { "It only fails" } " since " (when(since, viewer.now)) ": " (count(ship.lane.failures)) " attempts in a row. What waits is tried again by its schedule." } }
        }
        (actions(viewer, ship))
        dl.strip {
            (tile("Waiting", &count(ship.lane.waiting), "to be sent"))
            (tile("In flight", &count(ship.lane.in_flight), &format!("of {}", settings.in_flight_max)))
            (tile("Success", &ratio(day.delivered, day.attempts()), "24 hours"))
            (tile("p95", &day.took_at(95).map_or_else(|| "–".into(), span), "of an attempt"))
            (tile("Dead", &count(day.dead), "24 hours"))
        }
        section.card { (chart(&ship.hours, viewer.now)) }
        section.card {
            h2 { "Settings" }
            dl.facts {
                dt { "URL" } dd { @if settings.queue.is_some() { "none: workers claim from a queue" } @else { code { (line(&settings.url, 400)) } } }
                dt { "Event types" } dd { @for kind in &settings.event_types { code { (line(kind, 130)) } " " } }
                @if !settings.description.is_empty() { dt { "Description" } dd { (line(&settings.description, 400)) } }
                dt { "Time-out" } dd { (span(settings.timeout)) }
                dt { "Requests at a time" } dd { (settings.in_flight_max) }
                @if let Some(rate) = settings.rate_per_second { dt { "Rate" } dd { (rate) " a second" } }
                dt { "Own headers" } dd { @if settings.headers.is_empty() { span.dim { "none" } } @for (name, _) in &settings.headers { code { (line(name, 80)) } " " } }
                dt { "Version" } dd { (ship.endpoint.version) }
                dt { "Made" } dd { (when(ship.endpoint.created_at, viewer.now)) }
            }
            p.links {
                a href=(viewer.to(&deliveries)) { "All its deliveries" } " · "
                a href=(viewer.to(&format!("{deliveries}&status=dead"))) { "Dead letters" } " · "
                a href=(viewer.to(&format!("{deliveries}&status=pending"))) { "What waits" }
            }
        }
        (signing::card(viewer, ship))
    }
}

fn chart(hours: &[Hour], now: Timestamp) -> Markup {
    let last = hooklog_projections::hour::hour_of(now);
    let columns: Vec<_> = hours
        .iter()
        .enumerate()
        .map(|(at, hour)| {
            let label = format!("{:02}:00", (last as usize + 1 + at - hours.len()) % 24);
            Column { label, parts: outcomes(hour) }
        })
        .collect();
    stacked("Attempts by outcome, last 24 hours (UTC)", &columns, TONES, OUTCOMES)
}

fn held(hold: &Hold, now: Timestamp, waiting: u64) -> Markup {
    let (title, at, why) = match hold {
        Hold::Paused { reason, at } => {
            ("It is paused", *at, html! { @if !reason.is_empty() { ": “" (line(reason, 300)) "”" } })
        }
        Hold::Removed { reason, at } => {
            ("It was removed", *at, html! { @if !reason.is_empty() { ": “" (line(reason, 300)) "”" } })
        }
        Hold::Disabled { reason, at } => (
            "It is disabled",
            *at,
            html! { @match reason {
                DisabledReason::Gone => ": it answered 410 (gone). Ask its owner whether the URL is right",
                DisabledReason::Requested(reason) => { @if !reason.is_empty() { ": “" (line(reason, 300)) "”" } },
                DisabledReason::Failing { since } => { ": it did nothing but fail since " (ago(*since, now)) },
            } },
        ),
    };
    html! { p.banner.wait { (icon("hold")) span { b { (title) } " since " (when(at, now)) (why) ". " (count(waiting)) " deliveries are held, not lost." } } }
}

fn actions(viewer: &Viewer, ship: &Ship) -> Markup {
    let path = endpoint_path(viewer, ship.key);
    let may = viewer.barred(Right::Act);
    let Endpoint { hold, settings, .. } = &ship.endpoint;
    let removed = matches!(hold, Some(Hold::Removed { .. })).then_some("It was removed.");
    let pause = may.or(removed).or(hold.as_ref().map(|_| "It is held already."));
    let resume = may.or(removed).or(hold.is_none().then_some("It runs."));
    let test = may
        .or(removed)
        .or(hold.as_ref().map(|_| "It is held; resume it first."))
        .or(settings.queue.as_ref().map(|_| "Workers claim from it."));
    html! {
        div.actions {
            (action(viewer, &path, "test", "Send a test event", "fly", test, html! {}))
            @if pause.is_none() {
                details.ask { summary { (icon("hold")) "Pause…" } (action(viewer, &path, "pause", "Pause", "hold", None, html! { p.plan { "Its deliveries are held, and go out in order on resume." } (reason_field(viewer)) })) }
            } @else { (action(viewer, &path, "pause", "Pause…", "hold", pause, html! {})) }
            (action(viewer, &path, "resume", "Resume", "fly", resume, html! {}))
        }
    }
}

fn notice(done: &str) -> Option<&'static str> {
    match done {
        "pause" => Some("It is paused."),
        "resume" => Some("It runs again; what was held goes out in order."),
        _ => None,
    }
}

pub(super) async fn act(
    viewer: Viewer,
    Path(id): Path<String>,
    uri: Uri,
    mut form: Form,
) -> Result<Response, Problem> {
    let account = account_of(&viewer.api, &uri)?;
    let what = form.take("do")?.unwrap_or_default();
    let reason = form.words("reason", REASON_CHARS_MAX)?;
    let once = form.once(&viewer.api, &what)?;
    form.finish()?;
    let key = find_in(&viewer.api, &id, account).await?;
    match what.as_str() {
        "pause" => once.settle(hold(&viewer.api, key, reason).await)?,
        "resume" => once.settle(let_go(&viewer.api, key).await)?,
        "test" => {
            let event = once.settle(try_out(&viewer.api, key).await)?.1.id;
            return go(&viewer.to(&viewer.in_account(&format!("/events/{event}"), key.account)));
        }
        _ => return Err(Problem::query("do", "the form asks for nothing that is known here")),
    }
    let path = format!("/endpoints/{}?done={what}", key.endpoint);
    go(&viewer.to(&viewer.in_account(&path, key.account)))
}
