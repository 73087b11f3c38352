//! Prepared statements that a connection keeps.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use tokio_postgres::types::Type;
use tokio_postgres::{Column, Statement};

use super::parameter::Parameter;
use crate::remote::sql::renewal::Renewal;

/// Time after which a kept statement is prepared again. After a change of a column's type, a
/// statement may stay valid with its old parameter types; keys are then still compared by the old
/// type.
const KEPT_MAX: Duration = Duration::from_secs(60);

/// The parts of a statement that a connection keeps.
#[derive(Clone)]
pub(super) enum Form {
    /// A statement prepared on the server.
    Named(Statement),
    /// The parameter types of a statement without a name, which is parsed each time.
    Unnamed(Arc<[Type]>),
}

impl Form {
    /// The types of the parameters.
    pub(super) fn kinds(&self) -> &[Type] {
        match self {
            Self::Named(statement) => statement.params(),
            Self::Unnamed(kinds) => kinds,
        }
    }

    /// Converts `bound` to parameters; none for bytes that are not valid for the parameter's type.
    pub(super) fn fit(&self, bound: &[Bytes]) -> Vec<Option<Parameter>> {
        self.kinds().iter().zip(bound).map(|(kind, bytes)| Parameter::new(kind, bytes.clone())).collect()
    }
}

pub(super) fn names(columns: &[Column]) -> Vec<String> {
    columns.iter().map(|column| column.name().to_owned()).collect()
}

/// A statement kept by one connection.
#[derive(Default)]
pub(super) struct KeptStatement {
    /// The statement and the time at which it was prepared; none if it has to be prepared.
    form: Option<(Form, Instant)>,
    /// The names of the columns, if `form` does not contain them.
    pub(super) columns: Option<Vec<String>>,
    renewal: Renewal,
}

impl KeptStatement {
    /// Returns the kept statement; none if there is none or it is older than [`KEPT_MAX`], so that
    /// it has to be prepared.
    pub(super) fn form(&self) -> Option<Form> {
        self.form.as_ref().filter(|(_, since)| since.elapsed() < KEPT_MAX).map(|(form, _)| form.clone())
    }

    /// Keeps a statement that was prepared just now.
    pub(super) fn keep(&mut self, form: Form) {
        (self.form, self.columns) = (Some((form, Instant::now())), None);
    }

    /// Discards the statement, so that it is prepared again at its next use, and returns true;
    /// false if it was prepared again too recently.
    pub(super) fn renew(&mut self) -> bool {
        let is_renewed = self.renewal.allow();
        if is_renewed {
            self.form = None;
        }
        is_renewed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn prepared_statement_is_discarded_after_a_minute_and_on_renewal() {
        let mut kept = KeptStatement::default();
        assert!(kept.form().is_none());
        kept.keep(Form::Unnamed(Arc::new([Type::INT4])));
        tokio::time::advance(KEPT_MAX - Duration::from_millis(1)).await;
        assert_eq!(kept.form().unwrap().kinds(), [Type::INT4]);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert!(kept.form().is_none());
        kept.keep(Form::Unnamed(Arc::new([Type::INT8])));
        assert!(kept.renew() && kept.form().is_none());
        kept.keep(Form::Unnamed(Arc::new([Type::INT8])));
        assert!(!kept.renew() && kept.form().is_some(), "at most once a second");
    }
}
