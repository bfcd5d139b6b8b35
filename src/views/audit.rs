//! What was administered, newest first, page by page. Never decides what is an administrative fact.

use std::ops::ControlFlow;

use hooklog_projections::audit::{Audit, AuditKey};
use hooklog_projections::fact::Entry;
use hooklog_projections::ids::{AccountId, Seq};
use hooklog_projections::tables::Key;

use super::View;
use super::paging::{Page, Place};
use crate::log::{self, Order};

/// Entries that one page looks at: far fewer than rows, for each is a read of its whole batch.
pub const ENTRIES_MAX: usize = 1_000;

impl View<'_> {
    /// Administrative entries of an account, or of the whole store, newest first, of those that are wanted.
    pub fn audit(
        &self,
        account: Option<AccountId>,
        place: Place<Seq>,
        limit: usize,
        wanted: impl Fn(&Entry) -> bool,
    ) -> Result<Page<Entry, Seq>, log::Error> {
        // As the keys of this table: the store's own entries stand under an account that there is not.
        let prefix = account.unwrap_or(AccountId(0)).bytes();
        let at = place.map(|seq| AuditKey { account, seq });
        let (mut found, mut seen, mut last, mut stopped) = (Vec::new(), 0, None, None);
        self.visit::<Audit>(&prefix, at, Order::Descending, &mut |key, _| {
            if seen >= ENTRIES_MAX {
                let (seq, at) = last.expect("some were looked at");
                stopped = Some((if place.leads_back() { key.seq } else { seq }, at));
                return Ok(ControlFlow::Break(()));
            }
            let entry = self.entry(key.seq)?;
            seen += 1;
            last = Some((key.seq, entry.at));
            if wanted(&entry) {
                found.push(entry);
            }
            Ok(if found.len() > limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        let page = place.page(found, limit, |entry| entry.seq, stopped.map(|(seq, _)| seq));
        Ok(Page { searched_to: stopped.map(|(_, at)| at), ..page })
    }
}
