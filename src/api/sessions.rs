//! Sessions of people: who has exchanged a link or a key, for how long, and the tokens that tell our own pages
//! from others' (rules A15 and A16). In memory only: a restart ends them all.
//!
//! Never knows what a session does, nor what opens one.

use std::collections::HashMap;
use std::sync::Mutex;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use hooklog_projections::time::Millis;
use sha2::Sha256;
use zeroize::Zeroizing;

use super::token;
use crate::clock::{Chance, SystemChance};

/// A session that asks nothing for so long is over.
pub(super) const IDLE: Millis = Millis::from_secs(30 * 60);
/// No session is longer.
pub(super) const WHOLE: Millis = Millis::from_secs(8 * 3_600);
/// Sessions at a time; beyond, the one that asked longest ago ends.
const SESSIONS_MAX: usize = 10_000;
const RANDOM_BYTES: usize = 16;

/// What a session is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Session<W> {
    /// Whose it is.
    pub who: W,
    began: Millis,
    seen: Millis,
}

/// All of them, by the hash of their secret.
pub(super) struct Sessions<W> {
    open: Mutex<HashMap<[u8; 32], Session<W>>>,
    key: Zeroizing<[u8; 32]>,
}

impl<W> Session<W> {
    fn lives(&self, now: Millis) -> bool {
        now.0 < self.seen.0 + IDLE.0 && now.0 < self.began.0 + WHOLE.0
    }

    /// How long it can live at most from now on.
    pub(super) fn left(&self, now: Millis) -> Millis {
        Millis((self.began.0 + WHOLE.0).saturating_sub(now.0))
    }
}

impl<W: Clone> Sessions<W> {
    pub(super) fn new() -> Sessions<W> {
        Sessions { open: Mutex::default(), key: Zeroizing::new(SystemChance.bytes()) }
    }

    /// Begins a session; its secret, for the cookie. Moments are the monotonic clock's.
    pub(super) fn begin(&self, who: W, now: Millis) -> (Zeroizing<String>, Session<W>) {
        let secret = token::drawn_secret();
        let session = Session { who, began: now, seen: now };
        let mut open = self.open.lock().expect("no holder panics");
        if open.len() >= SESSIONS_MAX {
            open.retain(|_, session| session.lives(now));
            let oldest = open.iter().min_by_key(|(_, session)| session.seen).map(|(hash, _)| *hash);
            if let Some(oldest) = oldest.filter(|_| open.len() >= SESSIONS_MAX) {
                open.remove(&oldest);
            }
        }
        open.insert(token::hash(&secret).0, session.clone());
        (secret, session)
    }

    /// The session of a secret, which has asked something now.
    pub(super) fn look(&self, secret: &str, now: Millis) -> Option<Session<W>> {
        let hash = token::hash(secret).0;
        let mut open = self.open.lock().expect("no holder panics");
        let session = open.get_mut(&hash)?;
        if !session.lives(now) {
            open.remove(&hash);
            return None;
        }
        session.seen = now;
        Some(session.clone())
    }

    /// Whether the session of a secret goes on; that is nothing which it asked.
    pub(super) fn lives(&self, secret: &str, now: Millis) -> bool {
        let open = self.open.lock().expect("no holder panics");
        open.get(&token::hash(secret).0).is_some_and(|session| session.lives(now))
    }

    /// Ends the session of a secret.
    pub(super) fn end(&self, secret: &str) {
        self.open.lock().expect("no holder panics").remove(&token::hash(secret).0);
    }

    /// Ends all sessions of those who are meant; how many lived.
    pub(super) fn end_all(&self, meant: impl Fn(&W) -> bool, now: Millis) -> usize {
        let mut open = self.open.lock().expect("no holder panics");
        let lived = open.values().filter(|session| meant(&session.who) && session.lives(now)).count();
        open.retain(|_, session| !meant(&session.who));
        lived
    }

    /// A token that our pages send with every change; good as long as the session.
    pub(super) fn csrf_token(&self, secret: &str) -> String {
        let random: [u8; RANDOM_BYTES] = SystemChance.bytes();
        let tag = self.tag(secret, &random).finalize().into_bytes();
        URL_SAFE_NO_PAD.encode([random.as_slice(), &tag].concat())
    }

    /// Whether a token was given to the session of a secret.
    pub(super) fn knows_csrf(&self, secret: &str, token: &str) -> bool {
        let Ok(bytes) = URL_SAFE_NO_PAD.decode(token) else { return false };
        match bytes.split_first_chunk::<RANDOM_BYTES>() {
            Some((random, tag)) => self.tag(secret, random).verify_slice(tag).is_ok(),
            None => false,
        }
    }

    fn tag(&self, secret: &str, random: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key[..]).expect("a key of any length will do");
        mac.update(&token::hash(secret).0);
        mac.update(random);
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begin(sessions: &Sessions<u32>, who: u32, now: Millis) -> Zeroizing<String> {
        sessions.begin(who, now).0
    }

    #[test]
    fn a_session_ends_when_it_idles_and_when_its_time_is_over() {
        let sessions = Sessions::new();
        let (idle, busy) = (begin(&sessions, 1, Millis(0)), begin(&sessions, 1, Millis(0)));
        let mut now = Millis(0);
        while now < WHOLE {
            assert!(sessions.look(&busy, now).is_some(), "{now:?}");
            now = Millis(now.0 + IDLE.0 - 1);
        }
        assert_eq!(sessions.look(&busy, WHOLE), None, "whatever it asked");
        assert_eq!(sessions.look(&idle, IDLE), None);
        assert_eq!(sessions.look("", Millis(0)), None);
    }

    #[test]
    fn ending_acts_at_once_and_on_its_own() {
        let sessions = Sessions::new();
        let [one, two, other] = [1, 1, 2].map(|who| begin(&sessions, who, Millis(0)));
        sessions.end(&one);
        assert!(sessions.look(&one, Millis(1)).is_none() && sessions.look(&two, Millis(1)).is_some());
        assert_eq!(sessions.end_all(|who| *who == 1, Millis(1)), 1);
        assert!(sessions.look(&two, Millis(1)).is_none() && sessions.look(&other, Millis(1)).is_some());
    }

    #[test]
    fn a_csrf_token_is_its_own_sessions() {
        let (sessions, others) = (Sessions::<u32>::new(), Sessions::<u32>::new());
        let token = sessions.csrf_token("one");
        assert!(sessions.knows_csrf("one", &token));
        assert!(sessions.knows_csrf("one", &sessions.csrf_token("one")), "each page has another");
        assert!(!sessions.knows_csrf("two", &token) && !others.knows_csrf("one", &token));
        for wrong in ["", "AAAA", &token[..token.len() - 1], &format!("{token}A")] {
            assert!(!sessions.knows_csrf("one", wrong), "{wrong}");
        }
    }

    #[test]
    fn the_number_of_sessions_is_bounded() {
        let sessions = Sessions::new();
        let first = begin(&sessions, 1, Millis(0));
        let last = (0..SESSIONS_MAX).map(|_| begin(&sessions, 1, Millis(1))).last().expect("there is one");
        assert!(sessions.look(&first, Millis(1)).is_none() && sessions.look(&last, Millis(1)).is_some());
        assert_eq!(sessions.open.lock().expect("no panic").len(), SESSIONS_MAX);
    }
}
