//! What went wrong in other senders around names, at the client, by the number of the case: C55.
//!
//! A name server of the tests' own, on loopback.

#[path = "support/name_server.rs"]
mod name_server;
#[path = "support/receiver.rs"]
mod receiver;
#[path = "support/sender.rs"]
mod sender;

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hooklog::delivery::client::resolve::{ANSWER_KEPT, DENIAL_KEPT, Dns, Kept};
use hooklog::delivery::client::{Lookup, Options};
use hooklog::delivery::{Client, Reason};
use hooklog_projections::policy::ErrorClass;
use hooklog_projections::time::Millis;
use name_server::{NameServer, Say};
use receiver::{Receiver, answer};
use sender::{LONG, SHORT, answered, failed, policy, request, send};

const NAME: &str = "hooks.customer.com";

fn asking(server: &NameServer, port: u16, options: Options) -> Client {
    let mut policy = policy(&["127.0.0.1"]);
    policy.ports.push(port);
    Client::with_lookup(policy, options, Arc::new(Dns::of(server.address))).expect("a client")
}

fn localhost(count: usize) -> Vec<IpAddr> {
    vec![Ipv4Addr::LOCALHOST.into(); count]
}

#[tokio::test]
async fn c55_what_name_servers_say_is_told_apart() {
    let receiver = Receiver::scripted(vec![answer(200, "", "ok")]).await;
    let port = receiver.address.port();
    let server = NameServer::saying(|name| match name {
        "none.customer.com" => Say::NoSuchName,
        "broken.customer.com" => Say::ServerFailed,
        "empty.customer.com" => Say::Are(vec![], 60),
        "silent.customer.com" => Say::Silent,
        // Two that are each other.
        "one.customer.com" => Say::Is("two.customer.com".to_owned()),
        "two.customer.com" => Say::Is("one.customer.com".to_owned()),
        "alias.customer.com" => Say::Is("hooks.customer.com".to_owned()),
        "inner-alias.customer.com" => Say::Is("inside.customer.com".to_owned()),
        // Too many for UDP.
        "many.customer.com" => Say::Are(localhost(300), 60),
        "inside.customer.com" => {
            Say::Are(vec![Ipv4Addr::LOCALHOST.into(), Ipv4Addr::new(10, 0, 0, 1).into()], 60)
        }
        _ => Say::Are(localhost(1), 60),
    })
    .await;
    let client = asking(&server, port, Options { lookup_timeout: SHORT, ..Options::default() });
    let to = async |name: &str| send(&client, request(format!("http://{name}.customer.com:{port}/h"))).await;
    for (name, reason) in [
        ("none", Reason::NoSuchName),
        ("broken", Reason::NameServerFailed),
        ("empty", Reason::NoAddress),
        ("silent", Reason::NameServerSilent),
    ] {
        let fault = failed(to(name).await);
        assert_eq!((fault.class, fault.reason), (ErrorClass::Dns, Some(reason)), "{name} {fault:?}");
    }
    assert_eq!(failed(to("one").await).class, ErrorClass::Dns, "round and round");
    for inside in ["inside", "inner-alias"] {
        assert_eq!(failed(to(inside).await).class, ErrorClass::EgressDenied, "{inside}");
    }
    assert_eq!(receiver.connections(), 0);
    assert_eq!(answered(to("many").await).status, 200);
    assert_eq!(answered(to("alias").await).status, 200);
    assert_eq!(answered(to("hooks").await).status, 200);
    let asked = server.asked();
    assert_eq!(answered(to("hooks").await).status, 200);
    assert_eq!(server.asked(), asked, "an answer is believed for a while");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c55_names_that_never_answer_hold_nobody_up() {
    let receiver = Receiver::scripted(vec![answer(200, "", "ok")]).await;
    let port = receiver.address.port();
    let say = |name: &str| if name == NAME { Say::Are(localhost(1), 0) } else { Say::Silent };
    let server = NameServer::saying(say).await;
    let client = Arc::new(asking(&server, port, Options::default()));
    let silent: Vec<_> = (0..600)
        .map(|n| {
            let client = client.clone();
            tokio::spawn(async move {
                send(&client, request(format!("http://silent{n}.customer.com:{port}/h"))).await
            })
        })
        .collect();
    let mut took = Vec::new();
    for _ in 0..200 {
        let outcome = send(&client, request(format!("http://{NAME}:{port}/h"))).await;
        took.push((outcome.timings.dns.expect("it was asked for, each time"), outcome.took));
        assert_eq!(answered(outcome).status, 200);
        if silent.iter().any(tokio::task::JoinHandle::is_finished) {
            break;
        }
    }
    // While not one of the others has its answer, all or nearly all of these have theirs: their limit is 5 s.
    took.sort_unstable();
    let (name, whole) = took[took.len() * 99 / 100];
    println!(
        "c55: {} answers beside 600 silent names; p99 {name:?} for the name, {whole} ms in all",
        took.len(),
        whole = whole.0
    );
    assert!(took.len() >= 20 && name < Duration::from_secs(2), "{took:?}");
    silent.into_iter().for_each(|one| one.abort());
}

/// What a test believes name servers for: short enough to see it end.
const BRIEFLY: Kept = Kept { answers: SHORT, denials: SHORT };

fn believing_briefly(server: &NameServer, port: u16, options: Options) -> Client {
    let mut policy = policy(&["127.0.0.0/8"]);
    policy.ports.push(port);
    let names = Dns::configured(Dns::asking(server.address), BRIEFLY);
    Client::with_lookup(policy, options, Arc::new(names)).expect("a client")
}

/// Neither a denial nor an answer is believed for longer than we say, whatever the name server says.
#[tokio::test]
async fn c55_a_name_that_appears_or_moves_is_followed_soon() {
    let limits = Kept { answers: ANSWER_KEPT, denials: DENIAL_KEPT };
    assert_eq!(limits, Kept::default());
    assert!(ANSWER_KEPT <= Duration::from_secs(60) && DENIAL_KEPT <= Duration::from_secs(10));
    let old = Receiver::scripted(vec![answer(200, "connection: close\r\n", "old")]).await;
    let port = old.address.port();
    let reply = vec![answer(200, "connection: close\r\n", "new")];
    let new = Receiver::scripted_at(([127, 0, 0, 2], port).into(), reply).await;
    let stage = Arc::new(AtomicUsize::new(0));
    let said = stage.clone();
    // Of the denial it says that it holds for a minute, of the addresses for a year.
    let server = NameServer::saying(move |_| match said.load(Ordering::SeqCst) {
        0 => Say::NoSuchName,
        1 => Say::Are(localhost(1), 31_536_000),
        _ => Say::Are(vec![Ipv4Addr::new(127, 0, 0, 2).into()], 31_536_000),
    })
    .await;
    let client = believing_briefly(&server, port, Options::default());
    let next = async || send(&client, request(format!("http://{NAME}:{port}/h"))).await;
    assert_eq!(failed(next().await).reason, Some(Reason::NoSuchName));
    let asked = server.asked();
    for (now, body) in [(1, "old"), (2, "new")] {
        stage.store(now, Ordering::SeqCst);
        let followed = async {
            loop {
                if next().await.result.is_ok_and(|answer| answer.body.as_ref() == body.as_bytes()) {
                    return;
                }
            }
        };
        tokio::time::timeout(LONG, followed).await.expect("it is followed");
    }
    assert!(server.asked() > asked && old.connections() > 0);
    let connections = old.connections();
    for _ in 0..20 {
        assert_eq!(answered(next().await).body.as_ref(), b"new", "for good");
    }
    assert_eq!((old.connections(), new.connections()), (connections, 21));
}

/// An answer that is good for no time is asked for each time.
#[tokio::test]
async fn c55_what_is_good_for_no_time_is_not_kept() {
    let receiver = Receiver::scripted(vec![answer(200, "", "ok")]).await;
    let port = receiver.address.port();
    let server = NameServer::saying(|_| Say::Are(localhost(1), 0)).await;
    let client = asking(&server, port, Options::default());
    let mut asked = 0;
    for _ in 0..5 {
        answered(send(&client, request(format!("http://{NAME}:{port}/h"))).await);
        assert!(server.asked() > asked);
        asked = server.asked();
    }
}

/// The case's 8 s, against a limit of 5 s, scaled: whoever answers after the limit was silent for this attempt, and
/// harms none of those that follow.
#[tokio::test]
async fn c55_an_answer_that_is_late_is_none_and_does_no_harm() {
    let receiver = Receiver::scripted(vec![answer(200, "", "ok")]).await;
    let port = receiver.address.port();
    let well = Arc::new(AtomicUsize::new(0));
    let said = well.clone();
    let server = NameServer::saying(move |_| match said.load(Ordering::SeqCst) {
        // Of an address that is nobody's.
        0 => Say::Late(vec![Ipv4Addr::new(10, 0, 0, 1).into()]),
        _ => Say::Are(localhost(1), 0),
    })
    .await;
    let options = Options { lookup_timeout: SHORT, ..Options::default() };
    let client = believing_briefly(&server, port, options);
    let next = async || send(&client, request(format!("http://{NAME}:{port}/h"))).await;
    let outcome = next().await;
    assert!(outcome.took >= Millis(SHORT.as_millis() as u64), "{outcome:?}");
    let fault = failed(outcome);
    assert_eq!((fault.class, fault.reason), (ErrorClass::Dns, Some(Reason::NameServerSilent)));
    well.store(1, Ordering::SeqCst);
    server.say_late().await;
    let answers = async { while next().await.result.is_err() {} };
    tokio::time::timeout(LONG, answers).await.expect("it goes on");
}

/// A name is what it says: no domain that the machine searches in is put behind it.
#[tokio::test]
async fn c55_no_domain_is_searched_in() {
    let receiver = Receiver::scripted(vec![answer(200, "", "ok")]).await;
    let port = receiver.address.port();
    let server = NameServer::saying(|name| match name {
        "hooks.internal" | "hooks.customer.internal" => Say::Are(localhost(1), 60),
        _ => Say::NoSuchName,
    })
    .await;
    let mut config = Dns::asking(server.address);
    config.set_domain("internal".parse().expect("a domain"));
    let names = Arc::new(Dns::configured(config, Kept::default()));
    for name in ["hooks", "hooks.customer"] {
        let error = names.lookup(name.to_owned()).await.expect_err(name);
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "{name}");
    }
    let asked: HashSet<_> = server.names().into_iter().collect();
    assert_eq!(asked, HashSet::from(["hooks".to_owned(), "hooks.customer".to_owned()]));
    // A delivery to a name without a domain is refused before anybody is asked.
    let mut policy = policy(&["127.0.0.1"]);
    policy.ports.push(port);
    let client = Client::with_lookup(policy, Options::default(), names).expect("a client");
    for (name, class) in [("hooks", ErrorClass::EgressDenied), ("hooks.customer", ErrorClass::Dns)] {
        assert_eq!(failed(send(&client, request(format!("http://{name}:{port}/h"))).await).class, class);
    }
    assert_eq!(receiver.connections(), 0);
}
