//! Writers, relays and crashes of the outbox. Stands in for: an application that inserts into its own database, and a
//! machine that kills whatever runs on it.
#![allow(dead_code)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::join_all;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use super::postgres::{Place, Postgres};
use super::server::{Api, Ended, Host, START_MAX, eventually, text};

const WRITERS: u64 = 8;
const KILLS: u64 = 5;
const LIMIT: Duration = Duration::from_secs(400);

/// The program under test.
pub fn program() -> PathBuf {
    env!("CARGO_BIN_EXE_hooklog").into()
}

fn command(url: &str) -> Command {
    let mut command = Command::new(program());
    command.env_clear().env("HOOKLOG_OUTBOX_URL", url).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Runs a command to its end, with a database.
pub async fn hooklog(url: &str, args: &[&str]) -> Ended {
    let ran = tokio::time::timeout(START_MAX, command(url).args(args).output()).await;
    let ran = ran.unwrap_or_else(|_| panic!("{args:?} runs on")).expect("the binary runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it speaks UTF-8");
    Ended { code: ran.status.code(), out: text(ran.stdout), err: text(ran.stderr) }
}

/// Makes the table.
pub async fn init(postgres: &Postgres) {
    let made = hooklog(&postgres.url("app", "postgres"), &["outbox", "init"]).await;
    assert_eq!(made.code, Some(0), "{made:?}");
}

static RELAYS: AtomicU64 = AtomicU64::new(0);

/// A relay in a process of its own.
pub struct Relay {
    child: Child,
    log: PathBuf,
    _stdout: Lines<BufReader<ChildStdout>>,
}

impl Relay {
    /// Starts one to a server, and waits until it has looked at its database.
    pub async fn start(url: &str, server: &str, folder: &Path) -> Relay {
        let log = folder.join(format!("relay-{}.log", RELAYS.fetch_add(1, Ordering::SeqCst)));
        let mut command = command(url);
        command.args(["outbox", "run", "--url", &format!("http://{server}")]);
        command.stdout(Stdio::piped()).stderr(std::fs::File::create(&log).expect("a file"));
        let mut child = command.spawn().expect("the binary runs");
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let line = tokio::time::timeout(START_MAX, stdout.next_line()).await.expect("in time").expect("text");
        let said = || std::fs::read_to_string(&log).unwrap_or_default();
        assert!(line.as_deref().is_some_and(|line| line.contains("hands over from")), "{line:?} {}", said());
        Relay { child, log, _stdout: stdout }
    }

    /// Waits until it has said something.
    pub async fn logs(&self, words: &str) {
        eventually(words, LIMIT, async || self.said().contains(words).then_some(())).await;
    }

    fn said(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        assert!(!log.contains("panicked"), "{log}");
        log
    }

    /// Ends it as a power cut would.
    pub async fn kill(mut self) {
        self.child.start_kill().expect("it can be killed");
        let status = self.child.wait().await.expect("it can be waited for");
        assert_eq!(status.code(), None, "it had ended by itself: {}", self.said());
    }

    /// Asks it to stop, and waits until it has.
    pub async fn stop(mut self) {
        let id = self.child.id().expect("it runs");
        kill_process(Pid::from_raw(id as i32).expect("not zero"), Signal::TERM).expect("it can be signalled");
        let ended =
            tokio::time::timeout(START_MAX, self.child.wait()).await.expect("it ends").expect("it ran");
        assert_eq!(ended.code(), Some(0), "{}", self.said());
    }
}

/// Eight writers commit so many rows together, in transactions of 1 to 20; one in six is rolled back, and each writer
/// holds some open for a second. The table `payments`, written in the same transactions, is the truth.
async fn write(postgres: Place, account: String, writer: u64, rows: u64) -> (u64, u64) {
    let statement = "WITH o AS (
            INSERT INTO hooklog_outbox (account, type, data, event_id)
            SELECT $1::text, 'payment.settled', json_build_object('n', n), CASE WHEN n % 2 = 0 THEN $2::text || n END
            FROM generate_series($3::bigint, $4::bigint) AS n RETURNING id, event_id)
        INSERT INTO payments SELECT coalesce(event_id, id::text) FROM o";
    let mut client = postgres.connect().await;
    let (mut done, mut turn, mut rolled_back) = (0, 0, 0);
    while done < rows {
        turn += 1;
        let size = (1 + (turn * 7 + writer * 3) % 20).min(rows - done);
        let (first, last) = ((turn * 100) as i64, (turn * 100 + size - 1) as i64);
        let fails = turn % 6 == writer % 6;
        let prefix = format!("{}-{writer}-", if fails { "never" } else { "pay" });
        let transaction = async {
            client.batch_execute("BEGIN").await?;
            client.execute(statement, &[&account, &prefix, &first, &last]).await?;
            if turn % 40 == writer {
                client.batch_execute("SELECT pg_sleep(1)").await?;
            }
            client.batch_execute(if fails { "ROLLBACK" } else { "COMMIT" }).await
        };
        match transaction.await {
            Ok(()) if fails => rolled_back += size,
            Ok(()) => done += size,
            // The database crashed; whether it was committed only the truth knows.
            Err(_) => client = postgres.connect().await,
        }
    }
    (done, rolled_back)
}

/// All of it; prints its figures.
pub async fn crashes(rows: u64) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut postgres = Postgres::start().await;
    init(&postgres).await;
    postgres.sql("CREATE TABLE payments (event text PRIMARY KEY)").await;
    let mut server = Host::new(folder.path()).start().await;
    let address = server.address.to_string();
    // The relay knows one address, so every later start is at the same.
    let host = Host::new(folder.path()).at(&address);
    let (account, _) = server.api.account().await;
    let (endpoint, _) = server.api.endpoint(&account, "http://127.0.0.1:9/hooks", json!({})).await;
    server.api.post(&format!("/v1/endpoints/{endpoint}/pause"), json!({})).await;
    let url = postgres.url("app", "postgres");
    let mut relay = Relay::start(&url, &address, folder.path()).await;

    // The writers outlive crashes of the database that is started and stopped here: they only know where it is.
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| write(postgres.place(), account.clone(), writer, rows.div_ceil(WRITERS)))
        .collect();
    let killing = async {
        for round in 0..KILLS {
            moved(&server.api, rows * (2 * round + 1) / (2 * KILLS + 2)).await;
            relay.kill().await;
            relay = Relay::start(&url, &address, folder.path()).await;
            moved(&server.api, rows * (2 * round + 2) / (2 * KILLS + 2)).await;
            server.kill().await;
            if round % 2 == 1 {
                postgres.crash().await;
                postgres.go().await;
            }
            server = host.start().await;
        }
        (relay, server, postgres)
    };
    let (written, (relay, server, postgres)) = tokio::join!(join_all(writers), killing);
    let (acknowledged, rolled_back) =
        written.iter().fold((0, 0), |(sum, undone), (more, also)| (sum + more, undone + also));
    let client = postgres.connect().await;
    eventually("every row is handed over", LIMIT, async || {
        let left = client.query_one("SELECT count(*) FROM hooklog_outbox", &[]).await.expect("an answer");
        (left.get::<_, i64>(0) == 0).then_some(())
    })
    .await;
    let truth = client.query("SELECT event FROM payments", &[]).await.expect("an answer");
    let truth: BTreeSet<String> = truth.iter().map(|row| row.get(0)).collect();
    let events = events(&server.api, &account).await;
    println!(
        "{} rows committed ({acknowledged} acknowledged), {rolled_back} rolled back, {KILLS} kills each of relay and \
         Hooklog, 2 crashes of PostgreSQL: {} events",
        truth.len(),
        events.len()
    );
    assert!(acknowledged >= rows && rolled_back > 0 && truth.len() as u64 >= acknowledged);
    let distinct: BTreeSet<String> = events.iter().cloned().collect();
    assert_eq!(distinct.len(), events.len(), "an event twice");
    assert_eq!(distinct, truth, "not the committed rows");
    assert_eq!(server.api.figures().await["enqueued"], events.len());
    relay.stop().await;
    server.stop().await;
    host.verify().await;
}

/// Waits until so many rows are events.
async fn moved(api: &Api, rows: u64) {
    eventually("rows become events", LIMIT, async || {
        (api.figures().await["enqueued"].as_u64().expect("a number") >= rows).then_some(())
    })
    .await;
}

/// The ids of all events of an account, with one delivery each.
async fn events(api: &Api, account: &str) -> Vec<String> {
    let (mut all, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let more = cursor.map_or(String::new(), |cursor| format!("&cursor={cursor}"));
        let page = api.get(&format!("/v1/deliveries?account_id={account}&limit=200{more}")).await;
        all.extend(
            page["data"].as_array().expect("a list").iter().map(|delivery| text(&delivery["event_id"])),
        );
        match page["next_cursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => return all,
        }
    }
}
