//! `hooklog store`: proves or makes anew what a store holds, beside its running server or on a stopped store.

use std::path::PathBuf;

use clap::Subcommand;
use hooklog::clock::SystemClock;
use hooklog::store;
use serde::{Deserialize, Serialize};

use super::client::{Client, Target, To, in_use, running, stopped_config};
use super::exit::{Exit, Failure};
use super::output::Output;
use super::progress::Progress;
use super::render::escape;
use hooklog_projections::ids::Seq;

/// About stores.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub to: To,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Clone, Subcommand)]
enum Verb {
    /// Prove that the store is exactly what its log says; exit code 8 if it is not
    Verify,
    /// Make all views anew from the log
    Rebuild,
    /// Go on with a log that is not the one that was acknowledged; only on a stopped store
    AcceptHead,
    /// Seal all secrets under another master key; only on a stopped store
    Reseal {
        /// The new key's file; made if it is not there. Run again, it ends what was cut short
        #[arg(long, value_name = "FILE")]
        new_master_key_file: PathBuf,
    },
}

/// What came out.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Outcome {
    result: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    entries: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rows: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sealed: Option<u64>,
    #[serde(default)]
    findings: Vec<String>,
}

/// A line of a streamed answer.
#[derive(Deserialize)]
#[serde(untagged)]
enum Line {
    Outcome(Outcome),
    Progress { stage: String, done: u64, of: u64 },
    Problem { detail: String },
}

/// Does it.
pub async fn run(args: Args, out: &mut Output) -> Result<Exit, Failure> {
    let stopped = match &args.to.store {
        Some(folder) => running(folder).await.is_none().then(|| folder.clone()),
        None => None,
    };
    let outcome = match stopped {
        Some(folder) => on_stopped(folder, args.to.config, args.verb).await?,
        None => on_running(&args.to, args.verb).await?,
    };
    say(&outcome, out)
}

async fn on_stopped(folder: PathBuf, config: Option<PathBuf>, verb: Verb) -> Result<Outcome, Failure> {
    let options = stopped_config(&folder, config.as_deref())?.store;
    let working = tokio::task::spawn_blocking(move || -> Result<Outcome, store::Error> {
        match verb {
            Verb::Verify => {
                let mut progress = Progress::new("verifying");
                let report = store::check_stopped(&options, &mut |stage, done, of| {
                    progress.stage(stage);
                    progress.show(done, of);
                })?;
                let result = if report.clean() { "clean" } else { "damaged" };
                let (entries, rows) = (Some(report.entries), Some(report.rows));
                Ok(Outcome { result: result.into(), entries, rows, sealed: None, findings: report.findings })
            }
            Verb::Rebuild => {
                let mut progress = Progress::new("folding the log");
                let mut entries = Seq(0);
                store::rebuild_stopped(&options, &mut |upto, head| {
                    entries = upto;
                    progress.show(upto.0, head.0);
                })?;
                Ok(Outcome { result: "rebuilt".into(), entries: Some(entries.0), ..Outcome::default() })
            }
            Verb::AcceptHead => {
                let head = store::accept_head(&options)?;
                Ok(Outcome { result: "accepted".into(), entries: Some(head.0), ..Outcome::default() })
            }
            Verb::Reseal { new_master_key_file } => {
                let sealed =
                    store::reseal(&options, &new_master_key_file, &*SystemClock::start(), &mut |_| {})?;
                Ok(Outcome { result: "resealed".into(), sealed: Some(sealed), ..Outcome::default() })
            }
        }
    });
    let worked = working.await.map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
    worked.map_err(Failure::from).map_err(in_use)
}

async fn on_running(to: &To, verb: Verb) -> Result<Outcome, Failure> {
    let path = match verb {
        Verb::Verify => ["v1", "store", "verify"],
        Verb::Rebuild => ["v1", "store", "rebuild"],
        Verb::AcceptHead => {
            let failure =
                Failure::new(Exit::InUse, "a server runs on this store, so its head is the acknowledged one");
            return Err(failure.next("stop the server and give the store's folder with --store"));
        }
        Verb::Reseal { .. } => {
            let failure = Failure::new(Exit::InUse, "secrets are sealed anew on a stopped store only");
            return Err(failure.next("stop the server and give the store's folder with --store"));
        }
    };
    let client = Client::open(to).await?;
    let mut progress = Progress::new("working");
    let mut outcome = None;
    client
        .lines(&Target::new(&path), &mut |line| {
            match serde_json::from_slice(line) {
                Ok(Line::Outcome(last)) => outcome = Some(last),
                Ok(Line::Progress { stage, done, of }) => {
                    progress.stage(&stage);
                    progress.show(done, of);
                }
                Ok(Line::Problem { detail }) => return Err(Failure::new(Exit::Failed, escape(&detail))),
                // A line that this version does not know.
                Err(_) => {}
            }
            Ok(())
        })
        .await?;
    outcome.ok_or_else(|| {
        Failure::new(Exit::Unreachable, "the server's answer ended before its result")
            .next("does it still run? `hooklog status` says")
    })
}

fn say(outcome: &Outcome, out: &mut Output) -> Result<Exit, Failure> {
    let exit = match outcome.result.as_str() {
        "damaged" => Exit::No,
        "failed" => Exit::Failed,
        _ => Exit::Fine,
    };
    if out.for_programs() {
        out.json(outcome)?;
        return Ok(exit);
    }
    let paint = out.paint;
    let entries = outcome
        .entries
        .filter(|entries| *entries > 0)
        .map_or(String::new(), |entries| format!("{entries} entries, "));
    let rows = outcome.rows.map_or(String::new(), |rows| format!("{rows} rows, "));
    match outcome.result.as_str() {
        "clean" => out.line(format!("{}  {entries}{rows}exactly what the log says", paint.good("clean")))?,
        "rebuilt" => out.line(format!("{}  {entries}folded anew", paint.good("rebuilt")))?,
        "accepted" => {
            out.line(format!("{}  {entries}and the log goes on from there", paint.good("accepted")))?
        }
        "resealed" => {
            let sealed = outcome.sealed.unwrap_or_default();
            out.line(format!("{}  {sealed} accounts and endpoints sealed anew", paint.good("resealed")))?;
            out.hint(
                "the store opens with the new key only: put its file where the old one was, or name it with \
                 master_key_file. Whoever has the old key and an old copy of the store reads its secrets still",
            );
        }
        other => {
            let what = format!("{entries}{rows}{} findings", outcome.findings.len());
            out.line(format!("{}  {what}", paint.bad(&escape(other))))?;
            for finding in &outcome.findings {
                out.line(format!("  {}", escape(finding)))?;
            }
            out.hint(
                "if only views are damaged, `hooklog store rebuild` mends them; else restore from a backup",
            );
        }
    }
    Ok(exit)
}
