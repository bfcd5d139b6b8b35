//! `/v1/attempts`: one attempt by its id, the request as it was made, the answer as it is kept. What was never
//! written down is not made up: of a signature the keys are known, and of a secret value its name.
//!
//! Never sends anything.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::extract::{Path, Request};
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hooklog_projections::account::Endpoint;
use hooklog_projections::fact::{self, BodyForm, Entry, Fact, Failure};
use hooklog_projections::ids::{
    AccountId, AttemptId, DeliveryId, DeliveryKey, EndpointId, EndpointKey, EventId, KeyId,
};
use hooklog_projections::lifecycle::Delivery;
use serde::Serialize;
use url::{Position, Url};
use zeroize::Zeroizing;

use super::ApiState;
use super::attempts::{self, AttemptOut, kept_fields};
use super::events::account_of;
use super::openapi::words;
use super::problem::{Kind, Problem};
use super::rim::json;
use super::wire::REDACTED;
use crate::delivery::{self, Key, TextSecret, request};
use crate::engine::courier::data_of;
use crate::log::BodySlot;
use crate::views::{Moment, View};

/// Stands for a value that is made when the request leaves and written down nowhere.
const NOT_KEPT: &str = "[not kept]";

/// An attempt, and whose it is.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = AttemptShown)]
pub(super) struct ShownOut {
    #[serde(flatten)]
    attempt: AttemptOut,
    #[schema(value_type = String)]
    delivery_id: DeliveryId,
    #[schema(value_type = String)]
    event_id: EventId,
    event_type: String,
    #[schema(value_type = String)]
    account_id: AccountId,
    #[schema(value_type = String)]
    endpoint_id: EndpointId,
}

/// The request that was made for an attempt. Whether it came to leave is the attempt's to tell.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = AttemptRequest)]
pub(crate) struct RequestOut {
    #[schema(value_type = String)]
    pub attempt_id: AttemptId,
    pub method: &'static str,
    pub url: String,
    /// By name. The second of the signature and the signatures themselves are `[not kept]`, values that were set for
    /// the endpoint are `[redacted]`.
    pub headers: BTreeMap<String, String>,
    /// The keys that signed it, in the order of the signatures.
    #[schema(value_type = Vec<String>)]
    pub signed_with: Vec<KeyId>,
    pub body: BodyOut,
}

/// Where a request's body is, and what it is.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = RequestBody)]
pub(crate) struct BodyOut {
    /// The event's bytes.
    pub payload: String,
    /// Whether they were sent as they are, or the data in them alone.
    #[schema(value_type = words::BodyForm)]
    pub form: BodyForm,
    /// Bytes that were sent.
    pub size: u64,
    pub content_type: String,
}

impl BodyOut {
    /// The bytes that were sent of an event's payload.
    pub(crate) fn sent(&self, payload: &Bytes, event: &str) -> Bytes {
        match self.form {
            BodyForm::Envelope => payload.clone(),
            BodyForm::Data => data_of(payload, event),
        }
    }
}

/// The answer to an attempt, as far as it is kept.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = AttemptResponse)]
pub(super) struct ResponseOut {
    #[schema(value_type = String)]
    attempt_id: AttemptId,
    status_code: u16,
    /// Of an answer that is no success, what helps to mend it.
    headers: BTreeMap<String, String>,
    /// The beginning of the body, if it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    body: Option<String>,
    /// The same, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    body_base64: Option<String>,
    /// More came than is kept.
    truncated: bool,
    took_ms: u64,
}

/// One attempt in the story of its delivery.
struct Tried {
    id: AttemptId,
    key: DeliveryKey,
    row: Delivery,
    /// Its `Attempted` and whatever came of it before the next one.
    story: Vec<Entry>,
}

impl Tried {
    /// The attempt of an id, within the account that was named, if one was.
    fn find(view: &View<'_>, id: &str, account: Option<AccountId>) -> Result<Tried, Problem> {
        let none = || Problem::new(Kind::NotFound, "there is no such attempt");
        let id: AttemptId = id.parse().map_err(|_| none())?;
        let (key, row, begun) = view.attempt_named(account, id)?.ok_or_else(none)?;
        let mut story = view.story(&row)?;
        story.retain(|entry| entry.seq >= begun);
        let next = story.iter().skip(1).position(|entry| matches!(entry.fact, Fact::Attempted { .. }));
        story.truncate(next.map_or(story.len(), |next| next + 1));
        if story.first().is_none_or(|entry| entry.seq != begun) {
            return Err(none());
        }
        Ok(Tried { id, key, row, story })
    }

    /// The endpoint as it was then.
    fn endpoint(&self, view: &View<'_>) -> Result<Endpoint, Problem> {
        let begun = &self.story[0];
        let key = EndpointKey { account: self.key.account, endpoint: self.row.endpoint };
        let then = view.endpoint_at(key, Moment { at: begun.at, upto: begun.seq })?;
        then.ok_or_else(|| Problem::internal(&format!("{} is missing", self.row.endpoint)))
    }

    fn request(&self, api: &ApiState, view: &View<'_>) -> Result<RequestOut, Problem> {
        let Fact::Attempted { run, signed_with, .. } = &self.story[0].fact else {
            return Err(Problem::internal(&"an attempt begins with another fact"));
        };
        let settings = self.endpoint(view)?.settings;
        if settings.queue.is_some() {
            let detail = "a worker was given the job: no request was made";
            return Err(Problem::new(Kind::NotFound, detail));
        }
        let missing = || Problem::internal(&format!("the event {} is missing", self.row.event));
        let event = view.event(self.key.account, &self.row.event)?.ok_or_else(missing)?;
        let body = view.body(BodySlot::Event(self.row.accepted))?.map(|body| body.bytes).unwrap_or_default();
        let body = match settings.body_form {
            BodyForm::Envelope => body,
            BodyForm::Data => data_of(&body, self.row.event.as_str()),
        };
        let size = body.len() as u64;
        let content_type = event.body.content_type.to_string();
        let mut headers = made_headers(api, &settings, &self.row.event, *run, &content_type, body)?;
        let url = Url::parse(&settings.url).ok();
        let host = url.as_ref().map_or("", |url| &url[Position::BeforeHost..Position::AfterPort]);
        headers.insert("host".into(), host.to_owned());
        headers.insert("content-length".into(), size.to_string());
        let (event, account) = (&self.row.event, self.key.account);
        Ok(RequestOut {
            attempt_id: self.id,
            method: "POST",
            url: settings.url.to_string(),
            headers,
            signed_with: if settings.schemes.standard { signed_with.clone() } else { Vec::new() },
            body: BodyOut {
                payload: format!("/v1/events/{event}/payload?account_id={account}"),
                form: settings.body_form,
                size,
                content_type,
            },
        })
    }

    fn response(&self, view: &View<'_>, sees_all: bool) -> Result<ResponseOut, Problem> {
        let none = |why: &str| Problem::new(Kind::NotFound, format!("there is no answer: {why}"));
        let mut ended = self.story.iter().filter_map(|entry| match &entry.fact {
            Fact::Delivered { response, .. } => Some((entry.seq, Ok(response))),
            Fact::Failed { failure: Failure::Answered(response), .. } => Some((entry.seq, Ok(response))),
            Fact::Failed { failure: Failure::Error { class, detail, .. }, .. } => {
                let told = sees_all || attempts::is_told(*class);
                Some((
                    entry.seq,
                    Err(if told { detail } else { "the attempt's `error` says what came in between" }),
                ))
            }
            _ => None,
        });
        let (seq, response) = match ended.next() {
            None => return Err(none("the attempt is in flight")),
            Some((_, Err(detail))) => return Err(none(detail)),
            Some((seq, Ok(response))) => (seq, response),
        };
        let fact::Response { body, truncated, took, .. } = response;
        let status_code = response.code().ok_or_else(|| none("a worker did the job"))?;
        let bytes = match body {
            Some(_) => view.body(BodySlot::Response(seq))?.map(|body| body.bytes),
            None => None,
        };
        let text = bytes.map(|bytes| String::from_utf8(bytes.to_vec()).map_err(|_| STANDARD.encode(&bytes)));
        let (body, body_base64) = match text {
            None => (None, None),
            Some(Ok(text)) => (Some(text), None),
            Some(Err(base64)) => (None, Some(base64)),
        };
        Ok(ResponseOut {
            attempt_id: self.id,
            status_code,
            headers: kept_fields(response),
            body,
            body_base64,
            truncated: *truncated,
            took_ms: took.0,
        })
    }
}

/// The fields of a request, by the one function that makes them, without what is a secret or made of one.
fn made_headers(
    api: &ApiState,
    settings: &fact::EndpointSettings,
    event: &EventId,
    run: u32,
    content_type: &str,
    body: Bytes,
) -> Result<BTreeMap<String, String>, Problem> {
    let signature = &api.shared.options.policy.signature_header;
    let stand_in = Key::from_bytes(Zeroizing::new(vec![0; 32])).map_err(|error| Problem::internal(&error))?;
    let request = delivery::Request {
        url: settings.url.to_string(),
        event_id: event.clone(),
        body,
        content_type: content_type.to_owned(),
        run,
        keys: vec![stand_in],
        account_secret: Some(TextSecret::new(Zeroizing::default())),
        schemes: settings.schemes,
        signature_header: signature.clone(),
        headers: settings.headers.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
        timeout: Duration::from_millis(settings.timeout.0),
    };
    let made = request::headers(&request, 0).map_err(|error| Problem::internal(&error))?;
    let own = |name: &str| settings.headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
    let is_made = |name: &str| {
        matches!(name, "webhook-timestamp" | "webhook-signature")
            || name.eq_ignore_ascii_case(signature.as_str())
    };
    let shown = made.into_iter().map(|(name, value)| match &*name {
        name if is_made(name) => (name.to_owned(), NOT_KEPT.to_owned()),
        name if own(name) => (name.to_owned(), REDACTED.to_owned()),
        _ => (name, value),
    });
    Ok(shown.collect())
}

pub(super) async fn show(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let account = account_of(&api, request.uri())?;
    let out = api
        .read(move |api, view| {
            let Tried { key, row, story, .. } = Tried::find(view, &id, account)?;
            let missing = || Problem::internal(&"an attempt is not in its own story");
            let mut attempt = attempts::of(view, &story)?.pop().ok_or_else(missing)?;
            if api.is_customer() {
                attempt.hide_internals();
            }
            Ok(ShownOut {
                attempt,
                delivery_id: view.delivery_id(key, &row),
                event_id: row.event,
                event_type: row.event_type.to_string(),
                account_id: key.account,
                endpoint_id: row.endpoint,
            })
        })
        .await?;
    json(StatusCode::OK, &out)
}

pub(super) async fn sent(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let account = account_of(&api, request.uri())?;
    let out = api.read(move |api, view| Tried::find(view, &id, account)?.request(api, view)).await?;
    json(StatusCode::OK, &out)
}

pub(super) async fn answer(
    api: ApiState,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let account = account_of(&api, request.uri())?;
    let out = api
        .read(move |api, view| Tried::find(view, &id, account)?.response(view, !api.is_customer()))
        .await?;
    json(StatusCode::OK, &out)
}

/// The request that an `Attempted` in a delivery's story is about; `None` if a worker was given the job.
pub(super) fn request_of(
    api: &ApiState,
    view: &View<'_>,
    (key, row): (DeliveryKey, &Delivery),
    begun: &Entry,
) -> Result<Option<RequestOut>, Problem> {
    let id = view.attempt_id(begun.seq, begun.at);
    match (Tried { id, key, row: row.clone(), story: vec![begun.clone()] }).request(api, view) {
        Ok(made) => Ok(Some(made)),
        Err(problem) if problem.kind == Kind::NotFound => Ok(None),
        Err(problem) => Err(problem),
    }
}

/// The delivery that an attempt is of.
pub(super) fn delivery_of(
    view: &View<'_>,
    id: &str,
    account: Option<AccountId>,
) -> Result<(DeliveryKey, Delivery), Problem> {
    Tried::find(view, id, account).map(|tried| (tried.key, tried.row))
}
