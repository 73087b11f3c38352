//! Metrics of the process, and of the node as a program.

use std::fmt;
use std::fs;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use sherwood_listener::CpuTimes;
use sherwood_process::cpu::{TICKS_PER_SECOND, ticks, times_of};
use sherwood_process::resident::resident_bytes;

use super::samples::{family, gauges, one};
use crate::core::Core;

/// Bytes of a unit of `/proc/self/status`.
const KIB: f64 = 1024.0;

/// Encodes the version and the age of the node.
pub(super) fn encode_node(core: &Arc<Core>, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let version = vec![(vec![("version", env!("CARGO_PKG_VERSION").to_owned())], 1.0)];
    gauges(encoder, "build_info", "1, with the version of this program", version)?;
    let uptime = core.clock.uptime().as_secs_f64();
    gauges(encoder, "uptime_seconds", "Time since the node started", one(uptime))
}

/// Encodes the memory that the node limits, and its limit.
pub(super) fn encode_memory(core: &Core, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    if let Some(bytes) = resident_bytes() {
        let held = core.buffers.bytes();
        let limit = core.resident_limit.as_ref();
        let bytes =
            limit.map_or_else(|| bytes.saturating_sub(held), |limit| limit.without_clients(bytes, held));
        let help = "Resident memory without that of clients and files, which the node keeps within its limit";
        gauges(encoder, "memory_resident_bytes", help, one(bytes as f64))?;
    }
    if let Some(bytes_max) = core.resident_limit.as_ref().map(|limit| limit.bytes_max()) {
        let help = "Resident memory without that of clients and files above which partitions shrink";
        gauges(encoder, "memory_limit_bytes", help, one(bytes_max as f64))?;
    }
    Ok(())
}

/// The metrics that Prometheus' libraries report of every process, read from `/proc`. One that
/// cannot be read is left out.
#[derive(Debug)]
pub(super) struct Process;

impl Collector for Process {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let read = |name: &str| fs::read_to_string(name).unwrap_or_default();
        let stat = read("/proc/self/stat");
        if let Some(seconds) = cpu_seconds(&stat) {
            let help = "User and system CPU time";
            let samples = std::iter::once((Vec::new(), ConstCounter::new(seconds)));
            family(&mut encoder, "process_cpu_seconds", help, samples)?;
        }
        let status = read("/proc/self/status");
        let open = fs::read_dir("/proc/self/fd").ok().map(|files| files.count() as f64);
        let all = [
            ("process_open_fds", "Open file descriptors", open),
            (
                "process_max_fds",
                "Most file descriptors that may be open",
                max_fds(&read("/proc/self/limits")),
            ),
            (
                "process_start_time_seconds",
                "Start of the process, in Unix time",
                start_seconds(&stat, &read("/proc/stat")),
            ),
            ("process_resident_memory_bytes", "Resident memory", kib(&status, "VmRSS:")),
            ("process_virtual_memory_bytes", "Virtual memory", kib(&status, "VmSize:")),
        ];
        for (name, help, value) in all {
            if let Some(value) = value {
                gauges(&mut encoder, name, help, one(value))?;
            }
        }
        Ok(())
    }
}

fn cpu_seconds(stat: &str) -> Option<f64> {
    let CpuTimes { user, system } = times_of(stat)?;
    Some((user + system).as_secs_f64())
}

/// Returns when the process started, seconds of Unix time; the system counts from its boot.
fn start_seconds(stat: &str, system: &str) -> Option<f64> {
    let boot = system.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(boot.trim().parse::<f64>().ok()? + ticks(stat, 22)? / TICKS_PER_SECOND)
}

/// Returns the soft limit; none where it is unlimited.
fn max_fds(limits: &str) -> Option<f64> {
    let limits = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    limits.split_whitespace().next()?.parse().ok()
}

fn kib(status: &str, name: &str) -> Option<f64> {
    let value = status.lines().find_map(|line| line.strip_prefix(name))?;
    Some(value.trim().strip_suffix(" kB")?.parse::<f64>().ok()? * KIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_any_program_name() {
        let stat = "7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 8 0 4200 999 12\n";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(start_seconds(stat, "cpu 1\nbtime 1000\n"), Some(1042.0));
    }

    #[test]
    fn unreadable_values_are_left_out() {
        assert_eq!((cpu_seconds(""), start_seconds("1 (a) S", "btime x")), (None, None));
        assert_eq!((kib("VmRSS: x kB", "VmRSS:"), max_fds("Max open files unlimited")), (None, None));
        assert_eq!(kib("VmRSS:\t  12 kB\n", "VmRSS:"), Some(12_288.0));
        assert_eq!(max_fds("Max open files            1024   4096  files"), Some(1024.0));
    }
}
