//! The API over a real store in a folder of its own, asked with keys; the clock that judges keys stands still
//! until it is told otherwise. Stands in for: customers, support and operators. Only receivers on loopback are reached.
#![allow(dead_code)]

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::http::{HeaderMap, Request};
use hooklog::api::{ApiOptions, ApiState, router};
use hooklog::clock::{Clock, ManualClock, SystemClock};
use hooklog::delivery::guard::Policy;
use hooklog::store::{Options, Store};
use serde_json::{Value, json};
use tempfile::TempDir;
use tower::ServiceExt;

/// Long enough never to matter on a busy machine.
pub const LONG: Duration = Duration::from_secs(60);

pub struct World {
    pub app: Router,
    pub local: Router,
    pub clock: Arc<ManualClock>,
    pub store: Store,
    pub state: ApiState,
    pub folder: TempDir,
}

/// What a browser keeps of a session.
pub struct Session {
    pub cookie: String,
    pub csrf: String,
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    #[track_caller]
    pub fn ok(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        self.json()
    }

    pub fn code(&self) -> String {
        text(&self.json()["code"])
    }

    /// What a stranger can tell one answer from another by: all but the request's id.
    pub fn tell(&self) -> (u16, Value) {
        let mut body = self.json();
        body["request_id"] = Value::Null;
        (self.status, body)
    }
}

pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}")).to_owned()
}

impl World {
    pub async fn new() -> World {
        World::with(ApiOptions::default()).await
    }

    pub async fn with(options: ApiOptions) -> World {
        let folder = tempfile::tempdir().expect("a folder");
        let clock = ManualClock::at(SystemClock::start().now());
        let allow = vec!["127.0.0.1".parse().expect("a line")];
        let guard = Policy { allow, allow_http: true, ..Policy::default() };
        let options_of_store = Options { guard: guard.clone(), ..Options::new(folder.path()) };
        let store = Store::open(options_of_store, clock.clone(), true, &mut |_, _| {}).expect("a store");
        let (handle, master) = (store.handle().clone(), store.master().clone());
        let state =
            ApiState::new(handle, master, clock.clone(), guard, options).with_front(hooklog::pages::front());
        World { app: router(state.clone()), local: router(state.local()), clock, store, state, folder }
    }

    pub async fn send(app: &Router, request: Request<Body>) -> Reply {
        let answered = tokio::time::timeout(LONG, app.clone().oneshot(request)).await;
        let (parts, body) = answered.expect("in time").expect("infallible").into_parts();
        let body = to_bytes(body, usize::MAX).await.expect("a body");
        Reply { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    /// Asks with a credential, or with none.
    pub async fn ask(&self, method: &str, path: &str, key: Option<&str>, body: &str) -> Reply {
        let mut request = Request::builder().method(method).uri(path);
        if let Some(key) = key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        if !body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        World::send(&self.app, request.body(Body::from(body.to_owned())).expect("a request")).await
    }

    /// Asks as the host's own operator does.
    pub async fn locally(&self, method: &str, path: &str, body: Value) -> Reply {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        World::send(&self.local, request.body(Body::from(body)).expect("a request")).await
    }

    pub async fn account(&self, name: &str) -> String {
        text(&self.locally("POST", "/v1/accounts", json!({ "name": name })).await.ok(201)["id"])
    }

    /// A link's secret, as it stands in the fragment of its address.
    pub async fn link(&self, account: &str, role: &str) -> String {
        let wanted = json!({ "account_id": account, "role": role });
        let made = self.locally("POST", "/v1/portal-sessions", wanted).await.ok(201);
        text(&made["url"]).split_once("/portal#").expect("a fragment").1.to_owned()
    }

    /// Exchanges a link as the portal's page does.
    pub async fn exchange(&self, link: &str, headers: &[(&str, &str)]) -> Reply {
        let mut request = Request::post("/portal/session").header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = json!({ "link": link }).to_string();
        World::send(&self.app, request.body(Body::from(body)).expect("a request")).await
    }

    /// A session of an account's.
    pub async fn session(&self, account: &str, role: &str) -> Session {
        let answer = self.exchange(&self.link(account, role).await, &[]).await;
        let told = answer.ok(201);
        let cookie = answer.headers["set-cookie"].to_str().expect("ASCII");
        let cookie = cookie.split_once(';').expect("rules").0.to_owned();
        Session { cookie, csrf: text(&told["csrf_token"]) }
    }

    /// Asks as the portal's page in a browser does.
    pub async fn in_session(&self, session: &Session, method: &str, path: &str, body: &str) -> Reply {
        let headers = [
            ("sec-fetch-site", "same-origin"),
            ("origin", "https://hooks.example.com"),
            ("x-csrf-token", session.csrf.as_str()),
            ("content-type", "application/json"),
        ];
        self.browse(session, method, path, &headers, body).await
    }

    /// Asks with a session's cookie and header fields.
    pub async fn browse(
        &self,
        session: &Session,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Reply {
        let mut request = Request::builder().method(method).uri(path);
        request =
            request.header("host", "hooks.example.com").header("cookie", format!("a=b; {}", session.cookie));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        World::send(&self.app, request.body(Body::from(body.to_owned())).expect("a request")).await
    }

    /// Waits until a delivery was given up.
    pub async fn dead(&self, delivery: &str) {
        self.comes_to(delivery, "dead").await;
    }

    /// Waits until a delivery has a status.
    pub async fn comes_to(&self, delivery: &str, status: &str) {
        let mut heads = self.store.handle().published().heads();
        loop {
            heads.borrow_and_update();
            let path = format!("/v1/deliveries/{delivery}");
            if self.locally("GET", &path, Value::Null).await.ok(200)["status"] == status {
                return;
            }
            let changed = tokio::time::timeout(LONG, heads.changed()).await;
            changed.expect("in time").expect("the engine runs");
        }
    }

    /// A key's id and text.
    pub async fn key(&self, members: Value) -> (String, String) {
        let made = self.locally("POST", "/v1/keys", members).await.ok(201);
        (text(&made["id"]), text(&made["key"]))
    }

    /// An endpoint that asks for one type only, and an event of it that is put off: their ids, and the
    /// delivery's. Nothing is sent.
    pub async fn held(&self, account: &str) -> [String; 3] {
        let wanted = json!({ "account_id": account, "url": "https://hooks.customer.example.com/",
            "event_types": ["held.back"] });
        let endpoint = text(&self.locally("POST", "/v1/endpoints", wanted).await.ok(201)["id"]);
        let due = (jiff::Timestamp::now() + jiff::Span::new().hours(48)).to_string();
        let event =
            json!({ "account_id": account, "type": "held.back", "data": {"n": 1}, "deliver_at": due });
        let event = self.locally("POST", "/v1/events", event).await.ok(202);
        [endpoint, text(&event["id"]), text(&event["deliveries"][0]["id"])]
    }
}
