//! One request to one receiver: what is sent, how it is signed, where it may go, and what the answer means.
//!
//! Pure: [`sign`], [`request`], [`classify`], [`retry_after`], [`guard`]. The one door to the network is
//! [`client`]. Never knows deliveries, their states, schedules or the log: a request comes in whole, an
//! [`Outcome`] goes out.

pub mod checker;
pub mod classify;
pub mod client;
pub mod guard;
pub mod request;
pub mod retry_after;
pub mod sign;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use hooklog_projections::fact::Schemes;
use hooklog_projections::ids::EventId;
use hooklog_projections::policy::ErrorClass;
use hooklog_projections::time::{Millis, Timestamp};

pub use client::Client;
pub use sign::{Key, TextSecret};

/// All that one attempt sends. It is signed when it leaves, not when it is built.
pub struct Request {
    /// Where to, as [`guard::Policy::check_url`] serialised it.
    pub url: String,
    /// `webhook-id` and `Idempotency-Key`: the same for every attempt and every run.
    pub event_id: EventId,
    /// Sent byte for byte, and signed byte for byte.
    pub body: Bytes,
    /// Of the body.
    pub content_type: String,
    /// From 1; `webhook-replay` carries it from 2 on.
    pub run: u32,
    /// The endpoint's live signing keys, newest first: one signature each.
    pub keys: Vec<Key>,
    /// The account's secret, used as text.
    pub account_secret: Option<TextSecret>,
    /// Which signatures are sent.
    pub schemes: Schemes,
    /// Carries the signature that is made with it.
    pub signature_header: request::SignatureHeader,
    /// The endpoint's own headers. Those that [`request::check_header`] refuses are left out.
    pub headers: Vec<(String, String)>,
    /// From the call to the last byte of the answer: name, connection, head and body.
    pub timeout: Duration,
}

/// How an attempt ended, and how long it took.
#[derive(Debug)]
pub struct Outcome {
    /// An answer of any status, or what went wrong before there was one.
    pub result: Result<Answer, Fault>,
    /// From the call to the end.
    pub took: Millis,
    /// Whether it was sent a second time on a fresh connection, because the kept one it first went out on was
    /// closed under it. The receiver may have seen it twice, under one id.
    pub resent: bool,
    /// Whether the connection it last went out on had served another request before.
    pub reused: bool,
    /// Where the time went.
    pub timings: Timings,
    /// Addresses that were tried in vain, before or beside the one that was spoken to last.
    pub in_vain: Vec<SocketAddr>,
}

/// How long the parts of an attempt took, as far as they took place: on a kept connection nothing is connected,
/// and what failed has nothing after it. Of a request that was sent again, the parts of its second way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// Before the call, from when the request was due: its turn, its record, reading its body. The client knows
    /// nothing of it; whoever lets the attempt go adds it.
    pub queue: Duration,
    /// Resolving the name.
    pub dns: Option<Duration>,
    /// Until TCP was connected, to whichever address was first.
    pub connect: Option<Duration>,
    /// The TLS handshake.
    pub tls: Option<Duration>,
    /// From handing over the request to the first byte that came back.
    pub first_byte: Option<Duration>,
    /// From the whole head to the end of the body, or to where reading ended.
    pub body: Option<Duration>,
}

/// A whole response head, and as much of the body as is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status code, also an unregistered one: 101 and 200 to 999.
    pub status: u16,
    /// Fields of [`KEPT_HEADERS`] in the order they came, names in lower case, bytes that are not UTF-8
    /// replaced, each value at most [`KEPT_HEADER_BYTES`]. On top, of a body that is kept in part, the
    /// `content-length` that was announced.
    pub headers: Vec<(&'static str, String)>,
    /// The first [`KEPT_BODY_BYTES`] at most, as they came.
    pub body: Bytes,
    /// Whether the body had more, or ended early, or was still coming at the time-out. Never makes a failure
    /// out of a success: the head is the answer.
    pub truncated: bool,
    /// Who answered.
    pub address: Option<SocketAddr>,
}

/// No answer, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its kind, which [`classify`](classify::classify) judges.
    pub class: ErrorClass,
    /// What exactly it was, where its kind has several.
    pub reason: Option<Reason>,
    /// For people, the customer included: no URL, no address, no secret. At most 300 characters.
    pub detail: String,
    /// Who was connected to, or could not be, if it came to that. For operators.
    pub address: Option<SocketAddr>,
}

/// What exactly went wrong. All of these pass one day, so none changes what follows; they tell people what to
/// repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// DNS: there is no such name.
    NoSuchName,
    /// DNS: the name has no address.
    NoAddress,
    /// DNS: no name server could say.
    NameServerFailed,
    /// DNS: no name server answered in time.
    NameServerSilent,
    /// The guard: an address, or the URL itself, is not allowed.
    AddressNotAllowed,
    /// TCP: nobody listens.
    Refused,
    /// TCP: no way there.
    Unreachable,
    /// TCP: not connected in time.
    ConnectSlow,
    /// TLS: its time is over.
    CertificateExpired,
    /// TLS: its time has not come.
    CertificateNotYetValid,
    /// TLS: it is for other names.
    CertificateWrongHost,
    /// TLS: nobody we trust signed it; also one that signed itself.
    CertificateUnknownIssuer,
    /// TLS: anything else about it.
    CertificateUnusable,
    /// TLS: it wants one of ours.
    ClientCertificateWanted,
    /// TLS: it speaks only versions that are no longer spoken: 1.0, 1.1, or older.
    TlsTooOld,
    /// TLS: no cipher in common, or a client certificate that it does not ask for by name.
    NoCommonTls,
    /// TLS: what answers speaks something else.
    NotTls,
    /// TLS: ended by the receiver.
    Alert,
    /// TLS: the connection was closed.
    HandshakeClosed,
    /// TLS: not finished in time.
    HandshakeSlow,
}

impl Reason {
    /// Its name in records. Recorded names never change their meaning.
    pub fn name(self) -> &'static str {
        match self {
            Reason::NoSuchName => "no-such-name",
            Reason::NoAddress => "no-address",
            Reason::NameServerFailed => "name-server-failed",
            Reason::NameServerSilent => "name-server-silent",
            Reason::AddressNotAllowed => "address-not-allowed",
            Reason::Refused => "refused",
            Reason::Unreachable => "unreachable",
            Reason::ConnectSlow => "connect-slow",
            Reason::CertificateExpired => "certificate-expired",
            Reason::CertificateNotYetValid => "certificate-not-yet-valid",
            Reason::CertificateWrongHost => "certificate-wrong-host",
            Reason::CertificateUnknownIssuer => "certificate-unknown-issuer",
            Reason::CertificateUnusable => "certificate-unusable",
            Reason::ClientCertificateWanted => "client-certificate-wanted",
            Reason::TlsTooOld => "tls-too-old",
            Reason::NoCommonTls => "no-common-tls",
            Reason::NotTls => "not-tls",
            Reason::Alert => "alert",
            Reason::HandshakeClosed => "handshake-closed",
            Reason::HandshakeSlow => "handshake-slow",
        }
    }
}

/// The response fields that are kept; every other one (`set-cookie` first of all) is forgotten at once.
pub const KEPT_HEADERS: [&str; 6] =
    ["content-type", "retry-after", "location", "date", "server", "x-request-id"];

/// The field that says how long a body is that is kept in part.
pub const CONTENT_LENGTH: &str = "content-length";

/// Bytes kept of one response field: enough for a redirect's address, too little to fill a log.
pub const KEPT_HEADER_BYTES: usize = 1024;

/// Bytes kept of a response body: an error page's first screen.
pub const KEPT_BODY_BYTES: usize = 16 * 1024;

impl Outcome {
    /// One that took so long, of which nothing else is known.
    pub fn of(result: Result<Answer, Fault>, took: Millis) -> Outcome {
        Outcome {
            result,
            took,
            resent: false,
            reused: false,
            timings: Timings::default(),
            in_vain: Vec::new(),
        }
    }

    /// Who was spoken to, if it came to that.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.result {
            Ok(answer) => answer.address,
            Err(fault) => fault.address,
        }
    }
}

impl Fault {
    /// One of which nothing else is known.
    pub fn new(class: ErrorClass, detail: impl Into<String>) -> Fault {
        Fault { class, reason: None, detail: detail.into(), address: None }
    }
}

impl Answer {
    /// The values of one kept field, in the order they came. `name` in lower case.
    pub fn field<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.headers.iter().filter(move |(n, _)| *n == name).map(|(_, value)| value.as_str())
    }

    /// How long the receiver asks to be left alone: its `Retry-After` on 413, 429 and 503 (rule H1), at most
    /// [`retry_after::CAP`].
    pub fn retry_after(&self, now: Timestamp) -> Option<Millis> {
        if !retry_after::is_read_on(self.status) {
            return None;
        }
        retry_after::parse(self.field("retry-after"), now, self.field("date").next())
    }
}

/// Shows which event it is and nothing else: keys, headers, body and query are all somebody's secret.
impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("event_id", &self.event_id)
            .field("run", &self.run)
            .finish_non_exhaustive()
    }
}
