//! Debian's own TLS server in a process of its own, made to speak what nobody should speak any more. Stands in for:
//! a receiver that was set up long ago.
#![allow(dead_code)]

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

/// It listens for as long as it is held.
pub struct OldServer {
    /// Where.
    pub address: SocketAddr,
    said: Arc<Mutex<Vec<u8>>>,
    _child: Child,
}

/// What it shows: a folder with `key.pem` and `cert.pem`.
pub struct Shown(pub tempfile::TempDir);

impl OldServer {
    /// One that shows this, with more flags, such as `-tls1`.
    pub async fn start(shown: &Shown, flags: &[&str]) -> OldServer {
        let mut command = Command::new("openssl");
        // Security level 0: else no key, cipher or version of old times is taken by the server itself.
        command.args(["s_server", "-accept", "127.0.0.1:0", "-cipher", "ALL:@SECLEVEL=0", "-key", "key.pem"]);
        command.args(["-cert", "cert.pem"]).args(flags).current_dir(shown.0.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
        let mut child = command.spawn().expect("openssl is installed (tests/run does it)");
        let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
        let address = async {
            loop {
                let mut line = String::new();
                assert!(out.read_line(&mut line).await.expect("text") > 0, "openssl ended");
                if let Some(address) = line.trim().strip_prefix("ACCEPT ") {
                    return address.parse().expect("an address");
                }
            }
        };
        let address = tokio::time::timeout(Duration::from_secs(60), address).await.expect("it starts");
        let said = Arc::<Mutex<Vec<u8>>>::default();
        let kept = said.clone();
        tokio::spawn(async move {
            let mut buffer = [0; 4096];
            while let Ok(len @ 1..) = out.read(&mut buffer).await {
                kept.lock().expect("no panic").extend(&buffer[..len]);
            }
        });
        OldServer { address, said, _child: child }
    }

    /// Whether a text is among what it was sent, decrypted; it prints all of that.
    pub fn heard(&self, text: &str) -> bool {
        String::from_utf8_lossy(&self.said.lock().expect("no panic")).contains(text)
    }
}

/// A key of 1,024 bits for an IP address, in a certificate of an authority whose own is in a file, and its key in
/// `ca.key` beside that.
pub fn weak(authority: &Path, address: &str) -> Shown {
    let folder = tempfile::tempdir().expect("a folder");
    let key = authority.with_file_name("ca.key");
    let [authority, key] = [authority, &key].map(|path| path.to_str().expect("a path of ours"));
    std::fs::write(folder.path().join("names"), format!("subjectAltName=IP:{address}\n")).expect("a file");
    let wanted = ["req", "-new", "-newkey", "rsa:1024", "-nodes", "-subj", "/CN=old", "-keyout", "key.pem"];
    run(folder.path(), &[&wanted[..], &["-out", "wanted.pem"]].concat());
    let signed = ["x509", "-req", "-in", "wanted.pem", "-CA", authority, "-CAkey", key, "-set_serial", "7"];
    run(folder.path(), &[&signed[..], &["-days", "3650", "-extfile", "names", "-out", "cert.pem"]].concat());
    Shown(folder)
}

/// Runs it to its end in a folder.
fn run(folder: &Path, args: &[&str]) {
    let ended = std::process::Command::new("openssl").args(args).current_dir(folder).output();
    let ended = ended.expect("openssl is installed (tests/run does it)");
    assert!(ended.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ended.stderr));
}
