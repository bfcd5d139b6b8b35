//! What went wrong in the stores of other webhook senders, by the number of the case: C86, C88, C89, C91, C92,
//! C95, scaled down to what a test may take. `HOOKLOG_TEST_SEED` draws other moments and cuts.
//!
//! Elsewhere: the kills of C89 are `tests/kill.rs`'s, the writer that hangs in C92 `tests/engine.rs`'s. C94 (rows
//! that outlive their data) waits for retention: nothing expires yet.

mod support;

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::join_all;
use hooklog::clock::SeededChance;
use hooklog::delivery::{Answer as Heard, Outcome};
use hooklog::engine::command::body_ref;
use hooklog::engine::{Command, Engine, Enqueue, Input, ServerPolicy, Ticket};
use hooklog::log::mark::MemoryMark;
use hooklog::log::{self, Body, Log, Mark, MemoryDisk};
use hooklog::secrets::MasterKey;
use hooklog::views::Place;
use hooklog::views::history::{Filter, LOOKUPS_MAX};
use hooklog::views::query::SCAN_MAX;
use hooklog_projections::fact::{AccountSettings, Actor, EndpointSettings, Sealed};
use hooklog_projections::ids::{AccountId, EndpointId, EndpointKey};
use hooklog_projections::lifecycle::Status;
use hooklog_projections::policy::Rollout;
use hooklog_projections::time::{Millis, Timestamp};
use hyper::Method;
use serde_json::{Value, json};
use support::chance::Draw;
use support::counting::Counting;
use support::judge::{Judge, Say};
use support::server::{Api, Host, Server, copy, eventually, text, written};
use support::tmpfs::Tmpfs;

const LIMIT: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;
/// The server takes nothing in with less than this free.
const FLOOR: u64 = 256 * MIB;

/// A server, a judge, and one account with one endpoint on it.
struct Scene {
    host: Host,
    judge: Judge,
    server: Server,
    account: String,
    endpoint: String,
}

impl Scene {
    async fn new(folder: &Path) -> Scene {
        let host = Host::new(folder).with("--wait-divisor", "10000");
        let judge = Judge::start().await;
        let server = host.start().await;
        let (account, secret) = server.api.account().await;
        let (endpoint, signing) = server.api.endpoint(&account, &judge.url("/"), json!({})).await;
        judge.expect("/", &signing, &secret);
        Scene { host, judge, server, account, endpoint }
    }

    async fn hold(&self) {
        self.server.api.post(&format!("/v1/endpoints/{}/pause", self.endpoint), json!({})).await;
    }

    async fn resume(&self) {
        self.server.api.post(&format!("/v1/endpoints/{}/resume", self.endpoint), json!({})).await;
    }

    /// Takes in `count` events of 60 KB each, 100 at a time.
    async fn load(&self, prefix: &str, count: u64) {
        for batch in self.batches(prefix, count) {
            post_batch(&self.server.api, batch).await;
        }
    }

    fn batches(&self, prefix: &str, count: u64) -> Vec<String> {
        let event = |n| {
            let (account, filler) = (&self.account, Draw::new(n).text(60_000));
            format!(r#"{{"account_id":"{account}","id":"{prefix}-{n}","type":"a.b","data":"{filler}"}}"#)
        };
        let batch = |first: u64| (first..count.min(first + 100)).map(event).collect::<Vec<_>>().join(",");
        (0..count).step_by(100).map(|first| format!(r#"{{"events":[{}]}}"#, batch(first))).collect()
    }
}

async fn post_batch(api: &Api, batch: String) {
    let reply = api.post_text("/v1/events/batch", batch).await.expect("an answer").good();
    for result in reply["results"].as_array().expect("a list") {
        assert_eq!(result["status"], 202, "{result}");
    }
}

async fn ready(api: &Api) -> bool {
    api.call(Method::GET, "/readyz", None).await.is_ok_and(|reply| reply.status == 200)
}

#[tokio::test(flavor = "multi_thread")]
async fn c86_c88_a_full_disk_loses_nothing_that_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = Tmpfs::mount(folder.path(), 420, "c86") else { return };
    let mut scene = Scene::new(&disk.folder).await;

    // Nearly full: the floor holds before the disk does. The server takes nothing in and says why.
    disk.fill(FLOOR / 2);
    eventually("the floor is seen", LIMIT, async || (!ready(&scene.server.api).await).then_some(())).await;
    let refused = scene.server.api.event(&scene.account, "floor", "{}").await.expect("an answer");
    assert_eq!((refused.status, refused.json()["code"].as_str()), (507, Some("disk-nearly-full")));
    disk.empty();
    // By itself again, at a heartbeat. The next one is five seconds off: time to fill the disk to its end.
    eventually("there is room", LIMIT, async || ready(&scene.server.api).await.then_some(())).await;
    disk.fill(3 * MIB);
    let first = Arc::new(AtomicBool::new(false));
    let producers = (0..4).map(|producer| {
        let (api, account, first) = (scene.server.api.clone(), scene.account.clone(), first.clone());
        let judge = &scene.judge;
        async move {
            let mut accepted = Vec::new();
            for n in 0..1_000 {
                let (id, data) = (format!("full-{producer}-{n}"), Draw::new(n).text(24_000));
                let body = format!(r#"{{"id":"{id}","type":"payment.settled","data":"{data}"}}"#);
                judge.expect_body(&id, body.as_bytes());
                match api.event(&account, &id, &format!("\"{data}\"")).await {
                    Ok(reply) if reply.status == 202 => accepted.push(id),
                    other => {
                        // Never "accepted", never "something broke".
                        assert!(
                            other.as_ref().is_ok_and(|r| matches!(r.status, 503 | 507)) || other.is_err()
                        );
                        let status = other.map(|reply| reply.status).ok();
                        first.store(true, Ordering::SeqCst);
                        return (accepted, status, Instant::now(), judge.count());
                    }
                }
            }
            panic!("the disk did not fill up");
        }
    });
    let ended: Vec<_> = join_all(producers).await;
    let failed_at = ended.iter().map(|(_, _, at, _)| *at).min().expect("four producers");
    let seen_then = ended.iter().map(|(_, _, _, seen)| *seen).min().expect("four producers");
    eventually("it is not ready", Duration::from_secs(2), async || {
        (!ready(&scene.server.api).await).then_some(())
    })
    .await;
    let noticed = failed_at.elapsed();
    let end = scene.server.ended(Duration::from_secs(20)).await;
    assert_eq!(end.code, Some(13), "{end:?}");
    scene.judge.next_life().await;
    let after = scene.judge.count() - seen_then;
    assert!(after <= 8, "{after} requests left after the failure; 8 were out at most");
    // While the disk is full it does not start, and says what is needed.
    let full = scene.host.try_start().await.map(|_| ()).expect_err("no room");
    assert_eq!(full.code, Some(13), "{full:?}");
    assert!(full.err.contains("free some space first"), "{full:?}");

    disk.empty();
    scene.server = scene.host.start().await;
    let figures = scene.server.api.settled(LIMIT).await;
    scene.judge.content();
    let arrived = scene.judge.by_event();
    let accepted: Vec<_> = ended.iter().flat_map(|(accepted, ..)| accepted).collect();
    for id in &accepted {
        assert!(arrived.contains_key(*id), "{id} was acknowledged and never arrived");
        scene.server.api.get(&format!("/v1/events/{id}?account_id={}", scene.account)).await;
    }
    let twice: u64 = arrived.values().map(|count| count - 1).sum();
    assert!(twice <= 8, "{twice} arrived again; 8 were out at most");
    assert_eq!(figures["dead"], 0, "{figures}");
    scene.host.verify().await;
    scene.server.stop().await;
    println!(
        "c86: {} acknowledged before the disk was full, all delivered; {twice} twice; answers at the failure \
         {:?}; not ready {noticed:?} later",
        accepted.len(),
        ended.iter().map(|(_, status, ..)| *status).collect::<Vec<_>>(),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn c89_a_journal_cut_after_a_kill_opens_whole_or_not_at_all() {
    let seed = Draw::seed(1);
    println!("seed {seed}");
    let mut draw = Draw::new(seed);
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path()).await;
    let mut moody = Draw::new(draw.number());
    scene.judge.answer(move |_| if moody.percent(30) { Say::Status(500) } else { Say::Status(200) });
    let (mut opened, mut refused, mut accepted_heads) = (0, 0, 0);
    let mut acknowledged = BTreeSet::new();
    for life in 0..4 {
        for n in 0..10 + draw.below(20) {
            let (id, data) = (format!("life-{life}-{n}"), draw.text(50));
            let reply = scene.server.api.event(&scene.account, &id, &format!("\"{data}\"")).await.unwrap();
            assert_eq!(reply.status, 202, "{reply:?}");
            acknowledged.insert(id);
        }
        scene.server.kill().await;
        for cut in 0..8 {
            let other = scene.host.on(&folder.path().join(format!("{life}-{cut}")));
            copy(&scene.host.store, &other.store);
            let mark = Mark::file(&other.store).unwrap().read().unwrap().expect("it is marked").seq;
            // The first cut takes what a write may leave half done at least.
            let bytes = if cut == 0 { 1 } else { 1 + draw.below(4096) };
            cut_journal(&other.store, bytes);
            let verified = other.on_store(&["store", "verify", "--json"]).await;
            match verified.code {
                Some(0) => {
                    opened += 1;
                    let entries = serde_json::from_str::<Value>(&verified.out).unwrap()["entries"].as_u64();
                    assert!(entries >= Some(mark.0), "silently shorter than its mark {mark}: {verified:?}");
                    let listed = other.on_store(&["list", "--json", "--account", &scene.account]).await;
                    let listed: Vec<Value> = serde_json::from_str(&listed.out).expect("JSON");
                    let listed: BTreeSet<_> = listed.iter().map(|row| text(&row["event_id"])).collect();
                    let lost: Vec<_> = acknowledged.difference(&listed).collect();
                    assert!(lost.is_empty(), "opened, but without {lost:?}");
                }
                Some(11) => {
                    refused += 1;
                    assert!(verified.err.contains("accept-head"), "{verified:?}");
                    if cut < 2 {
                        let accepted = other.on_store(&["store", "accept-head"]).await;
                        assert_eq!(accepted.code, Some(0), "{accepted:?}");
                        other.verify().await;
                        other.start().await.kill().await;
                        other.verify().await;
                        accepted_heads += 1;
                    }
                }
                _ => panic!("{bytes} bytes cut: {verified:?}"),
            }
            std::fs::remove_dir_all(&other.store).unwrap();
        }
        scene.host.verify().await;
        scene.server = scene.host.start().await;
    }
    scene.server.api.settled(LIMIT).await;
    scene.judge.content();
    println!(
        "c89: {opened} cut journals opened whole, {refused} were refused, {accepted_heads} taken on as they were"
    );
    assert!(refused > 0, "no cut took anything");
}

/// Cuts bytes off the newest journal; those that it reserved and never wrote do not count.
fn cut_journal(store: &Path, bytes: u64) {
    let journals = std::fs::read_dir(store.join("db")).unwrap().map(|entry| entry.unwrap().path());
    let journals = journals.filter(|path| path.extension().is_some_and(|ext| ext == "jnl"));
    let number = |path: &Path| path.file_stem().unwrap().to_str().unwrap().parse::<u64>().unwrap();
    let newest = journals.max_by_key(|path| number(path)).expect("a journal");
    let end = written(&newest).len() as u64;
    let file = std::fs::OpenOptions::new().write(true).open(&newest).unwrap();
    file.set_len(end.saturating_sub(bytes)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn c91_a_start_after_a_kill_is_quick_whatever_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path()).await;
    scene.hold().await;
    // 240 MB through the busy spaces; accounts and endpoints have their one row each.
    scene.load("bulk", 4_000).await;
    let journals = journal_bytes(&scene.host.store);
    assert!(journals <= 256 * MIB, "a rare space pins {journals} bytes of journals");
    scene.server.kill().await;
    let began = Instant::now();
    scene.server = scene.host.start().await;
    let (after_kill, memory) = (began.elapsed(), scene.server.memory());
    let began = Instant::now();
    scene.resume().await;
    scene.judge.arrivals_reach(1, Duration::from_secs(15)).await;
    let first = began.elapsed();
    scene.hold().await;
    scene.server.stop().await;
    let began = Instant::now();
    scene.server = scene.host.start().await;
    let after_stop = began.elapsed();
    println!(
        "c91: {} MiB of journals; up {after_kill:?} after a kill with {} MiB resident; first request {first:?} \
         later; up {after_stop:?} after a stop",
        journals / MIB,
        memory / MIB,
    );
    assert!(after_kill < Duration::from_secs(20), "{after_kill:?}");
    assert!(after_stop < Duration::from_secs(10), "{after_stop:?}");
    assert!(memory < 512 * MIB, "{memory} bytes resident");
    scene.server.kill().await;
}

/// What the journals take on disk.
fn journal_bytes(store: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let files = std::fs::read_dir(store.join("db")).unwrap().map(|entry| entry.unwrap());
    let journals = files.filter(|entry| entry.path().extension().is_some_and(|ext| ext == "jnl"));
    journals.map(|entry| entry.metadata().unwrap().blocks() * 512).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn c92_a_store_under_full_load_never_freezes_the_api() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path()).await;
    scene.hold().await;
    // Made beforehand: nothing but the server may be slow.
    let loads: Vec<_> = (0..3).map(|n| scene.batches(&format!("load-{n}"), 400)).collect();
    let loading: Vec<_> = loads
        .into_iter()
        .map(|load| {
            let api = scene.server.api.clone();
            tokio::spawn(async move {
                for batch in load {
                    post_batch(&api, batch).await;
                }
            })
        })
        .collect();
    let (mut asked, mut longest) = (0, Duration::ZERO);
    while loading.iter().any(|load| !load.is_finished()) {
        let began = Instant::now();
        let alive = scene.server.api.call(Method::GET, "/healthz", None).await.expect("an answer");
        assert_eq!(alive.status, 200);
        longest = longest.max(began.elapsed());
        asked += 1;
        tokio::task::yield_now().await;
    }
    for load in loading {
        load.await.expect("all is taken in");
    }
    println!("c92: /healthz answered {asked} times beside 72 MB of events, at the latest after {longest:?}");
    assert!(longest < Duration::from_secs(2), "{longest:?}");
    // Killed with a batch under way, it takes events again.
    let account = scene.account.clone();
    let api = scene.server.api.clone();
    let under_way = tokio::spawn(async move {
        for n in 0.. {
            let data = format!("\"{}\"", Draw::new(n).text(60_000));
            if api.event(&account, &format!("cut-{n}"), &data).await.is_err() {
                return;
            }
        }
    });
    let head = scene.server.api.get("/v1/status").await["head"].as_u64().unwrap();
    eventually("events come in", LIMIT, async || {
        (scene.server.api.get("/v1/status").await["head"].as_u64().unwrap() > head).then_some(())
    })
    .await;
    scene.server.kill().await;
    under_way.await.expect("it ends with the server");
    let began = Instant::now();
    scene.server = scene.host.start().await;
    assert_eq!(scene.server.api.event(&scene.account, "after", "{}").await.unwrap().status, 202);
    assert!(began.elapsed() < Duration::from_secs(30));
    scene.host.verify().await;
}

const BIG: AccountId = AccountId(1);
const SMALL: AccountId = AccountId(2);
/// One event reaches each of them.
const ENDPOINTS: u64 = 20;
const EVENTS: u64 = 10_000;
const START: Timestamp = Timestamp(1_796_000_000_000);

fn ask(engine: &mut Engine, command: Command, chance: &mut SeededChance) {
    let input = Input::Command { ticket: Ticket(0), actor: Actor::Cli, command };
    engine.handle(input, chance).expect("it goes on");
}

fn enqueue(account: AccountId, n: u64) -> Command {
    let body = Body { salt: [0; 16], bytes: Bytes::from_static(b"{}") };
    Command::Enqueue(Box::new(Enqueue {
        account,
        event: format!("evt-{n}").parse().expect("an id"),
        event_type: "payment.settled".into(),
        body_ref: body_ref(&body, "application/json"),
        body,
        utf8: true,
        deliver_at: None,
        max_tries: None,
        expire_at: None,
        endpoint: None,
    }))
}

fn endpoint(n: u64) -> EndpointKey {
    EndpointKey { account: if n == 0 { SMALL } else { BIG }, endpoint: EndpointId(u128::from(n) + 1) }
}

/// 200,000 deliveries of one account, the three oldest of its first endpoint dead, all else waiting; a second
/// account with twenty.
fn many(disk: &Counting<MemoryDisk>) -> Engine {
    let mut chance = SeededChance::new(1);
    let options = log::Options { free_bytes_min: 0, ..log::Options::default() };
    let opened = Log::open(Arc::new(disk.clone()), Mark::memory(&MemoryMark::default()), options);
    let master = MasterKey::from_bytes([7; 32].into());
    let opened = opened.expect("a log");
    let mut engine = Engine::start(opened, &master, ServerPolicy::default(), START, &mut chance).unwrap();
    engine.begin(START);
    for account in [BIG, SMALL] {
        let settings = AccountSettings {
            name: "Acme".into(),
            owner_email: None,
            schedule: None,
            response_policy: None,
            webhook_retries: Rollout::On,
        };
        let secret = Sealed(vec![0]);
        ask(&mut engine, Command::CreateAccount { account, settings, secret }, &mut chance);
    }
    for n in 0..=ENDPOINTS {
        let settings =
            EndpointSettings { url: "https://r.customer.net/".into(), ..EndpointSettings::default() };
        let key = endpoint(n);
        ask(
            &mut engine,
            Command::CreateEndpoint { key, settings, signing: vec![], secret: None },
            &mut chance,
        );
        if n > 1 {
            ask(&mut engine, Command::PauseEndpoint { key, reason: "".into() }, &mut chance);
        }
    }
    engine.finish().unwrap();
    // The first endpoint refuses three; then nothing is sent any more.
    engine.set_sending(true);
    for n in 0..3 {
        engine.begin(START);
        ask(&mut engine, enqueue(BIG, n), &mut chance);
        for attempt in engine.finish().unwrap().attempts {
            let heard =
                Heard { status: 404, headers: vec![], body: Bytes::new(), truncated: false, address: None };
            let outcome = Outcome::of(Ok(heard), Millis(1));
            engine.handle(Input::Outcome { delivery: attempt.delivery.seq, outcome }, &mut chance).unwrap();
        }
        engine.finish().unwrap();
    }
    engine.set_sending(false);
    for n in 3..EVENTS {
        engine.begin(START + Millis(n * 1000));
        ask(&mut engine, enqueue(BIG, n), &mut chance);
        if n % 500 == 0 {
            ask(&mut engine, enqueue(SMALL, n), &mut chance);
        }
        if n % 10 == 0 {
            engine.finish().unwrap();
        }
    }
    engine.finish().unwrap();
    engine
}

#[test]
fn c95_every_list_is_a_short_read_whatever_lies_in_the_store() {
    let disk = Counting::over(Arc::new(MemoryDisk::new()));
    let began = Instant::now();
    let engine = many(&disk);
    println!("c95: made in {:?}", began.elapsed());
    let view = engine.published().view();
    let all = view.counts(Some(BIG)).unwrap();
    assert_eq!((all.enqueued, all.dead), (ENDPOINTS * EVENTS, 3));
    let looked = |what: &str, read: &mut dyn FnMut()| {
        let (before, began) = (disk.rows(), Instant::now());
        read();
        let rows = disk.rows() - before;
        println!("c95: {what}: {rows} rows, {:?}", began.elapsed());
        rows
    };
    let page = |filter: &Filter, place| view.history(BIG, filter, place, 50).unwrap();

    let first =
        looked("the first page", &mut || assert_eq!(page(&Filter::default(), Place::First).rows.len(), 50));
    assert!(first <= 100, "{first}");

    let dead = Filter { statuses: vec![Status::Dead], ..Filter::default() };
    let rows = looked("three dead at the far end", &mut || {
        let page = page(&dead, Place::First);
        assert_eq!((page.rows.len(), page.searched_to), (3, None));
    });
    assert!(rows <= 10, "{rows}");

    for n in [1, ENDPOINTS] {
        let of = Filter { endpoint: Some(endpoint(n).endpoint), ..Filter::default() };
        let rows = looked("one endpoint", &mut || {
            let page = page(&of, Place::First);
            assert!(page.rows.iter().all(|(_, row)| row.endpoint == endpoint(n).endpoint));
            assert_eq!(page.rows.len(), 50);
        });
        assert!(rows <= 110, "{rows}");
    }

    let none = Filter { event_type: Some("refund.*".into()), ..Filter::default() };
    let rows = looked("an event type that nothing has", &mut || {
        let page = page(&none, Place::First);
        assert!(page.rows.is_empty());
        let searched = page.searched_to.expect("a partial page says how far it got");
        assert!(searched > START && page.next.is_some());
    });
    assert!(rows <= SCAN_MAX as u64 + 10, "{rows}");
    // Page by page it comes to the end and back to the beginning, each bounded.
    let of_one = Filter { endpoint: Some(endpoint(1).endpoint), ..none.clone() };
    for (filter, rows_max, all) in [(&none, SCAN_MAX, ENDPOINTS * EVENTS), (&of_one, LOOKUPS_MAX, EVENTS)] {
        let (mut place, mut pages, mut moments) = (Place::First, [0, 0], Vec::new());
        loop {
            let mut found = None;
            let rows = looked("  its next page", &mut || found = Some(page(filter, place)));
            // Of another table than the deliveries, each row is two.
            assert!(rows <= SCAN_MAX as u64 + 10 && rows <= 2 * rows_max as u64 + 10, "{rows}");
            let found = found.expect("a page");
            assert!(found.rows.is_empty());
            pages[usize::from(place.leads_back())] += 1;
            moments.extend(found.searched_to);
            place = match (place.leads_back(), found.next, found.prev) {
                (false, Some(next), _) => Place::After(next),
                (_, _, Some(prev)) => Place::UpTo(prev),
                (_, _, None) => break,
            };
        }
        let turn = pages[0] - 1;
        assert!(moments[..turn].is_sorted_by(|a, b| a > b) && moments[turn..].is_sorted_by(|a, b| a < b));
        let most = all / rows_max as u64 + 2;
        assert!(pages.iter().all(|pages| (2..=most).contains(&(*pages as u64))), "{pages:?} of {most}");
    }

    // Deep in the list a page costs what the first one does, and no delivery stands on two.
    let (mut place, mut seen, mut most) = (Place::First, HashSet::new(), 0);
    for _ in 0..1_000 {
        let was = disk.rows();
        let page = page(&Filter::default(), place);
        most = most.max(disk.rows() - was);
        assert!(page.rows.iter().all(|(key, _)| seen.insert(*key)));
        place = Place::After(page.next.expect("more"));
    }
    println!("c95: pages 1 to 1,000: {most} rows at most");
    assert!((seen.len(), most) <= (50_000, 100), "{most}");

    // A minute near the beginning, and one before it.
    for (from, to, events) in [(100_000, 103_000, 3), (-120_000, -60_000, 0)] {
        let at = |millis: i64| Some(Timestamp(START.0.saturating_add_signed(millis)));
        let window = Filter { since: at(from), until: at(to), ..Filter::default() };
        let rows = looked("a short while long ago", &mut || {
            let page = view.history(BIG, &window, Place::First, 200).unwrap();
            assert_eq!((page.rows.len() as u64, page.searched_to), (events * ENDPOINTS, None));
        });
        assert!(rows <= 200, "{rows}");
    }

    let (key, row) = page(&dead, Place::First).rows.remove(0);
    let id = view.delivery_id(key, &row);
    let rows = looked("one by its id", &mut || {
        let found = view.delivery_named(id).unwrap().expect("it is there");
        assert_eq!(found, key);
        view.delivery(found).unwrap().expect("it is there");
    });
    assert!(rows <= 20, "{rows}");
    let rows = looked("the figures", &mut || {
        assert_eq!(view.counts(Some(BIG)).unwrap().dead, view.counts(None).unwrap().dead);
    });
    assert!(rows <= 4, "{rows}");
    // The other account's list does not know of all this.
    let rows = looked("a small account", &mut || {
        assert_eq!(view.history(SMALL, &Filter::default(), Place::First, 50).unwrap().rows.len(), 19);
    });
    assert!(rows <= 50, "{rows}");
}
