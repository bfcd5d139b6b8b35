//! Profiles: which server a command asks, by name, from a file in the user's configuration folder.
//!
//! Holds no secret itself: a profile names the file that does.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::exit::{Exit, Failure};
use super::render::escape;

/// A server and the key for it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Where it is.
    pub url: Option<String>,
    /// A file with the token or key; relative to the file of profiles.
    pub key_file: Option<PathBuf>,
}

/// `$XDG_CONFIG_HOME/hooklog/profiles.toml`, or the same under `~/.config`.
fn file() -> Option<PathBuf> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = folder("XDG_CONFIG_HOME").or_else(|| folder("HOME").map(|home| home.join(".config")));
    config.map(|config| config.join("hooklog").join("profiles.toml"))
}

/// The profile of a name.
///
/// # Errors
/// 3 if there is none of it; 2 if the file cannot be read.
pub fn named(name: &str) -> Result<Profile, Failure> {
    let path = file().ok_or_else(|| Failure::usage("there is no folder for profiles: set HOME"))?;
    let text = std::fs::read_to_string(&path).map_err(|error| {
        Failure::new(Exit::NotFound, format!("cannot read the profiles in {}: {error}", path.display()))
            .next("write it: [NAME], url = \"http://HOST:PORT\", key_file = \"FILE\"")
    })?;
    read(&text, name, &path)
}

fn read(text: &str, name: &str, path: &Path) -> Result<Profile, Failure> {
    let profiles: BTreeMap<String, Profile> = toml::from_str(text)
        .map_err(|error| Failure::usage(format!("{}: {}", path.display(), error.message())))?;
    let Some(found) = profiles.get(name) else {
        let names: Vec<_> = profiles.keys().map(|name| escape(name).into_owned()).collect();
        let text = format!("there is no profile `{}` in {}", escape(name), path.display());
        return Err(Failure::new(Exit::NotFound, text).next(format!("there are: {}", names.join(", "))));
    };
    let beside = path.parent().unwrap_or(Path::new("."));
    let key_file = found.key_file.as_ref().map(|file| beside.join(file));
    Ok(Profile { key_file, ..found.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_found_by_name_and_its_key_beside_the_file() {
        let text =
            "[live]\nurl = \"http://a:1\"\nkey_file = \"live.key\"\n[test]\nkey_file = \"/run/test.key\"\n";
        let path = Path::new("/home/x/.config/hooklog/profiles.toml");
        let live = read(text, "live", path).expect("a profile");
        assert_eq!(live.url.as_deref(), Some("http://a:1"));
        assert_eq!(live.key_file.as_deref(), Some(Path::new("/home/x/.config/hooklog/live.key")));
        let test = read(text, "test", path).expect("a profile");
        assert_eq!((test.url, test.key_file.as_deref()), (None, Some(Path::new("/run/test.key"))));
        let none = read(text, "other", path).map(drop).expect_err("there is none");
        assert_eq!((none.exit, none.next.as_deref()), (Exit::NotFound, Some("there are: live, test")));
        let secret =
            read("[a]\ntoken = \"x\"\n", "a", path).map(drop).expect_err("a secret stands in its own file");
        assert_eq!(secret.exit, Exit::Usage);
    }
}
