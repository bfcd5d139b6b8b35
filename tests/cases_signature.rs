//! Cases of the area *signature*, and the life of secrets (rules W1 to W19): cut, brought, rotated, retired,
//! shown, sealed anew.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;

use hooklog::clock::{ManualClock, SystemClock};
use hooklog::engine::{Command, ServerPolicy, StartError};
use hooklog::store::{self, MasterKeySource, Options, Store};
use hooklog_projections::fact::{AccountSettings, Actor, Sealed};
use hooklog_projections::ids::{AccountId, EndpointKey, Seq};
use hooklog_projections::policy::{Jitter, Rollout, Schedule};
use hooklog_projections::time::{Millis, Timestamp};
use serde_json::{Value, json};
use support::case::{
    Hook, LONG, SECOND, SECRET, Setup, VECTORS_AT, World, delivery, moment, signatures, signed_with,
    standard, text,
};
use support::judge::ledger;
use support::receiver::{Received, Step, answer, raw};

const P0_DATA: &str = r#"{"amount":12900,"currency":"EUR"}"#;
const HOUR: u64 = 3_600;

/// Tries at 0, 30 and 90 minutes, to the second.
fn half_an_hour_then_one() -> Setup {
    let waits = vec![Millis::from_secs(HOUR / 2), Millis::from_secs(HOUR)];
    let jitter = Jitter { minus_percent: 0, plus_percent: 0 };
    let schedule = Schedule::Custom { waits, jitter };
    Setup { policy: ServerPolicy { schedule, ..ServerPolicy::default() }, ..Setup::default() }
}

/// Cuts a new key; its text.
async fn rotate(world: &World, endpoint: &str, members: Value) -> String {
    let rotated = world.post(&format!("/v1/endpoints/{endpoint}/secret/rotate"), members).await.ok(200);
    let secret = text(&rotated["signing_secret"]);
    world.keep_secret(&secret);
    secret
}

/// The live keys of an endpoint, newest first, as they are revealed.
async fn revealed(world: &World, endpoint: &str) -> Vec<(String, String, Option<Timestamp>)> {
    let keys = world.get(&format!("/v1/endpoints/{endpoint}/secret")).await.ok(200);
    let keys = keys["keys"].as_array().expect("a list").clone();
    let end = |key: &Value| (!key["expires_at"].is_null()).then(|| moment(&key["expires_at"]));
    keys.iter().map(|key| (text(&key["id"]), text(&key["secret"]), end(key))).collect()
}

fn secrets(keys: &[(String, String, Option<Timestamp>)]) -> Vec<&str> {
    keys.iter().map(|(_, secret, _)| secret.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn c11_the_key_is_the_bytes_behind_the_prefix_and_the_text_for_the_ledger() {
    let world = World::new().await;
    let mut hook = Hook::scripted(vec![answer(200, "", "")]).await;
    let account = world.account().await;
    let endpoint = world.endpoint(&account, &hook.url("/")).await;
    let event = world.event(&account, "evt_01", P0_DATA).await;
    let request = hook.next().await;
    assert_eq!(signatures(&request), ["v1,LDEJXlK+18krDwqNnoFzD7N4LoRHBRvU0n2XG0/VCcA="]);
    assert_eq!(
        request.values("x-ledger-signature"),
        ["sha256=9d6dd35e8f3de86b95fe986554ade746f9c2309c86312cd71d1aefdd708f8e94"]
    );
    world.until(&delivery(&event), "delivered").await;

    // Rule W5. The case says 400 for these; a member that does not fit is 422 in this API.
    let too_short = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRY=";
    let too_long = format!("whsec_{}A=", "A".repeat(86));
    for secret in [
        "whsec_!!!!",
        "whsec_AAAA",
        "whsec_",
        "",
        "x",
        "v1,whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        "whsec_-_ECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        too_short,
        too_long.as_str(),
    ] {
        let url = hook.url("/");
        let create = json!({ "account_id": account, "url": url, "signing_secret": secret });
        let wanted = ["invalid", "/signing_secret bad-secret"];
        assert_eq!(world.post("/v1/endpoints", create).await.refused(422), wanted, "{secret}");
        let path = format!("/v1/endpoints/{endpoint}/secret/rotate");
        let rotate = json!({ "signing_secret": secret });
        assert_eq!(world.post(&path, rotate).await.refused(422), wanted, "{secret}");
    }
    // The ledger's key is any text that nobody guesses: it is used as it is shown.
    for secret in ["x", "fifteen letters", "a\u{0}bcdefghijklmnop", &"x".repeat(257)] {
        let create = json!({ "name": "B", "secret": secret });
        assert_eq!(world.post("/v1/accounts", create).await.status.as_u16(), 422, "{secret}");
        let path = format!("/v1/accounts/{account}/secret/rotate");
        assert_eq!(world.post(&path, json!({ "secret": secret })).await.status.as_u16(), 422, "{secret}");
    }
    // The same key again is no rotation.
    let path = format!("/v1/endpoints/{endpoint}/secret/rotate");
    let same = world.post(&path, json!({ "signing_secret": SECRET })).await;
    assert_eq!(same.refused(422), ["invalid", "/signing_secret in-use"]);
    let same =
        world.post(&format!("/v1/accounts/{account}/secret/rotate"), json!({ "secret": SECRET })).await;
    assert_eq!(same.refused(422), ["invalid", "/secret in-use"]);
    // 24 and 64 bytes are the bounds.
    for (bytes, secret) in
        [(24, format!("whsec_{}", "AQEB".repeat(8))), (64, format!("whsec_{}AQ==", "AQEB".repeat(21)))]
    {
        let made = world.endpoint_of(&account, &hook.url("/"), json!({ "signing_secret": secret })).await;
        assert_eq!(secrets(&revealed(&world, &made).await), [secret], "{bytes} bytes");
    }
    world.always_true(&mut [&mut hook]).await;
}

/// A test event is a plain event to one endpoint here (`endpoint_id`). A replay says so in one more header
/// (design §3: `webhook-replay` carries the run).
#[tokio::test(flavor = "multi_thread")]
async fn c13_every_attempt_carries_the_same_headers() {
    let world = World::new().await;
    // Broken off once before the answer's head, and once after it.
    let cut = raw("HTTP/1.1 503 X\r\ncontent-length: 100\r\n\r\nhalf");
    let script = vec![
        answer(503, "connection: close\r\n", ""),
        vec![Step::Reset],
        vec![cut, Step::Reset],
        answer(200, "connection: close\r\n", ""),
    ];
    let mut hook = Hook::scripted(script).await;
    let account = world.account().await;
    let endpoint = world.endpoint(&account, &hook.url("/")).await;
    let event = world.event(&account, "evt_01", P0_DATA).await;
    let id = delivery(&event);
    for (tried, wait) in [(1, 67), (2, 331), (3, 1981)] {
        world.until_tried(&id, tried).await;
        world.advance_secs(wait).await;
    }
    world.until(&id, "delivered").await;
    let ended: Vec<_> = world
        .attempts(&id)
        .await
        .iter()
        .map(|a| (a["status_code"].as_u64(), a["error"].as_str().map(str::to_owned)))
        .collect();
    let closed = (None, Some("closed".to_owned()));
    assert_eq!(ended, [(Some(503), None), closed, (Some(503), None), (Some(200), None)]);
    world.post("/v1/events/evt_01/replay", json!({ "scope": "all", "confirm": true })).await.ok(202);
    world.until_tried(&id, 5).await;
    let sent = world.post(&format!("/v1/endpoints/{endpoint}/test"), json!({})).await.ok(202);
    world.until(&delivery(&sent), "delivered").await;

    let requests = hook.take(6).await;
    let (replay, test) = (&requests[4], &requests[5]);
    let names = |request: &Received| -> Vec<String> {
        let all = request.headers().into_iter().map(|(name, _)| name.to_ascii_lowercase());
        all.filter(|name| name != "webhook-replay").collect()
    };
    // The same names in the same order, each once; a replay says that it is one on top (design §3).
    let first = names(&requests[0]);
    let wanted = [
        "content-type",
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
        "x-ledger-signature",
        "idempotency-key",
        "user-agent",
        "host",
        "content-length",
    ];
    let mut sorted = first.clone();
    sorted.sort();
    sorted.dedup();
    assert_eq!(sorted.len(), first.len(), "{first:?}");
    assert!(wanted.iter().all(|name| first.iter().any(|known| known == name)), "{first:?}");
    for request in &requests {
        assert_eq!(names(request), first);
        signed_with(request, &[SECRET], SECRET);
        assert_eq!(request.values("idempotency-key"), request.values("webhook-id"));
        assert_eq!(request.values("content-type"), ["application/json"]);
        let replays = request.values("webhook-replay");
        assert_eq!(replays.is_empty(), request.number != replay.number, "{replays:?}");
    }
    for request in &requests[..5] {
        assert_eq!(request.values("webhook-id"), ["evt_01"]);
        assert_eq!(request.body(), requests[0].body());
    }
    assert_eq!(test.values("webhook-id"), [text(&sent["id"])]);
    let at = |request: &Received| request.values("webhook-timestamp")[0].parse::<u64>().expect("a number");
    assert!(
        requests[..4].windows(2).all(|pair| at(&pair[0]) < at(&pair[1])),
        "each is signed when it leaves"
    );
    world.always_true(&mut [&mut hook]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c14_the_timestamp_is_the_second_of_this_attempt() {
    for start in [VECTORS_AT, Timestamp(4_102_444_800_000)] {
        let world = World::with(Setup { clock: Some(ManualClock::at(start)), ..Setup::default() });
        let mut hook = Hook::scripted(vec![answer(200, "", "")]).await;
        let account = world.account().await;
        let endpoint = world.endpoint(&account, &hook.url("/")).await;
        let path = format!("/v1/endpoints/{endpoint}");
        world.post(&format!("{path}/pause"), json!({})).await.ok(200);
        let earlier = start.0 / 1000 - 3 * HOUR;
        let event = world.event(&account, "evt_01", &format!(r#"{{"timestamp":{earlier}}}"#)).await;
        // It waits in our own queue, for longer than any verifier's tolerance (rule W2).
        world.advance_secs(600).await;
        world.post(&format!("{path}/resume"), json!({})).await.ok(200);
        let request = hook.next().await;
        assert_eq!(request.values("webhook-timestamp"), [(start.0 / 1000 + 600).to_string()]);
        signed_with(&request, &[SECRET], SECRET);
        world.until(&delivery(&event), "delivered").await;
        world.always_true(&mut [&mut hook]).await;
    }
}

/// The same by the machine's clock, with a process that believes to be in Kolkata.
#[tokio::test(flavor = "multi_thread")]
async fn c14_no_time_zone_moves_the_timestamp() {
    let mut hook = Hook::scripted(vec![answer(200, "", "")]).await;
    let folder = tempfile::tempdir().expect("a folder");
    let run = async |args: &[&str]| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_hooklog"));
        command.args(args).arg("--json").arg("--store").arg(folder.path()).env_clear();
        command
            .env("TZ", "Asia/Kolkata")
            .env("HOOKLOG_ALLOW_HTTP", "true")
            .env("HOOKLOG_ALLOW", "127.0.0.0/8");
        let output = command.output().await.expect("it runs");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_hooklog"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--allow-http", "--allow", "127.0.0.0/8", "--store"]);
    command.arg(folder.path()).env_clear().env("TZ", "Asia/Kolkata").kill_on_drop(true);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
    let mut server = command.spawn().expect("it runs");
    let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(
        server.stdout.take().expect("it is piped"),
    ));
    tokio::time::timeout(LONG, lines.next_line()).await.expect("in time").expect("a line");
    let made = |bytes: &[u8]| -> Value { serde_json::from_slice(bytes).expect("JSON") };
    let account = text(&made(&run(&["accounts", "create", "Acme"]).await)["id"]);
    let endpoint = made(&run(&["endpoints", "create", "--account", &account, &hook.url("/")]).await);
    let before = hooklog::clock::Clock::now(&*SystemClock::start()).0 / 1000;
    run(&["send", "--account", &account, "--type", "a.b", "--data", "{}"]).await;
    let request = hook.next().await;
    let [at] = request.values("webhook-timestamp")[..] else { panic!("one timestamp: {request:?}") };
    assert!(at.len() == 10 && at.bytes().all(|byte| byte.is_ascii_digit()), "{at}");
    assert!(at.parse::<u64>().expect("a number").abs_diff(before) <= 60, "{at} at {before}");
    assert_eq!(signatures(&request), [standard(&request, &text(&endpoint["signing_secret"]))]);
    server.kill().await.expect("it ends");
}

/// Rules W8, W9, W10 and W19. The overlap is counted in hours here; the ledger's header holds one value, made
/// with the newest secret of the account.
#[tokio::test(flavor = "multi_thread")]
async fn c16_both_keys_sign_during_the_overlap_and_only_the_new_one_after_it() {
    let world = World::with(half_an_hour_then_one());
    let mut hook = Hook::answering(|request| match request.values("webhook-id")[..] {
        ["before"] => answer(500, "", ""),
        _ => answer(200, "", ""),
    })
    .await;
    let account = world.account().await;
    let endpoint = world.endpoint(&account, &hook.url("/")).await;
    let before = world.event(&account, "before", P0_DATA).await;
    signed_with(&hook.next().await, &[SECRET], SECRET);
    world.until_tried(&delivery(&before), 1).await;

    // At 10 minutes: an hour of overlap, until minute 70.
    world.advance_secs(600).await;
    let began = world.now();
    let brought = json!({ "overlap_hours": 1, "signing_secret": SECOND });
    assert_eq!(rotate(&world, &endpoint, brought).await, SECOND);
    world.advance_secs(1).await;
    world.event(&account, "during", P0_DATA).await;
    let during = hook.next().await;
    signed_with(&during, &[SECOND, SECRET], SECRET);
    let [one, two] = signatures(&during).try_into().expect("two");
    assert_eq!(during.values("webhook-signature"), [format!("{one} {two}")]);
    let keys = revealed(&world, &endpoint).await;
    assert_eq!(secrets(&keys), [SECOND, SECRET]);
    assert_eq!((keys[0].2, keys[1].2), (None, Some(began + Millis::from_secs(HOUR))));

    // The retry at 30 minutes is signed with the keys that are live then, not those of its first attempt.
    world.advance_secs(1_199).await;
    let retry = hook.next().await;
    assert_eq!(retry.values("webhook-id"), ["before"]);
    signed_with(&retry, &[SECOND, SECRET], SECRET);
    world.until_tried(&delivery(&before), 2).await;

    // To the last second both, and from then on only the new one.
    let end = began + Millis::from_secs(HOUR) - Millis(1);
    world.advance(end.since(world.now())).await;
    world.event(&account, "last", P0_DATA).await;
    signed_with(&hook.next().await, &[SECOND, SECRET], SECRET);
    world.advance(Millis(1)).await;
    world.event(&account, "after", P0_DATA).await;
    signed_with(&hook.next().await, &[SECOND], SECRET);
    assert_eq!(secrets(&revealed(&world, &endpoint).await), [SECOND]);
    // The retry at 90 minutes too.
    world.advance_secs(1_200).await;
    let retry = hook.next().await;
    assert_eq!(retry.values("webhook-id"), ["before"]);
    signed_with(&retry, &[SECOND], SECRET);
    world.until_tried(&delivery(&before), 3).await;

    // The account's own secret changes at once, for what is tried again as well (rule W19).
    let path = format!("/v1/accounts/{account}/secret");
    let rotated = world.post(&format!("{path}/rotate"), json!({})).await.ok(200);
    let newest = text(&rotated["secret"]);
    world.keep_secret(&newest);
    assert!(newest.starts_with("whsec_") && newest != SECRET);
    assert_eq!(world.get(&path).await.ok(200)["secret"], newest);
    world.post("/v1/events/before/replay", json!({})).await.ok(202);
    signed_with(&hook.next().await, &[SECOND], &newest);
    assert_eq!(world.get(&format!("/v1/accounts/{account}")).await.ok(200).get("secret"), None);
    world.until_tried(&delivery(&before), 4).await;
    world.always_true(&mut [&mut hook]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn c17_each_rotation_counts_its_own_overlap() {
    let world = World::new().await;
    let mut hook = Hook::scripted(vec![answer(200, "", "")]).await;
    let account = world.account().await;
    let endpoint = world.endpoint(&account, &hook.url("/")).await;
    rotate(&world, &endpoint, json!({ "overlap_hours": 1, "signing_secret": SECOND })).await;
    world.advance_secs(10 * HOUR).await;
    let third = rotate(&world, &endpoint, json!({})).await;
    let keys = revealed(&world, &endpoint).await;
    assert_eq!(secrets(&keys), [third.as_str(), SECOND]);
    assert_eq!(keys[1].2, Some(world.now() + Millis::from_secs(24 * HOUR)), "the default, from now on");
    world.event(&account, "one", P0_DATA).await;
    signed_with(&hook.next().await, &[&third, SECOND], SECRET);

    // Again and again within one overlap: at most three keys sign, the newest ones, in one short header.
    let mut newest = vec![third];
    for _ in 0..3 {
        newest.insert(0, rotate(&world, &endpoint, json!({})).await);
    }
    let keys: Vec<&str> = newest.iter().take(3).map(String::as_str).collect();
    world.event(&account, "two", P0_DATA).await;
    let request = hook.next().await;
    signed_with(&request, &keys, SECRET);
    assert!(request.values("webhook-signature")[0].len() < 1024);

    // No rotation gives an older key more time than it had, and one without an overlap takes all of it.
    let ends: Vec<_> = revealed(&world, &endpoint).await.into_iter().map(|(_, _, end)| end).collect();
    let week = rotate(&world, &endpoint, json!({ "overlap_hours": 168 })).await;
    let keys = revealed(&world, &endpoint).await;
    assert_eq!(keys[2].2, ends[1]);
    assert_eq!(keys[1].2, Some(world.now() + Millis::from_secs(168 * HOUR)));
    let last = rotate(&world, &endpoint, json!({ "overlap_hours": 0 })).await;
    assert_eq!(secrets(&revealed(&world, &endpoint).await), [last.as_str()]);
    assert_ne!(week, last);
    world.event(&account, "three", P0_DATA).await;
    signed_with(&hook.next().await, &[&last], SECRET);
    for hours in [json!(169), json!(-1), json!(1.5), json!("1")] {
        let path = format!("/v1/endpoints/{endpoint}/secret/rotate");
        assert_eq!(
            world.post(&path, json!({ "overlap_hours": hours })).await.status.as_u16(),
            422,
            "{hours}"
        );
    }
    world.always_true(&mut [&mut hook]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_key_is_retired_and_the_newest_is_not() {
    let world = World::new().await;
    let mut hook = Hook::scripted(vec![answer(200, "", "")]).await;
    let account = world.account().await;
    let endpoint = world.endpoint(&account, &hook.url("/")).await;
    let path = format!("/v1/endpoints/{endpoint}");
    rotate(&world, &endpoint, json!({ "signing_secret": SECOND })).await;
    let keys = revealed(&world, &endpoint).await;
    let retire = async |id: &str| world.post(&format!("{path}/secret/retire"), json!({ "key_id": id })).await;
    assert_eq!(retire(&keys[0].0).await.refused(409), ["newest-key"]);
    assert_eq!(retire("key_00000000000000000000000000").await.refused(404), ["not-found"]);
    assert_eq!(retire("rubbish").await.refused(422), ["invalid", "/key_id bad-id"]);
    let left = retire(&keys[1].0).await.ok(200);
    assert_eq!(left["keys"], json!([{ "id": keys[0].0, "expires_at": null }]));
    assert_eq!(retire(&keys[1].0).await.refused(404), ["not-found"]);
    world.event(&account, "one", P0_DATA).await;
    signed_with(&hook.next().await, &[SECOND], SECRET);
    // None of this is a change of the endpoint's settings: what was read before can still be changed.
    let shown = world.get(&path).await;
    assert_eq!(
        (&shown.headers["etag"], &shown.ok(200)["version"]),
        (&"\"1\"".parse().expect("a value"), &json!(1))
    );
    assert!(!String::from_utf8_lossy(&shown.body).contains("whsec_"));
    // A change of the settings keeps the keys.
    world.patch(&path, json!({ "description": "production" })).await.ok(200);
    assert_eq!(secrets(&revealed(&world, &endpoint).await), [SECOND]);
    let audit = world.get(&format!("/v1/audit?account_id={account}")).await.ok(200);
    let shown =
        |entry: &&Value| entry["fact"] == "SecretRevealed" && entry["endpoint_id"] == endpoint.as_str();
    assert_eq!(audit["data"].as_array().expect("a list").iter().filter(shown).count(), 2, "{audit}");
    world.always_true(&mut [&mut hook]).await;
}

/// Rules W11, W12 and W18.
#[tokio::test(flavor = "multi_thread")]
async fn keys_are_an_endpoints_own_and_never_go_to_another_host() {
    let world = World::new().await;
    let (mut old, mut new) =
        (Hook::scripted(vec![answer(200, "", "")]).await, Hook::scripted(vec![answer(200, "", "")]).await);
    let account = world.account().await;
    let headers = json!({ "signing_secret": SECRET, "headers": { "Authorization": "Bearer t0ken-of-old" } });
    let moving = world.endpoint_of(&account, &old.url("/a"), headers).await;
    let other = world.endpoint_of(&account, &old.url("/b"), json!({})).await;
    world.keep_secret("t0ken-of-old");
    world.event(&account, "one", P0_DATA).await;
    let mut both = old.take(2).await;
    both.sort_by_key(|request| request.line().to_owned());
    assert_ne!(signatures(&both[0]), signatures(&both[1]), "two endpoints, two keys (W11)");
    assert_eq!(both[0].values("authorization"), ["Bearer t0ken-of-old"]);
    assert_eq!(both[1].values("authorization"), [""; 0]);
    // One text as key of both schemes gives different signatures, for the key bytes differ (W17, W18).
    use base64::Engine as _;
    let [one] = signatures(&both[0]).try_into().expect("one");
    let bytes = base64::engine::general_purpose::STANDARD.decode(&one[3..]).expect("base64");
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let at = both[0].values("webhook-timestamp")[0];
    let dotted = [format!("one.{at}.").as_bytes(), both[0].body()].concat();
    assert_ne!(ledger(SECRET, &dotted), format!("sha256={hex}"));

    // Even an older key that was still to sign goes when the endpoint moves to another port, host or scheme.
    rotate(&world, &moving, json!({ "signing_secret": SECOND })).await;
    let path = format!("/v1/endpoints/{moving}");
    let moved = world.patch(&path, json!({ "url": new.url("/a") })).await.ok(200);
    let cut = text(&moved["signing_secret"]);
    world.keep_secret(&cut);
    assert_eq!(secrets(&revealed(&world, &moving).await), [cut.as_str()]);
    world.event_with(&account, "two", P0_DATA, &format!(r#","endpoint_id":"{moving}""#)).await;
    let request = new.next().await;
    signed_with(&request, &[&cut], SECRET);
    assert_eq!(request.values("authorization"), [""; 0]);
    let again =
        world.patch(&path, json!({ "url": new.url("/a").replace("127.0.0.1", "localhost") })).await.ok(200);
    assert!(text(&again["signing_secret"]) != cut);
    let same =
        world.patch(&path, json!({ "url": new.url("/c").replace("127.0.0.1", "localhost") })).await.ok(200);
    assert_eq!(same.get("signing_secret"), None, "the same host keeps its key");

    // Of another account's endpoint nobody hears anything.
    let theirs = world.account().await;
    for path in ["secret", "secret/rotate", "secret/retire", "ledger-secret/rotate"] {
        let path = format!("/v1/endpoints/{other}/{path}?account_id={theirs}");
        let reply = match path.contains("rotate") || path.contains("retire") {
            true => world.post(&path, json!({})).await,
            false => world.get(&path).await,
        };
        assert_eq!(reply.refused(404), ["not-found"], "{path}");
    }
    world.always_true(&mut [&mut old, &mut new]).await;
}

/// Rule W19, as design §4 has it: an endpoint may have a webhook secret of its own in place of its account's, so
/// that a receiver goes on with the old one while the account's is rotated.
#[tokio::test(flavor = "multi_thread")]
async fn w19_an_endpoint_may_sign_with_a_secret_of_its_own() {
    const OWN: &str = "the text that the receiver knows";
    let mut world = World::new().await;
    let (mut hook, mut elsewhere) =
        (Hook::scripted(vec![answer(200, "", "")]).await, Hook::scripted(vec![answer(200, "", "")]).await);
    let account = world.account().await;
    let own = json!({ "signing_secret": SECRET, "ledger_secret": OWN });
    let endpoint = world.endpoint_of(&account, &hook.url("/"), own).await;
    world.keep_secret(OWN);
    let path = format!("/v1/endpoints/{endpoint}");
    let (secret, rotate_own) = (format!("{path}/secret"), format!("{path}/ledger-secret/rotate"));
    let shown = world.get(&path).await.ok(200);
    assert_eq!((&shown["own_ledger_secret"], &shown["version"]), (&json!(true), &json!(1)));
    assert!(!shown.to_string().contains(OWN));
    world.event(&account, "one", P0_DATA).await;
    signed_with(&hook.next().await, &[SECRET], OWN);
    // The account's new secret is for the others.
    world.post(&format!("/v1/accounts/{account}/secret/rotate"), json!({ "secret": SECOND })).await.ok(200);
    world.restart().await;
    assert_eq!(world.get(&secret).await.ok(200)["ledger_secret"], OWN);
    world.event(&account, "two", P0_DATA).await;
    signed_with(&hook.next().await, &[SECRET], OWN);

    // Rotated to one that is drawn; the same again is refused; the settings' version stays.
    let drawn = text(&world.post(&rotate_own, json!({})).await.ok(200)["ledger_secret"]);
    world.keep_secret(&drawn);
    let again = world.post(&rotate_own, json!({ "ledger_secret": drawn })).await.refused(422);
    assert_eq!(again, ["invalid", "/ledger_secret in-use"]);
    world.event(&account, "three", P0_DATA).await;
    signed_with(&hook.next().await, &[SECRET], &drawn);
    assert_eq!(world.get(&path).await.ok(200)["version"], 1);
    for (bad, code) in [(json!("short"), "length"), (json!(5), "wrong-type")] {
        let refused = world.patch(&path, json!({ "ledger_secret": bad })).await.refused(422);
        assert_eq!(refused, ["invalid".to_owned(), format!("/ledger_secret {code}")]);
    }

    // Another host hears nothing of it, unless it is sent again.
    let moved = world.patch(&path, json!({ "url": elsewhere.url("/") })).await.ok(200);
    let cut = text(&moved["signing_secret"]);
    world.keep_secret(&cut);
    assert_eq!(moved["own_ledger_secret"], false);
    world.event(&account, "four", P0_DATA).await;
    signed_with(&elsewhere.next().await, &[&cut], SECOND);
    let back = world.patch(&path, json!({ "url": hook.url("/"), "ledger_secret": OWN })).await.ok(200);
    let cut = text(&back["signing_secret"]);
    world.keep_secret(&cut);
    world.event(&account, "five", P0_DATA).await;
    signed_with(&hook.next().await, &[&cut], OWN);

    // Sealed anew with all the others; given up, the account's signs again.
    world.stop().await;
    let folder = world.folder.path().to_owned();
    let other = folder.join("other.key");
    store::reseal(&options(&folder, "master.key"), &other, &*ManualClock::at(VECTORS_AT), &mut |_| {})
        .expect("sealed anew");
    std::fs::rename(&other, folder.join("master.key")).expect("moved");
    world.resume();
    assert_eq!(world.get(&secret).await.ok(200)["ledger_secret"], OWN);
    world.patch(&path, json!({ "ledger_secret": null })).await.ok(200);
    assert_eq!(world.get(&secret).await.ok(200).get("ledger_secret"), None);
    let last = world.event(&account, "six", P0_DATA).await;
    signed_with(&hook.next().await, &[&cut], SECOND);
    world.until(&delivery(&last), "delivered").await;
    world.always_true(&mut [&mut hook, &mut elsewhere]).await;
}

/// The case says 400 for an id that does not fit; a member that does not fit is 422 in this API, a parameter 400.
#[tokio::test(flavor = "multi_thread")]
async fn c19_an_id_that_would_make_the_signed_text_ambiguous_is_refused() {
    let world = World::new().await;
    let mut hook = Hook::scripted(vec![answer(200, "", "")]).await;
    let account = world.account().await;
    world.endpoint(&account, &hook.url("/")).await;
    let long = "x".repeat(300);
    for id in
        ["evt.1700000000.x", "evt 1", "evt,1", "évt", "evt\r\nX-A: b", "", long.as_str(), &"x".repeat(65)]
    {
        let body = json!({ "account_id": account, "id": id, "type": "a.b", "data": 1 });
        assert_eq!(world.post("/v1/events", body).await.refused(422), ["invalid", "/id bad-id"], "{id:?}");
        let escaped: String = url::form_urlencoded::byte_serialize(id.as_bytes()).collect();
        assert_eq!(
            world.raw(&account, &escaped, "text/plain", "x").await.refused(400)[0],
            "bad-query",
            "{id:?}"
        );
    }
    let id = "evt_01-ok~";
    let event = world.event(&account, id, "1").await;
    let request = hook.next().await;
    assert_eq!(request.values("webhook-id"), [id]);
    assert_eq!(request.values("idempotency-key"), [id]);
    world.until(&delivery(&event), "delivered").await;
    assert_eq!(world.get("/v1/status").await.ok(200)["deliveries"]["enqueued"], 1);
    world.always_true(&mut [&mut hook]).await;
}

/// As C19, 422 instead of 400.
#[tokio::test(flavor = "multi_thread")]
async fn c20_reserved_headers_are_refused_and_win_even_over_stored_ones() {
    let policy = ServerPolicy {
        signature_header: "X-Acme-Signature".parse().expect("a name"),
        ..ServerPolicy::default()
    };
    let world = World::with(Setup { policy, ..Setup::default() });
    let mut hook = Hook::scripted(vec![answer(200, "", "")]).await;
    let account = world.account().await;
    let endpoint = world.endpoint(&account, &hook.url("/")).await;
    let reserved = [
        "Webhook-Signature",
        "WEBHOOK-ID",
        "x-ledger-signature",
        "Idempotency-Key",
        "content-type",
        "Host",
        "Content-Length",
        "Transfer-Encoding",
        "Connection",
        "Expect",
        "x-acme-SIGNATURE",
    ];
    for name in reserved {
        let headers = json!({ "headers": { name: "x" } });
        let wanted = ["invalid".to_owned(), format!("/headers/{name} header-not-allowed")];
        assert_eq!(world.patch(&format!("/v1/endpoints/{endpoint}"), headers).await.refused(422), wanted);
    }
    // Written straight into the store, past the API.
    let (key, row) = {
        let view = world.store().handle().view();
        view.find_endpoint(endpoint.parse().expect("an id")).expect("readable").expect("there")
    };
    let key: EndpointKey = key;
    let mut settings = row.settings;
    settings.headers = reserved.iter().map(|name| ((*name).into(), "forged".into())).collect();
    settings.headers.push(("X-Fine".into(), "yes".into()));
    let change = Command::ChangeEndpoint { key, version: row.version, settings, new_key: None, secret: None };
    world.store().handle().ask(Actor::Cli, change).await.expect("taken");
    let event = world.event(&account, "evt_01", P0_DATA).await;
    let request = hook.next().await;
    assert_eq!(signatures(&request), [standard(&request, SECRET)]);
    assert_eq!(request.values("x-acme-signature"), [ledger(SECRET, request.body())]);
    assert_eq!(request.values("x-ledger-signature"), [""; 0], "it has the operator's name");
    assert_eq!(request.values("host"), [format!("127.0.0.1:{}", hook.port())]);
    assert_eq!(request.values("x-fine"), ["yes"]);
    let mut names: Vec<_> = request.headers().iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
    names.sort();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all, "each name once: {names:?}");
    assert!(!String::from_utf8_lossy(&request.bytes).contains("forged"));
    world.until(&delivery(&event), "delivered").await;
    world.always_true(&mut [&mut hook]).await;
}

fn options(folder: &Path, key: &str) -> Options {
    let setup = Setup::default();
    let master = MasterKeySource::File(folder.join(key));
    Options { guard: setup.guard, master, ..Options::new(folder) }
}

fn open(folder: &Path, key: &str) -> Result<Store, store::Error> {
    Store::open(options(folder, key), SystemClock::start(), false, &mut |_, _| {})
}

/// Every secret of a store is sealed under another master key, also if that is cut short in the middle.
#[tokio::test(flavor = "multi_thread")]
async fn a_store_is_sealed_anew_under_another_master_key() {
    const ACCOUNTS: u128 = 600;
    let mut world = World::new().await;
    let mut hook = Hook::scripted(vec![answer(200, "", "")]).await;
    let account = world.account().await;
    let endpoint = world.endpoint(&account, &hook.url("/")).await;
    rotate(&world, &endpoint, json!({ "signing_secret": SECOND })).await;
    let before = world.event(&account, "before", P0_DATA).await;
    signed_with(&hook.next().await, &[SECOND, SECRET], SECRET);
    world.until(&delivery(&before), "delivered").await;
    let asked = (1..=ACCOUNTS).map(|n| {
        let settings = AccountSettings {
            name: format!("Customer {n}").into(),
            owner_email: None,
            schedule: None,
            response_policy: None,
            webhook_retries: Rollout::Default,
        };
        let account = AccountId(n);
        let purpose = hooklog::secrets::Purpose::AccountSecret { account };
        let secret: Sealed =
            world.store().master().seal(&purpose, format!("secret of {n:>20}").as_bytes(), [n as u8; 24]);
        world.store().handle().ask(Actor::Cli, Command::CreateAccount { account, settings, secret })
    });
    futures::future::try_join_all(asked).await.expect("all are new");
    world.stop().await;
    let folder = world.folder.path().to_owned();
    let other = folder.join("other.key");
    let reseal = |progress: &mut dyn FnMut(Seq)| {
        store::reseal(&options(&folder, "master.key"), &other, &*ManualClock::at(VECTORS_AT), progress)
    };

    // The process dies after the first full batch: neither key opens the store, and both say why.
    let died = catch_unwind(AssertUnwindSafe(|| reseal(&mut |_| resume_unwind(Box::new(())))));
    died.expect_err("it died");
    for key in ["master.key", "other.key"] {
        let error = open(&folder, key).err().expect("half sealed");
        assert!(matches!(error, store::Error::Start(StartError::HalfResealed)), "{error}");
        assert!(error.to_string().contains("hooklog store reseal"), "{error}");
    }
    // A third key cannot end it.
    let third = folder.join("third.key");
    let wrong =
        store::reseal(&options(&folder, "master.key"), &third, &*ManualClock::at(VECTORS_AT), &mut |_| {});
    assert!(matches!(wrong, Err(store::Error::Start(StartError::MasterKey(_)))), "{wrong:?}");

    // The next run does the rest, and one more has nothing to do.
    let rest = reseal(&mut |_| {}).expect("sealed");
    assert!(rest > 0 && rest < ACCOUNTS as u64 + 2, "{rest} were left");
    assert_eq!(reseal(&mut |_| {}).expect("sealed already"), 0);
    let error = open(&folder, "master.key").err().expect("the old key");
    assert!(matches!(error, store::Error::Start(StartError::MasterKey(_))), "{error}");
    let report = store::check_stopped(&options(&folder, "other.key"), &mut |_, _, _| {}).expect("readable");
    assert!(report.clean(), "{:?}", report.findings);
    store::rebuild_stopped(&options(&folder, "other.key"), &mut |_, _| {}).expect("folded anew");

    // With the new key alone, in the old one's place, everything is as it was.
    std::fs::rename(&other, folder.join("master.key")).expect("moved");
    world.resume();
    for n in [1, ACCOUNTS / 2, ACCOUNTS] {
        let path = format!("/v1/accounts/{}/secret", AccountId(n));
        assert_eq!(world.get(&path).await.ok(200)["secret"], format!("secret of {n:>20}"));
    }
    assert_eq!(secrets(&revealed(&world, &endpoint).await), [SECOND, SECRET]);
    assert_eq!(world.get(&format!("/v1/endpoints/{endpoint}")).await.ok(200)["version"], 1);
    assert_eq!(world.delivery(&delivery(&before)).await["status"], "delivered", "ids are the same");
    let after = world.event(&account, "after", P0_DATA).await;
    signed_with(&hook.next().await, &[SECOND, SECRET], SECRET);
    world.until(&delivery(&after), "delivered").await;
    world.always_true(&mut [&mut hook]).await;
}
