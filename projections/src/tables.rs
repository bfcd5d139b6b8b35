//! What a view is made of: keyed tables, their key bytes, and the small door through which folds write them.
//!
//! Never knows where rows are kept: on disk, in memory, or in a shadow that is only compared.

use alloc::vec::Vec;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::change::ChangeKey;
use crate::fact::DeadReason;
use crate::hour::HourKey;
use crate::ids::{
    AccountId, ApiKeyId, DeliveryKey, EndpointId, EndpointKey, EventId, PortalLinkId, ReplayId, Seq,
};
use crate::policy::Text;
use crate::time::Timestamp;

/// Goes up when any fold or row changes; a store whose views were made by another version is rebuilt.
pub const FOLDS_VERSION: u32 = 10;

/// One keyed table of a view.
pub trait Table {
    /// Stable; names the keyspace.
    const NAME: &'static str;
    /// When its rows reach the disk.
    const CADENCE: Cadence = Cadence::EveryBatch;
    /// What its rows are found by.
    type Key: Key;
    /// What a row holds.
    type Value: Serialize + DeserializeOwned;
}

/// When the rows of a table reach the disk. Both are exact; they differ in the cost of a row that nearly
/// every entry rewrites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cadence {
    /// With the batch that changed them.
    EveryBatch,
    /// Kept in memory and written every few thousand entries; after a crash the entries since then are
    /// folded again. Such a fold may look at nothing but the entry and its own table.
    Settled,
}

/// A key and its bytes; the order of the bytes is the order of the table.
pub trait Key: Sized {
    /// Appends the bytes.
    fn write(&self, out: &mut Vec<u8>);
    /// Reads all of `bytes`; `None` if they are no key of this table.
    fn read(bytes: &[u8]) -> Option<Self>;

    /// The bytes.
    fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(56);
        self.write(&mut out);
        out
    }
}

/// The door to the rows. A get sees every put and delete made before it.
pub trait Tables {
    /// What can go wrong below.
    type Error: core::error::Error + Send + Sync + 'static;
    /// The row, if there is one.
    fn get<T: Table>(&mut self, key: &T::Key) -> Result<Option<T::Value>, Self::Error>;
    /// Makes or replaces the row.
    fn put<T: Table>(&mut self, key: &T::Key, value: &T::Value) -> Result<(), Self::Error>;
    /// Removes the row, if there is one.
    fn delete<T: Table>(&mut self, key: &T::Key) -> Result<(), Self::Error>;
}

/// A due key: what waits at an endpoint, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DueKey {
    /// Where.
    pub endpoint: EndpointKey,
    /// When the next try may start.
    pub due_at: Timestamp,
    /// Which delivery.
    pub delivery: Seq,
}

/// A delivery under its endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointDelivery {
    /// Where.
    pub endpoint: EndpointKey,
    /// Which.
    pub delivery: Seq,
}

/// Dead deliveries of one endpoint, reason and type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadGroupKey {
    /// Where.
    pub endpoint: EndpointKey,
    /// Why they died.
    pub reason: DeadReason,
    /// Of which type.
    pub event_type: Text,
}

fn take<const N: usize>(bytes: &[u8]) -> Option<([u8; N], &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<N>()?;
    Some((*head, rest))
}

fn account(bytes: &[u8]) -> Option<(AccountId, &[u8])> {
    let (id, rest) = take::<16>(bytes)?;
    Some((AccountId(u128::from_be_bytes(id)), rest))
}

fn endpoint(bytes: &[u8]) -> Option<(EndpointKey, &[u8])> {
    let (account, rest) = account(bytes)?;
    let (id, rest) = take::<16>(rest)?;
    Some((EndpointKey { account, endpoint: EndpointId(u128::from_be_bytes(id)) }, rest))
}

fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (value, rest) = take::<8>(bytes)?;
    Some((u64::from_be_bytes(value), rest))
}

fn whole<T>((value, rest): (T, &[u8])) -> Option<T> {
    rest.is_empty().then_some(value)
}

impl Key for AccountId {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.to_bytes());
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        account(bytes).and_then(whole)
    }
}

impl Key for ApiKeyId {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.to_bytes());
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        take::<16>(bytes).and_then(whole).map(|id| ApiKeyId(u128::from_be_bytes(id)))
    }
}

impl Key for PortalLinkId {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.to_bytes());
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        take::<16>(bytes).and_then(whole).map(|id| PortalLinkId(u128::from_be_bytes(id)))
    }
}

/// `None` is the whole store: a single zero, since no disk takes an empty key. It sorts before every account.
impl Key for Option<AccountId> {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Some(account) => account.write(out),
            None => out.push(0),
        }
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        if bytes == [0] { Some(None) } else { AccountId::read(bytes).map(Some) }
    }
}

impl Key for EndpointKey {
    fn write(&self, out: &mut Vec<u8>) {
        self.account.write(out);
        out.extend(self.endpoint.to_bytes());
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        endpoint(bytes).and_then(whole)
    }
}

/// A name, as its own bytes.
impl Key for Text {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.as_bytes());
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        core::str::from_utf8(bytes).ok().map(Into::into)
    }
}

impl Key for DeliveryKey {
    fn write(&self, out: &mut Vec<u8>) {
        self.account.write(out);
        out.extend(self.seq.0.to_be_bytes());
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        let (account, rest) = account(bytes)?;
        number(rest).and_then(whole).map(|seq| DeliveryKey { account, seq: Seq(seq) })
    }
}

impl Key for (AccountId, EventId) {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        out.extend(self.1.as_str().as_bytes());
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        let (account, rest) = account(bytes)?;
        Some((account, core::str::from_utf8(rest).ok()?.parse().ok()?))
    }
}

impl Key for (AccountId, Text) {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        out.extend(self.1.as_bytes());
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        let (account, rest) = account(bytes)?;
        Some((account, core::str::from_utf8(rest).ok()?.into()))
    }
}

impl Key for DueKey {
    fn write(&self, out: &mut Vec<u8>) {
        self.endpoint.write(out);
        out.extend(self.due_at.0.to_be_bytes());
        out.extend(self.delivery.0.to_be_bytes());
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        let (endpoint, rest) = endpoint(bytes)?;
        let (due_at, rest) = number(rest)?;
        let delivery = number(rest).and_then(whole)?;
        Some(DueKey { endpoint, due_at: Timestamp(due_at), delivery: Seq(delivery) })
    }
}

impl Key for EndpointDelivery {
    fn write(&self, out: &mut Vec<u8>) {
        self.endpoint.write(out);
        out.extend(self.delivery.0.to_be_bytes());
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        let (endpoint, rest) = endpoint(bytes)?;
        number(rest).and_then(whole).map(|seq| EndpointDelivery { endpoint, delivery: Seq(seq) })
    }
}

/// No endpoint has the number 0, so it stands for the account itself and sorts before its endpoints.
const ITSELF: EndpointId = EndpointId(0);

fn of_account(account: AccountId, endpoint: Option<EndpointId>) -> EndpointKey {
    EndpointKey { account, endpoint: endpoint.unwrap_or(ITSELF) }
}

fn endpoint_or_itself(bytes: &[u8]) -> Option<(AccountId, Option<EndpointId>, &[u8])> {
    let (key, rest) = endpoint(bytes)?;
    Some((key.account, Some(key.endpoint).filter(|endpoint| *endpoint != ITSELF), rest))
}

impl Key for ChangeKey {
    fn write(&self, out: &mut Vec<u8>) {
        of_account(self.account, self.endpoint).write(out);
        out.extend(self.seq.0.to_be_bytes());
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        let (account, endpoint, rest) = endpoint_or_itself(bytes)?;
        number(rest).and_then(whole).map(|seq| ChangeKey { account, endpoint, seq: Seq(seq) })
    }
}

impl Key for HourKey {
    fn write(&self, out: &mut Vec<u8>) {
        of_account(self.account, self.endpoint).write(out);
        out.extend(self.hour.to_be_bytes());
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        let (account, endpoint, rest) = endpoint_or_itself(bytes)?;
        take::<4>(rest).and_then(whole).map(|hour| HourKey {
            account,
            endpoint,
            hour: u32::from_be_bytes(hour),
        })
    }
}

impl Key for (AccountId, ReplayId) {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        out.extend(self.1.to_bytes());
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        let (account, rest) = account(bytes)?;
        take::<16>(rest).and_then(whole).map(|id| (account, ReplayId(u128::from_be_bytes(id))))
    }
}

/// The reasons in the order of their bytes in keys: only appended to.
const REASONS: [DeadReason; 5] = [
    DeadReason::Exhausted,
    DeadReason::Refused,
    DeadReason::RetriesOff,
    DeadReason::Expired,
    DeadReason::Imported,
];

impl Key for DeadGroupKey {
    fn write(&self, out: &mut Vec<u8>) {
        self.endpoint.write(out);
        out.push(match self.reason {
            DeadReason::Exhausted => 0,
            DeadReason::Refused => 1,
            DeadReason::RetriesOff => 2,
            DeadReason::Expired => 3,
            DeadReason::Imported => 4,
        });
        out.extend(self.event_type.as_bytes());
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        let (endpoint, rest) = endpoint(bytes)?;
        let (reason, rest) = rest.split_first()?;
        let reason = REASONS.get(usize::from(*reason))?.clone();
        Some(DeadGroupKey { endpoint, reason, event_type: core::str::from_utf8(rest).ok()?.into() })
    }
}
