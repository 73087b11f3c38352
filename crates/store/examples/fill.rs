//! Fills the directory of a key-value store with numbered records.
//!
//!     fill DIRECTORY RECORDS VALUE_BYTES
//!
//! The keys are `k000000000000`, `k000000000001` and so on, of 13 bytes. The directory must not
//! exist; nothing in it is of use if the program does not end with status 0.

#![allow(clippy::disallowed_methods, reason = "a driver: it reads its arguments and looks for files")]

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use sherwood_store::{KvOptions, Loader, StoreOptions};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, records, value_bytes] = arguments.as_slice() else {
        eprintln!("fill: give DIRECTORY, RECORDS and VALUE_BYTES");
        return ExitCode::from(2);
    };
    match fill(directory.into(), records, value_bytes) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fill: {error}");
            ExitCode::from(1)
        }
    }
}

fn fill(path: PathBuf, records: &str, value_bytes: &str) -> Result<(), Box<dyn Error>> {
    let (records, value_bytes): (u64, usize) = (records.parse()?, value_bytes.parse()?);
    if path.exists() {
        return Err(format!("{} exists: remove it first", path.display()).into());
    }
    let mut loader = Loader::open("fill", &StoreOptions::Kv(KvOptions::new(path)))?;
    // Differs from record to record, and hardly compresses.
    let mut value = vec![0; value_bytes];
    let mut state = 1_u64;
    for record in 0..records {
        for byte in &mut value {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *byte = state as u8;
        }
        loader.put(format!("k{record:012}").as_bytes(), &value)?;
    }
    loader.finish()?;
    Ok(())
}
