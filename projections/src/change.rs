//! Where the facts about accounts and endpoints stand, so that what was set at an earlier moment is found by
//! walking back from it.
//!
//! A row for each fact that a person, or a receiver's 410, caused, and for each message to an owner; never one for
//! a delivery. What was set stands in the facts themselves. Never knows which moment is asked for.

use serde::{Deserialize, Serialize};

use crate::account::Endpoints;
use crate::fact::{Entry, Fact};
use crate::ids::{AccountId, EndpointId, EndpointKey, Seq};
use crate::tables::{Table, Tables};

/// The facts about each account and endpoint, by position.
pub struct Changes;

/// Where a fact stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangeKey {
    /// Whose.
    pub account: AccountId,
    /// Of which endpoint; `None`: of the account itself.
    pub endpoint: Option<EndpointId>,
    /// Where.
    pub seq: Seq,
}

/// What kind of fact stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Change {
    /// All settings as they were from then on; of an endpoint, with its version.
    Settings(u32),
    /// Paused, disabled, resumed or removed.
    Hold,
    /// A message to the owner was begun, or ended.
    Told,
    /// Keys or a secret of its own were replaced.
    Keys,
}

impl Table for Changes {
    const NAME: &'static str = "changes";
    type Key = ChangeKey;
    type Value = Change;
}

/// Folds the facts about accounts and endpoints; after [`account::fold`](crate::account::fold), whose version of an
/// endpoint it takes over.
pub fn fold<T: Tables>(tables: &mut T, entry: &Entry) -> Result<(), T::Error> {
    let of = |key: &EndpointKey| (key.account, Some(key.endpoint));
    let ((account, endpoint), change) = match &entry.fact {
        Fact::AccountCreated { account, .. } | Fact::AccountChanged { account, .. } => {
            ((*account, None), Change::Settings(0))
        }
        Fact::EndpointCreated { key, .. } | Fact::EndpointChanged { key, .. } => {
            let version = tables.get::<Endpoints>(key)?.map_or(0, |row| row.version);
            (of(key), Change::Settings(version))
        }
        Fact::EndpointPaused { key, .. }
        | Fact::EndpointDisabled { key, .. }
        | Fact::EndpointRemoved { key, .. }
        | Fact::EndpointResumed { key } => (of(key), Change::Hold),
        Fact::SigningKeysChanged { key, .. } | Fact::EndpointSecretChanged { key, .. } => {
            (of(key), Change::Keys)
        }
        Fact::TellingBegan { key } | Fact::OwnerTold { key, .. } => (of(key), Change::Told),
        _ => return Ok(()),
    };
    tables.put::<Changes>(&ChangeKey { account, endpoint, seq: entry.seq }, &change)
}
