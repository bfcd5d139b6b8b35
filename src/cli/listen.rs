//! `hooklog listen`: a receiver on this machine, to see what a customer would get. It checks the signatures, shows
//! each request, and answers as it is told, or as the program that it hands the request on to.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hooklog::clock::{Clock, SystemClock};
use hooklog::delivery::checker::{Found, Secrets};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::exit::{Exit, Failure};
use super::forward::Target;
use super::output::Output;
use super::receiver::{Reaction, Received, Script, receive};
use super::render::short;
use super::signature::SecretFiles;
use super::{span, wire};

/// The last answer gets this long to leave before the command ends.
const FAREWELL: Duration = Duration::from_millis(200);

/// Receives.
#[derive(clap::Args)]
pub struct Args {
    /// The port on 127.0.0.1; 0 takes a free one
    #[arg(long, default_value_t = 8475, value_name = "PORT")]
    port: u16,
    #[command(flatten)]
    secrets: SecretFiles,
    /// Hand each request on to a program on this machine, and answer as it does
    #[arg(long, value_name = "URL", conflicts_with_all = ["script", "hang"])]
    forward_to: Option<String>,
    /// Answer with these statuses, one a request; `hang` gives none. The last one is repeated [default: 200]
    #[arg(long, value_name = "STATUS", value_delimiter = ',', conflicts_with = "hang")]
    script: Vec<String>,
    /// Answer nothing
    #[arg(long)]
    hang: bool,
    /// End after so many requests; exit code 8 if a signature was wrong
    #[arg(long, short = 'n', value_name = "N")]
    count: Option<u64>,
}

/// What one request came to.
struct Heard {
    request: Received,
    checks: Vec<Found>,
    answered: Option<u16>,
}

struct Listener {
    secrets: Option<Secrets>,
    forward: Option<Target>,
    /// What is to be answered; `None` is nothing. The last one stays.
    script: Mutex<VecDeque<Option<u16>>>,
    clock: Arc<SystemClock>,
    heard: UnboundedSender<Heard>,
}

impl Script for Listener {
    fn react(&self, request: Received) -> Reaction {
        let now = self.clock.now().0 / 1_000;
        let checks = match &self.secrets {
            Some(secrets) => secrets.check(request.headers(), &request.body, now),
            None => Vec::new(),
        };
        let tell =
            |request, answered| drop(self.heard.send(Heard { request, checks: checks.clone(), answered }));
        if let Some(target) = self.forward.clone() {
            let (heard, checks) = (self.heard.clone(), checks.clone());
            return Reaction::Later(Box::pin(async move {
                let (status, body) = target.forward(&request).await;
                let _ = heard.send(Heard { request, checks, answered: Some(status) });
                (status, body)
            }));
        }
        let mut script = self.script.lock().expect("no holder panics");
        let next = script.front().copied().flatten();
        if script.len() > 1 {
            script.pop_front();
        }
        tell(request, next);
        match next {
            Some(status) => Reaction::Answer(status, b"{}".to_vec()),
            None => Reaction::Hang,
        }
    }
}

/// Receives until it is interrupted.
pub async fn run(args: Args, out: &mut Output) -> Result<Exit, Failure> {
    let script = match (args.hang, args.script.is_empty()) {
        (true, _) => vec![None],
        (false, true) => vec![Some(200)],
        (false, false) => args.script.iter().map(|word| step(word)).collect::<Result<_, _>>()?,
    };
    let secrets = if args.secrets.is_empty() { None } else { Some(args.secrets.read()?) };
    let forward = args.forward_to.as_deref().map(Target::read).transpose()?;
    let listener = TcpListener::bind(("127.0.0.1", args.port))
        .await
        .map_err(|error| Failure::from(error).while_(&format!("cannot listen on port {}", args.port)))?;
    let url = format!("http://{}", listener.local_addr()?);
    if out.for_programs() {
        out.line(json!({ "listening": url }).to_string())?;
    } else {
        out.line(format!("listening on {url}"))?;
    }
    let (heard, mut told) = unbounded_channel();
    let clock = SystemClock::start();
    let script = Mutex::new(VecDeque::from(script));
    let listening = Listener { secrets, forward, script, clock: clock.clone(), heard };
    let receiving =
        tokio_util::task::AbortOnDropHandle::new(tokio::spawn(receive(listener, Arc::new(listening))));
    let (mut left, mut wrong) = (args.count, false);
    while left != Some(0) {
        let Some(heard) = told.recv().await else { break };
        wrong |= heard.checks.iter().any(Found::is_wrong);
        let at = span::moment(clock.now());
        if out.for_programs() {
            out.line(object(&at, &heard).to_string())?;
        } else {
            show(&at, &heard, out)?;
        }
        left = left.map(|left| left - 1);
    }
    tokio::time::sleep(FAREWELL).await;
    drop(receiving);
    Ok(if wrong { Exit::No } else { Exit::Fine })
}

fn step(word: &str) -> Result<Option<u16>, Failure> {
    match (word, word.parse::<u16>()) {
        ("hang", _) => Ok(None),
        (_, Ok(status @ 200..=599)) => Ok(Some(status)),
        _ => Err(Failure::usage(format!(
            "--script: `{}` is no status of 200 to 599, and not `hang`",
            short(word, 20)
        ))),
    }
}

fn object(at: &str, heard: &Heard) -> Value {
    let Heard { request, checks, answered } = heard;
    let headers: Vec<_> = request.headers().iter().map(|(name, value)| json!([name, value])).collect();
    let mut out = json!({
        "at": at, "method": request.method, "path": request.path, "headers": headers, "checks": checks,
        "answered": answered,
    });
    match std::str::from_utf8(&request.body) {
        Ok(text) => out["body"] = text.into(),
        Err(_) => out["body_base64"] = STANDARD.encode(&request.body).into(),
    }
    out
}

fn show(at: &str, heard: &Heard, out: &mut Output) -> Result<(), Failure> {
    let Heard { request, checks, answered } = heard;
    let answer = match answered {
        Some(status @ 200..=299) => out.paint.good(&status.to_string()),
        Some(status) => out.paint.bad(&status.to_string()),
        None => out.paint.waiting("no answer"),
    };
    let (seconds, bytes) = (wire::seconds(at), request.body.len());
    let id = short(request.header("webhook-id"), 64);
    let (method, path) = (short(&request.method, 10), short(&request.path, 60));
    out.line(format!("{seconds}  {method} {path}  {id}  {bytes} bytes  {answer}"))?;
    for Found { scheme, result, detail } in checks {
        let word = match *result {
            "valid" => out.paint.good(result),
            "unchecked" => out.paint.waiting(result),
            _ => out.paint.bad(result),
        };
        let why = if *result == "valid" { String::new() } else { format!(": {}", short(detail, 300)) };
        out.line(format!("  {scheme} {word}{why}"))?;
    }
    out.line(format!("  {}", short(&String::from_utf8_lossy(&request.body), 400)))
}
