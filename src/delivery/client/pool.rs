//! Connections that wait for their next request.
//!
//! Nothing here runs: a waiting connection is not watched. Whether it is still there is seen when it is taken.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::connect::Conn;

/// How long an unused connection is kept: shorter than most receivers keep theirs, so that ours is closed first.
pub const POOL_IDLE: Duration = Duration::from_secs(30);

/// Unused connections kept for one host, port and address. Many endpoints may share a host, and what they were
/// sent at once comes back at once: with 8, as one endpoint has in flight, two of three deliveries to a busy host
/// began with a connection of their own.
pub const POOL_IDLE_PER_KEY: usize = 64;

/// The least time between two rounds of closing what has waited too long.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

/// What a connection is good for: the very host that its certificate was checked for, at the very address that
/// was judged, under the very rules that judged it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub host: Arc<str>,
    pub https: bool,
    pub address: SocketAddr,
    pub rules: u64,
}

/// All waiting connections, at most so many.
pub(super) struct Pool {
    shelf: Mutex<Shelf>,
    idle_max: usize,
}

#[derive(Default)]
struct Shelf {
    /// Of each key the newest last. No list is empty.
    by_key: HashMap<Arc<Key>, VecDeque<Idle>>,
    /// All of them, the oldest first, by a number that only grows.
    by_age: BTreeMap<u64, (Instant, Arc<Key>)>,
    next: u64,
    /// Whether somebody closes what has waited too long.
    swept: bool,
}

struct Idle {
    number: u64,
    conn: Box<Conn>,
}

impl Pool {
    pub(super) fn new(idle_max: usize) -> Arc<Pool> {
        Arc::new(Pool { shelf: Mutex::default(), idle_max })
    }

    /// The connection that was used last, if one waits and is still there. The oldest ones may die of age.
    pub(super) fn take(&self, key: &Key) -> Option<Box<Conn>> {
        loop {
            let mut conn = {
                let mut shelf = self.shelf();
                let list = shelf.by_key.get_mut(key)?;
                let idle = list.pop_back()?;
                if list.is_empty() {
                    shelf.by_key.remove(key);
                }
                let since = shelf.by_age.remove(&idle.number).map(|(since, _)| since);
                if since.is_none_or(|since| since.elapsed() >= POOL_IDLE) {
                    continue;
                }
                idle.conn
            };
            if conn.is_alive() {
                return Some(conn);
            }
        }
    }

    /// Keeps a connection for [`POOL_IDLE`]. What is too much goes, the oldest first.
    pub(super) fn put(self: &Arc<Pool>, key: Key, conn: Box<Conn>) {
        if self.idle_max == 0 {
            return;
        }
        let now = Instant::now();
        // Closed after the lock is free.
        let mut surplus = Vec::new();
        let mut shelf = self.shelf();
        if shelf.by_age.len() >= self.idle_max {
            surplus.extend(shelf.pop_oldest());
        }
        let number = shelf.next;
        shelf.next += 1;
        let key = match shelf.by_key.get_key_value(&key) {
            Some((key, _)) => key.clone(),
            None => Arc::new(key),
        };
        let list = shelf.by_key.entry(key.clone()).or_default();
        list.push_back(Idle { number, conn });
        if list.len() > POOL_IDLE_PER_KEY
            && let Some(oldest) = list.pop_front()
        {
            shelf.by_age.remove(&oldest.number);
            surplus.push(oldest.conn);
        }
        shelf.by_age.insert(number, (now, key));
        if !shelf.swept {
            shelf.swept = true;
            let sweeper = Sweeper { pool: Arc::downgrade(self), done: false };
            tokio::spawn(sweep(sweeper, now + POOL_IDLE));
        }
        drop(shelf);
        drop(surplus);
    }

    /// Closes all of them.
    pub(super) fn clear(&self) {
        let mut shelf = self.shelf();
        shelf.by_age.clear();
        let all = std::mem::take(&mut shelf.by_key);
        drop(shelf);
        drop(all);
    }

    /// Closes what has waited too long. Answers when the next one will have, if there is one.
    fn close_old(&self, now: Instant) -> Option<Instant> {
        let mut old = Vec::new();
        let mut shelf = self.shelf();
        let next = loop {
            match shelf.by_age.first_key_value().map(|(_, (since, _))| *since + POOL_IDLE) {
                Some(end) if end <= now => old.extend(shelf.pop_oldest()),
                next => break next,
            }
        };
        shelf.swept = next.is_some();
        drop(shelf);
        drop(old);
        next
    }

    fn shelf(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    fn pop_oldest(&mut self) -> Option<Box<Conn>> {
        let (_, (_, key)) = self.by_age.pop_first()?;
        let list = self.by_key.get_mut(&key)?;
        // Within a key the oldest is first, too.
        let oldest = list.pop_front();
        if list.is_empty() {
            self.by_key.remove(&key);
        }
        oldest.map(|idle| idle.conn)
    }
}

/// Says so if it ends before its time: with its runtime, say.
struct Sweeper {
    pool: Weak<Pool>,
    done: bool,
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        if let (false, Some(pool)) = (self.done, self.pool.upgrade()) {
            pool.shelf().swept = false;
        }
    }
}

async fn sweep(mut sweeper: Sweeper, mut at: Instant) {
    while !sweeper.done {
        sleep_until(at).await;
        let Some(pool) = sweeper.pool.upgrade() else { return };
        let now = Instant::now();
        match pool.close_old(now) {
            Some(next) => at = next.max(now + SWEEP_EVERY),
            None => sweeper.done = true,
        }
    }
}
