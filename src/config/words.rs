//! Settings as people write them: names of policies, waits, addresses. Never knows where they stood.

use hooklog::api::Colour;
use hooklog::delivery::client::Security;
use hooklog::engine::server_policy::OnGone;
use hooklog_projections::policy::{Jitter, ResponsePolicy, Schedule};
use hooklog_projections::time::Millis;
use lettre::message::Mailbox;
use serde::Deserialize;

use crate::cli::span::Span;

/// A schedule by name, or its waits.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "ScheduleKey")]
pub struct ScheduleText(pub Schedule);

/// A response policy by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ResponsePolicyText(pub ResponsePolicy);

/// What a 410 does, by its word.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct OnGoneText(pub OnGone);

/// A host and a port.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ServerAddress {
    /// A name or an address, without brackets.
    pub host: String,
    /// Not 0.
    pub port: u16,
}

impl std::str::FromStr for ServerAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<ServerAddress, String> {
        let wrong = || format!("`{text}` is no HOST:PORT, as mail.example.com:587");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let port = port.parse().ok().filter(|port| *port != 0).ok_or_else(wrong)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let host = url::Host::parse(host).map_err(|_| wrong())?;
        let host = if matches!(host, url::Host::Ipv6(_)) { bare.to_owned() } else { host.to_string() };
        Ok(ServerAddress { host, port })
    }
}

impl TryFrom<String> for ServerAddress {
    type Error = String;

    fn try_from(text: String) -> Result<ServerAddress, String> {
        text.parse()
    }
}

/// A colour, as `#1a7f37`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct ColourText(pub Colour);

impl std::str::FromStr for ColourText {
    type Err = String;

    fn from_str(text: &str) -> Result<ColourText, String> {
        text.parse().map(ColourText)
    }
}

impl TryFrom<String> for ColourText {
    type Error = String;

    fn try_from(text: String) -> Result<ColourText, String> {
        text.parse()
    }
}

/// How a connection to a mail server is protected, by its word.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct SecurityText(pub Security);

impl std::str::FromStr for SecurityText {
    type Err = String;

    fn from_str(text: &str) -> Result<SecurityText, String> {
        match text {
            "tls" => Ok(SecurityText(Security::Tls)),
            "starttls" => Ok(SecurityText(Security::StartTls)),
            "none" => Ok(SecurityText(Security::None)),
            _ => Err(format!("`{text}` is none of `tls`, `starttls` and `none`")),
        }
    }
}

impl TryFrom<String> for SecurityText {
    type Error = String;

    fn try_from(text: String) -> Result<SecurityText, String> {
        text.parse()
    }
}

/// Whom mail is from: an address, with or without a name.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct MailboxText(pub Mailbox);

impl std::str::FromStr for MailboxText {
    type Err = String;

    fn from_str(text: &str) -> Result<MailboxText, String> {
        let plain = !text.chars().any(char::is_control);
        let mailbox = text.parse().ok().filter(|_| plain);
        mailbox.map(MailboxText).ok_or_else(|| {
            format!("`{}` is no address, as Webhooks <hooks@example.com>", text.escape_debug())
        })
    }
}

impl TryFrom<String> for MailboxText {
    type Error = String;

    fn try_from(text: String) -> Result<MailboxText, String> {
        text.parse()
    }
}

impl std::str::FromStr for OnGoneText {
    type Err = String;

    fn from_str(text: &str) -> Result<OnGoneText, String> {
        match text {
            "disable" => Ok(OnGoneText(OnGone::Disable)),
            "dead" => Ok(OnGoneText(OnGone::Dead)),
            _ => Err(format!("`{text}` is neither `disable` nor `dead`")),
        }
    }
}

impl TryFrom<String> for OnGoneText {
    type Error = String;

    fn try_from(text: String) -> Result<OnGoneText, String> {
        text.parse()
    }
}

/// A schedule as the file has it.
#[derive(Deserialize)]
#[serde(untagged)]
enum ScheduleKey {
    Name(String),
    Waits { waits: Vec<String>, jitter_percent: Option<u8> },
}

/// The names that schedules have.
pub const SCHEDULES: [(&str, Schedule); 4] = [
    ("ledger", Schedule::Ledger),
    ("ledger-5", Schedule::Ledger5),
    ("ukue", Schedule::Ukue),
    ("standard-webhooks", Schedule::StandardWebhooks),
];

const RESPONSE_POLICIES: [(&str, ResponsePolicy); 4] = [
    ("ledger", ResponsePolicy::Ledger),
    ("ledger-strict", ResponsePolicy::LedgerStrict),
    ("ukue", ResponsePolicy::Ukue),
    ("standard-webhooks", ResponsePolicy::StandardWebhooks),
];

impl std::str::FromStr for ScheduleText {
    type Err = String;

    fn from_str(text: &str) -> Result<ScheduleText, String> {
        if let Some((_, schedule)) = SCHEDULES.iter().find(|(name, _)| *name == text) {
            return Ok(ScheduleText(schedule.clone()));
        }
        if !text.starts_with(|c: char| c.is_ascii_digit()) {
            let names: Vec<_> = SCHEDULES.iter().map(|(name, _)| *name).collect();
            return Err(format!(
                "there is no schedule `{text}`: use {}, or waits such as 1m,5m,30m",
                names.join(", ")
            ));
        }
        custom(text.split(','), 10)
    }
}

impl TryFrom<ScheduleKey> for ScheduleText {
    type Error = String;

    fn try_from(key: ScheduleKey) -> Result<ScheduleText, String> {
        match key {
            ScheduleKey::Name(name) => name.parse(),
            ScheduleKey::Waits { waits, jitter_percent } => {
                custom(waits.iter().map(String::as_str), jitter_percent.unwrap_or(10))
            }
        }
    }
}

fn custom<'a>(waits: impl Iterator<Item = &'a str>, jitter_percent: u8) -> Result<ScheduleText, String> {
    use hooklog::scheduler::retry::{WAIT_MAX, WAITS_MAX};
    let waits: Vec<Millis> =
        waits.map(|wait| wait.parse::<Span>().map(|span| span.0)).collect::<Result<_, _>>()?;
    if waits.len() > WAITS_MAX {
        return Err(format!("a schedule has at most {WAITS_MAX} waits, this one {}", waits.len()));
    }
    if waits.iter().any(|wait| *wait > WAIT_MAX || wait.0 < 1_000) {
        return Err("a wait is from 1 s to 30 d".into());
    }
    if jitter_percent > 100 {
        return Err("jitter_percent is from 0 to 100".into());
    }
    let jitter = Jitter { minus_percent: jitter_percent, plus_percent: jitter_percent };
    Ok(ScheduleText(Schedule::Custom { waits, jitter }))
}

impl std::str::FromStr for ResponsePolicyText {
    type Err = String;

    fn from_str(text: &str) -> Result<ResponsePolicyText, String> {
        let found = RESPONSE_POLICIES.iter().find(|(name, _)| *name == text);
        found.map(|(_, policy)| ResponsePolicyText(*policy)).ok_or_else(|| {
            let names: Vec<_> = RESPONSE_POLICIES.iter().map(|(name, _)| *name).collect();
            format!("there is no response policy `{text}`: use {}", names.join(", "))
        })
    }
}

impl TryFrom<String> for ResponsePolicyText {
    type Error = String;

    fn try_from(text: String) -> Result<ResponsePolicyText, String> {
        text.parse()
    }
}
