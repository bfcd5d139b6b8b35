//! Deliveries of all accounts, newest first. No table has them in this order; the log does, so it is walked back.

use hooklog_projections::fact::Fact;
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

impl View<'_> {
    /// Deliveries of all accounts, newest first. What is dead, waits or is out is taken from the accounts' own tables
    /// if they are few; else at most [`SCAN_MAX`] entries of the log are looked through. There is no way back: no
    /// page names one before it.
    pub fn history_of_all(
        &self,
        filter: &Filter,
        place: Place<At>,
        limit: usize,
    ) -> Result<History, log::Error> {
        let after = match place {
            Place::First => None,
            Place::After(at) | Place::UpTo(at) => Some(at),
        };
        let indexed = |status: &Status| !matches!(status, Status::Delivered | Status::Cancelled);
        if !filter.statuses.is_empty() && filter.statuses.iter().all(indexed) {
            let accounts = self.accounts_page(Place::First, ACCOUNTS_MAX + 1)?.rows;
            if accounts.len() <= ACCOUNTS_MAX {
                return self.merged(accounts.into_iter().map(|(id, _)| id), filter, after, limit);
            }
        }
        self.walked(filter, after, limit)
    }

    fn merged(
        &self,
        accounts: impl Iterator<Item = AccountId>,
        filter: &Filter,
        after: Option<At>,
        limit: usize,
    ) -> Result<History, log::Error> {
        let mut rows: Vec<(DeliveryKey, Delivery)> = Vec::new();
        // Below the highest place where an account's search ended, not everything is known.
        let mut known_to: Option<At> = None;
        let mut searched = false;
        for account in accounts {
            let page = self.history(account, filter, after.map_or(Place::First, Place::After), limit)?;
            searched |= page.searched_to.is_some();
            known_to = known_to.max(page.next);
            rows.extend(page.rows);
        }
        rows.sort_by_key(|(key, _)| std::cmp::Reverse(key.seq));
        rows.retain(|(key, _)| known_to.is_none_or(|(seq, _)| key.seq >= seq));
        let more = rows.len() > limit;
        rows.truncate(limit);
        let last = rows.last().map(|(key, row)| (key.seq, row.enqueued_at)).filter(|_| more);
        let next = last.or(known_to);
        let searched_to = next.filter(|_| searched && !more).map(|(_, at)| at);
        Ok(History { rows, prev: None, next, searched_to })
    }

    fn walked(&self, filter: &Filter, after: Option<At>, limit: usize) -> Result<History, log::Error> {
        let mut to = after.map_or(self.head().next(), |(seq, _)| seq).min(self.head().next());
        if let Some(until) = filter.until {
            to = to.min(self.first_since(until)?);
        }
        let (mut rows, mut seen, mut last) = (Vec::new(), 0, None);
        while to > Seq(1) && seen < SCAN_MAX {
            let from = Seq(to.0.saturating_sub(STEP).max(1));
            let entries = self.snapshot().entries(from, (to.0 - from.0) as usize)?;
            for entry in entries.into_iter().rev() {
                (seen, last) = (seen + 1, Some((entry.seq, entry.at)));
                if filter.since.is_some_and(|since| entry.at < since) {
                    return Ok(History { rows, prev: None, next: None, searched_to: None });
                }
                let Fact::Enqueued { key, .. } = &entry.fact else { continue };
                let key = DeliveryKey { account: key.account, seq: entry.seq };
                let Some(row) = self.delivery(key)? else { continue };
                if !filter.matches(&row) {
                    continue;
                }
                if rows.len() == limit {
                    let next =
                        rows.last().map(|(key, row): &(DeliveryKey, Delivery)| (key.seq, row.enqueued_at));
                    return Ok(History { rows, prev: None, next, searched_to: None });
                }
                rows.push((key, row));
            }
            to = from;
        }
        let cut = last.filter(|_| to > Seq(1));
        Ok(History { rows, prev: None, next: cut, searched_to: cut.map(|(_, at)| at) })
    }
}
