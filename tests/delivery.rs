//! Requests over real sockets on loopback, against receivers that do as they are told.

#[path = "support/receiver.rs"]
mod receiver;
#[path = "support/sender.rs"]
mod sender;

use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures::future::BoxFuture;
use hooklog::delivery::client::{Lookup, Options};
use hooklog::delivery::guard::Policy;
use hooklog::delivery::{Client, Key, Request};
use hooklog_projections::policy::ErrorClass;
use hooklog_projections::time::{Millis, Timestamp};
use receiver::{Received, Receiver, Step, answer, raw};
use sender::{
    AT, BODY, KEY, LONG, Names, SHORT, answered, client, exchange, exchange_within, failed, policy, request,
    resolving, send,
};

#[tokio::test]
async fn a_whole_request_is_as_documented_and_verifies() {
    let mut receiver = Receiver::scripted(vec![answer(200, "", "ok")]).await;
    let mut sent = request(receiver.url("/c%2Fd/%C3%A9?sp=%2Ftriggers&sig=a%2Bb%3D&x=a+b&e=&e&y=1%202"));
    sent.headers = vec![("Authorization".to_owned(), "Bearer t0ken".to_owned())];
    sent.run = 2;
    let answer = answered(send(&client(), sent).await);
    assert_eq!((answer.status, answer.body.as_ref(), answer.truncated), (200, b"ok".as_slice(), false));
    assert_eq!(answer.address, Some(receiver.address));

    let received = receiver.next().await;
    let text = String::from_utf8(received.bytes.clone()).expect("ASCII");
    let text = text
        .replace(&receiver.address.to_string(), "RECEIVER")
        .replace(concat!("Hooklog/", env!("CARGO_PKG_VERSION")), "Hooklog/VERSION")
        .replace("\r\n", "\n");
    insta::assert_snapshot!(text, @r#"
    POST /c%2Fd/%C3%A9?sp=%2Ftriggers&sig=a%2Bb%3D&x=a+b&e=&e&y=1%202 HTTP/1.1
    content-type: application/json
    user-agent: Hooklog/VERSION
    webhook-id: evt_01
    webhook-timestamp: 1700000000
    webhook-signature: v1,LDEJXlK+18krDwqNnoFzD7N4LoRHBRvU0n2XG0/VCcA=
    x-ledger-signature: sha256=9d6dd35e8f3de86b95fe986554ade746f9c2309c86312cd71d1aefdd708f8e94
    idempotency-key: evt_01
    webhook-replay: 2
    authorization: Bearer t0ken
    host: RECEIVER
    content-length: 81

    {"id":"evt_01","type":"payment.settled","data":{"amount":12900,"currency":"EUR"}}
    "#);
    assert_eq!(received.body(), BODY.as_bytes());
}

#[tokio::test]
async fn an_independent_library_accepts_what_is_on_the_wire() {
    let mut receiver = Receiver::scripted(vec![answer(204, "", "")]).await;
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    let mut sent = request(receiver.url("/h"));
    sent.keys.insert(0, Key::from_bytes(vec![9; 32].into()).expect("a key"));
    answered(client().send(sent, now).await);

    let received = receiver.next().await;
    let mut headers = reqwest::header::HeaderMap::new();
    for (name, value) in received.headers() {
        let name: reqwest::header::HeaderName = name.parse().expect("a name");
        assert!(headers.insert(name, value.parse().expect("a value")).is_none(), "each name once");
    }
    // The older of the two keys: the list is read, not only its first entry.
    let hook = standardwebhooks::Webhook::new(KEY).expect("a key");
    hook.verify(received.body(), &headers).expect("verified");
    hook.verify(b"{}", &headers).expect_err("another body");
}

#[tokio::test]
async fn an_empty_body_has_a_length_and_the_published_signatures() {
    let mut receiver = Receiver::scripted(vec![answer(200, "", "")]).await;
    answered(send(&client(), Request { body: Bytes::new(), ..request(receiver.url("/h")) }).await);
    let received = receiver.next().await;
    assert_eq!(received.values("content-length"), ["0"]);
    assert_eq!(received.values("transfer-encoding"), [""; 0]);
    assert_eq!(received.body(), b"");
    assert_eq!(received.values("webhook-signature"), ["v1,CoU3QRvMx1rnZlSLP3cW3e/Ulgu3t1VUWJvM1hsEXDY="]);
    assert_eq!(
        received.values("x-ledger-signature"),
        ["sha256=3869a63cbe73c747431cf9ff4d38cbaa6ad6adb0541c4753e1c90f7b6920620f"]
    );
}

#[tokio::test]
async fn stored_headers_never_replace_ours_on_the_wire() {
    let mut receiver = Receiver::scripted(vec![answer(200, "", "")]).await;
    let mut sent = request(receiver.url("/h"));
    sent.headers =
        ["Webhook-Signature", "content-type", "Host", "Content-Length", "Transfer-Encoding", "Expect"]
            .map(|name| (name.to_owned(), "forged".to_owned()))
            .to_vec();
    answered(send(&client(), sent).await);
    let received = receiver.next().await;
    assert!(!received.headers().iter().any(|(_, value)| value.contains("forged")));
    for name in ["webhook-signature", "content-type", "host", "content-length"] {
        assert_eq!(received.values(name).len(), 1, "{name}");
    }
}

#[tokio::test]
async fn a_request_that_cannot_be_signed_never_leaves() {
    let receiver = Receiver::scripted(vec![answer(200, "", "")]).await;
    let fault = failed(send(&client(), Request { keys: vec![], ..request(receiver.url("/h")) }).await);
    assert_eq!(fault.class, ErrorClass::NotSent);
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn retry_after_is_read_where_it_means_something() {
    let wait = async |status, headers| {
        let answer = answered(exchange(receiver::answer(status, headers, "later")).await);
        assert_eq!(answer.status, status);
        answer.retry_after(Timestamp(AT * 1000))
    };
    assert_eq!(wait(503, "Retry-After: 120\r\n").await, Some(Millis::from_secs(120)));
    assert_eq!(wait(429, "retry-after: 9999999\r\n").await, Some(Millis::from_secs(86_400)));
    assert_eq!(
        wait(413, "date: Sun, 06 Nov 1994 08:49:37 GMT\r\nretry-after: Tue, 14 Nov 2023 22:14:20 GMT\r\n")
            .await,
        Some(Millis::from_secs(60)),
        "a date that is decades off is not believed"
    );
    assert_eq!(wait(500, "retry-after: 120\r\n").await, None);
    assert_eq!(wait(503, "retry-after: 5\r\nretry-after: 5\r\n").await, None);
    assert_eq!(wait(503, "retry-after: soon\r\n").await, None);
}

#[tokio::test]
async fn redirects_are_answers_and_are_not_followed() {
    let elsewhere = Receiver::scripted(vec![answer(200, "", "")]).await;
    for status in [301, 302, 303, 307, 308] {
        let location = elsewhere.url("/other");
        let answer =
            answered(exchange(receiver::answer(status, &format!("Location: {location}\r\n"), "")).await);
        assert_eq!(answer.status, status);
        assert_eq!(answer.field("location").collect::<Vec<_>>(), [location]);
    }
    assert_eq!(elsewhere.connections(), 0);
}

#[tokio::test]
async fn only_named_headers_are_kept_and_little_of_each() {
    let headers = format!(
        "Set-Cookie: secret\r\nX-Request-Id: r\u{e9}1\r\nserver: {}\r\ncontent-type: text/html\r\n",
        "s".repeat(5000)
    );
    let answer = answered(exchange(receiver::answer(200, &headers, "")).await);
    let kept: Vec<_> = answer.headers.iter().map(|(name, value)| (*name, value.len())).collect();
    assert_eq!(kept, [("content-type", 9), ("server", 1024), ("x-request-id", 4)]);
}

#[tokio::test]
async fn of_a_body_16_kib_are_kept() {
    for (len, kept, truncated) in [
        (16_384, 16_384, false),
        (16_385, 16_384, true),
        (65_536, 16_384, true),
        (300_000, 16_384, true),
        (10_000_000, 16_384, true),
    ] {
        let reply = answer(200, "", &"x".repeat(len));
        let answer = answered(exchange(reply).await);
        assert_eq!((answer.status, answer.body.len(), answer.truncated), (200, kept, truncated), "{len}");
    }
}

#[tokio::test]
async fn an_endless_body_ends_at_the_limit() {
    let head = "HTTP/1.1 200 OK\r\n\r\n";
    let answer = answered(exchange(vec![raw(head), Step::Endless(vec![b'x'; 1000])]).await);
    assert_eq!((answer.status, answer.body.len(), answer.truncated), (200, 16_384, true));

    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let answer = answered(exchange(vec![raw(head), Step::Endless(b"1\r\nx\r\n".to_vec())]).await);
    assert_eq!((answer.status, answer.body.len(), answer.truncated), (200, 16_384, true));
}

#[tokio::test]
async fn a_success_stays_one_whatever_its_body_does() {
    let begun = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello";
    for end in [Step::Close, Step::Reset] {
        let answer = answered(exchange(vec![raw(begun), end]).await);
        assert_eq!((answer.status, answer.truncated), (200, true));
    }
    let answer = answered(exchange_within(SHORT, vec![raw(begun), Step::Hold]).await);
    assert_eq!((answer.status, answer.body.as_ref(), answer.truncated), (200, b"hello".as_slice(), true));

    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n";
    let answer = answered(exchange(vec![raw(chunked), Step::Close]).await);
    assert_eq!((answer.status, answer.body.as_ref(), answer.truncated), (200, b"hello".as_slice(), true));

    let bad_chunk = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nZZ\r\n";
    let answer = answered(exchange(vec![raw(bad_chunk), Step::Close]).await);
    assert_eq!((answer.status, answer.truncated), (200, true));
}

#[tokio::test]
async fn any_status_of_three_digits_is_an_answer() {
    for status in [101, 200, 204, 299, 304, 419, 499, 520, 599, 600, 999] {
        assert_eq!(answered(exchange(answer(status, "", "")).await).status, status);
    }
    let interim = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\n\r\nHTTP/1.1 202 Accepted\r\n\r\n";
    assert_eq!(answered(exchange(vec![raw(interim), Step::Close]).await).status, 202);
    assert_eq!(answered(exchange(vec![raw("HTTP/1.1 200 OK\n\n"), Step::Close]).await).status, 200);
}

#[tokio::test]
async fn what_is_not_http_is_a_protocol_fault() {
    for garbage in [
        "hello\r\n\r\n",
        "HTTP/1.1 099 Low\r\n\r\n",
        "HTTP/1.1 20\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX-\0: a\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX-A : a\r\n\r\n",
        &format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(150)),
        &format!("HTTP/1.1 200 OK\r\nX-Big: {}\r\n\r\n", "b".repeat(600_000)),
    ] {
        let fault = failed(exchange(vec![raw(garbage), Step::Hold]).await);
        assert_eq!(fault.class, ErrorClass::Protocol, "{:?} {fault:?}", garbage.get(..60));
    }
}

#[tokio::test]
async fn a_large_head_is_read() {
    let one = answer(200, &format!("X-Big: {}\r\n", "b".repeat(400_000)), "ok");
    assert_eq!(answered(exchange(one).await).body.as_ref(), b"ok");
    let line = format!("X-Big: {}\r\n", "b".repeat(4000));
    assert_eq!(answered(exchange(answer(200, &line.repeat(90), "ok")).await).body.as_ref(), b"ok");
}

#[tokio::test]
async fn a_connection_that_ends_before_the_head_is_closed() {
    let head = raw("HTTP/1.1 200 OK\r\nConte");
    for reply in
        [vec![Step::Close], vec![Step::Reset], vec![head.clone(), Step::Close], vec![head, Step::Reset]]
    {
        let receiver = Receiver::scripted(vec![reply]).await;
        let outcome = send(&client(), request(receiver.url("/h"))).await;
        assert!(!outcome.resent, "a fresh connection is no race");
        assert_eq!(failed(outcome).class, ErrorClass::Closed);
        assert_eq!(receiver.connections(), 1);
    }
}

#[tokio::test]
async fn the_deadline_covers_a_silent_and_a_chatty_receiver() {
    for reply in [
        vec![Step::Hold],
        vec![raw("HTTP/1.1 200 OK\r\nX-A: b\r\n"), Step::Hold],
        vec![raw("HTTP/1.1 100 Continue\r\n\r\n".repeat(100)), Step::Hold],
    ] {
        let outcome = exchange_within(SHORT, reply).await;
        assert!(outcome.took >= Millis(SHORT.as_millis() as u64));
        let fault = failed(outcome);
        assert_eq!((fault.class, fault.detail.as_str()), (ErrorClass::Timeout, "no answer within 300 ms"));
    }
}

#[tokio::test]
async fn nobody_there_is_a_connect_fault() {
    let gone = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = gone.local_addr().expect("its address");
    drop(gone);
    let fault = failed(send(&client(), request(format!("http://{address}/h?token=t0ken"))).await);
    assert_eq!(fault.class, ErrorClass::Connect);
    assert!(!fault.detail.contains("t0ken") && !fault.detail.contains("127.0.0.1"), "{}", fault.detail);
}

#[tokio::test]
async fn a_failed_handshake_is_a_tls_fault() {
    let plain = raw("HTTP/1.1 400 Bad Request\r\n\r\n");
    let alert = raw(b"\x15\x03\x01\x00\x02\x02\x28");
    for reply in [vec![plain, Step::Close], vec![alert, Step::Close], vec![Step::Close]] {
        let receiver = Receiver::blurting(reply).await;
        let fault = failed(send(&client(), request(format!("https://{}/h", receiver.address))).await);
        assert_eq!(fault.class, ErrorClass::Tls, "{fault:?}");
    }
}

#[tokio::test]
async fn no_literal_and_no_local_name_is_reached_unless_allowed() {
    let receiver = Receiver::scripted(vec![answer(200, "", "")]).await;
    let port = receiver.address.port();
    let mut strict = policy(&[]);
    strict.ports.push(port);
    let strict = Client::new(strict, Options::default()).expect("a client");
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "0",
        "127.0.0.1.",
        "127%2e0%2e0%2e1",
        "[::ffff:127.0.0.1]",
        "localhost",
        "localhost.",
    ] {
        let fault = failed(send(&strict, request(format!("http://{host}:{port}/"))).await);
        assert_eq!(fault.class, ErrorClass::EgressDenied, "{host}");
        assert!(!fault.detail.contains("127.0.0.1"), "{host}: {}", fault.detail);
    }
    let other_port = policy(&[&format!("127.0.0.1:{}", port ^ 1)]);
    let other_port = Client::new(other_port, Options::default()).expect("a client");
    let fault = failed(send(&other_port, request(receiver.url("/"))).await);
    assert_eq!(fault.class, ErrorClass::EgressDenied);
    assert_eq!(receiver.connections(), 0);
}

#[tokio::test]
async fn localhost_is_reached_where_loopback_is_allowed() {
    let receiver = Receiver::scripted(vec![answer(200, "", "")]).await;
    let port = receiver.address.port();
    let client = Client::new(policy(&["127.0.0.1", "::1"]), Options::default()).expect("a client");
    answered(send(&client, request(format!("http://localhost:{port}/"))).await);
}

#[tokio::test]
async fn a_name_is_judged_by_all_its_addresses() {
    let receiver = Receiver::scripted(vec![answer(200, "", "")]).await;
    let port = receiver.address.port();
    let url = format!("http://hooks.customer.com:{port}/");
    let one = format!("127.0.0.1:{port}");
    let to = async |allow: &str, addresses: &str| {
        let client = resolving(allow, port, Names::new(&[Ok(addresses)]));
        send(&client, request(url.clone())).await.result.map(|a| a.status).map_err(|f| (f.class, f.detail))
    };
    let denied = Err((ErrorClass::EgressDenied, "address not allowed".to_owned()));
    assert_eq!(to("10.0.0.0/8", "127.0.0.1").await, denied);
    assert_eq!(to(&one, "127.0.0.1 10.0.0.1").await, denied);
    assert_eq!(to(&one, "127.0.0.1 ::1").await, denied);
    assert_eq!(to(&format!("127.0.0.1:{}", port ^ 1), "127.0.0.1").await, denied);
    assert_eq!(receiver.connections(), 0);
    assert_eq!(to(&one, "127.0.0.1").await, Ok(200));
    assert_eq!(to("127.0.0.0/8", "127.0.0.1").await, Ok(200));
    assert_eq!(receiver.connections(), 2);
}

#[tokio::test]
async fn a_name_that_is_bound_anew_is_judged_anew() {
    let mut receiver = Receiver::scripted(vec![answer(200, "connection: close\r\n", "")]).await;
    let port = receiver.address.port();
    let client = resolving("127.0.0.1", port, Names::new(&[Ok("127.0.0.1"), Ok("127.0.0.2")]));
    let url = format!("http://hooks.customer.com:{port}/");
    answered(send(&client, request(url.clone())).await);
    assert_eq!(failed(send(&client, request(url)).await).class, ErrorClass::EgressDenied);
    assert_eq!((receiver.connections(), receiver.so_far().len()), (1, 1));
}

#[tokio::test]
async fn a_name_without_an_address_is_a_dns_fault() {
    struct Never;
    impl Lookup for Never {
        fn lookup(&self, _: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
            Box::pin(std::future::pending())
        }
    }
    let url = "http://hooks.customer.com/";
    for names in [Names::new(&[Ok("")]), Names::new(&[Err(io::ErrorKind::NotFound)])] {
        let fault = failed(send(&resolving("127.0.0.1", 80, names), request(url)).await);
        assert_eq!(fault.class, ErrorClass::Dns, "{fault:?}");
    }
    // By the look-up's own limit, by the connection's, and by the request's.
    for (lookup, connect, total) in [(SHORT, LONG, LONG), (LONG, SHORT, LONG), (LONG, LONG, SHORT)] {
        let options = Options { connect_timeout: connect, lookup_timeout: lookup, ..Options::default() };
        let client = Client::with_lookup(policy(&[]), options, Arc::new(Never)).expect("a client");
        let fault = failed(send(&client, Request { timeout: total, ..request(url) }).await);
        assert_eq!(fault.class, ErrorClass::Dns, "{fault:?}");
    }
}

#[tokio::test]
async fn a_connection_is_kept_and_used_again() {
    let receiver = Receiver::scripted(vec![answer(200, "", "ok")]).await;
    let client = client();
    for _ in 0..50 {
        answered(send(&client, request(receiver.url("/h"))).await);
    }
    assert!(receiver.connections() < 10, "{} connections", receiver.connections());
}

/// A receiver that ends every connection this way when a second request has come in on it.
async fn ending_the_second(end: Step) -> Receiver {
    Receiver::answering(move |r| if r.nth == 0 { answer(200, "", "ok") } else { vec![end.clone()] }).await
}

#[tokio::test]
async fn a_kept_connection_that_is_closed_under_a_request_costs_no_attempt() {
    for end in [Step::Close, Step::Reset] {
        let mut receiver = ending_the_second(end).await;
        let client = client();
        let mut resent = 0;
        for _ in 0..20 {
            let outcome = send(&client, request(receiver.url("/h"))).await;
            resent += usize::from(outcome.resent);
            assert_eq!(answered(outcome).status, 200);
        }
        assert!(resent > 0, "no connection was used again in 20 requests");
        let received = receiver.so_far();
        assert_eq!(received.len(), 20 + resent);
        let same = |r: &Received| r.values("webhook-signature") == received[0].values("webhook-signature");
        assert!(received.iter().all(same), "the second request is the first one again");
    }
}

#[tokio::test]
async fn a_request_is_sent_again_only_once() {
    // The first connection answers its first request; after that no request is answered.
    let mut receiver =
        Receiver::answering(|r| if r.number == 0 { answer(200, "", "ok") } else { vec![Step::Close] }).await;
    let client = client();
    answered(send(&client, request(receiver.url("/h"))).await);
    let outcome = send(&client, request(receiver.url("/h"))).await;
    let resent = outcome.resent;
    assert_eq!(failed(outcome).class, ErrorClass::Closed);
    // Whether the connection was back in time to be used again is the scheduler's to say.
    assert_eq!(receiver.so_far().len(), 2 + usize::from(resent));
    let outcome = send(&client, request(receiver.url("/h"))).await;
    assert!(!outcome.resent || !resent, "what is broken is forgotten");
}

#[tokio::test]
async fn a_receiver_that_closes_after_each_answer_loses_nothing() {
    let mut reply = answer(200, "", "ok");
    reply.push(Step::Close);
    let mut receiver = Receiver::scripted(vec![reply]).await;
    let client = client();
    for _ in 0..200 {
        assert_eq!(answered(send(&client, request(receiver.url("/h"))).await).status, 200);
    }
    assert!(receiver.so_far().len() >= 200);
}

#[tokio::test]
async fn a_time_out_on_a_kept_connection_is_not_sent_again() {
    let mut receiver = ending_the_second(Step::Hold).await;
    let client = client();
    for _ in 0..5 {
        let outcome = send(&client, Request { timeout: SHORT, ..request(receiver.url("/h")) }).await;
        assert!(!outcome.resent);
        if let Err(fault) = outcome.result {
            assert_eq!(fault.class, ErrorClass::Timeout);
        }
    }
    assert_eq!(receiver.so_far().len(), 5);
}

#[tokio::test]
async fn the_operators_own_service_may_be_on_loopback() {
    let elsewhere = Receiver::scripted(vec![answer(200, "", "")]).await;
    let redirect = answer(307, &format!("location: {}\r\n", elsewhere.url("/")), "");
    let mut receiver = Receiver::scripted(vec![answer(201, "", "ok"), redirect]).await;
    let client = Client::new(Policy::default(), Options::default()).expect("a client");
    let headers = [("authorization".to_owned(), "Bearer t0ken".to_owned())];
    let post =
        async || client.post_json(&receiver.url("/n"), Bytes::from_static(b"{}"), &headers, LONG).await;
    assert_eq!(answered(post().await).status, 201);
    assert_eq!(answered(post().await).status, 307);
    assert_eq!(elsewhere.connections(), 0);
    let received = receiver.next().await;
    assert_eq!(received.line(), "POST /n HTTP/1.1");
    assert_eq!(received.values("content-type"), ["application/json"]);
    assert_eq!(received.values("authorization"), ["Bearer t0ken"]);
    assert_eq!(received.body(), b"{}");
    let refused = client.post_json("ftp://x/", Bytes::new(), &[], LONG).await;
    assert_eq!(failed(refused).class, ErrorClass::EgressDenied);
}

/// Set for the test below when it runs as its own child.
const CHILD: &str = "HOOKLOG_TEST_PROXY_CHILD";

#[tokio::test]
async fn proxies_of_the_environment_are_ignored() {
    if std::env::var_os(CHILD).is_some() {
        let mut receiver = Receiver::scripted(vec![answer(200, "", "")]).await;
        let client = client();
        answered(send(&client, request(receiver.url("/h"))).await);
        answered(client.post_json(&receiver.url("/n"), Bytes::new(), &[], LONG).await);
        assert_eq!(receiver.so_far().len(), 2);
        return;
    }
    // A process's own environment cannot be changed safely while it has threads: a child gets another one.
    let proxy = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let url = format!("http://{}", proxy.local_addr().expect("its address"));
    let mut child = tokio::process::Command::new(std::env::current_exe().expect("this test"));
    child.args(["--exact", "proxies_of_the_environment_are_ignored"]).env(CHILD, "1");
    for name in ["http_proxy", "https_proxy", "all_proxy"] {
        child.env(name, &url).env(name.to_ascii_uppercase(), &url);
    }
    let output = child.output().await.expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    proxy.set_nonblocking(true).expect("a listener");
    let knocked = proxy.accept().map(|(_, from)| from);
    assert_eq!(knocked.expect_err("nobody came").kind(), io::ErrorKind::WouldBlock);
}
