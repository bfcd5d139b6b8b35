//! Reads of the hourly figures: of an endpoint, of an account, of all endpoints of an account. Never adds them up.

use hooklog_projections::hour::{Hour, HourKey, Hours};
use hooklog_projections::ids::{AccountId, EndpointId};

use super::query::View;
use crate::log;

impl View<'_> {
    /// The hours from `from` to `to`, both included, of an endpoint, or of an account as a whole; hours in which
    /// nothing happened are left out. At most `limit`.
    pub fn hours(
        &self,
        account: AccountId,
        endpoint: Option<EndpointId>,
        (from, to): (u32, u32),
        limit: usize,
    ) -> Result<Vec<(u32, Hour)>, log::Error> {
        let key = |hour| HourKey { account, endpoint, hour };
        let rows = self.settled_range::<Hours>(&key(from), &key(to), limit)?;
        Ok(rows.into_iter().map(|(key, hour)| (key.hour, hour)).collect())
    }
}
