//! What this process measures of itself, as OpenMetrics text.
//!
//! Counters and durations are told as they happen, by functions that take what happened and nothing else; gauges are
//! set from [`Gauges`], which whoever is scraped gathers from memory. So a scrape reads no store, waits for no writer,
//! and never subtracts two figures that were read at different moments. Never reads a clock, never knows HTTP.
//!
//! `docs/metrics.md` is written from what is registered here ([`Metrics::document`]).

mod book;
mod process;

use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::Duration;

use hooklog_projections::counts::Counts as DeliveryCounts;
use hooklog_projections::fact::{DeadReason, Entry, Fact, Failure, Response};
use hooklog_projections::hour::{CLASS_NAMES, class_of};
use hooklog_projections::lifecycle::Status;
use hooklog_projections::time::Millis;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;

pub use book::Described;
use book::{Book, Counts, Durations, Number, Numbers, Of, Seconds};
pub use process::Process;

/// The content type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// What stands for a method or a path that no route has.
pub const OTHER: &str = "other";

/// Up to a second: what a disk and a request to this server take.
const QUICK: &[f64] = &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];
/// Routes are many: few buckets.
const ROUTE: &[f64] = &[0.005, 0.025, 0.1, 1.0];
/// Up to the longest time-out of an attempt.
const ATTEMPT: &[f64] = &[0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
/// From at once to the end of the schedule.
const LONG: &[f64] = &[0.05, 0.25, 1.0, 5.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 43_200.0, 86_400.0];

const DEAD_REASONS: [&str; 5] = ["exhausted", "refused", "retries_off", "expired", "imported"];
const STATUSES: [Status; 5] =
    [Status::Pending, Status::InFlight, Status::Delivered, Status::Dead, Status::Cancelled];
const TOLD: [&str; 4] = ["told", "refused", "put_off", "down"];
const SENT: [&str; 2] = ["sent", "failed"];
const OUTBOX_STATES: [&str; 2] = ["waiting", "refused"];

/// How a message to an owner fared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It was taken.
    Told,
    /// It was refused for good.
    Refused,
    /// It was put off.
    PutOff,
    /// The way was closed.
    Down,
}

/// What is so at the moment of a scrape, all of it from memory.
#[derive(Clone, Debug, Default)]
pub struct Gauges<'a> {
    /// Deliveries by status, read as one.
    pub deliveries: DeliveryCounts,
    /// How late the oldest due attempt is through us.
    pub oldest_due: Duration,
    /// How long the oldest that its endpoint's own limits hold back has been due.
    pub oldest_held: Duration,
    /// Endpoints that something of their own holds back, by what.
    pub held: &'a [(&'static str, u64)],
    /// Attempts that could start now.
    pub due: u64,
    /// Requests out.
    pub in_flight: u64,
    /// The most there may be.
    pub in_flight_max: u64,
    /// When the scheduler was last asked, in seconds since 1970.
    pub ticked_at: f64,
    /// How long the write under way has taken.
    pub write_age: Duration,
    /// The log's newest position.
    pub head: u64,
    /// Bytes that are free below the store.
    pub free_bytes: u64,
    /// Events are taken in.
    pub ready: bool,
    /// Nothing is wrong that somebody should look at.
    pub healthy: bool,
    /// Open streams.
    pub streams: u64,
    /// The relay's outbox, if this process has one.
    pub outbox: Outbox,
    /// The process itself.
    pub process: Process,
}

/// What waits in an application's outbox, as it was last asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outbox {
    /// Rows that wait.
    pub waiting: u64,
    /// Rows that were set aside.
    pub refused: u64,
    /// How long the oldest has waited.
    pub oldest: Duration,
    /// When this was so, in seconds since 1970; 0 if there is no outbox.
    pub asked_at: f64,
}

/// All metrics of one process.
pub struct Metrics {
    book: Book,
    /// One scrape at a time: gauges are set and written as one.
    scraped: Mutex<()>,
    accepted: Counter,
    rejected: Counts<1>,
    accept_duration: Histogram,
    attempts: Counts<2>,
    attempt_duration: Durations<1>,
    delivery_latency: Durations<1>,
    scheduler_lag: Histogram,
    dead: Counts<1>,
    replays: Counts<1>,
    owner_messages: Counts<1>,
    alerts: Counts<1>,
    pings: Counts<1>,
    log_sync: Histogram,
    log_entries: Counts<1>,
    requests: Counts<3>,
    request_duration: Durations<2>,
    deliveries: Numbers<1>,
    unaccounted: Number,
    oldest_due: Seconds,
    oldest_held: Seconds,
    held: Numbers<1>,
    due: Number,
    in_flight: Number,
    in_flight_max: Number,
    ticked_at: Seconds,
    write_age: Seconds,
    head: Number,
    free_bytes: Number,
    ready: Number,
    healthy: Number,
    streams: Number,
    outbox: Numbers<1>,
    outbox_oldest: Seconds,
    outbox_asked_at: Seconds,
    process_started: Seconds,
    process_memory: Number,
    process_files: Number,
    process_files_max: Number,
}

impl Metrics {
    /// All at zero. `holders` are the words of what holds endpoints back, `reasons` those of refusals.
    pub fn new(holders: &[&'static str]) -> Metrics {
        let mut book = Book::default();
        let b = &mut book;
        let statuses = STATUSES.map(Status::as_str);
        let attempts = b.counts(
            "hooklog_attempts",
            "Attempts that ended.",
            [("outcome", Of::Words("`delivered`, `failed`")), ("class", Of::Values(&CLASS_NAMES))],
        );
        for class in CLASS_NAMES {
            let outcome = if matches!(class, "2xx" | "done") { "delivered" } else { "failed" };
            attempts.count_by([outcome, class], 0);
        }
        Metrics {
            oldest_due: b.seconds(
                "hooklog_oldest_due_attempt_age",
                "How late the oldest due attempt is through this service: since it was due and nothing of its \
                 endpoint's own (pause, gate, breaker, rate, cap, receiver) held it back. 0 when none is; less than \
                 two seconds is none. Counts from the start of the process.",
            ),
            oldest_held: b.seconds(
                "hooklog_oldest_held_attempt_age",
                "How long the oldest attempt has been due that its endpoint's own limits hold back. 0 when none is. \
                 After a start, what lies on disk only is not known.",
            ),
            held: b.numbers(
                "hooklog_held_endpoints",
                "Endpoints with something due that a limit of their own holds back.",
                ("by", holders),
            ),
            due: b.number(
                "hooklog_due_attempts",
                "Attempts that could start now but for this service's own limits, as far as they are in memory: at \
                 most 256 of each endpoint, and not many more than 100,000.",
            ),
            in_flight: b.number("hooklog_inflight_attempts", "Requests out."),
            in_flight_max: b.number("hooklog_inflight_attempts_limit", "Requests that may be out at a time."),
            deliveries: b.numbers(
                "hooklog_deliveries",
                "Deliveries of all time by status; `pending` is the backlog.",
                ("status", &statuses),
            ),
            unaccounted: b.number(
                "hooklog_deliveries_unaccounted",
                "Deliveries that were enqueued and are in no status, or in two. Anything but 0 is a fault in Hooklog.",
            ),
            ticked_at: b.seconds(
                "hooklog_scheduler_last_tick_timestamp",
                "When the scheduler was last asked what may start, as seconds since 1970. At least once a second.",
            ),
            scheduler_lag: b.duration(
                "hooklog_scheduler_lag",
                "From when an attempt was due until its request left, what its endpoint's own limits held back \
                 included.",
                LONG,
            ),
            accepted: b.count("hooklog_events_accepted", "Events that were taken in, durably."),
            rejected: b.counts(
                "hooklog_events_rejected",
                "Requests with events that were refused.",
                [("reason", Of::Words("a code of docs/problems.md"))],
            ),
            accept_duration: b.duration(
                "hooklog_accept_duration",
                "From a request with events until it is answered 2xx: its events are durable.",
                QUICK,
            ),
            attempts,
            attempt_duration: b.durations(
                "hooklog_attempt_duration",
                "How long attempts took, from when their request was about to leave.",
                ATTEMPT,
                [("class", Of::Values(&CLASS_NAMES))],
            ),
            delivery_latency: b.durations(
                "hooklog_delivery_latency",
                "From when a delivery was enqueued until it arrived, in its first run.",
                LONG,
                [("first_try", Of::Values(&["true", "false"]))],
            ),
            dead: b.counts(
                "hooklog_dead",
                "Deliveries that were given up.",
                [("reason", Of::Values(&DEAD_REASONS))],
            ),
            replays: b.counts(
                "hooklog_replays",
                "Runs that a replay began.",
                [("kind", Of::Values(&["single", "bulk"]))],
            ),
            owner_messages: b.counts(
                "hooklog_owner_messages",
                "Tries to tell an account's owner.",
                [("outcome", Of::Values(&TOLD))],
            ),
            alerts: b.counts(
                "hooklog_operator_alerts",
                "Tries to tell the operator that deliveries are late, or are no more.",
                [("outcome", Of::Values(&SENT))],
            ),
            pings: b.counts(
                "hooklog_deadman_pings",
                "Pings of the dead-man's switch; none is sent while something is wrong.",
                [("outcome", Of::Values(&SENT))],
            ),
            log_sync: b.duration(
                "hooklog_log_sync_duration",
                "From when a batch is handed to the log until it is synced.",
                QUICK,
            ),
            write_age: b.seconds(
                "hooklog_log_write_age",
                "How long the write that is under way has taken. 0 when none is.",
            ),
            log_entries: b.counts(
                "hooklog_log_entries",
                "Entries appended to the log.",
                [("type", Of::Words("a fact of docs/facts.md"))],
            ),
            head: b.number("hooklog_log_head", "The log's newest position: entries of all time."),
            free_bytes: b.bytes("hooklog_store_free", "What is free on the store's disk, looked at every 5 s."),
            ready: b.number("hooklog_ready", "1 if events are taken in, as /readyz says."),
            healthy: b.number(
                "hooklog_healthy",
                "1 if it is ready, its scheduler runs and nothing is late: what `hooklog status` says.",
            ),
            streams: b.number("hooklog_stream_subscribers", "Open streams of /v1/stream, open pages included."),
            requests: b.counts(
                "http_server_requests",
                "Requests to the API and the pages.",
                [
                    ("route", Of::Words("the route's template, or `other`")),
                    ("method", Of::Words("the route's method, or `other`")),
                    ("status", Of::Words("`2xx` to `5xx`")),
                ],
            ),
            request_duration: b.durations(
                "http_server_request_duration",
                "From a request's head until its answer's.",
                ROUTE,
                [
                    ("route", Of::Words("the route's template, or `other`")),
                    ("method", Of::Words("the route's method, or `other`")),
                ],
            ),
            outbox: b.numbers(
                "hooklog_outbox_rows",
                "Rows of the outbox that this server relays from, as of the last look.",
                ("state", &OUTBOX_STATES),
            ),
            outbox_oldest: b.seconds(
                "hooklog_outbox_oldest_row_age",
                "How long the oldest row that waits has been there. 0 when none waits.",
            ),
            outbox_asked_at: b.seconds(
                "hooklog_outbox_last_look_timestamp",
                "When the outbox was last looked at, as seconds since 1970; every 15 s. 0 if this server relays from \
                 none.",
            ),
            process_started: b.seconds("process_start_time", "When the process began, as seconds since 1970."),
            process_memory: b.bytes("process_resident_memory", "Memory of the process."),
            process_files: b.number("process_open_fds", "Files and connections that are open."),
            process_files_max: b.number("process_max_fds", "The most that may be open. 0 if there is no limit."),
            scraped: Mutex::new(()),
            book: {
                book.info("hooklog_build", "The program.", ("version", env!("CARGO_PKG_VERSION")));
                book
            },
        }
    }

    /// Entries are being appended. If that fails the process ends, and with it what was counted.
    pub fn appending(&self, entries: &[Entry]) {
        let mut types: Vec<(&'static str, u64)> = Vec::new();
        for entry in entries {
            let name = entry.fact.name();
            match types.iter_mut().find(|(known, _)| *known == name) {
                Some((_, count)) => *count += 1,
                None => types.push((name, 1)),
            }
            match &entry.fact {
                Fact::Accepted { .. } => {
                    self.accepted.inc();
                }
                Fact::Delivered { response, .. } => self.attempted("delivered", &entry.fact, response.took),
                Fact::Failed {
                    failure: Failure::Answered(Response { took, .. }) | Failure::Error { took, .. },
                    ..
                } => self.attempted("failed", &entry.fact, *took),
                Fact::Dead { reason, .. } => self.dead.count([dead_reason(reason)]),
                Fact::Replayed { bulk, .. } => {
                    self.replays.count([if bulk.is_some() { "bulk" } else { "single" }]);
                }
                _ => {}
            }
        }
        types.into_iter().for_each(|(name, count)| self.log_entries.count_by([name], count));
    }

    fn attempted(&self, outcome: &'static str, fact: &Fact, took: Millis) {
        let class = class_of(fact).unwrap_or(OTHER);
        self.attempts.count([outcome, class]);
        self.attempt_duration.took([class], Duration::from_millis(took.0));
    }

    /// A delivery arrived in its first run, so long after it was enqueued.
    pub fn arrived(&self, after: Duration, first_try: bool) {
        self.delivery_latency.took([if first_try { "true" } else { "false" }], after);
    }

    /// A request leaves, so long after it was due.
    pub fn started(&self, late: Duration) {
        self.scheduler_lag.observe(late.as_secs_f64());
    }

    /// A batch was written and synced.
    pub fn synced(&self, took: Duration) {
        self.log_sync.observe(took.as_secs_f64());
    }

    /// A request was answered. `row`: method and template of its route, if there is one.
    pub fn answered(&self, row: Option<(&'static str, &'static str)>, status: u16, took: Duration) {
        let (method, route) = row.unwrap_or((OTHER, OTHER));
        let class = match status {
            ..300 => "2xx",
            300..400 => "3xx",
            400..500 => "4xx",
            _ => "5xx",
        };
        self.requests.count([route, method, class]);
        self.request_duration.took([route, method], took);
    }

    /// A request with events was answered 2xx.
    pub fn took_in(&self, took: Duration) {
        self.accept_duration.observe(took.as_secs_f64());
    }

    /// A request with events was refused.
    pub fn refused(&self, reason: &'static str) {
        self.rejected.count([reason]);
    }

    /// An owner was told, or not.
    pub fn told(&self, told: Told) {
        self.owner_messages.count([TOLD[told as usize]]);
    }

    /// The operator was told, or could not be.
    pub fn alerted(&self, sent: bool) {
        self.alerts.count([SENT[usize::from(!sent)]]);
    }

    /// The dead-man's switch was pinged, or could not be.
    pub fn pinged(&self, sent: bool) {
        self.pings.count([SENT[usize::from(!sent)]]);
    }

    /// Everything, as OpenMetrics text.
    pub fn text(&self, now: &Gauges<'_>) -> String {
        let _alone = self.scraped.lock().expect("no holder panics");
        self.set(now);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.book.registry)
            .expect("a string takes it all");
        text
    }

    fn set(&self, now: &Gauges<'_>) {
        for status in STATUSES {
            self.deliveries.set([status.as_str()], now.deliveries.of(status));
        }
        let accounted: u64 =
            STATUSES.iter().fold(0, |sum, status| sum.wrapping_add(now.deliveries.of(*status)));
        self.unaccounted.set(now.deliveries.enqueued.abs_diff(accounted));
        self.oldest_due.set(now.oldest_due.as_secs_f64());
        self.oldest_held.set(now.oldest_held.as_secs_f64());
        now.held.iter().for_each(|(holder, count)| self.held.set([holder], *count));
        self.due.set(now.due);
        self.in_flight.set(now.in_flight);
        self.in_flight_max.set(now.in_flight_max);
        self.ticked_at.set(now.ticked_at);
        self.write_age.set(now.write_age.as_secs_f64());
        self.head.set(now.head);
        self.free_bytes.set(now.free_bytes);
        self.ready.set(now.ready.into());
        self.healthy.set(now.healthy.into());
        self.streams.set(now.streams);
        self.outbox.set(["waiting"], now.outbox.waiting);
        self.outbox.set(["refused"], now.outbox.refused);
        self.outbox_oldest.set(now.outbox.oldest.as_secs_f64());
        self.outbox_asked_at.set(now.outbox.asked_at);
        self.process_started.set(now.process.started_at);
        self.process_memory.set(now.process.memory_bytes);
        self.process_files.set(now.process.files);
        self.process_files_max.set(now.process.files_max);
    }

    /// What there is, in the order of names.
    pub fn described(&self) -> Vec<Described> {
        let mut all = self.book.described.clone();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    /// The table of `docs/metrics.md`.
    pub fn document(&self) -> String {
        let mut text = String::from("| name | type | labels | what it says |\n| --- | --- | --- | --- |\n");
        for one in self.described() {
            let labels: Vec<_> = one.labels.iter().map(|(name, of)| format!("`{name}`: {of}")).collect();
            let unit = if one.unit.is_empty() { String::new() } else { format!(", {}", one.unit) };
            let labels = if labels.is_empty() { "–".to_owned() } else { labels.join("; ") };
            let _ = writeln!(text, "| `{}` | {}{unit} | {labels} | {} |", one.name, one.kind, one.help);
        }
        text
    }
}

fn dead_reason(reason: &DeadReason) -> &'static str {
    DEAD_REASONS[match reason {
        DeadReason::Exhausted => 0,
        DeadReason::Refused => 1,
        DeadReason::RetriesOff => 2,
        DeadReason::Expired => 3,
        DeadReason::Imported => 4,
    }]
}
