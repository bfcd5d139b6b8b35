//! Cases of the area *payload*: what is sent is what was accepted, byte for byte, to everybody, each time.

mod support;

use axum::http::Method;
use hooklog::api::serve::{Listeners, serve};
use serde_json::json;
use support::case::{
    Hook, LONG, SECOND, SECRET, Setup, World, deliveries, delivery, logs, signatures, signed_with, text,
};
use support::judge::ledger;
use support::receiver::{Step, answer, raw};
use support::server::Host;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

const P0: &str = r#"{"id":"evt_01","type":"payment.settled","data":{"amount":12900,"currency":"EUR"}}"#;
const P0_DATA: &str = r#"{"amount":12900,"currency":"EUR"}"#;
const P1: &str = r#"{"b":"café 🚀 \u0026 \/","a":12900.00}"#;
const P1_STANDARD: &str = "v1,ySEuBE31h8DKt97NDP/n2yZHTIx+sCqA3FKn9BEXY8c=";
const P1_LEDGER: &str = "sha256=7b7dbaf32a339b6f53c85b3835d46e28dfabfd38c06f9b2015eeb4c3efe58474";
const EMPTY_STANDARD: &str = "v1,CoU3QRvMx1rnZlSLP3cW3e/Ulgu3t1VUWJvM1hsEXDY=";
const EMPTY_LEDGER: &str = "sha256=3869a63cbe73c747431cf9ff4d38cbaa6ad6adb0541c4753e1c90f7b6920620f";

#[tokio::test(flavor = "multi_thread")]
async fn c01_escapes_and_emoji_arrive_as_they_were_written() {
    let mut world = World::new().await;
    let mut hook = Hook::scripted(vec![answer(500, "", ""), answer(200, "", "")]).await;
    let account = world.account().await;
    let endpoint = world.endpoint(&account, &hook.url("/")).await;
    let accepted = world.raw(&account, "evt_01", "application/json", P1).await.ok(202);
    assert_eq!(P1.len(), 41);
    let request = hook.next().await;
    assert_eq!(request.body(), P1.as_bytes());
    assert_eq!(signatures(&request), [P1_STANDARD]);
    assert_eq!(request.values("x-ledger-signature"), [P1_LEDGER]);

    // After a failed attempt it comes from the disk, and is the same.
    let id = delivery(&accepted);
    world.until_tried(&id, 1).await;
    world.advance_secs(67).await;
    let again = hook.next().await;
    assert_eq!(again.body(), P1.as_bytes());
    signed_with(&again, &[SECRET], SECRET);
    world.until(&id, "delivered").await;

    // After a restart between the acceptance and the delivery.
    let path = format!("/v1/endpoints/{endpoint}");
    world.post(&format!("{path}/pause"), json!({})).await.ok(200);
    let held = world.raw(&account, "evt_02", "application/json", P1).await.ok(202);
    world.restart().await;
    assert_eq!(world.delivery(&delivery(&held)).await["held_by"], "paused");
    world.post(&format!("{path}/resume"), json!({})).await.ok(200);
    let late = hook.next().await;
    assert_eq!(late.body(), P1.as_bytes());
    signed_with(&late, &[SECRET], SECRET);

    // At a replay.
    world.until(&delivery(&held), "delivered").await;
    let all = json!({ "scope": "all", "confirm": true });
    world.post("/v1/events/evt_01/replay", all).await.ok(202);
    let replayed = hook.next().await;
    assert_eq!(replayed.body(), P1.as_bytes());
    signed_with(&replayed, &[SECRET], SECRET);
    world.until_tried(&id, 3).await;
    world.always_true(&mut [&mut hook]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c02_numbers_keep_every_digit() {
    let world = World::new().await;
    let mut hook = Hook::scripted(vec![answer(200, "", "")]).await;
    let account = world.account().await;
    world.endpoint(&account, &hook.url("/")).await;
    let numbers = r#"{"a":12900.00,"b":1E2,"c":117.63331139400017,"d":18446744073709551616,"e":9007199254740993,"f":-0}"#;
    world.raw(&account, "raw", "application/json", numbers).await.ok(202);
    assert_eq!(hook.next().await.body(), numbers.as_bytes());
    for (n, data) in [numbers, r#"{"too":1e400}"#, "-0", "[1E-2,0.10]"].into_iter().enumerate() {
        let event = world.event(&account, &format!("n{n}"), data).await;
        let wanted = format!(r#"{{"id":"n{n}","type":"payment.settled","data":{data}}}"#);
        assert_eq!(hook.next().await.body(), wanted.as_bytes());
        world.until(&delivery(&event), "delivered").await;
        // What the API shows of it is the text that came in, too.
        let shown = world.get(&format!("/v1/deliveries?account_id={account}&limit=1&include=payload")).await;
        assert!(String::from_utf8_lossy(&shown.body).contains(&format!("\"payload\":{wanted}")), "{data}");
    }
    world.always_true(&mut [&mut hook]).await;
}

/// A line of the command line about the stopped store; it must succeed.
async fn on_the_stopped(world: &World, args: &[&str]) -> String {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_hooklog"));
    command.args(args).arg("--store").arg(world.folder.path()).env_clear();
    let ended = command.output().await.expect("it runs");
    assert!(ended.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ended.stderr));
    String::from_utf8(ended.stdout).expect("UTF-8")
}

/// By grammar: a reader that knows the markers would not take them as keys.
#[track_caller]
fn is_json(text: &str) {
    let _: Box<serde_json::value::RawValue> = serde_json::from_str(text).expect("JSON");
}

/// The dashboard of the case is not there yet; what it will read is.
#[tokio::test(flavor = "multi_thread")]
async fn c04_keys_that_a_json_library_keeps_for_itself_are_only_keys() {
    let mut world = World::new().await;
    // Delivered at first; what is replayed is refused, and dead: the command line exports those with their payload.
    let reply = |request: &support::receiver::Received| {
        answer(if request.values("webhook-replay").is_empty() { 200 } else { 400 }, "", "")
    };
    let mut hook = Hook::answering(reply).await;
    let account = world.account().await;
    world.endpoint(&account, &hook.url("/")).await;
    let datas = [
        r#"{"$serde_json::private::Number":"1"}"#,
        r#"{"C":0,"$serde_json::private::Number":0}"#,
        r#"{"$serde_json::private::RawValue":"[1"}"#,
    ];
    let mut sent = Vec::new();
    for (n, data) in datas.into_iter().enumerate() {
        // Once in our envelope, once as they are.
        for bare in [false, true] {
            let id = format!("{}{n}", if bare { "r" } else { "k" });
            let (event, wanted) = match bare {
                false => {
                    let wrapped = format!(r#"{{"id":"{id}","type":"payment.settled","data":{data}}}"#);
                    (world.event(&account, &id, data).await, wrapped)
                }
                true => {
                    let taken = world.raw(&account, &id, "application/json", data).await;
                    (taken.ok(202), data.to_owned())
                }
            };
            world.until(&delivery(&event), "delivered").await;
            let path = format!("/v1/events/{id}");
            let all = json!({ "scope": "all", "confirm": true });
            world.post(&format!("{path}/replay"), all).await.ok(202);
            world.until(&delivery(&event), "dead").await;
            for request in hook.take(2).await {
                assert_eq!(request.body(), wanted.as_bytes());
                assert_eq!(request.values("webhook-id"), [id.as_str()]);
            }
            for more in ["", "/timeline"] {
                let shown = world.get(&format!("{path}{more}")).await;
                assert_eq!(shown.status, 200);
                is_json(std::str::from_utf8(&shown.body).expect("UTF-8"));
            }
            assert_eq!(world.get(&format!("{path}/payload")).await.body, wanted);
            world.get(&format!("/v1/explain/{id}")).await.ok(200);
            sent.push(wanted);
        }
    }
    let list = world.get(&format!("/v1/deliveries?account_id={account}&include=payload,last_error")).await;
    assert_eq!(list.status, 200);
    let listed = String::from_utf8(list.body.to_vec()).expect("UTF-8");
    is_json(&listed);
    for wanted in &sent {
        assert!(listed.contains(&format!("\"payload\":{wanted}")), "{wanted} in {listed}");
    }
    world.always_true(&mut [&mut hook]).await;

    // The command line's exports, from the stopped store.
    world.stop().await;
    for export in [
        &["list", "--state", "dead", "--format", "jsonl"][..],
        &["dead", "export", "--account", &account][..],
    ] {
        let lines = on_the_stopped(&world, export).await;
        let lines: Vec<_> = lines.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(lines.len(), sent.len(), "{lines:?}");
        lines.iter().for_each(|line| is_json(line));
        for wanted in &sent {
            assert!(lines.iter().any(|line| line.contains(&format!("\"payload\":{wanted}"))), "{wanted}");
        }
    }
    let whole = on_the_stopped(&world, &["list", "--state", "dead", "--json"]).await;
    is_json(&whole);
    assert!(sent.iter().all(|wanted| whole.contains(wanted)), "{whole}");
}

#[tokio::test(flavor = "multi_thread")]
async fn c05_an_empty_body_has_a_length_and_is_signed() {
    let world = World::new().await;
    let mut hook = Hook::answering(|request| match request.values("content-length")[..] {
        [_] => answer(200, "", ""),
        _ => answer(411, "", "length required"),
    })
    .await;
    let account = world.account().await;
    world.endpoint(&account, &hook.url("/")).await;
    let accepted = world.raw(&account, "evt_01", "text/plain", "").await.ok(202);
    let request = hook.next().await;
    assert_eq!(request.values("content-length"), ["0"]);
    assert_eq!(request.values("transfer-encoding"), [""; 0]);
    assert_eq!(signatures(&request), [EMPTY_STANDARD]);
    assert_eq!(request.values("x-ledger-signature"), [EMPTY_LEDGER]);
    let delivered = world.until(&delivery(&accepted), "delivered").await;
    assert_eq!(delivered["attempts"], 1);
    world.always_true(&mut [&mut hook]).await;
}

/// Bytes that are no text go where Standard Webhooks signatures are off (design §4; rule W4), and are refused
/// where they are on.
#[tokio::test(flavor = "multi_thread")]
async fn c07_zeros_and_any_other_bytes_are_only_bytes() {
    let mut world = World::new().await;
    let reply = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nok\x00\xff!".to_vec();
    let mut hook = Hook::scripted(vec![vec![raw(&reply)]]).await;
    let account = world.account().await;
    let endpoint = world.endpoint(&account, &hook.url("/")).await;
    let first = world.event(&account, "zero", r#"{"s":"a\u0000b"}"#).await;
    let request = hook.next().await;
    assert_eq!(request.body(), br#"{"id":"zero","type":"payment.settled","data":{"s":"a\u0000b"}}"#);
    signed_with(&request, &[SECRET], SECRET);

    let bytes: Vec<u8> = (0..=255).collect();
    let kind = "application/octet-stream";
    assert_eq!(world.raw(&account, "all", kind, bytes.clone()).await.refused(422), ["not-utf8"]);
    let ledger_only = json!({ "signature_schemes": ["ledger"] });
    world.patch(&format!("/v1/endpoints/{endpoint}"), ledger_only).await.ok(200);
    let second = world.raw(&account, "all", kind, bytes.clone()).await.ok(202);
    let request = hook.next().await;
    assert_eq!(request.body(), bytes);
    assert_eq!(request.values("content-type"), [kind]);
    assert_eq!(request.values("x-ledger-signature"), [ledger(SECRET, &bytes)]);
    assert_eq!(request.values("webhook-signature"), [""; 0]);

    for event in [&first, &second] {
        let id = delivery(event);
        world.until(&id, "delivered").await;
        assert_eq!(world.attempts(&id).await[0]["response_body"], "ok\0\u{fffd}!");
    }
    let list = world.get(&format!("/v1/deliveries?account_id={account}&include=payload")).await.ok(200);
    let shown = list["data"][0]["payload_base64"].as_str().expect("a text");
    let decoded = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, shown);
    assert_eq!(decoded.expect("base64"), bytes);
    assert_eq!(list["data"][1]["payload"]["data"]["s"], "a\0b");
    assert_eq!(world.get("/v1/events/all/payload").await.body, bytes, "as it came");
    world.always_true(&mut [&mut hook]).await;

    // A field with a zero in it is nothing that could be sent: it is refused, and the endpoint is as it was.
    let path = format!("/v1/endpoints/{endpoint}");
    let before = world.get(&path).await.ok(200);
    let refused = world.patch(&path, json!({ "headers": { "x-a": "a\0b" } })).await;
    assert_eq!(refused.status, 422);
    assert_eq!(world.get(&path).await.ok(200), before);

    // The command line shows the answer with its zero made visible, and what is no text as base64.
    world.stop().await;
    let explained = on_the_stopped(&world, &["explain", "all", "--responses"]).await;
    assert!(explained.contains("ok\u{2400}\u{fffd}!") && !explained.contains('\0'), "{explained}");
    let listed = on_the_stopped(&world, &["list", "--json"]).await;
    is_json(&listed);
    assert!(listed.contains(shown) && listed.contains(r#"{"s":"a\u0000b"}"#), "{listed}");
}

/// One HTTP request by hand; the answer, once its head is there.
async fn by_hand(address: std::net::SocketAddr, head: &str, body: &[u8], chunked: bool) -> (String, bool) {
    let stream = TcpStream::connect(address).await.expect("a connection");
    let (mut reading, mut writing) = stream.into_split();
    let (head, body) = (head.to_owned(), body.to_vec());
    let writer = tokio::spawn(async move {
        writing.write_all(head.as_bytes()).await?;
        // The rest goes out while the answer may be there already.
        for part in body.chunks(16 * 1024) {
            if chunked {
                writing.write_all(format!("{:x}\r\n", part.len()).as_bytes()).await?;
            }
            writing.write_all(part).await?;
            if chunked {
                writing.write_all(b"\r\n").await?;
            }
        }
        if chunked {
            writing.write_all(b"0\r\n\r\n").await?;
        }
        // The connection can be used again, unless the server said that it closes it.
        writing.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await?;
        Ok::<_, std::io::Error>(writing)
    });
    let mut answer = Vec::new();
    let read = tokio::time::timeout(LONG, reading.read_to_end(&mut answer)).await.expect("an end");
    let whole = read.is_ok() && writer.await.expect("no panic").is_ok();
    (String::from_utf8_lossy(&answer).into_owned(), whole)
}

#[tokio::test(flavor = "multi_thread")]
async fn c08_the_limit_is_kept_to_the_byte_and_the_refusal_can_be_read() {
    let world = World::new().await;
    let mut hook = Hook::scripted(vec![answer(200, "", "")]).await;
    let account = world.account().await;
    world.endpoint(&account, &hook.url("/")).await;
    let tcp = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = tcp.local_addr().expect("an address");
    let stop = CancellationToken::new();
    let serving =
        tokio::spawn(serve(Listeners { tcp: Some(tcp), ..Listeners::default() }, world.api(), stop.clone()));

    let head = |id: &str, framing: &str| {
        format!(
            "POST /v1/events/raw?account_id={account}&type=a.b&id={id} HTTP/1.1\r\nhost: a\r\n\
             content-type: text/plain\r\n{framing}\r\n\r\n"
        )
    };
    for (bytes, wanted) in [(65_535, "202"), (65_536, "202"), (65_537, "413"), (3 << 20, "413")] {
        let body = vec![b'"'; bytes];
        for chunked in [false, true] {
            let framing = match chunked {
                true => "transfer-encoding: chunked".to_owned(),
                false => format!("content-length: {bytes}"),
            };
            let id = format!("e{bytes}-{chunked}");
            let (answer, whole) = by_hand(address, &head(&id, &framing), &body, chunked).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {wanted} ")), "{bytes} {chunked}: {answer}");
            if wanted == "413" {
                assert!(answer.contains("\"code\":\"too-large\""), "{answer}");
            }
            assert!(whole && answer.contains("HTTP/1.1 200 OK"), "it can be used again: {answer}");
        }
    }
    for chunked in [false, true] {
        for bytes in [65_535, 65_536] {
            let path = format!("/v1/events/e{bytes}-{chunked}");
            let id = delivery(&world.get(&path).await.ok(200));
            world.until(&id, "delivered").await;
        }
    }
    // In our envelope the limit is that of the data, which here is a text full of quotation marks.
    let marks = format!("\"{}\"", "\\\"".repeat(32_767));
    assert_eq!(marks.len(), 65_536);
    let full = world.event(&account, "marks", &marks).await;
    world.until(&delivery(&full), "delivered").await;
    let kept = world.get("/v1/events/marks/payload").await;
    assert!(String::from_utf8_lossy(&kept.body).contains(&marks), "it is recorded");
    let more = format!(
        r#"{{"account_id":"{account}","id":"more","type":"a.b","data":{} }}"#,
        marks.replacen('"', "\"x", 1)
    );
    let refused = world.call(Method::POST, "/v1/events", "application/json", more).await;
    assert_eq!(refused.status, 413, "{}", String::from_utf8_lossy(&refused.body));
    // A length that is too small: so much is the event, and what follows is no request.
    let (answer, _) = by_hand(address, &head("short", "content-length: 10"), &[b'x'; 70_000], false).await;
    assert!(answer.starts_with("HTTP/1.1 202 ") && answer.contains("}HTTP/1.1 40"), "{answer}");
    assert_eq!(world.get("/v1/events/short").await.ok(200)["size"], 10);

    // A client that looks for an answer only when it has sent everything finds it.
    for framing in ["content-length: 3145728", "transfer-encoding: chunked"] {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.write_all(head("late", framing).as_bytes()).await.expect("sent");
        if framing.ends_with("chunked") {
            stream.write_all(b"300000\r\n").await.expect("sent");
        }
        stream.write_all(&vec![b'x'; 3 << 20]).await.expect("sent");
        if framing.ends_with("chunked") {
            stream.write_all(b"\r\n0\r\n\r\n").await.expect("sent");
        }
        let mut answer = vec![0; 12];
        stream.read_exact(&mut answer).await.expect("an answer");
        assert_eq!(answer, b"HTTP/1.1 413");
    }

    // Fifty at a time: each is refused, and the server goes on.
    let body = vec![b'x'; 3 << 20];
    let heads: Vec<_> = (0..50).map(|n| head(&format!("many{n}"), "transfer-encoding: chunked")).collect();
    let many = heads.iter().map(|head| by_hand(address, head, &body, true));
    for (answer, _) in futures::future::join_all(many).await {
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    }
    let sent: Vec<_> = hook.take(6).await.iter().map(|request| request.body().len()).collect();
    assert_eq!(sent.iter().filter(|len| **len == 65_536).count(), 2, "{sent:?}");
    world.until(&delivery(&world.get("/v1/events/short").await.ok(200)), "delivered").await;
    world.always_true(&mut [&mut hook]).await;
    stop.cancel();
    serving.await.expect("no panic");
}

/// Fifty uploads of 3 MiB at a time, none of which is taken: what the server holds of them is bounded.
#[tokio::test(flavor = "multi_thread")]
async fn c08_uploads_that_are_refused_cost_no_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let host = Host::new(folder.path());
    let server = host.start().await;
    let (account, _) = server.api.account().await;
    let head = |n: usize, framing: &str| {
        format!(
            "POST /v1/events/raw?account_id={account}&type=a.b&id=e{n} HTTP/1.1\r\nhost: a\r\n\
             content-type: text/plain\r\n{framing}\r\n\r\n"
        )
    };
    let body = vec![b'x'; 3 << 20];
    let round = async |framing: &str, chunked: bool| {
        let heads: Vec<_> = (0..50).map(|n| head(n, framing)).collect();
        let all = heads.iter().map(|head| by_hand(server.address, head, &body, chunked));
        for (answer, _) in futures::future::join_all(all).await {
            assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        }
    };
    // The first round makes what every server needs for fifty connections.
    round("transfer-encoding: chunked", true).await;
    let before = server.memory_most();
    for _ in 0..3 {
        round("transfer-encoding: chunked", true).await;
        round("content-length: 3145728", false).await;
    }
    let more = server.memory_most() - before;
    assert!(
        more < 16 << 20,
        "{more} bytes more at the most, of {} that were sent at a time",
        50 * body.len()
    );
    assert_eq!(server.api.figures().await["enqueued"], 0);
    host.verify().await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c10_every_endpoint_and_every_attempt_gets_the_whole_body() {
    let world = World::new().await;
    let fails = |request: &support::receiver::Received| request.values("webhook-id") == ["evt_02"];
    let mut first = Hook::answering(move |request| match request.number {
        0 => answer(500, "", ""),
        _ if fails(request) => answer(500, "", ""),
        _ => answer(200, "", ""),
    })
    .await;
    let mut second = Hook::answering(move |request| match request.number {
        0 => vec![Step::Close],
        _ if fails(request) => answer(503, "connection: close\r\n", ""),
        _ => answer(200, "connection: close\r\n", ""),
    })
    .await;
    let mut third = Hook::answering(move |request| match fails(request) {
        true => answer(500, "", ""),
        false => answer(200, "", ""),
    })
    .await;
    let account = world.account().await;
    for hook in [&first, &second, &third] {
        world.endpoint(&account, &hook.url("/")).await;
    }
    let event = world.event(&account, "evt_01", P0_DATA).await;
    let ids = deliveries(&event);
    for id in &ids {
        world.until_tried(id, 1).await;
    }
    world.advance_secs(67).await;
    for id in &ids {
        world.until(id, "delivered").await;
    }
    for (hook, wanted) in [(&mut first, 2), (&mut second, 2), (&mut third, 1)] {
        assert_eq!(hook.count(), wanted);
        assert!(hook.all().iter().all(|request| request.body() == P0.as_bytes()));
    }

    let ids = deliveries(&world.event_with(&account, "evt_02", P0_DATA, r#","max_tries":3"#).await);
    for (attempt, wait) in [(1, 67), (2, 331), (3, 0)] {
        for id in &ids {
            world.until_tried(id, attempt).await;
        }
        world.advance_secs(wait).await;
    }
    let wanted = P0.replace("evt_01", "evt_02");
    for hook in [&mut first, &mut second, &mut third] {
        let bodies: Vec<_> = hook.all().iter().rev().take(3).map(|request| request.body()).collect();
        assert_eq!(bodies, [wanted.as_bytes(); 3]);
    }
    for id in &ids {
        assert_eq!(world.until(id, "dead").await["dead_reason"], "exhausted");
    }
    world.always_true(&mut [&mut first, &mut second, &mut third]).await;
}

/// The list of what is always true can fail: a secret that is logged is found.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_logged_is_heard() {
    let world = World::with(Setup { clock: None, ..Setup::default() });
    let account = world.account().await;
    let path = format!("/v1/accounts/{account}/secret");
    assert_eq!(text(&world.get(&path).await.ok(200)["secret"]), SECRET);
    world
        .call(
            Method::POST,
            &format!("{path}/rotate"),
            "application/json",
            format!("{{\"secret\":\"{SECOND}\"}}"),
        )
        .await
        .ok(200);
    let logged = String::from_utf8_lossy(&logs()).into_owned();
    assert!(logged.contains("the secret of an account was revealed") && logged.contains(&account));
    world.always_true(&mut []).await;
}
