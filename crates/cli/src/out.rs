//! What is printed, for readers that may have gone.
//!
//! `println!` and `eprintln!` panic when nobody reads any more, as in
//! `sherwood check-config sherwood.toml | head -1`; a node would even end in the middle of its work
//! because whoever watched its first lines left.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

use crate::exit::Failure;

/// Prints a result on standard output. A reader that has enough and closes the pipe is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    write(&mut io::stdout().lock(), text)
}

fn write(to: &mut impl Write, text: &str) -> Result<(), Failure> {
    match to.write_all(text.as_bytes()).and_then(|()| to.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::failed(format!(
            "writing to standard output: {error}; the result is incomplete there"
        ))),
        _ => Ok(()),
    }
}

/// Says something on standard error, in a line. If nobody listens, there is nobody to tell that
/// either.
pub(crate) fn say(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails each write as told.
    struct Refuses(ErrorKind);

    impl Write for Refuses {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_left_is_no_failure_and_a_full_disk_is() {
        assert!(write(&mut Refuses(ErrorKind::BrokenPipe), "a\n").is_ok());
        let Err(Failure::Failed(message)) = write(&mut Refuses(ErrorKind::StorageFull), "a\n") else {
            panic!("a result that was not written is no success");
        };
        assert!(message.starts_with("writing to standard output: "), "{message}");
    }
}
