//! Many endpoints over HTTPS and one busy one, for as long as is wished, beside a server that may open few files.
//! Stands in for: days of ordinary traffic.
#![allow(dead_code)]

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use super::server::{Host, Server, text};
use super::tls_receiver::{Authority, Good, TlsReceiver};

/// Files that the server may have open.
pub const FILES: u64 = 1_024;

/// How much there is of everything.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Hosts beside the busy one, and the endpoints that share them.
    pub hosts: u8,
    pub endpoints: usize,
    /// For so long.
    pub time: Duration,
    /// Events a second to the busy host, and to all others together; none: as fast as they go.
    pub busy_per_second: u32,
    pub others_per_second: u32,
    /// Attempts afterwards to hosts that refuse.
    pub refused: usize,
}

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub delivered: u64,
    pub files_most: usize,
    pub time_wait_most: usize,
    /// Of the busy host's requests.
    pub reused_percent: f64,
    /// Resident bytes, the mean of each tenth of the time.
    pub memory: Vec<u64>,
    /// Resident bytes before and after the attempts to hosts that refuse.
    pub refused_memory: (u64, u64),
    pub refused_files: usize,
}

/// Connections to any of these ports that wait for stray packets of their past, on either side.
fn time_wait(ports: &[u16]) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the connections");
    let ours = |end: &str| {
        let port = end.rsplit(':').next().and_then(|port| u16::from_str_radix(port, 16).ok());
        port.is_some_and(|port| ports.contains(&port))
    };
    let waits = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        matches!(words[..], [_, here, there, "06", ..] if ours(here) || ours(there))
    };
    table.lines().filter(waits).count()
}

/// Lives through it.
pub async fn live(folder: &Path, load: Load) -> Seen {
    let authority = Authority::named("ours");
    let host = Host::new(folder).with("--extra-ca", authority.pem_file().to_str().expect("a path of ours"));
    let host = host.with("--wait-divisor", "100000").with("--endpoints-max", "4000").with_files(FILES);
    let server = host.start().await;
    let mut receivers = Vec::new();
    for n in 1..=load.hosts + 1 {
        let config = authority.receiver(&format!("127.0.0.{n}"), Good::Now);
        receivers.push(TlsReceiver::showing_at(([127, 0, 0, n], 0).into(), config).await);
    }
    let ports: Vec<u16> = receivers.iter().map(|receiver| receiver.address.port()).collect();
    let busy = receivers.last().expect("one").address;
    let (account, _) = server.api.account().await;
    let url = |address| format!("https://{address}/h");
    server.api.endpoint(&account, &url(busy), json!({ "event_types": ["busy"] })).await;
    for n in 0..load.endpoints {
        let address = receivers[n % usize::from(load.hosts)].address;
        let only = json!({ "event_types": [format!("other.{n}")] });
        server.api.endpoint(&account, &url(address), only).await;
    }

    let mut seen = Seen::default();
    let (begun, mut sent, mut others) = (Instant::now(), [0u64; 2], 0);
    let wanted = |rate: u32, passed: Duration| (f64::from(rate) * passed.as_secs_f64()) as u64;
    let mut tick = tokio::time::interval(Duration::from_millis(50));
    let (mut memory, mut looked) = (Vec::new(), Instant::now());
    loop {
        let passed = begun.elapsed().min(load.time);
        let mut batch = Vec::new();
        while sent[0] < wanted(load.busy_per_second, passed) {
            sent[0] += 1;
            batch.push("busy".to_owned());
        }
        while sent[1] < wanted(load.others_per_second, passed) {
            sent[1] += 1;
            batch.push(format!("other.{}", others % load.endpoints));
            others += 1;
        }
        // Few at a time, also where a busy machine has to catch up: each takes a connection.
        for some in batch.chunks(32) {
            let all = some.iter().map(|kind| take(&server, &account, kind.clone(), json!(1)));
            futures::future::join_all(all).await;
        }
        if looked.elapsed() >= Duration::from_secs(1) || passed == load.time {
            looked = Instant::now();
            memory.push((passed, server.memory()));
            seen.files_most = seen.files_most.max(server.files());
            seen.time_wait_most = seen.time_wait_most.max(time_wait(&ports));
            // What they were sent is of no use, and must not fill this process.
            receivers.iter_mut().for_each(|receiver| drop(receiver.requests()));
        }
        if passed == load.time {
            break;
        }
        tick.tick().await;
    }
    let figures = server.api.settled(Duration::from_secs(60)).await;
    assert_eq!(figures["delivered"], sent[0] + sent[1], "{figures}");
    seen.delivered = sent[0] + sent[1];
    for tenth in 0..10 {
        let of = |at: &Duration| (at.as_secs_f64() * 10.0 / load.time.as_secs_f64()).min(9.0) as u64 == tenth;
        let all: Vec<u64> = memory.iter().filter(|(at, _)| of(at)).map(|(_, bytes)| *bytes).collect();
        seen.memory.push(all.iter().sum::<u64>() / (all.len() as u64).max(1));
    }
    seen.reused_percent = reused(&server, &account).await;

    // Nobody listens there: breakers, dead letters, and nothing that stays behind.
    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let nowhere = closed.local_addr().expect("its address");
    drop(closed);
    let only = json!({ "event_types": ["refused"], "in_flight_max": 64 });
    server.api.endpoint(&account, &format!("http://{nowhere}/h"), only).await;
    let tries = 6;
    for (n, chunk) in (0..load.refused.div_ceil(tries)).collect::<Vec<_>>().chunks(100).enumerate() {
        if n == load.refused.div_ceil(tries) / 200 {
            // After the first half of them, what every such attempt needs is there.
            seen.refused_memory.0 = server.memory();
        }
        let all = chunk.iter().map(|_| take(&server, &account, "refused".into(), json!(1)));
        futures::future::join_all(all).await;
        server.api.settled(Duration::from_secs(600)).await;
    }
    seen.refused_memory.1 = server.memory();
    seen.refused_files = server.files();
    let figures = server.api.figures().await;
    assert_eq!(figures["dead"], load.refused.div_ceil(tries), "{figures}");
    host.verify().await;
    server.stop().await;
    seen
}

async fn take(server: &Server, account: &str, kind: String, data: serde_json::Value) {
    let event = json!({ "account_id": account, "type": kind, "data": data });
    let reply = server.api.post_text("/v1/events", event.to_string()).await.expect("an answer");
    assert_eq!(reply.status, 202, "{reply:?}");
}

/// Of a hundred of the busy host's newest requests, how many went over a connection that had served another.
async fn reused(server: &Server, account: &str) -> f64 {
    let path = format!("/v1/deliveries?account_id={account}&event_type=busy&limit=200");
    let page = server.api.get(&path).await;
    let ids: Vec<String> =
        page["data"].as_array().expect("a list").iter().map(|row| text(&row["id"])).collect();
    let mut reused = 0;
    for id in &ids {
        reused += usize::from(server.api.attempts(id).await[0]["reused"] == true);
    }
    reused as f64 * 100.0 / ids.len() as f64
}
