//! `hooklog bench`: what this machine can do, measured from outside on the real server in a process of its own,
//! with a receiver in another.
//!
//! Loopback only, on a temporary store. Reads the machine's monotonic clock itself, since all three processes
//! must read the same one and measuring is the work.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hyper::Method;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::bench_receiver::{HANG, Stats};
use super::child::Child;
use super::client::{Client, Target};
use super::exit::{Exit, Failure};
use super::output::Output;
use super::progress::Progress;

/// Events of the latency measurement, and how many a second.
const CALM_EVENTS: u64 = 500;
const CALM_PER_SECOND: u64 = 50;
/// Events of the growth measurement, and of its first and last part.
const GROWTH_EVENTS: u64 = 200_000;
const GROWTH_PART: u64 = 10_000;
/// Held and hanging events go in by batches of so many.
const BATCH: u64 = 500;
/// Endpoints that hang, of one account.
const HANGING_OF_ACCOUNT: u64 = 100;
/// How long they hang: the longest that an endpoint may have, so that all hang at once.
const HANGING_MS: u64 = 30_000;
/// The part of the permits that endpoints share which have not answered yet is a half; the rest is for others.
const PERMITS_BESIDE: u64 = 256;
/// Before memory is read.
const SETTLE: Duration = Duration::from_secs(2);
/// Between two looks at the receiver.
const LOOK: Duration = Duration::from_millis(10);
/// Looks without progress after which something is lost: 60 s.
const LOOKS_MAX: u32 = 6_000;

/// Measures.
#[derive(clap::Args)]
pub struct Args {
    /// Events to send
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=2_000_000))]
    events: u64,
    /// Producers at a time
    #[arg(long, value_name = "C", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=512))]
    concurrency: u64,
    /// Endpoints that the events go to in turn
    #[arg(long, value_name = "E", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1000))]
    endpoints: u64,
    /// Bytes of an event's data
    #[arg(long, value_name = "B", default_value_t = 200, value_parser = clap::value_parser!(u64).range(32..=65_536))]
    body_bytes: u64,
    /// Measure once, let so many deliveries wait at a paused endpoint, and measure the others again
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=5_000_000))]
    hold: u64,
    /// Measure once, let so many requests hang, each at an endpoint of its own, and measure the others again
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=15_000), conflicts_with_all = ["hold", "growth"])]
    hanging: u64,
    /// With --hanging: measure alone and beside so many times, and take the middle of what the rate was of itself
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=20))]
    rounds: u64,
    /// Compare the first 10,000 of 200,000 deliveries with the last
    #[arg(long)]
    growth: bool,
}

/// A burst of events, as fast as they go.
#[derive(Clone, Copy, Debug, Serialize)]
struct Burst {
    events: u64,
    accepted_per_second: u64,
    delivered_per_second: u64,
    /// Of the server's process, taking in and delivering.
    cpu_micros_per_delivery: u64,
}

/// Events at a calm rate.
#[derive(Clone, Copy, Debug, Serialize)]
struct Calm {
    events: u64,
    per_second: u64,
    p50_micros: u64,
    p99_micros: u64,
}

#[derive(Debug, Serialize)]
struct Growth {
    events: u64,
    first: Burst,
    last: Burst,
}

/// The same work alone and beside something else.
#[derive(Debug, Serialize)]
struct Beside {
    held: u64,
    hanging: u64,
    /// What one that hangs adds to the server's memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_per_hanging: Option<u64>,
    /// The rate beside, as a part of the rate alone; of several rounds, the middle one.
    of_the_rate: f64,
    rounds: Vec<Round>,
}

/// One after the other.
#[derive(Debug, Serialize)]
struct Round {
    alone: Burst,
    beside: Burst,
}

impl Round {
    fn of_the_rate(&self) -> f64 {
        self.beside.delivered_per_second as f64 / self.alone.delivered_per_second.max(1) as f64
    }
}

impl Beside {
    fn of(held: u64, hanging: u64, bytes_per_hanging: Option<u64>, rounds: Vec<Round>) -> Beside {
        let mut parts: Vec<f64> = rounds.iter().map(Round::of_the_rate).collect();
        parts.sort_by(f64::total_cmp);
        let of_the_rate = parts.get(parts.len() / 2).copied().unwrap_or_default();
        Beside { held, hanging, bytes_per_hanging, of_the_rate, rounds }
    }
}

#[derive(Debug, Serialize)]
struct Results {
    concurrency: u64,
    endpoints: u64,
    body_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    burst: Option<Burst>,
    #[serde(skip_serializing_if = "Option::is_none")]
    beside: Option<Beside>,
    #[serde(skip_serializing_if = "Option::is_none")]
    growth: Option<Growth>,
    calm: Calm,
}

/// Microseconds on the machine's monotonic clock.
pub fn monotonic_micros() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1_000
}

/// Measures and tells.
pub async fn run(args: Args, out: &mut Output) -> Result<Exit, Failure> {
    let interrupted = tokio::signal::ctrl_c();
    tokio::select! {
        exit = measure(&args, out) => exit,
        // Dropping the measurement removes its folder and ends its processes.
        _ = interrupted => Ok(Exit::Interrupted),
    }
}

async fn measure(args: &Args, out: &mut Output) -> Result<Exit, Failure> {
    let folder = tempfile::tempdir()?;
    let receiver = Child::start(["bench-receiver"]).await?;
    // Who hangs is another than who answers: its connections take no port and no turn of theirs.
    let hanging = Child::start(["bench-receiver"]).await?;
    let permits = (2 * args.hanging + PERMITS_BESIDE).to_string();
    // One account brings all of it, and all endpoints are of one receiver.
    let mut more = vec!["--events-per-minute", "100000000"];
    if args.hanging > 0 {
        more.extend(["--in-flight-max", &permits, "--target-in-flight-max", &permits]);
    }
    let server = Child::serve(&folder.path().join("store"), &more).await?;
    let bench = Bench::set(args, &server, &receiver, &hanging).await?;
    let (mut burst, mut beside, mut growth) = (None, None, None);
    if args.growth {
        let first = bench.burst(GROWTH_PART).await?;
        bench.burst(GROWTH_EVENTS - 2 * GROWTH_PART).await?;
        let last = bench.burst(GROWTH_PART).await?;
        growth = Some(Growth { events: GROWTH_EVENTS, first, last });
    } else if args.hold > 0 || args.hanging > 0 {
        beside = Some(bench.beside(args).await?);
    } else {
        burst = Some(bench.burst(args.events).await?);
    }
    let calm = bench.calm().await?;
    let Args { concurrency, endpoints, body_bytes, .. } = *args;
    let results = Results { concurrency, endpoints, body_bytes, burst, beside, growth, calm };
    for child in [server, receiver, hanging] {
        child.kill().await?;
    }
    if out.for_programs() {
        out.json(&results)?
    } else {
        say(&results, out)?
    }
    Ok(Exit::Fine)
}

fn say(results: &Results, out: &mut Output) -> Result<(), Failure> {
    let Results { concurrency, endpoints, body_bytes, burst, beside, growth, calm } = results;
    let heading = out.paint.bold("hooklog bench");
    out.line(format!(
        "{heading}  {concurrency} producers, {endpoints} endpoints, {body_bytes} bytes of data"
    ))?;
    let one = |name: &str, burst: &Burst| {
        format!(
            "{name:<11}{:>7} accepted/s (durable)  {:>7} delivered/s  {:>5} µs of server CPU a delivery  ({} events)",
            burst.accepted_per_second,
            burst.delivered_per_second,
            burst.cpu_micros_per_delivery,
            burst.events
        )
    };
    if let Some(burst) = burst {
        out.line(one("burst", burst))?;
    }
    if let Some(Beside { held, hanging, bytes_per_hanging, of_the_rate, rounds }) = beside {
        for round in rounds {
            out.line(one("alone", &round.alone))?;
            out.line(one("beside", &round.beside))?;
        }
        out.line(format!(
            "{:<11}{held} held, {hanging} hanging: {of_the_rate:.2} of the rate{}",
            "",
            bytes_per_hanging.map_or(String::new(), |bytes| format!(
                ", {:.1} KB for each that hangs",
                bytes as f64 / 1000.0
            ))
        ))?;
    }
    if let Some(growth) = growth {
        out.line(one("first", &growth.first))?;
        out.line(one("last", &growth.last))?;
    }
    let ms = |micros: u64| micros as f64 / 1000.0;
    out.line(format!(
        "{:<11}p50 {:.1} ms, p99 {:.1} ms from create to received  ({} events at {}/s)",
        "calm",
        ms(calm.p50_micros),
        ms(calm.p99_micros),
        calm.events,
        calm.per_second
    ))
}

/// A server and a receiver, made ready.
struct Bench {
    server: std::net::SocketAddr,
    server_id: u32,
    receiver: Client,
    account: String,
    endpoints: Arc<Vec<String>>,
    receiver_at: std::net::SocketAddr,
    hanging_at: std::net::SocketAddr,
    pad: Arc<str>,
    producers: u64,
}

impl Bench {
    async fn set(args: &Args, server: &Child, receiver: &Child, hanging: &Child) -> Result<Bench, Failure> {
        let client = Client::at(server.address);
        let account: Value =
            client.post(&Target::new(&["v1", "accounts"]), &json!({ "name": "bench" })).await?;
        // The rest of the data is `{"at":…,"pad":"…"}`, about 32 bytes.
        let pad = "x".repeat((args.body_bytes - 32) as usize);
        let mut bench = Bench {
            server: server.address,
            server_id: server.id().unwrap_or_default(),
            receiver: Client::at(receiver.address),
            account: text(&account, "id"),
            endpoints: Arc::default(),
            receiver_at: receiver.address,
            hanging_at: hanging.address,
            pad: pad.into(),
            producers: args.concurrency,
        };
        let mut endpoints = Vec::new();
        for number in 0..args.endpoints {
            endpoints.push(bench.endpoint(&client, &format!("e{number}")).await?);
        }
        bench.endpoints = Arc::new(endpoints);
        Ok(bench)
    }

    async fn endpoint(&self, client: &Client, path: &str) -> Result<String, Failure> {
        self.endpoint_at(client, self.receiver_at, &self.account, path, 10_000).await
    }

    async fn endpoint_at(
        &self,
        client: &Client,
        receiver: std::net::SocketAddr,
        account: &str,
        path: &str,
        timeout_ms: u64,
    ) -> Result<String, Failure> {
        let url = format!("http://{receiver}/{path}");
        // Events name their endpoint; the filter only keeps others away.
        let endpoint = json!({
            "account_id": account, "url": url, "event_types": ["bench.*"], "timeout_ms": timeout_ms
        });
        let made: Value = client.post(&Target::new(&["v1", "endpoints"]), &endpoint).await?;
        Ok(text(&made, "id"))
    }

    /// A burst alone, then with what waits or hangs beside it.
    async fn beside(&self, args: &Args) -> Result<Beside, Failure> {
        if args.hold > 0 {
            let alone = self.burst(args.events).await?;
            self.hold(args.hold).await?;
            let beside = self.burst(args.events).await?;
            return Ok(Beside::of(args.hold, 0, None, vec![Round { alone, beside }]));
        }
        let (mut rounds, mut bytes_per_hanging) = (Vec::new(), None);
        for round in 0..args.rounds {
            let alone = self.burst(args.events).await?;
            let events = self.hanging(args.hanging).await?;
            tokio::time::sleep(SETTLE).await;
            let before = memory_bytes(self.server_id)?;
            self.hang(events, round).await?;
            // What taking them in has freed goes back to the system a little later.
            tokio::time::sleep(SETTLE).await;
            // In later rounds, memory of the earlier ones is used again.
            let more = memory_bytes(self.server_id)?.saturating_sub(before);
            bytes_per_hanging.get_or_insert(more / args.hanging);
            let beside = self.burst(args.events).await?;
            rounds.push(Round { alone, beside });
            self.ended().await?;
        }
        Ok(Beside::of(0, args.hanging, bytes_per_hanging, rounds))
    }

    /// Lets deliveries wait at a paused endpoint.
    async fn hold(&self, events: u64) -> Result<(), Failure> {
        let client = Client::at(self.server);
        let held = self.endpoint(&client, "held").await?;
        let _: Value = client.post(&Target::new(&["v1", "endpoints", &held, "pause"]), &json!({})).await?;
        let mut progress = Progress::new("holding");
        let mut done = 0;
        while done < events {
            let count = BATCH.min(events - done);
            self.batch(&client, vec![self.event(&held); count as usize]).await?;
            done += count;
            progress.show(done, events);
        }
        Ok(())
    }

    /// Endpoints that hang, and an event for each.
    async fn hanging(&self, endpoints: u64) -> Result<Vec<Value>, Failure> {
        let client = Client::at(self.server);
        let mut progress = Progress::new("endpoints that hang");
        let (mut account, mut events) = (String::new(), Vec::new());
        for number in 0..endpoints {
            if number % HANGING_OF_ACCOUNT == 0 {
                let made: Value =
                    client.post(&Target::new(&["v1", "accounts"]), &json!({ "name": "hanging" })).await?;
                account = text(&made, "id");
            }
            let path = format!("{}/{number}", &HANG[1..]);
            let endpoint = self.endpoint_at(&client, self.hanging_at, &account, &path, HANGING_MS).await?;
            let mut event = event(&account, &endpoint, &self.pad);
            // Once is enough: it is over when its time is.
            event["max_tries"] = 1.into();
            events.push(event);
            progress.show(number, endpoints);
        }
        Ok(events)
    }

    /// Sends events, and waits until each hangs beside those of earlier rounds.
    async fn hang(&self, mut events: Vec<Value>, round: u64) -> Result<(), Failure> {
        let (client, all) = (Client::at(self.server), events.len() as u64 * (round + 1));
        while !events.is_empty() {
            let rest = events.split_off(events.len().min(BATCH as usize));
            self.batch(&client, std::mem::replace(&mut events, rest)).await?;
        }
        self.received(&Client::at(self.hanging_at), all, |stats| stats.hanging).await
    }

    /// Waits until nothing hangs any more.
    async fn ended(&self) -> Result<(), Failure> {
        let client = Client::at(self.server);
        for _ in 0..4 * HANGING_MS / 1_000 {
            let page: Value =
                client.get(&Target::new(&["v1", "deliveries"]).with("status", "in_flight")).await?;
            if page["data"].as_array().is_some_and(Vec::is_empty) {
                return Ok(());
            }
            tokio::time::sleep(SETTLE).await;
        }
        Err(Failure::new(Exit::No, "requests that hang did not end"))
    }

    async fn batch(&self, client: &Client, events: Vec<Value>) -> Result<(), Failure> {
        let batch = json!({ "events": events });
        let answer: Value = client.post(&Target::new(&["v1", "events", "batch"]), &batch).await?;
        let refused = |result: &Value| result["status"] != 202;
        if answer["results"].as_array().is_none_or(|results| results.iter().any(refused)) {
            return Err(Failure::new(Exit::Failed, "an event was refused"));
        }
        Ok(())
    }

    fn event(&self, endpoint: &str) -> Value {
        event(&self.account, endpoint, &self.pad)
    }

    /// Sends as fast as all producers can, and waits until all has arrived.
    async fn burst(&self, events: u64) -> Result<Burst, Failure> {
        self.reset().await?;
        let cpu_before = cpu_micros(self.server_id)?;
        let start = monotonic_micros();
        let next = Arc::new(AtomicU64::new(0));
        let mut producers = JoinSet::new();
        for _ in 0..self.producers {
            let (next, endpoints, pad) = (next.clone(), self.endpoints.clone(), self.pad.clone());
            let (account, client) = (self.account.clone(), Client::at(self.server));
            producers.spawn(async move {
                let target = Target::new(&["v1", "events"]);
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= events {
                        return Ok::<_, Failure>(());
                    }
                    let endpoint = &endpoints[(number % endpoints.len() as u64) as usize];
                    let _: serde::de::IgnoredAny =
                        client.post(&target, &event(&account, endpoint, &pad)).await?;
                }
            });
        }
        while let Some(joined) = producers.join_next().await {
            joined.map_err(|error| Failure::new(Exit::Failed, error.to_string()))??;
        }
        let accepted = monotonic_micros();
        let stats = self.all_received(events).await?;
        let cpu = cpu_micros(self.server_id)? - cpu_before;
        Ok(Burst {
            events,
            accepted_per_second: rate(events, accepted - start),
            delivered_per_second: rate(events, stats.last_at_micros.saturating_sub(start)),
            cpu_micros_per_delivery: cpu / events,
        })
    }

    /// Sends at a steady rate.
    async fn calm(&self) -> Result<Calm, Failure> {
        self.reset().await?;
        let mut ticks = tokio::time::interval(Duration::from_micros(1_000_000 / CALM_PER_SECOND));
        let mut sending = JoinSet::new();
        for number in 0..CALM_EVENTS {
            ticks.tick().await;
            let endpoint = &self.endpoints[(number % self.endpoints.len() as u64) as usize];
            let (account, pad, endpoint) = (self.account.clone(), self.pad.clone(), endpoint.clone());
            let client = Client::at(self.server);
            sending.spawn(async move {
                let target = Target::new(&["v1", "events"]);
                client
                    .post::<serde::de::IgnoredAny>(&target, &event(&account, &endpoint, &pad))
                    .await
                    .map(drop)
            });
        }
        while let Some(joined) = sending.join_next().await {
            joined.map_err(|error| Failure::new(Exit::Failed, error.to_string()))??;
        }
        let stats = self.all_received(CALM_EVENTS).await?;
        Ok(Calm {
            events: CALM_EVENTS,
            per_second: CALM_PER_SECOND,
            p50_micros: stats.p50_micros,
            p99_micros: stats.p99_micros,
        })
    }

    async fn reset(&self) -> Result<(), Failure> {
        self.receiver.call(Method::POST, &Target::new(&["reset"]), None).await?.checked().map(drop)
    }

    async fn all_received(&self, events: u64) -> Result<Stats, Failure> {
        self.received(&self.receiver, events, |stats| stats.distinct).await?;
        self.receiver.get(&Target::new(&["stats"])).await
    }

    /// Waits until a figure of the receiver is reached.
    async fn received(
        &self,
        receiver: &Client,
        events: u64,
        figure: impl Fn(&Stats) -> u64,
    ) -> Result<(), Failure> {
        let (mut looks, mut seen) = (0, 0);
        while looks < LOOKS_MAX {
            let stats: Stats = receiver.get(&Target::new(&["count"])).await?;
            let now = figure(&stats);
            if now >= events {
                return Ok(());
            }
            looks = if now > seen { 0 } else { looks + 1 };
            seen = now;
            tokio::time::sleep(LOOK).await;
        }
        Err(Failure::new(Exit::No, format!("only {seen} of {events} events arrived")))
    }
}

fn event(account: &str, endpoint: &str, pad: &str) -> Value {
    let data = json!({ "at": monotonic_micros(), "pad": pad });
    json!({ "account_id": account, "endpoint_id": endpoint, "type": "bench.event", "data": data })
}

fn text(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap_or_default().to_owned()
}

fn rate(events: u64, micros: u64) -> u64 {
    (u128::from(events) * 1_000_000 / u128::from(micros.max(1))) as u64
}

/// CPU time of a process so far, user and system.
fn cpu_micros(process: u32) -> Result<u64, Failure> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name in parentheses may hold spaces; user and system time are the 12th and 13th field after it.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(ticks * 1_000_000 / rustix::param::clock_ticks_per_second().max(1))
}

/// Memory that a process holds, in bytes.
fn memory_bytes(process: u32) -> Result<u64, Failure> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib =
        line.and_then(|line| line.split_whitespace().next()).and_then(|number| number.parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| Failure::new(Exit::Failed, "the process tells no memory"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_do_not_divide_by_nothing() {
        assert_eq!(rate(10, 1_000_000), 10);
        assert_eq!(rate(10, 0), 10_000_000);
    }

    #[test]
    fn a_process_has_used_some_time() {
        assert!(cpu_micros(std::process::id()).is_ok());
        assert!(memory_bytes(std::process::id()).is_ok_and(|bytes| bytes > 1 << 20));
    }
}
