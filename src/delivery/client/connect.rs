//! Connections: to which of the judged addresses, how they are made, and what is seen of them.

use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt};
use hooklog_projections::policy::ErrorClass;
use http_body_util::Full;
use hyper::Request;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::unconstrained;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::super::{Fault, Reason};
use super::exchange::{READ_BYTES_MAX, READ_HEAD_BYTES_MAX};
use super::{Target, Trip, faults};

/// How long an address is waited for before the next one is tried beside it (RFC 8305 §5).
pub const HEAD_START: Duration = Duration::from_millis(250);

/// How long an address that failed comes after those that did not.
const LAST_FOR: Duration = Duration::from_secs(600);

/// Addresses that are remembered as having failed.
const FAILED_MAX: usize = 4096;

/// Makes connections.
pub(super) struct Dialer {
    tls: TlsConnector,
    pub connect_timeout: Duration,
    /// When an address failed that has others beside it.
    failed: Mutex<Failed>,
}

/// When which addresses failed: the last so many.
#[derive(Default)]
struct Failed(HashMap<SocketAddr, Instant>);

impl Failed {
    /// When all places are taken, the oldest failure is forgotten: whoever has many addresses that fail keeps
    /// nobody else's from being remembered.
    fn note(&mut self, address: SocketAddr, now: Instant) {
        if self.0.len() >= FAILED_MAX && !self.0.contains_key(&address) {
            self.0.retain(|_, at| now.duration_since(*at) < LAST_FOR);
            if self.0.len() >= FAILED_MAX
                && let Some(oldest) = self.0.iter().min_by_key(|(_, at)| **at).map(|(address, _)| *address)
            {
                self.0.remove(&oldest);
            }
        }
        self.0.insert(address, now);
    }
}

impl Dialer {
    pub(super) fn new(tls: ClientConfig, connect_timeout: Duration) -> Dialer {
        Dialer { tls: TlsConnector::from(Arc::new(tls)), connect_timeout, failed: Mutex::default() }
    }

    /// Remembers that an address failed.
    pub(super) fn failed(&self, address: SocketAddr) {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.note(address, Instant::now());
    }

    /// Puts those that failed lately last, the one that failed most recently at the very end.
    pub(super) fn rotate(&self, addresses: &mut [SocketAddr]) {
        if addresses.len() < 2 {
            return;
        }
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if !failed.0.is_empty() {
            let lately = |at: &&Instant| at.elapsed() < LAST_FOR;
            addresses.sort_by_key(|address| failed.0.get(address).filter(lately).copied());
        }
    }

    /// Connects to one of the addresses, in their order, and greets it with TLS where that is due.
    pub(super) async fn connect(
        &self,
        addresses: &[SocketAddr],
        target: &Target,
        by: Instant,
        trip: &mut Trip,
    ) -> Result<Box<Conn>, Fault> {
        let begun = Instant::now();
        let mut race = Race::default();
        let stream = timeout_at(by, race.run(addresses)).await;
        race.begun.iter().for_each(|address| trip.tried(*address));
        // Whoever began before the winner and is not there yet is slow.
        let won = stream.as_ref().ok().and_then(|won| won.as_ref().map(|(address, _)| *address));
        if addresses.len() > 1 {
            race.begun
                .iter()
                .filter(|address| Some(**address) != won)
                .for_each(|address| self.failed(*address));
        }
        let (address, stream) = match stream {
            Ok(Some(stream)) => stream,
            Ok(None) => return Err(race.fault()),
            Err(_) => {
                trip.address = race.begun.last().copied();
                let detail = format!("no connection within {} ms", begun.elapsed().as_millis());
                return Err(Fault {
                    reason: Some(Reason::ConnectSlow),
                    ..trip.fault(ErrorClass::Connect, &detail)
                });
            }
        };
        trip.used(address, false);
        let connected = Instant::now();
        trip.timings.connect = Some(connected - begun);
        let stream = match target.https {
            false => Stream::Plain(stream),
            true => {
                let stream = timeout_at(by, self.tls.connect(server_name(target, trip)?, stream)).await;
                trip.timings.tls = Some(connected.elapsed());
                match stream {
                    Ok(Ok(stream)) => Stream::Tls(Box::new(stream)),
                    Ok(Err(error)) => {
                        return Err(Fault { address: Some(address), ..faults::of_handshake(&error) });
                    }
                    Err(_) => {
                        let detail = "the TLS handshake was not finished in time";
                        return Err(Fault {
                            reason: Some(Reason::HandshakeSlow),
                            ..trip.fault(ErrorClass::Tls, detail)
                        });
                    }
                }
            }
        };
        Conn::new(stream, address).await.map(Box::new).map_err(|_| trip.closed())
    }
}

fn server_name(target: &Target, trip: &Trip) -> Result<ServerName<'static>, Fault> {
    match target.literal {
        Some(address) => Ok(ServerName::from(address)),
        None => ServerName::try_from(target.host.to_string())
            .map_err(|_| trip.fault(ErrorClass::NotSent, "the host name cannot be used with TLS")),
    }
}

/// Several addresses, each with a head start over the next.
#[derive(Default)]
struct Race {
    begun: Vec<SocketAddr>,
    errors: Vec<(SocketAddr, io::Error)>,
}

impl Race {
    async fn run(&mut self, addresses: &[SocketAddr]) -> Option<(SocketAddr, TcpStream)> {
        let mut running = FuturesUnordered::new();
        let mut waiting = addresses.iter();
        loop {
            if let Some(address) = waiting.next() {
                self.begun.push(*address);
                running.push(dial(*address));
            }
            let ended = match waiting.len() {
                0 => running.next().await,
                // Nobody within the head start: the next one begins beside them.
                _ => match timeout(HEAD_START, running.next()).await {
                    Ok(ended) => ended,
                    Err(_) => continue,
                },
            };
            match ended {
                Some((address, Ok(stream))) => return Some((address, stream)),
                Some((address, Err(error))) => self.errors.push((address, error)),
                None => return None,
            }
        }
    }

    /// Of all errors the one that says most: not that there is no IPv6 here, if another one failed otherwise.
    fn fault(&self) -> Fault {
        let telling = self.errors.iter().find(|(_, error)| !faults::is_unreachable(error));
        match telling.or(self.errors.first()) {
            Some((address, error)) => Fault { address: Some(*address), ..faults::of_connect(error) },
            None => faults::fault(ErrorClass::Connect, "no address to connect to"),
        }
    }
}

/// A connection to one of the addresses, whichever answers first, without TLS.
pub(super) async fn reach(addresses: &[SocketAddr]) -> Result<TcpStream, Fault> {
    let mut race = Race::default();
    let won = race.run(addresses).await;
    won.map(|(_, stream)| stream).ok_or_else(|| race.fault())
}

async fn dial(address: SocketAddr) -> (SocketAddr, io::Result<TcpStream>) {
    let stream = TcpStream::connect(address).await;
    // A request is written at once; waiting to fill a packet would only delay its end.
    (address, stream.and_then(|stream| stream.set_nodelay(true).map(|()| stream)))
}

/// A connection that speaks HTTP/1.1. Nobody else runs it: it moves only while it is polled here, and is
/// closed when it is dropped.
pub(super) struct Conn {
    pub address: SocketAddr,
    seen: Arc<Seen>,
    sender: SendRequest<Full<Bytes>>,
    /// `None` once it has ended.
    driver: Option<Connection<TokioIo<Watched>, Full<Bytes>>>,
}

impl Conn {
    async fn new(stream: Stream, address: SocketAddr) -> hyper::Result<Conn> {
        let seen = Arc::new(Seen::new());
        let stream = Watched { stream, seen: seen.clone() };
        let mut settings = http1::Builder::new();
        // Reading begins with a buffer of 8 KiB; only a head or body that needs more gets more.
        settings.max_buf_size(READ_HEAD_BYTES_MAX);
        let (sender, driver) = settings.handshake(TokioIo::new(stream)).await?;
        Ok(Conn { address, seen, sender, driver: Some(driver) })
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn head(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<hyper::Response<Incoming>, TrySendError<Request<Full<Bytes>>>> {
        self.seen.begin();
        let answer = self.sender.try_send_request(request);
        // Only the driver can make it ready, and that is polled just before, by the same task.
        let mut answer = std::pin::pin!(unconstrained(answer));
        std::future::poll_fn(|cx| {
            drive(&mut self.driver, cx);
            answer.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        })
        .await
    }

    /// The next part of a body.
    pub(super) async fn frame(&mut self, body: &mut Incoming) -> Option<hyper::Result<Frame<Bytes>>> {
        std::future::poll_fn(|cx| {
            let mut poll = || Pin::new(&mut *body).poll_frame(&mut Context::from_waker(Waker::noop()));
            if let Poll::Ready(frame) = poll() {
                return Poll::Ready(frame);
            }
            drive(&mut self.driver, cx);
            poll()
        })
        .await
    }

    /// How many bytes came since the last request began.
    pub(super) fn bytes_read(&self) -> u64 {
        self.seen.bytes.load(Ordering::Relaxed)
    }

    /// How long after the last request began its answer did.
    pub(super) fn first_byte(&self) -> Option<Duration> {
        match self.seen.first_byte.load(Ordering::Relaxed) {
            0 => None,
            nanos => Some(Duration::from_nanos(nanos)),
        }
    }

    /// Whether it ended in order and can take another request.
    pub(super) fn is_reusable(&mut self) -> bool {
        !self.seen.deaf.load(Ordering::Relaxed) && self.is_alive()
    }

    /// Whether it still is there, as far as can be told now.
    pub(super) fn is_alive(&mut self) -> bool {
        // Whoever polled it last is not to be woken for it any more.
        let mut turn = std::pin::pin!(unconstrained(std::future::poll_fn(|cx| {
            drive(&mut self.driver, cx);
            Poll::Ready(())
        })));
        let _ = turn.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        self.driver.is_some() && self.sender.is_ready()
    }
}

fn drive(driver: &mut Option<Connection<TokioIo<Watched>, Full<Bytes>>>, cx: &mut Context<'_>) {
    if let Some(running) = driver
        && Pin::new(running).poll(cx).is_ready()
    {
        // What still waits for it hears so at once.
        *driver = None;
    }
}

/// What is seen of a connection's bytes; the HTTP library does not tell.
struct Seen {
    /// When the last request began.
    begun: Mutex<Instant>,
    bytes: AtomicU64,
    /// Nanoseconds from there to the first byte of the answer; 0 before.
    first_byte: AtomicU64,
    /// Whether it takes no more bytes.
    deaf: AtomicBool,
}

impl Seen {
    fn new() -> Seen {
        Seen {
            begun: Mutex::new(Instant::now()),
            bytes: AtomicU64::new(0),
            first_byte: AtomicU64::new(0),
            deaf: AtomicBool::new(false),
        }
    }

    fn begin(&self) {
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.bytes.store(0, Ordering::Relaxed);
        self.first_byte.store(0, Ordering::Relaxed);
    }

    fn read(&self, bytes: usize) {
        if bytes > 0 && self.bytes.fetch_add(bytes as u64, Ordering::Relaxed) == 0 {
            let begun = *self.begun.lock().unwrap_or_else(PoisonError::into_inner);
            let nanos = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.first_byte.store(nanos.max(1), Ordering::Relaxed);
        }
    }
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// A stream that counts what is read and ends where that is too much, and that takes what it can no longer write for written: a receiver that
/// answers early and closes has answered all the same, and whether it has is for the reading side to say.
struct Watched {
    stream: Stream,
    seen: Arc<Seen>,
}

impl Watched {
    fn written(&self, len: usize, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match ready!(result) {
            Err(error) if faults::is_broken(&error) => {
                self.seen.deaf.store(true, Ordering::Relaxed);
                Poll::Ready(Ok(len))
            }
            result => Poll::Ready(result),
        }
    }

    fn is_deaf(&self) -> bool {
        self.seen.deaf.load(Ordering::Relaxed)
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.seen.bytes.load(Ordering::Relaxed) >= READ_BYTES_MAX {
            return Poll::Ready(Err(faults::too_much()));
        }
        let before = buf.filled().len();
        ready!(match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        })?;
        self.seen.read(buf.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_deaf() {
            return Poll::Ready(Ok(buf.len()));
        }
        let result = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        };
        self.written(buf.len(), result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        if self.is_deaf() {
            return Poll::Ready(Ok(len));
        }
        let result = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        };
        self.written(len, result)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_deaf() {
            return Poll::Ready(Ok(()));
        }
        let result = match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        };
        self.written(0, result.map_ok(|()| 0)).map_ok(drop)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use url::Url;

    use super::super::exchange::{self, Call, Ended};
    use super::*;

    #[test]
    fn many_failures_keep_no_other_from_being_remembered() {
        let mut failed = Failed::default();
        let address = |n: u32| SocketAddr::from((n.to_be_bytes(), 443));
        let begun = Instant::now();
        for n in 0..2 * FAILED_MAX as u32 {
            failed.note(address(n), begun + Duration::from_millis(u64::from(n)));
        }
        assert_eq!(failed.0.len(), FAILED_MAX);
        assert!(failed.0.contains_key(&address(2 * FAILED_MAX as u32 - 1)), "the newest is there");
        assert!(!failed.0.contains_key(&address(0)), "the oldest is not");
        failed.note(address(0), begun + LAST_FOR * 2);
        assert_eq!(failed.0.len(), 1, "what failed long ago counts no more");
    }

    /// With TLS 1.3 a client is through with the handshake before the receiver has judged it: the refusal may be
    /// there before the request is written, and is the reason all the same.
    #[tokio::test]
    async fn a_refusal_that_comes_before_the_request_is_the_reason() {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["here.test".to_owned()]).expect("a certificate");
        let mut roots = rustls::RootCertStore::empty();
        roots.add(cert.der().clone()).expect("a root");
        let roots = Arc::new(roots);
        let wanted =
            rustls::server::WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(signing_key.serialize_der());
        let server = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(wanted.build().expect("a verifier"))
            .with_single_cert(vec![cert.der().clone()], key.into())
            .expect("they fit");
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();

        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let refusal = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.expect("a client");
            let accepted = tokio_rustls::TlsAcceptor::from(Arc::new(server)).accept(stream);
            // The socket stays open: what was said on it must be read, not lost with it.
            accepted.into_fallible().await.map(drop).map_err(|(_, stream)| stream)
        });
        let (_, stream) = dial(address).await;
        let name = ServerName::try_from("here.test").expect("a name");
        let connecting = TlsConnector::from(Arc::new(client)).connect(name, stream.expect("a connection"));
        let stream = connecting.await.expect("the client has all it needs");
        let _open = refusal.await.expect("no panic").expect_err("no certificate was shown");
        stream.get_ref().0.peek(&mut [0]).await.expect("the refusal is there");

        let conn = Conn::new(Stream::Tls(Box::new(stream)), address).await.expect("HTTP begins");
        let url = Url::parse("https://here.test/").expect("a URL");
        let call = Call::new(&url, vec![], Bytes::new()).map_err(|fault| fault.detail).expect("a call");
        let mut trip = Trip::new(Duration::from_secs(60));
        match exchange::exchange(Box::new(conn), call.last_request(), &mut trip).await {
            Ended::NotBegun(fault) => assert_eq!(fault.reason, Some(Reason::ClientCertificateWanted)),
            Ended::Answered(..) | Ended::Lost { .. } => panic!("nothing of the request has left"),
        }
    }
}
