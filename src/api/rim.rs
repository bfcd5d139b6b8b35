//! What every request passes on its way in and every answer on its way out: an id, access, the limits of a
//! body, and the one shape of refusals. Never knows routes.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures::{FutureExt, StreamExt};
use hooklog_projections::ids::encode_base32;

use super::access::Right;
use super::problem::{Kind, Problem};
use super::quotas::Told;
use super::routes::Refused;
use super::{ApiState, access, idempotency};
use crate::clock::SystemChance;
use crate::ids::drawn;

/// Bytes of a body that is no event (rule A27).
pub(super) const BYTES_MAX: usize = 32 * 1024;
/// The longest a body may take to come whole.
const BODY_TIMEOUT: Duration = Duration::from_secs(15);
/// Of a body that is too large, so much is read and forgotten: a client that only looks for an answer when it has
/// sent everything would lose it with the connection.
const DRAINED_BYTES_MAX: usize = 16 << 20;
/// Characters of a request id that a caller brings.
const REQUEST_ID_CHARS_MAX: usize = 64;

/// A request's id: the caller's, or drawn.
#[derive(Clone, Debug)]
pub(super) struct RequestId(pub String);

/// The way in and out of every route.
pub(super) async fn rim(State(api): State<ApiState>, mut request: Request, next: Next) -> Response {
    let began = api.shared.clock.elapsed();
    let path = request.extensions().get::<MatchedPath>();
    let row = path.and_then(|path| api.rights.row(path.as_str(), request.method()));
    let id = RequestId(request_id(request.headers(), &api));
    request.extensions_mut().insert(id.clone());
    let told = Told::default();
    request.extensions_mut().insert(told.clone());
    // A page says no as a page.
    let page = api.front.filter(|_| is_for_a_page(&api, &request));
    let asked = page.map(|_| (request.method().clone(), request.uri().clone(), request.headers().clone()));
    let mut known = None;
    let response = match access::admit(&api, &request) {
        Err(problem) => problem.into_response(),
        Ok(caller) => {
            known = Some(caller.clone());
            request.extensions_mut().insert(caller.clone());
            let answered = async {
                if idempotency::wanted(&request) {
                    idempotency::once(ApiState { caller, ..api.clone() }, request, next).await
                } else {
                    next.run(request).await
                }
            };
            AssertUnwindSafe(answered).catch_unwind().await.unwrap_or_else(|_| {
                tracing::error!(request = %id.0, "a handler panicked");
                Problem::of_status(StatusCode::INTERNAL_SERVER_ERROR).into_response()
            })
        }
    };
    measure(&api, row, &response, began);
    let mut response = match (page, asked) {
        (Some(front), Some((method, uri, headers))) => {
            let caller = known.as_ref();
            let refusal = |problem: &Problem| {
                let (method, uri, headers, request_id) = (&method, &uri, &headers, id.0.as_str());
                (front.refuse)(&api, &Refused { problem, method, uri, headers, caller, request_id })
            };
            shaped_by(response, refusal)
        }
        _ => shaped(response, &id.0),
    };
    let headers = response.headers_mut();
    told.write(headers);
    // Only what is named by its content's hash may be kept, and says so itself.
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Ok(value) = HeaderValue::from_str(&id.0) {
        headers.insert("x-request-id", value);
    }
    response
}

/// Counts an answer. Whatever is not of the table of routes is told as one.
fn measure(
    api: &ApiState,
    row: Option<(&'static str, &'static str, Right)>,
    response: &Response,
    began: Duration,
) {
    let metrics = api.shared.handle.health().metrics();
    let took = api.shared.clock.elapsed().saturating_sub(began);
    let status = response.status();
    metrics.answered(row.map(|(method, path, _)| (method, path)), status.as_u16(), took);
    if row.is_some_and(|(.., right)| right == Right::Ingest) {
        let problem = response.extensions().get::<Problem>().map(|problem| problem.kind.code());
        match problem {
            Some(reason) => metrics.refused(reason),
            None if status.is_success() => metrics.took_in(took),
            None => {}
        }
    }
}

/// Every refusal in the one shape, the framework's own included.
fn shaped(response: Response, request_id: &str) -> Response {
    let allow = response.headers().get(ALLOW).cloned();
    shaped_by(response, |problem| problem.respond(request_id, allow.clone()))
}

fn shaped_by(mut response: Response, refuse: impl Fn(&Problem) -> Response) -> Response {
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        return refuse(&problem);
    }
    let status = response.status();
    let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is_ours =
        content_type.is_some_and(|value| value == "application/json" || value.starts_with("text/html"));
    if (status.is_client_error() || status.is_server_error()) && !is_ours {
        return refuse(&Problem::of_status(status));
    }
    response
}

/// Whether a person's browser asks for a page, or for nothing that there is.
pub(super) fn is_for_a_page(api: &ApiState, request: &Request) -> bool {
    match request.extensions().get::<MatchedPath>() {
        Some(path) => api.rights.is_page(path.as_str()),
        None => {
            let accepts = request.headers().get(ACCEPT).and_then(|value| value.to_str().ok());
            accepts.is_some_and(|accepts| accepts.contains("text/html"))
        }
    }
}

fn request_id(headers: &HeaderMap, api: &ApiState) -> String {
    let fits = |text: &&str| {
        (1..=REQUEST_ID_CHARS_MAX).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    let brought = headers.get("x-request-id").and_then(|value| value.to_str().ok()).filter(fits);
    brought.map_or_else(
        || {
            let digits = encode_base32(drawn(api.now(), &mut SystemChance));
            format!("req_{}", String::from_utf8_lossy(&digits))
        },
        str::to_owned,
    )
}

/// Whether a request says that its body is JSON.
pub(super) fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = content_type.map(|value| value.split(';').next().unwrap_or_default().trim());
    essence.is_some_and(|essence| essence.eq_ignore_ascii_case("application/json"))
}

/// A JSON body of at most `bytes_max`.
pub(super) async fn json_body(request: Request, bytes_max: usize) -> Result<Bytes, Problem> {
    if !is_json(request.headers()) {
        return Err(Problem::new(Kind::NotJsonType, "send `Content-Type: application/json`"));
    }
    whole(request.into_body(), bytes_max).await
}

/// A JSON body that is no event.
pub(super) async fn small_body(request: Request) -> Result<Bytes, Problem> {
    json_body(request, BYTES_MAX).await
}

/// A JSON body that is no event, or none at all.
pub(super) async fn small_body_or_none(request: Request) -> Result<Bytes, Problem> {
    if request.headers().contains_key(CONTENT_TYPE) {
        return small_body(request).await;
    }
    let body = whole(request.into_body(), BYTES_MAX).await?;
    if body.is_empty() {
        Ok(body)
    } else {
        Err(Problem::new(Kind::NotJsonType, "send `Content-Type: application/json`"))
    }
}

/// A body of any kind.
pub(super) async fn whole(body: Body, bytes_max: usize) -> Result<Bytes, Problem> {
    let announced = http_body_size(&body).map_or(0, |size| usize::try_from(size).unwrap_or(usize::MAX));
    let mut stream = body.into_data_stream();
    let (mut parts, mut len) = (Vec::new(), 0);
    let reading = async {
        while let Some(part) = stream.next().await {
            let Ok(part) = part else {
                return Err(Problem::new(Kind::BadRequest, "the body ended before it was whole"));
            };
            len += part.len();
            if len.max(announced) <= bytes_max {
                parts.push(part);
            } else if len.max(announced) > DRAINED_BYTES_MAX {
                break;
            }
        }
        Ok(())
    };
    let read = tokio::time::timeout(BODY_TIMEOUT, reading).await;
    if len.max(announced) > bytes_max {
        return Err(Problem::new(Kind::TooLarge, format!("the body has more than {bytes_max} bytes")));
    }
    match read {
        Ok(Ok(())) if parts.len() == 1 => Ok(parts.swap_remove(0)),
        Ok(Ok(())) => Ok(parts.concat().into()),
        Ok(Err(problem)) => Err(problem),
        Err(_) => {
            let detail = format!("the body did not come whole within {} s", BODY_TIMEOUT.as_secs());
            Err(Problem::new(Kind::TooSlow, detail))
        }
    }
}

/// As announced by `Content-Length`.
fn http_body_size(body: &Body) -> Option<u64> {
    axum::body::HttpBody::size_hint(body).exact()
}

/// A JSON answer.
pub(super) fn json<T: serde::Serialize>(status: StatusCode, value: &T) -> Result<Response, Problem> {
    let body = serde_json::to_vec(value).map_err(|error| Problem::internal(&error))?;
    let mut response = (status, body).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}
