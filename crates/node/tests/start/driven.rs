//! A node without ports and threads, on a clock that the test drives; the test also runs the
//! control loop and the housekeeper.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use sherwood_config::{Flags, parse};

use crate::start::*;

pub(super) struct Driven {
    pub(super) nanos: &'static AtomicU64,
    pub(super) core: Arc<Core>,
    router: Router,
    pub(super) runtime: Runtime,
    _stop: watch::Sender<bool>,
}

impl Driven {
    /// Builds the node of `configuration`, without listeners.
    pub(super) fn new(configuration: &str) -> Self {
        Self::with(configuration, |_| ())
    }

    /// Builds the node of `configuration` after a change of its setup.
    pub(super) fn with(configuration: &str, change: impl FnOnce(&mut Setup)) -> Self {
        let nanos = Box::leak(Box::new(AtomicU64::new(Clock::start().now().as_nanos())));
        Self::on_clock(nanos, configuration, change)
    }

    /// Builds the node of `configuration` after a change of its setup. Its clock shows `nanos`.
    pub(super) fn on_clock(
        nanos: &'static AtomicU64,
        configuration: &str,
        change: impl FnOnce(&mut Setup),
    ) -> Self {
        let policies = sherwood_policy::available_without_options();
        let config = parse("driven.toml", configuration, &Flags::default(), policies).unwrap();
        let mut setup = Setup::from_config(&config).unwrap();
        change(&mut setup);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let engine = Engine::new(&setup, Clock::driven(nanos)).unwrap();
        let parts = Parts::new(engine, &setup, runtime.handle()).unwrap();
        let (stop, stopping) = watch::channel(false);
        let core = Arc::new(parts.core(&setup, (std::thread::current(), None), stopping).unwrap());
        let router = router(Arc::clone(&core));
        Self { nanos, core, router, runtime, _stop: stop }
    }

    pub(super) fn pass(&self, time: Duration) {
        self.nanos.fetch_add(time.as_nanos() as u64, Relaxed);
    }

    /// Runs a decision of the control loop and all pending work of the housekeeper.
    pub(super) fn decide(&self) {
        let now = self.core.clock.now();
        self.core.control().decide(now);
        while self.core.cache.step(now, 4_096) {}
    }

    /// Has the level between tenants observe, decide if it is due, and make a step, and runs all
    /// pending work of the housekeeper.
    pub(super) fn advance(&self) {
        let now = self.core.clock.now();
        self.core.control().advance(now);
        while self.core.cache.step(now, 4_096) {}
    }

    /// Returns the status and the body of the answer to a request that changes or asks something.
    pub(super) fn answer(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let (status, text) = self.exchange(method, path, Body::from(body.to_string()));
        (status.as_u16(), serde_json::from_str(&text).unwrap())
    }

    /// Returns the body of the answer to an HTTP request.
    #[track_caller]
    fn ask(&self, method: &str, path: &str, body: Body) -> String {
        let (status, text) = self.exchange(method, path, body);
        assert!(status.is_success(), "{method} {path}: {status} {text}");
        text
    }

    fn exchange(&self, method: &str, path: &str, body: Body) -> (StatusCode, String) {
        let request = Request::builder().method(method).uri(path).body(body).unwrap();
        let router = TowerToHyperService::new(self.router.clone());
        self.runtime.block_on(async {
            let response = router.call(request).await.unwrap();
            let status = response.status();
            let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
            (status, String::from_utf8(body.into()).unwrap())
        })
    }

    #[track_caller]
    pub(super) fn get(&self, path: &str) -> Value {
        serde_json::from_str(&self.ask("GET", path, Body::empty())).unwrap()
    }

    #[track_caller]
    pub(super) fn post(&self, path: &str, body: &Value) -> Value {
        serde_json::from_str(&self.ask("POST", path, Body::from(body.to_string()))).unwrap()
    }

    #[track_caller]
    pub(super) fn put(&self, path: &str, body: &Value) -> Value {
        serde_json::from_str(&self.ask("PUT", path, Body::from(body.to_string()))).unwrap()
    }

    /// Returns the value of one of the node's metrics.
    #[track_caller]
    pub(super) fn metric(&self, name: &str) -> f64 {
        let text = self.ask("GET", "/metrics", Body::empty());
        let sample = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        sample.unwrap_or_else(|| panic!("no {name} in\n{text}")).parse().unwrap()
    }
}
