//! Somebody hears of it when this service stands still: the operator is told when deliveries are late through us and
//! when they are no more, and a dead-man's switch is pinged for as long as all is well, because a dead process tells
//! nobody anything.
//!
//! What is late is the engine's word (`engine::health`); nothing here is a fact of the log, and a start forgets what
//! was told. Never knows an endpoint, and what one's own limits hold back never raises anything.

mod alarm;
mod letter;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hooklog_projections::time::Millis;

pub use self::alarm::{Alarm, News};
use self::letter::{About, Message};
use crate::clock::Clock;
use crate::delivery::Client;
use crate::engine::handle::Handle;
use crate::notify::{Channel, Letter};

/// Between two looks.
const LOOK: Duration = Duration::from_secs(5);
/// Between two pings.
pub const PING: Millis = Millis::from_secs(60);
/// How long the receiver of a ping may take.
const PING_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two tries of a message, at first and at most.
const BACKOFF: (Millis, Millis) = (Millis(5_000), Millis(300_000));

/// Whom to tell.
#[derive(Clone, Debug)]
pub struct Options {
    /// By which way.
    pub channel: Channel,
    /// The operator's e-mail address; only mail needs one.
    pub email: Option<String>,
    /// The dead-man's switch: pinged every minute while all is well.
    pub ping_url: Option<String>,
    /// Where people reach this server's pages.
    pub base: Option<String>,
}

/// Watches an engine.
pub struct Watch {
    alerting: Alerting,
    pinging: Option<Pinging>,
}

impl Watch {
    /// Watches from now on, once it is run.
    pub fn new(handle: Handle, client: Arc<Client>, clock: Arc<dyn Clock>, options: Options) -> Watch {
        let Options { channel, email, ping_url, base } = options;
        let pinging = ping_url.map(|url| Pinging {
            handle: handle.clone(),
            client: client.clone(),
            clock: clock.clone(),
            url,
            pinged_at: None,
        });
        let alerting = Alerting {
            handle,
            client,
            clock,
            channel,
            email,
            base,
            alarm: Alarm::default(),
            unsent: VecDeque::new(),
            not_before: Millis(0),
            wait: BACKOFF.0,
        };
        Watch { alerting, pinging }
    }

    /// Runs until its task is dropped. A mail server that hangs delays no ping.
    pub async fn run(self) {
        let Watch { mut alerting, mut pinging } = self;
        let alerts = async {
            loop {
                alerting.look().await;
                tokio::time::sleep(LOOK).await;
            }
        };
        let pings = async {
            loop {
                if let Some(pinging) = &mut pinging {
                    pinging.look().await;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::join!(alerts, pings);
    }

    /// Looks once, and does what is due.
    pub async fn look(&mut self) {
        self.alerting.look().await;
        if let Some(pinging) = &mut self.pinging {
            pinging.look().await;
        }
    }
}

struct Alerting {
    handle: Handle,
    client: Arc<Client>,
    clock: Arc<dyn Clock>,
    channel: Channel,
    email: Option<String>,
    base: Option<String>,
    alarm: Alarm,
    unsent: VecDeque<Message>,
    /// Of the monotonic clock: the next try.
    not_before: Millis,
    wait: Millis,
}

impl Alerting {
    async fn look(&mut self) {
        let (now, health) = (self.clock.monotonic(), self.handle.health().clone());
        if let Some(news) = self.alarm.hear(health.late(now), now) {
            let figures = health.figures();
            let message = Message::of(
                news,
                About {
                    at: self.clock.now(),
                    backlog: figures.counts.pending,
                    in_flight: health.in_flight(),
                    in_flight_max: figures.in_flight_max,
                    base: self.base.as_deref(),
                },
            );
            match news {
                News::Late { .. } => tracing::error!(late_ms = health.late(now).0, "deliveries are late"),
                News::OnTime { .. } => tracing::info!("deliveries are on time again"),
            }
            // Of an alarm that nobody could be told of before it was over, only its end is told.
            self.unsent.clear();
            self.unsent.push_back(message);
            (self.not_before, self.wait) = (now, BACKOFF.0);
        }
        if now < self.not_before {
            return;
        }
        while let Some(message) = self.unsent.front() {
            let sent = self.send(message).await;
            health.metrics().alerted(sent.is_ok());
            match sent {
                Ok(()) => drop(self.unsent.pop_front()),
                Err(why) => {
                    tracing::error!(why, channel = self.channel.name(), "the operator could not be told");
                    self.not_before = Millis(now.0 + self.wait.0);
                    self.wait = Millis((self.wait.0 * 2).min(BACKOFF.1.0));
                    return;
                }
            }
        }
    }

    async fn send(&self, message: &Message) -> Result<(), String> {
        if matches!(self.channel, Channel::Log) {
            tracing::error!(subject = message.subject, "no way to the operator is configured");
            return Ok(());
        }
        let letter = Letter {
            id: &message.id,
            to: self.email.as_deref(),
            subject: &message.subject,
            text: &message.text,
            html: &message.html,
            json: serde_json::to_vec(message).expect("a message is plain data").into(),
            at: self.clock.now(),
        };
        // Refused for good or not: the operator is asked again, and the log says why.
        self.channel.send(&self.client, &letter).await.map_err(|fault| fault.why())
    }
}

struct Pinging {
    handle: Handle,
    client: Arc<Client>,
    clock: Arc<dyn Clock>,
    /// Whoever knows it could ping in our place: it is never logged.
    url: String,
    pinged_at: Option<Millis>,
}

impl Pinging {
    async fn look(&mut self) {
        let now = self.clock.monotonic();
        let health = self.handle.health();
        let due = self.pinged_at.is_none_or(|at| now.0.saturating_sub(at.0) >= PING.0);
        // Who never looked has nothing to say yet.
        let runs = health.silent_for(now).is_some();
        if !due || !runs || health.ailment(now).is_some() {
            return;
        }
        self.pinged_at = Some(now);
        let outcome = self.client.post_json(&self.url, Bytes::from_static(b"{}"), &[], PING_TIMEOUT).await;
        let sent = match outcome.result {
            Ok(answer) if (200..300).contains(&answer.status) => Ok(()),
            Ok(answer) => Err(format!("it answered {}", answer.status)),
            Err(fault) => Err(fault.detail.to_string()),
        };
        health.metrics().pinged(sent.is_ok());
        if let Err(why) = sent {
            tracing::warn!(why, "the dead-man's switch could not be pinged");
        }
    }
}
