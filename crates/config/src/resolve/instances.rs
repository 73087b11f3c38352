//! `cache` of a `[[partition]]`: external caches that are resized instead of the node's own.

use std::path::PathBuf;

use crate::spanned::Spanned;

use crate::flags::Flags;
use crate::meaning::{Control, Listener, Partition};
use crate::problem::{Origin, Problems};
use crate::raw::{RawFile, RawInstance};
use crate::scope::{Given, Setting, bytes, given, one_of};
use crate::setup::{InstanceKind, InstanceSetup};
use crate::units::quoted;

const KIND: Setting = Setting::new("[[partition]]", "cache.kind", "\"memcached\"");
const KINDS: [(&str, InstanceKind); 2] =
    [("memcached", InstanceKind::Memcached), ("redis", InstanceKind::Redis)];

/// Maximum length of an address and of a user name, bytes: that of a host name, and some.
const TEXT_BYTES_MAX: usize = 300;

/// Resolves the instance of a partition; none if it has none, or an invalid one.
pub(super) fn instance(
    table: Option<&Spanned<RawInstance>>,
    problems: &mut Problems<'_>,
) -> Option<InstanceSetup> {
    let table = table?;
    let RawInstance { kind, address, user, password_file } = table.get_ref();
    let Some(kind) = given(kind) else {
        let message = "[[partition]] cache has no kind; it must be \"memcached\" or \"redis\": set kind = \"memcached\"";
        problems.add(&bytes(table), message);
        return None;
    };
    let kind = one_of(problems, KIND, Some(kind), &KINDS);
    let Some(address) = given(address) else {
        let message = "[[partition]] cache has no address; it must have host and port: set address = \"127.0.0.1:11211\"";
        problems.add(&bytes(table), message);
        return None;
    };
    let user = given(user).and_then(|user| checked_user(user, problems));
    if let Some(user) = user.as_ref().filter(|_| password_file.is_none()) {
        let message = "[[partition]] cache has a user and no password_file; it must have both, or no user: set \
                       password_file = \"cache.password\"";
        problems.add(&user.origin, message);
    }
    let password_file = password_file.as_ref().map(|file| PathBuf::from(file.get_ref()));
    let address = checked_address(&address, problems)?;
    Some(InstanceSetup { kind, address, user: user.map(|user| user.value), password_file })
}

fn checked_address(address: &Given<String>, problems: &mut Problems<'_>) -> Option<String> {
    let Given { value, origin } = address;
    let port = value.rsplit_once(':').filter(|(host, _)| !host.is_empty() && value.len() <= TEXT_BYTES_MAX);
    if port.is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
        let shown = quoted(value);
        let message = format!(
            "[[partition]] cache.address is \"{shown}\"; it must be host and port: set address = \"127.0.0.1:11211\""
        );
        problems.add(origin, message);
        return None;
    }
    Some(value.clone())
}

fn checked_user(user: Given<String>, problems: &mut Problems<'_>) -> Option<Given<String>> {
    let fits = (1..=TEXT_BYTES_MAX).contains(&user.value.len()) && user.value.bytes().all(|byte| byte > b' ');
    if !fits {
        let shown = quoted(&user.value);
        let message = format!(
            "[[partition]] cache.user is \"{shown}\"; it must have 1 to {TEXT_BYTES_MAX} bytes and no blanks: leave it out \
             for the default user"
        );
        problems.add(&user.origin, message);
    }
    fits.then_some(user)
}

/// Checks that the rest of the configuration is compatible with instances, if there are any.
pub(super) fn check(
    file: &RawFile,
    flags: &Flags,
    (partitions, listeners): (&[Partition], &[Listener]),
    control: &Control,
    problems: &mut Problems<'_>,
) {
    let Some(first) = file.partition.iter().find_map(|partition| partition.get_ref().cache.as_ref()) else {
        return;
    };
    let origin = bytes(first);
    // A cache that was refused has a problem of its own.
    let said = file.partition.iter().filter(|partition| partition.get_ref().cache.is_some()).count();
    let understood = partitions.iter().filter(|partition| partition.instance.is_some()).count();
    if let Some(without) = partitions.iter().find(|one| one.instance.is_none() && said == understood) {
        let message = format!(
            "[[partition]] cache is said of some partitions and not of {}; all of them must have one, or none: list each \
             backend's partition with its cache",
            without.name
        );
        problems.add(&origin, message);
    }
    if !listeners.is_empty() {
        let origin = file.listener.first().map_or(origin.clone(), bytes);
        let message = "a node that resizes caches of others ([[partition]] cache) serves none of its own; it must have no \
                       listener: take it out";
        problems.add(&origin, message);
    }
    if let Some(snapshot) = &file.memory.snapshot {
        let message = "[memory] snapshot keeps what the node's own cache holds; a node that resizes caches of others ([[partition]] \
                       cache) has none to keep: remove it";
        problems.add(&bytes(snapshot), message);
    }
    if control.policy == "shared-lru" {
        let origin = flags.policy.as_ref().map_or(origin, |_| Origin::Flag("--policy"));
        let message = "[control] policy is \"shared-lru\"; caches of others cannot share one LRU: set policy = \"robinhood\"";
        problems.add(&origin, message);
    }
}
