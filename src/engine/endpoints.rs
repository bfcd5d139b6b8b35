//! Accounts and endpoints: made, changed, held and let go.

use std::ops::Bound;

use hooklog_projections::account::{Hold, Queues};
use hooklog_projections::delivery::Due;
use hooklog_projections::fact::{
    AccountSettings, Actor, DisabledReason, EndpointSettings, Fact, Sealed, SigningKey,
};
use hooklog_projections::ids::{AccountId, DeliveryKey, EndpointKey, KeyId};
use hooklog_projections::policy::Text;
use hooklog_projections::tables::{Key, Tables};
use hooklog_projections::time::Millis;

use super::command::{Answer, LIVE_KEYS_MAX, Rejection};
use super::{Decision, Engine, Fatal, of};
use crate::log;

/// Deliveries to a removed endpoint that are looked up at a time.
const SWEPT_AT_ONCE: usize = 100;

impl Engine {
    pub(super) fn create_account(
        &mut self,
        actor: Actor,
        account: AccountId,
        settings: AccountSettings,
        secret: Sealed,
    ) -> Decision<Answer> {
        if self.account(account)?.is_some() {
            return Ok(Err(Rejection::AccountExists));
        }
        self.record(actor, Fact::AccountCreated { account, settings, secret })?;
        Ok(Ok(Answer::Done))
    }

    pub(super) fn change_account(
        &mut self,
        actor: Actor,
        account: AccountId,
        settings: AccountSettings,
    ) -> Decision<Answer> {
        if self.account(account)?.is_none() {
            return Ok(Err(Rejection::UnknownAccount));
        }
        self.record(actor, Fact::AccountChanged { account, settings })?;
        Ok(Ok(Answer::Done))
    }

    pub(super) fn change_account_secret(
        &mut self,
        actor: Actor,
        account: AccountId,
        secret: Sealed,
    ) -> Decision<Answer> {
        if self.account(account)?.is_none() {
            return Ok(Err(Rejection::UnknownAccount));
        }
        self.record(actor, Fact::AccountSecretChanged { account, secret })?;
        Ok(Ok(Answer::Done))
    }

    pub(super) fn create_endpoint(
        &mut self,
        actor: Actor,
        key: EndpointKey,
        settings: EndpointSettings,
        signing: Vec<SigningKey>,
        secret: Option<Sealed>,
    ) -> Decision<Answer> {
        let Some(account) = self.account(key.account)? else {
            return Ok(Err(Rejection::UnknownAccount));
        };
        let max = self.policy.endpoints_max;
        if account.endpoints.values().filter(|endpoint| !endpoint.removed()).count() >= max {
            return Ok(Err(Rejection::TooManyEndpoints { max }));
        }
        if let Some(name) = &settings.queue
            && self.rows.over(&**self.log.disk()).get::<Queues>(name)?.is_some()
        {
            return Ok(Err(Rejection::QueueExists { name: name.clone() }));
        }
        self.record(actor.clone(), Fact::EndpointCreated { key, settings, signing })?;
        if secret.is_some() {
            self.record(actor, Fact::EndpointSecretChanged { key, secret })?;
        }
        Ok(Ok(Answer::Endpoint { version: 1 }))
    }

    pub(super) fn change_endpoint(
        &mut self,
        actor: Actor,
        (key, version): (EndpointKey, u32),
        settings: EndpointSettings,
        new_key: Option<SigningKey>,
        secret: Option<Option<Sealed>>,
    ) -> Decision<Answer> {
        let Some(endpoint) = self.endpoint(key)? else {
            return Ok(Err(Rejection::UnknownEndpoint));
        };
        if endpoint.removed() {
            return Ok(Err(Rejection::Removed { endpoint: key.endpoint }));
        }
        if endpoint.version != version {
            return Ok(Err(Rejection::VersionConflict { version: endpoint.version }));
        }
        if endpoint.settings.queue != settings.queue {
            return Ok(Err(Rejection::QueueFixed));
        }
        let signing = new_key.map_or_else(|| endpoint.live_keys(self.now), |key| vec![key]);
        self.record(actor.clone(), Fact::EndpointChanged { key, settings, signing })?;
        if let Some(secret) = secret {
            self.record(actor, Fact::EndpointSecretChanged { key, secret })?;
        }
        self.relimit(key)?;
        Ok(Ok(Answer::Endpoint { version: version + 1 }))
    }

    pub(super) fn change_endpoint_secret(
        &mut self,
        actor: Actor,
        key: EndpointKey,
        secret: Option<Sealed>,
    ) -> Decision<Answer> {
        let Some(endpoint) = self.endpoint(key)? else {
            return Ok(Err(Rejection::UnknownEndpoint));
        };
        self.record(actor, Fact::EndpointSecretChanged { key, secret })?;
        Ok(Ok(Answer::Endpoint { version: endpoint.version }))
    }

    pub(super) fn rotate_signing_key(
        &mut self,
        actor: Actor,
        key: EndpointKey,
        new: SigningKey,
        overlap: Millis,
    ) -> Decision<Answer> {
        let Some(endpoint) = self.endpoint(key)? else {
            return Ok(Err(Rejection::UnknownEndpoint));
        };
        if endpoint.removed() {
            return Ok(Err(Rejection::Removed { endpoint: key.endpoint }));
        }
        let mut signing = vec![SigningKey { expires_at: None, ..new }];
        if overlap > Millis(0) {
            let end = self.now + overlap;
            let older = endpoint.live_keys(self.now).into_iter().take(LIVE_KEYS_MAX - 1);
            // A key that was to go earlier goes then: no rotation gives it more time.
            signing.extend(older.map(|key| SigningKey {
                expires_at: Some(key.expires_at.map_or(end, |sooner| sooner.min(end))),
                ..key
            }));
        }
        self.record(actor, Fact::SigningKeysChanged { key, signing })?;
        Ok(Ok(Answer::Endpoint { version: endpoint.version }))
    }

    pub(super) fn retire_signing_key(
        &mut self,
        actor: Actor,
        key: EndpointKey,
        id: KeyId,
    ) -> Decision<Answer> {
        let Some(endpoint) = self.endpoint(key)? else {
            return Ok(Err(Rejection::UnknownEndpoint));
        };
        if endpoint.removed() {
            return Ok(Err(Rejection::Removed { endpoint: key.endpoint }));
        }
        let mut signing = endpoint.live_keys(self.now);
        match signing.iter().position(|key| key.id == id) {
            None => return Ok(Err(Rejection::UnknownKey)),
            Some(0) => return Ok(Err(Rejection::NewestKey)),
            Some(at) => drop(signing.remove(at)),
        }
        self.record(actor, Fact::SigningKeysChanged { key, signing })?;
        Ok(Ok(Answer::Endpoint { version: endpoint.version }))
    }

    pub(super) fn pause_endpoint(
        &mut self,
        actor: Actor,
        key: EndpointKey,
        reason: Text,
    ) -> Decision<Answer> {
        self.hold(actor, key, Fact::EndpointPaused { key, reason })
    }

    pub(super) fn disable_endpoint(
        &mut self,
        actor: Actor,
        key: EndpointKey,
        reason: DisabledReason,
    ) -> Decision<Answer> {
        self.hold(actor, key, Fact::EndpointDisabled { key, reason })
    }

    fn hold(&mut self, actor: Actor, key: EndpointKey, fact: Fact) -> Decision<Answer> {
        let Some(endpoint) = self.endpoint(key)? else {
            return Ok(Err(Rejection::UnknownEndpoint));
        };
        if let Some(hold) = &endpoint.hold {
            return Ok(Err(Rejection::AlreadySo { state: hold_word(hold) }));
        }
        self.record(actor, fact)?;
        self.relimit(key)?;
        Ok(Ok(Answer::Endpoint { version: endpoint.version }))
    }

    /// For good: nothing is sent to it any more, and what waits for it is cancelled from this turn on.
    pub(super) fn remove_endpoint(
        &mut self,
        actor: Actor,
        key: EndpointKey,
        reason: Text,
    ) -> Decision<Answer> {
        let Some(endpoint) = self.endpoint(key)? else {
            return Ok(Err(Rejection::UnknownEndpoint));
        };
        if endpoint.removed() {
            return Ok(Err(Rejection::AlreadySo { state: "removed" }));
        }
        self.record(actor, Fact::EndpointRemoved { key, reason })?;
        self.relimit(key)?;
        self.removed.insert(key);
        Ok(Ok(Answer::Done))
    }

    /// Cancels what waits for removed endpoints, as far as the batch has room.
    pub(super) fn sweep_removed(&mut self) -> Result<(), Fatal> {
        while let Some(key) = self.removed.first().copied() {
            let from = key.bytes();
            let to = [from.as_slice(), &[0xff; 16]].concat();
            let live = self.rows.over(&**self.log.disk());
            let rows = live.range::<Due>(Bound::Included(&from), Bound::Included(&to), SWEPT_AT_ONCE)?;
            if rows.is_empty() {
                self.removed.remove(&key);
                continue;
            }
            for (due, ()) in rows {
                if !self.has_room() {
                    return Ok(());
                }
                let delivery = DeliveryKey { account: key.account, seq: due.delivery };
                let Some(row) = self.delivery(delivery)? else {
                    let what = format!("delivery {} is due but missing", due.delivery);
                    return Err(Fatal::Log(log::Error::Damaged(what)));
                };
                let of = of(delivery, key, row.latest);
                let reason = "the endpoint was removed".into();
                self.record(Actor::Hooklog, Fact::Cancelled { of, due_at: due.due_at, reason })?;
                let now = self.now;
                self.lanes(key)?.handle_gone(key, (due.due_at, due.delivery), now);
                self.alone.retain(|start| start.delivery != due.delivery);
            }
        }
        Ok(())
    }

    pub(super) fn resume_endpoint(&mut self, actor: Actor, key: EndpointKey) -> Decision<Answer> {
        let Some(endpoint) = self.endpoint(key)? else {
            return Ok(Err(Rejection::UnknownEndpoint));
        };
        if endpoint.removed() {
            return Ok(Err(Rejection::Removed { endpoint: key.endpoint }));
        }
        if endpoint.hold.is_none() {
            return Ok(Err(Rejection::AlreadySo { state: "active" }));
        }
        self.record(actor, Fact::EndpointResumed { key })?;
        self.relimit(key)?;
        Ok(Ok(Answer::Endpoint { version: endpoint.version }))
    }
}

/// The word for a hold, on pages and in the API.
pub fn hold_word(hold: &Hold) -> &'static str {
    match hold {
        Hold::Paused { .. } => "paused",
        Hold::Disabled { .. } => "disabled",
        Hold::Removed { .. } => "removed",
    }
}
