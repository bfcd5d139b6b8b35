//! What the system says of this process: memory and open files. Zero where it says nothing.

/// The process as the system sees it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Process {
    /// When it began, in seconds since 1970.
    pub started_at: f64,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Files and connections that are open.
    pub files: u64,
    /// The most that may be; 0 if there is no limit.
    pub files_max: u64,
}

impl Process {
    /// As it is now; it began at `started_at`.
    pub fn now(started_at: f64) -> Process {
        let pages = std::fs::read_to_string("/proc/self/statm").ok();
        let pages = pages.and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok()).unwrap_or(0);
        let files = std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        Process {
            started_at,
            memory_bytes: pages.saturating_mul(rustix::param::page_size() as u64),
            files,
            files_max: limit.unwrap_or(0),
        }
    }
}
