//! Opens sessions with a Cassandra server.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use scylla::client::PoolSize;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::{Session, TlsContext};
use scylla::client::session_builder::SessionBuilder;
use scylla::policies::host_filter::AllowListHostFilter;
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::statement::Consistency;
use sherwood_textfile::Watched;
use tokio::time::timeout;

use super::clock::Clock;
use super::rows::Rows;
use super::walk::Walk;
use super::{CassandraOptions, PORT, certificates};
use crate::remote::host::{Deadline, HostPort};
use crate::remote::options;
use crate::remote::requests::{Opener, RequestStore};
use crate::remote::secret::Password;
use crate::remote::socket::Endpoint;
use crate::remote::tls;
use crate::{Cause, KeyPages, OpenCause, Report, Store};

/// Opens the store called `name`.
pub(crate) fn open(name: &str, options: &CassandraOptions) -> Result<Arc<dyn Store>, OpenCause> {
    options.validate()?;
    Ok(Arc::new(RequestStore::new(name, CassandraOpener::new(options)?, &options.remote)))
}

/// All that sessions with one server are opened with.
struct CassandraOpener {
    endpoint: Endpoint,
    tls: Option<Watched<Arc<ClientConfig>>>,
    login: Option<(String, Password)>,
    /// The table's name with that of its keyspace, quoted.
    table: String,
    clock: Arc<Clock>,
    connections_max: NonZeroUsize,
    value_bytes_max: u64,
    answer_timeout: Duration,
    details: Vec<String>,
}

impl CassandraOpener {
    fn new(options: &CassandraOptions) -> Result<Self, OpenCause> {
        let CassandraOptions { address, keyspace, table, user, password, remote } = options;
        let endpoint = Endpoint::new(HostPort::parse("address", address, PORT)?, remote)?;
        let password = password.as_ref().map(Password::open).transpose()?;
        let tls = match &remote.tls {
            Some(tls) => {
                let name = tls::server_name(tls, &endpoint.address.host)?;
                Some(certificates::watched(tls.clone(), name)?)
            }
            None => None,
        };
        let mut details = self::options::details(&endpoint, remote);
        details.extend(user.as_ref().map(|user| format!("logged in as {user}")));
        details.push(format!("table {keyspace}.{table}"));
        Ok(Self {
            endpoint,
            tls,
            login: user.clone().zip(password),
            table: format!("\"{keyspace}\".\"{table}\""),
            clock: Arc::default(),
            connections_max: NonZeroUsize::new(remote.connections_max.into()).unwrap_or(NonZeroUsize::MIN),
            value_bytes_max: remote.value_bytes_max,
            answer_timeout: remote.answer_timeout(),
            details,
        })
    }

    /// Returns the driver's options for a session of so many connections.
    async fn builder(&self, connections: NonZeroUsize) -> Result<SessionBuilder, Cause> {
        let addresses = self.endpoint.address.look_up(Deadline::new(self.endpoint.timeout)).await?;
        let unreachable = |error: std::io::Error| Cause::Unreachable {
            address: self.endpoint.address.to_string(),
            detail: error.to_string(),
        };
        // Only this server is asked: replicas and duplicates are chosen elsewhere.
        let filter = AllowListHostFilter::new(addresses.iter().copied()).map_err(unreachable)?;
        let profile = ExecutionProfile::builder()
            .consistency(Consistency::LocalQuorum)
            .request_timeout(Some(self.answer_timeout))
            .retry_policy(Arc::new(FallthroughRetryPolicy))
            .speculative_execution_policy(None)
            .build();
        let mut builder = SessionBuilder::new()
            .known_nodes_addr(addresses)
            .host_filter(Arc::new(filter))
            .default_execution_profile_handle(profile.into_handle())
            .pool_size(PoolSize::PerHost(connections))
            .connection_timeout(self.endpoint.timeout)
            .keepalive_interval(self.answer_timeout)
            .keepalive_timeout(self.answer_timeout)
            .tcp_nodelay(true)
            .fetch_schema_metadata(false);
        if let Some((user, password)) = &self.login {
            builder = builder.user(user, &**password.current());
        }
        if let Some(tls) = &self.tls {
            builder = builder.tls_context(Some(TlsContext::from((*tls.current()).clone())));
        }
        Ok(builder)
    }

    async fn session(&self, connections: NonZeroUsize) -> Result<Session, Cause> {
        let address = self.endpoint.address.to_string();
        let builder = self.builder(connections).await?;
        match timeout(self.endpoint.timeout, builder.build()).await {
            Ok(Ok(session)) => Ok(session),
            Ok(Err(error)) => {
                let detail = error.to_string();
                if detail.contains("uthentication") {
                    return Err(Cause::Credentials { detail });
                }
                Err(Cause::Unreachable { address, detail })
            }
            Err(_) => Err(Cause::silent(address, self.endpoint.timeout)),
        }
    }

    /// Opens a session of so many connections.
    async fn rows(&self, connections: NonZeroUsize) -> Result<Rows, Cause> {
        // The driver does not return every cause for which it cannot connect, so a connection
        // without it finds out.
        drop(self.endpoint.connect().await?);
        let session = self.session(connections).await?;
        let (clock, address) = (Arc::clone(&self.clock), self.endpoint.address.to_string());
        let preparing =
            Rows::prepare(session, &self.table, clock, address, self.value_bytes_max, self.answer_timeout);
        match timeout(self.endpoint.timeout, preparing).await {
            Ok(rows) => rows,
            Err(_) => Err(Cause::silent(&self.endpoint.address, self.endpoint.timeout)),
        }
    }
}

impl Opener for CassandraOpener {
    type Connection = Rows;

    async fn open(&self) -> Result<Rows, Cause> {
        self.rows(self.connections_max).await
    }

    // Its requests are in flight together over one connection.
    async fn open_own(&self) -> Result<Rows, Cause> {
        self.rows(NonZeroUsize::MIN).await
    }

    async fn report(&self, rows: &Rows) -> Result<Report, Cause> {
        let server = format!("Cassandra {}", rows.version().await?);
        Ok(Report { server, details: self.details.clone() })
    }

    fn walk(&self, name: Arc<str>, rows: Rows) -> Box<dyn KeyPages> {
        Box::new(Walk::new(name, rows))
    }
}
