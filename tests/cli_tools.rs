//! The command line's tools that decide nothing about deliveries: exports, profiles, local times, papers, the local
//! receiver, and the checker of signatures. Each over the real program.

#[path = "support/receiver.rs"]
mod receiver;
#[path = "support/server.rs"]
mod server;

use std::path::Path;
use std::process::Stdio;

use hooklog::log::{Change, codec};
use hooklog::views::settled::{SETTLED_SPACE, SettledRow, settled_mark};
use hooklog_projections::ids::Seq;
use hooklog_projections::tables::FOLDS_VERSION;
use receiver::{Receiver, answer};
use serde_json::{Value, json};
use server::{Ended, Host, START_MAX, text};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// The key and the body of vectors V1 and L1, and the moment of the former.
const KEY: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const ACCOUNT_SECRET: &str = "acct_secret_0123456789abcdef0123";
const BODY: &str =
    r#"{"id":"evt_01J9X4K2P7","type":"payment.settled","data":{"amount":12900,"currency":"EUR"}}"#;
const HEADERS: &str = "POST /in HTTP/1.1\r\nHost: x\r\nWebhook-Id: evt_01J9X4K2P7\r\nwebhook-timestamp: 1768471200\r\n\
    webhook-signature: v1,Qw1Xd+GJIutDUjet8ClnFhlBApBQ5q2ls7kR1HV/8M0=\r\n\
    X-Ledger-Signature: sha256=e85b342a1afe0a994c2b0db38e689d1c764a6a1aaa166200c7017fd8ee009996\r\n\r\n";

fn hooklog(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hooklog"));
    command.args(args).env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.kill_on_drop(true);
    command
}

async fn ran(mut command: Command) -> Ended {
    let output = command.output().await.expect("the binary runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it speaks UTF-8");
    Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

async fn run(args: &[&str]) -> Ended {
    ran(hooklog(args)).await
}

fn written(folder: &Path, name: &str, content: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, content).expect("a file");
    path.to_str().expect("a path of text").to_owned()
}

/// A local receiver that has said where it listens.
struct Listening {
    url: String,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Listening {
    async fn start(args: &[&str]) -> Listening {
        let mut child =
            hooklog(&[&["listen", "--port", "0", "--json"], args].concat()).spawn().expect("it runs");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let first = tokio::time::timeout(START_MAX, lines.next_line()).await.expect("in time");
        let first: Value = serde_json::from_str(&first.expect("a line").expect("more")).expect("JSON");
        Listening { url: text(&first["listening"]), child, lines }
    }

    async fn next(&mut self) -> Value {
        let line = tokio::time::timeout(START_MAX, self.lines.next_line()).await.expect("in time");
        serde_json::from_str(&line.expect("a line").expect("more")).expect("JSON")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_go_to_a_spreadsheet_as_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let host = Host::new(folder.path());
    let server = host.start().await;
    let customer = Receiver::scripted(vec![answer(404, "", "")]).await;
    let hostile = "=HYPERLINK(\"http://x\",\"y\")";
    let account = text(&server.api.post("/v1/accounts", json!({ "name": hostile })).await["id"]);
    server.api.endpoint(&account, &customer.url("/a,b"), json!({})).await;
    for n in 0..3 {
        server.api.event(&account, &format!("-{n}"), "{}").await.expect("an answer").good();
    }
    server.api.settled(START_MAX).await;
    let accounts = host.on_store(&["accounts", "list", "--format", "csv"]).await;
    assert_eq!(accounts.code, Some(0), "{accounts:?}");
    let mut lines = accounts.out.lines();
    assert_eq!(lines.next(), Some("account,name,owner,created"));
    let row = lines.next().expect("an account");
    assert!(row.contains(",\"'=HYPERLINK(\"\"http://x\"\",\"\"y\"\")\",,"), "{row}");

    let listed = host.on_store(&["list", "--format", "csv", "--state", "dead"]).await;
    assert_eq!(listed.code, Some(0), "{listed:?}");
    let lines: Vec<_> = listed.out.lines().collect();
    assert_eq!(lines.len(), 4, "{}", listed.out);
    assert!(lines[0].starts_with("id,event_id,event_type,account_id,endpoint_id,endpoint_url,status,"));
    let url = customer.url("/a,b");
    for (n, line) in lines[1..].iter().rev().enumerate() {
        let wanted = format!(",'-{n},payment.settled,{account},ep_");
        assert!(line.contains(&wanted) && line.contains(&format!(",\"{url}\",dead,")), "{wanted} in {line}");
        assert!(line.ends_with(",404,HTTP 404,refused"), "{line}");
    }
    let none = host.on_store(&["list", "--format", "csv", "--state", "pending"]).await;
    assert_eq!((none.code, none.out.lines().count()), (Some(0), 1));
    for other in [&["explain", "-0"][..], &["status"], &["list", "--follow"]] {
        let refused = host.on_store(&[other, &["--format", "csv"]].concat()).await;
        assert_eq!(refused.code, Some(2), "{other:?}: {refused:?}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn profiles_name_a_server_and_times_are_local_if_wished() {
    let folder = tempfile::tempdir().expect("a folder");
    let token = "0123456789abcdef0123456789abcdef";
    std::fs::create_dir_all(folder.path().join("config/hooklog")).expect("a folder");
    written(folder.path(), "config/hooklog/live.key", &format!("{token}\n"));
    let token_file = folder.path().join("config/hooklog/live.key");
    let host = Host::new(folder.path()).with("--operator-token-file", token_file.to_str().expect("text"));
    let server = host.start().await;
    let profiles = format!("[live]\nurl = \"http://{}\"\nkey_file = \"live.key\"\n[bare]\n", server.address);
    written(folder.path(), "config/hooklog/profiles.toml", &profiles);
    let asked = async |args: &[&str], profile: Option<&str>| {
        let mut command = hooklog(args);
        command.env("XDG_CONFIG_HOME", folder.path().join("config")).env("TZ", "XXX-2");
        if let Some(profile) = profile {
            command.env("HOOKLOG_PROFILE", profile);
        }
        ran(command).await
    };
    let made = asked(&["accounts", "create", "Acme", "--profile", "live"], None).await;
    assert_eq!(made.code, Some(0), "{made:?}");
    let utc = asked(&["accounts", "list"], Some("live")).await;
    assert!(utc.code == Some(0) && utc.out.contains("Z\n"), "{utc:?}");
    let local = asked(&["accounts", "list", "--local"], Some("live")).await;
    assert!(local.code == Some(0) && local.out.contains("+02:00\n"), "{local:?}");
    // What is said by a flag is meant.
    let flag = asked(&["status", "--profile", "live", "--url", "http://127.0.0.1:1"], None).await;
    assert_eq!(flag.code, Some(6), "{flag:?}");
    let none = asked(&["status", "--profile", "nobody"], None).await;
    assert!(none.code == Some(3) && none.err.contains("bare, live"), "{none:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_completes_words_and_the_ids_that_are_there() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let completion = run(&["completion", shell]).await;
        assert!(completion.code == Some(0) && completion.out.contains("HOOKLOG_COMPLETE"), "{completion:?}");
    }
    assert_eq!(run(&["completion", "tcsh"]).await.code, Some(2));

    let folder = tempfile::tempdir().expect("a folder");
    let receiver = Receiver::scripted(vec![answer(200, "", "ok")]).await;
    let host = Host::new(folder.path());
    let server = host.start().await;
    let account = server.api.post("/v1/accounts", json!({ "name": "Acme; $(reboot)" })).await;
    let account = text(&account["id"]);
    let (other, _) = server.api.account().await;
    let (endpoint, _) = server.api.endpoint(&account, &receiver.url("/in"), json!({})).await;
    let (elsewhere, _) = server.api.endpoint(&other, &receiver.url("/other"), json!({})).await;
    let mut deliveries = Vec::new();
    for id in ["evt_1", "evt~2"] {
        let event = server.api.event(&account, id, "1").await.expect("an answer").good();
        deliveries.push(text(&event["deliveries"][0]["id"]));
    }
    let url = format!("http://{}", server.address);
    let completed = async |words: &[&str]| {
        let script = "source <(\"$0\" completion bash); COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1));
            _clap_complete_hooklog hooklog \"${@: -1}\"; printf '%s\\n' \"${COMPREPLY[@]}\"";
        let mut shell = Command::new("bash");
        shell.args(["-c", script, env!("CARGO_BIN_EXE_hooklog"), "hooklog"]).args(words);
        let path = std::env::var_os("PATH").expect("a path");
        shell.env_clear().env("PATH", path).env("HOOKLOG_URL", &url).kill_on_drop(true);
        let ended = ran(shell).await;
        assert_eq!((ended.code, &*ended.err), (Some(0), ""), "{words:?}");
        ended.out.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert!(completed(&["retr"]).await.contains(&"retry-now".to_owned()));
    assert!(completed(&["signature", ""]).await.contains(&"verify".to_owned()));
    assert_eq!(completed(&["listen", "--forw"]).await, ["--forward-to"]);

    let mut accounts = completed(&["portal", "link", "--account", "acct_"]).await;
    accounts.sort();
    let mut both = vec![account.clone(), other.clone()];
    both.sort();
    assert_eq!(accounts, both);
    assert_eq!(completed(&["list", "--account", &other[..other.len() - 1]]).await, [&*other]);
    assert_eq!(completed(&["accounts", "reveal", &account]).await, [&*account]);
    let mut endpoints = completed(&["endpoints", "pause", "ep_"]).await;
    endpoints.sort();
    let mut all = vec![endpoint.clone(), elsewhere];
    all.sort();
    assert_eq!(endpoints, all);
    // Of the account that the line names.
    assert_eq!(completed(&["list", "--account", &account, "--endpoint", "ep_"]).await, [&*endpoint]);
    let explained = completed(&["explain", "dlv_"]).await;
    assert!(deliveries.iter().all(|id| explained.contains(id)) && explained.len() == 2, "{explained:?}");
    assert_eq!(
        completed(&["events", "payload", "evt"]).await,
        ["evt_1"],
        "what a shell may read is left out"
    );

    // A server that is not there, a stopped store and a line that makes no sense keep nobody waiting.
    for words in [
        &["explain", "--url", "http://127.0.0.1:1", "dlv_"][..],
        &["explain", "--store", folder.path().to_str().expect("text"), "dlv_"],
        &["explain", "--no-such-flag", "dlv_"],
    ] {
        completed(words).await;
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn manual_pages_are_made_of_the_command_line_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let man = folder.path().join("man1");
    let made = run(&["man", "--dir", man.to_str().expect("text")]).await;
    assert_eq!(made.code, Some(0), "{made:?}");
    let page = |name: &str| std::fs::read_to_string(man.join(name)).expect("a page");
    assert!(page("hooklog.1").contains("Exit codes"), "the codes stand on the first page");
    assert!(page("hooklog-signature-verify.1").contains("account"));
    for name in ["hooklog-send.1", "hooklog-explain.1", "hooklog-store-verify.1"] {
        assert!(page(name).starts_with(".ie"), "{name}");
    }
}

/// As a store is after an upgrade, or after going back to an older program.
#[tokio::test(flavor = "multi_thread")]
async fn views_of_another_version_are_called_that_and_not_damaged() {
    let folder = tempfile::tempdir().expect("a folder");
    let host = Host::new(folder.path());
    let server = host.start().await;
    server.api.account().await;
    server.stop().await;
    for other in [FOLDS_VERSION - 1, FOLDS_VERSION + 1] {
        let (disk, _) = hooklog::log::open_folder(&host.store, Default::default()).expect("a stopped store");
        let mark = settled_mark(Seq(1));
        let row = disk.get(SETTLED_SPACE, &mark.key).expect("it can be read").expect("it is there");
        let row: SettledRow = codec::decode(&row).expect("a row");
        let row = SettledRow { folds: other, ..row };
        disk.write(&[Change { value: Some(codec::encode(&row).into()), ..mark }]).expect("written");
        drop(disk);
        for _ in 0..2 {
            let verified = host.on_store(&["store", "verify"]).await;
            assert_eq!(verified.code, Some(1), "{verified:?}");
            for part in ["another version of Hooklog", &format!("folds {other},"), "`hooklog store rebuild`"]
            {
                assert!(verified.err.contains(part), "{part} in {verified:?}");
            }
            assert!(!(verified.err + &verified.out).contains("damage"));
        }
        let rebuilt = host.on_store(&["store", "rebuild"]).await;
        assert_eq!(rebuilt.code, Some(0), "{rebuilt:?}");
        host.verify().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_checker_says_what_is_wrong_with_a_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, content: &str| written(folder.path(), name, content);
    let (headers, body) = (file("headers", HEADERS), file("body", BODY));
    let (key, account) = (file("key", KEY), file("account", &format!("{ACCOUNT_SECRET}\n")));
    let other = file("other", "whsec_ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoM=");
    let then = ["--at", "2026-01-15T10:00:00Z"];
    let verify = async |headers: &str, body: &str, secrets: &[&str], then: &[&str]| {
        let args = [&["signature", "verify", "--json", "--headers", headers, "--body", body], secrets, then];
        let ended = run(&args.concat()).await;
        let verdict: Value = serde_json::from_str(&ended.out).unwrap_or_else(|_| panic!("{ended:?}"));
        let checks = verdict["checks"].as_array().expect("a list").clone();
        assert_eq!(verdict["valid"], json!(ended.code == Some(0)), "{ended:?}");
        assert!(!ended.out.contains("whsec_") && !ended.out.contains(ACCOUNT_SECRET));
        checks.iter().map(|check| text(&check["result"])).collect::<Vec<_>>()
    };
    let both = ["--secret-file", &key, "--account-secret-file", &account];
    assert_eq!(verify(&headers, &body, &both, &then).await, ["valid", "valid"]);
    assert_eq!(verify(&headers, &body, &both, &[]).await, ["too-old", "valid"]);
    let wrong_key = ["--secret-file", &other, "--account-secret-file", &account];
    assert_eq!(verify(&headers, &body, &wrong_key, &then).await, ["other-secret", "valid"]);
    let ended = file("ended", &format!("{BODY}\n"));
    assert_eq!(verify(&headers, &ended, &both, &then).await, ["body-changed", "body-changed"]);
    let as_json = json!({ "webhook-id": "evt_01J9X4K2P7", "webhook-timestamp": "1768471200" }).to_string();
    assert_eq!(verify(&file("json", &as_json), &body, &both, &then).await, ["missing-header"]);

    let people =
        run(&["signature", "verify", "--headers", &headers, "--body", &ended, "--secret-file", &key]).await;
    assert_eq!(people.code, Some(8));
    assert!(people.out.starts_with("standard  too-old\n  webhook-timestamp is "), "{}", people.out);
    let unreadable = file("unreadable", "a line that is no header\n");
    for args in [
        &["signature", "verify", "--headers", &headers, "--body", &body][..],
        &["signature", "verify", "--headers", &unreadable, "--body", &body, "--secret-file", &key],
        &["signature", "verify", "--headers", &headers, "--body", "/nonexistent", "--secret-file", &key],
        &["signature", "verify", "--headers", &headers, "--body", &body, "--secret-file", &account],
        &["signature", "sign", "--id", "a.b", "--body", &body, "--secret-file", &key],
    ] {
        let refused = run(args).await;
        assert_eq!(refused.code, Some(2), "{args:?}: {refused:?}");
    }

    // Made as the published vectors are.
    let sign = ["signature", "sign", "--id", "evt_01J9X4K2P7", "--timestamp", "1768471200", "--body", &body];
    let signed = run(&[&sign[..], &both].concat()).await;
    assert_eq!(
        signed.out.lines().collect::<Vec<_>>(),
        [
            "webhook-id: evt_01J9X4K2P7",
            "webhook-timestamp: 1768471200",
            "webhook-signature: v1,Qw1Xd+GJIutDUjet8ClnFhlBApBQ5q2ls7kR1HV/8M0=",
            "x-ledger-signature: sha256=e85b342a1afe0a994c2b0db38e689d1c764a6a1aaa166200c7017fd8ee009996",
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_receiver_checks_answers_and_hands_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Host::new(folder.path()).with("--wait-divisor", "100000000").start().await;
    let (account, account_secret) = server.api.account().await;
    // Its keys are only known once it is made, and it is made with a URL: the program behind comes first.
    let mut program = Listening::start(&["--script", "500,200", "--count", "2"]).await;
    let settings = json!({ "signing_secret": KEY });
    let key = written(folder.path(), "key", KEY);
    let secret = written(folder.path(), "secret", &account_secret);
    let target = format!("{}/hooks?x=1", program.url);
    let mut front = Listening::start(&[
        "--secret-file",
        &key,
        "--account-secret-file",
        &secret,
        "--forward-to",
        &target,
        "--count",
        "2",
    ])
    .await;
    server.api.endpoint(&account, &format!("{}/in", front.url), settings).await;
    server.api.event(&account, "one", r#"{"n":1.00}"#).await.expect("an answer").good();
    for status in [500, 200] {
        let seen = front.next().await;
        let results: Vec<_> =
            seen["checks"].as_array().expect("a list").iter().map(|check| text(&check["result"])).collect();
        assert_eq!(results, ["valid", "valid"], "{seen}");
        assert_eq!(
            (&seen["answered"], &seen["path"], &seen["method"]),
            (&json!(status), &json!("/in"), &json!("POST"))
        );
        let body = r#"{"id":"one","type":"payment.settled","data":{"n":1.00}}"#;
        assert_eq!(seen["body"], body);
        let behind = program.next().await;
        assert_eq!((&behind["body"], &behind["path"]), (&json!(body), &json!("/hooks?x=1")));
        let header = |seen: &Value, name: &str| {
            let all = seen["headers"].as_array().expect("a list").clone();
            all.into_iter().find(|pair| pair[0] == name).map(|pair| text(&pair[1]))
        };
        for name in ["webhook-id", "webhook-timestamp", "webhook-signature", "content-type"] {
            assert_eq!(header(&seen, name), header(&behind, name), "{name}");
        }
    }
    let figures = server.api.settled(START_MAX).await;
    assert_eq!(figures["delivered"], 1);
    assert_eq!(front.child.wait().await.expect("it ends").code(), Some(0));
    assert_eq!(program.child.wait().await.expect("it ends").code(), Some(0));

    // With another key it says so, by its exit code too.
    let other = written(folder.path(), "other", "whsec_ZGVmZ2hpamtsbW5vcHFyc3R1dnd4eXp7fH1+f4CBgoM=");
    let mut wrong = Listening::start(&["--secret-file", &other, "--count", "1"]).await;
    server.api.endpoint(&account, &format!("{}/", wrong.url), json!({ "event_types": ["a.b"] })).await;
    server.api.post("/v1/events", json!({ "account_id": account, "type": "a.b", "data": {} })).await;
    assert_eq!(wrong.next().await["checks"][0]["result"], "mismatch");
    assert_eq!(wrong.child.wait().await.expect("it ends").code(), Some(8));
    for args in [
        &["listen", "--script", "200,ok"][..],
        &["listen", "--script", "700"],
        &["listen", "--forward-to", "http://example.com"],
        &["listen", "--hang", "--script", "200"],
    ] {
        assert_eq!(run(args).await.code, Some(2), "{args:?}");
    }
    server.stop().await;
}
