//! Sessions of clients at replicated stores, in a header that they send back.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use sherwood_model::BackendId;
use sherwood_path::Session;

use super::body::Refusal;
use crate::core::Core;

/// Header with the sessions of a client: `catalog=1f.2a, users=1f.3`.
const NAME: &str = "sherwood-session";

/// The sessions of a client at replicated stores, at most one for each backend.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Vec<(BackendId, Session)>);

impl Sessions {
    /// Reads the sessions of a request. Those of backends that are not known are left out: the
    /// configuration may have changed.
    ///
    /// # Errors
    /// [`Refusal::Header`] if the header is not a list of names and sessions.
    pub(crate) fn of(core: &Core, headers: &HeaderMap) -> Result<Self, Refusal> {
        let mut sessions = Self::default();
        for header in headers.get_all(NAME) {
            let refusal = |reason| Refusal::Header { name: NAME, reason };
            let text = header.to_str().map_err(|error| refusal(error.to_string()))?;
            for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
                let form = || refusal(format!("{entry:?} is not a backend and its session, such as a=1f.2a"));
                let (backend, session) = entry.split_once('=').ok_or_else(form)?;
                let session = session.parse().map_err(|error| refusal(format!("{error}")))?;
                if let Some(backend) = core.names.backend_id(backend) {
                    sessions.join(backend, session);
                }
            }
        }
        Ok(sessions)
    }

    /// Returns the session at a backend.
    pub(crate) fn at(&self, backend: BackendId) -> Session {
        self.0.iter().find(|(of, _)| *of == backend).map(|(_, session)| *session).unwrap_or_default()
    }

    /// Adds what the client has done or seen at a backend.
    pub(crate) fn join(&mut self, backend: BackendId, session: Session) {
        match self.0.iter_mut().find(|(of, _)| *of == backend) {
            Some((_, known)) => known.join(session),
            None => self.0.push((backend, session)),
        }
    }

    /// Adds that the client has read from these backends.
    pub(crate) fn join_reads(&mut self, core: &Core, backends: impl Iterator<Item = BackendId>) {
        for backend in backends {
            let replicated = core.backend(backend).filter(|driver| driver.is_replicated());
            if let Some(session) = replicated.and_then(|driver| driver.session_of_reader()) {
                self.join(backend, session);
            }
        }
    }

    /// Adds the header to an answer, if there is any session.
    pub(crate) fn add_to(&self, core: &Core, response: &mut Response) {
        let entry =
            |(backend, session): &(BackendId, Session)| format!("{}={session}", core.names.backend(*backend));
        let entries: Vec<String> = self.0.iter().map(entry).collect();
        if let Ok(value) = HeaderValue::try_from(entries.join(", "))
            && !entries.is_empty()
        {
            response.headers_mut().insert(HeaderName::from_static(NAME), value);
        }
    }
}
