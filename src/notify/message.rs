//! What an owner is told, as plain words and as JSON. Pure; holds no payload and no secret, only host names.

use hooklog_projections::account::{Account, Endpoint};
use hooklog_projections::fact::{DeadReason, DisabledReason, EndpointSettings};
use hooklog_projections::ids::{DeliveryId, EndpointKey, Seq};
use hooklog_projections::lifecycle::{Delivery, State};
use serde::Serialize;
use sha2::{Digest, Sha256};

/// Deliveries that a message names one by one; the rest is a number.
pub const NAMED_MAX: usize = 20;

/// What an account's owner is told of one endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// `webhook.deliveries_dead` or `webhook.endpoint_disabled`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The same for the same deliveries, however often it is sent: the receiver's key to drop a repeat.
    pub id: String,
    /// Whose.
    pub account_id: String,
    /// Who is told, if the account says so.
    pub owner_email: Option<String>,
    /// The endpoint.
    pub endpoint_id: String,
    /// Its host.
    pub endpoint_host: String,
    /// How many deliveries died; 0 for a disabled endpoint.
    pub count: usize,
    /// The first of them; none for a disabled endpoint.
    pub deliveries: Vec<DeadDelivery>,
    /// One line.
    pub subject: String,
    /// Plain text.
    pub text: String,
}

/// One dead delivery in a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeadDelivery {
    /// Its id.
    pub id: String,
    /// Its event.
    pub event_id: String,
    /// `payment.settled`.
    pub event_type: String,
    /// How often it was tried in its last run.
    pub tries: u32,
    /// Why it was given up, and how the last attempt ended.
    pub reason: String,
}

/// The message about an endpoint's dead deliveries.
pub fn dead(
    key: EndpointKey,
    account: &Account,
    endpoint: &Endpoint,
    deliveries: &[(DeliveryId, Delivery)],
) -> Message {
    let host = host(&endpoint.settings);
    let named: Vec<_> = deliveries.iter().take(NAMED_MAX).map(|(id, row)| named(*id, row)).collect();
    let count = deliveries.len();
    let events = if count == 1 { "1 event".to_owned() } else { format!("{count} events") };
    let mut text =
        format!("{events} could not be delivered to {host} and will not be tried again by itself.\n");
    for delivery in &named {
        text += &format!("\n{} ({}): {}", delivery.event_id, delivery.event_type, delivery.reason);
    }
    if count > named.len() {
        text += &format!("\nand {} more", count - named.len());
    }
    text += "\n\nOnce the endpoint works again, replay them: nothing is lost.\n";
    let mut hash = Sha256::new();
    for (id, row) in deliveries {
        hash.update(id.to_bytes());
        hash.update(row.run.to_be_bytes());
    }
    let subject = format!("{events} could not be delivered to {host}");
    let about = About { kind: "webhook.deliveries_dead", key, account, host, hash };
    Message { count, deliveries: named, ..about.message(subject, text) }
}

/// The message that Hooklog disabled an endpoint, recorded at `seq`.
pub fn disabled(
    key: EndpointKey,
    account: &Account,
    endpoint: &Endpoint,
    reason: &DisabledReason,
    seq: Seq,
) -> Message {
    let host = host(&endpoint.settings);
    let why = match reason {
        DisabledReason::Gone => "it answered 410 (gone)".to_owned(),
        DisabledReason::Failing { .. } => "it has done nothing but fail for too long".to_owned(),
        DisabledReason::Requested(_) => "somebody asked for it".to_owned(),
    };
    let subject = format!("{host} was disabled");
    let text = format!(
        "Nothing more is sent to {host}, because {why}.\n\nEvents for it are still taken in and held. Once the \
         endpoint works again, resume it: what is held is sent in order.\n"
    );
    let mut hash = Sha256::new();
    hash.update(key.endpoint.to_bytes());
    hash.update(seq.0.to_be_bytes());
    About { kind: "webhook.endpoint_disabled", key, account, host, hash }.message(subject, text)
}

struct About<'a> {
    kind: &'static str,
    key: EndpointKey,
    account: &'a Account,
    host: String,
    /// Over what the message is about.
    hash: Sha256,
}

impl About<'_> {
    fn message(self, subject: String, text: String) -> Message {
        let id: String = self.hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        Message {
            kind: self.kind,
            id: format!("ntf_{id}"),
            account_id: self.key.account.to_string(),
            owner_email: self.account.settings.owner_email.as_deref().map(str::to_owned),
            endpoint_id: self.key.endpoint.to_string(),
            endpoint_host: self.host,
            count: 0,
            deliveries: Vec::new(),
            subject,
            text,
        }
    }
}

fn named(id: DeliveryId, row: &Delivery) -> DeadDelivery {
    let last = match row.last_attempt.as_ref() {
        Some(attempt) => match (attempt.status, attempt.error) {
            (Some(status), _) => format!("the last answer was HTTP {status}"),
            (None, Some(error)) => format!("the last attempt failed ({error:?})").to_lowercase(),
            (None, None) => "the last attempt failed".to_owned(),
        },
        None => "it was never tried".to_owned(),
    };
    let why = match &row.state {
        State::Dead { reason: DeadReason::Exhausted, .. } => format!("gave up after {} tries", row.tries),
        State::Dead { reason: DeadReason::Refused, .. } => "the endpoint refused it for good".to_owned(),
        _ => "given up".to_owned(),
    };
    DeadDelivery {
        id: id.to_string(),
        event_id: row.event.to_string(),
        event_type: row.event_type.to_string(),
        tries: row.tries,
        reason: format!("{why}; {last}"),
    }
}

fn host(settings: &EndpointSettings) -> String {
    if let Some(queue) = &settings.queue {
        return format!("queue {queue}");
    }
    let url = url::Url::parse(&settings.url).ok();
    url.and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use hooklog_projections::fact::{AccountSettings, Sealed};
    use hooklog_projections::ids::{AccountId, EndpointId};
    use hooklog_projections::lifecycle::LastAttempt;
    use hooklog_projections::policy::Rollout;
    use hooklog_projections::time::{Millis, Timestamp};

    use super::*;

    fn parties() -> (EndpointKey, Account, Endpoint) {
        let settings = AccountSettings {
            name: "Acme".into(),
            owner_email: Some("owner@acme.example".into()),
            schedule: None,
            response_policy: None,
            webhook_retries: Rollout::On,
        };
        let account = Account { settings, secret: Sealed(vec![]), created_at: Timestamp(0) };
        let settings = EndpointSettings {
            url: "https://hooks.acme.example/in?token=s3cret".into(),
            event_types: vec![],
            ..EndpointSettings::default()
        };
        let endpoint = Endpoint {
            settings,
            signing: vec![],
            version: 1,
            hold: None,
            created_at: Timestamp(0),
            secret: None,
        };
        (EndpointKey { account: AccountId(1), endpoint: EndpointId(2) }, account, endpoint)
    }

    fn sample(count: usize) -> Message {
        let (key, account, endpoint) = parties();
        let row = |n: usize| Delivery {
            event: format!("evt_{n}").parse().unwrap(),
            event_type: "payment.settled".into(),
            accepted: Seq(1),
            endpoint: EndpointId(2),
            enqueued_at: Timestamp(0),
            state: State::Dead { at: Timestamp(9), reason: DeadReason::Exhausted },
            run: 1,
            attempts: 6,
            tries: 6,
            interruptions: 0,
            max_tries: None,
            latest: Seq(9),
            expire_at: None,
            bulk: None,
            last_attempt: Some(LastAttempt {
                attempt: 6,
                at: Timestamp(9),
                took: Millis(5),
                status: Some(503),
                error: None,
            }),
        };
        let rows: Vec<_> = (1..=count).map(|n| (DeliveryId(n as u128), row(n))).collect();
        dead(key, &account, &endpoint, &rows)
    }

    #[test]
    fn says_what_why_and_what_to_do() {
        let message = sample(2);
        insta::assert_snapshot!(format!("{}\n\n{}", message.subject, message.text), @"
        2 events could not be delivered to hooks.acme.example

        2 events could not be delivered to hooks.acme.example and will not be tried again by itself.

        evt_1 (payment.settled): gave up after 6 tries; the last answer was HTTP 503
        evt_2 (payment.settled): gave up after 6 tries; the last answer was HTTP 503

        Once the endpoint works again, replay them: nothing is lost.
        ");
    }

    #[test]
    fn a_disabled_endpoint_is_told_with_its_reason() {
        let (key, account, endpoint) = parties();
        let message = disabled(key, &account, &endpoint, &DisabledReason::Gone, Seq(7));
        insta::assert_snapshot!(format!("{}\n\n{}", message.subject, message.text), @"
        hooks.acme.example was disabled

        Nothing more is sent to hooks.acme.example, because it answered 410 (gone).

        Events for it are still taken in and held. Once the endpoint works again, resume it: what is held is sent in order.
        ");
        assert_ne!(message.id, disabled(key, &account, &endpoint, &DisabledReason::Gone, Seq(8)).id);
    }

    #[test]
    fn a_storm_is_one_bounded_message_without_a_secret() {
        let message = sample(500);
        assert_eq!((message.count, message.deliveries.len()), (500, NAMED_MAX));
        let json = serde_json::to_string(&message).unwrap();
        assert!(json.contains("and 480 more") && !json.contains("s3cret"), "{json}");
        assert_ne!(message.id, sample(499).id);
        assert_eq!(message.id, sample(500).id);
    }
}
