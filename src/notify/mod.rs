//! Telling account owners of dead deliveries and disabled endpoints: driven by facts, told once, never in the way of deliveries.
//!
//! What is owed is a view; a message is sent, then `OwnerTold` is recorded. A crash in between repeats one
//! message under the same id. Never retries a delivery, never knows a payload.

pub mod message;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hooklog_projections::fact::{Actor, Fact};
use hooklog_projections::ids::{DeliveryId, DeliveryKey, EndpointKey, Seq};
use hooklog_projections::lifecycle::{Delivery, Status};
use hooklog_projections::time::Millis;

use crate::clock::Clock;
use crate::delivery::{Client, Key, sign};
use crate::engine::Command;
use crate::engine::handle::Handle;
use crate::log;
pub use message::Message;

/// Owed deliveries that one message covers; more go into the next.
const BUNDLE_MAX: usize = 1_000;
/// How long a notifications service may take.
const SERVICE_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two tries of a service that does not answer, at first and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(600));

/// Where messages go.
pub enum Channel {
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

/// Tells owners.
pub struct Teller {
    handle: Handle,
    client: Arc<Client>,
    clock: Arc<dyn Clock>,
    channel: Channel,
    window: Millis,
}

impl Teller {
    /// One that bundles what an endpoint owes for `window` (design: 15 minutes).
    pub fn new(
        handle: Handle,
        client: Arc<Client>,
        clock: Arc<dyn Clock>,
        channel: Channel,
        window: Millis,
    ) -> Teller {
        Teller { handle, client, clock, channel, window }
    }

    /// Runs until its task is dropped.
    pub async fn run(self) {
        let mut backoff = BACKOFF.0;
        loop {
            // At the start too: what is owed was so before this process.
            match self.tell_all().await {
                Ok(true) => backoff = BACKOFF.0,
                Ok(false) => {
                    tokio::time::sleep(backoff).await;
                    backoff = (backoff * 2).min(BACKOFF.1);
                    continue;
                }
                Err(error) => tracing::error!(%error, "what is owed to owners could not be read"),
            }
            self.handle.health().owed().await;
            // Whatever else dies meanwhile joins the bundle.
            tokio::time::sleep(Duration::from_millis(self.window.0)).await;
        }
    }

    /// Tells everything that is owed; false if the channel failed.
    async fn tell_all(&self) -> Result<bool, log::Error> {
        loop {
            let handle = self.handle.clone();
            let read = tokio::task::spawn_blocking(move || owed(&handle)).await;
            let bundles = read.map_err(|_| log::Error::Misuse("reading what is owed failed".into()))??;
            if bundles.is_empty() {
                return Ok(true);
            }
            for (key, bundle) in bundles {
                if let Some(message) = &bundle.message
                    && !self.send(message).await
                {
                    return Ok(false);
                }
                let channel = match self.channel {
                    Channel::Service { .. } => "notifications",
                    Channel::Log => "log",
                };
                let told = Command::OwnerTold { key, deliveries: bundle.covers, channel: channel.into() };
                if let Err(rejection) = self.handle.ask(Actor::Hooklog, told).await {
                    tracing::warn!(%rejection, "an owner was told, but it could not be recorded");
                    return Ok(false);
                }
            }
        }
    }

    async fn send(&self, message: &Message) -> bool {
        let Channel::Service { url, key } = &self.channel else {
            tracing::warn!(
                account = message.account_id,
                endpoint = message.endpoint_id,
                count = message.count,
                "deliveries died and no channel to their owner is configured"
            );
            return true;
        };
        let body = serde_json::to_vec(message).expect("a message is plain data");
        let now = self.clock.now().0 / 1000;
        let mut headers = vec![
            ("webhook-id".to_owned(), message.id.clone()),
            ("webhook-timestamp".to_owned(), now.to_string()),
        ];
        if let Some(key) = key {
            let signature = sign::standard(std::slice::from_ref(key), &message.id, now, &body);
            headers.push(("webhook-signature".to_owned(), signature));
        }
        let outcome = self.client.post_json(url, body.into(), &headers, SERVICE_TIMEOUT).await;
        match outcome.result {
            Ok(answer) if (200..300).contains(&answer.status) => true,
            Ok(answer) => {
                tracing::warn!(status = answer.status, "the notifications service refused a message");
                false
            }
            Err(fault) => {
                tracing::warn!(class = ?fault.class, detail = fault.detail, "the notifications service failed");
                false
            }
        }
    }
}

struct Bundle {
    /// `None` if there is nothing to say any more.
    message: Option<Message>,
    /// The positions that it covers.
    covers: Vec<Seq>,
}

/// What is owed, bundled by endpoint.
fn owed(handle: &Handle) -> Result<Vec<(EndpointKey, Bundle)>, log::Error> {
    let view = handle.view();
    let mut by_endpoint: BTreeMap<EndpointKey, Vec<Seq>> = BTreeMap::new();
    for owed in view.owed(BUNDLE_MAX)? {
        by_endpoint.entry(owed.endpoint).or_default().push(owed.delivery);
    }
    let mut bundles = Vec::new();
    for (key, positions) in by_endpoint {
        let (Some(account), Some(endpoint)) = (view.account(key.account)?, view.endpoint(key)?) else {
            continue;
        };
        let (mut rows, mut died): (Vec<(DeliveryId, Delivery)>, Vec<Seq>) = Default::default();
        for seq in positions {
            let delivery = DeliveryKey { account: key.account, seq };
            match view.delivery(delivery)? {
                Some(row) => {
                    died.push(seq);
                    // What was replayed meanwhile is nobody's worry any more.
                    if row.state.status() == Status::Dead {
                        rows.push((view.delivery_id(delivery, &row), row));
                    }
                }
                None => {
                    let message = match view.entry(seq)?.fact {
                        Fact::EndpointDisabled { reason, .. } if endpoint.hold.is_some() => {
                            Some(message::disabled(key, &account, &endpoint, &reason, seq))
                        }
                        _ => None,
                    };
                    bundles.push((key, Bundle { message, covers: vec![seq] }));
                }
            }
        }
        if !died.is_empty() {
            let message = (!rows.is_empty()).then(|| message::dead(key, &account, &endpoint, &rows));
            bundles.push((key, Bundle { message, covers: died }));
        }
    }
    Ok(bundles)
}
