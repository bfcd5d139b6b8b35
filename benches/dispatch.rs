//! What the engine costs without HTTP: events in, attempts out, outcomes in, on both disks side by side.
//!
//! `cargo bench --bench dispatch [-- EVENTS]`. Prints events a second and CPU microseconds an event; compare
//! only lines of one run.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use hooklog::clock::{Clock, SeededChance, SystemClock};
use hooklog::delivery::{Answer as Heard, Outcome};
use hooklog::engine::command::body_ref;
use hooklog::engine::driver::{self, Courier};
use hooklog::engine::{Attempt, Command, Engine, Enqueue, ServerPolicy};
use hooklog::log::mark::MemoryMark;
use hooklog::log::{self, Body, Disk, Log, Mark, MemoryDisk};
use hooklog::secrets::MasterKey;
use hooklog_projections::fact::{AccountSettings, Actor, EndpointSettings, Sealed};
use hooklog_projections::ids::{AccountId, EndpointId, EndpointKey};
use hooklog_projections::policy::Rollout;
use hooklog_projections::time::Millis;

const ENDPOINTS: u64 = 100;
const CALLERS: u64 = 64;

struct Instantly;

impl Courier for Instantly {
    fn carry(&self, _: Attempt) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>> {
        let heard =
            Heard { status: 204, headers: vec![], body: Bytes::new(), truncated: false, address: None };
        Box::pin(async move { Outcome::of(Ok(heard), Millis(0)) })
    }
}

fn main() {
    let events = std::env::args().skip(1).find_map(|arg| arg.parse().ok()).unwrap_or(40_000);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for round in 1..=3 {
        let memory = runtime.block_on(run(
            "memory",
            round,
            events,
            Arc::new(MemoryDisk::new()),
            Mark::memory(&MemoryMark::default()),
        ));
        let folder = tempfile::tempdir().expect("a folder");
        let (disk, mark) = log::open_folder(folder.path(), Default::default()).expect("a store");
        let fjall = runtime.block_on(run("fjall", round, events, disk, mark));
        println!("round {round}: fjall / memory = {:.2} of the rate", fjall / memory);
    }
}

async fn run(name: &str, round: u32, events: u64, disk: Arc<dyn Disk>, mark: Mark) -> f64 {
    let clock = SystemClock::start();
    let opened = Log::open(disk, mark, log::Options { free_bytes_min: 0, ..Default::default() });
    let master = MasterKey::from_bytes([7; 32].into());
    let policy = ServerPolicy { in_flight_max: 1024, ..ServerPolicy::default() };
    let mut engine =
        Engine::start(opened.expect("a log"), &master, policy, clock.now(), &mut SeededChance::new(1))
            .expect("an engine");
    engine.set_sending(true);
    let running = driver::run(engine, Arc::new(Instantly), clock, tokio::runtime::Handle::current());
    let handle = running.handle.clone();
    let account = AccountId(1);
    let settings = AccountSettings {
        name: "Acme".into(),
        owner_email: None,
        schedule: None,
        response_policy: None,
        webhook_retries: Rollout::On,
    };
    let made = Command::CreateAccount { account, settings, secret: Sealed(vec![0]) };
    handle.ask(Actor::Cli, made).await.expect("it is new");
    for n in 0..ENDPOINTS {
        let key = EndpointKey { account, endpoint: EndpointId(u128::from(n) + 1) };
        let settings = EndpointSettings {
            url: "https://r.customer.net/".into(),
            event_types: vec![format!("t{n}").into()],
            in_flight_max: 64,
            ..EndpointSettings::default()
        };
        let made = Command::CreateEndpoint { key, settings, signing: vec![], secret: None };
        handle.ask(Actor::Cli, made).await.expect("it is new");
    }
    let (wall, cpu) = (Instant::now(), cpu_micros());
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let handle = handle.clone();
            tokio::spawn(async move {
                for n in (caller..events).step_by(CALLERS as usize) {
                    let body = Body { salt: [0; 16], bytes: Bytes::from(vec![b'x'; 1024]) };
                    let enqueue = Enqueue {
                        account,
                        event: format!("evt-{n}").parse().expect("it fits"),
                        event_type: format!("t{}", n % ENDPOINTS).into(),
                        body_ref: body_ref(&body, "application/json"),
                        body,
                        utf8: true,
                        deliver_at: None,
                        max_tries: None,
                        expire_at: None,
                        endpoint: None,
                    };
                    let command = Command::Enqueue(Box::new(enqueue));
                    handle.ask(Actor::Cli, command).await.expect("it is taken in");
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.expect("no panic");
    }
    while handle.view().counts(None).expect("counts").delivered < events {
        tokio::task::yield_now().await;
    }
    let rate = events as f64 / wall.elapsed().as_secs_f64();
    let cpu = (cpu_micros() - cpu) as f64 / events as f64;
    println!("round {round}: {name:>6}: {rate:>8.0} events/s accepted and delivered, {cpu:>6.1} CPU µs each");
    running.stop(std::time::Duration::from_secs(5)).await.expect("it stops");
    rate
}

fn cpu_micros() -> u64 {
    // user and system ticks of this process, in hundredths of a second.
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields: Vec<&str> = stat.rsplit(')').next().expect("a stat line").split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().expect("ticks") + fields[12].parse::<u64>().expect("ticks");
    ticks * 10_000
}
