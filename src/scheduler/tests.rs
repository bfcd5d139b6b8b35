//! The scheduler against a disk that is a sorted set: fairness, order, limits, and that its memory may be lost.

use std::collections::BTreeSet;
use std::convert::Infallible;

use hooklog_projections::ids::{AccountId, EndpointId};
use proptest::prelude::*;

use super::*;

pub(super) fn endpoint(n: u128) -> EndpointKey {
    EndpointKey { account: AccountId(1), endpoint: EndpointId(n) }
}

pub(super) fn at_most(in_flight_max: usize) -> Limits {
    Limits { in_flight_max, target_in_flight_max: usize::MAX }
}

pub(super) fn open() -> LaneLimits {
    LaneLimits {
        target: Target::of("https://hooks.customer.com/"),
        in_flight_max: 8,
        held: false,
        gate_until: Timestamp(0),
        slow: false,
        breaker: None,
        rate_per_second: None,
    }
}

#[derive(Default)]
pub(super) struct Disk {
    pub(super) rows: BTreeSet<(EndpointKey, DueEntry)>,
    reads: usize,
}

impl DueSource for Disk {
    type Error = Infallible;
    fn due_after(
        &mut self,
        endpoint: EndpointKey,
        after: DueEntry,
        limit: usize,
    ) -> Result<Vec<DueEntry>, Infallible> {
        self.reads += 1;
        let from = (endpoint, (after.0, after.1.next()));
        Ok(self.rows.range(from..).take_while(|(e, _)| *e == endpoint).map(|(_, d)| *d).take(limit).collect())
    }
}

pub(super) fn drain(scheduler: &mut Scheduler, disk: &mut Disk, now: Timestamp) -> Vec<(u128, u64)> {
    let mut out = Vec::new();
    while let Some(start) = scheduler.poll(now, disk).unwrap() {
        disk.rows.remove(&(start.endpoint, (start.due_at, start.delivery)));
        out.push((start.endpoint.endpoint.0, start.delivery.0));
    }
    out
}

#[test]
fn endpoints_take_turns_and_each_sends_its_oldest_first() {
    let mut scheduler = Scheduler::new(at_most(5), Timestamp(0));
    let mut disk = Disk::default();
    for seq in 1..=4 {
        scheduler.handle_waiting(endpoint(1), open(), (Timestamp(10 - seq), Seq(seq)), Timestamp(20));
    }
    scheduler.handle_waiting(endpoint(2), open(), (Timestamp(9), Seq(9)), Timestamp(20));
    assert_eq!(drain(&mut scheduler, &mut disk, Timestamp(20)), [(1, 4), (2, 9), (1, 3), (1, 2), (1, 1)]);
    assert_eq!(scheduler.in_flight(), 5);
}

#[test]
fn nothing_leaves_before_it_is_due_nor_through_a_gate_or_a_pause() {
    let mut scheduler = Scheduler::new(at_most(5), Timestamp(0));
    let mut disk = Disk::default();
    let now = Timestamp(100);
    scheduler.handle_waiting(endpoint(1), open(), (Timestamp(150), Seq(1)), now);
    let gated = LaneLimits { gate_until: Timestamp(170), ..open() };
    scheduler.handle_waiting(endpoint(2), gated, (Timestamp(90), Seq(2)), now);
    let held = LaneLimits { held: true, ..open() };
    scheduler.handle_waiting(endpoint(3), held, (Timestamp(90), Seq(3)), now);
    assert_eq!(drain(&mut scheduler, &mut disk, now), []);
    assert_eq!(scheduler.next_wake(), Some(Timestamp(150)));
    assert_eq!(drain(&mut scheduler, &mut disk, Timestamp(150)), [(1, 1)]);
    assert_eq!(drain(&mut scheduler, &mut disk, Timestamp(170)), [(2, 2)]);
    assert_eq!(scheduler.next_wake(), None);
    scheduler.handle_limits(endpoint(3), open(), Timestamp(170));
    assert_eq!(drain(&mut scheduler, &mut disk, Timestamp(170)), [(3, 3)]);
}

#[test]
fn slow_endpoints_share_half_of_the_permits() {
    let mut scheduler = Scheduler::new(at_most(10), Timestamp(0));
    let mut disk = Disk::default();
    let slow = LaneLimits { slow: true, in_flight_max: 1, ..open() };
    for n in 1..=20 {
        for seq in 0..3 {
            let entry = (Timestamp(1), Seq(n as u64 * 10 + seq));
            scheduler.handle_waiting(endpoint(n), slow, entry, Timestamp(5));
        }
    }
    assert_eq!(drain(&mut scheduler, &mut disk, Timestamp(5)).len(), 5);
    scheduler.handle_waiting(endpoint(99), open(), (Timestamp(1), Seq(999)), Timestamp(5));
    assert_eq!(drain(&mut scheduler, &mut disk, Timestamp(5)), [(99, 999)]);
    scheduler.handle_ended(endpoint(1), Timestamp(5));
    assert_eq!(drain(&mut scheduler, &mut disk, Timestamp(5)).len(), 1);
}

#[test]
fn endpoints_that_hang_from_their_first_request_on_leave_half_of_the_permits() {
    let mut scheduler = Scheduler::new(at_most(10), Timestamp(0));
    let mut disk = Disk::default();
    let untried = LaneLimits { slow: true, ..open() };
    let now = Timestamp(5);
    let at_once = (1..=20).filter(|n| scheduler.reserve(endpoint(*n), untried, now)).count();
    assert_eq!(at_once, 5);
    assert!(!scheduler.reserve(endpoint(1), untried, now), "the half is taken");
    for n in 1..=20 {
        scheduler.handle_waiting(endpoint(n), untried, (now, Seq(n as u64)), now);
    }
    assert_eq!(drain(&mut scheduler, &mut disk, now), []);
    let at_once = (0..6).filter(|_| scheduler.reserve(endpoint(99), open(), now)).count();
    assert_eq!(at_once, 5, "the other half is whole");
    // Whoever waits goes first when one ends.
    scheduler.handle_ended(endpoint(1), now);
    assert!(!scheduler.reserve(endpoint(30), untried, now));
    assert_eq!(drain(&mut scheduler, &mut disk, now).len(), 1);
}

#[test]
fn a_million_waiting_for_a_paused_endpoint_are_never_read() {
    let mut scheduler = Scheduler::new(at_most(10), Timestamp(0));
    let mut disk = Disk::default();
    let held = LaneLimits { held: true, ..open() };
    for seq in 0..10_000 {
        let entry = (Timestamp(1), Seq(seq));
        disk.rows.insert((endpoint(1), entry));
        scheduler.handle_waiting(endpoint(1), held, entry, Timestamp(5));
    }
    assert_eq!(drain(&mut scheduler, &mut disk, Timestamp(5)), []);
    assert_eq!(disk.reads, 0);
    assert!(scheduler.lanes[&endpoint(1)].page.len() <= PAGE);
}

#[test]
fn a_permit_is_reserved_only_if_nothing_waits_before() {
    let mut scheduler = Scheduler::new(at_most(3), Timestamp(0));
    let now = Timestamp(5);
    assert!(scheduler.reserve(endpoint(1), open(), now));
    scheduler.handle_waiting(endpoint(1), open(), (Timestamp(9), Seq(1)), now);
    assert!(!scheduler.reserve(endpoint(1), open(), now));
    assert!(!scheduler.reserve(endpoint(2), LaneLimits { held: true, ..open() }, now));
    assert!(scheduler.reserve(endpoint(3), open(), now));
    assert!(scheduler.reserve(endpoint(4), open(), now));
    assert!(!scheduler.reserve(endpoint(5), open(), now));
    for n in [1, 3, 4] {
        scheduler.handle_ended(endpoint(n), now);
    }
    assert_eq!(scheduler.in_flight(), 0);
    assert_eq!(scheduler.lanes.len(), 1, "only the lane with something waiting is held");
}

#[test]
fn no_second_sees_more_than_the_rate() {
    let mut scheduler = Scheduler::new(at_most(1000), Timestamp(0));
    let mut disk = Disk::default();
    for rate in [1, 3, 7, 50, 1000, 3000] {
        let limits = LaneLimits { rate_per_second: Some(rate), in_flight_max: 1000, ..open() };
        let lane = endpoint(u128::from(rate));
        for seq in 0..u64::from(rate) * 4 {
            disk.rows.insert((lane, (Timestamp(0), Seq(seq + 1))));
            scheduler.handle_waiting(lane, limits, (Timestamp(0), Seq(seq + 1)), Timestamp(10_000));
        }
        let mut starts = Vec::new();
        for now in (10_000..20_000).map(Timestamp) {
            // One may also come in at any moment and want to leave at once.
            if now.0 % 97 == 0 && scheduler.reserve(lane, limits, now) {
                starts.push(now.0);
                scheduler.handle_ended(lane, now);
            }
            for _ in drain(&mut scheduler, &mut disk, now) {
                starts.push(now.0);
                scheduler.handle_ended(lane, now);
            }
        }
        assert!(starts.len() >= rate as usize * 4, "{rate}/s: only {} in ten seconds", starts.len());
        for (n, start) in starts.iter().enumerate() {
            let within = starts[n..].iter().take_while(|other| **other < start + 1000).count();
            assert!(within <= rate as usize, "{rate}/s: {within} in one second");
        }
    }
}

#[test]
fn an_open_breaker_lets_single_probes_through_and_holds_nothing_for_long() {
    let mut scheduler = Scheduler::new(at_most(100), Timestamp(0));
    let mut disk = Disk::default();
    let breaker = |probe_at| Some(Breaker { probe_at: Timestamp(probe_at), hold_max: Millis(500) });
    let limits = |probe_at| LaneLimits { breaker: breaker(probe_at), ..open() };
    for seq in 1..=4 {
        scheduler.handle_waiting(endpoint(1), limits(200), (Timestamp(100), Seq(seq)), Timestamp(100));
    }
    assert_eq!(drain(&mut scheduler, &mut disk, Timestamp(199)), []);
    assert_eq!(drain(&mut scheduler, &mut disk, Timestamp(200)), [(1, 1)], "one probe");
    assert_eq!(drain(&mut scheduler, &mut disk, Timestamp(300)), [], "while it is out, no other");
    scheduler.handle_ended(endpoint(1), Timestamp(310));
    scheduler.handle_limits(endpoint(1), limits(700), Timestamp(310));
    assert_eq!(drain(&mut scheduler, &mut disk, Timestamp(599)), []);
    // Held for as long as may be: these go, probe or not.
    assert_eq!(drain(&mut scheduler, &mut disk, Timestamp(600)), [(1, 2), (1, 3), (1, 4)]);
    scheduler.handle_ended(endpoint(1), Timestamp(610));
    scheduler.handle_waiting(endpoint(1), open(), (Timestamp(600), Seq(9)), Timestamp(610));
    assert_eq!(drain(&mut scheduler, &mut disk, Timestamp(610)), [(1, 9)], "a success closes it");
}

proptest! {
    /// Whatever order things come in: each delivery is sent once, never early, per endpoint oldest first,
    /// and a scheduler that forgets all it holds sends the same.
    #[test]
    fn forgetting_changes_nothing(
        work in proptest::collection::vec((0u128..4, 0u64..50), 1..600),
        forget_at in 0u64..60,
    ) {
        let run = |forget: Option<u64>| {
            let mut disk = Disk::default();
            let mut scheduler = Scheduler::new(at_most(7), Timestamp(0));
            let mut sent = Vec::new();
            for (n, (lane, due)) in work.iter().enumerate() {
                // Positions begin at 1.
                let entry = (Timestamp(*due), Seq(n as u64 + 1));
                disk.rows.insert((endpoint(*lane), entry));
                scheduler.handle_waiting(endpoint(*lane), open(), entry, Timestamp(0));
            }
            for now in (0..120).map(Timestamp) {
                if forget == Some(now.0) {
                    scheduler = Scheduler::new(at_most(7), Timestamp(0));
                    for lane in 0..4 {
                        scheduler.handle_backlog(endpoint(lane), open(), now);
                    }
                }
                loop {
                    let batch = drain(&mut scheduler, &mut disk, now);
                    if batch.is_empty() { break }
                    for (lane, seq) in batch {
                        let due = work[seq as usize - 1].1;
                        assert!(due <= now.0, "sent before it was due");
                        scheduler.handle_ended(endpoint(lane), now);
                        sent.push((lane, due, seq));
                    }
                }
            }
            assert!(disk.rows.is_empty());
            sent.sort();
            sent
        };
        let sent = run(None);
        prop_assert_eq!(sent.len(), work.len());
        prop_assert_eq!(run(Some(forget_at)), sent);
    }
}

/// What one endpoint does in a random run, beside the scheduler.
struct Model {
    limits: LaneLimits,
    in_flight: u32,
    /// When its rate lets the next request begin, in microseconds.
    rate_at_us: u64,
}

impl Model {
    /// When time alone lets its oldest entry go; `None` if something must happen first.
    fn runs_at(&self, oldest: Option<DueEntry>) -> Option<Timestamp> {
        let permits = self.limits.in_flight_max;
        let (due, _) = oldest.filter(|_| !self.limits.held && self.in_flight < permits)?;
        let at = due.max(self.limits.gate_until).max(Timestamp(self.rate_at_us / 1000));
        Some(match self.limits.breaker {
            Some(breaker) if self.in_flight == 0 => at.max(breaker.probe_at.min(due + breaker.hold_max)),
            Some(breaker) => at.max(due + breaker.hold_max),
            None => at,
        })
    }

    fn starts(&mut self, now: Timestamp) {
        self.in_flight += 1;
        if let Some(rate) = self.limits.rate_per_second {
            self.rate_at_us = self.rate_at_us.max(now.0 * 1000) + 1_000_000u64.div_ceil(u64::from(rate));
        }
    }
}

const LANES: u128 = 5;
const ALL: usize = 4;
const OF_ONE_TARGET: usize = 3;

/// One step of a random run; the numbers are taken as they fit.
#[derive(Clone, Debug)]
enum Step {
    Waits { lane: u128, due_in: u64, count: u64 },
    Limits { lane: u128, limits: [u64; 6] },
    Ends { nth: usize },
    Unsent,
    Reserve { lane: u128 },
    Gone { nth: usize },
    Passes { span: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let lane = 0..LANES;
    prop_oneof![
        4 => (lane.clone(), 0u64..400, 1u64..12)
            .prop_map(|(lane, due_in, count)| Step::Waits { lane, due_in, count }),
        4 => (lane.clone(), any::<[u64; 6]>()).prop_map(|(lane, limits)| Step::Limits { lane, limits }),
        5 => any::<usize>().prop_map(|nth| Step::Ends { nth }),
        1 => Just(Step::Unsent),
        2 => lane.prop_map(|lane| Step::Reserve { lane }),
        1 => any::<usize>().prop_map(|nth| Step::Gone { nth }),
        4 => prop_oneof![1u64..3, 1u64..100, 1u64..2000].prop_map(|span| Step::Passes { span }),
    ]
}

/// The limits that six numbers say. A lane's rate is its own: it does not change in a run.
fn limits(lane: u128, n: [u64; 6], now: Timestamp) -> LaneLimits {
    LaneLimits {
        target: Target::of(if n[0].is_multiple_of(3) { "http://a" } else { "http://b" }),
        in_flight_max: 1 + (n[0] % 4) as u32,
        held: n[1].is_multiple_of(6),
        gate_until: if n[2].is_multiple_of(4) { now + Millis(n[2] % 300) } else { Timestamp(0) },
        slow: n[3].is_multiple_of(3),
        breaker: n[4]
            .is_multiple_of(3)
            .then(|| Breaker { probe_at: now + Millis(n[4] % 200), hold_max: Millis(n[5] % 500) }),
        rate_per_second: [None, None, Some(3), Some(40), Some(2500)][lane as usize],
    }
}

struct Run {
    scheduler: Scheduler,
    disk: Disk,
    models: Vec<Model>,
    /// Lanes of the requests that are out, and whether each took a permit of the shared half.
    out: Vec<(u128, bool)>,
    now: Timestamp,
    seq: u64,
}

impl Run {
    fn new() -> Run {
        let now = Timestamp(100_000);
        let models = (0..LANES).map(|lane| Model {
            limits: LaneLimits { rate_per_second: limits(lane, [1; 6], now).rate_per_second, ..open() },
            in_flight: 0,
            rate_at_us: 0,
        });
        let mut scheduler =
            Scheduler::new(Limits { in_flight_max: ALL, target_in_flight_max: OF_ONE_TARGET }, Timestamp(0));
        // So small that runs get to its end.
        scheduler.page_max = 4;
        Run { scheduler, disk: Disk::default(), models: models.collect(), out: Vec::new(), now, seq: 0 }
    }

    fn oldest(&self, lane: u128) -> Option<DueEntry> {
        let rows = self.disk.rows.range((endpoint(lane), (Timestamp(0), Seq(0)))..);
        rows.take_while(|(e, _)| *e == endpoint(lane)).map(|(_, entry)| *entry).next()
    }

    fn slow_out(&self) -> usize {
        self.out.iter().filter(|(_, slow)| *slow).count()
    }

    /// Requests out to the receiver that a lane leads to now. One that led elsewhere takes what is out along.
    fn load(&self, lane: u128) -> usize {
        let target = self.models[lane as usize].limits.target;
        let there = self.models.iter().filter(|model| model.limits.target == target);
        there.map(|model| model.in_flight as usize).sum()
    }

    fn take(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Waits { lane, due_in, count } => {
                for n in 0..count {
                    self.seq += 1;
                    let entry = (now + Millis(due_in * (n % 3)), Seq(self.seq));
                    self.disk.rows.insert((endpoint(lane), entry));
                    let limits = self.models[lane as usize].limits;
                    self.scheduler.handle_waiting(endpoint(lane), limits, entry, now);
                }
            }
            Step::Limits { lane, limits: numbers } => {
                let limits = limits(lane, numbers, now);
                self.models[lane as usize].limits = limits;
                self.scheduler.handle_limits(endpoint(lane), limits, now);
            }
            Step::Ends { nth } if !self.out.is_empty() => {
                let (lane, _) = self.out.remove(nth % self.out.len());
                self.models[lane as usize].in_flight -= 1;
                self.scheduler.handle_ended(endpoint(lane), now);
                // Which of a lane's requests took the shared permit is not known: the first to end gives it back.
                let lanes = &self.scheduler.lanes;
                let mut slow = lanes.get(&endpoint(lane)).map_or(0, |lane| lane.slow_in_flight);
                for out in self.out.iter_mut().filter(|(other, _)| *other == lane) {
                    out.1 = slow > 0;
                    slow = slow.saturating_sub(1);
                }
            }
            Step::Unsent => {
                // The next one turns out to be none: its deadline passed.
                if let Some(start) = self.start() {
                    let model = &mut self.models[start.endpoint.endpoint.0 as usize];
                    model.in_flight -= 1;
                    if let Some(rate) = model.limits.rate_per_second {
                        model.rate_at_us -= 1_000_000u64.div_ceil(u64::from(rate));
                    }
                    self.out.pop();
                    self.scheduler.handle_unsent(start.endpoint, now);
                }
            }
            Step::Reserve { lane } => {
                let load = self.load(lane);
                let model = &mut self.models[lane as usize];
                let waits = self.disk.rows.iter().any(|(e, _)| *e == endpoint(lane));
                if self.scheduler.reserve(endpoint(lane), model.limits, now) {
                    assert!(!waits, "it overtook what waits");
                    assert!(load < OF_ONE_TARGET, "its receiver is full");
                    assert!(model.limits.breaker.is_none());
                    assert_eq!(model.runs_at(Some((now, Seq(0)))), Some(now));
                    model.starts(now);
                    self.out.push((lane, model.limits.slow));
                    assert!(self.slow_out() <= ALL.div_ceil(2), "slow ones took more than half");
                }
            }
            Step::Gone { nth } if !self.disk.rows.is_empty() => {
                let row = *self.disk.rows.iter().nth(nth % self.disk.rows.len()).expect("it is there");
                self.disk.rows.remove(&row);
                self.scheduler.handle_gone(row.0, row.1, now);
            }
            Step::Passes { span } => self.now = now + Millis(span),
            Step::Ends { .. } | Step::Gone { .. } => {}
        }
    }

    /// Takes the next start, which must be allowed.
    fn start(&mut self) -> Option<Start> {
        let start = self.scheduler.poll(self.now, &mut self.disk).expect("it cannot fail")?;
        let lane = start.endpoint.endpoint.0;
        assert_eq!(self.oldest(lane), Some((start.due_at, start.delivery)), "not the oldest");
        assert!(self.load(lane) < OF_ONE_TARGET, "its receiver is full");
        let model = &mut self.models[lane as usize];
        let may = model.runs_at(Some((start.due_at, start.delivery)));
        assert!(may.is_some_and(|at| at <= self.now), "lane {lane} may not run: {may:?}");
        model.starts(self.now);
        self.out.push((lane, model.limits.slow));
        self.disk.rows.remove(&(start.endpoint, (start.due_at, start.delivery)));
        assert!(self.out.len() <= ALL && self.scheduler.in_flight() == self.out.len());
        assert!(self.slow_out() <= ALL.div_ceil(2), "slow ones took more than half");
        Some(start)
    }

    /// Nothing that may run is left, and the next look comes in time, but not at once.
    fn rest(&mut self) {
        while self.start().is_some() {}
        let wake = self.scheduler.next_wake();
        assert!(wake.is_none_or(|at| at > self.now), "it would be asked again and again: {wake:?}");
        if self.out.len() == ALL {
            return;
        }
        for lane in 0..LANES {
            let model = &self.models[lane as usize];
            if model.limits.slow && self.slow_out() == ALL.div_ceil(2) {
                continue;
            }
            if self.load(lane) >= OF_ONE_TARGET {
                continue;
            }
            if let Some(at) = model.runs_at(self.oldest(lane)) {
                assert!(at > self.now, "lane {lane} may run and does not");
                assert!(
                    wake.is_some_and(|wake| wake <= at),
                    "lane {lane} may run at {at}, woken at {wake:?}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// Whatever breakers, gates, rates, pauses and slow endpoints do together: no limit is ever exceeded, no
    /// lane stalls while it may run, and nothing is asked again and again while nothing may start.
    #[test]
    fn all_limits_together_neither_stall_nor_leak(steps in proptest::collection::vec(step(), 1..120)) {
        let mut run = Run::new();
        for step in steps {
            run.take(step);
            run.rest();
        }
        // All heals: everything goes.
        for lane in 0..LANES {
            let limits = LaneLimits { rate_per_second: run.models[lane as usize].limits.rate_per_second, ..open() };
            run.take(Step::Passes { span: 1 });
            run.models[lane as usize].limits = limits;
            run.scheduler.handle_limits(endpoint(lane), limits, run.now);
        }
        run.rest();
        while !run.disk.rows.is_empty() || !run.out.is_empty() {
            if run.out.is_empty() {
                run.now = run.scheduler.next_wake().expect("somebody waits");
            }
            run.take(Step::Ends { nth: 0 });
            run.rest();
        }
        prop_assert_eq!(run.scheduler.in_flight(), 0);
        prop_assert_eq!(run.scheduler.slow_in_flight, 0);
        prop_assert!(run.scheduler.targets.is_empty());
    }
}

/// Rule S16: endpoints of any account that lead to one receiver have no more than its cap between them, take turns
/// at it, and are in nobody else's way.
#[test]
fn one_receiver_has_no_more_than_its_cap_whosever_endpoints_lead_there() {
    let mut scheduler = Scheduler::new(Limits { in_flight_max: 100, target_in_flight_max: 3 }, Timestamp(0));
    let mut disk = Disk::default();
    let crowded = |n: u128| EndpointKey { account: AccountId(n), endpoint: EndpointId(n) };
    let elsewhere = LaneLimits { target: Target::of("https://other.com/"), ..open() };
    for lane in 1..=50 {
        for seq in 0..4 {
            let entry = (Timestamp(0), Seq((lane * 10 + seq) as u64));
            scheduler.handle_waiting(crowded(lane), open(), entry, Timestamp(0));
        }
    }
    scheduler.handle_waiting(endpoint(99), elsewhere, (Timestamp(0), Seq(999)), Timestamp(0));
    assert_eq!(drain(&mut scheduler, &mut disk, Timestamp(0)), [(1, 10), (2, 20), (3, 30), (99, 999)]);
    // What is new and leads there waits behind those; elsewhere it leaves at once.
    assert!(!scheduler.reserve(crowded(77), open(), Timestamp(0)));
    assert!(scheduler.reserve(endpoint(98), elsewhere, Timestamp(0)));
    // As one ends, the next endpoint has its turn: all fifty come before anybody comes twice.
    let (mut out, mut order) = (VecDeque::from([1, 2, 3]), vec![1, 2, 3]);
    while let Some(ended) = out.pop_front() {
        scheduler.handle_ended(crowded(ended), Timestamp(0));
        for (lane, _) in drain(&mut scheduler, &mut disk, Timestamp(0)) {
            order.push(lane);
            out.push_back(lane);
        }
        assert!(out.len() <= 3, "more than the cap");
    }
    assert_eq!(order.len(), 200);
    let mut first: Vec<_> = order[..50].to_vec();
    first.sort();
    assert_eq!(first, (1..=50).collect::<Vec<_>>());
}

#[test]
fn a_start_with_a_hundred_thousand_due_at_once_holds_a_page_and_keeps_the_rate() {
    let mut disk = Disk::default();
    for seq in 1..=100_000 {
        disk.rows.insert((endpoint(1), (Timestamp(seq % 977), Seq(seq))));
    }
    let began = Timestamp(1_000_000);
    let mut scheduler = Scheduler::new(at_most(256), began);
    let limits = LaneLimits { rate_per_second: Some(500), ..open() };
    scheduler.handle_backlog(endpoint(1), limits, began);
    let (mut now, mut sent, mut last) = (began, 0, (Timestamp(0), Seq(0)));
    while !disk.rows.is_empty() {
        while let Some(start) = scheduler.poll(now, &mut disk).unwrap() {
            let entry = (start.due_at, start.delivery);
            assert!(entry > last, "oldest first");
            last = entry;
            disk.rows.remove(&(start.endpoint, entry));
            sent += 1;
            assert!(sent <= 1 + (now.since(began).0 * 500) / 1000, "{sent} after {}", now.since(began).0);
            assert!(scheduler.held() <= PAGE && scheduler.in_flight() <= 8);
            scheduler.handle_ended(endpoint(1), now);
        }
        now = scheduler.next_wake().unwrap_or(now);
    }
    assert_eq!((sent, disk.reads), (100_000, 100_000 / PAGE + 1));
    assert!(now.since(began).0 <= 200_000 + 10, "{}", now.since(began).0);
}
