//! The outbox that the operator names: its database's URL, which is a secret, and its table.
//!
//! Never connects.

use std::path::Path;

use hooklog::outbox::{Address, Table};

use super::secret;
use crate::cli::exit::Failure;

/// A table of events in an application's database.
#[derive(Debug)]
pub struct Outbox {
    /// Where the database is.
    pub address: Address,
    /// The table in it.
    pub table: Table,
}

/// The outbox whose URL is in the environment or a file; none without.
///
/// # Errors
/// A URL or a name that means nothing.
pub fn outbox(file: Option<&Path>, table: Option<&str>) -> Result<Option<Outbox>, Failure> {
    let Some(url) = secret("HOOKLOG_OUTBOX_URL", file)? else { return Ok(None) };
    Ok(Some(Outbox { address: Address::parse(&url)?, table: outbox_table(table)? }))
}

/// The outbox's table.
///
/// # Errors
/// A name that means nothing.
pub fn outbox_table(name: Option<&str>) -> Result<Table, Failure> {
    Ok(name.map_or_else(|| Ok(Table::default()), str::parse)?)
}
