//! Requests under an `Idempotency-Key`: taken once, answered once, forgotten after a day or when there are too many.
//! Never knows what a request is about.

use std::ops::Bound;

use hooklog_projections::answer::{KeptAnswer, RequestHash, Requests};
use hooklog_projections::fact::{Actor, Fact};
use hooklog_projections::tables::Tables;
use hooklog_projections::time::Millis;

use super::command::{Answer, Rejection};
use super::{Decision, Engine, Fatal};

/// How long a key stands for its request.
pub const KEY_LIFE: Millis = Millis::from_secs(24 * 3600);
/// Keys of the store at a time; the oldest go first, which are then done again if they are asked again.
pub const KEYS_MAX: usize = 10_000;
/// Old keys that one new key sees off: more than come in, so that what is old goes.
const FORGOTTEN_AT_ONCE: usize = 8;

impl Engine {
    pub(super) fn take_request(
        &mut self,
        actor: Actor,
        key: RequestHash,
        request: RequestHash,
    ) -> Decision<Answer> {
        let row = self.rows.over(&**self.log.disk()).get::<Requests>(&key)?;
        match row.filter(|row| self.now.since(row.at) < KEY_LIFE) {
            Some(row) if row.request != request => return Ok(Err(Rejection::KeyReused)),
            Some(row) => {
                return Ok(match row.answer {
                    Some(answer) => Ok(Answer::Before(answer)),
                    None => Err(Rejection::KeyInUse),
                });
            }
            None => {}
        }
        let mut forgets = Vec::new();
        while let Some((at, old)) = self.requests.front().copied() {
            let over = self.now.since(at) >= KEY_LIFE || self.requests.len() >= KEYS_MAX;
            if !over || forgets.len() >= FORGOTTEN_AT_ONCE {
                break;
            }
            self.requests.pop_front();
            // It may have been forgotten before, and taken again since.
            let row = self.rows.over(&**self.log.disk()).get::<Requests>(&old)?;
            if row.is_some_and(|row| row.at == at) && old != key {
                forgets.push(old);
            }
        }
        self.requests.push_back((self.now, key));
        self.record(actor, Fact::RequestTaken { key, request, forgets })?;
        Ok(Ok(Answer::Done))
    }

    pub(super) fn end_request(
        &mut self,
        actor: Actor,
        key: RequestHash,
        answer: Option<KeptAnswer>,
    ) -> Decision<Answer> {
        self.record(actor, Fact::RequestEnded { key, answer })?;
        Ok(Ok(Answer::Done))
    }

    /// Learns at a start which keys there are, oldest first.
    pub(super) fn find_requests(&mut self) -> Result<(), Fatal> {
        let live = self.rows.over(&**self.log.disk());
        let rows = live.range::<Requests>(Bound::Unbounded, Bound::Unbounded, 2 * KEYS_MAX)?;
        let mut all: Vec<_> = rows.into_iter().map(|(key, row)| (row.at, key)).collect();
        all.sort_unstable();
        self.requests = all.into();
        Ok(())
    }
}
