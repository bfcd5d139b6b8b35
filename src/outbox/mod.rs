//! The outbox: events that an application wrote into a table of its own PostgreSQL, in its own transactions, handed
//! over to Hooklog.
//!
//! A relay takes rows with `FOR UPDATE SKIP LOCKED`, hands them over as a batch of the API, and deletes them once
//! Hooklog has said that they are durable, all in one transaction. Whatever crashes in between, the rows are there
//! still and are handed over again, under the same event ids: at least once on the way, exactly once in the log.
//! There is no cursor: rows commit in another order than they are numbered, so one would pass some by.
//!
//! Never knows where Hooklog is ([`Intake`]), nor what an event means: what cannot be one is told by the API.
//!
//! | file | what lives there |
//! | --- | --- |
//! | [`database`], `tls` | a connection to PostgreSQL |
//! | [`schema`] | the table, its version, the rights that a relay needs |
//! | [`rows`] | the statements on its rows |
//! | `batch` | rows as a request, and the answer as a verdict on each |
//! | [`relay`] | rows taken, handed over, deleted, again and again |

mod batch;
pub mod database;
pub mod relay;
pub mod rows;
pub mod schema;
mod tls;

use bytes::Bytes;
use futures::future::BoxFuture;

pub use database::Address;
pub use relay::Relay;
pub use schema::Table;

/// Takes requests of Hooklog's API, wherever it is.
pub trait Intake: Send + Sync {
    /// Posts JSON to a path; the status and the body of the answer, or why there is none.
    fn post<'a>(&'a self, path: &'static str, body: Bytes) -> BoxFuture<'a, Result<(u16, Bytes), String>>;
}

/// Why the outbox cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database's URL means nothing.
    #[error("the database's URL: {0}")]
    Url(String),
    /// The table's name means nothing.
    #[error("`{0}` is no name of a table: use letters, digits and `_`, with a schema in front if it has one")]
    Name(String),
    /// Nobody answers there, or not for long.
    #[error("cannot reach PostgreSQL at {at}: {why}")]
    Unreachable {
        /// Host and port, or the socket's folder.
        at: String,
        /// What the network or the server said.
        why: String,
    },
    /// There is no such table.
    #[error("there is no table {table}, or {user} may not see it: make it with `hooklog outbox init`")]
    NoTable {
        /// Which.
        table: Table,
        /// Who looked.
        user: String,
    },
    /// A table of that name, but not ours.
    #[error(
        "{table} is no outbox of Hooklog: its comment names no version. If it was restored without its comment, \
         set it again (`hooklog outbox init --print` shows it); else choose another name"
    )]
    NotOurs {
        /// Which.
        table: Table,
    },
    /// The table is of another version.
    #[error(
        "{table} is an outbox of version {found}, and this Hooklog knows version {}: use a Hooklog of that version",
        schema::VERSION
    )]
    OtherVersion {
        /// Which.
        table: Table,
        /// Its version.
        found: u32,
    },
    /// The database keeps text in another encoding.
    #[error(
        "the database's encoding is {0}: an outbox is for databases of the encoding UTF8, for JSON is UTF-8 and a row \
         that is not would hold up all others"
    )]
    Encoding(String),
    /// The user lacks rights.
    #[error("{user} lacks rights on {table}. Its owner can give them: {grant}")]
    MissingRights {
        /// On which.
        table: Table,
        /// Who.
        user: String,
        /// The statement that gives them.
        grant: String,
    },
    /// PostgreSQL refused something else.
    #[error("PostgreSQL says: {0}")]
    Database(String),
}

impl Error {
    /// Whether another try in a while may help, without anybody doing anything.
    pub fn passes(&self) -> bool {
        matches!(self, Error::Unreachable { .. } | Error::Database(_))
    }
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Error {
        Error::Database(database::said(&error))
    }
}
