//! What happened, in the past tense: the one vocabulary of the log.
//!
//! Fields are only appended (with `#[serde(default)]`), variants are never renamed: every store ever written
//! must still be read. A fact names all that a fold needs; it never holds a body or a plain secret, and
//! never knows who reads it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::access::{Role, SecretHash};
use crate::answer::{KeptAnswer, RequestHash};
use crate::course::Course;
use crate::ids::{
    AccountId, ApiKeyId, DeliveryKey, EndpointId, EndpointKey, EventId, KeyId, PortalLinkId, ReplayId, Seq,
    StoreId,
};
use crate::policy::{ErrorClass, ResponsePolicy, Rollout, Schedule, Text};
use crate::time::{Millis, Timestamp};

/// One fact with its place in the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Dense, from 1.
    pub seq: Seq,
    /// Never earlier than the entry before.
    pub at: Timestamp,
    /// Who caused it.
    pub actor: Actor,
    /// What happened.
    pub fact: Fact,
}

/// Who caused a fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Actor {
    /// Hooklog itself: the scheduler, a receiver's answer, recovery.
    Hooklog,
    /// A caller of the API or the library, by the name of its credential.
    Api(Text),
    /// A person at the command line of the host.
    Cli,
    /// A customer in a session of the portal.
    Portal {
        /// Whose pages.
        account: AccountId,
        /// What the session was exchanged for.
        link: PortalLinkId,
    },
}

/// A sealed secret: bytes of `hooklog::secrets`, opaque here.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Sealed(#[serde(with = "bytes_as_bin")] pub Vec<u8>);

impl core::fmt::Debug for Sealed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("[sealed]")
    }
}

/// What a fact says of bytes that lie beside the log: enough to prove them, not to rebuild them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BodyRef {
    /// Bytes.
    pub len: u32,
    /// As the producer or the receiver named it.
    pub content_type: Text,
    /// SHA-256 over salt ‖ bytes; the salt lies with the bytes, so erasing both leaves nothing to guess.
    #[serde(with = "bytes_as_array")]
    pub hash: [u8; 32],
}

/// A log fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// The store began. Always entry 1.
    Founded {
        /// Drawn once; stands in every batch.
        store: StoreId,
        /// The key that turns log positions into public ids; also proves the master key at each start.
        id_key: Sealed,
    },
    /// An account was made.
    AccountCreated {
        /// Its id.
        account: AccountId,
        /// Its settings.
        settings: AccountSettings,
        /// Signs `X-Ledger-Signature`.
        secret: Sealed,
    },
    /// An account's settings were replaced.
    AccountChanged {
        /// Which.
        account: AccountId,
        /// All of them, as they are now.
        settings: AccountSettings,
    },
    /// An account's webhook secret was replaced.
    AccountSecretChanged {
        /// Which.
        account: AccountId,
        /// Signs `X-Ledger-Signature` from now on.
        secret: Sealed,
    },
    /// The secrets of the store were sealed anew, under another master key: all of them, by facts before this.
    Resealed {
        /// As in `Founded`; the one there opens no more.
        id_key: Sealed,
    },
    /// An endpoint was made.
    EndpointCreated {
        /// Its id and owner.
        key: EndpointKey,
        /// Its settings.
        settings: EndpointSettings,
        /// Its signing keys, newest first.
        signing: Vec<SigningKey>,
    },
    /// An endpoint's settings were replaced; its version goes up by one.
    EndpointChanged {
        /// Which.
        key: EndpointKey,
        /// All of them, as they are now.
        settings: EndpointSettings,
        /// All live signing keys, newest first. A changed host has cut a new one (rule W12).
        signing: Vec<SigningKey>,
    },
    /// A person paused an endpoint: its deliveries are held.
    EndpointPaused {
        /// Which.
        key: EndpointKey,
        /// As the person put it.
        reason: Text,
    },
    /// An endpoint was disabled: its deliveries are held until a person resumes it.
    EndpointDisabled {
        /// Which.
        key: EndpointKey,
        /// Why.
        reason: DisabledReason,
    },
    /// A paused or disabled endpoint runs again: what was held drains in order.
    EndpointResumed {
        /// Which.
        key: EndpointKey,
    },
    /// An endpoint asked to be left alone until a moment (`Retry-After`).
    EndpointGated {
        /// Which.
        key: EndpointKey,
        /// No attempt starts before.
        until: Timestamp,
    },
    /// An event was taken in. Its deliveries, if any, are the next `deliveries` entries of the same batch.
    Accepted {
        /// Whose.
        account: AccountId,
        /// Its id, unique in the account.
        event: EventId,
        /// `payment.settled`.
        event_type: Text,
        /// What is sent, envelope included.
        body: BodyRef,
        /// How many `Enqueued` follow; 0 if no endpoint subscribed.
        deliveries: u32,
    },
    /// An event began its way to an endpoint. The delivery is named by this entry's own position.
    Enqueued {
        /// Where to.
        key: EndpointKey,
        /// What.
        event: EventId,
        /// Where the event was accepted; its body lies under this position.
        accepted: Seq,
        /// `payment.settled`.
        event_type: Text,
        /// When the first try is due.
        due_at: Timestamp,
        /// Overrides the schedule's number of tries.
        max_tries: Option<u32>,
        /// Of no use after: dead then, without another request.
        #[serde(default)]
        expire_at: Option<Timestamp>,
        /// Made for an endpoint that never got the event, after it was accepted: this position lies apart from
        /// those that follow `accepted`.
        #[serde(default)]
        late: bool,
        /// The bulk replay that made it.
        #[serde(default)]
        bulk: Option<ReplayId>,
    },
    /// A request is about to leave. Durable before its first byte.
    Attempted {
        /// Which delivery.
        of: Of,
        /// The due time that this retires.
        due_at: Timestamp,
        /// Counts every POST of the delivery, from 1.
        attempt: u32,
        /// Counts the tries of this run, from 1: "try 3 of 6".
        try_number: u32,
        /// From 1; each replay begins another.
        run: u32,
        /// The endpoint's version whose URL and headers are used.
        endpoint_version: u32,
        /// The keys that sign it, in the order of the header.
        signed_with: Vec<KeyId>,
    },
    /// The receiver answered with success.
    Delivered {
        /// Which delivery.
        of: Of,
        /// Its attempt.
        attempt: u32,
        /// What came back.
        response: Response,
        /// The rule of the response policy that said so.
        rule: Text,
    },
    /// An attempt failed. `Rescheduled` or `Dead` follows in the same batch.
    Failed {
        /// Which delivery.
        of: Of,
        /// Its attempt.
        attempt: u32,
        /// What went wrong.
        failure: Failure,
        /// The rule of the response policy that said so.
        rule: Text,
        /// Whether it used up a try: an interrupted or unsent one does not.
        counted: bool,
    },
    /// Another try is planned.
    Rescheduled {
        /// Which delivery.
        of: Of,
        /// When. The jitter is already in it.
        due_at: Timestamp,
        /// The due time that this retires, if the delivery was waiting ("retry now").
        was_due_at: Option<Timestamp>,
        /// The rule that chose the moment.
        rule: Text,
    },
    /// The delivery was given up.
    Dead {
        /// Which delivery.
        of: Of,
        /// Why.
        reason: DeadReason,
        /// The due time that this retires, if the delivery was waiting.
        was_due_at: Option<Timestamp>,
        /// Whether the account's owner is to be told.
        tell_owner: bool,
    },
    /// A person or a program asked for it again: a new run begins at attempt 1 of that run.
    Replayed {
        /// Which delivery.
        of: Of,
        /// The status it had.
        was: Ended,
        /// The new run, from 2.
        run: u32,
        /// When its first try is due.
        due_at: Timestamp,
        /// As the asker put it.
        reason: Text,
        /// The bulk replay that it is part of.
        #[serde(default)]
        bulk: Option<ReplayId>,
    },
    /// A waiting delivery was called off.
    Cancelled {
        /// Which delivery.
        of: Of,
        /// The due time that this retires.
        due_at: Timestamp,
        /// As the asker put it.
        reason: Text,
    },
    /// A message to the account's owner ended: it was taken, or refused for good.
    OwnerTold {
        /// Of which endpoint.
        key: EndpointKey,
        /// Of which deliveries, where the message has no beginning of its own in the log.
        deliveries: Vec<Seq>,
        /// By which way: `mail`, `notifications`, `log`.
        channel: Text,
        /// Where the `TellingBegan` stands that this ends.
        #[serde(default)]
        began: Option<Seq>,
        /// Why it was refused; `None` if it was taken.
        #[serde(default)]
        refused: Option<Text>,
    },
    /// An endpoint's signing keys were replaced: rotated, retired, or sealed anew. Its version stays, for none
    /// of its settings changed.
    SigningKeysChanged {
        /// Which.
        key: EndpointKey,
        /// All live signing keys, newest first.
        signing: Vec<SigningKey>,
    },
    /// Another master key is to follow. Until `Resealed` stands in the log too, the store is sealed under two
    /// keys, and nothing but the end of that is done with it.
    ResealBegan {
        /// As in `Founded`, under the key that is to follow.
        id_key: Sealed,
    },
    /// A key of the API was made.
    ApiKeyCreated {
        /// Its id, which stands in the key's text.
        key: ApiKeyId,
        /// What it may do.
        role: Role,
        /// The only account it reaches; all of them if absent.
        account: Option<AccountId>,
        /// The hash of its secret, which was shown once.
        hash: SecretHash,
        /// For people.
        label: Text,
        /// Taken no more from then on.
        expires_at: Option<Timestamp>,
    },
    /// A key of the API got another secret.
    ApiKeyRotated {
        /// Which.
        key: ApiKeyId,
        /// Its account, if it has one.
        account: Option<AccountId>,
        /// The hash of the new secret.
        hash: SecretHash,
        /// Until when the one before is taken too.
        older_until: Option<Timestamp>,
    },
    /// A key of the API is taken no more.
    ApiKeyRevoked {
        /// Which.
        key: ApiKeyId,
        /// Its account, if it has one.
        account: Option<AccountId>,
    },
    /// A link to an account's pages was made: good for one session.
    PortalLinkCreated {
        /// Its id, which stands in the link's text.
        link: PortalLinkId,
        /// Whose pages.
        account: AccountId,
        /// What the session may do.
        role: Role,
        /// The hash of its secret, which was shown once.
        hash: SecretHash,
        /// Of no use from then on.
        expires_at: Timestamp,
        /// Where the pages lead back to.
        #[serde(default)]
        return_url: Option<Text>,
    },
    /// A link was exchanged for a session, and is of no more use.
    PortalLinkUsed {
        /// Which.
        link: PortalLinkId,
        /// Whose pages.
        account: AccountId,
    },
    /// Secrets were shown again. Durable before they are.
    SecretRevealed {
        /// Of which account.
        account: AccountId,
        /// The endpoint whose signing keys they are; the account's own secret if absent.
        endpoint: Option<EndpointId>,
        /// As the asker put it.
        reason: Text,
    },
    /// A bulk replay began: what its filter finds among what stood in the log before this is sent again, little
    /// by little.
    BulkReplayStarted {
        /// Its id.
        id: ReplayId,
        /// Whose deliveries.
        account: AccountId,
        /// Which of them.
        filter: BulkFilter,
        /// As the asker put it.
        reason: Text,
        /// At most so many begin in a second.
        rate_per_second: u32,
        /// By which subscriptions it chooses.
        routing: Routing,
        /// How many the plan found; more if its search was cut short.
        planned: u64,
    },
    /// A bulk replay went past deliveries without sending them.
    BulkReplayAdvanced {
        /// Which.
        id: ReplayId,
        /// Whose.
        account: AccountId,
        /// It goes on after this position.
        upto: Seq,
        /// How many of those matched, but could not be replayed any more.
        skipped: u32,
    },
    /// A bulk replay was called off. What it had begun goes on.
    BulkReplayCancelled {
        /// Which.
        id: ReplayId,
        /// Whose.
        account: AccountId,
    },
    /// A bulk replay is through.
    BulkReplayEnded {
        /// Which.
        id: ReplayId,
        /// Whose.
        account: AccountId,
        /// How many it sent again.
        replayed: u64,
        /// How many matched, but could not be replayed any more.
        skipped: u64,
    },
    /// An endpoint was removed for good. Nothing is sent to it any more; what waits for it is cancelled, little by
    /// little.
    EndpointRemoved {
        /// Which.
        key: EndpointKey,
        /// As the asker put it.
        reason: Text,
    },
    /// An endpoint got a webhook secret of its own, or gave it up. Its version stays.
    EndpointSecretChanged {
        /// Which.
        key: EndpointKey,
        /// Signs `X-Ledger-Signature` from now on, in place of the account's; `None`: the account's does.
        secret: Option<Sealed>,
    },
    /// A request under an `Idempotency-Key` is about to be done.
    RequestTaken {
        /// Who asked under which key.
        key: RequestHash,
        /// What was asked.
        request: RequestHash,
        /// Older ones whose time is over.
        forgets: Vec<RequestHash>,
    },
    /// A request under an `Idempotency-Key` has ended.
    RequestEnded {
        /// Who asked under which key.
        key: RequestHash,
        /// What was answered; `None`: nothing was done, the key is free again.
        answer: Option<KeptAnswer>,
    },
    /// What an owner is to be told of an endpoint was closed into a message, named by this position, that may leave
    /// from now on.
    TellingBegan {
        /// Of which endpoint.
        key: EndpointKey,
    },
    /// An endpoint has done nothing but fail for as long as its owner is to hear of it.
    EndpointKeptFailing {
        /// Which.
        key: EndpointKey,
        /// Its first failure since its last success.
        since: Timestamp,
    },
}

/// Which deliveries a bulk replay takes. All that is given must hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BulkFilter {
    /// Of which kind.
    pub of: BulkOf,
    /// To this endpoint.
    pub endpoint: Option<EndpointId>,
    /// Of this type: exact, or a prefix before `*`.
    pub event_type: Option<Text>,
    /// Enqueued at or after; for missing ones: accepted.
    pub since: Option<Timestamp>,
    /// Enqueued before; for missing ones: accepted.
    pub until: Option<Timestamp>,
    /// The newest attempt was answered with one of these, if any is given.
    pub http: Vec<StatusRange>,
    /// The newest attempt failed with one of these, if any is given. With `http`: either.
    pub errors: Vec<ErrorClass>,
}

/// What a bulk replay is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BulkOf {
    /// Deliveries that were given up.
    Dead,
    /// Deliveries that arrived.
    Delivered,
    /// Events that an endpoint never got.
    Missing,
}

/// Statuses of HTTP, both ends included: `503` or `5xx`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StatusRange {
    /// The lowest.
    pub from: u16,
    /// The highest.
    pub to: u16,
}

/// By which subscriptions a bulk replay chooses. URL, keys and headers are always the current ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// Those that an event had when it was accepted.
    #[default]
    AsThen,
    /// Of those, the ones that still stand.
    AsNow,
}

/// Which delivery a fact is of, and where its story goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Of {
    /// The owner.
    pub account: AccountId,
    /// The endpoint.
    pub endpoint: EndpointId,
    /// Where it was enqueued.
    pub delivery: Seq,
    /// Where the fact before this one of the same delivery stands: the whole story is a walk back.
    pub previous: Seq,
}

impl Of {
    /// The delivery's key.
    pub fn delivery_key(&self) -> DeliveryKey {
        DeliveryKey { account: self.account, seq: self.delivery }
    }

    /// The endpoint's key.
    pub fn endpoint_key(&self) -> EndpointKey {
        EndpointKey { account: self.account, endpoint: self.endpoint }
    }
}

/// What an account is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountSettings {
    /// As the product calls its customer.
    pub name: Text,
    /// Told of dead deliveries.
    pub owner_email: Option<Text>,
    /// Overrides the server's.
    pub schedule: Option<Schedule>,
    /// Overrides the server's.
    pub response_policy: Option<ResponsePolicy>,
    /// Overrides the server's percentage.
    pub webhook_retries: Rollout,
}

/// What an endpoint is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointSettings {
    /// Where requests go, as serialised by the URL parser.
    pub url: Text,
    /// Which event types it wants: `payment.settled`, `payment.*`, `*`.
    pub event_types: Vec<Text>,
    /// A note for people.
    pub description: Text,
    /// Overrides the account's.
    pub schedule: Option<Schedule>,
    /// Overrides the account's.
    pub response_policy: Option<ResponsePolicy>,
    /// Total time-out of one request.
    pub timeout: Millis,
    /// At most this many requests at a time.
    pub in_flight_max: u32,
    /// Which signatures are sent.
    pub schemes: Schemes,
    /// Sent with every request, in this order.
    pub headers: Vec<(Text, Text)>,
    /// At most this many requests begin in any second.
    #[serde(default)]
    pub rate_per_second: Option<u32>,
    /// Disabled after nothing but failures for this long; the server's default if absent.
    #[serde(default)]
    pub disable_after: Option<Millis>,
    /// What the request's body is.
    #[serde(default)]
    pub body_form: BodyForm,
    /// The name of a worker queue: nothing is sent to a URL (`url` is empty), workers claim what waits. Unique in
    /// the store; an endpoint never becomes one, nor stops being one.
    #[serde(default)]
    pub queue: Option<Text>,
}

/// As they are unless it is said otherwise, but for the URL: every type of event, 10 s, eight requests at a time, both
/// signatures.
impl Default for EndpointSettings {
    fn default() -> EndpointSettings {
        EndpointSettings {
            url: "".into(),
            event_types: alloc::vec!["*".into()],
            description: "".into(),
            schedule: None,
            response_policy: None,
            timeout: Millis(10_000),
            in_flight_max: 8,
            schemes: Schemes { standard: true, ledger: true },
            headers: Vec::new(),
            rate_per_second: None,
            disable_after: None,
            body_form: BodyForm::default(),
            queue: None,
        }
    }
}

/// What a request's body is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BodyForm {
    /// `{"id":…,"type":…,"data":…}`, or the producer's own bytes as they are.
    #[default]
    Envelope,
    /// Only the `data` of an envelope.
    Data,
}

/// Which signatures an endpoint is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schemes {
    /// `webhook-id`, `webhook-timestamp`, `webhook-signature`.
    pub standard: bool,
    /// `X-Ledger-Signature`.
    pub ledger: bool,
}

/// One signing key of an endpoint (Standard Webhooks, symmetric).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SigningKey {
    /// Named in every `Attempted` that it signed.
    pub id: KeyId,
    /// 24 to 64 bytes, sealed.
    pub secret: Sealed,
    /// Signs no more from then on; `None` while it is the newest.
    pub expires_at: Option<Timestamp>,
}

/// Why Hooklog disabled an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DisabledReason {
    /// It answered 410.
    Gone,
    /// A person said so.
    Requested(Text),
    /// Nothing but failures for too long.
    Failing {
        /// Since when.
        since: Timestamp,
    },
}

/// What a receiver answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Response {
    /// The status code. 0 if a worker did the job: there is none then, see [`Response::code`].
    pub status: u16,
    /// The kept part of the body; lies under this entry's position.
    pub body: Option<BodyRef>,
    /// Whether more was sent than is kept.
    pub truncated: bool,
    /// From the moment the attempt was handed out to the end.
    pub took: Millis,
    /// The address that was spoken to.
    pub address: Option<Text>,
    /// How it got there; `None` in logs that are older than it.
    #[serde(default)]
    pub course: Option<Box<Course>>,
    /// Of an answer that is no success, what its head says about mending it: names in lower case and values of
    /// `location`, `retry-after`, `date`, `server`, `x-request-id`. Empty in logs that are older than it.
    #[serde(default)]
    pub fields: Vec<(Text, Text)>,
}

impl Response {
    /// The first value of a kept field; `name` in lower case.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| &**known == name).map(|(_, value)| &**value)
    }

    /// The status code of a receiver's answer; `None` if a worker did the job.
    pub fn code(&self) -> Option<u16> {
        Some(self.status).filter(|status| *status != 0)
    }
}

/// What went wrong with an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Failure {
    /// An answer that is not a success.
    Answered(Response),
    /// No answer.
    Error {
        /// Its kind.
        class: ErrorClass,
        /// For people; holds no secret and no query.
        detail: Text,
        /// How long it took to fail.
        took: Millis,
        /// What exactly it was, by the name of `hooklog::delivery::Reason`, where the kind has several.
        #[serde(default)]
        reason: Option<Text>,
        /// The address that was spoken to last, or could not be.
        #[serde(default)]
        address: Option<Text>,
        /// How far it got; `None` if it never began, and in logs that are older than it.
        #[serde(default)]
        course: Option<Box<Course>>,
    },
}

/// Why a delivery was given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadReason {
    /// All tries are used up.
    Exhausted,
    /// The receiver's answer said that trying again is pointless.
    Refused,
    /// The account's rollout has no retries.
    RetriesOff,
    /// Its `expire_at` passed.
    Expired,
    /// It had been given up elsewhere, before it came here.
    Imported,
}

/// A status that a replay can start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ended {
    /// It had been given up.
    Dead,
    /// It had arrived.
    Delivered,
}

impl Fact {
    /// The delivery that a fact is of, if it is of one. `Enqueued` names itself by its position.
    pub fn of(&self) -> Option<&Of> {
        match self {
            Fact::Attempted { of, .. }
            | Fact::Delivered { of, .. }
            | Fact::Failed { of, .. }
            | Fact::Rescheduled { of, .. }
            | Fact::Dead { of, .. }
            | Fact::Replayed { of, .. }
            | Fact::Cancelled { of, .. } => Some(of),
            _ => None,
        }
    }

    /// The variant's name, as written in the log and shown to people.
    pub fn name(&self) -> &'static str {
        match self {
            Fact::Founded { .. } => "Founded",
            Fact::AccountCreated { .. } => "AccountCreated",
            Fact::AccountChanged { .. } => "AccountChanged",
            Fact::AccountSecretChanged { .. } => "AccountSecretChanged",
            Fact::Resealed { .. } => "Resealed",
            Fact::EndpointCreated { .. } => "EndpointCreated",
            Fact::EndpointChanged { .. } => "EndpointChanged",
            Fact::EndpointPaused { .. } => "EndpointPaused",
            Fact::EndpointDisabled { .. } => "EndpointDisabled",
            Fact::EndpointResumed { .. } => "EndpointResumed",
            Fact::EndpointGated { .. } => "EndpointGated",
            Fact::Accepted { .. } => "Accepted",
            Fact::Enqueued { .. } => "Enqueued",
            Fact::Attempted { .. } => "Attempted",
            Fact::Delivered { .. } => "Delivered",
            Fact::Failed { .. } => "Failed",
            Fact::Rescheduled { .. } => "Rescheduled",
            Fact::Dead { .. } => "Dead",
            Fact::Replayed { .. } => "Replayed",
            Fact::Cancelled { .. } => "Cancelled",
            Fact::OwnerTold { .. } => "OwnerTold",
            Fact::SigningKeysChanged { .. } => "SigningKeysChanged",
            Fact::ResealBegan { .. } => "ResealBegan",
            Fact::ApiKeyCreated { .. } => "ApiKeyCreated",
            Fact::ApiKeyRotated { .. } => "ApiKeyRotated",
            Fact::ApiKeyRevoked { .. } => "ApiKeyRevoked",
            Fact::PortalLinkCreated { .. } => "PortalLinkCreated",
            Fact::PortalLinkUsed { .. } => "PortalLinkUsed",
            Fact::SecretRevealed { .. } => "SecretRevealed",
            Fact::BulkReplayStarted { .. } => "BulkReplayStarted",
            Fact::BulkReplayAdvanced { .. } => "BulkReplayAdvanced",
            Fact::BulkReplayCancelled { .. } => "BulkReplayCancelled",
            Fact::BulkReplayEnded { .. } => "BulkReplayEnded",
            Fact::EndpointRemoved { .. } => "EndpointRemoved",
            Fact::EndpointSecretChanged { .. } => "EndpointSecretChanged",
            Fact::RequestTaken { .. } => "RequestTaken",
            Fact::RequestEnded { .. } => "RequestEnded",
            Fact::TellingBegan { .. } => "TellingBegan",
            Fact::EndpointKeptFailing { .. } => "EndpointKeptFailing",
        }
    }
}

/// Byte strings as one binary value: serde's own `Vec<u8>` is a list of numbers, half as large again.
pub(crate) mod bytes_as_bin {
    use alloc::vec::Vec;
    use core::fmt;

    use serde::de::Visitor;
    use serde::{Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        struct Bytes;
        impl Visitor<'_> for Bytes {
            type Value = Vec<u8>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }
            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
                Ok(bytes.to_vec())
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

/// Thirty-two bytes as one binary value.
pub(crate) mod bytes_as_array {
    use serde::de::Error;
    use serde::{Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8; 32], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(bytes)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 32], D::Error> {
        let bytes = super::bytes_as_bin::deserialize(deserializer)?;
        let len = bytes.len();
        bytes.try_into().map_err(|_| D::Error::invalid_length(len, &"32 bytes"))
    }
}
