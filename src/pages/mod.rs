//! The pages: the console for operators and support, out of components that the portal shares. Everything works as
//! links and forms; scripts only make it quicker.
//!
//! They show what the API shows, by the same functions, and change things by the same commands. Never a query or a
//! rule of their own. Whatever they show was written by somebody else: it is escaped, bounded and never a link.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `viewer` | who looks, from where, and what it may do |
//! | `layout`, `list`, `parts`, `text`, `chart` | what every page is made of |
//! | `assets` | the style sheet and the scripts, out of the binary |
//! | `door`, `find`, `refusal` | signing in, going to any id, and saying no |
//! | `overview`, `event`, `timeline`, `deliveries`, `dead`, `endpoints`, `accounts`, `replays`, `audit`, `system` | the screens |

mod accounts;
mod assets;
mod audit;
mod chart;
mod dead;
mod deliveries;
mod door;
mod endpoints;
mod event;
mod find;
mod layout;
mod list;
mod overview;
mod parts;
mod refusal;
mod replays;
mod system;
mod text;
mod timeline;
mod viewer;

use axum::http::Method;

use crate::api::Front;
use crate::api::access::Right::{self, Act, Manage, Open, Oversee, Read};
use crate::api::events::payload;
use crate::api::routes::{Entrance, Route};
use crate::api::stream::stream;

/// The pages, for whoever serves: `ApiState::with_front`.
pub fn front() -> Front {
    Front { rows, refuse: refusal::page }
}

/// Method and path of every page, as in the table.
pub fn routes() -> Vec<(Method, &'static str)> {
    rows().iter().map(Route::name).collect()
}

fn rows() -> Vec<Route> {
    let (get, post) = (Method::GET, Method::POST);
    vec![
        row(&get, "/", Read, overview::show),
        row(&get, "/events", Read, deliveries::events),
        row(&get, "/events/{id}", Read, event::show),
        row(&post, "/events/{id}", Act, event::act),
        row(&get, "/events/{id}/payload", Read, payload),
        row(&get, "/deliveries", Read, deliveries::list),
        row(&get, "/deliveries/{id}", Read, event::of_delivery),
        row(&post, "/deliveries/{id}", Act, event::act_on_delivery),
        row(&get, "/attempts/{id}", Read, event::of_attempt),
        row(&get, "/dead", Read, dead::show),
        row(&get, "/endpoints", Read, endpoints::list),
        row(&get, "/endpoints/{id}", Read, endpoints::show),
        row(&post, "/endpoints/{id}", Act, endpoints::act),
        row(&get, "/accounts", Oversee, accounts::list),
        row(&get, "/accounts/{id}", Oversee, accounts::show),
        row(&get, "/replays", Read, replays::list),
        row(&post, "/replays", Act, replays::create),
        row(&get, "/replays/new", Read, replays::plan),
        row(&get, "/replays/{id}", Read, replays::show),
        row(&post, "/replays/{id}", Act, replays::act),
        row(&get, "/audit", Manage, audit::show),
        row(&get, "/system", Oversee, system::show),
        row(&get, "/live", Read, stream),
        row(&get, "/find", Read, find::find),
        row(&get, "/sign-in", Open, door::form),
        row(&post, "/sign-in", Open, door::sign_in),
        row(&post, "/sign-out", Open, door::sign_out),
        row(&post, "/theme", Open, door::theme),
        row(&get, "/static/{file}", Open, assets::file),
    ]
}

fn row<H, T>(method: &Method, path: &'static str, right: Right, handler: H) -> Route
where
    H: axum::handler::Handler<T, crate::api::routes::Door>,
    T: 'static,
{
    Route::page(Entrance::Console, method.clone(), path, right, handler)
}
