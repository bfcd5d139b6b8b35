//! What a bulk replay would send again: counted, grouped and weighed before anybody says yes. Looks through a bounded
//! number of rows, a new state for each stretch, and says how far it got. Never writes.

use std::collections::BTreeMap;

use hooklog_projections::account::Hold;
use hooklog_projections::fact::Fact;
use hooklog_projections::ids::{EndpointId, EndpointKey, Seq};
use hooklog_projections::lifecycle::Delivery;
use hooklog_projections::policy::Text;
use hooklog_projections::time::Timestamp;

use super::View;
use super::as_of::Moment;
use super::bulk::{Found, Search};
use super::query::Published;
use crate::log;

/// Stretches that a plan looks through: 200,000 rows at most.
const STRETCHES_MAX: usize = 10;
/// Found in one stretch, and held in memory at a time.
const FOUND_MAX: usize = 5_000;
/// Groups that a plan tells apart; what belongs to others is counted only.
const GROUPS_MAX: usize = 1_000;

/// A plan.
#[derive(Debug, Default)]
pub struct Plan {
    /// What would be sent again.
    pub planned: u64,
    /// What matches, but is for an endpoint that is disabled or removed.
    pub barred: u64,
    /// Bytes of the bodies that would be sent.
    pub bytes: u64,
    /// When the oldest of them was accepted.
    pub oldest: Option<Timestamp>,
    /// When the newest of them was accepted.
    pub newest: Option<Timestamp>,
    /// By endpoint and type.
    pub groups: BTreeMap<(EndpointId, Text), Group>,
    /// More groups than are told apart.
    pub more_groups: bool,
    /// The search was cut short: nothing accepted after this was looked at.
    pub searched_to: Option<Timestamp>,
}

/// A part of a plan.
#[derive(Debug)]
pub struct Group {
    /// How many would be sent again.
    pub count: u64,
    /// How many would be skipped.
    pub barred: u64,
    /// Where the oldest of them was sent the last time.
    pub url_then: Option<Text>,
    /// Where it would be sent now.
    pub url: Option<Text>,
    /// Why the endpoint sends nothing now, if so.
    pub hold: Option<Hold>,
    /// Its own limit.
    pub rate_per_second: Option<u32>,
}

impl Published {
    /// The plan of a search.
    ///
    /// # Errors
    /// Those of a store that cannot be read.
    pub fn plan(&self, search: &Search) -> Result<Plan, log::Error> {
        let (mut plan, mut search) = (Plan::default(), search.clone());
        for stretch in 0.. {
            let view = self.view();
            if stretch >= STRETCHES_MAX {
                plan.searched_to = Some(view.entry(search.after)?.at);
                break;
            }
            let found = view.replayable(&search, FOUND_MAX)?;
            for (one, barred) in
                found.found.iter().map(|one| (one, false)).chain(found.barred.iter().map(|one| (one, true)))
            {
                plan.add(&view, &search, one, barred)?;
            }
            search.after = found.upto.max(Seq(1));
            if found.last {
                break;
            }
        }
        Ok(plan)
    }
}

impl Plan {
    fn add(&mut self, view: &View<'_>, search: &Search, one: &Found, barred: bool) -> Result<(), log::Error> {
        let (endpoint, event_type, at, bytes) = match one {
            Found::Delivery(key, row) => {
                let event = view.event(key.account, &row.event)?;
                let bytes = event.as_ref().map_or(0, |event| event.body.len);
                (row.endpoint, &row.event_type, row.enqueued_at, bytes)
            }
            Found::Event(_, event) => match search.filter.endpoint {
                Some(endpoint) => (endpoint, &event.event_type, event.accepted_at, event.body.len),
                None => return Ok(()),
            },
        };
        if barred {
            self.barred += 1;
        } else {
            self.planned += 1;
            self.bytes += u64::from(bytes);
            self.oldest = Some(self.oldest.map_or(at, |oldest| oldest.min(at)));
            self.newest = Some(self.newest.map_or(at, |newest| newest.max(at)));
        }
        let name = (endpoint, event_type.clone());
        if !self.groups.contains_key(&name) {
            if self.groups.len() >= GROUPS_MAX {
                self.more_groups = true;
                return Ok(());
            }
            let place = EndpointKey { account: search.account, endpoint };
            let row = view.endpoint(place)?;
            let url_then = match one {
                Found::Delivery(_, delivery) => view.url_then(place, delivery)?,
                Found::Event(..) => None,
            };
            let group = Group {
                count: 0,
                barred: 0,
                url_then,
                url: row.as_ref().map(|row| row.settings.url.clone()),
                rate_per_second: row.as_ref().and_then(|row| row.settings.rate_per_second),
                hold: row.and_then(|row| row.hold),
            };
            self.groups.insert(name.clone(), group);
        }
        if let Some(group) = self.groups.get_mut(&name) {
            if barred { group.barred += 1 } else { group.count += 1 }
        }
        Ok(())
    }
}

impl View<'_> {
    /// The URL that a delivery was sent to the last time.
    pub fn url_then(&self, endpoint: EndpointKey, row: &Delivery) -> Result<Option<Text>, log::Error> {
        let mut next = Some(row.latest);
        while let Some(seq) = next {
            let entry = self.entry(seq)?;
            if let Fact::Attempted { .. } = entry.fact {
                let then = self.endpoint_at(endpoint, Moment { at: entry.at, upto: entry.seq })?;
                return Ok(then.map(|then| then.settings.url));
            }
            next = entry.fact.of().map(|of| of.previous);
        }
        Ok(None)
    }
}
