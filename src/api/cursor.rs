//! Cursors: where the next page of one list starts, in a text that only this store made and only this list
//! takes. Sixteen bytes of position (a public id, so that no log position is shown) and sixteen of a tag.
//!
//! Never knows what a list shows.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::problem::{Kind, Problem};
use crate::secrets::MasterKey;

const POSITION_BYTES: usize = 16;
const TAG_BYTES: usize = 16;

/// Makes and reads cursors.
pub struct Cursors {
    key: Zeroizing<[u8; 32]>,
}

impl Cursors {
    /// Those of a store.
    pub fn new(master: &MasterKey) -> Cursors {
        Cursors { key: master.derive(b"hooklog/cursor/v1") }
    }

    /// The cursor of a position in the list that `list` describes: its route and every filter.
    pub fn write(&self, list: &str, position: u128) -> String {
        let position = position.to_be_bytes();
        URL_SAFE_NO_PAD.encode([position, self.tag(list, &position)].concat())
    }

    /// The position in a cursor of the same list.
    ///
    /// # Errors
    /// 400 for any other text.
    pub fn read(&self, list: &str, text: &str) -> Result<u128, Problem> {
        let foreign = || {
            let detail = "the cursor is not of this list: cursors hold for the filters they were given with; \
                          start without one";
            Problem::new(Kind::BadCursor, detail)
        };
        if text.len() > 64 {
            return Err(foreign());
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| foreign())?;
        let (position, tag) = bytes.split_first_chunk::<POSITION_BYTES>().ok_or_else(foreign)?;
        if bool::from(self.tag(list, position).as_slice().ct_eq(tag)) {
            Ok(u128::from_be_bytes(*position))
        } else {
            Err(foreign())
        }
    }

    fn tag(&self, list: &str, position: &[u8; POSITION_BYTES]) -> [u8; TAG_BYTES] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key[..]).expect("a key of any length will do");
        mac.update(position);
        mac.update(list.as_bytes());
        let whole = mac.finalize().into_bytes();
        *whole.first_chunk().expect("there are 32")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursors(fill: u8) -> Cursors {
        Cursors::new(&MasterKey::from_bytes(Zeroizing::new([fill; 32])))
    }

    #[test]
    fn a_cursor_holds_for_its_own_list_and_store() {
        let text = cursors(1).write("deliveries a", 42);
        assert_eq!(cursors(1).read("deliveries a", &text).expect("its own"), 42);
        assert!(cursors(1).read("deliveries b", &text).is_err());
        assert!(cursors(2).read("deliveries a", &text).is_err());
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).expect("ASCII");
            assert!(cursors(1).read("deliveries a", &changed).is_err(), "{changed}");
            assert!(cursors(1).read("deliveries a", &text[..at]).is_err());
        }
        assert!(cursors(1).read("deliveries a", &"A".repeat(10_000)).is_err());
    }
}
