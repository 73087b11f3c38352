//! A number for the sources of what simulates, so that results kept by one build are not taken for those of another.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a build script reads files")]

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Crates that have a say in what comes out.
const CRATES: [&str; 8] = ["model", "cache", "dispatch", "policy", "path", "workload", "sim", "cli"];

fn main() -> io::Result<()> {
    let mut hasher = DefaultHasher::new();
    for name in CRATES {
        let directory = Path::new("..").join(name).join("src");
        println!("cargo:rerun-if-changed={}", directory.display());
        let mut files = Vec::new();
        list(&directory, &mut files)?;
        files.sort();
        for file in files {
            file.hash(&mut hasher);
            fs::read(&file)?.hash(&mut hasher);
        }
    }
    println!("cargo:rustc-env=SHERWOOD_SOURCES={:016x}", hasher.finish());
    Ok(())
}

fn list(directory: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
