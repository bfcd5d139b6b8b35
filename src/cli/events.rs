//! `hooklog events`: the events that came in, their types, and the exact bytes of one.

use clap::Subcommand;
use hooklog::clock::{Clock, SystemClock};
use hyper::Method;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::client::{Client, Target, To};
use super::exit::{Exit, Failure};
use super::list;
use super::output::Output;
use super::render::{Table, short};
use super::span;
use super::wire::{Page, seconds};

/// About events.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub to: To,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// The newest events of an account, or of each
    List {
        /// Of this account
        #[arg(long, value_name = "ACCOUNT")]
        account: Option<String>,
        /// Of this event type; a trailing * stands for anything
        #[arg(long = "type", value_name = "TYPE")]
        event_type: Option<String>,
        /// Only those that no endpoint had subscribed to, and that were sent to none since
        #[arg(long)]
        unmatched: bool,
        /// Not older: a span (24h) or a moment (2026-11-30T09:00:00Z)
        #[arg(long, value_name = "WHEN")]
        since: Option<String>,
        /// Older than this
        #[arg(long, value_name = "WHEN")]
        until: Option<String>,
        /// The newest so many of an account, 1 to 500
        #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=500))]
        limit: u16,
    },
    /// The types of events, and when each was seen
    Types {
        /// Of this account
        #[arg(long, value_name = "ACCOUNT")]
        account: Option<String>,
    },
    /// The exact bytes of an event, as they are sent
    Payload {
        /// Which
        id: String,
        /// Whose, if several accounts use the same event id
        #[arg(long, value_name = "ACCOUNT")]
        account: Option<String>,
    },
}

impl Args {
    /// Whether it lists.
    pub fn lists(&self) -> bool {
        !matches!(self.verb, Verb::Payload { .. })
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Event {
    id: String,
    account_id: String,
    r#type: String,
    accepted_at: String,
    size: u64,
    delivery_count: u64,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Type {
    r#type: String,
    events: u64,
    first_seen_at: String,
    last_seen_at: String,
}

#[derive(Deserialize)]
struct Types {
    data: Vec<Box<RawValue>>,
    #[serde(default)]
    complete: bool,
}

/// Does it.
pub async fn run(args: Args, client: &Client, out: &mut Output) -> Result<Exit, Failure> {
    match args.verb {
        Verb::List { account, event_type, unmatched, since, until, limit } => {
            let now = SystemClock::start().now();
            let moment = |text: Option<String>| {
                text.map(|text| span::since(&text, now)).transpose().map_err(Failure::usage)
            };
            let target = Target::new(&["v1", "events"])
                .with("limit", &limit.to_string())
                .with_some("event_type", event_type.as_deref())
                .with_some("status", unmatched.then_some("unmatched"))
                .with_some("since", moment(since)?.as_deref())
                .with_some("until", moment(until)?.as_deref());
            listed(account, &target, client, out).await
        }
        Verb::Types { account } => types(account, client, out).await,
        Verb::Payload { id, account } => {
            let target = Target::new(&["v1", "events", &id, "payload"]);
            let target = target.with_some("account_id", account.as_deref());
            let reply = client.call(Method::GET, &target, None).await?.checked()?;
            out.raw(&reply.body)?;
            out.end()?;
            Ok(Exit::Fine)
        }
    }
}

async fn each(account: Option<String>, client: &Client) -> Result<Vec<String>, Failure> {
    match account {
        Some(account) => Ok(vec![account]),
        None => list::accounts(client).await,
    }
}

async fn listed(
    account: Option<String>,
    target: &Target,
    client: &Client,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let (mut found, mut more) = (Vec::new(), false);
    for account in each(account, client).await? {
        let page: Page = client.get(&target.clone().with("account_id", &account)).await?;
        more |= page.next_cursor.is_some();
        found.extend(page.data);
    }
    if out.for_programs() {
        out.json_list(&found)?;
        return Ok(Exit::Fine);
    }
    let mut table = Table::new(&["EVENT", "TYPE", "ACCEPTED", "BYTES", "TO", "ACCOUNT"]);
    for event in &found {
        let event: Event = serde_json::from_str(event.get()).unwrap_or_default();
        let to = match event.delivery_count {
            0 => "nobody".to_owned(),
            count => count.to_string(),
        };
        let event_type = if out.csv() { event.r#type } else { short(&event.r#type, 40) };
        let size = event.size.to_string();
        table.row([event.id, event_type, seconds(&event.accepted_at), size, to, event.account_id]);
    }
    if table.is_empty() && !out.csv() {
        out.hint("there is no such event");
    } else {
        out.table(&table)?;
    }
    if more {
        out.hint("there is more: --limit, --type, --since and --until say what is shown");
    }
    Ok(Exit::Fine)
}

async fn types(account: Option<String>, client: &Client, out: &mut Output) -> Result<Exit, Failure> {
    let mut table = Table::new(&["TYPE", "EVENTS", "FIRST", "LAST", "ACCOUNT"]);
    let (mut found, mut complete) = (Vec::new(), true);
    for account in each(account, client).await? {
        let target = Target::new(&["v1", "event-types"]).with("account_id", &account);
        let types: Types = client.get(&target).await?;
        complete &= types.complete;
        for one in types.data {
            let Type { r#type, events, first_seen_at, last_seen_at } =
                serde_json::from_str(one.get()).unwrap_or_default();
            let seen = [seconds(&first_seen_at), seconds(&last_seen_at)];
            table.row([r#type, events.to_string()].into_iter().chain(seen).chain([account.clone()]));
            found.push(one);
        }
    }
    if out.for_programs() {
        out.json_list(&found)?;
        return Ok(Exit::Fine);
    }
    if table.is_empty() && !out.csv() {
        out.hint("no events came in yet");
    } else {
        out.table(&table)?;
    }
    if !complete {
        out.hint("there are more types than are told apart, which is 1,000 an account");
    }
    Ok(Exit::Fine)
}
