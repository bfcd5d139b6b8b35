//! The real binary in a process of its own, started, asked, killed and started again on the same store.
//! Stands in for: the operator's supervisor, and a producer's HTTP client.
//!
//! Nothing here waits by the clock. A server is up when it has printed its address, gone when its process was
//! reaped; all else is asked of its API again and again, within a limit.
#![allow(dead_code)]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{Method, Request};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// What the server says when it is up.
const UP: &str = "hooklog listens on http://";
/// A start in an unoptimised build on a busy machine; a longer one is a failure.
pub const START_MAX: Duration = Duration::from_secs(60);

/// A store and the flags that servers on it are started with.
#[derive(Clone, Debug)]
pub struct Host {
    /// The store's folder.
    pub store: PathBuf,
    flags: Vec<String>,
    log: PathBuf,
    /// Files that a server may have open.
    files_max: Option<u64>,
}

/// A server that runs.
pub struct Server {
    /// Asks it.
    pub api: Api,
    /// Where it listens.
    pub address: SocketAddr,
    child: Child,
    log: PathBuf,
    // Kept open: the server may print.
    stdout: Lines<BufReader<ChildStdout>>,
}

/// A process that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    /// What it printed.
    pub out: String,
    /// What it said besides.
    pub err: String,
}

impl Host {
    /// A store in a folder, which is made at the first start; receivers on loopback are allowed.
    pub fn new(folder: &Path) -> Host {
        let flags = ["--listen", "127.0.0.1:0", "--open-loopback", "--allow-http", "--allow", "127.0.0.0/8"];
        Host {
            store: folder.join("store"),
            flags: flags.map(str::to_owned).into(),
            log: folder.join("server.log"),
            files_max: None,
        }
    }

    /// With another flag.
    pub fn with(mut self, flag: &str, value: &str) -> Host {
        self.flags.extend([flag.to_owned(), value.to_owned()]);
        self
    }

    /// Wanting a key from whoever comes over TCP.
    pub fn closed(mut self) -> Host {
        self.flags.retain(|flag| flag != "--open-loopback");
        self
    }

    /// Listening at an address of its own.
    pub fn at(mut self, address: &str) -> Host {
        self.flags[1] = address.to_owned();
        self
    }

    /// With so many files that a server may have open.
    pub fn with_files(mut self, files: u64) -> Host {
        self.files_max = Some(files);
        self
    }

    /// The same flags on another folder.
    pub fn on(&self, folder: &Path) -> Host {
        Host { store: folder.join("store"), log: folder.join("server.log"), ..self.clone() }
    }

    /// Starts a server and waits until it is up.
    pub async fn start(&self) -> Server {
        self.try_start().await.unwrap_or_else(|end| panic!("the server did not start: {end:?}"))
    }

    /// Starts a server and waits until it is up, or has ended.
    pub async fn try_start(&self) -> Result<Server, Ended> {
        let mut child = self.spawn();
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let line = tokio::time::timeout(START_MAX, stdout.next_line()).await;
        let line = line.expect("it starts or ends in time").expect("its output can be read");
        let Some(address) = line.as_deref().and_then(|line| line.strip_prefix(UP)) else {
            let status = child.wait().await.expect("it can be waited for");
            let err = self.last_log();
            return Err(Ended { code: status.code(), out: line.unwrap_or_default(), err });
        };
        let address = address.parse().expect("an address");
        let log = self.log.clone();
        Ok(Server { api: Api::at(address), address, child, log, stdout })
    }

    /// Starts a server and does not wait for anything.
    pub fn spawn(&self) -> Child {
        let log = std::fs::File::create(&self.log).expect("a log file");
        let mut command = match self.files_max {
            Some(files) => {
                let mut shell = quietly(Command::new("sh"));
                let line = format!("ulimit -n {files} && exec \"$0\" \"$@\"");
                shell.args(["-c", &line, env!("CARGO_BIN_EXE_hooklog")]);
                shell
            }
            None => hooklog(),
        };
        command.arg("serve").arg("--store").arg(&self.store).args(&self.flags);
        command.stdout(Stdio::piped()).stderr(log).spawn().expect("the binary runs")
    }

    /// Runs another command to its end.
    pub async fn run(&self, args: &[&str]) -> Ended {
        let output = hooklog().args(args).output().await.expect("the binary runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it speaks UTF-8");
        Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Runs lines of a shell, in which `hooklog` is the binary and `$STORE` this store.
    pub async fn shell(&self, lines: &str) -> Ended {
        let binary = Path::new(env!("CARGO_BIN_EXE_hooklog"));
        let folder = binary.parent().expect("a folder").to_str().expect("a path of ours").to_owned();
        let path = format!("{folder}:{}", std::env::var("PATH").expect("a path"));
        let mut shell = Command::new("sh");
        shell.args(["-c", lines]).env_clear().env("PATH", path).env("STORE", &self.store);
        let output = shell.stdin(Stdio::null()).output().await.expect("a shell");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it speaks UTF-8");
        Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Runs a command about this store, on its running server if there is one.
    pub async fn on_store(&self, args: &[&str]) -> Ended {
        let store = self.store.to_str().expect("a path of ours");
        self.run(&[args, &["--store", store]].concat()).await
    }

    /// Starts a command about this store; its output is piped.
    pub fn start_on_store(&self, args: &[&str]) -> Child {
        let mut command = hooklog();
        command.args(args).arg("--store").arg(&self.store);
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the binary runs")
    }

    /// Proves the store, running or stopped; it must be clean.
    pub async fn verify(&self) {
        let verified = self.on_store(&["store", "verify", "--json"]).await;
        assert_eq!(verified.code, Some(0), "the store is not clean: {verified:?}");
        let result: Value = serde_json::from_str(&verified.out).expect("JSON");
        assert_eq!(result["result"], "clean");
    }

    /// What the last server logged; it never says that anything panicked.
    pub fn last_log(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        assert!(!log.contains("panicked"), "something panicked: {log}");
        log
    }
}

fn hooklog() -> Command {
    quietly(Command::new(env!("CARGO_BIN_EXE_hooklog")))
}

fn quietly(mut command: Command) -> Command {
    // No variable of the machine reaches it: neither ours nor a proxy's.
    command.env_clear().env("HOOKLOG_LOG", "info,fjall=warn,lsm_tree=warn");
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

impl Server {
    /// What it prints next.
    pub async fn next_line(&mut self) -> String {
        let line = tokio::time::timeout(START_MAX, self.stdout.next_line()).await;
        line.expect("it prints in time").expect("it can be read").expect("it prints")
    }

    /// Ends it as a power cut would end it, and waits until it is gone.
    pub async fn kill(mut self) {
        self.child.start_kill().expect("it can be killed");
        let status = self.child.wait().await.expect("it can be waited for");
        assert_eq!(status.code(), None, "it had ended by itself: {status:?}\n{}", self.said());
        self.said();
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let id = self.child.id().expect("it was not waited for yet");
        let pid = Pid::from_raw(i32::try_from(id).expect("a process id")).expect("not zero");
        kill_process(pid, signal).expect("it can be signalled");
    }

    /// Waits until it ends by itself.
    pub async fn ended(mut self, limit: Duration) -> Ended {
        let ended = tokio::time::timeout(limit, self.child.wait()).await;
        let status: ExitStatus =
            ended.unwrap_or_else(|_| panic!("it runs on\n{}", self.said())).expect("it can be waited for");
        Ended { code: status.code(), out: String::new(), err: self.said() }
    }

    /// Asks it to stop, and waits until it has.
    pub async fn stop(self) -> Ended {
        self.signal(Signal::TERM);
        let ended = self.ended(Duration::from_secs(30)).await;
        assert_eq!(ended.code, Some(0), "it did not stop well: {ended:?}");
        ended
    }

    /// Resident memory, bytes.
    pub fn memory(&self) -> u64 {
        self.bytes("VmRSS:")
    }

    /// The most resident memory that it ever had, bytes.
    pub fn memory_most(&self) -> u64 {
        self.bytes("VmHWM:")
    }

    /// Files that it has open.
    pub fn files(&self) -> usize {
        let id = self.child.id().expect("it runs");
        std::fs::read_dir(format!("/proc/{id}/fd")).expect("its files").count()
    }

    fn bytes(&self, what: &str) -> u64 {
        let id = self.child.id().expect("it runs");
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("its status");
        let line = status.lines().find_map(|line| line.strip_prefix(what)).expect("its memory");
        line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") * 1024
    }

    fn said(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        assert!(!log.contains("panicked"), "something panicked: {log}");
        log
    }
}

/// A client of a server's API.
#[derive(Clone)]
pub struct Api {
    client: hyper_util::client::legacy::Client<HttpConnector, Body>,
    address: SocketAddr,
}

/// No answer: whether it was done is unknown.
#[derive(Debug)]
pub struct Unanswered(pub String);

/// An answer, read whole.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Its status.
    pub status: u16,
    /// Its header fields.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Reply {
    /// Its body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Its body as JSON, if it is a success.
    pub fn good(&self) -> Value {
        assert!((200..300).contains(&self.status), "{self:?}");
        self.json()
    }
}

impl Api {
    /// At an address.
    pub fn at(address: SocketAddr) -> Api {
        let client = hyper_util::client::legacy::Client::builder(TokioExecutor::new()).build_http();
        Api { client, address }
    }

    /// Asks, and reads the whole answer.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, Bytes)>,
    ) -> Result<Reply, Unanswered> {
        let mut request = Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        let body = match body {
            Some((content_type, bytes)) => {
                request = request.header(CONTENT_TYPE, content_type);
                Body::from(bytes)
            }
            None => Body::empty(),
        };
        let request = request.body(body).expect("a request");
        let unanswered = |error: &dyn std::fmt::Display| Unanswered(error.to_string());
        let response = self.client.request(request).await.map_err(|error| unanswered(&error))?;
        let (parts, body) = response.into_parts();
        let body = axum::body::to_bytes(Body::new(body), usize::MAX).await;
        let body = body.map_err(|error| unanswered(&error))?;
        Ok(Reply { status: parts.status.as_u16(), headers: parts.headers, body })
    }

    /// Gets something that is there.
    pub async fn get(&self, path: &str) -> Value {
        self.call(Method::GET, path, None).await.expect("an answer").good()
    }

    /// Posts JSON, as text.
    pub async fn post_text(&self, path: &str, body: String) -> Result<Reply, Unanswered> {
        self.call(Method::POST, path, Some(("application/json", body.into()))).await
    }

    /// Posts JSON; it must succeed.
    pub async fn post(&self, path: &str, body: Value) -> Value {
        self.post_text(path, body.to_string()).await.expect("an answer").good()
    }

    /// Makes an account; its id and its secret.
    pub async fn account(&self) -> (String, String) {
        let made = self.post("/v1/accounts", json!({ "name": "Acme" })).await;
        (text(&made["id"]), text(&made["secret"]))
    }

    /// Makes an endpoint with other settings than the default; its id and its signing key.
    pub async fn endpoint(&self, account: &str, url: &str, settings: Value) -> (String, String) {
        let mut wanted = json!({ "account_id": account, "url": url });
        wanted.as_object_mut().expect("an object").extend(settings.as_object().expect("an object").clone());
        let made = self.post("/v1/endpoints", wanted).await;
        (text(&made["id"]), text(&made["signing_secret"]))
    }

    /// Takes an event in; the data as text, which goes out as it stands.
    pub async fn event(&self, account: &str, id: &str, data: &str) -> Result<Reply, Unanswered> {
        let body =
            format!(r#"{{"account_id":"{account}","id":"{id}","type":"payment.settled","data":{data}}}"#);
        self.post_text("/v1/events", body).await
    }

    /// The figures of all deliveries: `enqueued`, `pending` and so on.
    pub async fn figures(&self) -> Value {
        let status = self.get("/v1/status").await;
        assert_eq!(status["conserved"], true, "{status}");
        status["deliveries"].clone()
    }

    /// Waits until nothing is pending or in flight; the figures then.
    pub async fn settled(&self, limit: Duration) -> Value {
        eventually("nothing is pending or in flight", limit, async || {
            let figures = self.figures().await;
            (figures["pending"] == 0 && figures["in_flight"] == 0).then_some(figures)
        })
        .await
    }

    /// All attempts of a delivery.
    pub async fn attempts(&self, delivery: &str) -> Vec<Value> {
        let found = self.get(&format!("/v1/deliveries/{delivery}/attempts")).await;
        found["data"].as_array().expect("a list").clone()
    }
}

/// A JSON value that is a text.
pub fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}")).to_owned()
}

/// Asks again and again until there is an answer.
pub async fn eventually<T>(what: &str, limit: Duration, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(limit, asking).await.unwrap_or_else(|_| panic!("{what}: not within {limit:?}"))
}

/// Copies a store whose server is not running.
pub fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder can be read") {
        let entry = entry.expect("an entry");
        let (path, name) = (entry.path(), entry.file_name());
        let kind = entry.file_type().expect("a type");
        if kind.is_dir() {
            copy(&path, &to.join(name));
        } else if kind.is_file() {
            // Journals reserve 64 MB: what was never written stays a hole.
            let length = entry.metadata().expect("its size").len();
            std::fs::write(to.join(&name), written(&path)).expect("a file can be written");
            let file = std::fs::OpenOptions::new().write(true).open(to.join(&name)).expect("it is there");
            file.set_len(length).expect("it can be as long");
            file.set_permissions(entry.metadata().expect("its mode").permissions()).expect("ours");
        }
    }
}

/// What a file holds up to its last byte that is not zero.
pub fn written(file: &Path) -> Vec<u8> {
    const PAGE: [u8; 4096] = [0; 4096];
    let mut bytes = std::fs::read(file).expect("a file can be read");
    // Whole pages first: they are compared at once.
    while bytes.ends_with(&PAGE) {
        bytes.truncate(bytes.len() - PAGE.len());
    }
    bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1));
    bytes
}
