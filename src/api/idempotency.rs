//! `Idempotency-Key`: a request that is asked again under its key is done once, and answered as the first time.
//!
//! An event that is handed in is guarded by its id: without one of its own it gets one made of the key, so nothing is
//! written besides it, and the guard lasts as long as the event. Every other POST is taken in the log before it is
//! done and answered there after, with the answer's body sealed. What is only asked or claimed has no need of a key.
//! Never knows what a request does.

use axum::body::{Body, to_bytes};
use axum::extract::{MatchedPath, Request};
use axum::http::header::{CONTENT_TYPE, ETAG, LOCATION};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hmac::{Hmac, KeyInit, Mac};
use hooklog_projections::answer::{KeptAnswer, RequestHash};
use hooklog_projections::ids::EventId;
use sha2::{Digest, Sha256};

use super::ApiState;
use super::problem::{Kind, Problem};
use super::rim::{BYTES_MAX, whole};
use crate::clock::{Chance, SystemChance};
use crate::engine::{Answer, Command};
use crate::explain::actor;
use crate::secrets::Purpose;

/// Characters of a key.
const KEY_CHARS_MAX: usize = 255;
/// Bytes of an answer that is kept.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Marks an answer that was given before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const HEADER: &str = "idempotency-key";
/// Fields of an answer that are kept with it.
const KEPT: [HeaderName; 3] = [CONTENT_TYPE, LOCATION, ETAG];

/// The key of a request, if it brings one.
///
/// # Errors
/// 400 for a key that is none.
pub(super) fn key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let wrong = || {
        let detail =
            format!("an Idempotency-Key is one text of 1 to {KEY_CHARS_MAX} printable ASCII characters");
        Problem::new(Kind::BadKey, detail)
    };
    let mut values = headers.get_all(HEADER).into_iter();
    let Some(value) = values.next() else { return Ok(None) };
    let text = value.to_str().map_err(|_| wrong())?;
    let fits = (1..=KEY_CHARS_MAX).contains(&text.len()) && text.bytes().all(|b| (b' '..=b'~').contains(&b));
    if fits && values.next().is_none() { Ok(Some(text.to_owned())) } else { Err(wrong()) }
}

/// The id of the `nth` event of a request under a key, for one that has none of its own.
pub(super) fn event_id(api: &ApiState, key: &str, nth: usize) -> EventId {
    let secret = api.shared.master.derive(b"hooklog/idempotency/v1");
    let mut mac = Hmac::<Sha256>::new_from_slice(&secret[..]).expect("a key of any length will do");
    for part in [scope(api).as_bytes(), key.as_bytes(), &(nth as u64).to_be_bytes()] {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    let bytes = mac.finalize().into_bytes();
    EventId::drawn(u128::from_be_bytes(*bytes.first_chunk().expect("there are 32")))
}

/// The answer to events, marked if they had been handed in before under the key.
pub(super) fn marked(api: &ApiState, duplicate: bool, mut response: Response) -> Response {
    if duplicate && api.key.is_some() {
        response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    }
    response
}

/// Whether a request is one to be taken once: a POST under a key that is not guarded by itself.
pub(super) fn wanted(request: &Request) -> bool {
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let by_itself = path.starts_with("/v1/events") && !path.ends_with("/replay")
        || path == "/internal/webhooks/dispatch"
        || path.starts_with("/v1/queues/")
        || path.starts_with("/v1/leases/")
        || path.starts_with("/portal/")
        || path.starts_with("/v1/store/")
        || path == "/v1/verify";
    request.method() == Method::POST
        && !path.is_empty()
        && !by_itself
        && request.headers().contains_key(HEADER)
}

/// Does a request, unless it was done before under its key.
pub(super) async fn once(api: ApiState, request: Request, next: Next) -> Response {
    match taken(&api, request).await {
        Err(problem) => problem.into_response(),
        Ok(Taken::Before(response)) => response,
        Ok(Taken::Now(key, request)) => {
            // Whoever asked may be gone before it is done: it is done and noted all the same.
            let done = tokio::spawn(async move { ended(&api, key, next.run(request).await).await }).await;
            done.unwrap_or_else(|error| Problem::internal(&error).into_response())
        }
    }
}

enum Taken {
    Now(RequestHash, Request),
    Before(Response),
}

async fn taken(api: &ApiState, request: Request) -> Result<Taken, Problem> {
    let Some(text) = key(request.headers())? else { return Err(Problem::internal(&"a key is missing")) };
    let (parts, body) = request.into_parts();
    let body = whole(body, BYTES_MAX).await?;
    let kind = parts.headers.get(CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
    let path = parts.uri.path_and_query().map_or("", |path| path.as_str());
    let request = hash(&[path.as_bytes(), kind, &body]);
    let key = hash(&[scope(api).as_bytes(), text.as_bytes()]);
    match api.ask(Command::TakeRequest { key, request }).await? {
        Answer::Before(answer) => Ok(Taken::Before(again(api, key, &answer)?)),
        _ => Ok(Taken::Now(key, Request::from_parts(parts, Body::from(body)))),
    }
}

/// Notes how a request ended, and hands its answer on.
async fn ended(api: &ApiState, key: RequestHash, response: Response) -> Response {
    let status = response.status();
    if !status.is_success() {
        // A refusal did nothing: it is given anew. Of an unknown outcome nothing is known any better.
        let nothing = status.is_client_error() || status == StatusCode::INSUFFICIENT_STORAGE;
        if nothing {
            let forgotten = api.ask(Command::EndRequest { key, answer: None }).await;
            noted(forgotten);
        }
        return response;
    }
    let (parts, body) = response.into_parts();
    let body = match to_bytes(body, ANSWER_BYTES_MAX).await {
        Ok(body) => body,
        Err(error) => return Problem::internal(&error).into_response(),
    };
    let headers = KEPT.iter().filter_map(|name| {
        let value = parts.headers.get(name)?.to_str().ok()?;
        Some((name.as_str().into(), value.into()))
    });
    let sealed = api.shared.master.seal(&Purpose::Answer { key: key.0 }, &body, SystemChance.bytes());
    let answer = KeptAnswer { status: parts.status.as_u16(), headers: headers.collect(), body: sealed };
    noted(api.ask(Command::EndRequest { key, answer: Some(answer) }).await);
    Response::from_parts(parts, Body::from(body))
}

fn noted(result: Result<Answer, Problem>) {
    if let Err(problem) = result {
        tracing::warn!(detail = problem.detail, "the answer to a request under a key could not be kept");
    }
}

/// An answer as it was given the first time.
fn again(api: &ApiState, key: RequestHash, answer: &KeptAnswer) -> Result<Response, Problem> {
    let body = api.shared.master.open(&Purpose::Answer { key: key.0 }, &answer.body).map_err(|_| {
        let detail = "it was done under this key; the answer is sealed under a master key that is gone";
        Problem::new(Kind::KeyInUse, detail)
    })?;
    let status = StatusCode::from_u16(answer.status).map_err(|error| Problem::internal(&error))?;
    let mut response = (status, body.to_vec()).into_response();
    for (name, value) in &answer.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(&**name), HeaderValue::from_str(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
    Ok(response)
}

/// Keys are each credential's own.
fn scope(api: &ApiState) -> String {
    actor(&api.caller.actor)
}

fn hash(parts: &[&[u8]]) -> RequestHash {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    RequestHash(hash.finalize().into())
}
