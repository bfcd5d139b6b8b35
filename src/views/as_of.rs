//! What was so at an earlier moment: a delivery from its own facts, an endpoint and an account from the facts that
//! set them, found by a walk back through their index. Nothing is scanned that is not of them.

use std::ops::{Bound, ControlFlow};

use hooklog_projections::account::{Account, Endpoint, Hold};
use hooklog_projections::change::{Change, ChangeKey, Changes};
use hooklog_projections::fact::{Entry, Fact};
use hooklog_projections::hour::{GATE_HOURS, Gates, HourKey, hour_of};
use hooklog_projections::ids::{AccountId, EndpointId, EndpointKey, Seq};
use hooklog_projections::lifecycle::Delivery;
use hooklog_projections::tables::{EndpointDelivery, Key, Table};
use hooklog_projections::telling::Word;
use hooklog_projections::time::{Millis, Timestamp};

use super::query::{SCAN_MAX, View};
use super::rows::bad_key;
use crate::log::{self, Order, codec};

/// An earlier moment, and the log up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The moment.
    pub at: Timestamp,
    /// The last entry up to and with it; 0 if there is none.
    pub upto: Seq,
}

impl View<'_> {
    /// The log up to a moment.
    pub fn moment(&self, at: Timestamp) -> Result<Moment, log::Error> {
        Ok(Moment { at, upto: Seq(self.first_since(at + Millis(1))?.0 - 1) })
    }

    /// A delivery as it was; `None` before it was enqueued.
    pub fn delivery_at(&self, row: &Delivery, moment: Moment) -> Result<Option<Delivery>, log::Error> {
        if row.latest <= moment.upto {
            return Ok(Some(row.clone()));
        }
        let mut then: Option<Delivery> = None;
        for entry in self.story(row)?.iter().take_while(|entry| entry.seq <= moment.upto) {
            match &mut then {
                None => then = Delivery::begun(&entry.fact, entry.seq, entry.at),
                Some(then) => {
                    let applied = then.apply(&entry.fact, entry.seq, entry.at);
                    applied.map_err(|illegal| log::Error::Damaged(illegal.to_string()))?;
                }
            }
        }
        Ok(then)
    }

    /// An account with its settings as they were; its secret is as it is now. `None` before it was made.
    pub fn account_at(&self, account: AccountId, moment: Moment) -> Result<Option<Account>, log::Error> {
        let Some(mut row) = self.account(account)? else { return Ok(None) };
        let mut found = false;
        self.walk_changes(account, None, moment.upto, &mut |entry, _| {
            if let Fact::AccountCreated { settings, .. } | Fact::AccountChanged { settings, .. } = entry.fact
            {
                row.settings = settings;
                found = true;
            }
            found
        })?;
        Ok(found.then_some(row))
    }

    /// An endpoint with its settings, version and hold as they were; its keys are as they are now. `None` before it
    /// was made.
    pub fn endpoint_at(&self, key: EndpointKey, moment: Moment) -> Result<Option<Endpoint>, log::Error> {
        let Some(mut row) = self.endpoint(key)? else { return Ok(None) };
        let (mut hold, mut set) = (None, false);
        self.walk_changes(key.account, Some(key.endpoint), moment.upto, &mut |entry, change| {
            let at = entry.at;
            match entry.fact {
                Fact::EndpointPaused { reason, .. } if hold.is_none() => {
                    hold = Some(Some(Hold::Paused { reason, at }));
                }
                Fact::EndpointDisabled { reason, .. } if hold.is_none() => {
                    hold = Some(Some(Hold::Disabled { reason, at }));
                }
                Fact::EndpointRemoved { reason, .. } if hold.is_none() => {
                    hold = Some(Some(Hold::Removed { reason, at }));
                }
                Fact::EndpointResumed { .. } if hold.is_none() => hold = Some(None),
                Fact::EndpointChanged { settings, .. } if !set => {
                    (row.settings, set) = (settings, true);
                    row.version = version(change);
                }
                Fact::EndpointCreated { settings, .. } => {
                    hold.get_or_insert(None);
                    if !set {
                        (row.settings, set) = (settings, true);
                        row.version = version(change);
                    }
                }
                _ => {}
            }
            set && hold.is_some()
        })?;
        row.hold = hold.flatten();
        Ok(set.then_some(row))
    }

    /// Until when an endpoint had asked to be left alone, as of a moment; in the past if not at all.
    pub fn gate_at(&self, key: EndpointKey, moment: Moment) -> Result<Timestamp, log::Error> {
        let last = hour_of(moment.at);
        let hour = |hour| HourKey { account: key.account, endpoint: Some(key.endpoint), hour };
        let (from, to) = (hour(last.saturating_sub(GATE_HOURS)), hour(last));
        let mut gate = Timestamp(0);
        for (_, gates) in self.settled_range::<Gates>(&from, &to, SCAN_MAX)? {
            for (at, until) in gates.0 {
                if at <= moment.at {
                    gate = if until == Timestamp(0) { until } else { gate.max(until) };
                }
            }
        }
        Ok(gate)
    }

    /// How the message went, up to a position, that told the owner of a delivery's death at `dead`: its
    /// `TellingBegan`, its `OwnerTold`.
    pub fn telling_of(
        &self,
        place: EndpointDelivery,
        dead: Seq,
        upto: Seq,
    ) -> Result<(Option<Entry>, Option<Entry>), log::Error> {
        let EndpointKey { account, endpoint } = place.endpoint;
        let (mut began, mut told) = (None, None);
        // Newest first: what is seen last is the first message after the death.
        self.walk_changes(account, Some(endpoint), upto, &mut |entry, _| {
            let before = entry.seq < dead;
            match &entry.fact {
                _ if before => {}
                Fact::TellingBegan { .. } => {
                    let seq = entry.seq;
                    told = told.take().filter(|told: &Entry| {
                        matches!(&told.fact, Fact::OwnerTold { began: Some(began), .. } if *began == seq)
                    });
                    began = Some(entry);
                }
                Fact::OwnerTold { began: Some(of), .. } if *of > dead => (began, told) = (None, Some(entry)),
                Fact::OwnerTold { began: None, deliveries, .. } if deliveries.contains(&place.delivery) => {
                    (began, told) = (None, Some(entry));
                }
                _ => {}
            }
            before
        })?;
        Ok((began, told))
    }

    /// The messages, up to a position, that told the owner of the deaths in a delivery's story.
    pub fn tellings_of(&self, story: &[Entry], upto: Seq) -> Result<Vec<Entry>, log::Error> {
        let mut entries = Vec::new();
        for entry in story {
            if let Fact::Dead { of, tell_owner: true, .. } = &entry.fact {
                let place = EndpointDelivery { endpoint: of.endpoint_key(), delivery: of.delivery };
                let (began, told) = self.telling_of(place, entry.seq, upto)?;
                entries.extend(began.into_iter().chain(told));
            }
        }
        // Two deaths before one message: it tells of both.
        entries.sort_by_key(|entry: &Entry| entry.seq);
        entries.dedup_by_key(|entry| entry.seq);
        Ok(entries)
    }

    /// How far the owner had been told, up to a position, of a delivery's death at `dead`.
    pub fn word_of(&self, place: EndpointDelivery, dead: Seq, upto: Seq) -> Result<Word, log::Error> {
        let (began, told) = self.telling_of(place, dead, upto)?;
        Ok(match (began, told) {
            (_, Some(Entry { at, fact: Fact::OwnerTold { refused: Some(why), .. }, .. })) => {
                Word::Refused { at, why }
            }
            (_, Some(Entry { at, fact: Fact::OwnerTold { channel, .. }, .. })) => Word::Told { at, channel },
            (Some(began), _) => Word::Begun(began.at),
            (None, _) => Word::Owed,
        })
    }

    /// The facts about an endpoint between two positions, the later one included, oldest first; of more than `limit`,
    /// the newest.
    pub fn changes(
        &self,
        key: EndpointKey,
        (after, upto): (Seq, Seq),
        limit: usize,
    ) -> Result<Vec<Entry>, log::Error> {
        let mut found = Vec::new();
        self.walk_changes(key.account, Some(key.endpoint), upto, &mut |entry, _| {
            let over = entry.seq <= after;
            if !over {
                found.push(entry);
            }
            over || found.len() >= limit
        })?;
        found.reverse();
        Ok(found)
    }

    /// Visits the facts about an account or an endpoint, newest first from a position back, until the visitor says
    /// that it has seen enough, and at most [`SCAN_MAX`].
    fn walk_changes(
        &self,
        account: AccountId,
        endpoint: Option<EndpointId>,
        upto: Seq,
        enough: &mut dyn FnMut(Entry, Change) -> bool,
    ) -> Result<(), log::Error> {
        let key = |seq| ChangeKey { account, endpoint, seq }.bytes();
        let (from, to) = (key(Seq(0)), key(upto));
        let (mut failed, mut seen) = (None, 0);
        let visit = &mut |key: &[u8], value: &[u8]| {
            seen += 1;
            let mut step = || {
                let key = ChangeKey::read(key).ok_or_else(|| bad_key(Changes::NAME))?;
                Ok::<_, log::Error>(enough(self.entry(key.seq)?, codec::decode(value)?))
            };
            match step() {
                Ok(enough) if !enough && seen < SCAN_MAX => return ControlFlow::Continue(()),
                Ok(_) => {}
                Err(error) => failed = Some(error),
            }
            ControlFlow::Break(())
        };
        let (from, to) = (Bound::Included(from.as_slice()), Bound::Included(to.as_slice()));
        self.snapshot().range(self.space::<Changes>(), from, to, Order::Descending, visit)?;
        failed.map_or(Ok(()), Err)
    }
}

fn version(change: Change) -> u32 {
    match change {
        Change::Settings(version) => version,
        Change::Hold | Change::Told | Change::Keys => 0,
    }
}
