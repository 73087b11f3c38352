//! memcached's statistics, with memcached's names, in both of its protocols.

use std::fmt::Display;

use sherwood_wire::memcached::reply;

use crate::address::{Address, UnixSocket};
use crate::clock::Moment;
use crate::counters::Count;
use crate::shared::Shared;
use crate::standing::TenantStanding;
use crate::tenants::TenantSlot;

/// A function that receives the name and the value of each statistic.
type Sink<'a> = &'a mut dyn FnMut(&str, &str);

/// A group of statistics, selected by the argument of `stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Group {
    /// The counters and sizes that `stats` lists without an argument.
    General,
    Settings,
    /// A group of memcached about slabs and their queues, which do not exist here, or about
    /// prefixes of keys, which are not counted.
    Empty,
    /// `stats reset`: resets the counters instead of listing them.
    Reset,
}

impl Group {
    /// Returns the group of this name; none if there is no such group.
    pub(super) fn named(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"" => Self::General,
            b"settings" => Self::Settings,
            b"reset" => Self::Reset,
            b"items" | b"slabs" | b"sizes" | b"conns" => Self::Empty,
            // Only a binary request names a group by two words.
            b"detail on" | b"detail off" | b"detail dump" => Self::Empty,
            _ => return None,
        })
    }

    /// Lists the statistics of the group for a client of the tenant in `slot`, or resets the
    /// tenant's counters.
    pub(super) fn list(self, shared: &Shared, slot: TenantSlot, moment: Moment, stat: Sink<'_>) {
        match self {
            Self::General => general(shared, slot, moment, stat),
            Self::Settings => settings(shared, slot, stat),
            Self::Empty => {}
            Self::Reset => shared.reset(slot),
        }
    }
}

/// Answers the text command `stats` for a client of the tenant in `slot`; `words` is the rest of
/// the command line.
pub(super) fn write(shared: &Shared, slot: TenantSlot, moment: Moment, words: &[u8], out: &mut Vec<u8>) {
    let name = words.split(|&byte| byte == b' ').next().unwrap_or_default();
    let Some(group) = Group::named(name) else { return out.extend_from_slice(reply::ERROR) };
    group.list(shared, slot, moment, &mut |name, value| reply::stat(out, name, value));
    out.extend_from_slice(if group == Group::Reset { reply::RESET } else { reply::END });
}

fn general(shared: &Shared, slot: TenantSlot, moment: Moment, sink: Sink<'_>) {
    let Shared { options, service, connections, started, .. } = shared;
    let usage = shared.service.usage(slot);
    let mut stat = |name: &str, value: &dyn Display| sink(name, &value.to_string());
    stat("pid", &std::process::id());
    stat("uptime", &moment.now.since(started.now).as_secs());
    stat("time", &moment.unix_secs);
    stat("version", &crate::VERSION);
    stat("pointer_size", &usize::BITS);
    stat("max_connections", &service.connection_limit.max());
    stat("curr_connections", &connections.now());
    stat("total_connections", &connections.total());
    stat("rejected_connections", &connections.rejected());
    stat("accepting_conns", &1);
    // Connections over the limit get an error: accepting is never suspended.
    stat("listen_disabled_num", &0);
    stat("time_in_listen_disabled_us", &0);
    stat("threads", &options.threads);
    let counts = shared.counts_since_reset(slot);
    for (count, name) in Count::ALL {
        stat(name, &counts.get(count));
    }
    stat("limit_maxbytes", &service.bytes_max(slot));
    stat("bytes", &usage.used_bytes);
    stat("curr_items", &usage.items);
    stat("evictions", &usage.evictions);
    stat("reclaimed", &usage.expired);
    for (name, value) in service.standing(slot).iter().flat_map(TenantStanding::lines) {
        stat(&name, &value);
    }
}

fn settings(shared: &Shared, slot: TenantSlot, sink: Sink<'_>) {
    let options = &shared.options;
    let mut stat = |name: &str, value: &dyn Display| sink(name, &value.to_string());
    stat("maxbytes", &shared.service.bytes_max(slot));
    stat("maxconns", &shared.service.connection_limit.max());
    let tcp = options.bind.tcp();
    stat("tcpport", &tcp.map_or(0, |address| address.port()));
    stat("udpport", &0);
    match &options.bind {
        Address::Tcp(address) => stat("inter", &address.ip()),
        Address::Unix(UnixSocket { path, permissions }) => {
            stat("domain_socket", &path.display());
            stat("umask", &format_args!("{permissions:o}"));
        }
    }
    stat("evictions", &"on");
    stat("num_threads", &options.threads);
    stat("cas_enabled", &"yes");
    let logs_in = if shared.service.passwords.is_some() { "yes" } else { "no" };
    stat("auth_enabled_sasl", &logs_in);
    stat("auth_enabled_ascii", &logs_in);
    stat("binding_protocol", &"auto-negotiate");
    stat("item_size_max", &options.item_size_max);
    stat("idle_timeout", &options.idle_timeout.unwrap_or_default().as_secs());
    stat("flush_enabled", &"yes");
}
