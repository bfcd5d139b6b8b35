//! What went wrong in other webhook senders around the life of a process, by the number of the case: C01, C53, C70,
//! C73, C82, C83, C128. The real binary is killed, frozen, asked to stop and started twice; receivers hold requests.
//!
//! The other parts of C83 (a slow commit, a failed one, a crash around it) are `tests/engine.rs`'s and
//! `tests/simulation.rs`'s; those of C70 that need a lease do not arise: a start takes over what was in flight.

mod support;

#[path = "support/steady.rs"]
mod steady;
#[path = "support/tls_receiver.rs"]
mod tls_receiver;
use support::server;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::join_all;
use hyper::Method;
use rustix::process::Signal;
use serde_json::{Value, json};
use support::judge::{Judge, Say, ledger};
use support::server::{Host, Server, eventually, text};
use tls_receiver::{Authority, Good, TlsReceiver};

const LIMIT: Duration = Duration::from_secs(60);

/// A server, a judge, and one account with one endpoint on it.
struct Scene {
    host: Host,
    judge: Judge,
    server: Server,
    account: String,
    endpoint: String,
}

impl Scene {
    async fn new(folder: &Path, settings: Value) -> Scene {
        let host = Host::new(folder).with("--wait-divisor", "10000");
        let judge = Judge::start().await;
        let server = host.start().await;
        let (account, secret) = server.api.account().await;
        let (endpoint, signing) = server.api.endpoint(&account, &judge.url("/"), settings).await;
        judge.expect("/", &signing, &secret);
        Scene { host, judge, server, account, endpoint }
    }

    /// Takes in so many events at a time.
    async fn events(&self, names: impl IntoIterator<Item = String>) {
        let sent = names.into_iter().map(async |name| {
            let body = format!(r#"{{"id":"{name}","type":"payment.settled","data":{{"name":"{name}"}}}}"#);
            self.judge.expect_body(&name, body.as_bytes());
            let data = format!(r#"{{"name":"{name}"}}"#);
            let reply = self.server.api.event(&self.account, &name, &data).await.expect("an answer");
            assert_eq!(reply.status, 202, "{reply:?}");
        });
        join_all(sent).await;
    }

    async fn pause(&self) {
        self.server.api.post(&format!("/v1/endpoints/{}/pause", self.endpoint), json!({})).await;
    }

    async fn resume(&self) {
        self.server.api.post(&format!("/v1/endpoints/{}/resume", self.endpoint), json!({})).await;
    }

    /// The attempts of an event's only delivery.
    async fn attempts(&self, event: &str) -> Vec<Value> {
        let event = self.server.api.get(&format!("/v1/events/{event}?account_id={}", self.account)).await;
        self.server.api.attempts(&text(&event["deliveries"][0]["id"])).await
    }

    /// Each event arrived so often.
    fn arrived(&self, events: usize, times: u64) {
        self.judge.content();
        let counts = self.judge.by_event();
        assert_eq!(counts.len(), events);
        let other: BTreeMap<_, _> = counts.iter().filter(|(_, count)| **count != times).collect();
        assert!(other.is_empty(), "not {times} times: {other:?}");
    }
}

fn names(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|n| format!("{prefix}-{n}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn c01_the_bytes_are_the_same_after_a_failure_a_restart_and_a_replay() {
    // The case's body P1, its secret, and its ledger signature.
    const P1: &str = r#"{"b":"café 🚀 \u0026 \/","a":12900.00}"#;
    const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    const LEDGER: &str = "sha256=7b7dbaf32a339b6f53c85b3835d46e28dfabfd38c06f9b2015eeb4c3efe58474";
    assert_eq!((P1.len(), ledger(SECRET, P1.as_bytes()).as_str()), (41, LEDGER));
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path(), json!({})).await;
    let account = scene.server.api.post("/v1/accounts", json!({ "name": "P1", "secret": SECRET })).await;
    scene.account = text(&account["id"]);
    let url = scene.judge.url("/p1");
    let (endpoint, signing) = scene.server.api.endpoint(&scene.account, &url, json!({})).await;
    scene.endpoint = endpoint;
    scene.judge.expect("/p1", &signing, SECRET);
    scene.judge.answer(|arrival| if arrival.number == 0 { Say::Status(500) } else { Say::Status(200) });
    scene.judge.expect_body("raw", P1.as_bytes());
    scene.judge.expect_body("event", format!(r#"{{"id":"event","type":"a.b","data":{P1}}}"#).as_bytes());

    scene.pause().await;
    let raw = format!("/v1/events/raw?account_id={}&type=a.b&id=raw", scene.account);
    let body = Some(("application/json", Bytes::from_static(P1.as_bytes())));
    assert_eq!(scene.server.api.call(Method::POST, &raw, body).await.unwrap().status, 202);
    let event = format!(r#"{{"account_id":"{}","id":"event","type":"a.b","data":{P1}}}"#, scene.account);
    assert_eq!(scene.server.api.post_text("/v1/events", event).await.unwrap().status, 202);
    scene.server.kill().await;
    scene.server = scene.host.start().await;
    scene.resume().await;
    scene.server.api.settled(LIMIT).await;
    assert_eq!(scene.judge.count(), 3, "one failed once");
    for event in ["raw", "event"] {
        let replay = json!({ "scope": "all", "confirm": true });
        scene.server.api.post(&format!("/v1/events/{event}/replay"), replay).await;
    }
    scene.judge.arrivals_reach(5, LIMIT).await;
    scene.server.api.settled(LIMIT).await;
    scene.judge.content();
    assert_eq!((scene.judge.count(), scene.judge.verified()), (5, 5));
    let stored = scene.server.api.call(Method::GET, "/v1/events/raw/payload", None).await.unwrap();
    assert_eq!(stored.body, P1);
}

#[tokio::test(flavor = "multi_thread")]
async fn c70_after_a_crash_everything_in_flight_is_sent_again_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let settings = json!({ "in_flight_max": 50, "timeout_ms": 30_000 });
    let mut scene = Scene::new(folder.path(), settings).await;
    scene.judge.answer(|_| Say::Hold);
    scene.events(names("held", 50)).await;
    scene.judge.arrivals_reach(50, LIMIT).await;
    scene.server.kill().await;
    scene.judge.next_life().await;
    scene.judge.answer(|_| Say::Status(200));
    scene.server = scene.host.start().await;
    let up = Instant::now();
    scene.judge.arrivals_reach(100, Duration::from_secs(5)).await;
    let took = up.elapsed();
    scene.server.api.settled(LIMIT).await;
    scene.arrived(50, 2);
    for name in names("held", 50) {
        let attempts = scene.attempts(&name).await;
        let told: Vec<_> = attempts.iter().map(|a| (&a["number"], &a["try"], &a["counted"])).collect();
        assert_eq!(
            told,
            [(&json!(1), &json!(1), &json!(false)), (&json!(2), &json!(1), &json!(true))],
            "{attempts:#?}"
        );
        assert_eq!(
            (&attempts[0]["error"], &attempts[1]["status"]),
            (&json!("interrupted"), &json!("delivered"))
        );
    }
    // Whoever is asked why it came twice finds the restart among all else on the page.
    let name = names("held", 50).into_iter().next().expect("fifty");
    let path = format!("/events/{name}?account_id={}", scene.account);
    let page = scene.server.api.call(Method::GET, &path, None).await.unwrap();
    let page = String::from_utf8(page.body.to_vec()).unwrap();
    let line = "<b>The server restarted</b>: the request was cut off, and is repeated";
    assert_eq!(page.matches(line).count(), 1, "{page}");
    assert!(page.contains("was cut off by a restart of the server, so 127.0.0.1"), "{page}");
    scene.host.verify().await;
    println!("c70: all 50 were sent again within {took:?} of the start");
}

#[tokio::test(flavor = "multi_thread")]
async fn c70_a_frozen_process_keeps_the_store_and_goes_on_as_its_only_owner() {
    let folder = tempfile::tempdir().unwrap();
    let settings = json!({ "in_flight_max": 50, "timeout_ms": 30_000 });
    let scene = Scene::new(folder.path(), settings).await;
    scene.judge.answer(|_| Say::Hold);
    scene.events(names("held", 50)).await;
    scene.judge.arrivals_reach(50, LIMIT).await;
    scene.server.signal(Signal::STOP);
    let second = scene.host.try_start().await.map(|_| ()).expect_err("the store has an owner");
    assert_eq!(second.code, Some(9), "{second:?}");
    scene.judge.release();
    scene.server.signal(Signal::CONT);
    let figures = scene.server.api.settled(LIMIT).await;
    assert_eq!(figures["delivered"], 50);
    scene.arrived(50, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn c73_a_stop_lets_what_is_out_end_and_touches_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let settings = json!({ "in_flight_max": 16, "timeout_ms": 30_000 });
    let mut scene = Scene::new(folder.path(), settings).await;
    scene.judge.answer(|_| Say::Hold);
    scene.events(names("due", 100)).await;
    scene.judge.arrivals_reach(16, LIMIT).await;
    scene.server.signal(Signal::TERM);
    let refusal = eventually("it drains", LIMIT, async || {
        let ready = scene.server.api.call(Method::GET, "/readyz", None).await.expect("it answers on");
        if ready.status == 200 {
            return None;
        }
        Some(scene.server.api.event(&scene.account, "late", "{}").await.expect("an answer"))
    })
    .await;
    assert_eq!((refusal.status, refusal.json()["code"].as_str()), (503, Some("draining")), "{refusal:?}");
    assert!(refusal.headers.contains_key("retry-after"), "{refusal:?}");
    let asked = Instant::now();
    scene.judge.release();
    let ended = scene.server.ended(Duration::from_secs(6)).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    println!("c73: gone {:?} after the receiver answered", asked.elapsed());

    let listed = scene.host.on_store(&["list", "--json", "--account", &scene.account]).await;
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let listed: Vec<Value> = serde_json::from_str(&listed.out).expect("JSON");
    let with = |status: &str, attempts: u64| {
        listed.iter().filter(|d| d["status"] == status && d["attempts"] == attempts).count()
    };
    assert_eq!((with("delivered", 1), with("pending", 0), listed.len()), (16, 84, 100));
    scene.judge.next_life().await;
    scene.judge.answer(|_| Say::Status(200));
    scene.server = scene.host.start().await;
    scene.server.api.settled(LIMIT).await;
    scene.arrived(100, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn c73_what_is_out_at_the_end_of_the_drain_is_sent_again_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let settings = json!({ "in_flight_max": 16, "timeout_ms": 30_000 });
    let mut scene = Scene::new(folder.path(), settings).await;
    scene.judge.answer(|_| Say::Hold);
    scene.events(names("due", 16)).await;
    // At the limit of the drain, 10 s, and at a second signal.
    for (signals, code) in [(1, 0), (2, 130)] {
        let before = scene.judge.count();
        scene.judge.arrivals_reach(before.max(16), LIMIT).await;
        scene.server.signal(Signal::TERM);
        if signals == 2 {
            eventually("it drains", LIMIT, async || {
                let ready = scene.server.api.call(Method::GET, "/readyz", None).await.expect("an answer");
                (ready.status != 200).then_some(())
            })
            .await;
            scene.server.signal(Signal::TERM);
        }
        let ended = scene.server.ended(Duration::from_secs(14)).await;
        assert_eq!(ended.code, Some(code), "{ended:?}");
        scene.judge.next_life().await;
        scene.host.verify().await;
        scene.server = scene.host.start().await;
        scene.judge.arrivals_reach(before.max(16) + 16, LIMIT).await;
    }
    scene.judge.release();
    scene.server.api.settled(LIMIT).await;
    scene.arrived(16, 3);
    for name in names("due", 16) {
        let attempts = scene.attempts(&name).await;
        let told: Vec<_> = attempts.iter().map(|a| (a["error"].as_str(), a["try"].as_u64())).collect();
        assert_eq!(
            told,
            [(Some("interrupted"), Some(1)), (Some("interrupted"), Some(1)), (None, Some(1))],
            "{attempts:#?}"
        );
    }
    scene.host.verify().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c82_a_backlog_and_what_comes_in_beside_it_are_sent_once_each() {
    let folder = tempfile::tempdir().unwrap();
    let mut scene = Scene::new(folder.path(), json!({})).await;
    scene.pause().await;
    for n in 0..8 {
        scene.events(names(&format!("before-{n}"), 100)).await;
    }
    scene.server.kill().await;
    scene.server = scene.host.start().await;
    scene.resume().await;
    for n in 0..4 {
        scene.events(names(&format!("beside-{n}"), 100)).await;
    }
    // A second one refuses, and the first does not mind.
    let second = scene.host.try_start().await.map(|_| ()).expect_err("the store has an owner");
    assert_eq!(second.code, Some(9), "{second:?}");
    assert!(second.err.contains("does a server run on it already?"), "{second:?}");
    let figures = scene.server.api.settled(LIMIT).await;
    assert_eq!(figures["delivered"], 1200);
    scene.arrived(1200, 1);
    scene.host.verify().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c83_pairs_of_events_in_one_millisecond_are_all_sent() {
    let folder = tempfile::tempdir().unwrap();
    let scene = Scene::new(folder.path(), json!({ "in_flight_max": 64 })).await;
    for n in 0..500 {
        scene.events(names(&format!("pair-{n}"), 2)).await;
    }
    let figures = scene.server.api.settled(LIMIT).await;
    assert_eq!((&figures["enqueued"], &figures["delivered"]), (&json!(1000), &json!(1000)));
    scene.arrived(1000, 1);
    // A producer that repeats one gets the same event, and causes nothing.
    let again = scene.server.api.event(&scene.account, "pair-7-1", r#"{"name":"pair-7-1"}"#).await.unwrap();
    assert_eq!((again.status, &again.json()["duplicate"]), (200, &json!(true)));
    assert_eq!(scene.server.api.figures().await["enqueued"], 1000);
}

/// A server on a machine without root certificates says so and ends, rather than be healthy and deliver nothing; one
/// authority of the operator's own is enough.
#[tokio::test(flavor = "multi_thread")]
async fn c53_without_root_certificates_no_server_starts() {
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "").expect("a file");
    let serve = |more: &[&std::ffi::OsStr]| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_hooklog"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--open-loopback", "--store"]);
        command.arg(folder.path().join("store")).args(more).env_clear().env("SSL_CERT_FILE", &empty);
        command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped());
        command.stderr(std::process::Stdio::piped()).kill_on_drop(true);
        command.spawn().expect("it runs")
    };
    let ended = tokio::time::timeout(LIMIT, serve(&[]).wait_with_output()).await.expect("in time");
    let ended = ended.expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code().is_some_and(|code| code != 0), "{:?} {said}", ended.status);
    assert!(said.contains("ca-certificates") && !said.contains("panicked"), "{said}");

    let key = rcgen::KeyPair::generate().expect("a key");
    let mut parameters = rcgen::CertificateParams::default();
    parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let own = folder.path().join("own.pem");
    std::fs::write(&own, parameters.self_signed(&key).expect("a certificate").pem()).expect("a file");
    let mut server = serve(&["--extra-ca".as_ref(), own.as_os_str()]);
    let out = tokio::io::BufReader::new(server.stdout.take().expect("it is piped"));
    let up = tokio::time::timeout(LIMIT, tokio::io::AsyncBufReadExt::lines(out).next_line()).await;
    let up = up.expect("in time").expect("its output can be read");
    assert!(up.as_deref().is_some_and(|line| line.contains("listens on")), "{up:?}");
    server.kill().await.expect("it ends");
}

/// Where every receiver's certificate is of a private authority that the operator named, each way to send reaches
/// them; there is no worker beside the server that could be forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn c53_with_an_authority_of_ones_own_every_way_to_send_arrives() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::named("ours");
    let mut receiver = TlsReceiver::showing(authority.receiver("127.0.0.1", Good::Now)).await;
    let ca = authority.pem_file();
    let host = Host::new(folder.path()).with("--extra-ca", ca.to_str().expect("a path of ours"));
    let server = host.start().await;
    let (account, _) = server.api.account().await;
    let url = format!("https://{}/h", receiver.address);
    server.api.endpoint(&account, &url, json!({})).await;
    let event = ["send", "--account", &account, "--type", "a.b", "--data", "{}"];
    // The API, the command line, its replay, lines of JSON; then a store that is stopped and goes on.
    assert_eq!(server.api.event(&account, "api", "{}").await.expect("an answer").status, 202);
    server.api.settled(LIMIT).await;
    let lines = folder.path().join("lines.jsonl");
    std::fs::write(&lines, "{\"type\":\"a.b\",\"data\":1}\n").expect("a file");
    let lines = lines.to_str().expect("a path of ours");
    for args in [
        [&event[..], &["--id", "cli", "--wait=60s"]].concat(),
        vec!["replay", "api", "--all", "--yes"],
        vec!["send", "--account", &account, "--jsonl", lines],
    ] {
        let ended = host.on_store(&args).await;
        assert_eq!(ended.code, Some(0), "{args:?} {ended:?}");
        server.api.settled(LIMIT).await;
    }
    server.stop().await;
    let stopped = host.on_store(&[&event[..], &["--id", "stopped"]].concat()).await;
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    let server = host.start().await;
    let figures = server.api.settled(LIMIT).await;
    assert_eq!((&figures["delivered"], &figures["enqueued"]), (&json!(4), &json!(4)), "{figures}");
    assert_eq!(receiver.requests().len(), 5, "each once, and the replay");
    host.verify().await;
    server.stop().await;
}

/// Nor does any other command fall over there: it does its work, or says what is missing.
#[tokio::test(flavor = "multi_thread")]
async fn c53_without_root_certificates_no_command_panics() {
    let folder = tempfile::tempdir().unwrap();
    let host = Host::new(folder.path());
    let server = host.start().await;
    let (account, _) = server.api.account().await;
    assert_eq!(server.api.event(&account, "evt", "{}").await.expect("an answer").status, 202);
    server.stop().await;
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "").expect("a file");
    let mut refused = Vec::new();
    for (line, opens) in [
        (vec!["list"], true),
        (vec!["status"], true),
        (vec!["accounts", "list"], true),
        (vec!["endpoints", "list"], true),
        (vec!["explain", "evt"], true),
        (vec!["dead", "list"], true),
        (vec!["audit"], true),
        (vec!["send", "--account", &account, "--type", "a.b", "--data", "{}"], true),
        (vec!["replay", "evt"], true),
        (vec!["store", "verify"], true),
        (vec!["store", "rebuild"], true),
        (vec!["demo", "--once"], false),
        (vec!["schedule"], false),
        (vec!["completion", "bash"], false),
    ] {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_hooklog"));
        command.args(&line).env_clear().env("SSL_CERT_FILE", &empty).kill_on_drop(true);
        if opens {
            command.arg("--store").arg(&host.store);
        }
        command.stdin(std::process::Stdio::null());
        let ended = tokio::time::timeout(LIMIT, command.output()).await.expect("in time").expect("it runs");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(!said.contains("panicked"), "{line:?}: {said}");
        match ended.status.code().expect("no signal ended it") {
            0 => {}
            _ => {
                assert!(said.contains("ca-certificates"), "{line:?}: {said}");
                refused.push(line[0]);
            }
        }
    }
    println!("c53: refused for want of root certificates: {refused:?}");
    assert!(!refused.contains(&"schedule") && !refused.contains(&"completion"), "{refused:?}");
    assert!(refused.contains(&"demo"), "what delivers over HTTPS does not begin: {refused:?}");
}

/// A minute's worth of the case's half an hour, and fewer endpoints; `tests/long.rs` plays it in full, with what its
/// memory does meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn c128_many_endpoints_share_few_connections() {
    let folder = tempfile::tempdir().unwrap();
    let load = steady::Load {
        hosts: 5,
        endpoints: 100,
        time: Duration::from_secs(5),
        busy_per_second: 100,
        others_per_second: 40,
        refused: 600,
    };
    let seen = steady::live(folder.path(), load).await;
    println!("c128: {seen:?}");
    assert!(seen.files_most < 900 && seen.refused_files < 900, "{seen:?}");
    assert!(seen.reused_percent > 90.0, "{seen:?}");
    assert!(seen.time_wait_most < 1_000, "{seen:?}");
}
