//! `hooklog serve`: opens the store, listens on TCP and on a socket in the store's folder, and stops in order.
//!
//! Never decides about deliveries; it runs those who do.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hooklog::alert::Watch;
use hooklog::api::ApiState;
use hooklog::api::access::may_listen;
use hooklog::api::serve::{Listeners, Serving, SocketFile};
use hooklog::clock::{Clock, SystemClock};
use hooklog::notify::{BUNDLE_FOR, Links, Teller};
use hooklog::pages;
use hooklog::store::Store;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::task::AbortOnDropHandle;
use tracing_subscriber::EnvFilter;

use super::client;
use super::exit::{Exit, Failure};
#[cfg(feature = "postgres")]
use super::outbox::{Relaying, looking_at};
use super::output::Output;
use super::progress::Progress;
use crate::config::{self, Config, Layer};

/// What is in flight gets this long to end at a stop.
const DRAIN: Duration = Duration::from_secs(10);
/// Requests to the API get this long to end after that.
pub const FAREWELL: Duration = Duration::from_secs(1);
/// Between two looks whether a write is stuck.
const WATCH: Duration = Duration::from_secs(1);
/// Runs the server.
#[derive(clap::Args)]
pub struct Args {
    /// The configuration's file; flags and HOOKLOG_* variables win over it
    #[arg(long, env = "HOOKLOG_CONFIG", hide_env_values = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    layer: Layer,
}

/// The API and the pages over an open store.
pub fn api(store: &Store, config: &Config) -> ApiState {
    let (handle, master, clock) = (store.handle().clone(), store.master().clone(), store.clock().clone());
    let api = ApiState::new(handle, master, clock, config.store.guard.clone(), config.api.clone());
    api.with_front(pages::front())
}

/// Tells owners of dead deliveries, for as long as the answer lives.
pub fn telling(store: &Store, config: &Config) -> AbortOnDropHandle<()> {
    let (channel, links) = (config.owners.clone(), Links::below(config.api.public_url.as_ref()));
    let (handle, client, clock) = (store.handle().clone(), store.client().clone(), store.clock().clone());
    let window = config.store.policy.played(BUNDLE_FOR);
    let teller = Teller::new(handle, client, clock, channel, window).with_links(links);
    AbortOnDropHandle::new(tokio::spawn(teller.run()))
}

/// Tells the operator when this server stands still, for as long as the answer lives.
fn watching(store: &Store, config: &Config) -> AbortOnDropHandle<()> {
    let (handle, client, clock) = (store.handle().clone(), store.client().clone(), store.clock().clone());
    AbortOnDropHandle::new(tokio::spawn(Watch::new(handle, client, clock, config.alerts.clone()).run()))
}

/// Listens at an address of the operator's.
async fn bind(address: SocketAddr) -> Result<TcpListener, Failure> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|error| Failure::from(error).while_(&format!("cannot listen on {address}")))
}

/// Runs until it is told to stop, or cannot go on.
pub async fn run(args: Args, out: &mut Output) -> Result<Exit, Failure> {
    log_to_stderr();
    for name in config::unknown_variables() {
        tracing::warn!(name, "this variable means nothing to Hooklog");
    }
    let layer = match &args.config {
        Some(file) => args.layer.over(Layer::from_file(file)?),
        None => args.layer,
    };
    let mut config = layer.resolve()?;
    may_listen(config.listen, config.api.open).map_err(|error| {
        Failure::usage(error.to_string()).next("leave --open-loopback out, or listen on 127.0.0.1")
    })?;
    // Before the store is opened: a stop that is asked for meanwhile is not lost.
    let mut stops = Stops::listen()?;
    // Bound early: an address in use is told before a long rebuild, and requests wait instead of failing.
    let listener = bind(config.listen).await?;
    let admin = match config.admin_listen {
        Some(address) => Some(bind(address).await?),
        None => None,
    };
    let admin_address = admin.as_ref().map(TcpListener::local_addr).transpose()?;
    let address = listener.local_addr()?;
    let clock = SystemClock::start();
    let store = open(&config, clock.clone()).await?;
    let (_socket_file, unix) = SocketFile::listen(&config.store.folder).unzip();
    config.api.listens_on = Some(address);
    let api = api(&store, &config);
    let first_key = api.first_operator_key().await;
    let first_key = first_key.map_err(|problem| Failure::new(Exit::Failed, problem.detail))?;
    let serving = Serving::start(Listeners { tcp: Some(listener), unix, admin }, api.clone());
    #[cfg(feature = "postgres")]
    let _looking = config.outbox.as_ref().map(|outbox| looking_at(outbox, &api, store.clock().clone()));
    #[cfg(feature = "postgres")]
    let relaying = Relaying::start(config.outbox.take(), &api);
    let telling = telling(&store, &config);
    let watching = watching(&store, &config);
    tracing::info!(%address, store = %config.store.folder.display(), "ready");
    out.line(format!("hooklog listens on http://{address}"))?;
    if let Some(address) = admin_address {
        out.line(format!("metrics and health at http://{address}"))?;
    }
    if let Some(key) = first_key {
        out.line(format!("operator's key, shown only now: {}", *key))?;
    }

    let health = store.handle().health().clone();
    let stuck = async {
        loop {
            tokio::time::sleep(WATCH).await;
            if health.stuck(clock.monotonic()) {
                return;
            }
        }
    };
    let why = tokio::select! {
        () = stops.next() => Why::Asked,
        () = store.ended() => Why::Ended,
        () = stuck => Why::Stuck,
    };
    match why {
        Why::Asked => {
            tracing::info!("stopping: attempts in flight get 10 s to end; a second signal stops at once");
            drop((telling, watching));
            #[cfg(feature = "postgres")]
            if let Some(relaying) = relaying {
                relaying.stop(FAREWELL).await;
            }
            let exit = tokio::select! {
                closed = store.close(DRAIN) => closed.map(|()| Exit::Fine).map_err(Failure::from),
                () = stops.next() => return Ok(Exit::Interrupted),
            };
            serving.stop(FAREWELL).await;
            exit
        }
        Why::Ended => {
            // Requests under way hear that their outcome is unknown.
            let failure = store.close(Duration::ZERO).await.err().map(Failure::from);
            serving.stop(FAREWELL).await;
            Err(failure.unwrap_or_else(|| Failure::new(Exit::Failed, "the engine ended")))
        }
        Why::Stuck => {
            let failure = Failure::new(Exit::Failed, "a write to the store has not returned for 10 s");
            Err(failure.next("look at the disk below the store; what was acknowledged is safe"))
        }
    }
}

enum Why {
    Asked,
    Ended,
    Stuck,
}

/// Opens the store off the async threads: views may be folded anew.
async fn open(config: &Config, clock: Arc<SystemClock>) -> Result<Store, Failure> {
    let options = config.store.clone();
    let opening = tokio::task::spawn_blocking(move || {
        let mut progress = Progress::new("folding the log");
        Store::open(options, clock, true, &mut |upto, head| progress.show(upto.0, head.0))
    });
    let opened = opening.await.map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
    opened.map_err(Failure::from).map_err(client::in_use_by_server)
}

/// Signals that stop the server.
pub struct Stops {
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
}

impl Stops {
    /// Listens from now on.
    ///
    /// # Errors
    /// Those of the system.
    pub fn listen() -> Result<Stops, Failure> {
        Ok(Stops { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}

/// Text on a terminal, JSON otherwise; `HOOKLOG_LOG` filters.
pub fn log_to_stderr() {
    let filter = EnvFilter::try_from_env("HOOKLOG_LOG")
        .unwrap_or_else(|_| EnvFilter::new("info,fjall=warn,lsm_tree=warn"));
    let terminal = std::io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A second one in the same process is refused, and the first goes on.
    let _ = if terminal { builder.with_ansi(true).try_init() } else { builder.json().try_init() };
}
