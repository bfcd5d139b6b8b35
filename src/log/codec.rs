//! Values on disk: one version byte, then positional MessagePack. Fields are only appended, variants never
//! renamed; the golden files under `fixtures/logs/v1/facts` hold every fact to that.
//!
//! Never knows what a value means.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Error;

/// The first byte of every value written now.
pub const VERSION: u8 = 1;

/// A value as it is stored.
///
/// # Panics
/// If `T` cannot be serialised at all (a map of unknown length); no type of Hooklog's is so.
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    let mut out = vec![VERSION];
    rmp_serde::encode::write(&mut out, value).expect("a value of known shape, written to memory");
    out
}

/// Reads a stored value back.
///
/// # Errors
/// [`Error::NewerFormat`] for a version this program does not know, [`Error::BadValue`] for bytes that are no
/// `T`, or more than one.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    let mut rest = of_our_version(bytes)?;
    let value = rmp_serde::decode::from_read(&mut rest).map_err(|e| Error::BadValue(e.to_string()))?;
    if rest.is_empty() { Ok(value) } else { Err(Error::BadValue(format!("{} bytes too many", rest.len()))) }
}

/// Reads of a stored value what `T` borrows from it, for whoever looks at many and keeps few. Unlike [`decode`], it
/// does not see bytes that follow the value.
///
/// # Errors
/// As [`decode`].
pub fn glance<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Error> {
    rmp_serde::from_slice(of_our_version(bytes)?).map_err(|e| Error::BadValue(e.to_string()))
}

fn of_our_version(bytes: &[u8]) -> Result<&[u8], Error> {
    let (version, rest) = bytes.split_first().ok_or_else(|| Error::BadValue("it is empty".into()))?;
    match *version {
        VERSION => Ok(rest),
        0 => Err(Error::BadValue("its version is 0".into())),
        newer => Err(Error::NewerFormat { what: "value", found: newer.into(), known: VERSION.into() }),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use hooklog_projections::access::{Role, SecretHash};
    use hooklog_projections::answer::{KeptAnswer, RequestHash};
    use hooklog_projections::course::Course;
    use hooklog_projections::fact::{
        AccountSettings, BodyRef, BulkFilter, BulkOf, DeadReason, DisabledReason, Ended, EndpointSettings,
        Fact, Failure, Of, Response, Routing, Schemes, Sealed, SigningKey, StatusRange,
    };
    use hooklog_projections::ids::{
        AccountId, ApiKeyId, EndpointId, EndpointKey, KeyId, PortalLinkId, ReplayId, Seq, StoreId,
    };
    use hooklog_projections::policy::{ErrorClass, Jitter, ResponsePolicy, Rollout, Schedule};
    use hooklog_projections::time::{Micros, Millis, Timestamp};
    use proptest::prelude::*;

    use super::super::golden;
    use super::*;

    /// A match without a wildcard and the same names as a list: a new variant does not compile until it stands
    /// here, and then lacks its sample.
    macro_rules! variants {
        ($($name:ident)*) => {
            const NAMES: &[&str] = &[$(stringify!($name)),*];
            fn name(fact: &Fact) -> &'static str {
                match fact { $(Fact::$name { .. } => stringify!($name),)* }
            }
        };
    }

    variants! {
        Founded AccountCreated AccountChanged EndpointCreated EndpointChanged EndpointPaused EndpointDisabled
        EndpointResumed EndpointGated Accepted Enqueued Attempted Delivered Failed Rescheduled Dead Replayed
        Cancelled OwnerTold AccountSecretChanged Resealed SigningKeysChanged ResealBegan ApiKeyCreated ApiKeyRotated
        ApiKeyRevoked PortalLinkCreated PortalLinkUsed SecretRevealed
        BulkReplayStarted BulkReplayAdvanced BulkReplayCancelled BulkReplayEnded EndpointRemoved EndpointSecretChanged
        RequestTaken RequestEnded TellingBegan EndpointKeptFailing
    }

    /// One of each, in the order of the list. Changing one changes its golden file: add fields, never alter.
    fn samples() -> Vec<Fact> {
        let account = AccountId(0x0191_0000_0000_7000_8000_0000_0000_00a1);
        let endpoint = EndpointId(0x0191_0000_0000_7000_8000_0000_0000_00e1);
        let key = EndpointKey { account, endpoint };
        let of = Of { account, endpoint, delivery: Seq(7), previous: Seq(300) };
        let body = |len| BodyRef { len, content_type: "application/json".into(), hash: [0xb0; 32] };
        let signing = vec![
            SigningKey { id: KeyId(2), secret: Sealed(vec![2; 40]), expires_at: None },
            SigningKey { id: KeyId(1), secret: Sealed(vec![1; 40]), expires_at: Some(Timestamp(1_700_000)) },
        ];
        let account_settings = AccountSettings {
            name: "Acme Söhne".into(),
            owner_email: Some("ops@acme.example".into()),
            schedule: Some(Schedule::Custom {
                waits: vec![Millis(1000), Millis(60_000)],
                jitter: Jitter { minus_percent: 0, plus_percent: 10 },
            }),
            response_policy: Some(ResponsePolicy::LedgerStrict),
            webhook_retries: Rollout::On,
        };
        let endpoint_settings = EndpointSettings {
            url: "https://hooks.acme.example/in?x=1".into(),
            event_types: vec!["payment.*".into(), "refund.made".into()],
            description: "production".into(),
            schedule: Some(Schedule::Ledger5),
            response_policy: None,
            timeout: Millis(10_000),
            in_flight_max: 8,
            schemes: Schemes { standard: true, ledger: false },
            headers: vec![("x-team".into(), "billing".into())],
            rate_per_second: None,
            disable_after: None,
            body_form: Default::default(),
            queue: None,
        };
        let response = Response {
            status: 503,
            body: Some(body(12)),
            truncated: false,
            took: Millis(123),
            address: Some("192.0.2.7:443".into()),
            course: Some(Box::new(Course {
                queue: Millis(3),
                dns: Some(Micros(210)),
                connect: Some(Micros(18_400)),
                tls: Some(Micros(41_000)),
                first_byte: Some(Micros(120_000)),
                body: Some(Micros(90)),
                reused: false,
                resent: true,
                in_vain: vec!["[2001:db8::7]:443".into()],
            })),
            fields: vec![("retry-after".into(), "120".into()), ("server".into(), "nginx".into())],
        };
        vec![
            Fact::Founded { store: StoreId(0x51), id_key: Sealed(vec![9; 72]) },
            Fact::AccountCreated { account, settings: account_settings.clone(), secret: Sealed(vec![3; 40]) },
            Fact::AccountChanged {
                account,
                settings: AccountSettings {
                    name: "Acme".into(),
                    owner_email: None,
                    schedule: None,
                    response_policy: None,
                    webhook_retries: Rollout::Default,
                },
            },
            Fact::EndpointCreated { key, settings: endpoint_settings.clone(), signing: signing.clone() },
            Fact::EndpointChanged {
                key,
                settings: EndpointSettings {
                    url: "".into(),
                    schedule: None,
                    queue: Some("webhooks".into()),
                    ..endpoint_settings
                },
                signing: signing.clone(),
            },
            Fact::EndpointPaused { key, reason: "maintenance".into() },
            Fact::EndpointDisabled { key, reason: DisabledReason::Requested("abuse".into()) },
            Fact::EndpointResumed { key },
            Fact::EndpointGated { key, until: Timestamp(1_800_000_000_000) },
            Fact::Accepted {
                account,
                event: "evt_01J9X".parse().unwrap(),
                event_type: "payment.settled".into(),
                body: body(65_536),
                deliveries: 2,
            },
            Fact::Enqueued {
                key,
                event: "evt_01J9X".parse().unwrap(),
                accepted: Seq(6),
                event_type: "payment.settled".into(),
                due_at: Timestamp(1_760_000_000_000),
                max_tries: Some(3),
                expire_at: None,
                late: true,
                bulk: Some(ReplayId(0x9)),
            },
            Fact::Attempted {
                of,
                due_at: Timestamp(1_760_000_000_000),
                attempt: 4,
                try_number: 3,
                run: 2,
                endpoint_version: 5,
                signed_with: vec![KeyId(2), KeyId(1)],
            },
            Fact::Delivered {
                of,
                attempt: 4,
                response: Response {
                    status: 204,
                    body: None,
                    address: None,
                    course: None,
                    fields: Vec::new(),
                    ..response.clone()
                },
                rule: "2xx".into(),
            },
            Fact::Failed {
                of,
                attempt: 4,
                failure: Failure::Answered(response),
                rule: "5xx".into(),
                counted: true,
            },
            Fact::Rescheduled {
                of,
                due_at: Timestamp(1_760_000_060_000),
                was_due_at: None,
                rule: "ledger".into(),
            },
            Fact::Dead {
                of,
                reason: DeadReason::RetriesOff,
                was_due_at: Some(Timestamp(5)),
                tell_owner: true,
            },
            Fact::Replayed {
                of,
                was: Ended::Dead,
                run: 2,
                due_at: Timestamp(6),
                reason: "fixed".into(),
                bulk: Some(ReplayId(0x9)),
            },
            Fact::Cancelled { of, due_at: Timestamp(7), reason: "wrong customer".into() },
            Fact::OwnerTold {
                key,
                deliveries: vec![Seq(7), Seq(300)],
                channel: "log".into(),
                began: Some(Seq(299)),
                refused: Some("550 5.1.1 no such user".into()),
            },
            Fact::AccountSecretChanged { account: key.account, secret: Sealed(vec![1, 2, 4]) },
            Fact::Resealed { id_key: Sealed(vec![1, 2, 5]) },
            Fact::SigningKeysChanged { key, signing },
            Fact::ResealBegan { id_key: Sealed(vec![1, 2, 6]) },
            Fact::ApiKeyCreated {
                key: ApiKeyId(3),
                role: Role::Ingest,
                account: Some(key.account),
                hash: SecretHash([4; 32]),
                label: "checkout".into(),
                expires_at: Some(Timestamp(1_790_000_000_000)),
            },
            Fact::ApiKeyRotated {
                key: ApiKeyId(3),
                account: None,
                hash: SecretHash([5; 32]),
                older_until: Some(Timestamp(1_760_086_400_000)),
            },
            Fact::ApiKeyRevoked { key: ApiKeyId(3), account: Some(key.account) },
            Fact::PortalLinkCreated {
                link: PortalLinkId(4),
                account: key.account,
                role: Role::AccountRead,
                hash: SecretHash([6; 32]),
                expires_at: Timestamp(1_760_000_900_000),
                return_url: Some("https://app.customer.example/webhooks".into()),
            },
            Fact::PortalLinkUsed { link: PortalLinkId(4), account: key.account },
            Fact::SecretRevealed {
                account: key.account,
                endpoint: Some(key.endpoint),
                reason: "a receiver cannot verify".into(),
            },
            Fact::BulkReplayStarted {
                id: ReplayId(9),
                account,
                filter: BulkFilter {
                    of: BulkOf::Dead,
                    endpoint: Some(endpoint),
                    event_type: Some("payment.*".into()),
                    since: Some(Timestamp(8)),
                    until: None,
                    http: vec![StatusRange { from: 500, to: 599 }],
                    errors: vec![ErrorClass::Timeout],
                },
                reason: "their outage is over".into(),
                rate_per_second: 50,
                routing: Routing::AsNow,
                planned: 41,
            },
            Fact::BulkReplayAdvanced { id: ReplayId(9), account, upto: Seq(300), skipped: 2 },
            Fact::BulkReplayCancelled { id: ReplayId(9), account },
            Fact::BulkReplayEnded { id: ReplayId(9), account, replayed: 39, skipped: 2 },
            Fact::EndpointRemoved { key, reason: "moved away".into() },
            Fact::EndpointSecretChanged { key, secret: Some(Sealed(vec![1, 2, 7])) },
            Fact::RequestTaken {
                key: RequestHash([7; 32]),
                request: RequestHash([8; 32]),
                forgets: vec![RequestHash([9; 32])],
            },
            Fact::RequestEnded {
                key: RequestHash([7; 32]),
                answer: Some(KeptAnswer {
                    status: 201,
                    headers: vec![("location".into(), "/v1/accounts/acct_1".into())],
                    body: Sealed(vec![1, 2, 7]),
                }),
            },
            Fact::TellingBegan { key },
            Fact::EndpointKeptFailing { key, since: Timestamp(1_760_000_000_000) },
        ]
    }

    /// Facts of which a file lies in `facts/older`: as they were before a field was appended.
    fn older() -> Vec<Fact> {
        let mut facts = samples();
        facts.retain_mut(|fact| {
            match fact {
                Fact::Enqueued { late, bulk, .. } => (*late, *bulk) = (false, None),
                Fact::Replayed { bulk, .. } => *bulk = None,
                Fact::PortalLinkCreated { return_url, .. } => *return_url = None,
                Fact::OwnerTold { began, refused, .. } => (*began, *refused) = (None, None),
                Fact::Delivered { response, .. }
                | Fact::Failed { failure: Failure::Answered(response), .. } => {
                    (response.course, response.fields) = (None, Vec::new());
                }
                Fact::EndpointCreated { settings, .. } | Fact::EndpointChanged { settings, .. } => {
                    (settings.url, settings.queue) = ("https://hooks.acme.example/in?x=1".into(), None);
                }
                _ => return false,
            }
            true
        });
        facts
    }

    #[test]
    fn facts_from_before_a_field_was_appended_are_read_without_it() {
        for fact in older() {
            let golden = golden::read(&Path::new("facts/older").join(fact.name()));
            assert_eq!(decode::<Fact>(&golden).unwrap(), fact, "{}", fact.name());
            assert_ne!(golden, encode(&fact), "{} is how it is written now", fact.name());
        }
        // As they were once they said how the attempt went, and nothing of the head yet.
        for mut fact in samples() {
            let (Fact::Delivered { response, .. }
            | Fact::Failed { failure: Failure::Answered(response), .. }) = &mut fact
            else {
                continue;
            };
            response.fields.clear();
            let golden = golden::read(&Path::new("facts/older/course").join(fact.name()));
            assert_eq!(decode::<Fact>(&golden).unwrap(), fact, "{}", fact.name());
        }
        /// A failure as it was before it said how the attempt went.
        #[derive(Serialize)]
        enum Older {
            Error { class: ErrorClass, detail: &'static str, took: Millis },
        }
        let older = Older::Error { class: ErrorClass::Timeout, detail: "no answer", took: Millis(10_000) };
        let now = Failure::Error {
            class: ErrorClass::Timeout,
            detail: "no answer".into(),
            took: Millis(10_000),
            reason: None,
            address: None,
            course: None,
        };
        assert_eq!(decode::<Failure>(&encode(&older)).unwrap(), now);
    }

    #[test]
    fn every_fact_ever_written_is_read() {
        let samples = samples();
        assert_eq!(samples.iter().map(name).collect::<Vec<_>>(), NAMES);
        for fact in samples {
            let golden = golden::check(&Path::new("facts").join(fact.name()), &encode(&fact));
            assert_eq!(decode::<Fact>(&golden).unwrap(), fact, "{}", fact.name());
        }
    }

    #[test]
    fn shapes_within_facts_that_have_no_file_of_their_own() {
        let of = Of { account: AccountId(1), endpoint: EndpointId(2), delivery: Seq(3), previous: Seq(4) };
        let error = Failure::Error {
            class: ErrorClass::Tls,
            detail: "the certificate has expired".into(),
            took: Millis(60),
            reason: Some("certificate-expired".into()),
            address: Some("192.0.2.7:443".into()),
            course: Some(Box::default()),
        };
        let failed = Fact::Failed { of, attempt: 1, failure: error, rule: "drain".into(), counted: false };
        let gone = Fact::EndpointDisabled { key: of.endpoint_key(), reason: DisabledReason::Gone };
        for fact in [failed, gone] {
            assert_eq!(decode::<Fact>(&encode(&fact)).unwrap(), fact);
        }
    }

    #[test]
    fn a_later_version_is_named() {
        let mut bytes = encode(&Seq(1));
        bytes[0] = 2;
        let error = decode::<Seq>(&bytes).unwrap_err();
        assert!(matches!(error, Error::NewerFormat { found: 2, known: 1, .. }), "{error}");
        assert!(error.to_string().contains("newer Hooklog"), "{error}");
    }

    #[test]
    fn nothing_may_follow_a_value() {
        let mut bytes = encode(&Seq(1));
        bytes.push(0);
        assert!(matches!(decode::<Seq>(&bytes), Err(Error::BadValue(_))));
        assert!(matches!(decode::<Seq>(&[]), Err(Error::BadValue(_))));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode::<Fact>(&bytes);
            let _ = decode::<Fact>(&[&[VERSION], &bytes[..]].concat());
        }

        #[test]
        fn no_flipped_bit_panics(n in 0..NAMES.len(), bit in any::<prop::sample::Index>()) {
            let mut bytes = encode(&samples()[n]);
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let _ = decode::<Fact>(&bytes);
        }
    }
}
