//! `/v1/queues` and `/v1/leases`: what workers on other machines ask. Jobs taken in, claimed, extended and ended.
//!
//! A queue is an endpoint and is made, changed and paused as one. Never knows who works.

use axum::body::Bytes;
use axum::extract::{Path, Request};
use axum::http::StatusCode;
use axum::response::Response;
use hooklog_projections::account::Endpoint;
use hooklog_projections::fact::BodyForm;
use hooklog_projections::ids::{EndpointKey, EventId, LeaseId};
use hooklog_projections::time::Millis;
use serde::Serialize;
use serde_json::json as object;

use super::deliveries::explained_row;
use super::endpoints::here;
use super::envelope::{self, About, due};
use super::events::{accept, respond, sight};
use super::fields::{Fields, bad, flag, id, number, parse};
use super::policies::moment_text;
use super::problem::{Kind, Problem};
use super::rim::{json, json_body, small_body, small_body_or_none};
use super::wire::{self, DeliveryOut, Include, payload_of};
use super::{ApiState, unexpected};
use crate::engine::courier::data_of;
use crate::engine::leases::{CLAIM_MAX, CLAIM_WAIT_MAX};
use crate::engine::{Answer, Command, Job, JobEnd, Then};
use crate::log::BodySlot;
use crate::scheduler::retry::WAIT_MAX;
use crate::views::View;

/// Bytes of an error that a worker tells; the rest is cut off.
const ERROR_BYTES_MAX: usize = 4_096;
/// Characters of a queue's name.
const NAME_CHARS_MAX: usize = 64;
/// The type of a job's event if nobody names one.
pub const JOB_TYPE: &str = "job";

/// Not by way of a JSON value: payloads stay the producer's bytes.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Jobs)]
pub(super) struct JobsOut {
    jobs: Vec<JobOut>,
}

#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Job)]
pub(super) struct JobOut {
    #[schema(value_type = String)]
    lease: LeaseId,
    #[schema(format = DateTime)]
    lease_expires_at: String,
    content_type: String,
    #[serde(flatten)]
    delivery: DeliveryOut,
}

pub(super) async fn show(api: ApiState, Path(name): Path<String>) -> Result<Response, Problem> {
    let out = api
        .read(move |api, view| {
            let (key, row) = find(api, view, &name)?;
            let lane = view.lane(key)?;
            let mut out = serde_json::to_value(wire::endpoint(key, &row)).unwrap_or_default();
            out["waiting"] = lane.waiting.into();
            out["in_flight"] = lane.in_flight.into();
            Ok(out)
        })
        .await?;
    json(StatusCode::OK, &out)
}

/// Takes a job in: an event to this queue only, whose payload the worker gets byte for byte.
pub(super) async fn enqueue(
    api: ApiState,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let body = json_body(request, api.event_bytes_max()).await?;
    let (key, _) = api.read(move |api, view| find(api, view, &name)).await?;
    let mut fields = Fields::read(&body)?;
    let now = api.now();
    let event = fields.optional("id", id::<EventId>);
    let event_type = fields.optional("type", |value| {
        let text: String = parse(value, "a text")?;
        envelope::event_type(&text).map(|()| text)
    });
    let payload = fields.required("payload", Ok);
    let deliver_at = fields.optional("deliver_at", |value| due(value, now));
    let max_tries = fields.optional("max_tries", number(1, envelope::TRIES_MAX)).map(|tries| tries as u32);
    fields.finish()?;
    let payload = payload.map(|payload| Bytes::copy_from_slice(payload.get().as_bytes())).unwrap_or_default();
    let about = About {
        account: key.account,
        event,
        event_type: event_type.unwrap_or_else(|| JOB_TYPE.into()),
        deliver_at,
        max_tries,
        expire_at: None,
        endpoint: Some(key.endpoint),
    };
    let (status, out) = accept(&api, envelope::raw(&api, about, "application/json", payload)?).await?;
    respond(&api, status, &out)
}

/// Waits for jobs, as long as it is asked to.
pub(super) async fn claim(
    api: ApiState,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let body = small_body_or_none(request).await?;
    let mut fields = Fields::read_or_empty(&body)?;
    let max = fields.optional("max", number(1, CLAIM_MAX.into())).unwrap_or(1) as u32;
    let wait = Millis(fields.optional("wait_ms", number(0, CLAIM_WAIT_MAX.0)).unwrap_or(0));
    fields.finish()?;
    let (queue, _) = api.read(move |api, view| find(api, view, &name)).await?;
    let jobs = match api.ask(Command::Claim { queue, max, wait }).await? {
        Answer::Claimed { jobs } => jobs,
        other => return Err(unexpected(other)),
    };
    let jobs = api
        .read(move |api, view| jobs.iter().map(|job| shown(api, view, job)).collect::<Result<Vec<_>, _>>())
        .await?;
    json(StatusCode::OK, &JobsOut { jobs })
}

pub(super) async fn extend(
    api: ApiState,
    Path(lease): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let lease = lease_id(&lease)?;
    let body = small_body_or_none(request).await?;
    Fields::read_or_empty(&body)?.finish()?;
    match api.ask(Command::ExtendLease { lease }).await? {
        Answer::Lease { until } => {
            json(StatusCode::OK, &object!({ "lease": lease, "lease_expires_at": moment_text(until) }))
        }
        other => Err(unexpected(other)),
    }
}

pub(super) async fn complete(
    api: ApiState,
    Path(lease): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    plain_end(api, &lease, request, JobEnd::Done).await
}

/// Gives back what was not begun: no try is used up.
pub(super) async fn release(
    api: ApiState,
    Path(lease): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    plain_end(api, &lease, request, JobEnd::Untouched).await
}

pub(super) async fn fail(
    api: ApiState,
    Path(lease): Path<String>,
    request: Request,
) -> Result<Response, Problem> {
    let lease = lease_id(&lease)?;
    let body = small_body(request).await?;
    let mut fields = Fields::read(&body)?;
    let error = fields.required("error", |value| parse::<String>(value, "a text")).unwrap_or_default();
    let permanent = fields.optional("permanent", flag).unwrap_or_default();
    let after = fields.optional("retry_after_ms", number(0, WAIT_MAX.0)).map(Millis);
    let then = match (permanent, after) {
        (true, None) => Then::Dead,
        (false, Some(after)) => Then::RetryAfter(after),
        (false, None) => Then::Retry,
        (true, Some(_)) => {
            fields.fail("retry_after_ms", bad("contradiction", "what is permanent is not tried again"));
            Then::Dead
        }
    };
    fields.finish()?;
    end(api, lease, JobEnd::Failed { error: cut(&error).into(), then }).await
}

async fn plain_end(api: ApiState, lease: &str, request: Request, end: JobEnd) -> Result<Response, Problem> {
    let lease = lease_id(lease)?;
    let body = small_body_or_none(request).await?;
    Fields::read_or_empty(&body)?.finish()?;
    self::end(api, lease, end).await
}

/// Ends an attempt, and shows what became of the delivery.
async fn end(api: ApiState, lease: LeaseId, end: JobEnd) -> Result<Response, Problem> {
    let key = match api.ask(Command::EndLease { lease, end }).await? {
        Answer::LeaseEnded { delivery } => delivery,
        other => return Err(unexpected(other)),
    };
    let out = api.read(move |api, view| explained_row(api, view, key, None)).await?;
    json(StatusCode::OK, &out)
}

/// A job as its worker gets it: the delivery, its payload and its lease.
fn shown(api: &ApiState, view: &View<'_>, job: &Job) -> Result<JobOut, Problem> {
    let missing = || Problem::internal(&format!("what was enqueued at {} is missing", job.delivery.seq));
    let row = view.delivery(job.delivery)?.ok_or_else(missing)?;
    let event = view.event(job.delivery.account, &job.event)?.ok_or_else(missing)?;
    let mut delivery =
        sight(api, view, job.delivery.account)?.delivery(job.delivery, &row, Include::default())?;
    let bytes = payload(view, job)?.ok_or_else(missing)?;
    (delivery.payload, delivery.payload_base64) = payload_of(&bytes);
    Ok(JobOut {
        lease: job.lease,
        lease_expires_at: moment_text(job.until),
        content_type: event.body.content_type.to_string(),
        delivery,
    })
}

/// A job's payload: what a URL would be sent in its place. So a job's own bytes, and of an event the envelope, or the
/// data alone where the queue has that form.
///
/// # Errors
/// The store cannot be read.
pub fn payload(view: &View<'_>, job: &Job) -> Result<Option<Bytes>, crate::log::Error> {
    let Some(body) = view.body(BodySlot::Event(job.accepted))? else { return Ok(None) };
    let form = view.endpoint(job.endpoint)?.map_or(BodyForm::Envelope, |row| row.settings.body_form);
    Ok(Some(match form {
        BodyForm::Envelope => body.bytes,
        BodyForm::Data => data_of(&body.bytes, job.event.as_str()),
    }))
}

/// What is kept of a worker's error: at most 4,096 bytes, cut between characters.
pub fn cut(error: &str) -> &str {
    &error[..error.floor_char_boundary(ERROR_BYTES_MAX)]
}

/// The most jobs of a queue that are out at a time.
pub const IN_FLIGHT_MAX: u64 = super::endpoints::IN_FLIGHT_MAX;

/// Whether a queue may have this name: 1 to 64 characters of A-Z, a-z, 0-9, `_` and `-`. It stands in paths.
pub fn fits_a_queue(name: &str) -> bool {
    (1..=NAME_CHARS_MAX).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// Whether an event may have this type.
///
/// # Errors
/// What is wanted, for people.
pub fn check_type(event_type: &str) -> Result<(), String> {
    envelope::event_type(event_type).map_err(|bad| bad.detail)
}

/// The queue of a name.
pub(super) fn find(api: &ApiState, view: &View<'_>, name: &str) -> Result<(EndpointKey, Endpoint), Problem> {
    let none = || Problem::new(Kind::NotFound, "there is no such queue");
    let key = view.queue(name)?.filter(|key| api.reach(key.account).is_ok()).ok_or_else(none)?;
    Ok((key, here(view, key)?))
}

/// What is no lease at all is as over as any other.
fn lease_id(text: &str) -> Result<LeaseId, Problem> {
    text.parse().map_err(|_| crate::engine::Rejection::LeaseOver.into())
}
