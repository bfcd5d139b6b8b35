//! What was administered, by whom: the positions of such facts, for the whole store and for each account.
//!
//! Written only by facts that a person or an operator's program causes about settings, secrets and access, and
//! by what disables an endpoint; never by the facts of a delivery.

use alloc::vec::Vec;

use crate::fact::{Entry, Fact};
use crate::ids::{AccountId, Seq};
use crate::tables::{Key, Table, Tables};

/// Every administrative fact, under the whole store, and under its account if it is of one.
pub struct Audit;

/// Where an administrative fact stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuditKey {
    /// Of which account; the whole store's list if absent.
    pub account: Option<AccountId>,
    /// Its entry.
    pub seq: Seq,
}

/// No account is drawn as zero: its bytes stand for the whole store.
impl Key for AuditKey {
    fn write(&self, out: &mut Vec<u8>) {
        self.account.unwrap_or(AccountId(0)).write(out);
        out.extend(self.seq.0.to_be_bytes());
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        let (account, rest) = bytes.split_first_chunk::<16>()?;
        let account = Some(AccountId(u128::from_be_bytes(*account))).filter(|id| id.0 != 0);
        Some(AuditKey { account, seq: Seq(u64::from_be_bytes(rest.try_into().ok()?)) })
    }
}

impl Table for Audit {
    const NAME: &'static str = "audit";
    type Key = AuditKey;
    type Value = ();
}

/// The account that an administrative fact is of; `None` if the fact is not administrative.
pub fn scope(fact: &Fact) -> Option<Option<AccountId>> {
    match fact {
        Fact::ResealBegan { .. } | Fact::Resealed { .. } => Some(None),
        Fact::AccountCreated { account, .. }
        | Fact::AccountChanged { account, .. }
        | Fact::AccountSecretChanged { account, .. }
        | Fact::BulkReplayStarted { account, .. }
        | Fact::BulkReplayCancelled { account, .. }
        | Fact::PortalLinkCreated { account, .. }
        | Fact::PortalLinkUsed { account, .. }
        | Fact::SecretRevealed { account, .. } => Some(Some(*account)),
        Fact::EndpointCreated { key, .. }
        | Fact::EndpointChanged { key, .. }
        | Fact::EndpointPaused { key, .. }
        | Fact::EndpointDisabled { key, .. }
        | Fact::EndpointRemoved { key, .. }
        | Fact::EndpointResumed { key }
        | Fact::SigningKeysChanged { key, .. }
        | Fact::EndpointSecretChanged { key, .. } => Some(Some(key.account)),
        Fact::ApiKeyCreated { account, .. }
        | Fact::ApiKeyRotated { account, .. }
        | Fact::ApiKeyRevoked { account, .. } => Some(*account),
        // The founding is nobody's wish, and folded before there is a table.
        Fact::Founded { .. }
        | Fact::EndpointGated { .. }
        | Fact::Accepted { .. }
        | Fact::Enqueued { .. }
        | Fact::Attempted { .. }
        | Fact::Delivered { .. }
        | Fact::Failed { .. }
        | Fact::Rescheduled { .. }
        | Fact::Dead { .. }
        | Fact::Replayed { .. }
        | Fact::Cancelled { .. }
        | Fact::BulkReplayAdvanced { .. }
        | Fact::BulkReplayEnded { .. }
        | Fact::RequestTaken { .. }
        | Fact::RequestEnded { .. }
        | Fact::TellingBegan { .. }
        | Fact::EndpointKeptFailing { .. }
        | Fact::OwnerTold { .. } => None,
    }
}

/// Folds administrative facts.
pub fn fold<T: Tables>(tables: &mut T, entry: &Entry) -> Result<(), T::Error> {
    let Some(account) = scope(&entry.fact) else { return Ok(()) };
    tables.put::<Audit>(&AuditKey { account: None, seq: entry.seq }, &())?;
    match account {
        Some(_) => tables.put::<Audit>(&AuditKey { account, seq: entry.seq }, &()),
        None => Ok(()),
    }
}
