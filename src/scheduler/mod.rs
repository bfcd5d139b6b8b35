//! What to send next, within all limits: fair turns between endpoints, oldest first within each.
//!
//! Sans-I/O: told what waits (`handle_*`), asked what to do (`poll`, `next_wake`); the moment is an argument.
//! Holds only what is about to be sent: a page of each endpoint's due entries, the rest stays on disk. Losing
//! all of it changes no action. Never knows a log, a view's row, HTTP, or why a delivery waits.

mod look;
pub mod retry;
mod target;

use std::collections::{BTreeSet, HashMap, VecDeque};

use hooklog_projections::ids::{EndpointKey, Seq};
use hooklog_projections::time::{Millis, Timestamp};

pub use look::{Holder, Look};
pub use retry::RetryPolicy;
pub use target::Target;
use target::Targets;

/// Due entries of one endpoint that are held in memory: enough to fill its permits many times between two
/// reads, and 100,000 endpoints with full pages stay below 1 GiB.
pub const PAGE: usize = 256;

/// What waits at an endpoint, in the order in which it is sent.
pub type DueEntry = (Timestamp, Seq);

/// Process-wide limits.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests out at a time, over all endpoints.
    pub in_flight_max: usize,
    /// Requests out at a time to one receiver, over all endpoints that lead to it.
    pub target_in_flight_max: usize,
}

/// An endpoint's own limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneLimits {
    /// Where it leads.
    pub target: Target,
    /// Requests out at a time.
    pub in_flight_max: u32,
    /// Paused or disabled: nothing is sent.
    pub held: bool,
    /// Nothing is sent before.
    pub gate_until: Timestamp,
    /// Its last attempt timed out, or it never had one: its permits are of the half that all such endpoints share.
    /// Else ten thousand endpoints that all hang from their first request on would have every permit.
    pub slow: bool,
    /// It seems to be down: single probes until one succeeds.
    pub breaker: Option<Breaker>,
    /// At most this many requests begin in any second.
    pub rate_per_second: Option<u32>,
}

/// An open circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breaker {
    /// The next single probe starts no sooner.
    pub probe_at: Timestamp,
    /// A delivery is held back no longer than this after its due time: a breaker must not move a death later
    /// than the schedule's own total.
    pub hold_max: Millis,
}

impl Breaker {
    /// When a delivery starts at the earliest: with the next probe, if none is out.
    pub fn lets_through(&self, due: Timestamp, probing: bool) -> Timestamp {
        let probe = if probing { Timestamp::MAX } else { self.probe_at };
        probe.min(due + self.hold_max)
    }
}

/// An attempt to make now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Where.
    pub endpoint: EndpointKey,
    /// Which delivery.
    pub delivery: Seq,
    /// The due time that it retires.
    pub due_at: Timestamp,
}

/// Reads due entries of an endpoint after `after`, oldest first, at most `limit`.
pub trait DueSource {
    /// What can go wrong below.
    type Error;
    /// The entries. Fewer than `limit` means that there are no more.
    fn due_after(
        &mut self,
        endpoint: EndpointKey,
        after: DueEntry,
        limit: usize,
    ) -> Result<Vec<DueEntry>, Self::Error>;
}

/// The scheduler of one partition.
pub struct Scheduler {
    limits: Limits,
    page_max: usize,
    lanes: HashMap<EndpointKey, Lane>,
    /// Endpoints that can probably run now, in turn.
    ring: VecDeque<EndpointKey>,
    /// The slow ones among them, apart: while the shared half is taken they are in nobody's way.
    slow_ring: VecDeque<EndpointKey>,
    /// The next turn is a slow one's, if there is one.
    slow_turn: bool,
    /// When to look at an endpoint again.
    timers: BTreeSet<(Timestamp, EndpointKey)>,
    in_flight: usize,
    slow_in_flight: usize,
    targets: Targets,
    /// No rate knows what began before: until a step after this, nothing is taken to be free.
    began_at: Timestamp,
}

/// A place in one of the two rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ring {
    Quick,
    Slow,
}

struct Lane {
    limits: LaneLimits,
    /// All that waits up to `horizon`.
    page: BTreeSet<DueEntry>,
    /// What lies behind it is on disk only; `None` if the page is all there is.
    horizon: Option<DueEntry>,
    in_flight: u32,
    /// Of these, how many took a permit of the shared half.
    slow_in_flight: u32,
    /// When the rate lets the next request begin, in microseconds. Empty at a start: no burst.
    rate_at_us: u64,
    ring: Option<Ring>,
    /// It could run but for its receiver, and is in that one's queue.
    parked: Option<Ring>,
    timer: Option<Timestamp>,
    /// Since when, or from when on, nothing of its own keeps it from sending what is due; `None`: something does,
    /// nobody knows until when.
    free_at: Option<Timestamp>,
}

/// What an endpoint can do.
enum Ready {
    /// Send, or read more of what waits.
    Now,
    /// Look again at a moment.
    At(Timestamp),
    /// Wait for a permit, a resume, or work.
    Not,
}

impl Lane {
    fn ready(&self, now: Timestamp) -> Ready {
        if self.limits.held || self.in_flight >= self.limits.in_flight_max {
            return Ready::Not;
        }
        // What lies behind the horizon is due no sooner than it.
        let Some((due, _)) = self.page.first().copied().or(self.horizon) else { return Ready::Not };
        let mut at = due.max(self.limits.gate_until).max(self.rate_at());
        if let Some(breaker) = self.limits.breaker {
            at = at.max(breaker.lets_through(due, self.in_flight > 0));
        }
        if at <= now { Ready::Now } else { Ready::At(at) }
    }

    /// The millisecond in which the rate lets a request begin; several may fall into one.
    fn rate_at(&self) -> Timestamp {
        Timestamp(self.rate_at_us / 1000)
    }

    /// A request begins.
    fn spend(&mut self, now: Timestamp) {
        self.in_flight += 1;
        if let Some(rate) = self.limits.rate_per_second {
            self.rate_at_us = self.rate_at_us.max(now.0.saturating_mul(1000)).saturating_add(step(rate));
        }
    }

    fn idle(&self) -> bool {
        self.page.is_empty() && self.horizon.is_none() && self.in_flight == 0
    }

    fn wanted_ring(&self) -> Ring {
        if self.limits.slow { Ring::Slow } else { Ring::Quick }
    }

    /// When it may be forgotten if it is idle: not while its rate remembers a request.
    fn forget_at(&self) -> Timestamp {
        Timestamp(self.rate_at_us.div_ceil(1000))
    }
}

/// Microseconds between two requests at a rate.
fn step(rate: u32) -> u64 {
    1_000_000u64.div_ceil(u64::from(rate.max(1)))
}

impl Scheduler {
    /// An empty one that begins at a moment.
    pub fn new(limits: Limits, now: Timestamp) -> Scheduler {
        Scheduler {
            limits,
            page_max: PAGE,
            lanes: HashMap::new(),
            ring: VecDeque::new(),
            slow_ring: VecDeque::new(),
            slow_turn: false,
            timers: BTreeSet::new(),
            in_flight: 0,
            slow_in_flight: 0,
            targets: Targets::new(limits.target_in_flight_max),
            began_at: now,
        }
    }

    /// Requests out.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// When it began.
    pub fn began_at(&self) -> Timestamp {
        self.began_at
    }

    /// Due entries in memory.
    pub fn held(&self) -> usize {
        self.lanes.values().map(|lane| lane.page.len()).sum()
    }

    /// Something lies in wait on disk for an endpoint, nobody knows what: a start.
    pub fn handle_backlog(&mut self, endpoint: EndpointKey, limits: LaneLimits, now: Timestamp) {
        let lane = self.lane(endpoint, limits, now);
        lane.page.clear();
        lane.horizon = Some((Timestamp(0), Seq(0)));
        self.arm(endpoint, now);
    }

    /// A delivery waits.
    pub fn handle_waiting(
        &mut self,
        endpoint: EndpointKey,
        limits: LaneLimits,
        entry: DueEntry,
        now: Timestamp,
    ) {
        let page_max = self.page_max;
        let lane = self.lane(endpoint, limits, now);
        if lane.horizon.is_none_or(|horizon| entry <= horizon) {
            lane.page.insert(entry);
            if lane.page.len() > page_max {
                lane.page.pop_last();
                lane.horizon = lane.page.last().copied();
            }
        }
        self.arm(endpoint, now);
    }

    /// A delivery waits no more, for another reason than [`Scheduler::poll`].
    pub fn handle_gone(&mut self, endpoint: EndpointKey, entry: DueEntry, now: Timestamp) {
        if let Some(lane) = self.lanes.get_mut(&endpoint) {
            lane.page.remove(&entry);
            self.arm(endpoint, now);
        }
    }

    /// An endpoint's limits changed.
    pub fn handle_limits(&mut self, endpoint: EndpointKey, limits: LaneLimits, now: Timestamp) {
        if self.lanes.contains_key(&endpoint) {
            let left = self.limit(endpoint, limits);
            self.arm(endpoint, now);
            left.into_iter().for_each(|target| self.call(target, now));
        }
    }

    /// An attempt is over.
    pub fn handle_ended(&mut self, endpoint: EndpointKey, now: Timestamp) {
        let Some(lane) = self.lanes.get_mut(&endpoint) else { return };
        lane.in_flight = lane.in_flight.saturating_sub(1);
        self.in_flight = self.in_flight.saturating_sub(1);
        if lane.slow_in_flight > 0 {
            lane.slow_in_flight -= 1;
            self.slow_in_flight -= 1;
        }
        let target = lane.limits.target;
        self.targets.give_back(target, 1);
        self.arm(endpoint, now);
        self.call(target, now);
    }

    /// What [`Scheduler::poll`] gave out did not become a request: the rate gets its share back, too.
    pub fn handle_unsent(&mut self, endpoint: EndpointKey, now: Timestamp) {
        if let Some(lane) = self.lanes.get_mut(&endpoint)
            && let Some(rate) = lane.limits.rate_per_second
        {
            lane.rate_at_us = lane.rate_at_us.saturating_sub(step(rate));
        }
        self.handle_ended(endpoint, now);
    }

    /// Takes a permit for a delivery that is only now being enqueued, if it may leave at once: nothing waits
    /// before it, its endpoint may run, and there is room for all others that are ready. Given back with
    /// [`Scheduler::handle_ended`].
    pub fn reserve(&mut self, endpoint: EndpointKey, limits: LaneLimits, now: Timestamp) -> bool {
        let slow_free = self.slow_max().saturating_sub(self.slow_in_flight);
        let ready = self.ring.len() + self.slow_ring.len().min(slow_free);
        let room = self.in_flight + ready < self.limits.in_flight_max;
        let room = room && (!limits.slow || self.slow_ring.len() < slow_free);
        let lane = self.lane(endpoint, limits, now);
        let free = room && !limits.held && limits.gate_until <= now && lane.in_flight < limits.in_flight_max;
        let open = lane.limits.breaker.is_none() && lane.rate_at() <= now;
        let fits = free && open && lane.page.is_empty() && lane.horizon.is_none();
        let fits = fits && self.targets.is_free(limits.target);
        if fits {
            self.spend(endpoint, now);
        } else {
            self.arm(endpoint, now);
        }
        fits
    }

    /// The next attempt to make now, if any.
    pub fn poll<S: DueSource>(&mut self, now: Timestamp, source: &mut S) -> Result<Option<Start>, S::Error> {
        while let Some((at, endpoint)) = self.timers.first().copied().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, endpoint));
            if let Some(lane) = self.lanes.get_mut(&endpoint) {
                lane.timer = None;
            }
            self.arm(endpoint, now);
        }
        // Whoever is looked at and cannot start leaves its ring: this ends.
        while self.in_flight < self.limits.in_flight_max {
            let Some((endpoint, ring)) = self.next_turn() else { return Ok(None) };
            let Some(lane) = self.lanes.get_mut(&endpoint).filter(|lane| lane.ring == Some(ring)) else {
                continue;
            };
            lane.ring = None;
            let target = lane.limits.target;
            if lane.wanted_ring() != ring {
                self.arm(endpoint, now);
                self.call(target, now);
                continue;
            }
            if matches!(lane.ready(now), Ready::Now) && self.targets.is_full(target) {
                (lane.parked, lane.free_at) = (Some(ring), None);
                self.targets.park(target, ring, endpoint);
                continue;
            }
            if matches!(lane.ready(now), Ready::Now)
                && lane.page.is_empty()
                && let Some(after) = lane.horizon
            {
                let more = source.due_after(endpoint, after, self.page_max)?;
                lane.horizon = if more.len() < self.page_max { None } else { more.last().copied() };
                lane.page.extend(more);
            }
            let first = match lane.ready(now) {
                Ready::Now => lane.page.pop_first(),
                Ready::At(_) | Ready::Not => None,
            };
            if first.is_some() {
                self.spend(endpoint, now);
            }
            self.arm(endpoint, now);
            // Whoever was called and does not start hands the call on; so does who starts while there is room.
            self.call(target, now);
            let Some(first) = first else { continue };
            return Ok(Some(Start { endpoint, delivery: first.1, due_at: first.0 }));
        }
        Ok(None)
    }

    /// Whose turn it is: the two rings alternate, as long as slow ones have a permit left.
    fn next_turn(&mut self) -> Option<(EndpointKey, Ring)> {
        let slow_may = self.slow_in_flight < self.slow_max() && !self.slow_ring.is_empty();
        let slow = slow_may && (self.slow_turn || self.ring.is_empty());
        self.slow_turn = !slow;
        let (ring, name) =
            if slow { (&mut self.slow_ring, Ring::Slow) } else { (&mut self.ring, Ring::Quick) };
        ring.pop_front().map(|endpoint| (endpoint, name))
    }

    /// A request begins.
    fn spend(&mut self, endpoint: EndpointKey, now: Timestamp) {
        let Some(lane) = self.lanes.get_mut(&endpoint) else { return };
        lane.spend(now);
        self.in_flight += 1;
        self.targets.take(lane.limits.target, 1);
        if lane.limits.slow {
            lane.slow_in_flight += 1;
            self.slow_in_flight += 1;
        }
    }

    /// The half that slow endpoints share.
    fn slow_max(&self) -> usize {
        self.limits.in_flight_max.div_ceil(2)
    }

    /// When to poll again, if nothing happens before. `None`: only when something happens.
    pub fn next_wake(&self) -> Option<Timestamp> {
        self.timers.first().map(|(at, _)| *at)
    }

    fn lane(&mut self, endpoint: EndpointKey, limits: LaneLimits, now: Timestamp) -> &mut Lane {
        let began_us = self.began_at.0.saturating_mul(1000);
        let rate_at_us = limits.rate_per_second.map_or(0, |rate| began_us.saturating_add(step(rate)));
        let lane = self.lanes.entry(endpoint).or_insert_with(|| Lane {
            limits,
            page: BTreeSet::new(),
            horizon: None,
            in_flight: 0,
            slow_in_flight: 0,
            rate_at_us,
            ring: None,
            parked: None,
            timer: None,
            free_at: None,
        });
        if lane.limits.target == limits.target {
            lane.limits = limits;
        } else if let Some(left) = self.limit(endpoint, limits) {
            self.call(left, now);
        }
        self.lanes.get_mut(&endpoint).expect("it was just put there")
    }

    /// Takes over an endpoint's limits. If it leads elsewhere now, what is out counts there, and the receiver that
    /// it left is answered.
    fn limit(&mut self, endpoint: EndpointKey, limits: LaneLimits) -> Option<Target> {
        let lane = self.lanes.get_mut(&endpoint)?;
        let before = std::mem::replace(&mut lane.limits, limits).target;
        if before == limits.target {
            return None;
        }
        lane.parked = None;
        self.targets.give_back(before, lane.in_flight);
        self.targets.take(limits.target, lane.in_flight);
        Some(before)
    }

    /// There may be room at a receiver: whoever has waited longest for it gets its turn, in each ring.
    fn call(&mut self, target: Target, now: Timestamp) {
        for ring in [Ring::Quick, Ring::Slow] {
            while let Some(endpoint) = self.targets.call(target, ring) {
                let Some(lane) = self.lanes.get_mut(&endpoint) else { continue };
                if lane.parked != Some(ring) || lane.limits.target != target {
                    continue;
                }
                lane.parked = None;
                self.arm(endpoint, now);
                if self.lanes.get(&endpoint).is_some_and(|lane| lane.ring == Some(ring)) {
                    break;
                }
            }
        }
    }

    /// Puts an endpoint where it belongs: in the ring, on a timer, or out of memory.
    fn arm(&mut self, endpoint: EndpointKey, now: Timestamp) {
        let Some(lane) = self.lanes.get_mut(&endpoint) else { return };
        let ready = lane.ready(now);
        let timer = match ready {
            Ready::Now => {
                let wanted = lane.wanted_ring();
                // A place in the other ring, if it had one, is skipped there; so is one in a receiver's queue.
                if lane.ring != Some(wanted) && lane.parked != Some(wanted) {
                    lane.parked = None;
                    lane.ring = Some(wanted);
                    match wanted {
                        Ring::Quick => self.ring.push_back(endpoint),
                        Ring::Slow => self.slow_ring.push_back(endpoint),
                    }
                }
                None
            }
            Ready::At(at) => Some(at),
            Ready::Not => None,
        };
        lane.free_at = match ready {
            Ready::Now if lane.parked.is_some() => None,
            Ready::Now => Some(lane.free_at.map_or(now, |at| at.min(now))),
            Ready::At(at) => Some(at),
            Ready::Not => None,
        };
        if lane.timer != timer {
            if let Some(at) = lane.timer {
                self.timers.remove(&(at, endpoint));
            }
            if let Some(at) = timer {
                self.timers.insert((at, endpoint));
            }
            lane.timer = timer;
        }
        if lane.idle() && lane.ring.is_none() && lane.timer.is_none() {
            let at = lane.forget_at();
            if at <= now {
                self.lanes.remove(&endpoint);
            } else {
                lane.timer = Some(at);
                self.timers.insert((at, endpoint));
            }
        }
    }
}

#[cfg(test)]
mod tests;
