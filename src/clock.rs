//! The only reader of time and chance. All else is handed a moment or a draw.
//!
//! Never knows what they are used for.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hooklog_projections::time::{Millis, Timestamp};

/// A source of moments.
pub trait Clock: Send + Sync {
    /// The wall clock, UTC. Stamps and due times.
    fn now(&self) -> Timestamp;
    /// A clock that only goes forward, from any start. Waits and time-outs.
    fn monotonic(&self) -> Millis;
    /// The same clock as finely as it goes: for measuring what takes less than a millisecond.
    fn elapsed(&self) -> Duration {
        Duration::from_millis(self.monotonic().0)
    }
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

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
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
    /// How wrong the wall clock is, in milliseconds.
    wrong: AtomicI64,
}

impl ManualClock {
    /// Stands at `now`; its monotonic clock shows the same number.
    pub fn at(now: Timestamp) -> Arc<ManualClock> {
        Arc::new(ManualClock { now: AtomicU64::new(now.0), wrong: AtomicI64::new(0) })
    }

    /// Goes on by `span`.
    pub fn advance(&self, span: Millis) {
        self.now.fetch_add(span.0, Ordering::SeqCst);
    }

    /// Makes the wall clock wrong by so many milliseconds from now on; the monotonic one goes on.
    pub fn mislead(&self, by_ms: i64) {
        self.wrong.store(by_ms, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        let now = self.now.load(Ordering::SeqCst);
        Timestamp(now.saturating_add_signed(self.wrong.load(Ordering::SeqCst)))
    }

    fn monotonic(&self) -> Millis {
        Millis(self.now.load(Ordering::SeqCst))
    }
}

/// A difference between the clocks that is no jump: the wall clock is believed at once.
const LEAP: u64 = 2_000;
/// How long the wall clock must stay ahead before it is believed.
const LASTING: u64 = 5 * 60_000;
/// How many times its pace a clock that is behind takes to catch up.
const CATCH_UP: u64 = 10;

/// A jump of the wall clock, as a [`Steady`] clock saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jump {
    /// It is ahead by this much. Unbelieved at first; if it stays so, made up for by and by.
    Ahead(Millis),
    /// It is behind by this much, and waited for.
    Behind(Millis),
}

/// A clock that follows the wall clock, but never goes back, and neither stalls nor floods when that jumps.
///
/// It goes on with the monotonic clock. Small differences are taken over at once. A jump ahead counts only
/// once it has lasted, and is then made up for gradually: whatever waited for those hours comes due at a
/// bounded pace. After a jump back it goes on a little slower until both agree.
#[derive(Clone, Debug)]
pub struct Steady {
    shown: Timestamp,
    /// The monotonic clock at the last reading.
    read_at: Millis,
    /// What the slower pace has left over, in tenths of a millisecond.
    tenths: u64,
    apart: Apart,
    jump: Option<Jump>,
}

/// How the wall clock stood to a steady one at the last reading.
#[derive(Clone, Copy, Debug)]
enum Apart {
    No,
    Ahead { since: Millis, by: u64 },
    Behind { by: u64 },
}

impl Steady {
    /// Begins at the wall clock, but not before `last`, which was shown by one before it.
    pub fn start(wall: Timestamp, last: Timestamp, monotonic: Millis) -> Steady {
        Steady { shown: wall.max(last), read_at: monotonic, tenths: 0, apart: Apart::No, jump: None }
    }

    /// The moment, given what the two clocks show.
    pub fn read(&mut self, wall: Timestamp, monotonic: Millis) -> Timestamp {
        let passed = monotonic.0.saturating_sub(self.read_at.0);
        self.read_at = self.read_at.max(monotonic);
        let steady = self.shown + Millis(passed);
        let (ahead, behind) = (wall.since(steady).0, steady.since(wall).0);
        if behind >= LEAP || (behind > 0 && matches!(self.apart, Apart::Behind { .. })) {
            if !matches!(self.apart, Apart::Behind { by } if behind.abs_diff(by) < LEAP) {
                self.jump = Some(Jump::Behind(Millis(behind)));
            }
            self.tenths += passed.saturating_mul(9);
            self.shown = self.shown + Millis(self.tenths / 10);
            self.tenths %= 10;
            self.apart = Apart::Behind { by: self.shown.since(wall).0 };
        } else if ahead >= LEAP {
            let since = match self.apart {
                Apart::Ahead { since, by } if ahead.abs_diff(by) < LEAP => since,
                _ => {
                    self.jump = Some(Jump::Ahead(Millis(ahead)));
                    self.read_at
                }
            };
            let lasted = self.read_at.0 - since.0 >= LASTING;
            let quick = self.shown + Millis(passed.saturating_mul(CATCH_UP));
            self.shown = if lasted { wall.min(quick) } else { steady };
            self.apart = Apart::Ahead { since, by: wall.since(self.shown).0 };
        } else {
            self.shown = self.shown.max(wall);
            self.apart = Apart::No;
        }
        self.shown
    }

    /// A jump that was seen since this was last asked.
    pub fn jumped(&mut self) -> Option<Jump> {
        self.jump.take()
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const WALL: u64 = 1_800_000_000_000;
    const HOUR: i64 = 3_600_000;

    /// Reads once a second for so long, the wall clock being wrong by `error`; the last reading.
    fn go(steady: &mut Steady, now: &mut u64, seconds: u64, error: i64) -> Timestamp {
        let mut shown = Timestamp(0);
        for _ in 0..seconds {
            *now += 1_000;
            let read = steady.read(Timestamp((WALL + *now).saturating_add_signed(error)), Millis(*now));
            assert!(read >= shown, "it went back");
            shown = read;
        }
        shown
    }

    fn at(now: u64) -> Timestamp {
        Timestamp(WALL + now)
    }

    #[test]
    fn small_differences_are_taken_over_at_once_and_never_by_going_back() {
        let (mut steady, mut now) = (Steady::start(at(0), at(0), Millis(0)), 0);
        assert_eq!(go(&mut steady, &mut now, 10, 0), at(10_000));
        assert_eq!(go(&mut steady, &mut now, 1, 1_999), at(12_999));
        assert_eq!(go(&mut steady, &mut now, 1, 0), at(12_999), "it waits");
        assert_eq!(go(&mut steady, &mut now, 1, 0), at(13_000));
        assert_eq!(steady.jumped(), None);
    }

    #[test]
    fn a_jump_that_does_not_last_never_was() {
        let (mut steady, mut now) = (Steady::start(at(0), at(0), Millis(0)), 0);
        go(&mut steady, &mut now, 10, 0);
        assert_eq!(go(&mut steady, &mut now, 299, 12 * HOUR), at(309_000));
        assert_eq!(steady.jumped(), Some(Jump::Ahead(Millis(12 * HOUR as u64))));
        assert_eq!(steady.jumped(), None, "once");
        assert_eq!(go(&mut steady, &mut now, 10, 0), at(319_000));
        assert_eq!(steady.jumped(), None);
    }

    #[test]
    fn a_jump_ahead_that_lasts_is_made_up_for_at_ten_seconds_a_second() {
        let (mut steady, mut now) = (Steady::start(at(0), at(0), Millis(0)), 0);
        assert_eq!(go(&mut steady, &mut now, 300, HOUR), at(300_000));
        assert_eq!(go(&mut steady, &mut now, 1, HOUR), at(310_000));
        // Nine seconds of the hour are made up for in each: 400 in all.
        assert_eq!(go(&mut steady, &mut now, 398, HOUR), at(4_290_000));
        assert_eq!(go(&mut steady, &mut now, 1, HOUR), at(4_300_000));
        assert_eq!(go(&mut steady, &mut now, 1, HOUR), at(4_301_000));
        assert_eq!(steady.jumped(), Some(Jump::Ahead(Millis(HOUR as u64))), "one jump, told once");
    }

    #[test]
    fn a_jump_back_is_waited_for_at_nine_tenths_of_the_pace() {
        let (mut steady, mut now) = (Steady::start(at(0), at(0), Millis(0)), 0);
        assert_eq!(go(&mut steady, &mut now, 10, 0), at(10_000));
        assert_eq!(go(&mut steady, &mut now, 10, -HOUR), at(19_000));
        assert_eq!(steady.jumped(), Some(Jump::Behind(Millis(HOUR as u64))));
        // Ten hours after it both agree.
        go(&mut steady, &mut now, 36_000 - 10, -HOUR);
        assert_eq!(go(&mut steady, &mut now, 1, -HOUR), Timestamp(WALL + now - HOUR as u64));
        assert_eq!(steady.jumped(), None);
    }

    #[test]
    fn however_often_it_is_read_the_slower_pace_is_the_same() {
        let mut steady = Steady::start(at(0), at(100_000), Millis(0));
        for now in 1..=1_000 {
            steady.read(at(now), Millis(now));
            steady.read(at(now), Millis(now));
        }
        assert_eq!(steady.read(at(1_000), Millis(1_000)), at(100_900));
        assert_eq!(steady.jumped(), Some(Jump::Behind(Millis(100_000))), "a start behind its own log");
    }

    #[test]
    fn a_second_jump_is_told_and_must_last_as_well() {
        let (mut steady, mut now) = (Steady::start(at(0), at(0), Millis(0)), 0);
        go(&mut steady, &mut now, 200, HOUR);
        assert!(steady.jumped().is_some());
        assert_eq!(go(&mut steady, &mut now, 200, 5 * HOUR), at(400_000));
        assert_eq!(steady.jumped(), Some(Jump::Ahead(Millis(5 * HOUR as u64))));
    }

    proptest! {
        /// Whatever the wall clock does: it never goes back, never stands for long, never runs away.
        #[test]
        fn it_neither_stalls_nor_floods(
            steps in proptest::collection::vec((1u64..3_000, any::<bool>(), -100_000_000i64..100_000_000), 1..400),
        ) {
            let mut steady = Steady::start(at(0), at(0), Millis(0));
            let (mut now, mut error, mut last) = (0, 0i64, at(0));
            for (passed, jumps, to) in steps {
                now += passed;
                if jumps {
                    // Small differences are believed at once; these are none.
                    error = if (to - error).abs() < 4_000 { error } else { to };
                }
                let wall = Timestamp((WALL + now).saturating_add_signed(error));
                let read = steady.read(wall, Millis(now));
                let moved = read.0 - last.0;
                prop_assert!(moved <= passed * CATCH_UP + LEAP, "{moved} in {passed}");
                let near = last.since(wall).0 < LEAP;
                prop_assert!(near || moved + 1 >= passed * 9 / 10, "{moved} in {passed}");
                last = read;
            }
        }

        /// Once the wall clock behaves, both agree within a time that the jump bounds.
        #[test]
        fn they_agree_in_the_end(error in -2 * HOUR..12 * HOUR) {
            let (mut steady, mut now) = (Steady::start(at(0), at(0), Millis(0)), 0);
            let wait = if error < 0 { error.unsigned_abs() / 100 + 10 } else { error as u64 / 9_000 + 310 };
            let shown = go(&mut steady, &mut now, wait, error);
            prop_assert_eq!(shown, Timestamp((WALL + now).saturating_add_signed(error)));
        }
    }
}
