//! The stream of facts: over a real server, from the outside, with readers that come back, stop reading, or are
//! one too many. Stands in for: a dashboard's page, `hooklog tail`.

#[path = "support/receiver.rs"]
mod receiver;
#[path = "support/server.rs"]
mod server;

use std::time::Duration;

use receiver::{Receiver, answer};
use serde_json::{Value, json};
use server::{Host, Server, text};

/// Long enough never to matter on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// A subscriber: what it has read, message by message.
struct Subscriber {
    response: reqwest::Response,
    text: String,
    last: Option<String>,
}

/// A message: its kind, its id, its data.
#[derive(Debug)]
struct Message {
    kind: String,
    id: String,
    data: Value,
}

impl Subscriber {
    async fn ask(server: &Server, query: &str, last: Option<&str>) -> reqwest::Response {
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let mut request = client.get(format!("http://{}/v1/stream{query}", server.address));
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        tokio::time::timeout(LONG, request.send()).await.expect("in time").expect("an answer")
    }

    async fn open(server: &Server, query: &str, last: Option<&str>) -> Subscriber {
        Subscriber::begin(Subscriber::ask(server, query, last).await).await
    }

    async fn begin(response: reqwest::Response) -> Subscriber {
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut subscriber = Subscriber { response, text: String::new(), last: None };
        // The first words say where it begins.
        let first = subscriber.block().await.expect("a beginning");
        assert!(first.starts_with("retry: ") && first.contains("\nid: "), "{first}");
        subscriber.last = first.split("id: ").nth(1).map(str::to_owned);
        subscriber
    }

    /// The next block of lines; `None` at the end.
    async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let block = block.to_owned();
                self.text = rest.to_owned();
                return Some(block);
            }
            let chunk = tokio::time::timeout(LONG, self.response.chunk()).await.expect("in time");
            self.text.push_str(std::str::from_utf8(&chunk.expect("whole")?).expect("text"));
        }
    }

    /// The next message; `None` at the end. Comments and bare places are passed over.
    async fn next(&mut self) -> Option<Message> {
        loop {
            let block = self.block().await?;
            let member = |name: &str| {
                let found = block.lines().find_map(|line| line.strip_prefix(name));
                found.map(str::to_owned).unwrap_or_default()
            };
            let (kind, id, data) = (member("event: "), member("id: "), member("data: "));
            self.last = Some(id.clone());
            if !data.is_empty() {
                let data = serde_json::from_str(&data).expect("JSON");
                return Some(Message { kind, id, data });
            }
        }
    }

    async fn fact(&mut self) -> Value {
        let message = self.next().await.expect("it goes on");
        assert_eq!(message.kind, "", "{message:?}");
        message.data
    }
}

fn names(facts: &[Value]) -> Vec<String> {
    facts.iter().map(|fact| text(&fact["fact"])).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_come_as_they_commit_and_are_filtered() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Host::new(folder.path()).start().await;
    let (account, _) = server.api.account().await;
    let (other, _) = server.api.account().await;
    let customer = Receiver::scripted(vec![answer(404, "", "no"), answer(200, "", "")]).await;
    let url = customer.url("/in?token=s3cret");
    let (endpoint, _) = server.api.endpoint(&account, &url, json!({})).await;

    let mut all = Subscriber::open(&server, "", None).await;
    let mut dead = Subscriber::open(&server, "?status=dead", None).await;
    let mut of_other = Subscriber::open(&server, &format!("?account_id={other}"), None).await;
    let mut refunds = Subscriber::open(&server, "?event_type=refund.*&fact=Delivered", None).await;

    server.api.event(&account, "one", "{}").await.expect("an answer");
    let mut facts = Vec::new();
    while facts.len() < 5 {
        facts.push(all.fact().await);
    }
    assert_eq!(names(&facts), ["Accepted", "Enqueued", "Attempted", "Failed", "Dead"]);
    assert!(!format!("{facts:?}").contains("s3cret"), "a query is nobody's business");
    for fact in &facts[1..] {
        for (name, wanted) in [
            ("account_id", &account),
            ("endpoint_id", &endpoint),
            ("event_id", &"one".to_owned()),
            ("event_type", &"payment.settled".to_owned()),
            ("endpoint_host", &"127.0.0.1".to_owned()),
        ] {
            assert_eq!(fact[name], *wanted, "{name} of {fact}");
        }
        assert_eq!(fact["tries"], 6);
        assert!(text(&fact["delivery_id"]).starts_with("dlv_"), "{fact}");
    }
    assert_eq!((&facts[3]["status_code"], &facts[4]["reason"]), (&json!(404), &json!("refused")));
    let died = dead.fact().await;
    assert_eq!(died, facts[4]);
    assert_eq!(died["status"], "dead");

    // What is of the other account, or of another type, passes by those who did not ask for it.
    let event = json!({ "account_id": account, "type": "refund.paid", "data": {} });
    server.api.post("/v1/events", event).await;
    assert_eq!(refunds.fact().await["event_type"], "refund.paid");
    server.api.endpoint(&other, &customer.url("/other"), json!({})).await;
    let heard = of_other.fact().await;
    assert_eq!((&heard["fact"], &heard["account_id"]), (&json!("EndpointCreated"), &json!(other)));
    assert!(!heard.to_string().contains("secret") && !heard.to_string().contains("signing"), "{heard}");

    // The past, from a moment on.
    let mut since = Subscriber::open(&server, "?since=2020-01-01T00:00:00Z&fact=Dead", None).await;
    assert_eq!(since.fact().await, facts[4]);
    server.stop().await;
}

/// No gap and no duplicate: over broken connections and a restart, the ids read are those of all facts.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_comes_back_where_it_was_and_a_stop_says_goodbye() {
    let folder = tempfile::tempdir().expect("a folder");
    let host = Host::new(folder.path());
    let mut server = host.start().await;
    let (account, _) = server.api.account().await;
    let customer = Receiver::scripted(vec![answer(200, "", "")]).await;
    server.api.endpoint(&account, &customer.url("/"), json!({})).await;
    let mut seen: Vec<u64> = Vec::new();
    let mut reader = Subscriber::open(&server, "", None).await;
    let begun = reader.last.clone().expect("a place");
    for round in 0..3 {
        for n in 0..5 {
            server.api.event(&account, &format!("{round}-{n}"), "{}").await.expect("an answer");
        }
        // Read a few, and lose the connection in the middle.
        for _ in 0..7 {
            seen.push(reader.fact().await["seq"].as_u64().expect("a number"));
        }
        let last = reader.last.clone().expect("a place");
        drop(reader);
        server.api.settled(LONG).await;
        let stopped = server.stop().await;
        assert!(stopped.code == Some(0));
        server = host.start().await;
        reader = Subscriber::open(&server, "", Some(&last)).await;
    }
    // To the end: whatever is left, then the goodbye, then nothing.
    let head = server.api.get("/v1/status").await["head"].as_u64().expect("a number");
    let place = reader.last.clone();
    let stopping = tokio::spawn(server.stop());
    let last = loop {
        let message = reader.next().await.expect("a goodbye before the end");
        if message.kind == "drain" {
            break message.id;
        }
        seen.push(message.data["seq"].as_u64().expect("a number"));
    };
    assert!(reader.next().await.is_none(), "after the goodbye it ends");
    stopping.await.expect("it stops");
    let first = seen[0];
    assert_eq!(seen, (first..=head).collect::<Vec<_>>(), "every fact once, in order");
    assert!(place.is_some() && last != begun);

    // From the very first place all comes again; from the last nothing that was there.
    let server = host.start().await;
    let mut again = Subscriber::open(&server, "", Some(&begun)).await;
    for seq in &seen {
        assert_eq!(again.fact().await["seq"], *seq);
    }
    let mut after = Subscriber::open(&server, "", Some(&last)).await;
    server.api.event(&account, "last", "{}").await.expect("an answer");
    assert_eq!(after.fact().await["fact"], "Accepted");
}

/// A key, and an account's key, that are revoked while they read: the stream says so and ends, and another one goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_when_its_key_is_revoked() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Host::new(folder.path()).start().await;
    let (account, _) = server.api.account().await;
    let mut streams = Vec::new();
    for members in [
        json!({ "role": "support" }),
        json!({ "role": "account_read", "account_id": account }),
        json!({ "role": "operator" }),
    ] {
        let key = server.api.post("/v1/keys", members).await;
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        let request = client.get(format!("http://{}/v1/stream", server.address));
        let answer = request.bearer_auth(text(&key["key"])).send();
        let response = tokio::time::timeout(LONG, answer).await.expect("in time").expect("an answer");
        streams.push((text(&key["id"]), Subscriber::begin(response).await));
    }
    server.api.event(&account, "before", "{}").await.expect("an answer");
    for (_, stream) in &mut streams {
        while stream.fact().await["fact"] != "Accepted" {}
    }
    for (id, _) in &streams[..2] {
        let revoked = server.api.call(hyper::Method::DELETE, &format!("/v1/keys/{id}"), None).await;
        assert_eq!(revoked.expect("an answer").status, 200);
    }
    server.api.event(&account, "after", "{}").await.expect("an answer");
    for (id, stream) in &mut streams[..2] {
        let last = loop {
            let message = stream.next().await.expect("a last word");
            if message.kind == "revoked" {
                break message;
            }
            assert_ne!(message.data["event_id"], "after", "{id}");
        };
        assert_eq!(last.data["detail"], "the key holds no more");
        assert!(stream.next().await.is_none(), "after that it ends");
    }
    while streams[2].1.fact().await["event_id"] != "after" {}
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_does_not_read_holds_nobody_up_and_misses_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Host::new(folder.path()).start().await;
    let (account, _) = server.api.account().await;
    let mut slow = Subscriber::open(&server, "", None).await;
    // Far more than the pages and the sockets' buffers hold: 40 batches of 500 events, 380 bytes and more each.
    let mut sent = 0;
    for batch in 0..40 {
        let events: Vec<_> = (0..500)
            .map(
                |n| json!({ "account_id": account, "id": format!("{batch}-{n}"), "type": "a.b", "data": {} }),
            )
            .collect();
        let taken = server.api.post("/v1/events/batch", json!({ "events": events })).await;
        sent += taken["results"].as_array().expect("a list").len();
    }
    assert_eq!(server.api.get("/v1/status").await["events"], sent);
    let first = slow.fact().await["seq"].as_u64().expect("a number");
    for n in 1..sent as u64 {
        let fact = slow.fact().await;
        assert_eq!((&fact["fact"], fact["seq"].as_u64()), (&json!("Accepted"), Some(first + n)));
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_places_and_one_reader_too_many_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Host::new(folder.path()).start().await;
    for (query, last, code) in [
        ("", Some("abc"), "bad-cursor"),
        ("", Some(""), "bad-cursor"),
        ("?status=lost", None, "bad-query"),
        ("?fact=No%20such", None, "bad-query"),
        ("?since=yesterday", None, "bad-query"),
        ("?limit=3", None, "bad-query"),
    ] {
        let refused = Subscriber::ask(&server, query, last).await;
        assert_eq!(refused.status(), 400, "{query} {last:?}");
        let problem: Value = refused.json().await.expect("JSON");
        assert_eq!(problem["code"], code, "{query} {last:?}: {problem}");
    }
    let mut open = Vec::new();
    for _ in 0..hooklog::api::SUBSCRIBERS_MAX {
        open.push(Subscriber::open(&server, "", None).await);
    }
    let refused = Subscriber::ask(&server, "", None).await;
    assert_eq!(
        (refused.status().as_u16(), refused.headers()["retry-after"].as_bytes()),
        (503, b"5".as_slice())
    );
    // A place that becomes free is given away again.
    open.pop();
    server::eventually("there is room again", LONG, async || {
        (Subscriber::ask(&server, "", None).await.status() == 200).then_some(())
    })
    .await;
    // All of them at once are no reason not to stop.
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_follows_over_a_restart() {
    use tokio::io::{AsyncBufReadExt, BufReader};
    let folder = tempfile::tempdir().expect("a folder");
    let host = Host::new(folder.path());
    let server = host.start().await;
    let (account, _) = server.api.account().await;
    let customer = Receiver::scripted(vec![answer(200, "", "")]).await;
    server.api.endpoint(&account, &customer.url("/"), json!({})).await;
    server.api.event(&account, "before", "{}").await.expect("an answer");
    server.api.settled(LONG).await;
    let lines = |args: &[&str]| {
        let mut child = host.start_on_store(args);
        let stdout = child.stdout.take().expect("it is piped");
        (child, BufReader::new(stdout).lines())
    };
    let since = "--since=1h";
    let (mut tailing, mut tail) = lines(&["tail", since, "--fact", "Delivered", "--json", "--count", "2"]);
    let (_listing, mut list) = lines(&["list", "--follow", "--json", "--state", "delivered"]);
    let first = tail.next_line().await.expect("a line").expect("more");
    assert_eq!(serde_json::from_str::<Value>(&first).expect("JSON")["event_id"], "before");
    let first = list.next_line().await.expect("a line").expect("more");
    assert_eq!(serde_json::from_str::<Value>(&first).expect("JSON")["event_id"], "before");

    server.stop().await;
    let server = host.start().await;
    server.api.event(&account, "after", "{}").await.expect("an answer");
    for lines in [&mut tail, &mut list] {
        let next = tokio::time::timeout(LONG, lines.next_line()).await.expect("in time");
        let next: Value = serde_json::from_str(&next.expect("a line").expect("more")).expect("JSON");
        assert_eq!(next["event_id"], "after");
    }
    assert_eq!(tailing.wait().await.expect("it ends").code(), Some(0));
    let table = host.on_store(&["tail", since, "--fact", "Delivered", "--count", "1"]).await;
    assert_eq!(table.code, Some(0), "{table:?}");
    for part in ["Delivered", "payment.settled", "127.0.0.1", "200", "dlv_"] {
        assert!(table.out.contains(part), "{part} in {}", table.out);
    }
    server.stop().await;
    let stopped = host.on_store(&["tail"]).await;
    assert_eq!(stopped.code, Some(2), "{stopped:?}");
}
