//! What was administered and which secrets were shown, by whom. As the API tells it.

use axum::http::{StatusCode, Uri};
use axum::response::Response;
use maud::{Markup, html};
use serde_json::Value;

use super::layout::{Page, heading};
use super::list::{Field, Names, Query, filters, nothing, pager};
use super::parts::{at, brief, read};
use super::text::line;
use super::viewer::Viewer;
use crate::api::audit::listed;
use crate::api::problem::Problem;

pub(super) async fn show(viewer: Viewer, uri: Uri) -> Result<Response, Problem> {
    let query = Query::of(&uri);
    let names = Names::read(&viewer).await?;
    let page = listed(&viewer.api, &query.for_api()?).await?;
    let body = html! {
        (heading(html! { "Audit" }, html! { span.dim { "who did what, newest first" } }))
        (filters(&viewer, &query, &names, &[Field::Account, Field::Text("actor", "Actor", "key_… or the command line")]))
        @if page.data.is_empty() { (nothing(&query, "entries", html! { p { "Nothing was administered yet." } })) } @else {
            table.rows {
                caption.unseen { "Administrative entries" }
                thead { tr { th scope="col" { "Time" } th scope="col" { "What" } th scope="col" { "Who" } th scope="col" { "Account" } th scope="col" { "About" } th.number scope="col" { "Place" } } }
                tbody { @for entry in &page.data { tr {
                    td data-label="Time" { (at(read(text(&entry["at"])), viewer.now)) }
                    th.main scope="row" data-label="What" { (spaced(text(&entry["fact"]))) }
                    td data-label="Who" { (who(text(&entry["actor"]))) }
                    td data-label="Account" { @match text(&entry["account_id"]) {
                        "" => span.dim { "–" },
                        id => (line(id.parse().ok().and_then(|id| names.get(id)).unwrap_or(id), 60)),
                    } }
                    td data-label="About" { (about(entry)) }
                    td.number data-label="Place" { span.dim { "#" (entry["seq"].to_string()) } }
                } } }
            }
        }
        (pager(&viewer, &query, &page))
    };
    viewer.page(StatusCode::OK, Page { title: "Audit", part: "/audit", body, live: None })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn who(actor: &str) -> Markup {
    if actor.contains('_') && !actor.contains(' ') {
        brief(actor)
    } else {
        html! { (line(actor, 60)) }
    }
}

/// `ApiKeyCreated` as `Api key created`.
fn spaced(fact: &str) -> String {
    let mut out = String::new();
    for (at, c) in fact.chars().enumerate() {
        if c.is_ascii_uppercase() && at > 0 {
            out.push(' ');
            out.push(c.to_ascii_lowercase());
        } else {
            out.push(c);
        }
    }
    out
}

/// All that an entry tells beside.
fn about(entry: &Value) -> Markup {
    let shown = ["seq", "at", "actor", "fact", "account_id"];
    let rest = entry.as_object().into_iter().flatten().filter(|(name, value)| {
        !shown.contains(&name.as_str()) && !value.is_null() && value.as_str() != Some("")
    });
    html! {
        @for (name, value) in rest {
            span.about { span.dim { (line(&name.replace('_', " "), 30)) } " "
                @match value.as_str() {
                    Some(text) if name.ends_with("_id") => (brief(text)),
                    Some(text) => (line(text, 160)),
                    None => (line(&value.to_string(), 80)),
                }
            } " "
        }
    }
}
