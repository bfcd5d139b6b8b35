//! A store's folder, opened: the log, the master key beside it, and the engine over both, running or not.
//!
//! Never knows who uses it: a server, an embedding program, or a command on a stopped store.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hooklog_projections::TABLES;
use hooklog_projections::ids::Seq;
use hooklog_projections::tables::FOLDS_VERSION;
use tokio_util::task::AbortOnDropHandle;
use zeroize::Zeroizing;

use crate::clock::{Chance, Clock, SystemChance};
use crate::delivery::{self, Client, guard};
use crate::engine::courier::HttpCourier;
use crate::engine::driver::{self, Running};
use crate::engine::handle::Handle;
use crate::engine::{Engine, Fatal, ServerPolicy, StartError};
use crate::log::{self, Log, Opened};
use crate::replays::Runner;
use crate::secrets::{self, MasterKey};
use crate::views::check::{self, Report};
use crate::views::rebuild;
use crate::views::settled::settled_row;

/// The master key's file within the store's folder, unless it is elsewhere.
pub const MASTER_KEY_FILE: &str = "master.key";

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its folder; made if it is not there.
    pub folder: PathBuf,
    /// Where the master key comes from.
    pub master: MasterKeySource,
    /// Bytes of the block cache.
    pub cache_bytes: u64,
    /// Sizes and floors of the log.
    pub log: log::Options,
    /// Server-wide policies.
    pub policy: ServerPolicy,
    /// Which addresses may be reached.
    pub guard: guard::Policy,
    /// How they are reached.
    pub client: delivery::client::Options,
}

/// Where the master key comes from.
#[derive(Clone, Debug)]
pub enum MasterKeySource {
    /// A file of mode 0600; made at the first start.
    File(PathBuf),
    /// The base64 of 32 bytes, from the environment.
    Text(Zeroizing<String>),
}

/// Why a store cannot be opened or used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The log, or the engine over it.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The master key.
    #[error(transparent)]
    MasterKey(#[from] secrets::Error),
    /// Outbound connections.
    #[error(transparent)]
    Client(#[from] delivery::client::Error),
    /// A rebuild.
    #[error("the views could not be rebuilt: {0}")]
    Rebuild(#[from] rebuild::Error),
    /// There is no store in the folder.
    #[error("there is no store in {0}; `hooklog serve --store DIR` makes one")]
    NoStore(PathBuf),
}

impl From<log::Error> for Error {
    fn from(error: log::Error) -> Error {
        Error::Start(StartError::Fatal(Fatal::Log(error)))
    }
}

impl Error {
    /// The log's error below, if it is one.
    pub fn log_error(&self) -> Option<&log::Error> {
        match self {
            Error::Start(StartError::Fatal(Fatal::Log(error))) => Some(error),
            _ => None,
        }
    }
}

impl Options {
    /// A folder with all defaults.
    pub fn new(folder: impl Into<PathBuf>) -> Options {
        let folder = folder.into();
        Options {
            master: MasterKeySource::File(folder.join(MASTER_KEY_FILE)),
            folder,
            cache_bytes: 64 << 20,
            log: log::Options::default(),
            policy: ServerPolicy::default(),
            guard: guard::Policy::default(),
            client: delivery::client::Options::default(),
        }
    }

    fn settings(&self) -> log::fjall_disk::Settings {
        log::fjall_disk::Settings { cache_bytes: self.cache_bytes, ..Default::default() }
    }
}

/// Whether a folder holds a store.
pub fn exists(folder: &Path) -> bool {
    folder.join(log::DATABASE_FOLDER).is_dir()
}

/// An open store whose engine runs.
pub struct Store {
    running: Running,
    master: Arc<MasterKey>,
    client: Arc<Client>,
    clock: Arc<dyn Clock>,
    /// Works on bulk replays; none on a store that is opened by a command.
    replays: Option<AbortOnDropHandle<()>>,
}

impl Store {
    /// Opens a store and runs its engine on the current async runtime. Views of other folds are rebuilt
    /// first; `progress` hears (folded up to, head). With `deliver` false nothing is sent: for commands on a
    /// stopped store.
    ///
    /// # Errors
    /// See [`Error`]; each says what to do.
    pub fn open(
        options: Options,
        clock: Arc<dyn Clock>,
        deliver: bool,
        progress: &mut dyn FnMut(Seq, Seq),
    ) -> Result<Store, Error> {
        let client = Client::new(options.guard.clone(), options.client.clone())?;
        Store::open_with(options, client, clock, deliver, progress)
    }

    /// As [`open`](Self::open), with requests made by another client: one that resolves names elsewhere. What
    /// the options say of clients counts for nothing then.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn open_with(
        options: Options,
        client: Client,
        clock: Arc<dyn Clock>,
        deliver: bool,
        progress: &mut dyn FnMut(Seq, Seq),
    ) -> Result<Store, Error> {
        // The log first: a folder in use, or of a newer version, gets no key made beside it.
        let opened = Log::open_folder(&options.folder, options.settings(), options.log)?;
        let master = Arc::new(master_key(&options, matches!(opened, Opened::Fresh(_)))?);
        let opened = up_to_date(opened, progress)?;
        let mut engine =
            Engine::start(opened, &master, options.policy.clone(), clock.now(), &mut SystemChance)?;
        engine.set_sending(deliver);
        let client = Arc::new(client);
        let courier = HttpCourier::new(
            client.clone(),
            master.clone(),
            engine.published().clone(),
            clock.clone(),
            options.policy.signature_header,
        );
        let runtime = tokio::runtime::Handle::current();
        let running = driver::run(engine, Arc::new(courier), clock.clone(), runtime);
        let replays = deliver.then(|| {
            let runner = Runner::new(running.handle.clone(), clock.clone());
            AbortOnDropHandle::new(tokio::spawn(runner.run()))
        });
        Ok(Store { running, master, client, clock, replays })
    }

    /// Speaks to the engine.
    pub fn handle(&self) -> &Handle {
        &self.running.handle
    }

    /// Seals what enters the log.
    pub fn master(&self) -> &Arc<MasterKey> {
        &self.master
    }

    /// Makes outbound connections.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Tells the time.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Waits until the engine has ended by itself: an error.
    pub async fn ended(&self) {
        self.running.on_end().notified().await;
    }

    /// Stops in order; what is in flight gets `limit` to end.
    ///
    /// # Errors
    /// What made the engine end before.
    pub async fn close(self, limit: Duration) -> Result<(), Fatal> {
        drop(self.replays);
        self.running.stop(limit).await
    }
}

/// Checks a store that nothing else uses. `progress` hears (stage, done, of).
///
/// # Errors
/// See [`Error`]. Views of other folds are not what this program would make of the log, and not wrong for that:
/// [`StartError::OtherFolds`].
pub fn check_stopped(
    options: &Options,
    progress: &mut dyn FnMut(&'static str, u64, u64),
) -> Result<Report, Error> {
    let mut log = stopped(options)?;
    if let Some(found) = settled_row(&log)?.map(|row| row.folds).filter(|folds| *folds != FOLDS_VERSION) {
        log.close()?;
        return Err(StartError::OtherFolds { found }.into());
    }
    rebuild::settle_stopped(&mut log)?;
    let generation = log.view_version(TABLES[0].0).unwrap_or(0);
    let snapshot = log.snapshot();
    let report = check::check(log.disk().clone(), generation, &mut || Ok(snapshot.clone()), progress)?;
    drop(snapshot);
    log.close()?;
    Ok(report)
}

/// Rebuilds the views of a store that nothing else uses. `progress` hears (folded up to, head).
///
/// # Errors
/// See [`Error`].
pub fn rebuild_stopped(options: &Options, progress: &mut dyn FnMut(Seq, Seq)) -> Result<(), Error> {
    let mut log = stopped(options)?;
    rebuild::rebuild_stopped(&mut log, progress)?;
    Ok(log.close()?)
}

/// Seals every live secret of a store that nothing else uses under the master key in another file, which is
/// made if it is not there. Afterwards the store opens with that key only. Answers how many accounts and
/// endpoints were sealed anew; none if the store was sealed under that key before. After a crash in the middle
/// it is run again and does the rest. `progress` hears the log's head.
///
/// # Errors
/// See [`Error`].
pub fn reseal(
    options: &Options,
    new_key_file: &Path,
    clock: &dyn Clock,
    progress: &mut dyn FnMut(Seq),
) -> Result<u64, Error> {
    let opened = up_to_date(Opened::Existing(stopped(options)?), &mut |_, _| {})?;
    let old = master_key(options, false)?;
    let new = MasterKey::load_or_create(new_key_file, drawn_master_key)?;
    let chance = &mut SystemChance;
    Ok(Engine::reseal(opened.into_log(), (&old, &new), clock.now(), chance, progress)?)
}

/// Goes on with the log as it is, whatever its mark says. Answers its head.
///
/// # Errors
/// See [`Error`].
pub fn accept_head(options: &Options) -> Result<Seq, Error> {
    if !exists(&options.folder) {
        return Err(Error::NoStore(options.folder.clone()));
    }
    let (disk, mark) = log::open_folder(&options.folder, options.settings())?;
    let mut log = Log::accept_head(disk, mark, options.log)?.into_log();
    let head = log.head();
    // Nobody can vouch for the views of a log that was cut.
    rebuild::rebuild_stopped(&mut log, &mut |_, _| {})?;
    log.close()?;
    Ok(head)
}

fn stopped(options: &Options) -> Result<Log, Error> {
    if !exists(&options.folder) {
        return Err(Error::NoStore(options.folder.clone()));
    }
    match Log::open_folder(&options.folder, options.settings(), options.log)? {
        Opened::Existing(log) => Ok(log),
        Opened::Fresh(_) => Err(Error::NoStore(options.folder.clone())),
    }
}

fn up_to_date(opened: Opened, progress: &mut dyn FnMut(Seq, Seq)) -> Result<Opened, Error> {
    let Opened::Existing(mut log) = opened else { return Ok(opened) };
    if settled_row(&log)?.is_none_or(|row| row.folds != FOLDS_VERSION) {
        tracing::info!("the views are of other folds: they are made anew from the log");
        rebuild::rebuild_stopped(&mut log, progress)?;
    }
    Ok(Opened::Existing(log))
}

/// A key is only ever made for a fresh store: one made beside an old store would open nothing.
fn master_key(options: &Options, fresh: bool) -> Result<MasterKey, secrets::Error> {
    match &options.master {
        MasterKeySource::Text(text) => MasterKey::from_base64(text),
        MasterKeySource::File(path) if fresh => MasterKey::load_or_create(path, drawn_master_key),
        MasterKeySource::File(path) => MasterKey::load(path),
    }
}

fn drawn_master_key() -> Zeroizing<[u8; secrets::KEY_BYTES]> {
    let mut key = Zeroizing::new([0; secrets::KEY_BYTES]);
    SystemChance.fill(&mut key[..]);
    key
}
