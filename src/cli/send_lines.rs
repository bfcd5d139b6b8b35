//! `hooklog send --jsonl`: many events, a line of JSON each, in batches that are asked again until they are
//! answered. The bytes of `data` go out as they stand in the line.

use std::borrow::Cow;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::client::{Client, Target, problem};
use super::exit::{Exit, Failure};
use super::output::Output;
use super::progress::Progress;
use super::render::escape;
use super::send::{Args, Patience, drawn_id};
use super::span::Span;
use super::wire::{BatchAnswer, NewEvent};

/// Events of a batch.
const BATCH_EVENTS: usize = 100;
/// Bytes of a batch's data, after which it goes out although it is not full.
const BATCH_BYTES: usize = 1 << 20;
/// Bytes of a line: far above what the server takes.
const LINE_BYTES_MAX: u64 = 16 << 20;
/// How long an unreachable server is asked again, unless told.
const RETRY_FOR: Duration = Duration::from_secs(60);

/// A line.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(rename = "type", borrow, default)]
    event_type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    data: &'a RawValue,
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
}

/// An event that waits for its batch.
struct Item {
    line: u64,
    id: String,
    event_type: String,
    data: Box<RawValue>,
}

#[derive(Serialize)]
struct Batch<'a> {
    events: Vec<NewEvent<'a>>,
}

/// What all lines came to.
#[derive(Debug, Default, Serialize)]
struct Sum {
    accepted: u64,
    duplicates: u64,
    refused: u64,
    deliveries: u64,
}

/// Sends every line.
pub async fn run(path: &Path, args: &Args, client: &Client, out: &mut Output) -> Result<Exit, Failure> {
    let (input, size): (Box<dyn Read>, u64) = match path.to_str() {
        Some("-") => (Box::new(std::io::stdin()), 0),
        _ => {
            let opened = std::fs::File::open(path);
            let file =
                opened.map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))?;
            let size = file.metadata().map_or(0, |metadata| metadata.len());
            (Box::new(file), size)
        }
    };
    let mut sending = Sending {
        args,
        client,
        patience: Patience::new(Some(args.retry_for.map_or(RETRY_FOR, Span::duration))),
        sum: Sum::default(),
        waiting: Vec::new(),
        waiting_bytes: 0,
    };
    let result = all(BufReader::new(input), size, &mut sending).await;
    let sum = &sending.sum;
    if out.for_programs() {
        out.json(sum)?;
    } else {
        let line = format!(
            "{} accepted, {} accepted before, {} refused, {} deliveries",
            sum.accepted, sum.duplicates, sum.refused, sum.deliveries
        );
        out.line(if sum.refused == 0 { out.paint.good(&line) } else { out.paint.bad(&line) })?;
    }
    result?;
    Ok(if sum.refused == 0 { Exit::Fine } else { Exit::Failed })
}

async fn all(
    mut input: BufReader<Box<dyn Read>>,
    size: u64,
    sending: &mut Sending<'_>,
) -> Result<(), Failure> {
    let mut progress = Progress::new("sending");
    let (mut number, mut read, mut text) = (0, 0, Vec::new());
    loop {
        text.clear();
        let bytes = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut text)? as u64;
        if bytes == 0 {
            return sending.flush().await;
        }
        (number, read) = (number + 1, read + bytes);
        if bytes == LINE_BYTES_MAX {
            sending.flush().await?;
            return Err(Failure::usage(format!("line {number} is longer than {LINE_BYTES_MAX} bytes")));
        }
        if text.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match item(number, &text, sending.args) {
            Ok(item) => sending.add(item).await?,
            Err(why) => {
                // What stands before a bad line is sent, whatever becomes of the rest.
                sending.flush().await?;
                sending.refused(number, &why)?;
            }
        }
        if size > 0 {
            progress.show(read, size);
        }
    }
}

fn item(line: u64, text: &[u8], args: &Args) -> Result<Item, String> {
    let parsed: Line<'_> = serde_json::from_slice(text).map_err(|error| {
        // The line number within a line is always 1.
        error.to_string().replace(" at line 1 column ", " at column ")
    })?;
    let event_type = parsed.event_type.as_deref().or(args.event_type.as_deref());
    let id = match (parsed.id, &args.id_prefix) {
        (Some(id), _) => id.into_owned(),
        (None, Some(prefix)) => format!("{prefix}-{line}"),
        (None, None) => drawn_id().as_str().to_owned(),
    };
    Ok(Item {
        line,
        id,
        event_type: event_type.ok_or("there is no `type`, and no --type")?.to_owned(),
        data: parsed.data.to_owned(),
    })
}

struct Sending<'a> {
    args: &'a Args,
    client: &'a Client,
    patience: Patience,
    sum: Sum,
    waiting: Vec<Item>,
    waiting_bytes: usize,
}

impl Sending<'_> {
    async fn add(&mut self, item: Item) -> Result<(), Failure> {
        let bytes = item.data.get().len();
        if self.waiting_bytes + bytes > BATCH_BYTES {
            // A huge one goes alone, so that its refusal harms no other.
            self.flush().await?;
        }
        self.waiting_bytes += bytes;
        self.waiting.push(item);
        if self.waiting.len() >= BATCH_EVENTS || self.waiting_bytes >= BATCH_BYTES {
            self.flush().await?;
        }
        Ok(())
    }

    /// Sends what waits until each event was answered for good.
    async fn flush(&mut self) -> Result<(), Failure> {
        self.waiting_bytes = 0;
        let mut items = std::mem::take(&mut self.waiting);
        let target = Target::new(&["v1", "events", "batch"]);
        while !items.is_empty() {
            let events = items.iter().map(|item| NewEvent {
                account_id: &self.args.account,
                id: Some(&item.id),
                event_type: &item.event_type,
                data: &item.data,
                deliver_at: self.args.deliver_at.as_deref(),
                max_tries: self.args.max_tries,
                endpoint_id: self.args.endpoint.as_deref(),
                given_up: false,
            });
            let batch = serde_json::to_vec(&Batch { events: events.collect() })
                .map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
            let reply = self.patience.call(self.client, &target, "application/json", &batch).await?;
            if let ([only], true) = (items.as_slice(), reply.status.is_client_error()) {
                let failure = problem(reply.status, &reply.body);
                return self.refused(only.line, &failure.text);
            }
            let answer: BatchAnswer = reply.checked().map_err(|failure| at(&items, failure))?.json()?;
            if answer.results.len() != items.len() {
                return Err(Failure::new(Exit::Failed, "the server answered another number of events"));
            }
            items = self.answered(items, answer)?;
            if !items.is_empty() && !self.patience.pause().await {
                let failure = Failure::new(Exit::Unreachable, "the server takes no events in");
                return Err(at(&items, failure));
            }
        }
        Ok(())
    }

    /// Counts what was answered for good; answers the rest.
    fn answered(&mut self, items: Vec<Item>, answer: BatchAnswer) -> Result<Vec<Item>, Failure> {
        let mut again = Vec::new();
        for (item, result) in items.into_iter().zip(answer.results) {
            let list = |name: &str| result.rest.get(name).and_then(|value| value.as_array());
            match result.status {
                200 | 202 => {
                    let before = result.status == 200;
                    *(if before { &mut self.sum.duplicates } else { &mut self.sum.accepted }) += 1;
                    self.sum.deliveries += list("deliveries").map_or(0, Vec::len) as u64;
                }
                429 | 503 => again.push(item),
                status => {
                    let status = hyper::StatusCode::from_u16(status).unwrap_or_default();
                    let body = serde_json::to_vec(&result.rest).unwrap_or_default();
                    let failure = problem(status, &body);
                    if failure.exit == Exit::NoRoom {
                        return Err(at(std::slice::from_ref(&item), failure));
                    }
                    self.refused(item.line, &failure.text)?;
                }
            }
        }
        Ok(again)
    }

    fn refused(&mut self, line: u64, why: &str) -> Result<(), Failure> {
        self.sum.refused += 1;
        let text = format!("line {line}: {}", escape(why));
        if self.args.skip_bad {
            eprintln!("{text}");
            return Ok(());
        }
        Err(Failure::new(Exit::Failed, text).next("mend the line, or go past such lines with --skip-bad"))
    }
}

fn at(items: &[Item], failure: Failure) -> Failure {
    match (items.first(), items.last()) {
        (Some(first), Some(last)) if first.line != last.line => {
            failure.while_(&format!("lines {} to {}", first.line, last.line))
        }
        (Some(only), _) => failure.while_(&format!("line {}", only.line)),
        _ => failure,
    }
}
