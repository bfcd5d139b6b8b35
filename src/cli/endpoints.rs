//! `hooklog endpoints`: makes, lists, tests, pauses, resumes and removes endpoints; rotates and shows their keys.

use clap::Subcommand;
use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::client::{Client, Target, To};
use super::exit::{Exit, Failure};
use super::output::Output;
use super::render::{Table, escape, short};
use super::replay_bulk::asked;
use super::send;
use super::span::Span;
use super::wire::{Accepted, Page};

/// Items of a list that are asked for at a time.
const PAGE: &str = "200";

/// About endpoints.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub to: To,
    #[command(subcommand)]
    verb: Verb,
}

impl Args {
    /// Whether it lists.
    pub fn lists(&self) -> bool {
        matches!(self.verb, Verb::List { .. })
    }
}

#[derive(Subcommand)]
enum Verb {
    /// Make an endpoint; its signing key is shown once
    Create(Create),
    /// List endpoints
    List {
        /// Of this account
        #[arg(long, value_name = "ACCOUNT")]
        account: Option<String>,
    },
    /// Hold an endpoint's deliveries; none is lost
    Pause {
        /// Which
        id: String,
        /// Why, for those who read the history
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Let them go, oldest first
    Resume {
        /// Which
        id: String,
    },
    /// Send a test event to it, once; it must be neither paused nor disabled
    Test {
        /// Which
        id: String,
        /// Wait until it is delivered (exit code 0) or dead (8), at most so long (7)
        #[arg(long, value_name = "SPAN", num_args = 0..=1, default_missing_value = "1m", require_equals = true)]
        wait: Option<Span>,
    },
    /// Remove an endpoint for good; what waits for it is called off, its history stays
    Remove {
        /// Which
        id: String,
        /// Why, for those who read the history
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Cut a new signing key; the older ones go on signing beside it for a while
    Rotate {
        /// Which
        id: String,
        /// Hours that the older keys go on, 0 to 168 [default: 24]; 0 if one may have leaked
        #[arg(long, value_name = "HOURS")]
        overlap_hours: Option<u16>,
    },
    /// Show the signing keys; the audit says who saw them
    Reveal {
        /// Which
        id: String,
        /// Why, for the audit
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

/// A new endpoint. Serializes as the API takes it.
#[derive(clap::Args, Serialize)]
struct Create {
    /// Whose
    #[arg(long = "account", value_name = "ACCOUNT")]
    account_id: String,
    /// Where to
    #[arg(
        id = "endpoint_url",
        value_name = "URL",
        required_unless_present = "queue",
        conflicts_with = "queue"
    )]
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// A worker queue of this name instead: nothing is sent, workers claim
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    /// Event types it wants; a trailing * stands for anything [default: all]
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    event_types: Vec<String>,
    /// For people
    #[arg(long, value_name = "TEXT")]
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// Its retry schedule, by name
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    schedule: Option<String>,
    /// What answers mean, by name
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    response_policy: Option<String>,
    /// Milliseconds an attempt may take, 1000 to 30000
    #[arg(long, value_name = "MS")]
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u32>,
    /// Requests out at a time
    #[arg(long, value_name = "N")]
    #[serde(skip_serializing_if = "Option::is_none")]
    in_flight_max: Option<u32>,
}

#[derive(Serialize)]
struct Reason {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Endpoint {
    id: String,
    account_id: String,
    url: String,
    queue: Option<String>,
    event_types: Vec<String>,
    status: String,
    signing_secret: Option<String>,
}

#[derive(Serialize)]
struct Rotation {
    #[serde(skip_serializing_if = "Option::is_none")]
    overlap_hours: Option<u16>,
}

/// An endpoint's signing keys.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Keys {
    signing_secret: Option<String>,
    keys: Vec<SigningKey>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SigningKey {
    id: String,
    secret: Option<String>,
    expires_at: Option<String>,
}

/// Does it.
pub async fn run(args: Args, client: &Client, out: &mut Output) -> Result<Exit, Failure> {
    let endpoints = Target::new(&["v1", "endpoints"]);
    match args.verb {
        Verb::Create(create) => {
            let made: Box<RawValue> = client.post(&endpoints, &create).await?;
            if out.for_programs() {
                out.json(&made)?;
                return Ok(Exit::Fine);
            }
            let endpoint: Endpoint = serde_json::from_str(made.get()).unwrap_or_default();
            out.line(format!("endpoint     {}", escape(&endpoint.id)))?;
            if let Some(secret) = endpoint.signing_secret {
                out.line(format!("signing key  {}", escape(&secret)))?;
                out.hint("the key is shown only now; it signs webhook-signature");
            }
        }
        Verb::List { account } => {
            let accounts = match account {
                Some(account) => vec![account],
                None => super::list::accounts(client).await?,
            };
            let mut found = Vec::new();
            for account in &accounts {
                found.extend(whole_list(endpoints.clone().with("account_id", account), client).await?);
            }
            if out.for_programs() {
                out.json_list(&found)?;
                return Ok(Exit::Fine);
            }
            let mut table = Table::new(&["ENDPOINT", "ACCOUNT", "STATUS", "URL", "TYPES"]).status_in(2);
            for endpoint in &found {
                let endpoint: Endpoint = serde_json::from_str(endpoint.get()).unwrap_or_default();
                let types = endpoint.event_types.join(" ");
                let types = if out.csv() { types } else { short(&types, 40) };
                let to = endpoint.queue.map_or(endpoint.url, |queue| format!("queue {queue}"));
                table.row([endpoint.id, endpoint.account_id, endpoint.status, to, types]);
            }
            if table.is_empty() && !out.csv() {
                out.hint("no endpoints yet; `hooklog endpoints create --account ACCOUNT URL` makes one");
            } else {
                out.table(&table)?;
            }
        }
        Verb::Pause { id, reason } => change(&id, "pause", "paused", Reason { reason }, client, out).await?,
        Verb::Rotate { id, overlap_hours } => {
            let target = Target::new(&["v1", "endpoints", &id, "secret", "rotate"]);
            let rotated = client.post(&target, &Rotation { overlap_hours }).await?;
            show_keys(rotated, out)?;
        }
        Verb::Reveal { id, reason } => {
            let target = Target::new(&["v1", "endpoints", &id, "secret"]);
            let keys = client.get(&target.with_some("reason", reason.as_deref())).await?;
            show_keys(keys, out)?;
        }
        Verb::Test { id, wait } => return test(&id, wait, client, out).await,
        Verb::Remove { id, reason, yes } => return remove(&id, Reason { reason }, yes, client, out).await,
        Verb::Resume { id } => change(&id, "resume", "active", Reason { reason: None }, client, out).await?,
    }
    Ok(Exit::Fine)
}

fn show_keys(answer: Box<RawValue>, out: &mut Output) -> Result<(), Failure> {
    if out.for_programs() {
        return out.json(&answer);
    }
    let Keys { signing_secret, keys } = serde_json::from_str(answer.get()).unwrap_or_default();
    if let Some(secret) = &signing_secret {
        out.line(format!("signing key  {}", escape(secret)))?;
    }
    let with_secrets = keys.iter().any(|key| key.secret.is_some());
    let mut table = Table::new(if with_secrets { &["KEY", "SIGNS", "SECRET"] } else { &["KEY", "SIGNS"] });
    for SigningKey { id, secret, expires_at } in keys {
        let signs = expires_at.map_or("newest".into(), |end| format!("until {}", super::wire::seconds(&end)));
        table.row([id, signs].into_iter().chain(secret));
    }
    out.table(&table)
}

async fn test(id: &str, wait: Option<Span>, client: &Client, out: &mut Output) -> Result<Exit, Failure> {
    let target = Target::new(&["v1", "endpoints", id, "test"]);
    let raw: Box<RawValue> = client.post(&target, &Reason { reason: None }).await?;
    let accepted: Accepted = serde_json::from_str(raw.get()).unwrap_or_default();
    if !out.for_programs() {
        send::say(&accepted, out)?;
    }
    if let Some(limit) = wait {
        return send::wait(&accepted, &accepted.account_id, limit.duration(), client, out).await;
    }
    if out.for_programs() {
        out.json(&raw)?;
    } else if client.stopped() {
        out.hint("no server runs on this store: it is sent once one is started");
    }
    Ok(Exit::Fine)
}

async fn remove(
    id: &str,
    reason: Reason,
    yes: bool,
    client: &Client,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let target = Target::new(&["v1", "endpoints", id]);
    if !yes {
        let endpoint: Endpoint = client.get(&target).await?;
        let to = endpoint.queue.map_or(endpoint.url, |queue| format!("queue {queue}"));
        let question = format!("Remove {} ({}) for good? [y/N]", escape(id), escape(&to));
        let answer = asked(&question, "--yes", false)?;
        if !matches!(answer.as_str(), "y" | "Y" | "yes") {
            out.hint("nothing was removed");
            return Ok(Exit::No);
        }
    }
    let body = serde_json::to_vec(&reason).map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
    let body = Some(("application/json", body.into()));
    let removed: Box<RawValue> = client.call(Method::DELETE, &target, body).await?.checked()?.json()?;
    if out.for_programs() {
        out.json(&removed)?;
    } else {
        let paint = out.paint;
        out.line(format!("{}  {}", escape(id), paint.status("removed")))?;
    }
    Ok(Exit::Fine)
}

async fn change(
    id: &str,
    verb: &str,
    status: &str,
    body: Reason,
    client: &Client,
    out: &mut Output,
) -> Result<(), Failure> {
    let target = Target::new(&["v1", "endpoints", id, verb]);
    let changed: Box<RawValue> = client.post(&target, &body).await?;
    if out.for_programs() {
        return out.json(&changed);
    }
    let paint = out.paint;
    out.line(format!("{}  {}", escape(id), paint.status(status)))
}

/// All items of a list, over its pages.
pub async fn whole_list(target: Target, client: &Client) -> Result<Vec<Box<RawValue>>, Failure> {
    let target = target.with("limit", PAGE);
    let (mut items, mut cursor) = (Vec::new(), None);
    loop {
        let page: Page = client.get(&target.clone().with_some("cursor", cursor.as_deref())).await?;
        items.extend(page.data);
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => return Ok(items),
        }
    }
}
