//! Who is connected: so many at a time, so many from one network, and when all places are taken, whoever has
//! waited longest without asking anything makes room (rule A26).
//!
//! Never knows what is asked.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;

use super::failures::Source;
use super::serve::Connections;

/// The connections of one server.
pub(super) struct Crowd {
    pub(super) limits: Connections,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    /// By arrival.
    seats: BTreeMap<u64, Arc<Seat>>,
    of_source: HashMap<Source, usize>,
    next: u64,
}

/// One connection, as the others see it.
#[derive(Default)]
pub(super) struct Seat {
    /// Requests that are being answered.
    busy: AtomicU64,
    displaced: CancellationToken,
}

/// One connection's hold on its place; gone when this is dropped.
pub(super) struct Place {
    crowd: Arc<Crowd>,
    number: u64,
    seat: Arc<Seat>,
    source: Option<Source>,
    peer: Option<IpAddr>,
}

/// While it is held, a request is being answered.
pub(super) struct Busy(Arc<Seat>);

impl Crowd {
    pub(super) fn new(limits: Connections) -> Crowd {
        Crowd { limits, inside: Mutex::default() }
    }

    /// A place for a connection; `None` if its network has enough, or everybody inside is being answered.
    pub(super) fn enter(crowd: &Arc<Crowd>, peer: Option<IpAddr>) -> Option<Place> {
        let counted = peer.filter(|peer| !peer.to_canonical().is_loopback());
        let source = Source::of(counted, &Default::default(), 0);
        let mut inside = crowd.inside.lock().expect("no holder panics");
        if let Some(source) = source
            && inside.of_source.get(&source).is_some_and(|open| *open >= crowd.limits.per_source_max)
        {
            tracing::debug!(?source, "a network has as many connections as it may");
            return None;
        }
        if inside.seats.len() >= crowd.limits.max {
            let idle = inside.seats.iter().find(|(_, seat)| seat.busy.load(Ordering::Acquire) == 0);
            let Some((number, seat)) = idle.map(|(number, seat)| (*number, seat.clone())) else {
                tracing::warn!(connections = inside.seats.len(), "no connection is idle: another is refused");
                return None;
            };
            inside.seats.remove(&number);
            seat.displaced.cancel();
        }
        let number = inside.next;
        inside.next += 1;
        let seat = Arc::new(Seat::default());
        inside.seats.insert(number, seat.clone());
        if let Some(source) = source {
            *inside.of_source.entry(source).or_default() += 1;
        }
        Some(Place { crowd: crowd.clone(), number, seat, source, peer })
    }
}

impl Seat {
    pub(super) fn busy(self: &Arc<Seat>) -> Busy {
        self.busy.fetch_add(1, Ordering::AcqRel);
        Busy(self.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Place {
    pub(super) fn seat(&self) -> Arc<Seat> {
        self.seat.clone()
    }

    pub(super) fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// Waits until somebody else needs the place.
    pub(super) async fn displaced(&self) {
        self.seat.displaced.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inside = self.crowd.inside.lock().expect("no holder panics");
        inside.seats.remove(&self.number);
        if let Some(source) = self.source
            && let Some(open) = inside.of_source.get_mut(&source)
        {
            *open -= 1;
            if *open == 0 {
                inside.of_source.remove(&source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn crowd(max: usize, per_source_max: usize) -> Arc<Crowd> {
        Arc::new(Crowd::new(Connections { head_timeout: Duration::from_secs(1), max, per_source_max }))
    }

    fn from(address: &str) -> Option<IpAddr> {
        Some(address.parse().expect("an address"))
    }

    #[test]
    fn a_network_has_its_share_and_loopback_is_none() {
        let crowd = crowd(100, 2);
        let first = Crowd::enter(&crowd, from("203.0.113.1")).expect("the first");
        let _second = Crowd::enter(&crowd, from("203.0.113.200")).expect("of the same network");
        assert!(Crowd::enter(&crowd, from("203.0.113.7")).is_none());
        assert!(Crowd::enter(&crowd, from("::ffff:203.0.113.7")).is_none(), "the same in other clothes");
        let _other = Crowd::enter(&crowd, from("198.51.100.1")).expect("another network");
        drop(first);
        let _again = Crowd::enter(&crowd, from("203.0.113.7")).expect("there is room again");
        let local: Vec<_> = (0..5).map(|_| Crowd::enter(&crowd, from("127.0.0.1"))).collect();
        assert!(local.iter().all(Option::is_some));
        assert!(Crowd::enter(&crowd, None).is_some(), "nor is the socket");
    }

    #[test]
    fn whoever_waited_longest_without_asking_makes_room() {
        let crowd = crowd(3, 100);
        let places: Vec<_> = (0..3).map(|_| Crowd::enter(&crowd, from("127.0.0.1")).expect("room")).collect();
        let busy = places[0].seat().busy();
        let fourth = Crowd::enter(&crowd, from("127.0.0.1")).expect("the second makes room");
        let displaced = |place: &Place| place.seat.displaced.is_cancelled();
        assert_eq!(places.iter().map(displaced).collect::<Vec<_>>(), [false, true, false]);
        let _all_busy = (places[2].seat().busy(), fourth.seat().busy());
        assert!(Crowd::enter(&crowd, from("127.0.0.1")).is_none(), "nobody is idle");
        drop(busy);
        assert!(Crowd::enter(&crowd, from("127.0.0.1")).is_some());
        assert!(displaced(&places[0]));
        drop(places);
        assert_eq!(crowd.inside.lock().expect("no panic").seats.len(), 1, "only the fourth is left");
    }
}
