//! The target of a limit: a backend or one of its replicas.

use std::fmt;

use serde::Deserialize;

/// The target of a resource limit: a backend, or one of its replicas, whose own limit replaces the
/// backend's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Limited {
    /// The backend's number in the document, from 1.
    pub backend: u16,
    /// The replica's number, from 0; none for all replicas.
    pub replica: Option<u16>,
}

impl fmt::Display for Limited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { backend, replica } = self;
        write!(f, "{backend}")?;
        replica.map_or(Ok(()), |replica| write!(f, "/{replica}"))
    }
}

impl TryFrom<String> for Limited {
    type Error = String;

    fn try_from(written: String) -> Result<Self, String> {
        let (backend, replica) = match written.split_once('/') {
            Some((backend, replica)) => (backend.parse().ok(), Some(replica.parse().ok())),
            None => (written.parse().ok(), None),
        };
        let parsed = match (backend, replica) {
            (Some(backend), None) => Some(Self { backend, replica: None }),
            (Some(backend), Some(Some(replica))) => Some(Self { backend, replica: Some(replica) }),
            _ => None,
        };
        // Only one spelling is accepted, so that no target is limited twice.
        parsed.filter(|parsed| parsed.to_string() == written).ok_or_else(|| {
            format!(
                "a limit is of `{written}`, expected a backend's number in quotes, such as \"6\", or a replica's, such as \"6/0\""
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_target_is_read_in_one_spelling_of_backend_and_replica() {
        for (written, backend, replica) in [("6", 6, None), ("6/0", 6, Some(0)), ("20/63", 20, Some(63))] {
            let limited = Limited::try_from(written.to_owned()).expect(written);
            assert_eq!((limited.backend, limited.replica), (backend, replica));
            assert_eq!(limited.to_string(), written);
        }
        for wrong in ["", "b06", "6/", "/0", "6/0/1", "06", "+6", "6/-1", "70000"] {
            let error = Limited::try_from(wrong.to_owned()).expect_err(wrong);
            assert!(error.starts_with(&format!("a limit is of `{wrong}`, expected")), "{error}");
        }
    }
}
