//! Cursors: which way from where a page of one list leads, in a text that only this store made and only this list
//! takes. A byte for the way, sixteen of position (a public id, so that no log position is shown), eight that name
//! the list, and sixteen of a tag over all that.
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
use crate::views::Place;

/// The ways, which also tell this form of a cursor from any later one.
const AFTER: u8 = 1;
const UP_TO: u8 = 2;
const POSITION_BYTES: usize = 16;
const LIST_BYTES: usize = 8;
const TAG_BYTES: usize = 16;
const BYTES: usize = 1 + POSITION_BYTES + LIST_BYTES + TAG_BYTES;

/// Makes and reads cursors.
pub struct Cursors {
    key: Zeroizing<[u8; 32]>,
}

impl Cursors {
    /// Those of a store.
    pub fn new(master: &MasterKey) -> Cursors {
        Cursors { key: master.derive(b"hooklog/cursor/v2") }
    }

    /// The cursor of a place in the list that `list` describes: its route and every filter.
    ///
    /// # Panics
    /// For the first page, which has none.
    pub fn write(&self, list: &str, place: Place<u128>) -> String {
        let (way, position) = match place {
            Place::After(position) => (AFTER, position),
            Place::UpTo(position) => (UP_TO, position),
            Place::First => panic!("the first page of a list has no cursor"),
        };
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.push(way);
        bytes.extend(position.to_be_bytes());
        bytes.extend(self.name(list));
        bytes.extend(self.mac::<TAG_BYTES>(b"cursor", &bytes));
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The place in a cursor of the same list.
    ///
    /// # Errors
    /// 400 for a cursor of another list, account or filter, and for any other text.
    pub fn read(&self, list: &str, text: &str) -> Result<Place<u128>, Problem> {
        let wrong = || {
            let detail = "that is no cursor of this store: send `next_cursor` or `prev_cursor` of a page as it is, \
                          or start without one";
            Problem::new(Kind::BadCursor, detail)
        };
        if text.len() > 64 {
            return Err(wrong());
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| wrong())?;
        let bytes: [u8; BYTES] = bytes.try_into().map_err(|_| wrong())?;
        let (said, tag) = bytes.split_at(BYTES - TAG_BYTES);
        if !bool::from(self.mac::<TAG_BYTES>(b"cursor", said).ct_eq(tag)) {
            return Err(wrong());
        }
        let ([way], said) = said.split_first_chunk().ok_or_else(wrong)?;
        let (position, name) = said.split_first_chunk::<POSITION_BYTES>().ok_or_else(wrong)?;
        if name != self.name(list) {
            let detail = "the cursor is of another list, account or filter: send it with the parameters of the \
                          page that it came with, or start without one";
            return Err(Problem::new(Kind::BadCursor, detail));
        }
        let position = u128::from_be_bytes(*position);
        match *way {
            AFTER => Ok(Place::After(position)),
            UP_TO => Ok(Place::UpTo(position)),
            _ => Err(wrong()),
        }
    }

    fn name(&self, list: &str) -> [u8; LIST_BYTES] {
        self.mac(b"list", list.as_bytes())
    }

    fn mac<const N: usize>(&self, of: &[u8], bytes: &[u8]) -> [u8; N] {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key[..]).expect("a key of any length will do");
        mac.update(of);
        mac.update(bytes);
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
        for place in [Place::After(42), Place::UpTo(u128::MAX)] {
            let text = cursors(1).write("deliveries a", place);
            assert_eq!(cursors(1).read("deliveries a", &text).expect("its own"), place);
            let other = cursors(1).read("deliveries b", &text).expect_err("another list's");
            assert!(other.detail.contains("another list, account or filter"), "{}", other.detail);
            let other = cursors(2).read("deliveries a", &text).expect_err("another store's");
            assert!(other.detail.contains("no cursor of this store"), "{}", other.detail);
            for at in 0..text.len() {
                let mut changed = text.clone().into_bytes();
                changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
                let changed = String::from_utf8(changed).expect("ASCII");
                assert!(cursors(1).read("deliveries a", &changed).is_err(), "{changed}");
                assert!(cursors(1).read("deliveries a", &text[..at]).is_err());
            }
        }
        assert!(cursors(1).read("deliveries a", &"A".repeat(10_000)).is_err());
    }
}
