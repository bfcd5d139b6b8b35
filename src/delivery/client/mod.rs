//! The one door to the network: every outbound connection of the process is made in this folder.
//!
//! A delivery leaves over HTTP/1.1, to judged addresses only, without redirects, proxies, cookies or
//! decompression, and its answer is read up to a limit, all under one deadline. Never knows what an answer
//! means, nor whether there will be another attempt.
//!
//! One attempt, step by step: check the URL; sign; resolve the name and judge every address ([`resolve`]); take
//! a kept connection to one of these very addresses ([`pool`]) or make one ([`connect`], [`tls`]); send, read
//! the head, read the body ([`exchange`]). Whatever goes wrong is told in our words ([`faults`]). The operator's
//! own services are called in another way and are not judged ([`operator`], [`mail`]).
//!
//! # Kept connections
//!
//! Connections are kept for [`POOL_IDLE`] and used again. A receiver may close one at the very moment the next
//! request goes out on it; that request then fails without an answer and through nobody's fault. If not one
//! byte of an answer had come, it is sent once more, on a fresh connection, within the same attempt and
//! deadline, under the same id, timestamp and signature ([`Outcome::resent`]). A request that a kept
//! connection gave back untouched has not left: it goes on another one, and that is no second request.
//!
//! # Limits that are not ours
//!
//! Field names are sent in lower case. A head has at most 100 fields. Names are resolved by DNS and the hosts
//! file as they were configured when the process started.

pub mod resolve;

mod connect;
mod exchange;
mod faults;
mod mail;
mod operator;
mod pool;
mod tls;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use hooklog_projections::policy::ErrorClass;
use lettre::Address;
use tokio::time::Instant;
use url::{Host, Position, Url};

use super::guard::{self, Policy};
use super::{Answer, Fault, Outcome, Reason, Request, Timings, request};
use connect::{Conn, Dialer};
use exchange::{Call, Ended};
use faults::{because, denied, fault};
use mail::Post;
use operator::Operator;
use pool::{Key, Pool};
use resolve::{Dns, Resolver};

pub use connect::HEAD_START;
pub use exchange::{READ_BODY_BYTES_MAX, READ_HEAD_BYTES_MAX};
pub use mail::{Login, MailFault, Relay, Security};
pub use pool::{POOL_IDLE, POOL_IDLE_PER_KEY};
pub use resolve::{ADDRESSES_MAX, Lookup};
pub use tls::Error;

/// Time limits within a request's own, and what else the operator can set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// From the look-up of the name to a connection that is ready, TLS included.
    pub connect_timeout: Duration,
    /// Of the look-up alone.
    pub lookup_timeout: Duration,
    /// A file of PEM certificates that are trusted beside the system's: a private authority.
    pub extra_ca: Option<PathBuf>,
    /// Unused connections kept in all. Each costs an open file.
    pub idle_max: usize,
}

impl Default for Options {
    /// 5 s each, the system's certificates, and an eighth of the files that the process may open, 32 to 4,096.
    fn default() -> Self {
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let idle_max = files.map_or(4096, |files| (files / 8).clamp(32, 4096) as usize);
        Options {
            connect_timeout: Duration::from_secs(5),
            lookup_timeout: Duration::from_secs(5),
            extra_ca: None,
            idle_max,
        }
    }
}

/// Sends requests. Cheap to share behind an `Arc`; keeps connections between requests.
pub struct Client {
    rules: RwLock<Arc<Rules>>,
    resolver: Resolver,
    dialer: Dialer,
    pool: Arc<Pool>,
    operator: Operator,
    post: Post,
}

/// A policy with its number: what was connected under one is not used under another.
struct Rules {
    version: u64,
    policy: Policy,
}

impl Client {
    /// A client under an operator's policy.
    ///
    /// # Errors
    /// If TLS cannot be had, or no root certificate; see [`Error`].
    pub fn new(policy: Policy, options: Options) -> Result<Client, Error> {
        Client::with_lookup(policy, options, Arc::new(Dns::of_the_system()))
    }

    /// As [`new`](Self::new), with names resolved elsewhere. Everything that comes back is judged alike.
    ///
    /// # Errors
    /// As `new`.
    pub fn with_lookup(policy: Policy, options: Options, lookup: Arc<dyn Lookup>) -> Result<Client, Error> {
        let tls = tls::config(options.extra_ca.as_deref())?;
        Ok(Client {
            operator: Operator::new(tls.clone(), &options, lookup.clone())?,
            post: Post::new(tls.clone(), lookup.clone(), options.lookup_timeout),
            rules: RwLock::new(Arc::new(Rules { version: 0, policy })),
            resolver: Resolver::new(lookup, options.lookup_timeout),
            dialer: Dialer::new(tls, options.connect_timeout),
            pool: Pool::new(options.idle_max),
        })
    }

    /// Puts another policy in force, from the next attempt on. Kept connections are closed.
    pub fn set_policy(&self, policy: Policy) {
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        *rules = Arc::new(Rules { version: rules.version + 1, policy });
        drop(rules);
        self.pool.clear();
    }

    /// Sends one request and reads its answer. `now_unix_secs` is read when the request is ready to leave, and
    /// is what it is signed for (rule W2).
    ///
    /// Never fails: whatever goes wrong is in the outcome. A URL that the policy refuses is `EgressDenied`
    /// without a connection; a request that cannot be signed as its endpoint wants is `NotSent`.
    pub async fn send(&self, request: Request, now_unix_secs: impl FnOnce() -> u64 + Send) -> Outcome {
        let mut trip = Trip::new(request.timeout);
        let result = self.attempt(request, now_unix_secs, &mut trip).await;
        trip.ended(result)
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
        self.operator.post_json(url, body, headers, time).await
    }

    /// Hands a message to the operator's own mail server.
    ///
    /// # Errors
    /// Why it was not taken, and whether that is for now, for good, or not about this message at all.
    pub async fn send_mail(
        &self,
        relay: &Relay,
        from: &Address,
        to: &Address,
        message: &[u8],
    ) -> Result<(), MailFault> {
        self.post.send(relay, from, to, message).await
    }

    async fn attempt(
        &self,
        request: Request,
        now_unix_secs: impl FnOnce() -> u64 + Send,
        trip: &mut Trip,
    ) -> Result<Answer, Fault> {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner).clone();
        let (target, call) = ready(request, &rules.policy, now_unix_secs)?;
        let connect_by = trip.deadline.min(trip.started + self.dialer.connect_timeout);
        let mut addresses = self.resolver.resolve(&target, &rules.policy, connect_by, trip).await?;
        // What failed lately comes last, so that the next attempt does not begin where this one ended.
        self.dialer.rotate(&mut addresses);

        let key =
            |address| Key { host: target.host.clone(), https: target.https, address, rules: rules.version };
        'kept: for address in &addresses {
            while let Some(conn) = self.pool.take(&key(*address)) {
                trip.used(*address, true);
                match exchange::exchange(conn, call.request(), trip).await {
                    Ended::Answered(answer, conn) => return Ok(self.answered(answer, conn, key)),
                    Ended::NotBegun(_) => {}
                    Ended::Lost { before_answer: true, .. } => {
                        tracing::debug!("a kept connection was closed under a request: it is sent again");
                        trip.resent = true;
                        break 'kept;
                    }
                    Ended::Lost { fault, .. } => return Err(self.failed(fault, &addresses)),
                }
            }
        }

        trip.reused = false;
        let connect_by = trip.deadline.min(Instant::now() + self.dialer.connect_timeout);
        // Boxed: what connecting needs is larger than what waiting for an answer does, and ten thousand may wait.
        let conn = match Box::pin(self.dialer.connect(&addresses, &target, connect_by, trip)).await {
            Ok(conn) => conn,
            Err(fault) => return Err(self.failed(fault, &addresses)),
        };
        match exchange::exchange(conn, call.last_request(), trip).await {
            Ended::Answered(answer, conn) => Ok(self.answered(answer, conn, key)),
            Ended::NotBegun(fault) | Ended::Lost { fault, .. } => Err(self.failed(fault, &addresses)),
        }
    }

    /// Keeps the connection if it can be used again.
    fn answered(&self, answer: Answer, mut conn: Box<Conn>, key: impl Fn(SocketAddr) -> Key) -> Answer {
        // 421: this very connection is the wrong one for the host.
        if answer.status != 421 && conn.is_reusable() {
            self.pool.put(key(conn.address), conn);
        }
        answer
    }

    /// Remembers an address that failed where there is another one to begin with next time.
    fn failed(&self, fault: Fault, addresses: &[SocketAddr]) -> Fault {
        if let (Some(address), true) = (fault.address, addresses.len() > 1) {
            self.dialer.failed(address);
        }
        fault
    }
}

/// Where it goes and what goes out. Of secrets nothing is kept beyond this.
fn ready(
    request: Request,
    policy: &Policy,
    now_unix_secs: impl FnOnce() -> u64,
) -> Result<(Target, Call), Fault> {
    let url = policy.check_url(&request.url).map_err(|refusal| match refusal {
        guard::UrlRefusal::Literal(_) | guard::UrlRefusal::Localhost => denied(),
        refusal => because(ErrorClass::EgressDenied, Reason::AddressNotAllowed, &refusal.to_string()),
    })?;
    let headers = request::headers(&request, now_unix_secs());
    let headers = headers.map_err(|e| fault(ErrorClass::NotSent, &e.to_string()))?;
    Ok((Target::of(&url), Call::new(&url, headers, request.body)?))
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        f.debug_struct("Client").field("policy", &rules.policy).finish_non_exhaustive()
    }
}

/// Where a request goes, before any address is known.
struct Target {
    https: bool,
    /// As the URL has it: a name, an IPv4 address, an IPv6 address without brackets.
    host: Arc<str>,
    /// The host, if it is an address itself.
    literal: Option<std::net::IpAddr>,
    port: u16,
}

impl Target {
    fn of(url: &Url) -> Target {
        let literal = match url.host() {
            Some(Host::Ipv4(address)) => Some(address.into()),
            Some(Host::Ipv6(address)) => Some(address.into()),
            Some(Host::Domain(_)) | None => None,
        };
        let host = url[Position::BeforeHost..Position::AfterHost].trim_matches(['[', ']']);
        Target {
            https: url.scheme() == "https",
            host: host.into(),
            literal,
            port: url.port_or_known_default().unwrap_or(0),
        }
    }
}

/// What is noted on the way of one attempt.
struct Trip {
    started: Instant,
    deadline: Instant,
    time: Duration,
    timings: Timings,
    address: Option<SocketAddr>,
    /// All addresses that were tried, each once.
    tried: Vec<SocketAddr>,
    reused: bool,
    resent: bool,
}

impl Trip {
    fn new(time: Duration) -> Trip {
        let started = Instant::now();
        Trip {
            started,
            deadline: started + time,
            time,
            timings: Timings::default(),
            address: None,
            tried: Vec::new(),
            reused: false,
            resent: false,
        }
    }

    /// The request is about to go out to `address`.
    fn used(&mut self, address: SocketAddr, reused: bool) {
        self.address = Some(address);
        self.reused = reused;
        self.tried(address);
    }

    fn tried(&mut self, address: SocketAddr) {
        if !self.tried.contains(&address) {
            self.tried.push(address);
        }
    }

    fn fault(&self, class: ErrorClass, detail: &str) -> Fault {
        Fault { address: self.address, ..fault(class, detail) }
    }

    fn closed(&self) -> Fault {
        self.fault(ErrorClass::Closed, faults::CLOSED)
    }

    fn timed_out(&self) -> Fault {
        self.fault(ErrorClass::Timeout, &format!("no answer within {} ms", self.time.as_millis()))
    }

    fn ended(self, result: Result<Answer, Fault>) -> Outcome {
        let outcome = Outcome::of(result, faults::millis(self.started.elapsed()));
        let last = outcome.address();
        let mut in_vain = self.tried;
        in_vain.retain(|address| Some(*address) != last);
        Outcome { resent: self.resent, reused: self.reused, timings: self.timings, in_vain, ..outcome }
    }
}
