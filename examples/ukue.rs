//! The program of `ukue`'s text on webhook delivery, line for line, on Hooklog: a job for each delivery, a worker
//! that decides what kind of failure it was, and dead letters that support puts back in line.
//!
//! ```console
//! $ cargo run --example ukue -- jobs https://hooks.customer.example/in
//! $ hooklog list --store jobs --queue webhooks --state dead --json
//! $ hooklog retry --store jobs dlv_… dlv_… dlv_…
//! ```
//!
//! The two commands work while the program runs, and after it.

use std::time::Duration;

use hooklog::Hooklog;
use hooklog::embed::{
    Concurrency, Enqueued, Error, Job, JobError, Options, Queue, Workers, failed, permanent, retry_after,
};
use serde::{Deserialize, Serialize};

/// What a customer's endpoint is to hear.
#[derive(Debug, Serialize, Deserialize)]
pub struct Event {
    /// Unique: a receiver ignores one it has handled.
    pub id: String,
    /// Where to.
    pub url: String,
    /// How much was paid, in cents.
    pub amount: u64,
}

/// When a payment arrives: a job for each customer endpoint that wants to hear about it.
/// `q.Enqueue(ctx, "webhooks", event, ukue.MaxAttempts(30))`
pub async fn payment(webhooks: &Queue, event: &Event) -> Result<Enqueued, Error> {
    webhooks.enqueue(event).max_tries(30).await
}

/// The worker decides what kind of failure it was.
/// `q.Work(ctx, "webhooks", func(ctx context.Context, job *ukue.Job) error { … }, ukue.Concurrency(16))`
pub fn work(webhooks: &Queue) -> Workers {
    let client = reqwest::Client::new();
    webhooks.work(Concurrency(16), move |job| attempt(client.clone(), job))
}

async fn attempt(client: reqwest::Client, job: Job) -> Result<(), JobError> {
    let event: Event = job.json().map_err(permanent)?; // a broken payload won't fix itself
    let answer = deliver(&client, &event).await?; // time-out or refused connection: try again later
    match answer.status().as_u16() {
        200..300 => Ok(()),
        410 => Err(permanent(format!("{} answered 410 Gone", event.url))),
        429 => Err(retry_after(format!("{} answered 429", event.url), wait_of(&answer))),
        status => Err(failed(format!("{} answered {status}", event.url))),
    }
}

/// A POST with a 10-second time-out.
async fn deliver(client: &reqwest::Client, event: &Event) -> Result<reqwest::Response, reqwest::Error> {
    client.post(&event.url).timeout(Duration::from_secs(10)).json(event).send().await
}

/// As long as it was asked to.
fn wait_of(answer: &reqwest::Response) -> Duration {
    let field = answer.headers().get("retry-after").and_then(|value| value.to_str().ok());
    Duration::from_secs(field.and_then(|text| text.parse().ok()).unwrap_or(60))
}

/// A "resend failed events" button on the customer's dashboard: the same calls that the command line makes.
/// `q.List` and `q.Retry`
pub async fn resend(webhooks: &Queue, url: &str) -> Result<usize, Error> {
    let dead = webhooks.list(hooklog_projections::lifecycle::Status::Dead).await?;
    let of_the_customer = dead.iter().filter(|job| {
        let payload = job.payload.as_ref().map(|payload| payload.get()).unwrap_or_default();
        serde_json::from_str::<Event>(payload).is_ok_and(|event| event.url == url)
    });
    let ids: Vec<_> = of_the_customer.map(|job| job.id).collect();
    let refused = webhooks.retry(&ids).await;
    Ok(ids.len() - refused.len())
}

#[tokio::main]
#[allow(dead_code)]
async fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let folder = args.next().unwrap_or_else(|| "jobs".into());
    let hooklog = Hooklog::open(&folder, Options::default()).await?;
    let webhooks = hooklog.queue("webhooks").await?;
    let _workers = work(&webhooks);
    for (n, url) in args.enumerate() {
        let event = Event { id: format!("pay_{n}"), url, amount: 12_900 };
        let put_in = payment(&webhooks, &event).await?;
        println!("{} is {}", event.id, put_in.delivery);
    }
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        () = hooklog.ended() => {}
    }
    hooklog.close().await
}
