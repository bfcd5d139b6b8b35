//! A page of any list: what it is asked with, and how it goes out with the cursors and `Link`s of those around it.
//!
//! Never knows what a list shows.

use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::ApiState;
use super::policies::moment_text;
use super::problem::Problem;
use super::query::Params;
use super::rim::json;
use crate::views::{Page, Place};

/// The parameters that every list takes.
pub(crate) struct Asked {
    limit: usize,
    cursor: Option<String>,
}

/// One page of a list that is being made.
pub(super) struct Paging {
    list: String,
    /// Where it stands. Positions are ids, as cursors hold them.
    pub place: Place<u128>,
    /// Rows at most.
    pub limit: usize,
}

/// A page as it is sent.
#[derive(Serialize)]
pub(crate) struct PageOut<T> {
    pub data: Vec<T>,
    pub next_cursor: Option<String>,
    pub prev_cursor: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub searched_back_to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub searched_up_to: Option<String>,
}

impl<T> PageOut<T> {
    /// The only page of a list.
    pub(crate) fn whole(data: Vec<T>) -> PageOut<T> {
        PageOut { data, next_cursor: None, prev_cursor: None, searched_back_to: None, searched_up_to: None }
    }
}

impl Asked {
    /// Those of a request.
    pub(super) fn read(params: &mut Params) -> Asked {
        Asked { limit: params.limit(), cursor: params.one("cursor") }
    }

    /// The first so many rows.
    pub(super) fn first(limit: usize) -> Asked {
        Asked { limit, cursor: None }
    }

    /// The page that is meant, of the list that `list` describes: its route and every filter. Filters of equal
    /// effect must be said alike.
    pub(super) fn of(self, api: &ApiState, list: String) -> Result<Paging, Problem> {
        let cursor = self.cursor.map(|cursor| api.shared.cursors.read(&list, &cursor)).transpose()?;
        Ok(Paging { list, place: cursor.unwrap_or(Place::First), limit: self.limit })
    }
}

impl Paging {
    /// The page as it is sent.
    pub(super) fn out<T>(&self, api: &ApiState, page: Page<T, u128>) -> PageOut<T> {
        let back = self.place.leads_back();
        let cursor = |place| api.shared.cursors.write(&self.list, place);
        let searched_to = page.searched_to.map(moment_text);
        PageOut {
            data: page.rows,
            next_cursor: page.next.map(|at| cursor(Place::After(at))),
            prev_cursor: page.prev.map(|at| cursor(Place::UpTo(at))),
            searched_back_to: searched_to.clone().filter(|_| !back),
            searched_up_to: searched_to.filter(|_| back),
        }
    }
}

/// A page of the list at an address, with its `Link`s.
pub(super) fn reply<T: Serialize>(uri: &Uri, page: PageOut<T>) -> Result<Response, Problem> {
    let around = [("prev", &page.prev_cursor), ("next", &page.next_cursor)];
    let links: Vec<String> =
        around.into_iter().filter_map(|(rel, cursor)| Some(link(uri, cursor.as_deref()?, rel))).collect();
    let response = json(StatusCode::OK, &page)?;
    Ok(match links.is_empty() {
        true => response,
        false => ([("link", links.join(", "))], response).into_response(),
    })
}

/// A `Link` (RFC 8288) to the page at `cursor`, with the other parameters as they came.
fn link(uri: &Uri, cursor: &str, rel: &str) -> String {
    format!("<{}?{}>; rel=\"{rel}\"", uri.path(), Params::with(uri, "cursor", cursor))
}
