//! The ways by which messages leave: the operator's mail server, the product's own notifications service, or nothing but
//! this process's log. Never knows what is told, to whom else, nor when it is tried again.

use std::time::Duration;

use lettre::message::Mailbox;

use super::{Letter, letter};
use crate::delivery::client::{MailFault, Relay};
use crate::delivery::{Client, Key, sign};

/// How long a notifications service may take.
const SERVICE_TIMEOUT: Duration = Duration::from_secs(10);
/// Answers of a service that are about this very message: it will never take it.
const REFUSALS: [u16; 5] = [400, 410, 413, 415, 422];

/// Where messages go.
#[derive(Clone, Debug)]
pub enum Channel {
    /// The operator's mail server, which sends them on.
    Mail {
        /// The server.
        relay: Relay,
        /// Whom they are from.
        from: Mailbox,
    },
    /// The product's own notifications service: a signed POST of the message.
    Service {
        /// Where, as the operator configured it.
        url: String,
        /// Signs it as Standard Webhooks do; unsigned if absent.
        key: Option<Key>,
    },
    /// Nowhere else than the log of this process.
    Log,
}

/// Why a letter did not arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The way is closed, for every letter.
    Down(String),
    /// This letter is not taken now.
    Later(String),
    /// This letter is not taken, now or ever.
    Refused(String),
}

impl Fault {
    /// What was said, for people.
    pub fn why(self) -> String {
        match self {
            Fault::Down(why) | Fault::Later(why) | Fault::Refused(why) => why,
        }
    }
}

impl From<MailFault> for Fault {
    fn from(fault: MailFault) -> Fault {
        match fault {
            MailFault::Relay(why) => Fault::Down(why),
            MailFault::Later(why) => Fault::Later(why),
            MailFault::Refused(why) => Fault::Refused(why),
        }
    }
}

impl Channel {
    /// As facts name it.
    pub fn name(&self) -> &'static str {
        match self {
            Channel::Mail { .. } => "mail",
            Channel::Service { .. } => "notifications",
            Channel::Log => "log",
        }
    }

    /// Sends a letter, whatever it is about.
    ///
    /// # Errors
    /// See [`Fault`]. Whether a letter that met [`Fault::Down`] arrived may be unknown.
    pub async fn send(&self, client: &Client, letter: &Letter<'_>) -> Result<(), Fault> {
        match self {
            Channel::Mail { relay, from } => {
                let (to, mail) = letter::mail(letter, from).map_err(Fault::Refused)?;
                Ok(client.send_mail(relay, &from.email, &to, &mail).await?)
            }
            Channel::Service { url, key } => post(client, url, key.as_ref(), letter).await,
            Channel::Log => {
                tracing::warn!(id = letter.id, subject = letter.subject, "no way to the owner is configured");
                Ok(())
            }
        }
    }
}

async fn post(client: &Client, url: &str, key: Option<&Key>, letter: &Letter<'_>) -> Result<(), Fault> {
    let now = letter.at.0 / 1000;
    let mut headers = vec![
        ("webhook-id".to_owned(), letter.id.to_owned()),
        ("webhook-timestamp".to_owned(), now.to_string()),
    ];
    if let Some(key) = key {
        let signature = sign::standard(std::slice::from_ref(key), letter.id, now, &letter.json);
        headers.push(("webhook-signature".to_owned(), signature));
    }
    let outcome = client.post_json(url, letter.json.clone(), &headers, SERVICE_TIMEOUT).await;
    match outcome.result {
        Ok(answer) if (200..300).contains(&answer.status) => Ok(()),
        Ok(answer) if REFUSALS.contains(&answer.status) => {
            Err(Fault::Refused(format!("the notifications service answered {}", answer.status)))
        }
        Ok(answer) => Err(Fault::Down(format!("the notifications service answered {}", answer.status))),
        Err(fault) => Err(Fault::Down(fault.detail.to_string())),
    }
}
