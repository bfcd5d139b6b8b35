//! The statements on the outbox's rows: take some, fetch what is large, delete, set aside, count, give back.
//!
//! Never knows Hooklog's answers, only what they came to.

use serde::Serialize;
use tokio_postgres::Statement;
use uuid::Uuid;

use super::database::{Session, within};
use super::{Error, Table};

/// Rows that are taken at a time: what the API takes as a batch.
pub(super) const ROWS_MAX: i64 = 500;
/// Data up to here comes along with its row; what is larger is fetched by itself, so that a batch's memory is bounded.
const INLINE_BYTES_MAX: i32 = 64 << 10;
/// Data beyond this is not even fetched: no Hooklog takes it.
pub(super) const DATA_BYTES_MAX: i32 = 8 << 20;
/// Refused rows that are shown.
const SHOWN_MAX: i64 = 100;

/// A row that was taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    pub id: String,
    pub account: String,
    pub event_type: String,
    /// Its data, if it came along.
    pub data: Option<String>,
    pub data_bytes: i32,
    pub event_id: Option<String>,
    pub endpoint: Option<String>,
    pub deliver_at: Option<String>,
    pub expire_at: Option<String>,
    pub max_tries: Option<i32>,
}

/// A row's id, and why it is set aside.
pub(super) type SetAside = (String, String);

/// What a relay asks again and again, prepared.
pub(super) struct Statements {
    take: Statement,
    data: Statement,
    delete: Statement,
    set_aside: Statement,
}

/// A moment as the API reads it. What is no moment (`infinity`) goes as it is, and is refused by name.
fn moment(column: &str) -> String {
    format!(
        "CASE WHEN isfinite({column}) THEN to_char({column} AT TIME ZONE 'UTC', 'FMYYYY-MM-DD\"T\"HH24:MI:SS.MS\"Z\"')
              ELSE {column}::text END"
    )
}

impl Statements {
    pub(super) async fn prepare(session: &Session, table: &Table) -> Result<Statements, Error> {
        let (client, table) = (&session.client, table.quoted());
        let (deliver_at, expire_at) = (moment("deliver_at"), moment("expire_at"));
        let take = format!(
            "SELECT id::text, account, type, octet_length(data::text),
                    CASE WHEN octet_length(data::text) <= {INLINE_BYTES_MAX} THEN data::text END,
                    event_id, endpoint, {deliver_at}, {expire_at}, max_tries
             FROM {table}
             WHERE refused_at IS NULL AND account <> ALL($1) AND id <> ALL($2::text[]::uuid[])
             ORDER BY created_at LIMIT {ROWS_MAX} FOR UPDATE SKIP LOCKED"
        );
        let data = format!("SELECT data::text FROM {table} WHERE id = $1::text::uuid");
        let delete = format!("DELETE FROM {table} WHERE id = ANY($1::text[]::uuid[])");
        let set_aside = format!(
            "UPDATE {table} AS t SET refused_at = clock_timestamp(), error = r.error
             FROM unnest($1::text[], $2::text[]) AS r (id, error) WHERE t.id = r.id::uuid"
        );
        Ok(Statements {
            take: within(client.prepare(&take)).await?,
            data: within(client.prepare(&data)).await?,
            delete: within(client.prepare(&delete)).await?,
            set_aside: within(client.prepare(&set_aside)).await?,
        })
    }

    /// Rows that nobody else holds, the oldest first. Within a transaction.
    pub(super) async fn take(
        &self,
        session: &Session,
        but_of: &[String],
        but: &[String],
    ) -> Result<Vec<Row>, Error> {
        let found = within(session.client.query(&self.take, &[&but_of, &but])).await?;
        Ok(found.iter().map(read).collect::<Result<_, _>>()?)
    }

    /// The data of a row that was too large to come along.
    pub(super) async fn data(&self, session: &Session, id: &str) -> Result<String, Error> {
        Ok(within(session.client.query_one(&self.data, &[&id])).await?.try_get(0)?)
    }

    pub(super) async fn delete(&self, session: &Session, ids: &[String]) -> Result<(), Error> {
        within(session.client.execute(&self.delete, &[&ids])).await.map(drop)
    }

    pub(super) async fn set_aside(&self, session: &Session, rows: &[SetAside]) -> Result<(), Error> {
        let (ids, errors): (Vec<&str>, Vec<&str>) =
            rows.iter().map(|(id, error)| (id.as_str(), error.as_str())).unzip();
        within(session.client.execute(&self.set_aside, &[&ids, &errors])).await.map(drop)
    }
}

fn read(row: &tokio_postgres::Row) -> Result<Row, tokio_postgres::Error> {
    Ok(Row {
        id: row.try_get(0)?,
        account: row.try_get(1)?,
        event_type: row.try_get(2)?,
        data_bytes: row.try_get(3)?,
        data: row.try_get(4)?,
        event_id: row.try_get(5)?,
        endpoint: row.try_get(6)?,
        deliver_at: row.try_get(7)?,
        expire_at: row.try_get(8)?,
        max_tries: row.try_get(9)?,
    })
}

/// How an outbox stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// Rows that are to be handed over.
    pub waiting: i64,
    /// How long the oldest of them has been there, by the database's clock; 0 if there is none.
    pub oldest_ms: i64,
    /// Rows that were set aside.
    pub refused: i64,
    /// Those of them that were set aside last.
    pub refused_rows: Vec<Refused>,
}

/// A row that Hooklog refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refused {
    /// Its id.
    pub id: String,
    /// Whose event.
    pub account: String,
    /// Its type.
    pub r#type: String,
    /// The event's id, if it has one of its own.
    pub event_id: Option<String>,
    /// When it was refused.
    pub refused_at: String,
    /// Why.
    pub error: String,
}

/// How the outbox stands.
///
/// # Errors
/// Those of the database.
pub async fn standing(session: &Session, table: &Table) -> Result<Standing, Error> {
    let table = table.quoted();
    let counts = format!(
        "SELECT count(*) FILTER (WHERE refused_at IS NULL), count(*) FILTER (WHERE refused_at IS NOT NULL),
                coalesce(extract(epoch FROM clock_timestamp() - min(created_at) FILTER (WHERE refused_at IS NULL))
                    * 1000, 0)::bigint
         FROM {table}"
    );
    let counts = within(session.client.query_one(&counts, &[])).await?;
    let refused_at = moment("refused_at");
    let rows = format!(
        "SELECT id::text, account, type, event_id, {refused_at}, coalesce(error, '') FROM {table}
         WHERE refused_at IS NOT NULL ORDER BY refused_at DESC, id LIMIT {SHOWN_MAX}"
    );
    let mut refused_rows = Vec::new();
    for row in within(session.client.query(&rows, &[])).await? {
        refused_rows.push(Refused {
            id: row.try_get(0)?,
            account: row.try_get(1)?,
            r#type: row.try_get(2)?,
            event_id: row.try_get(3)?,
            refused_at: row.try_get(4)?,
            error: row.try_get(5)?,
        });
    }
    Ok(Standing {
        waiting: counts.try_get(0)?,
        refused: counts.try_get(1)?,
        oldest_ms: counts.try_get::<_, i64>(2)?.max(0),
        refused_rows,
    })
}

/// Gives refused rows back to be handed over: these, or all. Answers which there were.
///
/// # Errors
/// Those of the database.
pub async fn retry(session: &Session, table: &Table, ids: Option<&[Uuid]>) -> Result<Vec<String>, Error> {
    let texts: Vec<String> = ids.unwrap_or_default().iter().map(Uuid::to_string).collect();
    let all = ids.is_none();
    let update = format!(
        "UPDATE {} SET refused_at = NULL, error = NULL
         WHERE refused_at IS NOT NULL AND ($1 OR id = ANY($2::text[]::uuid[])) RETURNING id::text",
        table.quoted()
    );
    let rows = within(session.client.query(&update, &[&all, &texts])).await?;
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
}
