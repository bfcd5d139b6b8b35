//! A store with a delivery in every state that an answer has, served on loopback. Stands in for: a morning at work.
//!
//! Time stands still until it is told otherwise, so that a page and the API say the same of it.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use hooklog::api::serve::{Listeners, serve};
use hooklog::clock::ManualClock;
use hooklog::delivery::client::Lookup;
use hooklog_projections::time::{Millis, Timestamp};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::chromium::{Browser, Scripts};
use crate::support::case::{LONG, Setup, World, deliveries, text};
use crate::support::receiver::{Received, Receiver, Reply, Step, answer};

/// A Monday afternoon.
pub const MONDAY: Timestamp = Timestamp(1_796_051_400_000);

/// Every name leads to this machine.
struct Here;

impl Lookup for Here {
    fn lookup(&self, _: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        Box::pin(async { Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]) })
    }
}

/// The store, its receiver, and where its pages are.
pub struct Stage {
    pub world: World,
    /// Scheme, host and port of the pages.
    pub origin: String,
    /// Whether the receiver answers 200 whatever it gets.
    pub mended: Arc<AtomicBool>,
    pub port: u16,
    pub account: String,
    stop: CancellationToken,
    serving: tokio::task::JoinHandle<()>,
}

/// A page with an answer.
pub struct Told {
    pub name: &'static str,
    pub event: String,
    pub path: String,
}

impl Stage {
    /// One account, and a receiver that does what an event's type says: `fails` 500, `flaky` 503 twice, `refused`
    /// 404, `gone` 410, `hangs` nothing, all else 200.
    pub async fn new() -> Stage {
        let mended = Arc::new(AtomicBool::new(false));
        let receiver = Receiver::answering(reply(mended.clone())).await;
        Stage::before(receiver, mended).await
    }

    /// Before a receiver of one's own.
    pub async fn before(receiver: Receiver, mended: Arc<AtomicBool>) -> Stage {
        Stage::at(MONDAY, receiver, mended).await
    }

    /// At another moment.
    pub async fn at(start: Timestamp, receiver: Receiver, mended: Arc<AtomicBool>) -> Stage {
        let port = receiver.address.port();
        let mut setup =
            Setup { clock: Some(ManualClock::at(start)), names: Some(Arc::new(Here)), ..Setup::default() };
        setup.guard.ports.push(port);
        let world = World::with(setup);
        let tcp = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await.expect("a port");
        let origin = format!("http://{}", tcp.local_addr().expect("its address"));
        let stop = CancellationToken::new();
        let state = world.api().with_front(hooklog::pages::front());
        let serving =
            tokio::spawn(serve(Listeners { tcp: Some(tcp), unix: None, admin: None }, state, stop.clone()));
        let account =
            world.account_of(json!({ "name": "Acme Payments", "owner_email": "ops@acme.example" })).await;
        Stage { world, origin, mended, port, account, stop, serving }
    }

    /// Stops serving.
    pub async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(LONG, self.serving).await.expect("in time").expect("no panic");
    }

    /// An endpoint at a host, for events of these types.
    pub async fn endpoint(&self, account: &str, host: &str, types: &[&str]) -> String {
        let url = format!("http://{host}:{}/hooks/ledger", self.port);
        self.world.endpoint_of(account, &url, json!({ "event_types": types })).await
    }

    /// Takes an event in; more members as JSON.
    pub async fn send(&self, account: &str, kind: &str, more: Value) -> Value {
        let mut event = json!({ "account_id": account, "type": kind,
            "data": { "invoice": "INV-2041", "amount": "129.00", "currency": "EUR" } });
        event.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        self.world.post("/v1/events", event).await.ok(202)
    }

    /// An event that goes to one endpoint, once it is so far: its id and its delivery's.
    pub async fn sent(&self, kind: &str, more: Value, status: &str) -> (String, String) {
        let event = self.send(&self.account, kind, more).await;
        let [delivery] = deliveries(&event).try_into().expect("one delivery");
        match status {
            "tried" => self.world.until_tried(&delivery, 1).await,
            status => self.world.until(&delivery, status).await,
        };
        (text(&event["id"]), delivery)
    }

    /// Something done to a delivery or an endpoint.
    pub async fn does(&self, path: &str, body: Value) {
        let answer = self.world.post(path, body).await;
        assert!(answer.status.is_success(), "{path}: {} {:?}", answer.status, answer.body);
    }

    /// Every state that an answer has, and the page that tells it.
    pub async fn every_answer(&self) -> Vec<Told> {
        let account = &*self.account;
        let main = self.endpoint(account, "hooks.acme.example.com", &["payment.*", "both.good"]).await;
        let gone = self.endpoint(account, "old.acme.example.com", &["gone.*"]).await;
        let paused = self.endpoint(account, "stock.acme.example.com", &["paused.*"]).await;
        self.endpoint(account, "crm.acme.example.com", &["both.*"]).await;
        let closed = "http://127.0.0.1:9/in";
        self.world.endpoint_of(account, closed, json!({ "event_types": ["closed.*"] })).await;
        let reason = json!({ "reason": "their stock-taking" });
        self.does(&format!("/v1/endpoints/{paused}/pause"), reason).await;

        let mut told = Vec::new();
        let mut tell = |name, event: &str| {
            let path = format!("/events/{event}?account_id={account}");
            told.push(Told { name, event: event.to_owned(), path });
        };
        let once = json!({ "max_tries": 1 });

        let (event, delivery) = self.sent("payment.flaky", json!({}), "tried").await;
        for (tries, secs) in [(2, 70), (3, 340)] {
            self.world.advance_secs(secs).await;
            self.world.until_tried(&delivery, tries).await;
        }
        self.world.until(&delivery, "delivered").await;
        tell("delivered on the third try", &event);
        let (dead, dead_delivery) = self.sent("payment.fails", once.clone(), "dead").await;
        tell("dead, tries used up", &dead);
        let (again, delivery) = self.sent("payment.fails", once.clone(), "dead").await;
        self.mended.store(true, Ordering::SeqCst);
        let replay = format!("/v1/deliveries/{delivery}/replay");
        self.does(&replay, json!({ "reason": "their server is back" })).await;
        self.world.until(&delivery, "delivered").await;
        self.mended.store(false, Ordering::SeqCst);
        tell("replayed and delivered", &again);
        let (event, _) = self.sent("payment.refused", json!({}), "dead").await;
        tell("dead, refused", &event);
        let (event, _) = self.sent("gone.first", json!({}), "dead").await;
        tell("dead, gone", &event);
        let (event, _) = self.sent("gone.second", json!({}), "pending").await;
        tell("held at a disabled endpoint", &event);
        let (event, _) = self.sent("paused.stock", json!({}), "pending").await;
        tell("held at a paused endpoint", &event);
        let (event, _) = self.sent("closed.port", json!({}), "tried").await;
        tell("no answer, another try to come", &event);
        let (event, _) = self.sent("payment.fails", json!({}), "tried").await;
        tell("failed, another try to come", &event);
        let (event, delivery) = self.sent("payment.fails", json!({}), "tried").await;
        let cancel = format!("/v1/deliveries/{delivery}/cancel");
        self.does(&cancel, json!({ "reason": "sent by post" })).await;
        tell("cancelled", &event);
        let later = json!({ "deliver_at": "2026-12-01T08:00:00Z" });
        let (event, _) = self.sent("payment.later", later, "pending").await;
        tell("put off", &event);
        let both = self.send(account, "both.fails", json!({ "max_tries": 1 })).await;
        self.world.until(&deliveries(&both)[0], "dead").await;
        let both = self.send(account, "both.good", json!({})).await;
        for delivery in deliveries(&both) {
            self.world.until(&delivery, "delivered").await;
        }
        tell("delivered to both", &text(&both["id"]));
        let nobody = self.send(account, "nobody.asked", json!({})).await;
        tell("nobody subscribed", &text(&nobody["id"]));
        let (event, _) = self.sent("payment.settled", json!({}), "delivered").await;
        tell("delivered at once", &event);
        let (event, _) = self.sent("payment.hangs", json!({}), "in_flight").await;
        tell("in flight", &event);
        let earlier = format!("/events/{dead}?account_id={account}&at=2026-11-30T00:00:00Z");
        told.push(Told { name: "before it was taken in", event: dead, path: earlier });
        let delivery = format!("/deliveries/{dead_delivery}?account_id={account}");
        told.push(Told { name: "a delivery's own page", event: dead_delivery, path: delivery });
        let _ = (main, gone);
        told
    }

    /// Every screen of the console that has something to show, and some that have not. There are answers already.
    pub async fn screens(&self, told: &[Told]) -> Vec<String> {
        let account = &self.account;
        let wish = json!({ "account_id": account, "filter": { "status": "dead" }, "reason": "their server is back",
            "rate_per_second": 1 });
        let replay = self.world.post("/v1/replays", wish).await.ok(202);
        let endpoints = self.world.get(&format!("/v1/endpoints?account_id={account}")).await.ok(200);
        let mut screens: Vec<String> = [
            "/".to_owned(),
            format!("/events?account_id={account}"),
            "/deliveries".into(),
            "/deliveries?status=dead&event_type=payment.*".into(),
            "/deliveries?status=dead&event_type=nothing.such".into(),
            "/dead".into(),
            "/endpoints".into(),
            "/accounts".into(),
            format!("/accounts/{account}"),
            "/replays".into(),
            format!("/replays/{}?account_id={account}", text(&replay["id"])),
            format!("/replays/new?account_id={account}&status=dead"),
            "/audit".into(),
            "/system".into(),
            "/find?q=evt_none".into(),
            "/sign-in".into(),
            "/deliveries?colour=red".into(),
        ]
        .into();
        for endpoint in endpoints["data"].as_array().expect("a list").iter().take(3) {
            screens.push(format!("/endpoints/{}?account_id={account}", text(&endpoint["id"])));
        }
        screens.extend(told.iter().map(|told| told.path.clone()));
        screens
    }

    /// The same in the portal: those that stand in it, without the account, which is the session's.
    pub async fn screens_of_portal(&self, told: &[Told]) -> Vec<String> {
        let account = format!("account_id={}", self.account);
        let mut screens = self.screens(told).await;
        screens.retain(|path| {
            ["/accounts", "/audit", "/system", "/sign-in"].iter().all(|other| !path.starts_with(other))
        });
        let inside = |path: String| {
            let path = path.replace(&format!("{account}&"), "").replace(&account, "");
            format!("/portal{}", path.trim_end_matches('?'))
        };
        screens.into_iter().map(inside).collect()
    }

    /// A link of an account's to the portal, as it is handed out.
    pub async fn link(&self, account: &str, role: &str) -> String {
        let wanted = json!({ "account_id": account, "role": role });
        let made = self.world.post("/v1/portal-sessions", wanted).await.ok(201);
        let url = text(&made["url"]);
        format!("{}/portal#{}", self.origin, url.split_once("/portal#").expect("a fragment").1)
    }

    /// Opens the portal of an account.
    pub async fn enter(&self, browser: &Browser, account: &str, role: &str) {
        let link = self.link(account, role).await;
        match browser.scripts {
            Scripts::On => browser.go_to(&link).await,
            Scripts::Off => {
                browser.go("/portal").await;
                browser.fill("#link", &link).await;
            }
        }
        browser.press("Continue").await;
        browser.says("Overview").await;
        assert_eq!(browser.path().await, "/portal/");
    }

    /// Lets time pass.
    pub async fn pass(&self, minutes: u64) {
        self.world.advance(Millis::from_secs(60 * minutes)).await;
    }
}

/// What the receiver answers.
pub fn reply(mended: Arc<AtomicBool>) -> impl FnMut(&Received) -> Reply + Send + 'static {
    let mut tries: HashMap<String, u32> = HashMap::new();
    move |request| {
        let body = String::from_utf8_lossy(request.body()).into_owned();
        let id = request.values("webhook-id").first().map(|id| (*id).to_owned()).unwrap_or_default();
        let tried = tries.entry(id).or_default();
        *tried += 1;
        let says = |word: &str| body.contains(&format!(".{word}\""));
        let gone = body.contains("\"gone.");
        match () {
            () if mended.load(Ordering::SeqCst) => answer(200, "", "ok"),
            () if says("hangs") => vec![Step::Hold],
            () if says("flaky") && *tried < 3 => answer(
                503,
                "server: nginx\r\ncontent-type: text/html\r\n",
                "<h1>503 Service Unavailable</h1>",
            ),
            () if says("fails") => {
                answer(500, "content-type: application/json\r\n", r#"{"error":"database is down"}"#)
            }
            () if says("refused") => answer(404, "content-type: text/plain\r\n", "no such hook"),
            () if gone => answer(410, "", ""),
            () => answer(200, "content-type: application/json\r\nserver: acme-in/2.3\r\n", r#"{"ok":true}"#),
        }
    }
}
