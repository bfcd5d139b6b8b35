//! Mail servers: mailcrab, which somebody else wrote, and a peer that does what a test tells it to. Stand in for: the
//! operator's mail server on a good day, and on all others.
//!
//! Neither waits by the clock.
#![allow(dead_code)]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hooklog::delivery::client::{Login, Relay, Security};
use hooklog::notify::Channel;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, mpsc};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Far longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// A channel to a mail server on this machine, in clear.
pub fn channel(port: u16) -> Channel {
    let relay = relay(port);
    Channel::Mail { relay, from: "Product webhooks <hooks@product.example>".parse().expect("a mailbox") }
}

/// A mail server on this machine, in clear.
pub fn relay(port: u16) -> Relay {
    let (host, security, login) = ("127.0.0.1".to_owned(), Security::None, None::<Login>);
    Relay { host, port, security, login, timeout: LONG }
}

/// A port that is free now.
pub fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("its address").port()
}

/// A mailcrab.
pub struct Crab {
    /// Where it listens.
    pub port: u16,
    stop: CancellationToken,
    ended: tokio::task::JoinHandle<()>,
    mails: broadcast::Receiver<mailcrab::MailMessage>,
}

impl Crab {
    /// One at any port.
    pub async fn start() -> Crab {
        Crab::at(free_port()).await
    }

    /// One at this port, ready.
    pub async fn at(port: u16) -> Crab {
        let (sender, mails) = broadcast::channel(10_000);
        let stop = CancellationToken::new();
        let server = mailcrab::mail_server(Ipv4Addr::LOCALHOST.into(), port, sender, false, stop.clone());
        let ended = tokio::spawn(async move {
            server.await.expect("it serves until it is stopped");
        });
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.is_err() {
            assert!(!ended.is_finished(), "it does not listen on {port}");
            tokio::task::yield_now().await;
        }
        Crab { port, stop, ended, mails }
    }

    /// The next mail, once it is there.
    pub async fn next(&mut self) -> Value {
        let mail = tokio::time::timeout(LONG, self.mails.recv()).await.expect("a mail");
        serde_json::to_value(mail.expect("it runs")).expect("a mail is data")
    }

    /// The mails since the last look.
    pub fn so_far(&mut self) -> Vec<Value> {
        let mails = std::iter::from_fn(|| self.mails.try_recv().ok());
        mails.map(|mail| serde_json::to_value(mail).expect("a mail is data")).collect()
    }

    /// Ends it; its port refuses connections then.
    pub async fn stop(self) {
        self.stop.cancel();
        self.ended.await.expect("it ends");
    }
}

/// The value of a field of a mail.
pub fn header(mail: &Value, name: &str) -> String {
    let headers = mail["headers"].as_object().expect("fields");
    let found = headers.iter().find(|(field, _)| field.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.as_str().expect("a text").trim().to_owned()).unwrap_or_default()
}

/// Where a dialogue stands when the peer is to speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// At the beginning.
    Greeting,
    /// After EHLO.
    Hello,
    /// After STARTTLS.
    StartTls,
    /// After AUTH.
    Auth,
    /// After MAIL FROM.
    From,
    /// After RCPT TO.
    To,
    /// After DATA.
    Data,
    /// After the message.
    End,
}

/// What it does then.
#[derive(Clone, Debug)]
pub enum Do {
    /// What a good server would.
    Well,
    /// Says this.
    Say(&'static str),
    /// Nothing, until its peer has gone.
    Hang,
    /// Closes the connection.
    Cut,
}

/// A message as it came in.
#[derive(Clone, Debug)]
pub struct Letter {
    /// After `MAIL FROM:`.
    pub from: String,
    /// After each `RCPT TO:`.
    pub to: Vec<String>,
    /// The message, dots undone.
    pub data: String,
    /// Whether it came under TLS.
    pub safe: bool,
    /// What AUTH said.
    pub auth: Option<String>,
}

type Script = Box<dyn FnMut(usize, At) -> Do + Send>;

/// A server that does what it is told.
pub struct Peer {
    /// Where it listens.
    pub address: SocketAddr,
    letters: mpsc::UnboundedReceiver<Letter>,
    connections: Arc<AtomicUsize>,
}

/// How it greets.
#[derive(Clone, Default)]
pub enum Tls {
    /// Never under TLS.
    #[default]
    Never,
    /// From the start.
    AtOnce(Arc<rustls::ServerConfig>),
    /// After STARTTLS.
    Later(Arc<rustls::ServerConfig>),
}

impl Peer {
    /// One that is told by connection and place what to do.
    pub async fn start(script: impl FnMut(usize, At) -> Do + Send + 'static) -> Peer {
        Peer::with_tls(Tls::Never, script).await
    }

    /// As [`start`](Self::start), with TLS.
    pub async fn with_tls(tls: Tls, script: impl FnMut(usize, At) -> Do + Send + 'static) -> Peer {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let (log, letters) = mpsc::unbounded_channel();
        let script: Arc<Mutex<Script>> = Arc::new(Mutex::new(Box::new(script)));
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = connections.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let connection = counter.fetch_add(1, Ordering::SeqCst);
                let session = Session {
                    connection,
                    script: script.clone(),
                    log: log.clone(),
                    tls: tls.clone(),
                    safe: false,
                };
                // A peer that goes away ends its session.
                tokio::spawn(async move { session.begin(stream).await.ok() });
            }
        });
        Peer { address, letters, connections }
    }

    /// The next message, once it is there whole.
    pub async fn next(&mut self) -> Letter {
        let next = tokio::time::timeout(LONG, self.letters.recv()).await.expect("a message");
        next.expect("it runs as long as the test")
    }

    /// The messages since the last look.
    pub fn so_far(&mut self) -> Vec<Letter> {
        std::iter::from_fn(|| self.letters.try_recv().ok()).collect()
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

impl Letter {
    /// The fields of its head, unfolded.
    pub fn fields(&self) -> Vec<(String, String)> {
        let head = self.data.split("\r\n\r\n").next().expect("a head").replace("\r\n ", " ");
        let fields = head.split("\r\n").map(|line| line.split_once(':').expect("a field"));
        fields.map(|(name, value)| (name.to_lowercase(), value.trim().to_owned())).collect()
    }

    /// All values of a field.
    pub fn field(&self, name: &str) -> Vec<String> {
        self.fields().into_iter().filter(|(field, _)| field == name).map(|(_, value)| value).collect()
    }
}

struct Session {
    connection: usize,
    script: Arc<Mutex<Script>>,
    log: mpsc::UnboundedSender<Letter>,
    tls: Tls,
    safe: bool,
}

/// The session goes on under TLS.
struct Upgrade;

impl Session {
    async fn begin(mut self, stream: TcpStream) -> std::io::Result<()> {
        if let Tls::AtOnce(config) = self.tls.clone() {
            self.safe = true;
            let stream = TlsAcceptor::from(config).accept(stream).await?;
            return self.talk(&mut BufReader::new(stream), true).await.map(drop);
        }
        let mut stream = BufReader::new(stream);
        if let (Some(Upgrade), Tls::Later(config)) = (self.talk(&mut stream, true).await?, self.tls.clone()) {
            self.safe = true;
            let stream = TlsAcceptor::from(config).accept(stream.into_inner()).await?;
            self.talk(&mut BufReader::new(stream), false).await?;
        }
        Ok(())
    }

    async fn talk<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        stream: &mut BufReader<S>,
        greet: bool,
    ) -> std::io::Result<Option<Upgrade>> {
        let (mut from, mut to, mut auth) = (String::new(), Vec::new(), None);
        if greet && !self.act(stream, At::Greeting, "220 peer.test\r\n").await? {
            return Ok(None);
        }
        let mut line = String::new();
        loop {
            line.clear();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(None);
            }
            let said = line.trim_end().to_owned();
            let verb = said.split([' ', ':']).next().unwrap_or_default().to_ascii_uppercase();
            let hello = match (&self.tls, self.safe) {
                (Tls::Later(_), false) => "250-peer.test\r\n250 STARTTLS\r\n",
                _ => "250-peer.test\r\n250-8BITMIME\r\n250 AUTH PLAIN\r\n",
            };
            let (at, well) = match verb.as_str() {
                "EHLO" => (At::Hello, hello),
                "STARTTLS" => (At::StartTls, "220 go on\r\n"),
                "AUTH" => (At::Auth, "235 welcome\r\n"),
                "MAIL" => (At::From, "250 ok\r\n"),
                "RCPT" => (At::To, "250 ok\r\n"),
                "DATA" => (At::Data, "354 go on\r\n"),
                "QUIT" => {
                    stream.write_all(b"221 bye\r\n").await?;
                    return Ok(None);
                }
                _ => panic!("{said}"),
            };
            match at {
                At::From => from = said.clone(),
                At::To => to.push(said.clone()),
                At::Auth => auth = Some(said.clone()),
                _ => {}
            }
            if !self.act(stream, at, well).await? {
                return Ok(None);
            }
            if at == At::StartTls {
                return Ok(Some(Upgrade));
            }
            if at == At::Data {
                let mut data = String::new();
                loop {
                    line.clear();
                    if stream.read_line(&mut line).await? == 0 {
                        return Ok(None);
                    }
                    match line.strip_prefix('.') {
                        Some("\r\n") => break,
                        Some(rest) => data += rest,
                        None => data += &line,
                    }
                }
                let letter =
                    Letter { from: from.clone(), to: to.clone(), data, safe: self.safe, auth: auth.clone() };
                self.log.send(letter).ok();
                if !self.act(stream, At::End, "250 taken\r\n").await? {
                    return Ok(None);
                }
            }
        }
    }

    /// Whether the session goes on.
    async fn act<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        stream: &mut BufReader<S>,
        at: At,
        well: &str,
    ) -> std::io::Result<bool> {
        let act = (self.script.lock().expect("no script panics"))(self.connection, at);
        match act {
            Do::Well => stream.write_all(well.as_bytes()).await?,
            Do::Say(words) => stream.write_all(words.as_bytes()).await?,
            Do::Hang => {
                stream.read_to_end(&mut Vec::new()).await?;
                return Ok(false);
            }
            Do::Cut => return Ok(false),
        }
        stream.flush().await?;
        Ok(true)
    }
}
