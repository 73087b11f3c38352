//! Options of the connection to NATS.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use async_nats::{AuthError, ConnectOptions, Event, ServerAddr};
use serde_json::json;
use sherwood_config::{BusCredentials, BusSetup, ClusterSetup};
use sherwood_store::{ClientTls, TlsOptions};
use sherwood_textfile::{ReadError, Reader, Rules, Watched, text};

use crate::core::Core;
use crate::start::StartError;

/// Interval of pings. A server that leaves two unanswered is left, too.
const PING_INTERVAL: Duration = Duration::from_secs(1);
/// Longest time between two attempts to connect.
const RECONNECT_MAX: Duration = Duration::from_secs(1);
/// Timeout of an attempt to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Messages that may wait to be handled; more are lost, and sent again later.
const RECEIVED_MAX: usize = 8_192;

/// Options of the connection of a node, and the servers.
pub(crate) struct Connect {
    pub(super) options: ConnectOptions,
    pub(super) servers: Vec<ServerAddr>,
}

impl Connect {
    /// Reads the files that the options name. The password and the token are read again for each
    /// connection.
    ///
    /// # Errors
    /// The error names the file that cannot be used, and the reason.
    pub(crate) fn new(cluster: &ClusterSetup) -> Result<Self, StartError> {
        let BusSetup { servers, credentials, tls } = &cluster.bus;
        let options = match credentials {
            None => ConnectOptions::new(),
            Some(BusCredentials::File(path)) => {
                let text = text(path, Rules::DEFAULT).map_err(|error| unusable(path, &error))?;
                ConnectOptions::with_credentials(&text).map_err(|error| unusable(path, &error))?
            }
            Some(BusCredentials::Password { user, password_file }) => {
                let (user, password) = (user.clone(), watched(password_file)?);
                ConnectOptions::with_auth_callback(move |_| {
                    let mut auth = async_nats::Auth::new();
                    auth.username = Some(user.clone());
                    auth.password = Some(password.current().as_ref().clone());
                    std::future::ready(Ok::<_, AuthError>(auth))
                })
            }
            Some(BusCredentials::Token(path)) => {
                let token = watched(path)?;
                ConnectOptions::with_auth_callback(move |_| {
                    let mut auth = async_nats::Auth::new();
                    auth.token = Some(token.current().as_ref().clone());
                    std::future::ready(Ok::<_, AuthError>(auth))
                })
            }
        };
        let mut options = options
            .name(format!("sherwood {} {}", cluster.name, cluster.node))
            .no_echo()
            .retry_on_initial_connect()
            .ping_interval(PING_INTERVAL)
            .connection_timeout(CONNECT_TIMEOUT)
            .subscription_capacity(RECEIVED_MAX)
            .reconnect_delay_callback(|attempts| {
                (Duration::from_millis(100) * u32::try_from(attempts).unwrap_or(u32::MAX)).min(RECONNECT_MAX)
            });
        if tls.is_some() || servers.iter().any(sherwood_config::BusServer::is_tls) {
            let tls = ClientTls::open(tls.as_ref().unwrap_or(&TlsOptions::default()), &[]);
            let tls = tls.map_err(|cause| StartError::Bus(format!("tls: {cause}")))?;
            options = options.require_tls(true).tls_client_config(tls.current().as_ref().clone());
        }
        let servers = servers.iter().map(|server| server.to_string().parse::<ServerAddr>());
        let servers = servers.collect::<Result<_, _>>();
        Ok(Self { options, servers: servers.map_err(|error| StartError::Bus(error.to_string()))? })
    }

    /// Reports the changes of the connection as events.
    pub(super) fn reporting(self, core: &Arc<Core>) -> Self {
        let core = Arc::clone(core);
        let is_away = AtomicBool::new(false);
        let options = self.options.event_callback(move |event| {
            let is_error = matches!(event, Event::ClientError(_));
            if matches!(event, Event::Connected) {
                is_away.store(false, Relaxed);
            }
            // Every attempt to connect fails with an event, once a second.
            if !(is_error && is_away.swap(true, Relaxed)) {
                report(&core, &event);
            }
            std::future::ready(())
        });
        Self { options, ..self }
    }
}

/// Returns the secret of a file, read again when the file changes.
fn watched(path: &Path) -> Result<Arc<Watched<String>>, StartError> {
    let of = path.to_path_buf();
    let read = move |reader: &mut Reader| -> Result<String, ReadError> { reader.secret(&of, Rules::DEFAULT) };
    Watched::open(read).map(Arc::new).map_err(|error| unusable(path, &error))
}

fn unusable(path: &Path, error: &dyn std::error::Error) -> StartError {
    StartError::Bus(format!("{} {error}", path.display()))
}

fn report(core: &Core, event: &Event) {
    let (message, is_bad) = match event {
        Event::Connected => ("connected to the bus".to_owned(), false),
        Event::Disconnected => ("the connection to the bus is lost; it is opened again".to_owned(), true),
        Event::SlowConsumer(_) => {
            (format!("more than {RECEIVED_MAX} messages of the bus wait; later ones are lost"), true)
        }
        Event::ServerError(error) => (format!("the bus refuses: {error}"), true),
        Event::ClientError(error) => (format!("the bus cannot be reached: {error}"), true),
        Event::LameDuckMode | Event::Draining | Event::Closed => (format!("the bus: {event}"), false),
    };
    if let (Event::SlowConsumer(_), Some(cluster)) = (event, &core.cluster) {
        cluster.counters.count_dropped(crate::cluster::Direction::Received, 1);
    }
    let data = json!({ "event": event.to_string() });
    if is_bad {
        core.events.warn("cluster", message, data);
    } else {
        core.events.say("cluster", message, data);
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// The seed of 32 bytes from 0 to 31, as NATS writes seeds of users.
    const SEED: &str = "SUAAAAICAMCAKBQHBAEQUCYMBUHA6EARCIJRIFIWC4MBSGQ3DQOR4H776Y";

    fn opened(contents: &str) -> Result<Connect, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("bus.creds");
        fs::write(&path, contents).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let cluster = ClusterSetup {
            name: "shop".to_owned(),
            node: "a".to_owned(),
            nodes: vec!["a".to_owned()],
            weights: vec![1.0],
            statistics: Vec::new(),
            bus: BusSetup {
                servers: vec!["nats://127.0.0.1:1".parse().unwrap()],
                credentials: Some(BusCredentials::File(path)),
                tls: None,
            },
        };
        Connect::new(&cluster).map_err(|error| error.to_string())
    }

    #[test]
    fn credentials_file_has_several_lines_and_errors_do_not_quote_it() {
        let file = format!(
            "-----BEGIN NATS USER JWT-----\neyJ0.eyJq.c2ln\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------\n"
        );
        assert!(opened(&file).is_ok());
        for wrong in ["", SEED, &file[..60]] {
            let error = opened(wrong).err().expect("it is no credentials file");
            assert!(error.contains("bus.creds") && !error.contains(SEED), "{error}");
        }
    }
}
