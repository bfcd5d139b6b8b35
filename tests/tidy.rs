//! The house rules that a compiler does not know: who may import whom, one door each to time, chance, disk and
//! network, and a head on every file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What each room of `src` may import from `crate::`. A room that is missing here fails.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("clock", &[]),
    ("ids", &["clock"]),
    ("secrets", &[]),
    ("metrics", &[]),
    ("log", &[]),
    ("scheduler", &[]),
    ("delivery", &["secrets"]),
    ("views", &["log", "ids"]),
    ("engine", &["views", "log", "metrics", "scheduler", "delivery", "clock", "ids", "secrets"]),
    ("explain", &["scheduler"]),
    ("notify", &["engine", "views", "delivery", "clock", "log", "metrics", "explain"]),
    ("alert", &["engine", "notify", "delivery", "clock", "explain"]),
    ("outbox", &["clock"]),
    ("replays", &["engine", "views", "clock", "log"]),
    (
        "api",
        &["engine", "views", "delivery", "clock", "ids", "secrets", "metrics", "explain", "scheduler", "log"],
    ),
    ("pages", &["api", "engine", "explain", "clock"]),
    (
        "embed",
        &[
            "api",
            "pages",
            "notify",
            "engine",
            "views",
            "log",
            "delivery",
            "clock",
            "ids",
            "secrets",
            "scheduler",
            "store",
        ],
    ),
    ("store", &["engine", "views", "log", "delivery", "clock", "ids", "secrets", "scheduler", "replays"]),
];

/// Who may read the clock or draw: the one door, and measuring where the work itself is the measure.
const CLOCK_DOORS: &[(&str, &str)] = &[
    ("src/clock.rs", "the door"),
    ("src/delivery/client/", "measures a request and keeps its deadline"),
    ("src/cli/bench", "a bench measures"),
];

fn files(folder: &str) -> Vec<(String, String)> {
    let mut out = Vec::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder can be read") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ext| ext == "rs") {
                let text = std::fs::read_to_string(&path).expect("a source file can be read");
                out.push((path.to_string_lossy().into_owned(), text));
            }
        }
    }
    out.sort();
    assert!(out.len() > 5, "no files under {folder}");
    out
}

fn room(path: &str) -> &str {
    let rest = path.strip_prefix("src/").expect("a file of src");
    rest.split('/').next().expect("a room").trim_end_matches(".rs")
}

/// The code without its tests, comments and strings are left in: good enough for names with `::`.
fn code(text: &str) -> String {
    let end = text.find("#[cfg(test)]").unwrap_or(text.len());
    text[..end].lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

#[test]
fn rooms_import_downwards_only() {
    let allowed: BTreeMap<_, _> = MAY_IMPORT.iter().copied().collect();
    let mut wrong = Vec::new();
    for (path, text) in files("src") {
        let room = room(&path);
        if matches!(room, "lib" | "main" | "cli" | "config") {
            continue;
        }
        let Some(may) = allowed.get(room) else {
            wrong.push(format!("{path}: the room `{room}` has no line in MAY_IMPORT"));
            continue;
        };
        for (at, _) in text.match_indices("crate::") {
            if text[..at].ends_with('$') || text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
                continue;
            }
            let name: String =
                text[at + 7..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if name != room && !may.contains(&name.as_str()) && allowed.contains_key(name.as_str()) {
                wrong.push(format!("{path}: imports `{name}`"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_file_has_a_head() {
    let all = ["src", "projections/src", "tests", "benches"].into_iter().flat_map(|folder| {
        // `benches` is small.
        if folder == "benches" { small(folder) } else { files(folder) }
    });
    let bare: Vec<_> = all.filter(|(_, text)| !text.starts_with("//!")).map(|(path, _)| path).collect();
    assert!(bare.is_empty(), "without a //! head: {bare:?}");
}

fn small(folder: &str) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(folder).expect("a folder can be read");
    entries
        .map(|entry| entry.expect("an entry").path())
        .map(|path| (path.to_string_lossy().into_owned(), std::fs::read_to_string(&path).expect("a file")))
        .collect()
}

#[test]
fn time_and_chance_have_one_door() {
    let readers = [
        "SystemTime::now",
        "Instant::now",
        "Timestamp::now",
        "Zoned::now",
        "getrandom::",
        "rand::",
        "now_v7",
    ];
    let mut wrong = Vec::new();
    for (path, text) in files("src").into_iter().chain(files("projections/src")) {
        if CLOCK_DOORS.iter().any(|(door, _)| path.starts_with(door)) {
            continue;
        }
        for reader in readers {
            if code(&text).contains(reader) {
                wrong.push(format!("{path}: {reader}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn one_folder_makes_outbound_connections() {
    // The command line speaks to our own server only.
    let doors = ["src/delivery/client/", "src/cli/"];
    let makers =
        ["TcpStream::connect", "TcpSocket::", "UdpSocket::", "http1::Builder::new", "hickory_resolver"];
    for (path, text) in files("src") {
        let server = path == "src/api/serve.rs";
        if !server && !doors.iter().any(|door| path.starts_with(door)) {
            for maker in makers {
                assert!(!code(&text).contains(maker), "{path}: {maker}");
            }
        }
    }

    // But for an application's own database, which the operator names.
    for (path, text) in files("src") {
        assert!(room(&path) == "outbox" || !code(&text).contains("tokio_postgres"), "{path}: tokio_postgres");
    }

    let makers = ["reqwest::Client::", "reqwest::ClientBuilder", "reqwest::get", "reqwest::blocking"];
    for (path, text) in files("src") {
        if path != "src/delivery/client/operator.rs" {
            for maker in makers {
                assert!(!code(&text).contains(maker), "{path}: {maker}");
            }
        }
    }
}

#[test]
fn one_table_has_all_routes() {
    for (path, text) in files("src/api").into_iter().chain(files("src/pages")) {
        let routes = code(&text).matches(".route(").count();
        assert_eq!(
            routes,
            usize::from(path == "src/api/routes.rs"),
            "{path}: its routes are not in the table"
        );
    }
}

#[test]
fn one_room_knows_the_store() {
    for (path, text) in files("src") {
        if room(&path) != "log" {
            assert!(!code(&text).contains("fjall::"), "{path} knows fjall");
        }
    }
    for (path, text) in files("projections/src") {
        assert!(!code(&text).contains("std::"), "{path} knows std");
    }
}

#[test]
fn no_test_sleeps_or_is_skipped() {
    let words = [concat!("thread::", "sleep"), concat!("time::", "sleep"), concat!("#[", "ignore")];
    for (path, text) in files("tests").into_iter().chain(files("projections/src")) {
        for word in words {
            assert!(!text.contains(word), "{path}: {word}");
        }
    }
}

#[test]
fn documents_name_files_that_exist() {
    for document in
        ["docs/architecture.md", "docs/facts.md", "docs/decisions.md", "docs/rules.md", "README.md"]
    {
        let text = std::fs::read_to_string(document).expect("a document can be read");
        for word in text.split('`') {
            let looks_like_a_path = ["src/", "tests/", "projections/", "fixtures/", "docs/", "benches/"]
                .iter()
                .any(|folder| word.starts_with(folder))
                && !word.contains([' ', '*', '<', '…']);
            if looks_like_a_path {
                assert!(Path::new(word).exists(), "{document} names {word}, which is not there");
            }
        }
    }
}
