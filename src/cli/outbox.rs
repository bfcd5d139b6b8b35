//! `hooklog outbox`: the table in the application's database made, looked at and mended; and the relay that hands
//! its rows over, as a process of its own or within `hooklog serve`.
//!
//! Never takes the database's URL from the command line, where everybody on the machine could read its password.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use futures::FutureExt;
use futures::future::BoxFuture;
use hooklog::api::{ApiState, router};
use hooklog::clock::{Clock, SystemClock};
use hooklog::metrics;
use hooklog::outbox::{self, Address, Intake, Relay, Table, rows, schema};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tower::ServiceExt;
use uuid::Uuid;

use super::client::{Client, Target, To};
use super::exit::{Exit, Failure};
use super::output::Output;
use super::render::{Table as Columns, escape};
use super::serve::{Stops, log_to_stderr};
use super::wire::seconds;
use crate::config::{self, Layer, Outbox};

/// Rows that wait longer than this are late: the brief's limit for the oldest due attempt.
const LATE_MS: i64 = 5 * 60_000;
/// Between two looks at what waits in a server's outbox.
const LOOK: Duration = Duration::from_secs(15);
/// Bytes of an answer of this process's own API.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Works on an outbox.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    to: To,
    #[command(flatten)]
    which: Which,
    #[command(subcommand)]
    what: What,
}

/// Which outbox.
#[derive(clap::Args)]
struct Which {
    /// A file with the database's URL (postgres://…). The URL may be in HOOKLOG_OUTBOX_URL
    #[arg(
        long,
        env = "HOOKLOG_OUTBOX_URL_FILE",
        hide_env_values = true,
        value_name = "FILE",
        global = true,
        help_heading = "Outbox"
    )]
    outbox_url_file: Option<PathBuf>,
    /// The table, with its schema if it has one [default: hooklog_outbox]
    #[arg(
        long,
        env = "HOOKLOG_OUTBOX_TABLE",
        hide_env_values = true,
        value_name = "TABLE",
        global = true,
        help_heading = "Outbox"
    )]
    outbox_table: Option<String>,
}

#[derive(clap::Subcommand)]
enum What {
    /// Make the table, unless it is there
    Init {
        /// Print the SQL instead
        #[arg(long)]
        print: bool,
    },
    /// Hand rows over to a server, until told to stop
    Run,
    /// What waits, for how long, and what was refused; exit code 8 if something is late or refused
    Status,
    /// Give refused rows back to be handed over
    Retry {
        /// Which rows
        #[arg(value_name = "ID", required_unless_present = "all")]
        ids: Vec<Uuid>,
        /// All of them
        #[arg(long, conflicts_with = "ids")]
        all: bool,
    },
}

impl Which {
    fn table(&self, file: &Layer) -> Result<Table, Failure> {
        config::outbox_table(self.outbox_table.as_deref().or(file.outbox_table.as_deref()))
    }

    fn outbox(&self, file: &Layer) -> Result<Outbox, Failure> {
        let path = self.outbox_url_file.as_deref().or(file.outbox_url_file.as_deref());
        let outbox = config::outbox(path, self.outbox_table.as_deref().or(file.outbox_table.as_deref()))?;
        outbox.ok_or_else(|| {
            Failure::usage("which database? Its URL is wanted in HOOKLOG_OUTBOX_URL or a file")
                .next("name the file with --outbox-url-file")
        })
    }
}

/// Does what is wished.
pub async fn run(args: Args, out: &mut Output) -> Result<Exit, Failure> {
    let file = args.to.config.as_deref().map_or(Ok(Layer::default()), Layer::from_file)?;
    if let What::Init { print: true } = args.what {
        let table = args.which.table(&file)?;
        out.raw(table.sql().as_bytes())?;
        let grants = table.grants("the_relay", "the_application");
        out.raw(format!("-- Then, with the names of your own users:\n{}", commented(&grants)).as_bytes())?;
        return out.end().map(|()| Exit::Fine);
    }
    let Outbox { address, table } = args.which.outbox(&file)?;
    match args.what {
        What::Init { .. } => {
            let made = schema::init(&address.connect().await?, &table).await?;
            let word = if made == schema::Made::Now { "made" } else { "there already" };
            out.line(format!("{table} is {word}, version {}", schema::VERSION))?;
            if made == schema::Made::Now {
                out.hint(format!(
                    "users other than this one need rights:\n{}",
                    table.grants("the_relay", "the_application").trim_end()
                ));
            }
            Ok(Exit::Fine)
        }
        What::Run => hand_over(&args.to, address, table, out).await,
        What::Status => status(&address, &table, out).await,
        What::Retry { ids, all } => {
            let session = connected(&address, &table).await?;
            let given = rows::retry(&session, &table, (!all).then_some(&ids[..])).await?;
            let missing: Vec<String> =
                ids.iter().map(Uuid::to_string).filter(|id| !given.contains(id)).collect();
            if out.for_programs() {
                out.json(&given)?;
            } else {
                out.line(format!("{} given back", given.len()))?;
            }
            if missing.is_empty() {
                return Ok(Exit::Fine);
            }
            let failure = Failure::new(Exit::NotFound, format!("no refused row is {}", missing.join(", ")));
            Err(failure.next("`hooklog outbox status` lists them"))
        }
    }
}

fn commented(sql: &str) -> String {
    sql.lines().map(|line| format!("-- {line}\n")).collect()
}

async fn connected(address: &Address, table: &Table) -> Result<outbox::database::Session, Failure> {
    let session = address.connect().await?;
    schema::check(&session, table).await?;
    Ok(session)
}

async fn hand_over(to: &To, address: Address, table: Table, out: &mut Output) -> Result<Exit, Failure> {
    log_to_stderr();
    let mut stops = Stops::listen()?;
    let client = Client::open(to).await?;
    if client.stopped() {
        client.close().await?;
        return Err(Failure::usage("no server runs on that store").next("start one with `hooklog serve`"));
    }
    // What only a person can mend is told at once; all else is tried again and again.
    if let Err(error) = connected(&address, &table).await {
        if error.exit != Exit::Unreachable {
            return Err(error);
        }
        tracing::warn!(error = error.text, "the database cannot be used yet");
    }
    out.line(format!("hooklog outbox hands over from {table} at {}", escape(&address.at())))?;
    let stop = CancellationToken::new();
    let relay = Relay::new(address, table, &client, SystemClock::start());
    let mut running = std::pin::pin!(relay.run(&stop));
    tokio::select! {
        () = &mut running => {}
        () = stops.next() => {
            tracing::info!("stopping: what is being handed over is ended; a second signal stops at once");
            stop.cancel();
            tokio::select! {
                () = &mut running => {}
                () = stops.next() => return Ok(Exit::Interrupted),
            }
        }
    }
    Ok(Exit::Fine)
}

async fn status(address: &Address, table: &Table, out: &mut Output) -> Result<Exit, Failure> {
    let session = connected(address, table).await?;
    let standing = rows::standing(&session, table).await?;
    let fine = standing.refused == 0 && standing.oldest_ms <= LATE_MS;
    let exit = if fine { Exit::Fine } else { Exit::No };
    if out.for_programs() {
        out.json(&standing)?;
        return Ok(exit);
    }
    let paint = out.paint;
    let oldest = Duration::from_secs((standing.oldest_ms / 1_000) as u64);
    let oldest = match (standing.waiting, standing.oldest_ms > LATE_MS) {
        (0, _) => "nothing waits".into(),
        (_, true) => paint.bad(&format!("the oldest for {oldest:?}: is a relay running?")),
        (_, false) => format!("the oldest for {oldest:?}"),
    };
    out.line(format!("{:<10}{} · {oldest}", "waiting", standing.waiting))?;
    let refused = standing.refused.to_string();
    out.line(format!(
        "{:<10}{}",
        "refused",
        if standing.refused == 0 { refused } else { paint.bad(&refused) }
    ))?;
    if standing.refused_rows.is_empty() {
        return Ok(exit);
    }
    let mut columns = Columns::new(&["ROW", "REFUSED", "ACCOUNT", "TYPE", "ERROR"]);
    for row in &standing.refused_rows {
        columns.row([
            row.id.clone(),
            seconds(&row.refused_at),
            escape(&row.account).into_owned(),
            escape(&row.r#type).into_owned(),
            escape(&row.error).into_owned(),
        ]);
    }
    out.table(&columns)?;
    out.hint("mend what is wrong, then `hooklog outbox retry ID…` or --all; a row that is not wanted can be deleted");
    Ok(exit)
}

impl From<outbox::Error> for Failure {
    fn from(error: outbox::Error) -> Failure {
        let exit = match &error {
            outbox::Error::Url(_) | outbox::Error::Name(_) => Exit::Usage,
            outbox::Error::Unreachable { .. } => Exit::Unreachable,
            outbox::Error::NoTable { .. } => Exit::NotFound,
            outbox::Error::NotOurs { .. }
            | outbox::Error::OtherVersion { .. }
            | outbox::Error::Encoding(_) => Exit::Conflict,
            outbox::Error::MissingRights { .. } => Exit::NotAllowed,
            outbox::Error::Database(_) => Exit::Failed,
        };
        Failure::new(exit, error.to_string())
    }
}

impl Intake for Client {
    fn post<'a>(&'a self, path: &'static str, body: Bytes) -> BoxFuture<'a, Result<(u16, Bytes), String>> {
        async move {
            let segments: Vec<&str> = path.split('/').skip(1).collect();
            let target = Target::new(&segments);
            let asked = self.call(Method::POST, &target, Some(("application/json", body)));
            let reply = asked.await.map_err(|failure| failure.text)?;
            Ok((reply.status.as_u16(), reply.body))
        }
        .boxed()
    }
}

/// The API of this very process.
struct Inside(Router);

impl Intake for Inside {
    fn post<'a>(&'a self, path: &'static str, body: Bytes) -> BoxFuture<'a, Result<(u16, Bytes), String>> {
        async move {
            let request =
                Request::post(path).header(HOST, "localhost").header(CONTENT_TYPE, "application/json");
            let request = request.body(Body::from(body)).map_err(|error| error.to_string())?;
            let Ok(answer) = self.0.clone().oneshot(request).await;
            let status = answer.status().as_u16();
            let body = axum::body::to_bytes(answer.into_body(), ANSWER_BYTES_MAX).await;
            Ok((status, body.map_err(|error| error.to_string())?))
        }
        .boxed()
    }
}

/// Notes every 15 s what waits in a server's outbox, for its metrics, as long as the answer lives.
pub fn looking_at(outbox: &Outbox, api: &ApiState, clock: Arc<dyn Clock>) -> AbortOnDropHandle<()> {
    let (address, table, api) = (outbox.address.clone(), outbox.table.clone(), api.clone());
    AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            let standing = async {
                Ok::<_, Failure>(rows::standing(&connected(&address, &table).await?, &table).await?)
            };
            match standing.await {
                Ok(standing) => api.note_outbox(metrics::Outbox {
                    waiting: u64::try_from(standing.waiting).unwrap_or(0),
                    refused: u64::try_from(standing.refused).unwrap_or(0),
                    oldest: Duration::from_millis(u64::try_from(standing.oldest_ms).unwrap_or(0)),
                    asked_at: clock.now().0 as f64 / 1_000.0,
                }),
                Err(error) => tracing::debug!(error = error.text, "the outbox could not be looked at"),
            }
            tokio::time::sleep(LOOK).await;
        }
    }))
}

/// A relay within a server.
pub struct Relaying {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Relaying {
    /// Hands over from now on, if an outbox is configured.
    pub fn start(outbox: Option<Outbox>, api: &ApiState) -> Option<Relaying> {
        let Outbox { address, table } = outbox?;
        let stop = CancellationToken::new();
        let (inside, stopped) = (Inside(router(api.inside("outbox"))), stop.clone());
        let task = tokio::spawn(async move {
            Relay::new(address, table, &inside, SystemClock::start()).run(&stopped).await;
        });
        Some(Relaying { stop, task })
    }

    /// Takes no more; what is being handed over may end for as long as `limit`. Whatever is cut then is handed over
    /// again.
    pub async fn stop(mut self, limit: Duration) {
        self.stop.cancel();
        if tokio::time::timeout(limit, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}
