//! Remedies of failed calls, in terms of the options of each kind of store.

use crate::{Cause, StoreKind};

impl Cause {
    /// The remedy of this cause for a store of this kind; none if the cause contains one.
    pub(crate) fn remedy(&self, kind: StoreKind) -> Option<&'static str> {
        Some(match self {
            Self::Overloaded { .. } => "send less at once, or raise its `queued_calls_max`",
            Self::Busy { .. } => "try again later, or find out who they are",
            Self::Throttled { .. } => "send less, or raise the capacity of the table",
            Self::Closed => "send the call to another replica",
            Self::Unsupported { .. } | Self::ReadOnly { .. } | Self::Refused { .. } => return None,
            Self::Engine { .. } => "look at the disk and the log, then restart the store",
            Self::Unreachable { .. } => match kind {
                StoreKind::Http => "start the service, or correct the backend's `url`",
                StoreKind::DynamoDb => "correct the backend's `endpoint` or `region`, or look at the network",
                _ => "start the server, or correct the backend's `address`",
            },
            Self::Name { .. } => match kind {
                StoreKind::Http => "correct the backend's `url`, or the name service",
                StoreKind::DynamoDb => "correct the backend's `endpoint` or `region`, or the name service",
                _ => "correct the backend's `address`, or the name service",
            },
            Self::Silent { .. } => {
                "see whether the server hangs or is another one, and whether both sides speak TLS or neither does"
            }
            Self::Unanswered { .. } => {
                "see whether the server hangs or has too much to do, or raise the backend's `answer_timeout`"
            }
            Self::Certificate { .. } => {
                "correct `tls.ca`, `tls.server_name` or the server's certificate, or give `tls.cert` and `tls.key` where it asks for ours"
            }
            Self::Credentials { .. } | Self::Forbidden { .. } => credentials(kind),
            Self::Statement { .. } => statement(kind),
            Self::Missing { .. } => match kind {
                StoreKind::Redis => "correct the backend's `db`, or raise the server's `databases`",
                StoreKind::Cassandra => "create it, or correct the backend's `keyspace` or `table`",
                StoreKind::DynamoDb => "create it, or correct the backend's `table`, `region` or `endpoint`",
                _ => "create it, or correct the backend's statement or `database`",
            },
            Self::WrongServer { remedy, .. } => remedy,
            Self::TooLarge { .. } => "ask for less, or raise the backend's `value_max`",
            Self::Reset { .. } => "look at the server's log, and whether it expects TLS",
            Self::Protocol { .. } => match kind {
                StoreKind::Http => "see whether the backend's `url` leads to such a service",
                StoreKind::DynamoDb => "see whether the backend's `endpoint` leads to DynamoDB",
                _ => "see whether `kind` and `address` belong together",
            },
            Self::Server { .. } => "look at its log",
            Self::Key { .. } => "correct the key, or the backend's statement",
        })
    }
}

fn credentials(kind: StoreKind) -> &'static str {
    match kind {
        StoreKind::Http => "correct the backend's `headers`, or what the service lets them do",
        StoreKind::DynamoDb => {
            "correct the backend's `credentials` or `region`, what the user may do (IAM), or this machine's clock"
        }
        StoreKind::Memcached => {
            "correct `user`, `password_file` or `password_env`, or the server's list of users (memcached -Y)"
        }
        StoreKind::Redis => "correct `user`, `password_file` or `password_env`, or the user's rights (`ACL`)",
        StoreKind::Zookeeper => {
            "correct `user`, `password_file` or `password_env`, or the rights at the nodes (`ACL`)"
        }
        _ => "correct `user`, `password_file` or `password_env`, or the server's grants",
    }
}

fn statement(kind: StoreKind) -> &'static str {
    match kind {
        StoreKind::Http => "correct the backend's `url`, `write` or `delete`, or look at the service's log",
        StoreKind::DynamoDb => {
            "correct the backend's `table`, `key_attribute`, `value_attribute` or `value`, which have to fit the table's items"
        }
        StoreKind::Memcached | StoreKind::Redis | StoreKind::Zookeeper | StoreKind::Cassandra => {
            "see whether `kind` and `address` belong together, and whether the server allows what reads and writes send"
        }
        _ => "correct the backend's `query`, `write` or `delete`",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attempt, StoreError};

    /// The options of a store of this kind that texts of remedies may name.
    fn options(kind: StoreKind) -> &'static [&'static str] {
        match kind {
            StoreKind::Http => &["url", "write", "delete", "headers"],
            StoreKind::Memcached => &["kind", "address", "user", "password_file", "password_env"],
            StoreKind::Redis => &["kind", "address", "user", "password_file", "password_env", "db"],
            StoreKind::DynamoDb => {
                &["table", "region", "endpoint", "credentials", "key_attribute", "value_attribute", "value"]
            }
            _ => &[
                "kind",
                "address",
                "user",
                "password_file",
                "password_env",
                "database",
                "query",
                "write",
                "delete",
            ],
        }
    }

    /// Other names that texts of remedies may contain: options of every kind of store, of TLS, and
    /// of servers.
    const OTHERS: [&str; 9] = [
        "queued_calls_max",
        "answer_timeout",
        "value_max",
        "tls.ca",
        "tls.server_name",
        "tls.cert",
        "tls.key",
        "ACL",
        "databases",
    ];

    /// The causes with which a call to a store of this kind can fail.
    fn causes(kind: StoreKind) -> Vec<Cause> {
        let is_sql = matches!(kind, StoreKind::MySql | StoreKind::Postgres);
        let mut causes = all_causes();
        causes.retain(|cause| match cause {
            Cause::Key { .. } => is_sql,
            Cause::Missing { .. } => is_sql || matches!(kind, StoreKind::Redis | StoreKind::DynamoDb),
            Cause::Throttled { .. } => kind == StoreKind::DynamoDb,
            _ => true,
        });
        causes
    }

    fn all_causes() -> Vec<Cause> {
        let (detail, address, host) = (|| "said".to_owned(), || "h:1".to_owned(), || "h".to_owned());
        vec![
            Cause::Overloaded { queued_calls_max: 9 },
            Cause::Busy { detail: detail() },
            Cause::Throttled { detail: detail() },
            Cause::Closed,
            Cause::Unreachable { address: address(), detail: detail() },
            Cause::Name { host: host(), detail: detail() },
            Cause::Silent { address: address(), waited_ms: 9 },
            Cause::Unanswered { address: address(), waited_ms: 9 },
            Cause::Certificate { address: address(), detail: detail() },
            Cause::Credentials { detail: detail() },
            Cause::Forbidden { detail: detail() },
            Cause::Statement { detail: detail() },
            Cause::Missing { what: "a thing", detail: detail() },
            Cause::WrongServer { detail: detail(), remedy: "ask another" },
            Cause::TooLarge { bytes_max: 9 },
            Cause::Reset { address: address(), detail: detail() },
            Cause::Protocol { address: address(), expected: "it", detail: detail() },
            Cause::Server { detail: detail() },
            Cause::Key { detail: detail() },
        ]
    }

    fn explained(kind: StoreKind, cause: Cause) -> String {
        StoreError::new("b", kind, Attempt::Check, cause).explanation()
    }

    #[test]
    fn remedy_of_an_error_names_only_options_of_the_kind_of_store() {
        for kind in [
            StoreKind::Http,
            StoreKind::Memcached,
            StoreKind::Redis,
            StoreKind::MySql,
            StoreKind::Postgres,
            StoreKind::DynamoDb,
        ] {
            for cause in causes(kind) {
                let said = explained(kind, cause);
                let (_, remedy) = said.rsplit_once("; ").unwrap_or_else(|| panic!("no remedy in {said:?}"));
                for option in remedy.split('`').skip(1).step_by(2) {
                    assert!(options(kind).contains(&option) || OTHERS.contains(&option), "{kind}: {said}");
                }
            }
        }
    }

    #[test]
    fn remedy_of_the_same_cause_depends_on_the_kind_of_store() {
        let detail = || "said".to_owned();
        let unreachable = || Cause::Unreachable { address: "h:1".into(), detail: detail() };
        let credentials = || Cause::Credentials { detail: detail() };
        let statement = || Cause::Statement { detail: detail() };
        for (kind, cause, expected) in [
            (
                StoreKind::Http,
                unreachable(),
                "h:1 cannot be reached (said); start the service, or correct the backend's `url`",
            ),
            (
                StoreKind::Redis,
                unreachable(),
                "h:1 cannot be reached (said); start the server, or correct the backend's `address`",
            ),
            (
                StoreKind::Http,
                credentials(),
                "the server refused the credentials (said); correct the backend's `headers`, or what the service lets them do",
            ),
            (
                StoreKind::Redis,
                credentials(),
                "the server refused the credentials (said); correct `user`, `password_file` or `password_env`, or the user's rights (`ACL`)",
            ),
            (
                StoreKind::Memcached,
                credentials(),
                "the server refused the credentials (said); correct `user`, `password_file` or `password_env`, or the server's list of users (memcached -Y)",
            ),
            (
                StoreKind::MySql,
                credentials(),
                "the server refused the credentials (said); correct `user`, `password_file` or `password_env`, or the server's grants",
            ),
            (
                StoreKind::Http,
                statement(),
                "the server refused the statement (said); correct the backend's `url`, `write` or `delete`, or look at the service's log",
            ),
            (
                StoreKind::Memcached,
                statement(),
                "the server refused the statement (said); see whether `kind` and `address` belong together, and whether the server allows what reads and writes send",
            ),
            (
                StoreKind::Postgres,
                statement(),
                "the server refused the statement (said); correct the backend's `query`, `write` or `delete`",
            ),
        ] {
            assert_eq!(explained(kind, cause), expected);
        }
    }
}
