//! Where requests may go: the judge of addresses, and the check of an endpoint's URL.
//!
//! Pure. Never resolves a name: [`client`](super::client) does, and asks here about every address before it
//! connects to one of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use url::{Host, Url};

/// Bytes of a URL: what every receiver, proxy and log still takes.
pub const URL_BYTES_MAX: usize = 2048;

/// Ports that an `https` endpoint may have.
pub const HTTPS_PORTS: [u16; 2] = [443, 8443];

/// Ports that come on top where plain `http` is allowed.
pub const HTTP_PORTS: [u16; 2] = [80, 8080];

/// What the operator allows beyond public addresses over HTTPS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Addresses that are reachable although the table refuses them. Nothing else changes for them: names are
    /// still resolved, every address is still judged. No host name can be allowed.
    pub allow: Vec<Allow>,
    /// Whether `http` is accepted beside `https`, with [`HTTP_PORTS`].
    pub allow_http: bool,
    /// Ports that endpoints may have. Addresses on the allow-list may have any.
    pub ports: Vec<u16>,
}

/// One line of the allow-list: `10.1.0.0/16`, `127.0.0.1:8080`, `10.0.0.0/8:443`, `fd00::/8`, `[::1]:8080`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allow {
    /// Which addresses.
    pub net: IpNet,
    /// Only this port of theirs; any port if `None`.
    pub port: Option<u16>,
}

/// A text that is no line of the allow-list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` allows nothing: write an address or CIDR with an optional port, such as `10.0.0.0/8`, `127.0.0.1:8080` or `[::1]:8080`"
)]
pub struct BadAllow(String);

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

/// Why a URL cannot be an endpoint's. Each message says what to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlRefusal {
    /// Longer than [`URL_BYTES_MAX`].
    #[error("the URL has {0} bytes; at most 2048 are allowed")]
    TooLong(usize),
    /// A control character; parsers remove some of them silently.
    #[error("the URL holds a control character (tab, line break or the like): remove it")]
    ControlCharacter,
    /// A space.
    #[error("the URL holds a space: write it as `%20`")]
    Space,
    /// A backslash; parsers take it for a slash.
    #[error("the URL holds a backslash: write `/`, or `%5C` if it is meant")]
    Backslash,
    /// A character beyond ASCII; look-alikes would hide the host.
    #[error(
        "the URL holds a character beyond ASCII: write the host in punycode (`xn--…`) and the rest percent-encoded"
    )]
    NonAscii,
    /// Not a URL.
    #[error("not a URL: {0}")]
    Unparsable(url::ParseError),
    /// Neither `https` nor `http`.
    #[error("the scheme `{0}` is not allowed: use `https`")]
    Scheme(String),
    /// `http` where it is not allowed.
    #[error("plain `http` is not allowed: use `https`, or ask the operator to allow `http`")]
    HttpNotAllowed,
    /// Not exactly two slashes after the scheme; parsers repair that silently.
    #[error("after the scheme come `://` and a host, nothing else")]
    Slashes,
    /// A user name or password.
    #[error("the URL holds a user name or password: use a header instead")]
    UserInfo,
    /// A fragment, which is never sent.
    #[error("the URL holds a fragment (`#…`), which is never sent: remove it")]
    Fragment,
    /// An IP address that the operator has not allowed.
    #[error(
        "the host is the IP address {0}: use a host name, or ask the operator to allow the address and port"
    )]
    Literal(IpAddr),
    /// The host is written otherwise than it is read (`0x7f.1`, `%31`, …).
    #[error("the host is read as `{0}`: write it so")]
    HostSpelling(String),
    /// A port that is not on the list.
    #[error("port {0} is not allowed: use one of {1:?}, or ask the operator")]
    Port(u16, Vec<u16>),
    /// More than 253 bytes.
    #[error("the host name has {0} bytes; at most 253 are allowed")]
    HostTooLong(usize),
    /// More than 63 bytes between two full stops.
    #[error("a label of the host name has {0} bytes; at most 63 are allowed")]
    LabelTooLong(usize),
    /// Nothing between two full stops, or before the first.
    #[error("the host name has an empty label: remove the extra full stop")]
    EmptyLabel,
    /// A full stop at the end.
    #[error("the host name ends in a full stop: remove it")]
    TrailingDot,
    /// No full stop at all.
    #[error("`{0}` has no domain: use a full host name")]
    SingleLabel(String),
    /// `localhost`, where loopback is not allowed.
    #[error(
        "`localhost` is not allowed: use a public host name, or ask the operator to allow 127.0.0.1 or ::1"
    )]
    Localhost,
    /// A name of a special or local zone.
    #[error("names under `{0}` are reserved or local: use a public host name")]
    ReservedName(&'static str),
}

impl Default for Policy {
    /// Public addresses, HTTPS, ports 443 and 8443.
    fn default() -> Self {
        Policy { allow: Vec::new(), allow_http: false, ports: HTTPS_PORTS.to_vec() }
    }
}

impl Policy {
    /// Whether a URL can be an endpoint's, and how it is to be stored and called: the answer's own text.
    /// Rules S2 and S3. A name that passes may still resolve to an address that does not.
    ///
    /// # Errors
    /// The first [`UrlRefusal`] that applies.
    pub fn check_url(&self, text: &str) -> Result<Url, UrlRefusal> {
        let url = check_text(text)?;
        match url.scheme() {
            "https" => {}
            "http" if self.allow_http => {}
            "http" => return Err(UrlRefusal::HttpNotAllowed),
            other => return Err(UrlRefusal::Scheme(other.to_owned())),
        }
        check_authority(text, &url)?;
        let port = url.port_or_known_default().unwrap_or(0);
        let any_port = match url.host() {
            Some(Host::Ipv4(address)) => self.check_literal(address.into(), port)?,
            Some(Host::Ipv6(address)) => self.check_literal(address.into(), port)?,
            Some(Host::Domain(name)) => self.check_name(name, port)?,
            None => return Err(UrlRefusal::Unparsable(url::ParseError::EmptyHost)),
        };
        // Last, so that `0x7f.1` is told first that it is an address.
        check_spelling(text, &url)?;
        let ports = self.ports();
        if port == 0 || !(any_port || ports.contains(&port)) {
            return Err(UrlRefusal::Port(port, ports));
        }
        Ok(url)
    }

    /// Whether a connection to any of these addresses may be made: one bad address condemns them all, since it
    /// is either an attack or a broken zone (rule S5). Judged with the port if it is known; without one, only
    /// allow-list lines without a port count. `own` are this machine's addresses: the way to them leads past the
    /// walls around it, so they are refused although they may be public (rule S11).
    ///
    /// # Errors
    /// The first [`Refusal`].
    pub fn check_addresses(
        &self,
        addresses: &[IpAddr],
        port: Option<u16>,
        own: &[IpAddr],
    ) -> Result<(), Refusal> {
        addresses.iter().try_for_each(|address| {
            if self.allows(*address, port) {
                return Ok(());
            }
            judge(*address)?;
            let canonical = address.to_canonical();
            if own.iter().any(|own| own.to_canonical() == canonical) {
                let what = "this machine's own address";
                return Err(Refusal { address: *address, net: canonical.into(), what });
            }
            Ok(())
        })
    }

    fn allows(&self, address: IpAddr, port: Option<u16>) -> bool {
        let address = address.to_canonical();
        let here = |line: &Allow| line.net.contains(&address) && (line.port.is_none() || line.port == port);
        self.allow.iter().any(here)
    }

    fn ports(&self) -> Vec<u16> {
        let http = if self.allow_http { HTTP_PORTS.as_slice() } else { &[] };
        self.ports.iter().chain(http).copied().collect()
    }

    /// Whether the literal may have any port: it may have none unless it is on the allow-list.
    fn check_literal(&self, address: IpAddr, port: u16) -> Result<bool, UrlRefusal> {
        if self.allows(address, Some(port)) { Ok(true) } else { Err(UrlRefusal::Literal(address)) }
    }

    /// Whether the name may have any port: only `localhost`, where loopback may.
    fn check_name(&self, name: &str, port: u16) -> Result<bool, UrlRefusal> {
        if name.ends_with('.') {
            return Err(UrlRefusal::TrailingDot);
        }
        if name.len() > 253 {
            return Err(UrlRefusal::HostTooLong(name.len()));
        }
        if name.split('.').any(str::is_empty) {
            return Err(UrlRefusal::EmptyLabel);
        }
        if let Some(label) = name.split('.').find(|label| label.len() > 63) {
            return Err(UrlRefusal::LabelTooLong(label.len()));
        }
        if name == "localhost" {
            let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
            let allowed = loopback.iter().any(|a| self.allows(*a, Some(port)));
            return if allowed { Ok(true) } else { Err(UrlRefusal::Localhost) };
        }
        if !name.contains('.') {
            return Err(UrlRefusal::SingleLabel(name.to_owned()));
        }
        match RESERVED_ZONES.iter().find(|zone| name.rsplit('.').next() == Some(zone)) {
            Some(zone) => Err(UrlRefusal::ReservedName(zone)),
            None => Ok(false),
        }
    }
}

/// Whether a URL that the operator configured (not a customer) can be called: text, scheme, spelling, user name
/// and fragment as for an endpoint, but any host and any port.
///
/// # Errors
/// The first [`UrlRefusal`] that applies.
pub fn check_operator_url(text: &str) -> Result<Url, UrlRefusal> {
    let url = check_text(text)?;
    if !matches!(url.scheme(), "https" | "http") {
        return Err(UrlRefusal::Scheme(url.scheme().to_owned()));
    }
    check_authority(text, &url)?;
    check_spelling(text, &url)?;
    Ok(url)
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

/// Top-level zones that no public receiver is under; `metadata.google.internal` and `home.arpa` are in them.
const RESERVED_ZONES: [&str; 10] =
    ["localhost", "local", "internal", "intranet", "lan", "arpa", "onion", "test", "example", "invalid"];

const PUBLIC_V6: Ipv6Net = v6([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

const DENIED_V4: [(Ipv4Net, &str); 20] = [
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

/// What is refused before parsing, because parsing would hide it; then the parsed URL.
fn check_text(text: &str) -> Result<Url, UrlRefusal> {
    if text.len() > URL_BYTES_MAX {
        return Err(UrlRefusal::TooLong(text.len()));
    }
    for byte in text.bytes() {
        match byte {
            b' ' => return Err(UrlRefusal::Space),
            b'\\' => return Err(UrlRefusal::Backslash),
            0..0x20 | 0x7f => return Err(UrlRefusal::ControlCharacter),
            0x80.. => return Err(UrlRefusal::NonAscii),
            _ => {}
        }
    }
    Url::parse(text).map_err(UrlRefusal::Unparsable)
}

fn check_authority(text: &str, url: &Url) -> Result<(), UrlRefusal> {
    let after = text.get(url.scheme().len()..).unwrap_or("");
    match after.strip_prefix("://") {
        Some(rest) if !rest.starts_with('/') => {}
        _ => return Err(UrlRefusal::Slashes),
    }
    // The raw text too: an empty user name parses away.
    if !url.username().is_empty() || url.password().is_some() || raw_authority(text).contains('@') {
        return Err(UrlRefusal::UserInfo);
    }
    if url.fragment().is_some() {
        return Err(UrlRefusal::Fragment);
    }
    Ok(())
}

/// The host must be written as it is read: no other bases, no percent signs, no folding but of case. IPv6 may
/// be written in any of its forms.
fn check_spelling(text: &str, url: &Url) -> Result<(), UrlRefusal> {
    let host = url.host_str().unwrap_or("");
    let authority = raw_authority(text);
    let same = match url.host() {
        Some(Host::Ipv6(address)) => {
            let inside = authority.strip_prefix('[').and_then(|rest| rest.split_once(']'));
            inside.is_some_and(|(raw, _)| raw.parse() == Ok(address))
        }
        _ => authority.split(':').next().is_some_and(|raw| raw.eq_ignore_ascii_case(host)),
    };
    if same { Ok(()) } else { Err(UrlRefusal::HostSpelling(host.to_owned())) }
}

/// What stands between `://` and the path.
fn raw_authority(text: &str) -> &str {
    let rest = text.split_once("://").map_or("", |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or("")
}

impl FromStr for Allow {
    type Err = BadAllow;

    fn from_str(text: &str) -> Result<Self, BadAllow> {
        let bad = || BadAllow(text.to_owned());
        let (net, port) = if let Some(rest) = text.strip_prefix('[') {
            let (net, rest) = rest.split_once(']').ok_or_else(bad)?;
            match rest.strip_prefix(':') {
                Some(port) => (net, Some(port)),
                None if rest.is_empty() => (net, None),
                None => return Err(bad()),
            }
        } else if text.contains('.') && !text.starts_with(':') && text.matches(':').count() == 1 {
            text.split_once(':').map(|(net, port)| (net, Some(port))).ok_or_else(bad)?
        } else {
            (text, None)
        };
        let net =
            net.parse::<IpNet>().or_else(|_| net.parse::<IpAddr>().map(IpNet::from)).map_err(|_| bad())?;
        let port = match port.map(str::parse::<u16>) {
            None => None,
            Some(Ok(port)) if port > 0 => Some(port),
            Some(_) => return Err(bad()),
        };
        Ok(Allow { net: net.trunc(), port })
    }
}

impl std::fmt::Display for Allow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.net, self.port) {
            (net, None) => write!(f, "{net}"),
            (IpNet::V4(net), Some(port)) => write!(f, "{net}:{port}"),
            (IpNet::V6(net), Some(port)) => write!(f, "[{net}]:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn allowing(lines: &[&str]) -> Policy {
        let allow = lines.iter().map(|line| line.parse().expect("a line")).collect();
        Policy { allow, allow_http: true, ..Policy::default() }
    }

    #[test]
    fn every_address_of_the_table_is_judged_as_written() {
        let table = include_str!("../../fixtures/guard/addresses.txt");
        let mut count = [0, 0];
        for line in table.lines().filter(|line| !line.starts_with('#')) {
            let (verdict, address) = line.split_once(' ').expect("two words");
            let address: IpAddr = address.parse().expect("an address");
            let allowed = judge(address).is_ok();
            assert_eq!(verdict, if allowed { "allow" } else { "deny" }, "{address}");
            count[usize::from(allowed)] += 1;
        }
        assert_eq!(count, [77, 30]);
    }

    #[test]
    fn a_refusal_names_the_range() {
        let refusal = judge("10.1.2.3".parse().expect("an address")).expect_err("private");
        insta::assert_snapshot!(refusal, @"10.1.2.3 is not allowed: 10.0.0.0/8 is private; an operator can allow it by CIDR");
        let refusal = judge("::ffff:169.254.169.254".parse().expect("an address")).expect_err("mapped");
        insta::assert_snapshot!(refusal, @"::ffff:169.254.169.254 is not allowed: 169.254.0.0/16 is link-local (and holds clouds' metadata services); an operator can allow it by CIDR");
        let refusal = judge("fd00:ec2::254".parse().expect("an address")).expect_err("unique local");
        insta::assert_snapshot!(refusal, @"fd00:ec2::254 is not allowed: fd00:ec2::254/128 is outside 2000::/3, the only public IPv6 range; an operator can allow it by CIDR");
    }

    #[test]
    fn one_bad_address_condemns_the_whole_answer() {
        let policy = allowing(&["127.0.0.1:8080", "10.1.0.0/16"]);
        let check = |text: &str, port| {
            let addresses: Vec<IpAddr> = text.split(' ').map(|a| a.parse().expect("an address")).collect();
            policy.check_addresses(&addresses, port, &[]).is_ok()
        };
        assert!(check("8.8.8.8 2606:4700:4700::1111", Some(443)));
        assert!(!check("8.8.8.8 10.0.0.1", Some(443)));
        assert!(!check("10.0.0.1 8.8.8.8", Some(443)));
        assert!(check("8.8.8.8 10.1.0.1", Some(443)));
        assert!(check("127.0.0.1 ::ffff:127.0.0.1", Some(8080)));
        assert!(!check("127.0.0.1", Some(8081)));
        assert!(!check("127.0.0.1", None));
        assert!(check("10.1.0.1", None));
        assert!(!check("127.0.0.1 ::1", Some(8080)));
    }

    #[test]
    fn our_own_addresses_are_refused_unless_allowed() {
        let own: Vec<IpAddr> =
            ["8.8.4.4", "2a00:1::7", "127.0.0.1"].map(|a| a.parse().expect("an address")).to_vec();
        let check = |policy: &Policy, address: &str| {
            policy.check_addresses(&[address.parse().expect("an address")], Some(443), &own)
        };
        let strict = allowing(&[]);
        insta::assert_snapshot!(check(&strict, "8.8.4.4").expect_err("ours"), @"8.8.4.4 is not allowed: 8.8.4.4/32 is this machine's own address; an operator can allow it by CIDR");
        for address in ["2a00:1::7", "::ffff:8.8.4.4", "127.0.0.1"] {
            check(&strict, address).expect_err(address);
        }
        for address in ["8.8.8.8", "2a00:1::8"] {
            check(&strict, address).expect(address);
        }
        let policy = allowing(&["8.8.4.4:443", "127.0.0.1"]);
        for address in ["8.8.4.4", "127.0.0.1"] {
            check(&policy, address).expect(address);
        }
    }

    #[test]
    fn allow_lines_read_and_write_alike() {
        for line in ["10.0.0.0/8", "127.0.0.1/32:8080", "fd00::/8", "[::1/128]:8080"] {
            assert_eq!(line.parse::<Allow>().expect("a line").to_string(), line);
        }
        assert_eq!("127.0.0.1:80".parse::<Allow>().expect("a line").to_string(), "127.0.0.1/32:80");
        assert_eq!("[::1]".parse::<Allow>().expect("a line").to_string(), "::1/128");
        assert_eq!("10.9.8.7/8".parse::<Allow>().expect("a line").to_string(), "10.0.0.0/8");
        for line in
            ["", "localhost", "10.0.0.0/33", "1.2.3.4:0", "1.2.3.4:x", "[::1]x", "[::1", "*", "::/129"]
        {
            assert!(line.parse::<Allow>().is_err(), "{line}");
        }
    }

    /// One line a URL: what it is stored as, or why not.
    fn picture(policy: &Policy, urls: &[&str]) -> String {
        let line = |url: &&str| match policy.check_url(url) {
            Ok(checked) => format!("{url:?} -> {checked}\n"),
            Err(refusal) => {
                let name = format!("{refusal:?}");
                let name = name.split(['(', ' ']).next().unwrap_or("");
                format!("{url:?} {name}: {refusal}\n")
            }
        };
        urls.iter().map(line).collect()
    }

    #[test]
    fn urls_under_the_default_policy() {
        insta::assert_snapshot!(picture(&Policy::default(), &[
            "https://hooks.customer.com",
            "https://HOOKS.Customer.com:443/a/../b?x=%2F&y=a+b",
            "https://xn--bcher-kva.com:8443/h",
            "https://a_b.customer.com/",
            "http://customer.com/",
            "ftp://customer.com/",
            "file:///etc/passwd",
            "gopher://customer.com/",
            "customer.com/hook",
            "https://customer.com:8080/",
            "https://customer.com:0/",
            "https://customer.com:65536/",
            "https://user:pw@customer.com/",
            "https://@customer.com/",
            "https://customer.com/#part",
            "https://cust omer.com/",
            "https://cust\tomer.com/",
            "https://customer.com/\r\n",
            "https://customer.com\\@evil.com/",
            "https://b\u{fc}cher.com/",
            "https://customer.com./",
            "https://a..b.com/",
            "https://.com/",
            "https://hooks/",
            "https://localhost/",
            "https://sub.localhost/",
            "https://printer.local/",
            "https://metadata.google.internal/",
            "https://router.lan/",
            "https://box.home.arpa/",
            "https://a.test/",
            "https://customer.example/",
            "https://1.1.1.1/",
            "https://[2606:4700:4700::1111]/",
            "https:customer.com/",
            "https:/customer.com/",
            "https:///customer.com/",
            "https://",
            "",
        ]), @r#"
        "https://hooks.customer.com" -> https://hooks.customer.com/
        "https://HOOKS.Customer.com:443/a/../b?x=%2F&y=a+b" -> https://hooks.customer.com/b?x=%2F&y=a+b
        "https://xn--bcher-kva.com:8443/h" -> https://xn--bcher-kva.com:8443/h
        "https://a_b.customer.com/" -> https://a_b.customer.com/
        "http://customer.com/" HttpNotAllowed: plain `http` is not allowed: use `https`, or ask the operator to allow `http`
        "ftp://customer.com/" Scheme: the scheme `ftp` is not allowed: use `https`
        "file:///etc/passwd" Scheme: the scheme `file` is not allowed: use `https`
        "gopher://customer.com/" Scheme: the scheme `gopher` is not allowed: use `https`
        "customer.com/hook" Unparsable: not a URL: relative URL without a base
        "https://customer.com:8080/" Port: port 8080 is not allowed: use one of [443, 8443], or ask the operator
        "https://customer.com:0/" Port: port 0 is not allowed: use one of [443, 8443], or ask the operator
        "https://customer.com:65536/" Unparsable: not a URL: invalid port number
        "https://user:pw@customer.com/" UserInfo: the URL holds a user name or password: use a header instead
        "https://@customer.com/" UserInfo: the URL holds a user name or password: use a header instead
        "https://customer.com/#part" Fragment: the URL holds a fragment (`#…`), which is never sent: remove it
        "https://cust omer.com/" Space: the URL holds a space: write it as `%20`
        "https://cust\tomer.com/" ControlCharacter: the URL holds a control character (tab, line break or the like): remove it
        "https://customer.com/\r\n" ControlCharacter: the URL holds a control character (tab, line break or the like): remove it
        "https://customer.com\\@evil.com/" Backslash: the URL holds a backslash: write `/`, or `%5C` if it is meant
        "https://bücher.com/" NonAscii: the URL holds a character beyond ASCII: write the host in punycode (`xn--…`) and the rest percent-encoded
        "https://customer.com./" TrailingDot: the host name ends in a full stop: remove it
        "https://a..b.com/" EmptyLabel: the host name has an empty label: remove the extra full stop
        "https://.com/" EmptyLabel: the host name has an empty label: remove the extra full stop
        "https://hooks/" SingleLabel: `hooks` has no domain: use a full host name
        "https://localhost/" Localhost: `localhost` is not allowed: use a public host name, or ask the operator to allow 127.0.0.1 or ::1
        "https://sub.localhost/" ReservedName: names under `localhost` are reserved or local: use a public host name
        "https://printer.local/" ReservedName: names under `local` are reserved or local: use a public host name
        "https://metadata.google.internal/" ReservedName: names under `internal` are reserved or local: use a public host name
        "https://router.lan/" ReservedName: names under `lan` are reserved or local: use a public host name
        "https://box.home.arpa/" ReservedName: names under `arpa` are reserved or local: use a public host name
        "https://a.test/" ReservedName: names under `test` are reserved or local: use a public host name
        "https://customer.example/" ReservedName: names under `example` are reserved or local: use a public host name
        "https://1.1.1.1/" Literal: the host is the IP address 1.1.1.1: use a host name, or ask the operator to allow the address and port
        "https://[2606:4700:4700::1111]/" Literal: the host is the IP address 2606:4700:4700::1111: use a host name, or ask the operator to allow the address and port
        "https:customer.com/" Slashes: after the scheme come `://` and a host, nothing else
        "https:/customer.com/" Slashes: after the scheme come `://` and a host, nothing else
        "https:///customer.com/" Slashes: after the scheme come `://` and a host, nothing else
        "https://" Unparsable: not a URL: empty host
        "" Unparsable: not a URL: relative URL without a base
        "#);
        let long = format!("https://customer.com/{}", "a".repeat(URL_BYTES_MAX));
        assert!(matches!(Policy::default().check_url(&long), Err(UrlRefusal::TooLong(2069))));
        let label = format!("https://{}.com/", "a".repeat(64));
        assert!(matches!(Policy::default().check_url(&label), Err(UrlRefusal::LabelTooLong(64))));
        let host = format!("https://{}com/", "abcdefghi.".repeat(26));
        assert!(matches!(Policy::default().check_url(&host), Err(UrlRefusal::HostTooLong(263))));
    }

    #[test]
    fn spellings_that_other_guards_let_through() {
        // Plain http is allowed here, so that only the trick itself can be what is refused.
        insta::assert_snapshot!(picture(&allowing(&[]), &[
            "http://ex.com\\@evil.com/",
            "http://ex.com@evil.com/",
            "http:///ex.com/",
            "http://\u{24d4}\u{24e7}.com/",
            "http://ex\u{3002}com/",
            "http://%31%32%37.0.0.1/",
            "http://ex%41mple.com/",
            "http://127%2e0%2e0%2e1/",
            "http://0x7f.0.0.0x1/",
            "http://0177.0.0.1/",
            "http://2130706433/",
            "http://127.1/",
            "http://1.1/",
            "http://4294967295/",
            "http://0/",
            "http://127.0.0.1./",
            "http://[::ffff:a9fe:a9fe]/",
            "http://[::1]/",
            "http://[::1",
            "http://[::1].evil.com/",
            "http://::1/",
            "http://[fe80::1%25eth0]/",
            "http://256.1.1.1/",
            "http://4294967296/",
            "http://localhost%00.ex.com/",
            "http://user@/",
            "http://1.2.3.4.5/",
            "http://127.0.0.1.nip.io/",
            "HTTP://ex.com/",
        ]), @r#"
        "http://ex.com\\@evil.com/" Backslash: the URL holds a backslash: write `/`, or `%5C` if it is meant
        "http://ex.com@evil.com/" UserInfo: the URL holds a user name or password: use a header instead
        "http:///ex.com/" Slashes: after the scheme come `://` and a host, nothing else
        "http://ⓔⓧ.com/" NonAscii: the URL holds a character beyond ASCII: write the host in punycode (`xn--…`) and the rest percent-encoded
        "http://ex。com/" NonAscii: the URL holds a character beyond ASCII: write the host in punycode (`xn--…`) and the rest percent-encoded
        "http://%31%32%37.0.0.1/" Literal: the host is the IP address 127.0.0.1: use a host name, or ask the operator to allow the address and port
        "http://ex%41mple.com/" HostSpelling: the host is read as `example.com`: write it so
        "http://127%2e0%2e0%2e1/" Literal: the host is the IP address 127.0.0.1: use a host name, or ask the operator to allow the address and port
        "http://0x7f.0.0.0x1/" Literal: the host is the IP address 127.0.0.1: use a host name, or ask the operator to allow the address and port
        "http://0177.0.0.1/" Literal: the host is the IP address 127.0.0.1: use a host name, or ask the operator to allow the address and port
        "http://2130706433/" Literal: the host is the IP address 127.0.0.1: use a host name, or ask the operator to allow the address and port
        "http://127.1/" Literal: the host is the IP address 127.0.0.1: use a host name, or ask the operator to allow the address and port
        "http://1.1/" Literal: the host is the IP address 1.0.0.1: use a host name, or ask the operator to allow the address and port
        "http://4294967295/" Literal: the host is the IP address 255.255.255.255: use a host name, or ask the operator to allow the address and port
        "http://0/" Literal: the host is the IP address 0.0.0.0: use a host name, or ask the operator to allow the address and port
        "http://127.0.0.1./" Literal: the host is the IP address 127.0.0.1: use a host name, or ask the operator to allow the address and port
        "http://[::ffff:a9fe:a9fe]/" Literal: the host is the IP address ::ffff:169.254.169.254: use a host name, or ask the operator to allow the address and port
        "http://[::1]/" Literal: the host is the IP address ::1: use a host name, or ask the operator to allow the address and port
        "http://[::1" Unparsable: not a URL: invalid IPv6 address
        "http://[::1].evil.com/" Unparsable: not a URL: invalid IPv6 address
        "http://::1/" Unparsable: not a URL: empty host
        "http://[fe80::1%25eth0]/" Unparsable: not a URL: invalid IPv6 address
        "http://256.1.1.1/" Unparsable: not a URL: invalid IPv4 address
        "http://4294967296/" Unparsable: not a URL: invalid IPv4 address
        "http://localhost%00.ex.com/" Unparsable: not a URL: invalid international domain name
        "http://user@/" Unparsable: not a URL: empty host
        "http://1.2.3.4.5/" Unparsable: not a URL: invalid IPv4 address
        "http://127.0.0.1.nip.io/" -> http://127.0.0.1.nip.io/
        "HTTP://ex.com/" -> http://ex.com/
        "#);
    }

    #[test]
    fn allowed_addresses_may_have_any_port_or_the_one_that_is_named() {
        insta::assert_snapshot!(picture(&allowing(&["127.0.0.1:9000", "10.0.0.0/8"]), &[
            "http://127.0.0.1:9000/h",
            "http://127.0.0.1:9001/h",
            "http://127.1:9000/h",
            "http://localhost:9000/h",
            "http://localhost:9001/h",
            "http://10.2.3.4:1/",
            "http://10.2.3.4:0/",
            "http://[::ffff:10.2.3.4]:7/",
            "http://hooks.customer.com:8080/",
            "http://hooks.customer.com:9000/",
        ]), @r#"
        "http://127.0.0.1:9000/h" -> http://127.0.0.1:9000/h
        "http://127.0.0.1:9001/h" Literal: the host is the IP address 127.0.0.1: use a host name, or ask the operator to allow the address and port
        "http://127.1:9000/h" HostSpelling: the host is read as `127.0.0.1`: write it so
        "http://localhost:9000/h" -> http://localhost:9000/h
        "http://localhost:9001/h" Localhost: `localhost` is not allowed: use a public host name, or ask the operator to allow 127.0.0.1 or ::1
        "http://10.2.3.4:1/" -> http://10.2.3.4:1/
        "http://10.2.3.4:0/" Port: port 0 is not allowed: use one of [443, 8443, 80, 8080], or ask the operator
        "http://[::ffff:10.2.3.4]:7/" -> http://[::ffff:a02:304]:7/
        "http://hooks.customer.com:8080/" -> http://hooks.customer.com:8080/
        "http://hooks.customer.com:9000/" Port: port 9000 is not allowed: use one of [443, 8443, 80, 8080], or ask the operator
        "#);
        insta::assert_snapshot!(picture(&allowing(&["::1"]), &[
            "http://[::1]:8081/h",
            "http://[0:0:0:0:0:0:0:1]:8081/",
            "http://localhost:8081/",
        ]), @r#"
        "http://[::1]:8081/h" -> http://[::1]:8081/h
        "http://[0:0:0:0:0:0:0:1]:8081/" -> http://[::1]:8081/
        "http://localhost:8081/" -> http://localhost:8081/
        "#);
        let https_only = Policy { allow_http: false, ..allowing(&["127.0.0.1"]) };
        assert_eq!(https_only.check_url("http://127.0.0.1/"), Err(UrlRefusal::HttpNotAllowed));
    }

    #[test]
    fn the_operators_own_url_may_be_anywhere() {
        for url in ["http://notifications:8000/hook", "https://10.0.0.1/x", "http://localhost:1/"] {
            assert_eq!(check_operator_url(url).expect(url).as_str(), url);
        }
        for url in ["ftp://a/", "http://u:p@a/", "http://a/#f", "http:a/", "http://a b/", "http://0x7f.1/"] {
            check_operator_url(url).expect_err(url);
        }
    }

    proptest! {
        #[test]
        fn no_address_of_a_denied_range_passes(pick in 0..DENIED_V4.len(), host in any::<u32>()) {
            let net = DENIED_V4[pick].0;
            let address = Ipv4Addr::from(u32::from(net.network()) | (host & u32::from(net.hostmask())));
            prop_assert!(judge(address.into()).is_err());
            prop_assert!(judge(address.to_ipv6_mapped().into()).is_err());
            // With the address inside, every transition form is refused, whatever the address.
            let [a, b, c, d] = address.octets().map(u16::from);
            let (high, low) = ((a << 8) | b, (c << 8) | d);
            for form in [
                Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
                Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, !high, !low),
                Ipv6Addr::new(0, 0, 0, 0, 0, 0, high, low),
            ] {
                prop_assert!(judge(form.into()).is_err());
            }
        }

        #[test]
        fn mapped_is_judged_as_plain(address in any::<u32>()) {
            let plain = Ipv4Addr::from(address);
            let mapped = judge(plain.to_ipv6_mapped().into());
            prop_assert_eq!(judge(plain.into()).is_ok(), mapped.is_ok());
        }

        #[test]
        fn no_text_panics_and_what_passes_is_stable(text in "(https?:/{0,3})?[ -~]{0,40}") {
            if let Ok(url) = allowing(&[]).check_url(&text) {
                prop_assert_eq!(&allowing(&[]).check_url(url.as_str()), &Ok(url));
            }
        }
    }
}
