//! `/v1/replays`: bulk replays planned, begun, watched and called off. Never knows how they are paced.

use axum::extract::{Path, Request};
use axum::http::header::LOCATION;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use hooklog_projections::account::Hold;
use hooklog_projections::fact::{BulkFilter, BulkOf, Routing, StatusRange};
use hooklog_projections::ids::{AccountId, EndpointId, ReplayId, Seq};
use hooklog_projections::policy::ErrorClass;
use hooklog_projections::replay::{Phase, Replay};
use hooklog_projections::time::{Millis, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json as object};

use super::ApiState;
use super::accounts::known;
use super::endpoints::REASON_CHARS_MAX;
use super::envelope::TYPE_CHARS_MAX;
use super::events::account_of;
use super::fields::{Bad, Fields, bad, flag, id, number, parse, text, word};
use super::openapi::words;
use super::paging::{Asked, PageOut, reply};
use super::policies::{edge, error_class, moment_text, status_range};
use super::problem::{Kind, Problem};
use super::query::{LIMIT_DEFAULT, Params};
use super::rim::{json, small_body};
use crate::clock::SystemChance;
use crate::engine::Command;
use crate::explain::actor;
use crate::ids::drawn;
use crate::views::bulk::Search;
use crate::views::plan::{Group, Plan};
use crate::views::{Place, View};

/// Deliveries that a bulk replay begins in a second, unless told.
const RATE_DEFAULT: u32 = 50;
/// Accounts whose replays are looked at where none is named.
const ACCOUNTS_MAX: usize = 200;
/// The most that may be asked for.
const RATE_MAX: u64 = 10_000;

#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = ReplayPlan)]
pub(crate) struct PlanOut {
    pub dry_run: bool,
    #[schema(value_type = String)]
    pub account_id: AccountId,
    pub planned: u64,
    pub skipped: u64,
    pub bytes: u64,
    #[schema(format = DateTime, required = true)]
    pub oldest: Option<String>,
    #[schema(format = DateTime, required = true)]
    pub newest: Option<String>,
    pub groups: Vec<GroupOut>,
    pub rate_per_second: u32,
    /// If it began now and nothing else held it up.
    #[schema(format = DateTime)]
    pub ends_at: String,
    /// `null`: everything was looked through. Else nothing after this was: there may be more.
    #[schema(format = DateTime, required = true)]
    pub searched_to: Option<String>,
    pub warnings: Vec<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = ReplayGroup)]
pub(crate) struct GroupOut {
    #[schema(value_type = String)]
    pub endpoint_id: EndpointId,
    pub event_type: String,
    pub count: u64,
    pub skipped: u64,
    #[schema(required = true)]
    pub endpoint_url: Option<String>,
    /// Where the oldest of them was sent the last time.
    #[schema(required = true)]
    pub url_then: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Replay)]
pub(crate) struct ReplayOut {
    #[schema(value_type = String)]
    pub id: ReplayId,
    #[schema(value_type = String)]
    pub account_id: AccountId,
    #[schema(value_type = words::ReplayState)]
    pub state: &'static str,
    pub reason: String,
    pub by: String,
    #[schema(format = DateTime)]
    pub created_at: String,
    #[schema(format = DateTime, required = true)]
    pub ended_at: Option<String>,
    #[schema(value_type = words::FilterShown)]
    pub filter: Value,
    #[schema(value_type = words::Routing)]
    pub routing: Routing,
    pub rate_per_second: u32,
    pub planned: u64,
    pub replayed: u64,
    pub delivered: u64,
    pub dead: u64,
    pub cancelled: u64,
    /// Sent again, and on its way.
    pub open: u64,
    pub skipped: u64,
    /// Of the plan, not yet begun; 0 once it is through.
    pub left: u64,
}

/// A wish for a bulk replay.
struct Wish {
    account: AccountId,
    filter: BulkFilter,
    routing: Routing,
    rate: u32,
    reason: Option<String>,
    dry_run: bool,
}

pub(super) async fn create(api: ApiState, request: Request) -> Result<Response, Problem> {
    let body = small_body(request).await?;
    let wish = Wish::read(&api, &body)?;
    if wish.dry_run || wish.reason.is_none() {
        return json(StatusCode::OK, &plan_of(&api, wish).await?);
    }
    let out = begin_as(&api, wish).await?;
    let location = [(LOCATION, format!("/v1/replays/{}?account_id={}", out.id, out.account_id))];
    Ok((location, json(StatusCode::ACCEPTED, &out)?).into_response())
}

/// The plan of a wish, in the body's shape.
pub(crate) async fn planned(api: &ApiState, body: &[u8]) -> Result<PlanOut, Problem> {
    plan_of(api, Wish::read(api, body)?).await
}

/// Begins what a wish asks for, in the body's shape.
pub(crate) async fn begin(api: &ApiState, body: &[u8]) -> Result<ReplayOut, Problem> {
    begin_as(api, Wish::read(api, body)?).await
}

async fn plan_of(api: &ApiState, wish: Wish) -> Result<PlanOut, Problem> {
    let plan = search(api, &wish).await?;
    Ok(plan_out(&wish.filter, wish.account, wish.rate, &plan, api.now()))
}

async fn search(api: &ApiState, wish: &Wish) -> Result<Plan, Problem> {
    let account = wish.account;
    let search = Search {
        account,
        filter: wish.filter.clone(),
        routing: wish.routing,
        after: Seq(0),
        before: Seq(u64::MAX),
        ended_by: Timestamp::MAX,
    };
    api.read(move |api, view| {
        known(view, account)?;
        Ok(api.shared.handle.published().plan(&Search { before: view.head().next(), ..search })?)
    })
    .await
}

async fn begin_as(api: &ApiState, wish: Wish) -> Result<ReplayOut, Problem> {
    let plan = search(api, &wish).await?;
    api.spend_replay()?;
    let account = wish.account;
    let id = ReplayId(drawn(api.now(), &mut SystemChance));
    let command = Command::StartBulkReplay {
        id,
        account,
        filter: wish.filter,
        reason: wish.reason.unwrap_or_default().into(),
        rate_per_second: wish.rate,
        routing: wish.routing,
        planned: plan.planned,
    };
    api.ask(command).await?;
    api.read(move |_, view| out(view, account, id)).await
}

pub(super) async fn list(api: ApiState, request: Request) -> Result<Response, Problem> {
    let found = listed(&api, request.uri()).await?;
    reply(request.uri(), found)
}

/// What the query of an address selects.
pub(crate) async fn listed(api: &ApiState, uri: &Uri) -> Result<PageOut<ReplayOut>, Problem> {
    let mut params = Params::of(uri);
    let account = api.account_param(&mut params)?;
    let asked = Asked::read(&mut params);
    let account = params.finish_with(account)?;
    let paging = asked.of(api, format!("replays {account}"))?;
    let (place, limit) = (paging.place.map(ReplayId), paging.limit);
    let page = api
        .read(move |_, view| {
            known(view, account)?;
            Ok(view.replays(account, place, limit)?)
        })
        .await?;
    Ok(paging.out(api, page.map(|(id, row)| replay_out(account, id, &row), |id| id.0)))
}

/// The newest of all accounts, or of the first so many.
pub(crate) async fn newest(api: &ApiState) -> Result<PageOut<ReplayOut>, Problem> {
    let data = api
        .read(move |_, view| {
            let mut found = Vec::new();
            for (account, _) in view.accounts_page(Place::First, ACCOUNTS_MAX)?.rows {
                let rows = view.replays(account, Place::First, LIMIT_DEFAULT)?.rows;
                found.extend(rows.iter().map(|(id, row)| replay_out(account, *id, row)));
            }
            found.sort_by_key(|row| std::cmp::Reverse(row.id.0));
            found.truncate(LIMIT_DEFAULT);
            Ok(found)
        })
        .await?;
    Ok(PageOut::whole(data))
}

pub(super) async fn show(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let account = account_of(&api, request.uri())?;
    json(StatusCode::OK, &shown(&api, id, account).await?)
}

/// A replay, within the account that is named, if one is.
pub(crate) async fn shown(
    api: &ApiState,
    id: String,
    account: Option<AccountId>,
) -> Result<ReplayOut, Problem> {
    api.read(move |_, view| {
        let (account, id) = find(view, &id, account)?;
        out(view, account, id)
    })
    .await
}

pub(super) async fn cancel(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let account = account_of(&api, request.uri())?;
    json(StatusCode::OK, &call_off(&api, id, account).await?)
}

/// Calls a replay off; what it had begun goes on.
pub(crate) async fn call_off(
    api: &ApiState,
    id: String,
    account: Option<AccountId>,
) -> Result<ReplayOut, Problem> {
    let (account, id) = api.read(move |_, view| find(view, &id, account)).await?;
    api.ask(Command::CancelBulkReplay { account, id }).await?;
    api.read(move |_, view| out(view, account, id)).await
}

impl Wish {
    fn read(api: &ApiState, body: &[u8]) -> Result<Wish, Problem> {
        let mut fields = Fields::read(body)?;
        let account = api.account_member(&mut fields)?;
        let filter = filter(&mut fields);
        let routing = fields.optional("routing", word::<Routing>("`as_then`, `as_now`")).unwrap_or_default();
        let rate = fields.optional("rate_per_second", number(1, RATE_MAX));
        let rate = rate.map_or(RATE_DEFAULT, |rate| rate as u32);
        let dry_run = fields.optional("dry_run", flag).unwrap_or(false);
        let reason = fields.optional("reason", text(REASON_CHARS_MAX));
        let confirm = fields.optional("confirm", flag).unwrap_or(false);
        if !dry_run && reason.is_none() && fields.raw("reason").is_none_or(|reason| reason.get() == "null") {
            let detail =
                "say why, for those who read the history; or send \"dry_run\": true for the plan alone";
            fields.fail("reason", bad("missing", detail));
        }
        fields.finish()?;
        let (Some(account), Some(filter)) = (account, filter) else {
            return Err(Problem::invalid(Vec::new()));
        };
        if filter.of == BulkOf::Delivered && !dry_run && !confirm {
            let detail = "delivered ones would be sent a second time, which a receiver may act on twice: add \
                          \"confirm\": true if that is meant";
            return Err(Problem::new(Kind::ConfirmNeeded, detail));
        }
        Ok(Wish { account, filter, routing, rate, reason, dry_run })
    }
}

/// The member `filter`, as lists take it.
fn filter(fields: &mut Fields<'_>) -> Option<BulkFilter> {
    let Some(value) = fields.raw("filter") else {
        fields.fail("filter", bad("missing", "name at least a status: {\"status\":\"dead\"}"));
        return None;
    };
    let mut inner = match Fields::of(value, fields.pointer("filter")) {
        Ok(inner) => inner,
        Err(problem) => {
            fields.absorb(problem);
            return None;
        }
    };
    let of = inner.required("status", word::<BulkOf>("`dead`, `delivered`, `missing`"));
    let endpoint = inner.optional("endpoint_id", id::<EndpointId>);
    let event_type = inner.optional("event_type", text(TYPE_CHARS_MAX));
    let (since, until) = (inner.optional("since", time), inner.optional("until", time));
    let http = inner.optional("http_status", |value| words(value, status_range)).unwrap_or_default();
    let errors = inner.optional("error", |value| words(value, error_class)).unwrap_or_default();
    if since.zip(until).is_some_and(|(since, until)| since > until) {
        inner.fail("since", bad("out-of-range", "`since` is after `until`"));
    }
    if of == Some(BulkOf::Missing) {
        if endpoint.is_none() {
            inner.fail("endpoint_id", bad("missing", "say which endpoint never got them"));
        }
        if since.is_none() {
            inner.fail("since", bad("missing", "say from when on: what it missed may go back years"));
        }
        if !(http.is_empty() && errors.is_empty()) {
            inner.fail(
                "status",
                bad("contradiction", "what was never sent has no `http_status` and no `error`"),
            );
        }
    }
    if let Err(problem) = inner.finish() {
        fields.absorb(problem);
    }
    Some(BulkFilter { of: of?, endpoint, event_type: event_type.map(Into::into), since, until, http, errors })
}

fn time(value: &RawValue) -> Result<Timestamp, Bad> {
    let text: String = parse(value, "a text")?;
    let wrong = || bad("bad-time", "an RFC 3339 time with an offset is wanted, as 2026-11-30T09:14:02Z");
    edge(&text).ok_or_else(wrong)
}

/// One text, or a list of texts.
fn words<T>(value: &RawValue, read: impl Fn(&str) -> Result<T, Bad>) -> Result<Vec<T>, Bad> {
    let words: Vec<String> = match value.get().starts_with('[') {
        true => parse(value, "a list of texts")?,
        false => vec![parse(value, "a text")?],
    };
    if words.len() > 20 {
        return Err(bad("length", "at most 20 are taken"));
    }
    words.iter().map(|word| read(word)).collect()
}

/// The replay of an id, within the account that was named, if one was.
fn find(view: &View<'_>, id: &str, account: Option<AccountId>) -> Result<(AccountId, ReplayId), Problem> {
    let none = || Problem::new(Kind::NotFound, "there is no such replay");
    let id: ReplayId = id.parse().map_err(|_| none())?;
    let account = match account {
        Some(account) => view.replay(account, id)?.map(|_| account),
        None => view.find_replay(id)?.map(|(account, _)| account),
    };
    account.map(|account| (account, id)).ok_or_else(none)
}

fn out(view: &View<'_>, account: AccountId, id: ReplayId) -> Result<ReplayOut, Problem> {
    let row = view.replay(account, id)?;
    let row = row.ok_or_else(|| Problem::internal(&format!("{id} is missing")))?;
    Ok(replay_out(account, id, &row))
}

fn replay_out(account: AccountId, id: ReplayId, row: &Replay) -> ReplayOut {
    let (state, ended_at) = match row.state {
        Phase::Running => ("running", None),
        Phase::Cancelled { at } => ("cancelled", Some(at)),
        Phase::Ended { at } => ("ended", Some(at)),
    };
    ReplayOut {
        id,
        account_id: account,
        state,
        reason: row.reason.to_string(),
        by: actor(&row.by),
        created_at: moment_text(row.started_at),
        ended_at: ended_at.map(moment_text),
        filter: filter_out(&row.filter),
        routing: row.routing,
        rate_per_second: row.rate_per_second,
        planned: row.planned,
        replayed: row.replayed,
        delivered: row.delivered,
        dead: row.dead,
        cancelled: row.cancelled,
        open: row.open(),
        skipped: row.skipped,
        left: match row.state {
            Phase::Running => row.planned.saturating_sub(row.replayed),
            Phase::Cancelled { .. } | Phase::Ended { .. } => 0,
        },
    }
}

fn filter_out(filter: &BulkFilter) -> Value {
    let range = |range: &StatusRange| match range.to - range.from {
        0 => range.from.to_string(),
        _ => format!("{}xx", range.from / 100),
    };
    let mut out = object!({ "status": filter.of });
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            out[name] = value;
        }
    };
    put("endpoint_id", filter.endpoint.map(|endpoint| endpoint.to_string().into()));
    put("event_type", filter.event_type.as_deref().map(Into::into));
    put("since", filter.since.map(|at| moment_text(at).into()));
    put("until", filter.until.map(|at| moment_text(at).into()));
    let http: Vec<String> = filter.http.iter().map(range).collect();
    put("http_status", (!http.is_empty()).then(|| http.into()));
    let errors: &[ErrorClass] = &filter.errors;
    put("error", (!errors.is_empty()).then(|| object!(errors)));
    out
}

fn plan_out(filter: &BulkFilter, account: AccountId, rate: u32, plan: &Plan, now: Timestamp) -> PlanOut {
    let groups = plan.groups.iter().map(|((endpoint, event_type), group)| GroupOut {
        endpoint_id: *endpoint,
        event_type: event_type.to_string(),
        count: group.count,
        skipped: group.barred,
        endpoint_url: group.url.as_deref().map(str::to_owned),
        url_then: group.url_then.as_deref().map(str::to_owned),
    });
    PlanOut {
        dry_run: true,
        account_id: account,
        planned: plan.planned,
        skipped: plan.barred,
        bytes: plan.bytes,
        oldest: plan.oldest.map(moment_text),
        newest: plan.newest.map(moment_text),
        groups: groups.collect(),
        rate_per_second: rate,
        ends_at: moment_text(now + Millis(plan.planned * 1000 / u64::from(rate.max(1)))),
        searched_to: plan.searched_to.map(moment_text),
        warnings: warnings(filter, rate, plan),
    }
}

fn warnings(filter: &BulkFilter, rate: u32, plan: &Plan) -> Vec<String> {
    let mut warnings = Vec::new();
    if plan.planned == 0 {
        warnings.push("Nothing would be sent again.".to_owned());
    }
    if filter.of == BulkOf::Delivered && plan.planned > 0 {
        warnings.push("Receivers get these a second time, under the same ids.".to_owned());
    }
    if let Some(at) = plan.searched_to {
        warnings.push(format!(
            "The search was cut short at {}: there may be more, which would be sent too.",
            moment_text(at)
        ));
    }
    if plan.more_groups {
        warnings.push("There are more groups than are listed.".to_owned());
    }
    let mut by_endpoint: std::collections::BTreeMap<EndpointId, (&Group, u64)> = Default::default();
    for ((endpoint, _), group) in &plan.groups {
        by_endpoint.entry(*endpoint).or_insert((group, 0)).1 += group.count + group.barred;
    }
    for (endpoint, (group, count)) in by_endpoint {
        match &group.hold {
            Some(Hold::Paused { .. }) => {
                warnings.push(format!(
                    "{endpoint} is paused: what is of it ({count}) waits until it is resumed."
                ));
            }
            Some(Hold::Disabled { .. }) => {
                warnings.push(format!(
                    "{endpoint} is disabled: what is of it ({count}) is skipped. Resume it first."
                ));
            }
            Some(Hold::Removed { .. }) => {
                warnings.push(format!("{endpoint} was removed: what is of it ({count}) is skipped."));
            }
            None => {}
        }
        if group.url_then.is_some() && group.url_then != group.url {
            warnings.push(format!("{endpoint} has another URL than then: they go to the current one."));
        }
        if let Some(own) = group.rate_per_second.filter(|own| *own < rate) {
            warnings.push(format!("{endpoint} takes {own} a second at most: it takes longer than that."));
        }
    }
    warnings
}
