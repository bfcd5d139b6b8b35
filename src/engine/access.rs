//! Keys of the API, one-time links of the portal, and secrets shown again: who may ask from now on, on the
//! record. Never sees a secret; hashes are compared by whoever asks.

use hooklog_projections::access::{ApiKeys, PortalLinks, Role, SecretHash};
use hooklog_projections::fact::{Actor, Fact};
use hooklog_projections::ids::{AccountId, ApiKeyId, EndpointId, EndpointKey, PortalLinkId};
use hooklog_projections::policy::Text;
use hooklog_projections::tables::Tables;
use hooklog_projections::time::{Millis, Timestamp};

use super::command::{Answer, Rejection};
use super::{Decision, Engine};

/// A wish about who may ask.
#[derive(Clone, Debug)]
pub enum AccessCommand {
    /// Make a key of the API.
    CreateKey {
        /// Its id.
        key: ApiKeyId,
        /// What it may do.
        role: Role,
        /// The only account it reaches.
        account: Option<AccountId>,
        /// The hash of its secret.
        hash: SecretHash,
        /// For people.
        label: Text,
        /// Taken no more from then on.
        expires_at: Option<Timestamp>,
    },
    /// Give a key another secret; the one before is taken for a while longer.
    RotateKey {
        /// Which.
        key: ApiKeyId,
        /// The hash of the new secret.
        hash: SecretHash,
        /// How long the one before goes on; not at all if zero.
        overlap: Millis,
    },
    /// Take a key no more.
    RevokeKey {
        /// Which.
        key: ApiKeyId,
    },
    /// Make a link to an account's pages.
    CreateLink {
        /// Its id.
        link: PortalLinkId,
        /// Whose pages.
        account: AccountId,
        /// What its session may do.
        role: Role,
        /// The hash of its secret.
        hash: SecretHash,
        /// Of no use from then on.
        expires_at: Timestamp,
        /// Where the pages lead back to. Was judged before.
        return_url: Option<Text>,
    },
    /// Use a link up. Its secret was compared before.
    UseLink {
        /// Which.
        link: PortalLinkId,
    },
    /// Note that secrets are about to be shown.
    Reveal {
        /// Of which account.
        account: AccountId,
        /// Of which endpoint; the account's own if absent.
        endpoint: Option<EndpointId>,
        /// For people.
        reason: Text,
    },
}

impl Engine {
    pub(super) fn decide_access(&mut self, actor: Actor, command: AccessCommand) -> Decision<Answer> {
        match command {
            AccessCommand::CreateKey { key, role, account, hash, label, expires_at } => {
                if let Some(account) = account
                    && self.account(account)?.is_none()
                {
                    return Ok(Err(Rejection::UnknownAccount));
                }
                self.note(actor, Fact::ApiKeyCreated { key, role, account, hash, label, expires_at })
            }
            AccessCommand::RotateKey { key, hash, overlap } => {
                let Some(row) = self.rows.over(&**self.log.disk()).get::<ApiKeys>(&key)? else {
                    return Ok(Err(Rejection::UnknownApiKey));
                };
                if row.revoked_at.is_some() {
                    return Ok(Err(Rejection::KeyRevoked));
                }
                let older_until = (overlap > Millis(0)).then(|| self.now + overlap);
                self.note(actor, Fact::ApiKeyRotated { key, account: row.account, hash, older_until })
            }
            AccessCommand::RevokeKey { key } => {
                let Some(row) = self.rows.over(&**self.log.disk()).get::<ApiKeys>(&key)? else {
                    return Ok(Err(Rejection::UnknownApiKey));
                };
                if row.revoked_at.is_some() {
                    return Ok(Err(Rejection::KeyRevoked));
                }
                self.note(actor, Fact::ApiKeyRevoked { key, account: row.account })
            }
            AccessCommand::CreateLink { link, account, role, hash, expires_at, return_url } => {
                if self.account(account)?.is_none() {
                    return Ok(Err(Rejection::UnknownAccount));
                }
                let made = Fact::PortalLinkCreated { link, account, role, hash, expires_at, return_url };
                self.note(actor, made)
            }
            AccessCommand::UseLink { link } => {
                let row = self.rows.over(&**self.log.disk()).get::<PortalLinks>(&link)?;
                match row.filter(|row| self.now < row.expires_at) {
                    Some(row) => self.note(actor, Fact::PortalLinkUsed { link, account: row.account }),
                    None => Ok(Err(Rejection::LinkSpent)),
                }
            }
            AccessCommand::Reveal { account, endpoint, reason } => {
                let known = match endpoint {
                    Some(endpoint) => self.endpoint(EndpointKey { account, endpoint })?.is_some(),
                    None => self.account(account)?.is_some(),
                };
                if !known {
                    return Ok(Err(Rejection::UnknownAccount));
                }
                self.note(actor, Fact::SecretRevealed { account, endpoint, reason })
            }
        }
    }

    fn note(&mut self, actor: Actor, fact: Fact) -> Decision<Answer> {
        self.record(actor, fact)?;
        Ok(Ok(Answer::Done))
    }
}
