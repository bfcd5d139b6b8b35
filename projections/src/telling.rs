//! What owners are yet to be told, by endpoint: deliveries that died, that Hooklog disabled the endpoint, that it
//! keeps failing.
//!
//! A row per endpoint, however many deliveries died. News gather in it until `TellingBegan` closes them into a
//! message; that message stays in it until `OwnerTold` ends it, so a crash in between sends the same one again.
//! Never knows when a message is due, by which way it goes, nor what it says.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::fact::{DisabledReason, Ended, Entry, Fact};
use crate::ids::{EndpointKey, Seq};
use crate::policy::Text;
use crate::tables::{Table, Tables};
use crate::time::{Millis, Timestamp};

/// Dead deliveries that a message names one by one; the rest is a number.
pub const NAMED_MAX: usize = 20;

/// What is owed to owners, by endpoint. An endpoint of which nothing is to be told has no row.
pub struct Owed;

/// What an owner is yet to be told of one endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owing {
    /// What gathers.
    pub news: News,
    /// The message that may be out already, and of which nobody knows that it arrived.
    pub telling: Option<Telling>,
}

/// A message that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Telling {
    /// Where its `TellingBegan` stands: its identity.
    pub began: Seq,
    /// When that was.
    pub at: Timestamp,
    /// What it tells.
    pub news: News,
}

/// What is to be told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct News {
    /// When the first of the dead deliveries died.
    pub since: Option<Timestamp>,
    /// Deliveries that died.
    pub dead: u64,
    /// The first of them, at most [`NAMED_MAX`], without those that were replayed before the message was begun.
    pub named: Vec<Seq>,
    /// Where it stands that Hooklog disabled the endpoint.
    pub disabled: Option<Seq>,
    /// Since when the endpoint has done nothing but fail.
    pub failing: Option<Timestamp>,
}

impl News {
    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.dead == 0 && self.disabled.is_none() && self.failing.is_none()
    }

    /// When it is to be told, if deaths are gathered for so long; `None` if there is nothing to tell.
    pub fn due_at(&self, window: Millis) -> Option<Timestamp> {
        if self.disabled.is_some() || self.failing.is_some() {
            return Some(Timestamp(0));
        }
        self.since.map(|since| since + window)
    }
}

/// How far an owner has been told of a death.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// Not at all yet.
    Owed,
    /// A message was begun then, and may have arrived.
    Begun(Timestamp),
    /// Told.
    Told {
        /// When.
        at: Timestamp,
        /// By which way: `mail`, `notifications`, `log`.
        channel: Text,
    },
    /// It was refused for good.
    Refused {
        /// When.
        at: Timestamp,
        /// By whom and why, for people.
        why: Text,
    },
}

impl Table for Owed {
    const NAME: &'static str = "owed";
    type Key = EndpointKey;
    type Value = Owing;
}

/// Folds whatever owners are told of.
pub fn fold<T: Tables>(tables: &mut T, entry: &Entry) -> Result<(), T::Error> {
    let key = match &entry.fact {
        Fact::Dead { of, tell_owner: true, .. } | Fact::Replayed { of, was: Ended::Dead, .. } => {
            of.endpoint_key()
        }
        Fact::EndpointDisabled { key, reason: DisabledReason::Gone | DisabledReason::Failing { .. } }
        | Fact::EndpointKeptFailing { key, .. }
        | Fact::EndpointResumed { key }
        | Fact::TellingBegan { key }
        | Fact::OwnerTold { key, .. } => *key,
        _ => return Ok(()),
    };
    let before = tables.get::<Owed>(&key)?;
    let mut owing = before.clone().unwrap_or_default();
    let news = &mut owing.news;
    match &entry.fact {
        Fact::Dead { of, .. } => {
            news.since = news.since.or(Some(entry.at));
            news.dead += 1;
            if news.named.len() < NAMED_MAX && !news.named.contains(&of.delivery) {
                news.named.push(of.delivery);
            }
        }
        // What is sent again is nobody's worry, unless it dies again.
        Fact::Replayed { of, .. } => forget(news, |named| *named == of.delivery),
        Fact::EndpointDisabled { .. } => news.disabled = Some(entry.seq),
        Fact::EndpointKeptFailing { since, .. } => news.failing = Some(*since),
        Fact::EndpointResumed { .. } => (news.disabled, news.failing) = (None, None),
        Fact::TellingBegan { .. } => {
            let news = core::mem::take(news);
            owing.telling = Some(Telling { began: entry.seq, at: entry.at, news });
        }
        Fact::OwnerTold { began: Some(began), .. } => {
            owing.telling = owing.telling.take().filter(|telling| telling.began != *began);
        }
        // As it was before messages had a beginning: the deliveries themselves, and where a disabling stands.
        Fact::OwnerTold { deliveries, .. } => {
            let disabled = news.disabled.take_if(|seq| deliveries.contains(seq));
            let dead = deliveries.len() as u64 - u64::from(disabled.is_some());
            news.named.retain(|named| !deliveries.contains(named));
            news.dead = news.dead.saturating_sub(dead);
            news.since = news.since.filter(|_| news.dead > 0);
        }
        _ => {}
    }
    match (before, owing) {
        (None, owing) if owing == Owing::default() => Ok(()),
        (Some(before), owing) if before == owing => Ok(()),
        (Some(_), owing) if owing == Owing::default() => tables.delete::<Owed>(&key),
        (_, owing) => tables.put::<Owed>(&key, &owing),
    }
}

fn forget(news: &mut News, which: impl Fn(&Seq) -> bool) {
    let before = news.named.len();
    news.named.retain(|named| !which(named));
    news.dead -= (before - news.named.len()) as u64;
    news.since = news.since.filter(|_| news.dead > 0);
}
