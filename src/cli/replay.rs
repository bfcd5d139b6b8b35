//! `hooklog replay`, also `retry`: sends events and deliveries again, by id; in bulk is `replay_bulk`'s.

use serde::{Deserialize, Serialize};

use super::client::{Client, Target, To};
use super::exit::{Exit, Failure};
use super::output::Output;
use super::render::escape;
use super::replay_bulk::{self, Besides};
use super::wire::Identified;

/// Bytes of a list of ids on standard input: a million of them.
const INPUT_BYTES_MAX: u64 = 64 << 20;

/// Sends again.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub to: To,
    /// Events (their dead deliveries) or deliveries; - or none reads ids from standard input, one a line
    #[arg(value_name = "ID", conflicts_with = "status")]
    ids: Vec<String>,
    /// Whose, if several accounts use the same event id
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<String>,
    /// Delivered ones too: their receivers get them a second time
    #[arg(long, requires = "yes")]
    all: bool,
    /// Confirms --all, and what is sent in bulk
    #[arg(long)]
    yes: bool,
    /// Why, for those who read the history
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    bulk: replay_bulk::Args,
}

#[derive(Serialize)]
struct Replay<'a> {
    scope: &'static str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    confirm: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

#[derive(Deserialize)]
struct Replayed {
    #[serde(default)]
    deliveries: Vec<Identified>,
    #[serde(default)]
    refused: Vec<String>,
}

#[derive(Serialize)]
struct Line {
    id: String,
    deliveries: Vec<String>,
    /// Why others of the event were not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    refused: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Sends them again. One that cannot be does not keep the others from it.
pub async fn run(args: Args, client: &Client, out: &mut Output) -> Result<Exit, Failure> {
    if let Some(status) = &args.bulk.status {
        let (account, reason) = (args.account.as_deref(), args.reason.as_deref());
        let besides = Besides { account, reason, yes: args.yes };
        return replay_bulk::run(status, &args.bulk, &besides, client, out).await;
    }
    let body = Replay {
        scope: if args.all { "all" } else { "dead" },
        confirm: args.all,
        reason: args.reason.as_deref(),
    };
    let mut exit = Exit::Fine;
    let mut lines = Vec::new();
    for id in ids(&given(&args.ids)?)? {
        let line = match one(&id, &args, &body, client).await {
            Ok(Replayed { deliveries, refused }) => {
                exit = if exit == Exit::Fine && !refused.is_empty() { Exit::Conflict } else { exit };
                let deliveries = deliveries.into_iter().map(|delivery| delivery.id).collect();
                Line { id, deliveries, refused, error: None }
            }
            Err(failure) if failure.exit == Exit::Unreachable => return Err(failure),
            Err(failure) => {
                exit = if exit == Exit::Fine { failure.exit } else { exit };
                Line { id, deliveries: Vec::new(), refused: Vec::new(), error: Some(failure.text) }
            }
        };
        if out.for_programs() {
            lines.push(line);
        } else {
            say(&line, out)?;
        }
    }
    if out.for_programs() {
        out.json_list(&lines)?;
    }
    if client.stopped() && exit == Exit::Fine {
        out.hint("no server runs on this store: it sends them once one is started");
    }
    Ok(exit)
}

async fn one(id: &str, args: &Args, body: &Replay<'_>, client: &Client) -> Result<Replayed, Failure> {
    let room = if id.starts_with("dlv_") { "deliveries" } else { "events" };
    let target = Target::new(&["v1", room, id, "replay"]).with_some("account_id", args.account.as_deref());
    client.post(&target, body).await
}

fn say(line: &Line, out: &mut Output) -> Result<(), Failure> {
    let paint = out.paint;
    match &line.error {
        Some(error) => out.line(format!("{}  {} {error}", escape(&line.id), paint.bad("not replayed:"))),
        None => {
            let deliveries = line.deliveries.join(" ");
            out.line(format!("{}  {} {}", escape(&line.id), paint.good("replayed:"), escape(&deliveries)))?;
            for why in &line.refused {
                out.line(format!("{}  {} {}", escape(&line.id), paint.bad("not replayed:"), escape(why)))?;
            }
            Ok(())
        }
    }
}

/// No ids are those on standard input, which nobody types.
fn given(ids: &[String]) -> Result<Vec<String>, Failure> {
    use std::io::IsTerminal;
    if !ids.is_empty() {
        return Ok(ids.to_vec());
    }
    if std::io::stdin().is_terminal() {
        let failure = Failure::usage("no ids were given");
        return Err(failure.next("name events or deliveries, pipe ids in, or choose with --status dead"));
    }
    Ok(vec!["-".into()])
}

/// The ids that were given, those on standard input in place of `-`.
pub fn ids(given: &[String]) -> Result<Vec<String>, Failure> {
    use std::io::Read;
    let mut ids = Vec::new();
    for id in given {
        if id != "-" {
            ids.push(id.clone());
            continue;
        }
        let mut text = String::new();
        std::io::stdin().take(INPUT_BYTES_MAX).read_to_string(&mut text)?;
        ids.extend(text.split_whitespace().map(str::to_owned));
    }
    Ok(ids)
}
