//! What every page says of the server itself, if there is something to say: that it takes nothing in, that its views
//! are folded anew, that deliveries are late through it.
//!
//! All of it is in memory. Never knows a page.

use hooklog_projections::time::Millis;

use super::{ApiState, health};
use crate::engine::health::LATE;

/// What there is to say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notices {
    /// Why nothing is taken in, if so.
    pub trouble: Option<String>,
    /// How many entries of how many are folded anew, if so.
    pub rebuilding: Option<(u64, u64)>,
    /// How late the caller's oldest due attempt is through us, if that is an alarm.
    pub late: Option<Millis>,
    /// Requests out.
    pub in_flight: u64,
}

/// What there is to say to the caller.
pub(crate) fn read(api: &ApiState) -> Notices {
    let engine = api.shared.handle.health();
    let late = health::late(api, api.caller.account);
    Notices {
        trouble: health::trouble(api),
        rebuilding: engine.rebuilding().map(|(upto, of)| (upto.0, of.0)),
        late: (late > LATE).then_some(late),
        in_flight: engine.in_flight(),
    }
}
