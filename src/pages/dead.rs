//! Dead letters, in groups of what they have in common: what to mend first, and what to send again after that.

use axum::http::{StatusCode, Uri};
use axum::response::Response;
use maud::html;
use url::form_urlencoded;

use super::export::{self, Format};
use super::layout::{Page, heading};
use super::list::{Field, Names, Query, filters, nothing};
use super::parts::{account, address, ago, icon, read, words};
use super::text::{count, line};
use super::viewer::Viewer;
use crate::api::ApiState;
use crate::api::access::Right;
use crate::api::csv::Columns;
use crate::api::dead::grouped;
use crate::api::paging::PageOut;
use crate::api::problem::Problem;

/// The columns of a file of groups.
const COLUMNS: Columns = &[
    ("account_id", "/account_id"),
    ("endpoint_id", "/endpoint_id"),
    ("endpoint_url", "/endpoint_url"),
    ("event_type", "/event_type"),
    ("reason", "/reason"),
    ("count", "/count"),
    ("first_at", "/first_at"),
    ("last_at", "/last_at"),
];

pub(super) async fn show(viewer: Viewer, uri: Uri) -> Result<Response, Problem> {
    let query = Query::of(&uri);
    if let Some(format) = Format::of(&query)? {
        let page = |api: ApiState, uri: Uri| async move {
            let found = grouped(&api, &uri).await?;
            let detail = "there are more groups than go into a file; narrow the filters";
            if found.complete {
                Ok(PageOut::whole(found.data))
            } else {
                Err(Problem::query("format", detail))
            }
        };
        return export::file(&viewer, &query, format, ("dead-letters", COLUMNS), page).await;
    }
    let names = Names::read(&viewer).await?;
    let found = grouped(&viewer.api, &query.for_api()?).await?;
    let reasons = Field::Choice(
        "reason",
        "Reason",
        &[
            ("exhausted", "tries used up"),
            ("refused", "refused"),
            ("retries_off", "retries off"),
            ("expired", "expired"),
            ("imported", "given up elsewhere"),
        ],
    );
    let fields = [
        Field::Text("event_type", "Event type", "payment.*"),
        Field::Account,
        Field::Text("endpoint_id", "Endpoint", "ep_…"),
        reasons,
    ];
    let body = html! {
        (heading(html! { "Dead letters" }, html! { @if found.dead > 0 { span.dim { (count(found.dead)) " deliveries were given up" } } (export::links(&query)) }))
        (filters(&viewer, &query, &names, &fields))
        @if found.data.is_empty() {
            (nothing(&query, "dead letters", html! { p { "Nothing that was given up waits for a decision." } }))
        } @else {
            table.rows {
                caption.unseen { "Dead letters by endpoint, type and reason, the largest group first" }
                thead { tr {
                    th scope="col" { "Endpoint" }
                    @if !viewer.is_customer() { th scope="col" { "Account" } }
                    th scope="col" { "Event type" } th scope="col" { "Reason" }
                    th.number scope="col" { "Count" } th scope="col" { "First" } th scope="col" { "Last" } th scope="col" { span.unseen { "Actions" } }
                } }
                tbody { @for group in &found.data {
                    @let filter = filter(group.endpoint_id.to_string(), &group.event_type);
                    tr {
                        th.main scope="row" data-label="Endpoint" {
                            a.row href=(viewer.to(&viewer.in_account(&format!("/deliveries?status=dead&{filter}"), group.account_id))) {
                                (address(group.endpoint_url.as_deref().unwrap_or("removed"), None))
                            }
                        }
                        @if !viewer.is_customer() { td data-label="Account" { (account(&viewer, group.account_id, names.get(group.account_id).unwrap_or("?"))) } }
                        td data-label="Event type" { (line(&group.event_type, 60)) }
                        td data-label="Reason" { (words(&group.reason)) }
                        td.number data-label="Count" { b { (count(group.count)) } }
                        td data-label="First" { (ago(read(&group.first_at), viewer.now)) }
                        td data-label="Last" { (ago(read(&group.last_at), viewer.now)) }
                        td { @if viewer.may(Right::Act) { a.button href=(viewer.to(&viewer.in_account(&format!("/replays/new?status=dead&{filter}"), group.account_id))) { (icon("replays")) "Replay group…" } } }
                    }
                } }
            }
            @if !found.complete { p.note { "There are more groups; narrow the filters to see them." } }
        }
    };
    viewer.page(StatusCode::OK, Page { title: "Dead letters", part: "/dead", body, live: None })
}

fn filter(endpoint: String, event_type: &str) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("endpoint_id", &endpoint).append_pair("event_type", event_type).finish()
}
