//! Where requests may go: the judge of addresses, and the check of an endpoint's URL.
//!
//! Pure. Never resolves a name: [`client`](super::client) does, and asks here about every address before it
//! connects to one of them.

mod address;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use ipnet::IpNet;
use url::{Host, Url};

pub use address::{Refusal, judge};

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

/// Top-level zones that no public receiver is under; `metadata.google.internal` and `home.arpa` are in them.
const RESERVED_ZONES: [&str; 10] =
    ["localhost", "local", "internal", "intranet", "lan", "arpa", "onion", "test", "example", "invalid"];

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
mod tests;
