//! The only reader of time and chance. All else is handed a moment or a draw.
//!
//! Never knows what they are used for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use hooklog_projections::time::{Millis, Timestamp};

/// A source of moments.
pub trait Clock: Send + Sync {
    /// The wall clock, UTC. Stamps and due times.
    fn now(&self) -> Timestamp;
    /// A clock that only goes forward, from any start. Waits and time-outs.
    fn monotonic(&self) -> Millis;
}

/// A source of draws.
pub trait Chance: Send {
    /// Fills `out` with bytes that nobody can foretell.
    fn fill(&mut self, out: &mut [u8]);

    /// A drawn number.
    fn draw(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_be_bytes(bytes)
    }

    /// `N` drawn bytes.
    fn bytes<const N: usize>(&mut self) -> [u8; N]
    where
        Self: Sized,
    {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }
}

/// The machine's clocks.
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// Starts its monotonic clock at zero.
    pub fn start() -> Arc<SystemClock> {
        Arc::new(SystemClock { start: Instant::now() })
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(since.as_millis() as u64)
    }

    fn monotonic(&self) -> Millis {
        Millis(self.start.elapsed().as_millis() as u64)
    }
}

/// The operating system's generator.
#[derive(Clone, Copy, Default)]
pub struct SystemChance;

impl Chance for SystemChance {
    fn fill(&mut self, out: &mut [u8]) {
        getrandom::fill(out).expect("the operating system gives random bytes");
    }
}

/// A clock that stands still until it is told otherwise.
#[derive(Default)]
pub struct ManualClock {
    now: AtomicU64,
}

impl ManualClock {
    /// Stands at `now`; its monotonic clock shows the same number.
    pub fn at(now: Timestamp) -> Arc<ManualClock> {
        Arc::new(ManualClock { now: AtomicU64::new(now.0) })
    }

    /// Goes on by `span`.
    pub fn advance(&self, span: Millis) {
        self.now.fetch_add(span.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.now.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Millis {
        Millis(self.now.load(Ordering::SeqCst))
    }
}

/// Draws that a seed determines (SplitMix64): for simulations and tests, never for secrets.
#[derive(Clone, Debug)]
pub struct SeededChance(u64);

impl SeededChance {
    /// The draws of a seed.
    pub fn new(seed: u64) -> SeededChance {
        SeededChance(seed)
    }

    /// A drawn number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }
}

impl Chance for SeededChance {
    fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            z ^= z >> 31;
            chunk.copy_from_slice(&z.to_be_bytes()[..chunk.len()]);
        }
    }
}
