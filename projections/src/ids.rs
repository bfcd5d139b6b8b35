//! Names of things: 128-bit ids in Crockford base 32, log positions, and the caller's own event ids.
//!
//! Never knows how an id is drawn, nor what it points at.

use alloc::boxed::Box;
use core::fmt;
use core::str::FromStr;

use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The alphabet of Crockford's base 32: no I, L, O or U, so that an id read aloud is read right.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// Characters of a 128-bit number in base 32, read as one number (so the first is at most `7`).
pub const ID_CHARS: usize = 26;

/// Writes 128 bits as 26 upper-case Crockford characters, most significant first.
pub fn encode_base32(mut value: u128) -> [u8; ID_CHARS] {
    let mut out = [b'0'; ID_CHARS];
    for slot in out.iter_mut().rev() {
        *slot = ALPHABET[(value & 31) as usize];
        value >>= 5;
    }
    out
}

/// Reads 26 Crockford characters of either case. `None` for another length, another alphabet, or a number
/// that needs more than 128 bits.
pub fn decode_base32(text: &str) -> Option<u128> {
    let bytes = text.as_bytes();
    if bytes.len() != ID_CHARS || bytes[0] > b'7' {
        return None;
    }
    bytes.iter().try_fold(0u128, |value, byte| {
        let digit = ALPHABET.iter().position(|c| *c == byte.to_ascii_uppercase())?;
        Some((value << 5) | digit as u128)
    })
}

/// A text that is not an id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not {article} id: expected `{prefix}` and 26 base-32 characters")]
pub struct BadId {
    prefix: &'static str,
    article: &'static str,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $article:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u128);

        impl $name {
            /// What the text form starts with.
            pub const PREFIX: &'static str = $prefix;
            /// The 16 bytes of a key, most significant first.
            pub fn to_bytes(self) -> [u8; 16] {
                self.0.to_be_bytes()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($prefix)?;
                for byte in encode_base32(self.0) {
                    fmt::Write::write_char(f, byte as char)?;
                }
                Ok(())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                text.strip_prefix($prefix)
                    .and_then(decode_base32)
                    .map($name)
                    .ok_or(BadId { prefix: $prefix, article: $article })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() {
                    serializer.collect_str(self)
                } else {
                    serializer.serialize_bytes(&self.to_bytes())
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if deserializer.is_human_readable() {
                    let text = <alloc::string::String as Deserialize>::deserialize(deserializer)?;
                    text.parse().map_err(D::Error::custom)
                } else {
                    deserializer.deserialize_bytes(Sixteen).map($name)
                }
            }
        }
    };
}

struct Sixteen;

impl Visitor<'_> for Sixteen {
    type Value = u128;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the 16 bytes of an id")
    }
    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<u128, E> {
        let array: [u8; 16] = bytes.try_into().map_err(|_| E::invalid_length(bytes.len(), &self))?;
        Ok(u128::from_be_bytes(array))
    }
}

id!(
    /// A customer of the product that sends webhooks.
    AccountId, "acct_", "an account"
);
id!(
    /// A URL of an account.
    EndpointId, "ep_", "an endpoint"
);
id!(
    /// The public name of one event on its way to one endpoint. Made from a log position by the rim
    /// (`hooklog::ids`); nothing in this crate knows how.
    DeliveryId, "dlv_", "a delivery"
);
id!(
    /// The store that a log belongs to. Drawn once, at its first entry.
    StoreId, "st_", "a store"
);
id!(
    /// One bulk replay.
    ReplayId, "rpl_", "a replay"
);
id!(
    /// One signing key of an endpoint.
    KeyId, "key_", "a signing key"
);
id!(
    /// A key of the API.
    ApiKeyId, "ak_", "an API key"
);
id!(
    /// A one-time link to an account's pages.
    PortalLinkId, "pl_", "a portal link"
);

id!(
    /// The right of one worker to one attempt of a queue's delivery, and the proof of it. Made from the position
    /// of the `Attempted` by the rim (`hooklog::ids`): a later attempt has another one.
    LeaseId, "lease_", "a lease"
);

id!(
    /// The public name of one attempt. Made from the position of its `Attempted` by the rim (`hooklog::ids`).
    AttemptId, "att_", "an attempt"
);

/// The longest event id, in characters. Rule W1 of Standard Webhooks as we read it: no full stop.
pub const EVENT_ID_CHARS_MAX: usize = 64;

/// The name of an event within its account: `evt_` and 26 characters if we drew it, or whatever the caller
/// brought, `[A-Za-z0-9_~-]{1,64}`. It is the idempotency key and the `webhook-id` of every request.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct EventId(Box<str>);

/// A text that cannot be an event id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an event id is 1 to 64 characters of A-Z, a-z, 0-9, `_`, `~` and `-`")]
pub struct BadEventId;

impl EventId {
    /// The event id that stands for a drawn number.
    pub fn drawn(value: u128) -> Self {
        let digits = encode_base32(value);
        let digits = core::str::from_utf8(&digits).expect("the alphabet is ASCII");
        EventId(alloc::format!("evt_{digits}").into_boxed_str())
    }

    /// The text, as sent in `webhook-id` and `Idempotency-Key`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for EventId {
    type Err = BadEventId;
    fn from_str(text: &str) -> Result<Self, BadEventId> {
        let fits = (1..=EVENT_ID_CHARS_MAX).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'~' | b'-'));
        if fits { Ok(EventId(text.into())) } else { Err(BadEventId) }
    }
}

impl<'de> Deserialize<'de> for EventId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <alloc::string::String as Deserialize>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A position in the log: dense, from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// The position after this one.
    pub fn next(self) -> Seq {
        Seq(self.0 + 1)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An endpoint with the account that owns it: no key of a customer's data lacks its account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EndpointKey {
    /// The owner.
    pub account: AccountId,
    /// The endpoint.
    pub endpoint: EndpointId,
}

/// A delivery with the account that owns it. `seq` is the position of the `Enqueued` that began it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeliveryKey {
    /// The owner.
    pub account: AccountId,
    /// Where the log enqueued it.
    pub seq: Seq,
}
