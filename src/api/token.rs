//! The text of a credential: what it is, its id, its secret, and a checksum that tells a slip of the pen, and a
//! leak found by a scanner, without asking anybody.
//!
//! `hl_<kind>_<26 characters of the id>_<43 characters of secret><6 characters of CRC-32>`: the kinds are `op`,
//! `sup`, `acc`, `ro`, `ing` (keys) and `link`. The secret is base64url of 32 drawn bytes; the checksum is over
//! all before it, in base 62. Never knows which credentials there are.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hooklog_projections::access::{Role, SecretHash};
use hooklog_projections::ids::{decode_base32, encode_base32};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::clock::{Chance, SystemChance};

/// What every credential begins with.
pub const PREFIX: &str = "hl_";
const ID_CHARS: usize = 26;
const SECRET_CHARS: usize = 43;
const CHECKSUM_CHARS: usize = 6;
const BASE62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// What a credential is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A key of a role.
    Key(Role),
    /// A link of the portal.
    Link,
}

/// A credential as it was read: well formed, which is all that is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// What it says it is.
    pub kind: Kind,
    /// Its id.
    pub id: u128,
    /// The hash of its secret.
    pub hash: SecretHash,
}

impl Kind {
    const ALL: [Kind; 6] = [
        Kind::Key(Role::Operator),
        Kind::Key(Role::Support),
        Kind::Key(Role::Account),
        Kind::Key(Role::AccountRead),
        Kind::Key(Role::Ingest),
        Kind::Link,
    ];

    fn word(self) -> &'static str {
        match self {
            Kind::Key(Role::Operator) => "op",
            Kind::Key(Role::Support) => "sup",
            Kind::Key(Role::Account) => "acc",
            Kind::Key(Role::AccountRead) => "ro",
            Kind::Key(Role::Ingest) => "ing",
            Kind::Link => "link",
        }
    }
}

/// A new credential of an id: its text, to be shown once, and the hash to be kept.
pub fn mint(kind: Kind, id: u128) -> (Zeroizing<String>, SecretHash) {
    let secret = drawn_secret();
    let id = encode_base32(id);
    let id = std::str::from_utf8(&id).expect("the alphabet is ASCII");
    let mut text = Zeroizing::new(format!("{PREFIX}{}_{id}_{}", kind.word(), *secret));
    let checksum = checksum(text.as_bytes());
    text.push_str(std::str::from_utf8(&checksum).expect("the alphabet is ASCII"));
    (text, hash(&secret))
}

/// 32 bytes of the operating system's chance, as 43 characters.
pub fn drawn_secret() -> Zeroizing<String> {
    let bytes = Zeroizing::new(SystemChance.bytes::<32>());
    Zeroizing::new(URL_SAFE_NO_PAD.encode(&bytes[..]))
}

/// What is kept of a secret.
pub fn hash(secret: &str) -> SecretHash {
    SecretHash(Sha256::digest(secret).into())
}

/// Whether two hashes are the same; takes as long for a near miss as for a far one.
pub fn same(a: &SecretHash, b: &SecretHash) -> bool {
    a.0.ct_eq(&b.0).into()
}

/// Reads a credential; `None` for any text that was never minted.
pub fn read(text: &str) -> Option<Token> {
    let (kind, rest) = text.strip_prefix(PREFIX)?.split_once('_')?;
    let kind = Kind::ALL.into_iter().find(|known| known.word() == kind)?;
    if !rest.is_ascii() || rest.len() != ID_CHARS + 1 + SECRET_CHARS + CHECKSUM_CHARS {
        return None;
    }
    let (id, rest) = rest.split_at(ID_CHARS);
    let (secret, sum) = rest.strip_prefix('_')?.split_at(SECRET_CHARS);
    let covered = &text[..text.len() - CHECKSUM_CHARS];
    if checksum(covered.as_bytes()) != sum.as_bytes() {
        return None;
    }
    Some(Token { kind, id: decode_base32(id)?, hash: hash(secret) })
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_CHARS] {
    let mut rest = crc32(bytes);
    let mut out = [0; CHECKSUM_CHARS];
    for digit in out.iter_mut().rev() {
        *digit = BASE62[(rest % 62) as usize];
        rest /= 62;
    }
    out
}

/// CRC-32 as in zip and PNG: a few dozen bytes, so bit by bit will do.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_minted_is_read_and_nothing_else_is() {
        for (n, kind) in Kind::ALL.into_iter().enumerate() {
            let (text, hash) = mint(kind, n as u128 + 7);
            assert_eq!(read(&text), Some(Token { kind, id: n as u128 + 7, hash }));
            for at in 0..text.len() {
                let mut other = text.as_bytes().to_vec();
                other[at] = if other[at] == b'A' { b'B' } else { b'A' };
                assert_eq!(read(std::str::from_utf8(&other).expect("ASCII")), None, "{at}");
                assert_eq!(read(&text[..at]), None, "{at}");
            }
            assert_eq!(read(&format!("{}A", *text)), None);
        }
        for text in ["", "hl_", "hl_op", "hl_op_", "Bearer", "hl_öp_x", "hl_op_é"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn the_checksum_is_the_common_one() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(&checksum(b"123456789"), b"3jZRME");
    }
}
