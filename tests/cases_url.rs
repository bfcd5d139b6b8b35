//! Cases of the areas *url* and *redirect*: what an endpoint's address is stored, shown and called as, and that
//! nothing else is called.

mod support;

use hooklog::delivery::guard::Policy;
use serde_json::json;
use support::case::{Hook, SECRET, Setup, World, deliveries, delivery, signed_with, text};
use support::receiver::answer;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

#[tokio::test(flavor = "multi_thread")]
async fn c22_percent_signs_are_sent_as_they_were_stored() {
    let world = World::new().await;
    let mut hook = Hook::scripted(vec![answer(200, "", "")]).await;
    let account = world.account().await;
    let target = "/c%2Fd/%C3%A9?sp=%2Ftriggers%2Fmanual&sig=a%2Bb%3D&x=a+b&e=&e&y=1%202";
    let endpoint = world.endpoint(&account, &hook.url(target)).await;
    let path = format!("/v1/endpoints/{endpoint}");
    let line = format!("POST {target} HTTP/1.1");
    let event = world.event(&account, "first", "1").await;
    assert_eq!(hook.next().await.line(), line);
    assert_eq!(world.until(&delivery(&event), "delivered").await["endpoint_url"], hook.url(target));

    world.patch(&path, json!({ "description": "production" })).await.ok(200);
    assert_eq!(world.get(&path).await.ok(200)["url"], hook.url(target));
    let event = world.event(&account, "second", "1").await;
    assert_eq!(hook.next().await.line(), line);
    world.until(&delivery(&event), "delivered").await;

    world.post("/v1/events/first/replay", json!({ "scope": "all", "confirm": true })).await.ok(202);
    assert_eq!(hook.next().await.line(), line);
    world.until_tried(&delivery(&world.get("/v1/events/first").await.ok(200)), 2).await;
    world.always_true(&mut [&mut hook]).await;
}

/// What a parser would repair in silence is refused (422 rather than the case's 400); what it may normalise is
/// shown, stored and called in that one form.
#[tokio::test(flavor = "multi_thread")]
async fn c23_what_is_shown_is_what_is_called() {
    let world = World::new().await;
    let mut hook = Hook::scripted(vec![answer(200, "", "")]).await;
    let account = world.account().await;
    let port = hook.port();
    let given = hook.url("/a/../b/%2e%2e/c");
    let made = world.post("/v1/endpoints", json!({ "account_id": account, "url": given })).await.ok(201);
    world.keep_secret(&text(&made["signing_secret"]));
    assert_eq!(made["url"], hook.url("/c"));
    world.event(&account, "one", "1").await;
    assert_eq!(hook.next().await.line(), "POST /c HTTP/1.1");

    for url in [
        format!("http://127.0.0.1:{port}\\back\\slash"),
        format!("http://127.0.0.1:{port}/a\tb\nc"),
        format!("http:/127.0.0.1:{port}/x"),
        format!("http:127.0.0.1:{port}/x"),
        format!("http:///127.0.0.1:{port}/x"),
        "http://ex%41mple.com/".to_owned(),
        "http://good.com\\@evil.com/".to_owned(),
        "http://a@b@c.com/".to_owned(),
        format!("http://127.1:{port}/"),
        format!("http://0x7f000001:{port}/"),
        format!(" http://127.0.0.1:{port}/"),
        format!("http://127.0.0.1:{port}/\u{200b}"),
        format!("http://user:pw@127.0.0.1:{port}/"),
        format!("http://127.0.0.1:{port}/#f"),
    ] {
        let refused = world.post("/v1/endpoints", json!({ "account_id": account, "url": url })).await;
        assert_eq!(refused.refused(422), ["invalid", "/url url-not-allowed"], "{url:?}");
    }
    world.always_true(&mut [&mut hook]).await;
}

/// The design's guard takes hosts in punycode only and without a full stop at the end, and no name under `.test`:
/// what the case wants to reach over TLS is refused when it is configured, with words that say how to write it.
/// The handshakes themselves are the cases of the area *tls*.
#[tokio::test(flavor = "multi_thread")]
async fn c25_international_names_are_written_in_punycode() {
    let world = World::new().await;
    let account = world.account().await;
    let create =
        async |url: &str| world.post("/v1/endpoints", json!({ "account_id": account, "url": url })).await;
    for (url, hint) in [
        ("https://hooks.customer.com./h", "full stop"),
        ("https://bücher.com/h", "punycode"),
        // A Cyrillic letter that looks like a Latin one.
        ("https://p\u{430}ypal.com/h", "punycode"),
        ("https://hooks.test/h", "`test`"),
    ] {
        let refused = create(url).await;
        assert_eq!(refused.refused(422), ["invalid", "/url url-not-allowed"], "{url}");
        let detail = text(&refused.ok(422)["detail"]);
        assert!(detail.contains(hint), "{url}: {detail}");
    }
    for (url, shown) in [
        ("https://xn--bcher-kva.com/h", "https://xn--bcher-kva.com/h"),
        ("https://xn--pypal-4ve.com/h", "https://xn--pypal-4ve.com/h"),
        ("https://exa_mple.customer.com/h", "https://exa_mple.customer.com/h"),
        ("https://HOOKS.Customer.com/H", "https://hooks.customer.com/H"),
    ] {
        let made = create(url).await.ok(201);
        assert_eq!(made["url"], shown);
        world.keep_secret(&text(&made["signing_secret"]));
    }
    world.always_true(&mut []).await;
}

/// Hands every connection to `[::1]` on to a receiver, byte for byte. Its port.
async fn on_ipv6(to: u16) -> u16 {
    let listener = TcpListener::bind("[::1]:0").await.expect("IPv6 on loopback");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut from, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut to = TcpStream::connect(("127.0.0.1", to)).await.expect("the receiver listens");
                copy_bidirectional(&mut from, &mut to).await.ok();
            });
        }
    });
    port
}

#[tokio::test(flavor = "multi_thread")]
async fn c26_an_ipv6_address_is_reached_judged_and_named_with_its_brackets() {
    let world = World::new().await;
    let mut hook = Hook::scripted(vec![answer(200, "", "")]).await;
    let account = world.account().await;
    let port = on_ipv6(hook.port()).await;
    let url = format!("http://[::1]:{port}/h");
    let endpoint = world.endpoint(&account, &url).await;
    let event = world.event(&account, "one", "1").await;
    let request = hook.next().await;
    assert_eq!(request.values("host"), [format!("[::1]:{port}")]);
    signed_with(&request, &[SECRET], SECRET);
    let delivered = world.until(&delivery(&event), "delivered").await;
    assert_eq!(delivered["endpoint_url"], url);
    assert_eq!(world.attempts(&delivery(&event)).await[0]["address"], format!("[::1]:{port}"));
    assert_eq!(world.get(&format!("/v1/endpoints/{endpoint}")).await.ok(200)["url"], url);
    world.always_true(&mut [&mut hook]).await;

    // Without the operator's word, each is refused when it is configured; a literal address is named.
    let guard = Policy { allow_http: true, ..Policy::default() };
    let world = World::with(Setup { guard, ..Setup::default() });
    let account = world.account().await;
    for (url, named) in [
        (format!("http://[::1]:{port}/h"), "::1"),
        (format!("http://[0:0:0:0:0:0:0:1]:{port}/"), "::1"),
        ("http://[fe80::1%25eth0]/".to_owned(), ""),
        ("http://[::1].evil.com/".to_owned(), ""),
        ("http://::1/".to_owned(), ""),
        ("https://[2001:db8::1]/".to_owned(), "2001:db8::1"),
        ("http://[::ffff:127.0.0.1]/".to_owned(), "::ffff:127.0.0.1"),
    ] {
        let refused = world.post("/v1/endpoints", json!({ "account_id": account, "url": url })).await;
        assert_eq!(refused.refused(422), ["invalid", "/url url-not-allowed"], "{url}");
        let detail = text(&refused.ok(422)["detail"]);
        assert!(detail.contains(named), "{url}: {detail}");
    }
    world.always_true(&mut []).await;
}

/// Each is a failed try that says where it was sent on to; the other receiver hears nothing of it.
#[tokio::test(flavor = "multi_thread")]
async fn c28_c29_a_redirect_is_a_failed_try_that_says_where_to() {
    let world = World::new().await;
    let other = Hook::scripted(vec![answer(200, "", "")]).await;
    let location = other.url("/elsewhere?token=s3cret");
    let moved = location.clone();
    let mut hook = Hook::answering(move |request| {
        let path = request.line().split(' ').nth(1).expect("a target");
        let code = path.trim_start_matches('/').parse().expect("a code");
        answer(code, &format!("location: {moved}\r\nset-cookie: a=b\r\n"), "")
    })
    .await;
    let account = world.account().await;
    let codes: [u16; 5] = [301, 302, 303, 307, 308];
    for code in codes {
        world.endpoint(&account, &hook.url(&format!("/{code}"))).await;
    }
    let event = world.event_with(&account, "one", "1", r#","max_tries":2"#).await;
    let mut seen = Vec::new();
    for id in deliveries(&event) {
        let row = world.until_tried(&id, 1).await;
        assert_eq!(row["status"], "pending", "it is tried again: {row}");
        let tried = &world.attempts(&id).await[0];
        seen.push(tried["status_code"].as_u64().expect("a code") as u16);
        assert_eq!(tried["rule"], "redirect");
        assert_eq!(tried["response_headers"], json!({ "location": location }), "and no cookie");
        let explained = world.get(&format!("/v1/explain/{id}")).await.ok(200).to_string();
        let told = format!("redirects to {}", other.url("/elsewhere,"));
        assert!(explained.contains(&told) && explained.contains("update its URL"), "{explained}");
        assert!(!explained.contains("s3cret"), "{explained}");
    }
    seen.sort_unstable();
    assert_eq!(seen, codes);
    world.advance_secs(67).await;
    for id in deliveries(&event) {
        assert_eq!(world.until(&id, "dead").await["attempts"], 2);
    }
    assert_eq!(other.connections(), 0);
    world.always_true(&mut [&mut hook]).await;
}
