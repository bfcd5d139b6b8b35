//! Mail to the operator's own mail server: one message, one connection, one deadline.
//!
//! The server is the operator's choice, so its addresses are not judged; certificates are checked like a receiver's.
//! What is said over SMTP is lettre's; the connection and TLS are ours. STARTTLS is done before lettre hears of the
//! connection, so nothing that came in clear is ever read as said under TLS. Never knows what a message says, nor
//! whether there will be another try.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use lettre::Address;
use lettre::transport::smtp::Error as SmtpError;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{AsyncSmtpConnection, AsyncTokioStream};
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use lettre::transport::smtp::extension::{ClientId, Extension, MailParameter};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use zeroize::Zeroizing;

use super::connect::reach;
use super::{Lookup, faults};

/// Bytes of a reply before TLS (RFC 5321 allows 512 a line; a greeting may have several).
const REPLY_BYTES_MAX: usize = 8 * 1024;
/// Bytes of all replies on one connection: a dozen lines are usual, and each is parsed with all before it.
const REPLIES_BYTES_MAX: usize = 16 * 1024;
/// Characters that are kept of what a server said.
const SAID_CHARS_MAX: usize = 200;
/// How long a farewell may take: the message is taken by then.
const FAREWELL: Duration = Duration::from_secs(1);
/// Codes that say that this program may not send, whoever the recipient is (RFC 4954).
const NOT_ALLOWED: [u16; 4] = [530, 534, 535, 538];

/// The operator's mail server.
#[derive(Clone)]
pub struct Relay {
    /// A name or an address.
    pub host: String,
    /// 465 and 587 are usual.
    pub port: u16,
    /// How the connection is protected.
    pub security: Security,
    /// Who we are there, if it wants to know.
    pub login: Option<Login>,
    /// For one message, from the look-up of the name to the server's last word.
    pub timeout: Duration,
}

/// How the connection to a mail server is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// TLS from the first byte.
    Tls,
    /// In clear up to STARTTLS, which must succeed before anything else is said.
    StartTls,
    /// Not at all: for a server on this machine.
    None,
}

/// A name and a password.
#[derive(Clone)]
pub struct Login {
    /// As the server knows it.
    pub username: String,
    /// Its secret.
    pub password: Zeroizing<String>,
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Relay({}:{}, {:?})", self.host, self.port, self.security)
    }
}

/// Why a message was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MailFault {
    /// The server cannot be reached, does not answer, or takes nothing from us: so it is for every message. Whether
    /// it has taken this one may be unknown.
    Relay(String),
    /// It does not take this message now.
    Later(String),
    /// It does not take this message, and never will.
    Refused(String),
}

/// Sends mail.
pub(super) struct Post {
    lookup: Arc<dyn Lookup>,
    lookup_timeout: Duration,
    tls: TlsConnector,
}

impl Post {
    pub(super) fn new(mut tls: ClientConfig, lookup: Arc<dyn Lookup>, lookup_timeout: Duration) -> Post {
        tls.alpn_protocols.clear();
        Post { lookup, lookup_timeout, tls: TlsConnector::from(Arc::new(tls)) }
    }

    pub(super) async fn send(
        &self,
        relay: &Relay,
        from: &Address,
        to: &Address,
        message: &[u8],
    ) -> Result<(), MailFault> {
        let sent = async {
            let mut conn = self.greet(relay).await?;
            deliver(&mut conn, from, to, message).await.map(|()| conn)
        };
        match timeout(relay.timeout, sent).await {
            Ok(Ok(mut conn)) => {
                let _ = timeout(FAREWELL, conn.quit()).await;
                Ok(())
            }
            Ok(Err(fault)) => Err(fault),
            Err(_) => Err(MailFault::Relay(format!("no answer within {} ms", relay.timeout.as_millis()))),
        }
    }

    /// A connection on which mail may be sent.
    async fn greet(&self, relay: &Relay) -> Result<AsyncSmtpConnection, MailFault> {
        let stream = self.connect(relay).await?;
        let own = stream.local_addr().map_err(|error| unreachable(&error))?.ip();
        // An address in place of a name that nobody could look up (RFC 5321 §4.1.4).
        let own = match own {
            IpAddr::V4(address) => ClientId::Ipv4(address),
            IpAddr::V6(address) => ClientId::Ipv6(address),
        };
        let line = match relay.security {
            Security::None => Line { unread: b"", read: 0, wire: Wire::Plain(stream) },
            Security::Tls => {
                Line { unread: b"", read: 0, wire: Wire::Tls(Box::new(self.protect(relay, stream).await?)) }
            }
            Security::StartTls => {
                let stream = start_tls(stream, &own).await?;
                let wire = Wire::Tls(Box::new(self.protect(relay, stream).await?));
                // The greeting came before: TLS has none of its own.
                Line { unread: b"220 under TLS\r\n", read: 0, wire }
            }
        };
        let mut conn =
            AsyncSmtpConnection::connect_with_transport(Box::new(line), &own).await.map_err(of_relay)?;
        if let Some(Login { username, password }) = &relay.login {
            let login = Credentials::new(username.clone(), password.to_string());
            conn.auth(&[Mechanism::Plain, Mechanism::Login], &login).await.map_err(of_relay)?;
        }
        Ok(conn)
    }

    async fn connect(&self, relay: &Relay) -> Result<TcpStream, MailFault> {
        let found = match relay.host.parse::<IpAddr>() {
            Ok(address) => vec![address],
            Err(_) => match timeout(self.lookup_timeout, self.lookup.lookup(relay.host.clone())).await {
                Ok(Ok(found)) => found,
                Ok(Err(error)) => return Err(MailFault::Relay(faults::of_lookup(&error).detail.to_string())),
                Err(_) => return Err(MailFault::Relay("the name was not resolved in time".into())),
            },
        };
        let addresses: Vec<_> = found.into_iter().map(|ip| SocketAddr::new(ip, relay.port)).collect();
        reach(&addresses).await.map_err(|fault| MailFault::Relay(fault.detail.to_string()))
    }

    async fn protect(&self, relay: &Relay, stream: TcpStream) -> Result<TlsStream<TcpStream>, MailFault> {
        let name = match relay.host.parse::<IpAddr>() {
            Ok(address) => ServerName::from(address),
            Err(_) => ServerName::try_from(relay.host.clone())
                .map_err(|_| MailFault::Relay("the host name cannot be used with TLS".into()))?,
        };
        let greeted = self.tls.connect(name, stream).await;
        greeted.map_err(|error| MailFault::Relay(faults::of_handshake(&error).detail.to_string()))
    }
}

/// One message on a connection that was greeted.
async fn deliver(
    conn: &mut AsyncSmtpConnection,
    from: &Address,
    to: &Address,
    message: &[u8],
) -> Result<(), MailFault> {
    let mut options = Vec::new();
    if ![to, from].iter().all(|address| address.to_string().is_ascii()) {
        if !conn.server_info().supports_feature(Extension::SmtpUtfEight) {
            return Err(MailFault::Refused(
                "the mail server takes no addresses beyond ASCII (SMTPUTF8)".into(),
            ));
        }
        options.push(MailParameter::SmtpUtfEight);
    }
    conn.command(Mail::new(Some(from.clone()), options)).await.map_err(of_relay)?;
    conn.command(Rcpt::new(to.clone(), Vec::new())).await.map_err(of_message)?;
    conn.command(Data).await.map_err(of_message)?;
    conn.message(message).await.map(drop).map_err(of_message)
}

/// The connection after the server agreed to TLS, with nothing read beyond.
async fn start_tls(mut stream: TcpStream, own: &ClientId) -> Result<TcpStream, MailFault> {
    let cut = |error: io::Error| unreachable(&error);
    reply(&mut stream, "220").await?;
    stream.write_all(format!("EHLO {own}\r\n").as_bytes()).await.map_err(cut)?;
    let offers = reply(&mut stream, "250").await?;
    let offered = offers
        .lines()
        .any(|line| line.get(4..).is_some_and(|word| word.trim().eq_ignore_ascii_case("STARTTLS")));
    if !offered {
        return Err(MailFault::Relay("the mail server offers no STARTTLS".into()));
    }
    stream.write_all(b"STARTTLS\r\n").await.map_err(cut)?;
    reply(&mut stream, "220").await?;
    Ok(stream)
}

/// One whole reply in clear, which must begin with this code, and after which nothing may have come.
async fn reply(stream: &mut TcpStream, wanted: &str) -> Result<String, MailFault> {
    let mut bytes = Vec::new();
    loop {
        let mut lines = bytes.split_inclusive(|byte| *byte == b'\n');
        let last =
            lines.next_back().filter(|line: &&[u8]| line.ends_with(b"\n") && line.get(3) != Some(&b'-'));
        if let Some(last) = last {
            let said = String::from_utf8_lossy(&bytes).into_owned();
            return if last.starts_with(wanted.as_bytes()) {
                Ok(said)
            } else {
                Err(MailFault::Relay(format!("the mail server said `{}`", clean(&said))))
            };
        }
        if bytes.len() >= REPLY_BYTES_MAX {
            return Err(MailFault::Relay("the mail server's reply is too long".into()));
        }
        match stream.read_buf(&mut bytes).await {
            Ok(0) => return Err(MailFault::Relay("the connection was closed before a reply".into())),
            Ok(_) => {}
            Err(error) => return Err(unreachable(&error)),
        }
    }
}

fn unreachable(error: &io::Error) -> MailFault {
    MailFault::Relay(clean(&error.to_string()))
}

/// What fails before a recipient was named is nobody's fault but the server's, or our settings'.
fn of_relay(error: SmtpError) -> MailFault {
    MailFault::Relay(said(&error))
}

fn of_message(error: SmtpError) -> MailFault {
    match error.status().map(u16::from) {
        Some(code) if NOT_ALLOWED.contains(&code) => MailFault::Relay(said(&error)),
        // The server says goodbye to everybody (RFC 5321 §3.8).
        Some(421) | None => MailFault::Relay(said(&error)),
        Some(500..) => MailFault::Refused(said(&error)),
        Some(_) => MailFault::Later(said(&error)),
    }
}

/// `550 5.1.1 no such user`, or what else went wrong.
fn said(error: &SmtpError) -> String {
    use std::error::Error as _;
    let why = error.source().map(ToString::to_string).unwrap_or_default();
    match error.status() {
        Some(code) => clean(&format!("{code} {why}")),
        None if why.is_empty() => clean(&error.to_string()),
        None => clean(&why),
    }
}

/// What a server said, on one line, without anything that a terminal or page would obey.
fn clean(text: &str) -> String {
    let words: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    words.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(SAID_CHARS_MAX).collect()
}

/// A connection as lettre wants it, with what it is to read first.
#[derive(Debug)]
struct Line {
    unread: &'static [u8],
    read: usize,
    wire: Wire,
}

#[derive(Debug)]
enum Wire {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncTokioStream for Line {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        match &self.wire {
            Wire::Plain(stream) => stream.peer_addr(),
            Wire::Tls(stream) => stream.get_ref().0.peer_addr(),
        }
    }
}

impl AsyncRead for Line {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.unread.is_empty() {
            let (now, later) = self.unread.split_at(self.unread.len().min(buf.remaining()));
            buf.put_slice(now);
            self.unread = later;
            return Poll::Ready(Ok(()));
        }
        if self.read >= REPLIES_BYTES_MAX {
            return Poll::Ready(Err(io::Error::other("the mail server says too much")));
        }
        let before = buf.filled().len();
        ready!(match &mut self.wire {
            Wire::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Wire::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        })?;
        self.read += buf.filled().len() - before;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Line {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.wire {
            Wire::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Wire::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.wire {
            Wire::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Wire::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.wire {
            Wire::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Wire::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
