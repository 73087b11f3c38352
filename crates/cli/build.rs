//! A hash of the sources that determine simulation results, so that results kept by one build are
//! not reused by another.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "a build script reads files")]

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::{fs, io};

/// Inputs of a simulation: code, built-in data, and the versions of libraries.
const SOURCES: [&str; 10] = [
    "../model/src",
    "../cache/src",
    "../dispatch/src",
    "../policy/src",
    "../path/src",
    "../workload/src",
    "../workload/data",
    "../sim/src",
    "src",
    "../../Cargo.lock",
];

fn main() -> io::Result<()> {
    let mut hasher = DefaultHasher::new();
    for source in SOURCES {
        println!("cargo:rerun-if-changed={source}");
        let mut files = Vec::new();
        list(Path::new(source), &mut files)?;
        files.sort();
        for file in files {
            file.hash(&mut hasher);
            fs::read(&file)?.hash(&mut hasher);
        }
    }
    println!("cargo:rustc-env=SHERWOOD_SOURCES={:016x}", hasher.finish());
    Ok(())
}

fn list(path: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if !path.is_dir() {
        files.push(path.to_path_buf());
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        list(&entry?.path(), files)?;
    }
    Ok(())
}
