//! Login of memcached clients, for listeners that require a password.
//!
//! As with memcached's option `-Y`, the first command is a `set` of any key, whose value is a name,
//! a space and a password. Until a right one arrives, every other line is answered as
//! unauthenticated, and only lines are parsed. Texts are memcached's, and the connection closes
//! where memcached closes it. Unlike in memcached, the attempts per connection are bounded, and
//! each of several pipelined lines is answered.

use sherwood_wire::memcached::reply;

use crate::passwords::REFUSALS_MAX;
use crate::tenants::TenantSlot;

/// Maximum length of a line before the login, in bytes, as in memcached.
const LINE_BYTES_MAX: usize = 2048;
/// Minimum length of a line before the login without its end, in bytes, as in memcached: every
/// `set` with a value is longer.
const LINE_BYTES_MIN: usize = 6;
/// Maximum length of name, space and password of a login together, in bytes.
const VALUE_BYTES_MAX: usize = 1024;
const LINE_END: &[u8] = b"\r\n";

const UNAUTHENTICATED: &[u8] = b"CLIENT_ERROR unauthenticated\r\n";
const TOO_LONG: &[u8] = b"CLIENT_ERROR auth token too long\r\n";
const TERMINATION: &[u8] = b"CLIENT_ERROR bad command line termination\r\n";
const FORMAT: &[u8] = b"CLIENT_ERROR bad authentication token format\r\n";
const FAILURE: &[u8] = b"CLIENT_ERROR authentication failure\r\n";

/// The state of a memcached client that has not logged in.
#[derive(Debug, Default)]
pub(super) struct Login {
    refusals: u8,
}

/// The result of reading input before the login.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LoginOutcome {
    /// Bytes of input consumed.
    pub(super) consumed: usize,
    pub(super) next: LoginStep,
    /// Number of login attempts in the consumed input.
    pub(super) tried: u64,
}

/// The next step of a client that logs in.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LoginStep {
    /// The client has given the right password of a user of this tenant.
    Admit(TenantSlot),
    /// This many unconsumed bytes of input are needed to go on.
    Need(usize),
    HangUp,
}

/// A parsed line of a client that has not logged in, by the action it requires.
enum Step<'a> {
    Need(usize),
    /// Send this answer and continue with the next line, this many bytes later.
    Refuse(usize, &'static [u8]),
    /// Send this answer, if not empty, and close.
    HangUp(usize, &'static [u8]),
    Try(usize, &'a [u8], &'a [u8]),
}

impl Login {
    /// Parses `input` until the client has logged in, more input is needed, or the connection has
    /// to close. `know` returns the tenant of a user with the right password.
    pub(super) fn advance(
        &mut self,
        know: impl Fn(&[u8], &[u8]) -> Option<TenantSlot>,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> LoginOutcome {
        let (mut consumed, mut tried) = (0, 0);
        loop {
            let (bytes, answer, hang_up) = match Step::of(&input[consumed..]) {
                Step::Need(need) => return LoginOutcome { consumed, next: LoginStep::Need(need), tried },
                Step::Try(bytes, user, password) => {
                    tried += 1;
                    if let Some(slot) = know(user, password) {
                        out.extend_from_slice(reply::STORED);
                        let next = LoginStep::Admit(slot);
                        return LoginOutcome { consumed: consumed + bytes, next, tried };
                    }
                    (bytes, FAILURE, false)
                }
                Step::Refuse(bytes, answer) => (bytes, answer, false),
                Step::HangUp(bytes, answer) => (bytes, answer, true),
            };
            consumed += bytes;
            out.extend_from_slice(answer);
            self.refusals += 1;
            if hang_up || self.refusals >= REFUSALS_MAX {
                return LoginOutcome { consumed, next: LoginStep::HangUp, tried };
            }
        }
    }
}

impl<'a> Step<'a> {
    fn of(input: &'a [u8]) -> Self {
        let line = &input[..input.len().min(LINE_BYTES_MAX)];
        let Some(end) = line.iter().position(|&byte| byte == b'\n') else {
            return if line.len() < LINE_BYTES_MAX {
                Self::Need(input.len() + 1)
            } else {
                Self::HangUp(0, b"")
            };
        };
        if end < LINE_BYTES_MIN {
            return Self::HangUp(end + 1, b"");
        }
        let start = end + 1;
        let Some(length) = announced(&line[..end]) else { return Self::Refuse(start, UNAUTHENTICATED) };
        if length > VALUE_BYTES_MAX {
            return Self::HangUp(start, TOO_LONG);
        }
        let block = start + length + LINE_END.len();
        let Some(value) = input.get(start..block) else { return Self::Need(block) };
        let Some(value) = value.strip_suffix(LINE_END) else { return Self::Refuse(block, TERMINATION) };
        match value.iter().position(|&byte| byte == b' ') {
            Some(space) => Self::Try(block, &value[..space], &value[space + 1..]),
            None => Self::Refuse(block, FORMAT),
        }
    }
}

/// Returns the value length that a line `set KEY FLAGS EXPTIME LENGTH …` announces.
fn announced(line: &[u8]) -> Option<usize> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
    let length = words.next().filter(|&verb| verb == b"set").and_then(|_| words.nth(3))?;
    std::str::from_utf8(length).ok()?.parse::<u32>().ok().map(|length| length as usize)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::counters::Count;
    use crate::passwords::Passwords;
    use crate::routing::Routing;
    use crate::shared::Service;
    use crate::tests::{Client, Known, cache, service, target};

    fn client() -> Client {
        let passwords: Option<Arc<dyn Passwords>> =
            Some(Arc::new(Known(&[("alice", "open sesame"), ("bob", "12345678")])));
        Client::new(Service { passwords, ..service(cache(1), Routing::single(target(0)), None) })
    }

    /// Checks commands before the login against the answers of memcached 1.6.45 with `-Y`, one line
    /// at a time.
    #[test]
    fn memcached_commands_before_login_are_answered_as_unauthenticated() {
        for (sent, answer) in [
            ("get a\r\n", "CLIENT_ERROR unauthenticated\r\n"),
            ("mg a v\r\n", "CLIENT_ERROR unauthenticated\r\n"),
            ("version\r\n", "CLIENT_ERROR unauthenticated\r\n"),
            ("set a 0 0\r\n", "CLIENT_ERROR unauthenticated\r\n"),
            ("set a 0 0 x\r\n", "CLIENT_ERROR unauthenticated\r\n"),
            ("setx a 0 0 1\r\n", "CLIENT_ERROR unauthenticated\r\n"),
            ("add a 0 0 12\r\n", "CLIENT_ERROR unauthenticated\r\n"),
            ("set a 0 0 12\r\nbob 1234567X\r\n", "CLIENT_ERROR authentication failure\r\n"),
            ("set a 0 0 12 noreply\r\nbob 1234567X\r\n", "CLIENT_ERROR authentication failure\r\n"),
            ("set a 0 0 3\r\nbob\r\n", "CLIENT_ERROR bad authentication token format\r\n"),
            ("set a 0 0 12\r\nbob 12345678..", "CLIENT_ERROR bad command line termination\r\n"),
            ("set a 0 0 20000\r\n", "CLIENT_ERROR auth token too long\r\n(closed)"),
            ("quit\r\n", "(closed)"),
            ("\r\n", "(closed)"),
            (&"x".repeat(2048), "(closed)"),
        ] {
            assert_eq!(client().send(sent.as_bytes()), answer, "after {sent:?}");
        }
    }

    #[test]
    fn memcached_client_is_served_after_login_with_the_right_password() {
        let mut client = client();
        client.check(&[
            ("get a\r\n", "CLIENT_ERROR unauthenticated\r\n"),
            (
                "set any 1 2 17\r\nalice open sesame\r\nset a 0 0 1\r\nx\r\nget a\r\n",
                "STORED\r\nSTORED\r\nVALUE a 0 1\r\nx\r\nEND\r\n",
            ),
            // After login such a value is stored like any other.
            ("set any 0 0 3\r\nbob\r\nget any\r\n", "STORED\r\nVALUE any 0 3\r\nbob\r\nEND\r\n"),
        ]);
        assert_eq!((client.count(Count::AuthCmds), client.count(Count::AuthErrors)), (1, 0));
    }

    #[test]
    fn memcached_connection_closes_after_too_many_failed_logins() {
        let mut client = client();
        let guess = "set a 0 0 12\r\nbob 1234567X\r\n".repeat(100);
        let right = "set a 0 0 12\r\nbob 12345678\r\n";
        let said = client.send(format!("{guess}{right}").as_bytes());
        let refusals = "CLIENT_ERROR authentication failure\r\n".repeat(usize::from(REFUSALS_MAX));
        assert_eq!(said, format!("{refusals}(closed)"));
        let count = u64::from(REFUSALS_MAX);
        assert_eq!((client.count(Count::AuthCmds), client.count(Count::AuthErrors)), (count, count));
    }

    fn piece() -> impl Strategy<Value = Vec<u8>> {
        let likely = [
            "set a 0 0 12\r\n",
            "bob 12345678\r\n",
            "bob 1234567X\r\n",
            "get a\r\n",
            "\r\n",
            "set",
            " ",
            "4294967295",
        ];
        prop_oneof![
            prop::sample::select(likely.to_vec()).prop_map(|text| text.as_bytes().to_vec()),
            prop::collection::vec(any::<u8>(), 0..40),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        /// Checks for all input, split in any way, that the answers are the same, and that a client
        /// that has not sent a right password reads nothing.
        #[test]
        fn answers_before_login_do_not_depend_on_how_input_is_split(pieces in prop::collection::vec(piece(), 0..12), cut in 1_usize..9) {
            let said = pieces.concat();
            let mut whole = client();
            let answer = whole.send(&said);
            let mut pieces = client();
            let mut answers = String::new();
            for piece in said.chunks(cut) {
                if !answers.ends_with("(closed)") {
                    answers.push_str(&pieces.send(piece));
                }
            }
            prop_assert_eq!(&answer, &answers);
            let knows = said.windows(14).any(|window| window == b"bob 12345678\r\n");
            prop_assert!(knows || !answer.contains("STORED") && !answer.contains("END"), "{}", answer);
        }
    }
}
