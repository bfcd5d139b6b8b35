//! The master key, and the sealing of every secret that enters the log.
//!
//! Never knows what a secret is for beyond its [`Purpose`], never draws a random number (keys and nonces
//! come in as arguments), and never writes a plain secret anywhere but into the master key's own file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use hooklog_projections::fact::Sealed;
use hooklog_projections::ids::{AccountId, EndpointId, KeyId, StoreId};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// Bytes of a master key.
pub const KEY_BYTES: usize = 32;

/// Bytes of a nonce. Long enough (XChaCha20) that a random one never repeats.
pub const NONCE_BYTES: usize = 24;

/// The only layout so far: version ‖ key id ‖ nonce ‖ ciphertext with its 16-byte tag.
const LAYOUT_V1: u8 = 1;
const KEY_ID_BYTES: usize = 8;
const TAG_BYTES: usize = 16;
const HEAD_BYTES: usize = 1 + KEY_ID_BYTES + NONCE_BYTES;

/// What a key file may be read up to: 44 characters and some white space; more is not a key file.
const KEY_FILE_BYTES_MAX: u64 = 256;

/// The key under which a store's secrets are sealed. One for each store; whoever holds it and the store can
/// sign in the name of every account. Its `Debug` shows nothing, and its memory is wiped when dropped.
pub struct MasterKey {
    bytes: Zeroizing<[u8; KEY_BYTES]>,
    id: [u8; KEY_ID_BYTES],
}

/// What a sealed secret is. It is authenticated with the ciphertext, so that one row's secret opens in no
/// other row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The key that turns log positions into public ids.
    StoreIdKey {
        /// Of which store.
        store: StoreId,
    },
    /// An account's webhook secret (`X-Ledger-Signature`).
    AccountSecret {
        /// Whose.
        account: AccountId,
    },
    /// An endpoint's own webhook secret, in place of its account's.
    EndpointSecret {
        /// Whose endpoint.
        account: AccountId,
        /// Which endpoint.
        endpoint: EndpointId,
    },
    /// A signing key of an endpoint (`webhook-signature`).
    SigningKey {
        /// Whose endpoint.
        account: AccountId,
        /// Which endpoint.
        endpoint: EndpointId,
        /// Which key.
        key: KeyId,
    },
    /// The kept answer to a request under an `Idempotency-Key`.
    Answer {
        /// Hash of who asked under which key.
        key: [u8; 32],
    },
}

/// Why there is no master key, or why it does not open something. No variant holds a secret.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is not there.
    #[error(
        "no master key at {}: put the store's key file back, or name the right one; a new key cannot read \
         an old store",
        .0.display()
    )]
    Missing(PathBuf),
    /// Others on this machine could read the key.
    #[error(
        "the master key {} is open to others (mode {mode:04o}): run `chmod 600 {}`, and replace the key if \
         someone may have read it",
        .path.display(), .path.display()
    )]
    OpenToOthers {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file holds something else. An empty one is left by a crash during the very first start.
    #[error(
        "{} is not a master key ({why}): restore it from a backup; if no store was ever made with it, delete \
         it and start again",
        .path.display()
    )]
    BadFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The text given instead of a file is not a key.
    #[error("not a master key: expected the base64 of 32 bytes (44 characters, `openssl rand -base64 32`)")]
    BadText,
    /// The file cannot be read or written.
    #[error("cannot {doing} the master key {}: {source}", .path.display())]
    Io {
        /// `create` or `read`.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// As the system put it.
        source: io::Error,
    },
    /// The secret was sealed under another key.
    #[error(
        "sealed under master key {}, but this is {}: start with the key that made this store",
        hex(.sealed_under), hex(.ours)
    )]
    WrongMasterKey {
        /// The id of the key that opens it.
        sealed_under: [u8; 8],
        /// The id of the key that was tried.
        ours: [u8; 8],
    },
    /// Bytes were changed, cut, or moved here from another row.
    #[error(
        "a sealed secret is damaged or not in its own place: restore the store from a backup and verify it"
    )]
    Damaged,
    /// A later release sealed it.
    #[error("a secret is sealed in layout {0}, which this release does not know: use a newer one")]
    UnknownLayout(u8),
}

impl MasterKey {
    /// The key in a file, made from `draw` if there is none. The file holds the base64 of 32 bytes and is
    /// created exclusively, with mode 0600, and synced before this returns. `draw` is called only then and
    /// must be the operating system's generator.
    ///
    /// # Errors
    /// Whatever [`load`](Self::load) says but `Missing`; `Io` if the file cannot be made.
    pub fn load_or_create(
        path: &Path,
        draw: impl FnOnce() -> Zeroizing<[u8; KEY_BYTES]>,
    ) -> Result<Self, Error> {
        let io = |source| Error::Io { doing: "create", path: path.to_owned(), source };
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
            Ok(mut file) => {
                let key = Self::from_bytes(draw());
                let mut text = Zeroizing::new(STANDARD.encode(*key.bytes));
                text.push('\n');
                file.write_all(text.as_bytes()).map_err(io)?;
                file.sync_all().map_err(io)?;
                let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
                File::open(folder).and_then(|folder| folder.sync_all()).map_err(io)?;
                Ok(key)
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Self::load(path),
            Err(e) => Err(io(e)),
        }
    }

    /// The key in a file. Never makes one.
    ///
    /// # Errors
    /// `Missing`; `OpenToOthers` if the group or others have any permission; `BadFile`; `Io`.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let io = |source| Error::Io { doing: "read", path: path.to_owned(), source };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(Error::Missing(path.to_owned())),
            Err(e) => return Err(io(e)),
        };
        let bad = |why| Error::BadFile { path: path.to_owned(), why };
        // Asked of the open file, not of the path: nobody can swap it in between.
        let about = file.metadata().map_err(io)?;
        if !about.is_file() {
            return Err(bad("it is not a file"));
        }
        let mode = about.permissions().mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(Error::OpenToOthers { path: path.to_owned(), mode });
        }
        let mut text = Zeroizing::new(String::with_capacity(KEY_FILE_BYTES_MAX as usize + 1));
        match file.take(KEY_FILE_BYTES_MAX + 1).read_to_string(&mut text) {
            Ok(_) if text.trim().is_empty() => return Err(bad("it is empty")),
            Ok(n) if n as u64 > KEY_FILE_BYTES_MAX => return Err(bad("it is too long")),
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::InvalidData => return Err(bad("it is not text")),
            Err(e) => return Err(io(e)),
        }
        Self::from_base64(&text).map_err(|_| bad("expected the base64 of 32 bytes"))
    }

    /// The key in a text, as an environment variable brings it. White space around it is ignored.
    ///
    /// # Errors
    /// `BadText`.
    pub fn from_base64(text: &str) -> Result<Self, Error> {
        let decoded = Zeroizing::new(STANDARD.decode(text.trim()).map_err(|_| Error::BadText)?);
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        if decoded.len() != KEY_BYTES {
            return Err(Error::BadText);
        }
        bytes.copy_from_slice(&decoded);
        Ok(Self::from_bytes(bytes))
    }

    /// A key from 32 random bytes.
    pub fn from_bytes(bytes: Zeroizing<[u8; KEY_BYTES]>) -> Self {
        let mut digest = Sha256::new();
        digest.update(b"hooklog/master-key-id/v1");
        digest.update(*bytes);
        let digest = digest.finalize();
        let mut id = [0; KEY_ID_BYTES];
        id.copy_from_slice(&digest[..KEY_ID_BYTES]);
        MasterKey { bytes, id }
    }

    /// What names this key without telling it: the first 8 bytes of SHA-256 over `hooklog/master-key-id/v1`
    /// and the key. It stands in every sealed secret.
    pub fn id(&self) -> [u8; 8] {
        self.id
    }

    /// A key of its own for one use (HMAC-SHA256 of `label` under this key): what authenticates things that
    /// leave the store, such as cursors, must never be the key that seals.
    pub fn derive(&self, label: &[u8]) -> Zeroizing<[u8; KEY_BYTES]> {
        use hmac::Mac as _;
        let mut mac = <hmac::Hmac<Sha256> as hmac::KeyInit>::new_from_slice(&self.bytes[..])
            .expect("any length will do");
        mac.update(label);
        Zeroizing::new(mac.finalize().into_bytes().into())
    }

    /// Seals a secret for one purpose: XChaCha20-Poly1305, laid out as version 1 ‖ 8 bytes of key id ‖ 24
    /// bytes of nonce ‖ ciphertext and tag. The nonce must be drawn anew for every call.
    pub fn seal(&self, purpose: &Purpose, plain: &[u8], nonce: [u8; NONCE_BYTES]) -> Sealed {
        let mut out = Vec::with_capacity(HEAD_BYTES + plain.len() + TAG_BYTES);
        out.push(LAYOUT_V1);
        out.extend_from_slice(&self.id);
        out.extend_from_slice(&nonce);
        let payload = Payload { msg: plain, aad: &purpose.associated_data() };
        let sealed = self.cipher().encrypt(&XNonce::from(nonce), payload);
        // The cipher's only error is a text of more than 256 GiB.
        out.extend_from_slice(&sealed.expect("a secret fits in memory many times over"));
        Sealed(out)
    }

    /// The plain secret, if it was sealed by this key for this purpose.
    ///
    /// # Errors
    /// `WrongMasterKey` if the key ids differ; `UnknownLayout`; `Damaged` for everything else.
    pub fn open(&self, purpose: &Purpose, sealed: &Sealed) -> Result<Zeroizing<Vec<u8>>, Error> {
        let bytes = &sealed.0;
        match bytes.first() {
            None => return Err(Error::Damaged),
            Some(&LAYOUT_V1) => {}
            Some(&other) => return Err(Error::UnknownLayout(other)),
        }
        if bytes.len() < HEAD_BYTES + TAG_BYTES {
            return Err(Error::Damaged);
        }
        let (head, text) = bytes.split_at(HEAD_BYTES);
        let mut sealed_under = [0; KEY_ID_BYTES];
        sealed_under.copy_from_slice(&head[1..1 + KEY_ID_BYTES]);
        if sealed_under != self.id {
            return Err(Error::WrongMasterKey { sealed_under, ours: self.id });
        }
        let mut nonce = [0; NONCE_BYTES];
        nonce.copy_from_slice(&head[1 + KEY_ID_BYTES..]);
        let payload = Payload { msg: text, aad: &purpose.associated_data() };
        let plain = self.cipher().decrypt(&XNonce::from(nonce), payload).map_err(|_| Error::Damaged)?;
        Ok(Zeroizing::new(plain))
    }

    /// Whether it was this key that sealed it, as far as its head says.
    pub fn has_sealed(&self, sealed: &Sealed) -> bool {
        sealed.0.first() == Some(&LAYOUT_V1) && sealed.0.get(1..1 + KEY_ID_BYTES) == Some(&self.id)
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new((&*self.bytes).into())
    }
}

impl std::fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("[redacted]")
    }
}

impl Purpose {
    /// A domain, one byte for the kind, and ids of 16 bytes each: no two purposes share an encoding.
    fn associated_data(&self) -> Vec<u8> {
        let mut out = b"hooklog/seal/v1".to_vec();
        match self {
            Purpose::StoreIdKey { store } => {
                out.push(1);
                out.extend_from_slice(&store.to_bytes());
            }
            Purpose::AccountSecret { account } => {
                out.push(2);
                out.extend_from_slice(&account.to_bytes());
            }
            Purpose::SigningKey { account, endpoint, key } => {
                out.push(3);
                out.extend_from_slice(&account.to_bytes());
                out.extend_from_slice(&endpoint.to_bytes());
                out.extend_from_slice(&key.to_bytes());
            }
            Purpose::EndpointSecret { account, endpoint } => {
                out.push(4);
                out.extend_from_slice(&account.to_bytes());
                out.extend_from_slice(&endpoint.to_bytes());
            }
            Purpose::Answer { key } => {
                out.push(5);
                out.extend_from_slice(key);
            }
        }
        out
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(fill: u8) -> MasterKey {
        MasterKey::from_bytes(Zeroizing::new([fill; KEY_BYTES]))
    }

    fn purposes() -> Vec<Purpose> {
        let (account, endpoint) = (AccountId(1), EndpointId(1));
        vec![
            Purpose::StoreIdKey { store: StoreId(1) },
            Purpose::StoreIdKey { store: StoreId(2) },
            Purpose::AccountSecret { account },
            Purpose::AccountSecret { account: AccountId(2) },
            Purpose::EndpointSecret { account, endpoint },
            Purpose::EndpointSecret { account: AccountId(2), endpoint },
            Purpose::SigningKey { account, endpoint, key: KeyId(1) },
            Purpose::SigningKey { account, endpoint, key: KeyId(2) },
            Purpose::SigningKey { account, endpoint: EndpointId(2), key: KeyId(1) },
            Purpose::SigningKey { account: AccountId(2), endpoint, key: KeyId(1) },
        ]
    }

    #[test]
    fn a_secret_opens_only_for_its_own_purpose() {
        for (i, sealed_for) in purposes().iter().enumerate() {
            let sealed = key(7).seal(sealed_for, b"a secret", [9; NONCE_BYTES]);
            for (j, opened_for) in purposes().iter().enumerate() {
                match key(7).open(opened_for, &sealed) {
                    Ok(plain) => assert!(i == j && plain.as_slice() == b"a secret", "{i} opened as {j}"),
                    Err(Error::Damaged) => assert_ne!(i, j),
                    Err(e) => panic!("{e}"),
                }
            }
        }
    }

    #[test]
    fn the_layout_is_version_key_id_nonce_text() {
        let sealed = key(7).seal(&purposes()[0], b"plain", [9; NONCE_BYTES]).0;
        assert_eq!(sealed.len(), 1 + 8 + 24 + 5 + 16);
        assert_eq!(sealed[0], 1);
        assert_eq!(sealed[1..9], key(7).id());
        assert_eq!(sealed[9..33], [9; NONCE_BYTES]);
        assert!(!sealed.windows(5).any(|w| w == b"plain"));
        // Stores outlive releases: these bytes must open for ever.
        insta::assert_snapshot!(hex(&sealed), @"017e165b83563cd09e090909090909090909090909090909090909090909090909ce1e83e3127d8f39c147eae3e49327ff279d19f212");
    }

    #[test]
    fn every_changed_or_missing_byte_is_noticed() {
        let purpose = purposes()[2];
        let sealed = key(7).seal(&purpose, b"", [9; NONCE_BYTES]).0;
        for i in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[i] ^= 1;
            let error = key(7).open(&purpose, &Sealed(changed)).expect_err("changed");
            match i {
                0 => assert!(matches!(error, Error::UnknownLayout(0))),
                1..9 => assert!(matches!(error, Error::WrongMasterKey { .. })),
                _ => assert!(matches!(error, Error::Damaged)),
            }
            let cut = Sealed(sealed[..i].to_vec());
            assert!(matches!(key(7).open(&purpose, &cut), Err(Error::Damaged)), "cut at {i}");
        }
    }

    #[test]
    fn another_master_key_is_named_in_the_error() {
        let sealed = key(7).seal(&purposes()[0], b"x", [9; NONCE_BYTES]);
        let error = key(8).open(&purposes()[0], &sealed).expect_err("the wrong key");
        assert!(matches!(error, Error::WrongMasterKey { .. }));
        assert!(error.to_string().contains(&hex(&key(7).id())), "{error}");
    }

    #[test]
    fn a_key_file_is_made_once_and_only_for_its_owner() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("master.key");
        assert!(matches!(MasterKey::load(&path), Err(Error::Missing(_))));

        let made = MasterKey::load_or_create(&path, || Zeroizing::new([3; KEY_BYTES])).expect("made");
        assert_eq!(std::fs::metadata(&path).expect("there").permissions().mode() & 0o7777, 0o600);
        let again = MasterKey::load_or_create(&path, || panic!("there is one already")).expect("loaded");
        assert_eq!(made.id(), again.id());
        let text = std::fs::read_to_string(&path).expect("readable");
        assert_eq!(MasterKey::from_base64(&text).expect("a key").id(), made.id());

        for mode in [0o640, 0o604, 0o660, 0o601] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("changed");
            let error = MasterKey::load(&path).expect_err("open to others").to_string();
            assert!(error.contains("chmod 600"), "{error}");
        }
    }

    #[test]
    fn what_is_not_a_key_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("master.key");
        let short = STANDARD.encode([0; 31]);
        let long = STANDARD.encode([0; 33]);
        for text in ["", "\n", "hello", short.as_str(), long.as_str(), "\u{e9}", &"A".repeat(300)] {
            assert!(matches!(MasterKey::from_base64(text), Err(Error::BadText)), "{text:?}");
            std::fs::write(&path, text).expect("written");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("changed");
            assert!(matches!(MasterKey::load(&path), Err(Error::BadFile { .. })), "{text:?}");
        }
        std::fs::write(&path, [0xff, 0xfe]).expect("written");
        assert!(matches!(MasterKey::load(&path), Err(Error::BadFile { why: "it is not text", .. })));
        let error = MasterKey::load(folder.path()).expect_err("a folder is no key");
        assert!(matches!(error, Error::BadFile { why: "it is not a file", .. }));
    }

    #[test]
    fn a_key_shows_nothing_of_itself() {
        assert_eq!(format!("{:?}", key(7)), "[redacted]");
    }
}
