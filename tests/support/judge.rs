//! A receiver on loopback that judges what it is sent: every signature is checked with the independent
//! `standardwebhooks` crate and, for the ledger's own form, by an HMAC written out here. It remembers each
//! request and answers as a test tells it to. Stands in for: a customer's careful server.
//!
//! It never waits by the clock; a test waits for what it has seen.
#![allow(dead_code)]

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use sha2::{Digest, Sha256};
use standardwebhooks::Webhook;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What it says to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Say {
    /// This status, at once.
    Status(u16),
    /// Nothing until [`Judge::release`], then 200.
    Hold,
    /// Nothing, and the connection is closed.
    Close,
}

/// A request that came in whole.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Of all requests, from 0.
    pub number: u64,
    /// Which endpoint.
    pub path: String,
    /// Its `webhook-id`.
    pub event: String,
    /// How often the sender had been killed when the connection was made.
    pub life: u32,
    /// Whether its connection had carried another request before.
    pub reused: bool,
    /// SHA-256 of its body.
    pub sum: [u8; 32],
    /// When.
    pub at: Instant,
    /// What it was answered.
    pub said: Say,
}

/// What an endpoint's requests are signed with.
#[derive(Clone, Debug)]
struct Keys {
    signing: String,
    account: String,
}

/// The receiver.
pub struct Judge {
    /// Where it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    life: AtomicU32,
    /// Requests, and whatever a test counts besides.
    signs: watch::Sender<u64>,
    open: watch::Sender<usize>,
    released: watch::Sender<u64>,
    verified: AtomicU64,
}

#[derive(Default)]
struct State {
    arrivals: Vec<Arrival>,
    keys: HashMap<String, Keys>,
    /// Each event's body, as first seen, or as it must be.
    bodies: HashMap<String, [u8; 32]>,
    complaints: Vec<String>,
    answer: Option<Answerer>,
}

type Answerer = Box<dyn FnMut(&Arrival) -> Say + Send>;

impl Judge {
    /// Listens on a port of its own; answers 200 until told otherwise.
    pub async fn start() -> Judge {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            life: AtomicU32::new(0),
            signs: watch::Sender::new(0),
            open: watch::Sender::new(0),
            released: watch::Sender::new(0),
            verified: AtomicU64::new(0),
        });
        let accepting = shared.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                accepting.open.send_modify(|open| *open += 1);
                let life = accepting.life.load(Ordering::SeqCst);
                tokio::spawn(connection(stream, life, accepting.clone()));
            }
        });
        Judge { address, shared }
    }

    /// The URL of an endpoint of this path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Requests to this path are signed with these.
    pub fn expect(&self, path: &str, signing: &str, account: &str) {
        let keys = Keys { signing: signing.into(), account: account.into() };
        self.state().keys.insert(path.into(), keys);
    }

    /// The event's body must be this.
    pub fn expect_body(&self, event: &str, body: &[u8]) {
        self.state().bodies.insert(event.into(), Sha256::digest(body).into());
    }

    /// Decides from now on what is said to each request.
    pub fn answer(&self, answer: impl FnMut(&Arrival) -> Say + Send + 'static) {
        self.state().answer = Some(Box::new(answer));
    }

    /// Answers all that is held with 200; what comes later is held anew.
    pub fn release(&self) {
        self.shared.released.send_modify(|times| *times += 1);
    }

    /// All requests so far.
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.state().arrivals.clone()
    }

    /// How many requests each event made so far.
    pub fn by_event(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for arrival in &self.state().arrivals {
            *counts.entry(arrival.event.clone()).or_default() += 1;
        }
        counts
    }

    /// Requests so far.
    pub fn count(&self) -> u64 {
        self.state().arrivals.len() as u64
    }

    /// Requests whose signatures were found good.
    pub fn verified(&self) -> u64 {
        self.shared.verified.load(Ordering::SeqCst)
    }

    /// Adds a sign of life of somebody else's to those of arrivals.
    pub fn note(&self) {
        self.shared.signs.send_modify(|signs| *signs += 1);
    }

    /// Signs of life so far: arrivals, and what was noted.
    pub fn signs(&self) -> u64 {
        *self.shared.signs.borrow()
    }

    /// Waits until there are so many signs of life.
    pub async fn signs_reach(&self, wanted: u64, limit: Duration) {
        let mut signs = self.shared.signs.subscribe();
        let waiting = tokio::time::timeout(limit, signs.wait_for(|signs| *signs >= wanted));
        let seen = waiting.await.map(drop);
        assert!(seen.is_ok(), "{wanted} signs of life: there are {} after {limit:?}", self.signs());
    }

    /// Waits until so many requests have come in.
    pub async fn arrivals_reach(&self, wanted: u64, limit: Duration) {
        let mut signs = self.shared.signs.subscribe();
        let waiting = tokio::time::timeout(limit, signs.wait_for(|_| self.count() >= wanted));
        let seen = waiting.await.map(drop);
        assert!(seen.is_ok(), "{wanted} requests: there are {} after {limit:?}", self.count());
    }

    /// After a sender was killed: takes in all that it had sent, and counts what comes next as of its next life.
    pub async fn next_life(&self) {
        // Connections are taken in turn: when this one was, all those of the dead are known.
        let mut ping = TcpStream::connect(self.address).await.expect("it listens");
        ping.write_all(b"GET /ping HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .await
            .expect("it reads");
        ping.read_to_end(&mut Vec::new()).await.expect("it answers");
        drop(ping);
        let mut open = self.shared.open.subscribe();
        let gone = tokio::time::timeout(Duration::from_secs(10), open.wait_for(|open| *open == 0));
        assert!(gone.await.is_ok(), "connections of a dead process stayed open");
        self.shared.life.fetch_add(1, Ordering::SeqCst);
    }

    /// Nothing was wrong with any request.
    pub fn content(&self) {
        let complaints = &self.state().complaints;
        let first = &complaints[..complaints.len().min(10)];
        assert!(first.is_empty(), "{} complaints, the first: {first:#?}", complaints.len());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().expect("no holder panics")
    }
}

/// One connection, from its first byte to its last.
async fn connection(stream: TcpStream, life: u32, shared: Arc<Shared>) {
    let nth = AtomicU64::new(0);
    let service = service_fn(|request| {
        let reused = nth.fetch_add(1, Ordering::SeqCst) > 0;
        let shared = shared.clone();
        async move { answer(request, life, reused, &shared).await }
    });
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    shared.open.send_modify(|open| *open -= 1);
}

/// An error closes the connection.
async fn answer(
    request: Request<Incoming>,
    life: u32,
    reused: bool,
    shared: &Shared,
) -> Result<Response<Body>, std::io::Error> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().to_owned();
    if path == "/ping" {
        return Ok(status(204));
    }
    let body = axum::body::to_bytes(Body::new(body), 4 << 20).await.map_err(std::io::Error::other)?;
    let mut released = shared.released.subscribe();
    released.mark_unchanged();
    let said = shared.take(path, life, reused, &parts.headers, &body);
    shared.signs.send_modify(|signs| *signs += 1);
    match said {
        Say::Status(code) => Ok(status(code)),
        Say::Hold => {
            // Dropped where it stands when the peer goes.
            released.changed().await.map_err(std::io::Error::other)?;
            Ok(status(200))
        }
        Say::Close => Err(std::io::ErrorKind::ConnectionAborted.into()),
    }
}

fn status(code: u16) -> Response<Body> {
    let mut response = Response::new(Body::from("as you say"));
    *response.status_mut() = StatusCode::from_u16(code).expect("a status");
    response
}

impl Shared {
    fn take(&self, path: String, life: u32, reused: bool, headers: &HeaderMap, body: &Bytes) -> Say {
        let mut state = self.state.lock().expect("no holder panics");
        let state = &mut *state;
        let number = state.arrivals.len() as u64;
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let event = header("webhook-id").to_owned();
        let sum: [u8; 32] = Sha256::digest(body).into();
        let mut complain = |what: String| state.complaints.push(format!("{number} {path} {event}: {what}"));
        match state.keys.get(&path) {
            None => complain("nobody asked for this".into()),
            Some(keys) => {
                let standard = Webhook::new(&keys.signing).expect("a signing key");
                let verified = standard.verify(body, headers);
                let ledger = ledger(&keys.account, body) == header("x-ledger-signature");
                if let Err(error) = &verified {
                    complain(format!("webhook-signature: {error}"));
                }
                if !ledger {
                    complain(format!("X-Ledger-Signature: {}", header("x-ledger-signature")));
                }
                if verified.is_ok() && ledger {
                    self.verified.fetch_add(1, Ordering::SeqCst);
                }
            }
        }
        if header("idempotency-key") != event || event.is_empty() {
            complain(format!("Idempotency-Key: {}", header("idempotency-key")));
        }
        if *state.bodies.entry(event.clone()).or_insert(sum) != sum {
            complain(format!("another body: {}", String::from_utf8_lossy(body)));
        }
        let at = Instant::now();
        let said = Say::Status(200);
        let mut arrival = Arrival { number, path, event, life, reused, sum, at, said };
        if let Some(answer) = &mut state.answer {
            arrival.said = answer(&arrival);
        }
        let said = arrival.said;
        state.arrivals.push(arrival);
        said
    }
}

/// `sha256=` and HMAC-SHA256 as RFC 2104 has it, written out.
pub fn ledger(secret: &str, body: &[u8]) -> String {
    const BLOCK: usize = 64;
    let mut key = [0; BLOCK];
    if secret.len() > BLOCK {
        key[..32].copy_from_slice(&Sha256::digest(secret));
    } else {
        key[..secret.len()].copy_from_slice(secret.as_bytes());
    }
    let inner = Sha256::new().chain_update(key.map(|byte| byte ^ 0x36)).chain_update(body).finalize();
    let tag = Sha256::new().chain_update(key.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize();
    let digits: String = tag.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256={digits}")
}
