//! Every operation of the API, said once: one entry for each line of the table of routes. `tests/openapi.rs` fails
//! for a route without one. A new route is one entry here, with a shape of what it takes in `shapes`.

use super::operation::{Operation, op};
use super::shapes::*;
use super::told::*;
use super::words::{Bucket, DeadReason, ErrorClass, EventInclude, EventStatus, Group, Include, Status};
use crate::api::dead::GroupsOut;
use crate::api::event_types::TypesOut;
use crate::api::events::{AcceptedOut, ListedOut};
use crate::api::explain::ExplainOut;
use crate::api::keys::KeyOut;
use crate::api::portal::{LinkOut, SessionOut};
use crate::api::queues::JobsOut;
use crate::api::replays::{PlanOut, ReplayOut};
use crate::api::secrets::{KeysOut, OwnOut, TextOut};
use crate::api::tried::{RequestOut, ResponseOut, ShownOut};
use crate::api::wire::{AccountOut, DeliveryOut, EndpointOut, EventOut};

const TAKEN: &str = "It is durable.";
const SAME: &str = "The same id with the same content: nothing was done.";
const SENT_AGAIN: &str = "The deliveries that got a new run.";

/// All of them, by what they are about.
pub(super) fn all() -> Vec<(&'static str, Vec<Operation>)> {
    vec![
        ("accounts", accounts()),
        ("endpoints", endpoints()),
        ("secrets", secrets()),
        ("events", events()),
        ("deliveries", deliveries()),
        ("replays", replays()),
        ("queues", queues()),
        ("figures", figures()),
        ("keys", keys()),
        ("portal", portal()),
        ("server", server()),
    ]
}

fn accounts() -> Vec<Operation> {
    vec![
        op("POST /v1/accounts", "createAccount", "Makes an account.")
            .takes::<NewAccount>()
            .gives::<AccountOut>(201, "It is made; its webhook secret is shown."),
        op("GET /v1/accounts", "listAccounts", "Lists accounts.").gives_page::<AccountOut>("A page."),
        op("GET /v1/accounts/{id}", "getAccount", "Shows an account with the figures of its deliveries.")
            .gives::<AccountOut>(200, "The account."),
        op("PATCH /v1/accounts/{id}", "changeAccount", "Changes an account.")
            .takes::<AccountChange>()
            .gives::<AccountOut>(200, "As it is now."),
    ]
}

fn endpoints() -> Vec<Operation> {
    vec![
        op("POST /v1/endpoints", "createEndpoint", "Makes an endpoint, or a worker queue.")
            .takes::<NewEndpoint>()
            .gives::<EndpointOut>(201, "It is made; its signing key is shown."),
        op("GET /v1/endpoints", "listEndpoints", "Lists an account's endpoints.")
            .in_account()
            .gives_page::<EndpointOut>("A page."),
        op("GET /v1/endpoints/{id}", "getEndpoint", "Shows an endpoint. `ETag` is its version.")
            .of_account()
            .gives::<EndpointOut>(200, "The endpoint."),
        op("PATCH /v1/endpoints/{id}", "changeEndpoint", "Changes an endpoint.")
            .of_account()
            .header("If-Match", "The version that the change is meant for.")
            .takes::<EndpointChange>()
            .gives::<EndpointOut>(200, "As it is now; with its new signing key if the receiver is another."),
        op("POST /v1/endpoints/{id}/pause", "pauseEndpoint", "Holds what is for an endpoint.")
            .of_account()
            .may_take::<Reason>()
            .gives::<EndpointOut>(200, "It is held."),
        op("POST /v1/endpoints/{id}/resume", "resumeEndpoint", "Lets what was held go out, in order.")
            .of_account()
            .may_take::<Nothing>()
            .gives::<EndpointOut>(200, "It runs."),
        op("POST /v1/endpoints/{id}/test", "testEndpoint", "Sends a test event to an endpoint: one try.")
            .of_account()
            .may_take::<Nothing>()
            .gives::<AcceptedOut>(202, TAKEN)
            .gives::<AcceptedOut>(200, SAME),
        op("DELETE /v1/endpoints/{id}", "removeEndpoint", "Removes an endpoint for good; its history stays.")
            .of_account()
            .may_take::<Reason>()
            .gives::<EndpointOut>(200, "It is removed; what waited for it is cancelled."),
    ]
}

fn secrets() -> Vec<Operation> {
    const WHY: &str = "Why it is looked at; kept in the audit.";
    let why = || serde_json::json!({ "type": "string", "maxLength": 500 });
    vec![
        op("GET /v1/accounts/{id}/secret", "revealAccountSecret", "Shows an account's webhook secret.")
            .of_account()
            .query("reason", why(), WHY)
            .gives::<TextOut>(200, "The secret."),
        op("POST /v1/accounts/{id}/secret/rotate", "rotateAccountSecret", "Replaces an account's secret.")
            .may_take::<RotateSecret>()
            .gives::<TextOut>(200, "The new one."),
        op(
            "POST /v1/verify",
            "verifySignature",
            "Checks a captured request's signatures, and says what is wrong.",
        )
        .takes::<Captured>()
        .gives::<Verdict>(200, "What was found."),
        op("GET /v1/endpoints/{id}/secret", "revealSigningKeys", "Shows an endpoint's live signing keys.")
            .of_account()
            .query("reason", why(), WHY)
            .gives::<KeysOut>(200, "The keys, newest first."),
        op("POST /v1/endpoints/{id}/secret/rotate", "rotateSigningKey", "Cuts a new signing key.")
            .of_account()
            .may_take::<RotateSigningKey>()
            .gives::<KeysOut>(200, "The new one is shown."),
        op("POST /v1/endpoints/{id}/secret/retire", "retireSigningKey", "Has an older key sign no more.")
            .of_account()
            .takes::<RetireSigningKey>()
            .gives::<KeysOut>(200, "Those that are left."),
        op(
            "POST /v1/endpoints/{id}/ledger-secret/rotate",
            "rotateOwnLedgerSecret",
            "Gives an endpoint a webhook secret of its own, or another one.",
        )
        .of_account()
        .may_take::<RotateOwnSecret>()
        .gives::<OwnOut>(200, "The new one."),
    ]
}

fn events() -> Vec<Operation> {
    let taken_in = |route, id, summary| {
        op(route, id, summary)
            .takes::<NewEvent>()
            .gives::<AcceptedOut>(202, TAKEN)
            .gives::<AcceptedOut>(200, SAME)
    };
    let replayed = |route, id, summary| {
        op(route, id, summary).of_account().may_take::<ReplayWish>().gives::<Replayed>(202, SENT_AGAIN)
    };
    let event_type = serde_json::json!({
        "type": "string", "maxLength": 128, "pattern": "^[A-Za-z0-9_]+([.][A-Za-z0-9_-]+)*$",
    });
    let event_id = serde_json::json!({ "type": "string", "pattern": "^[A-Za-z0-9_~-]{1,64}$" });
    vec![
        taken_in("POST /v1/events", "createEvent", "Takes an event in."),
        taken_in("POST /internal/webhooks/dispatch", "dispatchEvent", "The same, at the brief's own path."),
        op("POST /v1/events/batch", "createEvents", "Takes up to 500 events in.")
            .takes::<NewEvents>()
            .gives::<BatchResults>(202, "An answer for each."),
        op("POST /v1/events/raw", "createRawEvent", "Takes a body in as it is, with its content type.")
            .in_account()
            .query("type", event_type, "The event's type; it must be there.")
            .query("id", event_id, "The producer's own id.")
            .in_endpoint()
            .takes_bytes()
            .gives::<AcceptedOut>(202, TAKEN)
            .gives::<AcceptedOut>(200, SAME),
        op("GET /v1/events", "listEvents", "Lists an account's events, newest first.")
            .in_account()
            .word::<EventStatus>("status", "Only such.")
            .of_type()
            .moment("since", "Taken in at this moment or later.")
            .moment("until", "Taken in before this moment.")
            .words::<EventInclude>("include", "What to show besides.")
            .gives_page::<ListedOut>("A page."),
        op(
            "GET /v1/event-types",
            "listEventTypes",
            "The types of an account's events, and when each was seen.",
        )
        .in_account()
        .gives::<TypesOut>(200, "The types."),
        op("GET /v1/events/{id}", "getEvent", "Shows an event, its deliveries and the answer about it.")
            .of_account()
            .at()
            .gives::<EventOut>(200, "The event."),
        op("GET /v1/events/{id}/payload", "getEventPayload", "The exact bytes of an event.")
            .of_account()
            .gives_text(200, "application/octet-stream", "The bytes."),
        op("GET /v1/events/{id}/timeline", "getEventTimeline", "Every fact of an event.")
            .of_account()
            .gives::<Timeline>(200, "The facts."),
        replayed("POST /v1/events/{id}/replay", "replayEvent", "Sends an event again."),
        replayed("POST /events/{id}/replay", "replayEventAtBriefPath", "The same, at the brief's own path."),
    ]
}

fn deliveries() -> Vec<Operation> {
    vec![
        op(
            "GET /v1/deliveries",
            "listDeliveries",
            "Lists deliveries, newest first: an account's, or everybody's.",
        )
        .of_account()
        .query("queue", serde_json::json!({ "type": "string" }), "In place of account and endpoint.")
        .words::<Status>("status", "Any of these.")
        .in_endpoint()
        .of_type()
        .moment("since", "Enqueued at this moment or later.")
        .moment("until", "Enqueued at this moment or earlier.")
        .query(
            "http_status",
            serde_json::json!({ "type": "string", "pattern": "^([1-9]([0-9]{2}|xx)(,[1-9]([0-9]{2}|xx))*)?$" }),
            "What the last attempt was answered with: `503`, `5xx`, several with commas between.",
        )
        .words::<ErrorClass>("error", "What the last attempt failed of.")
        .words::<Include>("include", "What to show besides.")
        .gives_page::<DeliveryOut>("A page."),
        op("GET /v1/deliveries/{id}", "getDelivery", "Shows a delivery and the answer about it.")
            .of_account()
            .at()
            .gives::<DeliveryOut>(200, "The delivery."),
        op("GET /v1/deliveries/{id}/attempts", "listAttempts", "Shows a delivery's requests and answers.")
            .of_account()
            .at()
            .gives::<Attempts>(200, "The attempts."),
        op("GET /v1/attempts/{id}", "getAttempt", "Shows one request and its answer.")
            .of_account()
            .gives::<ShownOut>(200, "The attempt."),
        op(
            "GET /v1/attempts/{id}/request",
            "getAttemptRequest",
            "The request of an attempt, as it was made.",
        )
        .of_account()
        .gives::<RequestOut>(200, "The request."),
        op(
            "GET /v1/attempts/{id}/response",
            "getAttemptResponse",
            "The answer to an attempt, as it is kept.",
        )
        .of_account()
        .gives::<ResponseOut>(200, "The answer."),
        op("POST /v1/deliveries/{id}/replay", "replayDelivery", "Sends a delivery again.")
            .of_account()
            .may_take::<ReplayWish>()
            .gives::<Replayed>(202, SENT_AGAIN),
        op("POST /v1/deliveries/{id}/retry-now", "retryDeliveryNow", "Tries a pending delivery at once.")
            .of_account()
            .may_take::<Nothing>()
            .gives::<Replayed>(202, "The delivery."),
        op("POST /v1/deliveries/{id}/cancel", "cancelDelivery", "Calls a pending delivery off.")
            .of_account()
            .may_take::<FreeReason>()
            .gives::<DeliveryOut>(200, "As it is now."),
    ]
}

fn replays() -> Vec<Operation> {
    let limit = serde_json::json!({ "type": "integer", "minimum": 1, "default": 50 });
    vec![
        op("GET /v1/dead", "listDeadGroups", "What was given up, in groups, the largest first.")
            .of_account()
            .in_endpoint()
            .of_type()
            .word::<DeadReason>("reason", "")
            .query("limit", limit, "Groups that are shown; more than 500 are 500.")
            .gives::<GroupsOut>(200, "The groups."),
        op("POST /v1/replays", "createReplay", "Sends again in bulk, or plans it.")
            .takes::<NewReplay>()
            .gives::<PlanOut>(200, "The plan of a `dry_run`.")
            .gives::<ReplayOut>(202, "It has begun."),
        op("GET /v1/replays", "listReplays", "Lists an account's bulk replays, newest first.")
            .in_account()
            .gives_page::<ReplayOut>("A page."),
        op("GET /v1/replays/{id}", "getReplay", "Shows how far a bulk replay is.")
            .of_account()
            .gives::<ReplayOut>(200, "The replay."),
        op("DELETE /v1/replays/{id}", "cancelReplay", "Calls a bulk replay off.")
            .of_account()
            .gives::<ReplayOut>(200, "As it is now."),
    ]
}

fn queues() -> Vec<Operation> {
    let ends = |route, id, summary| {
        op(route, id, summary).may_take::<Nothing>().gives::<DeliveryOut>(200, "The job's delivery.")
    };
    vec![
        op("GET /v1/queues/{name}", "getQueue", "Shows a worker queue and what is in it.")
            .gives::<Queue>(200, "The queue."),
        op("POST /v1/queues/{name}/jobs", "enqueueJob", "Takes a job in.")
            .takes::<NewJob>()
            .gives::<AcceptedOut>(202, TAKEN)
            .gives::<AcceptedOut>(200, SAME),
        op("POST /v1/queues/{name}/claim", "claimJobs", "Takes jobs, as soon as there are some.")
            .may_take::<Claim>()
            .gives::<JobsOut>(200, "The jobs; none if nothing came in time."),
        op("POST /v1/leases/{lease}/extend", "extendLease", "Says that the worker is still at it.")
            .may_take::<Nothing>()
            .gives::<Lease>(200, "Its end is later."),
        ends("POST /v1/leases/{lease}/complete", "completeJob", "Says that a job is done."),
        op("POST /v1/leases/{lease}/fail", "failJob", "Says that a job failed.")
            .takes::<JobFailure>()
            .gives::<DeliveryOut>(200, "The job's delivery."),
        ends("POST /v1/leases/{lease}/release", "releaseJob", "Gives back a job that was not begun."),
    ]
}

fn figures() -> Vec<Operation> {
    let wanted = |op: Operation| {
        op.word::<Bucket>("bucket", "How long a bucket is; `1h` if absent.")
            .moment("since", "The beginning; a day before the end, or 30 with `1d`, if absent.")
            .moment("until", "The end; now if absent.")
            .word::<Group>("group", "What to tell apart.")
    };
    vec![
        op("GET /v1/explain/{id}", "explain", "Did you send it? The answer about any id.")
            .of_account()
            .at()
            .gives::<ExplainOut>(200, "The answer."),
        wanted(
            op("GET /v1/stats", "getStats", "How attempts and deliveries ended, by the hour or day.")
                .of_account()
                .in_endpoint(),
        )
        .gives::<Stats>(200, "The figures."),
        wanted(
            op("GET /v1/endpoints/{id}/stats", "getEndpointStats", "The same of one endpoint.").of_account(),
        )
        .gives::<EndpointStats>(200, "The figures."),
        op("GET /v1/stream", "streamFacts", "The facts as they commit, as server-sent events.")
            .of_account()
            .in_endpoint()
            .of_type()
            .words::<Status>("status", "Any of these.")
            .query("fact", serde_json::json!({ "type": "string" }), "Names, with commas between.")
            .moment("since", "Begin there, not now.")
            .header("Last-Event-ID", "Go on after this event.")
            .gives_text(200, "text/event-stream", "Events, until one side ends."),
    ]
}

fn keys() -> Vec<Operation> {
    vec![
        op("POST /v1/keys", "createKey", "Makes a key of the API.")
            .takes::<NewKey>()
            .gives::<KeyOut>(201, "It is made, and shown this once."),
        op("GET /v1/keys", "listKeys", "Lists keys.").gives_page::<KeyOut>("A page."),
        op("GET /v1/keys/{id}", "getKey", "Shows a key, without its text.").gives::<KeyOut>(200, "The key."),
        op("POST /v1/keys/{id}/rotate", "rotateKey", "Gives a key another secret.")
            .may_take::<RotateKey>()
            .gives::<KeyOut>(200, "It is shown this once."),
        op("DELETE /v1/keys/{id}", "revokeKey", "Has a key be taken no more.")
            .gives::<KeyOut>(200, "As it is now."),
        op("GET /v1/audit", "listAudit", "What was administered and which secrets were shown, newest first.")
            .of_account()
            .query("actor", serde_json::json!({ "type": "string" }), "Who did it.")
            .gives_page::<AuditEntry>("A page."),
    ]
}

fn portal() -> Vec<Operation> {
    vec![
        op("POST /v1/portal-sessions", "createPortalLink", "Makes a one-time link to an account's pages.")
            .takes::<NewPortalLink>()
            .gives::<LinkOut>(201, "The link, shown this once."),
        op("DELETE /v1/portal-sessions", "endPortalSessions", "Ends all sessions of an account.")
            .in_account()
            .gives::<SessionsEnded>(200, "How many there were."),
        op("POST /portal/session", "beginPortalSession", "Exchanges a link for a session, with a cookie.")
            .takes::<LinkUse>()
            .gives::<SessionOut>(201, "The session."),
        op("GET /portal/session", "getPortalSession", "Tells of the session.")
            .gives::<SessionOut>(200, "The session."),
        op("DELETE /portal/session", "endPortalSession", "Ends the session.")
            .gives::<SessionsEnded>(200, "It is over."),
    ]
}

fn server() -> Vec<Operation> {
    const LINES: &str = "application/x-ndjson";
    vec![
        op("GET /v1/status", "getStatus", "The store's figures.").gives::<StoreStatus>(200, "The figures."),
        op("POST /v1/store/verify", "verifyStore", "Proves that the views are exactly the log.")
            .gives_as::<StoreLine>(200, LINES, "Lines of JSON: progress, and at the end the result."),
        op("POST /v1/store/rebuild", "rebuildStore", "Makes the views anew from the log.")
            .gives_as::<StoreLine>(200, LINES, "Lines of JSON: progress, and at the end the result."),
        op("GET /healthz", "getHealth", "Whether the process lives.").gives::<Alive>(200, "It does."),
        op("GET /readyz", "getReadiness", "Whether events are taken in.")
            .gives::<Ready>(200, "They are.")
            .gives::<Ready>(503, "They are not, and why."),
        op("GET /v1/openapi.json", "getDescription", "This description (OpenAPI 3.1).")
            .gives_object(200, "The description."),
        op("GET /docs/api", "getReference", "This description as a page.").gives_text(
            200,
            "text/html; charset=utf-8",
            "The page.",
        ),
    ]
}
