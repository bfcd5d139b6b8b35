//! `hooklog import delivery-attempts` and `hooklog export delivery-attempts`: the table that a product's own retry code
//! keeps (`id, event_id, attempt, status, due_at, response_code, created_at`), moved over and written out again.
//!
//! What waits and what is dead is moved; what is over stays where it is. Never speaks to a database: rows come as lines
//! of JSON, which `psql` writes.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hooklog::api::csv;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::client::{Client, Target, To, problem};
use super::exit::{Exit, Failure};
use super::list::accounts;
use super::output::Output;
use super::render::escape;
use super::send::Patience;
use super::wire::{Attempt, BatchAnswer, Delivery, NewEvent, Page};

/// Events of a batch, and bytes of its data after which it goes out although it is not full.
const BATCH_EVENTS: usize = 100;
const BATCH_BYTES: usize = 1 << 20;
/// Bytes of a line: far above what the server takes.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// How long an unreachable server is asked again.
const RETRY_FOR: Duration = Duration::from_secs(60);

/// Moves rows in.
#[derive(clap::Args)]
pub struct Import {
    #[command(flatten)]
    pub to: To,
    #[command(subcommand)]
    what: ImportWhat,
}

#[derive(clap::Subcommand)]
enum ImportWhat {
    /// Pending and dead rows of a table `delivery_attempts`, as lines of JSON in the order of their ids
    DeliveryAttempts {
        /// The file, or - for standard input: {"event_id":…,"attempt":…,"status":…,"due_at":…,"type":…,"data":…}
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Whose they are, where the line has no account_id
        #[arg(long, value_name = "ACCOUNT")]
        account: Option<String>,
        /// The tries that the old schedule had: a pending row keeps what is left of them
        #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=101))]
        tries: u32,
    },
}

/// Writes rows out.
#[derive(clap::Args)]
pub struct Export {
    #[command(flatten)]
    pub to: To,
    #[command(subcommand)]
    what: ExportWhat,
}

#[derive(clap::Subcommand)]
enum ExportWhat {
    /// Every attempt, and the next one of what is pending, in the columns of a table `delivery_attempts`. CSV, or lines
    /// of JSON with --format jsonl
    DeliveryAttempts {
        /// Of this account only
        #[arg(long, value_name = "ACCOUNT")]
        account: Option<String>,
    },
}

/// A row of the old table, with what it is about.
#[derive(Deserialize)]
struct Line<'a> {
    event_id: Id,
    status: String,
    #[serde(default)]
    attempt: u32,
    #[serde(default)]
    due_at: Option<String>,
    #[serde(default)]
    account_id: Option<String>,
    #[serde(default)]
    endpoint_id: Option<String>,
    #[serde(rename = "type", default)]
    event_type: Option<String>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

/// An event's id may be a number in the old table.
#[derive(Deserialize)]
#[serde(untagged)]
enum Id {
    Text(String),
    Number(u64),
}

/// An event that is to be moved.
struct Item {
    line: u64,
    account: String,
    id: String,
    event_type: String,
    data: Box<RawValue>,
    endpoint: Option<String>,
    deliver_at: Option<String>,
    max_tries: Option<u32>,
    given_up: bool,
}

/// What all lines came to.
#[derive(Debug, Default, Serialize)]
struct Sum {
    pending: u64,
    dead: u64,
    moved_before: u64,
    over: u64,
    refused: u64,
}

#[derive(Serialize)]
struct Batch<'a> {
    events: Vec<NewEvent<'a>>,
}

/// Moves them.
pub async fn import(args: Import, client: &Client, out: &mut Output) -> Result<Exit, Failure> {
    let ImportWhat::DeliveryAttempts { file, account, tries } = args.what;
    let mut sum = Sum::default();
    let items = read(&file, account.as_deref(), tries, &mut sum)?;
    let mut patience = Patience::new(Some(RETRY_FOR));
    let (mut waiting, mut bytes) = (Vec::new(), 0);
    for item in items {
        bytes += item.data.get().len();
        waiting.push(item);
        if waiting.len() >= BATCH_EVENTS || bytes >= BATCH_BYTES {
            send(std::mem::take(&mut waiting), client, &mut patience, &mut sum).await?;
            bytes = 0;
        }
    }
    send(waiting, client, &mut patience, &mut sum).await?;
    if out.for_programs() {
        out.json(&sum)?;
    } else {
        let Sum { pending, dead, moved_before, over, refused } = sum;
        let line = format!(
            "{pending} pending and {dead} dead moved, {moved_before} moved before, {over} events over, {refused} refused"
        );
        out.line(if refused == 0 { out.paint.good(&line) } else { out.paint.bad(&line) })?;
    }
    Ok(if sum.refused == 0 { Exit::Fine } else { Exit::Failed })
}

/// The events whose last row is pending or dead.
fn read(file: &Path, account: Option<&str>, tries: u32, sum: &mut Sum) -> Result<Vec<Item>, Failure> {
    let input: Box<dyn Read> = match file.to_str() {
        Some("-") => Box::new(std::io::stdin()),
        _ => Box::new(
            std::fs::File::open(file)
                .map_err(|error| Failure::usage(format!("cannot read {}: {error}", file.display())))?,
        ),
    };
    let (mut input, mut number, mut text) = (BufReader::new(input), 0, Vec::new());
    let mut last: HashMap<(String, String), Option<Item>> = HashMap::new();
    loop {
        text.clear();
        let bytes = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut text)? as u64;
        if bytes == 0 {
            break;
        }
        number += 1;
        if bytes == LINE_BYTES_MAX {
            return Err(Failure::usage(format!("line {number} is longer than {LINE_BYTES_MAX} bytes")));
        }
        if text.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match item(number, &text, account, tries) {
            Ok((key, item)) => drop(last.insert(key, item)),
            Err(why) => refused(number, &why, sum),
        }
    }
    sum.over = last.values().filter(|item| item.is_none()).count() as u64;
    let mut items: Vec<Item> = last.into_values().flatten().collect();
    items.sort_unstable_by_key(|item| item.line);
    Ok(items)
}

/// An event, by its account and id, and what is to be moved of it.
type Known = ((String, String), Option<Item>);

fn item(line: u64, text: &[u8], account: Option<&str>, tries: u32) -> Result<Known, String> {
    let row: Line<'_> = serde_json::from_slice(text)
        .map_err(|error| error.to_string().replace(" at line 1 column ", " at column "))?;
    let account =
        row.account_id.as_deref().or(account).ok_or("there is no `account_id`, and no --account")?;
    let id = match row.event_id {
        Id::Text(text) => text,
        Id::Number(number) => number.to_string(),
    };
    let key = (account.to_owned(), id.clone());
    let given_up = match row.status.as_str() {
        "pending" => false,
        "dead" => true,
        "failed" | "delivered" => return Ok((key, None)),
        other => return Err(format!("`{other}` is none of pending, failed, delivered and dead")),
    };
    let item = Item {
        line,
        account: account.to_owned(),
        id,
        event_type: row.event_type.ok_or("there is no `type`: join the events' table to the rows")?,
        data: row.data.ok_or("there is no `data`: join the events' table to the rows")?.to_owned(),
        endpoint: row.endpoint_id,
        deliver_at: row.due_at.filter(|_| !given_up),
        max_tries: (!given_up && row.attempt > 0).then(|| tries.saturating_sub(row.attempt).max(1)),
        given_up,
    };
    Ok((key, Some(item)))
}

/// Sends events until each was answered for good.
async fn send(
    mut items: Vec<Item>,
    client: &Client,
    patience: &mut Patience,
    sum: &mut Sum,
) -> Result<(), Failure> {
    let target = Target::new(&["v1", "events", "batch"]);
    while !items.is_empty() {
        let events = items.iter().map(|item| NewEvent {
            account_id: &item.account,
            id: Some(&item.id),
            event_type: &item.event_type,
            data: &item.data,
            deliver_at: item.deliver_at.as_deref(),
            max_tries: item.max_tries,
            endpoint_id: item.endpoint.as_deref(),
            given_up: item.given_up,
        });
        let batch = serde_json::to_vec(&Batch { events: events.collect() })
            .map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
        let reply = patience.call(client, &target, "application/json", &batch).await?;
        if reply.status.is_client_error() && !matches!(reply.status.as_u16(), 401 | 403) {
            // The whole is refused for one of them: each alone, so that it is known which.
            if let [only] = items.as_slice() {
                refused(only.line, &problem(reply.status, &reply.body).text, sum);
                return Ok(());
            }
            let rest = items.split_off(items.len() / 2);
            Box::pin(send(items, client, patience, sum)).await?;
            items = rest;
            continue;
        }
        let answer: BatchAnswer = reply.checked()?.json()?;
        if answer.results.len() != items.len() {
            return Err(Failure::new(Exit::Failed, "the server answered another number of events"));
        }
        let mut again = Vec::new();
        for (item, result) in items.into_iter().zip(answer.results) {
            match result.status {
                200 => sum.moved_before += 1,
                202 if item.given_up => sum.dead += 1,
                202 => sum.pending += 1,
                429 | 503 => again.push(item),
                status => {
                    let status = hyper::StatusCode::from_u16(status).unwrap_or_default();
                    let body = serde_json::to_vec(&result.rest).unwrap_or_default();
                    let failure = problem(status, &body);
                    if failure.exit == Exit::NoRoom {
                        return Err(failure.while_(&format!("line {}", item.line)));
                    }
                    refused(item.line, &failure.text, sum);
                }
            }
        }
        items = again;
        if !items.is_empty() && !patience.pause().await {
            return Err(Failure::new(Exit::Unreachable, "the server takes no events in")
                .next("run it again: what was moved is not moved twice"));
        }
    }
    Ok(())
}

fn refused(line: u64, why: &str, sum: &mut Sum) {
    sum.refused += 1;
    eprintln!("line {line}: {}", escape(why));
}

/// A row as it is written.
#[derive(Serialize)]
struct Row<'a> {
    id: String,
    event_id: &'a str,
    attempt: u32,
    status: &'static str,
    due_at: Option<&'a str>,
    response_code: Option<u16>,
    created_at: &'a str,
}

/// The columns of the table, in its order.
const COLUMNS: [&str; 7] = ["id", "event_id", "attempt", "status", "due_at", "response_code", "created_at"];

/// Writes them.
pub async fn export(args: Export, client: &Client, out: &mut Output) -> Result<Exit, Failure> {
    let ExportWhat::DeliveryAttempts { account } = args.what;
    if !out.for_programs() {
        out.raw(format!("{}\n", csv::line(COLUMNS)).as_bytes())?;
    }
    let accounts = match account {
        Some(account) => vec![account],
        None => accounts(client).await?,
    };
    for account in accounts {
        let target = Target::new(&["v1", "deliveries"]).with("account_id", &account).with("limit", "200");
        let mut cursor = None;
        loop {
            let page: Page = client.get(&target.clone().with_some("cursor", cursor.as_deref())).await?;
            for raw in &page.data {
                write(raw, client, out).await?;
            }
            match page.next_cursor {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
    }
    out.end().map(|()| Exit::Fine)
}

async fn write(raw: &RawValue, client: &Client, out: &mut Output) -> Result<(), Failure> {
    let not_understood = |error: serde_json::Error| {
        Failure::new(Exit::Failed, format!("the answer is not understood: {error}"))
    };
    let delivery: Delivery = serde_json::from_str(raw.get()).map_err(not_understood)?;
    let attempts = match delivery.attempts {
        0 => Vec::new(),
        _ => {
            let page: Page =
                client.get(&Target::new(&["v1", "deliveries", &delivery.id, "attempts"])).await?;
            page.data
        }
    };
    let attempts: Vec<Attempt> = attempts
        .iter()
        .map(|raw| serde_json::from_str(raw.get()).map_err(not_understood))
        .collect::<Result<_, _>>()?;
    for row in rows(&delivery, &attempts) {
        if out.for_programs() {
            let mut line = serde_json::to_vec(&row).map_err(not_understood)?;
            line.push(b'\n');
            out.raw(&line)?;
            continue;
        }
        let code = row.response_code.map(|code| code.to_string()).unwrap_or_default();
        let (attempt, due_at) = (row.attempt.to_string(), row.due_at.unwrap_or_default());
        let cells = [&row.id, row.event_id, &attempt, row.status, due_at, &code, row.created_at];
        out.raw(format!("{}\n", csv::line(cells)).as_bytes())?;
    }
    Ok(())
}

/// A row for each attempt, and one for what comes next, or for an end without an attempt.
fn rows<'a>(delivery: &'a Delivery, attempts: &'a [Attempt]) -> Vec<Row<'a>> {
    let mut attempts: Vec<&Attempt> = attempts.iter().collect();
    attempts.sort_unstable_by_key(|attempt| attempt.number);
    let dead = delivery.status == "dead";
    let ends = attempts.last().map_or(0, |attempt| attempt.number);
    let mut rows: Vec<Row<'_>> = attempts
        .iter()
        .map(|attempt| Row {
            id: format!("{}-{}", delivery.id, attempt.number),
            event_id: &delivery.event_id,
            attempt: attempt.tried,
            status: match attempt.status.as_str() {
                "delivered" => "delivered",
                "in_flight" => "pending",
                _ if dead && attempt.number == ends => "dead",
                _ => "failed",
            },
            due_at: Some(&attempt.started_at),
            response_code: attempt.status_code,
            created_at: &attempt.started_at,
        })
        .collect();
    let next = |attempt, status, due_at| Row {
        id: format!("{}-{}", delivery.id, ends + 1),
        event_id: &delivery.event_id,
        attempt,
        status,
        due_at,
        response_code: None,
        created_at: attempts.last().map_or(&delivery.created_at, |attempt| &attempt.started_at),
    };
    match delivery.status.as_str() {
        "pending" => rows.push(next(delivery.tried + 1, "pending", delivery.due_at.as_deref())),
        "dead" if attempts.is_empty() => rows.push(next(0, "dead", None)),
        _ => {}
    }
    rows
}
