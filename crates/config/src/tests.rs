//! Checks that the example file has every key that the code accepts, and that the reference made of
//! the code is up to date.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;

use super::raw::{
    RawAdmin, RawBackend, RawBus, RawBusTls, RawCliffhanger, RawCluster, RawControl, RawDeadline,
    RawDeadlineClasses, RawDispatch, RawFair, RawFile, RawGuard, RawInstance, RawLama, RawListener, RawLog,
    RawMemory, RawOtlp, RawPartition, RawProbe, RawRamp, RawResource, RawRetry, RawScheduler, RawScopedSlo,
    RawServer, RawServerTls, RawShared, RawSlo, RawSnapshot, RawSpanExport, RawStale, RawStore, RawTao,
    RawTenant, RawTenants, RawTicketsAccess, RawTls, RawTtlRule, RawWrites,
};

mod example;
mod reference;

const EXAMPLE: &str = include_str!("../../../sherwood.example.toml");
