//! All that the page about one event shows, read in one state: the answer, every delivery with its facts and
//! attempts, the facts of its endpoint meanwhile, and the tries that are planned.
//!
//! Never knows how it is shown. What a customer may not see is left out here already.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use hooklog_projections::account::Endpoint;
use hooklog_projections::event::Event;
use hooklog_projections::fact::{Entry, Fact, Failure};
use hooklog_projections::hour::{Hour, hour_of};
use hooklog_projections::ids::{AccountId, AttemptId, DeliveryId, DeliveryKey, EndpointKey, EventId};
use hooklog_projections::lifecycle::{Delivery, State};
use hooklog_projections::policy::Text;
use hooklog_projections::time::{Millis, Timestamp};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::attempts::{self, AttemptOut};
use super::events::{self, sight_at};
use super::policies::moment_text;
use super::problem::Problem;
use super::tried::{self, RequestOut};
use super::wire::{DeliveryOut, Include, timeline_entry};
use super::{ApiState, deliveries};
use crate::explain::Explanation;
use crate::log::BodySlot;
use crate::scheduler::RetryPolicy;
use crate::views::View;

/// Facts of an endpoint that one delivery's timeline shows.
const CHANGES_MAX: usize = 200;
/// Requests that are shown as they were made, the newest ones.
const REQUESTS_MAX: usize = 12;
/// Planned tries that are told one by one.
const PLANNED_MAX: usize = 30;

/// One event, and what became of it.
pub(crate) struct Answer {
    pub id: EventId,
    pub account: AccountId,
    pub account_name: Text,
    pub event: Event,
    pub explanation: Explanation,
    /// The moment that is looked at, if it is not now.
    pub as_of: Option<Timestamp>,
    /// The moment of the answer.
    pub now: Timestamp,
    pub deliveries: Vec<Told>,
    /// What is sent, byte for byte.
    pub body: Bytes,
}

/// One delivery of it.
pub(crate) struct Told {
    pub id: DeliveryId,
    pub row: Delivery,
    pub out: DeliveryOut,
    pub explanation: Explanation,
    /// As it was at that moment.
    pub endpoint: Endpoint,
    pub endpoint_key: EndpointKey,
    /// Its facts and those of its endpoint meanwhile, oldest first.
    pub story: Vec<Entry>,
    pub attempts: Vec<AttemptOut>,
    /// The requests of the newest of them, as they were made.
    pub requests: Vec<(AttemptId, RequestOut)>,
    /// Nominal moments of the tries that would follow the next one.
    pub planned: Vec<Timestamp>,
    /// Tries after those.
    pub planned_more: usize,
    /// How its endpoint fared in the hour of its newest attempt.
    pub hour: Option<(Timestamp, Hour)>,
}

/// The answer about an event, in the account that was named, else in the only one that has it.
pub(crate) fn of_event(
    api: &ApiState,
    view: &View<'_>,
    id: &str,
    account: Option<AccountId>,
    at: Option<Timestamp>,
) -> Result<Answer, Problem> {
    let (account, id, row) = events::find(view, id, account)?;
    let account_name = super::accounts::known(view, account)?.settings.name;
    let mut sight = sight_at(api, view, account, at)?;
    let now = at.unwrap_or_else(|| api.now());
    let (mut told, mut answers) = (Vec::new(), Vec::new());
    for (key, delivery) in sight.deliveries(&row)? {
        let one = of_delivery(api, view, &mut sight, key, delivery, now)?;
        answers.push((one.row.state.status(), one.explanation.clone()));
        told.push(one);
    }
    let explanation = sight.explain_event(&row, &answers);
    let body = view.body(BodySlot::Event(row.accepted))?;
    let body = body.ok_or_else(|| Problem::internal(&format!("the body of {id} is missing")))?.bytes;
    Ok(Answer { id, account, account_name, event: row, explanation, as_of: at, now, deliveries: told, body })
}

/// The event of a delivery, and where: what a deep link leads to.
pub(crate) fn event_of_delivery(
    view: &View<'_>,
    id: &str,
    account: Option<AccountId>,
) -> Result<(AccountId, EventId, DeliveryId), Problem> {
    let (key, row) = deliveries::find(view, id, account)?;
    Ok((key.account, row.event.clone(), view.delivery_id(key, &row)))
}

/// The delivery that an attempt is of.
pub(crate) fn delivery_of_attempt(
    view: &View<'_>,
    id: &str,
    account: Option<AccountId>,
) -> Result<DeliveryId, Problem> {
    tried::delivery_of(view, id, account).map(|(key, row)| view.delivery_id(key, &row))
}

fn of_delivery(
    api: &ApiState,
    view: &View<'_>,
    sight: &mut super::wire::Sight<'_>,
    key: DeliveryKey,
    row: Delivery,
    now: Timestamp,
) -> Result<Told, Problem> {
    let out = sight.delivery(key, &row, Include { payload: false, last_error: true })?;
    let explanation = sight.explain(key, &row)?;
    let (account, endpoint) = sight.parties(row.endpoint)?;
    let endpoint_key = EndpointKey { account: key.account, endpoint: row.endpoint };
    let mut story = view.story(&row)?;
    let mut attempts = attempts::of(view, &story)?;
    if api.is_customer() {
        attempts.iter_mut().for_each(AttemptOut::hide_internals);
    }
    let begun = story.iter().rev().filter(|entry| matches!(entry.fact, Fact::Attempted { .. }));
    let mut requests = Vec::new();
    for begun in begun.take(REQUESTS_MAX) {
        let made = tried::request_of(api, view, (key, &row), begun)?;
        requests.extend(made.map(|made| (view.attempt_id(begun.seq, begun.at), made)));
    }
    let upto = sight.upto();
    // A receiver that asks for patience is on the log right behind the answer that it did so with.
    let asking = story.iter().filter(|entry| {
        matches!(&entry.fact, Fact::Failed { failure: Failure::Answered(response), .. } if response.status >= 400)
    });
    let behind: Vec<_> = asking.map(|entry| entry.seq.next()).filter(|seq| *seq <= upto).collect();
    for seq in behind {
        let entry = view.entry(seq)?;
        if matches!(&entry.fact, Fact::EndpointGated { key, .. } if *key == endpoint_key) {
            story.push(entry);
        }
    }
    for entry in view.changes(endpoint_key, (row.accepted, upto), CHANGES_MAX)? {
        // Messages to the owner may be about others: those about this one follow.
        if !matches!(&entry.fact, Fact::TellingBegan { .. } | Fact::OwnerTold { .. }) {
            story.push(entry);
        }
    }
    story.extend(view.tellings_of(&story, upto)?);
    story.sort_by_key(|entry| entry.seq);
    let policy = &api.shared.options.policy;
    let tries = sight.tries(&row)?;
    let schedule = policy.schedule_of(&account, &endpoint.settings);
    let (planned, planned_more) =
        planned(&row, tries, &RetryPolicy::of(schedule), |wait| policy.played(wait), now);
    let hour = row.last_attempt.as_ref().map(|last| hour_of(last.at));
    let hour = match hour {
        Some(hour) => {
            let figures = view.hours(key.account, Some(row.endpoint), (hour, hour), 1)?;
            let begins = Timestamp(u64::from(hour) * 3_600_000);
            figures.into_iter().next().map(|(_, figures)| (begins, figures))
        }
        None => None,
    };
    Ok(Told {
        id: view.delivery_id(key, &row),
        row,
        out,
        explanation,
        endpoint,
        endpoint_key,
        story,
        attempts,
        requests,
        planned,
        planned_more,
        hour,
    })
}

/// The tries after the next one, if each fails at once and no draw moves it.
fn planned(
    row: &Delivery,
    tries: u32,
    policy: &RetryPolicy,
    played: impl Fn(Millis) -> Millis,
    now: Timestamp,
) -> (Vec<Timestamp>, usize) {
    let next = match row.state {
        State::Pending { due_at } => due_at.max(now),
        State::InFlight { started_at, .. } => started_at,
        _ => return (Vec::new(), 0),
    };
    let (mut at, mut out) = (next, Vec::new());
    for used in row.tries + 1..tries {
        if out.len() == PLANNED_MAX {
            return (out, (tries - used) as usize);
        }
        at = at + played(policy.nominal(used));
        out.push(at);
    }
    (out, 0)
}

/// All that there is of an event in one piece: the answer, the facts in their order, the attempts with their requests
/// and answers, and the payload byte for byte with its SHA-256.
pub(crate) fn evidence(api: &ApiState, seen: &Answer) -> Value {
    let hash: String = Sha256::digest(&seen.body).iter().map(|byte| format!("{byte:02x}")).collect();
    let deliveries: Vec<_> = seen.deliveries.iter().map(|told| {
        let facts: Vec<_> = told.story.iter().map(|entry| raw(api, entry)).collect();
        let requests: Vec<_> = told.requests.iter().map(|(_, made)| made).collect();
        json!({
            "delivery": told.out, "explanation": told.explanation, "facts": facts, "attempts": told.attempts,
            "requests": requests,
        })
    }).collect();
    json!({
        "read_at": moment_text(api.now()),
        "as_of": seen.as_of.map(moment_text),
        "event": {
            "id": seen.id, "account_id": seen.account, "account_name": seen.account_name,
            "type": seen.event.event_type, "accepted_at": moment_text(seen.event.accepted_at),
            "content_type": seen.event.body.content_type, "size": seen.body.len(), "sha256": hash,
            "payload_base64": STANDARD.encode(&seen.body),
        },
        "explanation": seen.explanation,
        "deliveries": deliveries,
    })
}

/// A fact as a program reads it, for whoever wants it raw.
pub(crate) fn raw(api: &ApiState, entry: &Entry) -> Value {
    timeline_entry(entry, None, None, !api.is_customer())
}
