//! Tokens of the HTTP port: one a line.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use sherwood_textfile::{Reader, Watched};

use super::file::{AccessError, Refusal, refused, secret_bytes};
use super::secrets::Secrets;

/// Minimum and maximum length of a token, characters. A token of 16 random letters and digits
/// cannot be guessed; the maximum bounds the size of request heads.
const TOKEN_CHARS_MIN: usize = 16;
const TOKEN_CHARS_MAX: usize = 512;
/// Maximum of tokens of a file: each costs every request a hash comparison.
const TOKENS_MAX: usize = 64;

/// The tokens of a token file, which is reloaded when it changes.
pub struct Tokens(Watched<Secrets>);

impl Tokens {
    /// Opens the file at `path`, named by the configuration key `what`.
    ///
    /// # Errors
    /// Fails when the file cannot be read, others can read it, or it has no tokens or invalid
    /// lines.
    pub fn open(what: &'static str, path: &Path) -> Result<Self, AccessError> {
        let file: PathBuf = path.to_owned();
        let load = move |reader: &mut Reader| {
            let bytes = secret_bytes(what, &file, reader)?;
            parse(&bytes).map_err(|refusal| refused(what, &file, refusal))
        };
        Watched::open(load).map(Self)
    }

    /// Returns true if `token` is one of the file's tokens.
    pub fn know(&self, token: &[u8]) -> bool {
        token.len() <= TOKEN_CHARS_MAX && self.0.current().know([b"", token])
    }
}

/// Parses one token a line; empty lines and lines that begin with `#` are skipped.
fn parse(bytes: &[u8]) -> Result<Secrets, Refusal> {
    let mut tokens = HashSet::new();
    for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
        let token = line.trim_ascii();
        if token.is_empty() || token.starts_with(b"#") {
            continue;
        }
        let refuse = |problem| Err(Refusal::Line { line: index + 1, problem });
        if !(TOKEN_CHARS_MIN..=TOKEN_CHARS_MAX).contains(&token.len()) {
            return refuse("has to be a token of 16 to 512 characters: make one by `openssl rand -hex 32`");
        }
        if !token.iter().all(u8::is_ascii_graphic) {
            return refuse(
                "has to be one token of printable characters, without blanks: make one by `openssl rand -hex 32`",
            );
        }
        if tokens.len() == TOKENS_MAX {
            return refuse("is beyond the 64 tokens that a file may hold: remove some");
        }
        tokens.insert(token);
    }
    if tokens.is_empty() {
        return Err(Refusal::Empty("token: put one into it by `openssl rand -hex 32`"));
    }
    Ok(Secrets::new(tokens.into_iter().map(|token| [&b""[..], token])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_a_token_file_is_a_token_unless_empty_or_a_comment() {
        let tokens = parse(b"# who scrapes\n0123456789abcdef\n\n  fedcba9876543210 \r\n").unwrap();
        assert!(tokens.know([b"", b"0123456789abcdef"]) && tokens.know([b"", b"fedcba9876543210"]));
        assert!(!tokens.know([b"", b"# who scrapes"]) && !tokens.know([b"", b""]));
    }

    #[test]
    fn invalid_token_is_refused_by_line_number_without_being_quoted() {
        let wrong = |text: &[u8]| parse(text).unwrap_err().to_string();
        assert_eq!(
            wrong(b"0123456789abcdef\nsecretsecret"),
            "line 2 has to be a token of 16 to 512 characters: make one by `openssl rand -hex 32`"
        );
        assert!(wrong(b"0123456789 abcdef").contains("without blanks"));
        assert!(wrong("0123456789abcdefé".as_bytes()).contains("printable"));
        assert!(wrong(&[b'a'; 513]).contains("16 to 512"));
        assert!(wrong(b"\n# nothing\n").contains("holds no token"));
        let many: String = (0..65).map(|number| format!("0123456789abcdef{number}\n")).collect();
        assert!(wrong(many.as_bytes()).contains("line 65"));
    }
}
