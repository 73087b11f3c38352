//! Output to streams whose readers may have closed them.
//!
//! `println!` and `eprintln!` panic when the reader has closed the pipe, as in
//! `sherwood check-config sherwood.toml | head -1`. A running node would even stop because the
//! reader of its first log lines ended.

use std::io::{self, ErrorKind, Write};
use std::path::Path;

use serde::Serialize;

use crate::exit::Failure;

pub(crate) use crate::stderr::say;

/// Prints a result on standard output. A pipe closed by its reader is not an error.
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

/// Formats results as JSON, in one line.
pub(crate) fn json(results: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(results).expect("results have string keys only")
}

/// Writes a result into a file and names the file in an error.
pub(crate) fn write_file(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text)
        .map_err(|error| Failure::failed(format!("writing {}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A writer whose writes fail with this kind of error.
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
    fn output_to_a_closed_pipe_is_ignored_and_to_a_full_disk_is_an_error() {
        assert!(write(&mut Refuses(ErrorKind::BrokenPipe), "a\n").is_ok());
        let Err(Failure::Failed(message)) = write(&mut Refuses(ErrorKind::StorageFull), "a\n") else {
            panic!("a result that was not written is no success");
        };
        assert!(message.starts_with("writing to standard output: "), "{message}");
    }
}
