//! Golden files: bytes as they were written once, which every later Hooklog must write and read.
//!
//! A file is made by running the tests with `HOOKLOG_GOLDEN=write`, and never changed after a release.

use std::fmt::Write as _;
use std::path::Path;

/// The bytes of `fixtures/logs/v1/<name>.hex`, after a comparison with those written now.
pub(super) fn check(name: &Path, written: &[u8]) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/logs/v1");
    let path = folder.join(name).with_extension("hex");
    if std::env::var_os("HOOKLOG_GOLDEN").is_some_and(|mode| mode == "write") && !path.exists() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, to_hex(written)).unwrap();
    }
    let bytes = read(name);
    assert_eq!(to_hex(written), to_hex(&bytes), "{} is written differently now", path.display());
    bytes
}

/// The bytes of `fixtures/logs/v1/<name>.hex`, as an older Hooklog wrote them.
pub(super) fn read(name: &Path) -> Vec<u8> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/logs/v1").join(name).with_extension("hex");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    from_hex(&text)
}

fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for line in bytes.chunks(40) {
        for byte in line {
            write!(text, "{byte:02x}").unwrap();
        }
        text.push('\n');
    }
    text
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let value = |digit: u8| (digit as char).to_digit(16).unwrap() as u8;
    digits.chunks(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect()
}
