//! What goes out, as JSON: accounts, endpoints, events, deliveries and the facts of a timeline.
//!
//! No secret has a shape here but in the answer that cuts it; log positions stand in timelines only. Never
//! decides, and never knows who asks.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hooklog_projections::account::{Account, Endpoint, Hold};
use hooklog_projections::counts::Counts;
use hooklog_projections::event::Event;
use hooklog_projections::fact::{
    AccountSettings, BodyForm, DeadReason, DisabledReason, Entry, Fact, Failure,
};
use hooklog_projections::ids::{
    AccountId, AttemptId, DeliveryId, DeliveryKey, EndpointId, EndpointKey, EventId, Seq,
};
use hooklog_projections::lane::Lane;
use hooklog_projections::lifecycle::{Delivery, State, Status};
use hooklog_projections::policy::{ErrorClass, ResponsePolicy, Rollout};
use hooklog_projections::tables::EndpointDelivery;
use hooklog_projections::telling::Word;
use hooklog_projections::time::{Millis, Timestamp};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::ApiState;
use super::attempts::is_told;
use super::fields::too_deep;
use super::openapi::words;
use super::policies::{moment_text, schedule_json};
use super::problem::Problem;
use crate::explain::{Explanation, Known, OpenBreaker, actor, explain, explain_event, not_yet_taken_in};
use crate::log::BodySlot;
use crate::scheduler::Breaker;
use crate::views::{Moment, View};

/// Stands for a value that is somebody's secret.
pub const REDACTED: &str = "[redacted]";

#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Account)]
pub struct AccountOut {
    #[schema(value_type = String)]
    pub id: AccountId,
    pub name: String,
    #[schema(required = true)]
    pub owner_email: Option<String>,
    #[schema(value_type = Option<words::Schedule>, required = true)]
    pub schedule: Option<Value>,
    #[schema(value_type = Option<words::ResponsePolicy>, required = true)]
    pub response_policy: Option<ResponsePolicy>,
    #[schema(value_type = words::Rollout)]
    pub webhook_retries: Rollout,
    #[schema(format = DateTime)]
    pub created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub secret: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub deliveries: Option<CountsOut>,
}

#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Counts)]
pub struct CountsOut {
    pub enqueued: u64,
    pub pending: u64,
    pub in_flight: u64,
    pub delivered: u64,
    pub dead: u64,
    pub cancelled: u64,
}

#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Endpoint)]
pub struct EndpointOut {
    #[schema(value_type = String)]
    pub id: EndpointId,
    #[schema(value_type = String)]
    pub account_id: AccountId,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub queue: Option<String>,
    pub event_types: Vec<String>,
    pub description: String,
    #[schema(value_type = Option<words::Schedule>, required = true)]
    pub schedule: Option<Value>,
    #[schema(value_type = Option<words::ResponsePolicy>, required = true)]
    pub response_policy: Option<ResponsePolicy>,
    pub timeout_ms: u64,
    pub in_flight_max: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub rate_per_second: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub disable_after_secs: Option<u64>,
    #[schema(value_type = words::BodyForm)]
    pub body_form: BodyForm,
    #[schema(value_type = Vec<words::Scheme>)]
    pub signature_schemes: Vec<&'static str>,
    /// Whether it has a secret of its own for `X-Ledger-Signature`, in place of its account's.
    pub own_ledger_secret: bool,
    /// Names as set; values are credentials as a rule, and stay inside.
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    pub headers: Map<String, Value>,
    pub version: u32,
    #[schema(value_type = words::EndpointStatus)]
    pub status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub held: Option<HeldOut>,
    #[schema(format = DateTime)]
    pub created_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub signing_secret: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Held)]
pub struct HeldOut {
    pub reason: String,
    #[schema(format = DateTime)]
    pub since: String,
}

#[derive(Serialize, utoipa::ToSchema)]
pub struct DeliveryRef {
    #[schema(value_type = String)]
    pub id: DeliveryId,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    pub endpoint_id: Option<EndpointId>,
}

#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Event)]
pub struct EventOut {
    #[schema(value_type = String)]
    pub id: EventId,
    #[schema(value_type = String)]
    pub account_id: AccountId,
    pub r#type: String,
    #[schema(format = DateTime)]
    pub accepted_at: String,
    pub size: u32,
    pub content_type: String,
    pub deliveries: Vec<DeliveryOut>,
    pub explanation: Explanation,
}

#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Delivery)]
pub struct DeliveryOut {
    #[schema(value_type = String)]
    pub id: DeliveryId,
    #[schema(value_type = String)]
    pub event_id: EventId,
    pub event_type: String,
    #[schema(value_type = String)]
    pub account_id: AccountId,
    #[schema(value_type = String)]
    pub endpoint_id: EndpointId,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub endpoint_url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub queue: Option<String>,
    #[schema(value_type = words::Status)]
    pub status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<words::HeldBy>, nullable = false)]
    pub held_by: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime, nullable = false)]
    pub due_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime, nullable = false)]
    pub expire_at: Option<String>,
    pub run: u32,
    pub r#try: u32,
    pub tries: u32,
    pub attempts: u32,
    #[schema(format = DateTime)]
    pub created_at: String,
    #[schema(format = DateTime)]
    pub updated_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub last_attempt: Option<LastAttemptOut>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<words::DeadReason>, nullable = false)]
    pub dead_reason: Option<DeadReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = serde_json::Value)]
    pub payload: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub payload_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub last_error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub explanation: Option<Explanation>,
}

#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = LastAttempt)]
pub struct LastAttemptOut {
    pub number: u32,
    pub at: String,
    pub took_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub status_code: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<words::ErrorClass>, nullable = false)]
    pub error: Option<ErrorClass>,
}

/// What a list of deliveries shows on top.
#[derive(Clone, Copy, Default)]
pub struct Include {
    pub payload: bool,
    pub last_error: bool,
}

pub fn account(id: AccountId, row: &Account) -> AccountOut {
    let settings = &row.settings;
    AccountOut {
        id,
        name: settings.name.to_string(),
        owner_email: settings.owner_email.as_ref().map(ToString::to_string),
        schedule: settings.schedule.as_ref().map(schedule_json),
        response_policy: settings.response_policy,
        webhook_retries: settings.webhook_retries,
        created_at: moment_text(row.created_at),
        secret: None,
        deliveries: None,
    }
}

pub fn counts(counts: &Counts) -> CountsOut {
    let Counts { accepted: _, enqueued, pending, in_flight, delivered, dead, cancelled } = *counts;
    CountsOut { enqueued, pending, in_flight, delivered, dead, cancelled }
}

pub fn endpoint(key: EndpointKey, row: &Endpoint) -> EndpointOut {
    let settings = &row.settings;
    let schemes = [(settings.schemes.standard, "standard"), (settings.schemes.ledger, "ledger")];
    EndpointOut {
        id: key.endpoint,
        account_id: key.account,
        url: settings.url.to_string(),
        queue: settings.queue.as_ref().map(ToString::to_string),
        event_types: settings.event_types.iter().map(ToString::to_string).collect(),
        description: settings.description.to_string(),
        schedule: settings.schedule.as_ref().map(schedule_json),
        response_policy: settings.response_policy,
        timeout_ms: settings.timeout.0,
        in_flight_max: settings.in_flight_max,
        rate_per_second: settings.rate_per_second,
        disable_after_secs: settings.disable_after.map(|after| after.0 / 1000),
        body_form: settings.body_form,
        signature_schemes: schemes.into_iter().filter(|(on, _)| *on).map(|(_, name)| name).collect(),
        own_ledger_secret: row.secret.is_some(),
        headers: settings.headers.iter().map(|(name, _)| (name.to_string(), REDACTED.into())).collect(),
        version: row.version,
        status: match &row.hold {
            None => "active",
            Some(Hold::Paused { .. }) => "paused",
            Some(Hold::Disabled { .. }) => "disabled",
            Some(Hold::Removed { .. }) => "removed",
        },
        held: row.hold.as_ref().map(|hold| match hold {
            Hold::Paused { reason, at } | Hold::Removed { reason, at } => {
                HeldOut { reason: reason.to_string(), since: moment_text(*at) }
            }
            Hold::Disabled { reason, at } => {
                HeldOut { reason: disabled_words(reason), since: moment_text(*at) }
            }
        }),
        created_at: moment_text(row.created_at),
        signing_secret: None,
    }
}

fn disabled_words(reason: &DisabledReason) -> String {
    match reason {
        DisabledReason::Gone => "it answered 410 (gone)".into(),
        DisabledReason::Requested(reason) => reason.to_string(),
        DisabledReason::Failing { since } => format!("it did nothing but fail since {}", moment_text(*since)),
    }
}

/// The deliveries of one account, seen in one state: what each needs besides its row is read once.
pub struct Sight<'a> {
    api: &'a ApiState,
    view: &'a View<'a>,
    id: AccountId,
    account: Account,
    endpoints: HashMap<EndpointId, (Endpoint, Lane)>,
    now: Timestamp,
    /// All is seen as it was then.
    moment: Option<Moment>,
}

impl<'a> Sight<'a> {
    /// `None` if there is no such account.
    pub fn of(api: &'a ApiState, view: &'a View<'a>, id: AccountId) -> Result<Option<Sight<'a>>, Problem> {
        let account = view.account(id)?;
        let now = api.now();
        let endpoints = HashMap::new();
        Ok(account.map(|account| Sight { api, view, id, account, endpoints, now, moment: None }))
    }

    /// The same as it was at an earlier moment.
    ///
    /// # Errors
    /// 400 for a moment to come.
    pub fn at(mut self, at: Timestamp) -> Result<Sight<'a>, Problem> {
        // Of the second that is under way, all that was so far.
        let at = if at.since(self.now) < Millis(1_000) { at.min(self.now) } else { at };
        if at > self.now {
            return Err(Problem::query("at", "the moment lies ahead, and nobody knows what will be"));
        }
        let moment = self.view.moment(at)?;
        // Before it was made nothing of it was there, and that is what is said.
        self.account = self.view.account_at(self.id, moment)?.unwrap_or(self.account);
        (self.now, self.moment) = (at, Some(moment));
        Ok(self)
    }

    /// A delivery as it is at the moment that is looked at; `None` if it was not there yet.
    pub fn row(&self, now: &Delivery) -> Result<Option<Delivery>, Problem> {
        match self.moment {
            Some(moment) => Ok(self.view.delivery_at(now, moment)?),
            None => Ok(Some(now.clone())),
        }
    }

    /// A delivery as JSON.
    pub fn delivery(
        &mut self,
        key: DeliveryKey,
        row: &Delivery,
        include: Include,
    ) -> Result<DeliveryOut, Problem> {
        let (api, view, now, tries) = (self.api, self.view, self.now, self.tries(row)?);
        let breaker = self.breaker(row)?;
        let (endpoint, lane) = self.endpoint(row.endpoint)?;
        let due_at = match row.state {
            State::Pending { due_at } => Some(due_at),
            _ => None,
        };
        let held_by = due_at.and_then(|due_at| match &endpoint.hold {
            Some(Hold::Paused { .. }) => Some("paused"),
            Some(Hold::Disabled { .. }) => Some("disabled"),
            Some(Hold::Removed { .. }) => Some("removed"),
            None if lane.gate_until > now && lane.gate_until >= due_at => Some("gate"),
            None if breaker
                .is_some_and(|open| open.lets_through(due_at, lane.in_flight > 0) > now.max(due_at)) =>
            {
                Some("breaker")
            }
            None => None,
        });
        let endpoint_url = endpoint.settings.url.to_string();
        let queue = endpoint.settings.queue.as_ref().map(ToString::to_string);
        let updated_at = match row.state {
            State::InFlight { started_at: at, .. }
            | State::Delivered { at }
            | State::Dead { at, .. }
            | State::Cancelled { at } => at,
            State::Pending { .. } | State::Deciding { .. } => view.entry(row.latest)?.at,
        };
        let (payload, payload_base64) =
            if include.payload { payload(view, row.accepted)? } else { (None, None) };
        let in_flight = matches!(row.state, State::InFlight { .. } | State::Deciding { .. });
        Ok(DeliveryOut {
            id: view.delivery_id(key, row),
            event_id: row.event.clone(),
            event_type: row.event_type.to_string(),
            account_id: key.account,
            endpoint_id: row.endpoint,
            endpoint_url,
            queue,
            status: row.state.status().as_str(),
            held_by,
            due_at: due_at.map(moment_text),
            expire_at: row.expire_at.map(moment_text),
            run: row.run,
            r#try: row.tries + u32::from(in_flight),
            tries,
            attempts: row.attempts,
            created_at: moment_text(row.enqueued_at),
            updated_at: moment_text(updated_at),
            last_attempt: row.last_attempt.as_ref().map(|last| LastAttemptOut {
                number: last.attempt,
                at: moment_text(last.at),
                took_ms: last.took.0,
                status_code: last.status,
                error: last.error,
            }),
            dead_reason: match &row.state {
                State::Dead { reason, .. } => Some(reason.clone()),
                _ => None,
            },
            payload,
            payload_base64,
            last_error: if include.last_error { last_error(view, row, !api.is_customer())? } else { None },
            explanation: None,
        })
    }

    /// The answer about a delivery.
    pub fn explain(&mut self, key: DeliveryKey, row: &Delivery) -> Result<Explanation, Problem> {
        let place = EndpointKey { account: self.id, endpoint: row.endpoint };
        let place = EndpointDelivery { endpoint: place, delivery: key.seq };
        let Some(delivery) = &self.row(row)? else {
            return Ok(not_yet_taken_in(&row.event_type, row.enqueued_at, self.now));
        };
        let upto = self.moment.map_or(Seq(u64::MAX), |moment| moment.upto);
        let word = &match &delivery.state {
            State::Dead { .. } => self.view.word_of(place, delivery.latest, upto)?,
            _ => Word::Owed,
        };
        let story = &self.view.story(delivery)?;
        let (tries, now, as_of) = (self.tries(delivery)?, self.now, self.moment.is_some());
        let breaker = match (self.breaker(delivery)?, &delivery.state) {
            (Some(open), State::Pending { due_at }) => Some(open.lets_through(*due_at, false)),
            _ => None,
        };
        let (_, lane) = self.endpoint(row.endpoint)?;
        let breaker = breaker.map(|until| OpenBreaker { failures: lane.down, until });
        let (gate_until, waiting) = (lane.gate_until, (!as_of).then_some(lane.waiting));
        let (endpoint, account) = (&self.endpoints[&row.endpoint].0, &self.account);
        let known = Known {
            delivery,
            story,
            endpoint,
            account,
            gate_until,
            breaker,
            waiting,
            tries,
            word,
            now,
            as_of,
        };
        Ok(explain(&known))
    }

    /// The answer about an event, from those about its deliveries.
    pub fn explain_event(&self, row: &Event, answers: &[(Status, Explanation)]) -> Explanation {
        match self.moment {
            Some(moment) if moment.upto < row.accepted => {
                not_yet_taken_in(&row.event_type, row.accepted_at, self.now)
            }
            moment => explain_event(&row.event_type, row.accepted_at, answers, self.now, moment.is_some()),
        }
    }

    /// An event with its deliveries and the answer about it.
    pub fn event(&mut self, id: &EventId, row: &Event) -> Result<EventOut, Problem> {
        let (mut deliveries, mut answers) = (Vec::new(), Vec::new());
        for (key, delivery) in self.deliveries(row)? {
            deliveries.push(self.delivery(key, &delivery, Include::default())?);
            answers.push((delivery.state.status(), self.explain(key, &delivery)?));
        }
        Ok(EventOut {
            id: id.clone(),
            account_id: self.id,
            r#type: row.event_type.to_string(),
            accepted_at: moment_text(row.accepted_at),
            size: row.body.len,
            content_type: row.body.content_type.to_string(),
            deliveries,
            explanation: self.explain_event(row, &answers),
        })
    }

    /// An event's deliveries, in the order of its endpoints.
    pub fn deliveries(&self, row: &Event) -> Result<Vec<(DeliveryKey, Delivery)>, Problem> {
        let mut found = Vec::new();
        for seq in row.delivery_seqs() {
            let key = DeliveryKey { account: self.id, seq };
            let delivery = self.view.delivery(key)?;
            let missing = || Problem::internal(&format!("the delivery at {seq} is missing"));
            if let Some(delivery) = self.row(&delivery.ok_or_else(missing)?)? {
                found.push((key, delivery));
            }
        }
        Ok(found)
    }

    /// How many tries a run of a delivery has.
    pub fn tries(&mut self, row: &Delivery) -> Result<u32, Problem> {
        let policy = &self.api.shared.options.policy;
        let (id, owner) = (self.id, self.account.settings.clone());
        let (endpoint, _) = self.endpoint(row.endpoint)?;
        Ok(policy.tries(id, &owner, &endpoint.settings, row.max_tries))
    }

    /// The circuit breaker of a delivery's endpoint, if it is open. Of the past it is not known.
    fn breaker(&mut self, row: &Delivery) -> Result<Option<Breaker>, Problem> {
        let (policy, owner) = (&self.api.shared.options.policy, self.account.settings.clone());
        let (endpoint, lane) = self.endpoint(row.endpoint)?;
        Ok(policy.breaker(lane, policy.schedule_of(&owner, &endpoint.settings)))
    }

    /// The host that an endpoint's requests go to; never more of its URL.
    pub fn host(&mut self, id: EndpointId) -> Result<Option<String>, Problem> {
        let (endpoint, _) = self.endpoint(id)?;
        let url = url::Url::parse(&endpoint.settings.url).ok();
        Ok(url.as_ref().and_then(|url| url.host_str()).map(str::to_owned))
    }

    /// The account and an endpoint, as they were at the moment that is looked at.
    pub fn parties(&mut self, id: EndpointId) -> Result<(AccountSettings, Endpoint), Problem> {
        let account = self.account.settings.clone();
        Ok((account, self.endpoint(id)?.0.clone()))
    }

    /// The last entry that counts.
    pub fn upto(&self) -> Seq {
        self.moment.map_or(self.view.head(), |moment| moment.upto)
    }

    fn endpoint(&mut self, id: EndpointId) -> Result<&(Endpoint, Lane), Problem> {
        match self.endpoints.entry(id) {
            Slot::Occupied(slot) => Ok(slot.into_mut()),
            Slot::Vacant(slot) => {
                let key = EndpointKey { account: self.id, endpoint: id };
                let (endpoint, lane) = match self.moment {
                    None => (self.view.endpoint(key)?, self.view.lane(key)?),
                    Some(moment) => {
                        let gate_until = self.view.gate_at(key, moment)?;
                        (self.view.endpoint_at(key, moment)?, Lane { gate_until, ..Lane::default() })
                    }
                };
                let endpoint = endpoint.ok_or_else(|| Problem::internal(&format!("{id} is missing")))?;
                Ok(slot.insert((endpoint, lane)))
            }
        }
    }
}

/// An event's bytes: as JSON where they are, else as base64.
pub fn payload(view: &View<'_>, accepted: Seq) -> Result<(Option<Box<RawValue>>, Option<String>), Problem> {
    let body = view.body(BodySlot::Event(accepted))?;
    Ok(body.map_or((None, None), |body| payload_of(&body.bytes)))
}

/// Bytes as JSON where they are, else as base64.
pub fn payload_of(bytes: &[u8]) -> (Option<Box<RawValue>>, Option<String>) {
    let text = String::from_utf8(bytes.to_vec()).ok().filter(|_| too_deep(bytes).is_none());
    match text.and_then(|text| RawValue::from_string(text).ok()) {
        Some(json) => (Some(json), None),
        None => (None, Some(STANDARD.encode(bytes))),
    }
}

/// What the newest attempt died of, from the newest facts back. What the server says of it in its own words is for
/// those who may see all of the store.
fn last_error(view: &View<'_>, row: &Delivery, sees_all: bool) -> Result<Option<String>, Problem> {
    if matches!(row.state, State::Delivered { .. }) || row.last_attempt.is_none() {
        return Ok(None);
    }
    let mut next = Some(row.latest);
    while let Some(seq) = next {
        let entry = view.entry(seq)?;
        match &entry.fact {
            Fact::Failed { failure: Failure::Answered(response), .. } => {
                return Ok(Some(format!("HTTP {}", response.status)));
            }
            Fact::Failed { failure: Failure::Error { class, detail, reason, .. }, .. } => {
                let told = sees_all || is_told(*class);
                let word = || reason.as_ref().map_or_else(|| word_of(class), ToString::to_string);
                return Ok(Some(if told { detail.to_string() } else { word() }));
            }
            Fact::Delivered { .. } => return Ok(None),
            fact => next = fact.of().map(|of| of.previous),
        }
    }
    Ok(None)
}

/// The word of a kind, as it is sent.
fn word_of(kind: &impl Serialize) -> String {
    let word = serde_json::to_value(kind).ok().and_then(|word| word.as_str().map(str::to_owned));
    word.unwrap_or_default()
}

/// One entry of a timeline: its place, its actor, and the fact as plain JSON without secrets. Places in the log,
/// addresses and what went wrong in the server's own words are for those who may see all of the store.
pub fn timeline_entry(
    entry: &Entry,
    delivery: Option<DeliveryId>,
    attempt: Option<AttemptId>,
    sees_all: bool,
) -> Value {
    let mut out = Map::new();
    if sees_all {
        out.insert("seq".into(), entry.seq.0.into());
    }
    out.insert("at".into(), moment_text(entry.at).into());
    out.insert("actor".into(), actor(&entry.actor).into());
    out.insert("fact".into(), entry.fact.name().into());
    if let Some(id) = delivery {
        out.insert("delivery_id".into(), id.to_string().into());
    }
    if let Some(id) = attempt {
        out.insert("attempt_id".into(), id.to_string().into());
    }
    if let Value::Object(rest) = fact(&entry.fact) {
        out.extend(rest);
    }
    if !sees_all {
        out.remove("address");
        match &entry.fact {
            Fact::Failed { failure: Failure::Error { class, .. }, .. } if !is_told(*class) => {
                out.remove("detail");
            }
            Fact::OwnerTold { .. } => {
                out.remove("refused");
            }
            _ => {}
        }
    }
    Value::Object(out)
}

fn fact(fact: &Fact) -> Value {
    match fact {
        Fact::Accepted { event, event_type, body, deliveries, .. } => json!({
            "event_id": event, "event_type": event_type, "size": body.len, "content_type": body.content_type,
            "deliveries": deliveries,
        }),
        Fact::Enqueued { key, due_at, max_tries, expire_at, late, bulk, .. } => json!({
            "endpoint_id": key.endpoint, "due_at": moment_text(*due_at), "max_tries": max_tries,
            "expire_at": expire_at.map(moment_text), "late": late, "replay_id": bulk,
        }),
        Fact::Attempted { attempt, try_number, run, endpoint_version, signed_with, .. } => json!({
            "attempt": attempt, "try": try_number, "run": run, "endpoint_version": endpoint_version,
            "signed_with": signed_with,
        }),
        Fact::Delivered { attempt, response, rule, .. } => json!({
            "attempt": attempt, "status_code": response.code(), "took_ms": response.took,
            "address": response.address, "rule": rule,
        }),
        Fact::Failed { attempt, failure, rule, counted, .. } => match failure {
            Failure::Answered(response) => json!({
                "attempt": attempt, "status_code": response.code(), "took_ms": response.took,
                "address": response.address, "rule": rule, "counted": counted,
            }),
            Failure::Error { class, detail, took, reason, address, .. } => json!({
                "attempt": attempt, "error": class, "reason": reason, "detail": detail, "took_ms": took,
                "address": address, "rule": rule, "counted": counted,
            }),
        },
        Fact::Rescheduled { due_at, rule, .. } => json!({ "due_at": moment_text(*due_at), "rule": rule }),
        Fact::Dead { reason, tell_owner, .. } => json!({ "reason": reason, "tell_owner": tell_owner }),
        Fact::Replayed { was, run, reason, bulk, .. } => json!({
            "was": match was {
                hooklog_projections::fact::Ended::Dead => "dead",
                hooklog_projections::fact::Ended::Delivered => "delivered",
            },
            "run": run, "reason": reason, "replay_id": bulk,
        }),
        Fact::Cancelled { reason, .. } => json!({ "reason": reason }),
        Fact::EndpointPaused { reason, .. } => json!({ "reason": reason }),
        Fact::EndpointDisabled { reason, .. } => json!({ "reason": disabled_words(reason) }),
        Fact::EndpointGated { until, .. } => json!({ "until": moment_text(*until) }),
        Fact::OwnerTold { channel, refused, .. } => json!({ "channel": channel, "refused": refused }),
        Fact::EndpointKeptFailing { since, .. } => json!({ "since": moment_text(*since) }),
        // Settings and secrets: whoever may see them asks for them.
        _ => json!({}),
    }
}
