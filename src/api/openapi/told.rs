//! The shapes of answers that are put together as they go out and have no type of their own; the others are
//! described where they are made. `tests/openapi.rs` holds real answers against them. Never knows routes.
#![expect(dead_code, reason = "a shape is described, never made")]

use std::collections::BTreeMap;

use utoipa::ToSchema;

use super::words::{Bucket, ErrorClass, Role, Scheme};
use crate::api::attempts::AttemptOut;
use crate::api::events::AcceptedOut;
use crate::api::wire::{CountsOut, DeliveryRef, EndpointOut};

/// A refusal (RFC 9457). `code` is for programs; `type` leads to its explanation.
#[derive(ToSchema)]
pub(super) struct Problem {
    #[schema(format = "uri")]
    r#type: String,
    title: String,
    status: u16,
    detail: String,
    code: String,
    request_id: String,
    /// Each member or parameter that does not fit.
    #[schema(nullable = false)]
    errors: Option<Vec<Misfit>>,
    /// The accounts that have an event of this id.
    #[schema(nullable = false)]
    candidates: Option<Vec<String>>,
    /// The quota that is used up.
    #[schema(nullable = false)]
    #[serde(rename = "violated-policies")]
    violated_policies: Option<Vec<String>>,
}

/// What is wrong with one member or parameter.
#[derive(ToSchema)]
pub(super) struct Misfit {
    /// A JSON pointer (RFC 6901).
    pointer: String,
    code: String,
    detail: String,
}

/// One answer for each event of a batch, in their order.
#[derive(ToSchema)]
pub(super) struct BatchResults {
    results: Vec<BatchResult>,
}

/// An event that was taken in, or why it was not; with the status that it would have had alone.
#[derive(ToSchema)]
#[serde(untagged)]
pub(super) enum BatchResult {
    Accepted(AcceptedWithStatus),
    Refused(Problem),
}

/// An event that was taken in.
#[derive(ToSchema)]
pub(super) struct AcceptedWithStatus {
    #[serde(flatten)]
    accepted: AcceptedOut,
    status: u16,
}

/// Deliveries that got a new run.
#[derive(ToSchema)]
pub(super) struct Replayed {
    deliveries: Vec<DeliveryRef>,
    /// Why others of the event got none.
    refused: Option<Vec<String>>,
}

/// The attempts of a delivery, oldest first.
#[derive(ToSchema)]
pub(super) struct Attempts {
    data: Vec<AttemptOut>,
}

/// All facts of an event and its deliveries, oldest first.
#[derive(ToSchema)]
pub(super) struct Timeline {
    data: Vec<TimelineEntry>,
}

/// One fact. Besides its name, moment and actor, what there is depends on the fact.
#[derive(ToSchema)]
pub(super) struct TimelineEntry {
    /// Its place in the log; for operators only.
    #[schema(nullable = false)]
    seq: Option<u64>,
    #[schema(format = DateTime)]
    at: String,
    actor: String,
    fact: String,
    #[schema(nullable = false)]
    delivery_id: Option<String>,
    /// Of what begins an attempt, or ends one.
    #[schema(nullable = false)]
    attempt_id: Option<String>,
    #[schema(nullable = false)]
    event_id: Option<String>,
    #[schema(nullable = false)]
    event_type: Option<String>,
    #[schema(nullable = false)]
    size: Option<u32>,
    #[schema(nullable = false)]
    content_type: Option<String>,
    /// How many there are.
    #[schema(nullable = false)]
    deliveries: Option<u32>,
    #[schema(nullable = false)]
    endpoint_id: Option<String>,
    #[schema(nullable = false, format = DateTime)]
    due_at: Option<String>,
    max_tries: Option<u32>,
    /// Until when a try may start.
    #[schema(format = DateTime)]
    expire_at: Option<String>,
    #[schema(nullable = false)]
    late: Option<bool>,
    replay_id: Option<String>,
    #[schema(nullable = false)]
    attempt: Option<u32>,
    #[schema(nullable = false)]
    r#try: Option<u32>,
    #[schema(nullable = false)]
    run: Option<u32>,
    #[schema(nullable = false)]
    endpoint_version: Option<u32>,
    #[schema(nullable = false)]
    signed_with: Option<Vec<String>>,
    status_code: Option<u16>,
    #[schema(nullable = false)]
    took_ms: Option<u64>,
    address: Option<String>,
    #[schema(nullable = false)]
    rule: Option<String>,
    #[schema(nullable = false)]
    counted: Option<bool>,
    #[schema(nullable = false)]
    error: Option<ErrorClass>,
    reason: Option<String>,
    #[schema(nullable = false)]
    detail: Option<String>,
    #[schema(nullable = false)]
    tell_owner: Option<bool>,
    #[schema(nullable = false)]
    was: Option<String>,
    #[schema(nullable = false, format = DateTime)]
    until: Option<String>,
    #[schema(nullable = false)]
    channel: Option<String>,
    /// Why a message to the owner was refused for good.
    refused: Option<String>,
    #[schema(nullable = false, format = DateTime)]
    since: Option<String>,
}

/// What somebody administered. Besides its name, moment and actor, what there is depends on the fact.
#[derive(ToSchema)]
pub(super) struct AuditEntry {
    seq: u64,
    #[schema(format = DateTime)]
    at: String,
    actor: String,
    fact: String,
    #[schema(nullable = false)]
    account_id: Option<String>,
    endpoint_id: Option<String>,
    #[schema(nullable = false)]
    signing_keys: Option<Vec<String>>,
    /// Whether the endpoint has a secret of its own now.
    #[schema(nullable = false)]
    own: Option<bool>,
    #[schema(nullable = false)]
    reason: Option<String>,
    #[schema(nullable = false)]
    key_id: Option<String>,
    #[schema(nullable = false)]
    role: Option<Role>,
    #[schema(nullable = false)]
    label: Option<String>,
    #[schema(format = DateTime)]
    expires_at: Option<String>,
    #[schema(format = DateTime)]
    older_until: Option<String>,
    #[schema(nullable = false)]
    link_id: Option<String>,
    #[schema(nullable = false)]
    replay_id: Option<String>,
    #[schema(nullable = false)]
    planned: Option<u64>,
}

/// A worker queue: the endpoint that it is, and what is in it.
#[derive(ToSchema)]
pub(super) struct Queue {
    #[serde(flatten)]
    endpoint: EndpointOut,
    waiting: u64,
    in_flight: u32,
}

/// A lease that goes on.
#[derive(ToSchema)]
pub(super) struct Lease {
    lease: String,
    #[schema(format = DateTime)]
    lease_expires_at: String,
}

/// Figures by the hour or the day.
#[derive(ToSchema)]
pub(super) struct Stats {
    bucket: Bucket,
    /// Each bucket in which something happened; told apart by `group`, several of one bucket.
    data: Vec<Figures>,
    total: Total,
}

/// Figures of an endpoint, and how it stands now.
#[derive(ToSchema)]
pub(super) struct EndpointStats {
    #[serde(flatten)]
    stats: Stats,
    endpoint_id: String,
    now: EndpointNow,
}

/// How an endpoint stands.
#[derive(ToSchema)]
pub(super) struct EndpointNow {
    waiting: u64,
    in_flight: u32,
    /// `null` if its last attempt did not fail.
    #[schema(format = DateTime, required = true)]
    failing_since: Option<String>,
    /// Attempts since then.
    failures: u32,
}

/// A bucket's figures; with `group=status` or `class` those of one group of it.
#[derive(ToSchema)]
#[serde(untagged)]
pub(super) enum Figures {
    Point(Point),
    Group(GroupCount),
}

/// How attempts and deliveries ended in a bucket.
#[derive(ToSchema)]
pub(super) struct Point {
    #[schema(format = DateTime)]
    start: String,
    attempts: u64,
    delivered: u64,
    failed: u64,
    dead: u64,
    cancelled: u64,
    replayed: u64,
    /// Attempts by class: `2xx` … `timeout`.
    classes: BTreeMap<String, u64>,
    /// `null` without attempts.
    #[schema(required = true)]
    p50_ms: Option<u64>,
    /// `null` without attempts.
    #[schema(required = true)]
    p95_ms: Option<u64>,
    #[schema(nullable = false)]
    endpoint_id: Option<String>,
}

/// How many there were of one group.
#[derive(ToSchema)]
pub(super) struct GroupCount {
    #[schema(format = DateTime)]
    start: String,
    group: String,
    count: u64,
}

/// All of the buckets.
#[derive(ToSchema)]
pub(super) struct Total {
    #[serde(flatten)]
    point: Point,
    #[schema(format = DateTime)]
    end: String,
}

/// A line of a check or a rebuild: progress, and at the end the result.
#[derive(ToSchema)]
#[serde(untagged)]
pub(super) enum StoreLine {
    Progress(StoreProgress),
    Result(StoreResult),
}

/// How far it is.
#[derive(ToSchema)]
pub(super) struct StoreProgress {
    stage: String,
    done: u64,
    of: u64,
}

/// How it ended: `clean`, `damaged`, `rebuilt` or `failed`.
#[derive(ToSchema)]
pub(super) struct StoreResult {
    result: String,
    #[schema(nullable = false)]
    entries: Option<u64>,
    #[schema(nullable = false)]
    rows: Option<u64>,
    findings: Vec<String>,
}

/// What endpoints' own limits hold back.
#[derive(ToSchema)]
pub(super) struct HeldStatus {
    /// How long the oldest of it has been due; 0 if nothing is.
    oldest_ms: u64,
    endpoints: HeldEndpoints,
}

/// Endpoints with something due, by what of their own holds it back.
#[derive(ToSchema)]
pub(super) struct HeldEndpoints {
    pause: u64,
    gate: u64,
    breaker: u64,
    rate: u64,
    in_flight: u64,
    /// As many requests are out to the receiver, over all endpoints, as may be.
    receiver: u64,
    /// Queues for which no worker waits.
    workers: u64,
}

/// The log on its disk.
#[derive(ToSchema)]
pub(super) struct LogStatus {
    /// How long the write that is under way has taken; 0 if none is.
    write_ms: u64,
    free_bytes: u64,
}

/// The outbox, as of at most 15 s ago.
#[derive(ToSchema)]
pub(super) struct OutboxStatus {
    waiting: u64,
    refused: u64,
    oldest_ms: u64,
}

/// The store's figures.
#[derive(ToSchema)]
pub(super) struct StoreStatus {
    head: u64,
    store_id: String,
    /// Events are taken in, the scheduler runs, and nothing is late by more than five minutes.
    healthy: bool,
    /// What is not so, for people.
    ailment: Option<String>,
    /// How late the oldest due attempt is through this server; 0 if none is. What an endpoint's own limits hold back
    /// is never late.
    late_ms: u64,
    in_flight: u64,
    /// Requests that may be out at a time.
    in_flight_max: u64,
    held: HeldStatus,
    log: LogStatus,
    /// Of the outbox that this server relays from.
    outbox: Option<OutboxStatus>,
    events: u64,
    deliveries: CountsOut,
    /// Whether every delivery that was enqueued is in exactly one status.
    conserved: bool,
}

/// The process lives.
#[derive(ToSchema)]
pub(super) struct Alive {
    status: String,
}

/// Whether events are taken in: `ready` or `not_ready`, and why.
#[derive(ToSchema)]
pub(super) struct Ready {
    status: String,
    checks: BTreeMap<String, String>,
}

/// Whether a captured request is signed as it should be.
#[derive(ToSchema)]
pub(super) struct Verdict {
    /// Some signature is right, and none is wrong.
    valid: bool,
    /// One for each scheme that the request brings.
    checks: Vec<Check>,
}

/// What was found of one scheme.
#[derive(ToSchema)]
pub(super) struct Check {
    scheme: Scheme,
    /// `valid`, `unchecked`, or what is wrong: `too-old`, `too-new`, `body-changed`, `id-changed`, `other-secret`,
    /// `key-taken-as-text`, `missing-header`, `doubled-header`, `malformed-timestamp`, `malformed-signature`,
    /// `no-signature`, `mismatch`.
    result: String,
    /// For people: what is wrong, and what to do.
    detail: String,
}

/// Sessions that were ended.
#[derive(ToSchema)]
pub(super) struct SessionsEnded {
    ended: u64,
}
