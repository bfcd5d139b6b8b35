//! Cases of the area *email*: one message for a storm, whatever happens meanwhile, and none that a hostile name turns
//! into another. Mail goes to mailcrab, or to a peer that keeps every byte.

#[path = "support/mail.rs"]
mod mail;
mod support;

use hooklog::engine::{Command, ServerPolicy};
use hooklog::notify::{BUNDLE_FOR, Channel, Links, Teller};
use hooklog_projections::fact::{AccountSettings, Actor};
use hooklog_projections::policy::Rollout;
use hooklog_projections::time::Millis;
use mail::{At, Crab, Do, Peer, channel, header};
use serde_json::{Value, json};
use support::case::{Hook, SECRET, Setup, World, deliveries, delivery, text};
use support::receiver::{Step, answer};

const OWNER: &str = "owner@acme.example";

fn teller(world: &World, channel: Channel) -> Teller {
    let store = world.store();
    let (handle, client, clock) = (store.handle().clone(), store.client().clone(), store.clock().clone());
    let links = Links::below(Some(&"https://hooks.product.example".parse().expect("a URL")));
    Teller::new(handle, client, clock, channel, BUNDLE_FOR).with_links(links)
}

async fn owned(world: &World) -> String {
    world.account_of(json!({ "name": "Acme", "secret": SECRET, "owner_email": OWNER })).await
}

/// So many events, each of which dies at its first try.
async fn die(world: &World, account: &str, from: usize, count: usize) {
    let events: Vec<_> = (from..from + count)
        .map(|n| json!({ "account_id": account, "id": format!("evt-{n}"), "type": "payment.settled", "data": n }))
        .collect();
    for part in events.chunks(500) {
        world.post("/v1/events/batch", json!({ "events": part })).await.ok(202);
    }
    let wanted = (from + count) as u64;
    let died = async {
        while world.get("/v1/status").await.ok(200)["deliveries"]["dead"].as_u64() < Some(wanted) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(support::case::LONG, died).await.expect("they die");
}

fn gone() -> Vec<Step> {
    answer(404, "", "")
}

/// A storm of one endpoint is one message, over restarts; another endpoint has its own; the next outage has its own.
#[tokio::test(flavor = "multi_thread")]
async fn c118_a_storm_of_dead_deliveries_is_one_message() {
    const STORM: usize = 2_000;
    let mut world = World::new().await;
    let mut crab = Crab::start().await;
    let hook = Hook::scripted(vec![gone()]).await;
    let account = owned(&world).await;
    let first = world.endpoint(&account, &hook.url("/first")).await;
    die(&world, &account, 0, 500).await;
    // Three restarts within the five minutes, a look after each: nothing is sent twice, or too soon.
    for n in 1..=3 {
        assert_eq!(
            teller(&world, channel(crab.port)).tell_due().await.unwrap(),
            Some(Millis((16 - n) * 60_000))
        );
        world.restart().await;
        world.advance_secs(60).await;
        die(&world, &account, n as usize * 500, 500).await;
    }
    assert_eq!(crab.so_far().len(), 0);
    let mut tells = teller(&world, channel(crab.port));
    world.advance_secs(12 * 60).await;
    assert_eq!(tells.tell_due().await.unwrap(), None);
    let mail = crab.next().await;
    assert_eq!(mail["subject"], format!("{STORM} events could not be delivered to 127.0.0.1"));
    assert_eq!(mail["envelope_recipients"], json!([OWNER]));
    let words = text(&mail["text"]);
    assert!(words.contains(&format!("and {} more", STORM - 20)), "{words}");
    assert!(words.contains("https://hooks.product.example/portal/events/evt-0"), "{words}");
    for n in 0..10 {
        world.advance_secs(n * 600).await;
        assert_eq!(tells.tell_due().await.unwrap(), None);
    }
    assert_eq!(crab.so_far().len(), 0);

    // Another endpoint of the same account, and then the first again: a message each, once each.
    let resubscribe = |id: String, types: Value| {
        let world = &world;
        async move { world.patch(&format!("/v1/endpoints/{id}"), json!({ "event_types": types })).await.ok(200) }
    };
    resubscribe(first.clone(), json!(["no.such"])).await;
    let second = world.endpoint(&account, &hook.url("/second")).await;
    die(&world, &account, STORM, 2).await;
    resubscribe(first, json!(["*"])).await;
    resubscribe(second, json!(["no.such"])).await;
    die(&world, &account, STORM + 2, 1).await;
    world.advance(BUNDLE_FOR).await;
    assert_eq!(tells.tell_due().await.unwrap(), None);
    let mut subjects = [text(&crab.next().await["subject"]), text(&crab.next().await["subject"])];
    subjects.sort();
    let wanted =
        ["1 event could not be delivered to 127.0.0.1", "2 events could not be delivered to 127.0.0.1"];
    assert_eq!(subjects, wanted);
    assert_eq!(crab.so_far().len(), 0);
}

/// Who replays in time hears nothing; what dies again is told again.
#[tokio::test(flavor = "multi_thread")]
async fn c118_what_was_replayed_in_time_is_nobodys_worry() {
    let world = World::new().await;
    let mut crab = Crab::start().await;
    let hook = Hook::scripted(vec![gone(), gone(), answer(200, "", ""), gone()]).await;
    let account = owned(&world).await;
    world.endpoint(&account, &hook.url("/")).await;
    die(&world, &account, 0, 1).await;
    die(&world, &account, 1, 1).await;
    world.post("/v1/events/evt-0/replay", json!({})).await.ok(202);
    let event = world.get(&format!("/v1/events/evt-0?account_id={account}")).await.ok(200);
    world.until(&delivery(&event), "delivered").await;
    world.advance(BUNDLE_FOR).await;
    let mut tells = teller(&world, channel(crab.port));
    tells.tell_due().await.unwrap();
    let mail = crab.next().await;
    assert_eq!(mail["subject"], "1 event could not be delivered to 127.0.0.1");
    assert!(!text(&mail["text"]).contains("evt-0") && text(&mail["text"]).contains("evt-1"));
    let event = world.get(&format!("/v1/events/evt-1?account_id={account}")).await.ok(200);
    let explained =
        || async { world.get(&format!("/v1/explain/{}", delivery(&event))).await.ok(200).to_string() };
    assert!(explained().await.contains("was told by e-mail at"), "{}", explained().await);
    world.post("/v1/events/evt-1/replay", json!({})).await.ok(202);
    world.until_tried(&delivery(&event), 2).await;
    assert!(explained().await.contains("is yet to be told"), "{}", explained().await);
    world.advance(BUNDLE_FOR).await;
    tells.tell_due().await.unwrap();
    assert!(text(&crab.next().await["text"]).contains("evt-1"));
    assert_eq!(crab.so_far().len(), 0);
    let timeline = world.get(&format!("/v1/events/evt-1/timeline?account_id={account}")).await.ok(200);
    let facts: Vec<_> =
        timeline["data"].as_array().unwrap().iter().map(|entry| text(&entry["fact"])).collect();
    let told: Vec<_> =
        facts.iter().filter(|fact| matches!(fact.as_str(), "Dead" | "TellingBegan" | "OwnerTold")).collect();
    assert_eq!(told, ["Dead", "TellingBegan", "OwnerTold", "Dead", "TellingBegan", "OwnerTold"], "{facts:?}");
}

/// The mail server is down for hours: deliveries go on, and what died meanwhile is in two messages, not in one for each
/// quarter of an hour. Nothing is lost over a restart.
#[tokio::test(flavor = "multi_thread")]
async fn c118_a_mail_server_that_is_down_delays_nobody_and_loses_nothing() {
    let mut world = World::new().await;
    let crab = Crab::start().await;
    let port = crab.port;
    crab.stop().await;
    let hook = Hook::answering(
        |request| if request.line().contains("/well") { answer(200, "", "") } else { gone() },
    )
    .await;
    let account = owned(&world).await;
    world.endpoint(&account, &hook.url("/bad")).await;
    let mut tells = teller(&world, channel(port));
    die(&world, &account, 0, 3).await;
    world.advance(BUNDLE_FOR).await;
    // Back-off: asked again after 5 s, 10, 20 and so on, and not before.
    assert_eq!(tells.tell_due().await.unwrap(), Some(Millis(5_000)));
    world.advance_secs(4).await;
    assert_eq!(tells.tell_due().await.unwrap(), Some(Millis(1_000)));
    let mut wait = 1_000;
    for n in 1..20 {
        world.advance(Millis(wait)).await;
        die(&world, &account, 2 + n, 1).await;
        let next = tells.tell_due().await.unwrap().expect("it is owed");
        assert_eq!(next.0, (5_000 << n).min(600_000), "{n}");
        wait = next.0;
    }
    let other = world.account().await;
    world.endpoint(&other, &hook.url("/well")).await;
    let event = world.event(&other, "e", "1").await;
    world.until(&delivery(&event), "delivered").await;
    drop(tells);
    world.restart().await;
    let mut crab = Crab::at(port).await;
    // A start asks at once.
    let mut tells = teller(&world, channel(port));
    while tells.tell_due().await.unwrap().is_some() {
        world.advance_secs(60).await;
    }
    let subjects: Vec<_> = crab.so_far().iter().map(|mail| text(&mail["subject"])).collect();
    let of = |count| format!("{count} events could not be delivered to 127.0.0.1");
    assert_eq!(subjects, [of(3), of(19)]);
}

/// An address that is refused for good is told so, once; one that is put off is tried again, and blocks nobody.
#[tokio::test(flavor = "multi_thread")]
async fn c118_a_refused_address_is_recorded_and_shown_and_a_slow_one_waits_alone() {
    let world = World::new().await;
    let mut peer = Peer::start(|connection, at| match (connection, at) {
        (0, At::To) => Do::Say("550 5.1.1 no such user\r\n"),
        (1, At::To) => Do::Say("450 4.2.0 greylisted\r\n"),
        _ => Do::Well,
    })
    .await;
    let hook = Hook::scripted(vec![gone()]).await;
    let mut ids = Vec::new();
    for n in 0..3 {
        let account = owned(&world).await;
        world.endpoint(&account, &hook.url("/")).await;
        let event = world.event(&account, &format!("e{n}"), "1").await;
        world.until(&delivery(&event), "dead").await;
        ids.push((account, delivery(&event)));
    }
    world.advance(BUNDLE_FOR).await;
    let mut tells = teller(&world, channel(peer.address.port()));
    assert_eq!(tells.tell_due().await.unwrap(), Some(Millis(5_000)));
    assert_eq!((peer.connections(), peer.so_far().len()), (3, 1), "the third was not kept waiting");
    world.advance_secs(5).await;
    assert_eq!(tells.tell_due().await.unwrap(), None);
    assert_eq!(peer.so_far().len(), 1);
    world.advance_secs(1_000_000).await;
    assert_eq!(tells.tell_due().await.unwrap(), None);
    assert_eq!(peer.connections(), 4, "nobody asks again about the refused one");
    let mut said = Vec::new();
    for (_, id) in &ids {
        said.push(world.get(&format!("/v1/explain/{id}")).await.ok(200).to_string());
    }
    let refused: Vec<_> = said.iter().filter(|said| said.contains("the message was refused")).collect();
    assert_eq!(refused.len(), 1, "{said:?}");
    assert!(refused[0].contains("550 5.1.1 no such user"), "{refused:?}");
    assert_eq!(said.iter().filter(|said| said.contains("was told by e-mail")).count(), 2);
}

/// 410: one message, at once, about the endpoint, what died and what waits. An endpoint that keeps failing is told of
/// only where the operator wants that, once.
#[tokio::test(flavor = "multi_thread")]
async fn c118_a_disabled_endpoint_is_told_at_once_and_a_failing_one_where_it_is_wanted() {
    let policy =
        ServerPolicy { failing_notice_after: Some(Millis::from_secs(3_600)), ..ServerPolicy::default() };
    let world = World::with(Setup { policy, ..Setup::default() });
    let mut crab = Crab::start().await;
    let hook = Hook::scripted(vec![answer(410, "", "")]).await;
    let account = owned(&world).await;
    world.endpoint(&account, &hook.url("/")).await;
    let event = world.event(&account, "e0", "1").await;
    world.until(&delivery(&event), "dead").await;
    for n in 1..=3 {
        world.event(&account, &format!("e{n}"), "1").await;
    }
    let mut tells = teller(&world, channel(crab.port));
    assert_eq!(tells.tell_due().await.unwrap(), None);
    let mail = crab.next().await;
    assert_eq!(mail["subject"], "127.0.0.1 was disabled");
    let words = text(&mail["text"]);
    for part in
        ["it answered 410", "1 event could not be delivered", "e0 (payment.settled)", "3 events wait for it"]
    {
        assert!(words.contains(part), "{part}: {words}");
    }
    assert_eq!(crab.so_far().len(), 0);

    let hook = Hook::scripted(vec![answer(500, "", "")]).await;
    let account = owned(&world).await;
    world.endpoint(&account, &hook.url("/")).await;
    let failing = delivery(&world.event(&account, "f0", "1").await);
    for (n, secs) in [0, 67, 340, 2_000, 8_000].into_iter().enumerate() {
        world.advance_secs(secs).await;
        world.until_tried(&failing, n as u64 + 1).await;
        tells.tell_due().await.unwrap();
    }
    let mail = crab.next().await;
    assert!(text(&mail["subject"]).starts_with("127.0.0.1 has been failing for 2 h"), "{mail}");
    assert_eq!(crab.so_far().len(), 0, "once");
}

/// Without an e-mail address, and without a channel, it is said that nobody was told.
#[tokio::test(flavor = "multi_thread")]
async fn c118_who_cannot_be_told_is_shown() {
    let world = World::new().await;
    let crab = Crab::start().await;
    let hook = Hook::scripted(vec![gone()]).await;
    let account = world.account().await;
    world.endpoint(&account, &hook.url("/")).await;
    let ways = [
        (channel(crab.port), "the account names no e-mail address"),
        (Channel::Log, "was not told: this server has no way to"),
    ];
    for (n, (channel, words)) in ways.into_iter().enumerate() {
        let event = world.event(&account, &format!("e{n}"), "1").await;
        world.until(&delivery(&event), "dead").await;
        world.advance(BUNDLE_FOR).await;
        assert_eq!(teller(&world, channel).tell_due().await.unwrap(), None);
        let said = world.get(&format!("/v1/explain/{}", delivery(&event))).await.ok(200).to_string();
        assert!(said.contains(words), "{said}");
    }
}

/// The notifications service gets the same message, signed as webhooks are; what it refuses is recorded, what it cannot
/// take now is asked again.
#[tokio::test(flavor = "multi_thread")]
async fn c118_the_notifications_service_is_asked_until_it_answers() {
    let world = World::new().await;
    let mut service = Hook::scripted(vec![
        answer(503, "", ""),
        answer(404, "", ""),
        answer(202, "", ""),
        answer(422, "", ""),
    ])
    .await;
    let hook = Hook::scripted(vec![gone()]).await;
    let account = owned(&world).await;
    world.endpoint(&account, &hook.url("/")).await;
    let event = world.event(&account, "e0", "1").await;
    world.until(&delivery(&event), "dead").await;
    let key = hooklog::delivery::Key::parse(SECRET).expect("a key");
    let way = Channel::Service { url: service.url("/messages"), key: Some(key) };
    let mut tells = teller(&world, way.clone());
    assert_eq!(tells.tell_due().await.unwrap(), Some(BUNDLE_FOR));
    world.advance(BUNDLE_FOR).await;
    assert_eq!(tells.tell_due().await.unwrap(), Some(Millis(5_000)));
    world.advance_secs(5).await;
    assert_eq!(tells.tell_due().await.unwrap(), Some(Millis(10_000)));
    world.advance_secs(10).await;
    assert_eq!(tells.tell_due().await.unwrap(), None);
    let requests = service.take(3).await;
    for request in &requests {
        assert_eq!(request.body(), requests[0].body());
        assert_eq!(request.values("webhook-id"), requests[0].values("webhook-id"));
        support::case::standard(request, SECRET);
    }
    let message: Value = serde_json::from_slice(requests[0].body()).expect("JSON");
    assert_eq!((&message["type"], &message["count"]), (&json!("webhook.deliveries_dead"), &json!(1)));
    assert_eq!(
        (&message["owner_email"], &message["deliveries"][0]["event_id"]),
        (&json!(OWNER), &json!("e0"))
    );
    // And one that it never takes.
    let event = world.event(&account, "e1", "1").await;
    world.until(&delivery(&event), "dead").await;
    world.advance(BUNDLE_FOR).await;
    assert_eq!(tells.tell_due().await.unwrap(), None);
    let said = world.get(&format!("/v1/explain/{}", deliveries(&event)[0])).await.ok(200).to_string();
    assert!(said.contains("the notifications service answered 422"), "{said}");
}

/// What a customer or a producer named cannot write a header field, an element or a link. The API refuses most of these
/// names; a log from elsewhere may hold them.
#[tokio::test(flavor = "multi_thread")]
async fn c119_hostile_names_inject_nothing() {
    let world = World::new().await;
    let mut peer = Peer::start(|_, _| Do::Well).await;
    let hook = Hook::scripted(vec![gone()]).await;
    let long = "x".repeat(5_000);
    let names = [
        "x\r\nBcc: a@evil.test",
        "x\nSubject: y",
        "<img src=http://evil.test/x>",
        "A & B <unclosed",
        "{{7*7}}",
        &long,
        "emoji 🚀",
        "right\u{202e}left",
    ];
    for (n, name) in names.iter().enumerate() {
        let account = owned(&world).await;
        let settings = AccountSettings {
            name: (*name).into(),
            owner_email: Some(OWNER.into()),
            schedule: None,
            response_policy: None,
            webhook_retries: Rollout::On,
        };
        let change = Command::ChangeAccount { account: account.parse().expect("an id"), settings };
        world.store().handle().ask(Actor::Cli, change).await.expect("it is there");
        world.endpoint(&account, &hook.url("/<b>")).await;
        let event = world.event(&account, &format!("e{n}"), "1").await;
        world.until(&delivery(&event), "dead").await;
        world.advance(BUNDLE_FOR).await;
        assert_eq!(teller(&world, channel(peer.address.port())).tell_due().await.unwrap(), None);
        let letter = peer.next().await;
        assert_eq!(letter.to, [format!("RCPT TO:<{OWNER}>")]);
        for (field, count) in
            [("to", 1), ("subject", 1), ("from", 1), ("message-id", 1), ("bcc", 0), ("cc", 0)]
        {
            assert_eq!(letter.field(field).len(), count, "{field}: {}", letter.data);
        }
        assert_eq!(letter.field("to"), [OWNER]);
        assert_eq!(letter.field("subject"), ["1 event could not be delivered to 127.0.0.1"]);
        assert!(
            letter.data.is_ascii() && letter.data.lines().all(|line| line.len() <= 998),
            "{}",
            letter.data
        );
    }
    // The same name read by somebody else's parser.
    let mut crab = Crab::start().await;
    let account = owned(&world).await;
    world.patch(&format!("/v1/accounts/{account}"), json!({ "name": "<b>Zoë & Söhne</b> 🚀" })).await.ok(200);
    world.endpoint(&account, &hook.url("/")).await;
    let event = world.event(&account, "last", "1").await;
    world.until(&delivery(&event), "dead").await;
    world.advance(BUNDLE_FOR).await;
    teller(&world, channel(crab.port)).tell_due().await.unwrap();
    let mail = crab.next().await;
    assert!(text(&mail["text"]).contains("<b>Zoë & Söhne</b> 🚀"), "{mail}");
    assert!(text(&mail["html"]).contains("&lt;b&gt;Zoë &amp; Söhne&lt;/b&gt; 🚀"), "{mail}");
    assert_eq!(header(&mail, "auto-submitted"), "auto-generated");
    assert_eq!(mail["parse_warnings"], json!([]));
}
