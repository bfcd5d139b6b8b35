//! `hooklog status`: how the server fares; exit code 8 if it is not ready.

use hyper::Method;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::client::{Client, Target, To};
use super::exit::{Exit, Failure};
use super::output::Output;
use super::render::escape;

/// Asks how it fares.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub to: To,
}

/// Says how it fares.
pub async fn run(client: &Client, out: &mut Output) -> Result<Exit, Failure> {
    let raw: Box<RawValue> = client.get(&Target::new(&["v1", "status"])).await?;
    let ready = client.call(Method::GET, &Target::new(&["readyz"]), None).await?;
    // A stopped store is not ready to serve, and need not be.
    let healthy = ready.status.is_success() || client.stopped();
    let exit = if healthy { Exit::Fine } else { Exit::No };
    if out.for_programs() {
        out.json(&raw)?;
        return Ok(exit);
    }
    let paint = out.paint;
    let state = match (client.stopped(), healthy) {
        (true, _) => paint.waiting("stopped: opened for this command"),
        (false, true) => paint.good("ready"),
        (false, false) => paint.bad("not ready"),
    };
    out.line(format!("{:<16}{state}", "server"))?;
    if !healthy {
        let checks: Map<String, Value> = ready.json().unwrap_or_default();
        for (name, check) in checks.get("checks").and_then(Value::as_object).into_iter().flatten() {
            out.line(format!("{:<16}{}: {}", "", escape(name), escape(&plain(check))))?;
        }
    }
    let status: Map<String, Value> = serde_json::from_str(raw.get())
        .map_err(|error| Failure::new(Exit::Failed, format!("the answer is not understood: {error}")))?;
    for (name, value) in &status {
        let label = escape(&name.replace('_', " ")).into_owned();
        match value {
            Value::Object(members) => {
                let parts: Vec<_> = members
                    .iter()
                    .map(|(name, value)| format!("{} {}", plain(value), name.replace('_', " ")))
                    .collect();
                out.line(format!("{label:<16}{}", escape(&parts.join(" · "))))?;
            }
            value => out.line(format!("{label:<16}{}", escape(&plain(value))))?,
        }
    }
    Ok(exit)
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".into(),
        Value::Bool(false) => "no".into(),
        other => other.to_string(),
    }
}
