//! Values on disk: one version byte, then positional MessagePack. Fields are only appended, variants never
//! renamed; the golden files under `fixtures/logs/v1/facts` hold every fact to that.
//!
//! Never knows what a value means.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Error;

/// The first byte of every value written now.
pub const VERSION: u8 = 1;

/// A value as it is stored.
///
/// # Panics
/// If `T` cannot be serialised at all (a map of unknown length); no type of Hooklog's is so.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    let mut out = vec![VERSION];
    rmp_serde::encode::write(&mut out, value).expect("a value of known shape, written to memory");
    out
}

/// Reads a stored value back.
///
/// # Errors
/// [`Error::NewerFormat`] for a version this program does not know, [`Error::BadValue`] for bytes that are no
/// `T`, or more than one.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    let (version, mut rest) = bytes.split_first().ok_or_else(|| Error::BadValue("it is empty".into()))?;
    match *version {
        VERSION => {}
        0 => return Err(Error::BadValue("its version is 0".into())),
        newer => {
            return Err(Error::NewerFormat { what: "value", found: newer.into(), known: VERSION.into() });
        }
    }
    let value = rmp_serde::decode::from_read(&mut rest).map_err(|e| Error::BadValue(e.to_string()))?;
    if rest.is_empty() { Ok(value) } else { Err(Error::BadValue(format!("{} bytes too many", rest.len()))) }
}
