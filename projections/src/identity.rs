//! What a store is: its id, and the key of its public ids as it is sealed now. One row.
//!
//! Never knows a master key; what is sealed stays so.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::fact::{Entry, Fact, Sealed};
use crate::ids::StoreId;
use crate::tables::{Key, Table, Tables};

/// The store's one row.
pub struct Identity;

/// What the row holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreRow {
    /// Drawn once.
    pub store: StoreId,
    /// The key that turns log positions into public ids; opens under the store's master key.
    pub id_key: Sealed,
    /// The same under the master key that is to follow, while secrets are being sealed anew.
    pub resealing: Option<Sealed>,
}

/// The only key: a single zero, since no disk takes an empty one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TheStore;

impl Key for TheStore {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(0);
    }
    fn read(bytes: &[u8]) -> Option<Self> {
        (bytes == [0]).then_some(TheStore)
    }
}

impl Table for Identity {
    const NAME: &'static str = "identity";
    type Key = TheStore;
    type Value = StoreRow;
}

/// Folds the founding and whatever seals the store anew.
pub fn fold<T: Tables>(tables: &mut T, entry: &Entry) -> Result<(), T::Error> {
    match &entry.fact {
        Fact::Founded { store, id_key } => {
            let row = StoreRow { store: *store, id_key: id_key.clone(), resealing: None };
            tables.put::<Identity>(&TheStore, &row)
        }
        Fact::ResealBegan { id_key } => match tables.get::<Identity>(&TheStore)? {
            Some(row) => {
                let row = StoreRow { resealing: Some(id_key.clone()), ..row };
                tables.put::<Identity>(&TheStore, &row)
            }
            None => Ok(()),
        },
        Fact::Resealed { id_key } => match tables.get::<Identity>(&TheStore)? {
            Some(row) => {
                let row = StoreRow { id_key: id_key.clone(), resealing: None, ..row };
                tables.put::<Identity>(&TheStore, &row)
            }
            None => Ok(()),
        },
        _ => Ok(()),
    }
}
