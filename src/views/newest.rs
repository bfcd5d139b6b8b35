//! Deliveries of all accounts, newest first. No table has them in this order; the log does, so it is walked back.

use hooklog_projections::fact::Fact;
use hooklog_projections::ids::{AccountId, DeliveryKey, Seq};
use hooklog_projections::lifecycle::{Delivery, Status};
use hooklog_projections::time::Timestamp;

use super::View;
use super::query::{Filter, Page, SCAN_MAX};
use crate::log;

/// Entries that are read at a time.
const STEP: u64 = 500;
/// With more accounts than this, lists are not put together out of theirs.
const ACCOUNTS_MAX: usize = 200;

impl View<'_> {
    /// Deliveries of all accounts, newest first, before a position. What is dead, waits or is out is taken from the
    /// accounts' own tables if they are few; else at most [`SCAN_MAX`] entries of the log are looked through.
    pub fn history_of_all(
        &self,
        filter: &Filter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Page, log::Error> {
        let indexed = |status: &Status| !matches!(status, Status::Delivered | Status::Cancelled);
        if !filter.statuses.is_empty() && filter.statuses.iter().all(indexed) {
            let accounts = self.accounts(None, ACCOUNTS_MAX + 1)?;
            if accounts.len() <= ACCOUNTS_MAX {
                return self.merged(accounts.into_iter().map(|(id, _)| id), filter, before, limit);
            }
        }
        self.walked(filter, before, limit)
    }

    fn merged(
        &self,
        accounts: impl Iterator<Item = AccountId>,
        filter: &Filter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Page, log::Error> {
        let mut rows: Vec<(DeliveryKey, Delivery)> = Vec::new();
        // Below the highest place where an account's search ended, not everything is known.
        let mut known_to: Option<(Seq, Timestamp)> = None;
        let mut searched = false;
        for account in accounts {
            let page = self.history(account, filter, before, limit)?;
            searched |= page.searched_back_to.is_some();
            known_to = known_to.max(page.next);
            rows.extend(page.rows);
        }
        rows.sort_by_key(|(key, _)| std::cmp::Reverse(key.seq));
        rows.retain(|(key, _)| known_to.is_none_or(|(seq, _)| key.seq >= seq));
        let more = rows.len() > limit;
        rows.truncate(limit);
        let last = rows.last().map(|(key, row)| (key.seq, row.enqueued_at)).filter(|_| more);
        let next = last.or(known_to);
        let searched_back_to = next.filter(|_| searched && !more).map(|(_, at)| at);
        Ok(Page { rows, next, searched_back_to })
    }

    fn walked(&self, filter: &Filter, before: Option<Seq>, limit: usize) -> Result<Page, log::Error> {
        let mut to = before.unwrap_or(self.head().next()).min(self.head().next());
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
                    return Ok(Page { rows, next: None, searched_back_to: None });
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
                    return Ok(Page { rows, next, searched_back_to: None });
                }
                rows.push((key, row));
            }
            to = from;
        }
        let cut = last.filter(|_| to > Seq(1));
        Ok(Page { rows, next: cut, searched_back_to: cut.map(|(_, at)| at) })
    }
}
