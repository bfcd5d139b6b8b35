//! The header fields of a request, in order, and which fields an endpoint may bring itself.
//!
//! Pure: the second of the signature comes in. Never knows how a request travels.

use std::str::FromStr;
use std::sync::Arc;

use serde::Deserialize;

use super::{Request, sign};

/// Who we say we are.
pub const USER_AGENT: &str = concat!("Hooklog/", env!("CARGO_PKG_VERSION"));

/// How many headers an endpoint may bring: more is a mistake, and receivers limit the head.
pub const HEADERS_MAX: usize = 20;

/// Bytes of a header's name.
pub const HEADER_NAME_BYTES_MAX: usize = 128;

/// Bytes of a header's value: room for any token, and 20 of them still fit into what receivers accept.
pub const HEADER_VALUE_BYTES_MAX: usize = 4096;

/// Names that are never an endpoint's to choose: they frame the request, name its sender, or would open a
/// cloud's metadata service to whoever can aim us at it. Rule S12. `user-agent` is ours.
const DENIED: [&str; 17] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "cookie",
    "content-type",
    "content-encoding",
    "forwarded",
    "idempotency-key",
    "metadata-flavor",
    "x-metadata-token",
    "user-agent",
];

/// As [`DENIED`], for all names that begin so.
const DENIED_PREFIXES: [&str; 5] =
    ["proxy-", "x-forwarded-", "webhook-", "x-ledger-", "x-aws-ec2-metadata-token"];

/// The name of the field that carries the ledger's own signature: `X-Ledger-Signature`, unless the operator's
/// receivers know it by another.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct SignatureHeader(Arc<str>);

/// A text that cannot be that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` cannot carry a signature: use a name such as `X-Acme-Signature` that no other header has")]
pub struct BadSignatureHeader(String);

impl SignatureHeader {
    /// As it is sent.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for SignatureHeader {
    fn default() -> SignatureHeader {
        SignatureHeader("X-Ledger-Signature".into())
    }
}

impl FromStr for SignatureHeader {
    type Err = BadSignatureHeader;

    fn from_str(name: &str) -> Result<SignatureHeader, BadSignatureHeader> {
        let ours = name.to_ascii_lowercase().starts_with("x-ledger-");
        match check_header(name, "") {
            Ok(()) => Ok(SignatureHeader(name.into())),
            Err(HeaderRefusal::Reserved(_)) if ours => Ok(SignatureHeader(name.into())),
            Err(_) => Err(BadSignatureHeader(name.escape_default().to_string())),
        }
    }
}

impl TryFrom<String> for SignatureHeader {
    type Error = BadSignatureHeader;

    fn try_from(name: String) -> Result<SignatureHeader, BadSignatureHeader> {
        name.parse()
    }
}

/// Why an endpoint may not bring a header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderRefusal {
    /// The name is not a token (RFC 9110 §5.6.2), or too long.
    #[error("a header's name is 1 to 128 letters, digits and !#$%&'*+-.^_`|~")]
    Name,
    /// The name is reserved.
    #[error("the header `{0}` is set by the server: choose another name")]
    Reserved(String),
    /// The value has other characters, or is too long.
    #[error("the value of `{0}` must be printable ASCII without spaces at its ends, at most 4096 bytes")]
    Value(String),
    /// The name stands there twice.
    #[error("the header `{0}` is given twice")]
    Twice(String),
    /// There are too many.
    #[error("an endpoint has at most 20 headers, this one {0}")]
    TooMany(usize),
}

/// Why a request cannot be signed as its endpoint wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsignable {
    /// Standard signatures are on, but there is no key.
    #[error("the endpoint has no live signing key: cut a new one, or switch standard signatures off")]
    NoKey,
    /// The ledger signature is on, but there is no secret.
    #[error("the account has no webhook secret: set one, or switch the ledger signature off")]
    NoSecret,
}

/// All fields of a request that we choose, in the order they are sent; each name stands there once. Signed for
/// the second `now` (Unix time), which is this attempt's, not the event's (rule W2). An endpoint's own fields
/// come last; what [`check_header`] refuses, or stands there twice, is left out even if it was stored.
///
/// # Errors
/// `Unsignable` rather than a request that no receiver can verify.
pub fn headers(request: &Request, now: u64) -> Result<Vec<(String, String)>, Unsignable> {
    let id = request.event_id.as_str();
    let mut out: Vec<(String, String)> = Vec::with_capacity(9 + request.headers.len());
    let mut put = |name: &str, value: String| out.push((name.to_owned(), value));
    put("content-type", request.content_type.clone());
    put("user-agent", USER_AGENT.to_owned());
    if request.schemes.standard {
        if request.keys.is_empty() {
            return Err(Unsignable::NoKey);
        }
        put("webhook-id", id.to_owned());
        put("webhook-timestamp", now.to_string());
        put("webhook-signature", sign::standard(&request.keys, id, now, &request.body));
    }
    if request.schemes.ledger {
        let secret = request.account_secret.as_ref().ok_or(Unsignable::NoSecret)?;
        put(request.signature_header.as_str(), sign::ledger(secret, &request.body));
    }
    put("Idempotency-Key", id.to_owned());
    if request.run > 1 {
        put("webhook-replay", request.run.to_string());
    }
    if request.body.is_empty() {
        // Left to itself the client would send no length at all, and strict receivers answer 411.
        put("content-length", "0".to_owned());
    }
    for (name, value) in &request.headers {
        let twice = out.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        if !twice && check_header(name, value).is_ok() {
            out.push((name.clone(), value.clone()));
        }
    }
    Ok(out)
}

/// Whether an endpoint may bring this header: rule S12.
///
/// # Errors
/// [`HeaderRefusal`], to be shown to whoever set it.
pub fn check_header(name: &str, value: &str) -> Result<(), HeaderRefusal> {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if !(1..=HEADER_NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_token) {
        return Err(HeaderRefusal::Name);
    }
    let lower = name.to_ascii_lowercase();
    if DENIED.contains(&lower.as_str()) || DENIED_PREFIXES.iter().any(|p| lower.starts_with(p)) {
        return Err(HeaderRefusal::Reserved(name.to_owned()));
    }
    let printable = value.bytes().all(|b| (b' '..=b'~').contains(&b));
    if !printable || value.len() > HEADER_VALUE_BYTES_MAX || value.trim_matches(' ') != value {
        return Err(HeaderRefusal::Value(name.to_owned()));
    }
    Ok(())
}

/// Whether an endpoint may bring all of these: [`check_header`] for each, no name twice in any case, at most
/// [`HEADERS_MAX`].
///
/// # Errors
/// The first [`HeaderRefusal`].
pub fn check_headers<'a>(headers: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<(), HeaderRefusal> {
    let mut seen: Vec<&str> = Vec::new();
    for (name, value) in headers {
        check_header(name, value)?;
        if seen.iter().any(|n| n.eq_ignore_ascii_case(name)) {
            return Err(HeaderRefusal::Twice(name.to_owned()));
        }
        seen.push(name);
    }
    if seen.len() > HEADERS_MAX { Err(HeaderRefusal::TooMany(seen.len())) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use hooklog_projections::fact::Schemes;
    use zeroize::Zeroizing;

    use super::*;
    use crate::delivery::{Key, TextSecret};

    const K32: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const KOLD: &str = "whsec_ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoM=";

    fn request() -> Request {
        Request {
            url: "https://customer.example/hooks".to_owned(),
            event_id: "evt_01J9X4K2P7".parse().expect("an id"),
            body: Bytes::from_static(
                br#"{"id":"evt_01J9X4K2P7","type":"payment.settled","data":{"amount":12900,"currency":"EUR"}}"#,
            ),
            content_type: "application/json".to_owned(),
            run: 1,
            keys: vec![Key::parse(K32).expect("a key")],
            account_secret: Some(TextSecret::new(Zeroizing::new("acct_secret_0123456789abcdef0123".to_owned()))),
            schemes: Schemes { standard: true, ledger: true },
            signature_header: SignatureHeader::default(),
            headers: vec![],
            timeout: Duration::from_secs(10),
        }
    }

    fn picture(request: &Request) -> String {
        let headers = headers(request, 1_768_471_200).expect("signable");
        let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        lines.replace(USER_AGENT, "Hooklog/VERSION")
    }

    #[test]
    fn a_first_attempt() {
        let mut request = request();
        request.headers = vec![("Authorization".to_owned(), "Bearer t0ken".to_owned())];
        insta::assert_snapshot!(picture(&request), @r"
        content-type: application/json
        user-agent: Hooklog/VERSION
        webhook-id: evt_01J9X4K2P7
        webhook-timestamp: 1768471200
        webhook-signature: v1,Qw1Xd+GJIutDUjet8ClnFhlBApBQ5q2ls7kR1HV/8M0=
        X-Ledger-Signature: sha256=e85b342a1afe0a994c2b0db38e689d1c764a6a1aaa166200c7017fd8ee009996
        Idempotency-Key: evt_01J9X4K2P7
        Authorization: Bearer t0ken
        ");
    }

    #[test]
    fn a_replay_during_a_rotation() {
        let mut request = request();
        request.run = 3;
        request.keys.push(Key::parse(KOLD).expect("a key"));
        insta::assert_snapshot!(picture(&request), @r"
        content-type: application/json
        user-agent: Hooklog/VERSION
        webhook-id: evt_01J9X4K2P7
        webhook-timestamp: 1768471200
        webhook-signature: v1,Qw1Xd+GJIutDUjet8ClnFhlBApBQ5q2ls7kR1HV/8M0= v1,RlllJI+LPj6nSsZILV51UAOQpjgRq2R2OUgue7s40lw=
        X-Ledger-Signature: sha256=e85b342a1afe0a994c2b0db38e689d1c764a6a1aaa166200c7017fd8ee009996
        Idempotency-Key: evt_01J9X4K2P7
        webhook-replay: 3
        ");
    }

    #[test]
    fn an_empty_body_has_a_length() {
        let mut request = request();
        request.body = Bytes::new();
        request.content_type = "text/plain".to_owned();
        insta::assert_snapshot!(picture(&request), @r"
        content-type: text/plain
        user-agent: Hooklog/VERSION
        webhook-id: evt_01J9X4K2P7
        webhook-timestamp: 1768471200
        webhook-signature: v1,3b3Z4/OdWZdar3k7Cf/khFYw0ktTxiJ8c22IEuVxz9Y=
        X-Ledger-Signature: sha256=dc6691ab9397379ea0b8c058ae671f3bfa1b0440c8c466cb560190b700a5278c
        Idempotency-Key: evt_01J9X4K2P7
        content-length: 0
        ");
    }

    #[test]
    fn either_scheme_can_be_off() {
        let mut request = request();
        request.schemes = Schemes { standard: false, ledger: false };
        request.keys.clear();
        request.account_secret = None;
        insta::assert_snapshot!(picture(&request), @r"
        content-type: application/json
        user-agent: Hooklog/VERSION
        Idempotency-Key: evt_01J9X4K2P7
        ");
        request.schemes = Schemes { standard: true, ledger: false };
        assert_eq!(headers(&request, 0), Err(Unsignable::NoKey));
        request.schemes = Schemes { standard: false, ledger: true };
        assert_eq!(headers(&request, 0), Err(Unsignable::NoSecret));
    }

    #[test]
    fn the_ledgers_signature_can_have_another_name() {
        let mut request = request();
        request.signature_header = "X-Acme-Signature".parse().expect("a name");
        request.headers = vec![("x-acme-signature".to_owned(), "sha256=forged".to_owned())];
        let ours = picture(&request);
        assert_eq!(ours.matches("-Signature: sha256=e85b342a").count(), 1, "{ours}");
        assert!(ours.contains("\nX-Acme-Signature: ") && !ours.contains("X-Ledger"), "{ours}");
        for name in ["X-Ledger-Sig", "x-hub-signature-256", "Signature"] {
            assert_eq!(name.parse::<SignatureHeader>().expect("a name").as_str(), name);
        }
        for name in ["", "a b", "a:", "Host", "webhook-signature", "Idempotency-Key", "content-type", "é"] {
            name.parse::<SignatureHeader>().expect_err(name);
        }
    }

    #[test]
    fn stored_headers_never_replace_ours() {
        let mut request = request();
        let plain = picture(&request);
        request.headers = [
            ("Webhook-Signature", "v1,forged"),
            ("x-ledger-signature", "sha256=forged"),
            ("Content-Type", "text/plain"),
            ("Host", "elsewhere"),
            ("Transfer-Encoding", "chunked"),
            ("X-A", "first"),
            ("x-a", "second"),
            ("X-B", "split\r\nX-C: in two"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec();
        assert_eq!(picture(&request), format!("{plain}X-A: first\n"));
    }

    #[test]
    fn reserved_names_are_refused_in_any_case() {
        for name in [
            "Host",
            "Content-Length",
            "TRANSFER-ENCODING",
            "connection",
            "keep-alive",
            "te",
            "trailer",
            "upgrade",
            "Expect",
            "proxy-authorization",
            "Proxy-Connection",
            "cookie",
            "content-type",
            "Content-Encoding",
            "forwarded",
            "X-Forwarded-For",
            "WEBHOOK-ID",
            "Webhook-Signature",
            "webhook-anything",
            "x-ledger-signature",
            "X-Ledger-Other",
            "Idempotency-Key",
            "Metadata-Flavor",
            "X-aws-ec2-metadata-token",
            "x-aws-ec2-metadata-token-ttl-seconds",
            "X-Metadata-Token",
            "User-Agent",
        ] {
            assert!(matches!(check_header(name, "x"), Err(HeaderRefusal::Reserved(_))), "{name}");
        }
        for name in ["Authorization", "X-Api-Key", "x-forwarded", "webhooks", "Accept", "x"] {
            assert_eq!(check_header(name, "x"), Ok(()), "{name}");
        }
    }

    #[test]
    fn names_are_tokens_and_values_printable() {
        for name in ["", "a b", "a:", "é", "a\r\nb", "a\0", &"a".repeat(129)] {
            assert_eq!(check_header(name, "x"), Err(HeaderRefusal::Name), "{name:?}");
        }
        for value in ["\r\nX: y", "a\nb", "a\0b", "a\tb", "\x7f", "é", " a", "a ", &"a".repeat(4097)] {
            assert_eq!(check_header("X-A", value), Err(HeaderRefusal::Value("X-A".into())), "{value:?}");
        }
        assert_eq!(check_header("X-A", ""), Ok(()));
        assert_eq!(check_header("X-A", &"a".repeat(4096)), Ok(()));
    }

    #[test]
    fn at_most_twenty_and_none_twice() {
        let names: Vec<String> = (0..21).map(|i| format!("X-{i}")).collect();
        let of = |n: usize| check_headers(names[..n].iter().map(|name| (name.as_str(), "v")));
        assert_eq!(of(20), Ok(()));
        assert_eq!(of(21), Err(HeaderRefusal::TooMany(21)));
        assert_eq!(check_headers([("X-A", "1"), ("x-a", "2")]), Err(HeaderRefusal::Twice("x-a".into())));
    }
}
