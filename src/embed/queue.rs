//! A worker queue of an embedding program: jobs put in, listed, and put back in line. Never works on one.

use std::collections::BTreeMap;
use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hooklog_projections::fact::{AccountSettings, Actor, EndpointSettings, Schemes};
use hooklog_projections::ids::{AccountId, DeliveryId, EndpointId, EndpointKey, EventId};
use hooklog_projections::lifecycle::Status;
use hooklog_projections::policy::{Rollout, Schedule};
use hooklog_projections::time::Millis;
use serde::Serialize;

use super::product::{Delivery, Page};
use super::{Error, Live, Shared};
use crate::api::queues::{IN_FLIGHT_MAX, JOB_TYPE, fits_a_queue};
use crate::clock::{Chance, SystemChance};
use crate::engine::command::body_ref;
use crate::engine::{Answer, Command, Enqueue as Wish, Rejection};
use crate::ids::drawn;
use crate::log::Body;
use crate::secrets::Purpose;

/// Tries of a job unless it says otherwise: nine waits, about an hour and a half (ukue's default).
pub const TRIES_DEFAULT: u32 = 10;
/// The account that owns the queues a program makes by name: one for each store, the same at every start.
const OWN_ACCOUNT: AccountId = AccountId(1);
/// Deliveries of a page.
const PAGE: usize = 50;

/// A worker queue. Cheap to clone.
#[derive(Clone)]
pub struct Queue {
    pub(super) shared: Arc<Shared>,
    pub(super) key: EndpointKey,
    name: Arc<str>,
}

/// A job that was put in. Durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// Its id: the caller's own, or `evt_…`.
    pub id: EventId,
    /// Its delivery, `dlv_…`: what [`Queue::list`] shows and [`Queue::retry`] takes.
    pub delivery: DeliveryId,
    /// The same job had been put in before; nothing was done now.
    pub duplicate: bool,
}

/// Which jobs [`Queue::list`] shows.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Only of this status; all if absent.
    pub status: Option<Status>,
    /// At most so many, newest first; 1,000.
    pub limit: usize,
}

impl Default for Filter {
    fn default() -> Filter {
        Filter { status: None, limit: 1_000 }
    }
}

impl From<Status> for Filter {
    fn from(status: Status) -> Filter {
        Filter { status: Some(status), ..Filter::default() }
    }
}

impl Queue {
    /// The queue of a name; made in the store's own account if it is not there.
    pub(super) async fn ensure(shared: &Arc<Shared>, name: &str) -> Result<Queue, Error> {
        if !fits_a_queue(name) {
            let detail = "a queue's name is 1 to 64 characters of A-Z, a-z, 0-9, `_` and `-`".into();
            return Err(Error::Refused { code: "invalid".into(), detail });
        }
        let live = shared.live()?;
        if let Some(key) = live.handle.view().queue(name)? {
            return Ok(Queue { shared: shared.clone(), key, name: name.into() });
        }
        make_own_account(shared, &live).await?;
        let endpoint = EndpointId(drawn(live.clock.now(), &mut SystemChance));
        let key = EndpointKey { account: OWN_ACCOUNT, endpoint };
        let settings = EndpointSettings {
            // Jobs are aimed at it; events of the account go elsewhere.
            event_types: Vec::new(),
            schedule: Some(Schedule::Ukue),
            in_flight_max: IN_FLIGHT_MAX as u32,
            schemes: Schemes { standard: false, ledger: false },
            queue: Some(name.into()),
            ..EndpointSettings::default()
        };
        match shared.ask(Command::CreateEndpoint { key, settings, signing: Vec::new(), secret: None }).await {
            Ok(_) => Ok(Queue { shared: shared.clone(), key, name: name.into() }),
            // Another task was faster.
            Err(Error::Rejected(Rejection::QueueExists { .. })) => {
                let key = live.handle.view().queue(name)?.ok_or(Rejection::UnknownQueue)?;
                Ok(Queue { shared: shared.clone(), key, name: name.into() })
            }
            Err(error) => Err(error),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Puts a job in, whose payload is a value as JSON. Await it; what it answers is durable.
    pub fn enqueue(&self, payload: &impl Serialize) -> Enqueue {
        let bytes = serde_json::to_vec(payload).map(Bytes::from).map_err(Error::Json);
        self.enqueued(bytes, "application/json")
    }

    /// Puts a job in, whose payload is bytes of any kind.
    pub fn enqueue_bytes(&self, payload: impl Into<Bytes>) -> Enqueue {
        self.enqueued(Ok(payload.into()), "application/octet-stream")
    }

    fn enqueued(&self, payload: Result<Bytes, Error>, content_type: &'static str) -> Enqueue {
        Enqueue {
            queue: self.clone(),
            payload,
            content_type,
            id: None,
            event_type: JOB_TYPE.into(),
            delay: Duration::ZERO,
            max_tries: TRIES_DEFAULT,
        }
    }

    /// Puts many jobs in; they share their syncs. Answers one result for each, in their order.
    pub async fn enqueue_many(
        &self,
        jobs: impl IntoIterator<Item = Enqueue>,
    ) -> Vec<Result<Enqueued, Error>> {
        futures::future::join_all(jobs.into_iter().map(IntoFuture::into_future)).await
    }

    /// Its jobs, newest first, with payload and last error.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn list(&self, filter: impl Into<Filter>) -> Result<Vec<Delivery>, Error> {
        let filter = filter.into();
        let status = filter.status.map_or(String::new(), |status| format!("&status={}", status.as_str()));
        let (mut found, mut cursor) = (Vec::new(), String::new());
        while found.len() < filter.limit {
            let limit = (filter.limit - found.len()).min(PAGE);
            let path = format!(
                "/v1/deliveries?queue={}&include=payload,last_error&limit={limit}{status}{cursor}",
                self.name
            );
            let page: Page<Delivery> = self.shared.get(&path).await?;
            found.extend(page.data);
            match page.next_cursor {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        Ok(found)
    }

    /// Puts dead jobs back in line by the id of their event or delivery, each at its first try again. Answers what
    /// was refused, by id.
    pub async fn retry<I>(&self, ids: I) -> BTreeMap<String, Error>
    where
        I: IntoIterator<Item: ToString>,
    {
        let mut refused = BTreeMap::new();
        for id in ids {
            let id = id.to_string();
            if let Err(error) = self.shared.replay(&id).await {
                refused.insert(id, error);
            }
        }
        refused
    }
}

/// A job to put in. Nothing happens until it is awaited.
#[must_use = "await it, or nothing is put in"]
pub struct Enqueue {
    queue: Queue,
    payload: Result<Bytes, Error>,
    content_type: &'static str,
    id: Option<String>,
    event_type: String,
    delay: Duration,
    max_tries: u32,
}

impl Enqueue {
    /// The program's own id, `[A-Za-z0-9_~-]{1,64}`: the same id with the same payload is one job.
    pub fn id(mut self, id: impl Into<String>) -> Enqueue {
        self.id = Some(id.into());
        self
    }

    /// A type to list and filter by, as `invoice.paid`; `job` if nobody says.
    pub fn event_type(mut self, event_type: impl Into<String>) -> Enqueue {
        self.event_type = event_type.into();
        self
    }

    /// Not sooner than so much later.
    pub fn delay(mut self, delay: Duration) -> Enqueue {
        self.delay = delay;
        self
    }

    /// The number of tries, the first included; [`TRIES_DEFAULT`] if nobody says. With 30 the waits add up to
    /// between 21 and 24 hours.
    pub fn max_tries(mut self, tries: u32) -> Enqueue {
        self.max_tries = tries;
        self
    }

    async fn put_in(self) -> Result<Enqueued, Error> {
        let (shared, live) = (&self.queue.shared, self.queue.shared.live()?);
        let bytes = self.payload?;
        if bytes.len() > live.data_bytes_max {
            let detail =
                format!("the payload has {} bytes; at most {} fit", bytes.len(), live.data_bytes_max);
            return Err(Error::Refused { code: "too-large".into(), detail });
        }
        crate::api::queues::check_type(&self.event_type)
            .map_err(|detail| Error::Refused { code: "invalid".into(), detail })?;
        let now = live.clock.now();
        let event = match self.id {
            Some(id) => id.parse().map_err(|error: hooklog_projections::ids::BadEventId| Error::Refused {
                code: "invalid".into(),
                detail: error.to_string(),
            })?,
            None => EventId::drawn(drawn(now, &mut SystemChance)),
        };
        let body = Body { salt: SystemChance.bytes(), bytes };
        let wish = Wish {
            account: self.queue.key.account,
            event: event.clone(),
            event_type: self.event_type.into(),
            body_ref: body_ref(&body, self.content_type),
            utf8: std::str::from_utf8(&body.bytes).is_ok(),
            body,
            deliver_at: (!self.delay.is_zero()).then(|| now + Millis(self.delay.as_millis() as u64)),
            max_tries: Some(self.max_tries),
            expire_at: None,
            endpoint: Some(self.queue.key.endpoint),
        };
        match shared.ask(Command::Enqueue(Box::new(wish))).await? {
            Answer::Accepted { at, deliveries, duplicate, .. } if deliveries.len() == 1 => {
                let delivery = live.handle.published().ids().delivery_id(deliveries[0], at);
                Ok(Enqueued { id: event, delivery, duplicate })
            }
            other => Err(Error::Failed(format!("the engine gave an answer of another kind: {other:?}"))),
        }
    }
}

impl IntoFuture for Enqueue {
    type Output = Result<Enqueued, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.put_in())
    }
}

impl Shared {
    pub(super) async fn ask(&self, command: Command) -> Result<Answer, Error> {
        Ok(self.live()?.handle.ask(Actor::Api("library".into()), command).await?)
    }
}

/// The account that owns queues made by name. Its owner is the program itself: nobody is mailed.
async fn make_own_account(shared: &Shared, live: &Live) -> Result<(), Error> {
    if live.handle.view().account(OWN_ACCOUNT)?.is_some() {
        return Ok(());
    }
    let settings = AccountSettings {
        name: "queues of this store".into(),
        owner_email: None,
        schedule: None,
        response_policy: None,
        webhook_retries: Rollout::On,
    };
    // It signs nothing as long as the account has no URL; drawn all the same, for it may get one.
    let secret: [u8; 32] = SystemChance.bytes();
    let text = zeroize::Zeroizing::new(secret.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    let purpose = Purpose::AccountSecret { account: OWN_ACCOUNT };
    let secret = live.master.seal(&purpose, text.as_bytes(), SystemChance.bytes());
    match shared.ask(Command::CreateAccount { account: OWN_ACCOUNT, settings, secret }).await {
        Ok(_) | Err(Error::Rejected(Rejection::AccountExists)) => Ok(()),
        Err(error) => Err(error),
    }
}
