//! `/healthz`, `/readyz`, `/v1/status`: whether the process lives, whether it takes events, how much there is.

use axum::http::StatusCode;
use axum::response::Response;
use hooklog_projections::fact::Fact;
use hooklog_projections::ids::{AccountId, Seq};
use hooklog_projections::time::Millis;
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

/// How late the oldest due attempt is through us, of an account or of all; 0 if none is.
pub(crate) fn late(api: &ApiState, account: Option<AccountId>) -> Millis {
    let (health, monotonic) = (api.shared.handle.health(), api.monotonic());
    account.map_or_else(|| health.late(monotonic), |account| health.late_of(account, monotonic))
}

/// Why no events are taken in, if so.
pub(crate) fn trouble(api: &ApiState) -> Option<String> {
    api.shared.handle.health().trouble(api.shared.clock.monotonic())
}

pub(super) async fn status(api: ApiState) -> Result<Response, Problem> {
    json(StatusCode::OK, &figures(&api).await?)
}

/// The store's figures, and whether somebody should look.
pub(crate) async fn figures(api: &ApiState) -> Result<Value, Problem> {
    api.read(|api, view| {
        let (health, monotonic) = (api.shared.handle.health(), api.monotonic());
        let ailment = health.ailment(monotonic);
        let counts = view.counts(None)?;
        let Fact::Founded { store, .. } = view.entry(Seq(1))?.fact else {
            return Err(Problem::internal(&"the log does not begin with its founding"));
        };
        Ok(object!({
            "head": view.head().0,
            "store_id": store,
            "healthy": ailment.is_none(),
            "ailment": ailment,
            "late_ms": health.late(monotonic).0,
            "in_flight": health.in_flight(),
            "in_flight_max": health.figures().in_flight_max,
            "held": { "oldest_ms": health.held_for(monotonic).0, "endpoints": held(api) },
            "log": { "write_ms": health.write_age(monotonic).0, "free_bytes": health.figures().free_bytes },
            "outbox": outbox(api),
            "events": counts.accepted,
            "deliveries": wire::counts(&counts),
            "conserved": counts.conserved(),
        }))
    })
    .await
}

/// How many endpoints limits of their own hold back, by what.
fn held(api: &ApiState) -> Value {
    let held = api.shared.handle.health().held();
    held.into_iter().map(|(holder, count)| (holder.to_owned(), Value::from(count))).collect()
}

/// What waits in the outbox that this process relays from; nothing without one.
fn outbox(api: &ApiState) -> Value {
    let outbox = api.outbox();
    if outbox.asked_at == 0.0 {
        return Value::Null;
    }
    let oldest_ms = u64::try_from(outbox.oldest.as_millis()).unwrap_or(u64::MAX);
    object!({ "waiting": outbox.waiting, "refused": outbox.refused, "oldest_ms": oldest_ms })
}
