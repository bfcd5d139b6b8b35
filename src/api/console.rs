//! The console's door: a person signs in with a key and gets a session, which holds as long as the key does.
//!
//! The session's cookie is looked at on pages only: programs bring a key, and the portal has its own. Never knows
//! what a page shows.

use axum::http::{HeaderMap, HeaderValue};
use hooklog_projections::access::{Role, SecretHash};
use hooklog_projections::fact::Actor;
use hooklog_projections::ids::ApiKeyId;
use zeroize::Zeroizing;

use super::ApiState;
use super::access::{Caller, bearer, still_by_key};
use super::form::Form;
use super::portal::cookie;
use super::problem::{Kind, Problem};

/// Who signed in.
#[derive(Clone, Copy)]
pub(super) struct Staff {
    /// With which key; the operator's own token if absent.
    key: Option<ApiKeyId>,
    /// Of the secret that was brought: a key that was rotated since may have another.
    hash: SecretHash,
}

/// What stands for the session where no credential is wanted, so that forms there have a token too.
const OPEN: &str = "open";

/// Exchanges the text of a key for a session: the cookie that it travels in.
///
/// # Errors
/// 401 for a key that is not taken, 429 after too many; 403 for one that may look at nothing.
pub(crate) fn sign_in(api: &ApiState, form: &Form, key: &str) -> Result<HeaderValue, Problem> {
    let (caller, hash) = bearer(api, key.trim(), form.source)?;
    if caller.role == Some(Role::Ingest) {
        let detail = "this key only hands events in; sign in with one of another role";
        return Err(Problem::new(Kind::Forbidden, detail));
    }
    if let Some(before) = secret(api, &form.headers) {
        api.shared.consoles.end(before);
    }
    let (secret, _) = api.shared.consoles.begin(Staff { key: caller.key, hash }, api.monotonic());
    set_cookie(api, &form.headers, &secret, "")
}

/// Ends the session, if there is one: the cookie that takes its place.
pub(crate) fn sign_out(api: &ApiState, headers: &HeaderMap) -> Result<HeaderValue, Problem> {
    if let Some(secret) = secret(api, headers) {
        api.shared.consoles.end(secret);
    }
    set_cookie(api, headers, "", "; Max-Age=0")
}

fn set_cookie(api: &ApiState, headers: &HeaderMap, value: &str, more: &str) -> Result<HeaderValue, Problem> {
    let secure = if is_secure(api, headers) { "; Secure" } else { "" };
    let name = cookie_name(api, headers);
    let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{more}");
    let mut value = HeaderValue::try_from(text).map_err(|error| Problem::internal(&error))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Over plain http no browser keeps what is `Secure`, and the prefix wants it.
fn cookie_name(api: &ApiState, headers: &HeaderMap) -> &'static str {
    if is_secure(api, headers) { "__Host-hooklog-console" } else { "hooklog-console" }
}

/// Whether people come over TLS, as the operator says, or a proxy that is trusted.
pub(crate) fn is_secure(api: &ApiState, headers: &HeaderMap) -> bool {
    let options = &api.shared.options;
    let proxied = headers.get("x-forwarded-proto").is_some_and(|scheme| scheme == "https");
    (options.trusted_hops > 0 && proxied)
        || options.public_url.as_ref().is_some_and(|url| {
            let host = headers.get("host").and_then(|host| host.to_str().ok());
            url.scheme() == "https" && host.is_none_or(|host| Some(host) == authority(url).as_deref())
        })
}

fn authority(url: &url::Url) -> Option<String> {
    let host = url.host_str()?;
    Some(url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}

/// The secret in the cookie of a session of the console.
pub(super) fn secret<'a>(api: &ApiState, headers: &'a HeaderMap) -> Option<&'a str> {
    cookie(headers, cookie_name(api, headers)).filter(|secret| !secret.is_empty())
}

/// Who a session is.
pub(super) fn caller(api: &ApiState, secret: &str) -> Result<Caller, Problem> {
    let over = || Problem::new(Kind::Unauthorized, "the session is over; sign in again");
    let session = api.shared.consoles.look(secret, api.monotonic()).ok_or_else(over)?;
    let Staff { key, hash } = session.who;
    let caller = match key {
        Some(key) => still_by_key(api, key, &hash)?.ok_or_else(|| {
            api.shared.consoles.end(secret);
            over()
        })?,
        None => Caller::operator(Actor::Api("operator".into())),
    };
    Ok(Caller { console: Some(Zeroizing::new(secret.to_owned())), ..caller })
}

impl ApiState {
    /// The token that a page's forms carry, for whoever asks.
    pub(crate) fn csrf_token(&self) -> String {
        match (&self.caller.console, &self.caller.portal) {
            (Some(secret), _) => self.shared.consoles.csrf_token(secret),
            (None, Some((secret, _))) => self.shared.sessions.csrf_token(secret),
            (None, None) => self.shared.consoles.csrf_token(OPEN),
        }
    }

    /// Whether a token was given to whoever asks.
    pub(super) fn knows_csrf(&self, token: &str) -> bool {
        match (&self.caller.console, &self.caller.portal) {
            (Some(secret), _) => self.shared.consoles.knows_csrf(secret, token),
            (None, Some((secret, _))) => self.shared.sessions.knows_csrf(secret, token),
            (None, None) => self.shared.consoles.knows_csrf(OPEN, token),
        }
    }

    /// Whether no credential is wanted.
    pub(crate) fn is_open(&self) -> bool {
        self.shared.options.open
    }

    /// Whether there is a session that can be ended.
    pub(crate) fn has_session(&self) -> bool {
        self.caller.console.is_some() || self.caller.portal.is_some()
    }
}
