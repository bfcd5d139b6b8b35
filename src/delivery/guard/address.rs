//! The judge of addresses: one table, and what passes it. Never knows a URL, a name or what an operator allows.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

/// An address that no delivery may reach, for operators; customers hear only that it is not allowed (S10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address} is not allowed: {net} is {what}; an operator can allow it by CIDR")]
pub struct Refusal {
    /// Which.
    pub address: IpAddr,
    /// The range that condemns it.
    pub net: IpNet,
    /// What that range is.
    pub what: &'static str,
}

/// Judges one address without regard to any allow-list: public addresses pass. IPv4 by a table of what is not
/// public (IANA's registry and what it misses); IPv6 only within 2000::/3 and outside what is special there,
/// so that every form with an IPv4 address inside is refused whole. An IPv4-mapped address is judged as IPv4.
///
/// # Errors
/// The [`Refusal`] that names the range.
pub fn judge(address: IpAddr) -> Result<(), Refusal> {
    let refuse = |net: IpNet, what| Err(Refusal { address, net, what });
    match address.to_canonical() {
        IpAddr::V4(v4) => match DENIED_V4.iter().find(|(net, _)| net.contains(&v4)) {
            Some((net, what)) => refuse(IpNet::V4(*net), what),
            None => Ok(()),
        },
        IpAddr::V6(v6) if !PUBLIC_V6.contains(&v6) => {
            refuse(IpNet::V6(Ipv6Net::from(v6)), "outside 2000::/3, the only public IPv6 range")
        }
        IpAddr::V6(v6) => match DENIED_V6.iter().find(|(net, _)| net.contains(&v6)) {
            Some((net, what)) => refuse(IpNet::V6(*net), what),
            None => Ok(()),
        },
    }
}

const PUBLIC_V6: Ipv6Net = v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

pub(super) const DENIED_V4: [(Ipv4Net, &str); 20] = [
    (v4([0, 0, 0, 0], 8), "this network"),
    (v4([10, 0, 0, 0], 8), "private"),
    (v4([100, 64, 0, 0], 10), "a carrier's own (and holds a cloud's metadata service)"),
    (v4([127, 0, 0, 0], 8), "loopback"),
    // In no registry: a public number that Azure serves its metadata on.
    (v4([168, 63, 129, 16], 32), "a cloud's platform service"),
    (v4([169, 254, 0, 0], 16), "link-local (and holds clouds' metadata services)"),
    (v4([172, 16, 0, 0], 12), "private"),
    (v4([192, 0, 0, 0], 24), "for protocol assignments"),
    (v4([192, 0, 2, 0], 24), "for documentation"),
    (v4([192, 31, 196, 0], 24), "an AS112 sink"),
    (v4([192, 52, 193, 0], 24), "for multicast tunnels"),
    (v4([192, 88, 99, 0], 24), "the old 6to4 relay"),
    (v4([192, 168, 0, 0], 16), "private"),
    (v4([192, 175, 48, 0], 24), "an AS112 sink"),
    (v4([198, 18, 0, 0], 15), "for benchmarks"),
    (v4([198, 51, 100, 0], 24), "for documentation"),
    (v4([203, 0, 113, 0], 24), "for documentation"),
    (v4([224, 0, 0, 0], 4), "multicast"),
    (v4([255, 255, 255, 255], 32), "broadcast"),
    (v4([240, 0, 0, 0], 4), "reserved"),
];

/// What is special within 2000::/3.
const DENIED_V6: [(Ipv6Net, &str); 5] = [
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23), "for protocol assignments (Teredo, ORCHID and others)"),
    (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32), "for documentation"),
    (v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16), "6to4"),
    (v6([0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0], 48), "an AS112 sink"),
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20), "for documentation"),
];

const fn v4([a, b, c, d]: [u8; 4], prefix: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), prefix)
}

const fn v6([a, b, c, d, e, f, g, h]: [u16; 8], prefix: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, c, d, e, f, g, h), prefix)
}
