//! What the cases of `tests/cases_*.rs` share: a real store with its API, receivers that keep what they got, a
//! clock that stands until it is told otherwise, and the list of what is always true. Stands in for: a customer,
//! an operator, and the time that passes between them.
#![allow(dead_code)]

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, Once};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, Method, Request, StatusCode};
use hooklog::api::{ApiOptions, ApiState, router};
use hooklog::clock::{Clock, ManualClock, SystemClock};
use hooklog::delivery::Client;
use hooklog::delivery::client::{Lookup, Options as ClientOptions};
use hooklog::delivery::guard::Policy;
use hooklog::engine::{Command, ServerPolicy};
use hooklog::notify::{Channel, Teller};
use hooklog::store::{Options, Store};
use hooklog_projections::fact::Actor;
use hooklog_projections::ids::{AccountId, DeliveryKey, Seq};
use hooklog_projections::time::{Millis, Timestamp};
use serde_json::{Value, json};
use standardwebhooks::Webhook;
use tempfile::TempDir;
use tower::ServiceExt;

use super::judge::ledger;
use super::receiver::{Received, Receiver, Reply, answer};

/// Far longer than anything here takes: a test that waits so long has failed.
pub const LONG: Duration = Duration::from_secs(60);
/// The secret of endpoint and account in the cases: bytes 00…1f.
pub const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// The secret that follows it in a rotation: bytes 20…3f.
pub const SECOND: &str = "whsec_ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8=";
/// The moment of the cases' signature vectors.
pub const VECTORS_AT: Timestamp = Timestamp(1_700_000_000_000);

/// How a case's store is run.
pub struct Setup {
    /// Stands until told otherwise; the machine's clock if absent.
    pub clock: Option<Arc<ManualClock>>,
    /// Server-wide policies.
    pub policy: ServerPolicy,
    /// What may be reached: loopback, unless told.
    pub guard: Policy,
    /// Where names are resolved; by the system if absent.
    pub names: Option<Arc<dyn Lookup>>,
    /// Time limits and authorities of the client.
    pub client: ClientOptions,
    /// A replay, a connection that was lost under a kept request: requests that are no attempt of their own.
    pub resends: u64,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            clock: Some(ManualClock::at(VECTORS_AT)),
            policy: ServerPolicy::default(),
            guard: Policy {
                allow: vec!["127.0.0.0/8".parse().expect("a line"), "::1".parse().expect("a line")],
                allow_http: true,
                ..Policy::default()
            },
            names: None,
            client: ClientOptions::default(),
            resends: 0,
        }
    }
}

/// A store that runs, and everything that a case does to it.
pub struct World {
    /// Where it lies.
    pub folder: TempDir,
    setup: Setup,
    open: Option<(Store, ApiState, Router)>,
    /// What must never be logged.
    secrets: Mutex<Vec<String>>,
    accounts: Mutex<Vec<String>>,
    /// The body that each event must have, by its id; several accounts may use one id.
    bodies: Mutex<HashMap<String, Vec<Bytes>>>,
}

/// A receiver that keeps what it got.
pub struct Hook {
    receiver: Receiver,
    seen: Vec<Received>,
}

/// An answer of the API.
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its fields.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Answer {
    /// The body of an answer that had to have this status.
    #[track_caller]
    pub fn ok(&self, status: u16) -> Value {
        assert_eq!(self.status.as_u16(), status, "{}", String::from_utf8_lossy(&self.body));
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {:?}", self.body))
    }

    /// The code of a refusal with this status, and of each member that did not fit.
    #[track_caller]
    pub fn refused(&self, status: u16) -> Vec<String> {
        let body = self.ok(status);
        let errors = body["errors"].as_array().cloned().unwrap_or_default();
        let inner = errors.iter().map(|e| format!("{} {}", text(&e["pointer"]), text(&e["code"])));
        [text(&body["code"])].into_iter().chain(inner).collect()
    }
}

/// A text of JSON.
#[track_caller]
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

/// The ids of an event's deliveries.
pub fn deliveries(event: &Value) -> Vec<String> {
    event["deliveries"].as_array().expect("a list").iter().map(|d| text(&d["id"])).collect()
}

/// The id of an event's only delivery.
pub fn delivery(event: &Value) -> String {
    let [only] = deliveries(event).try_into().expect("one delivery");
    only
}

impl Hook {
    /// Answers its first request with the first reply and so on; the last one is repeated.
    pub async fn scripted(replies: Vec<Reply>) -> Hook {
        Hook { receiver: Receiver::scripted(replies).await, seen: Vec::new() }
    }

    /// Answers each request as `reply` says.
    pub async fn answering(reply: impl FnMut(&Received) -> Reply + Send + 'static) -> Hook {
        Hook { receiver: Receiver::answering(reply).await, seen: Vec::new() }
    }

    /// A URL of it.
    pub fn url(&self, path: &str) -> String {
        self.receiver.url(path)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.receiver.address.port()
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.receiver.connections()
    }

    /// The next request, once it is there.
    pub async fn next(&mut self) -> Received {
        let next = tokio::time::timeout(LONG, self.receiver.next()).await.expect("a request");
        self.seen.push(next.clone());
        next
    }

    /// The next so many requests.
    pub async fn take(&mut self, count: usize) -> Vec<Received> {
        let mut taken = Vec::new();
        for _ in 0..count {
            taken.push(self.next().await);
        }
        taken
    }

    /// Every request so far.
    pub fn all(&mut self) -> &[Received] {
        self.seen.extend(self.receiver.so_far());
        &self.seen
    }

    /// How many requests came in.
    pub fn count(&mut self) -> usize {
        self.all().len()
    }
}

impl World {
    /// At the moment of the vectors, with all defaults.
    pub async fn new() -> World {
        World::with(Setup::default())
    }

    /// As told.
    pub fn with(setup: Setup) -> World {
        capture_logs();
        let mut world = World {
            folder: tempfile::tempdir().expect("a folder"),
            setup,
            open: None,
            secrets: Mutex::default(),
            accounts: Mutex::default(),
            bodies: Mutex::default(),
        };
        world.start();
        world
    }

    fn start(&mut self) {
        let clock: Arc<dyn Clock> = match &self.setup.clock {
            Some(clock) => clock.clone(),
            None => SystemClock::start(),
        };
        let options = Options {
            guard: self.setup.guard.clone(),
            policy: self.setup.policy.clone(),
            client: self.setup.client.clone(),
            ..Options::new(self.folder.path())
        };
        let store = match &self.setup.names {
            None => Store::open(options, clock.clone(), true, &mut |_, _| {}),
            Some(names) => {
                let client = (options.guard.clone(), options.client.clone());
                let client = Client::with_lookup(client.0, client.1, names.clone()).expect("a client");
                Store::open_with(options, client, clock.clone(), true, &mut |_, _| {})
            }
        };
        let store = store.expect("a store");
        let api = ApiOptions { open: true, policy: self.setup.policy.clone(), ..ApiOptions::default() };
        let guard = self.setup.guard.clone();
        let state = ApiState::new(store.handle().clone(), store.master().clone(), clock, guard, api);
        let router = router(state.clone());
        self.open = Some((store, state, router));
    }

    /// Stops the store in order and opens it again.
    pub async fn restart(&mut self) {
        self.stop().await;
        self.start();
    }

    /// Opens a stopped store again, under another guard.
    pub fn resume_with(&mut self, guard: Policy) {
        self.setup.guard = guard;
        self.start();
    }

    /// Opens a stopped store again.
    pub fn resume(&mut self) {
        self.start();
    }

    /// Stops the store in order.
    pub async fn stop(&mut self) {
        let (store, ..) = self.open.take().expect("it runs");
        store.close(LONG).await.expect("in order");
    }

    /// The store.
    pub fn store(&self) -> &Store {
        &self.open.as_ref().expect("it runs").0
    }

    /// The API, to be served.
    pub fn api(&self) -> ApiState {
        self.open.as_ref().expect("it runs").1.clone()
    }

    /// The moment now.
    pub fn now(&self) -> Timestamp {
        self.store().clock().now()
    }

    /// Lets time pass. When this returns, whatever may start by then has been recorded.
    pub async fn advance(&self, span: Millis) {
        self.setup.clock.as_ref().expect("a clock that can be told").advance(span);
        self.turn().await;
    }

    /// As [`advance`](Self::advance), in seconds.
    pub async fn advance_secs(&self, secs: u64) {
        self.advance(Millis::from_secs(secs)).await;
    }

    /// Waits for a whole turn of the writer.
    pub async fn turn(&self) {
        let nothing = DeliveryKey { account: AccountId(0), seq: Seq(1) };
        let asked = self.store().handle().ask(Actor::Cli, Command::RetryNow { delivery: nothing });
        asked.await.expect_err("there is no such delivery");
    }

    /// Sends a request to the API.
    pub async fn send(&self, request: Request<Body>) -> Answer {
        let router = self.open.as_ref().expect("it runs").2.clone();
        let response = tokio::time::timeout(LONG, router.oneshot(request)).await.expect("in time");
        let (parts, body) = response.expect("infallible").into_parts();
        let body = to_bytes(body, usize::MAX).await.expect("a body");
        Answer { status: parts.status, headers: parts.headers, body }
    }

    /// Gets something.
    pub async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Body::empty()).expect("a request")).await
    }

    /// Posts JSON.
    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.call(Method::POST, path, "application/json", body.to_string()).await
    }

    /// Changes something.
    pub async fn patch(&self, path: &str, body: Value) -> Answer {
        self.call(Method::PATCH, path, "application/json", body.to_string()).await
    }

    /// Sends any bytes.
    pub async fn call(&self, method: Method, path: &str, kind: &str, body: impl Into<Body>) -> Answer {
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        self.send(request.body(body.into()).expect("a request")).await
    }

    /// An account whose secret is [`SECRET`].
    pub async fn account(&self) -> String {
        self.account_of(json!({ "name": "Acme", "secret": SECRET })).await
    }

    /// An account.
    pub async fn account_of(&self, members: Value) -> String {
        let made = self.post("/v1/accounts", members).await.ok(201);
        self.keep_secret(&text(&made["secret"]));
        self.accounts.lock().expect("no holder panics").push(text(&made["id"]));
        text(&made["id"])
    }

    /// An endpoint that signs with [`SECRET`].
    pub async fn endpoint(&self, account: &str, url: &str) -> String {
        self.endpoint_of(account, url, json!({ "signing_secret": SECRET })).await
    }

    /// An endpoint.
    pub async fn endpoint_of(&self, account: &str, url: &str, members: Value) -> String {
        let mut body = json!({ "account_id": account, "url": url });
        for (name, value) in members.as_object().expect("an object") {
            body[name] = value.clone();
        }
        let made = self.post("/v1/endpoints", body).await.ok(201);
        self.keep_secret(&text(&made["signing_secret"]));
        text(&made["id"])
    }

    /// An event of these data, which are sent as they stand.
    pub async fn event(&self, account: &str, id: &str, data: &str) -> Value {
        self.event_with(account, id, data, "").await
    }

    /// An event with more members, such as `,"max_tries":1`.
    pub async fn event_with(&self, account: &str, id: &str, data: &str, more: &str) -> Value {
        let body = format!(
            r#"{{"account_id":"{account}","id":"{id}","type":"payment.settled","data":{data}{more}}}"#
        );
        let taken = self.call(Method::POST, "/v1/events", "application/json", body).await.ok(202);
        let sent = format!(r#"{{"id":"{id}","type":"payment.settled","data":{data}}}"#);
        self.expect_body(id, sent);
        taken
    }

    /// An event whose body is these bytes.
    pub async fn raw(&self, account: &str, id: &str, kind: &str, body: impl Into<Bytes>) -> Answer {
        let path = format!("/v1/events/raw?account_id={account}&type=payment.settled&id={id}");
        let body: Bytes = body.into();
        let answer = self.call(Method::POST, &path, kind, body.clone()).await;
        if answer.status == StatusCode::ACCEPTED {
            self.expect_body(id, body);
        }
        answer
    }

    /// Notes what a taken event's requests must carry.
    pub fn expect_body(&self, id: &str, body: impl Into<Bytes>) {
        let mut bodies = self.bodies.lock().expect("no holder panics");
        bodies.entry(id.to_owned()).or_default().push(body.into());
    }

    /// A delivery as it is now.
    pub async fn delivery(&self, id: &str) -> Value {
        self.get(&format!("/v1/deliveries/{id}")).await.ok(200)
    }

    /// A delivery's attempts.
    pub async fn attempts(&self, id: &str) -> Vec<Value> {
        let attempts = self.get(&format!("/v1/deliveries/{id}/attempts")).await.ok(200);
        attempts["data"].as_array().expect("a list").clone()
    }

    /// The delivery once it is in a status; what it waits for is under way already.
    pub async fn until(&self, id: &str, status: &str) -> Value {
        self.until_so(id, &|now| now["status"] == status).await
    }

    /// The delivery once so many attempts have ended, none being in flight.
    pub async fn until_tried(&self, id: &str, attempts: u64) -> Value {
        self.until_so(id, &|now| now["attempts"] == attempts && now["status"] != "in_flight").await
    }

    /// The delivery once no request of it is out.
    pub async fn until_idle(&self, id: &str) -> Value {
        self.until_so(id, &|now| now["status"] != "in_flight").await
    }

    async fn until_so(&self, id: &str, so: &dyn Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let seen = async {
            loop {
                let now = self.delivery(id).await;
                if so(&now) {
                    return now;
                }
                last = now;
                tokio::task::yield_now().await;
            }
        };
        let seen = tokio::time::timeout(LONG, seen).await;
        seen.unwrap_or_else(|_| panic!("it never came so far: {last}"))
    }

    /// How long from now until the delivery is due.
    pub fn due_in(&self, delivery: &Value) -> Millis {
        moment(&delivery["due_at"]).since(self.now())
    }

    /// Notes what must never be logged.
    pub fn keep_secret(&self, secret: &str) {
        let secret = secret.strip_prefix("whsec_").unwrap_or(secret).to_owned();
        self.secrets.lock().expect("no holder panics").push(secret);
    }

    /// Checks what is true after every case: the API answers; every delivery that has not ended is due or has
    /// exactly one request out; of one delivery, an attempt begins only after the one before has ended; no run has
    /// more tries than were configured, and there are no more requests than attempts; each request carries its
    /// event's id, twice alike, and the bytes that were handed in; nothing that was logged holds a secret, or says
    /// that anything panicked.
    pub async fn always_true(&self, hooks: &mut [&mut Hook]) {
        let status = self.get("/v1/status").await.ok(200);
        assert_eq!(status["conserved"], true, "{status}");
        let accounts = self.accounts.lock().expect("no holder panics").clone();
        let mut attempts: BTreeMap<String, u64> = BTreeMap::new();
        for account in &accounts {
            for row in self.all_deliveries(account).await {
                let id = text(&row["id"]);
                let tried = self.attempts(&id).await;
                assert_eq!(row["attempts"], tried.len(), "{row}");
                in_order(&row, &tried);
                let out = tried.iter().filter(|attempt| attempt["status"] == "in_flight").count();
                match row["status"].as_str().expect("a status") {
                    "pending" => assert!(row["due_at"].is_string() && out == 0, "{row}"),
                    // It may have ended between the two looks.
                    "in_flight" => assert!(row.get("due_at").is_none() && out <= 1, "{row}"),
                    _ => assert!(row.get("due_at").is_none() && out == 0, "{row}"),
                }
                *attempts.entry(text(&row["event_id"])).or_default() += tried.len() as u64;
            }
        }
        let mut requests: BTreeMap<String, u64> = BTreeMap::new();
        let mut bodies: HashMap<String, Vec<Bytes>> = HashMap::new();
        for received in hooks.iter_mut().flat_map(|hook| hook.all().to_vec()) {
            let [id] = received.values("idempotency-key")[..] else { panic!("one id: {received:?}") };
            let id = id.to_owned();
            assert!(received.values("webhook-id").iter().all(|other| *other == id), "{received:?}");
            *requests.entry(id.clone()).or_default() += 1;
            if !bodies.contains_key(&id) {
                let mut kept = Vec::new();
                for account in &accounts {
                    let payload = self.get(&format!("/v1/events/{id}/payload?account_id={account}")).await;
                    kept.extend((payload.status == StatusCode::OK).then_some(payload.body));
                }
                // What was handed in, where the test noted it; else what was kept. Both, they are the same.
                if let Some(given) = self.bodies.lock().expect("no holder panics").get(&id) {
                    assert!(kept.iter().all(|body| given.contains(body)), "{id} is kept otherwise: {kept:?}");
                    kept.clone_from(given);
                }
                bodies.insert(id.clone(), kept);
            }
            let sent = bodies[&id].iter().any(|body| *body == *received.body());
            assert!(sent, "another body than was accepted for {id}: {received:?}");
        }
        let over: u64 =
            requests.iter().map(|(id, n)| n.saturating_sub(attempts.get(id).copied().unwrap_or(0))).sum();
        assert!(over <= self.setup.resends, "more requests than attempts: {requests:?} of {attempts:?}");
        let logged = String::from_utf8_lossy(&logs()).into_owned();
        assert!(!logged.contains("panicked"), "{logged}");
        for secret in self.secrets.lock().expect("no holder panics").iter() {
            assert!(!logged.contains(secret.as_str()), "a secret was logged");
        }
    }

    /// Where the owners' messages go from now on.
    pub async fn telling(&self) -> (Hook, tokio::task::JoinHandle<()>) {
        let service = Hook::scripted(vec![answer(202, "", "")]).await;
        let channel = Channel::Service { url: service.url("/messages"), key: None };
        let store = self.store();
        let (handle, client, clock) = (store.handle().clone(), store.client().clone(), store.clock().clone());
        (service, tokio::spawn(Teller::new(handle, client, clock, channel, Millis(1)).run()))
    }

    /// Every delivery of an account.
    pub async fn all_deliveries(&self, account: &str) -> Vec<Value> {
        let list = format!("/v1/deliveries?account_id={account}&limit=200");
        let (mut rows, mut path) = (Vec::new(), list.clone());
        loop {
            let page = self.get(&path).await.ok(200);
            rows.extend(page["data"].as_array().expect("a list").clone());
            match page["next_cursor"].as_str() {
                Some(cursor) => path = format!("{list}&cursor={cursor}"),
                None => return rows,
            }
        }
    }
}

/// A delivery's attempts are numbered from 1, never overlap, and no run has more tries than it may have.
#[track_caller]
fn in_order(delivery: &Value, attempts: &[Value]) {
    let mut tries: BTreeMap<u64, u64> = BTreeMap::new();
    for (n, attempt) in attempts.iter().enumerate() {
        assert_eq!(attempt["number"], n + 1, "{attempt}");
        if n > 0 {
            let before = &attempts[n - 1];
            assert!(moment(&before["ended_at"]) <= moment(&attempt["started_at"]), "{before} {attempt}");
        }
        if attempt["counted"] == true {
            *tries.entry(attempt["run"].as_u64().expect("a number")).or_default() += 1;
        }
    }
    let most = delivery["tries"].as_u64().expect("a number");
    assert!(tries.values().all(|tries| *tries <= most), "{tries:?} tries in a run: {delivery}");
}

/// A moment of the API.
pub fn moment(value: &Value) -> Timestamp {
    let at: jiff::Timestamp = text(value).parse().expect("a moment");
    Timestamp(at.as_millisecond() as u64)
}

/// The request's `webhook-signature`, entry by entry.
pub fn signatures(request: &Received) -> Vec<String> {
    let [header] = request.values("webhook-signature")[..] else { panic!("one field: {request:?}") };
    header.split(' ').map(str::to_owned).collect()
}

/// The signature that an independent signer makes with a key over what was received.
pub fn standard(request: &Received, key: &str) -> String {
    let [id] = request.values("webhook-id")[..] else { panic!("one id: {request:?}") };
    let [at] = request.values("webhook-timestamp")[..] else { panic!("one timestamp: {request:?}") };
    let hook = Webhook::new(key).expect("a key");
    hook.sign(id, at.parse().expect("a number"), request.body()).expect("signed")
}

/// Both signatures are there and are made with these secrets, and nothing else is.
#[track_caller]
pub fn signed_with(request: &Received, keys: &[&str], account: &str) {
    let wanted: Vec<_> = keys.iter().map(|key| standard(request, key)).collect();
    assert_eq!(signatures(request), wanted);
    assert_eq!(request.values("x-ledger-signature"), [ledger(account, request.body())]);
}

static LOGS: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Logs;

impl Write for Logs {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        logs().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Everything that was logged in this process.
pub fn logs() -> MutexGuard<'static, Vec<u8>> {
    LOGS.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// All that Hooklog and its libraries log is kept from now on, as talkative as they can be.
fn capture_logs() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let filter = "trace,fjall=warn,lsm_tree=warn,mio=warn,polling=warn";
        tracing_subscriber::fmt()
            .with_env_filter(tracing_subscriber::EnvFilter::new(filter))
            .with_ansi(false)
            .with_writer(|| Logs)
            .init();
    });
}
