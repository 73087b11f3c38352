//! Says of every answer whether it is the expected one: a line `ok - what` or `not ok - what: why`.

use std::fmt::Debug;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static FAILED: AtomicBool = AtomicBool::new(false);

/// One answer that has to be as expected.
pub fn check<T: PartialEq<U> + Debug, U: Debug>(what: &str, got: T, expected: U) {
    if got == expected {
        println!("ok - {what}");
        return;
    }
    FAILED.store(true, Relaxed);
    println!("not ok - {what}: expected {:.200}, got {:.200}", format!("{expected:?}"), format!("{got:?}"));
}

/// One call that has to fail with this text.
pub fn refused<T: Debug, E: ToString>(what: &str, result: Result<T, E>, text: &str) {
    let error = result.map_or_else(|error| error.to_string(), |got| format!("{got:?}"));
    check(what, error.contains(text).then_some(text).ok_or(error), Ok::<_, String>(text));
}

/// The status to leave with: 1 when an answer was wrong.
pub fn end() -> ExitCode {
    ExitCode::from(u8::from(FAILED.load(Relaxed)))
}
