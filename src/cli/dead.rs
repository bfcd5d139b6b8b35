//! `hooklog dead`: what was given up, in groups, one by one, or exported whole.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::client::{Client, Target, To};
use super::exit::{Exit, Failure};
use super::list;
use super::output::{Format, Output};
use super::render::{Table, short};
use super::wire::{host, seconds};

/// Looks at what was given up.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub to: To,
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// How many, by endpoint, reason and type
    Group {
        /// Of this account
        #[arg(long, value_name = "ACCOUNT")]
        account: Option<String>,
        /// To this endpoint
        #[arg(long, value_name = "ENDPOINT")]
        endpoint: Option<String>,
        /// Of this event type; a trailing * stands for anything
        #[arg(long = "type", value_name = "TYPE")]
        event_type: Option<String>,
        /// exhausted, refused, retries_off, expired or imported
        #[arg(long, value_name = "REASON")]
        reason: Option<String>,
    },
    /// One by one, as `list --state dead`
    List(Choice),
    /// All of them with payload and last error, one JSON document a line
    Export(Choice),
}

/// Which dead ones.
#[derive(clap::Args)]
#[group(id = "dead_choice")]
struct Choice {
    /// Of this account
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<String>,
    /// To this endpoint
    #[arg(long, value_name = "ENDPOINT")]
    endpoint: Option<String>,
    /// Of this event type; a trailing * stands for anything
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// Not older: a span (24h) or a moment (2026-11-30T09:00:00Z)
    #[arg(long, value_name = "WHEN")]
    since: Option<String>,
    /// Not newer
    #[arg(long, value_name = "WHEN")]
    until: Option<String>,
    /// At most so many [default: 50 in a table, all as JSON]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
}

impl Choice {
    fn list(self, to: To) -> list::Args {
        let Choice { account, endpoint, event_type, since, until, limit } = self;
        let state = vec!["dead".into()];
        list::Args {
            to,
            state,
            account,
            endpoint,
            event_type,
            since,
            until,
            limit,
            queue: None,
            follow: false,
        }
    }
}

#[derive(Deserialize)]
struct Groups {
    data: Vec<Box<RawValue>>,
    dead: u64,
    complete: bool,
}

#[derive(Deserialize)]
struct Group {
    endpoint_url: Option<String>,
    endpoint_id: String,
    event_type: String,
    reason: String,
    count: u64,
    first_at: String,
    last_at: String,
}

/// Shows them.
pub async fn run(args: Args, client: &Client, out: &mut Output) -> Result<Exit, Failure> {
    match args.what {
        What::Group { account, endpoint, event_type, reason } => {
            let target = Target::new(&["v1", "dead"])
                .with_some("account_id", account.as_deref())
                .with_some("endpoint_id", endpoint.as_deref())
                .with_some("event_type", event_type.as_deref())
                .with_some("reason", reason.as_deref())
                .with("limit", "500");
            groups(&target, client, out).await
        }
        What::List(choice) => list::run(choice.list(args.to), client, out).await,
        What::Export(choice) => {
            out.format = Format::Jsonl;
            list::run(choice.list(args.to), client, out).await
        }
    }
}

async fn groups(target: &Target, client: &Client, out: &mut Output) -> Result<Exit, Failure> {
    let groups: Groups = client.get(target).await?;
    if out.for_programs() {
        out.json_list(&groups.data)?;
        return Ok(Exit::Fine);
    }
    let mut table = Table::new(&["COUNT", "REASON", "TYPE", "TO", "ENDPOINT", "FIRST", "LAST"]);
    for raw in &groups.data {
        let group: Group = serde_json::from_str(raw.get())
            .map_err(|error| Failure::new(Exit::Failed, format!("the answer is not understood: {error}")))?;
        table.row([
            group.count.to_string(),
            group.reason,
            short(&group.event_type, 32),
            short(&host(group.endpoint_url.as_deref().unwrap_or_default()), 40),
            group.endpoint_id,
            seconds(&group.first_at),
            seconds(&group.last_at),
        ]);
    }
    if table.is_empty() {
        out.hint("nothing is dead");
        return Ok(Exit::Fine);
    }
    out.table(&table)?;
    let more = if groups.complete { "" } else { "; there are more groups: narrow the choice" };
    out.hint(format!("{} dead{more}", groups.dead));
    Ok(Exit::Fine)
}
