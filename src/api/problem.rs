//! Every refusal that the API gives: one closed catalogue, one shape (RFC 9457, `application/problem+json`).
//!
//! Never knows routes. What goes wrong inside is logged, not told: no path, row or backtrace reaches a caller.

use std::borrow::Cow;

use axum::http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use hooklog_projections::ids::AccountId;
use serde::Serialize;

use super::quotas::{self, Quota};
use crate::engine::Rejection;
use crate::log;

/// What every `type` begins with; the rest is the code. Documented row by row in `docs/problems.md`.
pub const TYPE_BASE: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/problems.md#");

macro_rules! catalogue {
    ($($(#[$doc:meta])* $name:ident = $status:ident, $code:literal, $title:literal;)*) => {
        /// A kind of refusal. Closed: a client may match on the codes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind { $($(#[$doc])* $name,)* }

        impl Kind {
            /// All of them.
            pub const ALL: &'static [Kind] = &[$(Kind::$name,)*];

            /// The word that a client matches on.
            pub fn code(self) -> &'static str {
                match self { $(Kind::$name => $code,)* }
            }

            /// The same for every problem of the kind.
            pub fn title(self) -> &'static str {
                match self { $(Kind::$name => $title,)* }
            }

            /// The status it is answered with.
            pub fn status(self) -> StatusCode {
                match self { $(Kind::$name => StatusCode::$status,)* }
            }
        }
    };
}

catalogue! {
    /// The body is not JSON text.
    NotJson = BAD_REQUEST, "not-json", "The body is not JSON";
    /// The body is nested too deeply.
    TooDeep = BAD_REQUEST, "nested-too-deep", "The body is nested too deeply";
    /// A query parameter or a path does not fit.
    BadQuery = BAD_REQUEST, "bad-query", "The query does not fit";
    /// A cursor of another list, another store, or nobody.
    BadCursor = BAD_REQUEST, "bad-cursor", "The cursor does not fit";
    /// The request breaks HTTP or never came whole.
    BadRequest = BAD_REQUEST, "bad-request", "The request could not be read";
    /// An `Idempotency-Key` that is none.
    BadKey = BAD_REQUEST, "bad-idempotency-key", "The Idempotency-Key does not fit";
    /// No token, or a wrong one.
    Unauthorized = UNAUTHORIZED, "unauthorized", "A credential is needed";
    /// The credential may not do this.
    Forbidden = FORBIDDEN, "forbidden", "The credential may not do this";
    /// A page of another site sent it.
    CrossOrigin = FORBIDDEN, "cross-origin", "Other sites may not send this";
    /// A delivery of this or another Hooklog sent it.
    Loop = UNPROCESSABLE_ENTITY, "loop", "A delivery may not come back in as an event";
    /// Nothing is there.
    NotFound = NOT_FOUND, "not-found", "Nothing is there";
    /// The route exists, but not for this method.
    MethodNotAllowed = METHOD_NOT_ALLOWED, "method-not-allowed", "The route has no such method";
    /// The body took too long to come.
    TooSlow = REQUEST_TIMEOUT, "body-too-slow", "The body took too long to come";
    /// The account exists already.
    Exists = CONFLICT, "exists-already", "It exists already";
    /// The id names events of several accounts.
    Ambiguous = CONFLICT, "ambiguous-id", "Several accounts have an event of this id";
    /// A pause of what is held, a resume of what runs.
    AlreadySo = CONFLICT, "already-so", "It is so already";
    /// The newest signing key cannot be retired.
    NewestKey = CONFLICT, "newest-key", "The newest key cannot be retired";
    /// The same request is being done under its key.
    KeyInUse = CONFLICT, "idempotency-key-in-use", "The request is being done";
    /// The key was used for another request.
    KeyReused = UNPROCESSABLE_ENTITY, "idempotency-key-reused", "The Idempotency-Key was used for another request";
    /// The endpoint is disabled.
    Disabled = CONFLICT, "endpoint-disabled", "The endpoint is disabled";
    /// The endpoint is paused.
    Paused = CONFLICT, "endpoint-paused", "The endpoint is paused";
    /// A worker queue is not sent to.
    NotOfAQueue = CONFLICT, "not-of-a-queue", "Nothing is sent to a worker queue";
    /// The endpoint was removed.
    Removed = GONE, "endpoint-removed", "The endpoint was removed";
    /// A bulk replay that runs no more.
    ReplayNotThere = CONFLICT, "replay-not-running", "The replay is not running";
    /// Too many bulk replays at a time.
    TooManyReplays = CONFLICT, "too-many-replays", "Too many bulk replays are running";
    /// There is nothing to replay.
    NothingToReplay = CONFLICT, "nothing-to-replay", "There is nothing to replay";
    /// Only a pending delivery can be hurried or called off.
    NotPending = CONFLICT, "not-pending", "The delivery is not pending";
    /// A worker's lease is over.
    LeaseOver = CONFLICT, "lease-over", "The lease is over";
    /// It was changed meanwhile.
    Changed = PRECONDITION_FAILED, "changed-meanwhile", "It was changed meanwhile";
    /// The body or the data is too large.
    TooLarge = PAYLOAD_TOO_LARGE, "too-large", "The body is too large";
    /// The `Content-Type` is not the one that the route takes.
    NotJsonType = UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", "The Content-Type is not supported";
    /// One or more members do not fit.
    Invalid = UNPROCESSABLE_ENTITY, "invalid", "Some members do not fit";
    /// The event id was used for other content.
    EventIdReused = UNPROCESSABLE_ENTITY, "event-id-reused", "The event id was used for other content";
    /// The event goes to too many endpoints.
    FanOut = UNPROCESSABLE_ENTITY, "too-many-receivers", "Too many endpoints want this event";
    /// The account has no room for another endpoint.
    TooManyEndpoints = UNPROCESSABLE_ENTITY, "too-many-endpoints", "The account is full";
    /// The body is not UTF-8 where it must be.
    NotUtf8 = UNPROCESSABLE_ENTITY, "not-utf8", "The body is not UTF-8";
    /// Delivered events are only sent again on purpose.
    ConfirmNeeded = UNPROCESSABLE_ENTITY, "confirm-needed", "This needs a confirmation";
    /// A quota is used up, or too many wrong credentials came from there.
    TooMany = TOO_MANY_REQUESTS, "too-many-requests", "Too many requests";
    /// Something broke in here.
    Internal = INTERNAL_SERVER_ERROR, "internal", "Something broke in the server";
    /// As many listen to the stream as may.
    TooManyStreams = SERVICE_UNAVAILABLE, "too-many-streams", "Too many streams are open";
    /// The server is stopping.
    Draining = SERVICE_UNAVAILABLE, "draining", "The server is stopping";
    /// Nobody knows whether it was done.
    OutcomeUnknown = SERVICE_UNAVAILABLE, "outcome-unknown", "It is not known whether this was done";
    /// The disk is nearly full.
    NoRoom = INSUFFICIENT_STORAGE, "disk-nearly-full", "The disk is nearly full";
}

/// One member that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldError {
    /// Where: an RFC 6901 pointer into the body; for a query, `/` and the parameter's name.
    pub pointer: String,
    /// What is wrong, for programs.
    pub code: Cow<'static, str>,
    /// What is wrong and what to do, for people.
    pub detail: String,
}

/// One refusal.
#[derive(Clone, Debug)]
pub struct Problem {
    /// Its kind.
    pub kind: Kind,
    /// What is wrong with this request, and what to do.
    pub detail: String,
    /// The members that do not fit.
    pub errors: Vec<FieldError>,
    /// The accounts that a bare event id could mean.
    pub candidates: Vec<AccountId>,
    /// Seconds after which it is worth another try, where that is known exactly.
    pub retry_after: Option<u64>,
    /// The quota that is used up.
    pub quota: Option<Box<Quota>>,
}

/// As sent.
#[derive(Serialize)]
pub(super) struct Wire<'a> {
    r#type: String,
    title: &'static str,
    status: u16,
    detail: &'a str,
    code: &'static str,
    request_id: &'a str,
    #[serde(skip_serializing_if = "<[FieldError]>::is_empty")]
    errors: &'a [FieldError],
    #[serde(skip_serializing_if = "<[AccountId]>::is_empty")]
    candidates: &'a [AccountId],
    #[serde(rename = "violated-policies", skip_serializing_if = "Option::is_none")]
    violated_policies: Option<[&'static str; 1]>,
}

/// Seconds after which a caller may try again, where that helps.
const RETRY_SECONDS: &str = "5";

impl Problem {
    /// A refusal of a kind.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Problem {
        Problem {
            kind,
            detail: detail.into(),
            errors: Vec::new(),
            candidates: Vec::new(),
            retry_after: None,
            quota: None,
        }
    }

    /// Members that do not fit.
    pub fn invalid(errors: Vec<FieldError>) -> Problem {
        let detail = match errors.as_slice() {
            [one] => format!("{}: {}", one.pointer, one.detail),
            many => format!("{} members do not fit; `errors` names each", many.len()),
        };
        Problem { errors, ..Problem::new(Kind::Invalid, detail) }
    }

    /// One query parameter that does not fit.
    pub fn query(name: &str, detail: impl Into<String>) -> Problem {
        Problem::queries(vec![(name.to_owned(), detail.into())])
    }

    /// Query parameters that do not fit, each with what is wrong.
    pub fn queries(wrong: Vec<(String, String)>) -> Problem {
        let detail = match wrong.as_slice() {
            [(name, detail)] => format!("`{name}`: {detail}"),
            many => format!("{} parameters do not fit; `errors` names each", many.len()),
        };
        let error = |(name, detail): (String, String)| FieldError {
            pointer: format!("/{}", name.replace('~', "~0").replace('/', "~1")),
            code: "bad-parameter".into(),
            detail,
        };
        let errors = wrong.into_iter().map(error).collect();
        Problem { errors, ..Problem::new(Kind::BadQuery, detail) }
    }

    /// Something broke: logged whole, told as little as can be.
    pub fn internal(what: &dyn std::fmt::Display) -> Problem {
        tracing::error!(error = %what, "a request failed inside");
        let detail = "the server's log says what, under this request's id; nothing was changed by a read";
        Problem::new(Kind::Internal, detail)
    }

    /// The refusal for a status that no handler of ours gave.
    pub(super) fn of_status(status: StatusCode) -> Problem {
        let (kind, detail) = match status {
            StatusCode::NOT_FOUND => (Kind::NotFound, "there is no such route"),
            StatusCode::METHOD_NOT_ALLOWED => (Kind::MethodNotAllowed, "`Allow` names the methods there are"),
            StatusCode::PAYLOAD_TOO_LARGE => (Kind::TooLarge, "the body is too large"),
            StatusCode::UNSUPPORTED_MEDIA_TYPE => (Kind::NotJsonType, "send `application/json`"),
            StatusCode::REQUEST_TIMEOUT => (Kind::TooSlow, "the body took too long to come"),
            status if status.is_client_error() => (Kind::BadRequest, "the request could not be read"),
            _ => (Kind::Internal, "the server's log says what, under this request's id"),
        };
        Problem::new(kind, detail)
    }

    /// As sent.
    pub(super) fn wire<'a>(&'a self, request_id: &'a str) -> Wire<'a> {
        Wire {
            r#type: format!("{TYPE_BASE}{}", self.kind.code()),
            title: self.kind.title(),
            status: self.kind.status().as_u16(),
            detail: &self.detail,
            code: self.kind.code(),
            request_id,
            errors: &self.errors,
            candidates: &self.candidates,
            violated_policies: self.quota.as_ref().map(|quota| [quota.name]),
        }
    }

    /// The whole answer; `Allow` of a refused method comes from `allow`.
    pub(super) fn respond(&self, request_id: &str, allow: Option<HeaderValue>) -> Response {
        let body = serde_json::to_vec(&self.wire(request_id)).unwrap_or_default();
        let mut response = (self.kind.status(), body).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(quota) = &self.quota {
            quotas::write(std::slice::from_ref(&**quota), headers);
        }
        match self.kind {
            Kind::Unauthorized => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"hooklog\""));
            }
            Kind::TooManyStreams | Kind::Draining | Kind::OutcomeUnknown | Kind::NoRoom => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static(RETRY_SECONDS));
            }
            _ => {}
        }
        if let Some(allow) = allow {
            headers.insert(ALLOW, allow);
        }
        response
    }
}

/// Carried to the rim, which knows the request's id and writes it out.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.kind.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

impl From<log::Error> for Problem {
    fn from(error: log::Error) -> Problem {
        Problem::internal(&error)
    }
}

impl From<Rejection> for Problem {
    fn from(rejection: Rejection) -> Problem {
        let kind = match &rejection {
            Rejection::UnknownAccount
            | Rejection::UnknownEndpoint
            | Rejection::UnknownEvent
            | Rejection::UnknownDelivery
            | Rejection::UnknownReplay
            | Rejection::UnknownQueue
            | Rejection::UnknownKey
            | Rejection::UnknownApiKey => Kind::NotFound,
            Rejection::LinkSpent => Kind::Unauthorized,
            Rejection::KeyRevoked => Kind::AlreadySo,
            Rejection::AccountExists | Rejection::QueueExists { .. } | Rejection::QueueFixed => Kind::Exists,
            Rejection::LeaseOver => Kind::LeaseOver,
            Rejection::KeyReused => Kind::KeyReused,
            Rejection::KeyInUse => Kind::KeyInUse,
            Rejection::Disabled { .. } => Kind::Disabled,
            Rejection::Paused { .. } => Kind::Paused,
            Rejection::Removed { .. } => Kind::Removed,
            Rejection::ReplayNotThere { .. } => Kind::ReplayNotThere,
            Rejection::TooManyReplays => Kind::TooManyReplays,
            Rejection::EventIdReused => Kind::EventIdReused,
            Rejection::FanOutTooWide { .. } => Kind::FanOut,
            Rejection::TooManyEndpoints { .. } => Kind::TooManyEndpoints,
            Rejection::NotUtf8 { .. } => Kind::NotUtf8,
            Rejection::VersionConflict { .. } => Kind::Changed,
            Rejection::NewestKey => Kind::NewestKey,
            Rejection::AlreadySo { .. } => Kind::AlreadySo,
            Rejection::NothingToReplay { .. } | Rejection::NothingMissing => Kind::NothingToReplay,
            Rejection::NotPending { .. } => Kind::NotPending,
            Rejection::NoRoom => Kind::NoRoom,
            Rejection::Draining => Kind::Draining,
            Rejection::OutcomeUnknown => Kind::OutcomeUnknown,
        };
        Problem::new(kind, rejection.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of docs/problems.md is the catalogue, row by row.
    #[test]
    fn every_problem_is_documented() {
        let docs = include_str!("../../docs/problems.md");
        for kind in Kind::ALL {
            let row = format!(
                "| <a id=\"{0}\"></a>`{0}` | {1} | {2} |",
                kind.code(),
                kind.status().as_u16(),
                kind.title()
            );
            assert!(docs.contains(&row), "docs/problems.md lacks\n{row}");
        }
        assert_eq!(docs.matches("<a id=").count(), Kind::ALL.len(), "a row too many");
    }
}
