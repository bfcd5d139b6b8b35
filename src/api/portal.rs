//! The portal's doors: `/v1/portal-sessions` makes a one-time link to an account's pages, `/portal/session`
//! exchanges it for a session, tells of it, and ends it (rules A13–A16).
//!
//! A link's secret travels in the fragment of an address, which no server sees, and comes back in a POST: so
//! whatever only opens links does not use them up. Never knows the pages.

use axum::extract::Request;
use axum::http::header::{COOKIE, HOST, ORIGIN, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use hooklog_projections::access::{Role, SecretHash};
use hooklog_projections::fact::Actor;
use hooklog_projections::ids::{AccountId, PortalLinkId};
use hooklog_projections::policy::Text;
use hooklog_projections::time::Millis;
use serde::Serialize;
use serde_json::json as object;
use serde_json::value::RawValue;
use url::Url;
use zeroize::Zeroizing;

use super::access::{Caller, Peer, cross_origin, same_origin};
use super::accounts::known;
use super::failures::Source;
use super::fields::{Bad, Fields, bad, id, number, parse, text};
use super::form::Form;
use super::keys::role;
use super::openapi::words;
use super::policies::moment_text;
use super::problem::{Kind, Problem};
use super::query::Params;
use super::rim::{is_json, json, small_body};
use super::sessions::Session;
use super::{ApiState, token};
use crate::clock::SystemChance;
use crate::engine::{AccessCommand, Command};
use crate::ids::drawn;

/// Who came by a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Guest {
    pub account: AccountId,
    pub role: Role,
    /// What the session was exchanged for; names it in facts.
    pub link: PortalLinkId,
    /// Where the pages lead back to.
    pub return_url: Option<Text>,
}

/// The cookie of a session. The prefix makes browsers take it from this host over TLS (or on loopback) only.
const COOKIE_NAME: &str = "__Host-hooklog";
const COOKIE_RULES: &str = "Path=/; Secure; HttpOnly; SameSite=Strict";
/// Minutes that a link may be used, unless it is said otherwise, and at most.
const LIFETIME_MINUTES: u64 = 15;
const LIFETIME_MINUTES_MAX: u64 = 24 * 60;
/// Characters of the address that the pages lead back to.
const RETURN_URL_CHARS_MAX: usize = 2_000;

#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = PortalLink)]
pub(super) struct LinkOut {
    #[schema(value_type = String)]
    id: PortalLinkId,
    #[schema(value_type = String)]
    account_id: AccountId,
    #[schema(value_type = words::Role)]
    role: Role,
    #[schema(format = DateTime)]
    expires_at: String,
    /// In this answer only.
    url: String,
}

#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = PortalSession)]
pub(super) struct SessionOut {
    #[schema(value_type = String)]
    account_id: AccountId,
    #[schema(value_type = words::Role)]
    role: Role,
    /// To be sent as `X-CSRF-Token` with every change.
    csrf_token: String,
    /// At the latest.
    #[schema(format = DateTime)]
    expires_at: String,
    /// Where the pages lead back to, if the link said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    return_url: Option<Text>,
}

pub(super) async fn create(api: ApiState, request: Request) -> Result<Response, Problem> {
    let body = small_body(request).await?;
    let mut fields = Fields::read(&body)?;
    let account = fields.required("account_id", id::<AccountId>);
    // Support sees no secrets, so it makes no link that does.
    let supports = api.caller.role != Some(Role::Operator);
    let default = if supports { Role::AccountRead } else { Role::Account };
    let role = fields.optional("role", role).unwrap_or(default);
    let minutes = number(1, LIFETIME_MINUTES_MAX);
    let minutes = fields.optional("lifetime_minutes", minutes).unwrap_or(LIFETIME_MINUTES);
    let return_url = fields.optional("return_url", |value| return_url(&api, value));
    if !matches!(role, Role::Account | Role::AccountRead) {
        fields.fail("role", bad("unknown-word", "one of `account`, `account_read` is wanted"));
    }
    fields.finish()?;
    let Some(account) = account else { return Err(Problem::invalid(Vec::new())) };
    if supports && role != Role::AccountRead {
        let detail = "support makes links that look only; ask for the role `account_read`";
        return Err(Problem::new(Kind::Forbidden, detail));
    }
    let link = PortalLinkId(drawn(api.now(), &mut SystemChance));
    let (secret, hash) = token::mint(token::Kind::Link, link.0);
    let expires_at = api.now() + Millis::from_secs(minutes * 60);
    api.administer(AccessCommand::CreateLink { link, account, role, hash, expires_at, return_url }).await?;
    let expires_at = moment_text(expires_at);
    let url = format!("{}/portal#{}", api.base_url(), *secret);
    json(StatusCode::CREATED, &LinkOut { id: link, account_id: account, role, expires_at, url })
}

/// Where the pages lead back to: another site over TLS, or a page of this one. It ends up in a page's address, so
/// nothing that runs or logs in.
fn return_url(api: &ApiState, value: &RawValue) -> Result<Text, Bad> {
    let text = text(RETURN_URL_CHARS_MAX)(value)?;
    let wrong = || {
        let detail = "an https URL without a user is wanted, or one of this server's own, as \
                      https://app.customer.example/webhooks";
        bad("bad-url", detail)
    };
    let url = Url::parse(&text).map_err(|_| wrong())?;
    let own = Url::parse(&api.base_url()).is_ok_and(|own| own.origin() == url.origin());
    let named = url.username().is_empty() && url.password().is_none();
    if named && (url.scheme() == "https" || own && url.scheme() == "http") {
        Ok(url.as_str().into())
    } else {
        Err(wrong())
    }
}

/// Ends all sessions of an account.
pub(super) async fn end_all(api: ApiState, request: Request) -> Result<Response, Problem> {
    let mut params = Params::of(request.uri());
    let account = api.account_param(&mut params)?;
    let account = params.finish_with(account)?;
    api.read(move |_, view| known(view, account)).await?;
    let ended = api.shared.sessions.end_all(|guest| guest.account == account, api.monotonic());
    json(StatusCode::OK, &object!({ "ended": ended }))
}

pub(super) async fn exchange(api: ApiState, request: Request) -> Result<Response, Problem> {
    let headers = request.headers().clone();
    from_our_pages(&api, &headers, false)?;
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
    let source = Source::of(peer, &headers, api.shared.options.trusted_hops);
    let body = small_body(request).await?;
    let mut fields = Fields::read(&body)?;
    let link = fields.required("link", |value| parse::<String>(value, "a text").map(Zeroizing::new));
    fields.finish()?;
    let link = link.unwrap_or_default();
    let Opened { secret, session, cookie } = open(&api, &headers, source, &link).await?;
    let mut response = told(&api, StatusCode::CREATED, &secret, session)?;
    response.headers_mut().insert(SET_COOKIE, cookie);
    Ok(response)
}

/// A session that was begun, and the cookie that it travels in.
struct Opened {
    secret: Zeroizing<String>,
    session: Session<Guest>,
    cookie: HeaderValue,
}

/// Uses a link up and begins its session.
async fn open(
    api: &ApiState,
    headers: &HeaderMap,
    source: Option<Source>,
    link: &str,
) -> Result<Opened, Problem> {
    let (id, hash) = match token::read(link) {
        Some(token::Token { kind: token::Kind::Link, id, hash }) => (PortalLinkId(id), hash),
        _ => (PortalLinkId(0), SecretHash([0; 32])),
    };
    let row = api.read(move |_, view| Ok(view.portal_link(id)?)).await?;
    let kept = row.as_ref().map_or(SecretHash([0xff; 32]), |row| row.hash);
    let row = row.filter(|row| token::same(&kept, &hash) && api.now() < row.expires_at);
    let Some(row) = row else { return Err(spent(api, source)) };
    // The writer lets one of two have it.
    let caller = Caller {
        role: Some(row.role),
        account: Some(row.account),
        actor: Actor::Portal { account: row.account, link: id },
        key: None,
        portal: None,
        console: None,
    };
    let using = ApiState { caller, ..api.clone() };
    match using.ask(Command::Access(AccessCommand::UseLink { link: id })).await {
        Ok(_) => {}
        Err(problem) if problem.kind == Kind::Unauthorized => return Err(spent(api, source)),
        Err(problem) => return Err(problem),
    }
    if let Some(before) = secret(headers) {
        api.shared.sessions.end(before);
    }
    let guest = Guest { account: row.account, role: row.role, link: id, return_url: row.return_url };
    let (secret, session) = api.shared.sessions.begin(guest, api.monotonic());
    let text = Zeroizing::new(format!("{COOKIE_NAME}={}; {COOKIE_RULES}", *secret));
    let mut cookie = HeaderValue::try_from(text.as_str()).map_err(|error| Problem::internal(&error))?;
    cookie.set_sensitive(true);
    Ok(Opened { secret, session, cookie })
}

/// Exchanges a link, or the address that it stands in, for a session: the cookie that it travels in. `None` if the
/// browser has the session of this very link already: its form came twice.
///
/// # Errors
/// 401 for a link that was used, is too old or never was; 429 after too many.
pub(crate) async fn enter(api: &ApiState, form: &Form, link: &str) -> Result<Option<HeaderValue>, Problem> {
    let link = link.trim();
    let link = link.rsplit_once('#').map_or(link, |(_, secret)| secret);
    let of = token::read(link).filter(|read| matches!(read.kind, token::Kind::Link)).map(|read| read.id);
    let has = secret(&form.headers).and_then(|secret| api.shared.sessions.look(secret, api.monotonic()));
    if has.is_some_and(|session| Some(session.who.link.0) == of) {
        return Ok(None);
    }
    open(api, &form.headers, form.source, link).await.map(|opened| Some(opened.cookie))
}

/// Ends the session, if there is one: the cookie that takes its place, and where its pages led back to.
pub(crate) fn leave(api: &ApiState, headers: &HeaderMap) -> Result<(HeaderValue, Option<Text>), Problem> {
    let sessions = &api.shared.sessions;
    let ended = secret(headers).and_then(|secret| {
        let session = sessions.look(secret, api.monotonic());
        sessions.end(secret);
        session
    });
    Ok((no_cookie()?, ended.and_then(|session| session.who.return_url)))
}

fn no_cookie() -> Result<HeaderValue, Problem> {
    let clear = format!("{COOKIE_NAME}=; Max-Age=0; {COOKIE_RULES}");
    HeaderValue::try_from(clear).map_err(|error| Problem::internal(&error))
}

/// Whether a path is one of the portal's pages.
pub(crate) fn is_within(path: &str) -> bool {
    path.strip_prefix("/portal").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The same answer for a link that was used, is over, or never was.
fn spent(api: &ApiState, source: Option<Source>) -> Problem {
    let problem = api.failures().refuse(source, None, api.monotonic());
    match problem.kind {
        Kind::Unauthorized => {
            Problem::new(Kind::Unauthorized, "the link was used or is too old; ask for another")
        }
        _ => problem,
    }
}

pub(super) async fn show(api: ApiState) -> Result<Response, Problem> {
    let (secret, session) = api.session()?;
    told(&api, StatusCode::OK, &secret, session)
}

pub(super) async fn end(api: ApiState) -> Result<Response, Problem> {
    let (secret, _) = api.session()?;
    api.shared.sessions.end(&secret);
    Ok(([(SET_COOKIE, no_cookie()?)], json(StatusCode::OK, &object!({ "ended": 1 }))?).into_response())
}

fn told(
    api: &ApiState,
    status: StatusCode,
    secret: &str,
    session: Session<Guest>,
) -> Result<Response, Problem> {
    let expires_at = moment_text(api.now() + session.left(api.monotonic()));
    let csrf_token = api.shared.sessions.csrf_token(secret);
    let Guest { account, role, return_url, .. } = session.who;
    json(status, &SessionOut { account_id: account, role, csrf_token, expires_at, return_url })
}

/// The secret in the cookie of a session of the portal.
pub(super) fn secret(headers: &HeaderMap) -> Option<&str> {
    cookie(headers, COOKIE_NAME)
}

/// The value of a cookie.
pub(crate) fn cookie<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    let fields = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut cookies =
        fields.flat_map(|field| field.split(';')).filter_map(|pair| pair.trim().split_once('='));
    cookies.find(|(name, _)| *name == wanted).map(|(_, value)| value)
}

/// Who a session is; whatever `changes` something must come from the portal's own pages, and say so in a header.
pub(super) fn caller(
    api: &ApiState,
    headers: &HeaderMap,
    secret: &str,
    changes: bool,
) -> Result<Caller, Problem> {
    let Some(session) = api.shared.sessions.look(secret, api.monotonic()) else {
        return Err(Problem::new(Kind::Unauthorized, "the session is over; open a new link"));
    };
    if changes {
        from_our_pages(api, headers, true)?;
        let token = headers.get("x-csrf-token").and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !api.shared.sessions.knows_csrf(secret, token) {
            let detail = "`X-CSRF-Token` is missing, or not this session's; GET /portal/session has one";
            return Err(Problem::new(Kind::CrossOrigin, detail));
        }
        if !is_json(headers) {
            return Err(Problem::new(Kind::NotJsonType, "send `Content-Type: application/json`"));
        }
    }
    let Guest { account, role, link, .. } = session.who;
    Ok(Caller {
        role: Some(role),
        account: Some(account),
        actor: Actor::Portal { account, link },
        key: None,
        portal: Some((Zeroizing::new(secret.to_owned()), session)),
        console: None,
    })
}

/// Refuses what another site makes a browser send. `strict`: a browser says where it comes from, so one that
/// does not is refused.
pub(super) fn from_our_pages(api: &ApiState, headers: &HeaderMap, strict: bool) -> Result<(), Problem> {
    let says = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    if says("sec-fetch-site").is_some_and(|site| site != "same-origin") {
        return Err(cross_origin());
    }
    let Some(origin) = says(ORIGIN.as_str()) else {
        return if strict { Err(cross_origin()) } else { Ok(()) };
    };
    match &api.shared.options.public_url {
        Some(url) if url.origin().ascii_serialization() == origin => Ok(()),
        // Through a tunnel, say. A name that was made to lead here is another host's all the same.
        Some(_) if is_loopback(origin) => same_origin(headers),
        Some(_) => Err(cross_origin()),
        None if headers.contains_key(HOST) => same_origin(headers),
        None => Err(cross_origin()),
    }
}

fn is_loopback(origin: &str) -> bool {
    let url = url::Url::parse(origin).ok();
    url.and_then(|url| url.host().map(|host| host.to_owned())).is_some_and(|host| match host {
        url::Host::Domain(name) => name == "localhost",
        url::Host::Ipv4(address) => address.is_loopback(),
        url::Host::Ipv6(address) => address.is_loopback(),
    })
}

impl ApiState {
    fn session(&self) -> Result<(Zeroizing<String>, Session<Guest>), Problem> {
        let portal = self.caller.portal.clone();
        portal.ok_or_else(|| Problem::internal(&"a route of sessions was asked by something else"))
    }

    /// Where the portal's pages lead back to, if the link said so.
    pub(crate) fn return_url(&self) -> Option<&str> {
        self.caller.portal.as_ref().and_then(|(_, session)| session.who.return_url.as_deref())
    }

    /// Where people reach this server.
    pub(crate) fn base_url(&self) -> String {
        let options = &self.shared.options;
        match (&options.public_url, options.listens_on) {
            (Some(url), _) => url.as_str().trim_end_matches('/').to_owned(),
            (None, Some(address)) => format!("http://{address}"),
            (None, None) => String::new(),
        }
    }
}
