//! The real server before its monitors: metrics and health at an address of their own, ten lines with an exit code, and
//! a dead-man's switch that is pinged.

#[path = "support/exposition.rs"]
mod exposition;
#[cfg(feature = "postgres")]
#[path = "support/postgres.rs"]
mod postgres;
#[path = "support/receiver.rs"]
mod receiver;
#[path = "support/server.rs"]
mod server;

use std::time::Duration;

use exposition::Exposition;
use hyper::Method;
use receiver::{Receiver, answer};
use serde_json::Value;
use server::{Api, Host, Server, eventually};

const LIMIT: Duration = Duration::from_secs(60);

/// Where the server says that its metrics are.
async fn monitors(server: &mut Server) -> Api {
    let line = server.next_line().await;
    let address = line.strip_prefix("metrics and health at http://").unwrap_or_else(|| panic!("{line}"));
    Api::at(address.parse().expect("an address"))
}

#[tokio::test(flavor = "multi_thread")]
async fn monitors_have_a_listener_of_their_own_and_the_switch_is_pinged() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut switch = Receiver::scripted(vec![answer(200, "", "")]).await;
    let url = switch.url("/ping/secret");
    let host = Host::new(folder.path()).with("--admin-listen", "127.0.0.1:0").with("--ping-url", &url);
    let mut server = host.start().await;
    let admin = monitors(&mut server).await;

    let scraped = admin.call(Method::GET, "/metrics", None).await.expect("an answer");
    assert_eq!(scraped.status, 200);
    let kind = scraped.headers["content-type"].to_str().expect("text");
    assert_eq!(kind, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    let now = Exposition::of(std::str::from_utf8(&scraped.body).expect("text"));
    assert_eq!(now.value("hooklog_oldest_due_attempt_age_seconds", &[]), 0.0);
    assert_eq!(now.value("hooklog_healthy", &[]), 1.0);
    assert!(now.value("process_open_fds", &[]) > 3.0);
    assert!(now.value("process_start_time_seconds", &[]) > 1.7e9);
    assert!(now.value("hooklog_scheduler_last_tick_timestamp_seconds", &[]) > 1.7e9);
    let get =
        async |api: &Api, path: &str| api.call(Method::GET, path, None).await.expect("an answer").status;
    assert_eq!((get(&admin, "/healthz").await, get(&admin, "/readyz").await), (200, 200));
    // Neither is a way to the other.
    assert_eq!((get(&admin, "/v1/status").await, get(&admin, "/").await), (404, 404));
    assert_eq!(get(&server.api, "/metrics").await, 404);
    let posted = admin.call(Method::POST, "/metrics", None).await.expect("an answer");
    assert_eq!(posted.status, 405);

    let ping = tokio::time::timeout(LIMIT, switch.next()).await.expect("a ping");
    assert!(ping.line().starts_with("POST /ping/secret "), "{}", ping.line());

    let url = format!("http://{}", server.address);
    let status = host.run(&["status", "--url", &url]).await;
    assert_eq!(status.code, Some(0), "{status:?}");
    assert!(status.out.lines().count() <= 10, "{}", status.out);
    for line in ["server          ready", "late            nothing", "backlog         0 pending"] {
        assert!(status.out.contains(line), "{}", status.out);
    }
    let json: Value =
        serde_json::from_str(&host.run(&["status", "--url", &url, "--json"]).await.out).expect("JSON");
    assert_eq!((json["healthy"].as_bool(), json["late_ms"].as_u64()), (Some(true), Some(0)), "{json}");
    server.stop().await;
    assert_eq!(host.run(&["status", "--url", &url]).await.code, Some(6), "nobody answers");
    assert_eq!(host.on_store(&["status"]).await.code, Some(8), "nobody serves it");
    let log = host.last_log();
    assert!(!log.contains("/ping/secret"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_in_use_and_settings_that_lead_nowhere_are_told_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let refused = async |flag: &str, value: &str| {
        Host::new(folder.path()).with(flag, value).try_start().await.map(drop).expect_err("it is refused")
    };
    let ended = refused("--admin-listen", &address).await;
    assert!(ended.err.contains(&format!("cannot listen on {address}")), "{ended:?}");
    let ended = refused("--alert-email", "oncall@example.com").await;
    assert!(ended.code == Some(2) && ended.err.contains("smtp_server"), "{ended:?}");
    let ended = refused("--ping-url", "ftp://example.com/").await;
    assert!(ended.code == Some(2) && ended.err.contains("ping_url"), "{ended:?}");
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn an_outbox_that_the_server_relays_from_is_among_the_metrics() {
    let folder = tempfile::tempdir().expect("a folder");
    let database = postgres::Postgres::start().await;
    database.sql(&hooklog::outbox::Table::default().sql()).await;
    let (row, nobody) =
        ("INSERT INTO hooklog_outbox (account, type, data)", "acct_01HF7YAT00FBW90K8NDYRY9584");
    database.sql(&format!("{row} VALUES ('{nobody}', 'a.b', '{{}}')")).await;
    let file = folder.path().join("outbox-url");
    std::fs::write(&file, database.url("app", "postgres")).expect("a file");
    let host = Host::new(folder.path())
        .with("--admin-listen", "127.0.0.1:0")
        .with("--outbox-url-file", file.to_str().expect("text"));
    let mut server = host.start().await;
    let admin = monitors(&mut server).await;
    let seen = eventually("the outbox is looked at", LIMIT, async || {
        let scraped = admin.call(Method::GET, "/metrics", None).await.ok()?;
        let now = Exposition::of(std::str::from_utf8(&scraped.body).expect("text"));
        (now.value("hooklog_outbox_last_look_timestamp_seconds", &[]) > 0.0).then_some(now)
    })
    .await;
    let rows = |state| seen.value("hooklog_outbox_rows", &[("state", state)]);
    // Nobody has that account: it is refused sooner or later.
    assert_eq!(rows("waiting") + rows("refused"), 1.0);
    let status = host.run(&["status", "--url", &format!("http://{}", server.address)]).await;
    assert!(status.out.contains("\noutbox          "), "{}", status.out);
    assert!(status.out.lines().count() <= 10, "{}", status.out);
    server.stop().await;
}
