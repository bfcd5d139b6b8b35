//! Another master key: every live secret of a stopped store is sealed anew under it, batch by batch.
//!
//! `ResealBegan` stands before the first and `Resealed` after the last; a store in between is sealed under two
//! keys and opens for nothing but to be sealed to the end. Whatever a crash leaves undone, the next run does.
//! Never knows where keys are kept.

use std::ops::Bound;

use hooklog_projections::account::{Account, Accounts, Endpoint, Endpoints};
use hooklog_projections::fact::{Actor, Fact, SigningKey};
use hooklog_projections::ids::{AccountId, EndpointKey, Seq};
use hooklog_projections::tables::{Key, Table};
use hooklog_projections::time::Timestamp;

use super::recover::store_row;
use super::{Engine, Fatal, ServerPolicy, StartError};
use crate::clock::Chance;
use crate::log::Log;
use crate::secrets::{MasterKey, NONCE_BYTES, Purpose};
use crate::views::query::RowsOf;

/// Rows that are looked through at a time.
const PAGE: usize = 100;

impl Engine {
    /// Seals every secret that is live at `now`, and is not yet, under `new`. Answers how many rows were. A
    /// store that is sealed under `new` already stays as it is. `progress` hears the head after each batch.
    ///
    /// # Errors
    /// As [`Engine::start`]; `MasterKey` if `old` is not the key that opens the store, or it is half sealed
    /// under another key than `new`.
    pub fn reseal(
        log: Log,
        (old, new): (&MasterKey, &MasterKey),
        now: Timestamp,
        chance: &mut dyn Chance,
        progress: &mut dyn FnMut(Seq),
    ) -> Result<u64, StartError> {
        let row = store_row(&log)?;
        let purpose = Purpose::StoreIdKey { store: row.store };
        if row.resealing.is_none() && new.open(&purpose, &row.id_key).is_ok() {
            log.close()?;
            return Ok(0);
        }
        let id_key = old.open(&purpose, &row.id_key)?;
        let mut engine = Engine::take_up(log, old, ServerPolicy::default(), now)?;
        engine.begin(now);
        let under_new = new.seal(&purpose, &id_key, nonce(chance));
        match &row.resealing {
            Some(begun) => drop(new.open(&purpose, begun)?),
            None => {
                engine.record(Actor::Cli, Fact::ResealBegan { id_key: under_new.clone() })?;
                engine.finish()?;
            }
        }
        let mut done = 0;
        let mut after = None;
        loop {
            let page = engine.page::<Accounts>(after.as_ref())?;
            let Some((last, _)) = page.last() else { break };
            after = Some(*last);
            for (account, row) in page {
                done += u64::from(engine.reseal_account(account, &row, (old, new), chance)?);
                engine.flush(progress)?;
            }
        }
        let mut after = None;
        loop {
            let page = engine.page::<Endpoints>(after.as_ref())?;
            let Some((last, _)) = page.last() else { break };
            after = Some(*last);
            for (key, row) in page {
                done += u64::from(engine.reseal_endpoint(key, &row, (old, new), chance)?);
                engine.flush(progress)?;
            }
        }
        engine.record(Actor::Cli, Fact::Resealed { id_key: under_new })?;
        engine.settle();
        engine.finish()?;
        engine.log.close()?;
        Ok(done)
    }

    fn reseal_account(
        &mut self,
        account: AccountId,
        row: &Account,
        (old, new): (&MasterKey, &MasterKey),
        chance: &mut dyn Chance,
    ) -> Result<bool, StartError> {
        if new.has_sealed(&row.secret) {
            return Ok(false);
        }
        let purpose = Purpose::AccountSecret { account };
        let plain = old.open(&purpose, &row.secret)?;
        let secret = new.seal(&purpose, &plain, nonce(chance));
        self.record(Actor::Cli, Fact::AccountSecretChanged { account, secret })?;
        Ok(true)
    }

    fn reseal_endpoint(
        &mut self,
        key: EndpointKey,
        row: &Endpoint,
        (old, new): (&MasterKey, &MasterKey),
        chance: &mut dyn Chance,
    ) -> Result<bool, StartError> {
        let own = self.reseal_endpoint_secret(key, row, (old, new), chance)?;
        if row.signing.iter().all(|signing| new.has_sealed(&signing.secret)) {
            return Ok(own);
        }
        let mut signing = Vec::new();
        // Keys that sign no more are left behind under the old master key.
        for live in row.live_keys(self.now) {
            let purpose = Purpose::SigningKey { account: key.account, endpoint: key.endpoint, key: live.id };
            let plain = old.open(&purpose, &live.secret)?;
            signing.push(SigningKey { secret: new.seal(&purpose, &plain, nonce(chance)), ..live });
        }
        self.record(Actor::Cli, Fact::SigningKeysChanged { key, signing })?;
        Ok(true)
    }

    fn reseal_endpoint_secret(
        &mut self,
        key: EndpointKey,
        row: &Endpoint,
        (old, new): (&MasterKey, &MasterKey),
        chance: &mut dyn Chance,
    ) -> Result<bool, StartError> {
        let Some(sealed) = row.secret.as_ref().filter(|sealed| !new.has_sealed(sealed)) else {
            return Ok(false);
        };
        let purpose = Purpose::EndpointSecret { account: key.account, endpoint: key.endpoint };
        let plain = old.open(&purpose, sealed)?;
        let secret = Some(new.seal(&purpose, &plain, nonce(chance)));
        self.record(Actor::Cli, Fact::EndpointSecretChanged { key, secret })?;
        Ok(true)
    }

    /// Ends the batch if it is full.
    fn flush(&mut self, progress: &mut dyn FnMut(Seq)) -> Result<(), Fatal> {
        if !self.has_room() {
            self.finish()?;
            progress(self.log.head());
        }
        Ok(())
    }

    /// The rows after a key, a page of them.
    fn page<T: Table>(&mut self, after: Option<&T::Key>) -> Result<RowsOf<T>, Fatal> {
        let after = after.map(Key::bytes);
        let from = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
        Ok(self.rows.over(&**self.log.disk()).range::<T>(from, Bound::Unbounded, PAGE)?)
    }
}

fn nonce(chance: &mut dyn Chance) -> [u8; NONCE_BYTES] {
    let mut nonce = [0; NONCE_BYTES];
    chance.fill(&mut nonce);
    nonce
}
