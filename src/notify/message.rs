//! What an owner is told, as plain words, as HTML and as JSON. Pure; holds no payload and no secret, only host names.
//!
//! All words stand once, as [`Part`]s, and are written twice: as text and as HTML. Whatever a customer or a receiver
//! wrote is bounded, on one line, and without characters that hide or turn others around.

use hooklog_projections::account::{Account, Endpoint};
use hooklog_projections::fact::{DeadReason, DisabledReason, EndpointSettings};
use hooklog_projections::ids::{DeliveryId, EndpointKey, Seq};
use hooklog_projections::lifecycle::{Delivery, State};
use hooklog_projections::policy::ErrorClass;
use hooklog_projections::telling::News;
use hooklog_projections::time::Timestamp;
use maud::{DOCTYPE, html};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::explain::{moment, moment_near, plain, span};

/// Characters of a host name, an event type or an account's name in a message.
const NAME_CHARS_MAX: usize = 80;

/// What an account's owner is told of one endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// `webhook.deliveries_dead`, `webhook.endpoint_disabled` or `webhook.endpoint_failing`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The same however often the message is sent: the receiver's key to drop a repeat.
    pub id: String,
    /// Whose.
    pub account_id: String,
    /// Who is told, if the account says so.
    pub owner_email: Option<String>,
    /// The endpoint.
    pub endpoint_id: String,
    /// Its host.
    pub endpoint_host: String,
    /// How many deliveries died.
    pub count: u64,
    /// The first of them.
    pub deliveries: Vec<DeadDelivery>,
    /// Why Hooklog disabled the endpoint, if it did.
    pub disabled_because: Option<&'static str>,
    /// Since when it has done nothing but fail, if that is to be told.
    pub failing_since: Option<String>,
    /// One line.
    pub subject: String,
    /// Plain text.
    pub text: String,
    /// The same as a page.
    pub html: String,
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
    /// Its event's page, where the server knows its own address.
    pub url: Option<String>,
}

/// All that a message is made from.
pub struct About<'a> {
    /// The endpoint.
    pub key: EndpointKey,
    /// Where the message was begun: its identity.
    pub began: Seq,
    /// Whose.
    pub account: &'a Account,
    /// As it is now.
    pub endpoint: &'a Endpoint,
    /// What is to be told.
    pub news: &'a News,
    /// Of the deliveries it names, those that are dead still.
    pub named: &'a [(DeliveryId, Delivery)],
    /// Why the endpoint was disabled, if that is told.
    pub disabled: Option<DisabledReason>,
    /// Deliveries that wait for the endpoint.
    pub waiting: u64,
    /// Where people reach this server.
    pub links: &'a Links,
    /// The moment.
    pub now: Timestamp,
}

/// Where the pages are that a message leads to.
#[derive(Clone, Debug, Default)]
pub struct Links {
    base: Option<String>,
}

impl Links {
    /// Below the server's public address; none without one.
    pub fn below(public_url: Option<&url::Url>) -> Links {
        Links { base: public_url.map(|url| url.as_str().trim_end_matches('/').to_owned()) }
    }

    /// An event's page, as its account's owner sees it.
    fn event(&self, id: &str) -> Option<String> {
        self.base.as_ref().map(|base| format!("{base}/portal/events/{id}"))
    }
}

/// The name of a message that was begun at a position.
pub fn id(key: EndpointKey, began: Seq) -> String {
    let mut hash = Sha256::new();
    hash.update(key.endpoint.to_bytes());
    hash.update(began.0.to_be_bytes());
    let id: String = hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("ntf_{id}")
}

impl Message {
    /// The message about an endpoint.
    pub fn about(about: &About<'_>) -> Message {
        let host = host(&about.endpoint.settings);
        let deliveries: Vec<_> = about.named.iter().map(|(id, row)| named(*id, row, about.links)).collect();
        let count = about.news.dead;
        let failing = about.news.failing.filter(|_| about.disabled.is_none());
        let (kind, subject) = match (&about.disabled, count, failing) {
            (Some(_), ..) => ("webhook.endpoint_disabled", format!("{host} was disabled")),
            (None, 0, Some(since)) => {
                let span = span(about.now.since(since));
                ("webhook.endpoint_failing", format!("{host} has been failing for {span}"))
            }
            (None, ..) => {
                ("webhook.deliveries_dead", format!("{} could not be delivered to {host}", events(count)))
            }
        };
        let because = about.disabled.as_ref().map(because);
        let mut parts = Vec::new();
        if let Some(because) = because {
            parts.push(Part::Say(format!("Nothing more is sent to {host}, because {because}.")));
        }
        if count > 0 {
            let them = if count == 1 { "itself" } else { "themselves" };
            parts.push(Part::Say(format!(
                "{} could not be delivered to {host} and will not be tried again by {them}.",
                events(count)
            )));
            parts.push(Part::Dead(&deliveries));
            match count - deliveries.len() as u64 {
                0 => {}
                _ if deliveries.is_empty() => {
                    let words = "What is dead still stands in the list of dead deliveries.";
                    parts.push(Part::Say(words.to_owned()));
                }

                more => parts.push(Part::Say(format!("and {more} more"))),
            }
        }
        if let Some(since) = failing {
            parts.push(Part::Say(format!(
                "{host} has done nothing but fail since {} ({}). What is sent to it is tried again; whatever runs \
                 out of tries is told of in another message.",
                moment_near(since, about.now),
                span(about.now.since(since))
            )));
        }
        if about.disabled.is_some() {
            let wait = match about.waiting {
                0 => String::new(),
                waiting => {
                    format!("{} {} for it. ", events(waiting), if waiting == 1 { "waits" } else { "wait" })
                }
            };
            parts.push(Part::Say(format!(
                "{wait}Events for it are still taken in and held. Once the endpoint works again, resume it: what is \
                 held is sent in order."
            )));
        }
        if count > 0 {
            let them = if count == 1 { "replay it" } else { "replay them" };
            parts.push(Part::Say(format!("Once the endpoint works again, {them}: nothing is lost.")));
        }
        let id = id(about.key, about.began);
        let account = plain(&about.account.settings.name, NAME_CHARS_MAX);
        parts.push(Part::Small(format!(
            "Account {account} ({}), endpoint {}. This message is sent once; its id is {id}.",
            about.key.account, about.key.endpoint
        )));
        let (text, html) = (text(&parts), page(&subject, &parts));
        Message {
            kind,
            id,
            account_id: about.key.account.to_string(),
            owner_email: about.account.settings.owner_email.as_deref().map(str::to_owned),
            endpoint_id: about.key.endpoint.to_string(),
            endpoint_host: host,
            count,
            disabled_because: because,
            failing_since: failing.map(moment),
            subject,
            text,
            html,
            deliveries,
        }
    }
}

/// A piece of a message.
enum Part<'a> {
    /// A paragraph.
    Say(String),
    /// Dead deliveries, one by one.
    Dead(&'a [DeadDelivery]),
    /// What only matters to whoever looks for the message.
    Small(String),
}

fn text(parts: &[Part<'_>]) -> String {
    let paragraphs = parts.iter().filter_map(|part| match part {
        Part::Say(words) => Some(words.clone()),
        Part::Small(words) => Some(format!("-- \n{words}")),
        Part::Dead([]) => None,
        Part::Dead(all) => {
            let lines = all.iter().map(|dead| {
                let line = format!("{} ({}): {}", dead.event_id, dead.event_type, dead.reason);
                dead.url.iter().fold(line, |line, url| format!("{line}\n  {url}"))
            });
            Some(lines.collect::<Vec<_>>().join("\n"))
        }
    });
    paragraphs.collect::<Vec<_>>().join("\n\n") + "\n"
}

fn page(subject: &str, parts: &[Part<'_>]) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { (subject) }
            }
            body {
                @for part in parts {
                    @match part {
                        Part::Say(words) => p { (words) },
                        Part::Small(words) => p { small { (words) } },
                        Part::Dead(all) => @if !all.is_empty() {
                            ul {
                                @for dead in *all {
                                    li {
                                        @match &dead.url {
                                            Some(url) => a href=(url) { (dead.event_id) },
                                            None => (dead.event_id),
                                        }
                                        " (" (dead.event_type) "): " (dead.reason)
                                    }
                                }
                            }
                        },
                    }
                }
            }
        }
    };
    page.into_string()
}

fn events(count: u64) -> String {
    if count == 1 { "1 event".to_owned() } else { format!("{count} events") }
}

fn because(reason: &DisabledReason) -> &'static str {
    match reason {
        DisabledReason::Gone => "it answered 410 (gone)",
        DisabledReason::Failing { .. } => "it has done nothing but fail for too long",
        DisabledReason::Requested(_) => "somebody asked for it",
    }
}

fn named(id: DeliveryId, row: &Delivery, links: &Links) -> DeadDelivery {
    let last = match row.last_attempt.as_ref() {
        Some(attempt) => match (attempt.status, attempt.error) {
            (Some(status), _) => format!("the last answer was HTTP {status}"),
            (None, Some(error)) => format!("at the last attempt {}", failed(error)),
            (None, None) => "the last attempt failed".to_owned(),
        },
        None => "it was never tried".to_owned(),
    };
    let tries = if row.tries == 1 { "1 try".to_owned() } else { format!("{} tries", row.tries) };
    let why = match &row.state {
        State::Dead { reason: DeadReason::Exhausted, .. } => format!("gave up after {tries}"),
        State::Dead { reason: DeadReason::Refused, .. } => "the endpoint refused it for good".to_owned(),
        State::Dead { reason: DeadReason::Expired, .. } => "its deadline passed".to_owned(),
        _ => "given up".to_owned(),
    };
    let event_id = row.event.to_string();
    DeadDelivery {
        id: id.to_string(),
        url: links.event(&event_id),
        event_id,
        event_type: plain(&row.event_type, NAME_CHARS_MAX),
        tries: row.tries,
        reason: format!("{why}; {last}"),
    }
}

/// What an error came to, in the words of a sentence.
fn failed(error: ErrorClass) -> &'static str {
    match error {
        ErrorClass::Dns => "its name could not be resolved",
        ErrorClass::Connect => "no connection could be made",
        ErrorClass::Tls => "no safe connection could be made (TLS)",
        ErrorClass::Timeout => "it did not answer in time",
        ErrorClass::Closed => "it closed the connection without an answer",
        ErrorClass::Protocol => "its answer was no HTTP",
        ErrorClass::EgressDenied => "its address was not allowed",
        ErrorClass::Interrupted => "this server was stopped",
        ErrorClass::NotSent => "nothing could be sent",
        ErrorClass::Worker => "its worker failed",
        ErrorClass::LeaseExpired => "its worker was not heard of any more",
    }
}

fn host(settings: &EndpointSettings) -> String {
    if let Some(queue) = &settings.queue {
        return format!("queue {}", plain(queue, NAME_CHARS_MAX));
    }
    let url = url::Url::parse(&settings.url).ok();
    let host = url.as_ref().and_then(|url| url.host_str()).unwrap_or("the endpoint");
    plain(host, NAME_CHARS_MAX)
}

#[cfg(test)]
mod tests;
