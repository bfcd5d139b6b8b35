//! `hooklog attempts`: one attempt by its id, the request that was made, and the answer as it is kept.

use clap::Subcommand;
use serde_json::{Map, Value};

use super::client::{Client, Target, To};
use super::exit::{Exit, Failure};
use super::output::Output;
use super::render::{Table, escape};
use super::wire::{Attempt, Page, seconds};

/// About attempts.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub to: To,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// The attempts of a delivery, oldest first
    List {
        /// Of which
        delivery: String,
    },
    /// How it went, and where its time went
    Get {
        /// Which
        id: String,
    },
    /// The request as it was made; no secret is shown
    Request {
        /// Which
        id: String,
    },
    /// The answer as it is kept
    Response {
        /// Which
        id: String,
    },
}

/// Does it.
pub async fn run(args: Args, client: &Client, out: &mut Output) -> Result<Exit, Failure> {
    let target = match &args.verb {
        Verb::List { delivery } => return list(delivery, client, out).await,
        Verb::Get { id } => Target::new(&["v1", "attempts", id]),
        Verb::Request { id } => Target::new(&["v1", "attempts", id, "request"]),
        Verb::Response { id } => Target::new(&["v1", "attempts", id, "response"]),
    };
    let shown: Map<String, Value> = client.get(&target).await?;
    if out.for_programs() {
        out.json(&shown)?;
        return Ok(Exit::Fine);
    }
    for (name, value) in &shown {
        match value {
            Value::Object(members) => {
                out.line(escape(name))?;
                for (name, value) in members {
                    out.line(format!("  {}  {}", escape(name), plain(value)))?;
                }
            }
            value => out.line(format!("{:<18}  {}", escape(name), plain(value)))?,
        }
    }
    Ok(Exit::Fine)
}

async fn list(delivery: &str, client: &Client, out: &mut Output) -> Result<Exit, Failure> {
    let page: Page = client.get(&Target::new(&["v1", "deliveries", delivery, "attempts"])).await?;
    if out.for_programs() {
        out.json_list(&page.data)?;
        return Ok(Exit::Fine);
    }
    let mut table = Table::new(&["ATTEMPT", "#", "STARTED", "STATUS", "ANSWER"]).status_in(3);
    for attempt in &page.data {
        let attempt: Attempt = serde_json::from_str(attempt.get()).unwrap_or_default();
        let answer = attempt.status_code.map(|code| format!("HTTP {code}")).or(attempt.error);
        let (number, answer) = (attempt.number.to_string(), answer.unwrap_or_default());
        table.row([attempt.id, number, seconds(&attempt.started_at), attempt.status, answer]);
    }
    if table.is_empty() && !out.csv() {
        out.hint("it was not tried yet");
    } else {
        out.table(&table)?;
    }
    Ok(Exit::Fine)
}

impl Args {
    /// Whether it lists.
    pub fn lists(&self) -> bool {
        matches!(self.verb, Verb::List { .. })
    }
}

/// A value on one line; what it holds does nothing to a terminal.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => escape(text).into_owned(),
        Value::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(" "),
        other => escape(&other.to_string()).into_owned(),
    }
}
