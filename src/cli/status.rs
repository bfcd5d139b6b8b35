//! `hooklog status`: how the server fares, in ten lines at most; exit code 8 if somebody should look, 6 if nobody
//! answers.

use hooklog_projections::time::Millis;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

use super::client::{Client, Target, To};
use super::exit::{Exit, Failure};
use super::output::Output;
use super::render::escape;
use super::span::spell;

/// Asks how it fares.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub to: To,
}

/// What the server says of itself.
#[derive(Deserialize)]
struct Status {
    head: u64,
    store_id: String,
    healthy: bool,
    ailment: Option<String>,
    late_ms: u64,
    in_flight: u64,
    in_flight_max: u64,
    held: Held,
    log: Log,
    outbox: Option<Outbox>,
    events: u64,
    deliveries: Deliveries,
    conserved: bool,
}

#[derive(Deserialize)]
struct Held {
    oldest_ms: u64,
    endpoints: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Log {
    write_ms: u64,
    free_bytes: u64,
}

#[derive(Deserialize)]
struct Outbox {
    waiting: u64,
    refused: u64,
    oldest_ms: u64,
}

#[derive(Deserialize)]
struct Deliveries {
    enqueued: u64,
    pending: u64,
    in_flight: u64,
    delivered: u64,
    dead: u64,
    cancelled: u64,
}

/// Says how it fares.
pub async fn run(client: &Client, out: &mut Output) -> Result<Exit, Failure> {
    let raw: Box<RawValue> = client.get(&Target::new(&["v1", "status"])).await?;
    let status: Status = serde_json::from_str(raw.get())
        .map_err(|error| Failure::new(Exit::Failed, format!("the answer is not understood: {error}")))?;
    // A store that nobody serves is safe, and sends nothing: a monitor is to say so.
    let fine = status.healthy && status.conserved && !client.stopped();
    let exit = if fine { Exit::Fine } else { Exit::No };
    if out.for_programs() {
        out.json(&raw)?;
        return Ok(exit);
    }
    for (label, line) in status.lines(client.stopped(), out) {
        out.line(format!("{label:<16}{line}"))?;
    }
    Ok(exit)
}

impl Status {
    fn lines(&self, stopped: bool, out: &Output) -> Vec<(&'static str, String)> {
        let paint = out.paint;
        let span = |ms: u64| spell(Millis(ms));
        let server = match (stopped, &self.ailment) {
            (true, _) => paint.bad("stopped: nobody serves this store, nothing is sent"),
            (false, None) => paint.good("ready"),
            (false, Some(ailment)) => paint.bad(&format!("look at it: {}", escape(ailment))),
        };
        let late = match self.late_ms {
            0 => "nothing".to_owned(),
            late => format!("the oldest due attempt, by {}, through this server", span(late)),
        };
        let d = &self.deliveries;
        let sum = format!(
            "{} = {} pending + {} in flight + {} delivered + {} dead + {} cancelled",
            d.enqueued, d.pending, d.in_flight, d.delivered, d.dead, d.cancelled
        );
        let sum = if self.conserved { sum } else { paint.bad(&format!("{sum}: does not add up")) };
        let write = match self.log.write_ms {
            0..1_000 => String::new(),
            ms => paint.bad(&format!(" · a write has been under way for {}", span(ms))),
        };
        let gib = self.log.free_bytes as f64 / f64::from(1 << 30);
        let mut lines = vec![
            ("server", server),
            ("late", late),
            ("backlog", format!("{} pending", d.pending)),
            ("in flight", format!("{} of at most {}", self.in_flight, self.in_flight_max)),
            ("held back", self.held.line()),
            ("deliveries", sum),
            ("events", self.events.to_string()),
            ("log", format!("{} entries · {gib:.1} GiB free{write}", self.head)),
        ];
        if let Some(outbox) = &self.outbox {
            let oldest =
                if outbox.waiting == 0 { String::new() } else { format!(", {}", span(outbox.oldest_ms)) };
            lines
                .push(("outbox", format!("{} waiting{oldest} · {} refused", outbox.waiting, outbox.refused)));
        }
        lines.push(("store", escape(&self.store_id).into_owned()));
        lines
    }
}

impl Held {
    /// By whom, the word for it as the metrics have it.
    fn line(&self) -> String {
        let by: Vec<_> = self.endpoints.iter().filter(|(_, count)| **count > 0).collect();
        let count: u64 = by.iter().map(|(_, count)| **count).sum();
        if count == 0 {
            return "no endpoint by limits of its own".to_owned();
        }
        let by: Vec<_> = by.into_iter().map(|(by, count)| format!("{} {count}", escape(by))).collect();
        let oldest = match self.oldest_ms {
            0 => String::new(),
            ms => format!(", the oldest for {}", spell(Millis(ms))),
        };
        format!("{count} endpoints by limits of their own ({}){oldest}", by.join(", "))
    }
}
