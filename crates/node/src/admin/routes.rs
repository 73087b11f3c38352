//! Every route of the port with its description: the one definition of router and OpenAPI document.

use std::sync::Arc;

use axum::Router;
use axum::handler::Handler;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use axum::routing::{MethodFilter, on};

use super::operation::{Operation, Route, document};
use super::{
    backends, cluster, control, events, exposition, history, hot_keys, invalidate, key_view, keys, mrc,
    partitions, ready, recording, reload, replication, standing, status_page, stores, tenants,
};
use crate::control::{ControlView, DivisionView, ReplicationView, SaidTrade, TenantsView};
use crate::core::Core;
use crate::gateway::{self, AskedRequest, RequestAnswer};
use crate::{dashboard, traces};

/// The reason why keys are not shown.
const NO_KEYS: &str = "The token has read access only, and may not see clients' keys.";
/// The meaning of the header of tags.
const TAGS: &str = "Tags by which the value can be invalidated, separated by commas.";
/// The meaning of the header of sessions.
const SESSION: &str = "Sessions at replicated stores, as the last answer had them: `catalog=1f.2a`.";

const TEXT: &str = "text/plain";
const HTML: &str = "text/html";

/// Routes of the port.
#[derive(Default)]
pub(super) struct Routes {
    pub(super) router: Router<Arc<Core>>,
    pub(super) described: Vec<Route>,
}

impl Routes {
    fn on<H, T>(mut self, method: &'static str, path: &'static str, handler: H, operation: Operation) -> Self
    where
        H: Handler<T, Arc<Core>>,
        T: 'static,
    {
        let filter = match method {
            "GET" => MethodFilter::GET,
            "PUT" => MethodFilter::PUT,
            "POST" => MethodFilter::POST,
            "DELETE" => MethodFilter::DELETE,
            other => unreachable!("no route has the method {other}"),
        };
        self.router = self.router.route(path, on(filter, handler));
        self.described.push(Route { method, path, operation });
        self
    }

    fn get<H: Handler<T, Arc<Core>>, T: 'static>(
        self,
        path: &'static str,
        handler: H,
        of: Operation,
    ) -> Self {
        self.on("GET", path, handler, of)
    }

    fn put<H: Handler<T, Arc<Core>>, T: 'static>(
        self,
        path: &'static str,
        handler: H,
        of: Operation,
    ) -> Self {
        self.on("PUT", path, handler, of)
    }

    fn post<H: Handler<T, Arc<Core>>, T: 'static>(
        self,
        path: &'static str,
        handler: H,
        of: Operation,
    ) -> Self {
        self.on("POST", path, handler, of)
    }

    fn delete<H: Handler<T, Arc<Core>>, T: 'static>(
        self,
        path: &'static str,
        handler: H,
        of: Operation,
    ) -> Self {
        self.on("DELETE", path, handler, of)
    }
}

/// Returns every route of the port.
pub(super) fn all() -> Routes {
    let routes = Routes::default()
        .get("/", dashboard::page, op("dashboard", "The dashboard").answers_with(HTML).open())
        .get(
            "/dashboard/{file}",
            dashboard::file,
            op("dashboardFile", "A file of the dashboard").answers_with("*/*").open(),
        )
        .get(
            "/status",
            status_page::show,
            op("status", "The state of the node as a page of text").answers_with(TEXT),
        )
        .get(
            "/healthz",
            async || "ok\n",
            op("healthz", "Whether the process is alive").answers_with(TEXT).open(),
        )
        .get(
            "/readyz",
            ready,
            op("readyz", "Whether every listener accepts")
                .answers_with(TEXT)
                .refuses(503, "The node is shutting down.")
                .open(),
        )
        .get("/metrics", exposition, op("metrics", "Metrics for Prometheus").answers_with(TEXT))
        .get(
            "/v1/openapi.json",
            openapi,
            op("openapi", "This description of the API").answers::<serde_json::Value>(),
        );
    recordings(node(control(tenants(partitions(keys(requests(routes)))))))
}

fn requests(routes: Routes) -> Routes {
    let unknown = "A backend, tenant or class is unknown.";
    let deadline = "The time remaining until the answers are wanted, milliseconds.";
    routes
        .post(
            "/v1/requests",
            gateway::handle,
            op("request", "Runs a request, whose queries are looked up in parallel or in stages")
                .header("sherwood-deadline-ms", deadline)
                .header("sherwood-session", SESSION)
                .takes::<AskedRequest<'static>>()
                .answers::<RequestAnswer<'static>>()
                .refuses(400, "The body or a header is malformed; `path` or `header` names the place.")
                .refuses(422, unknown)
                .refuses(429, "The tenant has used its rate; `retry_ms` says when to try again.")
                .refuses(503, "There is no free buffer."),
        )
        .post(
            "/v1/reports",
            standing::reports,
            op("report", "Records requests that ran elsewhere, at most 100,000")
                .takes::<Vec<standing::Report<'static>>>()
                .answers::<standing::ReportedView>()
                .refuses(422, unknown),
        )
        .post(
            "/v1/traces",
            traces::export,
            op("traces", "Records requests of OpenTelemetry traces: OTLP over HTTP, protobuf or JSON")
                .takes_with("application/x-protobuf")
                .answers_with("application/x-protobuf")
                .refuses(415, "Another media type or encoding.")
                .refuses(503, "There is no free buffer."),
        )
}

fn keys(routes: Routes) -> Routes {
    routes
        .get(
            "/v1/hot-keys",
            hot_keys::show,
            op("hotKeys", "The keys of each partition that are read most, of a sample of the reads")
                .query::<hot_keys::Asked>()
                .answers::<Vec<hot_keys::HotKeysView>>()
                .refuses(403, NO_KEYS)
                .refuses(404, "The partition is unknown.")
                .refuses(409, "Another cache holds the partitions."),
        )
        .get(
            "/v1/keys/{backend}/{*key}",
            key_view::show,
            op("key", "What the cache holds of a key; counts as no use of it")
                .query::<key_view::Asked>()
                .answers::<key_view::KeyView>()
                .refuses(403, NO_KEYS)
                .refuses(404, "The backend or tenant is unknown.")
                .refuses(409, "Another cache holds the partitions.")
                .refuses(422, "The value is asked for, and several partitions are looked at."),
        )
        .put(
            "/v1/keys/{backend}/{*key}",
            keys::put,
            op("putKey", "Writes a key to the backend's store, then to the cache")
                .query::<keys::Writer>()
                .header("sherwood-tags", TAGS)
                .header("sherwood-session", SESSION)
                .takes_with("application/octet-stream")
                .refuses(404, "The backend or tenant is unknown.")
                .refuses(413, "The value is too large.")
                .refuses(422, "The store refuses the write, or there is none.")
                .refuses(429, "The tenant has used its rate; `retry_ms` says when to try again.")
                .refuses(502, "The backend cannot be reached.")
                .refuses(503, "Too many writes are in flight.")
                .refuses(504, "The backend does not answer in time."),
        )
        .delete(
            "/v1/keys/{backend}/{*key}",
            keys::remove,
            op("deleteKey", "Removes a key from the store, if it accepts changes, and from the cache")
                .query::<keys::Writer>()
                .header("sherwood-session", SESSION)
                .refuses(404, "The backend or tenant is unknown.")
                .refuses(422, "The store accepts writes, but no deletes.")
                .refuses(502, "The backend cannot be reached.")
                .refuses(504, "The backend does not answer in time."),
        )
        .post(
            "/v1/invalidate",
            invalidate::handle,
            op("invalidate", "Removes many keys of a backend from the cache")
                .takes::<invalidate::Asked>()
                .answers::<invalidate::RemovedView>()
                .refuses(400, "Not one of `keys`, `prefix` and `tag` is given.")
                .refuses(404, "The backend is unknown."),
        )
}

fn partitions(routes: Routes) -> Routes {
    routes
        .get(
            "/v1/partitions",
            partitions::list,
            op("partitions", "Every partition with its budget, use and counters")
                .answers::<Vec<partitions::PartitionView>>(),
        )
        .put(
            "/v1/partitions/{name}",
            partitions::change,
            op("changePartition", "Sets a budget by hand, pins it, or puts it into a dry run")
                .takes::<partitions::Change>()
                .answers::<partitions::PinnedView>()
                .refuses(404, "The partition is unknown.")
                .refuses(409, "A policy sizes the partitions.")
                .refuses(422, "The size does not fit; `free_bytes` is the largest possible one."),
        )
        .get(
            "/v1/mrc/{partition}",
            mrc::show,
            op("missRatioCurve", "The miss ratio of a partition at other sizes")
                .answers::<mrc::CurveView>()
                .refuses(404, "The partition is unknown.")
                .refuses(409, "No curves are kept."),
        )
}

fn tenants(routes: Routes) -> Routes {
    let none = "The node has no tenants.";
    routes
        .get(
            "/v1/tenants",
            tenants::list,
            op("tenants", "The division among tenants").answers::<TenantsView>().refuses(409, none),
        )
        .get(
            "/v1/tenants/trades",
            tenants::trades,
            op("trades", "The latest trades between tenants, newest first")
                .answers::<Vec<SaidTrade>>()
                .refuses(409, none),
        )
        .post(
            "/v1/tenants/what-if",
            tenants::what_if,
            op("whatIf", "A division with other weights or more tenants; nothing changes")
                .takes::<tenants::WhatIf>()
                .answers::<DivisionView>()
                .refuses(409, none)
                .refuses(422, "A value is out of range."),
        )
        .put(
            "/v1/tenants/{name}",
            tenants::change,
            op("changeTenant", "Sets a tenant's weight or least bytes")
                .takes::<tenants::Change>()
                .answers::<tenants::TermsView>()
                .refuses(404, "The tenant is unknown.")
                .refuses(409, "The baseline of the tenant is stated, or the node has no tenants.")
                .refuses(422, "The minimum exceeds the baseline, `base_bytes`."),
        )
}

fn control(routes: Routes) -> Routes {
    routes
        .get(
            "/v1/rbc",
            standing::rbc,
            op("blockingCounts", "Request blocking counts").answers::<standing::RbcView>(),
        )
        .get(
            "/v1/slo",
            standing::slo,
            op("slo", "The SLO and its observations").answers::<standing::SloView>(),
        )
        .get(
            "/v1/control",
            control::show,
            op("control", "The control loop and its latest decision").answers::<ControlView>(),
        )
        .put(
            "/v1/control",
            control::change,
            op("changeControl", "Switches the policy, dry run or the guard")
                .takes::<control::Change>()
                .answers::<ControlView>()
                .refuses(422, "The policy is unknown, or cannot be set on this node."),
        )
        .get(
            "/v1/replication",
            replication::show,
            op("replication", "The copies of calls in the tiers of an application")
                .answers::<ReplicationView>()
                .refuses(404, "The node has no [replication]."),
        )
}

fn node(routes: Routes) -> Routes {
    routes
        .get(
            "/v1/history",
            history::show,
            op("history", "The last minutes or the last hour, in columns")
                .query::<history::Asked>()
                .answers::<history::HistoryView>()
                .refuses(400, "There is no history with this step."),
        )
        .get(
            "/v1/cluster",
            cluster::show,
            op("cluster", "The other nodes of the cluster, and the trust in shared backends")
                .answers::<cluster::ClusterView>()
                .refuses(404, "The node has no [cluster]."),
        )
        .get(
            "/v1/stores",
            stores::list,
            op("stores", "The replicated stores and their duplicates").answers::<Vec<stores::StoreView>>(),
        )
        .put(
            "/v1/stores/{name}",
            stores::change,
            op("changeStore", "Changes the partitions and duplicates of a replicated store")
                .takes::<stores::Change>()
                .answers::<stores::StoreView>()
                .refuses(404, "The backend is unknown.")
                .refuses(422, "The backend is not replicated, or cannot have this layout."),
        )
        .get(
            "/v1/backends",
            backends::list,
            op("backends", "The backends and their limits").answers::<Vec<backends::BackendView>>(),
        )
        .put(
            "/v1/backends/{name}/limit",
            backends::limit,
            op("limitBackend", "Limits an embedded store, or lifts a limit")
                .takes::<backends::LimitChange>()
                .answers::<backends::LimitedView>()
                .refuses(404, "The backend is unknown.")
                .refuses(422, "The backend cannot be limited, or not so."),
        )
}

fn recordings(routes: Routes) -> Routes {
    let no_recording = "Nothing is being recorded.";
    routes
        .get(
            "/v1/recording",
            recording::show,
            op("recording", "The recording so far")
                .answers::<recording::RecordingView>()
                .refuses(409, no_recording),
        )
        .post(
            "/v1/recording",
            recording::begin,
            op("beginRecording", "Begins a recording, the input of a simulation of the node")
                .query::<recording::Begin>(),
        )
        .delete(
            "/v1/recording",
            recording::end,
            op("endRecording", "Ends the recording").refuses(409, no_recording),
        )
        .post(
            "/v1/reload",
            reload::reload,
            op("reload", "Reads the configuration again")
                .query::<reload::Asked>()
                .answers::<reload::ReloadedView>()
                .refuses(
                    422,
                    "Nothing was changed; `needs_restart` names settings that a running node cannot change.",
                )
                .refuses(503, "The node has no file, or is busy with other reloads."),
        )
        .get(
            "/v1/events",
            events::stream,
            op("events", "Decisions and other events as they happen (server-sent events)")
                .answers_with("text/event-stream")
                .refuses(503, "Too many streams are open."),
        )
}

fn op(id: &'static str, summary: &'static str) -> Operation {
    Operation::new(id, summary)
}

async fn openapi() -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], document(&all().described).to_string())
}
