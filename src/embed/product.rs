//! Webhooks of a program's own customers: accounts, endpoints, events sent to them, and what became of each. All by
//! the HTTP API's own routes, called within the process: the same checks, the same words.

use std::future::IntoFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, Request};
use hooklog_projections::ids::{AccountId, DeliveryId, EndpointId, EventId};
use hooklog_projections::lifecycle::Status;
use hooklog_projections::time::Millis;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tower::ServiceExt;
use url::form_urlencoded::byte_serialize;

use super::error::Problem;
use super::{Error, Hooklog, Shared};

/// Bytes of an answer: a page of 200 deliveries with their payloads, and room.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// An endpoint that was made.
#[derive(Clone, Debug, Deserialize)]
pub struct Endpoint {
    /// Its id, `ep_…`.
    pub id: EndpointId,
    /// Whose.
    pub account_id: AccountId,
    /// The key that signs `webhook-signature`, `whsec_…`: shown only in this answer.
    pub signing_secret: String,
}

/// An event that was taken in. Durable.
#[derive(Clone, Debug, Deserialize)]
pub struct Sent {
    /// Its id: the caller's own, or `evt_…`.
    pub id: EventId,
    /// One for each endpoint that wants it.
    #[serde(deserialize_with = "only_ids")]
    pub deliveries: Vec<DeliveryId>,
    /// The same event had been taken in before; nothing was done now.
    pub duplicate: bool,
}

fn only_ids<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<DeliveryId>, D::Error> {
    #[derive(Deserialize)]
    struct Named {
        id: DeliveryId,
    }
    let named = Vec::<Named>::deserialize(deserializer)?;
    Ok(named.into_iter().map(|delivery| delivery.id).collect())
}

/// A delivery as it is now, in the API's own words (`docs/api.md`).
#[derive(Debug, Deserialize)]
pub struct Delivery {
    /// Its id, `dlv_…`.
    pub id: DeliveryId,
    /// Of which event.
    pub event_id: EventId,
    /// `payment.settled`.
    pub event_type: String,
    /// To which URL; empty for a queue's.
    #[serde(default)]
    pub endpoint_url: String,
    /// Of which queue; `None` for a URL's.
    #[serde(default)]
    pub queue: Option<String>,
    /// Where it stands.
    pub status: Status,
    /// When the next try may start, RFC 3339, UTC; while it is pending.
    #[serde(default)]
    pub due_at: Option<String>,
    /// From 1; each replay begins another.
    pub run: u32,
    /// Tries used up in this run, the one under way included.
    #[serde(rename = "try")]
    pub tried: u32,
    /// Tries that there are.
    pub tries: u32,
    /// Attempts in all runs.
    pub attempts: u32,
    /// When it was enqueued, RFC 3339, UTC.
    pub created_at: String,
    /// The payload, byte for byte, where it is JSON and was asked for.
    #[serde(default)]
    pub payload: Option<Box<RawValue>>,
    /// What the newest attempt failed of, where it was asked for.
    #[serde(default)]
    pub last_error: Option<String>,
    /// The answer to "did we send it?", of a single delivery.
    #[serde(default)]
    pub explanation: Option<Explanation>,
}

/// The answer to "did we send it?".
#[derive(Clone, Debug, Deserialize)]
pub struct Explanation {
    /// One or two sentences that begin with `Yes.`, `Not yet.` or `No.`.
    pub sentence: String,
    /// What else bears on it.
    pub reasons: Vec<String>,
    /// What to do.
    pub next_step: String,
}

/// A page of the API.
#[derive(Deserialize)]
pub(super) struct Page<T> {
    pub(super) data: Vec<T>,
    pub(super) next_cursor: Option<String>,
}

#[derive(Deserialize)]
struct Made {
    id: AccountId,
}

impl Hooklog {
    /// Makes an account: a customer of this program.
    ///
    /// # Errors
    /// A name that does not fit.
    pub async fn account(&self, name: &str) -> Result<AccountId, Error> {
        let made: Made = self.shared.post("/v1/accounts", &json!({ "name": name })).await?;
        Ok(made.id)
    }

    /// Makes an endpoint of an account: what is sent goes to this URL, signed, and is retried by the policies.
    /// For settings beyond the defaults ask the [`router`](Self::router).
    ///
    /// # Errors
    /// A URL that [`Options::guard`](super::Options::guard) refuses.
    pub async fn endpoint(&self, account: AccountId, url: &str) -> Result<Endpoint, Error> {
        self.shared.post("/v1/endpoints", &json!({ "account_id": account, "url": url })).await
    }

    /// Sends an event to every endpoint of an account that wants its type. Await it; what it answers is durable.
    ///
    /// ```
    /// # async fn example(hooklog: hooklog::Hooklog) -> Result<(), hooklog::embed::Error> {
    /// let acme = hooklog.account("Acme").await?;
    /// hooklog.endpoint(acme, "https://hooks.acme.example/in").await?;
    /// let sent = hooklog.send(acme, "payment.settled", &serde_json::json!({ "amount": 12900 })).id("pay-7").await?;
    /// println!("{}", hooklog.explain(sent.id.as_str()).await?.sentence);
    /// # Ok(())
    /// # }
    /// ```
    pub fn send(&self, account: AccountId, event_type: &str, data: &impl Serialize) -> Send {
        let mut members = Map::new();
        members.insert("account_id".into(), account.to_string().into());
        members.insert("type".into(), event_type.into());
        Send { shared: self.shared.clone(), members, data: serde_json::value::to_raw_value(data) }
    }

    /// Did we send it? The answer for the id of an event, a delivery, an endpoint or an account.
    ///
    /// # Errors
    /// `not-found`; `ambiguous-id` if several accounts have an event of this id.
    pub async fn explain(&self, id: &str) -> Result<Explanation, Error> {
        self.shared.get(&format!("/v1/explain/{}", path(id))).await
    }

    /// A delivery as it is now, with its explanation and last error.
    ///
    /// # Errors
    /// `not-found`.
    pub async fn delivery(&self, id: DeliveryId) -> Result<Delivery, Error> {
        self.shared.get(&format!("/v1/deliveries/{id}")).await
    }

    /// Sends an event's dead deliveries, or one dead delivery, again: a new run, at its first try.
    ///
    /// # Errors
    /// `nothing-to-replay` says what there is instead; `not-found`.
    pub async fn replay(&self, id: &str) -> Result<(), Error> {
        self.shared.replay(id).await
    }
}

/// An event to send. Nothing happens until it is awaited.
#[must_use = "await it, or nothing is sent"]
pub struct Send {
    shared: Arc<Shared>,
    members: Map<String, Value>,
    data: Result<Box<RawValue>, serde_json::Error>,
}

impl Send {
    /// The program's own id, `[A-Za-z0-9_~-]{1,64}`: the same id with the same data is one event.
    pub fn id(self, id: &str) -> Send {
        self.with("id", id.into())
    }

    /// Another number of tries than the schedule's, 1 to 101.
    pub fn max_tries(self, tries: u32) -> Send {
        self.with("max_tries", tries.into())
    }

    /// Not sooner than so much later.
    pub fn delay(self, delay: Duration) -> Send {
        let now = self.shared.live().map(|live| live.clock.now()).unwrap_or_default();
        self.with("deliver_at", crate::api::moment_text(now + Millis(delay.as_millis() as u64)).into())
    }

    fn with(mut self, name: &str, value: Value) -> Send {
        self.members.insert(name.into(), value);
        self
    }
}

impl IntoFuture for Send {
    type Output = Result<Sent, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + std::marker::Send>>;

    fn into_future(self) -> Self::IntoFuture {
        #[derive(Serialize)]
        struct Event {
            #[serde(flatten)]
            members: Map<String, Value>,
            data: Box<RawValue>,
        }
        Box::pin(async move {
            let event = Event { members: self.members, data: self.data? };
            self.shared.post("/v1/events", &event).await
        })
    }
}

impl Shared {
    pub(super) async fn replay(&self, id: &str) -> Result<(), Error> {
        let room = if id.starts_with(DeliveryId::PREFIX) { "deliveries" } else { "events" };
        let _: Value = self.post(&format!("/v1/{room}/{}/replay", path(id)), &json!({})).await?;
        Ok(())
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.call(Method::GET, path, Body::empty()).await
    }

    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Error> {
        self.call(Method::POST, path, serde_json::to_vec(body)?.into()).await
    }

    async fn call<T: DeserializeOwned>(&self, method: Method, path: &str, body: Body) -> Result<T, Error> {
        let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, "application/json");
        let request = request.body(body).map_err(|error| Error::Failed(error.to_string()))?;
        let router = self.live()?.router.clone();
        let Ok(response) = router.oneshot(request).await;
        let status = response.status();
        let body = to_bytes(response.into_body(), ANSWER_BYTES_MAX).await;
        let body = body.map_err(|error| Error::Failed(error.to_string()))?;
        if status.is_success() {
            Ok(serde_json::from_slice(&body)?)
        } else {
            Err(serde_json::from_slice::<Problem>(&body)?.into())
        }
    }
}

/// A foreign text as a part of a path.
fn path(text: &str) -> String {
    byte_serialize(text.as_bytes()).collect()
}
