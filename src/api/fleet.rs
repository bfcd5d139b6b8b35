//! Endpoints and how they fare, read in one state: what waits, what fails, and the last day by hours. Of all
//! accounts, of one, or a single one. Looks at a bounded number, and says when there are more.

use hooklog_projections::account::{Account, Endpoint};
use hooklog_projections::hour::{Hour, hour_of};
use hooklog_projections::ids::{AccountId, EndpointId, EndpointKey};
use hooklog_projections::lane::Lane;
use hooklog_projections::policy::Text;
use hooklog_projections::time::Timestamp;

use super::ApiState;
use super::accounts::known;
use super::endpoints::lookup;
use super::overview::HOURS;
use super::problem::Problem;
use crate::views::View;

/// Endpoints of one page.
pub(crate) const FLEET_MAX: usize = 200;
/// Accounts that are looked through for them.
const ACCOUNTS_MAX: usize = 1_000;

/// An endpoint and its last day.
pub(crate) struct Ship {
    pub key: EndpointKey,
    pub account_name: Text,
    pub endpoint: Endpoint,
    pub lane: Lane,
    /// The last [`HOURS`] hours, the newest last.
    pub hours: Vec<Hour>,
}

impl Ship {
    /// The day as one.
    pub(crate) fn day(&self) -> Hour {
        let mut day = Hour::default();
        self.hours.iter().for_each(|hour| day.add(hour));
        day
    }
}

/// The endpoints of an account, or of all, that were not removed; and whether these are all.
pub(crate) fn read(
    api: &ApiState,
    view: &View<'_>,
    account: Option<AccountId>,
) -> Result<(Vec<Ship>, bool), Problem> {
    let accounts: Vec<(AccountId, Account)> = match account {
        Some(account) => vec![(account, known(view, account)?)],
        None => view.accounts(None, ACCOUNTS_MAX + 1)?,
    };
    let (mut ships, mut all) = (Vec::new(), accounts.len() <= ACCOUNTS_MAX);
    for (id, account) in accounts.into_iter().take(ACCOUNTS_MAX) {
        for (key, endpoint) in view.endpoints(id)? {
            if endpoint.removed() {
                continue;
            }
            if ships.len() == FLEET_MAX {
                all = false;
                break;
            }
            ships.push(ship(view, key, endpoint, account.settings.name.clone(), api.now())?);
        }
    }
    Ok((ships, all))
}

/// One endpoint, whether or not it was removed.
pub(crate) fn one(
    api: &ApiState,
    view: &View<'_>,
    id: EndpointId,
    account: Option<AccountId>,
) -> Result<Ship, Problem> {
    let (key, endpoint) = lookup(view, id, account)?;
    let name = known(view, key.account)?.settings.name;
    ship(view, key, endpoint, name, api.now())
}

fn ship(
    view: &View<'_>,
    key: EndpointKey,
    endpoint: Endpoint,
    account_name: Text,
    now: Timestamp,
) -> Result<Ship, Problem> {
    let last = hour_of(now);
    let first = last - (HOURS - 1);
    let mut hours = vec![Hour::default(); HOURS as usize];
    for (hour, figures) in view.hours(key.account, Some(key.endpoint), (first, last), HOURS as usize)? {
        hours[(hour - first) as usize] = figures;
    }
    Ok(Ship { key, account_name, lane: view.lane(key)?, endpoint, hours })
}
