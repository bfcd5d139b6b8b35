//! `/healthz`, `/readyz`, `/v1/status`: whether the process lives, whether it takes events, how much there is.

use axum::http::StatusCode;
use axum::response::Response;
use hooklog_projections::fact::Fact;
use hooklog_projections::ids::Seq;
use serde_json::{Value, json as object};

use super::ApiState;
use super::problem::Problem;
use super::rim::json;
use super::wire;

pub(super) async fn alive() -> Result<Response, Problem> {
    json(StatusCode::OK, &object!({ "status": "ok" }))
}

pub(super) async fn ready(api: ApiState) -> Result<Response, Problem> {
    let trouble = trouble(&api);
    let (status, word) = match trouble {
        None => (StatusCode::OK, "ready"),
        Some(_) => (StatusCode::SERVICE_UNAVAILABLE, "not_ready"),
    };
    let engine = trouble.unwrap_or_else(|| "ok".into());
    json(status, &object!({ "status": word, "checks": { "engine": engine } }))
}

/// Why no events are taken in, if so.
pub(crate) fn trouble(api: &ApiState) -> Option<String> {
    api.shared.handle.health().trouble(api.shared.clock.monotonic())
}

pub(super) async fn status(api: ApiState) -> Result<Response, Problem> {
    json(StatusCode::OK, &figures(&api).await?)
}

/// The store's figures.
pub(crate) async fn figures(api: &ApiState) -> Result<Value, Problem> {
    api.read(|api, view| {
        let counts = view.counts(None)?;
        let Fact::Founded { store, .. } = view.entry(Seq(1))?.fact else {
            return Err(Problem::internal(&"the log does not begin with its founding"));
        };
        Ok(object!({
            "head": view.head().0,
            "store_id": store,
            "in_flight": api.shared.handle.health().in_flight(),
            "events": counts.accepted,
            "deliveries": wire::counts(&counts),
            "conserved": counts.conserved(),
        }))
    })
    .await
}
