//! Stores that a server must not run on: in use, newer, shorter than acknowledged, without a mark, damaged,
//! under another key, without room. Each start is refused with its own exit code and a word on what to do; and
//! what that word says helps. `hooklog store` on stopped and running stores is here too.

mod support;

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::path::Path;

use hooklog::log::{self, Change, Disk, FjallDisk, Order, Read, Space};
use serde_json::{Value, json};
use support::judge::Judge;
use support::server::{Ended, Host, Server, copy, text, written};
use support::tmpfs::Tmpfs;

/// Files of each kind that a byte is flipped in.
const FILES_OF_A_KIND: usize = 3;

/// A stopped store with an account, an endpoint and delivered events.
async fn furnished(folder: &Path) -> (Host, Judge, String) {
    let host = Host::new(folder);
    let judge = Judge::start().await;
    let server = host.start().await;
    let (account, secret) = server.api.account().await;
    let (_, signing) = server.api.endpoint(&account, &judge.url("/"), json!({})).await;
    judge.expect("/", &signing, &secret);
    more(&server, &account, "one").await;
    server.stop().await;
    (host, judge, account)
}

async fn more(server: &Server, account: &str, prefix: &str) {
    for n in 0..10 {
        let reply = server.api.event(account, &format!("{prefix}-{n}"), "{}").await.expect("an answer");
        assert_eq!(reply.status, 202, "{reply:?}");
    }
    server.api.settled(support::server::START_MAX).await;
}

/// A start that must fail: with this code, and these words.
async fn refused(host: &Host, code: i32, words: &[&str]) -> Ended {
    let ended = host.try_start().await.map(|_| ()).expect_err("it must not start");
    assert_eq!(ended.code, Some(code), "{ended:?}");
    for word in words {
        assert!(ended.err.contains(word), "`{word}` is missing: {ended:?}");
    }
    assert_eq!(ended.out, "", "nothing is announced");
    ended
}

/// The database of a stopped store, as only a fault would touch it.
fn database(host: &Host) -> FjallDisk {
    FjallDisk::open(&host.store.join(log::DATABASE_FOLDER), Default::default()).expect("a database")
}

/// The rows of a space, in order.
fn rows(disk: &FjallDisk, space: Space) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    let visit = &mut |key: &[u8], value: &[u8]| {
        rows.push((key.to_vec(), value.to_vec()));
        ControlFlow::Continue(())
    };
    disk.range(space, Bound::Unbounded, Bound::Unbounded, Order::Ascending, visit).expect("rows");
    rows
}

/// The log is taken on as it is, and then it is clean and a server runs on it.
async fn accept_head_helps(host: &Host) {
    let accepted = host.on_store(&["store", "accept-head", "--json"]).await;
    assert_eq!(accepted.code, Some(0), "{accepted:?}");
    host.verify().await;
    let server = host.start().await;
    host.verify().await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_in_use_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (host, _judge, account) = furnished(folder.path()).await;
    let server = host.start().await;
    refused(&host, 9, &["in use", "does a server run on it already?"]).await;
    let head = host.on_store(&["store", "accept-head"]).await;
    assert_eq!(head.code, Some(9), "{head:?}");
    assert!(head.err.contains("stop the server"), "{head:?}");
    // Its socket is lost: commands cannot reach it, and do not open its store either.
    std::fs::remove_file(host.store.join("hooklog.sock")).unwrap();
    for args in [&["store", "verify"][..], &["store", "rebuild"], &["store", "accept-head"], &["list"]] {
        let ended = host.on_store(args).await;
        assert_eq!(ended.code, Some(9), "{args:?}: {ended:?}");
        assert!(ended.err.contains("--url"), "{args:?}: {ended:?}");
    }
    more(&server, &account, "two").await;
    server.stop().await;
    host.verify().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_store_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let (host, _judge, _) = furnished(folder.path()).await;
    let format = |version: u32| {
        database(&host).write(&[Change::put(Space::Meta, &b"format"[..], version.to_be_bytes().to_vec())])
    };
    format(log::FORMAT + 1).unwrap();
    refused(&host, 10, &["written by a newer Hooklog", "use that one"]).await;
    for args in [&["store", "verify"][..], &["store", "rebuild"], &["store", "accept-head"]] {
        assert_eq!(host.on_store(args).await.code, Some(10), "{args:?}");
    }
    format(log::FORMAT).unwrap();
    host.verify().await;
    host.start().await.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_is_not_the_acknowledged_one_is_refused_until_a_person_takes_it_on() {
    let folder = tempfile::tempdir().unwrap();
    let (host, _judge, account) = furnished(folder.path()).await;
    let at = |name: &str| {
        let other = host.on(&folder.path().join(name));
        copy(&host.store, &other.store);
        other
    };
    let old = at("shorter");
    let server = host.start().await;
    more(&server, &account, "two").await;
    server.stop().await;

    // The database of yesterday with the mark of today.
    std::fs::copy(host.store.join("mark"), old.store.join("mark")).unwrap();
    refused(&old, 11, &["was acknowledged: entries were lost", "restore from a backup", "accept-head"]).await;
    accept_head_helps(&old).await;

    let unmarked = at("unmarked");
    std::fs::remove_file(unmarked.store.join("mark")).unwrap();
    refused(&unmarked, 11, &["its mark is missing or unreadable", "accept-head"]).await;
    accept_head_helps(&unmarked).await;

    // One flipped bit in each of the mark's slots.
    let torn = at("torn");
    let mut mark = std::fs::read(torn.store.join("mark")).unwrap();
    mark[40] ^= 1;
    mark[4096 + 40] ^= 1;
    std::fs::write(torn.store.join("mark"), mark).unwrap();
    refused(&torn, 11, &["its mark is missing or unreadable"]).await;

    // The mark of another store.
    let foreign = at("foreign");
    let stranger = Host::new(&folder.path().join("foreign"));
    let elsewhere = stranger.on(&folder.path().join("elsewhere"));
    std::fs::create_dir_all(folder.path().join("elsewhere")).unwrap();
    elsewhere.start().await.stop().await;
    std::fs::copy(elsewhere.store.join("mark"), foreign.store.join("mark")).unwrap();
    refused(&foreign, 11, &["of another store", "accept-head"]).await;
    accept_head_helps(&foreign).await;

    let other = at("longer");
    let before = std::fs::read(other.store.join("mark")).unwrap();
    let server = other.start().await;
    more(&server, &account, "three").await;
    server.stop().await;
    std::fs::write(other.store.join("mark"), before).unwrap();
    // Longer than its mark is no fault: a kill between the write and its mark leaves that.
    other.start().await.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flipped_bytes_are_found_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let (host, _judge, _) = furnished(folder.path()).await;
    let flip = |name: &str, newest: bool| {
        let other = host.on(&folder.path().join(name));
        copy(&host.store, &other.store);
        let disk = database(&other);
        let batches = rows(&disk, Space::Log(1));
        let (key, mut value) = batches[if newest { batches.len() - 1 } else { batches.len() / 2 }].clone();
        let last = value.len() - 1;
        value[last] ^= 1;
        disk.write(&[Change::put(Space::Log(1), key, value)]).unwrap();
        disk.settle().unwrap();
        other
    };
    // In the newest batch: the start itself looks at it.
    refused(&flip("newest", true), 11, &["not what was written", "restore it from a backup"]).await;
    // Further back: the check reads the whole chain.
    let older = flip("older", false);
    let verified = older.on_store(&["store", "verify"]).await;
    assert_eq!(verified.code, Some(8), "{verified:?}");
    assert!(verified.out.contains("damaged"), "{verified:?}");
    assert!(verified.err.contains("restore from a backup"), "{verified:?}");

    // In the files themselves, a few of each kind: never taken for whole, never a panic.
    let mut found = 0;
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for (n, file) in files(&host.store.join("db")).into_iter().enumerate() {
        let kind = file.trim_end_matches(|c: char| c.is_ascii_digit());
        let kind = if kind.contains("tables") { "table" } else { kind.rsplit('/').next().unwrap_or(kind) };
        let seen = kinds.entry(kind.to_owned()).or_default();
        *seen += 1;
        if *seen > FILES_OF_A_KIND {
            continue;
        }
        let other = host.on(&folder.path().join(format!("file-{n}")));
        copy(&host.store, &other.store);
        let path = other.store.join("db").join(&file);
        let middle = written(&path).len() / 2;
        let mut bytes = std::fs::read(&path).unwrap();
        let Some(byte) = bytes.get_mut(middle) else { continue };
        *byte ^= 0x10;
        std::fs::write(&path, bytes).unwrap();
        let verified = other.on_store(&["store", "verify", "--json"]).await;
        assert!(!verified.err.contains("RUST_BACKTRACE"), "{file}: {verified:?}");
        match verified.code {
            // A byte that says nothing: of a file that is of no use any more, or of a journal that was flushed.
            Some(0) => {}
            Some(8 | 11) => found += 1,
            _ => panic!("{file}: {verified:?}"),
        }
        std::fs::remove_dir_all(&other.store).unwrap();
    }
    println!("flipped bytes: {found} files in which one was found, of {kinds:?}");
    assert!(found > 0);
}

/// All files below a folder, by their path within it.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()).into_iter().map(|below| format!("{name}/{below}")));
        } else {
            found.push(name);
        }
    }
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn without_its_master_key_a_store_stays_shut() {
    let folder = tempfile::tempdir().unwrap();
    let (host, _judge, _) = furnished(folder.path()).await;
    let key = host.store.join("master.key");
    let right = std::fs::read(&key).unwrap();
    let stranger = Host::new(&folder.path().join("x"));
    std::fs::create_dir_all(folder.path().join("x")).unwrap();
    stranger.start().await.stop().await;
    std::fs::copy(stranger.store.join("master.key"), &key).unwrap();
    refused(&host, 12, &["master key"]).await;
    std::fs::write(&key, "no key at all").unwrap();
    refused(&host, 12, &["master"]).await;
    std::fs::remove_file(&key).unwrap();
    refused(&host, 12, &["master"]).await;
    assert!(!key.exists(), "a new key would open nothing");
    // Proving a store reads no secret.
    host.verify().await;
    std::fs::write(&key, right).unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    host.start().await.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_room_nothing_starts() {
    let folder = tempfile::tempdir().unwrap();
    let Some(disk) = Tmpfs::mount(folder.path(), 64, "without_room_nothing_starts") else { return };
    let host = Host::new(&disk.folder);
    refused(&host, 13, &["bytes are free", "free some space first"]).await;
    disk.fill(0);
    refused(&host.on(&disk.folder), 13, &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_view_is_found_and_rebuilt_on_a_stopped_and_a_running_store() {
    let folder = tempfile::tempdir().unwrap();
    let (host, _judge, account) = furnished(folder.path()).await;
    let lose_a_row = || {
        let disk = database(&host);
        let names = disk.spaces();
        let version = names.iter().find_map(|name| name.strip_prefix("view-events.v"));
        let version = version.expect("the view of events").parse().expect("a number");
        let space = Space::View { name: "events", version };
        let (key, _) = rows(&disk, space).swap_remove(3);
        disk.write(&[Change::remove(space, key)]).unwrap();
    };
    for running in [false, true] {
        lose_a_row();
        let server = if running { Some(host.start().await) } else { None };
        let verified = host.on_store(&["store", "verify", "--json"]).await;
        assert_eq!(verified.code, Some(8), "running {running}: {verified:?}");
        let result: Value = serde_json::from_str(&verified.out).expect("JSON");
        assert_eq!(result["result"], "damaged", "{result}");
        assert!(text(&result["findings"][0]).contains("events"), "{result}");
        let told = host.on_store(&["store", "verify"]).await;
        assert!(told.err.contains("hooklog store rebuild"), "{told:?}");
        let rebuilt = host.on_store(&["store", "rebuild"]).await;
        assert_eq!(rebuilt.code, Some(0), "running {running}: {rebuilt:?}");
        host.verify().await;
        if let Some(server) = server {
            // All ten are there again, and it goes on.
            for n in 0..10 {
                server.api.get(&format!("/v1/events/one-{n}?account_id={account}")).await;
            }
            more(&server, &account, "after").await;
            host.verify().await;
            server.stop().await;
        }
        host.verify().await;
    }
}
