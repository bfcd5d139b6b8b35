//! What lists share: the form of their filters, which is the query of the API, the chips of what is chosen, the way
//! to older rows, and what is said where there are none. Never knows what a list shows.

use std::collections::BTreeMap;

use axum::http::Uri;
use hooklog_projections::ids::AccountId;
use maud::{Markup, html};
use url::form_urlencoded;

use super::parts::{icon, read, when};
use super::text::{filled, line, short};
use super::viewer::Viewer;
use crate::api::accounts;
use crate::api::paging::PageOut;
use crate::api::problem::Problem;

/// Accounts that a choice offers; with more, an id is typed.
const CHOICES_MAX: usize = 200;

/// One filter of a list.
pub(super) enum Field {
    /// One of some words.
    Choice(&'static str, &'static str, &'static [(&'static str, &'static str)]),
    /// A text.
    Text(&'static str, &'static str, &'static str),
    /// A moment; what a browser's field gives is meant as UTC.
    Moment(&'static str, &'static str),
    /// An account, for whoever sees several.
    Account,
}

/// The query of a list's address, as it came.
#[derive(Clone)]
pub(super) struct Query {
    pairs: Vec<(String, String)>,
    path: String,
}

impl Query {
    pub(super) fn of(uri: &Uri) -> Query {
        let query = uri.query().unwrap_or_default();
        let pairs = form_urlencoded::parse(query.as_bytes()).into_owned();
        let pairs = pairs.filter(|(_, value)| !value.is_empty()).collect();
        Query { pairs, path: uri.path().to_owned() }
    }

    pub(super) fn get(&self, name: &str) -> &str {
        self.pairs.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    /// The address that the API's reader is given: moments of a browser's fields get an offset.
    pub(super) fn for_api(&self) -> Result<Uri, Problem> {
        let moment = |name: &str, value: &str| {
            let bare = matches!(name, "since" | "until")
                && value.len() >= 10
                && !value.ends_with('Z')
                && !value.get(10..).is_some_and(|rest| rest.contains(['+', '-', ' ']));
            match (bare, value.len()) {
                (true, 10) => format!("{value}T00:00:00Z"),
                (true, 16) => format!("{value}:00Z"),
                (true, _) => format!("{value}Z"),
                (false, _) => value.to_owned(),
            }
        };
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (name, value) in &self.pairs {
            query.append_pair(name, &moment(name, value));
        }
        let text = format!("{}?{}", self.path, query.finish());
        text.parse().map_err(|_| Problem::query("query", "the address cannot be read"))
    }

    /// The same with one more parameter.
    pub(super) fn and(&self, name: &str, value: &str) -> Query {
        let mut more = self.clone();
        more.pairs.push((name.into(), value.into()));
        more
    }

    /// The address of a page of the list's file: all of it, from its newest row on.
    pub(super) fn for_file(&self, rows: &str, cursor: Option<&str>) -> Result<Uri, Problem> {
        let mut asked = self.clone();
        asked.pairs.retain(|(name, _)| !matches!(name.as_str(), "format" | "limit" | "cursor"));
        asked.pairs.push(("limit".into(), rows.into()));
        asked.pairs.extend(cursor.map(|cursor| ("cursor".into(), cursor.into())));
        asked.for_api()
    }

    /// The same list, without a parameter, or with another value of it.
    pub(super) fn with(&self, name: &str, value: Option<&str>) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(self.pairs.iter().filter(|(known, _)| known != name && known != "cursor"));
        if let Some(value) = value {
            query.append_pair(name, value);
        }
        let query = query.finish();
        if query.is_empty() { self.path.clone() } else { format!("{}?{query}", self.path) }
    }

    fn is_filtered(&self) -> bool {
        self.pairs.iter().any(|(name, _)| !matches!(name.as_str(), "cursor" | "limit"))
    }
}

/// Names of accounts, for lists and their filters.
pub(super) struct Names(BTreeMap<AccountId, String>, bool);

impl Names {
    /// All of them, up to so many; a customer's own alone.
    pub(super) async fn read(viewer: &Viewer) -> Result<Names, Problem> {
        let own = viewer.account;
        let rows = viewer
            .api
            .read(move |_, view| match own {
                Some(own) => Ok(vec![(own, accounts::known(view, own)?)]),
                None => Ok(view.accounts(None, CHOICES_MAX + 1)?),
            })
            .await?;
        let all = rows.len() <= CHOICES_MAX;
        Ok(Names(rows.into_iter().map(|(id, row)| (id, row.settings.name.to_string())).collect(), all))
    }

    pub(super) fn get(&self, id: AccountId) -> Option<&str> {
        self.0.get(&id).map(String::as_str)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (AccountId, &str)> {
        self.0.iter().map(|(id, name)| (*id, name.as_str()))
    }
}

/// The form of the filters, and a chip for each that is set.
pub(super) fn filters(viewer: &Viewer, query: &Query, names: &Names, fields: &[Field]) -> Markup {
    let shown = |field: &&Field| !matches!(field, Field::Account) || !viewer.is_customer();
    let fields: Vec<_> = fields.iter().filter(shown).collect();
    html! {
        form.filters method="get" action=(query.path) {
            @for field in &fields { (input(query, names, field)) }
            button type="submit" { (icon("filter")) "Filter" }
        }
        @if query.is_filtered() {
            ul.chips aria-label="Filters that are set" {
                @for (name, value) in query.pairs.iter().filter(|(name, _)| !matches!(name.as_str(), "cursor" | "limit")) {
                    li { a.chip href=(query.with(name, None)) title="Take this filter away" {
                        span.dim { (short(&name.replace('_', " "))) } " " (chip(names, name, value)) " " (icon("cross")) span.unseen { "remove" }
                    } }
                }
                li { a href=(query.path) { "Clear all" } }
            }
        }
    }
}

fn chip(names: &Names, name: &str, value: &str) -> Markup {
    let account = (name == "account_id").then(|| value.parse().ok().and_then(|id| names.get(id))).flatten();
    html! { (line(account.unwrap_or(value), 60)) }
}

fn input(query: &Query, names: &Names, field: &Field) -> Markup {
    match field {
        Field::Choice(name, label, words) => {
            let now = query.get(name);
            html! { label { span { (label) } select name=(name) {
                option value="" { "any" }
                @for (value, word) in *words { option value=(value) selected[*value == now] { (word) } }
                @if !now.is_empty() && !words.iter().any(|(value, _)| *value == now) { option value=(filled(now)) selected { (line(now, 60)) } }
            } } }
        }
        Field::Text(name, label, example) => html! {
            label { span { (label) } input type="text" name=(name) value=(filled(query.get(name))) placeholder=(example) maxlength="200" autocomplete="off" spellcheck="false" autocapitalize="off"; }
        },
        Field::Moment(name, label) => {
            let value: String = query.get(name).chars().take(19).collect();
            html! { label { span { (label) " (UTC)" } input type="datetime-local" name=(name) step="1" value=(value); } }
        }
        Field::Account if names.1 => {
            let now = query.get("account_id");
            html! { label { span { "Account" } select name="account_id" {
                option value="" { "all" }
                @for (id, name) in names.all() { @let id = id.to_string(); option value=(id) selected[id == now] { (line(name, 60)) } }
            } } }
        }
        Field::Account => input(query, names, &Field::Text("account_id", "Account", "acct_…")),
    }
}

/// The way to newer and older rows, and how far a search got.
pub(super) fn pager<T>(viewer: &Viewer, query: &Query, page: &PageOut<T>) -> Markup {
    let (back, up) = (page.searched_back_to.as_deref(), page.searched_up_to.as_deref());
    html! {
        @if let Some(to) = back.or(up) {
            p.banner.wait { (icon("info")) span {
                b { "This search is broad." } " Looked " @if back.is_some() { "back" } @else { "up" } " to " (when(read(to), viewer.now)) "; there may be more. Narrow it, or go on searching."
            } }
        }
        nav.pager aria-label="Pages" {
            @if !query.get("cursor").is_empty() { a.button href=(query.with("cursor", None)) { "Newest" } }
            @if let Some(prev) = &page.prev_cursor {
                a.button href=(query.with("cursor", Some(prev))) rel="prev" { @if up.is_some() { "Search on" } @else { "Newer" } }
            }
            @if let Some(next) = &page.next_cursor {
                a.button href=(query.with("cursor", Some(next))) rel="next" { @if back.is_some() { "Search on" } @else { "Older" } }
            }
        }
    }
}

/// What is said where a list has no rows: nothing yet, or nothing that matches.
pub(super) fn nothing(query: &Query, what: &str, yet: Markup) -> Markup {
    html! {
        div.nothing {
            @if query.is_filtered() || !query.get("cursor").is_empty() {
                h2 { "No " (what) " match" }
                p { "None of what is kept fits these filters." }
                p { a.button href=(query.path) { "Clear the filters" } }
            } @else {
                h2 { "No " (what) " yet" }
                (yet)
            }
        }
    }
}
