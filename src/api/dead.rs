//! `/v1/dead`: what was given up, in groups of endpoint, reason and type. One by one they are a list of deliveries.

use std::cmp::Reverse;

use axum::extract::Request;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use hooklog_projections::account::Endpoint;
use hooklog_projections::fact::DeadReason;
use hooklog_projections::ids::{AccountId, EndpointId};
use serde::Serialize;

use super::ApiState;
use super::accounts::known;
use super::openapi::words;
use super::policies::moment_text;
use super::problem::Problem;
use super::query::Params;
use super::rim::json;
use crate::views::query::{SCAN_MAX, type_matches};

#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = DeadGroups)]
pub(crate) struct GroupsOut {
    /// The largest first.
    pub data: Vec<GroupOut>,
    /// How many are dead in all groups that match, shown or not.
    pub dead: u64,
    /// All groups were looked at, and all that match are shown.
    pub complete: bool,
}

#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = DeadGroup)]
pub(crate) struct GroupOut {
    #[schema(value_type = String)]
    pub account_id: AccountId,
    #[schema(value_type = String)]
    pub endpoint_id: EndpointId,
    #[schema(required = true)]
    pub endpoint_url: Option<String>,
    pub event_type: String,
    #[schema(value_type = words::DeadReason)]
    pub reason: DeadReason,
    pub count: u64,
    /// The first death since the group was last empty.
    #[schema(format = DateTime)]
    pub first_at: String,
    #[schema(format = DateTime)]
    pub last_at: String,
}

pub(super) async fn groups(api: ApiState, request: Request) -> Result<Response, Problem> {
    let found = grouped(&api, &request.uri().clone()).await?;
    json(StatusCode::OK, &found)
}

/// What the query of an address selects.
pub(crate) async fn grouped(api: &ApiState, uri: &Uri) -> Result<GroupsOut, Problem> {
    let mut params = Params::of(uri);
    let account = api.account_filter(&mut params)?;
    let endpoint: Option<EndpointId> = params.read("endpoint_id");
    let event_type = params.event_type();
    let reason = params.one_of("reason", reason);
    let limit = params.limit();
    params.finish()?;
    api.read(move |_, view| {
        if let Some(account) = account {
            known(view, account)?;
        }
        let rows = view.dead_groups(account.map(|account| (account, endpoint)))?;
        let scanned = rows.len();
        let mut rows: Vec<_> = rows
            .into_iter()
            .filter(|(key, _)| {
                endpoint.is_none_or(|endpoint| key.endpoint.endpoint == endpoint)
                    && event_type.as_deref().is_none_or(|wanted| type_matches(wanted, &key.event_type))
                    && reason.as_ref().is_none_or(|reason| key.reason == *reason)
            })
            .collect();
        let complete = scanned < SCAN_MAX && rows.len() <= limit;
        let dead = rows.iter().map(|(_, group)| group.count).sum();
        rows.sort_by_key(|(_, group)| Reverse((group.count, group.last_at)));
        rows.truncate(limit);
        let mut data = Vec::with_capacity(rows.len());
        for (key, group) in rows {
            let endpoint: Option<Endpoint> = view.endpoint(key.endpoint)?;
            data.push(GroupOut {
                account_id: key.endpoint.account,
                endpoint_id: key.endpoint.endpoint,
                endpoint_url: endpoint.map(|endpoint| endpoint.settings.url.to_string()),
                event_type: key.event_type.to_string(),
                reason: key.reason,
                count: group.count,
                first_at: moment_text(group.first_at),
                last_at: moment_text(group.last_at),
            });
        }
        Ok(GroupsOut { data, dead, complete })
    })
    .await
}

fn reason(word: &str) -> Result<DeadReason, String> {
    let wrong = |_| "exhausted, refused, retries_off, expired or imported is wanted".to_owned();
    serde_json::from_value(word.into()).map_err(wrong)
}
