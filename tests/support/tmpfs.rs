//! A small file system in memory, so that a disk can be full. Stands in for: a full disk.
//!
//! Mounting needs root; without it a test says that it was skipped, and which right it lacked.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted file system; goes when this is dropped.
pub struct Tmpfs {
    /// Where it is mounted.
    pub folder: PathBuf,
}

impl Tmpfs {
    /// Mounts one of so many MiB on a new folder within `folder`. `None`, and a word about it, without the right.
    pub fn mount(folder: &Path, mib: u64, case: &str) -> Option<Tmpfs> {
        let folder = folder.join("disk");
        std::fs::create_dir(&folder).expect("a folder");
        let size = format!("size={mib}m");
        let mut mount = Command::new("mount");
        let mounted = mount.args(["-t", "tmpfs", "-o", &size, "hooklog-test"]).arg(&folder).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Tmpfs { folder }),
            other => {
                let why = other.map_or_else(
                    |error| error.to_string(),
                    |output| String::from_utf8_lossy(&output.stderr).trim().to_owned(),
                );
                println!("SKIPPED {case}: needs root to mount a tmpfs ({why})");
                None
            }
        }
    }

    /// Bytes that are free.
    pub fn free(&self) -> u64 {
        let stat = rustix::fs::statvfs(&self.folder).expect("it is mounted");
        stat.f_bavail * stat.f_frsize
    }

    /// Takes all but so many bytes.
    pub fn fill(&self, leave: u64) {
        let bytes = self.free().saturating_sub(leave);
        let file = std::fs::File::create(self.folder.join("filler")).expect("a file");
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes).expect("room");
    }

    /// Gives them back.
    pub fn empty(&self) {
        std::fs::remove_file(self.folder.join("filler")).expect("it was filled");
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Lazily: a process that a failed test leaves behind may still be there.
        let _ = Command::new("umount").arg("-l").arg(&self.folder).status();
    }
}
