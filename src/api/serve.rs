//! Serves the router: over TCP, and over a socket's file for whoever may open it on the host.
//!
//! Every connection is bounded in number, in how long its head may take, and in how long it may linger at the
//! end (rule A26). Never knows routes.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{ApiState, router};

/// The longest a request's head may take, and a kept connection may be idle.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections at a time, over both listeners.
pub const CONNECTIONS_MAX: usize = 1_024;
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// How long open requests may take to end once the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(35);
/// After an accept that failed (too many open files), before the next one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where to listen. Neither is needed.
#[derive(Debug, Default)]
pub struct Listeners {
    /// With a token, if one is set.
    pub tcp: Option<TcpListener>,
    /// Without one: whoever may open the file is the host's own operator.
    pub unix: Option<UnixListener>,
}

/// Serves until `stop`; then takes no new connection, lets what is open end, and returns.
pub async fn serve(listeners: Listeners, state: ApiState, stop: CancellationToken) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let open = TaskTracker::new();
    let tcp = async {
        if let Some(listener) = listeners.tcp {
            accept(Listener::Tcp(listener), router(state.clone()), &room, &open, &stop).await;
        }
    };
    let unix = async {
        if let Some(listener) = listeners.unix {
            accept(Listener::Unix(listener), router(state.local()), &room, &open, &stop).await;
        }
    };
    tokio::join!(tcp, unix);
    stop.cancelled().await;
    open.close();
    if tokio::time::timeout(DRAIN_TIMEOUT, open.wait()).await.is_err() {
        tracing::warn!(connections = open.len(), "connections were still open and are cut");
    }
}

/// Routes being served.
pub struct Serving {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Serving {
    /// Serves from now on.
    pub fn start(listeners: Listeners, state: ApiState) -> Serving {
        let stop = CancellationToken::new();
        let task = tokio::spawn(serve(listeners, state, stop.clone()));
        Serving { stop, task }
    }

    /// Takes no more, and lets answers under way end for as long as `farewell`.
    pub async fn stop(self, farewell: Duration) {
        self.stop.cancel();
        let _ = tokio::time::timeout(farewell, self.task).await;
    }
}

/// The socket's name within a store's folder: whoever may open it is the host's own operator.
pub const SOCKET: &str = "hooklog.sock";

/// The socket's file in the folder of an open store; goes when this is dropped.
#[derive(Debug)]
pub struct SocketFile(PathBuf);

impl SocketFile {
    /// Listens in the folder of a store that this process has opened: its lock is ours, so a socket that lies
    /// there is stale. `None` if that cannot be, which is logged: the store runs without.
    pub fn listen(folder: &Path) -> Option<(SocketFile, UnixListener)> {
        let path = folder.join(SOCKET);
        match bind_unix(&path) {
            Ok(listener) => Some((SocketFile(path), listener)),
            Err(error) => {
                tracing::warn!(
                    path = %path.display(), %error, "no socket: commands reach this store by --url only, if at all"
                );
                None
            }
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Listens on a socket's file of mode 0600, in the place of one that a dead process left.
///
/// # Errors
/// Those of the file system; a path of more than 100 bytes is too long for a socket.
pub fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    // Made beside and renamed into place: nobody finds it with wider permissions.
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = Path::new(&beside);
    match std::fs::remove_file(beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(beside)?;
    std::fs::set_permissions(beside, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(beside, path)?;
    Ok(listener)
}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    async fn accept(&self) -> io::Result<Either<TcpStream, UnixStream>> {
        match self {
            Listener::Tcp(listener) => listener.accept().await.map(|(stream, _)| Either::Left(stream)),
            Listener::Unix(listener) => listener.accept().await.map(|(stream, _)| Either::Right(stream)),
        }
    }
}

async fn accept(
    listener: Listener,
    app: Router,
    room: &Arc<Semaphore>,
    open: &TaskTracker,
    stop: &CancellationToken,
) {
    loop {
        // Room first: who comes while there is none waits in the kernel's queue.
        let permit = tokio::select! {
            permit = room.clone().acquire_owned() => permit,
            () = stop.cancelled() => return,
        };
        let Ok(permit) = permit else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok(stream) => {
                let (app, stop) = (app.clone(), stop.clone());
                open.spawn(async move {
                    connection(stream, app, stop).await;
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                let _ = tokio::time::timeout(ACCEPT_PAUSE, stop.cancelled()).await;
            }
        }
    }
}

async fn connection<S>(stream: S, app: Router, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let service = TowerToHyperService::new(app);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_BYTES_MAX);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}
