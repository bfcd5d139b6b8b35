//! What the operator sets: one set of keys for the file, the environment and the flags, and what they come to.
//!
//! Flags win over the environment, the environment over the file, the file over the defaults. Unknown keys are
//! errors. Never opens a store, a socket or a connection.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use hooklog::api::{ApiOptions, DATA_BYTES_MAX, OperatorToken, Quotas, serve};
use hooklog::delivery::Key;
use hooklog::delivery::guard::{self, Allow};
use hooklog::delivery::request::SignatureHeader;
use hooklog::engine::ServerPolicy;
use hooklog::engine::server_policy::OnGone;
#[cfg(feature = "postgres")]
use hooklog::outbox::{Address, Table};
use hooklog::store::{self, MasterKeySource};
use hooklog_projections::policy::{Jitter, ResponsePolicy, Schedule};
use hooklog_projections::time::Millis;
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::cli::exit::Failure;
use crate::cli::span::Span;

/// Where the server listens, unless told: loopback, and a port that nothing known uses.
pub const LISTEN: &str = "127.0.0.1:8474";
/// Where a store is, unless told.
pub const STORE: &str = "./hooklog-store";

/// The environment variables that mean something to Hooklog.
const VARIABLES: [&str; 38] = [
    "HOOKLOG_ALLOW",
    "HOOKLOG_ALLOW_HTTP",
    "HOOKLOG_CONFIG",
    "HOOKLOG_CONNECTIONS_MAX",
    "HOOKLOG_CONNECTIONS_PER_SOURCE_MAX",
    "HOOKLOG_DATA_BYTES_MAX",
    "HOOKLOG_DISABLE_AFTER_SECS",
    "HOOKLOG_ENDPOINTS_MAX",
    "HOOKLOG_EVENTS_PER_MINUTE",
    "HOOKLOG_EXTRA_CA",
    "HOOKLOG_IN_FLIGHT_MAX",
    "HOOKLOG_KEY",
    "HOOKLOG_LISTEN",
    "HOOKLOG_LOG",
    "HOOKLOG_MASTER_KEY",
    "HOOKLOG_MASTER_KEY_FILE",
    "HOOKLOG_NOTIFICATIONS_KEY",
    "HOOKLOG_NOTIFICATIONS_KEY_FILE",
    "HOOKLOG_NOTIFICATIONS_URL",
    "HOOKLOG_ON_GONE",
    "HOOKLOG_OPEN_LOOPBACK",
    "HOOKLOG_OPERATOR_TOKEN",
    "HOOKLOG_OPERATOR_TOKEN_FILE",
    "HOOKLOG_OUTBOX_TABLE",
    "HOOKLOG_OUTBOX_URL",
    "HOOKLOG_OUTBOX_URL_FILE",
    "HOOKLOG_PROFILE",
    "HOOKLOG_PUBLIC_URL",
    "HOOKLOG_REPLAYS_PER_HOUR",
    "HOOKLOG_RESPONSE_POLICY",
    "HOOKLOG_RETRIES_PERCENT",
    "HOOKLOG_SCHEDULE",
    "HOOKLOG_SIGNATURE_HEADER",
    "HOOKLOG_STORE",
    "HOOKLOG_TARGET_IN_FLIGHT_MAX",
    "HOOKLOG_TRUSTED_HOPS",
    "HOOKLOG_URL",
    "HOOKLOG_WAIT_DIVISOR",
];

/// Open files that are kept for everything but deliveries: the store's, the API's, the process's own.
const FILES_RESERVED: u64 = 256;
/// A delivery takes a connection and, while its name is looked up or a kept one is replaced, another.
const FILES_PER_DELIVERY: u64 = 2;
/// Requests out at a time that are always possible, and that are never worth more.
const IN_FLIGHT: std::ops::RangeInclusive<u64> = 256..=4096;

/// One layer of settings. Absent keys leave it to the layer below.
#[derive(Clone, Debug, Default, Deserialize, clap::Args)]
#[serde(deny_unknown_fields)]
pub struct Layer {
    /// Where to listen [default: 127.0.0.1:8474]
    #[arg(long, env = "HOOKLOG_LISTEN", hide_env_values = true, value_name = "ADDR:PORT")]
    pub listen: Option<SocketAddr>,
    /// The store's folder; made if it is not there [default: ./hooklog-store]
    #[arg(
        id = "store_folder",
        long = "store",
        env = "HOOKLOG_STORE",
        hide_env_values = true,
        value_name = "DIR"
    )]
    pub store: Option<PathBuf>,
    /// The master key's file [default: master.key in the store]. The key itself may be in HOOKLOG_MASTER_KEY
    #[arg(long, env = "HOOKLOG_MASTER_KEY_FILE", hide_env_values = true, value_name = "FILE")]
    pub master_key_file: Option<PathBuf>,
    /// A file with a token of your own that is taken as an operator's key. It may be in HOOKLOG_OPERATOR_TOKEN
    #[arg(long, env = "HOOKLOG_OPERATOR_TOKEN_FILE", hide_env_values = true, value_name = "FILE")]
    pub operator_token_file: Option<PathBuf>,
    /// Want no key over loopback: whoever is on this machine may do everything
    #[arg(long, env = "HOOKLOG_OPEN_LOOPBACK", hide_env_values = true, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub open_loopback: Option<bool>,
    /// Where people reach this server, such as https://hooks.example.com: links to the portal begin with it
    #[arg(long, env = "HOOKLOG_PUBLIC_URL", hide_env_values = true, value_name = "URL")]
    pub public_url: Option<url::Url>,
    /// Proxies in front of this server that say in X-Forwarded-For whom a request comes from [default: 0]
    #[arg(long, env = "HOOKLOG_TRUSTED_HOPS", hide_env_values = true, value_name = "N")]
    pub trusted_hops: Option<usize>,
    /// Connections to the API at a time [default: 1024]
    #[arg(long, env = "HOOKLOG_CONNECTIONS_MAX", hide_env_values = true, value_name = "N")]
    pub connections_max: Option<usize>,
    /// Of these, from one network (IPv4 /24, IPv6 /64) that is not loopback [default: 64]
    #[arg(long, env = "HOOKLOG_CONNECTIONS_PER_SOURCE_MAX", hide_env_values = true, value_name = "N")]
    pub connections_per_source_max: Option<usize>,
    /// Events that are taken in for one account in a minute [default: 1000000]
    #[arg(long, env = "HOOKLOG_EVENTS_PER_MINUTE", hide_env_values = true, value_name = "N")]
    pub events_per_minute: Option<u32>,
    /// Replays that an account's own keys may ask for in an hour [default: 1000]
    #[arg(long, env = "HOOKLOG_REPLAYS_PER_HOUR", hide_env_values = true, value_name = "N")]
    pub replays_per_hour: Option<u32>,
    /// Accept endpoints with plain http
    #[arg(long, env = "HOOKLOG_ALLOW_HTTP", hide_env_values = true, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub allow_http: Option<bool>,
    /// Private addresses that may be reached: a CIDR with an optional port, such as 10.1.0.0/16 or 127.0.0.1:8080
    #[arg(long, env = "HOOKLOG_ALLOW", hide_env_values = true, value_name = "CIDR", value_delimiter = ',')]
    pub allow: Option<Vec<String>>,
    /// A file of PEM certificates that receivers may be signed by, beside the system's: a private authority
    #[arg(long, env = "HOOKLOG_EXTRA_CA", hide_env_values = true, value_name = "FILE")]
    pub extra_ca: Option<PathBuf>,
    /// The retry schedule: ledger, ledger-5, ukue, standard-webhooks, or waits such as 1m,5m,30m [default: ledger]
    #[arg(long, env = "HOOKLOG_SCHEDULE", hide_env_values = true, value_name = "SCHEDULE")]
    pub schedule: Option<ScheduleText>,
    /// What answers mean: ledger, ledger-strict, ukue or standard-webhooks [default: ledger]
    #[arg(long, env = "HOOKLOG_RESPONSE_POLICY", hide_env_values = true, value_name = "POLICY")]
    pub response_policy: Option<ResponsePolicyText>,
    /// How many of a hundred accounts have retries, where the account does not say [default: 100]
    #[arg(long, env = "HOOKLOG_RETRIES_PERCENT", hide_env_values = true, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(0..=100))]
    pub retries_percent: Option<u8>,
    /// What a 410 does to its endpoint: disable (what waits is held) or dead (nothing more) [default: disable]
    #[arg(long, env = "HOOKLOG_ON_GONE", hide_env_values = true, value_name = "WHAT")]
    pub on_gone: Option<OnGoneText>,
    /// Seconds of nothing but failures after which an endpoint is disabled [default: 432000, five days]
    #[arg(long, env = "HOOKLOG_DISABLE_AFTER_SECS", hide_env_values = true, value_name = "SECS")]
    pub disable_after_secs: Option<u64>,
    /// The header that carries the signature made with an account's secret [default: X-Ledger-Signature]
    #[arg(long, env = "HOOKLOG_SIGNATURE_HEADER", hide_env_values = true, value_name = "NAME")]
    pub signature_header: Option<SignatureHeader>,
    /// Requests out at a time [default: from the open-file limit, 256 to 4096]
    #[arg(long, env = "HOOKLOG_IN_FLIGHT_MAX", hide_env_values = true, value_name = "N")]
    pub in_flight_max: Option<usize>,
    /// Requests out at a time to one receiver (scheme, host and port), over all accounts [default: half of all]
    #[arg(long, env = "HOOKLOG_TARGET_IN_FLIGHT_MAX", hide_env_values = true, value_name = "N")]
    pub target_in_flight_max: Option<usize>,
    /// Endpoints of an account [default: 1000]
    #[arg(long, env = "HOOKLOG_ENDPOINTS_MAX", hide_env_values = true, value_name = "N")]
    pub endpoints_max: Option<usize>,
    /// Bytes of an event's data [default: 65536]
    #[arg(long, env = "HOOKLOG_DATA_BYTES_MAX", hide_env_values = true, value_name = "BYTES")]
    pub data_bytes_max: Option<usize>,
    /// Where the owners' messages are posted to: the product's own notifications service
    #[arg(long, env = "HOOKLOG_NOTIFICATIONS_URL", hide_env_values = true, value_name = "URL")]
    pub notifications_url: Option<url::Url>,
    /// A file with the key (whsec_…) that signs them. The key may be in HOOKLOG_NOTIFICATIONS_KEY
    #[arg(long, env = "HOOKLOG_NOTIFICATIONS_KEY_FILE", hide_env_values = true, value_name = "FILE")]
    pub notifications_key_file: Option<PathBuf>,
    /// A file with the URL (postgres://…) of a database with an outbox, whose rows are handed over. The URL may be in
    /// HOOKLOG_OUTBOX_URL
    #[arg(long, env = "HOOKLOG_OUTBOX_URL_FILE", hide_env_values = true, value_name = "FILE")]
    pub outbox_url_file: Option<PathBuf>,
    /// The outbox's table, with its schema if it has one [default: hooklog_outbox]
    #[arg(long, env = "HOOKLOG_OUTBOX_TABLE", hide_env_values = true, value_name = "TABLE")]
    pub outbox_table: Option<String>,
    /// Divides every wait of the schedule: for demonstrations and tests
    #[arg(long, env = "HOOKLOG_WAIT_DIVISOR", hide_env_values = true, value_name = "N", hide = true)]
    pub wait_divisor: Option<u32>,
}

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

/// What all layers come to.
#[derive(Debug)]
pub struct Config {
    /// Where to listen.
    pub listen: SocketAddr,
    /// How the store is opened.
    pub store: store::Options,
    /// How the API is served.
    pub api: ApiOptions,
    /// Where owners' messages go.
    pub notifications_url: Option<url::Url>,
    /// Signs them.
    pub notifications_key: Option<Key>,
    /// Where events come from besides the API.
    #[cfg(feature = "postgres")]
    pub outbox: Option<Outbox>,
}

/// A table of events in an application's database.
#[cfg(feature = "postgres")]
#[derive(Debug)]
pub struct Outbox {
    /// Where the database is.
    pub address: Address,
    /// The table in it.
    pub table: Table,
}

/// The outbox whose URL is in the environment or a file; none without.
///
/// # Errors
/// A URL or a name that means nothing.
#[cfg(feature = "postgres")]
pub fn outbox(file: Option<&Path>, table: Option<&str>) -> Result<Option<Outbox>, Failure> {
    let Some(url) = secret("HOOKLOG_OUTBOX_URL", file)? else { return Ok(None) };
    Ok(Some(Outbox { address: Address::parse(&url)?, table: outbox_table(table)? }))
}

/// The outbox's table.
///
/// # Errors
/// A name that means nothing.
#[cfg(feature = "postgres")]
pub fn outbox_table(name: Option<&str>) -> Result<Table, Failure> {
    Ok(name.map_or_else(|| Ok(Table::default()), str::parse)?)
}

impl Layer {
    /// The layer in a file. Relative paths in it start at the file's folder.
    ///
    /// # Errors
    /// A file that cannot be read, and keys and values that mean nothing, with their line.
    pub fn from_file(path: &Path) -> Result<Layer, Failure> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))?;
        let mut layer: Layer = toml::from_str(&text).map_err(|error| {
            Failure::usage(format!("{}: {}", path.display(), error.to_string().trim_end()))
        })?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let Layer {
            store,
            master_key_file,
            operator_token_file,
            extra_ca,
            notifications_key_file,
            outbox_url_file,
            ..
        } = &mut layer;
        for path in
            [store, master_key_file, operator_token_file, extra_ca, notifications_key_file, outbox_url_file]
        {
            *path = path.take().map(|path| folder.join(path));
        }
        Ok(layer)
    }

    /// This layer, and the other where this one says nothing.
    pub fn over(self, below: Layer) -> Layer {
        Layer {
            listen: self.listen.or(below.listen),
            store: self.store.or(below.store),
            master_key_file: self.master_key_file.or(below.master_key_file),
            operator_token_file: self.operator_token_file.or(below.operator_token_file),
            open_loopback: self.open_loopback.or(below.open_loopback),
            public_url: self.public_url.or(below.public_url),
            trusted_hops: self.trusted_hops.or(below.trusted_hops),
            connections_max: self.connections_max.or(below.connections_max),
            connections_per_source_max: self.connections_per_source_max.or(below.connections_per_source_max),
            events_per_minute: self.events_per_minute.or(below.events_per_minute),
            replays_per_hour: self.replays_per_hour.or(below.replays_per_hour),
            allow_http: self.allow_http.or(below.allow_http),
            allow: self.allow.or(below.allow),
            extra_ca: self.extra_ca.or(below.extra_ca),
            schedule: self.schedule.or(below.schedule),
            response_policy: self.response_policy.or(below.response_policy),
            retries_percent: self.retries_percent.or(below.retries_percent),
            on_gone: self.on_gone.or(below.on_gone),
            disable_after_secs: self.disable_after_secs.or(below.disable_after_secs),
            signature_header: self.signature_header.or(below.signature_header),
            in_flight_max: self.in_flight_max.or(below.in_flight_max),
            target_in_flight_max: self.target_in_flight_max.or(below.target_in_flight_max),
            endpoints_max: self.endpoints_max.or(below.endpoints_max),
            data_bytes_max: self.data_bytes_max.or(below.data_bytes_max),
            notifications_url: self.notifications_url.or(below.notifications_url),
            notifications_key_file: self.notifications_key_file.or(below.notifications_key_file),
            outbox_url_file: self.outbox_url_file.or(below.outbox_url_file),
            outbox_table: self.outbox_table.or(below.outbox_table),
            wait_divisor: self.wait_divisor.or(below.wait_divisor),
        }
    }

    /// What it comes to, with the defaults below. Secrets are read from their files and the environment.
    ///
    /// # Errors
    /// Values that mean nothing, and secrets that cannot be read.
    pub fn resolve(self) -> Result<Config, Failure> {
        let folder = self.store.unwrap_or_else(|| STORE.into());
        let mut store = store::Options::new(folder);
        if let Some(text) = secret_variable("HOOKLOG_MASTER_KEY") {
            store.master = MasterKeySource::Text(text);
        } else if let Some(path) = self.master_key_file {
            store.master = MasterKeySource::File(path);
        }
        let allow = self.allow.unwrap_or_default();
        let allow = allow.iter().map(|line| line.trim().parse::<Allow>()).collect::<Result<_, _>>();
        store.guard = guard::Policy {
            allow: allow.map_err(|error| Failure::usage(format!("allow: {error}")))?,
            allow_http: self.allow_http.unwrap_or(false),
            ..guard::Policy::default()
        };
        store.client.extra_ca = self.extra_ca;
        let defaults = ServerPolicy::default();
        let retries_percent = self.retries_percent.unwrap_or(defaults.retries_percent);
        if retries_percent > 100 {
            return Err(Failure::usage("retries_percent is from 0 to 100"));
        }
        let in_flight_max = self.in_flight_max.unwrap_or_else(|| in_flight_max(open_files_max()));
        let data_bytes_max = self.data_bytes_max.unwrap_or(DATA_BYTES_MAX);
        if in_flight_max == 0 || self.target_in_flight_max == Some(0) || data_bytes_max == 0 {
            let limits = "in_flight_max, target_in_flight_max and data_bytes_max";
            return Err(Failure::usage(format!("{limits} are at least 1")));
        }
        store.policy = ServerPolicy {
            schedule: self.schedule.map_or(defaults.schedule, |text| text.0),
            response_policy: self.response_policy.map_or(defaults.response_policy, |text| text.0),
            retries_percent,
            wait_divisor: self.wait_divisor.unwrap_or(1).max(1),
            in_flight_max,
            target_in_flight_max: self.target_in_flight_max,
            endpoints_max: self.endpoints_max.unwrap_or(defaults.endpoints_max),
            on_gone: self.on_gone.map_or(defaults.on_gone, |text| text.0),
            disable_after: self.disable_after_secs.map_or(defaults.disable_after, Millis::from_secs),
            signature_header: self.signature_header.unwrap_or_default(),
        };
        #[cfg(not(feature = "postgres"))]
        if self.outbox_url_file.is_some() || self.outbox_table.is_some() {
            return Err(Failure::usage(
                "this hooklog was built without the feature `postgres`: it has no outbox",
            ));
        }
        let operator_token = secret("HOOKLOG_OPERATOR_TOKEN", self.operator_token_file.as_deref())?;
        let operator_token = operator_token.map(|text| OperatorToken::new(&text)).transpose();
        let key = secret("HOOKLOG_NOTIFICATIONS_KEY", self.notifications_key_file.as_deref())?;
        let key = key.map(|text| Key::parse(&text)).transpose();
        let mut connections = serve::Connections::default();
        connections.max = self.connections_max.unwrap_or(connections.max);
        connections.per_source_max = self.connections_per_source_max.unwrap_or(connections.per_source_max);
        if connections.max == 0 || connections.per_source_max == 0 {
            return Err(Failure::usage("connections_max and connections_per_source_max are at least 1"));
        }
        let defaults = Quotas::default();
        let quotas = Quotas {
            events_per_minute: self.events_per_minute.unwrap_or(defaults.events_per_minute),
            replays_per_hour: self.replays_per_hour.unwrap_or(defaults.replays_per_hour),
        };
        let api = ApiOptions {
            public_url: self.public_url,
            listens_on: None,
            connections,
            quotas,
            data_bytes_max,
            operator_token: operator_token.map_err(|error| Failure::usage(error.to_string()))?,
            open: self.open_loopback.unwrap_or(false),
            trusted_hops: self.trusted_hops.unwrap_or(0),
            policy: store.policy.clone(),
        };
        Ok(Config {
            listen: self.listen.unwrap_or_else(|| LISTEN.parse().expect("an address")),
            store,
            api,
            notifications_url: self.notifications_url,
            notifications_key: key.map_err(|error| Failure::usage(format!("notifications key: {error}")))?,
            #[cfg(feature = "postgres")]
            outbox: outbox(self.outbox_url_file.as_deref(), self.outbox_table.as_deref())?,
        })
    }
}

/// A secret from an environment variable, else from a file; white space around it does not count.
pub fn secret(variable: &str, file: Option<&Path>) -> Result<Option<Zeroizing<String>>, Failure> {
    if let Some(text) = secret_variable(variable) {
        return Ok(Some(text));
    }
    let Some(path) = file else { return Ok(None) };
    let text = std::fs::read_to_string(path).map(Zeroizing::new);
    let text = text.map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))?;
    match text.trim() {
        "" => Err(Failure::usage(format!("{} is empty", path.display()))),
        text => Ok(Some(Zeroizing::new(text.to_owned()))),
    }
}

fn secret_variable(name: &str) -> Option<Zeroizing<String>> {
    let text = Zeroizing::new(std::env::var(name).ok()?);
    let text = text.trim();
    (!text.is_empty()).then(|| Zeroizing::new(text.to_owned()))
}

/// Variables that look like ours and mean nothing. A warning, not an error: container platforms put variables
/// of their own under a service's name (`HOOKLOG_PORT`, `HOOKLOG_SERVICE_HOST`).
pub fn unknown_variables() -> Vec<String> {
    let ours = |name: &String| name.starts_with("HOOKLOG_");
    let known = |name: &str| VARIABLES.contains(&name);
    let platform = |name: &str| name.starts_with("HOOKLOG_PORT") || name.starts_with("HOOKLOG_SERVICE_");
    std::env::vars_os()
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(ours)
        .filter(|name| !known(name) && !platform(name))
        .collect()
}

fn open_files_max() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}

fn in_flight_max(open_files: u64) -> usize {
    let fits = open_files.saturating_sub(FILES_RESERVED) / FILES_PER_DELIVERY;
    fits.clamp(*IN_FLIGHT.start(), *IN_FLIGHT.end()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(text: &str) -> Result<Config, String> {
        let layer: Layer = toml::from_str(text).map_err(|error| error.to_string())?;
        layer.resolve().map_err(|failure| failure.text)
    }

    #[test]
    fn the_file_knows_every_key() {
        let config = from(
            r#"
            listen = "0.0.0.0:80"
            store = "/srv/hooklog"
            allow_http = true
            allow = ["10.0.0.0/8", "127.0.0.1:8080"]
            extra_ca = "/etc/hooklog/ca.pem"
            schedule = { waits = ["1m", "5m"], jitter_percent = 20 }
            response_policy = "ledger-strict"
            retries_percent = 10
            signature_header = "X-Acme-Signature"
            in_flight_max = 7
            target_in_flight_max = 3
            endpoints_max = 10
            data_bytes_max = 1000
            notifications_url = "http://notifications.internal/v1/messages"
            outbox_table = "shop.outbox"
            "#,
        )
        .expect("a configuration");
        assert_eq!(config.listen.to_string(), "0.0.0.0:80");
        assert_eq!(config.store.folder, Path::new("/srv/hooklog"));
        assert_eq!(config.store.guard.allow.len(), 2);
        assert_eq!(config.store.policy.response_policy, ResponsePolicy::LedgerStrict);
        assert_eq!(config.store.policy.signature_header.as_str(), "X-Acme-Signature");
        assert_eq!(config.store.client.extra_ca.as_deref(), Some(Path::new("/etc/hooklog/ca.pem")));
        assert_eq!(config.store.policy.in_flight_max, 7);
        assert_eq!(config.store.policy.target_in_flight_max, Some(3));
        assert_eq!(config.store.policy.endpoints_max, 10);
        let Schedule::Custom { waits, jitter } = config.store.policy.schedule else { panic!("custom waits") };
        assert_eq!(waits, [Millis(60_000), Millis(300_000)]);
        assert_eq!(jitter.minus_percent, 20);
    }

    #[test]
    fn what_means_nothing_is_refused_by_name() {
        let refused = |text: &str| from(text).map(drop).expect_err(text);
        assert!(refused("lisen = '127.0.0.1:1'").contains("unknown field `lisen`"));
        assert!(refused("allow = ['everything']").contains("`everything` allows nothing"));
        assert!(
            refused("schedule = 'hourly'").contains("ScheduleKey")
                || refused("schedule = 'hourly'").contains("hourly")
        );
        assert!(refused("response_policy = 'kind'").contains("`kind`"));
        assert!(refused("signature_header = 'Host'").contains("`Host` cannot carry a signature"));
        assert!(refused("retries_percent = 101").contains("0 to 100"));
    }

    #[test]
    fn every_flag_has_a_variable_that_is_known() {
        use clap::Args;
        let command = Layer::augment_args(clap::Command::new("hooklog"));
        for flag in command.get_arguments() {
            let variable = flag.get_env().and_then(|name| name.to_str()).expect("a variable");
            assert!(VARIABLES.contains(&variable), "{variable}");
        }
    }

    #[test]
    fn upper_layers_win() {
        let layer = |text: &str| toml::from_str::<Layer>(text).expect("a layer");
        let both = layer("retries_percent = 5").over(layer("retries_percent = 50\ndata_bytes_max = 9"));
        assert_eq!((both.retries_percent, both.data_bytes_max), (Some(5), Some(9)));
    }

    #[test]
    fn requests_out_follow_the_open_file_limit() {
        assert_eq!(in_flight_max(256), 256);
        assert_eq!(in_flight_max(1024), 384);
        assert_eq!(in_flight_max(u64::MAX), 4096);
    }
}
