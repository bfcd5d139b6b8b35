//! Whether a request's signatures are right, and if not, why: what a receiver's own code can only call wrong.
//!
//! Pure. A mismatch is tried again with what usually happened to a request on its way: a body that was parsed and
//! written anew, other line ends, a key taken for its text. Never knows where a request came from.

use serde::Serialize;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::sign::{self, Key, Refused, TOLERANCE_SECS, TextSecret};

/// The secrets to check with.
#[derive(Default)]
pub struct Secrets {
    keys: Vec<Key>,
    endpoint_texts: Vec<Zeroizing<String>>,
    account: Vec<Zeroizing<String>>,
}

/// What was found of one scheme.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// `standard` or `ledger`.
    pub scheme: &'static str,
    /// `valid`, `unchecked`, or what is wrong.
    pub result: &'static str,
    /// For people: what is wrong, and what to do.
    pub detail: String,
}

impl Found {
    fn valid(scheme: &'static str, detail: impl Into<String>) -> Found {
        Found { scheme, result: "valid", detail: detail.into() }
    }

    fn wrong(scheme: &'static str, result: &'static str, detail: impl Into<String>) -> Found {
        Found { scheme, result, detail: detail.into() }
    }

    /// Whether it is wrong.
    pub fn is_wrong(&self) -> bool {
        !matches!(self.result, "valid" | "unchecked")
    }
}

/// Whether a request counts: something is right, and nothing is wrong.
pub fn is_valid(found: &[Found]) -> bool {
    found.iter().any(|found| found.result == "valid") && !found.iter().any(Found::is_wrong)
}

impl Secrets {
    /// One secret a line: signing keys of an endpoint, and secrets of an account. Endpoint keys may also be an
    /// account's, where no other is given.
    ///
    /// # Errors
    /// What is wrong with a line; never the line itself.
    pub fn new(endpoint: Option<&str>, account: Option<&str>) -> Result<Secrets, String> {
        let lines = |text: Option<&str>| -> Vec<Zeroizing<String>> {
            let lines = text.unwrap_or_default().lines().map(str::trim);
            lines.filter(|line| !line.is_empty()).map(|line| Zeroizing::new(line.to_owned())).collect()
        };
        Secrets::of(lines(endpoint), lines(account))
    }

    /// Signing keys of an endpoint, and secrets of an account, each as it stands.
    ///
    /// # Errors
    /// What is wrong with a key; never the key itself.
    pub fn of(
        endpoint_texts: Vec<Zeroizing<String>>,
        account: Vec<Zeroizing<String>>,
    ) -> Result<Secrets, String> {
        let mut keys = Vec::with_capacity(endpoint_texts.len());
        for (n, text) in endpoint_texts.iter().enumerate() {
            keys.push(Key::parse(text).map_err(|error| format!("secret {}: {error}", n + 1))?);
        }
        Ok(Secrets { keys, endpoint_texts, account })
    }

    /// The endpoint's keys.
    pub fn keys(&self) -> &[Key] {
        &self.keys
    }

    /// The account's secrets, as the texts they are.
    pub fn account(&self) -> Vec<TextSecret> {
        self.account.iter().map(|text| TextSecret::new(text.clone())).collect()
    }

    /// Checks every signature that a request brings, at a moment (Unix seconds). `headers` in any case and order.
    pub fn check(&self, headers: &[(String, String)], body: &[u8], now: u64) -> Vec<Found> {
        let mut found = Vec::new();
        let has = |name| headers.iter().any(|(header, _)| header.eq_ignore_ascii_case(name));
        let standard = ["webhook-id", "webhook-timestamp", "webhook-signature"];
        let ledger = has("x-ledger-signature");
        if standard.iter().any(|name| has(name)) || !ledger {
            found.push(self.standard(headers, body, now).unwrap_or_else(|wrong| wrong));
        }
        if ledger {
            found.push(self.ledger(headers, body).unwrap_or_else(|wrong| wrong));
        }
        if let [a, b] = &mut found[..] {
            // One right signature over the body proves the body: what is left is the other secret.
            match (a.result, b.result) {
                ("valid", "mismatch") => *b = other_secret(b.scheme),
                ("mismatch", "valid") => *a = other_secret_or_head(a.scheme),
                _ => {}
            }
        }
        found
    }

    fn standard(&self, headers: &[(String, String)], body: &[u8], now: u64) -> Result<Found, Found> {
        const SCHEME: &str = "standard";
        let wrong = |result, detail: String| Found::wrong(SCHEME, result, detail);
        let id = one(headers, "webhook-id", SCHEME)?;
        let timestamp = one(headers, "webhook-timestamp", SCHEME)?;
        let signature = one(headers, "webhook-signature", SCHEME)?;
        if self.keys.is_empty() {
            return Ok(Found::wrong(
                SCHEME,
                "unchecked",
                "it is made with the endpoint's signing key: give that, too",
            ));
        }
        let shaped = |part: &str| {
            part.split_once(',').is_some_and(|(version, rest)| !version.is_empty() && !rest.is_empty())
        };
        if !signature.split(' ').all(shaped) {
            let detail = "webhook-signature is not `v1,BASE64`, several of them apart by one space";
            return Err(wrong("malformed-signature", detail.into()));
        }
        match sign::verify(&self.keys, id, timestamp, signature, body, now) {
            Ok(()) => Ok(Found::valid(SCHEME, "webhook-signature is of this id, timestamp, body and key")),
            Err(Refused::Timestamp) => Err(wrong(
                "malformed-timestamp",
                "webhook-timestamp is not a whole number of seconds in plain digits".into(),
            )),
            Err(refused @ (Refused::TooOld | Refused::TooNew)) => {
                let at: u64 = timestamp.parse().unwrap_or_default();
                let genuine = sign::verify(&self.keys, id, timestamp, signature, body, at).is_ok();
                let (result, by, side) = match refused {
                    Refused::TooOld => ("too-old", now.saturating_sub(at), "behind"),
                    _ => ("too-new", at.saturating_sub(now), "ahead of"),
                };
                let rest = match genuine {
                    true => {
                        "apart from that the signature is right: check both clocks, and that nothing kept it"
                    }
                    false => "and the signature is wrong besides",
                };
                let detail = format!(
                    "webhook-timestamp is {by} s {side} the clock here, more than {TOLERANCE_SECS}; {rest}"
                );
                Err(wrong(result, detail))
            }
            Err(Refused::NoSignature) => Err(wrong(
                "no-signature",
                "webhook-signature has no `v1` signature; others are made with keys that are not shared"
                    .into(),
            )),
            Err(Refused::Mismatch) => Err(self.standard_mismatch(id, timestamp, signature, body)),
        }
    }

    fn standard_mismatch(&self, id: &str, timestamp: &str, signature: &str, body: &[u8]) -> Found {
        const SCHEME: &str = "standard";
        let at = timestamp.parse().unwrap_or_default();
        let matches =
            |id: &str, body: &[u8]| sign::verify(&self.keys, id, timestamp, signature, body, at).is_ok();
        for (what, variant) in variants(body) {
            if matches(id, &variant) {
                return Found::wrong(SCHEME, "body-changed", body_changed(what));
            }
        }
        let inside = serde_json::from_slice::<serde_json::Value>(body).ok();
        let inside = inside.as_ref().and_then(|body| body["id"].as_str());
        if let Some(inside) = inside.filter(|inside| *inside != id) {
            if matches(inside, body) {
                let detail =
                    format!("webhook-id was changed: the signature is of the id in the body, `{inside}`");
                return Found::wrong(SCHEME, "id-changed", detail);
            }
            let detail = format!(
                "no signature matches, and the body is of event `{inside}` while webhook-id says another: the body \
                 is another request's"
            );
            return Found::wrong(SCHEME, "body-changed", detail);
        }
        for text in &self.endpoint_texts {
            let as_text = Key::from_bytes(Zeroizing::new(text.as_bytes().to_vec()));
            if as_text.is_ok_and(|key| sign::verify(&[key], id, timestamp, signature, body, at).is_ok()) {
                let detail = "the sender signed with the key's text: its bytes are the base64 after `whsec_`";
                return Found::wrong(SCHEME, "key-taken-as-text", detail);
            }
        }
        let cut =
            signature.split(' ').filter_map(|part| part.strip_prefix("v1,")).any(|part| part.len() != 44);
        if cut {
            let detail = "a signature is not 44 characters of base64: the header was cut or changed";
            return Found::wrong(SCHEME, "malformed-signature", detail);
        }
        let detail = "no signature matches: another key, or id, timestamp or body are not as sent. Take the body as \
                      raw bytes before any parser, and look which endpoint's key this is";
        Found::wrong(SCHEME, "mismatch", detail)
    }

    fn ledger(&self, headers: &[(String, String)], body: &[u8]) -> Result<Found, Found> {
        const SCHEME: &str = "ledger";
        let signature = one(headers, "x-ledger-signature", SCHEME)?;
        let digits = signature.strip_prefix("sha256=");
        let shaped = digits.is_some_and(|digits| {
            digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
        });
        if !shaped {
            let detail = "X-Ledger-Signature is not `sha256=` and 64 lower-case hexadecimal digits";
            return Err(Found::wrong(SCHEME, "malformed-signature", detail));
        }
        let texts = if self.account.is_empty() { &self.endpoint_texts } else { &self.account };
        let matches = |body: &[u8]| {
            // Whoever asks may not have the secret: each is compared whole, and all of them.
            let made = texts.iter().map(|text| sign::ledger(&TextSecret::new(text.clone()), body));
            made.fold(subtle::Choice::from(0), |any, made| any | made.as_bytes().ct_eq(signature.as_bytes()))
                .into()
        };
        if matches(body) {
            return Ok(Found::valid(SCHEME, "X-Ledger-Signature is of this body and secret"));
        }
        if let Some((what, _)) = variants(body).into_iter().find(|(_, variant)| matches(variant)) {
            return Err(Found::wrong(SCHEME, "body-changed", body_changed(what)));
        }
        if self.account.is_empty() {
            let detail = "it is made with the account's secret: give that, too";
            return Ok(Found::wrong(SCHEME, "unchecked", detail));
        }
        let detail = "X-Ledger-Signature does not match: another secret, or the body is not as sent. The key is the \
                      account's secret as text, prefix and all";
        Err(Found::wrong(SCHEME, "mismatch", detail))
    }
}

fn body_changed(what: &str) -> String {
    format!(
        "the body was changed on the way: the signature is of {what}. Check the raw bytes, before any parser"
    )
}

fn other_secret(scheme: &'static str) -> Found {
    let detail = "the body is as sent, for the other signature is right: this secret is another one";
    Found::wrong(scheme, "other-secret", detail)
}

fn other_secret_or_head(scheme: &'static str) -> Found {
    let detail = "the body is as sent, for the other signature is right: this key is another one, or webhook-id or \
                  webhook-timestamp are not as sent";
    Found::wrong(scheme, "other-secret", detail)
}

/// A header that must stand there once.
fn one<'h>(headers: &'h [(String, String)], name: &str, scheme: &'static str) -> Result<&'h str, Found> {
    let mut values = headers.iter().filter(|(header, _)| header.eq_ignore_ascii_case(name));
    match (values.next(), values.next()) {
        (Some((_, value)), None) => Ok(value),
        (None, _) => Err(Found::wrong(scheme, "missing-header", format!("{name} is not there"))),
        (Some(_), Some(_)) => {
            Err(Found::wrong(scheme, "doubled-header", format!("{name} stands there twice")))
        }
    }
}

/// Bodies that this one may have been before somebody touched it.
fn variants(body: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let mut out: Vec<(&'static str, Vec<u8>)> = Vec::new();
    if let Some(cut) = body.strip_suffix(b"\n") {
        out.push(("the body without its last line end", cut.strip_suffix(b"\r").unwrap_or(cut).to_vec()));
    }
    out.push(("the body with a line end", [body, b"\n"].concat()));
    if let Ok(text) = std::str::from_utf8(body) {
        out.push(("the body with LF for CR LF", text.replace("\r\n", "\n").into_bytes()));
        out.push((
            "the body with CR LF for LF",
            text.replace("\r\n", "\n").replace('\n', "\r\n").into_bytes(),
        ));
        out.push(("the body without white space around it", text.trim().as_bytes().to_vec()));
    }
    if let Some(rest) = body.strip_prefix("\u{feff}".as_bytes()) {
        out.push(("the body without its byte order mark", rest.to_vec()));
    }
    if let Some(text) = compact(body) {
        out.push(("the body without white space between its members: it was written anew", text));
    }
    if let Ok(value) = serde_json::from_slice::<serde_json::Value>(body) {
        if let Ok(pretty) = serde_json::to_vec_pretty(&value) {
            out.push(("the body with white space between its members: it was written anew", pretty));
        }
        if let Some(text) = value.as_str() {
            out.push(("the text within: it was packed into JSON", text.as_bytes().to_vec()));
        }
    }
    out.retain(|(_, variant)| variant != body);
    out
}

/// JSON without white space between its parts, members in their order, numbers as they stand.
fn compact(body: &[u8]) -> Option<Vec<u8>> {
    serde_json::from_slice::<&serde_json::value::RawValue>(body).ok()?;
    let (mut out, mut inside, mut escaped) = (Vec::with_capacity(body.len()), false, false);
    for byte in body {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if inside => escaped = true,
            b'"' => inside = !inside,
            b' ' | b'\t' | b'\r' | b'\n' if !inside => continue,
            _ => {}
        }
        out.push(*byte);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const K32: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const KOLD: &str = "whsec_ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoM=";
    const ACCOUNT: &str = "acct_secret_0123456789abcdef0123";
    const BODY: &str =
        r#"{"id":"evt_01J9X4K2P7","type":"payment.settled","data":{"amount":12900,"currency":"EUR"}}"#;
    const AT: u64 = 1_768_471_200;

    /// Vectors V1 and L1.
    fn headers() -> Vec<(String, String)> {
        [
            ("Webhook-Id", "evt_01J9X4K2P7"),
            ("webhook-timestamp", "1768471200"),
            ("webhook-signature", "v1,Qw1Xd+GJIutDUjet8ClnFhlBApBQ5q2ls7kR1HV/8M0="),
            ("x-ledger-signature", "sha256=e85b342a1afe0a994c2b0db38e689d1c764a6a1aaa166200c7017fd8ee009996"),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }

    fn with(name: &str, value: &str) -> Vec<(String, String)> {
        let mut headers = headers();
        headers.retain(|(header, _)| !header.eq_ignore_ascii_case(name));
        headers.push((name.to_owned(), value.to_owned()));
        headers
    }

    fn results(
        secrets: (Option<&str>, Option<&str>),
        headers: &[(String, String)],
        body: &str,
        now: u64,
    ) -> String {
        let secrets = Secrets::new(secrets.0, secrets.1).expect("secrets");
        let found = secrets.check(headers, body.as_bytes(), now);
        let words: Vec<_> = found.iter().map(|found| format!("{} {}", found.scheme, found.result)).collect();
        words.join(", ")
    }

    #[test]
    fn each_way_to_be_wrong_has_its_name() {
        let both = (Some(K32), Some(ACCOUNT));
        // `serde_json::Value` sorts members: what it writes is another order, which nobody can undo.
        let pretty =
            serde_json::to_string_pretty(&serde_json::from_str::<serde_json::Value>(BODY).expect("JSON"));
        // In the order of members that it had: nothing but white space is different.
        let spaced = BODY.replace("\":", "\": ").replace(",\"", ", \"");
        let other_event = BODY.replace("K2P7", "K2P8");
        let (old_and_new, ended) = (format!("{KOLD}\n{K32}\n"), format!("{BODY}\n"));
        let pretty = pretty.expect("JSON");
        let amount = BODY.replace("12900", "12901");
        let cases = [
            ("right", both, headers(), BODY, AT + 300, "standard valid, ledger valid"),
            ("two keys", (Some(&old_and_new), None), headers(), BODY, AT, "standard valid, ledger unchecked"),
            ("old", both, headers(), BODY, AT + 301, "standard too-old, ledger valid"),
            ("ahead", both, headers(), BODY, AT - 301, "standard too-new, ledger valid"),
            ("no key", (None, Some(ACCOUNT)), headers(), BODY, AT, "standard unchecked, ledger valid"),
            (
                "other key",
                (Some(KOLD), Some(ACCOUNT)),
                headers(),
                BODY,
                AT,
                "standard other-secret, ledger valid",
            ),
            (
                "other account",
                (Some(K32), Some("x")),
                headers(),
                BODY,
                AT,
                "standard valid, ledger other-secret",
            ),
            (
                "both others",
                (Some(KOLD), Some("x")),
                headers(),
                BODY,
                AT,
                "standard mismatch, ledger mismatch",
            ),
            ("another amount", both, headers(), amount.as_str(), AT, "standard mismatch, ledger mismatch"),
            ("a line end", both, headers(), &ended, AT, "standard body-changed, ledger body-changed"),
            ("spaces", both, headers(), &spaced, AT, "standard body-changed, ledger body-changed"),
            ("sorted anew", both, headers(), &pretty, AT, "standard mismatch, ledger mismatch"),
            ("another event", both, headers(), &other_event, AT, "standard body-changed, ledger mismatch"),
            ("another id", both, with("webhook-id", "evt_x"), BODY, AT, "standard id-changed, ledger valid"),
            (
                "a late second",
                both,
                with("webhook-timestamp", "1768471201"),
                BODY,
                AT,
                "standard other-secret, ledger valid",
            ),
            (
                "a float",
                both,
                with("webhook-timestamp", "1768471200.9"),
                BODY,
                AT,
                "standard malformed-timestamp, ledger valid",
            ),
            (
                "no version",
                both,
                with("webhook-signature", "Qw1X"),
                BODY,
                AT,
                "standard malformed-signature, ledger valid",
            ),
            (
                "only v2",
                both,
                with("webhook-signature", "v2,Qw1X"),
                BODY,
                AT,
                "standard no-signature, ledger valid",
            ),
            (
                "cut",
                both,
                with("x-ledger-signature", "sha256=e85b"),
                BODY,
                AT,
                "standard valid, ledger malformed-signature",
            ),
            ("nothing", both, vec![], BODY, AT, "standard missing-header"),
        ];
        for (name, secrets, headers, body, now, wanted) in cases {
            assert_eq!(results(secrets, &headers, body, now), wanted, "{name}");
        }
        let mut twice = headers();
        twice.push(("WEBHOOK-ID".into(), "evt_x".into()));
        assert_eq!(results(both, &twice, BODY, AT), "standard doubled-header, ledger valid");
    }

    #[test]
    fn a_key_that_was_taken_for_its_text_is_found_out() {
        let text = Key::from_bytes(Zeroizing::new(K32.as_bytes().to_vec())).expect("long enough");
        let signature = sign::standard(&[text], "evt_01J9X4K2P7", AT, BODY.as_bytes());
        let mut headers = with("webhook-signature", &signature);
        headers.retain(|(name, _)| name != "x-ledger-signature");
        assert_eq!(results((Some(K32), None), &headers, BODY, AT), "standard key-taken-as-text");
        assert!(Secrets::new(Some("whsec_short"), None).is_err());
    }
}
