//! Who asks, and what the answer may touch: a credential is looked up, its role is held against the route's
//! right, and whoever is bound to an account finds no other.
//!
//! Over the socket's file nothing is asked: whoever may open it is the host's own operator. Never knows what a
//! route does.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::{FromRequestParts, MatchedPath, Request};
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN, USER_AGENT};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, Uri};
use hooklog_projections::access::{ApiKey, Role, SecretHash};
use hooklog_projections::fact::Actor;
use hooklog_projections::ids::{AccountId, ApiKeyId};
use hooklog_projections::time::Timestamp;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use url::form_urlencoded;
use zeroize::Zeroizing;

use super::accounts::{account_id, no_account};
use super::failures::Source;
use super::fields::{Fields, id};
use super::portal::Guest;
use super::problem::{Kind, Problem};
use super::query::Params;
use super::quotas::Told;
use super::routes::{Door, Entrance};
use super::sessions::Session;
use super::{ApiState, console, idempotency, portal, rim, token};
use crate::views::View;

/// Characters of a token: fewer can be guessed.
pub const TOKEN_CHARS_MIN: usize = 16;

/// The operator's token; kept as its hash only.
#[derive(Clone)]
pub struct OperatorToken(Arc<[u8; 32]>);

/// A token that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an operator token is at least {TOKEN_CHARS_MIN} visible ASCII characters (`openssl rand -hex 32`)")]
pub struct WeakToken;

/// An address that would be open to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0} is not loopback and no key would be wanted: anyone who reaches it could read and send everything; \
     want keys, or listen on 127.0.0.1"
)]
pub struct OpenToOthers(pub SocketAddr);

/// What a route wants of whoever asks. Each role has some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    /// Nothing: health, the description of the API, and the exchange of a link.
    Open,
    /// To be a session of the portal.
    Session,
    /// To look.
    Read,
    /// To send again, hurry, call off, hold and let go.
    Act,
    /// To make and change endpoints.
    Write,
    /// To see and replace secrets.
    Secrets,
    /// To hand events in.
    Ingest,
    /// To take jobs of a queue and say how they ended.
    Work,
    /// To look over all accounts, and to make links to one.
    Oversee,
    /// To make and change accounts and keys, to read the audit, to check the store.
    Manage,
}

impl Right {
    /// Whether a role has it.
    pub(crate) fn is_of(self, role: Role) -> bool {
        use Role::{Account, AccountRead, Ingest, Operator, Support};
        match self {
            Right::Open => true,
            Right::Session => false,
            Right::Read => matches!(role, Operator | Support | Account | AccountRead),
            Right::Act => matches!(role, Operator | Support | Account),
            Right::Write | Right::Secrets | Right::Work => matches!(role, Operator | Account),
            Right::Ingest => matches!(role, Operator | Ingest),
            Right::Oversee => matches!(role, Operator | Support),
            Right::Manage => matches!(role, Operator),
        }
    }
}

/// Who asks. Not to be printed: it may hold a session's secret.
#[derive(Clone)]
pub(crate) struct Caller {
    /// What it may do; nothing if absent.
    pub role: Option<Role>,
    /// The only account it reaches; all of them if absent.
    pub account: Option<AccountId>,
    /// As facts name it.
    pub actor: Actor,
    /// The key that it brought, if it was one of the store's.
    pub key: Option<ApiKeyId>,
    /// The session, with its secret, if it is one of the portal.
    pub(super) portal: Option<(Zeroizing<String>, Session<Guest>)>,
    /// The session's secret, if it is one of the console.
    pub(super) console: Option<Zeroizing<String>>,
}

impl Caller {
    /// Whoever asks an open route.
    pub(crate) fn nobody() -> Caller {
        let actor = Actor::Api("nobody".into());
        Caller { role: None, account: None, actor, key: None, portal: None, console: None }
    }

    pub(super) fn operator(actor: Actor) -> Caller {
        Caller { role: Some(Role::Operator), account: None, actor, key: None, portal: None, console: None }
    }

    /// Whether it has a right.
    pub(crate) fn may(&self, right: Right) -> bool {
        match right {
            Right::Session => self.portal.is_some(),
            _ => self.role.is_some_and(|role| right.is_of(role)),
        }
    }
}

impl OperatorToken {
    /// The token in a text.
    ///
    /// # Errors
    /// [`WeakToken`] if it is short, or holds other than visible ASCII.
    pub fn new(text: &str) -> Result<OperatorToken, WeakToken> {
        if text.len() < TOKEN_CHARS_MIN || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(WeakToken);
        }
        Ok(OperatorToken(Arc::new(Sha256::digest(text).into())))
    }

    /// Whether `text` is the token; takes as long for a near miss as for a far one.
    pub fn is(&self, text: &str) -> bool {
        let hash: [u8; 32] = Sha256::digest(text).into();
        hash.ct_eq(&*self.0).into()
    }
}

impl std::fmt::Debug for OperatorToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[redacted]")
    }
}

/// Whether a TCP address may be listened on, if it is `open` to whoever has no key.
///
/// # Errors
/// [`OpenToOthers`] for anything but loopback that is open.
pub fn may_listen(address: SocketAddr, open: bool) -> Result<(), OpenToOthers> {
    if !open || address.ip().to_canonical().is_loopback() { Ok(()) } else { Err(OpenToOthers(address)) }
}

/// Where a connection comes from; set by whoever serves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub IpAddr);

/// Lets a request in or refuses it: who asks, and whether the route is for it.
pub(super) fn admit(api: &ApiState, request: &Request) -> Result<Caller, Problem> {
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let row = path.and_then(|path| api.rights.wanted(path, request.method()));
    let (right, entrance) = row.unzip();
    if right == Some(Right::Open) {
        return Ok(Caller::nobody());
    }
    // Nothing is there: a browser hears so on a page.
    let lost = api.front.is_some() && rim::is_for_a_page(api, request);
    let entrance = entrance.unwrap_or_else(|| match lost {
        true if portal::is_within(request.uri().path()) => Entrance::Portal,
        true => Entrance::Console,
        false => Entrance::Api,
    });
    let caller = known(api, request, entrance)?;
    // There all is of one account, and whoever has none has the console.
    if entrance == Entrance::Portal && caller.account.is_none() {
        return Err(no_session());
    }
    match (path, right) {
        (_, Some(right)) if !caller.may(right) => Err(forbidden(&caller)),
        // Whatever is there but not in the table is for nobody; a method that is not there is told as such.
        _ => Ok(caller),
    }
}

fn forbidden(caller: &Caller) -> Problem {
    let role = caller.role.map_or("nobody", Role::as_str);
    Problem::new(Kind::Forbidden, format!("this is not for the role `{role}`; use another key"))
}

/// Who a request comes from, by its credential.
fn known(api: &ApiState, request: &Request, entrance: Entrance) -> Result<Caller, Problem> {
    if let Some(actor) = &api.local {
        return Ok(Caller::operator(actor.clone()));
    }
    no_token_in(request.uri())?;
    let headers = request.headers();
    let cookie = match entrance {
        Entrance::Api | Entrance::Portal => portal::secret(headers),
        Entrance::Console => console::secret(api, headers),
    };
    match (headers.get(AUTHORIZATION), cookie, entrance) {
        // A bearer never reads the cookie.
        (Some(value), ..) => {
            let text = match value.to_str().unwrap_or_default().split_once(' ') {
                Some((scheme, text)) if scheme.eq_ignore_ascii_case("bearer") => text.trim(),
                _ => "",
            };
            bearer(api, text, source_of(api, request)).map(|(caller, _)| caller)
        }
        (None, Some(secret), Entrance::Api) => {
            portal::caller(api, headers, secret, !is_read(request.method()))
        }
        // Of what a page changes, `form::Form` says whether it comes from there.
        (None, Some(secret), Entrance::Portal) => portal::caller(api, headers, secret, false),
        (None, Some(secret), Entrance::Console) => console::caller(api, secret),
        (None, None, Entrance::Api | Entrance::Console) if api.shared.options.open => {
            changes_from_here(request.method(), headers)?;
            Ok(Caller::operator(Actor::Api("operator".into())))
        }
        (None, None, Entrance::Api) => {
            Err(Problem::new(Kind::Unauthorized, "send `Authorization: Bearer` and a key"))
        }
        (None, None, Entrance::Portal) => Err(no_session()),
        (None, None, Entrance::Console) => Err(Problem::new(Kind::Unauthorized, "sign in with a key")),
    }
}

fn no_session() -> Problem {
    Problem::new(Kind::Unauthorized, "these pages are opened by a link from your provider")
}

/// Where a request comes from.
pub(super) fn source_of(api: &ApiState, request: &Request) -> Option<Source> {
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
    Source::of(peer, request.headers(), api.shared.options.trusted_hops)
}

/// Who the text of a credential is, and the hash of its secret.
pub(super) fn bearer(
    api: &ApiState,
    text: &str,
    source: Option<Source>,
) -> Result<(Caller, SecretHash), Problem> {
    if let Some(operator) = &api.shared.options.operator_token {
        // The one credential that a person chose, so the one that guessing might find.
        let may_guess = api.failures().may_guess(source, api.monotonic());
        if may_guess && operator.is(text) {
            return Ok((Caller::operator(Actor::Api("operator".into())), SecretHash([0; 32])));
        }
    }
    let read = token::read(text);
    let (id, hash) = match read {
        Some(token::Token { kind: token::Kind::Key(_), id, hash }) => (ApiKeyId(id), hash),
        // As long a way as for a key that is there.
        _ => (ApiKeyId(0), SecretHash([0; 32])),
    };
    let now = api.now();
    let row = api.shared.handle.view().api_key(id)?;
    match row.as_ref().filter(|row| fits(Some(row), &hash, now)) {
        Some(row) => Ok((by_key(api, id, row), hash)),
        None => {
            let account = row.as_ref().and_then(|row| row.account);
            let _as_long = row.is_some() || fits(None, &hash, now);
            Err(api.failures().refuse(source, account, api.monotonic()))
        }
    }
}

fn by_key(api: &ApiState, id: ApiKeyId, row: &ApiKey) -> Caller {
    api.used(id, api.now());
    let actor = Actor::Api(id.to_string().into());
    Caller { role: Some(row.role), account: row.account, actor, key: Some(id), portal: None, console: None }
}

/// Who signed in with a key, as long as the secret that was brought then is one of its.
pub(super) fn still_by_key(
    api: &ApiState,
    id: ApiKeyId,
    hash: &SecretHash,
) -> Result<Option<Caller>, Problem> {
    let row = api.shared.handle.view().api_key(id)?;
    Ok(row.filter(|row| fits(Some(row), hash, api.now())).map(|row| by_key(api, id, &row)))
}

/// Whether a secret's hash is one of a key's. Each is compared to its end, and one that fits nothing if there
/// is none.
fn fits(row: Option<&ApiKey>, hash: &SecretHash, now: Timestamp) -> bool {
    let live = row.map(|row| row.live_hashes(now)).unwrap_or_default();
    let compared = if live.is_empty() { &[SecretHash([0; 32])][..] } else { &live };
    compared.iter().fold(false, |fits, live| fits | token::same(live, hash)) & !live.is_empty()
}

/// A credential belongs in a header: an address stands in logs, histories and `Referer`s.
fn no_token_in(uri: &Uri) -> Result<(), Problem> {
    let Some(query) = uri.query() else { return Ok(()) };
    let secret = form_urlencoded::parse(query.as_bytes()).any(|(name, value)| {
        matches!(&*name, "token" | "access_token" | "api_key" | "authorization")
            || token::read(&value).is_some()
    });
    if !secret {
        return Ok(());
    }
    tracing::error!(
        path = uri.path(),
        "a credential came in an address: replace it, logs may have it by now"
    );
    let detail = "a credential stands in the address; send `Authorization: Bearer`, and replace this one";
    Err(Problem::new(Kind::BadQuery, detail))
}

/// The state that a route works with: the server's, and who asks.
impl FromRequestParts<Door> for ApiState {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, door: &Door) -> Result<ApiState, Problem> {
        let caller = parts.extensions.get::<Caller>().cloned().unwrap_or_else(Caller::nobody);
        let key = idempotency::key(&parts.headers)?;
        let told = parts.extensions.get::<Told>().cloned().unwrap_or_default();
        Ok(ApiState { caller, key, told, ..door.0.clone() })
    }
}

impl ApiState {
    /// The account that is named, if the caller reaches it. Another one is not there, whether or not it is.
    pub(crate) fn reach(&self, account: AccountId) -> Result<AccountId, Problem> {
        match self.caller.account {
            Some(own) if own != account => Err(no_account()),
            _ => Ok(account),
        }
    }

    /// The account that a request is about: the caller's own, else the one that it names, if it names one.
    pub(crate) fn scope(&self, named: Option<AccountId>) -> Result<Option<AccountId>, Problem> {
        Ok(named.map(|named| self.reach(named)).transpose()?.or(self.caller.account))
    }

    /// The account that the parameter `account_id` names, if it is there. It is looked at before anything else is
    /// told: what another account has is not there, whatever else is wrong with the request.
    pub(super) fn account_named(&self, params: &mut Params) -> Result<Option<AccountId>, Problem> {
        params.one("account_id").map(|named| account_id(self, &named)).transpose()
    }

    /// The account of a filter: the one that is named, else the credential's, if it has one.
    pub(crate) fn account_filter(&self, params: &mut Params) -> Result<Option<AccountId>, Problem> {
        self.scope(self.account_named(params)?)
    }

    /// The account of a list, by the parameter `account_id` or the credential. `None`: that is noted.
    pub(super) fn account_param(&self, params: &mut Params) -> Result<Option<AccountId>, Problem> {
        let account = self.account_filter(params)?;
        if account.is_none() {
            params.fail("account_id", "name the account");
        }
        Ok(account)
    }

    /// The account of something that is made, by the member `account_id` or the credential. `None`: what is
    /// wrong is noted in `fields`.
    pub(super) fn account_member(&self, fields: &mut Fields<'_>) -> Result<Option<AccountId>, Problem> {
        if self.caller.account.is_some() {
            let named = fields.optional("account_id", id::<AccountId>);
            return self.scope(named);
        }
        Ok(fields.required("account_id", id::<AccountId>))
    }

    /// Whether the caller's credential holds still: what lasts longer than a request asks again.
    pub(crate) fn still_let_in(&self, view: &View<'_>) -> Result<bool, Problem> {
        if let Some((secret, _)) = &self.caller.portal {
            return Ok(self.shared.sessions.lives(secret, self.monotonic()));
        }
        let sits = |secret: &Zeroizing<String>| self.shared.consoles.lives(secret, self.monotonic());
        if !self.caller.console.as_ref().is_none_or(sits) {
            return Ok(false);
        }
        let Some(key) = self.caller.key else { return Ok(true) };
        let live = view.api_key(key)?.is_some_and(|row| !row.live_hashes(self.now()).is_empty());
        Ok(live)
    }

    /// Whether the caller is a customer: log positions and addresses are not for it.
    pub(crate) fn is_customer(&self) -> bool {
        self.caller.account.is_some()
    }
}

fn changes_from_here(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    if is_read(method) { Ok(()) } else { same_origin(headers) }
}

/// Whether a method changes nothing.
pub(super) fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Refuses what a page of another site makes a browser send, where no credential tells it apart.
pub(super) fn same_origin(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(origin) = headers.get(ORIGIN).and_then(|value| value.to_str().ok()) else { return Ok(()) };
    let host = headers.get(HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let from = origin.split_once("://").map_or("", |(_, authority)| authority);
    if !host.is_empty() && from.eq_ignore_ascii_case(host) {
        return Ok(());
    }
    Err(cross_origin())
}

pub(super) fn cross_origin() -> Problem {
    Problem::new(Kind::CrossOrigin, "the request comes from a page of another site")
}

/// Refuses what a delivery brings in as an event (every delivery names its sender in a header that no endpoint
/// can change): an endpoint that points at an ingest address, ours or another's, would never come to rest.
pub(super) fn no_delivery(headers: &HeaderMap) -> Result<(), Problem> {
    let agent = headers.get(USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if agent.starts_with("Hooklog/") {
        let detail = "an endpoint points at an address that takes events in; point it at its receiver";
        return Err(Problem::new(Kind::Loop, detail));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_open_without_a_key() {
        for (address, open) in [
            ("127.0.0.1:8080", true),
            ("[::1]:8080", true),
            ("[::ffff:127.0.0.1]:80", true),
            ("0.0.0.0:8080", false),
            ("[::]:8080", false),
            ("10.0.0.1:8080", false),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(may_listen(address, true).is_ok(), open, "{address}");
            assert_eq!(may_listen(address, false), Ok(()), "{address}");
        }
    }

    #[test]
    fn a_token_is_itself_only() {
        let token = OperatorToken::new("0123456789abcdef").expect("a token");
        assert!(token.is("0123456789abcdef"));
        assert!(!token.is("0123456789abcdeF") && !token.is("") && !token.is("0123456789abcdef0"));
        assert_eq!(OperatorToken::new("short").err(), Some(WeakToken));
        assert_eq!(OperatorToken::new("0123456789 abcdef").err(), Some(WeakToken));
        assert_eq!(format!("{token:?}"), "[redacted]");
    }
}
