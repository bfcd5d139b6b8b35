//! Who may ask: the keys of the API and the one-time links of the portal, as they are now.
//!
//! Holds hashes only. Never knows a secret, who uses a key, or what a role may do.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::fact::{Entry, Fact};
use crate::ids::{AccountId, ApiKeyId, PortalLinkId};
use crate::policy::Text;
use crate::tables::{Table, Tables};
use crate::time::Timestamp;

/// What the holder of a credential is to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Everything.
    Operator,
    /// Looks at all accounts, sends again, holds and lets go, makes links; changes no settings, sees no secret.
    Support,
    /// Everything about its own account but what only an operator decides.
    Account,
    /// Looks at its own account.
    AccountRead,
    /// Hands events in, and nothing else: for one account, or for all.
    Ingest,
}

impl Role {
    /// All of them.
    pub const ALL: [Role; 5] =
        [Role::Operator, Role::Support, Role::Account, Role::AccountRead, Role::Ingest];

    /// The word for it, in the API and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Operator => "operator",
            Role::Support => "support",
            Role::Account => "account",
            Role::AccountRead => "account_read",
            Role::Ingest => "ingest",
        }
    }
}

/// SHA-256 of a secret of 32 drawn bytes: nothing to guess, so no slow hash is needed.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretHash(#[serde(with = "crate::fact::bytes_as_array")] pub [u8; 32]);

impl core::fmt::Debug for SecretHash {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("[hash]")
    }
}

/// Every key of the API by its id, revoked ones too.
pub struct ApiKeys;

/// A key of the API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApiKey {
    /// What it may do.
    pub role: Role,
    /// The only account it reaches; all of them if absent.
    pub account: Option<AccountId>,
    /// For people.
    pub label: Text,
    /// The hash of its secret.
    pub hash: SecretHash,
    /// The hash of the secret before that, while both are taken, and until when.
    pub older: Option<(SecretHash, Timestamp)>,
    /// When it was made.
    pub created_at: Timestamp,
    /// Taken no more from then on.
    pub expires_at: Option<Timestamp>,
    /// Since when it is not taken any more.
    pub revoked_at: Option<Timestamp>,
}

/// Every link of the portal that was not used yet, by its id.
pub struct PortalLinks;

/// A link of the portal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortalLink {
    /// Whose page it opens.
    pub account: AccountId,
    /// What its session may do: [`Role::Account`] or [`Role::AccountRead`].
    pub role: Role,
    /// The hash of its secret.
    pub hash: SecretHash,
    /// When it was made.
    pub created_at: Timestamp,
    /// Of no use from then on.
    pub expires_at: Timestamp,
    /// Where the pages lead back to.
    pub return_url: Option<Text>,
}

impl Table for ApiKeys {
    const NAME: &'static str = "api-keys";
    type Key = ApiKeyId;
    type Value = ApiKey;
}

impl Table for PortalLinks {
    const NAME: &'static str = "portal-links";
    type Key = PortalLinkId;
    type Value = PortalLink;
}

/// Folds the facts of keys and links.
pub fn fold<T: Tables>(tables: &mut T, entry: &Entry) -> Result<(), T::Error> {
    match &entry.fact {
        Fact::ApiKeyCreated { key, role, account, hash, label, expires_at } => tables.put::<ApiKeys>(
            key,
            &ApiKey {
                role: *role,
                account: *account,
                label: label.clone(),
                hash: *hash,
                older: None,
                created_at: entry.at,
                expires_at: *expires_at,
                revoked_at: None,
            },
        ),
        Fact::ApiKeyRotated { key, hash, older_until, .. } => match tables.get::<ApiKeys>(key)? {
            Some(row) => {
                let older = older_until.map(|until| (row.hash, until));
                tables.put::<ApiKeys>(key, &ApiKey { hash: *hash, older, ..row })
            }
            None => Ok(()),
        },
        Fact::ApiKeyRevoked { key, .. } => match tables.get::<ApiKeys>(key)? {
            Some(row) => tables.put::<ApiKeys>(key, &ApiKey { revoked_at: Some(entry.at), ..row }),
            None => Ok(()),
        },
        Fact::PortalLinkCreated { link, account, role, hash, expires_at, return_url } => tables
            .put::<PortalLinks>(
                link,
                &PortalLink {
                    account: *account,
                    role: *role,
                    hash: *hash,
                    created_at: entry.at,
                    expires_at: *expires_at,
                    return_url: return_url.clone(),
                },
            ),
        Fact::PortalLinkUsed { link, .. } => tables.delete::<PortalLinks>(link),
        _ => Ok(()),
    }
}

impl ApiKey {
    /// Whether it is taken at a moment at all.
    pub fn lives(&self, now: Timestamp) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|end| now < end)
    }

    /// The hashes of the secrets that are taken at a moment, newest first.
    pub fn live_hashes(&self, now: Timestamp) -> Vec<SecretHash> {
        let older = self.older.filter(|(_, until)| now < *until).map(|(hash, _)| hash);
        if self.lives(now) { [self.hash].into_iter().chain(older).collect() } else { Vec::new() }
    }
}
