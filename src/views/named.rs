//! What a public id names: deliveries and attempts, whose ids are positions in the log. Never knows who may see what.

use hooklog_projections::fact::Fact;
use hooklog_projections::ids::{AccountId, AttemptId, DeliveryId, DeliveryKey, Seq};
use hooklog_projections::lifecycle::Delivery;
use hooklog_projections::time::Timestamp;

use super::View;
use crate::log;

impl View<'_> {
    /// The delivery that a public id names.
    pub fn delivery_named(&self, id: DeliveryId) -> Result<Option<DeliveryKey>, log::Error> {
        let Some((seq, at)) = self.published.ids().delivery_seq(id) else { return Ok(None) };
        if seq > self.head() || seq == Seq(0) {
            return Ok(None);
        }
        Ok(self.snapshot().entry(seq)?.filter(|entry| entry.at == at).and_then(|entry| match entry.fact {
            Fact::Enqueued { key, .. } => Some(DeliveryKey { account: key.account, seq }),
            _ => None,
        }))
    }

    /// The delivery that a public id names within an account: one look under the account, whether the id is of
    /// nobody, of another account, or of this one.
    pub fn delivery_in(&self, account: AccountId, id: DeliveryId) -> Result<Option<DeliveryKey>, log::Error> {
        let (seq, at) = self.published.ids().delivery_seq(id).unwrap_or_default();
        let key = DeliveryKey { account, seq };
        Ok(self.delivery(key)?.filter(|row| row.enqueued_at == at).map(|_| key))
    }

    /// A delivery's public id.
    pub fn delivery_id(&self, key: DeliveryKey, row: &Delivery) -> DeliveryId {
        self.published.ids().delivery_id(key.seq, row.enqueued_at)
    }

    /// An attempt's public id, by the place and moment of its `Attempted`.
    pub fn attempt_id(&self, seq: Seq, at: Timestamp) -> AttemptId {
        self.published.ids().attempt_id(seq, at)
    }

    /// The attempt that a public id names, within an account if one is named: its delivery, and where it was recorded.
    /// One look into the log and one under the account, whether the id is of nobody, of another account, or of this
    /// one.
    pub fn attempt_named(
        &self,
        account: Option<AccountId>,
        id: AttemptId,
    ) -> Result<Option<(DeliveryKey, Delivery, Seq)>, log::Error> {
        let (seq, at) = self.published.ids().attempt_seq(id).unwrap_or_default();
        let looked = if (Seq(1)..=self.head()).contains(&seq) { seq } else { self.head() };
        let entry = self.snapshot().entry(looked)?.filter(|entry| (entry.seq, entry.at) == (seq, at));
        let of = match entry.as_ref().map(|entry| &entry.fact) {
            Some(Fact::Attempted { of, .. }) => Some((of.account, of.delivery)),
            _ => None,
        };
        let (owner, delivery) = of.unwrap_or((AccountId(0), Seq(0)));
        let key = DeliveryKey { account: account.unwrap_or(owner), seq: delivery };
        let row = self.delivery(key)?.filter(|_| of.is_some());
        Ok(row.map(|row| (key, row, seq)))
    }
}
