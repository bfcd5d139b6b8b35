//! The lists of deliveries and of events, with the API's own filters in their addresses.

use axum::http::{StatusCode, Uri};
use axum::response::Response;
use maud::{Markup, html};

use super::export::{self, Format};
use super::layout::{Live, Page, heading};
use super::list::{Field, Names, Query, filters, nothing, pager};
use super::parts::{at, brief, deliveries, read};
use super::text::{line, size};
use super::viewer::Viewer;
use crate::api::ApiState;
use crate::api::csv::{self, Columns};
use crate::api::deliveries::listed;
use crate::api::events;
use crate::api::problem::Problem;

const STATUS: Field = Field::Choice(
    "status",
    "Status",
    &[
        ("pending", "pending"),
        ("in_flight", "in flight"),
        ("delivered", "delivered"),
        ("dead", "dead"),
        ("cancelled", "cancelled"),
        ("pending,in_flight", "open"),
    ],
);
const ANSWER: Field = Field::Choice(
    "http_status",
    "Last answer",
    &[
        ("2xx", "2xx"),
        ("3xx", "3xx"),
        ("4xx", "4xx"),
        ("5xx", "5xx"),
        ("410", "410"),
        ("429", "429"),
        ("503", "503"),
    ],
);
const ERROR: Field = Field::Choice(
    "error",
    "Last error",
    &[
        ("timeout", "time-out"),
        ("connect", "connect"),
        ("dns", "dns"),
        ("tls", "tls"),
        ("closed", "closed"),
        ("egress_denied", "egress denied"),
        ("interrupted", "interrupted"),
    ],
);
/// The columns of a file of events.
const EVENTS: Columns = &[
    ("id", "/id"),
    ("type", "/type"),
    ("account_id", "/account_id"),
    ("accepted_at", "/accepted_at"),
    ("size", "/size"),
    ("content_type", "/content_type"),
    ("delivery_count", "/delivery_count"),
];
const TYPE: Field = Field::Text("event_type", "Event type", "payment.*");

pub(super) async fn list(viewer: Viewer, uri: Uri) -> Result<Response, Problem> {
    let query = Query::of(&uri);
    if let Some(format) = Format::of(&query)? {
        // What the last try died of is in the file, as in the command line's.
        let query = query.and("include", "last_error");
        let page = |api: ApiState, uri: Uri| async move { listed(&api, &uri).await };
        return export::file(&viewer, &query, format, ("deliveries", csv::DELIVERIES), page).await;
    }
    let names = Names::read(&viewer).await?;
    let page = listed(&viewer.api, &query.for_api()?).await?;
    let fields = [
        STATUS,
        TYPE,
        Field::Account,
        Field::Text("endpoint_id", "Endpoint", "ep_…"),
        ANSWER,
        ERROR,
        Field::Moment("since", "Since"),
        Field::Moment("until", "Until"),
    ];
    let body = html! {
        (heading(html! { "Deliveries" }, export::links(&query)))
        (filters(&viewer, &query, &names, &fields))
        @if page.data.is_empty() {
            (nothing(&query, "deliveries", send_one(&viewer)))
        } @else {
            (deliveries(&viewer, "Deliveries, newest first", &page.data, |id| names.get(id)))
        }
        (pager(&viewer, &query, &page))
    };
    viewer.page(StatusCode::OK, Page { title: "Deliveries", part: "/deliveries", body, live: live(&query) })
}

pub(super) async fn events(viewer: Viewer, uri: Uri) -> Result<Response, Problem> {
    let query = Query::of(&uri);
    let names = Names::read(&viewer).await?;
    let only = names.all().next().filter(|_| names.all().count() == 1).map(|(id, _)| id);
    if viewer.account.is_none() && query.get("account_id").is_empty() && only.is_none() {
        return chosen(&viewer, &query, &names);
    }
    let address = query.for_api()?;
    let address = match (viewer.account, only) {
        (None, Some(only)) if query.get("account_id").is_empty() => {
            let with = query.with("account_id", Some(&only.to_string()));
            with.parse().map_err(|_| Problem::query("account_id", "the address cannot be read"))?
        }
        _ => address,
    };
    if let Some(format) = Format::of(&query)? {
        let query = Query::of(&address);
        let page = |api: ApiState, uri: Uri| async move { events::listed(&api, &uri).await };
        return export::file(&viewer, &query, format, ("events", EVENTS), page).await;
    }
    let page = events::listed(&viewer.api, &address).await?;
    let unmatched = Field::Choice("status", "Receivers", &[("unmatched", "nobody subscribed")]);
    let fields =
        [TYPE, Field::Account, unmatched, Field::Moment("since", "Since"), Field::Moment("until", "Until")];
    let body = html! {
        (heading(html! { "Events" }, export::links(&query)))
        (filters(&viewer, &query, &names, &fields))
        @if page.data.is_empty() {
            (nothing(&query, "events", send_one(&viewer)))
        } @else {
            table.rows {
                caption.unseen { "Events, newest first" }
                thead { tr {
                    th scope="col" { "Time" } th scope="col" { "Event" } th scope="col" { "Id" }
                    th.number scope="col" { "Receivers" } th.number scope="col" { "Size" } th scope="col" { "Content type" }
                } }
                tbody { @for row in &page.data {
                    @let path = viewer.in_account(&format!("/events/{}", row.id), row.account_id);
                    tr {
                        td data-label="Time" { (at(read(&row.accepted_at), viewer.now)) }
                        th.main scope="row" data-label="Event" { a.row href=(viewer.to(&path)) { (line(&row.r#type, 60)) } }
                        td data-label="Id" { (brief(row.id.as_str())) }
                        td.number data-label="Receivers" { (row.delivery_count) }
                        td.number data-label="Size" { (size(u64::from(row.size))) }
                        td data-label="Content type" { span.dim { (line(&row.content_type, 40)) } }
                    }
                } }
            }
        }
        (pager(&viewer, &query, &page))
    };
    viewer.page(StatusCode::OK, Page { title: "Events", part: "/events", body, live: None })
}

/// What a list hears of: new rows that its filters take. Not where the stream cannot tell, nor on older pages.
fn live(query: &Query) -> Option<Live> {
    let untold = ["cursor", "http_status", "error", "since", "until", "queue"];
    if untold.iter().any(|name| !query.get(name).is_empty()) {
        return None;
    }
    let mut filter = url::form_urlencoded::Serializer::new(String::new());
    for name in ["account_id", "endpoint_id", "event_type", "status"] {
        if !query.get(name).is_empty() {
            filter.append_pair(name, query.get(name));
        }
    }
    // Whatever its status, a delivery is new when it begins; of one status it is when it comes to it.
    if query.get("status").is_empty() {
        filter.append_pair("fact", "Enqueued");
    }
    Some(Live { query: filter.finish(), swaps: false, only: String::new() })
}

/// Events belong to accounts: which one is asked first.
fn chosen(viewer: &Viewer, query: &Query, names: &Names) -> Result<Response, Problem> {
    let body = html! {
        (heading(html! { "Events" }, html! {}))
        section.card {
            @if names.all().next().is_none() {
                h2 { "No events yet" } (send_one(viewer))
            } @else {
                h2 { "Of which account?" }
                p { "Events are kept by account. All deliveries together are " a href=(viewer.to("/deliveries")) { "one list" } "." }
                ul.choices { @for (id, name) in names.all() {
                    li { a.row href=(query.with("account_id", Some(&id.to_string()))) { (line(name, 60)) } " " (brief(&id.to_string())) }
                } }
            }
        }
    };
    viewer.page(StatusCode::OK, Page { title: "Events", part: "/events", body, live: None })
}

/// What to type where nothing was sent yet.
pub(super) fn send_one(viewer: &Viewer) -> Markup {
    html! {
        @if viewer.is_customer() {
            p { "As soon as something is sent to you, it is listed here." }
        } @else {
            p { "Send one from this machine:" }
            pre.code { code { "hooklog send --account acct_… --type payment.settled --data '{\"amount\":\"12.00\"}' --wait" } }
        }
    }
}
