//! `hooklog list`: deliveries by status, account, endpoint, type and time; with `--json` each with its payload
//! and last error.

use std::collections::HashMap;

use hooklog::api::csv;
use hooklog::clock::{Clock, SystemClock};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::client::{Client, Target, To};
use super::endpoints::whole_list;
use super::exit::{Exit, Failure};
use super::follow::Follower;
use super::output::{Format, Output};
use super::render::{Table, short};
use super::span;
use super::wire::{Delivery, Identified, Page, seconds};

/// Deliveries a table shows, unless told.
const TABLE_ROWS: usize = 50;
/// Deliveries asked for at a time; with payloads fewer, to bound one answer.
const PAGE: usize = 200;
const PAGE_WITH_PAYLOADS: usize = 50;
/// Characters of an event's id in a table.
const ID_CHARS: usize = 36;

/// Lists deliveries.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub to: To,
    /// pending, in_flight, delivered, dead or cancelled; may be given several times
    #[arg(long, alias = "status", value_name = "STATUS", value_delimiter = ',')]
    pub(super) state: Vec<String>,
    /// Of this account
    #[arg(long, value_name = "ACCOUNT")]
    pub(super) account: Option<String>,
    /// To this endpoint
    #[arg(long, value_name = "ENDPOINT")]
    pub(super) endpoint: Option<String>,
    /// Of this worker queue
    #[arg(long, value_name = "NAME", conflicts_with_all = ["account", "endpoint"])]
    pub(super) queue: Option<String>,
    /// Of this event type; a trailing * stands for anything
    #[arg(long = "type", value_name = "TYPE")]
    pub(super) event_type: Option<String>,
    /// Not older: a span (24h) or a moment (2026-11-30T09:00:00Z)
    #[arg(long, value_name = "WHEN")]
    pub(super) since: Option<String>,
    /// Not newer
    #[arg(long, value_name = "WHEN")]
    pub(super) until: Option<String>,
    /// At most so many [default: 50 in a table, all as JSON]
    #[arg(long, value_name = "N")]
    pub(super) limit: Option<usize>,
    /// Then go on: show each delivery again when something happens to it. Lines of JSON, or rows
    #[arg(long, short)]
    pub(super) follow: bool,
}

impl Args {
    /// Whether it ends.
    pub fn is_finite(&self) -> bool {
        !self.follow
    }
}

/// Lists them.
pub async fn run(mut args: Args, client: &Client, out: &mut Output) -> Result<Exit, Failure> {
    if let Some(queue) = &args.queue {
        // A queue is an endpoint of one account: a list that is followed is of nothing else.
        let queue: Queue = client.get(&Target::new(&["v1", "queues", queue])).await?;
        (args.account, args.endpoint) = (Some(queue.account_id), Some(queue.id));
    }
    let limit = args.limit.unwrap_or(if whole(out) { usize::MAX } else { TABLE_ROWS });
    let filter = filter(&args, whole(out))?;
    // Before the list is read: what happens meanwhile is heard of then.
    let place =
        if args.follow { Some(Follower::new(stream(&args)?, client).starting_now().await?) } else { None };
    let accounts = match (&args.account, &args.endpoint) {
        (Some(account), _) => vec![account.clone()],
        (None, Some(endpoint)) => vec![owner(endpoint, client).await?],
        (None, None) => accounts(client).await?,
    };
    let accounts = accounts.into_iter().rev().collect();
    let mut pages = Pages { client, filter, accounts, cursor: None, left: limit, page_max: PAGE };
    if let Some(follower) = place {
        return follow(pages, follower, out).await;
    }
    if out.for_programs() {
        pages.page_max = PAGE_WITH_PAYLOADS;
        return programs(pages, out).await;
    }
    if out.csv() {
        pages.page_max = PAGE_WITH_PAYLOADS;
        return spreadsheet(pages, out).await;
    }
    let mut table =
        Table::new(&["DELIVERY", "EVENT", "TYPE", "TO", "STATUS", "TRY", "LAST", "NEXT", "ENQUEUED"])
            .status_in(4);
    while let Some(page) = pages.next().await? {
        for item in &page {
            let delivery: Delivery = serde_json::from_str(item.get()).map_err(|error| {
                Failure::new(Exit::Failed, format!("the answer is not understood: {error}"))
            })?;
            table.row(row(&delivery));
        }
    }
    if table.is_empty() {
        out.hint("no deliveries match");
        return Ok(Exit::Fine);
    }
    out.table(&table)?;
    if !pages.accounts.is_empty() {
        out.hint(format!("only {limit} are shown; --limit shows more"));
    }
    Ok(Exit::Fine)
}

/// Whether everything is asked for, not what fits a terminal.
fn whole(out: &Output) -> bool {
    out.for_programs() || out.csv()
}

/// Lines of CSV, written as the pages come.
async fn spreadsheet(mut pages: Pages<'_>, out: &mut Output) -> Result<Exit, Failure> {
    out.line(csv::line(csv::DELIVERIES.iter().map(|(name, _)| *name)))?;
    while let Some(page) = pages.next().await? {
        for item in page {
            let item: serde_json::Value = understood(item.get())?;
            out.raw(csv::row(&item, csv::DELIVERIES).as_bytes())?;
            out.raw(b"\n")?;
        }
        out.end()?;
    }
    Ok(Exit::Fine)
}

/// One JSON array, written as the pages come: it may be longer than memory.
async fn programs(mut pages: Pages<'_>, out: &mut Output) -> Result<Exit, Failure> {
    let array = out.format == Format::Json;
    let mut first = true;
    while let Some(page) = pages.next().await? {
        for item in page {
            let before = match (array, first) {
                (true, true) => "[\n",
                (true, false) => ",\n",
                (false, true) => "",
                (false, false) => "\n",
            };
            out.raw(before.as_bytes())?;
            out.raw(item.get().as_bytes())?;
            first = false;
        }
    }
    match (array, first) {
        (true, true) => out.line("[]")?,
        (true, false) => out.line("\n]")?,
        (false, true) => {}
        (false, false) => out.line("")?,
    }
    Ok(Exit::Fine)
}

/// What is there, then each delivery as it is after something happened to it.
async fn follow(mut pages: Pages<'_>, mut follower: Follower<'_>, out: &mut Output) -> Result<Exit, Failure> {
    let client = pages.client;
    let mut shown = HashMap::new();
    while let Some(page) = pages.next().await? {
        for item in page {
            let delivery: Delivery = understood(item.get())?;
            one(&delivery, item.get(), out)?;
            shown.insert(delivery.id, item.get().to_owned());
        }
    }
    follower
        .each(async |event| {
            let Some(id) = &event.delivery_id else { return Ok(true) };
            let target = Target::new(&["v1", "deliveries", id]);
            let now: Box<RawValue> = match client.get(&target).await {
                Err(failure) if failure.exit == Exit::NotFound => return Ok(true),
                found => found?,
            };
            // What happened between the start and the list was listed.
            if shown.remove(id).is_none_or(|then| then != now.get()) {
                one(&understood(now.get())?, now.get(), out)?;
            }
            Ok(true)
        })
        .await?;
    Ok(Exit::Fine)
}

fn one(delivery: &Delivery, raw: &str, out: &mut Output) -> Result<(), Failure> {
    if out.for_programs() {
        return out.line(raw);
    }
    let [id, event, event_type, to, status, tried, last, next, _] = row(delivery);
    let status = out.paint.status(&format!("{status:<9}"));
    out.line(format!(
        "{id}  {event:<30}  {event_type:<20}  {to:<24}  {status}  {tried:<4}  {last:<8}  {next}"
    ))
}

fn understood<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Failure> {
    let wrong = |error| Failure::new(Exit::Failed, format!("the answer is not understood: {error}"));
    serde_json::from_str(text).map_err(wrong)
}

/// The stream of what matches.
fn stream(args: &Args) -> Result<Target, Failure> {
    if args.until.is_some() {
        return Err(Failure::usage("--follow has no end: leave --until away"));
    }
    let mut target = Target::new(&["v1", "stream"])
        .with_some("account_id", args.account.as_deref())
        .with_some("endpoint_id", args.endpoint.as_deref())
        .with_some("event_type", args.event_type.as_deref());
    for state in &args.state {
        target = target.with("status", &state.replace('-', "_"));
    }
    Ok(target)
}

fn filter(args: &Args, whole: bool) -> Result<Target, Failure> {
    let now = SystemClock::start().now();
    let moment = |text: &Option<String>| {
        text.as_deref().map(|text| span::since(text, now)).transpose().map_err(Failure::usage)
    };
    let mut target = Target::new(&["v1", "deliveries"])
        .with_some("endpoint_id", args.endpoint.as_deref())
        .with_some("event_type", args.event_type.as_deref())
        .with_some("since", moment(&args.since)?.as_deref())
        .with_some("until", moment(&args.until)?.as_deref());
    for state in &args.state {
        // `in-flight` is what people type.
        target = target.with("status", &state.replace('-', "_"));
    }
    Ok(if whole { target.with("include", "payload,last_error") } else { target })
}

fn row(delivery: &Delivery) -> [String; 9] {
    [
        delivery.id.clone(),
        short(&delivery.event_id, ID_CHARS),
        short(&delivery.event_type, 32),
        short(&delivery.to(), 40),
        delivery.status.clone(),
        format!("{}/{}", delivery.tried, delivery.tries),
        short(&delivery.last(), 20),
        short(&delivery.next(), 32),
        seconds(&delivery.created_at),
    ]
}

/// All accounts: the API lists the deliveries of one at a time.
pub async fn accounts(client: &Client) -> Result<Vec<String>, Failure> {
    let accounts = whole_list(Target::new(&["v1", "accounts"]), client).await?;
    Ok(accounts.iter().filter_map(|account| identified(account)).collect())
}

fn identified(item: &RawValue) -> Option<String> {
    serde_json::from_str::<Identified>(item.get()).ok().map(|item| item.id)
}

/// Whose an endpoint is.
pub async fn owner(endpoint: &str, client: &Client) -> Result<String, Failure> {
    let owned: Owned = client.get(&Target::new(&["v1", "endpoints", endpoint])).await?;
    Ok(owned.account_id)
}

#[derive(Deserialize)]
struct Queue {
    id: String,
    account_id: String,
}

#[derive(Deserialize)]
struct Owned {
    account_id: String,
}

/// A list, account by account and page by page, newest first in each.
struct Pages<'a> {
    client: &'a Client,
    filter: Target,
    /// Those that are not done, the next one last.
    accounts: Vec<String>,
    cursor: Option<String>,
    left: usize,
    page_max: usize,
}

impl Pages<'_> {
    /// The next page; a page may be empty although more follow, where a filter finds little.
    async fn next(&mut self) -> Result<Option<Vec<Box<RawValue>>>, Failure> {
        let Some(account) = self.accounts.last().filter(|_| self.left > 0) else { return Ok(None) };
        let limit = self.left.min(self.page_max);
        let target = self.filter.clone().with("account_id", account).with("limit", &limit.to_string());
        let target = target.with_some("cursor", self.cursor.as_deref());
        let page: Page = self.client.get(&target).await?;
        self.left = self.left.saturating_sub(page.data.len());
        self.cursor = page.next_cursor;
        if self.cursor.is_none() {
            self.accounts.pop();
        }
        Ok(Some(page.data))
    }
}
