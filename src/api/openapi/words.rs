//! The words that the API uses where only a few may stand, and schedules, which are a word or waits. Kept apart
//! from the types that they stand for: those know nothing of descriptions. Never knows routes.

use std::borrow::Cow;

use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

macro_rules! words {
    ($($(#[doc = $doc:literal])* $name:ident: $($word:literal)*;)*) => {$(
        $(#[doc = $doc])*
        pub(crate) enum $name {}

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                let words = ObjectBuilder::new().schema_type(Type::String).enum_values(Some([$($word),*]));
                let text: &[&str] = &[$($doc),*];
                words.description(Some(text.concat().trim())).into()
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                stringify!($name).into()
            }
        }
    )*};
}

words! {
    /// Which answers of a receiver are a success, a reason to try again, or the end.
    ResponsePolicy: "ledger" "ledger-strict" "ukue" "standard-webhooks";
    /// Whether an account's failed deliveries are retried; `default` goes by the server's percentage.
    Rollout: "on" "off" "default";
    /// What a request's body is: the event with id and type, or its data alone.
    BodyForm: "envelope" "data";
    /// A signature that an endpoint is sent: Standard Webhooks, or `X-Ledger-Signature`.
    Scheme: "standard" "ledger";
    /// Why no answer counts.
    ErrorClass: "dns" "connect" "tls" "timeout" "closed" "protocol" "egress_denied" "interrupted" "not_sent"
        "worker" "lease_expired";
    /// Why a delivery was given up.
    DeadReason: "exhausted" "refused" "retries_off" "expired" "imported";
    /// By which subscriptions a bulk replay chooses: those of then, or of those the ones that still stand.
    Routing: "as_then" "as_now";
    /// What the holder of a key is to the store.
    Role: "operator" "support" "account" "account_read" "ingest";
    /// Where a delivery is. It is always in exactly one of these.
    Status: "pending" "in_flight" "delivered" "dead" "cancelled";
    /// Why a pending delivery is not sent although it is due.
    HeldBy: "paused" "disabled" "removed" "gate" "breaker";
    /// Whether an endpoint is sent to.
    EndpointStatus: "active" "paused" "disabled" "removed";
    /// How one attempt went.
    AttemptStatus: "in_flight" "delivered" "failed";
    /// How far a bulk replay is.
    ReplayState: "running" "cancelled" "ended";
    /// What a bulk replay is of: what was given up, what arrived, or what an endpoint never got.
    BulkOf: "dead" "delivered" "missing";
    /// Whether a key is taken.
    KeyStatus: "active" "revoked" "expired";
    /// What an id names.
    Kind: "event" "delivery" "attempt" "endpoint" "account";
    /// Which deliveries a replay restarts: the dead ones, delivered ones too (which wants `confirm`), or none:
    /// endpoints that never got the event get it.
    Scope: "dead" "all" "missing";
    /// How long a bucket of figures is.
    Bucket: "1h" "1d";
    /// What figures are told apart by.
    Group: "status" "class" "endpoint";
    /// What may be asked for besides.
    Include: "payload" "last_error";
    /// What an event may be asked for that is in a list.
    EventInclude: "payload";
    /// An event that nobody had subscribed to, and that was sent to nobody since.
    EventStatus: "unmatched";
    /// A schedule by name.
    Preset: "ledger" "ledger-5" "ukue" "standard-webhooks";
}

/// Header fields by name.
pub(crate) enum Headers {}

impl PartialSchema for Headers {
    fn schema() -> RefOr<Schema> {
        let text = ObjectBuilder::new().schema_type(Type::String);
        ObjectBuilder::new()
            .description(Some("Header fields by name."))
            .additional_properties(Some(text))
            .into()
    }
}

impl ToSchema for Headers {
    fn name() -> Cow<'static, str> {
        "Headers".into()
    }
}

/// When a failed delivery is tried again: a preset's name, or waits of one's own.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "a shape is described, never made")]
pub(crate) enum Schedule {
    /// One of the server's.
    Preset(Preset),
    /// The waits between the tries; there is one try more than there are waits.
    Waits {
        /// Each as `90s`, `5m`, `2h`, `1d`, or a number of seconds: 1 second to 30 days.
        #[schema(max_items = 100)]
        waits: Vec<Wait>,
        /// By how much each is moved at random, to both sides; 10 if absent.
        #[schema(minimum = 0, maximum = 100)]
        jitter_percent: Option<u8>,
    },
}

/// A time between two tries.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "a shape is described, never made")]
pub(crate) enum Wait {
    /// `90s`, `5m`, `2h`, `1d`.
    Text(String),
    /// Seconds.
    Seconds(u64),
}

/// What an answer tells of a bulk replay's filter.
#[derive(ToSchema)]
#[expect(dead_code, reason = "a shape is described, never made")]
pub(crate) struct FilterShown {
    status: BulkOf,
    #[schema(nullable = false)]
    endpoint_id: Option<String>,
    #[schema(nullable = false)]
    event_type: Option<String>,
    #[schema(nullable = false, format = DateTime)]
    since: Option<String>,
    #[schema(nullable = false, format = DateTime)]
    until: Option<String>,
    #[schema(nullable = false)]
    http_status: Option<Vec<String>>,
    #[schema(nullable = false)]
    error: Option<Vec<ErrorClass>>,
}
