//! The HTTP API: JSON in, commands out; what is so, out as JSON.
//!
//! One noun a file. Speaks to the engine through its handle and reads what it published; never knows how facts
//! are kept, sent or decided.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `routes` | the one table of routes and of the rights they want |
//! | `accounts`, `endpoints`, `secrets`, `events`, `event_types`, `deliveries`, `dead`, `attempts`, `tried`, `queues`, `replays`, `explain`, `stream`, `stats`, `verify`, `keys`, `portal`, `audit`, `store`, `health` | the routes of each noun |
//! | [`openapi`] | the API described, as JSON and as a page |
//! | `answer`, `overview`, `fleet`, `notices` | what a page needs at once, read in one state |
//! | `console`, `form`, `look` | a person's door: a key exchanged for a session, what a page's forms send, and whose pages they look like |
//! | [`csv`] | lines that a spreadsheet takes as text |
//! | [`access`], `token`, `sessions`, `failures`, `limits`, `quotas`, `crowd` | who asks, and how often |
//! | `envelope`, `fields`, `policies`, `query` | what comes in, read strictly |
//! | `wire`, `paging`, `cursor`, `problem` | what goes out |
//! | `rim`, [`serve`] | what every request passes |
//! | `admin` | what monitors ask, at an address of its own |

pub mod access;
pub(crate) mod accounts;
mod admin;
pub(crate) mod answer;
pub(crate) mod attempts;
pub(crate) mod audit;
pub(crate) mod console;
mod crowd;
pub mod csv;
pub mod cursor;
pub(crate) mod dead;
pub(crate) mod deliveries;
pub(crate) mod endpoints;
mod envelope;
mod event_types;
pub(crate) mod events;
mod explain;
mod failures;
mod fields;
pub(crate) mod fleet;
pub(crate) mod form;
pub(crate) mod health;
mod idempotency;
mod keys;
mod limits;
mod look;
pub(crate) mod notices;
pub mod openapi;
pub(crate) mod overview;
pub(crate) mod paging;
pub(crate) mod policies;
pub(crate) mod portal;
pub mod problem;
pub(crate) mod query;
pub mod queues;
mod quotas;
pub(crate) mod replays;
mod rim;
pub(crate) mod routes;
pub(crate) mod secrets;
pub mod serve;
mod sessions;
pub(crate) mod stats;
mod store;
pub(crate) mod stream;
mod token;
pub(crate) mod tried;
mod verify;
pub(crate) mod wire;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use hooklog_projections::fact::Actor;
use hooklog_projections::time::{Millis, Timestamp};
use tokio::sync::Mutex;
use zeroize::Zeroizing;

use access::Caller;
pub use access::OperatorToken;
use cursor::Cursors;
use failures::Failures;
pub use look::{Colour, Look};
pub use policies::moment_text;
use problem::{Kind, Problem};
pub use quotas::Quotas;
use routes::Rights;
pub use routes::{Front, listed as routes};
use sessions::Sessions;
pub use stream::SUBSCRIBERS_MAX;
use stream::Streams;

use crate::clock::Clock;
use crate::delivery::guard;
use crate::engine::handle::Handle;
use crate::engine::{Answer, Command, ServerPolicy};
use crate::metrics::Outbox;
use crate::secrets::MasterKey;
use crate::views::View;

/// Bytes of an event's data, unless the operator says otherwise (the brief's limit).
pub const DATA_BYTES_MAX: usize = 65_536;
/// Bytes that our envelope may have around an event's data.
const ENVELOPE_BYTES_MAX: usize = 32 * 1024;
/// The longest a caller waits for the engine: then it is told that the outcome is unknown.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// What an operator can set.
#[derive(Clone, Debug)]
pub struct ApiOptions {
    /// Bytes of an event's data.
    pub data_bytes_max: usize,
    /// A text of the operator's choice that is taken as an operator's key.
    pub operator_token: Option<OperatorToken>,
    /// Whoever comes without a credential is the operator: for loopback only, and never by itself.
    pub open: bool,
    /// Where people reach this server, if that is not where it listens: links begin with it, and what the portal's
    /// pages change must come from it.
    pub public_url: Option<url::Url>,
    /// Where it listens: links begin with it if there is no `public_url`.
    pub listens_on: Option<std::net::SocketAddr>,
    /// How many may be connected, and how long they may take.
    pub connections: serve::Connections,
    /// How much an account may ask for.
    pub quotas: Quotas,
    /// What customers' pages look like.
    pub look: Look,
    /// Proxies before this server that are trusted to say whom a request comes from.
    pub trusted_hops: usize,
    /// The engine's own, so that "try 3 of 6" counts as it does.
    pub policy: ServerPolicy,
}

impl Default for ApiOptions {
    fn default() -> ApiOptions {
        ApiOptions {
            data_bytes_max: DATA_BYTES_MAX,
            operator_token: None,
            open: false,
            public_url: None,
            listens_on: None,
            connections: serve::Connections::default(),
            quotas: Quotas::default(),
            look: Look::default(),
            trusted_hops: 0,
            policy: ServerPolicy::default(),
        }
    }
}

/// What every route works with. Cheap to clone.
#[derive(Clone)]
pub struct ApiState {
    shared: Arc<Shared>,
    /// Whoever comes is the operator, without a credential, and does so under this name.
    local: Option<Actor>,
    /// What each row of the table of routes wants.
    rights: Arc<Rights>,
    /// The pages over the API, if there are any.
    front: Option<Front>,
    /// Who asks; nobody outside of a request.
    caller: Caller,
    /// The request's `Idempotency-Key`.
    key: Option<String>,
    /// The quotas that the request counts against.
    told: quotas::Told,
}

struct Shared {
    handle: Handle,
    master: Arc<MasterKey>,
    clock: Arc<dyn Clock>,
    guard: guard::Policy,
    options: ApiOptions,
    cursors: Cursors,
    streams: Streams,
    failures: Failures,
    spent: quotas::Spent,
    sessions: Sessions<portal::Guest>,
    consoles: Sessions<console::Staff>,
    /// The forms of pages that were acted upon.
    forms: form::Done,
    last_used: std::sync::Mutex<keys::LastUsed>,
    /// One change of settings at a time: each is read, merged and written whole.
    changing: Mutex<()>,
    /// What an outbox that this process relays from was last seen to hold.
    outbox: std::sync::Mutex<Outbox>,
}

impl ApiState {
    /// The API of a running engine. `guard` judges the URLs of endpoints; `master` seals their secrets.
    pub fn new(
        handle: Handle,
        master: Arc<MasterKey>,
        clock: Arc<dyn Clock>,
        guard: guard::Policy,
        options: ApiOptions,
    ) -> ApiState {
        let cursors = Cursors::new(&master);
        let spent = quotas::Spent::new(options.quotas);
        let shared = Shared {
            handle,
            master,
            clock,
            guard,
            options,
            cursors,
            streams: Streams::default(),
            failures: Failures::new(),
            spent,
            sessions: Sessions::new(),
            consoles: Sessions::new(),
            forms: Default::default(),
            last_used: Default::default(),
            changing: Mutex::default(),
            outbox: Default::default(),
        };
        ApiState {
            shared: Arc::new(shared),
            local: None,
            rights: Arc::new(Rights::of(None)),
            front: None,
            caller: Caller::nobody(),
            key: None,
            told: Default::default(),
        }
    }

    /// The same with pages over it.
    pub fn with_front(self, front: Front) -> ApiState {
        ApiState { rights: Arc::new(Rights::of(Some(front))), front: Some(front), ..self }
    }

    /// An operator's key for a store that has none and is reached by none: its text, to be shown once. `None` if
    /// there is a key, a token of the operator's choice, or no credential is wanted.
    ///
    /// # Errors
    /// A store that cannot be read or written.
    pub async fn first_operator_key(&self) -> Result<Option<Zeroizing<String>>, Problem> {
        let options = &self.shared.options;
        if options.open || options.operator_token.is_some() {
            return Ok(None);
        }
        keys::first(self).await
    }

    /// The same for whoever may open a file on the host: no credential is wanted.
    pub fn local(&self) -> ApiState {
        ApiState { local: Some(Actor::Cli), ..self.clone() }
    }

    /// The same for a part of this process, which acts under a name of its own.
    pub fn inside(&self, name: &str) -> ApiState {
        ApiState { local: Some(Actor::Api(name.into())), ..self.clone() }
    }

    fn failures(&self) -> &Failures {
        &self.shared.failures
    }

    fn connections(&self) -> serve::Connections {
        self.shared.options.connections
    }

    fn monotonic(&self) -> Millis {
        self.shared.clock.monotonic()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    /// The same, asked by somebody.
    pub(crate) fn asked_by(self, caller: Caller) -> ApiState {
        ApiState { caller, ..self }
    }

    /// Who asks.
    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// What customers' pages look like.
    pub(crate) fn look(&self) -> &Look {
        &self.shared.options.look
    }

    fn actor(&self) -> Actor {
        self.caller.actor.clone()
    }

    fn event_bytes_max(&self) -> usize {
        self.shared.options.data_bytes_max + ENVELOPE_BYTES_MAX
    }

    /// Asks the engine; the answer is durable.
    async fn ask(&self, command: Command) -> Result<Answer, Problem> {
        let asked = self.shared.handle.ask(self.actor(), command);
        match tokio::time::timeout(ANSWER_TIMEOUT, asked).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(rejection)) => Err(rejection.into()),
            Err(_) => {
                let detail = format!(
                    "no answer within {} s: it may still be done; send it again with the same id",
                    ANSWER_TIMEOUT.as_secs()
                );
                Err(Problem::new(Kind::OutcomeUnknown, detail))
            }
        }
    }

    /// Reads what is so, on a thread that may block: it can lie cold on disk.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&ApiState, &View<'_>) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        let api = self.clone();
        let read = tokio::task::spawn_blocking(move || read(&api, &api.shared.handle.view()));
        read.await.map_err(|error| Problem::internal(&error))?
    }
}

/// Every route. Serve it with [`serve::serve`], or call it directly.
pub fn router(state: ApiState) -> Router {
    routes::router(state.front)
        .fallback(|| async { Problem::of_status(StatusCode::NOT_FOUND) })
        .method_not_allowed_fallback(|| async { Problem::of_status(StatusCode::METHOD_NOT_ALLOWED) })
        // Each route has its own limit, in `rim`.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(state.clone(), rim::rim))
        .with_state(routes::Door(state))
}

fn unexpected(answer: Answer) -> Problem {
    Problem::internal(&format!("the engine gave an answer of another kind: {answer:?}"))
}
