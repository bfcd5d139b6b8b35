//! Who may ask: one operator token over TCP, whoever may open the socket's file on the host.
//!
//! Never knows accounts; a token here opens everything.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HOST, ORIGIN, USER_AGENT};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::problem::{Kind, Problem};

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
    "{0} is not loopback and there is no operator token: anyone who reaches it could read and send everything; \
     set a token, or listen on 127.0.0.1"
)]
pub struct OpenToOthers(pub SocketAddr);

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

/// Whether a TCP address may be listened on.
///
/// # Errors
/// [`OpenToOthers`] for anything but loopback without a token.
pub fn may_listen(address: SocketAddr, token: Option<&OperatorToken>) -> Result<(), OpenToOthers> {
    if token.is_some() || address.ip().to_canonical().is_loopback() {
        Ok(())
    } else {
        Err(OpenToOthers(address))
    }
}

/// Whether a request brings the token, if one is needed.
pub(super) fn authorised(token: Option<&OperatorToken>, headers: &HeaderMap) -> Result<(), Problem> {
    let Some(token) = token else { return Ok(()) };
    let brought = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let brought = brought.and_then(|value| value.split_once(' '));
    match brought {
        Some((scheme, text)) if scheme.eq_ignore_ascii_case("bearer") && token.is(text.trim()) => Ok(()),
        Some(_) => Err(Problem::new(Kind::Unauthorized, "the token is not this server's")),
        None => Err(Problem::new(Kind::Unauthorized, "send `Authorization: Bearer` and the operator token")),
    }
}

/// Refuses what a page of another site makes a browser send: there may be no token to tell it by.
pub(super) fn same_origin(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(origin) = headers.get(ORIGIN).and_then(|value| value.to_str().ok()) else { return Ok(()) };
    let host = headers.get(HOST).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let from = origin.split_once("://").map_or("", |(_, authority)| authority);
    if !host.is_empty() && from.eq_ignore_ascii_case(host) {
        return Ok(());
    }
    Err(Problem::new(Kind::CrossOrigin, "the request comes from a page of another site"))
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
    fn only_loopback_is_open_without_a_token() {
        let token = OperatorToken::new("0123456789abcdef").expect("a token");
        for (address, open) in [
            ("127.0.0.1:8080", true),
            ("[::1]:8080", true),
            ("[::ffff:127.0.0.1]:80", true),
            ("0.0.0.0:8080", false),
            ("[::]:8080", false),
            ("10.0.0.1:8080", false),
        ] {
            let address = address.parse().expect("an address");
            assert_eq!(may_listen(address, None).is_ok(), open, "{address}");
            assert_eq!(may_listen(address, Some(&token)), Ok(()), "{address}");
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
