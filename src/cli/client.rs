//! How commands reach a server: over TCP, through the socket in a running store's folder, or, if the store is
//! stopped, by opening it in this process. One way to ask, whichever it is.
//!
//! Speaks HTTP/1.1 to Hooklog's own API only; never makes a request to a receiver.

use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use bytes::BytesMut;
use futures::StreamExt;
use hooklog::api::serve::SOCKET;
use hooklog::clock::SystemClock;
use hooklog::store::{self, Store};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Mutex;
use tower::ServiceExt;
use zeroize::Zeroizing;

use super::exit::{Exit, Failure};
use super::profile::{self, Profile};
use super::progress::Progress;
use super::render::escape;
use crate::cli::serve;
use crate::config::{self, Config, Layer};

/// A connection to our own server is made within this time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The head of an answer comes within this time: longer than a commit that will not return is waited for.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of an answer that is read whole: a page of 200 deliveries with their payloads, base64, and room.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Bytes of one line of a streamed answer.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Which server or store.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct To {
    /// The server [default: the one on ./hooklog-store, else http://127.0.0.1:8474]
    #[arg(
        long,
        env = "HOOKLOG_URL",
        hide_env_values = true,
        value_name = "URL",
        global = true,
        help_heading = "Server"
    )]
    pub url: Option<String>,
    /// A store's folder instead: its running server is asked; without one the store is opened here
    #[arg(long, value_name = "DIR", global = true, help_heading = "Server")]
    pub store: Option<PathBuf>,
    /// A file with a key of that server. The key may be in HOOKLOG_KEY; a store's folder needs none
    #[arg(long, value_name = "FILE", global = true, help_heading = "Server")]
    pub key_file: Option<PathBuf>,
    /// A profile of ~/.config/hooklog/profiles.toml, which names url and key_file
    #[arg(
        long,
        env = "HOOKLOG_PROFILE",
        hide_env_values = true,
        value_name = "NAME",
        global = true,
        help_heading = "Server"
    )]
    pub profile: Option<String>,
    /// The configuration that a stopped store is opened with
    #[arg(
        long,
        env = "HOOKLOG_CONFIG",
        hide_env_values = true,
        value_name = "FILE",
        global = true,
        help_heading = "Server"
    )]
    pub config: Option<PathBuf>,
}

/// Asks a server.
pub struct Client {
    transport: Transport,
    key: Option<Zeroizing<String>>,
    kept: Mutex<Option<SendRequest<Body>>>,
}

enum Transport {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
    Stopped(Box<(Store, Router)>),
}

/// An answer, read whole.
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// Its body.
    pub body: Bytes,
}

/// An error as the API tells it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Problem {
    /// For people.
    pub title: String,
    /// For people, about this case.
    pub detail: String,
    /// For programs.
    pub code: String,
    /// Which members are wrong.
    pub errors: Vec<ProblemAt>,
    /// Accounts or events that an id may mean.
    pub candidates: Vec<serde_json::Value>,
}

/// What is wrong with one member.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ProblemAt {
    /// Where.
    pub pointer: String,
    /// What.
    pub detail: String,
}

/// The folder's running server, if there is one.
pub async fn running(folder: &Path) -> Option<PathBuf> {
    let path = folder.join(SOCKET);
    UnixStream::connect(&path).await.ok().map(|_| path)
}

/// The configuration of a store that is opened by a command: its folder, the environment and the file.
///
/// # Errors
/// As [`Layer::resolve`].
pub fn stopped_config(folder: &Path, file: Option<&Path>) -> Result<Config, Failure> {
    #[derive(clap::Parser)]
    struct Environment {
        #[command(flatten)]
        layer: Layer,
    }
    let layer = <Environment as clap::Parser>::try_parse_from(["hooklog"])
        .map_err(|error| Failure::usage(error.to_string()))?
        .layer;
    let mut layer = match file {
        Some(file) => layer.over(Layer::from_file(file)?),
        None => layer,
    };
    layer.store = Some(folder.to_owned());
    layer.resolve()
}

impl Client {
    /// Reaches what was asked for. A stopped store is opened.
    ///
    /// # Errors
    /// Everything that opening a store can fail with, and a URL that is none. A server is not asked yet.
    pub async fn open(to: &To) -> Result<Client, Failure> {
        let profile = match &to.profile {
            Some(name) if to.store.is_none() => profile::named(name)?,
            _ => Profile::default(),
        };
        let key = config::secret("HOOKLOG_KEY", to.key_file.as_deref().or(profile.key_file.as_deref()))?;
        let url = to.url.as_ref().or(profile.url.as_ref());
        let transport = match &to.store {
            Some(folder) => match running(folder).await {
                Some(socket) => Transport::Unix(socket),
                None => stopped(folder, to.config.as_deref())?,
            },
            None => match (url, running(Path::new(config::STORE)).await) {
                (Some(url), _) => tcp(url)?,
                (None, Some(socket)) => Transport::Unix(socket),
                (None, None) => tcp(&format!("http://{}", config::LISTEN))?,
            },
        };
        Ok(Client { transport, key, kept: Mutex::default() })
    }

    /// A client of a server at an address.
    pub fn at(address: std::net::SocketAddr) -> Client {
        let transport = Transport::Tcp { host: address.ip().to_string(), port: address.port() };
        Client { transport, key: None, kept: Mutex::default() }
    }

    /// Whether the store was opened by this very command.
    pub fn stopped(&self) -> bool {
        matches!(self.transport, Transport::Stopped(_))
    }

    /// Closes a store that was opened.
    ///
    /// # Errors
    /// What made its engine end.
    pub async fn close(self) -> Result<(), Failure> {
        match self.transport {
            Transport::Stopped(opened) => {
                let (store, router) = *opened;
                drop(router);
                Ok(store.close(Duration::ZERO).await?)
            }
            _ => Ok(()),
        }
    }

    /// Gets something.
    ///
    /// # Errors
    /// Nobody answers, or the answer is an error.
    pub async fn get<T: DeserializeOwned>(&self, path: &Target) -> Result<T, Failure> {
        self.call(Method::GET, path, None).await?.checked()?.json()
    }

    /// Posts something.
    ///
    /// # Errors
    /// Nobody answers, or the answer is an error.
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &Target,
        body: &impl Serialize,
    ) -> Result<T, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
        self.call(Method::POST, path, Some(("application/json", body.into()))).await?.checked()?.json()
    }

    /// Asks and reads the whole answer, whatever it is.
    ///
    /// # Errors
    /// Nobody answers.
    pub async fn call(
        &self,
        method: Method,
        path: &Target,
        body: Option<(&str, Bytes)>,
    ) -> Result<Reply, Failure> {
        let response = self.ask(method, path, body, None).await?;
        let status = response.status();
        let body = axum::body::to_bytes(response.into_body(), ANSWER_BYTES_MAX).await;
        Ok(Reply { status, body: body.map_err(|error| self.lost(&error))? })
    }

    /// Asks and hands on each line of the answer as it comes.
    ///
    /// # Errors
    /// Nobody answers, or the answer is an error, or it ends early.
    pub async fn lines(
        &self,
        path: &Target,
        each: &mut dyn FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut lines = self.whole(self.ask(Method::POST, path, None, None).await?).await?;
        while let Some(line) = lines.next().await? {
            each(&line)?;
        }
        Ok(())
    }

    /// The lines of a stream, from after an event's id on, if there is one.
    ///
    /// # Errors
    /// Nobody answers, or the answer is an error.
    pub async fn stream(&self, path: &Target, after: Option<&str>) -> Result<Lines<'_>, Failure> {
        let response = self.ask(Method::GET, path, None, after).await?;
        // Its connection is busy for as long as it is read: other requests take another.
        self.kept.lock().await.take();
        self.whole(response).await
    }

    /// The lines of an answer, unless it is an error.
    async fn whole(&self, response: Response<Body>) -> Result<Lines<'_>, Failure> {
        if !response.status().is_success() {
            let status = response.status();
            let body = axum::body::to_bytes(response.into_body(), ANSWER_BYTES_MAX).await;
            let reply = Reply { status, body: body.map_err(|error| self.lost(&error))? };
            return Err(reply.checked().err().unwrap_or_else(|| self.lost(&status)));
        }
        Ok(Lines { client: self, stream: response.into_body().into_data_stream(), read: BytesMut::new() })
    }

    async fn ask(
        &self,
        method: Method,
        path: &Target,
        body: Option<(&str, Bytes)>,
        last_event_id: Option<&str>,
    ) -> Result<Response<Body>, Failure> {
        let mut request = Request::builder().method(method).uri(path.as_str());
        if let Transport::Tcp { host, port } = &self.transport {
            let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
            request = request.header(HOST, format!("{host}:{port}"));
        } else {
            request = request.header(HOST, "localhost");
        }
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, format!("Bearer {}", key.as_str()));
        }
        if let Some(id) = last_event_id {
            request = request.header("last-event-id", id);
        }
        let body = match body {
            Some((content_type, bytes)) => {
                request = request.header(CONTENT_TYPE, content_type);
                Body::from(bytes)
            }
            None => Body::empty(),
        };
        let request = request.body(body).map_err(|error| Failure::usage(format!("bad request: {error}")))?;
        match &self.transport {
            Transport::Stopped(opened) => {
                let Ok(response) = opened.1.clone().oneshot(request).await;
                Ok(response)
            }
            _ => {
                let sent = tokio::time::timeout(ANSWER_TIMEOUT, self.send(request)).await;
                sent.unwrap_or_else(|_| Err(self.lost(&"no answer within 30 s")))
            }
        }
    }

    async fn send(&self, request: Request<Body>) -> Result<Response<Body>, Failure> {
        let mut kept = self.kept.lock().await.take();
        if let Some(sender) = &mut kept
            && sender.ready().await.is_err()
        {
            // The server has closed it meanwhile.
            kept = None;
        }
        let mut sender = match kept {
            Some(sender) => sender,
            None => self.connect().await?,
        };
        let response = sender.send_request(request).await.map_err(|error| self.lost(&error))?;
        *self.kept.lock().await = Some(sender);
        Ok(response.map(Body::new))
    }

    async fn connect(&self) -> Result<SendRequest<Body>, Failure> {
        let connecting = async {
            match &self.transport {
                Transport::Tcp { host, port } => {
                    let stream = TcpStream::connect((host.as_str(), *port)).await?;
                    stream.set_nodelay(true)?;
                    handshake(stream).await
                }
                Transport::Unix(path) => handshake(UnixStream::connect(path).await?).await,
                Transport::Stopped(_) => unreachable!("a stopped store is asked without a connection"),
            }
        };
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, connecting).await;
        connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into())).map_err(|error| {
            Failure::new(Exit::Unreachable, format!("cannot reach the server at {}: {error}", self.name()))
                .next("start one with `hooklog serve`, or name another with --url or --store")
        })
    }

    fn name(&self) -> String {
        match &self.transport {
            Transport::Tcp { host, port } => format!("{host}:{port}"),
            Transport::Unix(path) => path.display().to_string(),
            Transport::Stopped(_) => "the opened store".into(),
        }
    }

    fn lost(&self, why: &dyn std::fmt::Display) -> Failure {
        Failure::new(Exit::Unreachable, format!("{} gave no whole answer: {why}", self.name()))
            .next("whether it was done is unknown: ask again with the same id")
    }
}

/// An answer that is read line by line, as it comes.
pub struct Lines<'a> {
    client: &'a Client,
    stream: axum::body::BodyDataStream,
    read: BytesMut,
}

impl Lines<'_> {
    /// The next line; `None` at the end.
    ///
    /// # Errors
    /// The answer breaks off, or a line is longer than any of ours.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        let mut looked = 0;
        loop {
            if let Some(at) = self.read[looked..].iter().position(|byte| *byte == b'\n') {
                let mut line = self.read.split_to(looked + at + 1);
                line.truncate(looked + at);
                return Ok(Some(line.freeze()));
            }
            looked = self.read.len();
            if looked > LINE_BYTES_MAX {
                return Err(self.client.lost(&"a line is too long"));
            }
            match self.stream.next().await {
                Some(chunk) => self.read.extend_from_slice(&chunk.map_err(|error| self.client.lost(&error))?),
                None if self.read.is_empty() => return Ok(None),
                None => return Ok(Some(self.read.split().freeze())),
            }
        }
    }
}

async fn handshake<S>(stream: S) -> std::io::Result<SendRequest<Body>>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(std::io::Error::other)?;
    // It ends with the sender; errors reach whoever waits for an answer.
    tokio::spawn(connection);
    Ok(sender)
}

fn tcp(url: &str) -> Result<Transport, Failure> {
    let bad = |why: &str| Failure::usage(format!("--url {}: {why}", escape(url)));
    let parsed = url::Url::parse(url).map_err(|error| bad(&error.to_string()))?;
    match parsed.scheme() {
        "http" => {}
        "https" => {
            let failure = bad("this command speaks plain http only");
            return Err(failure.next("run it beside the server, or through a tunnel to it"));
        }
        _ => return Err(bad("use http://HOST:PORT")),
    }
    if !matches!(parsed.path(), "" | "/") || parsed.query().is_some() {
        return Err(bad("use http://HOST:PORT without a path"));
    }
    let host = match parsed.host() {
        Some(url::Host::Ipv6(address)) => address.to_string(),
        Some(host) => host.to_string(),
        None => return Err(bad("there is no host")),
    };
    Ok(Transport::Tcp { host, port: parsed.port_or_known_default().unwrap_or(80) })
}

fn stopped(folder: &Path, file: Option<&Path>) -> Result<Transport, Failure> {
    if !store::exists(folder) {
        return Err(store::Error::NoStore(folder.to_owned()).into());
    }
    let config = stopped_config(folder, file)?;
    let mut progress = Progress::new("folding");
    let opened = Store::open(config.store.clone(), SystemClock::start(), false, &mut |upto, head| {
        progress.show(upto.0, head.0);
    });
    drop(progress);
    let store = opened.map_err(Failure::from).map_err(in_use)?;
    let router = hooklog::api::router(serve::api(&store, &config).local());
    Ok(Transport::Stopped(Box::new((store, router))))
}

/// A store in use, for a server that wants it.
pub fn in_use_by_server(failure: Failure) -> Failure {
    match failure.exit {
        Exit::InUse => failure.next("does a server run on it already? `hooklog status --store DIR` asks it"),
        _ => failure,
    }
}

/// A store in use without a socket that answers.
pub fn in_use(failure: Failure) -> Failure {
    match failure.exit {
        Exit::InUse => failure.next("no server answers at its socket: if one runs, name it with --url"),
        _ => failure,
    }
}

impl Reply {
    /// This answer, unless it is an error.
    ///
    /// # Errors
    /// The API's problem, with the exit code that fits it.
    pub fn checked(self) -> Result<Reply, Failure> {
        if self.status.is_success() { Ok(self) } else { Err(problem(self.status, &self.body)) }
    }

    /// Its body, read.
    ///
    /// # Errors
    /// It is not what this version expects.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.body).map_err(|error| {
            Failure::new(Exit::Failed, format!("the server's answer is not understood: {error}"))
                .next("is the server another version than this command?")
        })
    }
}

/// A failure from an error's status and body.
pub fn problem(status: StatusCode, body: &[u8]) -> Failure {
    let problem: Problem = serde_json::from_slice(body).unwrap_or_default();
    let exit = match status.as_u16() {
        404 | 410 => Exit::NotFound,
        401 | 403 => Exit::NotAllowed,
        409 | 412 => Exit::Conflict,
        422 if problem.code == "event-id-reused" => Exit::Conflict,
        400 | 422 => Exit::Usage,
        502..=504 => Exit::Unreachable,
        507 => Exit::NoRoom,
        _ => Exit::Failed,
    };
    let mut text = match (&problem.detail, &problem.title) {
        (detail, _) if !detail.is_empty() => escape(detail).into_owned(),
        (_, title) if !title.is_empty() => escape(title).into_owned(),
        _ => format!("the server answered {status}"),
    };
    for at in &problem.errors {
        text.push_str(&format!("\n  {} {}", escape(&at.pointer), escape(&at.detail)));
    }
    for candidate in &problem.candidates {
        text.push_str(&format!("\n  {}", escape(&candidate.to_string())));
    }
    let failure = Failure::new(exit, text);
    match status.as_u16() {
        401 => failure.next("give a key in HOOKLOG_KEY or with --key-file; with --store, none is needed"),
        409 if !problem.candidates.is_empty() => failure.next("say whose it is with --account"),
        _ => failure,
    }
}

/// A path with its query.
#[derive(Clone, Debug)]
pub struct Target(String);

impl Target {
    /// A path of fixed segments and foreign ones, which are escaped.
    pub fn new(segments: &[&str]) -> Target {
        let mut url = url::Url::parse("http://localhost").expect("a URL");
        url.path_segments_mut().expect("it has segments").extend(segments);
        Target(url.path().to_owned())
    }

    /// With a member of the query.
    pub fn with(mut self, name: &str, value: &str) -> Target {
        self.0.push(if self.0.contains('?') { '&' } else { '?' });
        self.0.push_str(name);
        self.0.push('=');
        self.0.extend(url::form_urlencoded::byte_serialize(value.as_bytes()));
        self
    }

    /// With a member of the query, if there is one.
    pub fn with_some(self, name: &str, value: Option<&str>) -> Target {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// As it goes on the wire.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_segments_stay_segments() {
        let target = Target::new(&["v1", "events", "../x?y"]).with("account_id", "a&b").with_some("c", None);
        assert_eq!(target.as_str(), "/v1/events/..%2Fx%3Fy?account_id=a%26b");
    }

    #[test]
    fn a_problem_ends_with_the_code_that_fits() {
        let exit = |status: u16, body: &str| {
            problem(StatusCode::from_u16(status).expect("a status"), body.as_bytes()).exit
        };
        assert_eq!(exit(404, "{}"), Exit::NotFound);
        assert_eq!(exit(410, "{}"), Exit::NotFound);
        assert_eq!(exit(401, ""), Exit::NotAllowed);
        assert_eq!(exit(422, r#"{"code":"event-id-reused"}"#), Exit::Conflict);
        assert_eq!(exit(422, r#"{"code":"invalid"}"#), Exit::Usage);
        assert_eq!(exit(400, "{}"), Exit::Usage);
        assert_eq!(exit(429, "{}"), Exit::Failed);
        assert_eq!(exit(507, "{}"), Exit::NoRoom);
        let shown = problem(StatusCode::NOT_FOUND, br#"{"detail":"no\u001b[2J such event"}"#);
        assert_eq!(shown.text, "no␛[2J such event");
    }

    #[test]
    fn only_plain_urls_of_a_server_are_taken() {
        assert!(tcp("http://127.0.0.1:8474").is_ok());
        assert!(tcp("http://[::1]:8474/").is_ok());
        for url in ["https://x.example", "http://x.example/v1", "ftp://x", "x", "http://x.example?y"] {
            assert_eq!(tcp(url).map(drop).map_err(|failure| failure.exit), Err(Exit::Usage), "{url}");
        }
    }
}
