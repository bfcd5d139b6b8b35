//! The five scenes. Each says what the log says, one line a fact, and ends well or with what went wrong.

use std::time::Duration;

use hooklog::scheduler::RetryPolicy;
use hooklog_projections::policy::Schedule;
use hooklog_projections::time::Millis;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::client::{Client, Target};
use super::super::exit::Failure;
use super::super::output::Output;
use super::super::render::escape;
use super::super::span::{read_moment, spell};
use super::hooks::Step;
use super::stage::{Endpoint, Stage};

/// Between two looks at a timeline.
const LOOK: Duration = Duration::from_millis(10);
/// Looks without anything new, after which a scene has failed: 30 s, far more than any wait that is played.
const LOOKS_MAX: u32 = 3_000;
/// Columns of a line's first word.
const WIDTH: usize = 11;

type Scene = Result<(), Failure>;

/// Plays all; how many ended well and how many did not.
pub async fn all(stage: &mut Stage, out: &mut Output) -> Result<(u32, u32), Failure> {
    let mut score = Score { number: 0, failed: 0 };
    score.begin("Delivered at once", out)?;
    let result = at_once(stage, out).await;
    score.end(result, out)?;
    score.begin("Fails twice, then succeeds", out)?;
    let result = fails_twice(stage, out).await;
    score.end(result, out)?;
    score.begin("Always 503: the whole schedule, then dead, and the owner is told", out)?;
    let dead = dead(stage, out).await;
    let (result, dead) = match dead {
        Ok(dead) => (Ok(()), Some(dead)),
        Err(failure) => (Err(failure), None),
    };
    score.end(result, out)?;
    score.begin("The receiver is mended and the dead event replayed", out)?;
    let result = match dead {
        Some((endpoint, event)) => replayed(stage, &endpoint, &event, out).await,
        None => Err(wrong("there is nothing dead to replay")),
    };
    score.end(result, out)?;
    score.begin("The server is killed in mid-attempt and started again", out)?;
    let result = killed(stage, out).await;
    score.end(result, out)?;
    Ok((score.number - score.failed, score.failed))
}

struct Score {
    number: u32,
    failed: u32,
}

impl Score {
    fn begin(&mut self, title: &str, out: &mut Output) -> Scene {
        self.number += 1;
        out.line("")?;
        let title = out.paint.bold(&format!("{}  {title}", self.number));
        out.line(title)
    }

    fn end(&mut self, result: Scene, out: &mut Output) -> Scene {
        let paint = out.paint;
        match result {
            Ok(()) => out.line(format!("   {}", paint.good("passed"))),
            Err(failure) => {
                self.failed += 1;
                out.line(format!("   {} {}", paint.bad("failed:"), failure.text))
            }
        }
    }
}

async fn at_once(stage: &mut Stage, out: &mut Output) -> Scene {
    let endpoint = stage.endpoint(&stage.client, "acme").await?;
    stage.hooks.script(&endpoint.path, &[], Step::Answer(200));
    let event = stage.send(&stage.client, &endpoint).await?;
    let mut story = Story::of(&event, &endpoint);
    story.until(&stage.client, "delivered", stage, out).await?;
    expect(story.attempts == 1, "it took more than one attempt")?;
    received(stage, &endpoint, 1, out)
}

/// The brief's own test.
async fn fails_twice(stage: &mut Stage, out: &mut Output) -> Scene {
    let endpoint = stage.endpoint(&stage.client, "flaky").await?;
    stage.hooks.script(&endpoint.path, &[Step::Answer(500), Step::Answer(500)], Step::Answer(200));
    let event = stage.send(&stage.client, &endpoint).await?;
    let mut story = Story::of(&event, &endpoint);
    story.until(&stage.client, "delivered", stage, out).await?;
    expect(story.attempts == 3, "it did not take three attempts")?;
    received(stage, &endpoint, 3, out)
}

async fn dead(stage: &mut Stage, out: &mut Output) -> Result<(Endpoint, String), Failure> {
    let endpoint = stage.endpoint(&stage.client, "down").await?;
    stage.hooks.script(&endpoint.path, &[], Step::Answer(503));
    let event = stage.send(&stage.client, &endpoint).await?;
    stage.example.clone_from(&event);
    let mut story = Story::of(&event, &endpoint);
    story.until(&stage.client, "dead", stage, out).await?;
    let tries = RetryPolicy::of(&Schedule::Ledger).tries(None);
    expect(story.attempts == tries, "it did not take the whole schedule")?;
    received(stage, &endpoint, tries, out)?;
    owner_told(stage, &event, out).await?;
    Ok((endpoint, event))
}

async fn owner_told(stage: &Stage, event: &str, out: &mut Output) -> Scene {
    for _ in 0..LOOKS_MAX {
        let about = |message: &Value| {
            message["deliveries"]
                .as_array()
                .is_some_and(|deliveries| deliveries.iter().any(|delivery| delivery["event_id"] == event))
        };
        if let Some(message) = stage.hooks.messages().iter().find(|message| about(message)) {
            let text = |name: &str| escape(message[name].as_str().unwrap_or_default()).into_owned();
            return say(out, "owner", &format!("{} is told: {}", text("owner_email"), text("subject")));
        }
        tokio::time::sleep(LOOK).await;
    }
    Err(wrong("the owner was not told"))
}

async fn replayed(stage: &mut Stage, endpoint: &Endpoint, event: &str, out: &mut Output) -> Scene {
    let before = stage.hooks.with(&endpoint.path, |hook| hook.requests);
    stage.hooks.script(&endpoint.path, &[], Step::Answer(200));
    let mut story = Story::of(event, endpoint);
    story.skip(&stage.client).await?;
    let target = Target::new(&["v1", "events", event, "replay"]).with("account_id", &endpoint.account);
    let _: Value = stage.client.post(&target, &json!({ "reason": "the receiver is mended" })).await?;
    story.until(&stage.client, "delivered", stage, out).await?;
    expect((story.run, story.tried) == (2, 1), "it is not the first attempt of the second run")?;
    received(stage, endpoint, before + 1, out)
}

async fn killed(stage: &mut Stage, out: &mut Output) -> Scene {
    let server = stage.server_to_kill().await?;
    let client = Client::at(server.address);
    let endpoint = stage.endpoint(&client, "crash").await?;
    stage.hooks.script(&endpoint.path, &[Step::Hang], Step::Answer(200));
    let event = stage.send(&client, &endpoint).await?;
    let mut story = Story::of(&event, &endpoint);
    while stage.hooks.with(&endpoint.path, |hook| hook.requests) == 0 {
        stage.hooks.received().await;
    }
    story.until(&client, "attempted", stage, out).await?;
    say(out, "attempt 1", "has left, and the receiver does not answer")?;
    server.kill().await?;
    say(out, "killed", "SIGKILL in the middle of it")?;
    let server = stage.server_to_kill().await?;
    say(out, "started", "again on the same store")?;
    let client = Client::at(server.address);
    story.until(&client, "delivered", stage, out).await?;
    received(stage, &endpoint, 2, out)?;
    let status: Value = client.get(&Target::new(&["v1", "status"])).await?;
    server.kill().await?;
    let delivered = status["deliveries"]["delivered"] == 1 && status["conserved"] == true;
    expect(delivered, "the books do not balance")?;
    say(out, "result", "nothing lost, one duplicate, the same event id")
}

/// What the receiver saw: so many requests, all of one event, with both signatures right.
fn received(stage: &Stage, endpoint: &Endpoint, requests: u32, out: &mut Output) -> Scene {
    let (seen, ids, wrong_ones) =
        stage.hooks.with(&endpoint.path, |hook| (hook.requests, hook.ids.len(), hook.wrong.clone()));
    if let Some(first) = wrong_ones.first() {
        return Err(wrong(&format!("a signature does not hold: {first}")));
    }
    expect(seen == requests, &format!("the receiver saw {seen} requests, not {requests}"))?;
    expect(ids == 1, &format!("the receiver saw {ids} event ids, not one"))?;
    let plural = if seen == 1 { "" } else { "s" };
    say(out, "receiver", &format!("{seen} request{plural}, 1 event id, both signatures verified on each"))
}

/// A fact of a timeline.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Told {
    at: String,
    fact: String,
    event_type: String,
    attempt: u32,
    run: u32,
    #[serde(rename = "try")]
    tried: u32,
    status_code: Option<u16>,
    error: Option<String>,
    took_ms: u64,
    counted: Option<bool>,
    due_at: Option<String>,
    reason: Option<String>,
}

#[derive(Deserialize)]
struct Timeline {
    data: Vec<Told>,
}

/// An event's timeline, followed and told.
struct Story {
    target: Target,
    event: String,
    told: usize,
    /// Attempts so far.
    attempts: u32,
    /// Of the newest attempt.
    run: u32,
    /// Of the newest attempt.
    tried: u32,
    /// Half a line, which the next fact completes.
    open: Option<(String, String, String)>,
}

impl Story {
    fn of(event: &str, endpoint: &Endpoint) -> Story {
        let target = Target::new(&["v1", "events", event, "timeline"]).with("account_id", &endpoint.account);
        Story { target, event: event.to_owned(), told: 0, attempts: 0, run: 0, tried: 0, open: None }
    }

    /// Goes on after what is there.
    async fn skip(&mut self, client: &Client) -> Scene {
        let timeline: Timeline = client.get(&self.target).await?;
        self.told = timeline.data.len();
        Ok(())
    }

    /// Tells fact by fact, up to one of a name.
    async fn until(&mut self, client: &Client, last: &str, stage: &Stage, out: &mut Output) -> Scene {
        let mut looks = 0;
        while looks < LOOKS_MAX {
            let timeline: Timeline = client.get(&self.target).await?;
            for fact in timeline.data.iter().skip(self.told) {
                (self.told, looks) = (self.told + 1, 0);
                let name = fact.fact.to_lowercase();
                self.tell(&name, fact, stage.wait_divisor, out)?;
                if name == last {
                    return Ok(());
                }
                if name == "dead" || name == "delivered" {
                    return Err(wrong(&format!("it is {name}, not {last}")));
                }
            }
            looks += 1;
            tokio::time::sleep(LOOK).await;
        }
        Err(wrong(&format!("nothing came for long, and it was never {last}")))
    }

    fn tell(&mut self, name: &str, fact: &Told, divisor: u32, out: &mut Output) -> Scene {
        let paint = out.paint;
        match name {
            "accepted" => {
                say(out, "accepted", &format!("{} as {}", escape(&fact.event_type), escape(&self.event)))
            }
            "attempted" => {
                (self.attempts, self.run, self.tried) = (fact.attempt, fact.run, fact.tried);
                Ok(())
            }
            "delivered" => {
                let run = if self.run > 1 {
                    format!(", attempt {} of run {}", self.tried, self.run)
                } else {
                    String::new()
                };
                let answer =
                    format!("HTTP {} after {}", fact.status_code.unwrap_or(0), spell(Millis(fact.took_ms)));
                say(out, &attempt(fact), &format!("{answer:<26}{}{run}", paint.good("delivered")))
            }
            "failed" => {
                let answer = match (fact.status_code, &fact.error) {
                    (Some(status), _) => format!("HTTP {status} after {}", spell(Millis(fact.took_ms))),
                    (None, error) => escape(error.as_deref().unwrap_or("failed")).into_owned(),
                };
                let answer = match fact.counted {
                    Some(false) => format!("{answer}: outcome unknown, counts as no try"),
                    _ => answer,
                };
                self.open = Some((attempt(fact), answer, fact.at.clone()));
                Ok(())
            }
            "rescheduled" => {
                let Some((attempt, answer, at)) = self.open.take() else { return Ok(()) };
                let played = fact.due_at.as_deref().and_then(read_moment).zip(read_moment(&at));
                let played = played.map_or(Millis(0), |(due_at, at)| due_at.since(at));
                if played.0 == 0 {
                    return say(out, &attempt, &format!("{answer}, due again at once"));
                }
                let planned = RetryPolicy::of(&Schedule::Ledger).nominal(self.tried);
                let wait = format!("next try: planned {}, played {}", spell(planned), spell(played));
                let wait = if divisor == 1 { format!("next try in {}", spell(played)) } else { wait };
                say(out, &attempt, &format!("{answer:<26}{wait}"))
            }
            "dead" => {
                let (attempt, answer, _) = self.open.take().unwrap_or_default();
                say(out, &attempt, &format!("{answer:<26}{}", paint.bad("dead, no try is left")))
            }
            "replayed" => say(
                out,
                "replayed",
                &format!("run {}: {}", fact.run, escape(fact.reason.as_deref().unwrap_or_default())),
            ),
            _ => Ok(()),
        }
    }
}

fn attempt(fact: &Told) -> String {
    format!("attempt {}", fact.attempt)
}

fn say(out: &mut Output, word: &str, text: &str) -> Scene {
    out.line(format!("   {word:<WIDTH$}{text}"))
}

fn expect(holds: bool, otherwise: &str) -> Scene {
    if holds { Ok(()) } else { Err(wrong(otherwise)) }
}

fn wrong(text: &str) -> Failure {
    Failure::new(super::super::exit::Exit::No, text)
}
