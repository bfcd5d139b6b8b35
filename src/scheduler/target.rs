//! Receivers, each counted over all endpoints that lead to it: the cap that keeps this service from being a
//! flooding tool for whoever makes endpoints in many accounts (rule S16).
//!
//! An endpoint whose turn comes while its receiver is full is parked, and called when there is room: nobody is
//! asked again and again. Never knows what waits at an endpoint.

use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher};

use hooklog_projections::ids::EndpointKey;

use super::Ring;

/// A receiver: the hash of scheme, host and port. Two that fall together share a cap, which harms nobody much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Target(u64);

impl Target {
    /// Of a URL as the parser serialises it.
    pub fn of(url: &str) -> Target {
        let path = url.find("://").map_or(0, |at| at + 3);
        let end = url[path..].find(['/', '?', '#']).map_or(url.len(), |at| path + at);
        let mut hasher = DefaultHasher::new();
        url[..end].hash(&mut hasher);
        Target(hasher.finish())
    }
}

/// What is known of all receivers that anything is out to, or parked for.
pub(super) struct Targets {
    max: usize,
    loads: HashMap<Target, Load>,
}

#[derive(Default)]
struct Load {
    in_flight: usize,
    /// Whose turn came while it was full. Some have left since: the lane says so.
    quick: VecDeque<EndpointKey>,
    slow: VecDeque<EndpointKey>,
}

impl Load {
    fn queue(&mut self, ring: Ring) -> &mut VecDeque<EndpointKey> {
        match ring {
            Ring::Quick => &mut self.quick,
            Ring::Slow => &mut self.slow,
        }
    }
}

impl Targets {
    pub(super) fn new(max: usize) -> Targets {
        Targets { max: max.max(1), loads: HashMap::new() }
    }

    pub(super) fn is_full(&self, target: Target) -> bool {
        self.loads.get(&target).is_some_and(|load| load.in_flight >= self.max)
    }

    /// Whether a request could begin without overtaking anybody who is parked.
    pub(super) fn is_free(&self, target: Target) -> bool {
        self.loads
            .get(&target)
            .is_none_or(|load| load.in_flight < self.max && load.quick.is_empty() && load.slow.is_empty())
    }

    /// Requests begin.
    pub(super) fn take(&mut self, target: Target, count: u32) {
        if count > 0 {
            self.loads.entry(target).or_default().in_flight += count as usize;
        }
    }

    /// Requests are over.
    pub(super) fn give_back(&mut self, target: Target, count: u32) {
        if let Some(load) = self.loads.get_mut(&target) {
            load.in_flight = load.in_flight.saturating_sub(count as usize);
        }
        self.forget(target);
    }

    /// An endpoint waits for room.
    pub(super) fn park(&mut self, target: Target, ring: Ring, endpoint: EndpointKey) {
        self.loads.entry(target).or_default().queue(ring).push_back(endpoint);
    }

    /// Who has waited longest, if there is room.
    pub(super) fn call(&mut self, target: Target, ring: Ring) -> Option<EndpointKey> {
        if self.is_full(target) {
            return None;
        }
        let next = self.loads.get_mut(&target)?.queue(ring).pop_front();
        self.forget(target);
        next
    }

    fn forget(&mut self, target: Target) {
        let unused = |load: &Load| load.in_flight == 0 && load.quick.is_empty() && load.slow.is_empty();
        if self.loads.get(&target).is_some_and(unused) {
            self.loads.remove(&target);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.loads.values().all(|load| load.in_flight == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_receiver_is_scheme_host_and_port() {
        let same = Target::of("https://hooks.customer.com/a");
        for url in
            ["https://hooks.customer.com/b?c", "https://hooks.customer.com", "https://hooks.customer.com?x"]
        {
            assert_eq!(Target::of(url), same, "{url}");
        }
        for url in
            ["http://hooks.customer.com/a", "https://hooks.customer.com:8443/a", "https://customer.com/a"]
        {
            assert_ne!(Target::of(url), same, "{url}");
        }
    }
}
