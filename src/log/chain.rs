//! The hash chain: each batch's value covers the one before, so that an edit, a gap, a swap or a cut shows.
//!
//! Never knows what it hashes.

use std::fmt;

use sha2::{Digest, Sha256};

/// The chain's value after some batch.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Chain(pub [u8; 32]);

impl Chain {
    /// The value before the first batch.
    pub fn genesis() -> Chain {
        Chain(Sha256::digest(b"delivery-log/v1/genesis").into())
    }

    /// The value after a record numbered `n` whose stored bytes are `stored`, in pieces:
    /// SHA-256(0x02 ‖ this ‖ n as u64 BE ‖ length as u32 BE ‖ bytes).
    ///
    /// # Panics
    /// If the pieces are 4 GiB or more together.
    pub fn next(&self, n: u64, stored: &[&[u8]]) -> Chain {
        let len: usize = stored.iter().map(|piece| piece.len()).sum();
        let len = u32::try_from(len).expect("a record is far below 4 GiB");
        let mut hash = Sha256::new();
        hash.update([2]);
        hash.update(self.0);
        hash.update(n.to_be_bytes());
        hash.update(len.to_be_bytes());
        for piece in stored {
            hash.update(piece);
        }
        Chain(hash.finalize().into())
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_vectors() {
        let mut chain = Chain::genesis();
        assert_eq!(chain.to_string(), "f11be36f22d0b04383df654204a456bb1f613e9cb8e0f95e9766d008091f15ae");
        let steps: [(&[u8], &str); 3] = [
            (b"a", "3e4a905b005aea65c58e832d0a0868ead509b8b7c6c199f8617ff06920be6719"),
            (b"bb", "47154e412059663b5f42b939c851379bc13c79d06c1b423da689ff8feb2cb856"),
            (b"", "583101b370477a2fb50f5ed21e55fcd27464f2cbda77cdbf590d33b8c15da417"),
        ];
        for (n, (stored, expected)) in steps.into_iter().enumerate() {
            chain = chain.next(n as u64, &[stored]);
            assert_eq!(chain.to_string(), expected);
        }
    }

    #[test]
    fn pieces_hash_as_one() {
        let chain = Chain::genesis();
        assert_eq!(chain.next(7, &[b"ab", b"", b"c"]), chain.next(7, &[b"abc"]));
        assert_ne!(chain.next(7, &[b"abc"]), chain.next(8, &[b"abc"]));
    }
}
