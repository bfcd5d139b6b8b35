//! `hooklog cancel` and `hooklog retry-now`: what can be done with a delivery that waits.

use serde::Serialize;

use super::client::{Client, Target, To};
use super::exit::{Exit, Failure};
use super::output::Output;
use super::render::escape;
use super::replay::ids;

/// Calls off.
#[derive(clap::Args)]
pub struct Cancel {
    #[command(flatten)]
    pub to: To,
    /// Deliveries; - reads ids from standard input
    #[arg(required = true, value_name = "DELIVERY")]
    ids: Vec<String>,
    /// Why, for those who read the history
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Hurries.
#[derive(clap::Args)]
pub struct RetryNow {
    #[command(flatten)]
    pub to: To,
    /// Deliveries; - reads ids from standard input
    #[arg(required = true, value_name = "DELIVERY")]
    ids: Vec<String>,
}

#[derive(Serialize)]
struct Body<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

#[derive(Serialize)]
struct Line {
    id: String,
    done: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Calls them off.
pub async fn cancel(args: Cancel, client: &Client, out: &mut Output) -> Result<Exit, Failure> {
    each(&args.ids, "cancel", "cancelled", args.reason.as_deref(), client, out).await
}

/// Tries them at once.
pub async fn retry_now(args: RetryNow, client: &Client, out: &mut Output) -> Result<Exit, Failure> {
    each(&args.ids, "retry-now", "due now", None, client, out).await
}

async fn each(
    given: &[String],
    verb: &str,
    done: &str,
    reason: Option<&str>,
    client: &Client,
    out: &mut Output,
) -> Result<Exit, Failure> {
    let mut exit = Exit::Fine;
    let mut lines = Vec::new();
    for id in ids(given)? {
        let target = Target::new(&["v1", "deliveries", &id, verb]);
        let result = client.post::<serde::de::IgnoredAny>(&target, &Body { reason }).await;
        let error = match result {
            Ok(_) => None,
            Err(failure) if failure.exit == Exit::Unreachable => return Err(failure),
            Err(failure) => {
                exit = if exit == Exit::Fine { failure.exit } else { exit };
                Some(failure.text)
            }
        };
        if !out.for_programs() {
            let said = match &error {
                Some(error) => format!("{} {error}", out.paint.bad("refused:")),
                None => out.paint.good(done),
            };
            out.line(format!("{}  {said}", escape(&id)))?;
        }
        lines.push(Line { id, done: error.is_none(), error });
    }
    if out.for_programs() {
        out.json_list(&lines)?;
    }
    Ok(exit)
}
