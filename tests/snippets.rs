//! The snippets of the documents, taken out of them and run: those for receivers against the vectors that our own
//! signer is held to, those for senders against a real server. A language whose runtime is missing is left out, but
//! for `tests/snippets`, which installs them all. The Rust ones are doc tests of the library.

#[cfg(feature = "postgres")]
#[path = "support/outbox_crash.rs"]
mod outbox_crash;
#[cfg(feature = "postgres")]
#[path = "support/postgres.rs"]
mod postgres;
#[path = "support/receiver.rs"]
mod receiver;
#[path = "support/server.rs"]
mod server;

use std::path::{Path, PathBuf};

use receiver::{Receiver, answer};
use server::{Host, START_MAX};
use tokio::process::Command;

/// The blocks of a language in a document, joined.
fn snippets(document: &str, language: &str) -> String {
    let text = std::fs::read_to_string(document).expect("a document");
    let mut out = String::new();
    let mut inside = false;
    for line in text.lines() {
        match (inside, line.strip_prefix("```")) {
            (false, Some(tag)) => inside = tag == language,
            (true, Some(_)) => inside = false,
            (true, None) => out.extend([line, "\n"]),
            (false, None) => {}
        }
    }
    assert!(!out.is_empty(), "no {language} in {document}");
    out
}

/// TypeScript without its types, as far as these snippets use them: older Nodes cannot take them out themselves.
fn untyped(text: &str) -> String {
    const TYPES: [&str; 12] = [
        "Record<string, string>",
        "Record<string, unknown>",
        "Response | undefined",
        "Promise<unknown>",
        "Promise<void>",
        "pg.Pool",
        "string[]",
        "string",
        "boolean",
        "number",
        "Buffer",
        "unknown",
    ];
    TYPES.iter().fold(text.to_owned(), |text, name| {
        [",", ")", " {", " =>", ";"]
            .iter()
            .fold(text, |text, end| text.replace(&format!(": {name}{end}"), end))
    })
}

/// Whether a runtime is there. `tests/snippets` wants all of them.
fn there(program: &str) -> bool {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder: PathBuf| folder.join(program).is_file())
    });
    let wanted = program == "python3" || std::env::var_os("HOOKLOG_ALL_SNIPPETS").is_some();
    assert!(found || !wanted, "{program} is missing");
    found
}

async fn run(folder: &Path, program: &str, args: &[&str], language: &str) {
    let mut command = Command::new(program);
    command.args(args).current_dir(folder).env("FIXTURES", fixtures()).env("GO111MODULE", "off");
    command.env("GOCACHE", folder.join("cache")).env("GOFLAGS", "").kill_on_drop(true);
    let ran = tokio::time::timeout(START_MAX * 4, command.output()).await.expect("in time").expect("it runs");
    let out = String::from_utf8_lossy(&ran.stdout);
    let err = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && out.trim().ends_with("all as wanted"), "{language}: {out}\n{err}");
}

fn fixtures() -> String {
    format!("{}/fixtures/signatures", env!("CARGO_MANIFEST_DIR"))
}

async fn verifying(program: &str, language: &str, file: &str, driver: &str, args: &[&str]) {
    if !there(program) {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let code = snippets("docs/receiving.md", language);
    let code = if language == "typescript" { untyped(&code) } else { code };
    // In Go a file of its own, in the same package.
    let (beside, below) = if language == "go" { (driver, "") } else { ("", driver) };
    std::fs::write(folder.path().join("driver.go"), beside).expect("a file");
    let code = format!("{code}\n{below}");
    std::fs::write(folder.path().join(file), code).expect("a file");
    run(folder.path(), program, args, language).await;
}

#[tokio::test]
async fn python_receivers_tell_genuine_from_forged() {
    let driver = r#"
import json, os, sqlite3
read = lambda name: json.load(open(f"{os.environ['FIXTURES']}/{name}.json", encoding="utf-8"))
K32 = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
def head(v): return {"webhook-id": v["id"], "webhook-timestamp": str(v["timestamp"]), "webhook-signature": v["signature"]}
for v in read("standard"):
    body, at = v["body"].encode(), v["timestamp"]
    for now, wanted in [(at, True), (at + 300, True), (at - 300, True), (at + 301, False), (at - 301, False)]:
        assert verify(v["keys"], head(v), body, now) == wanted, (v["name"], now)
    assert verify([v["keys"][0]], head(v), body, at) and not verify([], head(v), body, at)
    assert not verify(v["keys"], head(v), body + b" ", at), v["name"]
for v in read("refused"):
    assert not verify([K32], head(v), v["body"].encode(), 1768471200), v["name"]
assert not verify([K32], {}, b"", 1768471200)
for v in read("ledger"):
    assert verify_ledger(v["secret"], v["signature"], v["body"].encode()), v["name"]
    assert not verify_ledger(v["secret"] + "x", v["signature"], v["body"].encode()), v["name"]
db = sqlite3.connect(":memory:")
db.execute("CREATE TABLE webhook_done (id TEXT PRIMARY KEY)")
db.execute("CREATE TABLE paid (n INTEGER)")
work = lambda db: db.execute("INSERT INTO paid VALUES (1)")
def failing(db):
    work(db)
    raise RuntimeError("the work failed")
try: once(db, "evt_1", failing)
except RuntimeError: pass
assert db.execute("SELECT count(*) FROM paid").fetchone() == (0,), "rolled back"
assert once(db, "evt_1", work) and not once(db, "evt_1", work) and once(db, "evt_2", work)
assert db.execute("SELECT count(*) FROM paid").fetchone() == (2,)
print("all as wanted")
"#;
    verifying("python3", "python", "receive.py", driver, &["receive.py"]).await;
}

#[tokio::test]
async fn typescript_receivers_tell_genuine_from_forged() {
    let driver = r#"
import assert from "node:assert";
import { readFileSync } from "node:fs";
const read = (name) => JSON.parse(readFileSync(`${process.env.FIXTURES}/${name}.json`, "utf8"));
const K32 = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const head = (v) => ({ "webhook-id": v.id, "webhook-timestamp": String(v.timestamp), "webhook-signature": v.signature });
for (const v of read("standard")) {
  const [body, at] = [Buffer.from(v.body), v.timestamp];
  for (const [now, wanted] of [[at, true], [at + 300, true], [at - 300, true], [at + 301, false], [at - 301, false]])
    assert.equal(verify(v.keys, head(v), body, now), wanted, v.name);
  assert(verify([v.keys[0]], head(v), body, at) && !verify([], head(v), body, at));
  assert(!verify(v.keys, head(v), Buffer.from(v.body + " "), at), v.name);
}
for (const v of read("refused")) assert(!verify([K32], head(v), Buffer.from(v.body), 1768471200), v.name);
assert(!verify([K32], {}, Buffer.alloc(0), 1768471200));
for (const v of read("ledger")) {
  assert(verifyLedger(v.secret, v.signature, Buffer.from(v.body)), v.name);
  assert(!verifyLedger(v.secret + "x", v.signature, Buffer.from(v.body)), v.name);
}
console.log("all as wanted");
"#;
    verifying("node", "typescript", "receive.mjs", driver, &["receive.mjs"]).await;
}

#[tokio::test]
async fn php_receivers_tell_genuine_from_forged() {
    let driver = r#"
function read(string $name): array { return json_decode(file_get_contents(getenv('FIXTURES') . "/$name.json"), true); }
function head(array $v): array {
    return ['webhook-id' => $v['id'], 'webhook-timestamp' => (string) $v['timestamp'], 'webhook-signature' => $v['signature']];
}
function wanted(bool $is, bool $want, string $name): void { if ($is !== $want) { echo "$name\n"; exit(1); } }
const K32 = 'whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=';
foreach (read('standard') as $v) {
    foreach ([[0, true], [300, true], [-300, true], [301, false], [-301, false]] as [$by, $want]) {
        wanted(verify($v['keys'], head($v), $v['body'], $v['timestamp'] + $by), $want, $v['name']);
    }
    wanted(verify([$v['keys'][0]], head($v), $v['body'], $v['timestamp']), true, $v['name']);
    wanted(verify([], head($v), $v['body'], $v['timestamp']), false, $v['name']);
    wanted(verify($v['keys'], head($v), $v['body'] . ' ', $v['timestamp']), false, $v['name']);
}
foreach (read('refused') as $v) { wanted(verify([K32], head($v), $v['body'], 1768471200), false, $v['name']); }
wanted(verify([K32], [], '', 1768471200), false, 'nothing');
foreach (read('ledger') as $v) {
    wanted(verify_ledger($v['secret'], $v['signature'], $v['body']), true, $v['name']);
    wanted(verify_ledger($v['secret'] . 'x', $v['signature'], $v['body']), false, $v['name']);
}
echo "all as wanted\n";
"#;
    verifying("php", "php", "receive.php", driver, &["receive.php"]).await;
}

#[tokio::test]
async fn ruby_receivers_tell_genuine_from_forged() {
    let driver = r##"
require "json"
def read(name) = JSON.parse(File.read("#{ENV["FIXTURES"]}/#{name}.json", encoding: "UTF-8"))
def head(v)
  { "webhook-id" => v["id"], "webhook-timestamp" => v["timestamp"].to_s, "webhook-signature" => v["signature"] }
end
def wanted(is, want, name) = (is == want) || abort(name)
K32 = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
read("standard").each do |v|
  { 0 => true, 300 => true, -300 => true, 301 => false, -301 => false }.each do |by, want|
    wanted(verify(v["keys"], head(v), v["body"], v["timestamp"] + by), want, v["name"])
  end
  wanted(verify([v["keys"][0]], head(v), v["body"], v["timestamp"]), true, v["name"])
  wanted(verify([], head(v), v["body"], v["timestamp"]), false, v["name"])
  wanted(verify(v["keys"], head(v), v["body"] + " ", v["timestamp"]), false, v["name"])
end
read("refused").each { |v| wanted(verify([K32], head(v), v["body"], 1768471200), false, v["name"]) }
wanted(verify([K32], {}, "", 1768471200), false, "nothing")
read("ledger").each do |v|
  wanted(verify_ledger(v["secret"], v["signature"], v["body"]), true, v["name"])
  wanted(verify_ledger(v["secret"] + "x", v["signature"], v["body"]), false, v["name"])
end
puts "all as wanted"
"##;
    verifying("ruby", "ruby", "receive.rb", driver, &["receive.rb"]).await;
}

#[tokio::test]
async fn go_receivers_tell_genuine_from_forged() {
    let driver = r#"package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
)

type vector struct {
	Name, Id, Body, Signature, Secret string
	Keys                              []string
	Timestamp                         interface{}
}

func read(name string) (out []vector) {
	text, err := os.ReadFile(os.Getenv("FIXTURES") + "/" + name + ".json")
	if err != nil || json.Unmarshal(text, &out) != nil {
		panic(name)
	}
	return out
}

func head(v vector) http.Header {
	at, isText := v.Timestamp.(string)
	if !isText {
		at = fmt.Sprintf("%.0f", v.Timestamp)
	}
	// As the server fills it: a value that is no header is never there, so it is put in by hand.
	return http.Header{"Webhook-Id": {v.Id}, "Webhook-Timestamp": {at}, "Webhook-Signature": {v.Signature}}
}

func wanted(is, want bool, name string) {
	if is != want {
		panic(name)
	}
}

func main() {
	const K32 = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	for _, v := range read("standard") {
		at := int64(v.Timestamp.(float64))
		for by, want := range map[int64]bool{0: true, 300: true, -300: true, 301: false, -301: false} {
			wanted(Verify(v.Keys, head(v), []byte(v.Body), at+by), want, v.Name)
		}
		wanted(Verify(v.Keys[:1], head(v), []byte(v.Body), at), true, v.Name)
		wanted(Verify(nil, head(v), []byte(v.Body), at), false, v.Name)
		wanted(Verify(v.Keys, head(v), []byte(v.Body+" "), at), false, v.Name)
	}
	for _, v := range read("refused") {
		wanted(Verify([]string{K32}, head(v), []byte(v.Body), 1768471200), false, v.Name)
	}
	wanted(Verify([]string{K32}, http.Header{}, nil, 1768471200), false, "nothing")
	for _, v := range read("ledger") {
		wanted(VerifyLedger(v.Secret, v.Signature, []byte(v.Body)), true, v.Name)
		wanted(VerifyLedger(v.Secret+"x", v.Signature, []byte(v.Body)), false, v.Name)
	}
	fmt.Println("all as wanted")
}
"#;
    verifying("go", "go", "receive.go", driver, &["run", "receive.go", "driver.go"]).await;
}

/// Each sender's snippet takes an event in, does so once however often it asks, goes on over a server that refuses at
/// first, and gives up at once where another try changes nothing.
#[tokio::test(flavor = "multi_thread")]
async fn senders_take_an_event_in_once() {
    let python = r#"
import os
server, token, account, first = (os.environ[name] for name in ("SERVER", "TOKEN", "ACCOUNT", "FIRST"))
event = {"account_id": account, "id": "python-1", "type": "invoice.paid", "data": {"n": 1}}
assert enqueue(server, token, event)["duplicate"] is False
assert enqueue(server, token, event)["duplicate"] is True
for wrong in [dict(event, data=2), dict(event, type="")]:
    try: enqueue(server, token, wrong)
    except urllib.error.HTTPError as error: assert error.code == 422
    else: raise SystemExit("not refused")
assert enqueue(first, token, event) == {"id": "later"}
print("all as wanted")
"#;
    let typescript = r#"
import assert from "node:assert";
const { SERVER: server, TOKEN: token, ACCOUNT: account, FIRST: first } = process.env;
const event = { account_id: account, id: "node-1", type: "invoice.paid", data: { n: 1 } };
assert.equal((await enqueue(server, token, event)).duplicate, false);
assert.equal((await enqueue(server, token, event)).duplicate, true);
for (const wrong of [{ ...event, data: 2 }, { ...event, type: "" }]) await assert.rejects(enqueue(server, token, wrong), /^Error: 422/);
assert.deepEqual(await enqueue(first, token, event), { id: "later" });
console.log("all as wanted");
"#;
    let folder = tempfile::tempdir().expect("a folder");
    let token = "0123456789abcdef0123456789abcdef";
    let key = folder.path().join("token");
    std::fs::write(&key, token).expect("a file");
    let host = Host::new(folder.path()).with("--operator-token-file", key.to_str().expect("text"));
    let server = host.start().await;
    let made = host.on_store(&["accounts", "create", "Acme", "--json"]).await;
    let made: serde_json::Value = serde_json::from_str(&made.out).expect("JSON");
    for (program, language, file, driver) in
        [("python3", "python", "send.py", python), ("node", "typescript", "send.mjs", typescript)]
    {
        if !there(program) {
            continue;
        }
        // Two refusals that ask for another try, then an answer.
        let script = vec![
            answer(503, "", "{}"),
            answer(429, "retry-after: 0\r\n", "{}"),
            answer(202, "", "{\"id\":\"later\"}"),
        ];
        let first = Receiver::scripted(script).await;
        let code = snippets("docs/sending.md", language);
        let code = if language == "typescript" { untyped(&code) } else { code };
        let file = folder.path().join(file);
        std::fs::write(&file, format!("{code}\n{driver}")).expect("a file");
        let mut command = Command::new(program);
        command.arg(&file).kill_on_drop(true);
        command.env("SERVER", format!("http://{}", server.address)).env("TOKEN", token);
        command
            .env("ACCOUNT", made["id"].as_str().expect("an id"))
            .env("FIRST", first.url("").trim_end_matches('/'));
        let ran = tokio::time::timeout(START_MAX, command.output()).await.expect("in time").expect("it runs");
        let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert!(ran.status.success() && out.trim() == "all as wanted", "{language}: {out}\n{err}");
    }
    server.stop().await;
}

/// Each writer's snippet commits an invoice and its event together, or neither; what was committed becomes an event.
#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn writers_of_the_outbox_commit_both_or_neither() {
    let sql = snippets("docs/outbox.md", "sql");
    let python = r#"
import os
with psycopg.connect(os.environ["DATABASE"], autocommit=True) as connection:
    pay(connection, os.environ["ACCOUNT"], 1, 12900)
    try: pay(connection, os.environ["ACCOUNT"], 1, float("nan"))
    except psycopg.errors.InvalidTextRepresentation: pass
    else: raise SystemExit("no JSON was taken")
    try: pay(connection, None, 2, 1)
    except psycopg.errors.NotNullViolation: pass
    assert connection.execute("SELECT paid FROM invoices WHERE id = 2").fetchone() == (False,), "rolled back"
print("all as wanted")
"#;
    let typescript = r#"
import assert from "node:assert";
const pool = new pg.Pool({ connectionString: process.env.DATABASE });
await pay(pool, process.env.ACCOUNT, 3, 12900);
await assert.rejects(pay(pool, null, 2, 1), { code: "23502" });
assert.equal((await pool.query("SELECT paid FROM invoices WHERE id = 2")).rows[0].paid, false, "rolled back");
await pool.end();
console.log("all as wanted");
"#;
    let database = postgres::Postgres::start().await;
    outbox_crash::init(&database).await;
    database.sql("CREATE TABLE invoices (id int PRIMARY KEY, paid bool NOT NULL DEFAULT false)").await;
    database.sql("INSERT INTO invoices VALUES (1), (2), (3), (4711)").await;
    let folder = tempfile::tempdir().expect("a folder");
    let server = Host::new(folder.path()).start().await;
    let (account, _) = server.api.account().await;
    let url = database.url("app", "postgres");
    let run = async |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args).current_dir(folder.path()).env("DATABASE", &url).env("ACCOUNT", &account);
        let ran = tokio::time::timeout(START_MAX, command.kill_on_drop(true).output()).await;
        let ran = ran.expect("in time").unwrap_or_else(|error| panic!("{program}: {error}"));
        let out = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(ran.status.success(), "{program}: {out}\n{}", String::from_utf8_lossy(&ran.stderr));
        out
    };
    let mut wanted = vec!["inv_4711-paid", "inv_1-paid"];
    std::fs::write(folder.path().join("pay.sql"), sql).expect("a file");
    run(
        "psql",
        &["--no-psqlrc", "-v", "ON_ERROR_STOP=1", "-v", &format!("account={account}"), "-f", "pay.sql", &url],
    )
    .await;
    // Debian's own Python has Debian's psycopg.
    let code = format!("{}\n{python}", snippets("docs/outbox.md", "python"));
    std::fs::write(folder.path().join("pay.py"), code).expect("a file");
    assert_eq!(run("/usr/bin/python3", &["pay.py"]).await.trim(), "all as wanted");
    match std::env::var_os("HOOKLOG_NODE_MODULES") {
        Some(modules) if there("node") => {
            std::os::unix::fs::symlink(modules, folder.path().join("node_modules")).expect("a link");
            let code = format!("{}\n{typescript}", untyped(&snippets("docs/outbox.md", "typescript")));
            std::fs::write(folder.path().join("pay.mjs"), code).expect("a file");
            assert_eq!(run("node", &["pay.mjs"]).await.trim(), "all as wanted");
            wanted.push("inv_3-paid");
        }
        _ => assert!(std::env::var_os("HOOKLOG_ALL_SNIPPETS").is_none(), "tests/snippets installs pg"),
    }
    let relay = outbox_crash::Relay::start(&url, &server.address.to_string(), folder.path()).await;
    let client = database.connect().await;
    server::eventually("rows are handed over", START_MAX, async || {
        let left = client.query_one("SELECT count(*) FROM hooklog_outbox", &[]).await.expect("an answer");
        (left.get::<_, i64>(0) == 0).then_some(())
    })
    .await;
    for id in wanted {
        let event = server.api.get(&format!("/v1/events/{id}?account_id={account}")).await;
        assert_eq!(event["type"], "invoice.paid", "{event}");
    }
    relay.stop().await;
    server.stop().await;
}
