//! What the scenes play on: the server in this process, the receiver, and a client that asks as anybody would.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hooklog::alert;
use hooklog::api::ApiOptions;
use hooklog::api::serve::{Listeners, Serving};
use hooklog::clock::{Chance, SystemChance, SystemClock};
use hooklog::delivery::{Key, TextSecret, guard};
use hooklog::engine::ServerPolicy;
use hooklog::notify::Channel;
use hooklog::store::{self, Store};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;
use zeroize::Zeroizing;

use super::super::child::Child;
use super::super::client::{Client, Target};
use super::super::exit::{Exit, Failure};
use super::super::receiver;
use super::super::serve;
use super::hooks::{Hooks, MESSAGES};
use crate::config::{Config, LISTEN};

/// Attempts in flight get so long at the end.
const DRAIN: Duration = Duration::from_secs(2);

/// The server and what is around it.
pub struct Stage {
    /// Where the server listens.
    pub address: SocketAddr,
    /// Where the receiver listens.
    pub hooks_at: SocketAddr,
    /// The receiver.
    pub hooks: Arc<Hooks>,
    /// Asks the server.
    pub client: Client,
    /// Waits are divided by this.
    pub wait_divisor: u32,
    /// The folder of the server that is killed.
    pub crash_folder: PathBuf,
    /// An event worth looking at.
    pub example: String,
    store: Store,
    serving: Serving,
    _telling: AbortOnDropHandle<()>,
    _receiving: AbortOnDropHandle<()>,
}

/// An endpoint that a scene made.
pub struct Endpoint {
    /// Whose.
    pub account: String,
    /// Its path at the receiver.
    pub path: String,
}

#[derive(Deserialize)]
struct Made {
    id: String,
    #[serde(default)]
    secret: String,
    #[serde(default)]
    signing_secret: String,
}

impl Stage {
    /// Starts everything.
    pub async fn set(folder: PathBuf, crash_folder: PathBuf, wait_divisor: u32) -> Result<Stage, Failure> {
        let message_key = Key::from_bytes(Zeroizing::new(SystemChance.bytes::<32>().to_vec()))
            .map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
        let (hooks_listener, hooks_at) = receiver::listen().await?;
        let hooks = Hooks::new(message_key.clone());
        let receiving = tokio::spawn(receiver::receive(hooks_listener, hooks.clone()));
        // A known address if it is free, so that a copied command works again.
        let listener = match TcpListener::bind(LISTEN).await {
            Ok(listener) => listener,
            Err(_) => TcpListener::bind("127.0.0.1:0").await?,
        };
        let address = listener.local_addr()?;
        let mut options = store::Options::new(folder);
        let allow = "127.0.0.0/8".parse().map_err(|error| Failure::new(Exit::Failed, format!("{error}")))?;
        options.guard = guard::Policy { allow: vec![allow], allow_http: true, ..guard::Policy::default() };
        options.policy = ServerPolicy { wait_divisor, ..ServerPolicy::default() };
        let url = format!("http://{hooks_at}{MESSAGES}");
        let config = Config {
            listen: address,
            store: options.clone(),
            api: ApiOptions { open: true, policy: options.policy.clone(), ..ApiOptions::default() },
            owners: Channel::Service { url, key: Some(message_key) },
            admin_listen: None,
            alerts: alert::Options { channel: Channel::Log, email: None, ping_url: None, base: None },
            #[cfg(feature = "postgres")]
            outbox: None,
        };
        let opening = tokio::task::spawn_blocking(move || {
            Store::open(options, SystemClock::start(), true, &mut |_, _| {})
        });
        let store = opening.await.map_err(|error| Failure::new(Exit::Failed, error.to_string()))??;
        let listeners = Listeners { tcp: Some(listener), ..Listeners::default() };
        let serving = Serving::start(listeners, serve::api(&store, &config));
        let telling = serve::telling(&store, &config);
        Ok(Stage {
            address,
            hooks_at,
            hooks,
            client: Client::at(address),
            wait_divisor,
            crash_folder,
            example: String::new(),
            store,
            serving,
            _telling: telling,
            _receiving: AbortOnDropHandle::new(receiving),
        })
    }

    /// Starts the server that is killed, over its own store.
    pub async fn server_to_kill(&self) -> Result<Child, Failure> {
        Child::serve(&self.crash_folder, &["--wait-divisor", &self.wait_divisor.to_string()]).await
    }

    /// Makes an account with one endpoint at a path of the receiver.
    pub async fn endpoint(&self, client: &Client, name: &str) -> Result<Endpoint, Failure> {
        let path = format!("/hooks/{name}");
        let account = json!({ "name": name, "owner_email": format!("owner@{name}.example") });
        let account: Made = client.post(&Target::new(&["v1", "accounts"]), &account).await?;
        let url = format!("http://{}{path}", self.hooks_at);
        let endpoint = json!({ "account_id": account.id, "url": url });
        let endpoint: Made = client.post(&Target::new(&["v1", "endpoints"]), &endpoint).await?;
        let key = Key::parse(&endpoint.signing_secret)
            .map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
        self.hooks.keys(&path, key, TextSecret::new(Zeroizing::new(account.secret)));
        Ok(Endpoint { account: account.id, path })
    }

    /// Sends the brief's event. Answers its id.
    pub async fn send(&self, client: &Client, endpoint: &Endpoint) -> Result<String, Failure> {
        let data = json!({ "amount": 12_900, "currency": "EUR" });
        let event = json!({ "account_id": endpoint.account, "type": "payment.settled", "data": data });
        let accepted: Value = client.post(&Target::new(&["v1", "events"]), &event).await?;
        Ok(accepted["id"].as_str().unwrap_or_default().to_owned())
    }

    /// Ends everything.
    pub async fn strike(self) -> Result<(), Failure> {
        self.store.close(DRAIN).await?;
        self.serving.stop(serve::FAREWELL).await;
        Ok(())
    }
}
