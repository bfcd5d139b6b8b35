//! Deliveries of all accounts, newest first. No table has them in this order; the log does, so it is walked, back and
//! forth.

use hooklog_projections::fact::{Entry, Fact};
use hooklog_projections::ids::{AccountId, DeliveryKey, Seq};
use hooklog_projections::lifecycle::{Delivery, Status};

use super::View;
use super::history::{At, Filter, History};
use super::paging::Place;
use super::query::SCAN_MAX;
use crate::log;

/// Entries that are read at a time.
const STEP: u64 = 500;
/// With more accounts than this, lists are not put together out of theirs.
const ACCOUNTS_MAX: usize = 200;

/// A delivery that matches.
type Found = (DeliveryKey, Delivery);

impl View<'_> {
    /// Deliveries of all accounts, newest first. What is dead, waits or is out is taken from the accounts' own tables
    /// if they are few; else at most [`SCAN_MAX`] entries of the log are looked through, in either direction.
    pub fn history_of_all(
        &self,
        filter: &Filter,
        place: Place<At>,
        limit: usize,
    ) -> Result<History, log::Error> {
        let indexed = |status: &Status| !matches!(status, Status::Delivered | Status::Cancelled);
        if !filter.statuses.is_empty() && filter.statuses.iter().all(indexed) {
            let accounts = self.accounts_page(Place::First, ACCOUNTS_MAX + 1)?.rows;
            if accounts.len() <= ACCOUNTS_MAX {
                return self.merged(accounts.into_iter().map(|(id, _)| id), filter, place, limit);
            }
        }
        let (found, stopped) = match place {
            Place::First => self.walked_down(filter, self.head().next(), limit)?,
            Place::After((seq, _)) => self.walked_down(filter, seq, limit)?,
            Place::UpTo((seq, _)) => self.walked_up(filter, seq, limit)?,
        };
        Ok(paged(place, found, limit, stopped, stopped.is_some()))
    }

    fn merged(
        &self,
        accounts: impl Iterator<Item = AccountId>,
        filter: &Filter,
        place: Place<At>,
        limit: usize,
    ) -> Result<History, log::Error> {
        let back = place.leads_back();
        let mut found: Vec<Found> = Vec::new();
        // Beyond the nearest place where an account's search ended, not everything is known.
        let (mut known_to, mut searched) = (None, false);
        for account in accounts {
            let page = self.history(account, filter, place, limit)?;
            searched |= page.searched_to.is_some();
            known_to = match back {
                false => known_to.max(page.next),
                true => [known_to, page.prev].into_iter().flatten().min(),
            };
            found.extend(page.rows);
        }
        found.sort_by_key(|(key, _)| key.seq);
        if !back {
            found.reverse();
        }
        let known = |seq| known_to.is_none_or(|(edge, _)| if back { seq < edge } else { seq >= edge });
        found.retain(|(key, _)| known(key.seq));
        Ok(paged(place, found, limit, known_to, searched))
    }

    /// From before a position towards the oldest: what matches, one more than `limit` if there is one, and where the
    /// log was looked at last, if that was given up.
    fn walked_down(
        &self,
        filter: &Filter,
        before: Seq,
        limit: usize,
    ) -> Result<(Vec<Found>, Option<At>), log::Error> {
        let mut to = before.min(self.head().next());
        if let Some(until) = filter.until {
            to = to.min(self.first_since(until)?);
        }
        let (mut found, mut seen, mut last) = (Vec::new(), 0, None);
        while to > Seq(1) && seen < SCAN_MAX {
            let from = Seq(to.0.saturating_sub(STEP).max(1));
            for entry in self.snapshot().entries(from, (to.0 - from.0) as usize)?.into_iter().rev() {
                (seen, last) = (seen + 1, Some((entry.seq, entry.at)));
                if filter.since.is_some_and(|since| entry.at < since) {
                    return Ok((found, None));
                }
                found.extend(self.enqueued(&entry, filter)?);
                if found.len() > limit {
                    return Ok((found, None));
                }
            }
            to = from;
        }
        Ok((found, last.filter(|_| to > Seq(1))))
    }

    /// From a position on towards the newest: the same, and the first place that was not looked at.
    fn walked_up(
        &self,
        filter: &Filter,
        from: Seq,
        limit: usize,
    ) -> Result<(Vec<Found>, Option<At>), log::Error> {
        let (mut from, mut found, mut seen) = (from, Vec::new(), 0);
        while from <= self.head() && seen < SCAN_MAX {
            for entry in self.snapshot().entries(from, STEP as usize)? {
                (seen, from) = (seen + 1, entry.seq.next());
                if filter.until.is_some_and(|until| entry.at >= until) {
                    return Ok((found, None));
                }
                found.extend(self.enqueued(&entry, filter)?);
                if found.len() > limit {
                    return Ok((found, None));
                }
            }
        }
        let stopped = if from <= self.head() { Some((from, self.entry(from)?.at)) } else { None };
        Ok((found, stopped))
    }

    /// The delivery that an entry began, if the filter takes it.
    fn enqueued(&self, entry: &Entry, filter: &Filter) -> Result<Option<Found>, log::Error> {
        let Fact::Enqueued { key, .. } = &entry.fact else { return Ok(None) };
        let key = DeliveryKey { account: key.account, seq: entry.seq };
        Ok(self.delivery(key)?.filter(|row| filter.matches(row)).map(|row| (key, row)))
    }
}

/// The page of what was found in the order of the walk; `searched`: it was given up, not at an end.
fn paged(place: Place<At>, found: Vec<Found>, limit: usize, stopped: Option<At>, searched: bool) -> History {
    let full = found.len() > limit;
    let searched_to = stopped.filter(|_| searched && !full).map(|(_, at)| at);
    History { searched_to, ..place.page(found, limit, |(key, row)| (key.seq, row.enqueued_at), stopped) }
}
