//! What may be asked of the engine, what it answers, and why it refuses. Never knows HTTP or a command line.

use hooklog_projections::answer::{KeptAnswer, RequestHash};
use hooklog_projections::fact::{
    AccountSettings, BodyRef, BulkFilter, DisabledReason, EndpointSettings, Routing, Sealed, SigningKey,
};
use hooklog_projections::ids::{
    AccountId, DeliveryKey, EndpointId, EndpointKey, EventId, KeyId, LeaseId, ReplayId, Seq,
};
use hooklog_projections::lifecycle::Status;
use hooklog_projections::policy::Text;
use hooklog_projections::time::{Millis, Timestamp};

pub use super::access::AccessCommand;
use super::leases::Job;
use super::queues::JobEnd;
use crate::log::Body;

/// The most endpoints that one event goes to: a fan-out is one batch and never split.
pub const FAN_OUT_MAX: usize = 100;
/// The most endpoints of an account, unless the operator says otherwise.
pub const ENDPOINTS_MAX: usize = 1_000;
/// The type of a test event. Its owner is not written to if it does not arrive: whoever sent it is looking.
pub const TEST_TYPE: &str = "hooklog.test";
/// The most signing keys of an endpoint that sign at a time: a rotation lets the oldest beyond that go.
pub const LIVE_KEYS_MAX: usize = 3;

/// A wish. Ids of new things are drawn by whoever asks, so that an unanswered wish can be asked again.
#[derive(Clone, Debug)]
pub enum Command {
    /// Make an account.
    CreateAccount {
        /// Its id.
        account: AccountId,
        /// Its settings.
        settings: AccountSettings,
        /// Its webhook secret.
        secret: Sealed,
    },
    /// Replace an account's settings.
    ChangeAccount {
        /// Which.
        account: AccountId,
        /// All of them.
        settings: AccountSettings,
    },
    /// Replace an account's webhook secret.
    ChangeAccountSecret {
        /// Which.
        account: AccountId,
        /// The new one.
        secret: Sealed,
    },
    /// Make an endpoint.
    CreateEndpoint {
        /// Its id and owner.
        key: EndpointKey,
        /// Its settings.
        settings: EndpointSettings,
        /// Its signing keys.
        signing: Vec<SigningKey>,
        /// A webhook secret of its own.
        secret: Option<Sealed>,
    },
    /// Replace an endpoint's settings and keys, if it is still of a version.
    ChangeEndpoint {
        /// Which.
        key: EndpointKey,
        /// The version that the change was made from.
        version: u32,
        /// All of them.
        settings: EndpointSettings,
        /// The only key from now on: a moved endpoint is signed for by no key that another host knows (rule
        /// W12). The keys stay if absent.
        new_key: Option<SigningKey>,
        /// Its own webhook secret from now on; stays as it is if absent.
        secret: Option<Option<Sealed>>,
    },
    /// Give an endpoint a webhook secret of its own, or its account's again. No version is asked for: it is no
    /// setting.
    ChangeEndpointSecret {
        /// Which.
        key: EndpointKey,
        /// The new one.
        secret: Option<Sealed>,
    },
    /// Give an endpoint a new signing key. The others sign beside it for a while.
    RotateSigningKey {
        /// Which.
        key: EndpointKey,
        /// The newest from now on.
        new: SigningKey,
        /// How long the others go on: not at all if zero, and never longer than they would have.
        overlap: Millis,
    },
    /// Let one of an endpoint's older signing keys go at once.
    RetireSigningKey {
        /// Which endpoint.
        key: EndpointKey,
        /// Which of its keys.
        id: KeyId,
    },
    /// Hold an endpoint's deliveries.
    PauseEndpoint {
        /// Which.
        key: EndpointKey,
        /// For people.
        reason: Text,
    },
    /// Hold an endpoint's deliveries, as by Hooklog.
    DisableEndpoint {
        /// Which.
        key: EndpointKey,
        /// Why.
        reason: DisabledReason,
    },
    /// Let what is held go.
    ResumeEndpoint {
        /// Which.
        key: EndpointKey,
    },
    /// Take in an event.
    Enqueue(Box<Enqueue>),
    /// Take in an event that was given up elsewhere: its deliveries are dead from the start, and can be replayed.
    EnqueueGivenUp(Box<Enqueue>),
    /// Send an event's ended deliveries again.
    ReplayEvent {
        /// Whose.
        account: AccountId,
        /// Which.
        event: EventId,
        /// Which of its deliveries.
        scope: Scope,
        /// For people.
        reason: Text,
    },
    /// Send one ended delivery again.
    ReplayDelivery {
        /// Which.
        delivery: DeliveryKey,
        /// Whether a delivered one too.
        scope: Scope,
        /// For people.
        reason: Text,
    },
    /// Try a waiting delivery at once; replaces its planned try.
    RetryNow {
        /// Which.
        delivery: DeliveryKey,
    },
    /// Call a waiting delivery off.
    Cancel {
        /// Which.
        delivery: DeliveryKey,
        /// For people.
        reason: Text,
    },
    /// Something about who may ask.
    Access(AccessCommand),
    /// A worker waits for jobs of a queue.
    Claim {
        /// Of which.
        queue: EndpointKey,
        /// At most so many; [`CLAIM_MAX`](super::leases::CLAIM_MAX) is the most.
        max: u32,
        /// For so long, if there is none yet; [`CLAIM_WAIT_MAX`](super::leases::CLAIM_WAIT_MAX) is the longest.
        wait: Millis,
    },
    /// A worker is still at it.
    ExtendLease {
        /// What it was given the job with.
        lease: LeaseId,
    },
    /// A worker has ended its attempt.
    EndLease {
        /// What it was given the job with.
        lease: LeaseId,
        /// How.
        end: JobEnd,
    },
    /// Begin a bulk replay.
    StartBulkReplay {
        /// Its id.
        id: ReplayId,
        /// Whose deliveries.
        account: AccountId,
        /// Which of them.
        filter: BulkFilter,
        /// For people.
        reason: Text,
        /// At most so many begin in a second.
        rate_per_second: u32,
        /// By which subscriptions it chooses.
        routing: Routing,
        /// How many the plan found.
        planned: u64,
    },
    /// Go on with a bulk replay.
    StepBulkReplay(BulkStep),
    /// Call a bulk replay off.
    CancelBulkReplay {
        /// Whose.
        account: AccountId,
        /// Which.
        id: ReplayId,
    },
    /// Take a request that is asked under an `Idempotency-Key`, unless it was taken before.
    TakeRequest {
        /// Who asks under which key.
        key: RequestHash,
        /// What is asked.
        request: RequestHash,
    },
    /// Such a request has ended.
    EndRequest {
        /// Who asked under which key.
        key: RequestHash,
        /// What was answered; `None`: nothing was done.
        answer: Option<KeptAnswer>,
    },
    /// Remove an endpoint for good.
    RemoveEndpoint {
        /// Which.
        key: EndpointKey,
        /// For people.
        reason: Text,
    },
    /// Close what an owner is to be told of an endpoint into a message. Nothing is done if there is nothing to tell,
    /// or a message is under way.
    BeginTelling {
        /// Of which endpoint.
        key: EndpointKey,
    },
    /// A message to an owner ended.
    OwnerTold {
        /// Of which endpoint.
        key: EndpointKey,
        /// Where it was begun. Nothing is done if it was ended before.
        began: Seq,
        /// By which way.
        channel: Text,
        /// Why it was refused for good; `None` if it was taken.
        refused: Option<Text>,
    },
}

/// An event to take in.
#[derive(Clone, Debug)]
pub struct Enqueue {
    /// Whose.
    pub account: AccountId,
    /// The caller's own id, or a drawn one.
    pub event: EventId,
    /// `payment.settled`.
    pub event_type: Text,
    /// The bytes that are sent, with their salt.
    pub body: Body,
    /// Length, type and hash of them.
    pub body_ref: BodyRef,
    /// Whether they are UTF-8; others only go where Standard Webhooks signatures are off.
    pub utf8: bool,
    /// Not before; at once if absent.
    pub deliver_at: Option<Timestamp>,
    /// Overrides the schedule's number of tries.
    pub max_tries: Option<u32>,
    /// Of no use after: what has not arrived by then is dead.
    pub expire_at: Option<Timestamp>,
    /// To this endpoint only, whatever it subscribed to.
    pub endpoint: Option<EndpointId>,
}

/// The next stretch of a bulk replay, as a reader found it. The engine looks again at each one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BulkStep {
    /// Whose.
    pub account: AccountId,
    /// Which.
    pub id: ReplayId,
    /// It was looked for after this position: refused if the replay is elsewhere by now.
    pub after: Seq,
    /// Up to here nothing else matches.
    pub upto: Seq,
    /// What to send again, ascending; at most [`BULK_STEP_MAX`].
    pub take: Vec<BulkTake>,
    /// So many matched, but cannot be replayed.
    pub skipped: u32,
    /// Nothing follows.
    pub last: bool,
}

/// One thing that a bulk replay takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BulkTake {
    /// A delivery.
    Delivery(Seq),
    /// An event, which the filter's endpoint never got.
    Event(EventId),
}

/// The most of a bulk replay that is begun in one step: half a batch.
pub const BULK_STEP_MAX: usize = 100;
/// The most bulk replays of the store that run at a time.
pub const BULK_RUNNING_MAX: usize = 16;

/// Which deliveries a replay takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Dead ones.
    Dead,
    /// Dead and delivered ones.
    All,
    /// None that there are: endpoints that want the event now and never got it get it. Events only.
    Missing,
}

/// What was done. Durable when it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// An account, an endpoint, or a told owner: nothing more to say.
    Done,
    /// An endpoint's version now.
    Endpoint {
        /// From 1.
        version: u32,
    },
    /// An event.
    Accepted {
        /// Where.
        accepted: Seq,
        /// When.
        at: Timestamp,
        /// Its deliveries; empty if no endpoint subscribed.
        deliveries: Vec<Seq>,
        /// The same event had been taken in before; nothing was done now.
        duplicate: bool,
    },
    /// Jobs for a worker; none if it waited in vain.
    Claimed {
        /// In the order in which they were due.
        jobs: Vec<Job>,
    },
    /// A lease goes on.
    Lease {
        /// Until then.
        until: Timestamp,
    },
    /// A worker's attempt has ended.
    LeaseEnded {
        /// Of which delivery.
        delivery: DeliveryKey,
    },
    /// What the same request was answered before.
    Before(KeptAnswer),
    /// A bulk replay went on.
    Stepped {
        /// How many start again.
        replayed: u32,
        /// How many of those it was told to take could not.
        skipped: u32,
    },
    /// Deliveries that start again.
    Replayed {
        /// Which.
        deliveries: Vec<DeliveryKey>,
        /// Why others of the same wish do not.
        refused: Vec<Rejection>,
    },
}

/// Why nothing was done. Every text says what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// No such account.
    #[error("there is no such account")]
    UnknownAccount,
    /// An account of that id exists.
    #[error("the account exists already")]
    AccountExists,
    /// No such endpoint in the account.
    #[error("there is no such endpoint")]
    UnknownEndpoint,
    /// No such event in the account.
    #[error("there is no such event")]
    UnknownEvent,
    /// No such delivery in the account.
    #[error("there is no such delivery")]
    UnknownDelivery,
    /// No such worker queue.
    #[error("there is no such queue; make one as an endpoint with `queue` in place of `url`")]
    UnknownQueue,
    /// A queue of that name exists.
    #[error("the queue `{name}` exists already; names of queues are unique in a store")]
    QueueExists {
        /// The name.
        name: Text,
    },
    /// A URL cannot become a queue, nor a queue another one or a URL.
    #[error("an endpoint stays a URL, or the queue that it is: make another one")]
    QueueFixed,
    /// The lease is over, or never was one.
    #[error(
        "the lease is over: the job was ended, or went back to its queue because nothing was heard of its worker; \
         drop this result and claim again"
    )]
    LeaseOver,
    /// The event id was used for other content.
    #[error(
        "the event id was used before for other content; ids are unique in an account: send the same bytes, \
         or a new id"
    )]
    EventIdReused,
    /// The event goes to too many endpoints.
    #[error("{matching} endpoints want this event and {FAN_OUT_MAX} is the most; narrow their event types")]
    FanOutTooWide {
        /// How many want it.
        matching: usize,
    },
    /// The account is full.
    #[error("the account has {max} endpoints, which is the most")]
    TooManyEndpoints {
        /// The most that there may be.
        max: usize,
    },
    /// Standard Webhooks signatures cannot cover a body that is not UTF-8 (rule W4).
    #[error(
        "the body is not UTF-8 and {endpoint} is sent Standard Webhooks signatures, which cannot be verified \
         over it; switch that signature off for the endpoint, or send text"
    )]
    NotUtf8 {
        /// The endpoint in the way.
        endpoint: EndpointId,
    },
    /// The endpoint was changed meanwhile.
    #[error("the endpoint is now of version {version}; read it again and repeat the change")]
    VersionConflict {
        /// The version now.
        version: u32,
    },
    /// No live signing key has that id.
    #[error("no key of this id signs for the endpoint; its live keys are shown with its secrets")]
    UnknownKey,
    /// The newest key cannot be retired.
    #[error("this is the newest key, and something must sign: rotate it instead, with an overlap of 0")]
    NewestKey,
    /// No key of the API has that id.
    #[error("there is no such key")]
    UnknownApiKey,
    /// The key of the API was revoked.
    #[error("the key is revoked already; make another")]
    KeyRevoked,
    /// The link was used, or its time is over, or it never was.
    #[error("the link was used or is too old; ask for another")]
    LinkSpent,
    /// A pause of a held endpoint, or a resume of a running one.
    #[error("the endpoint is {state} already")]
    AlreadySo {
        /// As it is.
        state: &'static str,
    },
    /// The `Idempotency-Key` was used for another request.
    #[error("the Idempotency-Key was used for another request in the last 24 hours; use a new one")]
    KeyReused,
    /// The same request is being done, or its outcome was lost.
    #[error(
        "this request is being done under its Idempotency-Key, or the server stopped while it was: ask again in a \
         moment; if it stays so, look whether it was done, and use a new key if not"
    )]
    KeyInUse,
    /// The endpoint is disabled: what is sent again would wait behind that.
    #[error("{endpoint} is disabled: resume it first")]
    Disabled {
        /// The endpoint in the way.
        endpoint: EndpointId,
    },
    /// The endpoint is paused: what is to be tried at once would wait behind that.
    #[error("{endpoint} is paused: resume it, and what it holds goes out in order")]
    Paused {
        /// The endpoint in the way.
        endpoint: EndpointId,
    },
    /// The endpoint was removed.
    #[error("{endpoint} was removed; nothing is sent to it any more")]
    Removed {
        /// The endpoint that is gone.
        endpoint: EndpointId,
    },
    /// Every endpoint that wants the event now has a delivery of it.
    #[error(
        "every endpoint that wants this event now has a delivery of it already; replay those that are dead, or all"
    )]
    NothingMissing,
    /// No such bulk replay in the account.
    #[error("there is no such replay")]
    UnknownReplay,
    /// A bulk replay that runs no more, or is elsewhere than the asker thinks.
    #[error("the replay is {state}")]
    ReplayNotThere {
        /// As it is.
        state: &'static str,
    },
    /// Too many bulk replays at a time.
    #[error("{BULK_RUNNING_MAX} bulk replays are running, which is the most; wait for one, or cancel it")]
    TooManyReplays,
    /// Nothing to replay.
    #[error("{}", nothing_to_replay(.statuses))]
    NothingToReplay {
        /// What its deliveries are instead.
        statuses: Vec<Status>,
    },
    /// Only a waiting delivery can be hurried or called off.
    #[error("the delivery is {}; only a pending one can be {wish}", .status.as_str())]
    NotPending {
        /// As it is.
        status: Status,
        /// What was wished.
        wish: &'static str,
    },
    /// The disk is nearly full.
    #[error("the disk is nearly full: events are not taken in until space is freed")]
    NoRoom,
    /// The server is stopping.
    #[error("the server is stopping; send this again in a moment")]
    Draining,
    /// The write failed: nobody knows whether it was done.
    #[error(
        "the write failed and its outcome is unknown; send this again with the same id once the server runs"
    )]
    OutcomeUnknown,
}

fn nothing_to_replay(statuses: &[Status]) -> String {
    if statuses.is_empty() {
        return "no endpoint was subscribed to this event, so there is nothing to replay".into();
    }
    let words: Vec<_> = statuses.iter().map(|status| status.as_str()).collect();
    let hint = if statuses.contains(&Status::Pending) {
        "use retry-now to try a pending one at once"
    } else if statuses.contains(&Status::InFlight) {
        "wait for the attempt in flight"
    } else if statuses.contains(&Status::Delivered) {
        "say that all are meant (scope `all`, `--all`) to send delivered ones again"
    } else {
        "what was cancelled stays so; send the event to that endpoint alone, under a new id"
    };
    format!("nothing is dead here ({}); {hint}", words.join(", "))
}

/// What a fact says of a body: length, type and salted hash.
pub fn body_ref(body: &Body, content_type: &str) -> BodyRef {
    BodyRef { len: body.bytes.len() as u32, content_type: content_type.into(), hash: body.hash() }
}
