//! The way of one attempt: how long its parts took, and which connection it went out on. For people to read;
//! no fold looks at it and no decision hangs on it.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::policy::Text;
use crate::time::{Micros, Millis};

/// How an attempt went. A part that did not take place is `None`: on a kept connection nothing is connected,
/// and what failed has nothing after it. Of a request that was sent again, the parts of its second way.
///
/// In the log it is a positional list: some 20 bytes, most parts being small numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Course {
    /// From when it was due until the client had it: holds, its turn, the commit, reading its body.
    pub queue: Millis,
    /// Resolving the name.
    pub dns: Option<Micros>,
    /// Until TCP was connected, to whichever address was first.
    pub connect: Option<Micros>,
    /// The TLS handshake.
    pub tls: Option<Micros>,
    /// From handing over the request to the first byte that came back.
    pub first_byte: Option<Micros>,
    /// From the whole head to the end of the body, or to where reading ended.
    pub body: Option<Micros>,
    /// Whether the connection it last went out on had served another request before.
    pub reused: bool,
    /// Whether it was sent a second time, because the kept connection it first went out on was closed under it.
    pub resent: bool,
    /// Addresses that were tried in vain, before or beside the one that was spoken to last.
    pub in_vain: Vec<Text>,
}
