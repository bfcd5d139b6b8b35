//! Bulk replays: those there were, the plan of one to be, and one at work. A plan is shown before anything is sent.

use axum::extract::Path;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use hooklog_projections::ids::AccountId;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::door::go;
use super::layout::{Page, heading};
use super::list::{Field, Names, Query, filters, nothing, pager};
use super::parts::{action, badge, hidden, icon, id, read, receiver, tile, when};
use super::text::{count, line, size};
use super::viewer::Viewer;
use crate::api::access::Right;
use crate::api::endpoints::REASON_CHARS_MAX;
use crate::api::events::account_of;
use crate::api::form::Form;
use crate::api::problem::Problem;
use crate::api::query::Params;
use crate::api::replays::{PlanOut, ReplayOut, begin, call_off, listed, newest, planned, shown};

/// What a plan takes from an address: the filters of a list of deliveries.
const FILTERS: [&str; 7] = ["status", "endpoint_id", "event_type", "since", "until", "http_status", "error"];

pub(super) async fn list(viewer: Viewer, uri: Uri) -> Result<Response, Problem> {
    let query = Query::of(&uri);
    let names = Names::read(&viewer).await?;
    let of_one = viewer.account.is_some() || !query.get("account_id").is_empty();
    let page = if of_one { listed(&viewer.api, &uri).await? } else { newest(&viewer.api).await? };
    let body = html! {
        (heading(html! { "Replays" }, html! {}))
        (filters(&viewer, &query, &names, &[Field::Account]))
        @if page.data.is_empty() {
            (nothing(&query, "bulk replays", html! { p { "Begin one from a group of " a href=(viewer.to("/dead")) { "dead letters" } "." } }))
        } @else {
            table.rows {
                caption.unseen { "Bulk replays, newest first" }
                thead { tr {
                    th scope="col" { "Begun" } th scope="col" { "Reason" }
                    @if !viewer.is_customer() { th scope="col" { "Account" } }
                    th scope="col" { "By" } th scope="col" { "State" } th.number scope="col" { "Sent again" } th.number scope="col" { "Delivered" } th.number scope="col" { "Dead" }
                } }
                tbody { @for row in &page.data { tr {
                    td data-label="Begun" { (when(read(&row.created_at), viewer.now)) }
                    th.main scope="row" data-label="Reason" { a.row href=(viewer.to(&path(&viewer, row))) { (line(&row.reason, 80)) } }
                    @if !viewer.is_customer() { td data-label="Account" { (line(names.get(row.account_id).unwrap_or("?"), 40)) } }
                    td data-label="By" { (line(&row.by, 40)) }
                    td data-label="State" { (state(row)) }
                    td.number data-label="Sent again" { (count(row.replayed)) " of " (count(row.planned)) }
                    td.number data-label="Delivered" { (count(row.delivered)) }
                    td.number data-label="Dead" { (count(row.dead)) }
                } } }
            }
        }
        (pager(&viewer, &query, &page))
    };
    viewer.page(StatusCode::OK, Page { title: "Replays", part: "/replays", body, live: None })
}

fn path(viewer: &Viewer, row: &ReplayOut) -> String {
    viewer.in_account(&format!("/replays/{}", row.id), row.account_id)
}

fn state(row: &ReplayOut) -> Markup {
    match row.state {
        "running" => badge("fly", "fly", "running"),
        "cancelled" => badge("off", "stop", "cancelled"),
        _ if row.dead > 0 => badge("bad", "alert", "ended, some died"),
        _ if row.open > 0 => badge("wait", "clock", "ended, some on their way"),
        _ => badge("good", "check", "ended"),
    }
}

/// The members of a wish, out of an address or a form.
fn wish(account: Option<AccountId>, get: impl Fn(&str) -> String) -> Map<String, Value> {
    let mut filter = Map::new();
    for name in FILTERS {
        let value = get(name);
        if !value.is_empty() {
            filter.insert(name.into(), value.into());
        }
    }
    let mut wish = Map::new();
    if let Some(account) = account {
        wish.insert("account_id".into(), account.to_string().into());
    }
    if let Ok(rate) = get("rate_per_second").parse::<u64>() {
        wish.insert("rate_per_second".into(), rate.into());
    }
    wish.insert("filter".into(), filter.into());
    wish
}

/// The plan: what would be sent, where to, how long it takes.
pub(super) async fn plan(viewer: Viewer, uri: Uri) -> Result<Response, Problem> {
    let query = Query::of(&uri);
    let address = query.for_api()?;
    let mut params = Params::of(&address);
    let account = viewer.api.account_filter(&mut params)?;
    if account.is_none() {
        params.fail("account_id", "name the account");
    }
    let rate = params.one("rate_per_second");
    let taken: Vec<_> =
        FILTERS.into_iter().map(|name| (name, params.one(name).unwrap_or_default())).collect();
    let account = params.finish_with(account)?;
    let get = |name: &str| match name {
        "rate_per_second" => rate.clone().unwrap_or_default(),
        _ => {
            taken.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone()).unwrap_or_default()
        }
    };
    let mut wish = wish(Some(account), get);
    wish.insert("dry_run".into(), true.into());
    let plan = planned(&viewer.api, Value::Object(wish).to_string().as_bytes()).await?;
    let body = planned_page(&viewer, &plan, &taken);
    viewer.page(StatusCode::OK, Page { title: "Plan of a replay", part: "/replays", body, live: None })
}

fn planned_page(viewer: &Viewer, plan: &PlanOut, taken: &[(&str, String)]) -> Markup {
    let may = viewer.may(Right::Act) && plan.planned > 0;
    let again = taken.iter().any(|(name, value)| *name == "status" && value == "delivered");
    html! {
        (heading(html! { "Plan of a replay" }, html! { span.dim { "nothing is sent yet" } }))
        @for warning in &plan.warnings { p.banner.wait { (icon("alert")) span { (line(warning, 300)) } } }
        dl.strip {
            (tile("To be sent", &count(plan.planned), &size(plan.bytes)))
            (tile("Skipped", &count(plan.skipped), "removed or disabled"))
            (tile("At most", &format!("{} /s", plan.rate_per_second), "over all"))
            (tile("Done", &super::parts::until(read(&plan.ends_at), viewer.now), "if nothing holds it up"))
            (tile("Oldest", &plan.oldest.as_deref().map_or("–".into(), |at| super::parts::since(read(at), viewer.now)), "of them"))
        }
        @if !plan.groups.is_empty() {
            table.rows {
                caption.unseen { "What would be sent, by endpoint and type" }
                thead { tr { th scope="col" { "Endpoint" } th scope="col" { "Event type" } th.number scope="col" { "Count" } th.number scope="col" { "Skipped" } th scope="col" { "Goes to" } th scope="col" { "Went to" } } }
                tbody { @for group in &plan.groups { tr {
                    th.main scope="row" data-label="Endpoint" { (receiver(group.endpoint_url.as_deref().unwrap_or("removed"), None)) }
                    td data-label="Event type" { (line(&group.event_type, 60)) }
                    td.number data-label="Count" { (count(group.count)) }
                    td.number data-label="Skipped" { (count(group.skipped)) }
                    td data-label="Goes to" { code { (line(group.endpoint_url.as_deref().unwrap_or("–"), 90)) } }
                    td data-label="Went to" { @match (&group.url_then, &group.endpoint_url) {
                        (Some(then), Some(now)) if then != now => code { (line(then, 90)) },
                        (Some(_), _) => span.dim { "the same" },
                        (None, _) => span.dim { "–" },
                    } }
                } } }
            }
        }
        section.card { h2 { "Begin" }
            @if !may { p { @if plan.planned == 0 { "There is nothing to send again." } @else { (viewer.barred(Right::Act).unwrap_or_default()) } } }
            @else {
                p { "Receivers get the same event ids again, with a " code { "webhook-replay" } " header. What is begun can be called off at any time." }
                form.stack method="post" action=(viewer.to("/replays")) {
                    (hidden(viewer, "begin"))
                    @if !viewer.is_customer() { input type="hidden" name="account_id" value=(plan.account_id.to_string()); }
                    @for (name, value) in taken { @if !value.is_empty() { input type="hidden" name=(name) value=(value); } }
                    label { span { "At most, in a second" } input type="number" name="rate_per_second" min="1" max="10000" value=(plan.rate_per_second) required; }
                    label { span { "Reason" } input type="text" name="reason" maxlength=(REASON_CHARS_MAX) required autocomplete="off" placeholder="why, for the history"; }
                    @if again { label.check { input type="checkbox" name="confirm" value="1" required; " They were delivered: send them a second time" } }
                    div { button.primary type="submit" { (icon("replays")) "Send " (count(plan.planned)) " again" } }
                }
            }
        }
    }
}

pub(super) async fn create(viewer: Viewer, mut form: Form) -> Result<Response, Problem> {
    form.take("do")?;
    let account = form
        .take("account_id")?
        .map(|text| crate::api::accounts::account_id(&viewer.api, &text))
        .transpose()?;
    let account = viewer.api.scope(account)?;
    let mut fields = Vec::new();
    for name in FILTERS.into_iter().chain(["rate_per_second"]) {
        fields.push((name, form.take(name)?.unwrap_or_default()));
    }
    let reason = form.words("reason", REASON_CHARS_MAX)?;
    let confirmed = form.take("confirm")?.is_some();
    let once = form.once(&viewer.api, "begin")?;
    form.finish()?;
    let mut wish = wish(account, |name| {
        fields.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone()).unwrap_or_default()
    });
    if !reason.is_empty() {
        wish.insert("reason".into(), reason.into());
    }
    wish.insert("confirm".into(), json!(confirmed));
    let row = once.settle(begin(&viewer.api, Value::Object(wish).to_string().as_bytes()).await)?;
    go(&viewer.to(&path(&viewer, &row)))
}

pub(super) async fn show(viewer: Viewer, Path(text): Path<String>, uri: Uri) -> Result<Response, Problem> {
    let account = account_of(&viewer.api, &uri)?;
    let row = shown(&viewer.api, text, account).await?;
    let begun = row.replayed;
    let part = |n: u64| (n * 1_000 / row.planned.max(1)).min(1_000);
    let (delivered, dead) = (part(row.delivered), part(row.dead));
    let body = html! {
        (heading(html! { (line(&row.reason, 120)) }, html! { (id(&row.id.to_string())) (state(&row)) }))
        section.card {
            svg.progress viewBox="0 0 1000 10" preserveAspectRatio="none" role="img" aria-label={ (count(begun)) " of " (count(row.planned)) " begun" } {
                rect.track x="0" y="0" width="1000" height="10" {}
                rect.begun x="0" y="0" width=(part(begun)) height="10" {}
                rect.good x="0" y="0" width=(delivered) height="10" {}
                rect.bad x=(delivered) y="0" width=(dead) height="10" {}
            }
            p { b { (count(begun)) " of " (count(row.planned)) } " begun, at most " (row.rate_per_second) " a second, "
                "by " (line(&row.by, 60)) ", " (when(read(&row.created_at), viewer.now))
                @if let Some(ended) = &row.ended_at { "; over " (when(read(ended), viewer.now)) } "." }
        }
        dl.strip {
            (tile("Delivered", &count(row.delivered), "arrived"))
            (tile("On their way", &count(row.open), "sent again"))
            (tile("Dead", &count(row.dead), "given up again"))
            (tile("Skipped", &count(row.skipped), "could not be sent"))
            (tile("Left", &count(row.left), "not yet begun"))
        }
        @if row.state == "running" {
            div.actions {
                (action(&viewer, &path(&viewer, &row), "cancel", "Call it off", "stop", viewer.barred(Right::Act), html! {}))
                a.button href=(viewer.to(&path(&viewer, &row))) { (icon("replays")) "Look again" }
            }
        }
        section.card { h2 { "What it takes" }
            dl.facts { @for (name, value) in row.filter.as_object().into_iter().flatten() {
                dt { (line(&name.replace('_', " "), 40)) } dd { code { (line(value.as_str().unwrap_or(&value.to_string()), 160)) } }
            } }
        }
    };
    viewer.page(StatusCode::OK, Page { title: "Replay", part: "/replays", body, live: None })
}

pub(super) async fn act(
    viewer: Viewer,
    Path(text): Path<String>,
    uri: Uri,
    mut form: Form,
) -> Result<Response, Problem> {
    let account = account_of(&viewer.api, &uri)?;
    let what = form.take("do")?.unwrap_or_default();
    form.finish()?;
    if what != "cancel" {
        return Err(Problem::query("do", "the form asks for nothing that is known here"));
    }
    let row = call_off(&viewer.api, text, account).await?;
    go(&viewer.to(&path(&viewer, &row)))
}
