//! `hooklog send`: one event, whose data goes out byte for byte, and if wished the wait for its end.

use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use hooklog::clock::{Clock, SystemChance, SystemClock};
use hooklog_projections::ids::EventId;
use hyper::Method;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::client::{Client, Reply, Target, To};
use super::exit::{Exit, Failure};
use super::output::Output;
use super::render::escape;
use super::send_lines;
use super::span::Span;
use super::wire::{Accepted, Delivery, Explanation, NewEvent};

/// Bytes of data that are read at all; the server's limit is its own affair.
const DATA_BYTES_MAX: u64 = 64 << 20;
/// Between two questions whether all has ended: the first, and the longest.
const ASK_AFTER: Duration = Duration::from_millis(20);
const ASK_AFTER_MAX: Duration = Duration::from_secs(1);
/// Between two tries to reach a server: the first, and the longest.
const RETRY_AFTER: Duration = Duration::from_millis(100);
const RETRY_AFTER_MAX: Duration = Duration::from_secs(2);

/// Sends events.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub to: To,
    /// Whose event it is
    #[arg(long, value_name = "ACCOUNT")]
    pub account: String,
    /// Its type, such as payment.settled; with --jsonl for lines without one
    #[arg(long = "type", value_name = "TYPE", required_unless_present = "jsonl")]
    pub event_type: Option<String>,
    /// Its data: JSON, @FILE, or - for standard input. Sent byte for byte
    #[arg(long, value_name = "DATA", required_unless_present = "jsonl", conflicts_with = "jsonl")]
    pub data: Option<String>,
    /// Your own id for it: sent twice, it is taken in once
    #[arg(long, value_name = "ID", conflicts_with = "jsonl")]
    pub id: Option<String>,
    /// To this endpoint only
    #[arg(long, value_name = "ENDPOINT")]
    pub endpoint: Option<String>,
    /// Not before this moment
    #[arg(long, value_name = "MOMENT")]
    pub deliver_at: Option<String>,
    /// Another number of tries than the schedule's
    #[arg(long, value_name = "N")]
    pub max_tries: Option<u32>,
    /// The data is the whole body, of this content type, and no envelope is put around it
    #[arg(long, value_name = "TYPE", conflicts_with_all = ["jsonl", "deliver_at", "max_tries"])]
    pub content_type: Option<String>,
    /// Wait until it is delivered (exit code 0) or dead (8), at most so long (7)
    #[arg(long, value_name = "SPAN", num_args = 0..=1, default_missing_value = "15m", require_equals = true, conflicts_with = "jsonl")]
    pub wait: Option<Span>,
    /// Many events instead: a file, or - for standard input, with a line of {"type":…,"data":…,"id":…} for each
    #[arg(long, value_name = "FILE")]
    pub jsonl: Option<PathBuf>,
    /// Line n gets the id PREFIX-n, so that a second run of the same file takes in nothing twice
    #[arg(long, value_name = "PREFIX", requires = "jsonl")]
    pub id_prefix: Option<String>,
    /// Skip lines that are refused instead of stopping at the first
    #[arg(long, requires = "jsonl")]
    pub skip_bad: bool,
    /// Try again so long while the server cannot be reached [default: 60s with --jsonl, else not at all]
    #[arg(long, value_name = "SPAN")]
    pub retry_for: Option<Span>,
}

/// Sends them.
pub async fn run(args: Args, client: &Client, out: &mut Output) -> Result<Exit, Failure> {
    match &args.jsonl {
        Some(path) => send_lines::run(path, &args, client, out).await,
        None => one(&args, client, out).await,
    }
}

async fn one(args: &Args, client: &Client, out: &mut Output) -> Result<Exit, Failure> {
    let data = read_data(args.data.as_deref().unwrap_or_default())?;
    // Drawn here, so that asking again after an answer was lost takes nothing in twice.
    let id = args.id.clone().unwrap_or_else(|| drawn_id().as_str().to_owned());
    let event_type = args.event_type.as_deref().unwrap_or_default();
    let (target, content_type, body) = match &args.content_type {
        Some(content_type) => {
            let target = Target::new(&["v1", "events", "raw"])
                .with("account_id", &args.account)
                .with("type", event_type)
                .with("id", &id)
                .with_some("endpoint_id", args.endpoint.as_deref());
            (target, content_type.as_str(), data)
        }
        None => {
            let text = String::from_utf8(data)
                .map_err(|_| Failure::usage("--data is not text; give its --content-type to send bytes"))?;
            let data: &RawValue = serde_json::from_str(&text).map_err(|error| {
                Failure::usage(format!("--data is not JSON: {error}"))
                    .next("quote it for the shell: --data '{\"a\":1}'")
            })?;
            let event = NewEvent {
                account_id: &args.account,
                id: Some(&id),
                event_type,
                data,
                deliver_at: args.deliver_at.as_deref(),
                max_tries: args.max_tries,
                endpoint_id: args.endpoint.as_deref(),
                given_up: false,
            };
            let body = serde_json::to_vec(&event).map_err(|error| Failure::usage(error.to_string()))?;
            (Target::new(&["v1", "events"]), "application/json", body)
        }
    };
    let mut patience = Patience::new(args.retry_for.map(Span::duration));
    let reply = patience.call(client, &target, content_type, &body).await?.checked()?;
    let accepted: Accepted = reply.json()?;
    if !out.for_programs() {
        say(&accepted, out)?;
    }
    if let Some(limit) = args.wait {
        return wait(&accepted, &args.account, limit.duration(), client, out).await;
    }
    if out.for_programs() {
        let raw: Box<RawValue> = reply.json()?;
        out.json(&raw)?;
    } else if client.stopped() && !accepted.deliveries.is_empty() {
        out.hint("no server runs on this store: it is sent once one is started");
    }
    Ok(Exit::Fine)
}

/// Says that an event was taken in.
pub fn say(accepted: &Accepted, out: &mut Output) -> Result<(), Failure> {
    let paint = out.paint;
    let word = if accepted.duplicate { "was accepted before" } else { "accepted" };
    let deliveries = match accepted.deliveries.len() {
        0 => paint.waiting("no endpoint wants it"),
        1 => "1 delivery".into(),
        many => format!("{many} deliveries"),
    };
    out.line(format!("{}  {}, {deliveries}", escape(&accepted.id), paint.good(word)))?;
    for delivery in &accepted.deliveries {
        out.line(format!("  {}  to {}", escape(&delivery.id), escape(&delivery.endpoint_id)))?;
    }
    Ok(())
}

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    deliveries: Vec<Delivery>,
    #[serde(default)]
    explanation: Explanation,
}

/// Waits until no delivery of an event is under way.
pub async fn wait(
    accepted: &Accepted,
    account: &str,
    limit: Duration,
    client: &Client,
    out: &mut Output,
) -> Result<Exit, Failure> {
    if client.stopped() {
        return Err(Failure::usage("nothing is sent from a stopped store, so there is nothing to wait for"));
    }
    let target = Target::new(&["v1", "events", &accepted.id]).with("account_id", account);
    let (clock, mut pause) = (SystemClock::start(), ASK_AFTER);
    loop {
        let raw: Box<RawValue> = client.get(&target).await?;
        let event: Event = serde_json::from_str(raw.get())
            .map_err(|error| Failure::new(Exit::Failed, format!("the answer is not understood: {error}")))?;
        let is = |wanted: &[&str]| event.deliveries.iter().any(|d| wanted.contains(&d.status.as_str()));
        let under_way = is(&["pending", "in_flight"]);
        let left = limit.saturating_sub(Duration::from_millis(clock.monotonic().0));
        let timed_out = left.is_zero();
        if under_way && !timed_out {
            tokio::time::sleep(pause.min(left)).await;
            pause = (pause * 2).min(ASK_AFTER_MAX);
            continue;
        }
        if out.for_programs() {
            out.json(&raw)?;
        } else {
            out.line(escape(&event.explanation.sentence))?;
        }
        // Nobody wanted it: it has not arrived either.
        let nowhere = event.deliveries.is_empty();
        return Ok(match (under_way, nowhere || is(&["dead", "cancelled"])) {
            (true, _) => Exit::TimedOut,
            (false, true) => Exit::No,
            (false, false) => Exit::Fine,
        });
    }
}

/// How long a server that does not answer is asked again.
pub struct Patience {
    limit: Option<Duration>,
    left: Option<Duration>,
    pause: Duration,
}

impl Patience {
    /// So much waiting from the first failure on; none without a limit.
    pub fn new(limit: Option<Duration>) -> Patience {
        Patience { limit, left: limit, pause: RETRY_AFTER }
    }

    /// Posts until there is an answer that another try would not change. Only for what may be asked twice.
    pub async fn call(
        &mut self,
        client: &Client,
        target: &Target,
        content_type: &str,
        body: &[u8],
    ) -> Result<Reply, Failure> {
        loop {
            let body = axum::body::Bytes::copy_from_slice(body);
            let result = client.call(Method::POST, target, Some((content_type, body))).await;
            let again = match &result {
                Ok(reply) => matches!(reply.status.as_u16(), 429 | 503),
                Err(failure) => failure.exit == Exit::Unreachable,
            };
            if !again || !self.pause().await {
                self.left = self.limit;
                self.pause = RETRY_AFTER;
                return result;
            }
        }
    }

    /// Waits a little longer each time; false once patience is at its end.
    pub async fn pause(&mut self) -> bool {
        let left = self.left.unwrap_or_default();
        if left.is_zero() {
            return false;
        }
        let pause = self.pause.min(left);
        self.left = Some(left - pause);
        tokio::time::sleep(pause).await;
        self.pause = (self.pause * 2).min(RETRY_AFTER_MAX);
        true
    }
}

/// A new event id.
pub fn drawn_id() -> EventId {
    EventId::drawn(hooklog::ids::drawn(SystemClock::start().now(), &mut SystemChance))
}

fn read_data(data: &str) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    match (data, data.strip_prefix('@')) {
        ("-", _) => {
            std::io::stdin().take(DATA_BYTES_MAX).read_to_end(&mut bytes)?;
        }
        (_, Some(path)) => {
            let file = std::fs::File::open(path)
                .map_err(|error| Failure::usage(format!("cannot read {}: {error}", escape(path))))?;
            file.take(DATA_BYTES_MAX).read_to_end(&mut bytes)?;
        }
        (text, None) => bytes.extend_from_slice(text.as_bytes()),
    }
    Ok(bytes)
}
