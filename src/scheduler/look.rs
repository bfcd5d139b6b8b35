//! What is late, and on whose account: the one place that tells what this service owes from what an endpoint's own
//! limits hold back.
//!
//! An attempt is late through us for as long as it has been due *and* nothing of its endpoint's own stood in its way:
//! no pause, gate, open breaker, rate, cap of requests out, or receiver that takes no more. Whenever one of those lets
//! go, counting begins anew, so that a backlog of an endpoint's own making never looks like ours; and a process that
//! starts owes nothing for the time when there was none (that it was gone is told by the missing series).
//! The half that slow endpoints share and the limit of all requests are ours: who waits for these waits for us.

use std::collections::HashMap;

use hooklog_projections::ids::{AccountId, Seq};
use hooklog_projections::time::Timestamp;

use super::{Lane, Scheduler};

/// Due attempts that are counted: enough to see that there are many.
const DUE_COUNTED: u64 = 100_000;

/// What keeps a due delivery back that is its endpoint's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// Paused or disabled by somebody.
    Pause,
    /// The receiver asked to be left alone (`Retry-After`).
    Gate,
    /// The circuit breaker is open.
    Breaker,
    /// The endpoint's rate.
    Rate,
    /// As many requests are out to it as may be.
    InFlight,
    /// As many requests are out to its receiver, over all endpoints, as may be.
    Receiver,
    /// A queue for which no worker waits.
    Workers,
}

impl Holder {
    /// All of them.
    pub const ALL: [Holder; 7] = [
        Holder::Pause,
        Holder::Gate,
        Holder::Breaker,
        Holder::Rate,
        Holder::InFlight,
        Holder::Receiver,
        Holder::Workers,
    ];

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Holder::Pause => "pause",
            Holder::Gate => "gate",
            Holder::Breaker => "breaker",
            Holder::Rate => "rate",
            Holder::InFlight => "in_flight",
            Holder::Receiver => "receiver",
            Holder::Workers => "workers",
        }
    }
}

/// What waits, and for whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// From when on the first attempt of all that wait could have started, or can: in the past, if it is late.
    pub first: Option<Timestamp>,
    /// The same by account, of what could have started by the moment of the look.
    pub late: HashMap<AccountId, Timestamp>,
    /// Attempts that could start now, as far as they are in memory: at most a page of each endpoint, and not many
    /// more than [`DUE_COUNTED`].
    pub due: u64,
    /// The oldest due time among what endpoints' own limits hold back. What lies on disk only is not known.
    pub oldest_held: Option<Timestamp>,
    /// Endpoints with something due that their own limits hold back.
    pub held: [u64; Holder::ALL.len()],
}

impl Look {
    /// Something that could have started at a moment.
    pub(crate) fn ready(&mut self, account: AccountId, from: Timestamp, now: Timestamp) {
        self.first = Some(self.first.map_or(from, |first| first.min(from)));
        if from <= now {
            let late = self.late.entry(account).or_insert(from);
            *late = (*late).min(from);
        }
    }

    fn hold(&mut self, holder: Holder, lane: &Lane) {
        self.held[holder as usize] += 1;
        // A page that is yet to be read begins with anything.
        if let Some((due, _)) = lane.page.first() {
            self.oldest_held = self.oldest_held.into_iter().chain([*due]).min();
        }
    }

    /// Takes another look's figures in.
    pub(crate) fn add(&mut self, other: Look) {
        self.first = self.first.into_iter().chain(other.first).min();
        self.oldest_held = self.oldest_held.into_iter().chain(other.oldest_held).min();
        self.due += other.due;
        self.held.iter_mut().zip(other.held).for_each(|(to, from)| *to += from);
        for (account, from) in other.late {
            let late = self.late.entry(account).or_insert(from);
            *late = (*late).min(from);
        }
    }

    /// The same, where whatever an endpoint's own pause or cap holds back waits for a worker.
    pub(crate) fn of_queues(mut self) -> Look {
        for holder in [Holder::Pause, Holder::InFlight] {
            self.held[Holder::Workers as usize] += std::mem::take(&mut self.held[holder as usize]);
        }
        self
    }

    /// How many endpoints something of their own holds back.
    pub fn held_by(&self, holder: Holder) -> u64 {
        self.held[holder as usize]
    }
}

impl Scheduler {
    /// What waits now, and for whom. Looks at every endpoint that something waits at: for once a second.
    pub fn look(&mut self, now: Timestamp) -> Look {
        let mut look = Look::default();
        for (endpoint, lane) in &mut self.lanes {
            let Some((due, _)) = lane.page.first().copied().or(lane.horizon) else { continue };
            let ready = lane.free_at.is_some_and(|free| free.max(due) <= now);
            // Its turn has not come, and if it came it would be parked: who let it wait is its receiver.
            let full = ready && self.targets.is_full(lane.limits.target);
            if full {
                lane.free_at = Some(now);
            }
            match lane.free_at {
                _ if full => look.hold(Holder::Receiver, lane),
                Some(free) if free <= now || due > now => {
                    look.ready(endpoint.account, due.max(free), now);
                    if look.due < DUE_COUNTED {
                        look.due += lane.due_by(now);
                    }
                }
                free if due <= now => {
                    look.hold(lane.holder(now), lane);
                    // It will be ours again when it is let go.
                    if let Some(free) = free {
                        look.ready(endpoint.account, free, now);
                    }
                }
                _ => {}
            }
        }
        look
    }
}

impl Lane {
    /// Due entries in memory.
    fn due_by(&self, now: Timestamp) -> u64 {
        self.page.range(..=(now, Seq(u64::MAX))).count() as u64
    }

    /// What holds it back that has something due and is not free.
    fn holder(&self, now: Timestamp) -> Holder {
        if self.limits.held {
            Holder::Pause
        } else if self.parked.is_some() {
            Holder::Receiver
        } else if self.limits.gate_until > now {
            Holder::Gate
        } else if self.limits.breaker.is_some() {
            // Its single probe is out, or is not due yet.
            Holder::Breaker
        } else if self.in_flight >= self.limits.in_flight_max {
            Holder::InFlight
        } else {
            Holder::Rate
        }
    }
}

#[cfg(test)]
mod tests {
    use hooklog_projections::time::Millis;

    use super::super::tests::{Disk, at_most, drain, endpoint, open};
    use super::super::{Breaker, DueEntry, LaneLimits, Limits};
    use super::*;

    const HOUR: Millis = Millis::from_secs(3_600);
    const BEGIN: Timestamp = Timestamp(10_000_000);

    fn due(seq: u64) -> DueEntry {
        (BEGIN, Seq(seq))
    }

    /// An endpoint under a limit of its own, with a backlog, an hour after it began; requests take a second.
    fn an_hour_of(limits: LaneLimits, all: Limits) -> (Scheduler, Disk, Look) {
        let (mut scheduler, mut disk) = (Scheduler::new(all, BEGIN), Disk::default());
        for seq in 1..=20_000 {
            disk.rows.insert((endpoint(1), due(seq)));
            scheduler.handle_waiting(endpoint(1), limits, due(seq), BEGIN);
        }
        let (mut now, mut worst) = (BEGIN, 0);
        for _ in 0..HOUR.0 / 1_000 {
            let started = drain(&mut scheduler, &mut disk, now).len();
            let late = scheduler.look(now).first.map_or(0, |first| now.since(first).0);
            worst = worst.max(late);
            now = now + Millis(1_000);
            (0..started).for_each(|_| scheduler.handle_ended(endpoint(1), now));
        }
        drain(&mut scheduler, &mut disk, now);
        assert!(worst <= 1_000, "{worst} ms late through us under {limits:?}");
        let look = scheduler.look(now);
        assert!(look.first.is_none_or(|first| first >= now), "{look:?}");
        assert_eq!((look.late.len(), look.due), (0, 0), "{look:?}");
        (scheduler, disk, look)
    }

    #[test]
    fn what_an_endpoints_own_limits_hold_back_is_never_ours() {
        let breaker = Breaker { probe_at: BEGIN + HOUR + HOUR, hold_max: Millis(10 * HOUR.0) };
        let cases = [
            (LaneLimits { held: true, ..open() }, Holder::Pause),
            (LaneLimits { gate_until: BEGIN + HOUR + HOUR, ..open() }, Holder::Gate),
            (LaneLimits { breaker: Some(breaker), ..open() }, Holder::Breaker),
            (LaneLimits { rate_per_second: Some(2), ..open() }, Holder::Rate),
            (LaneLimits { in_flight_max: 2, ..open() }, Holder::InFlight),
            // It timed out: one request at a time, of the half that such endpoints share.
            (LaneLimits { in_flight_max: 1, slow: true, ..open() }, Holder::InFlight),
        ];
        for (limits, holder) in cases {
            let (_, _, look) = an_hour_of(limits, at_most(100));
            assert_eq!(look.held_by(holder), 1, "{holder:?}: {look:?}");
            assert_eq!(look.held.iter().sum::<u64>(), 1, "{look:?}");
            assert_eq!(look.oldest_held, Some(BEGIN), "{holder:?}");
        }
        let full = Limits { in_flight_max: 100, target_in_flight_max: 2 };
        let (_, _, look) = an_hour_of(open(), full);
        assert_eq!(look.held_by(Holder::Receiver), 1, "{look:?}");
        let look = an_hour_of(LaneLimits { held: true, ..open() }, at_most(100)).2.of_queues();
        assert_eq!((look.held_by(Holder::Workers), look.held_by(Holder::Pause)), (1, 0));
    }

    #[test]
    fn who_waits_for_a_permit_of_all_or_is_not_polled_waits_for_us() {
        let (mut scheduler, mut disk) = (Scheduler::new(at_most(1), BEGIN), Disk::default());
        scheduler.handle_waiting(endpoint(1), open(), due(1), BEGIN);
        scheduler.handle_waiting(endpoint(2), open(), due(2), BEGIN);
        assert_eq!(drain(&mut scheduler, &mut disk, BEGIN).len(), 1);
        let look = scheduler.look(BEGIN + HOUR);
        assert_eq!((look.first, look.due), (Some(BEGIN), 1));
        assert_eq!(look.late.get(&endpoint(1).account), Some(&BEGIN));

        // Nobody polls: the moment at which the first could have started is known beforehand.
        let mut stopped = Scheduler::new(at_most(10), BEGIN);
        stopped.handle_waiting(endpoint(1), open(), (BEGIN + HOUR, Seq(1)), BEGIN);
        assert_eq!(stopped.look(BEGIN).first, Some(BEGIN + HOUR));
        assert_eq!(stopped.look(BEGIN + HOUR + HOUR).first, Some(BEGIN + HOUR));
        let gated = LaneLimits { gate_until: BEGIN + Millis(5), ..open() };
        stopped.handle_waiting(endpoint(2), gated, due(2), BEGIN);
        assert_eq!(stopped.look(BEGIN).first, Some(BEGIN + Millis(5)), "it will be ours when the gate opens");
    }

    #[test]
    fn counting_begins_when_the_endpoint_lets_go_and_when_the_process_starts() {
        let paused = LaneLimits { held: true, ..open() };
        let (mut scheduler, ..) = an_hour_of(paused, at_most(100));
        let resumed = BEGIN + HOUR + HOUR;
        scheduler.handle_limits(endpoint(1), open(), resumed);
        assert_eq!(scheduler.look(resumed + Millis(7)).first, Some(resumed));
        // While it drains it is never longer than since then, and a new pause ends it.
        scheduler.handle_limits(endpoint(1), paused, resumed + HOUR);
        assert_eq!(scheduler.look(resumed + HOUR).first, None);

        let mut started = Scheduler::new(at_most(100), resumed);
        started.handle_backlog(endpoint(1), open(), resumed);
        assert_eq!(started.look(resumed + HOUR).first, Some(resumed));
        let mut held = Scheduler::new(at_most(100), resumed);
        held.handle_backlog(endpoint(1), paused, resumed);
        let look = held.look(resumed);
        assert_eq!((look.held_by(Holder::Pause), look.oldest_held), (1, None), "nobody has read it yet");
    }

    #[test]
    fn endpoints_of_a_receiver_that_is_full_wait_for_it_and_not_for_us() {
        // All of them hang: what their receiver has, and what the half that slow ones share lets, are full at once, so
        // most are never even parked.
        let limits = Limits { in_flight_max: 10, target_in_flight_max: 5 };
        let slow = LaneLimits { slow: true, in_flight_max: 1, ..open() };
        let (mut scheduler, mut disk) = (Scheduler::new(limits, BEGIN), Disk::default());
        for n in 1..=20 {
            scheduler.handle_waiting(endpoint(n), slow, due(n as u64), BEGIN);
        }
        assert_eq!(drain(&mut scheduler, &mut disk, BEGIN).len(), 5);
        let look = scheduler.look(BEGIN + HOUR);
        assert_eq!((look.held_by(Holder::Receiver), look.due), (15, 0), "{look:?}");
        assert!(look.late.is_empty() && look.first.is_none(), "{look:?}");
        // It takes one more, and nobody gives it: from here on that is ours.
        scheduler.handle_ended(endpoint(1), BEGIN + HOUR);
        assert_eq!(scheduler.look(BEGIN + HOUR + HOUR).first, Some(BEGIN + HOUR));
    }

    #[test]
    fn a_backlog_that_all_endpoints_together_make_is_ours() {
        // A hundred endpoints that could each be sent to, and ten permits: what waits grows old though each has its
        // turn now and then.
        let (mut scheduler, mut disk) = (Scheduler::new(at_most(10), BEGIN), Disk::default());
        for n in 1..=100 {
            for seq in 1..=50 {
                let entry = due(n as u64 * 1_000 + seq);
                disk.rows.insert((endpoint(n), entry));
                scheduler.handle_waiting(endpoint(n), open(), entry, BEGIN);
            }
        }
        let mut now = BEGIN;
        for _ in 0..200 {
            let started = drain(&mut scheduler, &mut disk, now);
            now = now + Millis(1_000);
            for (n, _) in started {
                scheduler.handle_ended(endpoint(n), now);
            }
        }
        assert_eq!(scheduler.look(now).first, Some(BEGIN));
    }
}
