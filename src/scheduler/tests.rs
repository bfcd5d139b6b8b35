//! The scheduler against a disk that is a sorted set: fairness, order, limits, and that its memory may be lost.

use std::collections::BTreeSet;
use std::convert::Infallible;

use hooklog_projections::ids::{AccountId, EndpointId};
use proptest::prelude::*;

use super::*;

fn endpoint(n: u128) -> EndpointKey {
    EndpointKey { account: AccountId(1), endpoint: EndpointId(n) }
}

fn open() -> LaneLimits {
    LaneLimits {
        in_flight_max: 8,
        held: false,
        gate_until: Timestamp(0),
        slow: false,
        breaker: None,
        rate_per_second: None,
    }
}

#[derive(Default)]
struct Disk {
    rows: BTreeSet<(EndpointKey, DueEntry)>,
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

fn drain(scheduler: &mut Scheduler, disk: &mut Disk, now: Timestamp) -> Vec<(u128, u64)> {
    let mut out = Vec::new();
    while let Some(start) = scheduler.poll(now, disk).unwrap() {
        disk.rows.remove(&(start.endpoint, (start.due_at, start.delivery)));
        out.push((start.endpoint.endpoint.0, start.delivery.0));
    }
    out
}

#[test]
fn endpoints_take_turns_and_each_sends_its_oldest_first() {
    let mut scheduler = Scheduler::new(Limits { in_flight_max: 5 });
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
    let mut scheduler = Scheduler::new(Limits { in_flight_max: 5 });
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
    let mut scheduler = Scheduler::new(Limits { in_flight_max: 10 });
    let mut disk = Disk::default();
    let slow = LaneLimits { slow: true, ..open() };
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
fn a_million_waiting_for_a_paused_endpoint_are_never_read() {
    let mut scheduler = Scheduler::new(Limits { in_flight_max: 10 });
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
    let mut scheduler = Scheduler::new(Limits { in_flight_max: 3 });
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
    let mut scheduler = Scheduler::new(Limits { in_flight_max: 1000 });
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
    let mut scheduler = Scheduler::new(Limits { in_flight_max: 100 });
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
            let mut scheduler = Scheduler::new(Limits { in_flight_max: 7 });
            let mut sent = Vec::new();
            for (n, (lane, due)) in work.iter().enumerate() {
                // Positions begin at 1.
                let entry = (Timestamp(*due), Seq(n as u64 + 1));
                disk.rows.insert((endpoint(*lane), entry));
                scheduler.handle_waiting(endpoint(*lane), open(), entry, Timestamp(0));
            }
            for now in (0..120).map(Timestamp) {
                if forget == Some(now.0) {
                    scheduler = Scheduler::new(Limits { in_flight_max: 7 });
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
