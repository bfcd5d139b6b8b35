//! The program itself: started as a process, asked over all three ways, killed, and held to its exit codes.
//!
//! Never sleeps: waits for lines, sockets, requests and ends of processes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use hooklog::log::{Change, Disk, Log, Opened, Order, Space};
use serde_json::Value;
use tempfile::TempDir;

/// Far longer than anything here takes: a test that waits so long has failed.
const LONG: Duration = Duration::from_secs(60);

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hooklog"));
    command.args(args).env_clear().env("NO_COLOR", "1").env("COLUMNS", "100").stdin(Stdio::null());
    command
}

struct Ran {
    code: i32,
    out: String,
    err: String,
}

impl Ran {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }

    /// What it printed, if it went as expected.
    #[track_caller]
    fn ends(self, code: i32) -> Ran {
        assert_eq!(self.code, code, "out: {}\nerr: {}", self.out, self.err);
        self
    }
}

fn ran(output: Output) -> Ran {
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

fn hooklog(args: &[&str]) -> Ran {
    ran(command(args).output().expect("it runs"))
}

fn with_input(args: &[&str], input: &str) -> Ran {
    let mut command = command(args);
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().expect("it starts");
    // It may end before it has read all, which is no fault here.
    let _ = child.stdin.take().expect("a pipe").write_all(input.as_bytes());
    ran(child.wait_with_output().expect("it ends"))
}

/// A server in a process of its own.
struct Server {
    child: Child,
    url: String,
    _stdout: BufReader<std::process::ChildStdout>,
}

impl Server {
    fn start(store: &Path, more: &[&str]) -> Server {
        let mut command =
            command(&["serve", "--listen", "127.0.0.1:0", "--allow-http", "--allow", "127.0.0.0/8"]);
        if !more.contains(&"--operator-token-file") {
            command.arg("--open-loopback");
        }
        command.arg("--store").arg(store).args(more).env("HOOKLOG_LOG", "error");
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("a line");
        let url = line.trim().strip_prefix("hooklog listens on ").unwrap_or_else(|| panic!("{line:?}"));
        Server { url: url.to_owned(), child, _stdout: stdout }
    }

    /// With waits so short that they are none.
    fn fast(store: &Path) -> Server {
        Server::start(store, &["--wait-divisor", "100000000"])
    }

    fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), signal)
            .expect("it runs");
    }

    fn stop(mut self) {
        self.signal(rustix::process::Signal::TERM);
        assert_eq!(self.child.wait().expect("it ends").code(), Some(0));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A receiver whose answers are given one by one, or not at all.
struct Hook {
    url: String,
    requests: Receiver<String>,
    answers: Sender<u16>,
}

impl Hook {
    /// Answers `first`, then what it is told to; the newest for ever.
    fn start(first: u16) -> Hook {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/in", listener.local_addr().expect("an address"));
        let (seen, requests) = channel();
        let (answers, told) = channel();
        std::thread::spawn(move || {
            let mut status = first;
            for stream in listener.incoming().map_while(Result::ok) {
                status = told.try_iter().last().unwrap_or(status);
                answer(stream, status, &seen);
            }
        });
        Hook { url, requests, answers }
    }

    fn request(&self) -> String {
        self.requests.recv_timeout(LONG).expect("a request")
    }
}

fn answer(stream: TcpStream, status: u16, seen: &Sender<String>) {
    let mut reader = BufReader::new(stream);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let start = head.len();
        if reader.read_line(&mut head).unwrap_or(0) == 0 {
            return;
        }
        let line = head[start..].trim().to_lowercase();
        if let Some(text) = line.strip_prefix("content-length:") {
            length = text.trim().parse().expect("a length");
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    let answer = format!("HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: 0\r\n\r\n");
    let _ = reader.get_mut().write_all(answer.as_bytes());
    let _ = seen.send(String::from_utf8_lossy(&body).into_owned());
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

/// A folder with an account and an endpoint.
struct Place {
    folder: TempDir,
    account: String,
    endpoint: String,
}

impl Place {
    fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// Makes them through a server.
    fn of(folder: TempDir, url: &str, hook: &Hook) -> Place {
        let made = hooklog(&["accounts", "create", "Acme", "--json", "--url", url]).ends(0).json();
        let account = made["id"].as_str().expect("an id").to_owned();
        let args = ["endpoints", "create", "--account", &account, &hook.url, "--json", "--url", url];
        let endpoint = hooklog(&args).ends(0).json()["id"].as_str().expect("an id").to_owned();
        Place { folder, account, endpoint }
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

/// A server, its store, and a receiver that answers `status`.
fn running(status: u16) -> (Server, Place, Hook) {
    let folder = folder();
    let hook = Hook::start(status);
    let server = Server::fast(&folder.path().join("store"));
    let place = Place::of(folder, &server.url, &hook);
    (server, place, hook)
}

#[test]
fn serve_says_where_it_listens_and_stops_when_told() {
    let folder = folder();
    let store = folder.path().join("store");
    let server = Server::start(&store, &[]);
    let status = hooklog(&["status", "--url", &server.url]).ends(0);
    assert!(status.out.starts_with("server          ready"), "{}", status.out);
    let socket = std::fs::metadata(store.join("hooklog.sock")).expect("a socket");
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&socket.permissions()) & 0o777, 0o600);
    server.stop();
    assert!(!store.join("hooklog.sock").exists());
    let stopped = hooklog(&["status", "--store", text(&store)]).ends(8);
    assert!(stopped.out.starts_with("server          stopped"), "{}", stopped.out);
}

#[test]
fn a_killed_server_starts_again_over_its_stale_socket() {
    let (server, place, _hook) = running(200);
    server.signal(rustix::process::Signal::KILL);
    drop(server);
    assert!(place.store().join("hooklog.sock").exists());
    hooklog(&["accounts", "list", "--store", text(&place.store())]).ends(0);
    let again = Server::fast(&place.store());
    let listed = hooklog(&["accounts", "list", "--store", text(&place.store())]).ends(0);
    assert!(listed.out.contains(&place.account));
    again.stop();
}

/// Sends one that dies, looks at it, mends the receiver, replays it.
fn round_trip(way: &[&str], place: &Place, hook: &Hook) {
    let with = |args: &[&str]| hooklog(&[args, way].concat());
    hook.answers.send(503).expect("it listens");
    let send =
        ["send", "--account", &place.account, "--type", "invoice.paid", "--data", r#"{"n":1.00,"n":2}"#];
    let id = format!("inv-{}", way[0].trim_start_matches('-'));
    let send = [&send[..], &["--id", &id, "--wait=60s"]].concat();
    let sent = with(&send).ends(8);
    assert!(
        sent.out.contains("accepted, 1 delivery") && sent.out.contains("\nNo. Given up at"),
        "{}",
        sent.out
    );
    let dead = with(&["list", "--state", "dead", "--json", "--type", "invoice.*"]).ends(0);
    assert!(dead.out.contains(r#""data":{"n":1.00,"n":2}}"#), "byte for byte: {}", dead.out);
    let dead = dead.json();
    let dead =
        dead.as_array().expect("an array").iter().find(|one| one["event_id"] == id.as_str()).expect("it");
    assert_eq!(dead["last_error"], "HTTP 503");
    let delivery = dead["id"].as_str().expect("an id");
    let table = with(&["list", "--account", &place.account, "--since", "1h"]).ends(0).out;
    assert!(table.contains(delivery) && table.contains("  dead  ") && table.contains("6/6"), "{table}");
    let explained = with(&["explain", &id]).ends(0).out;
    assert!(explained.starts_with("No.") && explained.contains("HTTP 503"), "{explained}");
    hook.answers.send(200).expect("it listens");
    let replayed = with(&["retry", delivery, "--reason", "mended"]).ends(0).out;
    assert!(replayed.contains("replayed:"), "{replayed}");
    // The same event again is the same event: this waits for its replay.
    let sent = with(&send).ends(0).out;
    assert!(sent.contains("accepted before") && sent.contains("\nYes."), "{sent}");
    with(&["replay", &id]).ends(5);
    with(&["replay", &id, "--all", "--yes"]).ends(0);
}

#[test]
fn what_dies_is_listed_explained_and_replayed_over_tcp_and_the_socket() {
    let (server, place, hook) = running(503);
    round_trip(&["--url", &server.url], &place, &hook);
    round_trip(&["--store", text(&place.store())], &place, &hook);
    server.stop();
}

#[test]
fn a_stopped_store_takes_events_and_answers() {
    let (server, place, hook) = running(503);
    let url = server.url.clone();
    let (account, store) = (place.account.clone(), place.store());
    let store = text(&store);
    let send = ["send", "--account", &account, "--type", "a.b", "--data", "[1]", "--id", "one"];
    hooklog(&[&send[..], &["--url", &url, "--wait=60s"]].concat()).ends(8);
    server.stop();
    assert!(hooklog(&["explain", "one", "--store", store]).ends(0).out.starts_with("No."));
    hooklog(&["replay", "one", "--store", store]).ends(0);
    let send =
        ["send", "--account", &account, "--type", "a.b", "--data", "[2]", "--id", "two", "--store", store];
    let sent = hooklog(&send).ends(0);
    assert!(sent.err.contains("no server runs on this store"), "{}", sent.err);
    let pending = hooklog(&["list", "--state", "pending", "--json", "--store", store]).ends(0).json();
    assert_eq!(pending.as_array().map(Vec::len), Some(2));
    hook.answers.send(200).expect("it listens");
    let server = Server::fast(&place.store());
    for (id, data) in [("one", "[1]"), ("two", "[2]")] {
        let send = ["send", "--account", &account, "--type", "a.b", "--data", data, "--id", id, "--wait=60s"];
        hooklog(&[&send[..], &["--url", &server.url]].concat()).ends(0);
    }
    server.stop();
}

#[test]
fn lines_are_sent_once_however_often() {
    let (server, place, hook) = running(200);
    let way = ["--account", &place.account, "--url", &server.url];
    let file = place.folder.path().join("events.jsonl");
    let line = |n: usize| format!("{{\"type\":\"a.b\",\"data\":{{\"n\": {n}.0}}}}\n");
    let lines: String = (1..=250).map(line).collect();
    std::fs::write(&file, &lines).expect("a file");
    let send = ["send", "--jsonl", text(&file), "--id-prefix", "day1"];
    let sent = hooklog(&[&send[..], &way].concat()).ends(0).out;
    assert_eq!(sent, "250 accepted, 0 accepted before, 0 refused, 250 deliveries\n");
    let sent = hooklog(&[&send[..], &way].concat()).ends(0).out;
    assert_eq!(sent, "0 accepted, 250 accepted before, 0 refused, 250 deliveries\n");
    let body = hook.request();
    assert!(body.starts_with(r#"{"id":"day1-"#) && body.contains(r#""data":{"n": "#), "{body}");

    let bad = "{\"type\":\"a.b\",\"data\":1}\n\nnonsense\n{\"data\":2}\n{\"type\":\"a.b\",\"data\":3,\"id\":\"own\"}\n";
    let stopped =
        with_input(&[&["send", "--jsonl", "-", "--id-prefix", "p"], &way[..]].concat(), bad).ends(1);
    assert_eq!(stopped.out, "1 accepted, 0 accepted before, 1 refused, 1 deliveries\n");
    assert!(stopped.err.contains("line 3:") && stopped.err.contains("--skip-bad"), "{}", stopped.err);
    let args = [&["send", "--jsonl", "-", "--id-prefix", "p", "--skip-bad", "--json"], &way[..]].concat();
    let skipped = with_input(&args, bad).ends(1);
    assert!(
        skipped.err.contains("line 3:") && skipped.err.contains("line 4: there is no `type`"),
        "{}",
        skipped.err
    );
    let sum = skipped.json();
    assert_eq!((&sum["accepted"], &sum["duplicates"], &sum["refused"]), (&1.into(), &1.into(), &2.into()));
    hooklog(&["explain", "own", "--url", &server.url]).ends(0);
    server.stop();
}

#[test]
fn what_waits_is_hurried_called_off_and_held() {
    let (server, place, hook) = running(200);
    let url = server.url.as_str();
    hooklog(&["endpoints", "pause", &place.endpoint, "--reason", "moving", "--url", url]).ends(0);
    let send = ["send", "--account", &place.account, "--type", "a.b", "--data", "1", "--url", url, "--id"];
    hooklog(&[&send[..], &["first", "--wait=0s"]].concat()).ends(7);
    hooklog(&[&send[..], &["second"]].concat()).ends(0);
    let held = hooklog(&["list", "--url", url]).ends(0).out;
    assert!(held.contains("held: paused"), "{held}");
    let listed = hooklog(&["list", "--json", "--url", url]).ends(0).json();
    let of = |event: &str| {
        let found = listed.as_array().expect("an array").iter().find(|one| one["event_id"] == event);
        found.expect("it is listed")["id"].as_str().expect("an id").to_owned()
    };
    hooklog(&["cancel", &of("first"), "--reason", "not wanted", "--url", url]).ends(0);
    let again = hooklog(&["cancel", &of("first"), "--url", url]).ends(5).out;
    assert!(again.contains("the delivery is cancelled"), "{again}");
    let unknown =
        with_input(&["retry-now", "-", "--url", url], "dlv_01J9X4K2P7Y0Z3A4B5C6D7E8F9\n").ends(3).out;
    assert!(unknown.contains("refused:"), "{unknown}");
    let paused = hooklog(&["retry-now", &of("second"), "--url", url]).ends(5).out;
    assert!(paused.contains("is paused: resume it"), "{paused}");
    hooklog(&["endpoints", "resume", &place.endpoint, "--url", url]).ends(0);
    hooklog(&[&send[..], &["second", "--wait=60s"]].concat()).ends(0);
    assert!(hook.request().contains("second"));
    server.stop();
}

#[test]
fn every_end_has_its_code() {
    let (server, place, _hook) = running(200);
    let url = server.url.as_str();
    let store = place.store();
    let send = ["send", "--account", &place.account, "--type", "a.b", "--url", url, "--id", "x", "--data"];
    hooklog(&["list", "--nonsense"]).ends(2);
    hooklog(&[&send[..], &["{"]].concat()).ends(2);
    hooklog(&["list", "--url", "https://example.com"]).ends(2);
    hooklog(&["explain", "evt_nothing", "--url", url]).ends(3);
    hooklog(&["list", "--store", "/nonexistent/store"]).ends(3);
    hooklog(&[&send[..], &["1"]].concat()).ends(0);
    hooklog(&[&send[..], &["2"]].concat()).ends(5);
    hooklog(&["list", "--url", "http://127.0.0.1:1"]).ends(6);
    let second = hooklog(&["serve", "--listen", "127.0.0.1:0", "--store", text(&store)]).ends(9);
    assert!(second.err.contains("the store is in use"), "{}", second.err);
    hooklog(&["store", "accept-head", "--store", text(&store)]).ends(9);
    // A disk without room: what is written there never arrives.
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("every Linux has it");
    ran(command(&["schedule"]).stdout(full).output().expect("it runs")).ends(13);
    // The user has seen enough.
    let args = ["tail", "--since", "1h", "--url", url];
    let mut tail = command(&args).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut line = String::new();
    // Kept open: a reader that has gone ends it as well, and well.
    let mut stdout = BufReader::new(tail.stdout.take().expect("a pipe"));
    stdout.read_line(&mut line).expect("a line");
    let pid = rustix::process::Pid::from_child(&tail);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it runs");
    assert_eq!(tail.wait().expect("it ends").code(), Some(130), "{line}");
    std::fs::remove_file(store.join("hooklog.sock")).expect("a socket");
    hooklog(&["store", "verify", "--store", text(&store)]).ends(9);
    server.stop();
}

#[test]
fn a_token_keeps_others_out_over_tcp_only() {
    let folder = folder();
    let store = folder.path().join("store");
    let file = folder.path().join("token");
    std::fs::write(&file, "0123456789abcdef0123456789abcdef\n").expect("a file");
    let token = ["--operator-token-file", text(&file)];
    let server = Server::start(&store, &token);
    let refused = hooklog(&["accounts", "list", "--url", &server.url]).ends(4);
    assert!(refused.err.contains("HOOKLOG_KEY"), "{}", refused.err);
    hooklog(&["accounts", "list", "--url", &server.url, "--key-file", text(&file)]).ends(0);
    hooklog(&["accounts", "list", "--store", text(&store)]).ends(0);
    server.stop();
    let open =
        hooklog(&["serve", "--open-loopback", "--listen", "0.0.0.0:0", "--store", text(&store)]).ends(2);
    assert!(open.err.contains("not loopback"), "{}", open.err);
}

#[test]
fn another_master_key_opens_nothing() {
    let (server, place, _hook) = running(200);
    server.stop();
    let store = place.store();
    let key = store.join("master.key");
    let serve = ["serve", "--listen", "127.0.0.1:0", "--store", text(&store)];
    std::fs::write(&key, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n").expect("the file");
    let refused = hooklog(&serve).ends(12);
    assert!(refused.err.contains("master key"), "{}", refused.err);
    hooklog(&["accounts", "list", "--store", text(&store)]).ends(12);
    std::fs::remove_file(&key).expect("the file");
    hooklog(&serve).ends(12);
    assert!(!key.exists(), "no key is made beside an old store");
}

fn opened(store: &Path) -> Log {
    match Log::open_folder(store, Default::default(), Default::default()) {
        Ok(Opened::Existing(log)) => log,
        Ok(Opened::Fresh(_)) => panic!("it is fresh"),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_store_without_its_mark_is_refused_until_its_head_is_accepted() {
    let (server, place, _hook) = running(200);
    let online = hooklog(&["store", "verify", "--url", &server.url]).ends(0).out;
    assert!(online.starts_with("clean"), "{online}");
    hooklog(&["store", "rebuild", "--store", text(&place.store())]).ends(0);
    server.stop();
    let store = place.store();
    let store = text(&store);
    assert_eq!(hooklog(&["store", "verify", "--json", "--store", store]).ends(0).json()["result"], "clean");
    hooklog(&["store", "rebuild", "--store", store]).ends(0);
    std::fs::remove_file(place.store().join("mark")).expect("a mark");
    for command in [&["serve", "--listen", "127.0.0.1:0"][..], &["store", "verify"], &["accounts", "list"]] {
        let refused = hooklog(&[command, &["--store", store]].concat()).ends(11);
        assert!(refused.err.contains("store accept-head"), "{}", refused.err);
    }
    hooklog(&["store", "accept-head", "--store", store]).ends(0);
    hooklog(&["store", "verify", "--store", store]).ends(0);
    assert!(hooklog(&["accounts", "list", "--store", store]).ends(0).out.contains(&place.account));
}

#[test]
fn a_row_that_is_not_what_the_log_says_is_found_and_mended() {
    let (server, place, _hook) = running(200);
    server.stop();
    let store = place.store();
    let log = opened(&store);
    let version = log.view_version("accounts").expect("a view");
    let space = Space::View { name: "accounts", version };
    let mut keys = Vec::new();
    let disk: &dyn Disk = &**log.disk();
    let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    disk.range(space, all.0, all.1, Order::Ascending, &mut |key, _| {
        keys.push(key.to_vec());
        std::ops::ControlFlow::Continue(())
    })
    .expect("rows");
    disk.write(&[Change::remove(space, keys.pop().expect("a row"))]).expect("written");
    log.close().expect("closed");
    let damaged = hooklog(&["store", "verify", "--store", text(&store)]).ends(8);
    assert!(damaged.out.starts_with("damaged"), "{}", damaged.out);
    hooklog(&["store", "rebuild", "--store", text(&store)]).ends(0);
    hooklog(&["store", "verify", "--store", text(&store)]).ends(0);
}

#[test]
fn a_store_of_a_newer_version_is_left_alone() {
    let (server, place, _hook) = running(200);
    server.stop();
    let log = opened(&place.store());
    let newer = (hooklog::log::FORMAT + 1).to_be_bytes().to_vec();
    log.disk().write(&[Change::put(Space::Meta, b"format".to_vec(), newer)]).expect("written");
    log.close().expect("closed");
    hooklog(&["accounts", "list", "--store", text(&place.store())]).ends(10);
    hooklog(&["serve", "--listen", "127.0.0.1:0", "--store", text(&place.store())]).ends(10);
}

#[test]
fn a_configuration_that_means_nothing_is_refused_by_name() {
    let folder = folder();
    let file = folder.path().join("hooklog.toml");
    let serve = ["serve", "--config", text(&file)];
    std::fs::write(&file, "retry_percent = 5\n").expect("a file");
    assert!(hooklog(&serve).ends(2).err.contains("unknown field `retry_percent`"));
    std::fs::write(&file, "schedule = \"hourly\"\n").expect("a file");
    let refused = hooklog(&serve).ends(2).err;
    assert!(refused.contains("hourly") || refused.contains("schedule"), "{refused}");
    let mut command = command(&["serve"]);
    let refused = ran(command.env("HOOKLOG_RETRIES_PERCENT", "many").output().expect("it runs"));
    assert!(refused.ends(2).err.contains("--retries-percent"));
}

#[test]
fn foreign_text_does_nothing_to_the_terminal() {
    let (server, place, _hook) = running(200);
    let send =
        ["send", "--account", &place.account, "--data", "1", "--url", &server.url, "--type", "a\u{1b}[2J"];
    let refused = hooklog(&send);
    let listed = hooklog(&["list", "--account", "\u{1b}]0;x\u{7}", "--url", &server.url]);
    for shown in [refused.out, refused.err, listed.out, listed.err] {
        assert!(!shown.contains('\u{1b}') && !shown.contains('\u{7}'), "{shown:?}");
    }
    server.stop();
}

#[test]
fn the_demo_passes() {
    let shown = hooklog(&["demo", "--once"]).ends(0).out;
    assert!(shown.ends_with("\n5 passed, 0 failed\n"), "{shown}");
    assert!(shown.contains("planned 12 h, played "), "{shown}");
    assert_eq!(shown.matches("both signatures verified on each").count(), 5, "{shown}");
    assert!(!shown.contains('\u{1b}'), "no colour without a terminal");

    // What the README shows is what it does: but for ids and times, line for line.
    let readme = std::fs::read_to_string("README.md").unwrap();
    let block =
        readme.split("<!-- demo:begin -->").nth(1).unwrap().split("<!-- demo:end -->").next().unwrap();
    let block = block.trim().trim_start_matches("```text\n").trim_end_matches("```");
    assert_eq!(timeless(&shown), timeless(block));
}

/// A text without what differs from run to run: drawn ids, and numbers with a unit of time.
fn timeless(text: &str) -> String {
    let words = |line: &str| -> String {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let played = |at: usize| {
            let unit = words.get(at + 1).map_or("", |word| word.trim_end_matches(','));
            matches!(unit, "ms" | "s") && words[at].parse::<f64>().is_ok()
        };
        let word = |at: usize| {
            if played(at) {
                "0".to_owned()
            } else if at > 0 && played(at - 1) {
                "ms".to_owned()
            } else if words[at].starts_with("evt_") {
                "evt_…".to_owned()
            } else {
                words[at].clone()
            }
        };
        // Columns move with the length of what is left out.
        (0..words.len()).map(word).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    };
    text.trim().lines().map(words).collect::<Vec<_>>().join("\n")
}

#[test]
fn schedules_are_shown_as_tables() {
    insta::assert_snapshot!(hooklog(&["schedule"]).ends(0).out);
    let own = hooklog(&["schedule", "1m,90s", "--json"]).ends(0).json();
    assert_eq!(own[0]["tries_at_seconds"], serde_json::json!([0, 60, 150]));
    hooklog(&["schedule", "never"]).ends(2);
}

#[test]
fn an_endpoint_is_tested_looked_at_and_removed() {
    let (server, place, hook) = running(200);
    let url = server.url.as_str();
    let tested = hooklog(&["endpoints", "test", &place.endpoint, "--wait=60s", "--url", url]).ends(0).out;
    assert!(tested.contains("accepted, 1 delivery"), "{tested}");
    assert!(hook.request().contains("hooklog.test"));
    let again = ["endpoints", "test", &place.endpoint, "--wait=60s", "--json", "--url", url];
    let tested = hooklog(&again).ends(0).json();
    let event = tested["id"].as_str().expect("an id");
    let delivery = tested["deliveries"][0]["id"].as_str().expect("an id");
    hook.request();

    let events = hooklog(&["events", "list", "--type", "hooklog.*", "--json", "--url", url]).ends(0).json();
    assert_eq!((events.as_array().map(Vec::len), &events[0]["id"]), (Some(2), &tested["id"]));
    let none = hooklog(&["events", "list", "--unmatched", "--since", "1h", "--url", url]).ends(0);
    assert!(none.err.contains("no such event"), "{}", none.err);
    let table =
        hooklog(&["events", "list", "--account", &place.account, "--limit", "1", "--url", url]).ends(0);
    assert!(table.out.contains(event) && table.err.contains("there is more"), "{} {}", table.out, table.err);
    let types = hooklog(&["events", "types", "--format", "csv", "--url", url]).ends(0).out;
    assert!(types.lines().nth(1).is_some_and(|line| line.starts_with("hooklog.test,2,")), "{types}");
    let payload = hooklog(&["events", "payload", event, "--url", url]).ends(0).out;
    assert!(payload.starts_with(&format!(r#"{{"id":"{event}","type":"hooklog.test""#)), "{payload}");

    let attempts = hooklog(&["attempts", "list", delivery, "--json", "--url", url]).ends(0).json();
    let attempt = attempts[0]["id"].as_str().expect("an id");
    assert!(hooklog(&["attempts", "list", delivery, "--url", url]).ends(0).out.contains(attempt));
    let shown = hooklog(&["attempts", "get", attempt, "--url", url]).ends(0).out;
    assert!(shown.contains("delivered") && shown.contains(delivery), "{shown}");
    let request = hooklog(&["attempts", "request", attempt, "--json", "--url", url]).ends(0).json();
    assert_eq!((&request["method"], &request["headers"]["webhook-id"]), (&"POST".into(), &event.into()));
    let response = hooklog(&["attempts", "response", attempt, "--json", "--url", url]).ends(0).json();
    assert_eq!(response["status_code"], 200);
    hooklog(&["attempts", "get", "att_none", "--url", url]).ends(3);
    hooklog(&["explain", attempt, "--url", url]).ends(0);

    // Nobody is at the terminal: it is not removed unless that was said beforehand.
    let asked = hooklog(&["endpoints", "remove", &place.endpoint, "--url", url]).ends(2).err;
    assert!(asked.contains("give --yes"), "{asked}");
    hooklog(&["endpoints", "pause", &place.endpoint, "--url", url]).ends(0);
    let refused = hooklog(&["endpoints", "test", &place.endpoint, "--url", url]).ends(5).err;
    assert!(refused.contains("paused since"), "{refused}");
    let remove = ["endpoints", "remove", &place.endpoint, "--yes", "--reason", "moved", "--url", url];
    assert!(hooklog(&remove).ends(0).out.contains("removed"));
    assert!(!hooklog(&["endpoints", "list", "--url", url]).ends(0).out.contains(&place.endpoint));
    let gone = hooklog(&["endpoints", "test", &place.endpoint, "--url", url]).ends(3).err;
    assert!(gone.contains("was removed"), "{gone}");
    server.stop();
}

#[test]
fn help_is_as_documented() {
    let commands = [
        "",
        "serve",
        "send",
        "accounts",
        "accounts create",
        "endpoints",
        "endpoints create",
        "endpoints test",
        "endpoints remove",
        "events",
        "events list",
        "attempts",
        "list",
        "explain",
        "tail",
        "listen",
        "signature verify",
        "signature sign",
        "completion",
        "man",
        "replay",
        "cancel",
        "retry-now",
        "schedule",
        "keys",
        "keys create",
        "portal link",
        "audit",
        "status",
        "store",
        "demo",
        "bench",
    ];
    for name in commands {
        let args: Vec<_> = name.split_whitespace().chain(["--help"]).collect();
        let help = hooklog(&args).ends(0).out;
        insta::assert_snapshot!(format!("help {name}").trim().replace(' ', "-"), help);
    }
}

#[test]
fn secrets_are_rotated_and_shown_and_a_store_is_sealed_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("store");
    Server::start(&store, &[]).stop();
    let on = |args: &[&str]| {
        let mut command = command(args);
        command.arg("--store").arg(&store);
        command
    };
    let json = |args: &[&str]| ran(on(args).arg("--json").output().expect("it runs")).ends(0).json();
    let account = json(&["accounts", "create", "Acme"]);
    let id = account["id"].as_str().expect("an id");
    let made = json(&["endpoints", "create", "--account", id, "https://hooks.customer.example.com/"]);
    let endpoint = made["id"].as_str().expect("an id");
    let rotated = json(&["endpoints", "rotate", endpoint]);
    let shown = json(&["endpoints", "reveal", endpoint]);
    assert_eq!(shown["keys"][0]["secret"], rotated["signing_secret"]);
    assert_eq!(shown["keys"][1]["secret"], made["signing_secret"]);
    let last = json(&["endpoints", "rotate", endpoint, "--overlap-hours", "0"]);
    assert_eq!(last["keys"].as_array().map(Vec::len), Some(1));
    let secret = json(&["accounts", "rotate", id]);
    assert_ne!(secret["secret"], account["secret"]);
    let reveal = ["accounts", "reveal", id];
    assert_eq!(json(&reveal)["secret"], secret["secret"]);
    let people = ran(on(&["endpoints", "reveal", endpoint]).output().expect("it runs")).ends(0).out;
    assert!(people.contains(last["signing_secret"].as_str().expect("a secret")), "{people}");

    let new = folder.path().join("new.key");
    let sealed = json(&["store", "reseal", "--new-master-key-file", new.to_str().expect("a path")]);
    assert_eq!((&sealed["result"], &sealed["sealed"]), (&"resealed".into(), &2.into()));
    ran(on(&reveal).output().expect("it runs")).ends(12);
    let with_new = on(&reveal).arg("--json").env("HOOKLOG_MASTER_KEY_FILE", &new).output();
    assert_eq!(ran(with_new.expect("it runs")).ends(0).json()["secret"], secret["secret"]);
}

/// A server that wants keys, as a first start leaves it.
#[test]
fn keys_open_a_server_from_the_first_one_on() {
    let folder = folder();
    let store = folder.path().join("store");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    };
    let mut serve = command(&["serve", "--listen", "127.0.0.1:0", "--store", text(&store)]);
    let start = |serve: &mut Command| {
        let mut child = serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("a line");
        let url = line.trim().strip_prefix("hooklog listens on ").expect("its address").to_owned();
        Server { url, child, _stdout: stdout }
    };
    let mut server = start(&mut serve);
    let mut line = String::new();
    server._stdout.read_line(&mut line).expect("a line");
    let first = line.trim().strip_prefix("operator's key, shown only now: ").expect("a key").to_owned();
    let first_file = file("first", &first);
    let url = server.url.clone();
    let with =
        |key: &Path, args: &[&str]| hooklog(&[args, &["--url", &url, "--key-file", text(key)]].concat());
    let none = hooklog(&["keys", "list", "--url", &url]).ends(4);
    assert!(none.err.contains("HOOKLOG_KEY"), "{}", none.err);
    let made = with(&first_file, &["accounts", "create", "Acme", "--json"]).ends(0).json();
    let account = made["id"].as_str().expect("an id");
    let create = [
        "keys",
        "create",
        "--role",
        "ingest",
        "--account",
        account,
        "--label",
        "checkout",
        "--expires-in",
        "90d",
    ];
    let made = with(&first_file, &[&create[..], &["--json"]].concat()).ends(0).json();
    let (id, key) = (made["id"].as_str().expect("an id"), made["key"].as_str().expect("a key"));
    let ingest = file("ingest", key);
    let send = ["send", "--account", account, "--type", "a.b", "--data", "1"];
    with(&ingest, &send).ends(0);
    with(&ingest, &["keys", "list"]).ends(4);
    // Whoever may open the store's folder needs none.
    let listed = hooklog(&["keys", "list", "--store", text(&store)]).ends(0).out;
    assert!(listed.contains(id) && listed.contains("checkout") && listed.contains("the first"), "{listed}");
    assert!(!listed.contains(&key[34..]) && !listed.contains(&first[33..]), "{listed}");
    let rotated = with(&first_file, &["keys", "rotate", id, "--overlap-hours", "0", "--json"]).ends(0).json();
    let rotated = file("rotated", rotated["key"].as_str().expect("a key"));
    with(&ingest, &send).ends(4);
    with(&rotated, &send).ends(0);
    let people = with(&first_file, &["keys", "revoke", id]).ends(0).out;
    assert!(people.contains("ingest, revoked"), "{people}");
    with(&rotated, &send).ends(4);
    let link = with(&first_file, &["portal", "link", account]).ends(0).out;
    assert!(link.starts_with(&format!("{url}/portal#hl_link_")), "{link}");
    with(&first_file, &["accounts", "reveal", account, "--reason", "a ticket"]).ends(0);
    let audit = with(&first_file, &["audit"]).ends(0).out;
    for part in ["SecretRevealed", "reason=a ticket", "PortalLinkCreated", "ApiKeyRevoked", "ApiKeyRotated"] {
        assert!(audit.contains(part), "{part}: {audit}");
    }
    let of_none = with(&first_file, &["audit", "--actor", "nobody", "--json"]).ends(0).json();
    assert_eq!(of_none, serde_json::json!([]));
    server.stop();
    // The first key is made once.
    let mut again = start(&mut serve);
    again.signal(rustix::process::Signal::TERM);
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut again._stdout, &mut rest).expect("its end");
    assert_eq!(rest, "");
    again.stop();
}
