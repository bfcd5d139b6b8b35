//! The relay: takes rows, hands them over, deletes them, again and again, over any crash of either side.
//!
//! Several may run at once, in one process or many: each takes rows that no other holds. Never decides what an event
//! is, and never gives a row up: what is not taken in stays, what never will be is set aside with the reason.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use hooklog_projections::time::Millis;
use tokio_util::sync::CancellationToken;

use super::batch::hand_over;
use super::database::{Session, within};
use super::rows::{DATA_BYTES_MAX, ROWS_MAX, Statements};
use super::{Address, Error, Intake, Table, schema};
use crate::clock::Clock;

/// Connections of one relay: while one waits for Hooklog's disk, the other one reads and deletes.
const LANES: usize = 2;
/// Between two looks when there was nothing and nobody says that there is something, unless told otherwise.
pub const POLL: Duration = Duration::from_millis(500);
/// After trouble: the first pause and the longest.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// An account whose quota is used up is left alone for so long.
const FULL_FOR_MS: u64 = 5_000;
/// A row that broke something in the server is left alone for so long.
const BROKE_FOR_MS: u64 = 60_000;
/// Accounts or rows that are left alone at a time; beyond, everything is paused.
const LEFT_ALONE_MAX: usize = 1_000;

/// Hands rows over.
pub struct Relay<'a> {
    address: Address,
    table: Table,
    intake: &'a dyn Intake,
    clock: Arc<dyn Clock>,
    poll: Duration,
}

/// What a look at the table came to.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    /// So many rows were found.
    Moved(i64),
    /// There is no use in going on at once.
    Trouble(String),
}

impl<'a> Relay<'a> {
    /// A relay from a table to a Hooklog.
    pub fn new(address: Address, table: Table, intake: &'a dyn Intake, clock: Arc<dyn Clock>) -> Relay<'a> {
        Relay { address, table, intake, clock, poll: POLL }
    }

    /// Looks so often when nobody says that there is something: [`POLL`] unless told.
    pub fn polling(self, poll: Duration) -> Relay<'a> {
        Relay { poll, ..self }
    }

    /// Runs until it is told to stop; what is being handed over then is ended first.
    pub async fn run(&self, stop: &CancellationToken) {
        join_all((0..LANES).map(|lane| self.lane(lane, stop))).await;
    }

    async fn lane(&self, lane: usize, stop: &CancellationToken) {
        let mut pauses = Pauses::default();
        while !stop.is_cancelled() {
            if let Err(error) = self.session(lane, stop, &mut pauses).await {
                let pause = pauses.next();
                tracing::warn!(%error, pause_ms = pause.as_millis() as u64, "the outbox cannot be used: trying again");
                wait(pause, stop).await;
            }
        }
    }

    /// One connection, for as long as it holds.
    async fn session(&self, lane: usize, stop: &CancellationToken, pauses: &mut Pauses) -> Result<(), Error> {
        let session = self.address.connect().await?;
        schema::check(&session, &self.table).await?;
        within(session.client.batch_execute(&format!("LISTEN {}", schema::CHANNEL))).await?;
        let statements = Statements::prepare(&session, &self.table).await?;
        if lane == 0 {
            tracing::info!(at = self.address.at(), table = %self.table, "handing over from the outbox");
        }
        let mut left = LeftAlone::default();
        while !stop.is_cancelled() {
            match self.turn(&session, &statements, &mut left).await? {
                Turn::Moved(rows) => {
                    pauses.reset();
                    if rows < ROWS_MAX {
                        tokio::select! {
                            () = session.woken.notified() => {}
                            () = wait(self.poll, stop) => {}
                        }
                    }
                }
                Turn::Trouble(why) => {
                    let pause = pauses.next();
                    tracing::warn!(
                        why,
                        pause_ms = pause.as_millis() as u64,
                        "rows stay in the outbox for now"
                    );
                    wait(pause, stop).await;
                }
            }
        }
        Ok(())
    }

    /// One transaction: rows taken, handed over, deleted or set aside.
    async fn turn(
        &self,
        session: &Session,
        statements: &Statements,
        left: &mut LeftAlone,
    ) -> Result<Turn, Error> {
        let client = &session.client;
        left.forget(self.clock.monotonic());
        within(client.batch_execute("BEGIN")).await?;
        let mut rows = statements.take(session, &left.accounts(), &left.rows()).await?;
        let found = rows.len() as i64;
        if found == 0 {
            within(client.batch_execute("COMMIT")).await?;
            return Ok(Turn::Moved(0));
        }
        for row in rows.iter_mut().filter(|row| row.data.is_none() && row.data_bytes <= DATA_BYTES_MAX) {
            row.data = Some(statements.data(session, &row.id).await?);
        }
        let handed = hand_over(self.intake, &rows).await;
        if !handed.taken.is_empty() {
            statements.delete(session, &handed.taken).await?;
        }
        if !handed.refused.is_empty() {
            statements.set_aside(session, &handed.refused).await?;
        }
        within(client.batch_execute("COMMIT")).await?;
        for (row, error) in &handed.refused {
            tracing::warn!(row, error, "a row of the outbox is refused: it is set aside");
        }
        let now = self.clock.monotonic().0;
        for account in handed.full {
            tracing::debug!(account, "the account's quota is used up: its rows wait");
            left.accounts.insert(account, Millis(now + FULL_FOR_MS));
        }
        for row in handed.broke {
            tracing::error!(row, "the server breaks over this row: it is left alone for a minute");
            left.rows.insert(row, Millis(now + BROKE_FOR_MS));
        }
        if left.accounts.len().max(left.rows.len()) > LEFT_ALONE_MAX {
            return Ok(Turn::Trouble("too many accounts or rows are not taken".into()));
        }
        Ok(handed.trouble.map_or(Turn::Moved(found), Turn::Trouble))
    }
}

/// Accounts and rows that are not taken until then.
#[derive(Default)]
struct LeftAlone {
    accounts: HashMap<String, Millis>,
    rows: HashMap<String, Millis>,
}

impl LeftAlone {
    fn forget(&mut self, now: Millis) {
        self.accounts.retain(|_, until| *until > now);
        self.rows.retain(|_, until| *until > now);
    }

    fn accounts(&self) -> Vec<String> {
        self.accounts.keys().cloned().collect()
    }

    fn rows(&self) -> Vec<String> {
        self.rows.keys().cloned().collect()
    }
}

/// Pauses that double.
#[derive(Default)]
struct Pauses(Option<Duration>);

impl Pauses {
    fn next(&mut self) -> Duration {
        let pause = self.0.map_or(PAUSE, |last| (last * 2).min(PAUSE_MAX));
        self.0 = Some(pause);
        pause
    }

    fn reset(&mut self) {
        self.0 = None;
    }
}

async fn wait(pause: Duration, stop: &CancellationToken) {
    let _ = tokio::time::timeout(pause, stop.cancelled()).await;
}
