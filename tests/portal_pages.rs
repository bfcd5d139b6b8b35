//! Customers' pages, without a browser and without scripts: a link opens them, they show one account and nothing of
//! another or of the server's inside, and whatever comes twice is done once (rules A7, A8, A13–A16).

#[path = "support/browser.rs"]
mod browser;
#[path = "support/keyed.rs"]
mod keyed;
#[path = "support/receiver.rs"]
mod receiver;

use axum::body::Body;
use axum::http::Request;
use browser::{Form, Seen, enter, post, press, read, sign_in, submit};
use futures::StreamExt;
use hooklog::api::{ApiOptions, Look};
use hooklog_projections::time::Millis;
use keyed::{LONG, Session, World, text};
use receiver::{Receiver, answer};
use serde_json::{Value, json};
use tower::ServiceExt;

/// What a form sends.
type Fields = &'static [(&'static str, &'static str)];

/// Every page of the portal for who has no session, for an account's, one that only looks, another account's, and who
/// signed in to the console.
#[rustfmt::skip]
const TABLE: &[(&str, Fields, &str)] = &[
    //                                                           none acct read othr oper
    ("GET /portal", &[],                                        "200 200 200 200 200"),
    ("POST /portal", &[("link", "x")],                          "401 401 401 401 401"),
    ("GET /portal/", &[],                                       "401 200 200 200 401"),
    ("GET /portal/events", &[],                                 "401 200 200 200 401"),
    ("GET /portal/events/{id}", &[],                            "401 200 200 404 401"),
    ("POST /portal/events/{id}", &[("do", "nothing")],          "401 400 403 400 401"),
    ("GET /portal/events/{id}/payload", &[],                    "401 200 200 404 401"),
    ("GET /portal/events/{id}/evidence", &[],                   "401 200 200 404 401"),
    ("GET /portal/deliveries", &[],                             "401 200 200 200 401"),
    ("GET /portal/deliveries/{id}", &[],                        "401 200 200 404 401"),
    ("POST /portal/deliveries/{id}", &[("do", "nothing")],      "401 400 403 404 401"),
    ("GET /portal/attempts/{id}", &[],                          "401 200 200 404 401"),
    ("GET /portal/dead", &[],                                   "401 200 200 200 401"),
    ("GET /portal/endpoints", &[],                              "401 200 200 200 401"),
    ("GET /portal/endpoints/{id}", &[],                         "401 200 200 404 401"),
    ("POST /portal/endpoints/{id}", &[("do", "nothing")],       "401 400 403 404 401"),
    ("POST /portal/endpoints/{id}/secret", &[("do", "nothing")],"401 400 403 404 401"),
    ("GET /portal/replays", &[],                                "401 200 200 200 401"),
    ("POST /portal/replays", &[("status", "dead")],             "401 422 403 422 401"),
    ("GET /portal/replays/new", &[],                            "401 422 422 422 401"),
    ("GET /portal/replays/{id}", &[],                           "401 200 200 404 401"),
    ("POST /portal/replays/{id}", &[("do", "nothing")],         "401 400 403 400 401"),
    // It would never end: a filter that is none answers whoever is let in.
    ("GET /portal/live", &[],                                   "401 400 400 400 401"),
    ("GET /portal/find", &[],                                   "401 303 303 303 401"),
    ("POST /portal/theme", &[("theme", "dark")],                "303 303 303 303 303"),
    ("GET /portal/static/{file}", &[],                          "404 404 404 404 404"),
    ("GET /portal/brand.css", &[],                              "200 200 200 200 200"),
    // Last: the session is over then.
    ("POST /portal/sign-out", &[],                              "200 200 200 200 200"),
];

/// A customer with one of everything.
struct Customer {
    account: String,
    endpoint: String,
    event: String,
    delivery: String,
    attempt: String,
    replay: String,
}

impl Customer {
    /// `url` refuses what it is sent, or is not there.
    async fn of(world: &World, name: &str, url: &str) -> Customer {
        let account = world.account(name).await;
        let made = json!({ "account_id": account, "url": url });
        let endpoint = text(&world.locally("POST", "/v1/endpoints", made).await.ok(201)["id"]);
        let delivery = dead(world, &account, "payment.settled").await;
        let shown = world.locally("GET", &format!("/v1/deliveries/{delivery}"), Value::Null).await.ok(200);
        let tried = format!("/v1/deliveries/{delivery}/attempts");
        let tried = world.locally("GET", &tried, Value::Null).await.ok(200);
        let wish = json!({ "account_id": account, "filter": { "status": "dead", "event_type": "no.such" },
            "reason": "nothing to do" });
        let replay = world.locally("POST", "/v1/replays", wish).await.ok(202);
        Customer {
            account,
            endpoint,
            event: text(&shown["event_id"]),
            delivery,
            attempt: text(&tried["data"][0]["id"]),
            replay: text(&replay["id"]),
        }
    }

    fn id(&self, path: &str) -> &str {
        match path.split('/').nth(2) {
            Some("endpoints") => &self.endpoint,
            Some("deliveries") => &self.delivery,
            Some("attempts") => &self.attempt,
            Some("replays") => &self.replay,
            _ => &self.event,
        }
    }
}

/// A delivery that was given up.
async fn dead(world: &World, account: &str, event_type: &str) -> String {
    let event = json!({ "account_id": account, "type": event_type, "data": { "n": 1 }, "max_tries": 1 });
    let event = world.locally("POST", "/v1/events", event).await.ok(202);
    let delivery = text(&event["deliveries"][0]["id"]);
    world.dead(&delivery).await;
    delivery
}

async fn refusing() -> Receiver {
    Receiver::answering(|_| answer(500, "", "not now")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_page_is_for_whom_the_table_says() {
    let world = World::new().await;
    let receiver = refusing().await;
    let ours = Customer::of(&world, "A", &receiver.url("/a")).await;
    let theirs = world.account("B").await;
    let nobody = Session { cookie: String::new(), csrf: String::new() };
    let account = enter(&world, &ours.account, "account").await;
    let reads = enter(&world, &ours.account, "account_read").await;
    let other = enter(&world, &theirs, "account").await;
    let operator = sign_in(&world, &world.key(json!({ "role": "operator" })).await.1).await;

    let mut known: Vec<_> = TABLE.iter().map(|(route, ..)| (*route).to_owned()).collect();
    let portal = hooklog::pages::routes().into_iter().filter(|(_, path)| path.starts_with("/portal"));
    let mut there: Vec<_> = portal.map(|(method, path)| format!("{method} {path}")).collect();
    known.sort();
    there.sort();
    assert_eq!(known, there, "the table of this test and the router's differ");

    let mut wrong = Vec::new();
    for (route, fields, expected) in TABLE {
        let (method, path) = route.split_once(' ').expect("a method and a path");
        let path = path.replace("{id}", ours.id(path)).replace("{file}", "none.css");
        let path = path.replace("/live", "/live?status=x");
        let mut seen = Vec::new();
        for person in [&nobody, &account, &reads, &other, &operator] {
            let page = match method {
                "GET" => read(&world, &person.cookie, &path).await,
                _ => {
                    let with: Vec<_> = [fields, &[("csrf", person.csrf.as_str())][..]].concat();
                    submit(&world, &person.cookie, &path, &with).await
                }
            };
            if page.status >= 400 {
                assert_eq!(page.header("content-type"), "text/html; charset=utf-8", "{route} {page:?}");
            }
            seen.push(page.status.to_string());
        }
        if seen.join(" ") != *expected {
            wrong.push(format!("{route}\n  wanted {expected}\n  was    {}", seen.join(" ")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let gone = read(&world, &account.cookie, "/portal/").await;
    assert_eq!(gone.status, 401, "signed out");
}

/// A link is looked at as often as one likes, used once, and its page says what to do when it is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_link_opens_the_pages_once() {
    let url = "https://hooks.example.com".parse().expect("a URL");
    let world = World::with(ApiOptions { public_url: Some(url), ..ApiOptions::default() }).await;
    let account = world.account("Acme <Ltd>").await;
    let made = json!({ "account_id": account, "return_url": "https://app.acme.example/hooks?tab=1" });
    let made = world.locally("POST", "/v1/portal-sessions", made).await.ok(201);
    let address = text(&made["url"]);
    let link = address.split_once('#').expect("a fragment").1.to_owned();
    // A scanner that opens it sees a button; the fragment never comes here.
    for _ in 0..3 {
        let page = read(&world, "", "/portal").await;
        assert_eq!((page.status, page.header("set-cookie")), (200, ""));
        assert_eq!(page.header("cache-control"), "no-store");
    }
    let page = read(&world, "", "/portal").await;
    let form = page.forms().into_iter().find(|form| form.action == "/portal").expect("a form");
    // The whole address, as it is pasted where no script takes the secret out of it.
    let entered = press(&world, "", &form.clone().with("link", &format!(" {address}\n"))).await;
    assert_eq!((entered.status, entered.header("location")), (303, "/portal/"), "{}", entered.words());
    let cookie = entered.header("set-cookie").to_owned();
    assert!(cookie.ends_with("; Path=/; Secure; HttpOnly; SameSite=Strict"), "{cookie}");
    let cookie = cookie.split_once(';').expect("rules").0;
    let overview = read(&world, cookie, "/portal/").await;
    assert_eq!(overview.status, 200);
    for part in
        ["Acme &lt;Ltd&gt;", "Back to app.acme.example", "href=\"https://app.acme.example/hooks?tab=1\""]
    {
        assert!(overview.html.contains(part), "{part}: {}", overview.html);
    }
    // The form comes twice: who is in is led on, and anyone else is told.
    let again = press(&world, cookie, &form.clone().with("link", &link)).await;
    assert_eq!((again.status, again.header("location"), again.header("set-cookie")), (303, "/portal/", ""));
    let used = press(&world, "", &form.clone().with("link", &link)).await;
    assert_eq!((used.status, used.header("set-cookie")), (401, ""));
    assert!(
        used.words().contains("used or is too old") && used.words().contains("new one"),
        "{}",
        used.words()
    );
    assert!(!used.html.contains(&link));
    // Too old, never made, and none at all say the same.
    let late = world.link(&account, "account").await;
    world.clock.advance(Millis::from_secs(16 * 60));
    let never = format!("{}{}", &late[..60], &late[61..]);
    for wrong in [late.as_str(), &never, "", "https://evil.example/#x"] {
        let refused = press(&world, "", &form.clone().with("link", wrong)).await;
        assert_eq!((refused.status, refused.words()), (401, used.words()), "{wrong}");
    }
    // From a page of another site, or without saying where from, it is not taken, and not used up.
    let fresh = world.link(&account, "account").await;
    for headers in [&[][..], &[("origin", "https://evil.example")], &[("origin", "null")]] {
        assert_eq!(post(&world, "", "/portal", headers, &[("link", &fresh)]).await.status, 403);
    }
    assert_eq!(press(&world, "", &form.with("link", &fresh)).await.status, 303);
    // Signed out, it leads back; then nothing is left.
    let out = overview.forms().into_iter().find(|form| form.action == "/portal/sign-out").expect("a form");
    let left = press(&world, cookie, &out).await;
    assert!(
        left.words().contains("You are signed out") && left.html.contains("app.acme.example"),
        "{}",
        left.html
    );
    assert!(left.header("set-cookie").contains("Max-Age=0"));
    let over = read(&world, cookie, "/portal/deliveries").await;
    assert_eq!(over.status, 401);
    assert!(over.words().contains("open a new link"), "{}", over.words());
}

/// A session that idled, or was ended by the operator, is over on the next page and for the next form.
#[tokio::test(flavor = "multi_thread")]
async fn an_expired_session_does_nothing() {
    let world = World::new().await;
    let account = world.account("A").await;
    let [_, _, delivery] = world.held(&account).await;
    let session = enter(&world, &account, "account").await;
    let path = format!("/portal/deliveries/{delivery}");
    let cancel = read(&world, &session.cookie, &path).await.form("cancel");
    world.clock.advance(Millis::from_secs(31 * 60));
    let refused = press(&world, &session.cookie, &cancel).await;
    assert_eq!(refused.status, 401, "{}", refused.words());
    assert!(refused.words().contains("session is over"), "{}", refused.words());
    let ended = enter(&world, &account, "account").await;
    let path = format!("/v1/portal-sessions?account_id={account}");
    world.locally("DELETE", &path, Value::Null).await.ok(200);
    assert_eq!(read(&world, &ended.cookie, "/portal/").await.status, 401);
    let path = format!("/v1/deliveries/{delivery}");
    assert_eq!(world.locally("GET", &path, Value::Null).await.ok(200)["status"], "pending");
}

/// The page without what differs from page to page.
fn told(page: &Seen) -> (u16, String) {
    let words = page.words();
    (page.status, words.split(" · request ").next().unwrap_or_default().to_owned())
}

/// What another account has is not there: by page, by form, by filter, by search, by stream.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_of_another_account_is_as_if_it_were_not_there() {
    let world = World::new().await;
    let receiver = refusing().await;
    let ours = Customer::of(&world, "Ours", &receiver.url("/ours")).await;
    let theirs = Customer::of(&world, "Theirs", &receiver.url("/theirs")).await;
    let session = enter(&world, &ours.account, "account").await;
    let csrf = session.csrf.as_str();
    let never = |id: &str| {
        let (rest, last) = id.split_at(id.len() - 1);
        format!("{rest}{}", if last == "0" { "1" } else { "0" })
    };
    let mut looked = 0;
    for (route, ..) in TABLE.iter().filter(|(route, ..)| route.contains("{id}")) {
        let (method, place) = route.split_once(' ').expect("a method and a path");
        let acts: &[&str] = match method {
            "GET" => &[""],
            _ if place.ends_with("/secret") => &["reveal", "rotate"],
            _ if place.contains("/endpoints/") => &["pause", "resume", "test"],
            _ if place.contains("/deliveries/") => &["replay", "retry-now", "cancel"],
            _ if place.contains("/events/") => &["replay", "replay-missing"],
            _ => &["cancel"],
        };
        for act in acts {
            let mut seen = Vec::new();
            for id in [theirs.id(place).to_owned(), never(theirs.id(place))] {
                let path = place.replace("{id}", &id);
                let page = match method {
                    "GET" => read(&world, &session.cookie, &path).await,
                    _ => {
                        let mut fields = vec![("csrf", csrf), ("do", act)];
                        if *act == "rotate" {
                            fields.push(("newest", "key_00000000000000000000000001"));
                        }
                        submit(&world, &session.cookie, &path, &fields).await
                    }
                };
                let (status, words) = told(&page);
                seen.push((status, words.replace(&id, "ID")));
                looked += 1;
            }
            assert_eq!(seen[0].0, 404, "{route} {act}: {seen:?}");
            assert_eq!(seen[0], seen[1], "{route} {act}");
        }
    }
    assert!(looked > 30, "{looked}");
    for path in [
        "/portal/deliveries?account_id=ID",
        "/portal/events?account_id=ID",
        "/portal/dead?account_id=ID",
        "/portal/endpoints?account_id=ID",
        "/portal/replays?account_id=ID",
        "/portal/replays/new?status=dead&account_id=ID",
        "/portal/live?account_id=ID",
    ] {
        let of = |id: &str| path.replace("ID", id);
        let foreign = told(&read(&world, &session.cookie, &of(&theirs.account)).await);
        let unknown = told(&read(&world, &session.cookie, &of(&never(&theirs.account))).await);
        assert_eq!(foreign.0, 404, "{path}: {foreign:?}");
        assert_eq!(foreign, unknown, "{path}");
    }
    // A filter of theirs finds nothing; a search leads to nothing.
    for path in [
        format!("/portal/deliveries?endpoint_id={}", theirs.endpoint),
        format!("/portal/dead?endpoint_id={}", theirs.endpoint),
        format!("/portal/find?q={}", theirs.event),
    ] {
        let page = read(&world, &session.cookie, &path).await;
        assert!(!page.html.contains("/theirs") && !page.html.contains("Theirs"), "{path}: {}", page.words());
        assert!(!page.html.contains("class=\"row\""), "{path}: {}", page.words());
    }
    // Nothing was done to them.
    let shown = format!("/v1/deliveries/{}", theirs.delivery);
    assert_eq!(world.locally("GET", &shown, Value::Null).await.ok(200)["run"], 1);
    let endpoint = format!("/v1/endpoints/{}", theirs.endpoint);
    assert_eq!(world.locally("GET", &endpoint, Value::Null).await.ok(200)["status"], "active");

    // The stream tells of the own account only: theirs comes first, and is not heard of.
    let request = Request::get("/portal/live?fact=Enqueued").header("cookie", &session.cookie);
    let streamed = world.app.clone().oneshot(request.body(Body::empty()).expect("a request")).await;
    let mut stream = streamed.expect("infallible").into_body().into_data_stream();
    let (foreign, own) =
        (dead(&world, &theirs.account, "x.y").await, dead(&world, &ours.account, "x.y").await);
    let mut heard = String::new();
    while !heard.contains(&own) {
        let part =
            tokio::time::timeout(LONG, stream.next()).await.expect("in time").expect("more").expect("bytes");
        heard.push_str(std::str::from_utf8(&part).expect("UTF-8"));
    }
    assert!(!heard.contains(&foreign) && !heard.contains(&theirs.account), "{heard}");
}

/// Reason codes in the place of the server's own words; no address that a name led to, no place in the log, no way into
/// the console.
#[tokio::test(flavor = "multi_thread")]
async fn the_inside_of_the_server_is_not_shown() {
    let world = World::new().await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = closed.local_addr().expect("an address").port();
    drop(closed);
    let ours = Customer::of(&world, "Acme", &format!("http://127.0.0.1:{port}/hook")).await;
    let tried = format!("/v1/deliveries/{}/attempts", ours.delivery);
    let tried = world.locally("GET", &tried, Value::Null).await.ok(200);
    let detail = text(&tried["data"][0]["detail"]);
    assert!(detail.len() > 5, "{tried}");
    let operator = sign_in(&world, &world.key(json!({ "role": "operator" })).await.1).await;
    let session = enter(&world, &ours.account, "account").await;
    let at = |base: &str| {
        [
            "/".to_owned(),
            "/events".into(),
            format!("/events/{}", ours.event),
            format!("/events/{}/evidence", ours.event),
            "/deliveries".into(),
            "/deliveries?format=csv".into(),
            "/deliveries?format=jsonl".into(),
            format!("/deliveries/{}", ours.delivery),
            format!("/attempts/{}", ours.attempt),
            "/dead".into(),
            "/endpoints".into(),
            format!("/endpoints/{}", ours.endpoint),
            "/replays".into(),
            "/replays/new?status=dead".into(),
            format!("/replays/{}", ours.replay),
            "/find?q=evt_none".into(),
            "/nowhere".into(),
        ]
        .map(|path| format!("{base}{path}"))
    };
    // It is there to be seen, for whom it is.
    let console = read(&world, &operator.cookie, &format!("/deliveries/{}", ours.delivery)).await;
    assert!(console.words().contains(&detail), "{}", console.words());
    assert!(console.html.contains("Place in the log"));
    for path in at("/portal") {
        let page = read(&world, &session.cookie, &path).await;
        assert!(page.status == 200 || page.status == 404, "{path}: {}", page.words());
        for inside in
            [detail.as_str(), "Place in the log", "os error", "\"seq\"", "\"address\"", "\"detail\""]
        {
            assert!(!page.html.contains(inside), "{path}: {inside}");
        }
        // Every link leads to a page of this entrance, every form and file too.
        let html = page.header("content-type").starts_with("text/html");
        for part in page.html.split(['"']).filter(|_| html).filter(|part| part.starts_with('/')) {
            assert!(part.starts_with("/portal"), "{path}: {part}");
        }
    }
    let answered = read(&world, &session.cookie, &format!("/portal/deliveries/{}", ours.delivery)).await;
    assert!(answered.words().contains("no connection to 127.0.0.1"), "{}", answered.words());
}

/// From a mail to the second delivery: with links and forms alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_customer_replays_a_dead_event_without_scripts() {
    let world = World::new().await;
    let mut receiver =
        Receiver::scripted(vec![answer(500, "", "down"), answer(200, "", "thanks"), answer(200, "", "")])
            .await;
    let ours = Customer::of(&world, "Acme", &receiver.url("/hook")).await;
    let first = receiver.next().await;
    let session = enter(&world, &ours.account, "account").await;
    let groups = read(&world, &session.cookie, "/portal/dead").await;
    assert!(groups.words().contains("payment.settled"), "{}", groups.words());
    let found = read(&world, &session.cookie, &format!("/portal/find?q={}", ours.event)).await;
    assert_eq!(found.header("location"), format!("/portal/events/{}", ours.event));
    let page = read(&world, &session.cookie, found.header("location")).await;
    assert!(page.words().contains("No. Given up at"), "{}", page.words());
    let replay = page.form("replay").with("reason", "we are back");
    let done = press(&world, &session.cookie, &replay).await;
    assert_eq!(done.status, 303, "{}", done.words());
    world.comes_to(&ours.delivery, "delivered").await;
    let page = read(&world, &session.cookie, done.header("location")).await.words();
    for part in ["It was replayed", "Yes.", "run 2", "we are back"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let second = receiver.next().await;
    assert_eq!(first.values("webhook-id"), second.values("webhook-id"), "the same event");
    // Whoever looks at the console sees who did it.
    let operator = sign_in(&world, &world.key(json!({ "role": "operator" })).await.1).await;
    let seen = read(&world, &operator.cookie, &format!("/events/{}", ours.event)).await.words();
    assert!(seen.contains("by the portal (pl_"), "{seen}");
    // The same form once more does nothing, though the delivery could be sent again by now.
    assert_eq!(press(&world, &session.cookie, &replay).await.status, 409);
    assert_eq!(press(&world, &session.cookie, &replay.with("confirm", "1")).await.status, 409);
    assert_eq!(receiver.so_far().len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_customer_replays_many_and_calls_it_off() {
    let world = World::new().await;
    let receiver = refusing().await;
    let ours = Customer::of(&world, "Acme", &receiver.url("/hook")).await;
    for _ in 0..4 {
        dead(&world, &ours.account, "payment.settled").await;
    }
    let session = enter(&world, &ours.account, "account").await;
    let groups = read(&world, &session.cookie, "/portal/dead").await;
    let plan = groups.html.split('"').find(|part| part.starts_with("/portal/replays/new?")).expect("a link");
    let plan = read(&world, &session.cookie, &plan.replace("&amp;", "&")).await;
    for part in ["Send 5 again", "/hook", "At most", "the same"] {
        assert!(plan.words().contains(part), "{part}: {}", plan.words());
    }
    let begin = plan.form("begin").with("rate_per_second", "1");
    let refused = press(&world, &session.cookie, &begin).await;
    assert_eq!(refused.status, 422, "a reason is wanted: {}", refused.words());
    // Pressed twice at once, it begins once.
    let begin = begin.with("reason", "the server is back");
    let (one, two) =
        tokio::join!(press(&world, &session.cookie, &begin), press(&world, &session.cookie, &begin));
    let mut statuses = [one.status, two.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [303, 409]);
    let begun = if one.status == 303 { one } else { two };
    let progress = read(&world, &session.cookie, begun.header("location")).await;
    for part in ["the server is back", "of 5", "running", "at most 1 a second", "by the portal (pl_"] {
        assert!(progress.words().contains(part), "{part}: {}", progress.words());
    }
    let listed = read(&world, &session.cookie, "/portal/replays").await;
    assert_eq!(listed.html.matches("the server is back").count(), 1, "{}", listed.words());
    let cancel = progress.form("cancel");
    // Two people at once: it is called off, and one of them is told that it was.
    let other = enter(&world, &ours.account, "account").await;
    let theirs = read(&world, &other.cookie, begun.header("location")).await.form("cancel");
    let (one, two) =
        tokio::join!(press(&world, &session.cookie, &cancel), press(&world, &other.cookie, &theirs));
    let mut statuses = [one.status, two.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [303, 409], "{} / {}", one.words(), two.words());
    let over = read(&world, &session.cookie, begun.header("location")).await.words();
    assert!(over.contains("cancelled") && !over.contains("Call it off"), "{over}");
}

/// Two people look at the same page and press the same button.
#[tokio::test(flavor = "multi_thread")]
async fn two_at_once_do_nothing_twice() {
    let world = World::new().await;
    let receiver = refusing().await;
    let ours = Customer::of(&world, "Acme", &receiver.url("/hook")).await;
    let one = enter(&world, &ours.account, "account").await;
    let two = enter(&world, &ours.account, "account").await;
    let path = format!("/portal/deliveries/{}", ours.delivery);
    let both = async |what: &str, path: &str| -> Vec<Seen> {
        let mine: Form = read(&world, &one.cookie, path).await.form(what);
        let theirs: Form = read(&world, &two.cookie, path).await.form(what);
        let (a, b) = tokio::join!(press(&world, &one.cookie, &mine), press(&world, &two.cookie, &theirs));
        let mut both = vec![a, b];
        both.sort_by_key(|seen| seen.status);
        both
    };
    // Paused, the replay waits where both see it.
    let endpoint = format!("/portal/endpoints/{}", ours.endpoint);
    let paused = both("pause", &endpoint).await;
    assert_eq!([paused[0].status, paused[1].status], [303, 409], "{}", paused[1].words());
    assert!(paused[1].words().contains("Nothing was done a second time"), "{}", paused[1].words());
    let replayed = both("replay", &path).await;
    assert_eq!([replayed[0].status, replayed[1].status], [303, 409], "{}", replayed[1].words());
    let story = format!("/v1/events/{}/timeline", ours.event);
    let story = world.locally("GET", &story, Value::Null).await.ok(200).to_string();
    assert_eq!(story.matches("\"Replayed\"").count(), 1, "{story}");
    let held = read(&world, &one.cookie, &path).await.words();
    assert!(held.contains("held · paused"), "{held}");
    let resumed = both("resume", &endpoint).await;
    assert_eq!([resumed[0].status, resumed[1].status], [303, 409]);
    world.dead(&ours.delivery).await;

    // A key is replaced once: the other's page was of the old one.
    let rotated = both("rotate", &endpoint).await;
    assert_eq!([rotated[0].status, rotated[1].status], [200, 412], "{}", rotated[1].words());
    assert!(rotated[0].words().contains("whsec_") && !rotated[1].html.contains("whsec_"));

    // A form that comes again sends no second test.
    let test = read(&world, &one.cookie, &endpoint).await.form("test");
    let sent = press(&world, &one.cookie, &test).await;
    assert_eq!(sent.status, 303, "{}", sent.words());
    let again = press(&world, &one.cookie, &test).await;
    assert_eq!(again.status, 409);
    assert!(again.words().contains("sent before"), "{}", again.words());
    let events = format!("/v1/events?account_id={}&event_type=hooklog.test", ours.account);
    let events = world.locally("GET", &events, Value::Null).await.ok(200);
    assert_eq!(events["data"].as_array().map(Vec::len), Some(1), "{events}");
}

/// A secret is shown when somebody asks, to who may, and that stands in the audit.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_shown_when_asked_for_and_on_no_other_page() {
    let world = World::new().await;
    let receiver = refusing().await;
    let ours = Customer::of(&world, "Acme", &receiver.url("/hook")).await;
    let session = enter(&world, &ours.account, "account").await;
    let reads = enter(&world, &ours.account, "account_read").await;
    let path = format!("/portal/endpoints/{}", ours.endpoint);
    let page = read(&world, &session.cookie, &path).await;
    assert!(!page.html.contains("whsec_"));
    let looks = read(&world, &reads.cookie, &path).await;
    assert!(looks.words().contains("This is not for your role."), "{}", looks.words());
    assert!(looks.words().contains("Your link only looks."), "{}", looks.words());
    let shown = press(&world, &session.cookie, &page.form("reveal")).await;
    assert_eq!(shown.status, 200);
    let secret =
        world.locally("GET", &format!("/v1/endpoints/{}/secret", ours.endpoint), Value::Null).await.ok(200);
    assert!(shown.html.contains(&text(&secret["keys"][0]["secret"])), "{}", shown.words());
    assert_eq!(shown.header("cache-control"), "no-store");
    let audit = world.locally("GET", "/v1/audit", Value::Null).await.ok(200).to_string();
    assert!(audit.contains("SecretRevealed") && audit.contains("the portal (pl_"), "{audit}");
}

/// The pages bear the product's name and colour.
#[tokio::test(flavor = "multi_thread")]
async fn the_pages_look_like_the_products() {
    let look = Look::new(Some("Acme Pay & Co".into()), "#1A7F37".parse().ok()).expect("a look");
    let world = World::with(ApiOptions { look, ..ApiOptions::default() }).await;
    let account = world.account("Customer").await;
    let session = enter(&world, &account, "account_read").await;
    for (cookie, path) in [("", "/portal"), (session.cookie.as_str(), "/portal/")] {
        let page = read(&world, cookie, path).await;
        assert!(page.html.contains("Acme Pay &amp; Co") && !page.html.contains("Hooklog"), "{}", page.html);
        assert!(page.html.contains("href=\"/portal/brand.css\""), "{}", page.html);
    }
    let sheet = read(&world, "", "/portal/brand.css").await;
    assert_eq!(
        (sheet.html.as_str(), sheet.header("content-type")),
        (":root { --brand: #1a7f37; }\n", "text/css; charset=utf-8")
    );
    // The theme is chosen with a form, and kept.
    let page = read(&world, &session.cookie, "/portal/deliveries").await;
    let theme = page.forms().into_iter().find(|form| form.action == "/portal/theme").expect("a form");
    let chosen = press(&world, &session.cookie, &theme.with("theme", "dark")).await;
    assert_eq!((chosen.status, chosen.header("location")), (303, "/portal/deliveries"));
    let dark = chosen.header("set-cookie").split_once(';').expect("rules").0.to_owned();
    let page = read(&world, &format!("{}; {dark}", session.cookie), "/portal/").await;
    assert!(page.html.contains("data-theme=\"dark\""), "{}", page.html);
    assert!(read(&world, &session.cookie, "/portal/").await.words().contains("it is shown here"));
}
