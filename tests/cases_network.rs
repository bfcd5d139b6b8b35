//! What went wrong in other senders on the network, by the number of the case, as a store records it: each fault is
//! one failed attempt that says what it was, is tried again as the schedule has it, and harms nothing else. What the
//! client makes of each fault by itself is `tests/cases_client.rs`.
//!
//! Real sockets on loopback, name servers and certificates of the tests' own; the clock of due times stands until it
//! is told otherwise.

mod support;

#[path = "support/name_server.rs"]
mod name_server;
#[path = "support/openssl.rs"]
mod openssl;
#[path = "support/sender.rs"]
mod sender;
#[path = "support/tls_receiver.rs"]
mod tls_receiver;
use support::receiver;

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hooklog::delivery::client::resolve::{Dns, Kept};
use hooklog::delivery::client::{Lookup, Options};
use hooklog::delivery::guard::Policy;
use hooklog_projections::time::Millis;
use name_server::{NameServer, Say};
use openssl::OldServer;
use receiver::{Receiver, Step, answer, black_hole, raw};
use sender::{Names, SHORT};
use serde_json::{Value, json};
use support::case::{Hook, LONG, SECRET, Setup, World, deliveries, delivery, signed_with, text};
use tls_receiver::{Authority, Good, TlsReceiver, old_greeting, self_signed};

/// Loopback, and these ports for names that lead there.
fn guard(ports: &[u16]) -> Policy {
    let mut guard = Setup::default().guard;
    guard.ports.extend(ports);
    guard
}

/// Names that all lead here.
fn here() -> Option<Arc<dyn Lookup>> {
    Some(Names::new(&[Ok("127.0.0.1")]))
}

/// The delivery failed once for this reason, without an answer, and is tried again a minute later.
#[track_caller]
fn failed_once(world: &World, row: &Value, attempts: &[Value], error: &str, reason: Option<&str>) {
    let [attempt] = attempts else { panic!("one attempt: {attempts:?}") };
    assert_eq!((&attempt["status"], &attempt["error"]), (&json!("failed"), &json!(error)), "{attempt}");
    assert_eq!(attempt["reason"].as_str(), reason, "{attempt}");
    assert!(attempt.get("status_code").is_none() && attempt["counted"] == true, "{attempt}");
    assert_eq!(row["status"], "pending", "{row}");
    let wait = world.due_in(row);
    assert!((54_000..=66_000).contains(&wait.0), "{wait:?} {row}");
}

/// The events of the last endpoint made: each is aimed at it.
async fn aimed(world: &World, account: &str, endpoint: &str, event: &str) -> String {
    let more = format!(r#","endpoint_id":"{endpoint}""#);
    delivery(&world.event_with(account, event, "1", &more).await)
}

/// Hosts are taken in punycode only, without a full stop at the end and not under `.test` (rules S2 and S3), and are
/// shown as they are stored: in that one form. Over TLS such a name is offered and proved as any other. Beside it
/// nothing but HTTP/1.1 is offered, so that of C49 nothing else arises.
#[tokio::test]
async fn c25_c49_names_are_proved_over_tls_as_they_are_stored() {
    let authority = Authority::named("ours");
    let names = ["xn--bcher-kva.com", "hooks.customer.com", "exa_mple.customer.com"];
    let mut receiver = TlsReceiver::showing(authority.receiver(names[0], Good::Now)).await;
    let port = receiver.address.port();
    let client = Options { extra_ca: Some(authority.pem_file()), ..Options::default() };
    let world = World::with(Setup { guard: guard(&[port]), names: here(), client, ..Setup::default() });
    let account = world.account().await;
    for (given, stored) in [names[0], "HOOKS.Customer.com", names[2]].into_iter().zip(names) {
        receiver.show(authority.receiver(stored, Good::Now));
        let endpoint = world.endpoint(&account, &format!("https://{given}:{port}/h")).await;
        let shown = world.get(&format!("/v1/endpoints/{endpoint}")).await.ok(200);
        assert_eq!(shown["url"], format!("https://{stored}:{port}/h"));
        let id = aimed(&world, &account, &endpoint, &format!("to-{}", stored.len())).await;
        assert_eq!(world.until(&id, "delivered").await["attempts"], 1);
        let greeting = receiver.greeting().await;
        assert_eq!((greeting.name.as_deref(), greeting.alpn), (Some(stored), vec!["http/1.1".to_owned()]));
        let [head] = &receiver.requests()[..] else { panic!("one request") };
        assert!(head.contains(&format!("\r\nhost: {stored}:{port}\r\n")), "{head}");
    }
    // With a full stop at the end it would be the same host: it is refused when it is configured.
    let url = format!("https://hooks.customer.com.:{port}/h");
    let refused = world.post("/v1/endpoints", json!({ "account_id": account, "url": url })).await;
    assert!(text(&refused.ok(422)["detail"]).contains("full stop"));
    world.always_true(&mut []).await;
}

/// A host that looks like another is written in punycode to its owner too.
#[tokio::test]
async fn c25_a_look_alike_is_told_in_punycode() {
    let mut hook = Hook::scripted(vec![answer(410, "", "")]).await;
    let setup = Setup { guard: guard(&[hook.port()]), names: here(), ..Setup::default() };
    let world = World::with(setup);
    let (mut service, telling) = world.telling().await;
    let account = world.account().await;
    // `pаypal.com`, whose second letter is Cyrillic.
    let host = "xn--pypal-4ve.com";
    world.endpoint(&account, &format!("http://{host}:{}/h", hook.port())).await;
    let id = delivery(&world.event(&account, "one", "1").await);
    world.until(&id, "dead").await;
    world.advance_secs(1).await;
    // That it died and that its endpoint was disabled is one message.
    for message in service.take(1).await {
        let message: Value = serde_json::from_slice(message.body()).expect("JSON");
        assert_eq!(message["endpoint_host"], host);
        assert!(text(&message["subject"]).is_ascii() && text(&message["text"]).is_ascii(), "{message}");
        assert!(format!("{}{}", message["subject"], message["text"]).contains(host), "{message}");
    }
    telling.abort();
    world.always_true(&mut [&mut hook]).await;
}

/// A body without end ends the attempt, not the success; a head without end is none.
#[tokio::test(flavor = "multi_thread")]
async fn c43_an_answer_without_end_is_one_attempt_that_ends() {
    let head = || raw("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n");
    let every = Duration::from_millis(100);
    let drips = Receiver::scripted(vec![vec![head(), Step::Drip(b"1\r\nx\r\n".repeat(100), every)]]).await;
    let gushes = Receiver::scripted(vec![vec![head(), Step::Endless(b"1\r\nx\r\n".repeat(1_000))]]).await;
    let begins =
        Receiver::scripted(vec![vec![Step::Drip(b"HTTP/1.1 200 OK\r\nx-a: b".repeat(10), every)]]).await;
    let mut hook = Hook::scripted(vec![answer(200, "", "")]).await;
    let world = World::new().await;
    let account = world.account().await;
    let well = world.endpoint(&account, &hook.url("/")).await;
    let settings = json!({ "timeout_ms": 1_000, "signing_secret": SECRET });
    let mut ids = Vec::new();
    for (n, receiver) in [&drips, &gushes, &begins].into_iter().enumerate() {
        let endpoint = world.endpoint_of(&account, &receiver.url("/"), settings.clone()).await;
        ids.push(aimed(&world, &account, &endpoint, &format!("e{n}")).await);
    }
    // Nobody else waits for them.
    let id = aimed(&world, &account, &well, "well").await;
    assert_eq!(world.until(&id, "delivered").await["attempts"], 1);
    for id in &ids[..2] {
        world.until(id, "delivered").await;
        let attempt = &world.attempts(id).await[0];
        assert_eq!(attempt["response_truncated"], true);
        assert!(attempt["response_body"].as_str().is_some_and(|body| body.len() <= 16_384), "{attempt}");
    }
    let row = world.until_tried(&ids[2], 1).await;
    failed_once(&world, &row, &world.attempts(&ids[2]).await, "timeout", None);
    for receiver in [&drips, &gushes, &begins] {
        assert_eq!(receiver.connections(), 1);
        tokio::time::timeout(LONG, receiver.ended(1)).await.expect("the connection is dropped");
    }
    world.always_true(&mut [&mut hook]).await;
}

/// One request each, whatever follows the head; the body is kept in part, and says how long it was.
#[tokio::test]
async fn c44_a_large_answer_is_recorded_as_one_success() {
    let lengths = [65_535, 65_536, 70_000, 300_000, 10_000_000];
    let fields = format!("X-Big: {}\r\n", "b".repeat(4089)).repeat(90);
    let replies: Vec<_> = lengths.iter().map(|len| answer(200, &fields, &"x".repeat(*len))).collect();
    // And one that does not say how long it is.
    let chunk = format!("{:x}\r\n{}\r\n", 100_000, "x".repeat(100_000));
    let chunked = format!("HTTP/1.1 200 OK\r\n{fields}transfer-encoding: chunked\r\n\r\n{chunk}0\r\n\r\n");
    let mut hook = Hook::scripted([replies, vec![vec![raw(chunked)]]].concat()).await;
    let world = World::new().await;
    let account = world.account().await;
    world.endpoint(&account, &hook.url("/")).await;
    for (n, len) in lengths.iter().map(Some).chain([None]).enumerate() {
        let id = delivery(&world.event(&account, &format!("e{n}"), "1").await);
        assert_eq!(world.until(&id, "delivered").await["attempts"], 1);
        let [attempt] = &world.attempts(&id).await[..] else { panic!("one attempt") };
        assert_eq!((&attempt["status_code"], &attempt["response_truncated"]), (&json!(200), &json!(true)));
        assert_eq!(text(&attempt["response_body"]), "x".repeat(16_384));
        let announced = len.map(|len| json!({ "content-length": len.to_string() }));
        assert_eq!(attempt.get("response_headers"), announced.as_ref(), "{len:?}");
    }
    // A week later still nothing was sent again.
    world.advance_secs(7 * 24 * 3_600).await;
    assert_eq!(hook.count(), lengths.len() + 1);
    for include in ["", "&include=payload", "&include=last_error"] {
        let list = world.get(&format!("/v1/deliveries?account_id={account}{include}")).await;
        assert!(
            list.body.len() < 16_384 && !list.ok(200).to_string().contains("xxxx"),
            "no bodies in a list"
        );
    }
    world.always_true(&mut [&mut hook]).await;
}

/// A head is the answer, whatever becomes of the body; half a head is none.
#[tokio::test]
async fn c46_a_cut_body_is_no_second_request() {
    let begun = || raw("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello");
    let mut hook = Hook::scripted(vec![
        vec![begun(), Step::Close],
        vec![begun(), Step::Reset],
        vec![raw("HTTP/1.1 200 OK\r\nConte"), Step::Close],
    ])
    .await;
    let world = World::new().await;
    let account = world.account().await;
    world.endpoint(&account, &hook.url("/")).await;
    for event in ["closed", "reset"] {
        let id = delivery(&world.event(&account, event, "1").await);
        world.until(&id, "delivered").await;
        let attempt = &world.attempts(&id).await[0];
        assert_eq!(
            (&attempt["response_body"], &attempt["response_truncated"]),
            (&json!("hello"), &json!(true))
        );
    }
    let id = delivery(&world.event(&account, "half", "1").await);
    let row = world.until_tried(&id, 1).await;
    failed_once(&world, &row, &world.attempts(&id).await, "closed", None);
    assert_eq!(hook.count(), 3);
    world.always_true(&mut [&mut hook]).await;
}

/// A kept connection that closes under a request costs no attempt; what was sent twice is recorded as such.
#[tokio::test]
async fn c47_a_connection_that_closes_under_a_request_costs_no_try() {
    let once = |request: &receiver::Received| match request.nth {
        0 => answer(200, "", "ok"),
        _ => vec![Step::Close],
    };
    let mut hook = Hook::answering(once).await;
    let world = World::with(Setup { resends: 5, ..Setup::default() });
    let account = world.account().await;
    world.endpoint(&account, &hook.url("/")).await;
    let mut resent = 0;
    for n in 0..6 {
        let id = delivery(&world.event(&account, &format!("e{n}"), "1").await);
        assert_eq!(world.until(&id, "delivered").await["attempts"], 1);
        resent += usize::from(world.attempts(&id).await[0]["resent"] == true);
    }
    assert_eq!((resent, hook.count()), (5, 11));
    world.always_true(&mut [&mut hook]).await;
}

/// An answer that comes while the body is still being sent counts, and the delivery ends by it.
#[tokio::test]
async fn c50_an_early_refusal_is_the_answer() {
    let reply = raw("HTTP/1.1 429 Later\r\nretry-after: 90\r\ncontent-length: 0\r\n\r\n");
    let receiver = Receiver::blurting(vec![reply, Step::HalfClose, Step::Hold]).await;
    let world = World::new().await;
    let account = world.account().await;
    world.endpoint(&account, &receiver.url("/")).await;
    let data = format!("\"{}\"", "x".repeat(65_000));
    let id = delivery(&world.event(&account, "one", &data).await);
    let row = world.until_tried(&id, 1).await;
    assert_eq!(world.attempts(&id).await[0]["status_code"], 429);
    assert_eq!(world.due_in(&row), Millis::from_secs(90));
    world.always_true(&mut []).await;
}

/// Every fault of TLS is one failed attempt with a reason of its own, is tried again as the schedule has it, and no
/// request is sent before a proof; a certificate that was renewed counts from the next attempt on.
#[tokio::test(flavor = "multi_thread")]
async fn c52_each_fault_of_tls_is_a_failed_try_with_its_reason() {
    const HOST: &str = "127.0.0.1";
    let (authority, stranger) = (Authority::named("ours"), Authority::named("a stranger's"));
    let shown = [
        (authority.receiver(HOST, Good::Before), "certificate-expired"),
        (authority.receiver(HOST, Good::Later), "certificate-not-yet-valid"),
        (self_signed(HOST, false), "certificate-unknown-issuer"),
        (authority.receiver("hooks.other.com", Good::Now), "certificate-wrong-host"),
        (authority.receiver_without_intermediate(HOST), "certificate-unknown-issuer"),
        (stranger.receiver(HOST, Good::Now), "certificate-unknown-issuer"),
        (authority.choosy_receiver(HOST), "client-certificate-wanted"),
    ];
    let mut good = TlsReceiver::showing(shown[0].0.clone()).await;
    let mut at = vec![(good.address, shown[0].1)];
    let mut bad = Vec::new();
    for (config, reason) in shown.into_iter().skip(1) {
        let receiver = TlsReceiver::showing(config).await;
        at.push((receiver.address, reason));
        bad.push(receiver);
    }
    // A greeting of TLS 1.0 and of 1.1, and servers that speak nothing newer.
    let alert = |code: u8| raw([0x15, 3, 1, 0, 2, 2, code]);
    for (step, reason) in [
        (raw(old_greeting(1)), "tls-too-old"),
        (raw(old_greeting(2)), "tls-too-old"),
        (alert(70), "tls-too-old"),
        (alert(40), "no-common-tls"),
        (alert(80), "alert"),
        (raw("HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"), "not-tls"),
    ] {
        at.push((Receiver::blurting(vec![step, Step::Hold]).await.address, reason));
    }
    let key = openssl::weak(&authority.pem_file(), HOST);
    let real = [
        (OldServer::start(&key, &["-tls1"]).await, "tls-too-old"),
        (OldServer::start(&key, &["-tls1_1"]).await, "tls-too-old"),
        (OldServer::start(&key, &["-tls1_2"]).await, "certificate-unusable"),
        (OldServer::start(&key, &["-tls1_3"]).await, "certificate-unusable"),
    ];
    at.extend(real.iter().map(|(server, reason)| (server.address, *reason)));

    let client = Options { extra_ca: Some(authority.pem_file()), ..Options::default() };
    let world = World::with(Setup { client, ..Setup::default() });
    let account = world.account().await;
    let mut ids = Vec::new();
    for (n, (address, reason)) in at.iter().enumerate() {
        let endpoint = world.endpoint(&account, &format!("https://{address}/h")).await;
        let id = aimed(&world, &account, &endpoint, &format!("e{n}")).await;
        let row = world.until_tried(&id, 1).await;
        failed_once(&world, &row, &world.attempts(&id).await, "tls", Some(reason));
        ids.push(id);
    }
    // The first one's certificate is renewed; all others fail again.
    good.show(authority.receiver(HOST, Good::Now));
    world.advance_secs(67).await;
    world.until(&ids[0], "delivered").await;
    for (id, (_, reason)) in ids.iter().zip(at).skip(1) {
        let row = world.until_tried(id, 2).await;
        assert_eq!((&row["status"], row["try"].as_u64()), (&json!("pending"), Some(2)), "{row}");
        assert_eq!(world.attempts(id).await[1]["reason"], reason);
    }
    assert_eq!(good.requests().len(), 1);
    assert!(bad.iter_mut().all(|receiver| receiver.requests().is_empty()), "no request before a proof");
    for (server, _) in real {
        assert!(!server.heard("POST"), "no request before a proof");
    }
    world.always_true(&mut []).await;
}

/// What a name server says, or does not say, is a reason of its own and kills nothing; a name that appears is found
/// by one of the next tries.
#[tokio::test(flavor = "multi_thread")]
async fn c55_a_hiccup_of_dns_kills_nothing() {
    let mut hook = Hook::scripted(vec![answer(200, "", "")]).await;
    let port = hook.port();
    let well = Arc::new(AtomicUsize::new(0));
    let now = well.clone();
    let server = NameServer::saying(move |name| match name {
        _ if now.load(Ordering::SeqCst) > 0 => Say::Are(vec![Ipv4Addr::LOCALHOST.into()], 60),
        "none.customer.com" => Say::NoSuchName,
        "broken.customer.com" => Say::ServerFailed,
        "empty.customer.com" => Say::Are(vec![], 60),
        // Round and round.
        "one.customer.com" => Say::Is("two.customer.com".to_owned()),
        "two.customer.com" => Say::Is("one.customer.com".to_owned()),
        _ => Say::Silent,
    })
    .await;
    let kept = Kept { answers: SHORT, denials: SHORT };
    let names = Arc::new(Dns::configured(Dns::asking(server.address), kept));
    let client = Options { lookup_timeout: SHORT, ..Options::default() };
    let names_too: Option<Arc<dyn Lookup>> = Some(names.clone());
    let setup = Setup { guard: guard(&[port]), names: names_too, client, ..Setup::default() };
    let world = World::with(setup);
    let account = world.account().await;
    let mut ids = Vec::new();
    for (name, reason) in [
        ("none", Some("no-such-name")),
        ("broken", Some("name-server-failed")),
        ("empty", Some("no-address")),
        ("silent", Some("name-server-silent")),
        ("one", None),
    ] {
        let url = format!("http://{name}.customer.com:{port}/h");
        let endpoint = world.endpoint(&account, &url).await;
        let id = aimed(&world, &account, &endpoint, name).await;
        let row = world.until_tried(&id, 1).await;
        let attempts = world.attempts(&id).await;
        let told = reason.or(attempts[0]["reason"].as_str());
        failed_once(&world, &row, &attempts, "dns", told);
        ids.push((name, id));
    }
    well.store(1, Ordering::SeqCst);
    // Until what was denied is believed no more.
    for (name, _) in &ids {
        let unknown =
            async || names.lookup(format!("{name}.customer.com")).await.map_or(true, |all| all.is_empty());
        let found = async { while unknown().await {} };
        tokio::time::timeout(LONG, found).await.expect("it is asked for again");
    }
    world.advance_secs(67).await;
    for (_, id) in &ids {
        assert_eq!(world.until(id, "delivered").await["attempts"], 2);
    }
    world.always_true(&mut [&mut hook]).await;
}

/// Which addresses were tried in vain stands in the attempt.
#[tokio::test]
async fn c56_the_address_that_answered_and_those_that_did_not_are_recorded() {
    let mut hook = Hook::scripted(vec![answer(200, "", "")]).await;
    let port = hook.port();
    let names: Option<Arc<dyn Lookup>> = Some(Names::new(&[Ok("127.0.0.3 127.0.0.2 127.0.0.1")]));
    let world = World::with(Setup { guard: guard(&[port]), names, ..Setup::default() });
    let account = world.account().await;
    world.endpoint(&account, &format!("http://hooks.customer.com:{port}/h")).await;
    let id = delivery(&world.event(&account, "one", "1").await);
    world.until(&id, "delivered").await;
    let attempt = &world.attempts(&id).await[0];
    assert_eq!(attempt["address"], format!("127.0.0.1:{port}"));
    assert_eq!(attempt["tried_in_vain"], json!([format!("127.0.0.3:{port}"), format!("127.0.0.2:{port}")]));
    world.always_true(&mut [&mut hook]).await;
}

/// Whatever a name is bound to meanwhile: an address that is not allowed is never connected to. Each refusal is a
/// try, and the last one ends the delivery: it never goes round and round.
#[tokio::test]
async fn c58_c59_a_refused_address_is_a_failed_try_that_ends() {
    let canary = Receiver::scripted(vec![answer(200, "", "canary")]).await;
    let port = canary.address.port();
    let names: Option<Arc<dyn Lookup>> = Some(Names::new(&[
        Ok("127.0.0.1"),
        Ok("8.8.8.8 10.0.0.1"),
        Ok("::ffff:127.0.0.1"),
        Ok("169.254.169.254"),
    ]));
    let strict = Policy { allow_http: true, ports: vec![port], ..Policy::default() };
    let world = World::with(Setup { guard: strict, names, ..Setup::default() });
    let account = world.account().await;
    world.endpoint(&account, &format!("http://hooks.customer.com:{port}/h")).await;
    let id = delivery(&world.event_with(&account, "one", "1", r#","max_tries":4"#).await);
    for (tried, wait) in [(1, 67), (2, 331), (3, 1981)] {
        let row = world.until_tried(&id, tried).await;
        assert_eq!(row["status"], "pending", "{row}");
        world.advance_secs(wait).await;
    }
    let dead = world.until(&id, "dead").await;
    assert_eq!((&dead["dead_reason"], &dead["attempts"]), (&json!("exhausted"), &json!(4)), "{dead}");
    for attempt in world.attempts(&id).await {
        assert_eq!(attempt["error"], "egress_denied", "{attempt}");
        assert_eq!(
            (&attempt["reason"], attempt.get("address")),
            (&json!("address-not-allowed"), None),
            "{attempt}"
        );
        assert_eq!(attempt["detail"], "address not allowed", "nothing that maps our network");
    }
    assert_eq!(canary.connections(), 0);
    world.always_true(&mut []).await;
}

/// The phase that took too long is recorded, and what was spent on it.
#[tokio::test]
async fn c64_the_phase_that_took_too_long_is_recorded() {
    let silent = Receiver::scripted(vec![vec![Step::Hold]]).await;
    let begun = Receiver::scripted(vec![vec![raw("H"), Step::Hold]]).await;
    let head = raw("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n");
    let bodiless = Receiver::scripted(vec![vec![head, Step::Hold]]).await;
    let hole = black_hole([127, 0, 0, 9].into(), 0).await;
    let client = Options { connect_timeout: SHORT, ..Options::default() };
    let world = World::with(Setup { client, ..Setup::default() });
    let account = world.account().await;
    let one_second = json!({ "timeout_ms": 1_000, "signing_secret": SECRET });
    let table = [
        (hole.address, Some(("connect", Some("connect-slow"))), false),
        (silent.address, Some(("timeout", None)), false),
        (begun.address, Some(("timeout", None)), true),
        (bodiless.address, None, true),
    ];
    let mut ids = Vec::new();
    for (n, (address, ..)) in table.iter().enumerate() {
        let endpoint = world.endpoint_of(&account, &format!("http://{address}/h"), one_second.clone()).await;
        ids.push(aimed(&world, &account, &endpoint, &format!("e{n}")).await);
    }
    for (id, (address, fault, first_byte)) in ids.iter().zip(table) {
        let row = world.until_tried(id, 1).await;
        let attempts = world.attempts(id).await;
        match fault {
            Some((error, reason)) => failed_once(&world, &row, &attempts, error, reason),
            None => assert_eq!(
                (&row["status"], &attempts[0]["response_truncated"]),
                (&json!("delivered"), &json!(true))
            ),
        }
        let attempt = &attempts[0];
        let least = if address == hole.address { SHORT.as_millis() as u64 } else { 1_000 };
        assert!(attempt["took_ms"].as_u64().expect("a number") >= least, "{attempt}");
        assert_eq!(attempt["timings"].get("first_byte_us").is_some(), first_byte, "{attempt}");
        assert_eq!(attempt["address"], address.to_string());
    }
    world.always_true(&mut []).await;
}

/// A receiver that took a request in and was too slow to say so gets it again under the same id.
#[tokio::test]
async fn c65_what_was_taken_in_too_slowly_comes_again_under_its_id() {
    let mut hook = Hook::scripted(vec![vec![Step::Hold], answer(200, "", "")]).await;
    let world = World::new().await;
    let account = world.account().await;
    let settings = json!({ "timeout_ms": 1_000, "signing_secret": SECRET });
    world.endpoint_of(&account, &hook.url("/"), settings).await;
    let id = deliveries(&world.event(&account, "one", "1").await).remove(0);
    let row = world.until_tried(&id, 1).await;
    failed_once(&world, &row, &world.attempts(&id).await, "timeout", None);
    world.advance_secs(67).await;
    world.until(&id, "delivered").await;
    let requests = hook.take(2).await;
    for request in &requests {
        assert_eq!(
            (request.values("webhook-id"), request.values("idempotency-key")),
            (vec!["one"], vec!["one"])
        );
        signed_with(request, &[SECRET], SECRET);
    }
    assert_eq!(requests[0].body(), requests[1].body());
    world.always_true(&mut [&mut hook]).await;
}

/// Idle connections go with the store, and those of an endpoint's host when its time is over.
#[tokio::test]
async fn c128_a_store_that_is_closed_leaves_no_connection() {
    let receiver = Receiver::scripted(vec![answer(200, "", "")]).await;
    let mut world = World::new().await;
    let account = world.account().await;
    world.endpoint(&account, &receiver.url("/")).await;
    let mut reused = 0;
    for n in 0..50 {
        let id = delivery(&world.event(&account, &format!("e{n}"), "1").await);
        world.until(&id, "delivered").await;
        reused += usize::from(world.attempts(&id).await[0]["reused"] == true);
    }
    assert!(reused >= 45, "{reused} of 50 over a kept connection");
    assert!(receiver.connections() <= 5 && receiver.open() >= 1);
    world.always_true(&mut []).await;
    world.stop().await;
    tokio::time::timeout(LONG, receiver.ended(receiver.connections())).await.expect("closed");
    assert_eq!(receiver.open(), 0);
}
