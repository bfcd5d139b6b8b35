//! The events of an account in the order they came in. There is no index of them: an event's first delivery stands
//! right behind it, so the deliveries are walked, and beside them the few events that nobody had subscribed to.

use std::ops::{Bound, ControlFlow};

use hooklog_projections::delivery::Deliveries;
use hooklog_projections::event::{Event, EventTypes, SeenType, TYPES_MAX, Unrouted};
use hooklog_projections::ids::{AccountId, DeliveryKey, EventId, Seq};
use hooklog_projections::lifecycle::Delivery;
use hooklog_projections::policy::Text;
use hooklog_projections::tables::{Key, Table};

use super::View;
use super::query::{SCAN_MAX, type_matches};
use super::rows::bad_key;
use crate::log::{self, Order, codec};

/// Events that were found.
#[derive(Debug, Default)]
pub struct Events {
    /// In the order of the walk.
    pub rows: Vec<(EventId, Event)>,
    /// Nothing else lies up to here (or down to here); more may lie beyond. `None`: nothing does.
    pub upto: Option<Seq>,
}

struct Source {
    found: Vec<(Seq, EventId)>,
    /// It was not walked to its end, but to here.
    cut: Option<Seq>,
}

impl View<'_> {
    /// Events of an account accepted between two positions (both exclusive), at most `limit`, of a type: exact, or a
    /// prefix before `*`. Looks through at most [`SCAN_MAX`] deliveries.
    pub fn events(
        &self,
        account: AccountId,
        (after, before): (Seq, Seq),
        event_type: Option<&str>,
        order: Order,
        limit: usize,
    ) -> Result<Events, log::Error> {
        let wants = |found: &str| event_type.is_none_or(|wanted| type_matches(wanted, found));
        let range = (account, after, before);
        let routed = self.walk(range, order, limit, SCAN_MAX, |key: DeliveryKey, row: Delivery| {
            let first = key.seq.0 == row.accepted.0 + 1 && row.accepted > after && row.accepted < before;
            Ok((first && wants(&row.event_type)).then_some((row.accepted, row.event)))
        });
        let mut routed = routed?;
        if order == Order::Descending {
            // The event of the delivery that was come to stands before it.
            routed.cut = routed.cut.map(|at| Seq(at.0 - 1));
        }
        let unrouted = self.walk(range, order, limit, SCAN_MAX, |key: DeliveryKey, event: EventId| {
            let inside = key.seq > after && key.seq < before;
            let row = if inside && event_type.is_some() { self.event(account, &event)? } else { None };
            let wanted = row.is_none_or(|row| wants(&row.event_type));
            Ok((inside && wanted).then_some((key.seq, event)))
        });
        let unrouted = unrouted?;
        // What lies beyond the nearer end of the two walks is not known in full.
        let forward = order == Order::Ascending;
        let cut = match (routed.cut, unrouted.cut) {
            (Some(a), Some(b)) => Some(if forward { a.min(b) } else { a.max(b) }),
            (one, other) => one.or(other),
        };
        self.gathered(account, Source { found: [routed.found, unrouted.found].concat(), cut }, forward, limit)
    }

    /// As [`events`](Self::events), of those alone that nobody had subscribed to and that were sent to
    /// nobody since.
    pub fn unmatched(
        &self,
        account: AccountId,
        (after, before): (Seq, Seq),
        event_type: Option<&str>,
        order: Order,
        limit: usize,
    ) -> Result<Events, log::Error> {
        let range = (account, after, before);
        let source = self.walk(range, order, limit, SCAN_MAX, |key: DeliveryKey, event: EventId| {
            let inside = key.seq > after && key.seq < before;
            let row = if inside { self.event(account, &event)? } else { None };
            let wanted = row.is_some_and(|row| {
                row.late.is_empty() && event_type.is_none_or(|wanted| type_matches(wanted, &row.event_type))
            });
            Ok(wanted.then_some((key.seq, event)))
        });
        self.gathered(account, source?, order == Order::Ascending, limit)
    }

    /// The rows of what was found, in order, and where to go on.
    fn gathered(
        &self,
        account: AccountId,
        Source { found: mut all, cut }: Source,
        forward: bool,
        limit: usize,
    ) -> Result<Events, log::Error> {
        if forward {
            all.sort()
        } else {
            all.sort_by(|a, b| b.cmp(a))
        }
        if let Some(cut) = cut {
            all.retain(|(at, _)| if forward { *at <= cut } else { *at >= cut });
        }
        let full = all.len() > limit;
        all.truncate(limit);
        let upto = if full { all.last().map(|(at, _)| *at) } else { cut };
        let mut rows = Vec::with_capacity(all.len());
        for (_, event) in all {
            if let Some(row) = self.event(account, &event)? {
                rows.push((event, row));
            }
        }
        Ok(Events { rows, upto })
    }

    /// The types of an account's events, each with when it was seen, by name; and whether these are all.
    pub fn event_types(&self, account: AccountId) -> Result<(Vec<(Text, SeenType)>, bool), log::Error> {
        // No type is empty, and none has a character beyond ASCII.
        let (from, to) = ((account, "".into()), (account, "\u{10ffff}".into()));
        let mut rows = self.settled_range::<EventTypes>(&from, &to, usize::MAX)?;
        let of_all = rows.first().filter(|((_, name), _)| name.is_empty()).map(|(_, row)| row.events);
        rows.retain(|((_, name), _)| !name.is_empty());
        let complete = of_all.is_none_or(|types| types <= TYPES_MAX);
        Ok((rows.into_iter().map(|((_, name), row)| (name, row)).collect(), complete))
    }

    fn walk<T: EventTable>(
        &self,
        (account, after, before): (AccountId, Seq, Seq),
        order: Order,
        limit: usize,
        scan: usize,
        mut pick: impl FnMut(DeliveryKey, T) -> Result<Option<(Seq, EventId)>, log::Error>,
    ) -> Result<Source, log::Error> {
        let from = DeliveryKey { account, seq: after }.bytes();
        // A delivery stands one behind its event.
        let to = DeliveryKey { account, seq: before }.bytes();
        let (mut found, mut seen, mut cut, mut failed) = (Vec::new(), 0, None, None);
        let space = self.space::<T::Of>();
        let (from, to) = (Bound::Excluded(from.as_slice()), Bound::Included(to.as_slice()));
        self.snapshot().range(space, from, to, order, &mut |key, value| {
            let step =
                DeliveryKey::read(key).ok_or_else(|| bad_key(<T::Of as Table>::NAME)).and_then(|key| {
                    seen += 1;
                    if found.len() > limit || seen > scan {
                        return Ok(ControlFlow::Break(()));
                    }
                    cut = Some(key.seq);
                    found.extend(pick(key, codec::decode(value)?)?);
                    Ok(ControlFlow::Continue(()))
                });
            step.unwrap_or_else(|error| {
                failed = Some(error);
                ControlFlow::Break(())
            })
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        let whole = found.len() <= limit && seen <= scan;
        Ok(Source { found, cut: cut.filter(|_| !whole) })
    }
}

/// Rows by account and position that lead to events.
trait EventTable: serde::Serialize + serde::de::DeserializeOwned {
    /// Their table.
    type Of: Table<Key = DeliveryKey, Value = Self>;
}

impl EventTable for Delivery {
    type Of = Deliveries;
}

impl EventTable for EventId {
    type Of = Unrouted;
}
