//! Debian's PostgreSQL in a process of its own, on a Unix socket in a folder of its own. Stands in for: an
//! application's database.
//!
//! PostgreSQL refuses to run as root, so there it runs as the user `postgres` of Debian's package. Nothing here
//! waits by the clock: a server is up when it answers.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio_postgres::{Client, NoTls};

use super::server::eventually;

/// A start, and whatever else PostgreSQL does by itself, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);

/// Where a PostgreSQL is, whether it runs or not.
#[derive(Clone, Debug)]
pub struct Place(PathBuf);

/// A PostgreSQL with the superuser `app` and the database `postgres`.
pub struct Postgres {
    folder: TempDir,
    programs: PathBuf,
    user: Option<(u32, u32)>,
    flags: Vec<String>,
    child: Option<Child>,
}

impl Postgres {
    /// Makes one and starts it.
    pub async fn start() -> Postgres {
        Postgres::start_with(&[]).await
    }

    /// With settings of its own, as `ssl=on`. Files that they name may lie in [`folder`](Self::folder).
    pub async fn start_with(settings: &[&str]) -> Postgres {
        let mut postgres = Postgres::made().await;
        postgres.set(settings);
        postgres.go().await;
        postgres
    }

    /// Makes one that does not run yet.
    pub async fn made() -> Postgres {
        let folder = tempfile::tempdir().expect("a folder");
        let user = geteuid().is_root().then(|| user("postgres"));
        if let Some((uid, gid)) = user {
            std::os::unix::fs::chown(folder.path(), Some(uid), Some(gid)).expect("root may");
        }
        let postgres = Postgres { folder, programs: programs(), user, flags: Vec::new(), child: None };
        let mut init = postgres.command("initdb");
        init.args([
            "--no-sync",
            "--username=app",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--pgdata",
        ]);
        let made = init.arg(postgres.data()).output().await.expect("initdb runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        postgres
    }

    /// With more settings, from the next start on.
    pub fn set(&mut self, settings: &[&str]) {
        self.flags.extend(settings.iter().flat_map(|setting| ["-c".into(), (*setting).to_owned()]));
    }

    /// Starts, and waits until it answers.
    pub async fn go(&mut self) {
        let log = std::fs::File::create(self.folder.path().join("log")).expect("a file");
        let mut command = self.command("postgres");
        command.arg("-D").arg(self.data()).arg("-k").arg(self.folder.path());
        command.args(["-c", "listen_addresses=", "-c", "max_connections=50"]).args(&self.flags);
        command.stdout(Stdio::null()).stderr(log).kill_on_drop(true);
        self.child = Some(command.spawn().expect("postgres runs"));
        self.connect().await;
    }

    /// Ends it as a crash would: nothing is written any more.
    pub async fn crash(&mut self) {
        self.signal(Signal::QUIT);
        let mut child = self.child.take().expect("it runs");
        tokio::time::timeout(LIMIT, child.wait()).await.expect("it ends").expect("it can be waited for");
    }

    fn signal(&self, signal: Signal) {
        let id = self.child.as_ref().and_then(Child::id).expect("it runs");
        kill_process(Pid::from_raw(id as i32).expect("not zero"), signal).expect("it can be signalled");
    }

    /// Where its socket is.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where it is, for whoever outlives its crashes.
    pub fn place(&self) -> Place {
        Place(self.folder.path().to_owned())
    }

    /// A user's URL of a database.
    pub fn url(&self, user: &str, database: &str) -> String {
        self.place().url(user, database)
    }

    /// A connection of the superuser.
    pub async fn connect(&self) -> Client {
        self.place().connect().await
    }

    /// A connection of a user.
    pub async fn connect_as(&self, user: &str, database: &str) -> Client {
        self.place().connect_as(user, database).await
    }

    /// Does statements as the superuser.
    pub async fn sql(&self, statements: &str) {
        self.connect()
            .await
            .batch_execute(statements)
            .await
            .unwrap_or_else(|error| panic!("{statements}: {error:?}"));
    }

    /// A number that a query answers.
    pub async fn number(&self, query: &str) -> i64 {
        self.connect().await.query_one(query, &[]).await.expect(query).get(0)
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        command.env_clear().env("LC_ALL", "C").current_dir(self.folder.path()).stdin(Stdio::null());
        if let Some((uid, gid)) = self.user {
            command.uid(uid).gid(gid);
        }
        command
    }

    /// Gives a file to the user that it runs as, with the mode of a key.
    pub fn own(&self, file: &Path) {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600)).expect("ours");
        if let Some((uid, gid)) = self.user {
            std::os::unix::fs::chown(file, Some(uid), Some(gid)).expect("root may");
        }
    }
}

impl Place {
    /// A user's URL of a database.
    pub fn url(&self, user: &str, database: &str) -> String {
        format!("postgresql://{user}@/{database}?host={}", self.0.display())
    }

    /// A connection of the superuser.
    pub async fn connect(&self) -> Client {
        self.connect_as("app", "postgres").await
    }

    /// A connection of a user, as soon as it is up.
    pub async fn connect_as(&self, user: &str, database: &str) -> Client {
        let url = self.url(user, database);
        let connecting = async || tokio_postgres::connect(&url, NoTls).await.ok();
        let (client, connection) = eventually("PostgreSQL takes a connection", LIMIT, connecting).await;
        tokio::spawn(connection);
        client
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // Its children end with it, and leave no memory behind.
        if self.child.as_ref().is_some_and(|child| child.id().is_some()) {
            self.signal(Signal::QUIT);
        }
    }
}

fn programs() -> PathBuf {
    let versions =
        std::fs::read_dir("/usr/lib/postgresql").expect("Debian's PostgreSQL; tests/run installs it");
    let mut found: Vec<PathBuf> = versions
        .map(|version| version.expect("an entry").path().join("bin"))
        .filter(|folder| folder.join("initdb").is_file())
        .collect();
    found.sort();
    found.pop().expect("Debian's PostgreSQL; tests/run installs it")
}

fn user(name: &str) -> (u32, u32) {
    let users = std::fs::read_to_string("/etc/passwd").expect("a file");
    let line =
        users.lines().find(|line| line.split(':').next() == Some(name)).expect("Debian's package makes it");
    let number = |nth: usize| line.split(':').nth(nth).and_then(|text| text.parse().ok()).expect("a number");
    (number(2), number(3))
}
