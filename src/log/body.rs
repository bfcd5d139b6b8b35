//! Bytes that lie beside the log: event bodies and kept responses. A leading byte says how they are stored
//! (plain, for now), then the salt of their hash, then they themselves.
//!
//! Never knows what they hold, nor checks their hash: the fact that names it knows.

use bytes::Bytes;
use hooklog_projections::ids::Seq;
use sha2::{Digest, Sha256};

use super::Error;

const PLAIN: u8 = 0;
const SALT_BYTES: usize = 16;

/// Which body: of which entry, in which role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BodySlot {
    /// What is sent, under the entry that accepted it.
    Event(Seq),
    /// What came back, under the entry that says so.
    Response(Seq),
}

/// A body with the salt of its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// Drawn for this body alone.
    pub salt: [u8; SALT_BYTES],
    /// The body.
    pub bytes: Bytes,
}

impl BodySlot {
    /// The entry it belongs to.
    pub fn seq(self) -> Seq {
        match self {
            BodySlot::Event(seq) | BodySlot::Response(seq) => seq,
        }
    }

    /// Its key: seq (BE) ‖ 0 for an event, 1 for a response.
    pub fn key(self) -> [u8; 9] {
        let mut key = [0; 9];
        key[..8].copy_from_slice(&self.seq().0.to_be_bytes());
        key[8] = match self {
            BodySlot::Event(_) => 0,
            BodySlot::Response(_) => 1,
        };
        key
    }
}

impl Body {
    /// SHA-256 over salt ‖ bytes: what the fact says of it.
    pub fn hash(&self) -> [u8; 32] {
        Sha256::new().chain_update(self.salt).chain_update(&self.bytes).finalize().into()
    }

    /// As stored.
    pub fn encode(&self) -> Bytes {
        let mut out = Vec::with_capacity(1 + SALT_BYTES + self.bytes.len());
        out.push(PLAIN);
        out.extend(self.salt);
        out.extend(&self.bytes);
        out.into()
    }

    /// Reads what [`Body::encode`] wrote.
    ///
    /// # Errors
    /// [`Error::NewerFormat`] for another way of storing, [`Error::BadValue`] if it is too short.
    pub fn decode(stored: &Bytes) -> Result<Body, Error> {
        match stored.first() {
            Some(&PLAIN) if stored.len() > SALT_BYTES => Ok(Body {
                salt: stored[1..=SALT_BYTES].try_into().expect("16 bytes"),
                bytes: stored.slice(1 + SALT_BYTES..),
            }),
            None | Some(&PLAIN) => Err(Error::BadValue("a stored body is too short".into())),
            Some(&found) => {
                Err(Error::NewerFormat { what: "stored body", found: found.into(), known: PLAIN.into() })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_read_as_it_was_stored() {
        for bytes in [&b""[..], b"{}", &[0; 1000]] {
            let body = Body { salt: [7; 16], bytes: Bytes::copy_from_slice(bytes) };
            assert_eq!(Body::decode(&body.encode()).unwrap(), body);
        }
        let stored = Body { salt: [7; 16], bytes: Bytes::from_static(b"ab") }.encode();
        assert_eq!(&stored[..], [&[0][..], &[7; 16], b"ab"].concat());
    }

    #[test]
    fn the_hash_covers_salt_and_bytes() {
        let body = Body { salt: *b"0123456789abcdef", bytes: Bytes::from_static(b"xyz") };
        assert_eq!(body.hash(), <[u8; 32]>::from(Sha256::digest(b"0123456789abcdefxyz")));
    }

    #[test]
    fn other_ways_of_storing_are_named() {
        let newer = Body::decode(&Bytes::from_static(&[1; 40]));
        assert!(matches!(newer, Err(Error::NewerFormat { found: 1, known: 0, .. })));
        for short in [&[][..], &[0; 16]] {
            assert!(matches!(Body::decode(&Bytes::copy_from_slice(short)), Err(Error::BadValue(_))));
        }
    }

    #[test]
    fn keys_sort_by_entry_then_kind() {
        assert!(BodySlot::Event(Seq(1)).key() < BodySlot::Response(Seq(1)).key());
        assert!(BodySlot::Response(Seq(1)).key() < BodySlot::Event(Seq(256)).key());
    }
}
