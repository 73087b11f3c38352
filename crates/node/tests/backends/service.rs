//! An HTTP service of values by path, which can be killed at any time and restarted with its
//! values.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use tokio::sync::oneshot;

type Values = Arc<Mutex<BTreeMap<String, Bytes>>>;

pub(crate) struct Service {
    pub(crate) address: SocketAddr,
    values: Values,
    running: Option<Running>,
}

/// A thread with a runtime of its own: when it ends, all its connections end, even with requests in
/// flight.
struct Running {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl Service {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let values = Values::default();
        let running = Some(run(listener, Arc::clone(&values)));
        Self { address, values, running }
    }

    /// Kills the service. After the call nothing is answered or written.
    pub(crate) fn kill(&mut self) {
        if let Some(Running { stop, thread }) = self.running.take() {
            drop(stop);
            thread.join().expect("the service does not panic");
        }
    }

    /// Restarts the service at the same port, with its values.
    pub(crate) fn restart(&mut self) {
        let listener = TcpListener::bind(self.address).expect("the port is still ours");
        self.running = Some(run(listener, Arc::clone(&self.values)));
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.kill();
    }
}

fn run(listener: TcpListener, values: Values) -> Running {
    let (stop, stopped) = oneshot::channel();
    let thread = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        listener.set_nonblocking(true).expect("it is open");
        let routes =
            Router::new().route("/items/{key}", get(read).put(write).delete(remove)).with_state(values);
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("it does not block");
            tokio::select! {
                ended = axum::serve(listener, routes) => ended.expect("it serves until it is stopped"),
                _ = stopped => {}
            }
        });
    });
    Running { stop, thread }
}

async fn read(State(values): State<Values>, Path(key): Path<String>) -> Result<Bytes, StatusCode> {
    let value = values.lock().expect("no panics while held").get(&key).cloned();
    value.ok_or(StatusCode::NOT_FOUND)
}

async fn write(State(values): State<Values>, Path(key): Path<String>, value: Bytes) -> StatusCode {
    values.lock().expect("no panics while held").insert(key, value);
    StatusCode::NO_CONTENT
}

async fn remove(State(values): State<Values>, Path(key): Path<String>) -> StatusCode {
    values.lock().expect("no panics while held").remove(&key);
    StatusCode::NO_CONTENT
}
