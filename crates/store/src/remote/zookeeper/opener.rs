//! Opens sessions with a ZooKeeper server.

use std::sync::Arc;
use std::time::Duration;

use sherwood_textfile::Watched;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use zookeeper_client::{Acls, Client, CreateMode, Error, TlsOptions};

use super::error::cause;
use super::session::{Inner, Session};
use super::task::Spawner;
use super::walk::Walk;
use super::{PORT, ZookeeperOptions, certificates};
use crate::escape::message_bytes;
use crate::remote::host::HostPort;
use crate::remote::options;
use crate::remote::requests::{Opener, RequestStore};
use crate::remote::secret::Password;
use crate::remote::socket::Endpoint;
use crate::{Cause, KeyPages, OpenCause, Report, Store};

/// Least time without a connection after which the server forgets a session.
const SESSION_TIMEOUT_MIN: Duration = Duration::from_secs(10);

/// Most bytes that are read of a server's description.
const DESCRIPTION_BYTES_MAX: u64 = 4_096;

/// Opens the store called `name`.
pub(crate) fn open(name: &str, options: &ZookeeperOptions) -> Result<Arc<dyn Store>, OpenCause> {
    options.validate()?;
    Ok(Arc::new(RequestStore::new(name, ZookeeperOpener::new(options)?, &options.remote)))
}

/// All that sessions with one server are opened with.
struct ZookeeperOpener {
    endpoint: Endpoint,
    tls: Option<Watched<TlsOptions>>,
    login: Option<(String, Password)>,
    root: Arc<str>,
    value_bytes_max: usize,
    answer_timeout: Duration,
    details: Vec<String>,
}

impl ZookeeperOpener {
    fn new(options: &ZookeeperOptions) -> Result<Self, OpenCause> {
        let ZookeeperOptions { address, root, user, password, remote } = options;
        let endpoint = Endpoint::new(HostPort::parse("address", address, PORT)?, remote)?;
        let password = password.as_ref().map(Password::open).transpose()?;
        let mut details = options::details(&endpoint, remote);
        details.extend(user.as_ref().map(|user| format!("as {user}, by the scheme digest")));
        Ok(Self {
            endpoint,
            tls: remote.tls.clone().map(certificates::watched).transpose()?,
            login: user.clone().zip(password),
            root: root.as_str().into(),
            value_bytes_max: usize::try_from(remote.value_bytes_max).unwrap_or(usize::MAX),
            answer_timeout: remote.answer_timeout(),
            details,
        })
    }

    /// Opens a session by the library.
    async fn client(&self, address: &str, spawner: &Spawner) -> Result<Client, Cause> {
        // Requests fail by their own timeout before the connection does.
        let silence = self.answer_timeout.saturating_mul(2);
        let session_timeout = SESSION_TIMEOUT_MIN.max(silence.saturating_mul(2));
        let mut connector = Client::connector()
            .with_session_timeout(session_timeout)
            .with_connection_timeout(silence)
            .with_fail_eagerly();
        if let Some((user, password)) = &self.login {
            connector = connector.with_auth("digest", format!("{user}:{}", password.current()).as_bytes());
        }
        let connecting = async {
            match &self.tls {
                Some(tls) => connector.with_tls((*tls.current()).clone()).secure_connect(address).await,
                None => connector.connect(address).await,
            }
        };
        match timeout(self.endpoint.timeout, spawner.run(connecting)).await {
            Ok(Ok(client)) => Ok(client),
            Ok(Err(error @ Error::AuthFailed)) => Err(cause(&error, address)),
            Ok(Err(error)) => Err(Cause::Unreachable {
                address: address.to_owned(),
                detail: format!(
                    "it accepts connections and opens no session: {error}; it may have no quorum, or ask for `tls.cert`"
                ),
            }),
            Err(_) => Err(Cause::silent(address, self.endpoint.timeout)),
        }
    }

    /// Asks the server, over a connection of its own, for its version.
    async fn version(&self) -> Option<String> {
        let asked = async {
            let mut io = self.endpoint.connect().await.ok()?.io;
            io.write_all(b"srvr").await.ok()?;
            io.flush().await.ok()?;
            let mut text = Vec::new();
            io.take(DESCRIPTION_BYTES_MAX).read_to_end(&mut text).await.ok()?;
            let version = text.strip_prefix(b"Zookeeper version: ")?;
            Some(message_bytes(version.split(|&byte| matches!(byte, b',' | b'-' | b'\n')).next()?))
        };
        timeout(self.answer_timeout, asked).await.ok().flatten()
    }
}

impl Opener for ZookeeperOpener {
    type Connection = Session;

    async fn open(&self) -> Result<Session, Cause> {
        // The library does not return why it cannot connect, so a connection without it finds out.
        drop(self.endpoint.connect().await?);
        let address = self.endpoint.address.to_string();
        let spawner = Spawner::default();
        let client = self.client(&address, &spawner).await?;
        let task = spawner.start(&client);
        let acls = if self.login.is_some() { Acls::creator_all() } else { Acls::anyone_all() };
        Ok(Session(Arc::new(Inner {
            client,
            address,
            root: Arc::clone(&self.root),
            create: CreateMode::Persistent.with_acls(acls),
            value_bytes_max: self.value_bytes_max,
            answer_timeout: self.answer_timeout,
            task,
        })))
    }

    async fn report(&self, session: &Session) -> Result<Report, Cause> {
        let mut details = self.details.clone();
        details.push(session.describe().await?);
        let server = match self.version().await {
            Some(version) => format!("ZooKeeper {version}"),
            None => "ZooKeeper, which does not tell its version".to_owned(),
        };
        Ok(Report { server, details })
    }

    fn walk(&self, name: Arc<str>, session: Session) -> Box<dyn KeyPages> {
        Box::new(Walk::new(name, session))
    }
}
