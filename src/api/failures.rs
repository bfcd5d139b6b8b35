//! Credentials that fail: counted by where they come from and by the account that they aim at, so that guessing
//! is slow and heard of (rule A18). A good key is taken all the while: an account is never locked.
//!
//! Never knows which credential it was.

use std::net::IpAddr;

use axum::http::HeaderMap;
use hooklog_projections::ids::AccountId;
use hooklog_projections::time::Millis;

use super::limits::Windows;
use super::problem::{Kind, Problem};
use super::quotas::Quota;

/// Failures of one network in five minutes.
pub const PER_SOURCE: u32 = 10;
/// Failures that aim at one account in an hour.
const PER_ACCOUNT: u32 = 20;
/// Failures of all networks in five minutes after which the alarm is raised, once each time.
const ALARM: u32 = 200;
const SPAN: Millis = Millis::from_secs(300);
const HOUR: Millis = Millis::from_secs(3_600);

/// A network: what one household, server or customer has. An IPv4 /24 or an IPv6 /64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    V4([u8; 3]),
    V6([u8; 8]),
}

impl Source {
    /// Where a request comes from. `hops` proxies before this server are trusted to have noted in
    /// `X-Forwarded-For` whom they heard it from; with none, the field is anybody's claim and is not looked at.
    pub(super) fn of(peer: Option<IpAddr>, headers: &HeaderMap, hops: usize) -> Option<Source> {
        let noted: Vec<&str> = headers
            .get_all("x-forwarded-for")
            .iter()
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .collect();
        let noted = noted.len().checked_sub(hops).filter(|_| hops > 0).and_then(|at| noted.get(at));
        let noted = noted.and_then(|text| text.trim().parse::<IpAddr>().ok());
        noted.or(peer).map(|address| match address.to_canonical() {
            IpAddr::V4(address) => Source::V4(*address.octets().first_chunk().expect("there are four")),
            IpAddr::V6(address) => Source::V6(*address.octets().first_chunk().expect("there are 16")),
        })
    }
}

/// What failed lately.
pub(super) struct Failures {
    sources: Windows<Source>,
    accounts: Windows<AccountId>,
    all: Windows<()>,
}

impl Failures {
    pub(super) fn new() -> Failures {
        Failures {
            sources: Windows::new(PER_SOURCE, SPAN),
            accounts: Windows::new(PER_ACCOUNT, HOUR),
            all: Windows::new(ALARM, SPAN),
        }
    }

    /// Whether a credential that might be guessed is looked at at all, now.
    pub(super) fn may_guess(&self, source: Option<Source>, now: Millis) -> bool {
        source.is_none_or(|source| self.sources.full(source, now).is_none())
    }

    /// The answer to a credential that failed: the same for one that is unknown, wrong, revoked or expired.
    pub(super) fn refuse(&self, source: Option<Source>, account: Option<AccountId>, now: Millis) -> Problem {
        let was_quiet = self.all.full((), now).is_none();
        let loud = self.all.take((), now).is_err() || self.all.full((), now).is_some();
        if was_quiet && loud {
            tracing::error!(failures = ALARM, "credentials fail again and again: somebody may be guessing");
        }
        let of_source = source.map(|source| Quota::take("failures-network", &self.sources, source, now));
        let of_account = account.map(|account| Quota::take("failures-account", &self.accounts, account, now));
        match of_source.into_iter().chain(of_account).find_map(Result::err) {
            None => Problem::new(Kind::Unauthorized, "the credential is not one that is taken here"),
            Some(quota) => quota.used_up("too many credentials failed lately; a good one is still taken"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(peer: &str, forwarded: &[&'static str], hops: usize) -> Option<Source> {
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append("x-forwarded-for", value.parse().expect("a value"));
        }
        Source::of(peer.parse().ok(), &headers, hops)
    }

    #[test]
    fn only_trusted_proxies_say_where_a_request_comes_from() {
        let (proxy, client) = (Some(Source::V4([10, 0, 0])), Some(Source::V4([203, 0, 113])));
        assert_eq!(source("10.0.0.1", &["203.0.113.9"], 0), proxy, "anybody's claim");
        assert_eq!(source("10.0.0.1", &["203.0.113.9"], 1), client);
        assert_eq!(source("10.0.0.1", &["1.2.3.4, 203.0.113.9"], 1), client, "what came before is a claim");
        assert_eq!(source("10.0.0.1", &["1.2.3.4", "203.0.113.9, 10.0.0.2"], 2), client);
        assert_eq!(source("10.0.0.1", &["203.0.113.9"], 2), proxy, "fewer than there are hops");
        assert_eq!(source("10.0.0.1", &["rubbish"], 1), proxy);
        assert_eq!(source("::ffff:203.0.113.200", &[], 0), client, "a mapped address is the one within");
        assert_eq!(source("2001:db8:1:2:3::4", &[], 0), source("2001:db8:1:2::9", &[], 0));
        assert_ne!(source("2001:db8:1:2::9", &[], 0), source("2001:db8:1:3::9", &[], 0));
    }

    #[test]
    fn failures_are_counted_by_network_and_by_account() {
        let failures = Failures::new();
        let (here, there) = (source("203.0.113.9", &[], 0), source("198.51.100.1", &[], 0));
        for _ in 0..PER_SOURCE {
            assert!(failures.may_guess(here, Millis(0)));
            assert_eq!(failures.refuse(here, None, Millis(0)).kind, Kind::Unauthorized);
        }
        let refused = failures.refuse(here, None, Millis(1_000));
        assert_eq!((refused.kind, refused.retry_after), (Kind::TooMany, Some(299)));
        assert_eq!(refused.quota.map(|quota| quota.name), Some("failures-network"));
        assert!(!failures.may_guess(here, Millis(1_000)));
        assert!(failures.may_guess(there, Millis(1_000)), "others are not meant");
        assert!(failures.may_guess(here, SPAN), "it ends");
        for n in 0..PER_ACCOUNT {
            let source = source(&format!("192.0.{n}.1"), &[], 0);
            assert_eq!(failures.refuse(source, Some(AccountId(1)), Millis(0)).kind, Kind::Unauthorized);
        }
        assert_eq!(failures.refuse(there, Some(AccountId(1)), Millis(0)).retry_after, Some(3_600));
        assert_eq!(failures.refuse(there, Some(AccountId(2)), Millis(0)).kind, Kind::Unauthorized);
    }
}
