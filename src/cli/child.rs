//! This very program in another process: a server to be killed or measured, or a receiver.
//!
//! Its settings are its arguments only; `HOOKLOG_*` variables are kept from it.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{ChildStdout, Command};

use super::exit::{Exit, Failure};

/// A process says its address within this time; a store on a slow disk takes a while to be made.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A process that listens. Killed when dropped.
pub struct Child {
    process: tokio::process::Child,
    /// Where it listens.
    pub address: SocketAddr,
    /// Kept open, or it could write no more.
    _stdout: BufReader<ChildStdout>,
}

impl Child {
    /// Starts one and reads its address, the last word of its first line.
    ///
    /// # Errors
    /// It cannot be started, or ends or hangs before it listens.
    pub async fn start(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Child, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("HOOKLOG_") {
                command.env_remove(name);
            }
        }
        let mut process = command.spawn()?;
        let stdout = process.stdout.take().ok_or_else(|| Failure::new(Exit::Failed, "no pipe"))?;
        let mut stdout = BufReader::new(stdout);
        let mut line = String::new();
        let read = tokio::time::timeout(START_TIMEOUT, stdout.read_line(&mut line)).await;
        let last = line.split_whitespace().last().unwrap_or_default();
        let address = last.trim_start_matches("http://").parse();
        match (read, address) {
            (Ok(Ok(_)), Ok(address)) => Ok(Child { process, address, _stdout: stdout }),
            _ => {
                let _ = process.kill().await;
                Err(Failure::new(Exit::Failed, "a child process did not start to listen"))
            }
        }
    }

    /// A server over a store of its own, which may reach loopback, with more arguments of `serve`.
    ///
    /// # Errors
    /// As [`Child::start`].
    pub async fn serve(folder: &Path, more: &[&str]) -> Result<Child, Failure> {
        let args = ["--listen", "127.0.0.1:0", "--open-loopback", "--allow-http", "--allow", "127.0.0.0/8"];
        let mut all: Vec<&OsStr> = vec!["serve".as_ref(), "--store".as_ref(), folder.as_os_str()];
        all.extend(args.iter().chain(more).map(OsStr::new));
        Child::start(all).await
    }

    /// Its process id, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.process.id()
    }

    /// SIGKILL; it is gone afterwards.
    pub async fn kill(mut self) -> Result<(), Failure> {
        Ok(self.process.kill().await?)
    }
}
