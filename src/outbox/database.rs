//! A connection to the application's PostgreSQL: from its URL, with TLS, with limits on how long anything may take.
//!
//! Never tells a password. Never knows the table.

use std::future::poll_fn;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{AsyncMessage, Client, Config};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::task::AbortOnDropHandle;

use super::Error;
use super::tls::{self, Check};

/// A connection is made within this time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Nothing that is asked of PostgreSQL takes longer; else the connection is given up.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);
/// A peer that is silent so long is asked whether it is there.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// What every connection begins with. A relay that hangs loses its rows to others after a minute. Its own commits
/// need no sync: what comes back after a crash of the database is handed over again, and known by its id. Rows are
/// found by the index, whatever the statistics of a table that fills and empties say.
const SESSION: &str = "SET synchronous_commit = off; SET idle_in_transaction_session_timeout = '60s'; \
                       SET statement_timeout = '50s'; SET enable_seqscan = off; SET enable_sort = off";

/// Where the database is, and how to get in.
#[derive(Clone)]
pub struct Address {
    config: Config,
    tls: MakeRustlsConnect,
}

/// A connection that is open, or was.
pub struct Session {
    /// Asks.
    pub client: Client,
    /// Told of each notification, and of the connection's end.
    pub woken: Arc<Notify>,
    _connection: AbortOnDropHandle<()>,
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Address").field(&self.at()).finish()
    }
}

impl Address {
    /// Reads `postgres://USER:PASSWORD@HOST:PORT/DATABASE?…` with the parameters of libpq. `sslmode` is `verify-full`
    /// unless it is given, and no TLS goes over a Unix socket.
    ///
    /// # Errors
    /// [`Error::Url`], which shows no part of the URL but a parameter's name.
    pub fn parse(url: &str) -> Result<Address, Error> {
        let bad = |why: &str| Error::Url(why.into());
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(bad("it begins with postgres:// or postgresql://"));
        }
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut rest, mut mode, mut roots) = (Vec::new(), None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match url::form_urlencoded::parse(pair.as_bytes()).next() {
                Some((name, value)) if name == "sslmode" => mode = Some(value.into_owned()),
                Some((name, value)) if name == "sslrootcert" => roots = Some(value.into_owned()),
                Some((name, _)) if matches!(&*name, "sslcert" | "sslkey" | "sslcrl" | "sslpassword") => {
                    return Err(Error::Url(format!("{name} is not supported: use a password")));
                }
                _ => rest.push(pair),
            }
        }
        let text = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
        let mut config: Config =
            text.parse().map_err(|error: tokio_postgres::Error| Error::Url(said(&error)))?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(bad("it names no host; for a Unix socket give ?host=/run/postgresql"));
        }
        let local = config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
        let local = local && config.get_hostaddrs().is_empty();
        let mode = mode.unwrap_or_else(|| if local { "disable" } else { "verify-full" }.into());
        // `system` is libpq's word for what is the default here.
        let roots = roots.filter(|path| path != "system").map(PathBuf::from);
        let (how, check) = match (mode.as_str(), &roots) {
            ("disable", _) => (SslMode::Disable, Check::Nothing),
            // libpq's `allow` begins without TLS; with it is no worse.
            ("allow" | "prefer", _) => (SslMode::Prefer, Check::Nothing),
            // As libpq does: roots that are named are used.
            ("require", None) => (SslMode::Require, Check::Nothing),
            ("require", Some(_)) | ("verify-ca", _) => (SslMode::Require, Check::Authority),
            ("verify-full", _) => (SslMode::Require, Check::Host),
            _ => {
                return Err(bad(
                    "sslmode is disable, allow, prefer, require, verify-ca or verify-full (the default)",
                ));
            }
        };
        config.ssl_mode(if local { SslMode::Disable } else { how });
        if config.get_application_name().is_none() {
            config.application_name("hooklog outbox");
        }
        config.connect_timeout(CONNECT_TIMEOUT / 2);
        config.keepalives_idle(KEEPALIVE).keepalives_interval(KEEPALIVE / 3).keepalives_retries(3);
        config.tcp_user_timeout(KEEPALIVE * 2);
        Ok(Address { config, tls: MakeRustlsConnect::new(tls::config(check, roots.as_deref())?) })
    }

    /// Host and port, or the socket's folder: to be shown.
    pub fn at(&self) -> String {
        let ports = self.config.get_ports();
        let port = |nth: usize| ports.get(nth).or(ports.first()).copied().unwrap_or(5432);
        let hosts = self.config.get_hosts().iter().enumerate().map(|(nth, host)| match host {
            Host::Tcp(name) => format!("{name}:{}", port(nth)),
            Host::Unix(path) => path.display().to_string(),
        });
        let addresses =
            self.config.get_hostaddrs().iter().enumerate().map(|(nth, ip)| format!("{ip}:{}", port(nth)));
        let named: Vec<String> = hosts.collect();
        if named.is_empty() { addresses.collect::<Vec<_>>().join(",") } else { named.join(",") }
    }

    /// Connects.
    ///
    /// # Errors
    /// [`Error::Unreachable`] with what the network, TLS or the server said.
    pub async fn connect(&self) -> Result<Session, Error> {
        let unreachable = |why: String| Error::Unreachable { at: self.at(), why: hinted(why) };
        let connecting = async {
            let (client, mut connection) = self.config.connect(self.tls.clone()).await?;
            let woken = Arc::new(Notify::new());
            let wakes = woken.clone();
            let driving = tokio::spawn(async move {
                loop {
                    match poll_fn(|context| connection.poll_message(context)).await {
                        Some(Ok(AsyncMessage::Notification(_))) => wakes.notify_one(),
                        Some(Ok(_)) => {}
                        // Whoever asks hears of it.
                        Some(Err(_)) | None => break wakes.notify_one(),
                    }
                }
            });
            let session = Session { client, woken, _connection: AbortOnDropHandle::new(driving) };
            session.client.batch_execute(SESSION).await?;
            Ok::<_, tokio_postgres::Error>(session)
        };
        match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(Ok(session)) => Ok(session),
            Ok(Err(error)) => Err(unreachable(said(&error))),
            Err(_) => Err(unreachable(format!("no answer within {} s", CONNECT_TIMEOUT.as_secs()))),
        }
    }
}

/// Waits for PostgreSQL, but not for ever: a connection can be dead without a word.
///
/// # Errors
/// Its own, or that it took too long.
pub(super) async fn within<T>(
    asked: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, Error> {
    match tokio::time::timeout(STATEMENT_TIMEOUT, asked).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Error::Database(format!("no answer within {} s", STATEMENT_TIMEOUT.as_secs()))),
    }
}

/// What PostgreSQL said, in one line.
pub(super) fn said(error: &tokio_postgres::Error) -> String {
    let Some(told) = error.as_db_error() else {
        let mut text = error.to_string();
        let mut below = std::error::Error::source(error);
        while let Some(cause) = below {
            text.push_str(&format!(": {cause}"));
            below = cause.source();
        }
        return text;
    };
    let mut text = format!("{} ({})", told.message(), told.code().code());
    for more in [told.detail(), told.hint()].into_iter().flatten() {
        text.push_str(&format!("; {more}"));
    }
    text
}

fn hinted(why: String) -> String {
    if why.contains("server does not support TLS") {
        return format!("{why}: if nobody can sit between (the same host), say so with sslmode=disable");
    }
    if why.contains("invalid peer certificate") {
        return format!("{why}: name the authority that signed it with sslrootcert=FILE");
    }
    why
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(url: &str) -> String {
        Address::parse(url).expect_err(url).to_string()
    }

    #[test]
    fn urls_are_read_and_never_shown() {
        let address =
            Address::parse("postgres://app:s%40cret@db.example:5433/shop?sslmode=verify-full").unwrap();
        assert_eq!(address.at(), "db.example:5433");
        assert_eq!(format!("{address:?}"), "Address(\"db.example:5433\")");
        let socket = Address::parse("postgresql:///shop?host=/run/postgresql").unwrap();
        assert_eq!(
            (socket.at().as_str(), socket.config.get_ssl_mode()),
            ("/run/postgresql", SslMode::Disable)
        );
        for url in [
            "mysql://app:sesame@x",
            "postgres://app:sesame@x:port/db",
            "postgres://app:sesame@x/db?sslmode=on",
        ] {
            assert!(!refused(url).contains("sesame"), "{url}");
        }
        assert!(refused("host=db user=app").contains("postgres://"));
        assert!(refused("postgres:///shop").contains("no host"));
        assert!(refused("postgres://x/db?sslkey=a").contains("sslkey is not supported"));
        assert!(refused("postgres://x/db?sslmode=verify-ca&sslrootcert=/none").contains("sslrootcert=/none"));
    }

    #[test]
    fn tls_is_checked_unless_the_url_says_otherwise() {
        let mode = |query: &str| {
            let address = Address::parse(&format!("postgres://db.example/shop{query}")).unwrap();
            address.config.get_ssl_mode()
        };
        assert_eq!(mode(""), SslMode::Require);
        assert_eq!(mode("?sslmode=verify-full&sslrootcert=system"), SslMode::Require);
        assert_eq!(mode("?application_name=x&sslmode=prefer"), SslMode::Prefer);
        assert_eq!(mode("?sslmode=disable"), SslMode::Disable);
    }
}
