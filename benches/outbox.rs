//! How fast one relay hands over: rows that wait in a PostgreSQL of this machine, until all of them are events and the
//! table is empty. Database, relay and server share the machine's cores; everything but the relay's own commits is synced.
//!
//! `cargo bench --bench outbox -- ROWS` (50,000); with `--inside` the relay runs within the server.

#[path = "../tests/support/outbox_crash.rs"]
mod outbox_crash;
#[path = "../tests/support/postgres.rs"]
mod postgres;
#[path = "../tests/support/server.rs"]
mod server;

use std::time::{Duration, Instant};

use outbox_crash::{Relay, init};
use postgres::Postgres;
use serde_json::json;
use server::Host;

/// Bytes of data of a row.
const PAD: usize = 500;
/// Between two looks at what is left.
const LOOK: Duration = Duration::from_millis(100);

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let inside = arguments.iter().any(|argument| argument == "--inside");
    let rows: i64 = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(50_000);
    let (folder, database) = (tempfile::tempdir().expect("a folder"), Postgres::start().await);
    init(&database).await;
    let url = database.url("app", "postgres");
    let mut host = Host::new(folder.path()).with("--events-per-minute", "100000000");
    let mut server = host.start().await;
    let (account, _) = server.api.account().await;
    let (endpoint, _) = server.api.endpoint(&account, "http://127.0.0.1:9/hooks", json!({})).await;
    server.api.post(&format!("/v1/endpoints/{endpoint}/pause"), json!({})).await;
    let client = database.connect().await;
    let pad = "x".repeat(PAD);
    let fill = "INSERT INTO hooklog_outbox (account, type, data)
                SELECT $1::text, 'bench.event', json_build_object('n', n, 'pad', $2::text) FROM generate_series(1, $3::bigint) AS n";
    client.execute(fill, &[&account, &pad, &rows]).await.expect("they are written");
    let started = Instant::now();
    let relay = if inside {
        server.stop().await;
        let file = folder.path().join("url");
        std::fs::write(&file, &url).expect("a file");
        host = host.with("--outbox-url-file", file.to_str().expect("text"));
        server = host.start().await;
        None
    } else {
        Some(Relay::start(&url, &server.address.to_string(), folder.path()).await)
    };
    let mut first = None;
    loop {
        let left = client.query_one("SELECT count(*) FROM hooklog_outbox", &[]).await.expect("an answer");
        let left: i64 = left.get(0);
        if left < rows && first.is_none() {
            first = Some((Instant::now(), left));
        }
        if left == 0 {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    let (since, left) = first.expect("there was something to hand over");
    let rate = left as f64 / since.elapsed().as_secs_f64();
    println!(
        "{rows} rows of {PAD} bytes, relay {}: {rate:.0} rows/s ({:.1} s from its start to the last row)",
        if inside { "within the server" } else { "beside the server" },
        started.elapsed().as_secs_f64()
    );
    assert_eq!(server.api.figures().await["enqueued"], rows, "each is one event");
    if let Some(relay) = relay {
        relay.stop().await;
    }
    server.stop().await;
}
