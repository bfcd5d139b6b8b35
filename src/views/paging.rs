//! Pages of lists by their keys: where one stands, and what lies before and behind it. A place is an edge right
//! behind a row, so a page and the ones around it neither share a row nor leave one out, whatever is written
//! meanwhile.
//!
//! Never knows what a list holds, or how a place is written down.

use std::ops::{Bound, ControlFlow};

use hooklog_projections::tables::{Key, Table};
use hooklog_projections::time::Timestamp;

use super::View;
use super::query::RowsOf;
use super::rows::bad_key;
use crate::log::{self, Order, codec};

/// Longer than what is left of any key behind the prefix of a list, and of the highest byte.
const HIGHEST: [u8; 33] = [0xff; 33];

/// Where a page stands in its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<P> {
    /// At the beginning.
    First,
    /// Behind a row: the rows that follow it.
    After(P),
    /// Before the edge behind a row: that row, and those that lead up to it.
    UpTo(P),
}

/// A page, in the order of its list.
#[derive(Debug)]
pub struct Page<R, P> {
    /// Its rows.
    pub rows: Vec<R>,
    /// The page before stands [`UpTo`](Place::UpTo) here; `None` at the beginning of the list.
    pub prev: Option<P>,
    /// The next page stands [`After`](Place::After) this; `None` at the end of the list.
    pub next: Option<P>,
    /// The page is short because enough rows were looked through: the moment up to which they were.
    pub searched_to: Option<Timestamp>,
}

/// A page of a table.
pub type PageOf<T> = Page<(<T as Table>::Key, <T as Table>::Value), <T as Table>::Key>;

/// Looks at a row's key and bytes, and says whether to go on.
type Look<'a, K> = dyn FnMut(K, &[u8]) -> Result<ControlFlow<()>, log::Error> + 'a;

impl<P: Copy> Place<P> {
    /// Whether the walk goes towards the beginning of the list.
    pub fn leads_back(&self) -> bool {
        matches!(self, Place::UpTo(_))
    }

    /// The same place in other words.
    pub fn map<Q>(self, to: impl FnOnce(P) -> Q) -> Place<Q> {
        match self {
            Place::First => Place::First,
            Place::After(at) => Place::After(to(at)),
            Place::UpTo(at) => Place::UpTo(to(at)),
        }
    }

    /// Whether a row lies on the side of the place that the page is on, given how it compares to the place's row in
    /// the order of the list.
    pub fn holds(&self, compare: impl FnOnce(&P) -> std::cmp::Ordering) -> bool {
        match self {
            Place::First => true,
            Place::After(at) => compare(at).is_gt(),
            Place::UpTo(at) => compare(at).is_le(),
        }
    }

    /// The page of what a walk from here `found`, in the walk's order: at most `limit` rows and, if there are more,
    /// at least one of them. `stopped`: where the walk was broken off, which is the last row that it looked at, or
    /// on the way back the first one that it did not.
    pub fn page<R>(
        self,
        mut found: Vec<R>,
        limit: usize,
        position: impl Fn(&R) -> P,
        stopped: Option<P>,
    ) -> Page<R, P> {
        let full = found.len() > limit;
        let beyond = match self {
            Place::UpTo(_) if full => found.get(limit).map(&position),
            _ if full => found.get(limit.saturating_sub(1)).map(&position),
            _ => stopped,
        };
        found.truncate(limit);
        let (rows, searched_to) = (found, None);
        match self {
            Place::First => Page { rows, prev: None, next: beyond, searched_to },
            Place::After(at) => Page { rows, prev: Some(at), next: beyond, searched_to },
            Place::UpTo(at) => {
                let rows = rows.into_iter().rev().collect();
                Page { rows, prev: beyond, next: Some(at), searched_to }
            }
        }
    }
}

impl<R, P> Page<R, P> {
    /// The same page with its rows and places said otherwise.
    pub fn map<S, Q>(self, mut row: impl FnMut(R) -> S, place: impl Fn(P) -> Q) -> Page<S, Q> {
        let Ok(page) = self.shown(|found| Ok::<_, std::convert::Infallible>(row(found)), place);
        page
    }

    /// As [`map`](Self::map), with rows that may not be shown.
    ///
    /// # Errors
    /// Those of `show`.
    pub fn shown<S, Q, E>(
        self,
        show: impl FnMut(R) -> Result<S, E>,
        place: impl Fn(P) -> Q,
    ) -> Result<Page<S, Q>, E> {
        Ok(Page {
            rows: self.rows.into_iter().map(show).collect::<Result<_, E>>()?,
            prev: self.prev.map(&place),
            next: self.next.map(&place),
            searched_to: self.searched_to,
        })
    }
}

/// The range of keys that begin with `prefix` on the page's side of a place, and the order to walk it in. `order` is
/// the list's own.
fn span(prefix: &[u8], place: Place<Vec<u8>>, order: Order) -> (Bound<Vec<u8>>, Bound<Vec<u8>>, Order) {
    let first = if prefix.is_empty() { Bound::Unbounded } else { Bound::Included(prefix.to_vec()) };
    let last = Bound::Included([prefix, &HIGHEST].concat());
    match (order, place) {
        (_, Place::First) => (first, last, order),
        (Order::Ascending, Place::After(at)) => (Bound::Excluded(at), last, order),
        (Order::Ascending, Place::UpTo(at)) => (first, Bound::Included(at), Order::Descending),
        (Order::Descending, Place::After(at)) => (first, Bound::Excluded(at), order),
        (Order::Descending, Place::UpTo(at)) => (Bound::Included(at), last, Order::Ascending),
    }
}

impl View<'_> {
    /// A page of the rows whose keys begin with `prefix`, in the order of their keys or against it.
    pub(super) fn page<T: Table<Key: Copy>>(
        &self,
        prefix: &[u8],
        place: Place<T::Key>,
        order: Order,
        limit: usize,
    ) -> Result<PageOf<T>, log::Error> {
        let mut found: RowsOf<T> = Vec::new();
        self.visit::<T>(prefix, place, order, &mut |key, value| {
            found.push((key, codec::decode(value)?));
            Ok(if found.len() > limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        Ok(place.page(found, limit, |(key, _)| *key, None))
    }

    /// Visits the rows whose keys begin with `prefix` on the page's side of a place, from the place on.
    pub(super) fn visit<T: Table<Key: Copy>>(
        &self,
        prefix: &[u8],
        place: Place<T::Key>,
        order: Order,
        look: &mut Look<'_, T::Key>,
    ) -> Result<(), log::Error> {
        let (from, to, order) = span(prefix, place.map(|key| key.bytes()), order);
        let (from, to) = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
        let mut failed = None;
        self.snapshot().range(self.space::<T>(), from, to, order, &mut |key, value| {
            let step = T::Key::read(key).ok_or_else(|| bad_key(T::NAME)).and_then(|key| look(key, value));
            step.unwrap_or_else(|error| {
                failed = Some(error);
                ControlFlow::Break(())
            })
        })?;
        failed.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The page of a list of numbers that ascends or descends.
    fn page(list: &[u32], place: Place<u32>, limit: usize) -> Page<u32, u32> {
        let descends = list.windows(2).any(|pair| pair[0] > pair[1]);
        let order = |a: u32, b: u32| if descends { b.cmp(&a) } else { a.cmp(&b) };
        let mut side: Vec<u32> =
            list.iter().copied().filter(|row| place.holds(|at| order(*row, *at))).collect();
        if place.leads_back() {
            side.reverse();
        }
        side.truncate(limit + 1);
        place.page(side, limit, |row| *row, None)
    }

    proptest! {
        #[test]
        fn there_and_back_are_the_same_rows(rows in 0u32..40, limit in 1usize..9, descends: bool) {
            let mut list: Vec<u32> = (1..=rows).map(|row| row * 3).collect();
            if descends {
                list.reverse();
            }
            let (mut there, mut place) = (Vec::new(), Place::First);
            let end = loop {
                let page = page(&list, place, limit);
                prop_assert!(page.rows.len() <= limit);
                prop_assert_eq!(page.prev.is_none(), place == Place::First);
                there.extend(page.rows.clone());
                match page.next {
                    Some(next) => place = Place::After(next),
                    None => break page,
                }
            };
            prop_assert_eq!(&there, &list);
            let (mut back, mut prev) = (end.rows, end.prev);
            while let Some(at) = prev {
                let page = page(&list, Place::UpTo(at), limit);
                prop_assert!(!page.rows.is_empty() && page.rows.len() <= limit);
                prop_assert_eq!(page.next, Some(at));
                back.splice(0..0, page.rows);
                prev = page.prev;
            }
            prop_assert_eq!(&back, &list);
        }
    }
}
