//! The facts of the log as they commit, for a program that embeds it. Reads what is published, at the reader's own
//! pace: a slow one misses nothing and holds nobody up.

use std::collections::VecDeque;
use std::sync::Arc;

use hooklog_projections::fact::Entry;
use hooklog_projections::ids::Seq;
use tokio::sync::watch;

use super::{Error, Live, Shared};

/// Entries read at a time.
const PAGE: usize = 500;

/// The facts after a position, one after the other.
pub struct Facts {
    shared: Arc<Shared>,
    heads: watch::Receiver<Seq>,
    last: Seq,
    page: VecDeque<Entry>,
}

impl Facts {
    pub(super) fn after(shared: Arc<Shared>, live: &Live, last: Seq) -> Facts {
        let heads = live.handle.published().heads();
        Facts { shared, heads, last, page: VecDeque::new() }
    }

    /// The next fact, once there is one; `None` after the last when the store is being closed. Dropped half-way,
    /// it loses nothing. Go on after the `seq` of the last fact that was dealt with: over a restart, too.
    ///
    /// # Errors
    /// The log cannot be read.
    pub async fn next(&mut self) -> Result<Option<Entry>, Error> {
        loop {
            if let Some(entry) = self.page.pop_front() {
                self.last = entry.seq;
                return Ok(Some(entry));
            }
            self.heads.borrow_and_update();
            let Ok(live) = self.shared.live() else { return Ok(None) };
            let from = self.last.next();
            let reading =
                tokio::task::spawn_blocking(move || live.handle.view().snapshot().entries(from, PAGE));
            let entries = reading.await.map_err(|error| Error::Failed(error.to_string()))??;
            if !entries.is_empty() {
                self.page = entries.into();
                continue;
            }
            tokio::select! {
                // Its other end is gone once the store is closed: the next look says so.
                _ = self.heads.changed() => {}
                () = self.shared.stop.cancelled() => return Ok(None),
            }
        }
    }
}
