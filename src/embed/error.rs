//! Why something could not be done, for an embedding program.

use serde::Deserialize;

use crate::engine::{Fatal, Rejection};
use crate::{log, store};

/// Why something could not be done. Every text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The store cannot be opened.
    #[error(transparent)]
    Store(#[from] store::Error),
    /// The engine has ended.
    #[error(transparent)]
    Engine(#[from] Fatal),
    /// The store was closed.
    #[error("the store is closed; open it again")]
    Closed,
    /// The engine refuses.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The API refuses: `docs/problems.md` lists the codes.
    #[error("{detail}")]
    Refused {
        /// The code, for programs: `not-found`, `invalid`, ….
        code: String,
        /// For people.
        detail: String,
    },
    /// The store cannot be read.
    #[error(transparent)]
    Log(#[from] log::Error),
    /// A payload that is not JSON.
    #[error("the payload is no JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

/// A refusal as the API tells it.
#[derive(Deserialize)]
pub(super) struct Problem {
    code: String,
    detail: String,
}

impl From<Problem> for Error {
    fn from(problem: Problem) -> Error {
        Error::Refused { code: problem.code, detail: problem.detail }
    }
}
