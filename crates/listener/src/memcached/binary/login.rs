//! Login by SASL, with the mechanism `PLAIN`: the same users and passwords as in the text protocol.
//!
//! As in memcached, a client that has not logged in may ask for the version and the mechanisms, and
//! any other command closes the connection. Unlike in memcached, the attempts per connection are
//! bounded, and a client may log in again, as another user. A failure does not log out.

use sherwood_wire::memcached::binary::{Command, Echo, Request, Status, response};

use crate::counters::Count;
use crate::memcached::session::Session;
use crate::passwords::REFUSALS_MAX;
use crate::tenants::TenantSlot;

/// The name of the only mechanism.
const PLAIN: &str = "PLAIN";
const AUTHENTICATED: &str = "Authenticated";

/// The state of a client's login.
#[derive(Debug)]
pub(super) struct SaslLogin {
    /// True if the listener requires a password and the client has not given a correct one.
    outside: bool,
    /// True if the client has named the mechanism and has still to send the credentials.
    begun: bool,
    /// Number of failed attempts and refused frames of a client.
    refusals: u8,
}

/// The effect of the login's state on a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LoginStep {
    /// The request is to be executed.
    Execute,
    /// The request was answered.
    Answered,
    /// The client has given the correct password of a user of this tenant, and was answered.
    Admit(TenantSlot),
    /// The request was refused; close the connection.
    HangUp,
}

impl SaslLogin {
    /// Creates the state of a new client.
    pub(super) fn new(required: bool) -> Self {
        Self { outside: required, begun: false, refusals: 0 }
    }

    /// Returns true if the client has to log in and has not.
    pub(super) fn is_outside(&self) -> bool {
        self.outside
    }

    /// Executes a SASL request, and refuses any request that requires a login first.
    #[inline]
    pub(super) fn step(
        &mut self,
        session: &Session<'_>,
        request: &Request<'_>,
        out: &mut Vec<u8>,
    ) -> LoginStep {
        match request.command {
            Command::SaslMechanisms | Command::SaslAuth { .. } | Command::SaslStep { .. } => {
                self.sasl(session, request, out)
            }
            Command::Version => LoginStep::Execute,
            _ if self.outside => {
                response::error(out, request.echo, Status::AuthError);
                LoginStep::HangUp
            }
            _ => LoginStep::Execute,
        }
    }

    /// Answers an invalid frame. Returns true if the connection has to be closed: a client that has
    /// not logged in may send only a few of them.
    pub(super) fn refuse(&mut self, echo: Echo, status: Status, out: &mut Vec<u8>) -> bool {
        let unknown = self.outside && status == Status::UnknownCommand;
        response::error(out, echo, if unknown { Status::AuthError } else { status });
        self.outside && (unknown || self.count_refusal())
    }

    fn sasl(&mut self, session: &Session<'_>, request: &Request<'_>, out: &mut Vec<u8>) -> LoginStep {
        let echo = request.echo;
        if session.shared.service.passwords.is_none() {
            response::error(out, echo, Status::UnknownCommand);
            return LoginStep::Answered;
        }
        let begun = std::mem::take(&mut self.begun);
        let (mechanism, data) = match request.command {
            Command::SaslAuth { mechanism, data } => (mechanism, data),
            Command::SaslStep { mechanism, data } if begun => (mechanism, data),
            Command::SaslStep { .. } => return self.fail(session, echo, out),
            _ => {
                response::text(out, echo, PLAIN);
                return LoginStep::Answered;
            }
        };
        if data.is_empty() && mechanism == PLAIN.as_bytes() && !begun {
            self.begun = true;
            response::error(out, echo, Status::AuthContinue);
            return LoginStep::Answered;
        }
        let user = (mechanism == PLAIN.as_bytes()).then(|| credentials(data)).flatten();
        match user.and_then(|(user, password)| session.shared.service.log_in(user, password)) {
            Some(slot) => {
                session.counters.increment(Count::AuthCmds);
                self.outside = false;
                response::text(out, echo, AUTHENTICATED);
                LoginStep::Admit(slot)
            }
            None => self.fail(session, echo, out),
        }
    }

    fn fail(&mut self, session: &Session<'_>, echo: Echo, out: &mut Vec<u8>) -> LoginStep {
        session.counters.increment(Count::AuthCmds);
        session.counters.increment(Count::AuthErrors);
        response::error(out, echo, Status::AuthError);
        if self.count_refusal() { LoginStep::HangUp } else { LoginStep::Answered }
    }

    /// Counts a refusal. Returns true once the connection has reached the limit of refusals.
    fn count_refusal(&mut self) -> bool {
        self.refusals = self.refusals.saturating_add(1);
        self.refusals >= REFUSALS_MAX
    }
}

/// Returns user and password from the data of `PLAIN`: the identity to act as, the user and the
/// password, separated by zero bytes. The identity has to be empty or the user.
fn credentials(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = data.splitn(3, |&byte| byte == 0);
    let (acts_as, user, password) = (parts.next()?, parts.next()?, parts.next()?);
    (acts_as.is_empty() || acts_as == user).then_some((user, password))
}
