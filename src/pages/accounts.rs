//! Accounts: who there is, and one with its endpoints and figures.

use axum::extract::Path;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use maud::html;

use super::endpoints;
use super::layout::{Page, heading};
use super::list::{Query, nothing, pager};
use super::parts::{badge, id, ratio, read, tile, when, words};
use super::text::{count, line};
use super::viewer::Viewer;
use crate::api::accounts::{account_id, listed, shown};
use crate::api::fleet;
use crate::api::problem::Problem;
use crate::api::query::Params;

pub(super) async fn list(viewer: Viewer, uri: Uri) -> Result<Response, Problem> {
    let query = Query::of(&uri);
    let page = listed(&viewer.api, &uri).await?;
    let body = html! {
        (heading(html! { "Accounts" }, html! {}))
        @if page.data.is_empty() {
            (nothing(&query, "accounts", html! { p { "Make one from this machine:" } pre.code { code { "hooklog accounts create Acme --owner-email ops@acme.example" } } }))
        } @else {
            table.rows {
                caption.unseen { "Accounts, oldest first" }
                thead { tr { th scope="col" { "Account" } th scope="col" { "Id" } th scope="col" { "Owner" } th scope="col" { "Retries" } th scope="col" { "Made" } } }
                tbody { @for row in &page.data { tr {
                    th.main scope="row" data-label="Account" { a.row href=(viewer.to(&format!("/accounts/{}", row.id))) { (line(&row.name, 80)) } }
                    td data-label="Id" { (super::parts::brief(&row.id.to_string())) }
                    td data-label="Owner" { @match &row.owner_email { Some(email) => (line(email, 80)), None => span.dim { "nobody" } } }
                    td data-label="Retries" { (words(&row.webhook_retries)) }
                    td data-label="Made" { (when(read(&row.created_at), viewer.now)) }
                } } }
            }
        }
        (pager(&viewer, &query, &page))
    };
    viewer.page(StatusCode::OK, Page { title: "Accounts", part: "/accounts", body, live: None })
}

pub(super) async fn show(viewer: Viewer, Path(text): Path<String>, uri: Uri) -> Result<Response, Problem> {
    Params::of(&uri).finish()?;
    let account = account_id(&viewer.api, &text)?;
    let row = shown(&viewer.api, account).await?;
    let (ships, all) = viewer.api.read(move |api, view| fleet::read(api, view, Some(account))).await?;
    let all_of = format!("account_id={account}");
    let body = html! {
        (heading(html! { (line(&row.name, 120)) }, html! { (id(&account.to_string())) }))
        @if let Some(counts) = &row.deliveries {
            dl.strip {
                (tile("Deliveries", &count(counts.enqueued), "in all"))
                (tile("Delivered", &ratio(counts.delivered, counts.enqueued), &count(counts.delivered)))
                (tile("Waiting", &count(counts.pending), "pending"))
                (tile("In flight", &count(counts.in_flight), "requests out"))
                (tile("Dead", &count(counts.dead), "given up"))
            }
        }
        section.card { h2 { "Settings" }
            dl.facts {
                dt { "Owner" } dd { @match &row.owner_email { Some(email) => (line(email, 120)), None => span.dim { "nobody is told of dead letters" } } }
                dt { "Retries" } dd { @match words(&row.webhook_retries).as_str() { "off" => (badge("wait", "stop", "off")), other => (other) } }
                dt { "Schedule" } dd { @match &row.schedule { Some(schedule) => code { (line(schedule.as_str().unwrap_or(&schedule.to_string()), 160)) }, None => span.dim { "the server's" } } }
                dt { "Made" } dd { (when(read(&row.created_at), viewer.now)) }
            }
            p.links {
                a href=(viewer.to(&format!("/events?{all_of}"))) { "Events" } " · "
                a href=(viewer.to(&format!("/deliveries?{all_of}"))) { "Deliveries" } " · "
                a href=(viewer.to(&format!("/dead?{all_of}"))) { "Dead letters" } " · "
                a href=(viewer.to(&format!("/replays?{all_of}"))) { "Replays" }
            }
        }
        section { h2 { "Endpoints" }
            @if ships.is_empty() { p.dim { "It has none." } } @else { (endpoints::table(&viewer, &ships)) }
            @if !all { p.note { "There are more." } }
        }
    };
    viewer.page(StatusCode::OK, Page { title: &row.name, part: "/accounts", body, live: None })
}
