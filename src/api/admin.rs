//! The admin listener: `/metrics`, `/healthz` and `/readyz`, for monitors, without a key, at an address of its own: so
//! whoever lets others reach the API and the pages never lets them reach these by it.
//!
//! Answers from memory: no figure here waits for the store or its writer. Metrics name no customer, see
//! [`crate::metrics`].

use std::time::Duration;

use axum::Router;
use axum::http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use hooklog_projections::time::Millis;

use super::{ApiState, health, stream};
use crate::metrics::{self, Gauges, Outbox, Process};

/// All that the listener answers.
pub(super) fn router(api: ApiState) -> Router {
    Router::new().fallback(move |method: Method, uri: Uri| {
        let api = api.clone();
        async move { answer(api, &method, uri.path()).await }
    })
}

async fn answer(api: ApiState, method: &Method, path: &str) -> Response {
    let answered = match path {
        _ if !matches!(*method, Method::GET | Method::HEAD) => {
            return (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "GET, HEAD")], "Only GET.\n").into_response();
        }
        "/metrics" => {
            let text = [(CONTENT_TYPE, metrics::CONTENT_TYPE)];
            Ok((text, api.exposition(process(&api))).into_response())
        }
        "/healthz" => health::alive().await,
        "/readyz" => health::ready(api).await,
        _ => return (StatusCode::NOT_FOUND, "Here are /metrics, /healthz and /readyz.\n").into_response(),
    };
    let mut response = answered.unwrap_or_else(IntoResponse::into_response);
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The monotonic clock begins with the process.
fn process(api: &ApiState) -> Process {
    let now = api.shared.clock.now().0.saturating_sub(api.monotonic().0);
    Process::now(now as f64 / 1_000.0)
}

impl ApiState {
    /// All metrics of this server as they are now, from memory alone.
    pub fn exposition(&self, process: Process) -> String {
        let (health, monotonic) = (self.shared.handle.health(), self.monotonic());
        let figures = health.figures();
        let ticked_at = health.silent_for(monotonic).map_or(0.0, |silent| {
            // Of the wall clock, as monitors have it.
            self.now().0.saturating_sub(silent.0) as f64 / 1_000.0
        });
        let span = |span: Millis| Duration::from_millis(span.0);
        health.metrics().text(&Gauges {
            deliveries: figures.counts,
            oldest_due: span(health.late(monotonic)),
            oldest_held: span(health.held_for(monotonic)),
            held: &health.held(),
            due: health.due(),
            in_flight: health.in_flight(),
            in_flight_max: figures.in_flight_max,
            ticked_at,
            write_age: span(health.write_age(monotonic)),
            head: figures.head.0,
            free_bytes: figures.free_bytes,
            ready: health.trouble(monotonic).is_none(),
            healthy: health.ailment(monotonic).is_none(),
            streams: stream::open(self),
            outbox: self.outbox(),
            process,
        })
    }

    /// What the outbox was last seen to hold.
    pub fn outbox(&self) -> Outbox {
        *self.shared.outbox.lock().expect("no holder panics")
    }

    /// Notes what the outbox holds.
    pub fn note_outbox(&self, outbox: Outbox) {
        *self.shared.outbox.lock().expect("no holder panics") = outbox;
    }
}
