//! Notices a commit that never returns. The writer says when it enters and leaves one; whoever watches asks
//! how long it has been inside.
//!
//! Reads no clock (monotonic milliseconds are arguments), has no thread, and never decides what to do.

use std::sync::atomic::{AtomicU64, Ordering};

/// Shared by the writer and whoever watches it.
#[derive(Debug, Default)]
pub struct Watchdog {
    /// Milliseconds at which the commit began, plus one; 0 outside of one.
    since: AtomicU64,
}

impl Watchdog {
    /// The writer begins a commit at this monotonic millisecond.
    pub fn enter(&self, now_ms: u64) {
        self.since.store(now_ms.saturating_add(1), Ordering::Release);
    }

    /// The commit returned, however it ended.
    pub fn leave(&self) {
        self.since.store(0, Ordering::Release);
    }

    /// For how many milliseconds the writer has been in one commit; `None` if it is in none.
    pub fn stuck_for(&self, now_ms: u64) -> Option<u64> {
        match self.since.load(Ordering::Acquire) {
            0 => None,
            since => Some(now_ms.saturating_sub(since - 1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_only_inside_a_commit() {
        let dog = Watchdog::default();
        assert_eq!(dog.stuck_for(5), None);
        dog.enter(0);
        assert_eq!(dog.stuck_for(10_000), Some(10_000));
        dog.leave();
        assert_eq!(dog.stuck_for(20_000), None);
        dog.enter(30_000);
        assert_eq!(dog.stuck_for(29_999), Some(0), "a watcher's older reading is no fault");
    }
}
