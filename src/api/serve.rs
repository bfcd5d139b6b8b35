//! Serves the router: over TCP, and over a socket's file for whoever may open it on the host.
//!
//! Every connection is bounded in number, in how long its head may take, and in how long it may linger at the
//! end (rule A26). Never knows routes.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::task::JoinHandle;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::access::Peer;
use super::crowd::{Busy, Crowd, Place};
use super::{ApiState, admin, router};

/// How many connections there may be, and how long one may take to say what it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connections {
    /// The longest a request's head may take, and a kept connection may be idle.
    pub head_timeout: Duration,
    /// At a time, over both listeners.
    pub max: usize,
    /// At a time from one network (IPv4 /24, IPv6 /64). Loopback is not held to it: it is where a proxy of the
    /// host, and everybody behind it, comes from.
    pub per_source_max: usize,
}

impl Default for Connections {
    fn default() -> Connections {
        Connections { head_timeout: Duration::from_secs(10), max: 1_024, per_source_max: 64 }
    }
}

/// Connections of monitors at a time.
const ADMIN_MAX: usize = 32;
/// Bytes of a request's head.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// How long open requests may take to end once the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(35);
/// After an accept that failed (too many open files), before the next one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where to listen. None is needed.
#[derive(Debug, Default)]
pub struct Listeners {
    /// With a token, if one is set.
    pub tcp: Option<TcpListener>,
    /// Without one: whoever may open the file is the host's own operator.
    pub unix: Option<UnixListener>,
    /// For monitors: metrics and health, without a key.
    pub admin: Option<TcpListener>,
}

/// Serves until `stop`; then takes no new connection, ends streams, lets what else is open end, and returns.
pub async fn serve(listeners: Listeners, state: ApiState, stop: CancellationToken) {
    let limits = state.connections();
    let open = TaskTracker::new();
    let door = |limits| Door { crowd: Arc::new(Crowd::new(limits)), open: open.clone(), stop: stop.clone() };
    // A crowd at the API keeps no monitor out.
    let (door, admin_door) =
        (door(limits), door(Connections { max: ADMIN_MAX, per_source_max: ADMIN_MAX, ..limits }));
    let tcp = async {
        if let Some(listener) = listeners.tcp {
            door.accept(Listener::Tcp(listener), router(state.clone())).await;
        }
    };
    let unix = async {
        if let Some(listener) = listeners.unix {
            door.accept(Listener::Unix(listener), router(state.local())).await;
        }
    };
    let admin = async {
        if let Some(listener) = listeners.admin {
            admin_door.accept(Listener::Tcp(listener), admin::router(state.clone())).await;
        }
    };
    tokio::join!(tcp, unix, admin);
    stop.cancelled().await;
    state.end_streams();
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
    async fn accept(&self) -> io::Result<(Either<TcpStream, UnixStream>, Option<IpAddr>)> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                Ok((Either::Left(stream), Some(peer.ip())))
            }
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                Ok((Either::Right(stream), None))
            }
        }
    }
}

/// What every connection of one server shares.
struct Door {
    crowd: Arc<Crowd>,
    open: TaskTracker,
    stop: CancellationToken,
}

impl Door {
    async fn accept(&self, listener: Listener, app: Router) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.stop.cancelled() => return,
            };
            match accepted {
                Ok((stream, peer)) => {
                    // Who is one too many from its network is closed at once; else room is made.
                    let Some(place) = Crowd::enter(&self.crowd, peer) else { continue };
                    let (app, stop) = (app.clone(), self.stop.clone());
                    let head_timeout = self.crowd.limits.head_timeout;
                    self.open.spawn(connection(stream, app, place, head_timeout, stop));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be taken");
                    let _ = tokio::time::timeout(ACCEPT_PAUSE, self.stop.cancelled()).await;
                }
            }
        }
    }
}

async fn connection<S>(stream: S, app: Router, place: Place, head_timeout: Duration, stop: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (seat, peer) = (place.seat(), place.peer());
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        // Held until the answer is whole: so long nobody takes the connection for an idle one.
        let busy = seat.busy();
        if let Some(peer) = peer {
            request.extensions_mut().insert(Peer(peer));
        }
        let answer = app.clone().oneshot(request);
        async move {
            let Ok(answer) = answer.await;
            Ok::<_, Infallible>(answer.map(|body| Held { body, _busy: busy }))
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(head_timeout).max_buf_size(HEAD_BYTES_MAX);
    let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = place.displaced() => return,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// An answer's body, and the sign that it is under way.
struct Held {
    body: Body,
    _busy: Busy,
}

impl HttpBody for Held {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
