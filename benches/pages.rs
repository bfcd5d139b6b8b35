//! What a page of a long history costs: `GET /v1/deliveries` in all its filters, at random depths, there and back,
//! over three accounts of which one has 99 of a hundred deliveries; and the pages that people see of it.
//!
//! `cargo bench --bench pages [-- DELIVERIES [FOLDER]]` (5,000,000). A folder is kept, and read again as it is by the
//! next run, so that what was changed in between is measured on the same history. Without a network: requests go
//! straight to the router.
//! Ends with an error if a page holds what was not asked for, if the page before is another one than it was, or if
//! one looks through more rows than it may; never for its time, which the machine and what else it does decide.

#[path = "../tests/support/counting.rs"]
mod counting;

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body as HttpBody;
use axum::http::Request;
use bytes::Bytes;
use counting::Counting;
use hooklog::api::{ApiOptions, ApiState, router};
use hooklog::clock::{Chance, Clock, SeededChance, SystemClock};
use hooklog::delivery::{Answer as Heard, Outcome, guard};
use hooklog::engine::command::body_ref;
use hooklog::engine::driver::{self, Courier};
use hooklog::engine::handle::Handle;
use hooklog::engine::{Attempt, Command, Engine, Enqueue, ServerPolicy};
use hooklog::log::{self, Body, Disk, Log};
use hooklog::pages;
use hooklog::secrets::MasterKey;
use hooklog::views::query::SCAN_MAX;
use hooklog_projections::fact::{AccountSettings, Actor, EndpointSettings, Sealed};
use hooklog_projections::ids::{AccountId, EndpointId, EndpointKey, Seq};
use hooklog_projections::policy::Rollout;
use hooklog_projections::time::{Millis, Timestamp};
use http_body_util::BodyExt;
use serde_json::Value;
use tower::ServiceExt;

const DELIVERIES: u64 = 5_000_000;
/// Of each account.
const ENDPOINTS: u64 = 50;
const TYPES: u64 = 20;
/// One delivery in so many dies, and one in so many waits at a paused endpoint.
const DEAD_ONE_IN: u64 = 500;
const WAITING_ONE_IN: u64 = 1_000;
const CALLERS: u64 = 256;
/// Pages of each kind; of fewer deliveries than a million, fewer.
const PAGES: [usize; 2] = [300, 60];
const LIMIT: usize = 50;
/// Rows that one page may read, its search by time and the sight of its rows included.
const ROWS_MAX: u64 = SCAN_MAX as u64 + 1_000;

struct Receiver;

impl Courier for Receiver {
    fn carry(&self, attempt: Attempt) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>> {
        let status = if (attempt.delivery.seq.0 / 3).is_multiple_of(DEAD_ONE_IN) { 400 } else { 204 };
        let heard = Heard { status, headers: vec![], body: Bytes::new(), truncated: false, address: None };
        Box::pin(async move { Outcome::of(Ok(heard), Millis(0)) })
    }
}

fn main() {
    let given: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let deliveries =
        given.first().map_or(DELIVERIES, |number| number.parse().expect("a number of deliveries"));
    let passing = tempfile::tempdir().expect("a folder");
    let folder = given.get(1).map_or(passing.path(), |folder| Path::new(folder));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(run(deliveries, folder));
}

async fn run(deliveries: u64, folder: &Path) {
    let clock = SystemClock::start();
    let (disk, mark) = log::open_folder(folder, Default::default()).expect("a store");
    let disk = Counting::over(disk);
    let opened =
        Log::open(Arc::new(disk.clone()), mark, log::Options { free_bytes_min: 0, ..Default::default() });
    let master = Arc::new(MasterKey::from_bytes([7; 32].into()));
    let policy = ServerPolicy { in_flight_max: 1024, ..ServerPolicy::default() };
    let mut engine =
        Engine::start(opened.expect("a log"), &master, policy, clock.now(), &mut SeededChance::new(1))
            .expect("an engine");
    engine.set_sending(true);
    let running = driver::run(engine, Arc::new(Receiver), clock.clone(), tokio::runtime::Handle::current());
    let handle = running.handle.clone();
    if handle.view().head() < Seq(deliveries) {
        for account in [1, 2, 3] {
            set_up(&handle, AccountId(account)).await;
        }
        let began = Instant::now();
        fill(&handle, deliveries).await;
        println!("{deliveries} deliveries in {:.0} s", began.elapsed().as_secs_f64());
    }
    let times = moments(&handle);
    let api = ApiState::new(
        handle,
        master,
        clock,
        guard::Policy::default(),
        ApiOptions { ..ApiOptions::default() },
    );
    let pages = Pages {
        router: router(api.local().with_front(pages::front())),
        times,
        chance: SeededChance::new(7),
        disk,
    };
    pages.measure(PAGES[usize::from(deliveries < 1_000_000)]).await;
    running.stop(Duration::from_secs(5)).await.expect("it stops");
}

async fn set_up(handle: &Handle, account: AccountId) {
    let settings = AccountSettings {
        name: "Acme".into(),
        owner_email: None,
        schedule: None,
        response_policy: None,
        webhook_retries: Rollout::On,
    };
    let made = Command::CreateAccount { account, settings, secret: Sealed(vec![0]) };
    handle.ask(Actor::Cli, made).await.expect("it is new");
    for n in 0..=ENDPOINTS {
        let settings = EndpointSettings {
            url: "https://r.customer.net/".into(),
            in_flight_max: 64,
            ..EndpointSettings::default()
        };
        let key = endpoint(account, n);
        handle
            .ask(Actor::Cli, Command::CreateEndpoint { key, settings, signing: vec![], secret: None })
            .await
            .expect("new");
    }
    // The last one waits.
    let key = endpoint(account, ENDPOINTS);
    handle.ask(Actor::Cli, Command::PauseEndpoint { key, reason: "it waits".into() }).await.expect("it runs");
}

fn endpoint(account: AccountId, n: u64) -> EndpointKey {
    EndpointKey { account, endpoint: EndpointId(account.0 * 1_000 + u128::from(n)) }
}

/// Moments at which a hundredth more was in the log.
fn moments(handle: &Handle) -> Vec<Timestamp> {
    let view = handle.view();
    let head = view.head().0;
    (1..=100).map(|part| view.entry(Seq(head * part / 100)).expect("an entry").at).collect()
}

/// Events to one endpoint each.
async fn fill(handle: &Handle, deliveries: u64) {
    for part in 0..100 {
        let (from, to) = (deliveries * part / 100, deliveries * (part + 1) / 100);
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let handle = handle.clone();
                tokio::spawn(async move {
                    for n in (from + caller..to).step_by(CALLERS as usize) {
                        handle.ask(Actor::Cli, event(n)).await.expect("it is taken in");
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.await.expect("no panic");
        }
    }
    loop {
        let counts = handle.view().counts(None).expect("counts");
        if counts.delivered + counts.dead + deliveries / WAITING_ONE_IN >= deliveries {
            return;
        }
        tokio::task::yield_now().await;
    }
}

fn event(n: u64) -> Command {
    let account = AccountId(match n % 200 {
        0 => 2,
        1 => 3,
        _ => 1,
    });
    let to = if n % WAITING_ONE_IN == 7 { ENDPOINTS } else { n / 200 % ENDPOINTS };
    let body = Body { salt: [0; 16], bytes: Bytes::from(vec![b'x'; 100]) };
    Command::Enqueue(Box::new(Enqueue {
        account,
        event: format!("evt-{n}").parse().expect("it fits"),
        event_type: format!("type.t{}", n / 7 % TYPES).into(),
        body_ref: body_ref(&body, "application/json"),
        body,
        utf8: true,
        deliver_at: None,
        max_tries: None,
        expire_at: None,
        endpoint: Some(endpoint(account, to).endpoint),
    }))
}

struct Pages {
    router: axum::Router,
    times: Vec<Timestamp>,
    chance: SeededChance,
    disk: Counting<dyn Disk>,
}

impl Pages {
    async fn measure(mut self, pages: usize) {
        let (big, small) = (AccountId(1), AccountId(2));
        let held = endpoint(big, ENDPOINTS).endpoint;
        let one = endpoint(big, 3).endpoint;
        println!("{:<34}{:>9}{:>9}{:>9}{:>9}{:>9}", "pages of 50, ms", "p50", "p99", "max", "shown", "read");
        for (name, account, filter) in [
            ("all of the large account", big, String::new()),
            ("all of a small account", small, String::new()),
            ("delivered", big, "&status=delivered".into()),
            ("dead", big, "&status=dead".into()),
            ("pending", big, "&status=pending".into()),
            ("in flight (none)", big, "&status=in_flight".into()),
            ("cancelled (none)", big, "&status=cancelled".into()),
            ("one endpoint", big, format!("&endpoint_id={one}")),
            ("one endpoint, dead", big, format!("&endpoint_id={one}&status=dead")),
            ("one endpoint, pending", big, format!("&endpoint_id={held}&status=pending")),
            ("one event type", big, "&event_type=type.t3".into()),
            ("event types by prefix", big, "&event_type=type.*".into()),
            ("an event type that never was", big, "&event_type=never".into()),
            ("one endpoint, never", big, format!("&endpoint_id={one}&event_type=never")),
            ("dead, never", big, "&status=dead&event_type=never".into()),
            ("pending, never", big, "&status=pending&event_type=never".into()),
            ("an answer that never was", big, "&http_status=418".into()),
            ("one endpoint, an answer that never was", big, format!("&endpoint_id={one}&http_status=418")),
        ] {
            self.measure_one(name, account, &filter, pages).await;
        }
        println!("{:<34}{:>9}{:>9}{:>9}{:>9}", "what people see, ms", "p50", "p99", "max", "KB");
        for (name, path) in [
            ("overview", "/".into()),
            ("deliveries", format!("/deliveries?account_id={big}")),
            ("deliveries of all accounts", "/deliveries".into()),
            ("deliveries, dead", format!("/deliveries?account_id={big}&status=dead")),
            ("deliveries, pending", format!("/deliveries?account_id={big}&status=pending")),
            ("events", format!("/events?account_id={big}")),
            ("dead letters", format!("/dead?account_id={big}")),
            ("endpoints", format!("/endpoints?account_id={big}")),
            ("the answer page", format!("/events/evt-2?account_id={big}")),
        ] {
            self.see(name, &path, pages).await;
        }
    }

    /// A page as people see it, as bytes of HTML.
    async fn see(&self, name: &str, path: &str, pages: usize) {
        let (mut took, mut len) = (Vec::new(), 0);
        for _ in 0..pages {
            let began = Instant::now();
            len = self.body(path).await.len();
            took.push(began.elapsed());
        }
        let [p50, p99, max] = parts_of(&mut took);
        println!("{name:<34}{p50:>9.1}{p99:>9.1}{max:>9.1}{:>9.1}", len as f64 / 1e3);
    }

    async fn measure_one(&mut self, name: &str, account: AccountId, filter: &str, pages: usize) {
        let (mut took, mut shown, mut most) = (Vec::new(), 0, 0);
        while took.len() < pages {
            let at = self.times[(self.chance.draw() % self.times.len() as u64) as usize];
            let first =
                format!("/v1/deliveries?account_id={account}&limit={LIMIT}{filter}&until={}", moment(at));
            let mut target = first.clone();
            let mut seen = Vec::new();
            // The first page by its time, the next by its cursor, and by its own the first again.
            for cursor in ["next_cursor", "prev_cursor", ""] {
                let (before, began) = (self.disk.rows(), Instant::now());
                let mut page = self.get(&target).await;
                took.push(began.elapsed());
                let rows = self.disk.rows() - before;
                assert!(rows <= ROWS_MAX, "{target}: {rows} rows were read");
                most = most.max(rows);
                let data = page["data"].as_array_mut().map(std::mem::take).expect("a page");
                assert!(data.len() <= LIMIT, "{target}: too many");
                shown += data.len();
                for row in &data {
                    assert_eq!(row["account_id"], account.to_string(), "{target}");
                    fits(row, filter, &target);
                }
                seen.push(data);
                let Some(cursor) = page[cursor].as_str() else { break };
                target = format!("{first}&cursor={cursor}");
            }
            if let [there, _, back] = &seen[..] {
                assert_eq!(there, back, "{target}: the page before is another one now");
            }
        }
        let [p50, p99, max] = parts_of(&mut took);
        println!("{name:<34}{p50:>9.1}{p99:>9.1}{max:>9.1}{shown:>9}{most:>9}");
    }

    async fn get(&self, target: &str) -> Value {
        serde_json::from_slice(&self.body(target).await).expect("JSON")
    }

    async fn body(&self, target: &str) -> Bytes {
        let request = Request::get(target).body(HttpBody::empty()).expect("a request");
        let response = self.router.clone().oneshot(request).await.expect("it cannot fail");
        let status = response.status();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        assert!(status.is_success(), "{target}: {status} {}", String::from_utf8_lossy(&body));
        body
    }
}

/// The median, the 99th of a hundred and the longest, in ms.
fn parts_of(took: &mut [Duration]) -> [f64; 3] {
    took.sort_unstable();
    [50, 99, 100].map(|part| took[(took.len() * part / 100).min(took.len() - 1)].as_secs_f64() * 1e3)
}

/// A row is what was asked for.
fn fits(row: &Value, filter: &str, target: &str) {
    for (key, wanted) in filter.split('&').filter_map(|pair| pair.split_once('=')) {
        let is = match key {
            "http_status" => row["last_attempt"]["status_code"].to_string(),
            key => row[key].as_str().expect("a text").to_owned(),
        };
        let fits = wanted.strip_suffix('*').map_or(is == wanted, |start| is.starts_with(start));
        assert!(fits, "{target}: {row}");
    }
}

fn moment(at: Timestamp) -> String {
    jiff::Timestamp::from_millisecond(at.0 as i64).expect("a moment").to_string()
}
