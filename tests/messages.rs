//! Messages to owners from the real server, killed between sending and recording: none lost, at most one repeated, under
//! its id.

#[path = "support/mail.rs"]
mod mail;
mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use mail::{At, Crab, Do, Peer, header};
use serde_json::{Value, json};
use support::receiver::{Receiver, answer};
use support::server::{Api, Host, text};

const LIMIT: Duration = Duration::from_secs(60);

/// A quarter of an hour in 90 ms.
fn host(folder: &Path, port: u16) -> Host {
    Host::new(folder)
        .with("--wait-divisor", "10000")
        .with("--smtp-server", &format!("127.0.0.1:{port}"))
        .with("--smtp-security", "none")
        .with("--mail-from", "Product webhooks <hooks@product.example>")
        .with("--public-url", "https://hooks.product.example")
}

async fn owned(api: &Api) -> String {
    let (account, _) = api.account().await;
    let change = json!({ "owner_email": "owner@acme.example" });
    let body = change.to_string();
    let path = format!("/v1/accounts/{account}");
    let reply = api
        .call(hyper::Method::PATCH, &path, Some(("application/json", body.into())))
        .await
        .expect("an answer");
    assert_eq!(reply.status, 200, "{reply:?}");
    account
}

/// What is said of an event, once it has these words.
async fn explained(api: &Api, account: &str, event: &str, words: &str) -> String {
    let path = format!("/v1/events/{event}?account_id={account}");
    let said = async {
        loop {
            let event = api.get(&path).await;
            let id = text(&event["deliveries"][0]["id"]);
            let said = api.get(&format!("/v1/explain/{id}")).await.to_string();
            if said.contains(words) {
                return said;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LIMIT, said).await.unwrap_or_else(|_| panic!("never `{words}` of {event}"))
}

/// The mail server has the message whole, and the server dies before it hears so.
#[tokio::test(flavor = "multi_thread")]
async fn killed_between_send_and_record_it_is_sent_once_more_under_its_id() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut peer = Peer::start(|connection, at| match (connection, at) {
        // Killed before anything was said, then after everything.
        (0, At::Greeting) | (1, At::End) => Do::Hang,
        _ => Do::Well,
    })
    .await;
    let receiver = Receiver::scripted(vec![answer(404, "", "")]).await;
    let host = host(folder.path(), peer.address.port());
    let server = host.start().await;
    let account = owned(&server.api).await;
    server.api.endpoint(&account, &receiver.url("/"), json!({})).await;
    server.api.event(&account, "one", "1").await.expect("an answer");
    explained(&server.api, &account, "one", "is under way since").await;
    server.kill().await;
    let server = host.start().await;
    let first = peer.next().await;
    explained(&server.api, &account, "one", "is under way since").await;
    server.kill().await;
    let server = host.start().await;
    let second = peer.next().await;
    explained(&server.api, &account, "one", "was told by e-mail").await;
    assert_eq!(first.field("message-id"), second.field("message-id"));
    assert_eq!(first.field("subject"), second.field("subject"));
    server.kill().await;
    // Recorded is recorded: only what dies from now on is told.
    let server = host.start().await;
    server.api.event(&account, "two", "2").await.expect("an answer");
    let third = peer.next().await;
    explained(&server.api, &account, "two", "was told by e-mail").await;
    assert_ne!(first.field("message-id"), third.field("message-id"));
    assert!(third.data.contains("two (payment.settled)") && !third.data.contains("one (payment.settled)"));
    assert_eq!((peer.so_far().len(), peer.connections()), (0, 4));
    // The event's page shows when its owner was told, and nothing of the message about the other.
    let page = server.api.call(hyper::Method::GET, "/events/one", None).await.expect("a page");
    let page = String::from_utf8_lossy(&page.body).into_owned();
    for words in ["Message to the owner", "Owner told"] {
        assert_eq!(page.matches(words).count(), 1, "{words}: {page}");
    }
    server.stop().await;
    host.verify().await;
}

/// Killed as soon as mailcrab has a message, again and again.
#[tokio::test(flavor = "multi_thread")]
async fn killed_again_and_again_no_message_is_lost_and_none_comes_more_than_twice() {
    const KILLS: usize = 6;
    let folder = tempfile::tempdir().expect("a folder");
    let mut crab = Crab::start().await;
    let receiver = Receiver::scripted(vec![answer(404, "", "")]).await;
    let host = host(folder.path(), crab.port);
    let mut server = host.start().await;
    let account = owned(&server.api).await;
    server.api.endpoint(&account, &receiver.url("/"), json!({})).await;
    let mut mails: Vec<Value> = Vec::new();
    for n in 0..KILLS {
        server.api.event(&account, &format!("event-{n}"), "1").await.expect("an answer");
        // Whatever came twice comes before what is new.
        loop {
            let mail = crab.next().await;
            let new = text(&mail["text"]).contains(&format!("event-{n} "));
            mails.push(mail);
            if new {
                break;
            }
        }
        server.kill().await;
        server = host.start().await;
    }
    for n in 0..KILLS {
        explained(&server.api, &account, &format!("event-{n}"), "was told by e-mail").await;
    }
    server.stop().await;
    mails.extend(crab.so_far());
    let mut by_id: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for mail in &mails {
        by_id.entry(header(mail, "message-id")).or_default().push(mail);
    }
    assert_eq!(by_id.len(), KILLS);
    for (id, mails) in &by_id {
        assert!(mails.len() <= 2, "{id} came {} times", mails.len());
        assert!(mails.iter().all(|mail| mail["subject"] == mails[0]["subject"]), "{mails:?}");
    }
    host.verify().await;
}
