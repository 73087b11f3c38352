//! Checks answers and prints the outcome of each: a line `ok - what` or `not ok - what: why`.

use std::fmt::Debug;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static FAILED: AtomicBool = AtomicBool::new(false);

/// Checks that an answer equals the expected one.
pub fn check<T: PartialEq<U> + Debug, U: Debug>(what: &str, got: T, expected: U) {
    if got == expected {
        println!("ok - {what}");
        return;
    }
    FAILED.store(true, Relaxed);
    println!("not ok - {what}: expected {:.200}, got {:.200}", format!("{expected:?}"), format!("{got:?}"));
}

/// Checks that a call fails with this text.
pub fn refused<T: Debug, E: ToString>(what: &str, result: Result<T, E>, text: &str) {
    let error = result.map_or_else(|error| error.to_string(), |got| format!("{got:?}"));
    check(what, error.contains(text).then_some(text).ok_or(error), Ok::<_, String>(text));
}

/// Returns the exit status: 1 when a check failed.
pub fn end() -> ExitCode {
    ExitCode::from(u8::from(FAILED.load(Relaxed)))
}
