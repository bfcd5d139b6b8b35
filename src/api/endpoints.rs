//! `/v1/endpoints`: made, listed, shown, changed, held and let go. Never knows what was sent to one.

use axum::extract::{Path, Request};
use axum::http::header::{ETAG, IF_MATCH};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use hooklog_projections::account::{Endpoint, Hold};
use hooklog_projections::fact::{BodyForm, EndpointSettings, Schemes};
use hooklog_projections::ids::{AccountId, EndpointId, EndpointKey};
use hooklog_projections::policy::{ResponsePolicy, Schedule, Text};
use hooklog_projections::time::Millis;
use serde_json::value::RawValue;
use url::Url;
use zeroize::Zeroizing;

use super::accounts::known;
use super::envelope::{self, event_type};
use super::events::{AcceptedOut, accept, account_of, reason, respond};
use super::fields::{Bad, Fields, bad, number, parse, text, word};
use super::paging::{Asked, reply};
use super::policies::{moment_text, response_policy, schedule};
use super::problem::{Kind, Problem};
use super::query::Params;
use super::queues::fits_a_queue;
use super::rim::{json, small_body, small_body_or_none};
use super::wire::{self, REDACTED};
use super::{ApiState, secrets, unexpected};
use crate::clock::SystemChance;
use crate::delivery::guard;
use crate::delivery::request::{self, SignatureHeader};
use crate::engine::command::TEST_TYPE;
use crate::engine::{Answer, Command};
use crate::ids::drawn;
use crate::views::View;

/// Event types that an endpoint names.
const EVENT_TYPES_MAX: usize = 100;
/// Characters of a description.
const DESCRIPTION_CHARS_MAX: usize = 1_000;
/// Characters of a reason for anything.
pub(crate) const REASON_CHARS_MAX: usize = 500;
pub(super) const IN_FLIGHT_MAX: u64 = 1_000;
const NEITHER: Schemes = Schemes { standard: false, ledger: false };
/// What only a request has.
const REQUEST_MEMBERS: [&str; 7] = [
    "url",
    "timeout_ms",
    "signature_schemes",
    "headers",
    "signing_secret",
    "ledger_secret",
    "response_policy",
];

type Headers = Vec<(Text, Text)>;

/// The members of an endpoint, each absent, cleared or set.
struct Form {
    url: Option<Option<Url>>,
    event_types: Option<Option<Vec<Text>>>,
    description: Option<Option<String>>,
    schedule: Option<Option<Schedule>>,
    response_policy: Option<Option<ResponsePolicy>>,
    timeout_ms: Option<Option<u64>>,
    in_flight_max: Option<Option<u64>>,
    signature_schemes: Option<Option<Schemes>>,
    rate_per_second: Option<Option<u64>>,
    disable_after_secs: Option<Option<u64>>,
    body_form: Option<Option<BodyForm>>,
    headers: Option<Headers>,
    ledger_secret: Option<Option<Zeroizing<String>>>,
}

impl Form {
    fn of(fields: &mut Fields<'_>, api: &ApiState) -> Form {
        let guard = &api.shared.guard;
        Form {
            url: fields.patch("url", |value| url(value, guard)),
            event_types: fields.patch("event_types", event_types),
            description: fields.patch("description", description),
            schedule: fields.patch("schedule", schedule),
            response_policy: fields.patch("response_policy", response_policy),
            timeout_ms: fields.patch("timeout_ms", number(1_000, 30_000)),
            in_flight_max: fields.patch("in_flight_max", number(1, IN_FLIGHT_MAX)),
            signature_schemes: fields.patch("signature_schemes", schemes),
            rate_per_second: fields.patch("rate_per_second", number(1, 10_000)),
            disable_after_secs: fields.patch("disable_after_secs", number(60, 365 * 24 * 3600)),
            body_form: fields.patch("body_form", word("`envelope`, `data`")),
            headers: headers(fields, &api.shared.options.policy.signature_header),
            ledger_secret: fields.patch("ledger_secret", secrets::account_secret),
        }
    }

    /// The settings after this change. A redacted header keeps the value that stands in `kept`.
    fn apply(self, settings: &mut EndpointSettings, kept: &Headers) -> Result<(), Problem> {
        let usual = EndpointSettings::default();
        if let Some(Some(url)) = self.url {
            settings.url = url.as_str().into();
        }
        if let Some(types) = self.event_types {
            settings.event_types = types.unwrap_or(usual.event_types);
        }
        if let Some(description) = self.description {
            settings.description = description.unwrap_or_default().into();
        }
        if let Some(schedule) = self.schedule {
            settings.schedule = schedule;
        }
        if let Some(policy) = self.response_policy {
            settings.response_policy = policy;
        }
        if let Some(timeout) = self.timeout_ms {
            settings.timeout = timeout.map_or(usual.timeout, Millis);
        }
        if let Some(max) = self.in_flight_max {
            settings.in_flight_max = max.map_or(usual.in_flight_max, |max| max as u32);
        }
        if let Some(rate) = self.rate_per_second {
            settings.rate_per_second = rate.map(|rate| rate as u32);
        }
        if let Some(after) = self.disable_after_secs {
            settings.disable_after = after.map(Millis::from_secs);
        }
        if let Some(form) = self.body_form {
            settings.body_form = form.unwrap_or_default();
        }
        if let Some(schemes) = self.signature_schemes {
            settings.schemes = schemes.unwrap_or(usual.schemes);
        }
        if let Some(mut headers) = self.headers {
            for (name, value) in headers.iter_mut().filter(|(_, value)| &**value == REDACTED) {
                let before = kept.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
                let Some((_, before)) = before else {
                    let detail =
                        format!("`{REDACTED}` stands for a value that is not known here; send the value");
                    let pointer = format!("/headers/{}", name.replace('~', "~0").replace('/', "~1"));
                    let error = super::problem::FieldError { pointer, code: "redacted".into(), detail };
                    return Err(Problem::invalid(vec![error]));
                };
                *value = before.clone();
            }
            settings.headers = headers;
        }
        Ok(())
    }
}

pub(super) async fn create(api: ApiState, request: Request) -> Result<Response, Problem> {
    let body = small_body(request).await?;
    let mut fields = Fields::read(&body)?;
    let account = api.account_member(&mut fields)?;
    let mut form = Form::of(&mut fields, &api);
    let brought = fields.optional("signing_secret", secrets::signing_secret);
    let is_queue = fields.raw("queue").is_some_and(|queue| queue.get() != "null");
    let queue = fields.optional("queue", queue_name);
    if is_queue {
        no_queue_has(&mut fields, &REQUEST_MEMBERS);
    } else if fields.raw("url").is_none_or(|url| url.get() == "null") {
        fields.fail("url", bad("missing", "the member is missing; a worker queue has `queue` instead"));
    }
    fields.finish()?;
    let Some(account) = account else { return Err(Problem::invalid(Vec::new())) };

    let key = EndpointKey { account, endpoint: EndpointId(drawn(api.now(), &mut SystemChance)) };
    let mut settings = EndpointSettings::default();
    if let Some(queue) = queue {
        // Nothing is signed, and how many work at a time is for the workers to say.
        settings.queue = Some(queue.into());
        settings.schemes = NEITHER;
        settings.in_flight_max = IN_FLIGHT_MAX as u32;
    }
    let own = form.ledger_secret.take().flatten().map(|secret| secrets::seal_own(&api, key, &secret));
    form.apply(&mut settings, &Vec::new())?;
    let (signing, secret) = match settings.queue {
        Some(_) => (Vec::new(), None),
        None => {
            let key_bytes = brought.map_or_else(secrets::drawn_key, Ok)?;
            let (signing, secret) = secrets::seal(&api, key, &key_bytes);
            (vec![signing], Some(secret))
        }
    };
    match api.ask(Command::CreateEndpoint { key, settings, signing, secret: own }).await? {
        Answer::Endpoint { .. } => {}
        other => return Err(unexpected(other)),
    }
    let location = [("location", format!("/v1/endpoints/{}", key.endpoint))];
    Ok((location, answer(&api, key, StatusCode::CREATED, secret).await?).into_response())
}

pub(super) async fn list(api: ApiState, request: Request) -> Result<Response, Problem> {
    let mut params = Params::of(request.uri());
    let account = api.account_param(&mut params)?;
    let asked = Asked::read(&mut params);
    let account = params.finish_with(account)?;
    let paging = asked.of(&api, format!("endpoints {account}"))?;
    let mut rows = api
        .read(move |_, view| {
            known(view, account)?;
            Ok(view.endpoints(account)?)
        })
        .await?;
    let (place, limit) = (paging.place, paging.limit);
    rows.retain(|(key, row)| !row.removed() && place.holds(|at| key.endpoint.0.cmp(at)));
    if place.leads_back() {
        rows.reverse();
    }
    let page = place.page(rows, limit, |(key, _)| key.endpoint.0, None);
    let page = page.map(|(key, row)| wire::endpoint(key, &row), |at| at);
    reply(request.uri(), paging.out(&api, page))
}

pub(super) async fn show(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let key = find(&api, &id, request.uri()).await?;
    answer(&api, key, StatusCode::OK, None).await
}

pub(super) async fn change(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let key = find(&api, &id, request.uri()).await?;
    let wanted = wanted_version(request.headers())?;
    let body = small_body(request).await?;
    let mut fields = Fields::read(&body)?;
    let mut form = Form::of(&mut fields, &api);
    if form.url == Some(None) {
        fields.fail("url", bad("missing", "a URL cannot be cleared"));
    }
    fields.finish()?;

    let _alone = api.shared.changing.lock().await;
    let before = api.read(move |_, view| here(view, key)).await?;
    if before.settings.queue.is_some() {
        let mut fields = Fields::read(&body)?;
        no_queue_has(&mut fields, &REQUEST_MEMBERS);
        drop(fields.rest());
        fields.finish()?;
    }
    if wanted.is_some_and(|wanted| wanted != before.version) {
        let detail =
            format!("the endpoint is of version {}; read it again and repeat the change", before.version);
        return Err(Problem::new(Kind::Changed, detail));
    }
    let mut settings = before.settings.clone();
    // What was meant for one receiver is not shown to another (rule W12).
    let moved = matches!(&form.url, Some(Some(url)) if moved(&before.settings.url, url));
    let kept = if moved { Vec::new() } else { settings.headers.clone() };
    settings.headers = kept.clone();
    let own = form.ledger_secret.take();
    let own = own.map(|own| own.map(|secret| secrets::seal_own(&api, key, &secret)));
    let own = own.or((moved && before.secret.is_some()).then_some(None));
    form.apply(&mut settings, &kept)?;
    if settings == before.settings {
        if let Some(secret) = own {
            api.ask(Command::ChangeEndpointSecret { key, secret }).await?;
        }
        return answer(&api, key, StatusCode::OK, None).await;
    }
    let (new_key, secret) = if moved {
        let (new_key, secret) = secrets::seal(&api, key, &secrets::drawn_key()?);
        (Some(new_key), Some(secret))
    } else {
        (None, None)
    };
    let change = Command::ChangeEndpoint { key, version: before.version, settings, new_key, secret: own };
    api.ask(change).await?;
    answer(&api, key, StatusCode::OK, secret).await
}

/// For good. Its history stays; what waits for it is cancelled.
pub(super) async fn remove(api: ApiState, id: Path<String>, request: Request) -> Result<Response, Problem> {
    done(api, id, request, |key, reason| Command::RemoveEndpoint { key, reason }).await
}

pub(super) async fn pause(api: ApiState, id: Path<String>, request: Request) -> Result<Response, Problem> {
    done(api, id, request, |key, reason| Command::PauseEndpoint { key, reason }).await
}

/// Does what is asked of an endpoint with a reason, or without one.
async fn done(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
    command: impl FnOnce(EndpointKey, Text) -> Command,
) -> Result<Response, Problem> {
    let key = find(&api, &id, request.uri()).await?;
    let body = small_body_or_none(request).await?;
    let mut fields = Fields::read_or_empty(&body)?;
    let reason = reason(&mut fields).into();
    fields.finish()?;
    api.ask(command(key, reason)).await?;
    answer(&api, key, StatusCode::OK, None).await
}

/// Pauses an endpoint.
pub(crate) async fn hold(api: &ApiState, key: EndpointKey, reason: String) -> Result<(), Problem> {
    api.ask(Command::PauseEndpoint { key, reason: reason.into() }).await.map(drop)
}

pub(super) async fn resume(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let key = find(&api, &id, request.uri()).await?;
    let body = small_body_or_none(request).await?;
    Fields::read_or_empty(&body)?.finish()?;
    let_go(&api, key).await?;
    answer(&api, key, StatusCode::OK, None).await
}

/// Has a paused or disabled endpoint run again.
pub(crate) async fn let_go(api: &ApiState, key: EndpointKey) -> Result<(), Problem> {
    api.ask(Command::ResumeEndpoint { key }).await.map(drop)
}

/// Sends a test event to this endpoint alone: an ordinary delivery, of one try.
pub(super) async fn test(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let key = find(&api, &id, request.uri()).await?;
    let body = small_body_or_none(request).await?;
    Fields::read_or_empty(&body)?.finish()?;
    let (status, out) = try_out(&api, key).await?;
    respond(&api, status, &out)
}

/// Sends a test event to an endpoint.
///
/// # Errors
/// 409 where it is held, 404 for a worker queue.
pub(crate) async fn try_out(api: &ApiState, key: EndpointKey) -> Result<(StatusCode, AcceptedOut), Problem> {
    let row = api.read(move |_, view| here(view, key)).await?;
    if row.settings.queue.is_some() {
        let detail = "workers claim from a queue: put a job in with POST /v1/queues/{name}/jobs";
        return Err(Problem::new(Kind::NotOfAQueue, detail));
    }
    let held = |kind, what: &str, at| {
        let detail = format!("it is {what} since {}: nothing was sent; resume it first", moment_text(at));
        Err(Problem::new(kind, detail))
    };
    match row.hold {
        Some(Hold::Paused { at, .. }) => return held(Kind::Paused, "paused", at),
        Some(Hold::Disabled { at, .. }) => return held(Kind::Disabled, "disabled", at),
        // A removed one is refused as any event to it is.
        Some(Hold::Removed { .. }) | None => {}
    }
    api.spend_replay()?;
    let (account, endpoint) = (key.account, key.endpoint);
    // The same each time, so that it is one event under one `Idempotency-Key`.
    let event = serde_json::json!({
        "account_id": account, "endpoint_id": endpoint, "type": TEST_TYPE, "max_tries": 1,
        "data": { "test": true, "endpoint_id": endpoint },
    });
    let command = envelope::read(api, Fields::read(event.to_string().as_bytes())?, 0)?;
    accept(api, command).await
}

/// The endpoint that a path names, within the account that the query names, if it does.
pub(super) async fn find(api: &ApiState, id: &str, uri: &Uri) -> Result<EndpointKey, Problem> {
    let account = account_of(api, uri)?;
    find_in(api, id, account).await
}

/// The endpoint that a path names, within an account, if one is named.
pub(crate) async fn find_in(
    api: &ApiState,
    id: &str,
    account: Option<AccountId>,
) -> Result<EndpointKey, Problem> {
    let id: EndpointId = id.parse().map_err(|_| no_endpoint())?;
    api.read(move |_, view| lookup(view, id, account).map(|(key, _)| key)).await
}

/// The endpoint of an id, within the account that is named, if one is.
pub(super) fn lookup(
    view: &View<'_>,
    id: EndpointId,
    account: Option<AccountId>,
) -> Result<(EndpointKey, Endpoint), Problem> {
    let found = match account {
        Some(account) => {
            let key = EndpointKey { account, endpoint: id };
            view.endpoint(key)?.map(|row| (key, row))
        }
        None => view.find_endpoint(id)?,
    };
    found.ok_or_else(no_endpoint)
}

async fn answer(
    api: &ApiState,
    key: EndpointKey,
    status: StatusCode,
    secret: Option<Zeroizing<String>>,
) -> Result<Response, Problem> {
    let row = api.read(move |_, view| here(view, key)).await?;
    let mut out = wire::endpoint(key, &row);
    out.signing_secret = secret.map(|secret| secret.to_string());
    Ok(([(ETAG, format!("\"{}\"", row.version))], json(status, &out)?).into_response())
}

pub(super) fn here(view: &View<'_>, key: EndpointKey) -> Result<Endpoint, Problem> {
    view.endpoint(key)?.ok_or_else(no_endpoint)
}

pub(super) fn no_endpoint() -> Problem {
    Problem::new(Kind::NotFound, "there is no such endpoint")
}

/// The version in `If-Match`; a weak one never fits (RFC 9110 §13.1.1).
fn wanted_version(headers: &HeaderMap) -> Result<Option<u32>, Problem> {
    let Some(value) = headers.get(IF_MATCH) else { return Ok(None) };
    let value = value.to_str().unwrap_or_default().trim();
    if value == "*" {
        return Ok(None);
    }
    let version = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match version.and_then(|version| version.parse().ok()) {
        Some(version) => Ok(Some(version)),
        None => Err(Problem::new(Kind::Changed, "`If-Match` is no version of this endpoint")),
    }
}

fn moved(before: &str, after: &Url) -> bool {
    Url::parse(before).map_or(true, |before| before.origin() != after.origin())
}

fn url(value: &RawValue, guard: &guard::Policy) -> Result<Url, Bad> {
    let text: String = parse(value, "a text")?;
    guard.check_url(&text).map_err(|refusal| bad("url-not-allowed", refusal.to_string()))
}

fn queue_name(value: &RawValue) -> Result<String, Bad> {
    let name: String = parse(value, "a text")?;
    let wrong = || bad("bad-name", "1 to 64 characters of A-Z, a-z, 0-9, `_` and `-` are wanted");
    if fits_a_queue(&name) { Ok(name) } else { Err(wrong()) }
}

fn no_queue_has(fields: &mut Fields<'_>, members: &[&str]) {
    for member in members {
        fields.refuse(member, bad("not-of-a-queue", "workers claim from a queue: no request is made"));
    }
}

fn description(value: &RawValue) -> Result<String, Bad> {
    if value.get() == "\"\"" { Ok(String::new()) } else { text(DESCRIPTION_CHARS_MAX)(value) }
}

fn event_types(value: &RawValue) -> Result<Vec<Text>, Bad> {
    let patterns: Vec<String> = parse(value, "a list of texts")?;
    if patterns.is_empty() || patterns.len() > EVENT_TYPES_MAX {
        return Err(bad("length", format!("1 to {EVENT_TYPES_MAX} event types are wanted; `*` is all")));
    }
    let fits =
        |pattern: &str| pattern == "*" || event_type(pattern.strip_suffix(".*").unwrap_or(pattern)).is_ok();
    match patterns.iter().find(|pattern| !fits(pattern)) {
        Some(pattern) => {
            let shown: String = pattern.chars().take(64).collect::<String>().escape_default().collect();
            Err(bad("bad-type", format!("`{shown}` is none of `payment.settled`, `payment.*`, `*`")))
        }
        None => Ok(patterns.into_iter().map(Into::into).collect()),
    }
}

fn schemes(value: &RawValue) -> Result<Schemes, Bad> {
    let names: Vec<String> = parse(value, "a list of texts")?;
    let mut schemes = Schemes { standard: false, ledger: false };
    for name in &names {
        match name.as_str() {
            "standard" => schemes.standard = true,
            "ledger" => schemes.ledger = true,
            _ => return Err(bad("unknown-word", "one or both of `standard`, `ledger` are wanted")),
        }
    }
    Ok(schemes)
}

/// `{}` and `null` are no headers; an absent member keeps them.
fn headers(fields: &mut Fields<'_>, signature: &SignatureHeader) -> Option<Headers> {
    let value = fields.raw("headers")?;
    if value.get() == "null" {
        return Some(Vec::new());
    }
    let mut inner = match Fields::of(value, fields.pointer("headers")) {
        Ok(inner) => inner,
        Err(problem) => {
            fields.absorb(problem);
            return None;
        }
    };
    let mut headers: Headers = Vec::new();
    for (name, value) in inner.rest() {
        match parse::<String>(value, "a text") {
            Ok(_) if name.eq_ignore_ascii_case(signature.as_str()) => {
                let refusal = request::HeaderRefusal::Reserved(name.clone());
                inner.fail(&name, bad("header-not-allowed", refusal.to_string()));
            }
            Ok(value) => match request::check_header(&name, &value) {
                Ok(()) => headers.push((name.into(), value.into())),
                Err(refusal) => inner.fail(&name, bad("header-not-allowed", refusal.to_string())),
            },
            Err(wrong) => inner.fail(&name, wrong),
        }
    }
    let all = headers.iter().map(|(name, value)| (&**name, &**value));
    if let Err(refusal) = request::check_headers(all) {
        fields.fail("headers", bad("header-not-allowed", refusal.to_string()));
    }
    if let Err(problem) = inner.finish() {
        fields.absorb(problem);
    }
    Some(headers)
}
