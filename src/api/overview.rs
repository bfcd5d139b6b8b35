//! What the first page shows, read in one state: how it goes, what fails, what is newest. Of all accounts, or of
//! the caller's own.
//!
//! Looks at a bounded number of endpoints, and says when there are more.

use std::collections::BTreeMap;

use hooklog_projections::account::{Endpoint, Hold};
use hooklog_projections::counts::Counts;
use hooklog_projections::hour::{Hour, hour_of};
use hooklog_projections::ids::{AccountId, EndpointKey};
use hooklog_projections::lane::Lane;
use hooklog_projections::policy::Text;
use hooklog_projections::time::{Millis, Timestamp};

use super::ApiState;
use super::deliveries::{self, Wanted};
use super::paging::Asked;
use super::problem::Problem;
use super::wire::{DeliveryOut, Include};
use crate::views::View;
use crate::views::history::Filter;

/// Endpoints that are looked at for what fails.
const ENDPOINTS_MAX: usize = 5_000;
/// Accounts whose figures are added up.
const ACCOUNTS_MAX: usize = 1_000;
/// Endpoints that are shown as failing or held.
const TROUBLED_MAX: usize = 10;
/// Hours of the chart.
pub(crate) const HOURS: u32 = 24;
/// Deliveries that are shown.
const NEWEST: usize = 20;

/// How it goes.
pub(crate) struct Overview {
    pub now: Timestamp,
    pub counts: Counts,
    /// By hour since 1970, the newest last; hours in which nothing happened are left out.
    pub hours: BTreeMap<u32, Hour>,
    /// How late the oldest due attempt is through us; 0 if none is.
    pub late: Millis,
    /// Those that only fail or are held, the longest first.
    pub troubled: Vec<Troubled>,
    pub troubled_count: usize,
    pub newest: Vec<DeliveryOut>,
    /// Names of the accounts that are shown.
    pub names: BTreeMap<AccountId, Text>,
    pub has_accounts: bool,
    pub has_endpoints: bool,
    /// All accounts and endpoints were looked at.
    pub complete: bool,
}

/// An endpoint that somebody should look at.
pub(crate) struct Troubled {
    pub key: EndpointKey,
    pub endpoint: Endpoint,
    pub lane: Lane,
}

impl Troubled {
    /// Since when.
    pub(crate) fn since(&self) -> Timestamp {
        match &self.endpoint.hold {
            Some(Hold::Paused { at, .. } | Hold::Disabled { at, .. } | Hold::Removed { at, .. }) => *at,
            None => self.lane.failing_since.unwrap_or_default(),
        }
    }
}

/// How it goes in the account, or in all of them.
pub(crate) fn read(api: &ApiState, view: &View<'_>, account: Option<AccountId>) -> Result<Overview, Problem> {
    let now = api.now();
    let accounts = match account {
        Some(own) => vec![(own, super::accounts::known(view, own)?)],
        None => view.accounts(None, ACCOUNTS_MAX + 1)?,
    };
    let mut complete = accounts.len() <= ACCOUNTS_MAX;
    let last = hour_of(now);
    let mut hours: BTreeMap<u32, Hour> = BTreeMap::new();
    let (mut troubled, mut seen) = (Vec::new(), 0);
    for (id, _) in accounts.iter().take(ACCOUNTS_MAX) {
        for (hour, figures) in view.hours(*id, None, (last - (HOURS - 1), last), HOURS as usize)? {
            hours.entry(hour).or_default().add(&figures);
        }
        if seen >= ENDPOINTS_MAX {
            complete = false;
            continue;
        }
        for (key, endpoint) in view.endpoints(*id)? {
            seen += 1;
            if endpoint.removed() {
                continue;
            }
            let lane = view.lane(key)?;
            if endpoint.hold.is_some() || lane.failing_since.is_some() {
                troubled.push(Troubled { key, endpoint, lane });
            }
        }
    }
    troubled.sort_by_key(Troubled::since);
    let troubled_count = troubled.len();
    troubled.truncate(TROUBLED_MAX);
    let wanted = Wanted { account, filter: Filter::default(), asked: Asked::first(NEWEST) };
    let newest = deliveries::page_of(api, view, wanted, Include::default())?.data;
    let mut names = BTreeMap::new();
    let shown = newest.iter().map(|row| row.account_id).chain(troubled.iter().map(|one| one.key.account));
    for id in shown {
        names.entry(id).or_insert(super::accounts::known(view, id)?.settings.name);
    }
    Ok(Overview {
        now,
        counts: view.counts(account)?,
        hours,
        late: super::health::late(api, account),
        troubled,
        troubled_count,
        newest,
        names,
        has_accounts: !accounts.is_empty(),
        has_endpoints: seen > 0,
        complete,
    })
}
