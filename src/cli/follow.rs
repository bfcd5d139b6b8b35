//! Following the stream of facts: line by line, and after a broken connection on from the last id, so that
//! nothing is missed or shown twice. Never knows what is done with a fact.

use std::time::Duration;

use serde::Deserialize;

use super::client::{Client, Target};
use super::exit::{Exit, Failure};

/// After a connection was lost, before the next one: what the server asks for, too.
const PAUSE: Duration = Duration::from_secs(2);

/// A fact, as the stream tells it. Members that are not named here are in `raw`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Event {
    /// As it came.
    #[serde(skip)]
    pub raw: String,
    /// When.
    pub at: String,
    /// Its name.
    pub fact: String,
    /// Of which delivery, if of one.
    pub delivery_id: Option<String>,
    /// Of which event.
    pub event_id: Option<String>,
    /// `payment.settled`
    pub event_type: Option<String>,
    /// Where to.
    pub endpoint_host: Option<String>,
    /// Which try of its run.
    #[serde(rename = "try")]
    pub tried: Option<u32>,
    /// Which POST.
    pub attempt: Option<u32>,
    /// Tries there are.
    pub tries: Option<u32>,
    /// What was answered.
    pub status_code: Option<u16>,
    /// Why nothing was.
    pub error: Option<String>,
    /// How long it took.
    pub took_ms: Option<u64>,
    /// When the next try is.
    pub due_at: Option<String>,
    /// As a person put it, or why it is dead.
    pub reason: Option<serde_json::Value>,
}

/// A place in the stream.
pub struct Follower<'a> {
    client: &'a Client,
    target: Target,
    last: Option<String>,
}

/// A message of the stream, read line by line.
#[derive(Default)]
struct Message {
    kind: String,
    data: String,
}

impl<'a> Follower<'a> {
    /// Of a stream with its filters.
    pub fn new(target: Target, client: &'a Client) -> Follower<'a> {
        Follower { client, target, last: None }
    }

    /// Fixes the place at now, whenever the following begins.
    ///
    /// # Errors
    /// Nobody answers, or the filters do not fit.
    pub async fn starting_now(mut self) -> Result<Follower<'a>, Failure> {
        self.alive()?;
        // The first thing that is said is where it begins; then it is enough.
        let mut lines = self.client.stream(&self.target, None).await?;
        while let Some(line) = lines.next().await? {
            if let Some(id) = line.strip_prefix(b"id: ") {
                self.last = Some(String::from_utf8_lossy(id).into_owned());
                break;
            }
        }
        Ok(self)
    }

    /// Hears each fact until `each` says that it is enough, and comes back whenever the connection is lost.
    ///
    /// # Errors
    /// The server is not there at the start; it refuses; or `each` fails.
    pub async fn each(
        &mut self,
        mut each: impl AsyncFnMut(Event) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        self.alive()?;
        loop {
            let heard = self.hear(&mut each).await;
            match heard {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                Err(failure) if failure.exit == Exit::Unreachable && self.last.is_some() => {}
                Err(failure) => return Err(failure),
            }
            eprintln!("hooklog: the connection is gone; trying again from where it was");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// One connection: whether `each` said that it is enough.
    async fn hear(
        &mut self,
        each: &mut impl AsyncFnMut(Event) -> Result<bool, Failure>,
    ) -> Result<bool, Failure> {
        let mut lines = self.client.stream(&self.target, self.last.as_deref()).await?;
        let (mut message, mut id) = (Message::default(), None);
        while let Some(line) = lines.next().await? {
            let Some(event) = message.line(&line, &mut id)? else { continue };
            if let Some(event) = event
                && !each(event).await?
            {
                return Ok(true);
            }
            // Only now: what `each` did not take comes again.
            self.last = id.take().or(self.last.take());
        }
        Ok(false)
    }

    fn alive(&self) -> Result<(), Failure> {
        if self.client.stopped() {
            let failure =
                Failure::usage("the store is stopped: nothing happens in it that could be followed");
            return Err(failure.next("`hooklog list` shows what is there"));
        }
        Ok(())
    }
}

impl Message {
    /// Takes a line; what it ends, if it ends a message: an event, or only a place.
    fn line(&mut self, line: &[u8], id: &mut Option<String>) -> Result<Option<Option<Event>>, Failure> {
        let line = String::from_utf8_lossy(line);
        if !line.is_empty() {
            match line.split_once(": ") {
                Some(("id", value)) => *id = Some(value.to_owned()),
                Some(("event", value)) => value.clone_into(&mut self.kind),
                Some(("data", value)) => value.clone_into(&mut self.data),
                _ => {}
            }
            return Ok(None);
        }
        let Message { kind, data } = std::mem::take(self);
        if data.is_empty() || !kind.is_empty() {
            return Ok(Some(None));
        }
        let event: Event = serde_json::from_str(&data).map_err(|error| {
            Failure::new(Exit::Failed, format!("the server's answer is not understood: {error}"))
        })?;
        Ok(Some(Some(Event { raw: data, ..event })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_read_message_by_message() {
        let text = "retry: 2000\nid: A\n\n: nothing\nid: B\n\nid: C\ndata: {\"fact\":\"Dead\",\"x\":1}\n\nevent: \
                    drain\nid: D\ndata: {}\n\n";
        let (mut message, mut id, mut seen) = (Message::default(), None, Vec::new());
        for line in text.split('\n') {
            if let Some(event) = message.line(line.as_bytes(), &mut id).expect("it is understood") {
                seen.push(format!("{} {}", id.clone().unwrap_or_default(), event.unwrap_or_default().raw));
            }
        }
        assert_eq!(seen, ["A ", "B ", "C {\"fact\":\"Dead\",\"x\":1}", "D ", "D "]);
    }
}
