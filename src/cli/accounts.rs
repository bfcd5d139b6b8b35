//! `hooklog accounts`: makes and lists accounts; rotates and shows their secrets.

use clap::Subcommand;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::client::{Client, Target, To};
use super::endpoints::whole_list;
use super::exit::{Exit, Failure};
use super::output::Output;
use super::render::{Table, escape};

/// About accounts.
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
        matches!(self.verb, Verb::List)
    }
}

#[derive(Subcommand)]
enum Verb {
    /// Make an account; its webhook secret is shown once
    Create(Create),
    /// List all accounts
    List,
    /// Cut a new webhook secret; it signs from then on, and the old one no more
    Rotate {
        /// Which
        id: String,
    },
    /// Show the webhook secret; the audit says who saw it
    Reveal {
        /// Which
        id: String,
        /// Why, for the audit
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}

/// A new account. Serializes as the API takes it.
#[derive(clap::Args, Serialize)]
struct Create {
    /// What people call it
    name: String,
    /// Who is told of dead deliveries
    #[arg(long, value_name = "EMAIL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    owner_email: Option<String>,
    /// Its retry schedule, by name
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    schedule: Option<String>,
    /// What answers mean, by name
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    response_policy: Option<String>,
    /// Whether failed deliveries are retried: on, off or default
    #[arg(long, value_name = "WHETHER")]
    #[serde(skip_serializing_if = "Option::is_none")]
    webhook_retries: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Account {
    id: String,
    name: String,
    owner_email: Option<String>,
    created_at: String,
    secret: Option<String>,
}

/// Does it.
pub async fn run(args: Args, client: &Client, out: &mut Output) -> Result<Exit, Failure> {
    match args.verb {
        Verb::Create(create) => {
            let made: Box<RawValue> = client.post(&Target::new(&["v1", "accounts"]), &create).await?;
            if out.for_programs() {
                out.json(&made)?;
                return Ok(Exit::Fine);
            }
            let account: Account = serde_json::from_str(made.get()).unwrap_or_default();
            out.line(format!("account  {}", escape(&account.id)))?;
            if let Some(secret) = account.secret {
                out.line(format!("secret   {}", escape(&secret)))?;
                out.hint("the secret is shown only now; it signs X-Ledger-Signature");
            }
        }
        Verb::Rotate { id } => {
            let target = Target::new(&["v1", "accounts", &id, "secret", "rotate"]);
            show_secret(client.post(&target, &serde_json::Map::new()).await?, out)?;
        }
        Verb::Reveal { id, reason } => {
            let target = Target::new(&["v1", "accounts", &id, "secret"]);
            show_secret(client.get(&target.with_some("reason", reason.as_deref())).await?, out)?;
        }
        Verb::List => {
            let accounts = whole_list(Target::new(&["v1", "accounts"]), client).await?;
            if out.for_programs() {
                out.json_list(&accounts)?;
                return Ok(Exit::Fine);
            }
            let mut table = Table::new(&["ACCOUNT", "NAME", "OWNER", "CREATED"]);
            for account in &accounts {
                let account: Account = serde_json::from_str(account.get()).unwrap_or_default();
                let owner = account.owner_email.unwrap_or_default();
                table.row([account.id, account.name, owner, super::wire::seconds(&account.created_at)]);
            }
            if table.is_empty() && !out.csv() {
                out.hint("no accounts yet; `hooklog accounts create NAME` makes one");
            } else {
                out.table(&table)?;
            }
        }
    }
    Ok(Exit::Fine)
}

fn show_secret(answer: Box<RawValue>, out: &mut Output) -> Result<(), Failure> {
    if out.for_programs() {
        return out.json(&answer);
    }
    let account: Account = serde_json::from_str(answer.get()).unwrap_or_default();
    out.line(format!("secret   {}", escape(&account.secret.unwrap_or_default())))
}
