//! The outbox on a real PostgreSQL: what is committed becomes one event, what is rolled back none, whatever crashes;
//! bad rows harm no other; everything that is wrong is said.
#![cfg(feature = "postgres")]

#[path = "support/outbox_crash.rs"]
mod outbox_crash;
#[path = "support/postgres.rs"]
mod postgres;
#[path = "support/server.rs"]
mod server;

use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use hooklog::clock::SystemClock;
use hooklog::outbox::{self, Address, Intake, Table};
use outbox_crash::{Relay, hooklog, init};
use postgres::Postgres;
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};
use server::{Api, Ended, Host, eventually, text};

const LIMIT: Duration = Duration::from_secs(120);

/// A server with a relay inside.
async fn with_relay(folder: &Path, postgres: &Postgres, more: &[(&str, &str)]) -> (Host, server::Server) {
    let file = folder.join("outbox-url");
    std::fs::write(&file, format!("{}\n", postgres.url("app", "postgres"))).expect("a file");
    let mut host = Host::new(folder).with("--outbox-url-file", file.to_str().expect("text"));
    for (flag, value) in more {
        host = host.with(flag, value);
    }
    let server = host.start().await;
    (host, server)
}

async fn insert(postgres: &Postgres, account: &str, columns: &str, values: &str) {
    let (more, comma) = (columns, if columns.is_empty() { "" } else { ", " });
    let sql =
        format!("INSERT INTO hooklog_outbox (account{comma}{more}) VALUES ('{account}'{comma}{values})");
    postgres.sql(&sql).await;
}

async fn gone(postgres: &Postgres) {
    waiting(postgres, 0).await;
}

async fn waiting(postgres: &Postgres, rows: i64) {
    let client = postgres.connect().await;
    eventually("rows are handed over", LIMIT, async || {
        let row = client.query_one("SELECT count(*) FROM hooklog_outbox WHERE refused_at IS NULL", &[]).await;
        (row.expect("an answer").get::<_, i64>(0) == rows).then_some(())
    })
    .await;
}

async fn status(postgres: &Postgres) -> (Option<i32>, Value) {
    let ended = hooklog(&postgres.url("app", "postgres"), &["outbox", "status", "--json"]).await;
    let out = serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    (ended.code, out)
}

async fn events(api: &Api, account: &str) -> Vec<Value> {
    let listed = api.get(&format!("/v1/deliveries?account_id={account}&limit=200&include=payload")).await;
    listed["data"].as_array().expect("a list").clone()
}

/// Makes an account whose endpoint keeps what is for it.
async fn account(api: &Api) -> (String, String) {
    let (account, _) = api.account().await;
    let (endpoint, _) = api.endpoint(&account, "http://127.0.0.1:9/hooks", json!({})).await;
    api.post(&format!("/v1/endpoints/{endpoint}/pause"), json!({})).await;
    (account, endpoint)
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_become_events_byte_for_byte_and_leave() {
    let (folder, postgres) = (tempfile::tempdir().expect("a folder"), Postgres::start().await);
    init(&postgres).await;
    let (_host, server) = with_relay(folder.path(), &postgres, &[]).await;
    let (account, endpoint) = account(&server.api).await;
    let exact = r#"{"b": 1.0, "a": [1e2,"\u00e9é"],"b":2, "n": 12345678901234567890}"#;
    insert(&postgres, &account, "type, data, event_id", &format!("'payment.settled', '{exact}', 'pay-1'"))
        .await;
    let more = "type, data, endpoint, deliver_at, expire_at, max_tries, event_id";
    let later = format!(
        "'a.b', 'null', '{endpoint}', now() + interval '2 days', now() + interval '3 days', 2, 'later'"
    );
    insert(&postgres, &account, more, &later).await;
    insert(&postgres, &account, "id, type, data", "'0189c2f0-0000-7000-8000-00000000abcd', 'a.b', '[]'")
        .await;
    // The same once more: known by its id, and gone.
    insert(&postgres, &account, "type, data, event_id", &format!("'payment.settled', '{exact}', 'pay-1'"))
        .await;
    gone(&postgres).await;
    let path = format!("/v1/events/pay-1/payload?account_id={account}");
    let payload = server.api.call(hyper::Method::GET, &path, None);
    let sent = format!(r#"{{"id":"pay-1","type":"payment.settled","data":{exact}}}"#);
    assert_eq!(payload.await.expect("an answer").body, sent.as_bytes());
    let listed = events(&server.api, &account).await;
    let mut ids: Vec<&str> =
        listed.iter().map(|delivery| delivery["event_id"].as_str().expect("an id")).collect();
    ids.sort_unstable();
    assert_eq!(
        ids,
        ["0189c2f0-0000-7000-8000-00000000abcd", "later", "pay-1"],
        "the row's id where there is no other"
    );
    let later = listed.iter().find(|delivery| delivery["event_id"] == "later").expect("it is there");
    assert_eq!(later["tries"], 2, "{later}");
    let due: String = text(&later["due_at"]);
    let wanted = postgres.connect().await;
    let wanted =
        wanted.query_one("SELECT to_char(now() AT TIME ZONE 'UTC' + interval '2 days', 'YYYY-MM-DD')", &[]);
    let wanted: String = wanted.await.expect("an answer").get(0);
    assert!(due.starts_with(&wanted), "{due}");
    let timeline = server.api.get(&format!("/v1/events/pay-1/timeline?account_id={account}")).await;
    assert!(timeline.to_string().contains("outbox"), "who took it in: {timeline}");
    assert_eq!(
        status(&postgres).await,
        (Some(0), json!({ "waiting": 0, "oldest_ms": 0, "refused": 0, "refused_rows": [] }))
    );
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn poisoned_rows_are_set_aside_with_their_reason_and_hold_nobody_up() {
    let (folder, postgres) = (tempfile::tempdir().expect("a folder"), Postgres::start().await);
    init(&postgres).await;
    let (_host, server) = with_relay(folder.path(), &postgres, &[]).await;
    let (account, _) = account(&server.api).await;
    let nobody = "acct_00000000000000000000000001";
    let large = format!("'\"{}\"'", "x".repeat(70_000));
    let huge = format!("'\"{}\"'", "x".repeat(9 << 20));
    let deep = format!("'{}{}'", "[".repeat(200), "]".repeat(200));
    let reused = "'a.b', '1', 'used'";
    insert(&postgres, &account, "type, data, event_id", reused).await;
    gone(&postgres).await;
    let cases: &[(&str, &str, &str, &str)] = &[
        (nobody, "type, data", "'a.b', '1'", "account"),
        ("shop", "type, data", "'a.b', '1'", "account"),
        (&account, "type, data", "'not a type', '1'", "type"),
        (&account, "type, data", &format!("'a.b', {large}"), "too-large"),
        (&account, "type, data", &format!("'a.b', {huge}"), "no more than 8388608"),
        (&account, "type, data", &format!("'a.b', {deep}"), "nested-too-deep"),
        (&account, "type, data, event_id", "'a.b', '1', 'no id'", "event_id"),
        (&account, "type, data, event_id", "'a.b', '2', 'used'", "event-id-reused"),
        (&account, "type, data, expire_at", "'a.b', '1', now() - interval '1 day'", "expire_at"),
        (&account, "type, data, deliver_at", "'a.b', '1', 'infinity'", "deliver_at"),
        (&account, "type, data, deliver_at", "'a.b', '1', '12345-01-01'", "deliver_at"),
        (&account, "type, data, max_tries", "'a.b', '1', -1", "max_tries"),
        (&account, "type, data, endpoint", "'a.b', '1', 'ep_00000000000000000000000001'", "endpoint"),
    ];
    // One transaction, so that they stand among good ones in one batch.
    let mut sql = String::from("BEGIN;");
    for (nth, (whose, columns, values, _)) in cases.iter().enumerate() {
        sql.push_str(&format!("INSERT INTO hooklog_outbox (id, account, {columns}) VALUES ('00000000-0000-4000-8000-0000000000{nth:02}', '{whose}', {values});"));
        sql.push_str(&format!("INSERT INTO hooklog_outbox (account, type, data, event_id) VALUES ('{account}', 'a.b', '{nth}', 'good-{nth}');"));
    }
    postgres.sql(&format!("{sql} COMMIT")).await;
    gone(&postgres).await;
    let (code, standing) = status(&postgres).await;
    assert_eq!((code, &standing["waiting"], &standing["refused"]), (Some(8), &json!(0), &json!(cases.len())));
    for (nth, (.., reason)) in cases.iter().enumerate() {
        let id = format!("00000000-0000-4000-8000-0000000000{nth:02}");
        let rows = standing["refused_rows"].as_array().expect("rows");
        let row = rows.iter().find(|row| row["id"] == id.as_str()).expect("it is there");
        assert!(text(&row["error"]).contains(reason), "{row}");
    }
    assert_eq!(events(&server.api, &account).await.len(), 1 + cases.len(), "the good ones are all there");
    // For people, without a control character of a row.
    let told = hooklog(&postgres.url("app", "postgres"), &["outbox", "status"]).await;
    assert!(told.out.contains("refused   13") && told.err.contains("outbox retry"), "{told:?}");

    // Mended, given back, handed over; the others stay where they are.
    let first = "00000000-0000-4000-8000-000000000000";
    postgres.sql(&format!("UPDATE hooklog_outbox SET account = '{account}' WHERE id = '{first}'")).await;
    let url = postgres.url("app", "postgres");
    let given = hooklog(&url, &["outbox", "retry", first]).await;
    assert_eq!((given.code, given.out.trim()), (Some(0), "1 given back"), "{given:?}");
    gone(&postgres).await;
    assert_eq!(status(&postgres).await.1["refused"], json!(cases.len() - 1));
    let missing = hooklog(&url, &["outbox", "retry", first]).await;
    assert_eq!(missing.code, Some(3), "{missing:?}");
    assert!(missing.err.contains(first));
    let all = hooklog(&url, &["outbox", "retry", "--all"]).await;
    assert_eq!(all.out.trim(), "12 given back", "{all:?}");
    gone(&postgres).await;
    assert_eq!(status(&postgres).await.1["refused"], json!(cases.len() - 1), "refused again");
    server.stop().await;
}

/// Two relays share the rows; what is taken by neither of a quota stays, and holds no other account up.
/// Takes everything in, and nothing else.
struct Takes;

impl Intake for Takes {
    fn post<'a>(&'a self, _path: &'static str, body: Bytes) -> BoxFuture<'a, Result<(u16, Bytes), String>> {
        let asked: Value = serde_json::from_slice(&body).expect("JSON");
        let results = vec![json!({ "status": 202 }); asked["events"].as_array().expect("events").len()];
        std::future::ready(Ok((202, json!({ "results": results }).to_string().into()))).boxed()
    }
}

/// A relay that would look again in a day hears of a notification at once.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_notifies_by_hand_is_heard_between_two_looks() {
    const DAY: Duration = Duration::from_secs(86_400);
    let postgres = Postgres::start().await;
    init(&postgres).await;
    let address = Address::parse(&postgres.url("app", "postgres")).expect("a URL");
    let relay = outbox::Relay::new(address, Table::default(), &Takes, SystemClock::start()).polling(DAY);
    let stop = tokio_util::sync::CancellationToken::new();
    let test = async {
        // Both connections have looked, found nothing, and wait.
        let idle = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'hooklog outbox'
                    AND state = 'idle' AND query = 'COMMIT'";
        let client = postgres.connect().await;
        eventually("both wait", LIMIT, async || {
            (client.query_one(idle, &[]).await.expect("an answer").get::<_, i64>(0) == 2).then_some(())
        })
        .await;
        for n in 0..3 {
            insert(&postgres, "acct_1", "type, data", &format!("'a.b', '{n}'")).await;
            waiting(&postgres, 1).await;
            postgres.sql("NOTIFY hooklog_outbox").await;
            gone(&postgres).await;
        }
        stop.cancel();
    };
    tokio::join!(relay.run(&stop), test);
}

#[tokio::test(flavor = "multi_thread")]
async fn several_relays_and_a_quota_that_is_used_up() {
    let (folder, postgres) = (tempfile::tempdir().expect("a folder"), Postgres::start().await);
    init(&postgres).await;
    let host = Host::new(folder.path()).with("--events-per-minute", "1200");
    let server = host.start().await;
    let (greedy, _) = account(&server.api).await;
    let (modest, _) = account(&server.api).await;
    // The greedy one's are older, and more than two batches.
    let rows = |account: &str, count: u32| {
        format!(
            "INSERT INTO hooklog_outbox (account, type, data) SELECT '{account}', 'a.b', to_json(n) FROM generate_series(1, {count}) AS n;"
        )
    };
    postgres.sql(&rows(&greedy, 2_500)).await;
    postgres.sql(&rows(&modest, 1_100)).await;
    let url = postgres.url("app", "postgres");
    let address = server.address.to_string();
    let relays = [
        Relay::start(&url, &address, folder.path()).await,
        Relay::start(&url, &address, folder.path()).await,
    ];
    let client = postgres.connect().await;
    let left = async |account: &str| {
        let sql = "SELECT count(*) FROM hooklog_outbox WHERE account = $1";
        client.query_one(sql, &[&account]).await.expect("an answer").get::<_, i64>(0)
    };
    eventually("the modest one's are through", LIMIT, async || (left(&modest).await == 0).then_some(()))
        .await;
    eventually("the greedy one's quota is used up", LIMIT, async || {
        (left(&greedy).await <= 1_300).then_some(())
    })
    .await;
    let figures = server.api.figures().await;
    let handed = 3_600
        - client
            .query_one("SELECT count(*) FROM hooklog_outbox", &[])
            .await
            .expect("an answer")
            .get::<_, i64>(0);
    assert!(
        figures["enqueued"].as_i64().expect("a number") >= handed,
        "deleted only once they are events: {figures}"
    );
    let told = status(&postgres).await.1;
    assert_eq!(told["refused"], 0, "a quota is no refusal: {told}");
    for relay in relays {
        relay.stop().await;
    }
    server.stop().await;
}

/// Without a Hooklog rows stay; once it is there they go. The connection to the database may be cut, too.
#[tokio::test(flavor = "multi_thread")]
async fn rows_wait_for_hooklog_and_for_the_database() {
    let (folder, mut postgres) = (tempfile::tempdir().expect("a folder"), Postgres::start().await);
    init(&postgres).await;
    let url = postgres.url("app", "postgres");
    let port = free_port();
    let address = format!("127.0.0.1:{port}");
    let relay = Relay::start(&url, &address, folder.path()).await;
    let host = Host::new(folder.path()).at(&address);
    let server = host.start().await;
    let (account, _) = account(&server.api).await;
    server.kill().await;
    insert(&postgres, &account, "type, data", "'a.b', '1'").await;
    relay.logs("rows stay in the outbox for now").await;
    assert_eq!(postgres.number("SELECT count(*) FROM hooklog_outbox").await, 1);
    // No transaction is held open meanwhile, which would keep a whole database from being cleaned up.
    let client = postgres.connect().await;
    eventually("no transaction is open", LIMIT, async || {
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'hooklog outbox' AND state LIKE 'idle in%'";
        (client.query_one(sql, &[]).await.expect("an answer").get::<_, i64>(0) == 0).then_some(())
    })
    .await;
    drop(client);
    let server = host.start().await;
    gone(&postgres).await;
    // Cut by the database's operator, then by a crash of it.
    postgres.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'hooklog outbox'").await;
    insert(&postgres, &account, "type, data", "'a.b', '2'").await;
    gone(&postgres).await;
    postgres.crash().await;
    relay.logs("the outbox cannot be used").await;
    postgres.go().await;
    insert(&postgres, &account, "type, data", "'a.b', '3'").await;
    gone(&postgres).await;
    assert_eq!(events(&server.api, &account).await.len(), 3);
    relay.stop().await;
    server.stop().await;
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port()
}

fn refused(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    for word in words {
        assert!(ended.err.contains(word), "{word}: {ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_table_rights_or_version_is_said_at_once() {
    let postgres = Postgres::start().await;
    let (app, relay) = (postgres.url("app", "postgres"), postgres.url("relay", "postgres"));
    let at = ["outbox", "run", "--url", "http://127.0.0.1:9"];
    postgres.sql("CREATE ROLE relay LOGIN; CREATE ROLE writer LOGIN").await;
    refused(&hooklog(&app, &at).await, 3, &["no table hooklog_outbox", "hooklog outbox init"]);
    // A user who may not make tables.
    refused(&hooklog(&relay, &["outbox", "init"]).await, 1, &["permission denied", "was not made"]);
    // The printed SQL makes the table, as a migration would.
    let printed = hooklog("", &["outbox", "init", "--print"]).await;
    assert_eq!(printed.code, Some(0), "{printed:?}");
    postgres.sql(&printed.out).await;
    let again = hooklog(&app, &["outbox", "init"]).await;
    assert!(again.code == Some(0) && again.out.contains("there already, version 1"), "{again:?}");
    let grants = Table::default().grants("relay", "writer");
    refused(
        &hooklog(&relay, &at).await,
        4,
        &["relay lacks rights", "GRANT SELECT, DELETE, UPDATE (refused_at, error)"],
    );
    postgres.sql(&grants).await;
    assert_eq!(hooklog(&relay, &["outbox", "status"]).await.code, Some(0));
    // Who writes needs to insert, and no more.
    let writer = postgres.connect_as("writer", "postgres").await;
    let row = "INSERT INTO hooklog_outbox (account, type, data) VALUES ('acct_1', 'a.b', '{}')";
    writer.batch_execute(row).await.expect("it may insert");
    assert!(writer.batch_execute("DELETE FROM hooklog_outbox").await.is_err());
    // Bad JSON fails where it is written.
    assert!(writer.batch_execute(&row.replace("{}", "{")).await.is_err());
    // A table in a schema that the relay may not look into.
    postgres.sql("CREATE SCHEMA shop").await;
    let named = ["outbox", "init", "--outbox-table", "shop.events"];
    let made = hooklog(&app, &named).await;
    assert!(made.out.contains("shop.events is made, version 1"), "{made:?}");
    let hidden = hooklog(&relay, &["outbox", "status", "--outbox-table", "shop.events"]).await;
    assert!(hidden.code != Some(0) && hidden.err.contains("shop"), "{hidden:?}");
    postgres.sql("COMMENT ON TABLE hooklog_outbox IS 'hooklog outbox, version 7'").await;
    refused(&hooklog(&app, &at).await, 5, &["version 7", "knows version 1"]);
    refused(&hooklog(&app, &["outbox", "init"]).await, 5, &["version 7"]);
    postgres.sql("COMMENT ON TABLE hooklog_outbox IS 'payments'").await;
    refused(&hooklog(&app, &at).await, 5, &["is no outbox of Hooklog"]);
    // In a database without an encoding a text may be none, and one such row would fail every look at the table.
    postgres.sql("CREATE DATABASE raw ENCODING 'SQL_ASCII' TEMPLATE template0").await;
    let raw = postgres.url("app", "raw");
    refused(&hooklog(&raw, &["outbox", "init"]).await, 5, &["encoding is SQL_ASCII", "UTF8"]);
    refused(&hooklog(&raw, &at).await, 5, &["encoding is SQL_ASCII"]);
    // Nothing to connect to, and nothing to connect with.
    refused(&hooklog("", &at).await, 2, &["HOOKLOG_OUTBOX_URL", "--outbox-url-file"]);
    refused(&hooklog("mysql://x", &at).await, 2, &["postgres://"]);
    refused(&hooklog(&app, &["outbox", "status", "--outbox-table", "a b"]).await, 2, &["no name of a table"]);
    let nobody = format!("postgres://app:sesame@127.0.0.1:{}/postgres?sslmode=disable", free_port());
    let nobody = hooklog(&nobody, &["outbox", "status"]).await;
    refused(&nobody, 6, &["cannot reach PostgreSQL at 127.0.0.1:"]);
    assert!(!nobody.err.contains("sesame"), "{nobody:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_checked_as_the_url_says() {
    let mut postgres = Postgres::made().await;
    let key = KeyPair::generate().expect("a key");
    // Its own authority, for a name that is not `localhost`'s address.
    let certificate = CertificateParams::new(vec!["localhost".to_owned()])
        .expect("a name")
        .self_signed(&key)
        .expect("ours");
    let file = |name: &str| postgres.folder().join(name);
    std::fs::write(file("server.key"), key.serialize_pem()).expect("a file");
    std::fs::write(file("server.crt"), certificate.pem()).expect("a file");
    postgres.own(&file("server.key"));
    postgres.own(&file("server.crt"));
    let roots = file("server.crt").display().to_string();
    // The socket's file is named after the port, so the port is the usual one, on a loopback address of its own.
    let port = free_port();
    let own = format!("127.{}.{}.7", (port >> 8).max(1), port & 0xff);
    let settings = [
        format!("listen_addresses={own}"),
        "ssl=on".into(),
        format!("ssl_key_file={}", file("server.key").display()),
        format!("ssl_cert_file={roots}"),
    ];
    postgres.set(&settings.iter().map(String::as_str).collect::<Vec<_>>());
    postgres.go().await;
    init(&postgres).await;
    let ask = async |query: &str| {
        hooklog(&format!("postgres://app@{own}/postgres{query}"), &["outbox", "status"]).await
    };
    // Nobody we know signed it, and it is for another name.
    refused(&ask("").await, 6, &["invalid peer certificate", "sslrootcert=FILE"]);
    refused(&ask("?sslmode=verify-ca").await, 6, &["invalid peer certificate"]);
    refused(&ask(&format!("?sslrootcert={roots}")).await, 6, &["not valid for name"]);
    for fine in [
        format!("?sslmode=verify-ca&sslrootcert={roots}"),
        format!("?sslmode=require&sslrootcert={roots}"),
        "?sslmode=require".into(),
        "?sslmode=prefer".into(),
        "?sslmode=disable".into(),
    ] {
        let told = ask(&fine).await;
        assert_eq!(told.code, Some(0), "{fine}: {told:?}");
    }
    let named = format!("postgres://app@localhost/postgres?hostaddr={own}&sslrootcert={roots}");
    let named = hooklog(&named, &["outbox", "status"]).await;
    assert_eq!(named.code, Some(0), "the right name over the right authority: {named:?}");
    // A server without TLS is not spoken to, unless that is wished.
    postgres.crash().await;
    postgres.set(&["ssl=off"]);
    postgres.go().await;
    refused(&ask("").await, 6, &["does not support TLS", "sslmode=disable"]);
    assert_eq!(ask("?sslmode=disable").await.code, Some(0));
}

/// Rows committed by eight writers, some transactions rolled back, some held open, while relay and Hooklog are killed
/// five times each and PostgreSQL crashes twice.
#[tokio::test(flavor = "multi_thread")]
async fn every_committed_row_is_exactly_one_event_whatever_crashes() {
    outbox_crash::crashes(20_000).await;
}
