//! How a command ends: one code for each kind of end, and the three parts of an error (what failed, why, what
//! to do next). Never knows which command runs.

use std::io;
use std::process::ExitCode;

use hooklog::engine::{Fatal, StartError};
use hooklog::{log, store};

/// The codes, as `--help` lists them.
pub const TABLE: &str = "\
Exit codes:
   0  fine
   1  failed
   2  wrong usage or configuration
   3  not found
   4  not allowed
   5  conflict
   6  the server is unreachable or not ready
   7  the wait timed out
   8  it ran, but the answer is \"no\" (dead, damaged store, demo failed, unhealthy)
   9  the store is in use
  10  the store is from a newer version
  11  the store is damaged, or its log is not the one that was acknowledged
  12  wrong or missing master key
  13  the disk is full or has too little room
 130  interrupted";

/// How it went. The numbers are promised to scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// As wished.
    Fine = 0,
    /// None of the others.
    Failed = 1,
    /// The command line or the configuration is wrong. The command-line parser uses the same number.
    Usage = 2,
    /// No such thing.
    NotFound = 3,
    /// The token is missing or wrong.
    NotAllowed = 4,
    /// It contradicts what is there.
    Conflict = 5,
    /// Nobody answers, or the server is starting or stopping.
    Unreachable = 6,
    /// What was waited for did not happen in time.
    TimedOut = 7,
    /// The command ran, and its answer is no.
    No = 8,
    /// Another process has the store open.
    InUse = 9,
    /// A newer Hooklog wrote the store.
    NewerStore = 10,
    /// The store is not what was written or acknowledged.
    Damaged = 11,
    /// The master key does not open the store.
    MasterKey = 12,
    /// No space.
    NoRoom = 13,
    /// By a signal, before the end.
    Interrupted = 130,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why a command did not do what was wished.
#[derive(Debug)]
pub struct Failure {
    /// The code it ends with.
    pub exit: Exit,
    /// What failed and why, in one line; empty if all was said already.
    pub text: String,
    /// What to do next.
    pub next: Option<String>,
}

impl Failure {
    /// A failure of a kind.
    pub fn new(exit: Exit, text: impl Into<String>) -> Failure {
        Failure { exit, text: text.into(), next: None }
    }

    /// Wrong usage that the parser could not see.
    pub fn usage(text: impl Into<String>) -> Failure {
        Failure::new(Exit::Usage, text)
    }

    /// An end that was explained already.
    pub fn silent(exit: Exit) -> Failure {
        Failure::new(exit, "")
    }

    /// With what to do next.
    pub fn next(mut self, next: impl Into<String>) -> Failure {
        self.next = Some(next.into());
        self
    }

    /// With what was being done, in front.
    pub fn while_(mut self, doing: &str) -> Failure {
        self.text = format!("{doing}: {}", self.text);
        self
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        // A reader that has seen enough (`hooklog list | head`) is no failure.
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Failure::silent(Exit::Fine);
        }
        let exit = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Exit::NoRoom,
            _ => Exit::Failed,
        };
        Failure::new(exit, error.to_string())
    }
}

impl From<log::Error> for Failure {
    fn from(error: log::Error) -> Failure {
        Failure::new(of_log(&error), error.to_string())
    }
}

impl From<Fatal> for Failure {
    fn from(error: Fatal) -> Failure {
        Failure::new(of_fatal(&error), error.to_string())
    }
}

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Failure {
        let exit = match &error {
            store::Error::Start(StartError::Fatal(fatal)) => of_fatal(fatal),
            store::Error::Start(StartError::MasterKey(_) | StartError::HalfResealed)
            | store::Error::MasterKey(_) => Exit::MasterKey,
            store::Error::Start(StartError::Unfounded) => Exit::Damaged,
            store::Error::Start(StartError::OtherFolds { .. }) => Exit::Failed,
            store::Error::Client(_) => Exit::Failed,
            store::Error::Rebuild(hooklog_projections::FoldError::Rows(error)) => of_log(error),
            store::Error::Rebuild(_) => Exit::Damaged,
            store::Error::NoStore(_) => Exit::NotFound,
        };
        Failure::new(exit, error.to_string())
    }
}

fn of_fatal(error: &Fatal) -> Exit {
    match error {
        Fatal::Log(error) => of_log(error),
        Fatal::Illegal(_) => Exit::Damaged,
    }
}

fn of_log(error: &log::Error) -> Exit {
    match error {
        log::Error::InUse => Exit::InUse,
        log::Error::NewerFormat { .. } => Exit::NewerStore,
        log::Error::Damaged(_)
        | log::Error::NoMark { .. }
        | log::Error::BehindMark { .. }
        | log::Error::Cut { .. }
        | log::Error::ChainBroken { .. }
        | log::Error::ForeignMark { .. }
        | log::Error::BadValue(_) => Exit::Damaged,
        log::Error::Full | log::Error::NoRoom { .. } => Exit::NoRoom,
        log::Error::Poisoned | log::Error::Io(_) | log::Error::NoSpace(_) | log::Error::Misuse(_) => {
            Exit::Failed
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_says_by_its_code_what_is_wrong_with_it() {
        let of = |error: log::Error| Failure::from(store::Error::from(error)).exit;
        assert_eq!(of(log::Error::InUse), Exit::InUse);
        assert_eq!(of(log::Error::NewerFormat { what: "store", found: 2, known: 1 }), Exit::NewerStore);
        assert_eq!(of(log::Error::Damaged("a byte".into())), Exit::Damaged);
        assert_eq!(of(log::Error::Full), Exit::NoRoom);
        assert_eq!(of(log::Error::NoRoom { free: 1, floor: 2 }), Exit::NoRoom);
        assert_eq!(of(log::Error::from(io::Error::from(io::ErrorKind::StorageFull))), Exit::NoRoom);
        assert_eq!(of(log::Error::Poisoned), Exit::Failed);
    }

    #[test]
    fn every_code_is_in_the_table() {
        for exit in [
            Exit::Fine,
            Exit::Failed,
            Exit::Usage,
            Exit::NotFound,
            Exit::NotAllowed,
            Exit::Conflict,
            Exit::Unreachable,
            Exit::TimedOut,
            Exit::No,
            Exit::InUse,
            Exit::NewerStore,
            Exit::Damaged,
            Exit::MasterKey,
            Exit::NoRoom,
            Exit::Interrupted,
        ] {
            assert!(TABLE.contains(&format!("\n{:>4}  ", exit as u8)), "{exit:?}");
        }
    }
}
