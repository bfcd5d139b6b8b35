//! Telling account owners of dead deliveries, disabled endpoints and, where wanted, failing ones: driven by facts, told
//! once, never in the way of deliveries.
//!
//! What gathers by endpoint is a view. When it is due, `TellingBegan` closes it into a message, which only then leaves;
//! `OwnerTold` records that it was taken, or refused for good. A crash in between sends the same message once more,
//! under the same id. Tries of a message are no facts: how often a mail server was asked in vain is nobody's history,
//! and a start asks at once. Never retries a delivery, never knows a payload.
//!
//! [`Channel::send`] takes any [`Letter`], also one that is about no endpoint.

mod channel;
mod letter;
pub mod message;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hooklog_projections::fact::{Actor, Fact};
use hooklog_projections::ids::{DeliveryKey, EndpointKey};
use hooklog_projections::lifecycle::Status;
use hooklog_projections::telling::{Owing, Telling};
use hooklog_projections::time::{Millis, Timestamp};

use crate::clock::Clock;
use crate::delivery::Client;
use crate::engine::handle::Handle;
use crate::engine::{Command, Rejection};
use crate::log;
use crate::metrics::Told;
pub use channel::{Channel, Fault};
pub use message::{Links, Message};

/// What an endpoint owes its owner is gathered so long before the owner is told.
pub const BUNDLE_FOR: Millis = Millis::from_secs(15 * 60);
/// Endpoints that are looked at in one read.
const PAGE: usize = 256;
/// Between two tries of a way that is closed, or of one letter, at first and at most.
const BACKOFF: (Millis, Millis) = (Millis(5_000), Millis(600_000));
/// A letter that is put off for so long is taken for refused, as mail servers do (RFC 5321 §4.5.4.1).
const GIVE_UP_AFTER: Millis = Millis::from_secs(5 * 24 * 3600);
/// Between two looks at what is owed: at least, while deliveries die in thousands, and at most, lest a clock that
/// jumps be noticed late.
const LOOKS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(60));
/// After a store that could not be read.
const PAUSE_AFTER_ERROR: Millis = Millis(5_000);

/// What leaves by a [`Channel`].
pub struct Letter<'a> {
    /// The same however often it is sent.
    pub id: &'a str,
    /// An e-mail address; only mail needs one.
    pub to: Option<&'a str>,
    /// One line.
    pub subject: &'a str,
    /// Plain text.
    pub text: &'a str,
    /// The same as a page.
    pub html: &'a str,
    /// The same for programs.
    pub json: Bytes,
    /// When it is sent.
    pub at: Timestamp,
}

/// Tells owners.
pub struct Teller {
    handle: Handle,
    client: Arc<Client>,
    clock: Arc<dyn Clock>,
    channel: Channel,
    window: Millis,
    links: Links,
    /// The way is closed: not before that moment of the monotonic clock.
    closed: Option<Pause>,
    /// Letters that were put off.
    later: HashMap<EndpointKey, Pause>,
}

/// A wait that doubles.
#[derive(Clone, Copy)]
struct Pause {
    until: Millis,
    next: Millis,
}

impl Pause {
    fn after(before: Option<Pause>, now: Millis) -> Pause {
        let wait = before.map_or(BACKOFF.0, |pause| pause.next);
        Pause { until: Millis(now.0 + wait.0), next: Millis((wait.0 * 2).min(BACKOFF.1.0)) }
    }

    fn left(&self, now: Millis) -> Option<Millis> {
        let left = self.until.0.saturating_sub(now.0);
        (left > 0).then_some(Millis(left))
    }
}

/// Nobody is told any more.
#[derive(Debug, thiserror::Error)]
enum Stop {
    /// The engine takes no more.
    #[error("the engine ended")]
    Ended,
    /// It could not be read what is owed.
    #[error(transparent)]
    Unread(#[from] log::Error),
}

impl Teller {
    /// One that gathers what an endpoint owes for `window` (design: 15 minutes).
    pub fn new(
        handle: Handle,
        client: Arc<Client>,
        clock: Arc<dyn Clock>,
        channel: Channel,
        window: Millis,
    ) -> Teller {
        let (links, closed, later) = (Links::default(), None, HashMap::new());
        Teller { handle, client, clock, channel, window, links, closed, later }
    }

    /// With links to its pages.
    pub fn with_links(self, links: Links) -> Teller {
        Teller { links, ..self }
    }

    /// Runs until its task is dropped, or the engine takes no more.
    pub async fn run(mut self) {
        loop {
            let wait = match self.tell().await {
                Ok(wait) => wait,
                Err(Stop::Ended) => return,
                Err(Stop::Unread(error)) => {
                    tracing::error!(%error, "what is owed to owners could not be read");
                    Some(PAUSE_AFTER_ERROR)
                }
            };
            tokio::time::sleep(LOOKS.0).await;
            let wait = wait.map_or(LOOKS.1, |wait| Duration::from_millis(wait.0).min(LOOKS.1));
            tokio::select! {
                () = self.handle.health().owed() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Tells whatever is due. How long until something else is; `None` if nothing is owed.
    ///
    /// # Errors
    /// An engine that takes no more, or a store that cannot be read.
    pub async fn tell_due(&mut self) -> Result<Option<Millis>, anyhow::Error> {
        Ok(self.tell().await?)
    }

    async fn tell(&mut self) -> Result<Option<Millis>, Stop> {
        let mut next: Option<Millis> = None;
        let mut after = None;
        loop {
            let page = self.read(move |handle| handle.view().owed(after, PAGE)).await?;
            let Some((last, _)) = page.last() else { return Ok(next) };
            after = Some(*last);
            for (key, owing) in page {
                let wait = self.tell_one(key, owing).await?;
                next = next.into_iter().chain(wait).min();
            }
        }
    }

    /// Tells one owner what is due of one endpoint. How long until there is more to do for it.
    async fn tell_one(&mut self, key: EndpointKey, owing: Owing) -> Result<Option<Millis>, Stop> {
        let monotonic = self.clock.monotonic();
        let waits = |pause: Option<&Pause>| pause.and_then(|pause| pause.left(monotonic));
        let due = match (&owing.telling, owing.news.due_at(self.window)) {
            (Some(_), _) => waits(self.later.get(&key)),
            (None, Some(due_at)) => {
                // A clock that is set back delays nothing beyond the window.
                let left = due_at.since(self.clock.now()).min(self.window);
                (left.0 > 0).then_some(left)
            }
            (None, None) => return Ok(None),
        };
        // While the way is closed nothing is closed into a message: more may join it.
        if let Some(wait) = due.max(waits(self.closed.as_ref())) {
            return Ok(Some(wait));
        }
        let telling = match owing.telling {
            Some(telling) => telling,
            None => {
                self.ask(Command::BeginTelling { key }).await?;
                match self.read(move |handle| handle.view().owing(key)).await?.telling {
                    Some(telling) => telling,
                    None => return Ok(None),
                }
            }
        };
        let sent = self.send(key, telling.clone()).await?;
        self.handle.health().metrics().told(match &sent {
            Ok(()) => Told::Told,
            Err(Fault::Refused(_)) => Told::Refused,
            Err(Fault::Later(_)) => Told::PutOff,
            Err(Fault::Down(_)) => Told::Down,
        });
        let refused = match sent {
            Ok(()) => None,
            Err(Fault::Refused(why)) => Some(why),
            Err(Fault::Later(why)) if self.clock.now().since(telling.at) >= GIVE_UP_AFTER => Some(why),
            Err(Fault::Later(why)) => {
                tracing::warn!(why, endpoint = %key.endpoint, "a message to an owner was put off");
                let pause = Pause::after(self.later.get(&key).copied(), monotonic);
                self.later.insert(key, pause);
                return Ok(pause.left(monotonic));
            }
            Err(Fault::Down(why)) => {
                tracing::warn!(why, channel = self.channel.name(), "no message to an owner can leave now");
                let pause = Pause::after(self.closed, monotonic);
                self.closed = Some(pause);
                return Ok(pause.left(monotonic));
            }
        };
        self.later.remove(&key);
        self.closed = None;
        if let Some(why) = &refused {
            tracing::warn!(why, endpoint = %key.endpoint, "a message to an owner was refused for good");
        }
        let (began, channel) = (telling.began, self.channel.name().into());
        self.ask(Command::OwnerTold { key, began, channel, refused: refused.map(Into::into) }).await?;
        // What gathered meanwhile.
        let owing = self.read(move |handle| handle.view().owing(key)).await?;
        Ok(owing.news.due_at(self.window).map(|due_at| due_at.since(self.clock.now()).min(self.window)))
    }

    async fn send(&self, key: EndpointKey, telling: Telling) -> Result<Result<(), Fault>, Stop> {
        let (links, now) = (self.links.clone(), self.clock.now());
        let Some(message) = self.read(move |handle| compose(handle, key, &telling, &links, now)).await?
        else {
            return Ok(Err(Fault::Refused("there is no such endpoint any more".into())));
        };
        let letter = Letter {
            id: &message.id,
            to: message.owner_email.as_deref(),
            subject: &message.subject,
            text: &message.text,
            html: &message.html,
            json: serde_json::to_vec(&message).expect("a message is plain data").into(),
            at: now,
        };
        Ok(self.channel.send(&self.client, &letter).await)
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Handle) -> Result<T, log::Error> + Send + 'static,
    ) -> Result<T, Stop> {
        let handle = self.handle.clone();
        let read = tokio::task::spawn_blocking(move || read(&handle)).await;
        Ok(read.map_err(|_| log::Error::Misuse("reading what is owed failed".into()))??)
    }

    async fn ask(&self, command: Command) -> Result<(), Stop> {
        match self.handle.ask(Actor::Hooklog, command).await {
            Ok(_) => Ok(()),
            Err(Rejection::Draining | Rejection::OutcomeUnknown) => Err(Stop::Ended),
            Err(rejection) => Err(log::Error::Misuse(format!("a message was refused: {rejection}")).into()),
        }
    }
}

/// The message, from what is so now; `None` if there is no such endpoint.
fn compose(
    handle: &Handle,
    key: EndpointKey,
    telling: &Telling,
    links: &Links,
    now: Timestamp,
) -> Result<Option<Message>, log::Error> {
    let view = handle.view();
    let (Some(account), Some(endpoint)) = (view.account(key.account)?, view.endpoint(key)?) else {
        return Ok(None);
    };
    let mut named = Vec::new();
    for seq in &telling.news.named {
        let delivery = DeliveryKey { account: key.account, seq: *seq };
        // What was replayed since the message was begun is nobody's worry any more.
        if let Some(row) = view.delivery(delivery)?.filter(|row| row.state.status() == Status::Dead) {
            named.push((view.delivery_id(delivery, &row), row));
        }
    }
    let disabled = match telling.news.disabled.map(|seq| view.entry(seq)).transpose()?.map(|entry| entry.fact)
    {
        Some(Fact::EndpointDisabled { reason, .. }) => Some(reason),
        _ => None,
    };
    let about = message::About {
        key,
        began: telling.began,
        account: &account,
        endpoint: &endpoint,
        news: &telling.news,
        named: &named,
        disabled,
        waiting: view.lane(key)?.waiting,
        links,
        now,
    };
    Ok(Some(Message::about(&about)))
}
