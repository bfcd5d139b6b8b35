//! What an answer or its absence means, under each response policy: one pure, total table.
//!
//! Never knows how often was tried, nor when the next try is: it says *whether*, the scheduler says *when*.

use hooklog_projections::policy::{ErrorClass, ResponsePolicy};

/// What an attempt came to, as far as the verdict depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A whole response head.
    Status {
        /// Its code.
        code: u16,
        /// Whether it carried a `Retry-After` that could be read.
        has_retry_after: bool,
    },
    /// No answer.
    Error(ErrorClass),
}

/// What follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ruling {
    /// The receiver has it.
    Delivered,
    /// Another try, if the schedule has one left.
    Retry,
    /// Dead at once: the receiver would say the same again.
    Dead,
    /// Dead at once, and the endpoint wants nothing more: it is to be disabled.
    Gone,
}

/// A ruling with the name of the rule that gave it; the name is recorded with the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What follows.
    pub ruling: Ruling,
    /// The rule: `2xx`, `429-throttled`, `timeout`, …. Recorded names never change their meaning.
    pub rule: &'static str,
}

/// The table. Codes by RFC 9110 §15 and, for 423, 425 and 429, RFC 4918, 8470 and 6585; 3xx is never followed.
///
/// | | `ledger` | `ledger-strict` | `ukue` | `standard-webhooks` |
/// | --- | --- | --- | --- | --- |
/// | 2xx | delivered | delivered | delivered | delivered |
/// | 408, 409, 421, 423, 425, 429 | retry | dead | retry | retry |
/// | 413 with `Retry-After` | retry | dead | retry | retry |
/// | 410 | gone | gone | dead | gone |
/// | any other 4xx | dead | dead | retry | retry |
/// | 3xx, 5xx, any other code | retry | retry | retry | retry |
/// | no answer | retry | retry | retry | retry |
pub fn classify(policy: ResponsePolicy, what: Heard) -> Verdict {
    let (ruling, rule) = match what {
        Heard::Error(class) => (Ruling::Retry, error_rule(class)),
        Heard::Status { code, has_retry_after } => match code {
            200..=299 => (Ruling::Delivered, "2xx"),
            300..=399 => (Ruling::Retry, "redirect"),
            400..=499 => client_error(policy, code, has_retry_after),
            500..=599 => (Ruling::Retry, "5xx"),
            100..=199 => (Ruling::Retry, "1xx"),
            _ => (Ruling::Retry, "unknown-status"),
        },
    };
    Verdict { ruling, rule }
}

fn client_error(policy: ResponsePolicy, code: u16, has_retry_after: bool) -> (Ruling, &'static str) {
    use ResponsePolicy::{Ledger, LedgerStrict, StandardWebhooks, Ukue};
    match (policy, code) {
        (Ukue, 410) => (Ruling::Dead, "410-gone"),
        (Ledger | LedgerStrict | StandardWebhooks, 410) => (Ruling::Gone, "410-gone"),
        (LedgerStrict, _) => (Ruling::Dead, "4xx"),
        (Ledger | Ukue | StandardWebhooks, 408) => (Ruling::Retry, "408-request-timeout"),
        (Ledger | Ukue | StandardWebhooks, 409) => (Ruling::Retry, "409-conflict"),
        (Ledger | Ukue | StandardWebhooks, 413) if has_retry_after => (Ruling::Retry, "413-later"),
        (Ledger | Ukue | StandardWebhooks, 421) => (Ruling::Retry, "421-misdirected"),
        (Ledger | Ukue | StandardWebhooks, 423) => (Ruling::Retry, "423-locked"),
        (Ledger | Ukue | StandardWebhooks, 425) => (Ruling::Retry, "425-too-early"),
        (Ledger | Ukue | StandardWebhooks, 429) => (Ruling::Retry, "429-throttled"),
        (Ledger, _) => (Ruling::Dead, "4xx"),
        (Ukue | StandardWebhooks, _) => (Ruling::Retry, "4xx"),
    }
}

fn error_rule(class: ErrorClass) -> &'static str {
    match class {
        ErrorClass::Dns => "dns",
        ErrorClass::Connect => "connect",
        ErrorClass::Tls => "tls",
        ErrorClass::Timeout => "timeout",
        ErrorClass::Closed => "closed",
        ErrorClass::Protocol => "protocol",
        ErrorClass::EgressDenied => "egress-denied",
        ErrorClass::Interrupted => "interrupted",
        ErrorClass::NotSent => "not-sent",
        ErrorClass::Worker => "worker",
        ErrorClass::LeaseExpired => "lease-expired",
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    const CLASSES: [ErrorClass; 9] = [
        ErrorClass::Dns,
        ErrorClass::Connect,
        ErrorClass::Tls,
        ErrorClass::Timeout,
        ErrorClass::Closed,
        ErrorClass::Protocol,
        ErrorClass::EgressDenied,
        ErrorClass::Interrupted,
        ErrorClass::NotSent,
    ];

    /// The whole table of a policy, runs of equal codes on one line. A code where `Retry-After` makes a
    /// difference has a second line.
    fn picture(policy: ResponsePolicy) -> String {
        let status = |code, has_retry_after| classify(policy, Heard::Status { code, has_retry_after });
        let mut out = String::new();
        let mut from = 100;
        for code in 100..=999u16 {
            let ends = code == 999 || status(code + 1, false) != status(code, false);
            if ends {
                let Verdict { ruling, rule } = status(code, false);
                let codes = if from == code { code.to_string() } else { format!("{from}-{code}") };
                writeln!(out, "{codes:<8} {ruling:?} {rule}").expect("a string");
                from = code + 1;
            }
        }
        for code in 100..=999u16 {
            let with = status(code, true);
            if with != status(code, false) {
                let Verdict { ruling, rule } = with;
                writeln!(out, "{code} with Retry-After {ruling:?} {rule}").expect("a string");
            }
        }
        for class in CLASSES {
            let Verdict { ruling, rule } = classify(policy, Heard::Error(class));
            writeln!(out, "{class:?} {ruling:?} {rule}").expect("a string");
        }
        out
    }

    #[test]
    fn ledger() {
        insta::assert_snapshot!(picture(ResponsePolicy::Ledger), @r"
        100-199  Retry 1xx
        200-299  Delivered 2xx
        300-399  Retry redirect
        400-407  Dead 4xx
        408      Retry 408-request-timeout
        409      Retry 409-conflict
        410      Gone 410-gone
        411-420  Dead 4xx
        421      Retry 421-misdirected
        422      Dead 4xx
        423      Retry 423-locked
        424      Dead 4xx
        425      Retry 425-too-early
        426-428  Dead 4xx
        429      Retry 429-throttled
        430-499  Dead 4xx
        500-599  Retry 5xx
        600-999  Retry unknown-status
        413 with Retry-After Retry 413-later
        Dns Retry dns
        Connect Retry connect
        Tls Retry tls
        Timeout Retry timeout
        Closed Retry closed
        Protocol Retry protocol
        EgressDenied Retry egress-denied
        Interrupted Retry interrupted
        NotSent Retry not-sent
        ");
    }

    #[test]
    fn ledger_strict() {
        insta::assert_snapshot!(picture(ResponsePolicy::LedgerStrict), @r"
        100-199  Retry 1xx
        200-299  Delivered 2xx
        300-399  Retry redirect
        400-409  Dead 4xx
        410      Gone 410-gone
        411-499  Dead 4xx
        500-599  Retry 5xx
        600-999  Retry unknown-status
        Dns Retry dns
        Connect Retry connect
        Tls Retry tls
        Timeout Retry timeout
        Closed Retry closed
        Protocol Retry protocol
        EgressDenied Retry egress-denied
        Interrupted Retry interrupted
        NotSent Retry not-sent
        ");
    }

    #[test]
    fn ukue() {
        insta::assert_snapshot!(picture(ResponsePolicy::Ukue), @r"
        100-199  Retry 1xx
        200-299  Delivered 2xx
        300-399  Retry redirect
        400-407  Retry 4xx
        408      Retry 408-request-timeout
        409      Retry 409-conflict
        410      Dead 410-gone
        411-420  Retry 4xx
        421      Retry 421-misdirected
        422      Retry 4xx
        423      Retry 423-locked
        424      Retry 4xx
        425      Retry 425-too-early
        426-428  Retry 4xx
        429      Retry 429-throttled
        430-499  Retry 4xx
        500-599  Retry 5xx
        600-999  Retry unknown-status
        413 with Retry-After Retry 413-later
        Dns Retry dns
        Connect Retry connect
        Tls Retry tls
        Timeout Retry timeout
        Closed Retry closed
        Protocol Retry protocol
        EgressDenied Retry egress-denied
        Interrupted Retry interrupted
        NotSent Retry not-sent
        ");
    }

    #[test]
    fn standard_webhooks() {
        insta::assert_snapshot!(picture(ResponsePolicy::StandardWebhooks), @r"
        100-199  Retry 1xx
        200-299  Delivered 2xx
        300-399  Retry redirect
        400-407  Retry 4xx
        408      Retry 408-request-timeout
        409      Retry 409-conflict
        410      Gone 410-gone
        411-420  Retry 4xx
        421      Retry 421-misdirected
        422      Retry 4xx
        423      Retry 423-locked
        424      Retry 4xx
        425      Retry 425-too-early
        426-428  Retry 4xx
        429      Retry 429-throttled
        430-499  Retry 4xx
        500-599  Retry 5xx
        600-999  Retry unknown-status
        413 with Retry-After Retry 413-later
        Dns Retry dns
        Connect Retry connect
        Tls Retry tls
        Timeout Retry timeout
        Closed Retry closed
        Protocol Retry protocol
        EgressDenied Retry egress-denied
        Interrupted Retry interrupted
        NotSent Retry not-sent
        ");
    }

    #[test]
    fn codes_that_no_response_can_have_retry_too() {
        for code in [0, 1, 99, 1000, u16::MAX] {
            let verdict = classify(ResponsePolicy::Ledger, Heard::Status { code, has_retry_after: false });
            assert_eq!(verdict, Verdict { ruling: Ruling::Retry, rule: "unknown-status" });
        }
    }
}
