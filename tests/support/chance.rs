//! Chance from a seed, so that a run can be told what to draw. Stands in for: luck.

/// Draws numbers: the same seed, the same numbers.
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    /// From a seed.
    pub fn new(seed: u64) -> Draw {
        Draw(seed)
    }

    /// The seed that `HOOKLOG_TEST_SEED` asks for, else this one. Print it.
    pub fn seed(or: u64) -> u64 {
        std::env::var("HOOKLOG_TEST_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(or)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        // A Weyl sequence through two multiplications: enough for tests.
        self.0 = self.0.wrapping_add(0xa076_1d64_78bd_642f);
        let mut x = self.0;
        x = (x ^ (x >> 32)).wrapping_mul(0xe703_7ed1_a0b4_28db);
        x = (x ^ (x >> 29)).wrapping_mul(0x8ebc_6af0_9c88_c6e3);
        x ^ (x >> 32)
    }

    /// A number below `end`, which is at least 1.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    /// True in so many of a hundred cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Bytes that do not compress, as text.
    pub fn text(&mut self, bytes: usize) -> String {
        const DIGITS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
        let mut text = String::with_capacity(bytes + 10);
        while text.len() < bytes {
            let mut number = self.number();
            for _ in 0..10 {
                text.push(DIGITS[(number & 63) as usize] as char);
                number >>= 6;
            }
        }
        text.truncate(bytes);
        text
    }
}
