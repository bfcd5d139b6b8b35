//! The demo's receiver: answers by a script, checks both signatures of every request, counts event ids, and
//! takes the messages to owners.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use hooklog::clock::{Clock, SystemClock};
use hooklog::delivery::{Key, TextSecret, sign};
use tokio::sync::Notify;

use super::super::receiver::{Reaction, Received, Script};

/// Where messages to owners are posted.
pub const MESSAGES: &str = "/notifications";

/// A step of a script.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Answer with this status.
    Answer(u16),
    /// Do not answer.
    Hang,
}

/// What one hook does and has seen.
#[derive(Default)]
pub struct Hook {
    keys: Option<(Key, TextSecret)>,
    steps: VecDeque<Step>,
    after: Option<Step>,
    /// Requests so far.
    pub requests: u32,
    /// Event ids so far.
    pub ids: BTreeSet<String>,
    /// Signatures that did not hold, in words.
    pub wrong: Vec<String>,
}

/// All hooks, by path.
pub struct Hooks {
    hooks: Mutex<BTreeMap<String, Hook>>,
    messages: Mutex<Vec<serde_json::Value>>,
    clock: Arc<SystemClock>,
    message_key: Key,
    seen: Notify,
}

impl Hooks {
    /// None yet. Messages must be signed with the key.
    pub fn new(message_key: Key) -> Arc<Hooks> {
        Arc::new(Hooks {
            hooks: Mutex::default(),
            messages: Mutex::default(),
            clock: SystemClock::start(),
            message_key,
            seen: Notify::new(),
        })
    }

    /// Sets a hook's keys, which are known only once its endpoint is made.
    pub fn keys(&self, path: &str, key: Key, secret: TextSecret) {
        self.with(path, |hook| hook.keys = Some((key, secret)));
    }

    /// Sets what a hook does from now on: the steps, then the last one for ever.
    pub fn script(&self, path: &str, steps: &[Step], after: Step) {
        self.with(path, |hook| {
            hook.steps = steps.iter().copied().collect();
            hook.after = Some(after);
        });
    }

    /// Looks at a hook.
    pub fn with<T>(&self, path: &str, look: impl FnOnce(&mut Hook) -> T) -> T {
        look(self.hooks.lock().expect("no holder panics").entry(path.to_owned()).or_default())
    }

    /// The messages so far.
    pub fn messages(&self) -> Vec<serde_json::Value> {
        self.messages.lock().expect("no holder panics").clone()
    }

    /// Waits until something was received after the call.
    pub async fn received(&self) {
        self.seen.notified().await;
    }

    fn take(&self, request: &Received) -> Reaction {
        if request.path == MESSAGES {
            let message = serde_json::from_slice(&request.body);
            let held = self.standard(&self.message_key, request);
            if let (Ok(message), Ok(())) = (message, held) {
                self.messages.lock().expect("no holder panics").push(message);
                return Reaction::Answer(202, Vec::new());
            }
            return Reaction::Answer(400, Vec::new());
        }
        self.with(&request.path, |hook| {
            hook.requests += 1;
            hook.ids.insert(request.header("webhook-id").to_owned());
            let wrong = match &hook.keys {
                None => Err("there are no keys for it".to_owned()),
                Some((key, secret)) => self.check(key, secret, request),
            };
            hook.wrong.extend(wrong.err());
            match hook.steps.pop_front().or(hook.after).unwrap_or(Step::Answer(404)) {
                Step::Answer(status) => Reaction::Answer(status, b"{\"from\":\"the demo\"}".to_vec()),
                Step::Hang => Reaction::Hang,
            }
        })
    }

    fn check(&self, key: &Key, secret: &TextSecret, request: &Received) -> Result<(), String> {
        self.standard(key, request)?;
        if sign::ledger(secret, &request.body) != request.header("x-ledger-signature") {
            return Err("the ledger signature does not match".into());
        }
        if request.header("idempotency-key") != request.header("webhook-id") {
            return Err("Idempotency-Key is not the event id".into());
        }
        Ok(())
    }

    fn standard(&self, key: &Key, request: &Received) -> Result<(), String> {
        let (id, at) = (request.header("webhook-id"), request.header("webhook-timestamp"));
        let signature = request.header("webhook-signature");
        let now = self.clock.now().0 / 1000;
        sign::verify(std::slice::from_ref(key), id, at, signature, &request.body, now)
            .map_err(|refused| refused.to_string())
    }
}

impl Script for Hooks {
    fn react(&self, request: Received) -> Reaction {
        let reaction = self.take(&request);
        self.seen.notify_one();
        reaction
    }
}
