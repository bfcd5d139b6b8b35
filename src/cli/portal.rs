//! `hooklog portal`: a one-time link to a customer's pages.

use clap::Subcommand;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::client::{Client, Target, To};
use super::exit::{Exit, Failure};
use super::output::Output;
use super::render::escape;
use super::wire::seconds;

/// About the portal.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub to: To,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make a link to an account's pages: good once, and for a quarter of an hour
    Link(Link),
}

/// Serializes as the API takes it.
#[derive(clap::Args, Serialize)]
struct Link {
    /// Whose pages
    #[serde(rename = "account_id")]
    account: String,
    /// What it opens: account (all of the account) or account_read (look only)
    #[arg(long, value_name = "ROLE")]
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<String>,
    /// Minutes that it may be used, 1 to 1440 [default: 15]
    #[arg(long, value_name = "MINUTES")]
    #[serde(skip_serializing_if = "Option::is_none")]
    lifetime_minutes: Option<u32>,
    /// Where the pages lead back to, https
    #[arg(long, value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    return_url: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Made {
    url: String,
    role: String,
    expires_at: String,
}

/// Does it.
pub async fn run(args: Args, client: &Client, out: &mut Output) -> Result<Exit, Failure> {
    let Verb::Link(link) = args.verb;
    let made: Box<RawValue> = client.post(&Target::new(&["v1", "portal-sessions"]), &link).await?;
    if out.for_programs() {
        out.json(&made)?;
        return Ok(Exit::Fine);
    }
    let Made { url, role, expires_at } = serde_json::from_str(made.get()).unwrap_or_default();
    out.line(escape(&url))?;
    out.hint(format!("opens once, until {}, with the rights of {role}", seconds(&expires_at)));
    Ok(Exit::Fine)
}
