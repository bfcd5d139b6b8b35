//! What the operator sets: one set of keys for the file, the environment and the flags, and what they come to.
//!
//! Flags win over the environment, the environment over the file, the file over the defaults. Unknown keys are
//! errors. Never opens a store, a socket or a connection.

#[cfg(feature = "postgres")]
mod outbox;
mod words;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hooklog::alert;
use hooklog::api::{ApiOptions, DATA_BYTES_MAX, Look, OperatorToken, Quotas, serve};
use hooklog::delivery::Key;
use hooklog::delivery::client::{Login, Relay, Security};
use hooklog::delivery::guard::{self, Allow};
use hooklog::delivery::request::SignatureHeader;
use hooklog::engine::ServerPolicy;
use hooklog::notify::Channel;
use hooklog::store::{self, MasterKeySource};
use hooklog_projections::time::Millis;
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::cli::exit::Failure;
#[cfg(feature = "postgres")]
pub use outbox::{Outbox, outbox, outbox_table};
use words::{ColourText, MailboxText, OnGoneText, ResponsePolicyText, SecurityText, ServerAddress};
pub use words::{SCHEDULES, ScheduleText};

/// Where the server listens, unless told: loopback, and a port that nothing known uses.
pub const LISTEN: &str = "127.0.0.1:8474";
/// Where a store is, unless told.
pub const STORE: &str = "./hooklog-store";

/// The environment variables that mean something to Hooklog.
const VARIABLES: [&str; 51] = [
    "HOOKLOG_ADMIN_LISTEN",
    "HOOKLOG_ALERT_EMAIL",
    "HOOKLOG_ALERT_URL",
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
    "HOOKLOG_FAILING_NOTICE_HOURS",
    "HOOKLOG_IN_FLIGHT_MAX",
    "HOOKLOG_KEY",
    "HOOKLOG_LISTEN",
    "HOOKLOG_LOG",
    "HOOKLOG_MAIL_FROM",
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
    "HOOKLOG_PING_URL",
    "HOOKLOG_PORTAL_COLOUR",
    "HOOKLOG_PORTAL_NAME",
    "HOOKLOG_PROFILE",
    "HOOKLOG_PUBLIC_URL",
    "HOOKLOG_REPLAYS_PER_HOUR",
    "HOOKLOG_RESPONSE_POLICY",
    "HOOKLOG_RETRIES_PERCENT",
    "HOOKLOG_SCHEDULE",
    "HOOKLOG_SIGNATURE_HEADER",
    "HOOKLOG_SMTP_PASSWORD",
    "HOOKLOG_SMTP_PASSWORD_FILE",
    "HOOKLOG_SMTP_SECURITY",
    "HOOKLOG_SMTP_SERVER",
    "HOOKLOG_SMTP_USERNAME",
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

/// A mail server that has not taken a message by then is asked again later.
const MAIL_TIMEOUT: Duration = Duration::from_secs(30);

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
    /// What customers' pages are called: your product's name [default: Webhooks]
    #[arg(long, env = "HOOKLOG_PORTAL_NAME", hide_env_values = true, value_name = "NAME")]
    pub portal_name: Option<String>,
    /// The colour of the logo on customers' pages, such as #1a7f37
    #[arg(long, env = "HOOKLOG_PORTAL_COLOUR", hide_env_values = true, value_name = "COLOUR")]
    pub portal_colour: Option<ColourText>,
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
    /// The mail server that owners' messages go to, such as mail.example.com:587; in place of a notifications service
    #[arg(long, env = "HOOKLOG_SMTP_SERVER", hide_env_values = true, value_name = "HOST:PORT")]
    pub smtp_server: Option<ServerAddress>,
    /// How the connection to it is protected: tls, starttls, or none on this machine [default: tls on 465, else starttls]
    #[arg(long, env = "HOOKLOG_SMTP_SECURITY", hide_env_values = true, value_name = "HOW")]
    pub smtp_security: Option<SecurityText>,
    /// Who this server is there, if it wants to know
    #[arg(long, env = "HOOKLOG_SMTP_USERNAME", hide_env_values = true, value_name = "NAME")]
    pub smtp_username: Option<String>,
    /// A file with that user's password. The password itself may be in HOOKLOG_SMTP_PASSWORD
    #[arg(long, env = "HOOKLOG_SMTP_PASSWORD_FILE", hide_env_values = true, value_name = "FILE")]
    pub smtp_password_file: Option<PathBuf>,
    /// Whom mail to owners is from, such as "Example webhooks <hooks@example.com>"
    #[arg(long, env = "HOOKLOG_MAIL_FROM", hide_env_values = true, value_name = "ADDRESS")]
    pub mail_from: Option<MailboxText>,
    /// Hours of nothing but failures after which an endpoint's owner is told; nobody is, unless this is set
    #[arg(long, env = "HOOKLOG_FAILING_NOTICE_HOURS", hide_env_values = true, value_name = "HOURS")]
    pub failing_notice_hours: Option<u64>,
    /// Where monitors find /metrics, /healthz and /readyz, without a key, such as 127.0.0.1:8475; nowhere, unless this
    /// is set
    #[arg(long, env = "HOOKLOG_ADMIN_LISTEN", hide_env_values = true, value_name = "ADDR:PORT")]
    pub admin_listen: Option<SocketAddr>,
    /// The operator's address, told by smtp_server when deliveries are late through this server
    #[arg(long, env = "HOOKLOG_ALERT_EMAIL", hide_env_values = true, value_name = "ADDRESS")]
    pub alert_email: Option<MailboxText>,
    /// Where the same is posted to instead, signed with the notifications key
    #[arg(long, env = "HOOKLOG_ALERT_URL", hide_env_values = true, value_name = "URL")]
    pub alert_url: Option<url::Url>,
    /// A dead-man's switch: a POST every minute for as long as all is well
    #[arg(long, env = "HOOKLOG_PING_URL", hide_env_values = true, value_name = "URL")]
    pub ping_url: Option<url::Url>,
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
    pub owners: Channel,
    /// Where monitors find metrics and health.
    pub admin_listen: Option<SocketAddr>,
    /// Who hears that this server stands still.
    pub alerts: alert::Options,
    /// Where events come from besides the API.
    #[cfg(feature = "postgres")]
    pub outbox: Option<Outbox>,
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
        let paths = [
            &mut layer.store,
            &mut layer.master_key_file,
            &mut layer.operator_token_file,
            &mut layer.extra_ca,
            &mut layer.notifications_key_file,
            &mut layer.smtp_password_file,
            &mut layer.outbox_url_file,
        ];
        for path in paths {
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
            portal_name: self.portal_name.or(below.portal_name),
            portal_colour: self.portal_colour.or(below.portal_colour),
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
            smtp_server: self.smtp_server.or(below.smtp_server),
            smtp_security: self.smtp_security.or(below.smtp_security),
            smtp_username: self.smtp_username.or(below.smtp_username),
            smtp_password_file: self.smtp_password_file.or(below.smtp_password_file),
            mail_from: self.mail_from.or(below.mail_from),
            failing_notice_hours: self.failing_notice_hours.or(below.failing_notice_hours),
            admin_listen: self.admin_listen.or(below.admin_listen),
            alert_email: self.alert_email.or(below.alert_email),
            alert_url: self.alert_url.or(below.alert_url),
            ping_url: self.ping_url.or(below.ping_url),
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
        let owners = self.owners()?;
        let alerts = self.alerts(&owners)?;
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
            failing_notice_after: self
                .failing_notice_hours
                .map(|hours| Millis::from_secs(hours.saturating_mul(3600))),
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
        let look = Look::new(self.portal_name, self.portal_colour.map(|text| text.0));
        let api = ApiOptions {
            look: look.map_err(|error| Failure::usage(format!("portal_name: {error}")))?,
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
            owners,
            admin_listen: self.admin_listen,
            alerts,
            #[cfg(feature = "postgres")]
            outbox: outbox(self.outbox_url_file.as_deref(), self.outbox_table.as_deref())?,
        })
    }

    /// Who hears that this server stands still.
    fn alerts(&self, owners: &Channel) -> Result<alert::Options, Failure> {
        let url = |name: &str, url: Option<&url::Url>| match url
            .map(|url| guard::check_operator_url(url.as_str()))
        {
            None => Ok(None),
            Some(Ok(url)) => Ok(Some(url.to_string())),
            Some(Err(refusal)) => Err(Failure::usage(format!("{name}: {refusal}"))),
        };
        let alert_url = url("alert_url", self.alert_url.as_ref())?;
        let channel = match (alert_url, owners) {
            (Some(_), _) if self.alert_email.is_some() => {
                let both = "alert_email and alert_url are both set: the operator is told by one of them";
                return Err(Failure::usage(both));
            }
            (Some(url), _) => Channel::Service { url, key: self.notifications_key()? },
            (None, Channel::Mail { .. }) if self.alert_email.is_some() => owners.clone(),
            (None, _) if self.alert_email.is_some() => {
                return Err(Failure::usage("alert_email wants smtp_server too: mail needs a way to go"));
            }
            (None, _) => Channel::Log,
        };
        Ok(alert::Options {
            channel,
            email: self.alert_email.as_ref().map(|mailbox| mailbox.0.email.to_string()),
            ping_url: url("ping_url", self.ping_url.as_ref())?,
            base: self.public_url.as_ref().map(|url| url.as_str().trim_end_matches('/').to_owned()),
        })
    }

    /// Signs what is posted to the product's own services.
    fn notifications_key(&self) -> Result<Option<Key>, Failure> {
        let key = secret("HOOKLOG_NOTIFICATIONS_KEY", self.notifications_key_file.as_deref())?;
        let key = key.map(|text| Key::parse(&text)).transpose();
        key.map_err(|error| Failure::usage(format!("notifications key: {error}")))
    }

    /// Where owners' messages go: to one place.
    fn owners(&self) -> Result<Channel, Failure> {
        let wrong = |why: &str| Err(Failure::usage(why));
        let beside = self.smtp_security.is_some() || self.smtp_username.is_some() || self.mail_from.is_some();
        let Some(ServerAddress { host, port }) = &self.smtp_server else {
            if beside {
                return wrong("smtp_security, smtp_username and mail_from are of no use without smtp_server");
            }
            let key = self.notifications_key()?;
            return Ok(match &self.notifications_url {
                Some(url) => Channel::Service { url: url.to_string(), key },
                None => Channel::Log,
            });
        };
        if self.notifications_url.is_some() {
            return wrong("smtp_server and notifications_url are both set: owners are told by one of them");
        }
        let Some(MailboxText(from)) = self.mail_from.clone() else {
            return wrong("smtp_server wants mail_from too: whom the mail is from");
        };
        let usual = if *port == 465 { Security::Tls } else { Security::StartTls };
        let security = self.smtp_security.map_or(usual, |text| text.0);
        let here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        if security == Security::None && !here {
            return wrong("smtp_security = none is for a mail server on this machine; use starttls or tls");
        }
        let password = secret("HOOKLOG_SMTP_PASSWORD", self.smtp_password_file.as_deref())?;
        let login = match (self.smtp_username.clone(), password) {
            (Some(username), Some(password)) => Some(Login { username, password }),
            (None, None) => None,
            (Some(_), None) => {
                return wrong("smtp_username wants a password: smtp_password_file or HOOKLOG_SMTP_PASSWORD");
            }
            (None, Some(_)) => return wrong("a password for the mail server wants smtp_username too"),
        };
        let relay = Relay { host: host.clone(), port: *port, security, login, timeout: MAIL_TIMEOUT };
        Ok(Channel::Mail { relay, from })
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
    use hooklog_projections::policy::{ResponsePolicy, Schedule};

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
    fn owners_are_told_by_one_way_that_is_whole() {
        let config =
            from("smtp_server = '127.0.0.1:25'\nsmtp_security = 'none'\nmail_from = 'Hooks <h@a.example>'");
        let owners = config.expect("a configuration").owners;
        assert!(matches!(owners, Channel::Mail { relay: Relay { security: Security::None, .. }, .. }));
        let of = |server: &str| match from(&format!("smtp_server = '{server}'\nmail_from = 'h@a.example'"))
            .expect(server)
            .owners
        {
            Channel::Mail { relay, .. } => (relay.host, relay.port, relay.security),
            other => panic!("{other:?}"),
        };
        assert_eq!(of("mail.example:465"), ("mail.example".into(), 465, Security::Tls));
        assert_eq!(of("mail.example:587"), ("mail.example".into(), 587, Security::StartTls));
        assert_eq!(of("[::1]:2525"), ("::1".into(), 2525, Security::StartTls));
        let refused = |text: &str| from(text).map(drop).expect_err(text);
        let server = "smtp_server = 'mail.example:587'";
        assert!(refused(server).contains("mail_from"));
        assert!(refused("mail_from = 'h@a.example'").contains("smtp_server"));
        assert!(refused("smtp_server = 'mail.example'").contains("HOST:PORT"));
        assert!(refused("smtp_server = 'mail.example:0'").contains("HOST:PORT"));
        assert!(refused("mail_from = 'nobody'").contains("`nobody` is no address"));
        assert!(refused("mail_from = \"a\\r\\nBcc: b@c.example <a@b.example>\"").contains("is no address"));
        let from = format!("{server}\nmail_from = 'h@a.example'");
        assert!(refused(&format!("{from}\nsmtp_security = 'none'")).contains("on this machine"));
        assert!(refused(&format!("{from}\nsmtp_security = 'ssl'")).contains("`ssl`"));
        assert!(refused(&format!("{from}\nsmtp_username = 'u'")).contains("password"));
        assert!(refused(&format!("{from}\nnotifications_url = 'http://n.example/'")).contains("both"));
    }

    #[test]
    fn the_operator_is_told_by_one_way_that_is_whole() {
        let alerts = |text: &str| from(text).map(|config| config.alerts);
        let silent = alerts("").expect("nothing");
        assert!(matches!(silent.channel, Channel::Log) && silent.ping_url.is_none());
        let posted = alerts("alert_url = 'http://pager.internal/a'\nping_url = 'https://hc.example/ping/1'");
        let posted = posted.expect("a service");
        assert!(matches!(posted.channel, Channel::Service { url, .. } if url == "http://pager.internal/a"));
        assert_eq!(posted.ping_url.as_deref(), Some("https://hc.example/ping/1"));
        let mail = "smtp_server = 'mail.example:587'\nmail_from = 'h@a.example'";
        let mailed = alerts(&format!("{mail}\nalert_email = 'On call <oncall@a.example>'")).expect("mail");
        assert!(matches!(mailed.channel, Channel::Mail { .. }));
        assert_eq!(mailed.email.as_deref(), Some("oncall@a.example"));
        // Owners may have mail while nobody is on call: that is the log's then.
        assert!(matches!(alerts(mail).expect("mail").channel, Channel::Log));
        let refused = |text: &str| alerts(text).map(drop).expect_err(text);
        assert!(refused("alert_email = 'a@b.example'").contains("smtp_server"));
        assert!(refused(&format!("{mail}\nalert_email = 'nobody'")).contains("no address"));
        let both = format!("{mail}\nalert_email = 'a@b.example'\nalert_url = 'http://a.internal/'");
        assert!(refused(&both).contains("both"));
        assert!(refused("ping_url = 'ftp://a.example/'").contains("ping_url"));
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
