//! `/v1/store/verify` and `/v1/store/rebuild`: long work beside live traffic, told line by line (NDJSON).
//!
//! The last line has `result`; a stream without one was cut. Never knows what is checked.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::{Value, json as object};
use tokio::sync::mpsc;

use super::ApiState;

/// Lines that may wait for a slow reader; the work waits with it.
const LINES_MAX: usize = 64;

pub(super) async fn verify(api: ApiState) -> Response {
    lines(move |say| {
        let progress = &mut |stage: &'static str, done: u64, of: u64| {
            say(object!({ "stage": stage, "done": done, "of": of }));
        };
        match api.shared.handle.check(progress) {
            Ok(report) => object!({
                "result": if report.clean() { "clean" } else { "damaged" },
                "entries": report.entries, "rows": report.rows, "findings": report.findings,
            }),
            Err(error) => failed(&error),
        }
    })
}

pub(super) async fn rebuild(api: ApiState) -> Response {
    lines(move |say| {
        let progress = &mut |upto: hooklog_projections::ids::Seq, of: hooklog_projections::ids::Seq| {
            say(object!({ "stage": "fold", "done": upto.0, "of": of.0 }));
        };
        match api.shared.handle.rebuild(progress) {
            Ok(()) => {
                let entries = api.shared.handle.view().head().0;
                object!({ "result": "rebuilt", "entries": entries, "findings": [] })
            }
            Err(error) => failed(&error),
        }
    })
}

fn failed(error: &dyn std::fmt::Display) -> Value {
    tracing::error!(%error, "a check or a rebuild failed");
    object!({ "result": "failed", "findings": [error.to_string()] })
}

/// Runs `work` on a thread that may block, and sends what it says and what it answers as lines.
fn lines(work: impl FnOnce(&mut dyn FnMut(Value)) -> Value + Send + 'static) -> Response {
    let (sender, receiver) = mpsc::channel::<Value>(LINES_MAX);
    // It ends by itself, whether or not somebody still listens.
    let _work = tokio::task::spawn_blocking(move || {
        let last = work(&mut |line| drop(sender.blocking_send(line)));
        let _ = sender.blocking_send(last);
    });
    let lines = stream::unfold(receiver, |mut receiver| async {
        let line = receiver.recv().await?;
        Some((Ok::<_, Infallible>(Bytes::from(format!("{line}\n"))), receiver))
    });
    let mut response = Body::from_stream(lines).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    response
}
