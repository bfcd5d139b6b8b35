//! What sends in the tests of the client: clients, requests, and look-ups that answer from a list.
#![allow(dead_code)]

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use hooklog::delivery::client::{Lookup, Options};
use hooklog::delivery::guard::Policy;
use hooklog::delivery::{Answer, Client, Fault, Key, Outcome, Request, TextSecret};
use hooklog_projections::fact::Schemes;

use super::receiver::{Receiver, Step};

/// The signing key of every request, and the account's secret.
pub const KEY: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// The body of every request.
pub const BODY: &str = r#"{"id":"evt_01","type":"payment.settled","data":{"amount":12900,"currency":"EUR"}}"#;
/// The second it is signed for.
pub const AT: u64 = 1_700_000_000;

/// Long enough never to matter on a busy machine.
pub const LONG: Duration = Duration::from_secs(30);
/// Short enough to wait for.
pub const SHORT: Duration = Duration::from_millis(300);

/// Plain HTTP, and what these lines allow.
pub fn policy(allow: &[&str]) -> Policy {
    let allow = allow.iter().map(|line| line.parse().expect("a line")).collect();
    Policy { allow, allow_http: true, ..Policy::default() }
}

/// A client that may reach 127.0.0.1.
pub fn client() -> Client {
    Client::new(policy(&["127.0.0.1"]), Options::default()).expect("a client")
}

/// A request that is signed both ways.
pub fn request(url: impl Into<String>) -> Request {
    Request {
        url: url.into(),
        event_id: "evt_01".parse().expect("an id"),
        body: Bytes::from_static(BODY.as_bytes()),
        content_type: "application/json".to_owned(),
        run: 1,
        keys: vec![Key::parse(KEY).expect("a key")],
        account_secret: Some(TextSecret::new(KEY.to_owned().into())),
        schemes: Schemes { standard: true, ledger: true },
        signature_header: Default::default(),
        headers: vec![],
        timeout: LONG,
    }
}

/// Sends it.
pub async fn send(client: &Client, request: Request) -> Outcome {
    client.send(request, || AT).await
}

/// What comes of one request to a receiver that replies so.
pub async fn exchange(reply: Vec<Step>) -> Outcome {
    exchange_within(LONG, reply).await
}

/// As `exchange`, with so much time.
pub async fn exchange_within(timeout: Duration, reply: Vec<Step>) -> Outcome {
    let receiver = Receiver::scripted(vec![reply]).await;
    send(&client(), Request { timeout, ..request(receiver.url("/h")) }).await
}

/// The answer; there must be one.
#[track_caller]
pub fn answered(outcome: Outcome) -> Answer {
    outcome.result.expect("an answer")
}

/// The fault; there must be one.
#[track_caller]
pub fn failed(outcome: Outcome) -> Fault {
    outcome.result.expect_err("no answer")
}

/// Answers look-ups from a list, the last one again and again.
pub struct Names(Mutex<VecDeque<Result<Vec<IpAddr>, io::ErrorKind>>>);

impl Names {
    /// The answers in their order: addresses with spaces between them, or an error.
    pub fn new(answers: &[Result<&str, io::ErrorKind>]) -> Arc<Names> {
        let parse = |list: &str| list.split_whitespace().map(|a| a.parse().expect("an address")).collect();
        Arc::new(Names(Mutex::new(answers.iter().map(|answer| answer.map(parse)).collect())))
    }
}

impl Lookup for Names {
    fn lookup(&self, _: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let mut answers = self.0.lock().expect("no panic");
        let answer = if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() };
        Box::pin(async move { answer.expect("an answer").map_err(io::Error::from) })
    }
}

/// A client that may reach `allow`, at this port too, and that asks `names`.
pub fn resolving(allow: &str, port: u16, names: Arc<dyn Lookup>) -> Client {
    let mut policy = policy(&[allow]);
    policy.ports.push(port);
    Client::with_lookup(policy, Options::default(), names).expect("a client")
}
