//! `hooklog signature`: checks a captured request and says what is wrong with it, or signs one as Hooklog would.
//!
//! Asks no server, and shows no secret.

use std::path::{Path, PathBuf};

use clap::Subcommand;
use hooklog::clock::{Clock, SystemClock};
use hooklog::delivery::checker::{self, Found, Secrets};
use hooklog::delivery::sign;
use serde::Serialize;

use super::exit::{Exit, Failure};
use super::output::Output;
use super::render::escape;
use super::span;

/// About signatures.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Check a request; exit code 8 and the reason if a signature is wrong
    Verify(Verify),
    /// Sign a body, and print the headers
    Sign(Sign),
}

/// Files with secrets, one a line.
#[derive(clap::Args)]
pub struct SecretFiles {
    /// A file with the endpoint's signing keys (whsec_…), one a line
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// A file with the account's webhook secret, for X-Ledger-Signature
    #[arg(long, value_name = "FILE")]
    account_secret_file: Option<PathBuf>,
}

#[derive(clap::Args)]
struct Verify {
    /// A file with the request's headers: `Name: value` lines, or a JSON object
    #[arg(long, value_name = "FILE")]
    headers: PathBuf,
    /// A file with the request's body, byte for byte as it came
    #[arg(long, value_name = "FILE")]
    body: PathBuf,
    #[command(flatten)]
    secrets: SecretFiles,
    /// Check as if it were then: a span ago (24h) or a moment [default: now]
    #[arg(long, value_name = "WHEN")]
    at: Option<String>,
}

#[derive(clap::Args)]
struct Sign {
    /// The event's id
    #[arg(long, value_name = "ID")]
    id: String,
    /// Unix seconds [default: now]
    #[arg(long, value_name = "SECONDS")]
    timestamp: Option<u64>,
    /// A file with the body
    #[arg(long, value_name = "FILE")]
    body: PathBuf,
    #[command(flatten)]
    secrets: SecretFiles,
}

#[derive(Serialize)]
struct Verdict<'a> {
    valid: bool,
    checks: &'a [Found],
}

/// Does it.
pub fn run(args: &Args, out: &mut Output) -> Result<Exit, Failure> {
    match &args.verb {
        Verb::Verify(verify) => self::verify(verify, out),
        Verb::Sign(sign) => self::sign(sign, out),
    }
}

impl SecretFiles {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.secret_file.is_none() && self.account_secret_file.is_none()
    }

    /// The secrets in them.
    ///
    /// # Errors
    /// A file that cannot be read, or a line that is no key.
    pub fn read(&self) -> Result<Secrets, Failure> {
        let text = |file: &Option<PathBuf>| -> Result<Option<zeroize::Zeroizing<String>>, Failure> {
            let Some(path) = file else { return Ok(None) };
            let bytes = zeroize::Zeroizing::new(read(path)?);
            let text = std::str::from_utf8(&bytes)
                .map_err(|_| Failure::usage(format!("{} is not text", path.display())))?;
            Ok(Some(zeroize::Zeroizing::new(text.to_owned())))
        };
        let (endpoint, account) = (text(&self.secret_file)?, text(&self.account_secret_file)?);
        Secrets::new(endpoint.as_ref().map(|text| text.as_str()), account.as_ref().map(|text| text.as_str()))
            .map_err(Failure::usage)
    }
}

fn verify(args: &Verify, out: &mut Output) -> Result<Exit, Failure> {
    if args.secrets.is_empty() {
        return Err(Failure::usage("nothing to check with: give --secret-file or --account-secret-file"));
    }
    let secrets = args.secrets.read()?;
    let text = String::from_utf8_lossy(&read(&args.headers)?).into_owned();
    let headers =
        headers(&text).map_err(|why| Failure::usage(format!("{}: {why}", args.headers.display())))?;
    let body = read(&args.body)?;
    let clock = SystemClock::start().now();
    let now = match &args.at {
        None => clock,
        Some(text) => {
            let text = span::since(text, clock).map_err(Failure::usage)?;
            span::read_moment(&text).ok_or_else(|| Failure::usage("--at: the moment cannot be read"))?
        }
    };
    let found = secrets.check(&headers, &body, now.0 / 1_000);
    let valid = checker::is_valid(&found);
    if out.for_programs() {
        out.json(&Verdict { valid, checks: &found })?;
    } else {
        for Found { scheme, result, detail } in &found {
            let shown = match *result {
                "valid" => out.paint.good(result),
                "unchecked" => out.paint.waiting(result),
                _ => out.paint.bad(result),
            };
            out.line(format!("{scheme:<8}  {shown}"))?;
            out.line(format!("  {}", escape(detail)))?;
        }
    }
    Ok(if valid { Exit::Fine } else { Exit::No })
}

fn sign(args: &Sign, out: &mut Output) -> Result<Exit, Failure> {
    let secrets = args.secrets.read()?;
    if args.secrets.is_empty() {
        return Err(Failure::usage("nothing to sign with: give --secret-file or --account-secret-file"));
    }
    if args.id.is_empty() || args.id.contains('.') || !args.id.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Failure::usage("--id is visible ASCII without a full stop"));
    }
    let body = read(&args.body)?;
    let timestamp = args.timestamp.unwrap_or_else(|| SystemClock::start().now().0 / 1_000);
    let mut headers = Vec::new();
    if !secrets.keys().is_empty() {
        headers.push(("webhook-id", args.id.clone()));
        headers.push(("webhook-timestamp", timestamp.to_string()));
        headers.push(("webhook-signature", sign::standard(secrets.keys(), &args.id, timestamp, &body)));
    }
    if let Some(secret) = secrets.account().first() {
        headers.push(("x-ledger-signature", sign::ledger(secret, &body)));
    }
    if out.for_programs() {
        let object: serde_json::Map<_, _> =
            headers.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        out.json(&object)?;
    } else {
        for (name, value) in headers {
            out.line(format!("{name}: {value}"))?;
        }
    }
    Ok(Exit::Fine)
}

/// `Name: value` lines, a request or status line before them ignored; or a JSON object of texts.
fn headers(text: &str) -> Result<Vec<(String, String)>, String> {
    if text.trim_start().starts_with('{') {
        let object: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(text).map_err(|error| format!("the JSON cannot be read: {error}"))?;
        let mut out = Vec::new();
        for (name, value) in object {
            let values = match value {
                serde_json::Value::Array(values) => values,
                one => vec![one],
            };
            for value in values {
                let value = value.as_str().ok_or_else(|| format!("`{name}` is no text"))?;
                out.push((name.clone(), value.to_owned()));
            }
        }
        return Ok(out);
    }
    let mut out = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let line = line.trim_end_matches('\r');
        if line.is_empty() || (n == 0 && line.contains(" HTTP/")) || line.starts_with("HTTP/") {
            continue;
        }
        // As curl and nc write what they send.
        let line = line.strip_prefix("> ").unwrap_or(line);
        let (name, value) =
            line.split_once(':').ok_or_else(|| format!("line {} is no `Name: value`", n + 1))?;
        out.push((name.trim().to_owned(), value.trim().to_owned()));
    }
    Ok(out)
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))
}
