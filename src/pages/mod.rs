//! The pages: the console for operators and support, and the portal for a customer, out of the same handlers and
//! components. Everything works as links and forms; scripts only make it quicker.
//!
//! They show what the API shows, by the same functions, and change things by the same commands. Never a query or a
//! rule of their own. Whatever they show was written by somebody else: it is escaped, bounded and never a link.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `viewer` | who looks, from where, and what it may do |
//! | `layout`, `list`, `export`, `parts`, `text`, `chart` | what every page is made of |
//! | `assets` | the style sheet and the scripts, out of the binary |
//! | `door`, `entry`, `find`, `refusal` | signing in to the console and to the portal, going to any id, and saying no |
//! | `event`, `answer`, `timeline`, `wire` | the answer page |
//! | `overview`, `deliveries`, `dead`, `endpoints`, `signing`, `accounts`, `replays`, `audit`, `system` | the other screens |

mod accounts;
mod answer;
mod assets;
mod audit;
mod chart;
mod dead;
mod deliveries;
mod door;
mod endpoints;
mod entry;
mod event;
mod export;
mod find;
mod layout;
mod list;
mod overview;
mod parts;
mod refusal;
mod replays;
mod signing;
mod system;
mod text;
mod timeline;
mod viewer;
mod wire;

use axum::http::Method;

use crate::api::Front;
use crate::api::access::Right::{self, Act, Manage, Open, Oversee, Read, Secrets};
use crate::api::events::payload;
use crate::api::routes::Entrance::{self, Console, Portal};
use crate::api::routes::Route;
use crate::api::stream::stream;

/// The pages, for whoever serves: `ApiState::with_front`.
pub fn front() -> Front {
    Front { rows, refuse: refusal::page }
}

/// Method and path of every page, as in the table.
pub fn routes() -> Vec<(Method, &'static str)> {
    rows().iter().map(Route::name).collect()
}

/// The pages that stand in both entrances, under each one's path.
macro_rules! shared {
    ($entrance:expr, $base:literal) => {{
        let (get, post) = (Method::GET, Method::POST);
        vec![
            row($entrance, &get, concat!($base, "/"), Read, overview::show),
            row($entrance, &get, concat!($base, "/events"), Read, deliveries::events),
            row($entrance, &get, concat!($base, "/events/{id}"), Read, event::show),
            row($entrance, &post, concat!($base, "/events/{id}"), Act, event::act),
            row($entrance, &get, concat!($base, "/events/{id}/payload"), Read, payload),
            row($entrance, &get, concat!($base, "/events/{id}/evidence"), Read, event::evidence),
            row($entrance, &get, concat!($base, "/deliveries"), Read, deliveries::list),
            row($entrance, &get, concat!($base, "/deliveries/{id}"), Read, event::of_delivery),
            row($entrance, &post, concat!($base, "/deliveries/{id}"), Act, event::act_on_delivery),
            row($entrance, &get, concat!($base, "/attempts/{id}"), Read, event::of_attempt),
            row($entrance, &get, concat!($base, "/dead"), Read, dead::show),
            row($entrance, &get, concat!($base, "/endpoints"), Read, endpoints::list),
            row($entrance, &get, concat!($base, "/endpoints/{id}"), Read, endpoints::show),
            row($entrance, &post, concat!($base, "/endpoints/{id}"), Act, endpoints::act),
            row($entrance, &post, concat!($base, "/endpoints/{id}/secret"), Secrets, signing::act),
            row($entrance, &get, concat!($base, "/replays"), Read, replays::list),
            row($entrance, &post, concat!($base, "/replays"), Act, replays::create),
            row($entrance, &get, concat!($base, "/replays/new"), Read, replays::plan),
            row($entrance, &get, concat!($base, "/replays/{id}"), Read, replays::show),
            row($entrance, &post, concat!($base, "/replays/{id}"), Act, replays::act),
            row($entrance, &get, concat!($base, "/live"), Read, stream),
            row($entrance, &get, concat!($base, "/find"), Read, find::find),
            row($entrance, &post, concat!($base, "/theme"), Open, door::theme),
            row($entrance, &get, concat!($base, "/static/{file}"), Open, assets::file),
        ]
    }};
}

fn rows() -> Vec<Route> {
    let (get, post) = (Method::GET, Method::POST);
    let mut rows = shared!(Console, "");
    rows.extend([
        row(Console, &get, "/accounts", Oversee, accounts::list),
        row(Console, &get, "/accounts/{id}", Oversee, accounts::show),
        row(Console, &get, "/audit", Manage, audit::show),
        row(Console, &get, "/system", Oversee, system::show),
        row(Console, &get, "/sign-in", Open, door::form),
        row(Console, &post, "/sign-in", Open, door::sign_in),
        row(Console, &post, "/sign-out", Open, door::sign_out),
    ]);
    rows.extend(shared!(Portal, "/portal"));
    rows.extend([
        row(Portal, &get, "/portal", Open, entry::shown),
        row(Portal, &post, "/portal", Open, entry::enter),
        row(Portal, &post, "/portal/sign-out", Open, entry::leave),
        row(Portal, &get, "/portal/brand.css", Open, assets::brand),
    ]);
    rows
}

fn row<H, T>(entrance: Entrance, method: &Method, path: &'static str, right: Right, handler: H) -> Route
where
    H: axum::handler::Handler<T, crate::api::routes::Door>,
    T: 'static,
{
    Route::page(entrance, method.clone(), path, right, handler)
}
