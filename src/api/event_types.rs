//! `/v1/event-types`: the types of the events that an account has handed in, and when. Never knows who wants them.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;

use super::ApiState;
use super::accounts::known;
use super::policies::moment_text;
use super::problem::Problem;
use super::query::Params;
use super::rim::json;

/// The types of an account's events, by name.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = EventTypes)]
pub(super) struct TypesOut {
    data: Vec<TypeOut>,
    /// These are all; `false` once there are more than 1,000, of which the first 1,000 are told.
    complete: bool,
}

/// A type, and when events of it came in.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = EventType)]
pub(super) struct TypeOut {
    r#type: String,
    events: u64,
    #[schema(format = DateTime)]
    first_seen_at: String,
    #[schema(format = DateTime)]
    last_seen_at: String,
}

pub(super) async fn list(api: ApiState, request: Request) -> Result<Response, Problem> {
    let mut params = Params::of(request.uri());
    let account = api.account_param(&mut params)?;
    let account = params.finish_with(account)?;
    let out = api
        .read(move |_, view| {
            known(view, account)?;
            let (types, complete) = view.event_types(account)?;
            let data = types.into_iter().map(|(name, seen)| TypeOut {
                r#type: name.to_string(),
                events: seen.events,
                first_seen_at: moment_text(seen.first_at),
                last_seen_at: moment_text(seen.last_at),
            });
            Ok(TypesOut { data: data.collect(), complete })
        })
        .await?;
    json(StatusCode::OK, &out)
}
