//! Sixty SIGKILLs of the real server under load, at moments drawn from a seed: nothing that was acknowledged is
//! lost, the store is clean each time, and a request is repeated only where the kill left its outcome unknown.
//!
//! A moment is a number of signs of life (requests at the receiver, acknowledgements to producers) since the
//! start; some kills hit a server that is still starting. `HOOKLOG_TEST_SEED` draws other moments.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use support::chance::Draw;
use support::judge::{Arrival, Judge, Say};
use support::server::{Api, Host, text};

/// Each on its own store, all at once.
const SERIES: u64 = 4;
const KILLS_PER_SERIES: u32 = 15;
/// Signs of life after which a kill comes, at most.
const SIGNS_MAX: u64 = 90;
const PRODUCERS: usize = 3;
/// Tries of the schedule below.
const TRIES: u64 = 4;
const IN_FLIGHT_MAX: u64 = 8;
const PATHS: [&str; 3] = ["/well", "/moody", "/broken"];
/// For whatever happens by itself; it is over in a fraction of it.
const LIMIT: Duration = Duration::from_secs(60);

/// What came out of a series.
#[derive(Debug, Default)]
struct Figures {
    kills: u64,
    kills_while_starting: u64,
    events: u64,
    repeated_by_producers: u64,
    deliveries: u64,
    delivered: u64,
    dead: u64,
    requests: u64,
    interrupted: u64,
    duplicates: u64,
    duplicates_most: u64,
}

/// What the producers know.
#[derive(Default)]
struct Book {
    next: u64,
    /// Sent at least once, without an answer.
    open: BTreeSet<u64>,
    acknowledged: BTreeSet<u64>,
    /// Since the last look.
    fresh: Vec<u64>,
    repeated: u64,
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_kills_lose_nothing_and_repeat_only_what_was_in_flight() {
    let seed = Draw::seed(1);
    println!("seed {seed}");
    let mut sum = Figures::default();
    for figures in join_all((0..SERIES).map(|n| series(seed, n))).await {
        println!("{figures:?}");
        sum.kills += figures.kills;
        sum.kills_while_starting += figures.kills_while_starting;
        sum.events += figures.events;
        sum.repeated_by_producers += figures.repeated_by_producers;
        sum.deliveries += figures.deliveries;
        sum.delivered += figures.delivered;
        sum.dead += figures.dead;
        sum.requests += figures.requests;
        sum.interrupted += figures.interrupted;
        sum.duplicates += figures.duplicates;
        sum.duplicates_most = sum.duplicates_most.max(figures.duplicates_most);
    }
    println!("in all: {sum:#?}");
    assert_eq!(sum.kills, SERIES * u64::from(KILLS_PER_SERIES));
    // A run in which nothing was hit proves nothing.
    assert!(sum.interrupted > 0 && sum.repeated_by_producers > 0, "no kill hit anything");
}

async fn series(seed: u64, n: u64) -> Figures {
    let mut draw = Draw::new(seed.wrapping_mul(1_000_003).wrapping_add(n));
    let folder = tempfile::tempdir().expect("a folder");
    // Waits of 6, 30 and 180 ms.
    let host = Host::new(folder.path()).with("--schedule", "1m,5m,30m").with("--wait-divisor", "10000");
    let judge = Arc::new(Judge::start().await);
    judge.answer(moods(draw.number()));
    let mut server = host.start().await;
    let (account, secret) = server.api.account().await;
    for path in PATHS {
        let settings = json!({ "timeout_ms": 1000, "in_flight_max": IN_FLIGHT_MAX });
        let (_, signing) = server.api.endpoint(&account, &judge.url(path), settings).await;
        judge.expect(path, &signing, &secret);
    }
    let book = Arc::new(Mutex::new(Book::default()));
    let mut figures = Figures::default();
    for _ in 0..KILLS_PER_SERIES {
        let moment = judge.signs() + draw.below(SIGNS_MAX);
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|_| tokio::spawn(produce(server.api.clone(), account.clone(), judge.clone(), book.clone())))
            .collect();
        judge.signs_reach(moment, LIMIT).await;
        server.kill().await;
        figures.kills += 1;
        for producer in producers {
            producer.await.expect("a producer ends with its server");
        }
        judge.next_life().await;
        if draw.percent(30) {
            let mut starting = host.spawn();
            for _ in 0..draw.below(200_000) {
                tokio::task::yield_now().await;
            }
            starting.start_kill().expect("it can be killed");
            starting.wait().await.expect("it can be waited for");
            figures.kills_while_starting += 1;
            judge.next_life().await;
        }
        let online = draw.percent(50);
        if !online {
            host.verify().await;
        }
        server = host.start().await;
        if online {
            host.verify().await;
        }
        let fresh = std::mem::take(&mut book.lock().expect("no holder panics").fresh);
        for number in fresh {
            server.api.get(&format!("/v1/events/{}?account_id={account}", id(number))).await;
        }
    }
    // What no producer was answered yet is repeated until it is.
    let open = book.lock().expect("no holder panics").open.clone();
    for number in open {
        let reply = server.api.event(&account, &id(number), &data(number)).await.expect("an answer");
        assert!(matches!(reply.status, 200 | 202), "{reply:?}");
        let mut book = book.lock().expect("no holder panics");
        book.acknowledged.insert(number);
        book.repeated += 1;
    }
    server.api.settled(LIMIT).await;
    host.verify().await;
    let book = std::mem::take(&mut *book.lock().expect("no holder panics"));
    judge_all(&server.api, &account, &judge, &book, &mut figures).await;
    server.stop().await;
    host.verify().await;
    figures
}

/// Sends events until the server is gone; those without an answer first.
async fn produce(api: Api, account: String, judge: Arc<Judge>, book: Arc<Mutex<Book>>) {
    loop {
        let number = {
            let mut book = book.lock().expect("no holder panics");
            match book.open.pop_first() {
                Some(number) => {
                    book.repeated += 1;
                    number
                }
                None => {
                    book.next += 1;
                    book.next
                }
            }
        };
        let data = data(number);
        let body = format!(r#"{{"id":"{}","type":"payment.settled","data":{data}}}"#, id(number));
        judge.expect_body(&id(number), body.as_bytes());
        let answered = api.event(&account, &id(number), &data).await;
        let mut book = book.lock().expect("no holder panics");
        match answered {
            Ok(reply) => {
                assert!(matches!(reply.status, 200 | 202), "{reply:?}");
                book.acknowledged.insert(number);
                book.fresh.push(number);
                judge.note();
            }
            Err(_) => {
                book.open.insert(number);
                return;
            }
        }
    }
}

fn id(number: u64) -> String {
    format!("event-{number}")
}

fn data(number: u64) -> String {
    let filler = Draw::new(number).text(number as usize * 37 % 900);
    format!(r#"{{ "n": {number}, "amount":12900.00,"name":"Zoë \u00e9 🚀","n":1E2, "filler": "{filler}" }}"#)
}

/// `/well` takes all, `/broken` nothing, `/moody` as its mood is.
fn moods(seed: u64) -> impl FnMut(&Arrival) -> Say {
    let mut draw = Draw::new(seed);
    move |arrival| match (arrival.path.as_str(), draw.below(100)) {
        ("/well", _) => Say::Status(200),
        ("/broken", _) => Say::Status(503),
        (_, 0..25) => Say::Status(500),
        (_, 25..30) => Say::Close,
        (_, 30..32) => Say::Hold,
        _ => Say::Status(204),
    }
}

async fn judge_all(api: &Api, account: &str, judge: &Judge, book: &Book, figures: &mut Figures) {
    judge.content();
    // What each delivery saw, by (event, path).
    let mut seen: BTreeMap<(String, String), Vec<Arrival>> = BTreeMap::new();
    for arrival in judge.arrivals() {
        seen.entry((arrival.event.clone(), arrival.path.clone())).or_default().push(arrival);
        figures.requests += 1;
    }
    figures.events = book.acknowledged.len() as u64;
    figures.repeated_by_producers = book.repeated;
    for number in &book.acknowledged {
        let event = api.get(&format!("/v1/events/{}?account_id={account}", id(*number))).await;
        let deliveries = event["deliveries"].as_array().expect("a list");
        assert_eq!(deliveries.len(), PATHS.len(), "{event}");
        for delivery in deliveries {
            let url = text(&delivery["endpoint_url"]);
            let path = PATHS.iter().find(|path| url.ends_with(*path)).expect("one of ours");
            let arrivals = seen.remove(&(id(*number), (*path).to_owned())).unwrap_or_default();
            let attempts = api.attempts(&text(&delivery["id"])).await;
            judge_one(path, delivery, &attempts, &arrivals, figures);
        }
    }
    assert!(seen.is_empty(), "requests of events that nobody sent: {seen:?}");
    let total = api.figures().await;
    assert_eq!(total["enqueued"], figures.deliveries, "{total}");
    assert!(figures.duplicates <= figures.interrupted);
    // Of each kill at most what the endpoints may have in flight.
    let lives = figures.kills + figures.kills_while_starting;
    assert!(figures.interrupted <= lives * IN_FLIGHT_MAX * PATHS.len() as u64);
}

fn judge_one(path: &str, delivery: &Value, attempts: &[Value], arrivals: &[Arrival], sum: &mut Figures) {
    let about = || format!("{delivery}\n{attempts:#?}\n{arrivals:#?}");
    sum.deliveries += 1;
    let interrupted = attempts.iter().filter(|a| a["error"] == "interrupted").count() as u64;
    let counted = attempts.iter().filter(|a| a["counted"] == true).count() as u64;
    sum.interrupted += interrupted;
    match (delivery["status"].as_str(), path) {
        (Some("delivered"), "/well" | "/moody") => sum.delivered += 1,
        (Some("dead"), "/moody" | "/broken") => {
            sum.dead += 1;
            assert_eq!(delivery["dead_reason"], "exhausted", "{}", about());
            assert_eq!(counted, TRIES, "{}", about());
        }
        _ => panic!("not its end: {}", about()),
    }
    // Nothing left before its record; a kept connection that was closed may carry an attempt's request twice.
    let resent = arrivals.iter().filter(|a| a.said == Say::Close && a.reused).count() as u64;
    assert!(arrivals.len() as u64 <= attempts.len() as u64 + resent, "{}", about());
    // Taken by the receiver more than once: each time but one, a kill had left the outcome unknown.
    let well = arrivals.iter().filter(|a| matches!(a.said, Say::Status(200..300)));
    let mut lives: Vec<_> = well.map(|a| a.life).collect();
    let duplicates = lives.len().saturating_sub(1) as u64;
    assert!(duplicates <= interrupted, "{}", about());
    sum.duplicates += duplicates;
    sum.duplicates_most = sum.duplicates_most.max(duplicates);
    // Without a kill between them, never two.
    let before = lives.len();
    lives.dedup();
    assert_eq!(lives.len(), before, "two in one life: {}", about());
}
