//! The table of the outbox: what it is made with, its version, and who may do what with it.
//!
//! The version stands in the table's comment, so it goes along with dumps and copies and costs no second table.
//! Never changes a table that is there.

use std::fmt;
use std::str::FromStr;

use super::Error;
use super::database::{Session, said, within};

/// The version of the table that this Hooklog makes and knows.
pub const VERSION: u32 = 1;
/// The table's name, unless it has another.
pub const TABLE: &str = "hooklog_outbox";
/// The channel that a relay listens on.
pub const CHANNEL: &str = "hooklog_outbox";
/// How the comment begins; the version follows.
const MARK: &str = "hooklog outbox, version ";

/// A table's name, with the schema that it is in if it is not found without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    schema: Option<String>,
    name: String,
}

impl Default for Table {
    fn default() -> Table {
        Table { schema: None, name: TABLE.into() }
    }
}

impl FromStr for Table {
    type Err = Error;

    fn from_str(text: &str) -> Result<Table, Error> {
        // As PostgreSQL has it without quotes: 63 bytes, and no capitals that it would lower.
        let fits = |word: &str| {
            let first = word.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b == b'_');
            first
                && word.len() <= 63
                && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
        };
        let (schema, name) = match text.split_once('.') {
            Some((schema, name)) => (Some(schema), name),
            None => (None, text),
        };
        if !fits(name) || !schema.is_none_or(fits) {
            return Err(Error::Name(text.escape_default().to_string()));
        }
        Ok(Table { schema: schema.map(str::to_owned), name: name.into() })
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(f, "{schema}.{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl Table {
    /// The name as it stands in statements: words such as `order` are names, too.
    pub(super) fn quoted(&self) -> String {
        match &self.schema {
            Some(schema) => format!("\"{schema}\".\"{}\"", self.name),
            None => format!("\"{}\"", self.name),
        }
    }

    /// What makes the table.
    pub fn sql(&self) -> String {
        let (table, name) = (self.quoted(), &self.name);
        format!(
            r#"CREATE TABLE {table} (
    id          uuid        NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY,
    account     text        NOT NULL,  -- whose event it is: acct_…
    type        text        NOT NULL,  -- payment.settled
    data        json        NOT NULL,  -- goes out byte for byte; jsonb would write it anew
    event_id    text,                  -- unique in its account; else the row's id is the event's
    endpoint    text,                  -- to this one only: ep_…
    deliver_at  timestamptz,           -- not before
    expire_at   timestamptz,           -- of no use after
    max_tries   integer,               -- in place of the schedule's
    created_at  timestamptz NOT NULL DEFAULT now(),
    refused_at  timestamptz,           -- set by the relay, with the reason
    error       text
);
CREATE INDEX "{name}_waiting" ON {table} (created_at) WHERE refused_at IS NULL;
COMMENT ON TABLE {table} IS '{MARK}{VERSION}';
"#
        )
    }

    /// What lets a relay's user do its work, and an application's user write.
    pub fn grants(&self, relay: &str, application: &str) -> String {
        let table = self.quoted();
        format!("{}\nGRANT INSERT ON {table} TO {application};\n", self.relay_grant(relay))
    }

    fn relay_grant(&self, relay: &str) -> String {
        format!("GRANT SELECT, DELETE, UPDATE (refused_at, error) ON {} TO {relay};", self.quoted())
    }
}

/// Whether [`init`] had anything to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// It made the table.
    Now,
    /// The table was there.
    Before,
}

/// Makes the table, unless it is there.
///
/// # Errors
/// A table of that name that is not this version's; a user who may not make one; a database of another encoding.
pub async fn init(session: &Session, table: &Table) -> Result<Made, Error> {
    match version(session, table).await {
        Err(Error::NoTable { .. }) => {}
        other => return other.map(|()| Made::Before),
    }
    let sql = format!("BEGIN; {} COMMIT", table.sql());
    if let Err(error) = session.client.batch_execute(&sql).await {
        let _ = session.client.batch_execute("ROLLBACK").await;
        // Somebody else may have made it in the same moment.
        return match version(session, table).await {
            Ok(()) => Ok(Made::Before),
            Err(_) => Err(Error::Database(format!("{}; {table} was not made", said(&error)))),
        };
    }
    Ok(Made::Now)
}

/// Whether a relay can work on the table as this session's user.
///
/// # Errors
/// No such table, another version, missing rights; each says what to do.
pub async fn check(session: &Session, table: &Table) -> Result<(), Error> {
    version(session, table).await?;
    let name = table.quoted();
    let row = within(session.client.query_one(
        "SELECT has_table_privilege(t, 'SELECT') AND has_table_privilege(t, 'DELETE')
            AND has_column_privilege(t, 'refused_at', 'UPDATE') AND has_column_privilege(t, 'error', 'UPDATE'),
            current_user::text
         FROM (SELECT to_regclass($1)::oid AS t) AS x",
        &[&name],
    ))
    .await?;
    if row.try_get::<_, bool>(0)? {
        return Ok(());
    }
    let user: String = row.try_get(1)?;
    Err(Error::MissingRights { table: table.clone(), grant: table.relay_grant(&format!("\"{user}\"")), user })
}

async fn version(session: &Session, table: &Table) -> Result<(), Error> {
    let name = table.quoted();
    let row = within(session.client.query_one(
        "SELECT t IS NOT NULL, obj_description(t, 'pg_class'), current_user::text,
                current_setting('server_encoding')
         FROM (SELECT to_regclass($1)::oid AS t) AS x",
        &[&name],
    ))
    .await?;
    let encoding: String = row.try_get(3)?;
    if encoding != "UTF8" {
        return Err(Error::Encoding(encoding));
    }
    if !row.try_get::<_, bool>(0)? {
        return Err(Error::NoTable { table: table.clone(), user: row.try_get(2)? });
    }
    let comment: Option<String> = row.try_get(1)?;
    let mark = comment.as_deref().and_then(|text| text.strip_prefix(MARK));
    let digits = mark.map(|text| text.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default());
    match digits.and_then(|digits| digits.parse().ok()) {
        None => Err(Error::NotOurs { table: table.clone() }),
        Some(VERSION) => Ok(()),
        Some(found) => Err(Error::OtherVersion { table: table.clone(), found }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_and_quoted() {
        let table = |text: &str| text.parse::<Table>();
        assert_eq!(table("hooklog_outbox").unwrap(), Table::default());
        assert_eq!(table("shop.order").unwrap().quoted(), "\"shop\".\"order\"");
        let long = "a".repeat(64);
        for wrong in ["", ".", "a.", ".a", "a.b.c", "A", "a b", "a\"b", "a;b", "1a", "é", long.as_str()] {
            assert!(table(wrong).is_err(), "{wrong}");
        }
    }
}
