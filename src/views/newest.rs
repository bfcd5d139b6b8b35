//! Deliveries of all accounts, newest first. No table has them in this order. The lists of the accounts do, each of
//! its own, and are put together; of more accounts than can be asked in turn, the log is walked, back and forth.

use std::collections::VecDeque;

use hooklog_projections::fact::{Entry, Fact};
use hooklog_projections::ids::{AccountId, DeliveryKey, Seq};
use hooklog_projections::lifecycle::Delivery;

use super::View;
use super::history::{At, Filter, History, LOOKUP_COST, Within};
use super::paging::Place;
use super::query::SCAN_MAX;
use crate::log;

/// Entries that are read at a time.
const STEP: u64 = 500;
/// With more accounts than this, lists are not put together out of theirs: each costs a look at least.
const ACCOUNTS_MAX: usize = 500;

/// A delivery that matches.
type Found = (DeliveryKey, Delivery);

/// The list of one account, as far as it was read.
struct List {
    account: AccountId,
    /// Rows in hand, the next one of the walk first.
    rows: VecDeque<Found>,
    /// Where its other rows are; `None`: there are none.
    rest: Option<Place<At>>,
}

impl List {
    /// Up to where nothing is missing: the next row, or the edge of what was looked through. Of two lists the one
    /// that is known less far is to be looked at first; `None`: it is at its end.
    fn known_to(&self) -> Option<Edge> {
        match (self.rows.front(), self.rest) {
            (Some((key, _)), _) => Some(Edge::At(key.seq)),
            (None, Some(Place::First)) => Some(Edge::Start),
            (None, Some(Place::After((seq, _)) | Place::UpTo((seq, _)))) => Some(Edge::At(seq)),
            (None, None) => None,
        }
    }
}

/// How far a list is known, in the order of the log.
#[derive(Clone, Copy)]
enum Edge {
    /// Not at all.
    Start,
    At(Seq),
}

impl Edge {
    /// What comes first on a walk, smallest first.
    fn rank(self, back: bool) -> u64 {
        match self {
            Edge::Start => 0,
            Edge::At(seq) if back => seq.0,
            Edge::At(seq) => u64::MAX - seq.0,
        }
    }
}

impl View<'_> {
    /// Deliveries of all accounts, newest first. At most [`SCAN_MAX`] rows are looked through in the accounts' own
    /// lists; if there are too many accounts for that, so many entries of the log. In either direction.
    pub fn history_of_all(
        &self,
        filter: &Filter,
        place: Place<At>,
        limit: usize,
    ) -> Result<History, log::Error> {
        let accounts = self.accounts_page(Place::First, ACCOUNTS_MAX + 1)?.rows;
        let (found, stopped) = if accounts.len() <= ACCOUNTS_MAX {
            self.merged(accounts.into_iter().map(|(id, _)| id), filter, place, limit)?
        } else {
            match place {
                Place::First => self.walked_down(filter, self.head().next(), limit)?,
                Place::After((seq, _)) => self.walked_down(filter, seq, limit)?,
                Place::UpTo((seq, _)) => self.walked_up(filter, seq, limit)?,
            }
        };
        let searched_to = stopped.filter(|_| found.len() <= limit).map(|(_, at)| at);
        Ok(History {
            searched_to,
            ..place.page(found, limit, |(key, row)| (key.seq, row.enqueued_at), stopped)
        })
    }

    /// What matches in the accounts' lists from a place on, one more than `limit` if there is one, and where they
    /// were looked at last, if that was given up. Always goes on with the list that is known least far, so that no
    /// list is looked through further than the page needs.
    fn merged(
        &self,
        accounts: impl Iterator<Item = AccountId>,
        filter: &Filter,
        place: Place<At>,
        limit: usize,
    ) -> Result<(Vec<Found>, Option<At>), log::Error> {
        let back = place.leads_back();
        let mut lists: Vec<List> =
            accounts.map(|account| List { account, rows: VecDeque::new(), rest: Some(place) }).collect();
        let counts = self.counts(None)?;
        let open = if counts.pending + counts.in_flight <= SCAN_MAX as u64 { SCAN_MAX } else { 0 };
        // All can be asked once, at least.
        let share = SCAN_MAX / lists.len().max(1);
        let step = (2 * limit / lists.len().max(1)).clamp(2, limit.max(2));
        let mut within = Within { end: self.end_of(filter)?, rows: share, open };
        let (mut left, mut found) = (SCAN_MAX, Vec::new());
        loop {
            let nearest = lists.iter_mut().filter_map(|list| Some((list.known_to()?.rank(back), list)));
            let Some((_, list)) = nearest.min_by_key(|(rank, _)| *rank) else { return Ok((found, None)) };
            if let Some(row) = list.rows.pop_front() {
                found.push(row);
                if found.len() > limit {
                    return Ok((found, None));
                }
                continue;
            }
            let Some(from) = list.rest else { continue };
            within.rows = share.min(left);
            if let (true, Place::After(at) | Place::UpTo(at)) = (within.rows < LOOKUP_COST, from) {
                return Ok((found, Some(at)));
            }
            let (page, cost) = self.history_within(list.account, filter, within, from, step)?;
            left -= cost;
            list.rows.extend(page.rows);
            list.rest = if back {
                list.rows.make_contiguous().reverse();
                page.prev.map(Place::UpTo)
            } else {
                page.next.map(Place::After)
            };
        }
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
