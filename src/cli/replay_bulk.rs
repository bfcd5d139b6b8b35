//! `hooklog replay --status dead …`: the plan, the question, the start, and how far it is.

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::Duration;

use hooklog::clock::{Clock, SystemClock};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::client::{Client, Target};
use super::exit::{Exit, Failure};
use super::list::{accounts, owner};
use super::output::Output;
use super::progress::Progress;
use super::render::{Table, escape, short};
use super::span;
use super::wire::{host, seconds};

/// Between two looks at a replay that is followed.
const LOOK: Duration = Duration::from_millis(250);

/// Which deliveries, and how.
#[derive(clap::Args)]
#[command(next_help_heading = "In bulk")]
#[group(id = "bulk")]
pub struct Args {
    /// In bulk instead of by id: dead, delivered, or missing (what an endpoint never got)
    #[arg(long, alias = "state", value_name = "STATUS")]
    pub status: Option<String>,
    /// To this endpoint
    #[arg(long, value_name = "ENDPOINT", requires = "status")]
    endpoint: Option<String>,
    /// Of this event type; a trailing * stands for anything
    #[arg(long = "type", value_name = "TYPE", requires = "status")]
    event_type: Option<String>,
    /// Not older: a span (24h) or a moment (2026-11-30T09:00:00Z)
    #[arg(long, value_name = "WHEN", requires = "status")]
    since: Option<String>,
    /// Not newer
    #[arg(long, value_name = "WHEN", requires = "status")]
    until: Option<String>,
    /// Whose newest answer was this: 503, or 5xx
    #[arg(long, value_name = "CODE", value_delimiter = ',', requires = "status")]
    http: Vec<String>,
    /// Whose newest attempt failed so: timeout, dns, connect and so on
    #[arg(long, value_name = "CLASS", value_delimiter = ',', requires = "status")]
    error: Vec<String>,
    /// as-then: whatever its endpoint wants by now; as-now: only what it wants now
    #[arg(long, value_name = "HOW", requires = "status")]
    routing: Option<String>,
    /// At most so many begin in a second, as 50/s [default: 50/s]
    #[arg(long, value_name = "N/s", value_parser = rate, requires = "status")]
    rate: Option<u32>,
    /// The plan alone: nothing is sent
    #[arg(long, requires = "status")]
    dry_run: bool,
    /// Shows how far it is until it is through
    #[arg(long, short, requires = "status")]
    follow: bool,
    /// Asks nothing: what would be asked must be given as a flag
    #[arg(long)]
    no_input: bool,
}

/// What is given besides, for ids too.
pub struct Besides<'a> {
    /// Whose.
    pub account: Option<&'a str>,
    /// Why.
    pub reason: Option<&'a str>,
    /// Nothing is asked.
    pub yes: bool,
}

#[derive(Serialize)]
struct Wish<'a> {
    account_id: &'a str,
    filter: Filter<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    routing: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_per_second: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    dry_run: bool,
    confirm: bool,
}

#[derive(Clone, Serialize)]
struct Filter<'a> {
    status: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<String>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    http_status: &'a [String],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    error: &'a [String],
}

#[derive(Deserialize)]
struct Plan {
    planned: u64,
    skipped: u64,
    bytes: u64,
    oldest: Option<String>,
    groups: Vec<Group>,
    rate_per_second: u32,
    ends_at: String,
    warnings: Vec<String>,
}

#[derive(Deserialize)]
struct Group {
    endpoint_id: String,
    event_type: String,
    count: u64,
    skipped: u64,
    endpoint_url: Option<String>,
}

#[derive(Deserialize)]
struct Replay {
    id: String,
    state: String,
    planned: u64,
    replayed: u64,
    delivered: u64,
    dead: u64,
    open: u64,
    skipped: u64,
}

/// Plans, asks, begins, and shows how far it is.
pub async fn run(
    status: &str,
    args: &Args,
    besides: &Besides<'_>,
    client: &Client,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let account = account(args, besides, client).await?;
    let now = SystemClock::start().now();
    let moment = |text: &Option<String>| {
        text.as_deref().map(|text| span::since(text, now)).transpose().map_err(Failure::usage)
    };
    let filter = Filter {
        status,
        endpoint_id: args.endpoint.as_deref(),
        event_type: args.event_type.as_deref(),
        since: moment(&args.since)?,
        until: moment(&args.until)?,
        http_status: &args.http,
        error: &args.error,
    };
    let mut wish = Wish {
        account_id: &account,
        filter,
        routing: args.routing.as_ref().map(|how| how.replace('-', "_")),
        rate_per_second: args.rate,
        reason: None,
        dry_run: true,
        confirm: false,
    };
    let target = Target::new(&["v1", "replays"]);
    let raw: Box<RawValue> = client.post(&target, &wish).await?;
    let plan: Plan = understood(&raw)?;
    if args.dry_run {
        if out.for_programs() {
            out.json(&raw)?;
        } else {
            show(&plan, out)?;
        }
        return Ok(Exit::Fine);
    }
    if !out.for_programs() {
        show(&plan, out)?;
    }
    if plan.planned + plan.skipped == 0 {
        return Ok(Exit::Fine);
    }
    let reason = match besides.reason {
        Some(reason) => reason.to_owned(),
        None => asked("Why, for those who read the history?", "--reason TEXT", args.no_input)?,
    };
    if !besides.yes {
        let question = format!("Send {} again? [y/N]", plan.planned);
        let answer = asked(&question, "--yes", args.no_input)?;
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            out.hint("nothing was sent");
            return Ok(Exit::No);
        }
    }
    (wish.dry_run, wish.confirm, wish.reason) = (false, true, Some(reason));
    let raw: Box<RawValue> = client.post(&target, &wish).await?;
    let replay: Replay = understood(&raw)?;
    if client.stopped() {
        out.hint("no server runs on this store: it begins once one is started");
    }
    let raw = match args.follow && !client.stopped() {
        true => follow(&replay.id, &account, client).await?,
        false => raw,
    };
    if out.for_programs() {
        out.json(&raw)?;
        return Ok(Exit::Fine);
    }
    let replay: Replay = understood(&raw)?;
    out.line(line(&replay))?;
    Ok(Exit::Fine)
}

fn line(replay: &Replay) -> String {
    format!(
        "{}  {}: {} of {} sent again, {} delivered, {} dead, {} on their way, {} skipped",
        escape(&replay.id),
        escape(&replay.state),
        replay.replayed,
        replay.planned,
        replay.delivered,
        replay.dead,
        replay.open,
        replay.skipped
    )
}

/// Looks again and again until it runs no more.
async fn follow(id: &str, account: &str, client: &Client) -> Result<Box<RawValue>, Failure> {
    let target = Target::new(&["v1", "replays", id]).with("account_id", account);
    let mut progress = Progress::new("sending again");
    loop {
        let raw: Box<RawValue> = client.get(&target).await?;
        let replay: Replay = understood(&raw)?;
        if replay.state != "running" {
            return Ok(raw);
        }
        progress.show(replay.replayed, replay.planned.max(1));
        tokio::time::sleep(LOOK).await;
    }
}

fn show(plan: &Plan, out: &mut Output) -> Result<(), Failure> {
    let mut table = Table::new(&["TO", "ENDPOINT", "TYPE", "COUNT", "SKIPPED"]);
    for group in &plan.groups {
        table.row([
            short(&host(group.endpoint_url.as_deref().unwrap_or_default()), 40),
            group.endpoint_id.clone(),
            short(&group.event_type, 32),
            group.count.to_string(),
            group.skipped.to_string(),
        ]);
    }
    if !table.is_empty() {
        out.table(&table)?;
    }
    let oldest =
        plan.oldest.as_deref().map_or(String::new(), |at| format!(", the oldest of {}", seconds(at)));
    out.line(format!("{} to send again{oldest}, {} bytes in all", plan.planned, plan.bytes))?;
    if plan.planned > 0 {
        out.line(format!(
            "at {} a second it ends at about {}",
            plan.rate_per_second,
            seconds(&plan.ends_at)
        ))?;
    }
    for warning in &plan.warnings {
        out.line(format!("{} {}", out.paint.waiting("!"), escape(warning)))?;
    }
    Ok(())
}

/// The account that was named, that of the endpoint, or the only one there is.
async fn account(args: &Args, besides: &Besides<'_>, client: &Client) -> Result<String, Failure> {
    match (besides.account, &args.endpoint) {
        (Some(account), _) => Ok(account.to_owned()),
        (None, Some(endpoint)) => owner(endpoint, client).await,
        (None, None) => match accounts(client).await?.as_slice() {
            [only] => Ok(only.clone()),
            [] => Err(Failure::new(Exit::NotFound, "there is no account")),
            several => {
                Err(Failure::usage(format!("there are {} accounts: name one with --account", several.len())))
            }
        },
    }
}

/// What somebody at a terminal answers; elsewhere, or if nothing is to be asked, the flag must be given.
pub fn asked(question: &str, flag: &str, no_input: bool) -> Result<String, Failure> {
    if no_input || !io::stdin().is_terminal() {
        let failure = Failure::usage(format!("{question} nobody can be asked here"));
        return Err(failure.next(format!("give {flag}")));
    }
    eprint!("{question} ");
    io::stderr().flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim().to_owned())
}

fn understood<T: for<'a> Deserialize<'a>>(raw: &RawValue) -> Result<T, Failure> {
    serde_json::from_str(raw.get())
        .map_err(|error| Failure::new(Exit::Failed, format!("the answer is not understood: {error}")))
}

/// `50/s` or `50`.
fn rate(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    number.parse().map_err(|_| format!("`{text}` is no rate: write a number a second, as 50/s"))
}
