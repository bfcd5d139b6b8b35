//! Names: how they become addresses, and who judges these.
//!
//! What is judged here is what is connected to: there is no second look-up (rules S4 to S7).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::Name;
use hooklog_projections::policy::ErrorClass;
use tokio::time::{Instant, timeout_at};

use super::super::{Fault, Reason, guard};
use super::faults::{because, denied, of_lookup};
use super::{Target, Trip};

/// Addresses of one name that are tried. All are judged.
pub const ADDRESSES_MAX: usize = 16;

/// How long an answer of a name server is believed, whatever it says itself: a receiver that moves is followed
/// within this time.
pub const ANSWER_KEPT: Duration = Duration::from_secs(30);

/// How long it is believed that a name does not exist.
pub const DENIAL_KEPT: Duration = Duration::from_secs(5);

/// Answers of name servers that are kept.
const ANSWERS_MAX: u64 = 4096;

/// How long the list of this machine's own addresses is believed.
const OWN_KEPT: Duration = Duration::from_secs(60);

/// How names become addresses. [`Dns`], but for tests.
pub trait Lookup: Send + Sync + 'static {
    /// All addresses of a host name, in the order they are to be tried. `NotFound`: there is no such name;
    /// `TimedOut`: no name server answered; any other error: none could say.
    fn lookup(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;

    /// The addresses of this machine, which no delivery reaches unless they are allowed (rule S11).
    ///
    /// # Errors
    /// If the system does not say.
    fn own_addresses(&self) -> io::Result<Vec<IpAddr>> {
        Ok(if_addrs::get_if_addrs()?.into_iter().map(|interface| interface.ip()).collect())
    }
}

/// The hosts file, then name servers, both A and AAAA. No search domains: a name is what it says.
pub struct Dns(Result<TokioResolver, String>);

/// How long name servers are believed at most, whatever they say themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// That a name has these addresses.
    pub answers: Duration,
    /// That there is no such name, or no address of it.
    pub denials: Duration,
}

impl Default for Kept {
    fn default() -> Kept {
        Kept { answers: ANSWER_KEPT, denials: DENIAL_KEPT }
    }
}

impl Dns {
    /// With the system's hosts file and name servers as they are now. Without any of these every look-up fails,
    /// except those that need none.
    pub fn of_the_system() -> Dns {
        match TokioResolver::builder_tokio() {
            Ok(builder) => Dns::build(builder, Kept::default()),
            Err(error) => {
                tracing::warn!(%error, "no name servers: only names of the hosts file can be resolved");
                Dns::configured(ResolverConfig::from_name_servers(Vec::new()), Kept::default())
            }
        }
    }

    /// With one name server.
    pub fn of(server: SocketAddr) -> Dns {
        Dns::configured(Dns::asking(server), Kept::default())
    }

    /// With these name servers; the domains to search in count for nothing.
    pub fn configured(config: ResolverConfig, kept: Kept) -> Dns {
        Dns::build(TokioResolver::builder_with_config(config, TokioRuntimeProvider::default()), kept)
    }

    /// The configuration with one name server.
    pub fn asking(server: SocketAddr) -> ResolverConfig {
        let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
            connection.port = server.port();
            connection
        });
        let server = NameServerConfig::new(server.ip(), true, connections.to_vec());
        ResolverConfig::from_name_servers(vec![server])
    }

    fn build(mut builder: hickory_resolver::ResolverBuilder<TokioRuntimeProvider>, kept: Kept) -> Dns {
        limit(builder.options_mut(), kept);
        Dns(builder.build().map_err(|error| error.to_string()))
    }
}

fn limit(options: &mut ResolverOpts, kept: Kept) {
    options.ip_strategy = LookupIpStrategy::Ipv6AndIpv4;
    options.cache_size = ANSWERS_MAX;
    options.positive_max_ttl = Some(kept.answers);
    options.negative_max_ttl = Some(kept.denials);
}

impl Lookup for Dns {
    fn lookup(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let resolver = self.0.clone();
        Box::pin(async move {
            let resolver = resolver.map_err(io::Error::other)?;
            let mut name = Name::from_ascii(&host).map_err(io::Error::other)?;
            name.set_fqdn(true);
            match resolver.lookup_ip(name).await {
                Ok(found) => Ok(in_turns(found.iter())),
                Err(error) => without_address(&error),
            }
        })
    }
}

/// Families by turns, IPv6 first (RFC 8305 §4), each address once.
fn in_turns(addresses: impl Iterator<Item = IpAddr>) -> Vec<IpAddr> {
    let (mut six, mut four) = (Vec::new(), Vec::new());
    for address in addresses {
        let list = if address.is_ipv6() { &mut six } else { &mut four };
        if !list.contains(&address) {
            list.push(address);
        }
    }
    let mut all = Vec::with_capacity(six.len() + four.len());
    let (mut six, mut four) = (six.into_iter(), four.into_iter());
    loop {
        let pair = [six.next(), four.next()];
        if pair == [None, None] {
            return all;
        }
        all.extend(pair.into_iter().flatten());
    }
}

fn without_address(error: &NetError) -> io::Result<Vec<IpAddr>> {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none)) => match none.response_code {
            ResponseCode::NXDomain => Err(io::ErrorKind::NotFound.into()),
            ResponseCode::NoError => Ok(Vec::new()),
            code => Err(io::Error::other(code.to_string())),
        },
        NetError::Timeout => Err(io::ErrorKind::TimedOut.into()),
        other => Err(io::Error::other(other.to_string())),
    }
}

/// Resolves names and judges what comes back.
pub(super) struct Resolver {
    lookup: Arc<dyn Lookup>,
    timeout: Duration,
    own: Mutex<Own>,
}

#[derive(Default)]
struct Own {
    listed: Option<Instant>,
    addresses: Arc<[IpAddr]>,
}

impl Resolver {
    pub(super) fn new(lookup: Arc<dyn Lookup>, timeout: Duration) -> Resolver {
        Resolver { lookup, timeout, own: Mutex::default() }
    }

    /// Where a target is. All of its addresses are judged: one that is refused condemns it.
    pub(super) async fn resolve(
        &self,
        target: &Target,
        policy: &guard::Policy,
        by: Instant,
        trip: &mut Trip,
    ) -> Result<Vec<SocketAddr>, Fault> {
        let addresses = match target.literal {
            Some(address) => vec![address],
            None => {
                let begun = Instant::now();
                let answer =
                    timeout_at(by.min(begun + self.timeout), self.lookup.lookup(target.host.to_string()));
                let answer = answer.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
                trip.timings.dns = Some(begun.elapsed());
                answer.map_err(|error| of_lookup(&error))?
            }
        };
        if addresses.is_empty() {
            return Err(because(ErrorClass::Dns, Reason::NoAddress, "the name has no address"));
        }
        let judged = policy.check_addresses(&addresses, Some(target.port), &self.own());
        if let Err(refusal) = judged {
            tracing::warn!(host = &*target.host, %refusal, "a delivery was kept from an address");
            return Err(denied());
        }
        let addresses = addresses.into_iter().take(ADDRESSES_MAX);
        Ok(addresses.map(|address| SocketAddr::new(address, target.port)).collect())
    }

    fn own(&self) -> Arc<[IpAddr]> {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        if own.listed.is_none_or(|listed| listed.elapsed() >= OWN_KEPT) {
            match self.lookup.own_addresses() {
                Ok(addresses) => own.addresses = addresses.into(),
                Err(error) => tracing::warn!(%error, "this machine's own addresses cannot be listed"),
            }
            own.listed = Some(Instant::now());
        }
        own.addresses.clone()
    }
}

impl std::fmt::Debug for Dns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Dns")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns_and_no_address_comes_twice() {
        let all =
            ["1.0.0.1", "1.0.0.2", "1.0.0.1", "2a00::1", "1.0.0.3"].map(|a| a.parse().expect("an address"));
        let turns = in_turns(all.into_iter()).into_iter().map(|a| a.to_string()).collect::<Vec<_>>();
        assert_eq!(turns, ["2a00::1", "1.0.0.1", "1.0.0.2", "1.0.0.3"]);
        assert!(in_turns(std::iter::empty()).is_empty());
    }

    #[test]
    fn no_answer_is_believed_for_long_whatever_it_says_itself() {
        let mut options = ResolverOpts::default();
        limit(&mut options, Kept::default());
        assert_eq!(options.positive_max_ttl, Some(Duration::from_secs(30)));
        assert_eq!(options.negative_max_ttl, Some(Duration::from_secs(5)));
        assert_eq!(options.cache_size, 4096);
    }

    #[test]
    fn a_machine_knows_its_own_addresses() {
        let own = Dns::of_the_system().own_addresses().expect("a list");
        assert!(own.iter().any(IpAddr::is_loopback), "{own:?}");
    }
}
