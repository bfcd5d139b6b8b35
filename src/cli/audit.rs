//! `hooklog audit`: who administered what, and who saw which secret, newest first.

use serde_json::{Map, Value};

use super::client::{Client, Target, To};
use super::exit::{Exit, Failure};
use super::output::Output;
use super::render::{Table, short};
use super::wire::{Page, seconds};

/// What to show.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub to: To,
    /// Of this account
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<String>,
    /// By whom: a key's id, `operator`, `the command line`
    #[arg(long, value_name = "WHO")]
    actor: Option<String>,
    /// The newest so many, 1 to 200
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=200))]
    limit: u16,
}

/// What has a column of its own.
const COLUMNS: [&str; 4] = ["seq", "at", "actor", "fact"];
/// Characters of the last column.
const REST_CHARS: usize = 120;

/// Does it.
pub async fn run(args: Args, client: &Client, out: &mut Output) -> Result<Exit, Failure> {
    let target = Target::new(&["v1", "audit"])
        .with("limit", &args.limit.to_string())
        .with_some("account_id", args.account.as_deref())
        .with_some("actor", args.actor.as_deref());
    let page: Page = client.get(&target).await?;
    if out.for_programs() {
        out.json_list(&page.data)?;
        return Ok(Exit::Fine);
    }
    let mut table = Table::new(&["WHEN", "WHO", "WHAT", "OF"]);
    for entry in &page.data {
        let entry: Map<String, Value> = serde_json::from_str(entry.get()).unwrap_or_default();
        let text = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let rest = entry.iter().filter(|(name, value)| !COLUMNS.contains(&name.as_str()) && !value.is_null());
        let rest: Vec<_> = rest
            .map(|(name, value)| match value {
                Value::String(text) => format!("{name}={text}"),
                other => format!("{name}={other}"),
            })
            .collect();
        table.row([seconds(&text("at")), text("actor"), text("fact"), short(&rest.join(" "), REST_CHARS)]);
    }
    if table.is_empty() {
        out.hint("nothing was administered");
    } else {
        out.table(&table)?;
    }
    if page.next_cursor.is_some() {
        out.hint("there is more: --limit, --account and --actor say what is shown");
    }
    Ok(Exit::Fine)
}
