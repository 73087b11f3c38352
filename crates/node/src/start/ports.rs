//! Ports that speak HTTP: the admin API with the gateway, and OTLP over gRPC.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use axum::Router;
use sherwood_config::{AccessSetup, TlsFiles};
use sherwood_ports::PassedSockets;
use sherwood_ports::access::{Guard, Tokens};
use sherwood_ports::http::{self, Routers};
use sherwood_ports::tls::Tls;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::StartError;
use crate::admin::tells_keys;
use crate::core::Core;
use crate::dashboard::files::is_file;

/// A kind of port.
#[derive(Clone, Copy)]
pub(super) struct PortKind {
    /// Subject of the error if it cannot be bound.
    pub(super) name: &'static str,
    /// Settings that choose its address.
    pub(super) settings: &'static str,
    /// True if it speaks HTTP/2 as well.
    pub(super) speaks_http2: bool,
    /// Maximum of open connections.
    pub(super) connections_max: usize,
}

/// A bound port with its access control.
pub(super) struct Port {
    kind: PortKind,
    listener: std::net::TcpListener,
    /// The address, with the port that the system chose.
    pub(super) address: SocketAddr,
    guard: Arc<Guard>,
    tls: Option<Arc<Tls>>,
}

impl Port {
    /// Binds the port, or takes the socket passed for it, and reads the files of its access
    /// control.
    pub(super) fn open(
        kind: PortKind,
        address: SocketAddr,
        access: &AccessSetup,
        passed: &mut PassedSockets,
    ) -> Result<Self, StartError> {
        let failed = |error| StartError::Bind { name: kind.name, settings: kind.settings, address, error };
        let listener = match passed.take(&address.into()) {
            Some(socket) => http::listener(socket.into()),
            None => std::net::TcpListener::bind(address).and_then(http::listener),
        };
        let listener = listener.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let AccessSetup { tls, token_file, read_token_file } = access;
        let tokens =
            |what, file: &Option<PathBuf>| file.as_deref().map(|path| Tokens::open(what, path)).transpose();
        let guard = Guard {
            tokens: tokens("[admin] token_file", token_file)?,
            read_tokens: tokens("[admin] read_token_file", read_token_file)?,
            bound,
            is_page: is_file,
            tells_keys,
        };
        let open = |files: &TlsFiles| Tls::open(files.clone(), kind.speaks_http2).map(Arc::new);
        let tls = tls.as_ref().map(open).transpose()?;
        Ok(Self { kind, listener, address: bound, guard: Arc::new(guard), tls })
    }

    /// Serves the port in a task, behind its access control, until the node stops.
    pub(super) fn serve(
        self,
        routers: Routers,
        core: &Core,
        stopping: watch::Receiver<bool>,
        runtime: &Handle,
    ) -> JoinHandle<io::Result<()>> {
        let Self { kind, listener, address, guard, tls } = self;
        let refusals = &core.refusals;
        let guarded = |router: Router| guard.stand_before(router, Arc::clone(refusals));
        let routers = Routers { http1: guarded(routers.http1), http2: routers.http2.map(guarded) };
        tls.iter().for_each(|tls| core.certificates.add(address.to_string(), tls));
        let tls = tls.map(|tls| (tls, Arc::clone(refusals)));
        let bounds = (kind.connections_max, Arc::clone(&core.buffers));
        runtime.spawn(http::serve(listener, routers, tls, bounds, stopping))
    }
}
