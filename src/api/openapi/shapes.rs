//! What requests bring, as shapes: each member with its limits. `fields` reads them; `tests/openapi.rs` holds the
//! two against each other, member by member. Never knows routes.
#![expect(dead_code, reason = "a shape is described, never made")]

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;

use super::words::{
    BodyForm, BulkOf, ErrorClass, Headers, ResponsePolicy, Role, Rollout, Routing, Schedule, Scheme, Scope,
};

/// An account to be made.
#[derive(ToSchema)]
pub(super) struct NewAccount {
    /// What people call it.
    #[schema(min_length = 1, max_length = 200)]
    name: String,
    /// Who is told of dead deliveries.
    #[schema(min_length = 3, max_length = 254)]
    owner_email: Option<String>,
    /// The server's if absent.
    schedule: Option<Schedule>,
    /// The server's if absent.
    response_policy: Option<ResponsePolicy>,
    webhook_retries: Option<Rollout>,
    /// The webhook secret, as text; drawn if absent.
    #[schema(min_length = 16, max_length = 256)]
    secret: Option<String>,
}

/// What is to change about an account; what is absent stays, `null` clears.
#[derive(ToSchema)]
pub(super) struct AccountChange {
    #[schema(min_length = 1, max_length = 200, nullable = false)]
    name: Option<String>,
    #[schema(min_length = 3, max_length = 254)]
    owner_email: Option<String>,
    schedule: Option<Schedule>,
    response_policy: Option<ResponsePolicy>,
    webhook_retries: Option<Rollout>,
}

/// An endpoint to be made: with a `url`, or with a `queue` that workers claim from.
#[derive(ToSchema)]
pub(super) struct NewEndpoint {
    /// Its owner. Not needed with a key that is bound to an account.
    account_id: Option<String>,
    /// Where to send: https, or http where the server allows it.
    #[schema(max_length = 2_048)]
    url: Option<String>,
    /// The name of a worker queue, in place of `url`. Unique in the store.
    #[schema(pattern = "^[A-Za-z0-9_-]{1,64}$")]
    queue: Option<String>,
    /// `payment.settled`, `payment.*`, `*`; all if absent.
    #[schema(min_items = 1, max_items = 100)]
    event_types: Option<Vec<String>>,
    #[schema(max_length = 1_000)]
    description: Option<String>,
    /// The account's if absent.
    schedule: Option<Schedule>,
    /// The account's if absent.
    response_policy: Option<ResponsePolicy>,
    /// For a whole request; 10,000 if absent.
    #[schema(minimum = 1_000, maximum = 30_000)]
    timeout_ms: Option<u64>,
    /// Requests at a time; 8 if absent, 1,000 of a queue.
    #[schema(minimum = 1, maximum = 1_000)]
    in_flight_max: Option<u64>,
    /// Requests in a second; no limit if absent.
    #[schema(minimum = 1, maximum = 10_000)]
    rate_per_second: Option<u64>,
    /// Seconds of nothing but failures after which it is disabled; never if absent.
    #[schema(minimum = 60, maximum = 31_536_000)]
    disable_after_secs: Option<u64>,
    body_form: Option<BodyForm>,
    /// Both if absent.
    signature_schemes: Option<Vec<Scheme>>,
    /// Sent with every request. Values are shown as `[redacted]`.
    headers: Option<Headers>,
    /// `whsec_` and base64 of 24 to 64 bytes; drawn if absent.
    signing_secret: Option<String>,
    /// A secret of its own for `X-Ledger-Signature`, in place of its account's.
    #[schema(min_length = 16, max_length = 256)]
    ledger_secret: Option<String>,
}

/// What is to change about an endpoint; what is absent stays, `null` goes back to what holds by default. Another
/// host, port or scheme cuts a new key and drops headers and an own secret.
#[derive(ToSchema)]
pub(super) struct EndpointChange {
    #[schema(max_length = 2_048, nullable = false)]
    url: Option<String>,
    #[schema(min_items = 1, max_items = 100)]
    event_types: Option<Vec<String>>,
    #[schema(max_length = 1_000)]
    description: Option<String>,
    schedule: Option<Schedule>,
    response_policy: Option<ResponsePolicy>,
    #[schema(minimum = 1_000, maximum = 30_000)]
    timeout_ms: Option<u64>,
    #[schema(minimum = 1, maximum = 1_000)]
    in_flight_max: Option<u64>,
    #[schema(minimum = 1, maximum = 10_000)]
    rate_per_second: Option<u64>,
    #[schema(minimum = 60, maximum = 31_536_000)]
    disable_after_secs: Option<u64>,
    body_form: Option<BodyForm>,
    signature_schemes: Option<Vec<Scheme>>,
    /// All of them; `[redacted]` keeps the value that is there.
    headers: Option<Headers>,
    /// `null` has the account's sign again.
    #[schema(min_length = 16, max_length = 256)]
    ledger_secret: Option<String>,
}

/// Why something is done, for those who read the history.
#[derive(ToSchema)]
pub(super) struct Reason {
    #[schema(min_length = 1, max_length = 500)]
    reason: Option<String>,
}

/// Why something is done, for those who read the history; `""` is as good as none.
#[derive(ToSchema)]
pub(super) struct FreeReason {
    #[schema(max_length = 500)]
    reason: Option<String>,
}

/// Nothing: an empty object, or no body at all.
#[derive(ToSchema)]
pub(super) struct Nothing {}

/// A new signing key.
#[derive(ToSchema)]
pub(super) struct RotateSigningKey {
    /// How long older keys go on signing; 24 if absent.
    #[schema(minimum = 0, maximum = 168)]
    overlap_hours: Option<u64>,
    /// `whsec_` and base64 of 24 to 64 bytes; drawn if absent.
    signing_secret: Option<String>,
}

/// A key that is to sign no more.
#[derive(ToSchema)]
pub(super) struct RetireSigningKey {
    /// Not the newest.
    key_id: String,
}

/// A secret of the endpoint's own.
#[derive(ToSchema)]
pub(super) struct RotateOwnSecret {
    /// Drawn if absent.
    #[schema(min_length = 16, max_length = 256)]
    ledger_secret: Option<String>,
}

/// Another webhook secret.
#[derive(ToSchema)]
pub(super) struct RotateSecret {
    /// Drawn if absent.
    #[schema(min_length = 16, max_length = 256)]
    secret: Option<String>,
}

/// An event to be delivered.
#[derive(ToSchema)]
pub(super) struct NewEvent {
    /// Whose it is. Not needed with a key that is bound to an account.
    account_id: Option<String>,
    /// The producer's own id, which makes it safe to send again; drawn if absent.
    #[schema(pattern = "^[A-Za-z0-9_~-]{1,64}$")]
    id: Option<String>,
    #[schema(max_length = 128, pattern = "^[A-Za-z0-9_]+([.][A-Za-z0-9_-]+)*$")]
    r#type: String,
    /// Any JSON: receivers get it byte for byte. At most 65,536 bytes unless the server says otherwise.
    data: Value,
    /// Not before then; at most 366 days ahead.
    #[schema(format = DateTime)]
    deliver_at: Option<String>,
    /// Not after then: it is given up.
    #[schema(format = DateTime)]
    expire_at: Option<String>,
    /// In place of the schedule's number.
    #[schema(minimum = 1, maximum = 101)]
    max_tries: Option<u64>,
    /// To this endpoint only.
    endpoint_id: Option<String>,
    /// It was given up elsewhere: its deliveries are dead from the start, nobody is told, and they can be replayed.
    given_up: Option<bool>,
}

/// Several events; each is answered by itself.
#[derive(ToSchema)]
pub(super) struct NewEvents {
    /// What does not fit is answered in its place, and the others are taken.
    #[schema(min_items = 1, max_items = 500)]
    events: Vec<NewEvent>,
}

/// What to send again.
#[derive(ToSchema)]
pub(super) struct ReplayWish {
    /// `dead` if absent.
    scope: Option<Scope>,
    /// Wanted for `all`: receivers get delivered ones a second time.
    confirm: Option<bool>,
    #[schema(max_length = 500)]
    reason: Option<String>,
}

/// A bulk replay to be planned or begun.
#[derive(ToSchema)]
pub(super) struct NewReplay {
    /// Not needed with a key that is bound to an account.
    account_id: Option<String>,
    filter: ReplayFilter,
    /// `as_then` if absent.
    routing: Option<Routing>,
    /// Deliveries begun in a second; 50 if absent.
    #[schema(minimum = 1, maximum = 10_000)]
    rate_per_second: Option<u64>,
    /// The plan alone; nothing is sent.
    dry_run: Option<bool>,
    /// Wanted unless `dry_run`.
    #[schema(min_length = 1, max_length = 500)]
    reason: Option<String>,
    /// Wanted for `delivered`.
    confirm: Option<bool>,
}

/// What a bulk replay is of.
#[derive(ToSchema)]
pub(super) struct ReplayFilter {
    status: BulkOf,
    /// Wanted for `missing`.
    endpoint_id: Option<String>,
    /// `payment.settled`, or `payment.*`.
    #[schema(min_length = 1, max_length = 128)]
    event_type: Option<String>,
    /// When they ended; of `missing`, when the event came in, and wanted.
    #[schema(format = DateTime)]
    since: Option<String>,
    #[schema(format = DateTime)]
    until: Option<String>,
    /// `503`, `5xx`: what the last attempt was answered with.
    http_status: Option<OneOrMore>,
    /// What the last attempt failed of.
    error: Option<Errors>,
}

/// One text, or a list of at most 20.
#[derive(ToSchema)]
#[serde(untagged)]
pub(super) enum OneOrMore {
    One(String),
    More(Vec<String>),
}

/// One class of errors, or a list of at most 20.
#[derive(ToSchema)]
#[serde(untagged)]
pub(super) enum Errors {
    One(ErrorClass),
    More(Vec<ErrorClass>),
}

/// A job for a worker.
#[derive(ToSchema)]
pub(super) struct NewJob {
    /// The producer's own id, which makes it safe to send again; drawn if absent.
    #[schema(pattern = "^[A-Za-z0-9_~-]{1,64}$")]
    id: Option<String>,
    /// `job` if absent.
    #[schema(max_length = 128, pattern = "^[A-Za-z0-9_]+([.][A-Za-z0-9_-]+)*$")]
    r#type: Option<String>,
    /// Any JSON: the worker gets it byte for byte.
    payload: Value,
    /// Not before then; at most 366 days ahead.
    #[schema(format = DateTime)]
    deliver_at: Option<String>,
    #[schema(minimum = 1, maximum = 101)]
    max_tries: Option<u64>,
}

/// How many jobs are wanted.
#[derive(ToSchema)]
pub(super) struct Claim {
    /// 1 if absent.
    #[schema(minimum = 1, maximum = 100)]
    max: Option<u64>,
    /// How long to wait for the first; 0 if absent.
    #[schema(minimum = 0, maximum = 20_000)]
    wait_ms: Option<u64>,
}

/// Why a job failed.
#[derive(ToSchema)]
pub(super) struct JobFailure {
    /// For people; the first 4,096 bytes are kept.
    error: String,
    /// It is not tried again.
    permanent: Option<bool>,
    /// In place of the schedule's wait, at most 30 days; not with `permanent`.
    #[schema(minimum = 0)]
    retry_after_ms: Option<u64>,
}

/// A request that somebody captured, and what to check it with.
#[derive(ToSchema)]
pub(super) struct Captured {
    /// Its header fields, by name; a list where one stood there several times.
    headers: BTreeMap<String, TextOrTexts>,
    /// Its body, if that is text; byte for byte as it came.
    body: Option<String>,
    /// Its body in base64, in place of `body`.
    body_base64: Option<String>,
    /// With the secrets of this endpoint, which are not shown.
    endpoint_id: Option<String>,
    /// Or with these: `whsec_…`. They are kept nowhere.
    #[schema(min_items = 1, max_items = 10)]
    signing_secrets: Option<Vec<String>>,
    /// Or with these, for `X-Ledger-Signature`.
    #[schema(min_items = 1, max_items = 10)]
    ledger_secrets: Option<Vec<String>>,
    /// As if it were then; now if absent.
    #[schema(format = DateTime)]
    at: Option<String>,
}

/// One text, or several.
#[derive(ToSchema)]
#[serde(untagged)]
pub(super) enum TextOrTexts {
    One(String),
    Several(Vec<String>),
}

/// A key to be made.
#[derive(ToSchema)]
pub(super) struct NewKey {
    role: Role,
    /// Wanted for `account` and `account_read`, not for `operator` and `support`.
    account_id: Option<String>,
    #[schema(min_length = 1, max_length = 200)]
    label: Option<String>,
    /// Never if absent.
    #[schema(format = DateTime)]
    expires_at: Option<String>,
}

/// Another secret for a key.
#[derive(ToSchema)]
pub(super) struct RotateKey {
    /// How long the one before is taken too; 24 if absent.
    #[schema(minimum = 0, maximum = 168)]
    overlap_hours: Option<u64>,
}

/// A link to an account's pages.
#[derive(ToSchema)]
pub(super) struct NewPortalLink {
    account_id: String,
    /// `account` or `account_read`; the latter is all that support may make, and what it makes if absent.
    role: Option<Role>,
    /// How long it may be used; 15 if absent.
    #[schema(minimum = 1, maximum = 1_440)]
    lifetime_minutes: Option<u64>,
    /// Where the pages lead back to: https without a user, or this server's own.
    #[schema(max_length = 2_000)]
    return_url: Option<String>,
}

/// A link that is used.
#[derive(ToSchema)]
pub(super) struct LinkUse {
    /// What stands in the link's address after the `#`.
    link: String,
}
