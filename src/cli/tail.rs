//! `hooklog tail`: one aligned line for each fact as it commits, or the server's JSON.

use hooklog::clock::{Clock, SystemClock};
use hooklog_projections::time::Millis;

use super::client::{Client, Target, To};
use super::exit::{Exit, Failure};
use super::follow::{Event, Follower};
use super::output::Output;
use super::render::short;
use super::span::{self, spell};
use super::wire::seconds;

/// Follows the log.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub to: To,
    /// Only what puts a delivery in this status: pending, in_flight, delivered, dead or cancelled
    #[arg(long, alias = "state", value_name = "STATUS", value_delimiter = ',')]
    status: Vec<String>,
    /// Only these facts: Accepted, Enqueued, Attempted, Delivered, Failed, Rescheduled, Dead, …
    #[arg(long, value_name = "FACT", value_delimiter = ',')]
    fact: Vec<String>,
    /// Of this account
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<String>,
    /// Of this endpoint
    #[arg(long, value_name = "ENDPOINT")]
    endpoint: Option<String>,
    /// Of this event type; a trailing * stands for anything
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// Begin in the past: a span (24h) or a moment (2026-11-30T09:00:00Z)
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// End after so many
    #[arg(long, short = 'n', value_name = "N")]
    count: Option<u64>,
}

/// Follows until it is interrupted.
pub async fn run(args: Args, client: &Client, out: &mut Output) -> Result<Exit, Failure> {
    let since = args.since.as_deref().map(|text| span::since(text, SystemClock::start().now()));
    let mut target = Target::new(&["v1", "stream"])
        .with_some("account_id", args.account.as_deref())
        .with_some("endpoint_id", args.endpoint.as_deref())
        .with_some("event_type", args.event_type.as_deref())
        .with_some("since", since.transpose().map_err(Failure::usage)?.as_deref());
    for status in &args.status {
        target = target.with("status", &status.replace('-', "_"));
    }
    for fact in &args.fact {
        target = target.with("fact", fact);
    }
    let mut left = args.count;
    let mut follower = Follower::new(target, client);
    let shown = follower.each(async |event| {
        match out.for_programs() {
            true => out.line(&event.raw)?,
            false => out.line(line(&event, out))?,
        }
        left = left.map(|left| left.saturating_sub(1));
        Ok(left != Some(0))
    });
    shown.await?;
    Ok(Exit::Fine)
}

/// Time, fact, type, host, try, answer, what is next, id.
fn line(event: &Event, out: &Output) -> String {
    let tried = match (event.tried.or(event.attempt), event.tries) {
        (Some(tried), Some(tries)) if event.tried.is_some() => format!("{tried}/{tries}"),
        (Some(attempt), _) => format!("#{attempt}"),
        _ => String::new(),
    };
    let answer = match (event.status_code, &event.error) {
        (Some(code), _) => code.to_string(),
        (None, Some(error)) => error.clone(),
        (None, None) => match &event.reason {
            Some(serde_json::Value::String(reason)) => reason.clone(),
            _ => String::new(),
        },
    };
    let took = event.took_ms.map_or(String::new(), |ms| spell(Millis(ms)));
    let next = event
        .due_at
        .as_deref()
        .filter(|_| event.fact != "Attempted")
        .and_then(clock)
        .map(|at| format!("next {at}"));
    let id = event.delivery_id.as_ref().or(event.event_id.as_ref());
    let fact = format!("{:<15}", short(&event.fact, 15));
    let fact = match event.fact.as_str() {
        "Delivered" => out.paint.good(&fact),
        "Dead" | "Failed" | "EndpointDisabled" => out.paint.bad(&fact),
        "Rescheduled" | "EndpointPaused" | "EndpointGated" => out.paint.waiting(&fact),
        _ => fact,
    };
    let text = |text: &Option<String>, max| short(text.as_deref().unwrap_or_default(), max);
    let line = format!(
        "{}  {fact}  {:<24}  {:<28}  {tried:<5}  {:<12}  {took:>8}  {:<13}  {}",
        clock(&event.at).unwrap_or_default(),
        text(&event.event_type, 24),
        text(&event.endpoint_host, 28),
        short(&answer, 12),
        next.unwrap_or_default(),
        short(id.map_or("", String::as_str), 64),
    );
    line.trim_end().to_owned()
}

/// The time of day in a moment of the API.
fn clock(moment: &str) -> Option<String> {
    seconds(moment).get(11..19).map(str::to_owned)
}
