//! Requests that were asked under an `Idempotency-Key`, and what they were answered: so that one which is asked again
//! is done once. A row lives as long as the facts say; never knows what a request does.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::fact::{Entry, Fact, Sealed};
use crate::policy::Text;
use crate::tables::{Key, Table, Tables};
use crate::time::Timestamp;

/// A hash of a request, or of who asked it under which key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestHash(#[serde(with = "crate::fact::bytes_as_array")] pub [u8; 32]);

impl core::fmt::Debug for RequestHash {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("[hash]")
    }
}

/// The requests, by who asked them under which key.
pub struct Requests;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// What was asked: method, path, type and body.
    pub request: RequestHash,
    /// When.
    pub at: Timestamp,
    /// What was answered; `None` while it is done, and for ever if the process ended meanwhile.
    pub answer: Option<KeptAnswer>,
}

/// An answer that is kept. Only of what was done: a refusal does nothing, and is given anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptAnswer {
    /// The status code.
    pub status: u16,
    /// Header fields that belong to it.
    pub headers: Vec<(Text, Text)>,
    /// The body, which may show a secret.
    pub body: Sealed,
}

impl Table for Requests {
    const NAME: &'static str = "requests";
    type Key = RequestHash;
    type Value = Request;
}

impl Key for RequestHash {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.0);
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(RequestHash)
    }
}

/// Folds the facts of requests.
pub fn fold<T: Tables>(tables: &mut T, entry: &Entry) -> Result<(), T::Error> {
    match &entry.fact {
        Fact::RequestTaken { key, request, forgets } => {
            for old in forgets {
                tables.delete::<Requests>(old)?;
            }
            tables.put::<Requests>(key, &Request { request: *request, at: entry.at, answer: None })
        }
        Fact::RequestEnded { key, answer: None } => tables.delete::<Requests>(key),
        Fact::RequestEnded { key, answer } => match tables.get::<Requests>(key)? {
            Some(row) => tables.put::<Requests>(key, &Request { answer: answer.clone(), ..row }),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}
