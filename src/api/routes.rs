//! The one table of routes: method, path, the right that it wants, and who answers. The router is made of it,
//! access is decided by it, and the test of all roles (`tests/access.rs`) fails for a row that it does not know.
//!
//! A new route is one line here, and one in that test. Pages come from above, as rows of the same table: whoever
//! serves says so ([`Front`]).

use std::collections::HashMap;
use std::sync::LazyLock;

use axum::Router;
use axum::handler::Handler;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, on};

use super::access::Caller;
use super::access::Right::{self, Act, Ingest, Manage, Open, Oversee, Read, Secrets, Session, Work, Write};
use super::problem::Problem;
use super::{
    ApiState, accounts, audit, dead, deliveries, endpoints, event_types, events, explain, health, keys,
    openapi, portal, queues, replays, secrets, stats, store, stream, tried, verify,
};

/// What the router carries: handlers get an [`ApiState`] that knows who asks, never this one.
#[derive(Clone)]
pub struct Door(pub(super) ApiState);

/// Which credentials a route looks at, beside a bearer's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entrance {
    /// Programs, and the portal's session with its token in a header.
    Api,
    /// Pages for who signed in with a key.
    Console,
    /// Pages for who came by a link: of one account.
    Portal,
}

/// A row of the table.
pub struct Route {
    method: Method,
    path: &'static str,
    right: Right,
    entrance: Entrance,
    handler: MethodRouter<Door>,
}

/// Pages over the API: their rows, and how they say no.
#[derive(Clone, Copy)]
pub struct Front {
    pub(crate) rows: fn() -> Vec<Route>,
    pub(crate) refuse: fn(&ApiState, &Refused<'_>) -> Response,
}

/// A request to a page that was refused.
pub struct Refused<'a> {
    pub(crate) problem: &'a Problem,
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    /// Who asked, if it was let in.
    pub(crate) caller: Option<&'a Caller>,
    pub(crate) request_id: &'a str,
}

/// What each row of the table wants.
pub(super) struct Rights(HashMap<&'static str, Vec<(Method, Right, Entrance)>>);

impl Route {
    /// A page's row.
    pub(crate) fn page<H, T>(
        entrance: Entrance,
        method: Method,
        path: &'static str,
        right: Right,
        handler: H,
    ) -> Route
    where
        H: Handler<T, Door>,
        T: 'static,
    {
        Route { entrance, ..row(&method, path, right, handler) }
    }

    /// Its method and path.
    pub(crate) fn name(&self) -> (Method, &'static str) {
        (self.method.clone(), self.path)
    }
}

fn table() -> Vec<Route> {
    let (get, post, patch, delete) = (Method::GET, Method::POST, Method::PATCH, Method::DELETE);
    vec![
        row(&post, "/v1/accounts", Manage, accounts::create),
        row(&get, "/v1/accounts", Read, accounts::list),
        row(&get, "/v1/accounts/{id}", Read, accounts::show),
        row(&patch, "/v1/accounts/{id}", Manage, accounts::change),
        row(&get, "/v1/accounts/{id}/secret", Secrets, secrets::reveal_account),
        row(&post, "/v1/accounts/{id}/secret/rotate", Secrets, secrets::rotate_account),
        row(&post, "/v1/endpoints", Write, endpoints::create),
        row(&get, "/v1/endpoints", Read, endpoints::list),
        row(&get, "/v1/endpoints/{id}", Read, endpoints::show),
        row(&patch, "/v1/endpoints/{id}", Write, endpoints::change),
        row(&delete, "/v1/endpoints/{id}", Write, endpoints::remove),
        row(&post, "/v1/endpoints/{id}/pause", Act, endpoints::pause),
        row(&post, "/v1/endpoints/{id}/resume", Act, endpoints::resume),
        row(&post, "/v1/endpoints/{id}/test", Act, endpoints::test),
        row(&get, "/v1/endpoints/{id}/secret", Secrets, secrets::reveal),
        row(&post, "/v1/endpoints/{id}/secret/rotate", Secrets, secrets::rotate),
        row(&post, "/v1/endpoints/{id}/secret/retire", Secrets, secrets::retire),
        row(&post, "/v1/endpoints/{id}/ledger-secret/rotate", Secrets, secrets::rotate_own),
        row(&post, "/v1/events", Ingest, events::create),
        row(&post, "/v1/events/batch", Ingest, events::batch),
        row(&post, "/v1/events/raw", Ingest, events::raw),
        row(&post, "/internal/webhooks/dispatch", Ingest, events::create),
        row(&get, "/v1/events", Read, events::list),
        row(&get, "/v1/event-types", Read, event_types::list),
        row(&get, "/v1/events/{id}", Read, events::show),
        row(&get, "/v1/events/{id}/payload", Read, events::payload),
        row(&get, "/v1/events/{id}/timeline", Read, events::timeline),
        row(&post, "/v1/events/{id}/replay", Act, events::replay),
        row(&post, "/events/{id}/replay", Act, events::replay),
        row(&get, "/v1/deliveries", Read, deliveries::list),
        row(&get, "/v1/deliveries/{id}", Read, deliveries::show),
        row(&get, "/v1/deliveries/{id}/attempts", Read, deliveries::attempts),
        row(&post, "/v1/deliveries/{id}/replay", Act, deliveries::replay),
        row(&post, "/v1/deliveries/{id}/retry-now", Act, deliveries::retry_now),
        row(&post, "/v1/deliveries/{id}/cancel", Act, deliveries::cancel),
        row(&get, "/v1/attempts/{id}", Read, tried::show),
        row(&get, "/v1/attempts/{id}/request", Read, tried::sent),
        row(&get, "/v1/attempts/{id}/response", Read, tried::answer),
        row(&get, "/v1/dead", Read, dead::groups),
        row(&post, "/v1/replays", Act, replays::create),
        row(&get, "/v1/replays", Read, replays::list),
        row(&get, "/v1/replays/{id}", Read, replays::show),
        row(&delete, "/v1/replays/{id}", Act, replays::cancel),
        row(&get, "/v1/queues/{name}", Read, queues::show),
        row(&post, "/v1/queues/{name}/jobs", Ingest, queues::enqueue),
        row(&post, "/v1/queues/{name}/claim", Work, queues::claim),
        row(&post, "/v1/leases/{lease}/extend", Work, queues::extend),
        row(&post, "/v1/leases/{lease}/complete", Work, queues::complete),
        row(&post, "/v1/leases/{lease}/fail", Work, queues::fail),
        row(&post, "/v1/leases/{lease}/release", Work, queues::release),
        row(&get, "/v1/explain/{id}", Read, explain::explain),
        row(&get, "/v1/stats", Read, stats::stats),
        row(&get, "/v1/endpoints/{id}/stats", Read, stats::of_endpoint),
        row(&get, "/v1/stream", Read, stream::stream),
        row(&post, "/v1/verify", Read, verify::verify),
        row(&post, "/v1/keys", Manage, keys::create),
        row(&get, "/v1/keys", Manage, keys::list),
        row(&get, "/v1/keys/{id}", Manage, keys::show),
        row(&post, "/v1/keys/{id}/rotate", Manage, keys::rotate),
        row(&delete, "/v1/keys/{id}", Manage, keys::revoke),
        row(&post, "/v1/portal-sessions", Oversee, portal::create),
        row(&delete, "/v1/portal-sessions", Oversee, portal::end_all),
        row(&post, "/portal/session", Open, portal::exchange),
        row(&get, "/portal/session", Session, portal::show),
        row(&delete, "/portal/session", Session, portal::end),
        row(&get, "/v1/audit", Manage, audit::list),
        row(&get, "/v1/status", Oversee, health::status),
        row(&post, "/v1/store/verify", Manage, store::verify),
        row(&post, "/v1/store/rebuild", Manage, store::rebuild),
        row(&get, "/v1/openapi.json", Open, openapi::description),
        row(&get, "/docs/api", Open, openapi::reference),
        row(&get, "/healthz", Open, health::alive),
        row(&get, "/readyz", Open, health::ready),
    ]
}

fn row<H, T>(method: &Method, path: &'static str, right: Right, handler: H) -> Route
where
    H: Handler<T, Door>,
    T: 'static,
{
    let filter = MethodFilter::try_from(method.clone()).expect("a common method");
    Route { method: method.clone(), path, right, entrance: Entrance::Api, handler: on(filter, handler) }
}

fn all(front: Option<Front>) -> Vec<Route> {
    table().into_iter().chain(front.into_iter().flat_map(|front| (front.rows)())).collect()
}

/// All routes, to be answered.
pub(super) fn router(front: Option<Front>) -> Router<Door> {
    all(front).into_iter().fold(Router::new(), |router, route| router.route(route.path, route.handler))
}

/// Method and path of every route of the API, as in the table.
pub fn listed() -> Vec<(Method, &'static str)> {
    table().iter().map(Route::name).collect()
}

/// What a route of the API wants; `None` if there is no such route.
pub(super) fn right_of(path: &str, method: &Method) -> Option<Right> {
    static RIGHTS: LazyLock<Rights> = LazyLock::new(|| Rights::of(None));
    RIGHTS.wanted(path, method).map(|(right, _)| right)
}

impl Rights {
    pub(super) fn of(front: Option<Front>) -> Rights {
        let mut rights: HashMap<_, Vec<_>> = HashMap::new();
        for route in all(front) {
            rights.entry(route.path).or_default().push((route.method, route.right, route.entrance));
        }
        Rights(rights)
    }

    /// What a matched route wants, and of whom; `None` if the table has no such row.
    pub(super) fn wanted(&self, path: &str, method: &Method) -> Option<(Right, Entrance)> {
        // What answers GET answers HEAD too.
        let method = if *method == Method::HEAD { &Method::GET } else { method };
        let of_path = self.0.get(path)?;
        of_path.iter().find(|(known, ..)| known == method).map(|(_, right, entrance)| (*right, *entrance))
    }

    /// The table's own words for a matched route and a method that it has.
    pub(super) fn row(&self, path: &str, method: &Method) -> Option<(&'static str, &'static str, Right)> {
        let (path, rows) = self.0.get_key_value(path)?;
        let method = if *method == Method::HEAD { &Method::GET } else { method };
        let (_, right, _) = rows.iter().find(|(known, ..)| known == method)?;
        let words = ["GET", "POST", "PUT", "PATCH", "DELETE"];
        Some((words.into_iter().find(|word| *word == method.as_str())?, path, *right))
    }

    /// Whether a path is a page's, by any method.
    pub(super) fn is_page(&self, path: &str) -> bool {
        self.0.get(path).is_some_and(|rows| rows.iter().any(|(.., entrance)| *entrance != Entrance::Api))
    }
}
