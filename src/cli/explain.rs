//! `hooklog explain ID`: did we send it? The server's sentence, the attempts behind it, and what to do next.

use hooklog::clock::{Clock, SystemClock};
use serde_json::value::RawValue;

use super::client::{Client, Target, To};
use super::exit::{Exit, Failure};
use super::output::Output;
use super::render::{Table, escape, short};
use super::span::{since, spell};
use super::wire::{Attempt, Delivery, Explanation, Page, seconds};
use hooklog_projections::time::Millis;

/// Deliveries whose attempts are shown; an event may have a hundred.
const DELIVERIES_SHOWN: usize = 10;

/// Explains an id.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub to: To,
    /// An event, delivery, attempt, endpoint or account, or your own event id
    id: String,
    /// Whose, if several accounts use the same event id
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<String>,
    /// As it stood then: a span ago (24h) or a moment (2026-11-30T09:00:00Z)
    #[arg(long, value_name = "WHEN")]
    at: Option<String>,
    /// Show the body of each answer too, as far as it is kept
    #[arg(long)]
    responses: bool,
}

/// Explains it.
pub async fn run(args: Args, client: &Client, out: &mut Output) -> Result<Exit, Failure> {
    let at = args.at.as_deref().map(|text| since(text, SystemClock::start().now()));
    let at = at.transpose().map_err(Failure::usage)?;
    let target = Target::new(&["v1", "explain", &args.id]).with_some("account_id", args.account.as_deref());
    let target = target.with_some("at", at.as_deref());
    let raw: Box<RawValue> = client.get(&target).await?;
    if out.for_programs() {
        out.json(&raw)?;
        return Ok(Exit::Fine);
    }
    let explanation: Explanation = serde_json::from_str(raw.get())
        .map_err(|error| Failure::new(Exit::Failed, format!("the answer is not understood: {error}")))?;
    let paint = out.paint;
    out.line(paint.bold(&escape(&explanation.sentence)))?;
    for reason in &explanation.reasons {
        out.line(format!("  {}", escape(reason)))?;
    }
    for delivery in explanation.deliveries.iter().take(DELIVERIES_SHOWN) {
        out.line("")?;
        attempts(delivery, at.as_deref(), args.responses, client, out).await?;
    }
    let hidden = explanation.deliveries.len().saturating_sub(DELIVERIES_SHOWN);
    if hidden > 0 {
        out.hint(format!("{hidden} more deliveries; explain one of them by its id"));
    }
    let open = |delivery: &Delivery| ["pending", "in_flight"].contains(&delivery.status.as_str());
    if client.stopped() && at.is_none() && explanation.deliveries.iter().any(open) {
        out.hint("no server runs on this store: nothing of it is sent until one is started");
    }
    if !explanation.next_step.is_empty() {
        out.line("")?;
        out.line(escape(&explanation.next_step))?;
    }
    Ok(Exit::Fine)
}

async fn attempts(
    delivery: &Delivery,
    at: Option<&str>,
    responses: bool,
    client: &Client,
    out: &mut Output,
) -> Result<(), Failure> {
    let to = short(&delivery.to(), 60);
    let status = out.paint.status(&delivery.status);
    out.line(format!("{}  to {to}  {status}", escape(&delivery.id)))?;
    let target = Target::new(&["v1", "deliveries", &delivery.id, "attempts"]).with_some("at", at);
    let page: Page = client.get(&target).await?;
    let mut table =
        Table::new(&["  #", "RUN", "TRY", "STARTED", "TOOK", "MOSTLY", "STATUS", "ANSWER", "RULE"])
            .status_in(6);
    let mut bodies = Vec::new();
    for item in &page.data {
        let attempt: Attempt = serde_json::from_str(item.get())
            .map_err(|error| Failure::new(Exit::Failed, format!("the answer is not understood: {error}")))?;
        table.row(row(&attempt));
        bodies.extend(attempt.response_body.as_ref().filter(|_| responses).map(|body| {
            let more = if attempt.response_truncated { " …" } else { "" };
            format!("  {} answered {}{more}", attempt.number, escape(body))
        }));
    }
    if !table.is_empty() {
        out.table(&table)?;
    }
    bodies.into_iter().try_for_each(|body| out.line(body))
}

fn row(attempt: &Attempt) -> [String; 9] {
    let answer = match (attempt.status_code, &attempt.error) {
        (Some(code), _) => format!("HTTP {code}"),
        (None, Some(error)) => match &attempt.detail {
            Some(detail) => short(&format!("{error}: {detail}"), 60),
            None => short(error, 60),
        },
        (None, None) => String::new(),
    };
    let longest = attempt.timings.longest();
    let mostly = longest.map(|(part, ms)| format!("{part} {}", spell(Millis(ms))));
    [
        format!("  {}", attempt.number),
        attempt.run.to_string(),
        attempt.tried.to_string(),
        seconds(&attempt.started_at),
        attempt.took_ms.map_or(String::new(), |ms| spell(Millis(ms))),
        mostly.unwrap_or_default(),
        attempt.status.clone(),
        answer,
        attempt.rule.clone().unwrap_or_default(),
    ]
}
