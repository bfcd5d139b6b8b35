//! What went wrong, in our words: the classes and reasons of errors of the network, TLS and HTTP.
//!
//! A fault's text is for the customer: it holds no URL, no address, and nothing that the receiver wrote. Pure.

use std::error::Error as StdError;
use std::io;
use std::time::Duration;

use hooklog_projections::policy::ErrorClass;
use hooklog_projections::time::Millis;
use rustls::{AlertDescription, CertificateError};

use super::super::{Fault, Reason};

/// Characters of a fault's detail.
const DETAIL_CHARS_MAX: usize = 300;

/// Of a connection that ended before an answer.
pub(super) const CLOSED: &str = "the connection was closed before an answer";

pub(super) const HEAD_TOO_LARGE: &str = "the answer's head is too large";

/// Of an answer that does not come to its head, or end, within what is read of one.
pub(super) fn too_much() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, HEAD_TOO_LARGE)
}

pub(super) fn fault(class: ErrorClass, detail: &str) -> Fault {
    Fault::new(class, detail.chars().take(DETAIL_CHARS_MAX).collect::<String>())
}

pub(super) fn because(class: ErrorClass, reason: Reason, detail: &str) -> Fault {
    Fault { reason: Some(reason), ..fault(class, detail) }
}

/// What a customer hears of a refused address: nothing that maps our network (rule S10).
pub(super) fn denied() -> Fault {
    because(ErrorClass::EgressDenied, Reason::AddressNotAllowed, "address not allowed")
}

pub(super) fn millis(time: Duration) -> Millis {
    Millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Of a name that gave no address.
pub(super) fn of_lookup(error: &io::Error) -> Fault {
    use io::ErrorKind::{NotFound, TimedOut};
    let (reason, detail) = match error.kind() {
        NotFound => (Reason::NoSuchName, "the name does not exist"),
        TimedOut => (Reason::NameServerSilent, "the name was not resolved in time"),
        _ => (Reason::NameServerFailed, "the name servers could not resolve the name"),
    };
    because(ErrorClass::Dns, reason, detail)
}

/// Of a TCP connection that was not made.
pub(super) fn of_connect(error: &io::Error) -> Fault {
    use io::ErrorKind::{ConnectionRefused, TimedOut};
    let reason = match error.kind() {
        ConnectionRefused => Reason::Refused,
        TimedOut => Reason::ConnectSlow,
        _ if is_unreachable(error) => Reason::Unreachable,
        _ => return fault(ErrorClass::Connect, &innermost(error)),
    };
    because(ErrorClass::Connect, reason, &innermost(error))
}

/// Whether there is no way to an address, not even one that fails: no IPv6 here, say.
pub(super) fn is_unreachable(error: &io::Error) -> bool {
    use io::ErrorKind::{AddrNotAvailable, HostUnreachable, NetworkUnreachable, Unsupported};
    matches!(error.kind(), HostUnreachable | NetworkUnreachable | AddrNotAvailable | Unsupported)
        || error.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
}

/// Of a handshake that failed.
pub(super) fn of_handshake(error: &io::Error) -> Fault {
    if let Some(tls) = find::<rustls::Error>(error) {
        return of_tls(tls);
    }
    if is_broken(error) {
        let detail = "the connection was closed during the TLS handshake";
        return because(ErrorClass::Tls, Reason::HandshakeClosed, detail);
    }
    fault(ErrorClass::Tls, &innermost(error))
}

/// Of an exchange that brought no whole head. `Closed` only if the connection ended.
pub(super) fn of_exchange(error: &hyper::Error) -> Fault {
    if let Some(tls) = find::<rustls::Error>(error) {
        return of_tls(tls);
    }
    if error.is_parse_too_large() {
        return fault(ErrorClass::Protocol, HEAD_TOO_LARGE);
    }
    let broken = error.is_incomplete_message()
        || error.is_canceled()
        || error.is_closed()
        || error.is_body_write_aborted()
        || find::<io::Error>(error).is_some_and(is_broken);
    if broken {
        return fault(ErrorClass::Closed, CLOSED);
    }
    fault(ErrorClass::Protocol, &innermost(error))
}

fn of_tls(error: &rustls::Error) -> Fault {
    use rustls::Error::{
        AlertReceived, InappropriateHandshakeMessage, InappropriateMessage, InvalidCertificate,
        InvalidMessage, NoCertificatesPresented, PeerIncompatible,
    };
    use rustls::PeerIncompatible::{ServerDoesNotSupportTls12Or13, ServerTlsVersionIsDisabledByOurConfig};
    let (reason, detail) = match error {
        InvalidCertificate(error) => of_certificate(error),
        NoCertificatesPresented => (Reason::CertificateUnusable, "the receiver shows no certificate"),
        // What it picks in its greeting, whatever was offered to it.
        PeerIncompatible(ServerDoesNotSupportTls12Or13 | ServerTlsVersionIsDisabledByOurConfig) => {
            (Reason::TlsTooOld, TLS_TOO_OLD)
        }
        PeerIncompatible(_) => (Reason::NoCommonTls, NO_COMMON_TLS),
        AlertReceived(alert) => match alert {
            AlertDescription::ProtocolVersion => (Reason::TlsTooOld, TLS_TOO_OLD),
            AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity => {
                (Reason::NoCommonTls, NO_COMMON_TLS)
            }
            AlertDescription::CertificateRequired => {
                (Reason::ClientCertificateWanted, "the receiver wants a client certificate")
            }
            AlertDescription::UnrecognisedName => {
                (Reason::CertificateWrongHost, "the receiver does not know this host name")
            }
            other => {
                let detail = format!("the receiver ended the TLS handshake with the alert {other:?}");
                return because(ErrorClass::Tls, Reason::Alert, &detail);
            }
        },
        InvalidMessage(_) | InappropriateMessage { .. } | InappropriateHandshakeMessage { .. } => {
            (Reason::NotTls, "what answers there does not speak TLS")
        }
        other => return fault(ErrorClass::Tls, &other.to_string()),
    };
    because(ErrorClass::Tls, reason, detail)
}

const TLS_TOO_OLD: &str = "the receiver speaks no version of TLS that is offered (1.2 and 1.3)";

const NO_COMMON_TLS: &str = "no cipher of TLS in common, or the receiver wants a client certificate";

fn of_certificate(error: &CertificateError) -> (Reason, &'static str) {
    use CertificateError::{
        Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet, NotValidYetContext,
        Other, UnknownIssuer,
    };
    match error {
        Expired | ExpiredContext { .. } => (Reason::CertificateExpired, "the certificate has expired"),
        NotValidYet | NotValidYetContext { .. } => {
            (Reason::CertificateNotYetValid, "the certificate is not valid yet")
        }
        NotValidForName | NotValidForNameContext { .. } => {
            (Reason::CertificateWrongHost, "the certificate is for another host name")
        }
        UnknownIssuer => (Reason::CertificateUnknownIssuer, UNKNOWN_ISSUER),
        // A certificate that is its own authority, as tools make them by default.
        Other(error) if error.to_string().contains("CaUsedAsEndEntity") => {
            (Reason::CertificateUnknownIssuer, UNKNOWN_ISSUER)
        }
        _ => (
            Reason::CertificateUnusable,
            "the certificate is damaged, revoked, or of a kind that is not accepted (key too short, old signature)",
        ),
    }
}

const UNKNOWN_ISSUER: &str = "the certificate's issuer is not trusted: self-signed, of a private authority, or without its intermediate";

/// What caused an error. An `io::Error` does not name the error that it wraps as its source, but only that
/// one's source; here it does.
fn cause<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(wrapped) => Some(wrapped),
        None => error.source(),
    }
}

/// The first error of a type in a chain of causes.
pub(super) fn find<'a, T: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a T> {
    std::iter::successors(Some(error), |error| cause(*error)).find_map(|error| error.downcast_ref())
}

/// The last cause in an error's chain, which says what happened. The others may hold the URL, query and all.
pub(super) fn innermost(error: &(dyn StdError + 'static)) -> String {
    let mut last = error;
    while let Some(cause) = cause(last) {
        last = cause;
    }
    last.to_string()
}

pub(super) fn is_broken(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected | UnexpectedEof)
}
