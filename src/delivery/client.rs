//! The one door to the network: every outbound connection of the process is made here, and no other file
//! builds an HTTP client.
//!
//! A request leaves over HTTP/1.1, to judged addresses only, without redirects, proxies, cookies or
//! decompression, and its answer is read up to a limit, all under one deadline. Never knows what an answer
//! means, nor whether there will be another attempt.
//!
//! # Kept connections
//!
//! Connections are kept for [`POOL_IDLE`] and used again. A receiver may close one at the very moment the next
//! request goes out on it; that request then fails without an answer and through nobody's fault, so it is sent
//! once more, on a fresh connection that is never kept, within the same attempt and deadline, under the same
//! id, timestamp and signature ([`Outcome::resent`](super::Outcome)).
//!
//! The HTTP client has no flag that says whether a connection was used before. What can be told: an error
//! carries both socket addresses of the connection it happened on, and so does every answer. A connection
//! whose address pair gave an answer within the time a kept one can still be in use was a kept one. From that
//! follows
//! - a fresh connection that is closed before an answer is never mistaken for a kept one, unless the system
//!   gave it the very same port towards the same receiver within a minute; the price is one more request
//!   under the same id;
//! - a kept connection is recognised unless more than [`KEPT_MAX`] connections answered within a minute; the
//!   price is a failed attempt;
//! - an answer cut within its head looks like one that never began: on a kept connection it is sent again too.
//!
//! A request that was handed to a connection but not begun is put on another one by the HTTP client itself;
//! nothing of it has left then, so that is no second request.
//!
//! # Out of reach
//!
//! The client reads a head of up to about 400 KiB and 100 fields; more is a `protocol` error. Its pool is keyed
//! by scheme, host and port, not by judged address: a kept connection goes on to the address that was judged
//! when it was made, for as long as it is kept; and it has a limit for each of those, none in total. A name
//! look-up that is given up after its time limit goes on in the system's resolver. Every request carries
//! `accept: */*`, which the client adds.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use hooklog_projections::policy::ErrorClass;
use hooklog_projections::time::Millis;
use hyper_util::client::legacy::connect::HttpInfo;
use reqwest::Method;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use tokio::time::{Instant, timeout, timeout_at};
use url::Url;

use super::guard::{self, Policy};
use super::{Answer, Fault, KEPT_BODY_BYTES, KEPT_HEADER_BYTES, KEPT_HEADERS, Outcome, Request, request};

/// How long an unused connection is kept: shorter than most receivers keep theirs, so that ours is closed first.
pub const POOL_IDLE: Duration = Duration::from_secs(30);

/// Unused connections kept for one scheme, host and port: as many as an endpoint has requests in flight by
/// default. More would let a few busy hosts use up the open files.
pub const POOL_IDLE_PER_HOST: usize = 8;

/// Bytes read of a response body before the connection is dropped. Reading a little more than is kept lets a
/// connection be used again after an error page of ordinary size.
pub const READ_BODY_BYTES_MAX: usize = 64 * 1024;

/// Addresses of one name that are tried. All are judged.
pub const ADDRESSES_MAX: usize = 16;

/// Connections that are remembered as having answered: more than a process can hold open.
pub const KEPT_MAX: usize = 16_384;

/// How long after its last answer a kept connection can still fail: idle, then the longest time-out (30 s).
const KEPT_FOR: Duration = Duration::from_secs(60);

/// Characters of a fault's detail.
const DETAIL_CHARS_MAX: usize = 300;

/// Time limits within a request's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// From the look-up of the name to a connection that is ready, TLS included.
    pub connect_timeout: Duration,
    /// Of the look-up alone.
    pub lookup_timeout: Duration,
}

impl Default for Options {
    /// 5 s each.
    fn default() -> Self {
        Options { connect_timeout: Duration::from_secs(5), lookup_timeout: Duration::from_secs(5) }
    }
}

/// Why there can be no client.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No TLS, usually for lack of root certificates.
    #[error(
        "cannot set up outbound connections ({0}): install the system's CA certificates (`ca-certificates`), or \
         name a bundle in SSL_CERT_FILE"
    )]
    Setup(String),
}

/// How names become addresses. The system's resolver, but for tests.
pub trait Lookup: Send + Sync + 'static {
    /// All addresses of a host name, in the order they are to be tried.
    fn lookup(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// The system's resolver.
#[derive(Clone, Copy, Debug)]
pub struct SystemLookup;

/// Sends requests. Cheap to share behind an `Arc`; keeps connections between requests.
pub struct Client {
    /// To receivers, connections kept.
    kept: reqwest::Client,
    /// To receivers, every connection fresh.
    fresh: reqwest::Client,
    /// To the operator's own services, whose addresses are not judged.
    operator: reqwest::Client,
    policy: Arc<Policy>,
    answered: Answered,
}

impl Client {
    /// A client under an operator's policy.
    ///
    /// # Errors
    /// `Setup` if TLS cannot be had; nothing else can fail.
    pub fn new(policy: Policy, options: Options) -> Result<Client, Error> {
        Client::with_lookup(policy, options, Arc::new(SystemLookup))
    }

    /// As [`new`](Self::new), with names resolved elsewhere. Everything that comes back is judged alike.
    ///
    /// # Errors
    /// As `new`.
    pub fn with_lookup(policy: Policy, options: Options, lookup: Arc<dyn Lookup>) -> Result<Client, Error> {
        let policy = Arc::new(policy);
        let lookup_timeout = options.lookup_timeout;
        let judged = |policy| Resolver { lookup: lookup.clone(), policy, lookup_timeout };
        Ok(Client {
            kept: build(options, judged(Some(policy.clone())), POOL_IDLE_PER_HOST)?,
            fresh: build(options, judged(Some(policy.clone())), 0)?,
            operator: build(options, judged(None), 0)?,
            policy,
            answered: Answered::default(),
        })
    }

    /// Sends one request and reads its answer. `now_unix_secs` is read when the request is ready to leave, and
    /// is what it is signed for (rule W2).
    ///
    /// Never fails: whatever goes wrong is in the outcome. A URL that the policy refuses is `EgressDenied`
    /// without a connection; a request that cannot be signed as its endpoint wants is `NotSent`.
    pub async fn send(&self, request: Request, now_unix_secs: impl FnOnce() -> u64 + Send) -> Outcome {
        let started = Instant::now();
        let deadline = started + request.timeout;
        let url = match self.policy.check_url(&request.url) {
            Ok(url) => url,
            Err(guard::UrlRefusal::Literal(_) | guard::UrlRefusal::Localhost) => {
                return ended(started, false, Err(denied()));
            }
            Err(refusal) => {
                return ended(started, false, Err(fault(ErrorClass::EgressDenied, &refusal.to_string())));
            }
        };
        // What can be done before the clock is read is done: signing is all that follows.
        let headers = match request::headers(&request, now_unix_secs()) {
            Ok(headers) => headers,
            Err(e) => return ended(started, false, Err(fault(ErrorClass::NotSent, &e.to_string()))),
        };
        let call = match Call::new(url, &headers, request.body, request.timeout, deadline) {
            Ok(call) => call,
            Err(fault) => return ended(started, false, Err(fault)),
        };
        match call.head(&self.kept).await {
            Ok(response) => {
                self.answered.remember(response.extensions().get(), started);
                ended(started, false, Ok(read(response, deadline).await))
            }
            Err(failure)
                if failure.without_answer && self.answered.forget(failure.connection.as_ref(), started) =>
            {
                tracing::debug!(
                    "a kept connection was closed under a request: sending it again on a fresh one"
                );
                let result = match call.head(&self.fresh).await {
                    Ok(response) => Ok(read(response, deadline).await),
                    Err(failure) => Err(failure.fault),
                };
                ended(started, true, result)
            }
            Err(failure) => ended(started, false, Err(failure.fault)),
        }
    }

    /// Posts JSON to a service of the operator's own, at a URL from the configuration. Any address and port
    /// will do, since the operator chose them; all else is as for a delivery: no redirects, no proxy, one
    /// deadline, a bounded answer. `headers` must be valid header fields.
    pub async fn post_json(
        &self,
        url: &str,
        body: Bytes,
        headers: &[(String, String)],
        time: Duration,
    ) -> Outcome {
        let started = Instant::now();
        let deadline = started + time;
        let mut all = vec![
            ("content-type".to_owned(), "application/json".to_owned()),
            ("user-agent".to_owned(), request::USER_AGENT.to_owned()),
        ];
        all.extend_from_slice(headers);
        let call = match guard::check_operator_url(url) {
            Ok(url) => Call::new(url, &all, body, time, deadline),
            Err(refusal) => Err(fault(ErrorClass::EgressDenied, &refusal.to_string())),
        };
        let result = match call {
            Ok(call) => match call.head(&self.operator).await {
                Ok(response) => Ok(read(response, deadline).await),
                Err(failure) => Err(failure.fault),
            },
            Err(fault) => Err(fault),
        };
        ended(started, false, result)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("policy", &self.policy).finish_non_exhaustive()
    }
}

/// The only place where an HTTP client is made.
fn build(options: Options, resolver: Resolver, idle_max: usize) -> Result<reqwest::Client, Error> {
    reqwest::Client::builder()
        .http1_only()
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        // The environment's proxies would resolve the name themselves, unjudged.
        .no_proxy()
        .retry(reqwest::retry::never())
        .connect_timeout(options.connect_timeout)
        .pool_idle_timeout(POOL_IDLE)
        .pool_max_idle_per_host(idle_max)
        .dns_resolver(Arc::new(resolver))
        .build()
        .map_err(|e| Error::Setup(innermost(&e.without_url())))
}

/// A request that is ready to leave, as often as need be.
struct Call {
    url: Url,
    headers: HeaderMap,
    body: Bytes,
    time: Duration,
    deadline: Instant,
}

/// Why there is no response head.
struct Failure {
    fault: Fault,
    /// Whether a connection was there and ended before an answer.
    without_answer: bool,
    /// The connection, if the error names it.
    connection: Option<HttpInfo>,
}

impl Call {
    fn new(
        url: Url,
        headers: &[(String, String)],
        body: Bytes,
        time: Duration,
        deadline: Instant,
    ) -> Result<Call, Fault> {
        let mut map = HeaderMap::with_capacity(headers.len());
        for (name, value) in headers {
            let field = HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_str(value).ok());
            let Some((name, value)) = field else {
                return Err(fault(ErrorClass::NotSent, &format!("the header `{name}` cannot be sent")));
            };
            map.append(name, value);
        }
        Ok(Call { url, headers: map, body, time, deadline })
    }

    /// Sends it and waits for the response head.
    async fn head(&self, client: &reqwest::Client) -> Result<reqwest::Response, Failure> {
        let request = client
            .request(Method::POST, self.url.clone())
            .headers(self.headers.clone())
            .body(self.body.clone())
            .timeout(self.deadline.saturating_duration_since(Instant::now()))
            .build();
        let request = request.map_err(|e| self.failure(e, false))?;
        let lookup = Arc::new(InLookup { port: self.port(), running: AtomicBool::new(false) });
        let sent = IN_LOOKUP.scope(lookup.clone(), client.execute(request));
        match timeout_at(self.deadline, sent).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(e)) => Err(self.failure(e, lookup.is_running())),
            Err(_) => Err(Failure {
                fault: self.timed_out(lookup.is_running()),
                without_answer: false,
                connection: None,
            }),
        }
    }

    fn port(&self) -> u16 {
        self.url.port_or_known_default().unwrap_or(0)
    }

    fn timed_out(&self, in_lookup: bool) -> Fault {
        match in_lookup {
            true => fault(ErrorClass::Dns, "the name was not resolved in time"),
            false => fault(ErrorClass::Timeout, &format!("no answer within {} ms", self.time.as_millis())),
        }
    }

    /// What an error of the HTTP client is in our words. Its text may hold the URL, query and all, and the
    /// receiver's bytes: only the innermost cause is told.
    fn failure(&self, error: reqwest::Error, in_lookup: bool) -> Failure {
        let error = error.without_url();
        let connection = connection_of(&error);
        let broken = find(&error, broken_connection).is_some();
        let fault = if let Some(refused) = find(&error, |e| e.downcast_ref::<Unresolved>()) {
            match refused {
                Unresolved::Denied => denied(),
                other => fault(ErrorClass::Dns, &other.to_string()),
            }
        } else if error.is_connect() {
            match (error.is_timeout(), in_lookup) {
                (true, true) => self.timed_out(true),
                (true, false) => fault(ErrorClass::Connect, "no connection in time"),
                (false, _) => {
                    // After TCP, an https connection can only fail in its handshake.
                    let tls = self.url.scheme() == "https" && find(&error, handshake_error).is_some();
                    let class = if tls { ErrorClass::Tls } else { ErrorClass::Connect };
                    fault(class, &innermost(&error))
                }
            }
        } else if error.is_timeout() {
            self.timed_out(in_lookup)
        } else if broken {
            fault(ErrorClass::Closed, "the connection was closed before an answer")
        } else if error.is_builder() {
            fault(ErrorClass::NotSent, &innermost(&error))
        } else {
            fault(ErrorClass::Protocol, &innermost(&error))
        };
        let without_answer = fault.class == ErrorClass::Closed;
        Failure { fault, without_answer, connection }
    }
}

/// Reads a body as far as it is kept. The head has arrived, so nothing here can fail any more.
async fn read(mut response: reqwest::Response, deadline: Instant) -> Answer {
    let status = response.status().as_u16();
    let address = response.remote_addr();
    let headers = kept_headers(response.headers());
    // A body announced to be larger than we would read costs its connection anyway: only what is kept is read.
    let read_max = match response.content_length() {
        Some(len) if len > READ_BODY_BYTES_MAX as u64 => KEPT_BODY_BYTES,
        _ => READ_BODY_BYTES_MAX,
    };
    let mut body = BytesMut::new();
    let mut read = 0;
    let truncated = loop {
        match timeout_at(deadline, response.chunk()).await {
            Ok(Ok(Some(chunk))) => {
                read += chunk.len();
                let room = KEPT_BODY_BYTES - body.len();
                body.extend_from_slice(&chunk[..chunk.len().min(room)]);
                if read >= read_max {
                    break true;
                }
            }
            Ok(Ok(None)) => break read > body.len(),
            Ok(Err(_)) | Err(_) => break true,
        }
    };
    Answer { status, headers, body: body.freeze(), truncated, address }
}

fn kept_headers(all: &HeaderMap) -> Vec<(&'static str, String)> {
    let mut kept = Vec::new();
    for name in KEPT_HEADERS {
        // A field that stands there more often than twice tells no more than twice.
        for value in all.get_all(name).iter().take(2) {
            let mut text = String::from_utf8_lossy(value.as_bytes()).into_owned();
            if text.len() > KEPT_HEADER_BYTES {
                text.truncate(text.floor_char_boundary(KEPT_HEADER_BYTES));
            }
            kept.push((name, text));
        }
    }
    kept
}

fn ended(started: Instant, resent: bool, result: Result<Answer, Fault>) -> Outcome {
    let took = Millis(u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX));
    Outcome { result, took, resent }
}

fn fault(class: ErrorClass, detail: &str) -> Fault {
    Fault { class, detail: detail.chars().take(DETAIL_CHARS_MAX).collect() }
}

/// What a customer hears of a refused address: nothing that maps our network (rule S10).
fn denied() -> Fault {
    fault(ErrorClass::EgressDenied, "address not allowed")
}

/// What caused an error. An `io::Error` does not name the error that it wraps as its source, but only that
/// one's source; here it does.
fn cause<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}

/// The first cause in an error's chain that `pick` knows.
fn find<'a, T>(
    error: &'a reqwest::Error,
    pick: impl Fn(&'a (dyn StdError + 'static)) -> Option<T>,
) -> Option<T> {
    std::iter::successors(Some(error as &(dyn StdError + 'static)), |error| cause(*error)).find_map(pick)
}

/// The last cause in an error's chain, which says what happened.
fn innermost(error: &reqwest::Error) -> String {
    let mut last: &(dyn StdError + 'static) = error;
    while let Some(cause) = cause(last) {
        last = cause;
    }
    last.to_string()
}

fn broken_connection(error: &(dyn StdError + 'static)) -> Option<()> {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof};
    if let Some(hyper) = error.downcast_ref::<hyper::Error>() {
        let broken = hyper.is_incomplete_message()
            || hyper.is_canceled()
            || hyper.is_closed()
            || hyper.is_body_write_aborted();
        return broken.then_some(());
    }
    let kind = error.downcast_ref::<io::Error>()?.kind();
    matches!(kind, BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | UnexpectedEof)
        .then_some(())
}

fn handshake_error(error: &(dyn StdError + 'static)) -> Option<()> {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, InvalidData, UnexpectedEof};
    let kind = error.downcast_ref::<io::Error>()?.kind();
    matches!(kind, BrokenPipe | ConnectionAborted | ConnectionReset | InvalidData | UnexpectedEof)
        .then_some(())
}

fn connection_of(error: &reqwest::Error) -> Option<HttpInfo> {
    let connected = find(error, |e| e.downcast_ref::<hyper_util::client::legacy::Error>()?.connect_info())?;
    let mut extras = hyper::http::Extensions::new();
    connected.get_extras(&mut extras);
    extras.remove::<HttpInfo>()
}

/// Both ends of a connection: ours, theirs.
type Ends = (SocketAddr, SocketAddr);

/// Which connections gave an answer lately, so that an error on one of them is known for what it is.
#[derive(Default)]
struct Answered(Mutex<HashMap<Ends, Instant>>);

impl Answered {
    /// `connection` answered a request that began at `now`.
    fn remember(&self, connection: Option<&HttpInfo>, now: Instant) {
        let Some(connection) = connection else { return };
        let mut answered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if answered.len() >= KEPT_MAX {
            answered.retain(|_, last| now.saturating_duration_since(*last) <= KEPT_FOR);
        }
        if answered.len() < KEPT_MAX {
            answered.insert((connection.local_addr(), connection.remote_addr()), now);
        }
    }

    /// Whether `connection`, now broken, had answered an earlier request than the one that began at `now`.
    fn forget(&self, connection: Option<&HttpInfo>, now: Instant) -> bool {
        let Some(connection) = connection else { return false };
        let mut answered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = answered.remove(&(connection.local_addr(), connection.remote_addr()));
        last.is_some_and(|last| now.saturating_duration_since(last) <= KEPT_FOR)
    }
}

tokio::task_local! {
    /// What the resolver must know of the request it resolves for; the HTTP client tells it only the name.
    static IN_LOOKUP: Arc<InLookup>;
}

/// A request's way through the resolver.
struct InLookup {
    port: u16,
    running: AtomicBool,
}

impl InLookup {
    fn is_running(&self) -> bool {
        self.running.load(Ordering::Relaxed)
    }
}

/// Why a name gave no address to connect to.
#[derive(Debug, thiserror::Error)]
enum Unresolved {
    #[error("address not allowed")]
    Denied,
    #[error("the name has no address")]
    Empty,
    #[error("the name was not resolved in time")]
    Slow,
    #[error("the name cannot be resolved: {0}")]
    Failed(io::Error),
}

/// Resolves a name and judges what comes back: what it returns is what is connected to (rules S4 to S6).
struct Resolver {
    lookup: Arc<dyn Lookup>,
    /// `None`: nothing is judged.
    policy: Option<Arc<Policy>>,
    lookup_timeout: Duration,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let host = name.as_str().to_owned();
        let answer = self.lookup.lookup(host.clone());
        let policy = self.policy.clone();
        let limit = self.lookup_timeout;
        // A connection that was begun for one request may go on in the background when another one is free:
        // then nobody's port is known, and only allow-list lines without a port count.
        let request = IN_LOOKUP.try_with(Arc::clone).ok();
        Box::pin(async move {
            if let Some(request) = &request {
                request.running.store(true, Ordering::Relaxed);
            }
            let addresses = timeout(limit, answer).await;
            if let Some(request) = &request {
                request.running.store(false, Ordering::Relaxed);
            }
            let addresses = match addresses {
                Ok(Ok(addresses)) if addresses.is_empty() => return Err(Unresolved::Empty.into()),
                Ok(Ok(addresses)) => addresses,
                Ok(Err(e)) => return Err(Unresolved::Failed(e).into()),
                Err(_) => return Err(Unresolved::Slow.into()),
            };
            if let Some(policy) = policy {
                let port = request.map(|request| request.port);
                if let Err(refusal) = policy.check_addresses(&addresses, port) {
                    tracing::warn!(host, %refusal, "a delivery was kept from an address");
                    return Err(Unresolved::Denied.into());
                }
            }
            // Port 0: the URL's own is used.
            let addresses = addresses.into_iter().take(ADDRESSES_MAX).map(|ip| SocketAddr::new(ip, 0));
            Ok(Box::new(addresses) as Addrs)
        })
    }
}

impl Lookup for SystemLookup {
    fn lookup(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let mut addresses: Vec<IpAddr> = Vec::new();
            for address in tokio::net::lookup_host((host, 0)).await? {
                if !addresses.contains(&address.ip()) {
                    addresses.push(address.ip());
                }
            }
            Ok(addresses)
        })
    }
}
