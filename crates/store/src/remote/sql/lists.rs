//! Reads many keys with statements that contain `:keys`.
//!
//! A call takes one statement for every [`KEYS_MAX`] keys. If some keys of a statement are not
//! found with exactly their spelling, or the statement fails, [`Asking`] decides which of them are
//! queried again. Each further statement has its own answer timeout, and all of them end with the
//! call.

use std::collections::HashMap;

use bytes::Bytes;

use super::pool::{Driver, Lease, Link};
use super::{Budget, Sql};
use crate::Cause;
use crate::remote::Each;
use crate::remote::asking::{Asking, Rows, distinct};
use crate::remote::template::{KEYS_MAX, padded};

/// Maximum number of statements of one call that may fail for reasons which may not concern a
/// single key, before the remaining keys fail with them. This is enough to find six bad rows among
/// 256 keys, and ends a call soon if every key fails.
const DOUBTFUL_MAX: u32 = 48;
/// Maximum number of connections that one call may close in the middle of an answer because it is
/// too large. This is enough to find two rows that are too large by themselves among 256 keys.
const LISTS_ABANDONED_MAX: u32 = 16;

/// The bounds of one call.
struct Limits {
    budget: Budget,
    /// Number of statements that may still fail for reasons which may not concern a single key.
    doubtful: u32,
    /// Number of connections that may still be closed in the middle of an answer.
    abandoned: u32,
}

impl<D: Driver> Sql<D> {
    pub(super) async fn read_lists(&self, lease: &mut Lease<D>, keys: &[Bytes]) -> Result<Vec<Each>, Cause> {
        let budget = Budget::new(self.plan.value_max);
        let mut limits = Limits { budget, doubtful: DOUBTFUL_MAX, abandoned: LISTS_ABANDONED_MAX };
        let mut values = Vec::with_capacity(keys.len());
        for keys in keys.chunks(KEYS_MAX) {
            // The last answer to the keys before may have been left unread.
            if lease.is_abandoned() {
                self.pool.renew(lease).await?;
            }
            let outcome = self.read_list(lease, keys, &mut limits.budget).await;
            let before = values.len();
            if outcome.as_ref().is_ok_and(|rows| rows.append(keys, &Ok(None), &mut values)) {
                continue;
            }
            values.truncate(before);
            let found = self.read_again(lease, distinct(keys), outcome, &mut limits).await?;
            values.extend(keys.iter().map(|key| found.get(key).cloned().unwrap_or(Ok(None))));
        }
        Ok(values)
    }

    /// Reads the keys of `list`, whose first statement had `outcome`, with further statements if
    /// the outcome does not determine the answer of each key.
    async fn read_again(
        &self,
        lease: &mut Lease<D>,
        mut list: Vec<Bytes>,
        mut outcome: Result<Rows<Each>, Cause>,
        limits: &mut Limits,
    ) -> Result<HashMap<Bytes, Each>, Cause> {
        let mut asking = Asking::new();
        loop {
            match outcome {
                Ok(rows) => limits.budget.refund(asking.answered(list, rows)),
                Err(cause) if self.is_of_a_key(lease, limits, &cause).await? => {
                    asking.refused(list, Err(cause))
                }
                Err(cause) => asking.give_up(list, &Err(cause)),
            }
            match asking.next() {
                Some(next) => list = next,
                None => return Ok(asking.into_answers()),
            }
            if lease.is_abandoned() {
                self.pool.renew(lease).await?;
            }
            outcome = self.read_list(lease, &list, &mut limits.budget).await;
        }
    }

    /// Reads keys with one statement. A statement that fails is not charged to the budget.
    async fn read_list(
        &self,
        lease: &mut Lease<D>,
        keys: &[Bytes],
        budget: &mut Budget,
    ) -> Result<Rows<Each>, Cause> {
        let padded = padded(keys);
        let sql = self.plan.query.sql(padded.len());
        let before = *budget;
        let answer = self.in_time(lease.link().rows(&sql, padded, budget)).await;
        answer.and_then(|answer| self.plan.shape.many(answer)).inspect_err(|_| *budget = before)
    }

    /// True if a statement may have failed with `cause` because of one of its keys or rows; false
    /// if too many statements of the call have failed.
    ///
    /// # Errors
    /// Returns `cause` if it concerns all keys.
    async fn is_of_a_key(
        &self,
        lease: &mut Lease<D>,
        limits: &mut Limits,
        cause: &Cause,
    ) -> Result<bool, Cause> {
        let left = match cause {
            Cause::Key { .. } => return Ok(true),
            Cause::Statement { .. } => {
                if limits.doubtful == DOUBTFUL_MAX {
                    self.check_columns(lease, &self.plan.query.sql(1)).await?;
                }
                &mut limits.doubtful
            }
            Cause::TooLarge { .. } => {
                // The rest of the answer is not read yet.
                lease.abandon();
                &mut limits.abandoned
            }
            cause => return Err(cause.clone()),
        };
        *left = left.saturating_sub(1);
        Ok(*left > 0)
    }
}
