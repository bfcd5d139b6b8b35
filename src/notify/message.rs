//! What an owner is told, as plain words and as JSON. Pure; holds no payload and no secret, only host names.

use hooklog_projections::account::{Account, Endpoint};
use hooklog_projections::fact::DeadReason;
use hooklog_projections::ids::{DeliveryId, EndpointKey};
use hooklog_projections::lifecycle::{Delivery, State};
use serde::Serialize;
use sha2::{Digest, Sha256};

/// Deliveries that a message names one by one; the rest is a number.
pub const NAMED_MAX: usize = 20;

/// Deliveries of one endpoint that died, for its account's owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// Always `webhook.deliveries_dead`.
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
    /// How many died.
    pub count: usize,
    /// The first of them.
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
    let host = host(&endpoint.settings.url);
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
    let id: String = hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    Message {
        kind: "webhook.deliveries_dead",
        id: format!("ntf_{id}"),
        account_id: key.account.to_string(),
        owner_email: account.settings.owner_email.as_deref().map(str::to_owned),
        endpoint_id: key.endpoint.to_string(),
        subject: format!("{events} could not be delivered to {host}"),
        endpoint_host: host,
        count,
        deliveries: named,
        text,
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

fn host(url: &str) -> String {
    url::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use hooklog_projections::fact::{AccountSettings, EndpointSettings, Schemes, Sealed};
    use hooklog_projections::ids::{AccountId, EndpointId, Seq};
    use hooklog_projections::lifecycle::LastAttempt;
    use hooklog_projections::policy::Rollout;
    use hooklog_projections::time::{Millis, Timestamp};

    use super::*;

    fn sample(count: usize) -> Message {
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
            description: "".into(),
            schedule: None,
            response_policy: None,
            timeout: Millis(10_000),
            in_flight_max: 8,
            schemes: Schemes { standard: true, ledger: true },
            headers: vec![],
            rate_per_second: None,
            disable_after: None,
            body_form: Default::default(),
        };
        let endpoint =
            Endpoint { settings, signing: vec![], version: 1, hold: None, created_at: Timestamp(0) };
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
            run_began_at: Timestamp(0),
            last_attempt: Some(LastAttempt {
                attempt: 6,
                at: Timestamp(9),
                took: Millis(5),
                status: Some(503),
                error: None,
            }),
        };
        let rows: Vec<_> = (1..=count).map(|n| (DeliveryId(n as u128), row(n))).collect();
        let key = EndpointKey { account: AccountId(1), endpoint: EndpointId(2) };
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
    fn a_storm_is_one_bounded_message_without_a_secret() {
        let message = sample(500);
        assert_eq!((message.count, message.deliveries.len()), (500, NAMED_MAX));
        let json = serde_json::to_string(&message).unwrap();
        assert!(json.contains("and 480 more") && !json.contains("s3cret"), "{json}");
        assert_ne!(message.id, sample(499).id);
        assert_eq!(message.id, sample(500).id);
    }
}
