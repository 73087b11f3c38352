//! The user's cache directory, for what a command makes again where it is missing.

use std::path::PathBuf;

use crate::exit::Failure;

/// Returns the directory `sherwood/NAME` in the user's cache directory; `flag` names another one.
///
/// # Errors
/// When the environment names no home directory.
pub(crate) fn default(name: &str, flag: &str) -> Result<PathBuf, Failure> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    cache.map(|cache| cache.join("sherwood").join(name)).ok_or_else(|| {
        let neither = "neither XDG_CACHE_HOME nor HOME is an absolute path";
        Failure::failed(format!(
            "could not choose a cache directory: {neither}; set one, or name a directory with {flag}"
        ))
    })
}
