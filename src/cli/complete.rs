//! Completion at a prompt: the shell asks this program what may stand at a place of the line. Words are the command
//! line's own; where an id is wanted, the server that the line would ask is asked for its newest ones.
//!
//! Says nothing at all when something is wrong, and never keeps a prompt waiting.

use std::ffi::OsStr;
use std::time::Duration;

use clap::{ArgMatches, Command, CommandFactory, FromArgMatches};
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use serde_json::Value;

use super::Cli;
use super::client::{Client, Target, To, running};
use super::exit::{Exit, Failure};
use super::output::Output;
use super::render::escape;

/// The variable by which a shell's script asks.
const ASKED: &str = "HOOKLOG_COMPLETE";
/// A prompt waits so long.
const PATIENCE: Duration = Duration::from_millis(800);
/// Ids that are offered of a kind.
const OFFERED: usize = 100;

/// Prints a shell's completion.
#[derive(clap::Args)]
#[command(
    after_help = "It asks this program, and for ids the server: `source <(hooklog completion bash)` in ~/.bashrc, \
or the like for another shell."
)]
pub struct Args {
    /// bash, zsh, fish, elvish or powershell
    #[arg(hide_possible_values = true)]
    shell: clap_complete::Shell,
}

/// Prints the script that makes a shell ask.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, Failure> {
    let shells = Shells::builtins();
    let shell = args.shell.to_string();
    let shell = shells.completer(&shell).ok_or_else(|| Failure::usage("there is none for this shell"))?;
    let program = std::env::current_exe()?;
    let mut script = Vec::new();
    shell.write_registration(ASKED, "hooklog", "hooklog", &program.to_string_lossy(), &mut script)?;
    out.raw(&script)?;
    out.end()?;
    Ok(Exit::Fine)
}

/// Answers a shell and ends, if it is one that asks.
pub fn answer() {
    CompleteEnv::with_factory(|| knowing(Cli::command(), None)).var(ASKED).complete();
}

/// What an id is of.
#[derive(Clone, Copy)]
enum Kind {
    Account,
    Endpoint,
    Key,
    Event,
    /// A delivery, of those in this state if there is one.
    Delivery(Option<&'static str>),
}

impl Kind {
    /// By what stands for a value in the help, and whose it is.
    fn of(value: &str, command: &str, group: Option<&str>) -> Option<Kind> {
        match (value, group, command) {
            ("ACCOUNT", ..) | ("ID", Some("accounts"), _) => Some(Kind::Account),
            ("ENDPOINT", ..) | ("ID", Some("endpoints"), _) => Some(Kind::Endpoint),
            ("ID", Some("keys"), _) => Some(Kind::Key),
            ("ID", Some("events"), _) => Some(Kind::Event),
            ("DELIVERY", None, "cancel" | "retry-now") => Some(Kind::Delivery(Some("pending"))),
            ("ID", None, "replay") => Some(Kind::Delivery(Some("dead"))),
            ("DELIVERY", ..) | ("ID", None, "explain") => Some(Kind::Delivery(None)),
            _ => None,
        }
    }

    /// Where they are listed, and which members tell what one is.
    fn list(self) -> (Target, [&'static str; 2]) {
        let list = |name| Target::new(&["v1", name]).with("limit", &OFFERED.to_string());
        match self {
            Kind::Account => (list("accounts"), ["name", "owner_email"]),
            Kind::Endpoint => (list("endpoints"), ["url", "queue"]),
            Kind::Key => (list("keys"), ["name", "role"]),
            Kind::Event => (list("events"), ["type", "accepted_at"]),
            Kind::Delivery(state) => {
                (list("deliveries").with_some("status", state), ["event_type", "status"])
            }
        }
    }

    /// Whether the list may be narrowed to the account that the line names.
    fn is_of_an_account(self) -> bool {
        matches!(self, Kind::Endpoint | Kind::Event | Kind::Delivery(_))
    }

    /// Whether there is no list of all accounts' together.
    fn is_listed_by_account(self) -> bool {
        matches!(self, Kind::Endpoint | Kind::Event)
    }
}

/// The command line with its ids known.
fn knowing(command: Command, group: Option<&str>) -> Command {
    let name = command.get_name().to_owned();
    let known = command.mut_args(|arg| {
        let value = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
        // One that is named by nothing else is shown as its own name.
        let value = value.unwrap_or_else(|| arg.get_id().as_str().to_ascii_uppercase());
        match Kind::of(&value, &name, group) {
            Some(kind) => arg.add(ArgValueCompleter::new(move |typed: &OsStr| offered(kind, typed))),
            None => arg,
        }
    });
    let within = (group.is_none() && name != "hooklog").then_some(name);
    known.mut_subcommands(|command| knowing(command, within.as_deref()))
}

/// The ids that begin with what was typed.
fn offered(kind: Kind, typed: &OsStr) -> Vec<CompletionCandidate> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (Ok(runtime), Some(typed)) = (runtime, typed.to_str()) else { return Vec::new() };
    let asked = async { tokio::time::timeout(PATIENCE, listed(kind)).await.ok().flatten() };
    let (rows, tells) = runtime.block_on(asked).unwrap_or_default();
    let candidate = |row: &Value| {
        let id = row["id"].as_str().filter(|id| id.starts_with(typed) && is_plain(id))?;
        let told: Vec<_> = tells.iter().filter_map(|name| row[name].as_str()).map(escape).collect();
        Some(CompletionCandidate::new(id).help(Some(told.join(", ").into())))
    };
    rows.iter().filter_map(candidate).collect()
}

/// An event's id is its sender's: one with anything that a shell reads is not offered.
fn is_plain(id: &str) -> bool {
    id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}

async fn listed(kind: Kind) -> Option<(Vec<Value>, [&'static str; 2])> {
    let (to, account) = line()?;
    if let Some(folder) = &to.store {
        // Opening a store is not for a prompt.
        running(folder).await?;
    }
    let client = Client::open(&to).await.ok()?;
    let rows = async |target: Target| -> Option<Vec<Value>> {
        let mut page: Value = client.get(&target).await.ok()?;
        page["data"].as_array_mut().map(std::mem::take)
    };
    let accounts = match account {
        Some(account) => vec![account],
        None if kind.is_listed_by_account() => {
            let accounts = rows(Kind::Account.list().0).await?;
            accounts.iter().filter_map(|row| Some(row["id"].as_str()?.to_owned())).collect()
        }
        None => Vec::new(),
    };
    let (target, tells) = kind.list();
    if accounts.is_empty() || !kind.is_of_an_account() {
        return Some((rows(target).await?, tells));
    }
    let mut found = Vec::new();
    for account in accounts {
        found.extend(rows(target.clone().with("account_id", &account)).await?);
        if found.len() >= OFFERED {
            break;
        }
    }
    Some((found, tells))
}

/// Which server the line so far would ask, and the account that it names.
fn line() -> Option<(To, Option<String>)> {
    let words = std::env::args_os().skip_while(|word| word != "--").skip(1);
    // A value that is not there yet would make the flag before it an error.
    let command = Cli::command().ignore_errors(true);
    let mut matches: ArgMatches = command.try_get_matches_from(words).ok()?;
    while let Some((_, inner)) = matches.remove_subcommand() {
        matches = inner;
    }
    let account = ["account", "account_id"].iter().find_map(|name| {
        matches.try_get_one::<String>(name).ok().flatten().filter(|account| !account.is_empty()).cloned()
    });
    Some((To::from_arg_matches(&matches).ok()?, account))
}
