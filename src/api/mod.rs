//! The HTTP API: JSON in, commands out; what is so, out as JSON.
//!
//! One noun a file. Speaks to the engine through its handle and reads what it published; never knows how facts
//! are kept, sent or decided.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `accounts`, `endpoints`, `secrets`, `events`, `deliveries`, `queues`, `explain`, `store`, `health` | the routes of each noun |
//! | `envelope`, `fields`, `policies`, `query` | what comes in, read strictly |
//! | `wire`, `cursor`, `problem` | what goes out |
//! | `rim`, [`access`], [`serve`] | what every request passes |

pub mod access;
mod accounts;
mod cursor;
mod deliveries;
mod endpoints;
mod envelope;
mod events;
mod explain;
mod fields;
mod health;
mod policies;
pub mod problem;
mod query;
pub mod queues;
mod rim;
mod secrets;
pub mod serve;
mod store;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use hooklog_projections::fact::Actor;
use hooklog_projections::time::Timestamp;
use tokio::sync::Mutex;

pub use access::OperatorToken;
use cursor::Cursors;
pub use policies::moment_text;
use problem::{Kind, Problem};

use crate::clock::Clock;
use crate::delivery::guard;
use crate::engine::handle::Handle;
use crate::engine::{Answer, Command, ServerPolicy};
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
    /// Wanted over TCP, if set.
    pub operator_token: Option<OperatorToken>,
    /// The engine's own, so that "try 3 of 6" counts as it does.
    pub policy: ServerPolicy,
}

impl Default for ApiOptions {
    fn default() -> ApiOptions {
        ApiOptions { data_bytes_max: DATA_BYTES_MAX, operator_token: None, policy: ServerPolicy::default() }
    }
}

/// What every route works with. Cheap to clone.
#[derive(Clone)]
pub struct ApiState {
    shared: Arc<Shared>,
    /// Over the socket's file: no token, and the actor is the command line.
    local: bool,
}

struct Shared {
    handle: Handle,
    master: Arc<MasterKey>,
    clock: Arc<dyn Clock>,
    guard: guard::Policy,
    options: ApiOptions,
    cursors: Cursors,
    /// One change of settings at a time: each is read, merged and written whole.
    changing: Mutex<()>,
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
        let shared = Shared { handle, master, clock, guard, options, cursors, changing: Mutex::default() };
        ApiState { shared: Arc::new(shared), local: false }
    }

    /// The same for whoever may open a file on the host: no token is wanted.
    pub fn local(&self) -> ApiState {
        ApiState { shared: self.shared.clone(), local: true }
    }

    fn token(&self) -> Option<&OperatorToken> {
        self.shared.options.operator_token.as_ref().filter(|_| !self.local)
    }

    fn now(&self) -> Timestamp {
        self.shared.clock.now()
    }

    fn actor(&self) -> Actor {
        if self.local { Actor::Cli } else { Actor::Api("operator".into()) }
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
    async fn read<T: Send + 'static>(
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
    let routes = Router::new()
        .route("/v1/accounts", post(accounts::create).get(accounts::list))
        .route("/v1/accounts/{id}", get(accounts::show).patch(accounts::change))
        .route("/v1/accounts/{id}/secret", get(secrets::reveal_account))
        .route("/v1/accounts/{id}/secret/rotate", post(secrets::rotate_account))
        .route("/v1/endpoints", post(endpoints::create).get(endpoints::list))
        .route("/v1/endpoints/{id}", get(endpoints::show).patch(endpoints::change))
        .route("/v1/endpoints/{id}/pause", post(endpoints::pause))
        .route("/v1/endpoints/{id}/resume", post(endpoints::resume))
        .route("/v1/endpoints/{id}/secret", get(secrets::reveal))
        .route("/v1/endpoints/{id}/secret/rotate", post(secrets::rotate))
        .route("/v1/endpoints/{id}/secret/retire", post(secrets::retire))
        .route("/v1/events", post(events::create))
        .route("/v1/events/batch", post(events::batch))
        .route("/v1/events/raw", post(events::raw))
        .route("/internal/webhooks/dispatch", post(events::create))
        .route("/v1/events/{id}", get(events::show))
        .route("/v1/events/{id}/payload", get(events::payload))
        .route("/v1/events/{id}/timeline", get(events::timeline))
        .route("/v1/events/{id}/replay", post(events::replay))
        .route("/events/{id}/replay", post(events::replay))
        .route("/v1/deliveries", get(deliveries::list))
        .route("/v1/deliveries/{id}", get(deliveries::show))
        .route("/v1/deliveries/{id}/attempts", get(deliveries::attempts))
        .route("/v1/deliveries/{id}/replay", post(deliveries::replay))
        .route("/v1/deliveries/{id}/retry-now", post(deliveries::retry_now))
        .route("/v1/deliveries/{id}/cancel", post(deliveries::cancel))
        .route("/v1/queues/{name}", get(queues::show))
        .route("/v1/queues/{name}/jobs", post(queues::enqueue))
        .route("/v1/queues/{name}/claim", post(queues::claim))
        .route("/v1/leases/{lease}/extend", post(queues::extend))
        .route("/v1/leases/{lease}/complete", post(queues::complete))
        .route("/v1/leases/{lease}/fail", post(queues::fail))
        .route("/v1/leases/{lease}/release", post(queues::release))
        .route("/v1/explain/{id}", get(explain::explain))
        .route("/v1/status", get(health::status))
        .route("/v1/store/verify", post(store::verify))
        .route("/v1/store/rebuild", post(store::rebuild))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready));
    routes
        .fallback(|| async { Problem::of_status(StatusCode::NOT_FOUND) })
        .method_not_allowed_fallback(|| async { Problem::of_status(StatusCode::METHOD_NOT_ALLOWED) })
        // Each route has its own limit, in `rim`.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(state.clone(), rim::rim))
        .with_state(state)
}

fn unexpected(answer: Answer) -> Problem {
    Problem::internal(&format!("the engine gave an answer of another kind: {answer:?}"))
}
