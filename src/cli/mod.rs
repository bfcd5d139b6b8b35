//! The command line: one small file a command, all of them callers of the HTTP API in one way or another.
//!
//! Never decides what happens to a delivery; that is the server's.

mod accounts;
mod attempts;
mod attempts_table;
mod audit;
mod bench;
mod bench_receiver;
mod child;
mod client;
mod complete;
mod dead;
mod deliveries;
mod demo;
mod endpoints;
mod events;
pub mod exit;
mod explain;
mod follow;
mod forward;
mod keys;
mod list;
mod listen;
#[cfg(feature = "postgres")]
mod outbox;
mod output;
mod papers;
mod portal;
mod profile;
mod progress;
mod receiver;
mod render;
mod replay;
mod replay_bulk;
mod schedule;
mod send;
mod send_lines;
mod serve;
mod signature;
pub mod span;
mod status;
mod store;
mod tail;
mod wire;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use self::client::{Client, To};
use self::exit::{Exit, Failure};
use self::output::{Look, Output};
use self::render::Paint;

/// What is left of a command may take this long after its end: a thread in a write that does not return is not
/// waited for.
const LEFTOVERS: Duration = Duration::from_millis(500);

/// Hooklog delivers webhooks: it takes in events, sends them until they arrive, and can say what became of each.
#[derive(Parser)]
#[command(name = "hooklog", version, after_help = exit::TABLE, max_term_width = 110, arg_required_else_help = true)]
struct Cli {
    #[command(flatten)]
    look: Look,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server: API, scheduler and deliveries
    Serve(Box<serve::Args>),
    /// Accept one event, or many from lines of JSON
    Send(Box<send::Args>),
    /// Make and list accounts; rotate and show their secrets
    Accounts(accounts::Args),
    /// Make, list, test, pause, resume and remove endpoints; rotate and show their keys
    Endpoints(Box<endpoints::Args>),
    /// List the events that came in and their types; print the exact bytes of one
    Events(events::Args),
    /// List the attempts of a delivery; show how one went, its request and its answer
    Attempts(attempts::Args),
    /// List deliveries; `list --state dead --json` prints the dead ones with payload and last error
    List(list::Args),
    /// What was given up: in groups, one by one, or exported
    Dead(dead::Args),
    /// Did we send it? One answer for any id
    Explain(explain::Args),
    /// Follow what happens, as it happens
    Tail(tail::Args),
    /// Send again: events or deliveries by id, or in bulk by what they are (`--status dead`)
    #[command(alias = "retry")]
    Replay(Box<replay::Args>),
    /// Call waiting deliveries off
    Cancel(deliveries::Cancel),
    /// Try waiting deliveries at once
    RetryNow(deliveries::RetryNow),
    /// When each try happens, for every schedule or one
    Schedule(schedule::Args),
    /// Receive here, to see what a customer gets
    Listen(listen::Args),
    /// Check or make signatures
    Signature(signature::Args),
    /// Make, list, rotate and revoke keys of the API
    Keys(keys::Args),
    /// A one-time link to a customer's pages
    Portal(portal::Args),
    /// Who administered what, and who saw which secret
    Audit(audit::Args),
    /// Move what waits and what is dead over from a table of retries of your own
    Import(attempts_table::Import),
    /// Write attempts out in the columns of such a table
    Export(attempts_table::Export),
    /// How the server fares
    Status(status::Args),
    /// Events out of your own PostgreSQL: the table, the relay, what was refused
    #[cfg(feature = "postgres")]
    Outbox(outbox::Args),
    /// Check, rebuild or reseal a store
    Store(store::Args),
    /// Print the completion of a shell
    Completion(complete::Args),
    /// Write the manual pages
    Man(papers::Man),
    /// A guided run on a temporary store
    Demo(demo::Args),
    /// Measure this machine, on loopback only
    Bench(bench::Args),
    /// The receiver of `bench`
    #[command(hide = true)]
    BenchReceiver(bench_receiver::Args),
}

/// Reads the command line and does what it says.
pub fn run() -> ExitCode {
    complete::answer();
    let cli = Cli::parse();
    let paint = Paint::stderr(cli.look.color);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(Failure::from(error).while_("cannot start"), paint).into(),
    };
    let result = runtime.block_on(perform(cli));
    runtime.shutdown_timeout(LEFTOVERS);
    match result {
        Ok(exit) => exit.into(),
        Err(failure) => report(failure, paint).into(),
    }
}

async fn perform(cli: Cli) -> Result<Exit, Failure> {
    let out = &mut Output::new(&cli.look);
    if cli.look.local {
        wire::show_local_times();
    }
    if out.csv() && !cli.command.lists() {
        let failure = Failure::usage(
            "--format csv is for lists: `list`, `events list`, `accounts list`, `endpoints list`, `export`",
        );
        return Err(failure.next("this command takes table, json and jsonl"));
    }
    match cli.command {
        Command::Serve(args) => serve::run(*args, out).await,
        Command::Send(args) => {
            asking(&args.to.clone(), async |client| send::run(*args, client, out).await).await
        }
        Command::Accounts(args) => {
            asking(&args.to.clone(), async |client| accounts::run(args, client, out).await).await
        }
        Command::Endpoints(args) => {
            asking(&args.to.clone(), async |client| endpoints::run(*args, client, out).await).await
        }
        Command::Events(args) => {
            asking(&args.to.clone(), async |client| events::run(args, client, out).await).await
        }
        Command::Attempts(args) => {
            asking(&args.to.clone(), async |client| attempts::run(args, client, out).await).await
        }
        Command::List(args) => {
            asking(&args.to.clone(), async |client| list::run(args, client, out).await).await
        }
        Command::Dead(args) => {
            asking(&args.to.clone(), async |client| dead::run(args, client, out).await).await
        }
        Command::Explain(args) => {
            asking(&args.to.clone(), async |client| explain::run(args, client, out).await).await
        }
        Command::Tail(args) => {
            asking(&args.to.clone(), async |client| tail::run(args, client, out).await).await
        }
        Command::Replay(args) => {
            asking(&args.to.clone(), async |client| replay::run(*args, client, out).await).await
        }
        Command::Cancel(args) => {
            asking(&args.to.clone(), async |client| deliveries::cancel(args, client, out).await).await
        }
        Command::RetryNow(args) => {
            asking(&args.to.clone(), async |client| deliveries::retry_now(args, client, out).await).await
        }
        Command::Keys(args) => {
            asking(&args.to.clone(), async |client| keys::run(args, client, out).await).await
        }
        Command::Portal(args) => {
            asking(&args.to.clone(), async |client| portal::run(args, client, out).await).await
        }
        Command::Audit(args) => {
            asking(&args.to.clone(), async |client| audit::run(args, client, out).await).await
        }
        Command::Import(args) => {
            asking(&args.to.clone(), async |client| attempts_table::import(args, client, out).await).await
        }
        Command::Export(args) => {
            asking(&args.to.clone(), async |client| attempts_table::export(args, client, out).await).await
        }
        Command::Listen(args) => interruptible(listen::run(args, out)).await,
        Command::Signature(args) => signature::run(&args, out),
        Command::Completion(args) => complete::run(&args, out),
        Command::Man(args) => papers::man(&args, out),
        Command::Schedule(args) => schedule::run(&args, out),
        Command::Status(args) => {
            asking(&args.to.clone(), async |client| status::run(client, out).await).await
        }
        #[cfg(feature = "postgres")]
        Command::Outbox(args) => outbox::run(args, out).await,
        Command::Store(args) => store::run(args, out).await,
        Command::Demo(args) => demo::run(args, out).await,
        Command::Bench(args) => bench::run(args, out).await,
        Command::BenchReceiver(args) => bench_receiver::run(args, out).await,
    }
}

/// Runs a command against a server or a stopped store, which is closed again whatever happened.
async fn asking(
    to: &To,
    command: impl AsyncFnOnce(&Client) -> Result<Exit, Failure>,
) -> Result<Exit, Failure> {
    let client = Client::open(to).await?;
    let result = interruptible(command(&client)).await;
    let closed = client.close().await;
    let exit = result?;
    closed.map(|()| exit)
}

/// Ends early, with a code of its own, if the user says so.
async fn interruptible(command: impl Future<Output = Result<Exit, Failure>>) -> Result<Exit, Failure> {
    tokio::select! {
        result = command => result,
        Ok(()) = tokio::signal::ctrl_c() => Ok(Exit::Interrupted),
    }
}

impl Command {
    /// Whether what it prints is a list.
    fn lists(&self) -> bool {
        match self {
            Command::List(args) => args.is_finite(),
            Command::Export(_) => true,
            Command::Accounts(args) => args.lists(),
            Command::Endpoints(args) => args.lists(),
            Command::Events(args) => args.lists(),
            Command::Attempts(args) => args.lists(),
            _ => false,
        }
    }
}

/// What failed and why, and what to do next.
fn report(failure: Failure, paint: Paint) -> Exit {
    if !failure.text.is_empty() {
        eprintln!("{} {}", paint.bad("hooklog:"), failure.text);
    }
    if let Some(next) = failure.next {
        eprintln!("  {next}");
    }
    failure.exit
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
