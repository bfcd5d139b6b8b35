//! What every page says of the server itself, if there is something to say: that it takes nothing in, that its views
//! are folded anew, that deliveries are late.
//!
//! How late is looked up at most every few seconds: it goes through the endpoints. Never knows a page.

use std::collections::HashMap;
use std::sync::Mutex;

use hooklog_projections::account::Endpoint;
use hooklog_projections::ids::{AccountId, EndpointKey};
use hooklog_projections::lane::Lane;
use hooklog_projections::time::{Millis, Timestamp};

use super::ApiState;
use super::overview::{ACCOUNTS_MAX, ENDPOINTS_MAX};
use super::problem::Problem;
use crate::views::View;

/// What is due waits so long at most before it is an alarm (the brief's).
pub(crate) const LATE: Millis = Millis::from_secs(300);
/// A look at how late deliveries are is as good for so long.
const FRESH: Millis = Millis::from_secs(5);
/// Accounts whose look is remembered.
const LOOKS_MAX: usize = 10_000;

/// What there is to say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notices {
    /// Why nothing is taken in, if so.
    pub trouble: Option<String>,
    /// How many entries of how many are folded anew, if so.
    pub rebuilding: Option<(u64, u64)>,
    /// Since when something is due, if that is too long ago.
    pub late_since: Option<Timestamp>,
    /// Requests out.
    pub in_flight: u64,
}

/// How late deliveries were, by account and for all, and when that was looked up.
#[derive(Default)]
pub(super) struct Late(Mutex<HashMap<Option<AccountId>, Look>>);

/// When it was looked, and what had been due longest.
type Look = (Millis, Option<Timestamp>);

/// What there is to say to the caller.
pub(crate) async fn read(api: &ApiState) -> Result<Notices, Problem> {
    let health = api.shared.handle.health();
    let (account, now) = (api.caller.account, api.monotonic());
    let known = api.shared.late.0.lock().expect("no holder panics").get(&account).copied();
    let oldest = match known.filter(|(at, _)| now.0.saturating_sub(at.0) < FRESH.0) {
        Some((_, oldest)) => oldest,
        None => {
            let oldest = api.read(move |api, view| oldest_due(api, view, account)).await?;
            let mut looks = api.shared.late.0.lock().expect("no holder panics");
            if looks.len() >= LOOKS_MAX {
                looks.clear();
            }
            looks.insert(account, (now, oldest));
            oldest
        }
    };
    Ok(Notices {
        trouble: super::health::trouble(api),
        rebuilding: health.rebuilding().map(|(upto, of)| (upto.0, of.0)),
        late_since: oldest.filter(|due| api.now().since(*due) > LATE),
        in_flight: health.in_flight(),
    })
}

fn oldest_due(
    api: &ApiState,
    view: &View<'_>,
    account: Option<AccountId>,
) -> Result<Option<Timestamp>, Problem> {
    let (now, mut oldest, mut seen) = (api.now(), None, 0);
    let accounts = match account {
        Some(own) => vec![own],
        None => view.accounts(None, ACCOUNTS_MAX)?.into_iter().map(|(id, _)| id).collect(),
    };
    for account in accounts {
        for (key, endpoint) in view.endpoints(account)? {
            seen += 1;
            if seen > ENDPOINTS_MAX {
                return Ok(oldest);
            }
            let due = due(view, key, &endpoint, &view.lane(key)?, now)?;
            oldest = [oldest, due].into_iter().flatten().min();
        }
    }
    Ok(oldest)
}

/// What of an endpoint has waited longest for its turn, past its time; nothing of one that is held back on purpose.
pub(super) fn due(
    view: &View<'_>,
    key: EndpointKey,
    endpoint: &Endpoint,
    lane: &Lane,
    now: Timestamp,
) -> Result<Option<Timestamp>, Problem> {
    if lane.waiting == 0 || endpoint.hold.is_some() || lane.gate_until > now {
        return Ok(None);
    }
    Ok(view.oldest_due(key)?.map(|due| due.due_at).filter(|due| *due <= now))
}
