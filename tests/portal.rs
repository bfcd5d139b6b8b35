//! The portal's doors: one-time links, sessions, and what another site may not make a browser do (rules
//! A13–A16).

#[path = "support/keyed.rs"]
mod keyed;

use hooklog::api::{ApiOptions, ApiState, router};
use hooklog::clock::SystemClock;
use hooklog::delivery::guard::Policy;
use hooklog_projections::time::Millis;
use keyed::{Session, World, text};
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn a_link_opens_one_session_and_stands_in_the_audit() {
    let world = World::new().await;
    let account = world.account("A").await;
    let [endpoint, ..] = world.held(&account).await;
    let link = world.link(&account, "account").await;
    assert!(link.starts_with("hl_link_"), "{link}");
    let opened = world.exchange(&link, &[]).await;
    let told = opened.ok(201);
    assert_eq!((&told["account_id"], &told["role"]), (&json!(account), &json!("account")));
    let cookie = opened.headers["set-cookie"].to_str().expect("ASCII");
    let (pair, rules) = cookie.split_once("; ").expect("rules");
    assert_eq!(rules, "Path=/; Secure; HttpOnly; SameSite=Strict");
    let secret = pair.strip_prefix("__Host-hooklog=").expect("its name");
    assert_eq!(secret.len(), 43);
    assert!(!String::from_utf8_lossy(&opened.body).contains(secret), "no script sees it");
    // Used up; broken, foreign and unknown ones are answered the same.
    let used = world.exchange(&link, &[]).await;
    assert_eq!(used.status, 401);
    let (_, key) = world.key(json!({ "role": "operator" })).await;
    let never = format!("{}{}", &link[..60], &link[61..]);
    for wrong in [never.as_str(), "", &key] {
        assert_eq!(world.exchange(wrong, &[]).await.tell(), used.tell(), "{wrong}");
    }
    assert_eq!(world.ask("GET", "/v1/accounts", Some(&link), "").await.status, 401, "it is no key");

    let session = Session { cookie: pair.to_owned(), csrf: text(&told["csrf_token"]) };
    let shown = world.browse(&session, "GET", "/portal/session", &[], "").await.ok(200);
    assert_eq!(shown["account_id"], json!(account));
    assert_ne!(shown["csrf_token"], json!(session.csrf), "another each time");
    let reveal = format!("/v1/endpoints/{endpoint}/secret");
    world.browse(&session, "GET", &reveal, &[], "").await.ok(200);
    let audit = world.locally("GET", "/v1/audit", Value::Null).await.ok(200);
    let actor = text(&audit["data"][0]["actor"]);
    assert_eq!(audit["data"][0]["fact"], "SecretRevealed");
    assert!(actor.starts_with("the portal (pl_"), "{actor}");
    let used =
        audit["data"].as_array().expect("a list").iter().find(|entry| entry["fact"] == "PortalLinkUsed");
    assert_eq!(used.expect("it is there")["actor"], json!(actor));
}

/// Two tabs, or a scanner and a customer: one has it.
#[tokio::test(flavor = "multi_thread")]
async fn of_two_who_exchange_a_link_at_once_one_has_it() {
    let world = World::new().await;
    let account = world.account("A").await;
    for _ in 0..20 {
        let link = world.link(&account, "account_read").await;
        let (one, two) = tokio::join!(world.exchange(&link, &[]), world.exchange(&link, &[]));
        let mut statuses = [one.status, two.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 401]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn links_and_sessions_end_in_time_and_when_told() {
    let world = World::new().await;
    let account = world.account("A").await;
    let other = world.account("B").await;
    let status =
        async |session: &Session| world.browse(session, "GET", "/portal/session", &[], "").await.status;
    let late = world.link(&account, "account").await;
    let session = world.session(&account, "account").await;
    world.clock.advance(Millis::from_secs(15 * 60 + 60));
    assert_eq!(world.exchange(&late, &[]).await.status, 401, "a quarter of an hour");
    assert_eq!(status(&session).await, 200);
    world.clock.advance(Millis::from_secs(30 * 60));
    assert_eq!(status(&session).await, 401, "it idled");
    let asking = world.session(&account, "account").await;
    for _ in 0..19 {
        world.clock.advance(Millis::from_secs(25 * 60));
        assert_eq!(status(&asking).await, 200);
    }
    world.clock.advance(Millis::from_secs(25 * 60));
    assert_eq!(status(&asking).await, 401, "eight hours");

    // Signed out, or ended for all of an account.
    let [one, two, theirs] = [
        world.session(&account, "account").await,
        world.session(&account, "account_read").await,
        world.session(&other, "account").await,
    ];
    let left = world.in_session(&one, "DELETE", "/portal/session", "").await;
    left.ok(200);
    assert!(left.headers["set-cookie"].to_str().expect("ASCII").contains("Max-Age=0"));
    assert_eq!((status(&one).await, status(&two).await), (401, 200));
    let path = format!("/v1/portal-sessions?account_id={account}");
    assert_eq!(world.locally("DELETE", &path, Value::Null).await.ok(200)["ended"], 1);
    assert_eq!((status(&two).await, status(&theirs).await), (401, 200));
    // Whoever signs in anew ends what the cookie was before.
    let again = world.link(&other, "account").await;
    assert_eq!(world.exchange(&again, &[("cookie", &theirs.cookie)]).await.status, 201);
    assert_eq!(status(&theirs).await, 401);

    // They live in memory: another start knows none.
    let theirs = world.session(&other, "account").await;
    let (handle, master) = (world.store.handle().clone(), world.store.master().clone());
    let state = ApiState::new(handle, master, SystemClock::start(), Policy::default(), ApiOptions::default());
    let restarted = axum::http::Request::get("/portal/session").header("cookie", &theirs.cookie);
    let request = restarted.body(axum::body::Body::empty()).expect("a request");
    assert_eq!(World::send(&router(state), request).await.status, 401);
    assert_eq!(status(&theirs).await, 200);
}

/// Rule A16: each of the four is needed, for whatever changes something; and a bearer needs none.
#[tokio::test(flavor = "multi_thread")]
async fn another_site_cannot_make_a_browser_change_anything() {
    let world = World::new().await;
    let account = world.account("A").await;
    let [endpoint, ..] = world.held(&account).await;
    let session = world.session(&account, "account").await;
    let foreign = world.session(&account, "account").await;
    let (_, key) = world.key(json!({ "role": "account", "account_id": account })).await;
    let path = format!("/v1/endpoints/{endpoint}");
    let good = [
        ("sec-fetch-site", "same-origin"),
        ("origin", "https://hooks.example.com"),
        ("x-csrf-token", session.csrf.as_str()),
        ("content-type", "application/json"),
    ];
    let body = r#"{"description":"d"}"#;
    let change = async |headers: &[(&str, &str)]| world.browse(&session, "PATCH", &path, headers, body).await;
    assert_eq!(change(&good).await.status, 200);
    assert_eq!(change(&good[1..]).await.status, 200, "an older browser says its origin only");
    for (at, value, status) in [
        (0, "cross-site", 403),
        (0, "same-site", 403),
        (0, "none", 403),
        (1, "https://evil.example", 403),
        (1, "https://hooks.example.com.evil.example", 403),
        (1, "null", 403),
        (2, "AAAA", 403),
        (2, foreign.csrf.as_str(), 403),
        (3, "text/plain", 415),
        (3, "application/x-www-form-urlencoded", 415),
    ] {
        let mut headers = good;
        headers[at].1 = value;
        assert_eq!(change(&headers).await.status, status, "{headers:?}");
    }
    for left_out in [1, 2, 3] {
        let some: Vec<_> =
            good.iter().enumerate().filter(|(at, _)| *at != left_out).map(|(_, h)| *h).collect();
        assert_ne!(change(&some).await.status, 200, "without {}", good[left_out].0);
    }
    for method in ["POST", "DELETE"] {
        let refused = world.browse(&session, method, "/portal/session", &good[..1], "").await;
        assert_ne!(refused.status, 200, "{method}");
    }
    // A key in a header is nothing that a browser sends by itself.
    assert_eq!(world.ask("PATCH", &path, Some(&key), body).await.status, 200);
    // With a key, the cookie is not looked at: neither to give rights, nor to take them.
    let both = [("authorization", "Bearer wrong"), ("content-type", "application/json")];
    assert_eq!(change(&both).await.status, 401);
    // Nor can another site exchange a link into a browser.
    let link = world.link(&account, "account").await;
    for headers in [
        [("host", "hooks.example.com"), ("sec-fetch-site", "cross-site")],
        [("host", "hooks.example.com"), ("origin", "https://evil.example")],
    ] {
        assert_eq!(world.exchange(&link, &headers).await.status, 403);
    }
    let here = [("host", "hooks.example.com"), ("origin", "https://hooks.example.com")];
    assert_eq!(world.exchange(&link, &here).await.status, 201, "and it was not used up");
}

/// With a public address, that is the origin, whatever the `Host` says.
#[tokio::test(flavor = "multi_thread")]
async fn the_public_address_is_the_origin() {
    let url = "https://webhooks.acme.example".parse().expect("a URL");
    let world = World::with(ApiOptions { public_url: Some(url), ..ApiOptions::default() }).await;
    let account = world.account("A").await;
    let [endpoint, ..] = world.held(&account).await;
    let session = world.session(&account, "account").await;
    let path = format!("/v1/endpoints/{endpoint}/pause");
    for (origin, status) in [
        ("https://hooks.example.com", 403),
        ("http://webhooks.acme.example", 403),
        ("https://webhooks.acme.example", 200),
    ] {
        let headers = [
            ("sec-fetch-site", "same-origin"),
            ("origin", origin),
            ("x-csrf-token", session.csrf.as_str()),
            ("content-type", "application/json"),
        ];
        assert_eq!(world.browse(&session, "POST", &path, &headers, "").await.status, status, "{origin}");
    }
    let wanted = json!({ "account_id": account, "lifetime_minutes": 60 });
    let made = world.locally("POST", "/v1/portal-sessions", wanted).await.ok(201);
    assert!(text(&made["url"]).starts_with("https://webhooks.acme.example/portal#hl_link_"), "{made}");
    for (member, value) in
        [("lifetime_minutes", json!(1441)), ("lifetime_minutes", json!(0)), ("role", json!("operator"))]
    {
        let mut wanted = json!({ "account_id": account });
        wanted[member] = value;
        assert_eq!(world.locally("POST", "/v1/portal-sessions", wanted).await.status, 422, "{member}");
    }
}

/// Where the pages lead back to: nothing that runs, and no other site without TLS.
#[tokio::test(flavor = "multi_thread")]
async fn the_pages_lead_back_where_the_link_said() {
    let url = "http://webhooks.acme.example:8080/hooks/".parse().expect("a URL");
    let world = World::with(ApiOptions { public_url: Some(url), ..ApiOptions::default() }).await;
    let account = world.account("A").await;
    let make = async |url: &str| {
        let wanted = json!({ "account_id": account, "return_url": url });
        world.locally("POST", "/v1/portal-sessions", wanted).await
    };
    let long = |chars: usize| format!("https://app.acme.example/{}", "x".repeat(chars - 25));
    for url in [
        "https://app.acme.example/settings?tab=webhooks#top",
        "http://webhooks.acme.example:8080/other",
        &long(2_000),
    ] {
        let made = make(url).await.ok(201);
        let link = text(&made["url"]).split_once("/portal#").expect("a fragment").1.to_owned();
        let opened = world.exchange(&link, &[("origin", "http://webhooks.acme.example:8080")]).await;
        assert_eq!(opened.ok(201)["return_url"], url);
        let cookie = opened.headers["set-cookie"].to_str().expect("ASCII").split_once(';').expect("rules").0;
        let session = Session { cookie: cookie.to_owned(), csrf: String::new() };
        assert_eq!(
            world.browse(&session, "GET", "/portal/session", &[], "").await.ok(200)["return_url"],
            url
        );
    }
    for url in [
        "http://app.acme.example/",
        "http://webhooks.acme.example/",
        "https://user@app.acme.example/",
        "https://user:word@app.acme.example/",
        "javascript:alert(1)",
        "data:text/html,x",
        "//app.acme.example/",
        "/settings",
        "https://",
        "",
        &long(2_001),
    ] {
        let refused = make(url).await;
        assert_eq!(refused.ok(422)["errors"][0]["pointer"], "/return_url", "{url}");
    }
    let without = world.session(&account, "account").await;
    let told = world.browse(&without, "GET", "/portal/session", &[], "").await.ok(200);
    assert_eq!(told.get("return_url"), None);
}

/// Support sees no secrets, so it cannot make itself a link that does.
#[tokio::test(flavor = "multi_thread")]
async fn support_makes_links_that_look_only() {
    let world = World::new().await;
    let account = world.account("A").await;
    let (_, support) = world.key(json!({ "role": "support" })).await;
    let wish = |role: &str| json!({ "account_id": account, "role": role }).to_string();
    let refused = world.ask("POST", "/v1/portal-sessions", Some(&support), &wish("account")).await;
    assert_eq!((refused.status, refused.code().as_str()), (403, "forbidden"));
    let wish = json!({ "account_id": account }).to_string();
    let made = world.ask("POST", "/v1/portal-sessions", Some(&support), &wish).await.ok(201);
    assert_eq!(made["role"], "account_read");
    let session = world.session(&account, "account_read").await;
    let secret = format!("/v1/accounts/{account}/secret");
    assert_eq!(world.browse(&session, "GET", &secret, &[], "").await.status, 403);
    assert_eq!(world.browse(&session, "GET", "/v1/endpoints", &[], "").await.status, 200);
}
