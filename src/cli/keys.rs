//! `hooklog keys`: makes, lists, rotates and revokes the keys of the API.

use clap::Subcommand;
use hooklog::clock::{Clock, SystemClock};
use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::client::{Client, Target, To};
use super::endpoints::whole_list;
use super::exit::{Exit, Failure};
use super::output::Output;
use super::render::{Table, escape};
use super::span::{Span, moment};
use super::wire::seconds;

/// About keys.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub to: To,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Make a key; it is shown once
    Create(Create),
    /// List all keys, revoked ones too
    List,
    /// Cut a new secret; the one before is taken for a while longer
    Rotate {
        /// Which (ak_…)
        id: String,
        /// Hours that the one before is taken, 0 to 168 [default: 24]; 0 if it may have leaked
        #[arg(long, value_name = "HOURS")]
        overlap_hours: Option<u16>,
    },
    /// Take a key no more, from its next request on
    Revoke {
        /// Which (ak_…)
        id: String,
    },
}

#[derive(clap::Args)]
struct Create {
    /// What it may do: operator, support, account, account_read or ingest
    #[arg(long, value_name = "ROLE")]
    role: String,
    /// The only account it reaches
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<String>,
    /// What people call it
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,
    /// Taken for so long (90d)
    #[arg(long, value_name = "SPAN")]
    expires_in: Option<Span>,
}

/// As the API takes it.
#[derive(Serialize)]
struct Wanted {
    role: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    account_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<String>,
}

#[derive(Serialize)]
struct Rotation {
    #[serde(skip_serializing_if = "Option::is_none")]
    overlap_hours: Option<u16>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Key {
    id: String,
    role: String,
    account_id: Option<String>,
    label: String,
    status: String,
    expires_at: Option<String>,
    last_used_at: Option<String>,
    key: Option<String>,
}

/// Does it.
pub async fn run(args: Args, client: &Client, out: &mut Output) -> Result<Exit, Failure> {
    match args.verb {
        Verb::Create(Create { role, account, label, expires_in }) => {
            let expires_at = expires_in.map(|span| moment(SystemClock::start().now() + span.0));
            let wanted = Wanted { role, account_id: account, label, expires_at };
            shown(client.post(&Target::new(&["v1", "keys"]), &wanted).await?, out)?;
        }
        Verb::Rotate { id, overlap_hours } => {
            let target = Target::new(&["v1", "keys", &id, "rotate"]);
            shown(client.post(&target, &Rotation { overlap_hours }).await?, out)?;
        }
        Verb::Revoke { id } => {
            let answer = client.call(Method::DELETE, &Target::new(&["v1", "keys", &id]), None).await?;
            shown(answer.checked()?.json()?, out)?;
        }
        Verb::List => {
            let keys = whole_list(Target::new(&["v1", "keys"]), client).await?;
            if out.for_programs() {
                out.json_list(&keys)?;
                return Ok(Exit::Fine);
            }
            let heading = ["KEY", "ROLE", "ACCOUNT", "LABEL", "STATUS", "EXPIRES", "LAST USED"];
            let mut table = Table::new(&heading);
            for key in &keys {
                let Key { id, role, account_id, label, status, expires_at, last_used_at, .. } =
                    serde_json::from_str(key.get()).unwrap_or_default();
                let when = |moment: Option<String>| moment.map_or("-".into(), |moment| seconds(&moment));
                let account = account_id.unwrap_or("-".into());
                table.row([id, role, account, label, status, when(expires_at), when(last_used_at)]);
            }
            if table.is_empty() {
                out.hint("no keys yet; `hooklog keys create --role ROLE` makes one");
            } else {
                out.table(&table)?;
            }
        }
    }
    Ok(Exit::Fine)
}

fn shown(answer: Box<RawValue>, out: &mut Output) -> Result<(), Failure> {
    if out.for_programs() {
        return out.json(&answer);
    }
    let Key { id, role, status, key, .. } = serde_json::from_str(answer.get()).unwrap_or_default();
    out.line(format!("id      {}", escape(&id)))?;
    out.line(format!("role    {}, {}", escape(&role), escape(&status)))?;
    if let Some(key) = key {
        out.line(format!("key     {}", escape(&key)))?;
        out.hint("the key is shown only now; put it into a file for --key-file, or into HOOKLOG_KEY");
    }
    Ok(())
}
