//! Signatures: Standard Webhooks version 1, and the ledger's own `sha256=` form; making and checking them.
//!
//! Pure. Never knows which header carries what, nor the time: both come in.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// What a signing key's text begins with.
pub const KEY_PREFIX: &str = "whsec_";

/// A signing key's bytes: not fewer than 24 (192 bits), not more than 64 (one block of SHA-256). Rule W5.
pub const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// How far a timestamp may be from the verifier's clock, either way, bounds included, in seconds. Rule W14.
pub const TOLERANCE_SECS: u64 = 300;

/// Bytes of HMAC-SHA256.
const TAG_BYTES: usize = 32;

/// A signing key of Standard Webhooks: the bytes behind `whsec_…`, 24 to 64 of them. Shows nothing of itself
/// in `Debug` and is wiped when dropped.
#[derive(Clone)]
pub struct Key(Zeroizing<Vec<u8>>);

/// A secret that is used as the very text its owner sees, prefix and all. Shows nothing of itself in `Debug`
/// and is wiped when dropped.
#[derive(Clone)]
pub struct TextSecret(Zeroizing<String>);

/// Why a text is not a signing key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    /// It does not begin with `whsec_`.
    #[error("a signing key begins with `whsec_`")]
    Prefix,
    /// What follows is not standard base64 with padding.
    #[error(
        "what follows `whsec_` must be standard base64 with padding (`+` and `/`, ending in `=` where due)"
    )]
    Base64,
    /// It decodes to too little or too much.
    #[error("a signing key holds 24 to 64 bytes, this one {0}")]
    Length(usize),
}

/// Why a signature does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The timestamp is not whole seconds in plain decimal.
    #[error("webhook-timestamp is not a whole number of seconds")]
    Timestamp,
    /// Signed too long ago.
    #[error("signed more than 300 s ago: check the clocks of both sides")]
    TooOld,
    /// Signed too far ahead.
    #[error("signed more than 300 s ahead: check the clocks of both sides")]
    TooNew,
    /// No signature of a known version is there.
    #[error("no `v1` signature in webhook-signature")]
    NoSignature,
    /// None of them was made with these keys over this id, timestamp and body.
    #[error("no signature matches: another key, or the id, timestamp or body was changed on the way")]
    Mismatch,
}

/// The `webhook-signature` of a request: one `v1,` signature a key, in the keys' order, single spaces between
/// them. Signed are id, timestamp (Unix seconds) and body, joined by full stops. Rules W3, W6, W7, W8.
pub fn standard(keys: &[Key], id: &str, timestamp: u64, body: &[u8]) -> String {
    let timestamp = timestamp.to_string();
    let mut header = String::with_capacity(keys.len() * 48);
    for key in keys {
        if !header.is_empty() {
            header.push(' ');
        }
        header.push_str("v1,");
        STANDARD.encode_string(tag(key, id, &timestamp, body), &mut header);
    }
    header
}

/// The `X-Ledger-Signature` of a body: `sha256=` and 64 lower-case hexadecimal digits, keyed with the secret's
/// text. Rule W17.
pub fn ledger(secret: &TextSecret, body: &[u8]) -> String {
    let mut mac = hmac(secret.0.as_bytes());
    mac.update(body);
    let mut header = String::with_capacity(7 + 2 * TAG_BYTES);
    header.push_str("sha256=");
    for byte in mac.finalize().into_bytes() {
        header.push(char::from_digit(u32::from(byte >> 4), 16).expect("a nibble"));
        header.push(char::from_digit(u32::from(byte & 15), 16).expect("a nibble"));
    }
    header
}

/// Checks a request's signature as a receiver should: the timestamp strictly read and within
/// [`TOLERANCE_SECS`] of `now` (Unix seconds), and any `v1` signature made by any of `keys`, compared in
/// constant time over its whole length. Rules W13, W14.
///
/// # Errors
/// [`Refused`] says which check failed.
pub fn verify(
    keys: &[Key],
    id: &str,
    timestamp: &str,
    signature: &str,
    body: &[u8],
    now: u64,
) -> Result<(), Refused> {
    let at = read_timestamp(timestamp).ok_or(Refused::Timestamp)?;
    if now.saturating_sub(at) > TOLERANCE_SECS {
        return Err(Refused::TooOld);
    }
    if at.saturating_sub(now) > TOLERANCE_SECS {
        return Err(Refused::TooNew);
    }
    let mut any = false;
    let mut matched = subtle::Choice::from(0);
    for offered in signature.split(' ').filter_map(|s| s.strip_prefix("v1,")) {
        any = true;
        let Ok(offered) = STANDARD.decode(offered) else { continue };
        for key in keys {
            // A slice comparison: unequal lengths never match.
            matched |= tag(key, id, timestamp, body).as_slice().ct_eq(offered.as_slice());
        }
    }
    match (any, bool::from(matched)) {
        (_, true) => Ok(()),
        (true, false) => Err(Refused::Mismatch),
        (false, false) => Err(Refused::NoSignature),
    }
}

impl Key {
    /// The key in a text `whsec_…`.
    ///
    /// # Errors
    /// [`BadKey`], which names the part that is wrong and never the key.
    pub fn parse(text: &str) -> Result<Key, BadKey> {
        let encoded = text.strip_prefix(KEY_PREFIX).ok_or(BadKey::Prefix)?;
        Key::from_bytes(Zeroizing::new(STANDARD.decode(encoded).map_err(|_| BadKey::Base64)?))
    }

    /// A key from its bytes, freshly drawn or unsealed.
    ///
    /// # Errors
    /// `Length` unless there are 24 to 64.
    pub fn from_bytes(bytes: Zeroizing<Vec<u8>>) -> Result<Key, BadKey> {
        if KEY_BYTES.contains(&bytes.len()) { Ok(Key(bytes)) } else { Err(BadKey::Length(bytes.len())) }
    }

    /// The text to show once to its owner.
    pub fn reveal(&self) -> Zeroizing<String> {
        // Sized at once: a string that grows leaves copies of the key behind.
        let mut text = Zeroizing::new(String::with_capacity(KEY_PREFIX.len() + 4 * self.0.len().div_ceil(3)));
        text.push_str(KEY_PREFIX);
        STANDARD.encode_string(self.0.as_slice(), &mut text);
        text
    }

    /// The bytes, to be sealed.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl TextSecret {
    /// A secret as its owner sees it.
    pub fn new(text: Zeroizing<String>) -> TextSecret {
        TextSecret(text)
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[redacted]")
    }
}

impl std::fmt::Debug for TextSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[redacted]")
    }
}

fn tag(key: &Key, id: &str, timestamp: &str, body: &[u8]) -> [u8; TAG_BYTES] {
    let mut mac = hmac(&key.0);
    for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

fn hmac(key: &[u8]) -> Hmac<Sha256> {
    Hmac::new_from_slice(key).expect("HMAC takes a key of any length")
}

/// Plain decimal: digits only, no sign, no space, no leading zero, at most 19 of them.
fn read_timestamp(text: &str) -> Option<u64> {
    let plain = !text.is_empty()
        && text.len() <= 19
        && text.bytes().all(|b| b.is_ascii_digit())
        && (text == "0" || !text.starts_with('0'));
    if plain { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde::de::DeserializeOwned;

    use super::*;

    #[derive(Deserialize)]
    struct Standard {
        name: String,
        keys: Vec<String>,
        id: String,
        timestamp: u64,
        body: String,
        signature: String,
    }

    #[derive(Deserialize)]
    struct Ledger {
        name: String,
        secret: String,
        body: String,
        signature: String,
    }

    #[derive(Deserialize)]
    struct Hostile {
        name: String,
        id: String,
        timestamp: String,
        body: String,
        signature: String,
    }

    fn fixture<T: DeserializeOwned>(name: &str) -> Vec<T> {
        let path = format!("{}/fixtures/signatures/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).expect("a fixture");
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}"))
    }

    fn keys(texts: &[String]) -> Vec<Key> {
        texts.iter().map(|text| Key::parse(text).expect("a key")).collect()
    }

    fn secret(text: &str) -> TextSecret {
        TextSecret::new(Zeroizing::new(text.to_owned()))
    }

    #[test]
    fn standard_signatures_are_as_published() {
        let vectors = fixture::<Standard>("standard");
        assert_eq!(vectors.len(), 11);
        for v in vectors {
            let keys = keys(&v.keys);
            assert_eq!(standard(&keys, &v.id, v.timestamp, v.body.as_bytes()), v.signature, "{}", v.name);
            for key in &keys {
                let at = v.timestamp.to_string();
                let one = std::slice::from_ref(key);
                verify(one, &v.id, &at, &v.signature, v.body.as_bytes(), v.timestamp).expect(&v.name);
            }
        }
    }

    #[test]
    fn ledger_signatures_are_as_published() {
        let vectors = fixture::<Ledger>("ledger");
        assert_eq!(vectors.len(), 7);
        for v in vectors {
            assert_eq!(ledger(&secret(&v.secret), v.body.as_bytes()), v.signature, "{}", v.name);
        }
        for v in fixture::<Ledger>("ledger-must-not") {
            assert_ne!(ledger(&secret(&v.secret), v.body.as_bytes()), v.signature, "{}", v.name);
        }
    }

    #[test]
    fn the_two_schemes_never_meet() {
        // With equal key bytes a ledger signature over `id.time.body` would be a standard one.
        let text = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        let standard = standard(&keys(&[text.to_owned()]), "evt_01", 1_700_000_000, b"{}");
        let ledger = ledger(&secret(text), b"evt_01.1700000000.{}");
        let decoded = STANDARD.decode(standard.strip_prefix("v1,").expect("v1")).expect("base64");
        let hex: String = decoded.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_ne!(ledger, format!("sha256={hex}"));
    }

    #[test]
    fn an_independent_verifier_agrees() {
        // Its clock cannot be set, so its signer is compared instead of its verifier.
        for v in fixture::<Standard>("standard") {
            let theirs: Vec<_> = v
                .keys
                .iter()
                .map(|key| standardwebhooks::Webhook::new(key).expect("a key"))
                .map(|hook| hook.sign(&v.id, v.timestamp as i64, v.body.as_bytes()).expect("signed"))
                .collect();
            let ours = standard(&keys(&v.keys), &v.id, v.timestamp, v.body.as_bytes());
            assert_eq!(ours, theirs.join(" "), "{}", v.name);
        }
    }

    #[test]
    fn what_was_changed_is_refused() {
        let keys = keys(&["whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=".to_owned()]);
        for v in fixture::<Hostile>("refused") {
            let verdict = verify(&keys, &v.id, &v.timestamp, &v.signature, v.body.as_bytes(), 1_768_471_200);
            assert!(verdict.is_err(), "{}", v.name);
        }
        let v1 = &fixture::<Standard>("standard")[0];
        let check = |keys: &[Key]| {
            verify(keys, &v1.id, "1768471200", &v1.signature, v1.body.as_bytes(), v1.timestamp)
        };
        assert_eq!(check(&keys), Ok(()));
        assert_eq!(check(&[]), Err(Refused::Mismatch));
    }

    #[test]
    fn the_tolerance_is_300_seconds_either_way() {
        let v1 = &fixture::<Standard>("standard")[0];
        let keys = keys(&v1.keys);
        let at = |now| verify(&keys, &v1.id, "1768471200", &v1.signature, v1.body.as_bytes(), now);
        assert_eq!(at(v1.timestamp + 300), Ok(()));
        assert_eq!(at(v1.timestamp + 301), Err(Refused::TooOld));
        assert_eq!(at(v1.timestamp - 300), Ok(()));
        assert_eq!(at(v1.timestamp - 301), Err(Refused::TooNew));
        assert_eq!(at(0), Err(Refused::TooNew));
    }

    #[test]
    fn a_key_is_24_to_64_bytes_of_padded_base64() {
        let of = |len: usize| format!("whsec_{}", STANDARD.encode(vec![7u8; len]));
        for len in [24, 32, 64] {
            let key = Key::parse(&of(len)).expect("a key");
            assert_eq!(*key.reveal(), of(len));
            assert_eq!(format!("{key:?}"), "[redacted]");
        }
        let refused = |text: &str| Key::parse(text).expect_err(text);
        assert_eq!(refused("whsec_"), BadKey::Length(0));
        assert_eq!(refused("whsec_AAAA"), BadKey::Length(3));
        assert_eq!(refused(&of(23)), BadKey::Length(23));
        assert_eq!(refused(&of(65)), BadKey::Length(65));
        assert_eq!(refused("whsec_!!!!"), BadKey::Base64);
        assert_eq!(refused("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"), BadKey::Base64);
        assert_eq!(refused("whsec_-_ECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="), BadKey::Base64);
        assert_eq!(refused("v1,whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"), BadKey::Prefix);
        assert_eq!(refused("x"), BadKey::Prefix);
        assert_eq!(refused(""), BadKey::Prefix);
    }
}
