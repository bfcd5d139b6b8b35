//! Hooklog in a program of one's own: a store opened, webhooks sent, jobs queued and worked on, all from one log.
//!
//! ```
//! use hooklog::Hooklog;
//! use hooklog::embed::{Concurrency, Options};
//!
//! # async fn run() -> Result<(), hooklog::embed::Error> {
//! # let folder = tempfile::tempdir().expect("a folder");
//! # let folder = folder.path();
//! let hooklog = Hooklog::open(folder, Options::default()).await?;
//! let mails = hooklog.queue("mails").await?;
//! mails.enqueue(&"to: ada@example.org").max_tries(30).await?;
//!
//! let (done, mut seen) = tokio::sync::mpsc::channel(1);
//! mails.work(Concurrency(16), move |job| {
//!     let done = done.clone();
//!     async move {
//!         let _ = done.send(job.json::<String>()?).await;
//!         Ok(())
//!     }
//! });
//! assert_eq!(seen.recv().await.as_deref(), Some("to: ada@example.org"));
//! hooklog.close().await
//! # }
//! # tokio::runtime::Runtime::new().expect("a runtime").block_on(run()).expect("it works");
//! ```
//!
//! While it is open, the command line sees into it: `hooklog list --store FOLDER --queue mails`. Never decides: the
//! engine does, as for the server.

mod error;
mod product;
mod queue;
mod subscribe;
mod work;

use std::path::Path;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use axum::Router;
use hooklog_projections::ids::Seq;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::api::serve::{Listeners, Serving, SocketFile};
use crate::api::{ApiOptions, ApiState, DATA_BYTES_MAX, router};
use crate::clock::{Clock, SystemClock};
use crate::delivery::guard;
use crate::engine::ServerPolicy;
use crate::engine::handle::Handle;
use crate::notify::{BUNDLE_FOR, Channel, Teller};
use crate::pages;
use crate::secrets::MasterKey;
use crate::store::{self, Store};

pub use error::Error;
pub use product::{Delivery, Endpoint, Explanation, Send, Sent};
pub use queue::{Enqueue, Enqueued, Filter, Queue, TRIES_DEFAULT};
pub use subscribe::Facts;
pub use work::{Concurrency, Job, JobError, Workers, failed, permanent, retry_after};

/// Answers of the API under way get this long at the end.
const FAREWELL: Duration = Duration::from_secs(1);

/// How a store is embedded. The defaults are the server's.
pub struct Options {
    /// Which addresses deliveries over HTTP may reach: public ones over https unless it says more.
    pub guard: guard::Policy,
    /// Retry schedule, response policy and limits where account, endpoint or queue say nothing.
    pub policy: ServerPolicy,
    /// Bytes of an event's data or a job's payload; 65,536.
    pub data_bytes_max: usize,
    /// How long [`Hooklog::close`] waits for requests and jobs under way; 10 s.
    pub drain: Duration,
    /// How owners are told of dead deliveries; the log of this process.
    pub owners: Channel,
    /// Where the time comes from; the machine.
    pub clock: Option<Arc<dyn Clock>>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            guard: guard::Policy::default(),
            policy: ServerPolicy::default(),
            data_bytes_max: DATA_BYTES_MAX,
            drain: Duration::from_secs(10),
            owners: Channel::Log,
            clock: None,
        }
    }
}

/// An open store in this process: its engine runs, what is due is delivered, and the command line reaches it
/// through the socket in its folder. One process opens a folder at a time.
pub struct Hooklog {
    store: Store,
    shared: Arc<Shared>,
    serving: Vec<Serving>,
    drain: Duration,
    _socket: Option<SocketFile>,
    _telling: AbortOnDropHandle<()>,
}

/// What queues and workers hold of it: they may outlive the open store, and keep nobody from its folder.
struct Shared {
    live: RwLock<Option<Arc<Live>>>,
    stop: CancellationToken,
    workers: TaskTracker,
}

/// The open store, as long as it is open.
struct Live {
    handle: Handle,
    master: Arc<MasterKey>,
    clock: Arc<dyn Clock>,
    api: ApiState,
    router: Router,
    data_bytes_max: usize,
}

impl Shared {
    fn live(&self) -> Result<Arc<Live>, Error> {
        self.live.read().expect("no holder panics").clone().ok_or(Error::Closed)
    }
}

impl Hooklog {
    /// Opens the store in a folder, which is made if it is not there, and delivers what is due. Attempts that
    /// were under way when the last process ended are due again. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// [`Error::Store`]: another process has it open, its master key is missing, its log is damaged; each says
    /// what to do.
    pub async fn open(folder: impl AsRef<Path>, options: Options) -> Result<Hooklog, Error> {
        let clock = options.clock.unwrap_or_else(|| SystemClock::start());
        let opening = store::Options {
            policy: options.policy.clone(),
            guard: options.guard.clone(),
            ..store::Options::new(folder.as_ref())
        };
        let telling_clock = clock.clone();
        let opened = tokio::task::spawn_blocking(move || Store::open(opening, clock, true, &mut |_, _| {}));
        let store = opened.await.map_err(|error| Error::Failed(error.to_string()))??;
        let (handle, master) = (store.handle().clone(), store.master().clone());
        let api_options = ApiOptions {
            data_bytes_max: options.data_bytes_max,
            policy: options.policy.clone(),
            ..ApiOptions::default()
        };
        let clock = telling_clock;
        let api = ApiState::new(handle.clone(), master.clone(), clock.clone(), options.guard, api_options);
        let api = api.with_front(pages::front());
        let (socket, unix) = SocketFile::listen(folder.as_ref()).unzip();
        let serving = Serving::start(Listeners { unix, ..Listeners::default() }, api.clone());
        let window = options.policy.played(BUNDLE_FOR);
        let teller =
            Teller::new(handle.clone(), store.client().clone(), clock.clone(), options.owners, window);
        let data_bytes_max = options.data_bytes_max;
        let live = Live { handle, master, clock, router: router(api.local()), api, data_bytes_max };
        let shared = Shared {
            live: RwLock::new(Some(Arc::new(live))),
            stop: CancellationToken::new(),
            workers: TaskTracker::new(),
        };
        Ok(Hooklog {
            store,
            shared: Arc::new(shared),
            serving: vec![serving],
            drain: options.drain,
            _socket: socket,
            _telling: AbortOnDropHandle::new(tokio::spawn(teller.run())),
        })
    }

    /// The worker queue of a name, made if it is not there: it waits by the `ukue` schedule (10 s, doubling to an
    /// hour, each + 0–10 %). Names are 1 to 64 of `A-Z a-z 0-9 _ -`, unique in the store.
    ///
    /// # Errors
    /// A name that does not fit, and those of a store that cannot be written.
    pub async fn queue(&self, name: &str) -> Result<Queue, Error> {
        Queue::ensure(&self.shared, name).await
    }

    /// Every fact of the log after a position, those to come included; `Seq(0)` is before the first.
    pub fn subscribe(&self, after: Seq) -> Facts {
        Facts::after(self.shared.clone(), &self.live(), after)
    }

    /// Serves the HTTP API on a listener, for producers and workers on other machines. Whoever reaches it needs a
    /// credential as with `hooklog serve`.
    pub fn serve(&mut self, listener: TcpListener) {
        let listeners = Listeners { tcp: Some(listener), ..Listeners::default() };
        self.serving.push(Serving::start(listeners, self.live().api.clone()));
    }

    /// The HTTP API as a router, to be called in this process or mounted behind access checks of one's own: it
    /// asks for no credential. Drop it before the folder is opened again.
    pub fn router(&self) -> Router {
        self.live().router.clone()
    }

    fn live(&self) -> Arc<Live> {
        self.shared.live().expect("a store is open until `close` has taken it")
    }

    /// Asks the engine and reads what it published: all that this facade stands on.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Waits until the engine has ended by itself, which only an error makes it do; [`close`](Self::close) tells
    /// which.
    pub async fn ended(&self) {
        self.store.ended().await;
    }

    /// Stops in order: workers take no more jobs, what is under way gets [`Options::drain`] to end, then the store
    /// is closed. Jobs and requests that are still out then are interrupted: due again at the next start.
    ///
    /// # Errors
    /// What made the engine end before.
    pub async fn close(self) -> Result<(), Error> {
        self.shared.stop.cancel();
        self.shared.workers.close();
        if tokio::time::timeout(self.drain, self.shared.workers.wait()).await.is_err() {
            tracing::warn!(
                jobs = self.shared.workers.len(),
                "jobs were still under way at the end of the drain"
            );
        }
        let closed = self.store.close(self.drain).await;
        for serving in self.serving {
            serving.stop(FAREWELL).await;
        }
        drop(self.shared.live.write().expect("no holder panics").take());
        Ok(closed?)
    }
}
