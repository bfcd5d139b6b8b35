//! Public ids: how a position in the log becomes a `dlv_…`, an `att_…` or a `lease_…`, and back, without an index.
//!
//! The id is shaped like a UUIDv7: the moment it was made, then the partition and the position, encrypted
//! with a key of the store (a four-round Feistel network over HMAC-SHA256). So ids sort by time, leak no
//! counts, are unique over partitions, and cost no key in the store. Never knows what lies at a position.

use hmac::{Hmac, KeyInit, Mac};
use hooklog_projections::ids::{AttemptId, DeliveryId, LeaseId, Seq};
use hooklog_projections::time::Timestamp;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::clock::Chance;

const ROUNDS: u8 = 4;
const HALF_BITS: u32 = 31;
const HALF_MASK: u64 = (1 << HALF_BITS) - 1;
const MOMENT_BITS: u32 = 48;
/// What an id is of: it takes part in every round, so that no id of one kind passes for one of the other.
const DELIVERY: u8 = 0;
const LEASE: u8 = 0x10;
const ATTEMPT: u8 = 0x20;

/// Turns positions into ids and back. One a store, for as long as the store lives.
pub struct IdCodec {
    key: Zeroizing<[u8; 32]>,
    partition: u16,
}

impl IdCodec {
    /// The codec of a store's id key. `partition` is below 4,096.
    pub fn new(key: [u8; 32], partition: u16) -> IdCodec {
        IdCodec { key: Zeroizing::new(key), partition: partition & 0xfff }
    }

    /// The id of the delivery that was enqueued at `seq` at the moment `at`.
    pub fn delivery_id(&self, seq: Seq, at: Timestamp) -> DeliveryId {
        DeliveryId(self.id(DELIVERY, seq, at))
    }

    /// The position and moment in an id; `None` if this store's partition cannot have made it. A caller must
    /// still look whether a delivery was enqueued there at that moment.
    pub fn delivery_seq(&self, id: DeliveryId) -> Option<(Seq, Timestamp)> {
        self.seq(DELIVERY, id.0)
    }

    /// The lease of the attempt that was recorded at `seq` at the moment `at`.
    pub fn lease_id(&self, seq: Seq, at: Timestamp) -> LeaseId {
        LeaseId(self.id(LEASE, seq, at))
    }

    /// The position and moment in a lease; `None` if this store's partition cannot have made it. A caller must
    /// still look whether the attempt there is a lease, and still out.
    pub fn lease_seq(&self, id: LeaseId) -> Option<(Seq, Timestamp)> {
        self.seq(LEASE, id.0)
    }

    /// The id of the attempt that was recorded at `seq` at the moment `at`. It is no proof of anything: a lease is
    /// another number.
    pub fn attempt_id(&self, seq: Seq, at: Timestamp) -> AttemptId {
        AttemptId(self.id(ATTEMPT, seq, at))
    }

    /// The position and moment in an attempt's id; `None` if this store's partition cannot have made it. A caller
    /// must still look whether an attempt was recorded there at that moment.
    pub fn attempt_seq(&self, id: AttemptId) -> Option<(Seq, Timestamp)> {
        self.seq(ATTEMPT, id.0)
    }

    fn id(&self, kind: u8, seq: Seq, at: Timestamp) -> u128 {
        let moment = at.0 & ((1 << MOMENT_BITS) - 1);
        let mut left = (seq.0 >> HALF_BITS) & HALF_MASK;
        let mut right = seq.0 & HALF_MASK;
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ (self.round(kind | round, moment, right) & HALF_MASK));
        }
        let position = (left << HALF_BITS) | right;
        let partition = u64::from(self.partition) ^ (self.round(kind | ROUNDS, moment, position) & 0xfff);
        u128::from(moment) << 80 | 0x7 << 76 | u128::from(partition) << 64 | 0b10 << 62 | u128::from(position)
    }

    fn seq(&self, kind: u8, id: u128) -> Option<(Seq, Timestamp)> {
        if (id >> 76) & 0xf != 7 || (id >> 62) & 0b11 != 0b10 {
            return None;
        }
        let moment = (id >> 80) as u64;
        let position = id as u64 & ((1 << (2 * HALF_BITS)) - 1);
        let partition = ((id >> 64) as u64 & 0xfff) ^ (self.round(kind | ROUNDS, moment, position) & 0xfff);
        if partition != u64::from(self.partition) {
            return None;
        }
        let (mut left, mut right) = (position >> HALF_BITS, position & HALF_MASK);
        for round in (0..ROUNDS).rev() {
            (left, right) = (right ^ (self.round(kind | round, moment, left) & HALF_MASK), left);
        }
        Some((Seq((left << HALF_BITS) | right), Timestamp(moment)))
    }

    fn round(&self, round: u8, moment: u64, half: u64) -> u64 {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key[..]).expect("a key of any length will do");
        mac.update(&[round]);
        mac.update(&moment.to_be_bytes());
        mac.update(&half.to_be_bytes());
        let out = mac.finalize().into_bytes();
        u64::from_be_bytes(out[..8].try_into().expect("there are 32"))
    }
}

/// A new UUIDv7-shaped number: the moment, then chance.
pub fn drawn(at: Timestamp, chance: &mut dyn Chance) -> u128 {
    let mut random = [0; 10];
    chance.fill(&mut random);
    uuid::Builder::from_unix_timestamp_millis(at.0, &random).into_uuid().as_u128()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_position_comes_back(seq in 0u64..1 << 62, at in 0u64..1 << 48, partition in 0u16..4096) {
            let codec = IdCodec::new([7; 32], partition);
            let id = codec.delivery_id(Seq(seq), Timestamp(at));
            prop_assert_eq!(codec.delivery_seq(id), Some((Seq(seq), Timestamp(at))));
            let lease = codec.lease_id(Seq(seq), Timestamp(at));
            prop_assert_eq!(codec.lease_seq(lease), Some((Seq(seq), Timestamp(at))));
            prop_assert_ne!(lease.0, id.0);
            prop_assert_ne!(codec.lease_seq(LeaseId(id.0)), Some((Seq(seq), Timestamp(at))));
            let attempt = codec.attempt_id(Seq(seq), Timestamp(at));
            prop_assert_eq!(codec.attempt_seq(attempt), Some((Seq(seq), Timestamp(at))));
            prop_assert_ne!(codec.attempt_seq(AttemptId(lease.0)), Some((Seq(seq), Timestamp(at))));
            prop_assert_ne!(codec.lease_seq(LeaseId(attempt.0)), Some((Seq(seq), Timestamp(at))));
            prop_assert_eq!(uuid::Uuid::from_u128(id.0).get_version_num(), 7);
        }

        #[test]
        fn any_number_is_read_without_harm(id: u128) {
            let _ = IdCodec::new([7; 32], 0).delivery_seq(DeliveryId(id));
        }
    }

    #[test]
    fn neighbours_and_other_stores_look_unrelated() {
        let (ours, theirs) = (IdCodec::new([7; 32], 0), IdCodec::new([8; 32], 0));
        let at = Timestamp(1_768_471_200_000);
        let ids: Vec<_> = (1..=3).map(|seq| ours.delivery_id(Seq(seq), at).to_string()).collect();
        insta::assert_snapshot!(ids.join("\n"), @"
        dlv_01KF0HJ080E6F8QXPVZB2NCV9F
        dlv_01KF0HJ080E9RRCE411N8MBKB0
        dlv_01KF0HJ080ESA8JQZK3YSMAMK9
        ");
        let foreign = theirs.delivery_id(Seq(1), at);
        assert_ne!(ours.delivery_seq(foreign), Some((Seq(1), at)));
    }
}
