//! How often something may happen: counts by key in windows of fixed length, in memory, for a bounded number
//! of keys. A restart begins anew.
//!
//! Never knows what is counted.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;

use hooklog_projections::time::Millis;

/// Keys that are counted at a time; beyond, the one whose window began first is forgotten.
const KEYS_MAX: usize = 10_000;

/// How a window stands after something was counted in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// How often it may happen again before the window ends.
    pub left: u32,
    /// Seconds until it ends.
    pub seconds: u64,
}

/// Counts of one kind.
pub struct Windows<K> {
    max: u32,
    span: Millis,
    open: Mutex<HashMap<K, Window>>,
}

#[derive(Clone, Copy)]
struct Window {
    since: Millis,
    count: u32,
}

impl<K: Hash + Eq + Copy> Windows<K> {
    /// At most `max` in any window of `span`.
    pub fn new(max: u32, span: Millis) -> Windows<K> {
        Windows { max, span, open: Mutex::default() }
    }

    /// Counts one at a moment of the monotonic clock.
    ///
    /// # Errors
    /// The seconds until the window ends, if it is full; then nothing is counted.
    pub fn take(&self, key: K, now: Millis) -> Result<Room, u64> {
        let mut open = self.open.lock().expect("no holder panics");
        if !open.contains_key(&key) && open.len() >= KEYS_MAX {
            open.retain(|_, window| now.0 < window.since.0 + self.span.0);
            let first = open.iter().min_by_key(|(_, window)| window.since).map(|(key, _)| *key);
            if let Some(first) = first.filter(|_| open.len() >= KEYS_MAX) {
                open.remove(&first);
            }
        }
        let window = open.entry(key).or_insert(Window { since: now, count: 0 });
        if now.0 >= window.since.0 + self.span.0 {
            *window = Window { since: now, count: 0 };
        }
        if window.count >= self.max {
            return Err(self.rest(*window, now));
        }
        window.count += 1;
        Ok(Room { left: self.max - window.count, seconds: self.rest(*window, now) })
    }

    /// How often it may happen in a window, and the window's seconds.
    pub fn policy(&self) -> (u32, u64) {
        (self.max, self.span.0 / 1_000)
    }

    /// The seconds until a full window ends; `None` while there is room.
    pub fn full(&self, key: K, now: Millis) -> Option<u64> {
        let open = self.open.lock().expect("no holder panics");
        let window = open.get(&key)?;
        let is_full = window.count >= self.max && now.0 < window.since.0 + self.span.0;
        is_full.then(|| self.rest(*window, now))
    }

    fn rest(&self, window: Window, now: Millis) -> u64 {
        (window.since.0 + self.span.0).saturating_sub(now.0).div_ceil(1_000).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_fills_and_ends() {
        let windows = Windows::new(2, Millis(60_000));
        assert_eq!(windows.take("a", Millis(1_000)), Ok(Room { left: 1, seconds: 60 }));
        assert_eq!(windows.full("a", Millis(1_000)), None);
        assert_eq!(windows.take("a", Millis(2_000)), Ok(Room { left: 0, seconds: 59 }));
        assert_eq!(windows.take("a", Millis(31_000)), Err(30));
        assert_eq!(windows.full("a", Millis(60_999)), Some(1));
        let fresh = Ok(Room { left: 1, seconds: 60 });
        assert_eq!(windows.take("b", Millis(31_000)), fresh, "each key has its own");
        assert_eq!(windows.take("a", Millis(61_000)), fresh, "the next window");
    }

    #[test]
    fn the_number_of_keys_is_bounded() {
        let windows = Windows::new(1, Millis(1_000_000));
        for key in 0..KEYS_MAX + 100 {
            assert!(windows.take(key, Millis(key as u64)).is_ok());
        }
        assert_eq!(windows.open.lock().expect("no panic").len(), KEYS_MAX);
        assert!(windows.full(KEYS_MAX + 99, Millis(KEYS_MAX as u64)).is_some(), "the newest stay");
    }
}
