//! Policies as data: which waits between tries, which answers retry. Names and shapes only.
//!
//! Never decides: waits are chosen in `hooklog::scheduler`, answers judged in `hooklog::delivery`.

use alloc::boxed::Box;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::time::Millis;

/// A retry schedule: a named preset or a list of one's own. The number of tries is the waits plus one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// 1 min, 5 min, 30 min, 2 h, 12 h, ± 10 %: the implementation plan's text.
    Ledger,
    /// 5 min, 30 min, 2 h, 12 h, ± 10 %: the implementation plan's code sketch taken literally.
    #[serde(rename = "ledger-5")]
    Ledger5,
    /// 10 s doubling to 1 h, + 0–10 %, 30 tries.
    Ukue,
    /// The example gaps of the Standard Webhooks specification: 5 s to 24 h, ten tries.
    StandardWebhooks,
    /// Waits of one's own.
    Custom {
        /// The waits before try 2, 3, ….
        waits: Vec<Millis>,
        /// The spread around each wait.
        jitter: Jitter,
    },
}

/// How far a wait may stray from its nominal length, in whole percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Jitter {
    /// At most this much shorter.
    pub minus_percent: u8,
    /// At most this much longer.
    pub plus_percent: u8,
}

/// Which answers are a success, a reason to try again, or the end. The table is `hooklog::delivery::classify`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResponsePolicy {
    /// The architecture note: 4xx dead at once, but for those that ask to come again.
    Ledger,
    /// Every 4xx is dead at once.
    LedgerStrict,
    /// Only 410 is dead.
    Ukue,
    /// Every non-2xx retries, 410 disables.
    StandardWebhooks,
}

/// Why no answer counts. `Interrupted`, `NotSent` and `LeaseExpired` come from the engine, `Worker` from a worker
/// of a queue, all others from the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// The host name has no usable address, or the resolver did not answer in time.
    Dns,
    /// No connection: refused, unreachable, or not within the connect time-out.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// The total time-out passed.
    Timeout,
    /// The connection ended before a whole response head.
    Closed,
    /// What came back is not an HTTP/1.1 response.
    Protocol,
    /// The guard refused the address or URL; no connection was made.
    EgressDenied,
    /// The process ended while the attempt ran; its outcome is unknown.
    Interrupted,
    /// The attempt was recorded, but the request never left (a drain, or its body could not be read).
    NotSent,
    /// A worker of a queue said that the job failed; the detail is its own words.
    Worker,
    /// A worker of a queue was not heard of until its lease was over; its outcome is unknown.
    LeaseExpired,
}

/// Whether an account's failed deliveries are retried (the plan's flag `webhook_retries`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rollout {
    /// As the global percentage says.
    #[default]
    Default,
    /// Always.
    On,
    /// Never: one try, recorded, dead on failure, and nobody is mailed.
    Off,
}

/// A text shorter than what it is kept in, by construction of the rim; kept apart for readers.
pub type Text = Box<str>;
