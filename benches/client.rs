//! What a delivery costs on the wire: processor time of a signed POST of 1 KiB over kept connections, ours beside
//! a plain `reqwest` client and the bare sockets, in turns within one run; and, with `-- hanging`, the memory of a request that waits.
//!
//! The responder is a process of its own, so that its time is not counted. `cargo bench --bench client`

use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hooklog::delivery::client::Options;
use hooklog::delivery::guard::Policy;
use hooklog::delivery::{Client, Key, Request, TextSecret, request};
use hooklog_projections::fact::Schemes;
use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const AT_ONCE: usize = 64;
const REQUESTS: usize = 20_000;
const ROUNDS: usize = 5;
const HANGING: usize = 5_000;
const KEY: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// The argument with which this program is the responder.
const RESPONDER: &str = "responder";

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let is = |word: &str| arguments.iter().any(|a| a == word);
    let only = |name: &str| ["ours", "reqwest"].iter().all(|n| *n == name || !is(n));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    if is(RESPONDER) {
        runtime.block_on(respond());
        return;
    }
    let (mut responder, port) = start();
    if is("hanging") {
        // Each in a process of its own: memory that was given back would be used again.
        for name in ["ours", "reqwest"].into_iter().filter(|name| only(name)) {
            if is(name) {
                runtime.block_on(async { tokio::spawn(hang(port, name)).await.expect("no panic") });
            } else {
                let this = std::env::current_exe().expect("this bench");
                Command::new(this).args(["hanging", name]).status().expect("it runs");
            }
        }
    } else {
        runtime.block_on(async {
            tokio::spawn(compare(port, only("ours"), only("reqwest"))).await.expect("no panic")
        });
    }
    responder.kill().ok();
    responder.wait().ok();
}

fn start() -> (Child, u16) {
    let mut child = Command::new(std::env::current_exe().expect("this bench"))
        .arg(RESPONDER)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    (child, line.trim().parse().expect("a port"))
}

/// Answers whatever comes: an HTTP parser here would only cost time. `/hang` is never answered.
async fn respond() {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.expect("a port");
    println!("{}", listener.local_addr().expect("its address").port());
    std::io::stdout().flush().expect("a pipe");
    while let Ok((mut stream, _)) = listener.accept().await {
        stream.set_nodelay(true).ok();
        tokio::spawn(async move {
            let mut buffer = vec![0; 4096];
            let mut have = 0;
            while let Ok(read @ 1..) = stream.read(&mut buffer[have..]).await {
                have += read;
                if !buffer[..have].ends_with(b"x}") || buffer.starts_with(b"POST /hang") {
                    continue;
                }
                have = 0;
                if stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.is_err() {
                    return;
                }
            }
        });
    }
}

fn ours() -> Arc<Client> {
    let allow = vec!["127.0.0.0/8".parse().expect("a line")];
    let policy = Policy { allow, allow_http: true, ..Policy::default() };
    Arc::new(Client::new(policy, Options::default()).expect("a client"))
}

fn theirs() -> reqwest::Client {
    reqwest::Client::builder()
        .http1_only()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .expect("a client")
}

fn signed(url: String, n: usize) -> Request {
    let mut body = vec![b'x'; 1024];
    body[0] = b'{';
    body[1023] = b'}';
    Request {
        url,
        event_id: format!("evt_{n}").parse().expect("an id"),
        body: Bytes::from(body),
        content_type: "application/json".to_owned(),
        run: 1,
        keys: vec![Key::parse(KEY).expect("a key")],
        account_secret: Some(TextSecret::new(KEY.to_owned().into())),
        schemes: Schemes { standard: true, ledger: true },
        signature_header: Default::default(),
        headers: vec![],
        timeout: Duration::from_secs(30),
    }
}

fn url(port: u16, hosts: usize, n: usize) -> String {
    let host = n % hosts;
    format!("http://127.0.{}.{}:{port}/h", host / 250, host % 250 + 1)
}

async fn compare(port: u16, with_ours: bool, with_theirs: bool) {
    println!(
        "signed POST of 1 KiB, {AT_ONCE} at once, {REQUESTS} requests a round, processor time of the sender"
    );
    for hosts in [1, 1000] {
        let (ours, theirs) = (ours(), theirs());
        let mut costs = [Vec::new(), Vec::new(), Vec::new()];
        for round in 0..=ROUNDS {
            let a = measure(|n| {
                let (client, request) = (ours.clone(), signed(url(port, hosts, n), n));
                async move {
                    let outcome = client.send(request, || 1_700_000_000).await;
                    assert_eq!(outcome.result.expect("an answer").status, 200);
                }
            });
            let a = if with_ours { a.await } else { (0.0, 0.0) };
            let b = measure(|n| {
                let (client, sent) = (theirs.clone(), signed(url(port, hosts, n), n));
                async move {
                    let mut post = client.post(&sent.url).timeout(sent.timeout);
                    for (name, value) in request::headers(&sent, 1_700_000_000).expect("signable") {
                        post = post.header(name, value);
                    }
                    let answer = post.body(sent.body).send().await.expect("an answer");
                    assert_eq!(answer.status().as_u16(), 200);
                    answer.bytes().await.expect("a body");
                }
            });
            let b = if with_theirs { b.await } else { (0.0, 0.0) };
            let c = sockets(port, hosts).await;
            // The first round connects.
            if round > 0 {
                costs[2].push(c);
                costs[0].push(a);
                costs[1].push(b);
            }
        }
        for (name, costs) in ["ours", "reqwest", "sockets"].iter().zip(&mut costs) {
            costs.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (cost, rate) = costs[costs.len() / 2];
            let (least, most) = (costs[0].0, costs[costs.len() - 1].0);
            println!(
                "{hosts:>5} hosts {name:>8}: {cost:>5.1} µs ({least:.1}–{most:.1}), {rate:>7.0} requests/s"
            );
        }
    }
}

/// What the system takes for the same bytes, sent and read by nobody in particular: the floor.
async fn sockets(port: u16, hosts: usize) -> (f64, f64) {
    let request = format!("POST /h HTTP/1.1\r\nx: {}\r\n\r\n{}x}}", "x".repeat(450), "x".repeat(1022));
    let request = Bytes::from(request);
    let mut free = std::collections::VecDeque::new();
    for n in 0..hosts.max(AT_ONCE) {
        let host = n % hosts;
        let address = (Ipv4Addr::new(127, 0, (host / 250) as u8, (host % 250 + 1) as u8), port);
        let stream = tokio::net::TcpStream::connect(address).await.expect("a connection");
        stream.set_nodelay(true).expect("an option");
        free.push_back(stream);
    }
    let free = Arc::new(std::sync::Mutex::new(free));
    measure(|_| {
        let (free, request) = (free.clone(), request.clone());
        async move {
            let mut stream = free.lock().expect("no panic").pop_front().expect("more than lanes");
            stream.write_all(&request).await.expect("written");
            let mut buffer = [0; 256];
            while !buffer.windows(2).any(|two| two == b"ok") {
                assert!(stream.read(&mut buffer).await.expect("read") > 0);
            }
            free.lock().expect("no panic").push_back(stream);
        }
    })
    .await
}

/// Processor µs a request, and requests a second. What is to be sent was made before.
async fn measure<F: Future<Output = ()> + Send + 'static>(send: impl Fn(usize) -> F) -> (f64, f64) {
    let lane = |lane| (lane..REQUESTS).step_by(AT_ONCE).map(&send).collect::<Vec<F>>();
    let lanes: Vec<Vec<F>> = (0..AT_ONCE).map(lane).collect();
    let (cpu, wall) = (cpu(), Instant::now());
    let lanes: Vec<_> = lanes
        .into_iter()
        .map(|all| {
            tokio::spawn(async move {
                for one in all {
                    one.await;
                }
            })
        })
        .collect();
    for lane in lanes {
        lane.await.expect("no panic");
    }
    let each = |time: Duration| time.as_secs_f64() * 1e6 / REQUESTS as f64;
    (each(self::cpu() - cpu), REQUESTS as f64 / wall.elapsed().as_secs_f64())
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

async fn hang(port: u16, name: &'static str) {
    let (ours, theirs) = (ours(), theirs());
    if name == "ours" {
        let future = ours.send(signed(url(port, 1, 0), 0), || 0);
        println!("of which the future itself has {} bytes", size_of_val(&future));
    }
    let before = resident();
    let waiting: Vec<_> = (0..HANGING)
        .map(|n| {
            let sent = signed(url(port, 4, n).replace("/h", "/hang"), n);
            let (ours, theirs) = (ours.clone(), theirs.clone());
            tokio::spawn(async move {
                if name == "ours" {
                    Box::pin(ours.send(sent, || 1_700_000_000)).await;
                } else {
                    theirs.post(&sent.url).body(sent.body).send().await.ok();
                }
            })
        })
        .collect();
    // All are on their way once nothing more happens; well within the requests' time.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let each = (resident() - before) as f64 / HANGING as f64;
    println!("{HANGING} hanging, {name:>8}: {:.1} KB each, the request's 1 KiB included", each / 1024.0);
    for one in waiting {
        one.abort();
    }
}

/// Bytes of memory in use.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: u64 = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("pages");
    pages * 4096
}
