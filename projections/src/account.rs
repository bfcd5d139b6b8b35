//! The accounts and endpoints as they are now. Never knows what was sent to them.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::fact::{AccountSettings, DisabledReason, EndpointSettings, Entry, Fact, Sealed, SigningKey};
use crate::ids::{AccountId, EndpointKey};
use crate::policy::Text;
use crate::tables::{Table, Tables};
use crate::time::Timestamp;

/// Every account by its id.
pub struct Accounts;

/// Every endpoint by account and id.
pub struct Endpoints;

/// Every worker queue by its name: the endpoint that it is.
pub struct Queues;

/// An account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Its settings.
    pub settings: AccountSettings,
    /// Signs `X-Ledger-Signature`.
    pub secret: Sealed,
    /// When it was made.
    pub created_at: Timestamp,
}

/// An endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// Its settings.
    pub settings: EndpointSettings,
    /// Its live signing keys, newest first.
    pub signing: Vec<SigningKey>,
    /// From 1; up by one with each change.
    pub version: u32,
    /// Why nothing is sent to it, if so.
    pub hold: Option<Hold>,
    /// When it was made.
    pub created_at: Timestamp,
    /// Signs `X-Ledger-Signature` in place of the account's.
    #[serde(default)]
    pub secret: Option<Sealed>,
}

impl Endpoint {
    /// Whether it subscribed to a type and is there to be sent to: `payment.settled`, `payment.*`, `*`.
    pub fn wants(&self, event_type: &str) -> bool {
        let wants = |wanted: &Text| match wanted.strip_suffix('*') {
            Some(prefix) => event_type.starts_with(prefix),
            None => &**wanted == event_type,
        };
        !self.removed() && self.settings.event_types.iter().any(wants)
    }

    /// Whether it was removed.
    pub fn removed(&self) -> bool {
        matches!(self.hold, Some(Hold::Removed { .. }))
    }

    /// The keys that sign at a moment, newest first.
    pub fn live_keys(&self, now: Timestamp) -> Vec<SigningKey> {
        let live = |key: &&SigningKey| key.expires_at.is_none_or(|end| now < end);
        self.signing.iter().filter(live).cloned().collect()
    }
}

/// Why an endpoint's deliveries are held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hold {
    /// A person paused it.
    Paused {
        /// As the person put it.
        reason: Text,
        /// Since when.
        at: Timestamp,
    },
    /// It was disabled.
    Disabled {
        /// Why.
        reason: DisabledReason,
        /// Since when.
        at: Timestamp,
    },
    /// It was removed: for good, and nothing changes it any more.
    Removed {
        /// As the person put it.
        reason: Text,
        /// Since when.
        at: Timestamp,
    },
}

impl Table for Accounts {
    const NAME: &'static str = "accounts";
    type Key = AccountId;
    type Value = Account;
}

impl Table for Endpoints {
    const NAME: &'static str = "endpoints";
    type Key = EndpointKey;
    type Value = Endpoint;
}

impl Table for Queues {
    const NAME: &'static str = "queues";
    type Key = Text;
    type Value = EndpointKey;
}

/// Folds the facts of accounts and endpoints.
pub fn fold<T: Tables>(tables: &mut T, entry: &Entry) -> Result<(), T::Error> {
    match &entry.fact {
        Fact::AccountCreated { account, settings, secret } => tables.put::<Accounts>(
            account,
            &Account { settings: settings.clone(), secret: secret.clone(), created_at: entry.at },
        ),
        Fact::AccountChanged { account, settings } => match tables.get::<Accounts>(account)? {
            Some(row) => tables.put::<Accounts>(account, &Account { settings: settings.clone(), ..row }),
            None => Ok(()),
        },
        Fact::AccountSecretChanged { account, secret } => match tables.get::<Accounts>(account)? {
            Some(row) => tables.put::<Accounts>(account, &Account { secret: secret.clone(), ..row }),
            None => Ok(()),
        },
        Fact::EndpointCreated { key, settings, signing } => {
            if let Some(queue) = &settings.queue {
                tables.put::<Queues>(queue, key)?;
            }
            let row = Endpoint {
                settings: settings.clone(),
                signing: signing.clone(),
                version: 1,
                hold: None,
                created_at: entry.at,
                secret: None,
            };
            tables.put::<Endpoints>(key, &row)
        }
        Fact::EndpointChanged { key, settings, signing } => change(tables, key, |row| {
            row.settings = settings.clone();
            row.signing = signing.clone();
            row.version += 1;
        }),
        Fact::SigningKeysChanged { key, signing } => change(tables, key, |row| row.signing = signing.clone()),
        Fact::EndpointSecretChanged { key, secret } => change(tables, key, |row| row.secret = secret.clone()),
        Fact::EndpointPaused { key, reason } => change(tables, key, |row| {
            row.hold = Some(Hold::Paused { reason: reason.clone(), at: entry.at });
        }),
        Fact::EndpointDisabled { key, reason } => change(tables, key, |row| {
            row.hold = Some(Hold::Disabled { reason: reason.clone(), at: entry.at });
        }),
        Fact::EndpointRemoved { key, reason } => {
            let mut queue = None;
            change(tables, key, |row| {
                row.hold = Some(Hold::Removed { reason: reason.clone(), at: entry.at });
                queue = row.settings.queue.clone();
            })?;
            // Its name is free again.
            queue.map_or(Ok(()), |queue| tables.delete::<Queues>(&queue))
        }
        Fact::EndpointResumed { key } => change(tables, key, |row| row.hold = None),
        _ => Ok(()),
    }
}

fn change<T: Tables>(
    tables: &mut T,
    key: &EndpointKey,
    edit: impl FnOnce(&mut Endpoint),
) -> Result<(), T::Error> {
    match tables.get::<Endpoints>(key)? {
        Some(mut row) => {
            edit(&mut row);
            tables.put::<Endpoints>(key, &row)
        }
        None => Ok(()),
    }
}
