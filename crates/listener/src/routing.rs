//! Routing of keys to partitions.

use sherwood_model::{PartitionId, TenantId};
use thiserror::Error;

/// Routes from a listener's keys to partitions: all keys to one partition, or each by its longest
/// prefix.
///
/// The prefix is cut off before the key is looked up, so that `catalog/p:1` through a listener and
/// `p:1` of backend `catalog` through the gateway are one entry. A look-up is a binary search over
/// the prefixes and one step per prefix that the found one itself starts with: about 5 comparisons
/// for 30 prefixes.
#[derive(Clone, Debug)]
pub struct Routing {
    /// Target of keys that match no other prefix. The empty prefix is kept apart so that no key is
    /// ever compared with an empty string. Such a comparison reads nothing, but if the string has
    /// no memory it may take a hundred nanoseconds on processors that mask loads instead of
    /// skipping them.
    rest: Option<Target>,
    /// All routes but that of the empty prefix, sorted by prefix.
    routes: Vec<PrefixRoute>,
    /// Tenant of the clients that have these routes.
    tenant: TenantId,
    /// Indices of the tenant's own routes in `routes`, ascending.
    own: Vec<u32>,
    /// True if any target is write-through.
    writes_through: bool,
    shares: bool,
}

/// The partition that a key is routed to, and how misses are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Partition that holds the key.
    pub partition: PartitionId,
    /// Tenant for which the requests are made.
    pub tenant: TenantId,
    /// True if misses of the partition are fetched from its backend.
    pub read_through: bool,
    /// True if what clients store and delete goes to the partition's backend.
    pub write_through: bool,
    /// True if other nodes cache the partition's values, too, so that they may not always be
    /// trusted.
    pub shared: bool,
}

#[derive(Clone, Debug)]
struct PrefixRoute {
    prefix: Vec<u8>,
    target: Target,
    /// Index of the longest other prefix that is the start of this one.
    parent: Option<usize>,
}

/// The error of routes whose prefixes are ambiguous.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RoutingError {
    /// Two backends have the same prefix.
    #[error("keys were to be routed by prefix, and two backends have the prefix {0:?}: give each its own")]
    Twice(String),
}

impl Routing {
    /// Routes all keys to one partition and leaves them unchanged.
    #[must_use]
    pub fn single(target: Target) -> Self {
        let (tenant, writes_through, shares) = (target.tenant, target.write_through, target.shared);
        Self { rest: Some(target), routes: Vec::new(), tenant, own: Vec::new(), writes_through, shares }
    }

    /// Routes each key by its longest prefix, which must be shorter than the key. An empty prefix
    /// takes all other keys. Commands that concern all keys, such as a flush, concern those whose
    /// target has this `tenant`. O(n log n).
    ///
    /// # Errors
    /// When two prefixes are equal.
    pub fn by_prefix(
        tenant: TenantId,
        prefixes: impl IntoIterator<Item = (String, Target)>,
    ) -> Result<Self, RoutingError> {
        let mut routes: Vec<PrefixRoute> = prefixes
            .into_iter()
            .map(|(prefix, target)| PrefixRoute { prefix: prefix.into_bytes(), target, parent: None })
            .collect();
        routes.sort_by(|a, b| a.prefix.cmp(&b.prefix));
        if let Some(twins) = routes.windows(2).find(|pair| pair[0].prefix == pair[1].prefix) {
            return Err(RoutingError::Twice(String::from_utf8_lossy(&twins[0].prefix).into_owned()));
        }
        let rest = routes.first().filter(|route| route.prefix.is_empty()).map(|route| route.target);
        routes.drain(..usize::from(rest.is_some()));
        // The routes with whose prefix that of the current one begins, each inside the one before.
        let mut around: Vec<usize> = Vec::new();
        for child in 0..routes.len() {
            while around.last().is_some_and(|&at| !routes[child].prefix.starts_with(&routes[at].prefix)) {
                around.pop();
            }
            routes[child].parent = around.last().copied();
            around.push(child);
        }
        let own = (0..).zip(&routes).filter(|(_, route)| route.target.tenant == tenant);
        let own = own.map(|(index, _)| index).collect();
        let targets: Vec<_> = rest.iter().chain(routes.iter().map(|route| &route.target)).collect();
        let writes_through = targets.iter().any(|target| target.write_through);
        let shares = targets.iter().any(|target| target.shared);
        Ok(Self { rest, routes, tenant, own, writes_through, shares })
    }

    /// Returns the tenant of the clients that have these routes.
    #[must_use]
    pub fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// Returns the target of `key` and the key without its prefix, or none if no prefix matches.
    #[must_use]
    pub fn find<'k>(&self, key: &'k [u8]) -> Option<(Target, &'k [u8])> {
        self.find_prefix(key).or_else(|| Some((self.rest.filter(|_| !key.is_empty())?, key)))
    }

    fn find_prefix<'k>(&self, key: &'k [u8]) -> Option<(Target, &'k [u8])> {
        // All prefixes of the key sort before it, and between the longest of them and the key are
        // only prefixes that start with that longest one.
        let mut at = self.routes.partition_point(|route| route.prefix.as_slice() < key).checked_sub(1)?;
        loop {
            let route = &self.routes[at];
            match key.strip_prefix(route.prefix.as_slice()) {
                Some(name) => return Some((route.target, name)),
                None => at = route.parent?,
            }
        }
    }

    /// Returns true if any target is write-through.
    pub(super) fn writes_through(&self) -> bool {
        self.writes_through
    }

    /// Returns true if other nodes cache the values of any target.
    pub(super) fn shares(&self) -> bool {
        self.shares
    }

    /// Returns the number of the tenant's own routes, that of the empty prefix included.
    #[must_use]
    pub fn routes(&self) -> usize {
        usize::from(self.own_rest().is_some()) + self.own.len()
    }

    /// Returns the prefix and the target of the tenant's own route at `index`, in the order of
    /// prefixes.
    #[must_use]
    pub fn route(&self, index: usize) -> Option<(&[u8], Target)> {
        let index = match self.own_rest() {
            Some(target) if index == 0 => return Some((b"", target)),
            Some(_) => index - 1,
            None => index,
        };
        let route = &self.routes[*self.own.get(index)? as usize];
        Some((route.prefix.as_slice(), route.target))
    }

    fn own_rest(&self) -> Option<Target> {
        self.rest.filter(|target| target.tenant == self.tenant)
    }

    /// Returns the partitions of the tenant's own routes, each once.
    #[must_use]
    pub fn partitions(&self) -> Vec<PartitionId> {
        let own = (0..self.routes()).filter_map(|index| self.route(index));
        let mut partitions: Vec<_> = own.map(|(_, target)| target.partition).collect();
        partitions.sort_unstable();
        partitions.dedup();
        partitions
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::*;

    fn target(partition: usize) -> Target {
        Target {
            partition: PartitionId::from_index(partition),
            tenant: TenantId(0),
            read_through: false,
            write_through: false,
            shared: false,
        }
    }

    fn routing(prefixes: &[&str]) -> Routing {
        let numbered = prefixes.iter().enumerate().map(|(at, prefix)| ((*prefix).to_owned(), target(at)));
        Routing::by_prefix(TenantId(0), numbered).unwrap()
    }

    #[test]
    fn longest_prefix_of_a_key_selects_its_route_and_is_removed() {
        let routing = routing(&["catalog/", "catalog/eu/", "user/"]);
        assert_eq!(routing.find(b"catalog/p:1"), Some((target(0), &b"p:1"[..])));
        assert_eq!(routing.find(b"catalog/eu/p:1"), Some((target(1), &b"p:1"[..])));
        assert_eq!(routing.find(b"catalog/zz"), Some((target(0), &b"zz"[..])));
        assert_eq!(routing.find(b"user/7"), Some((target(2), &b"7"[..])));
        for stranger in ["catalo", "catalog", "a", "z", "userx", ""] {
            assert_eq!(routing.find(stranger.as_bytes()), None, "{stranger}");
        }
    }

    #[test]
    fn key_equal_to_a_prefix_goes_to_the_shorter_prefix() {
        let routing = routing(&["a/", "a/b/", ""]);
        assert_eq!(routing.find(b"a/"), Some((target(2), &b"a/"[..])));
        assert_eq!(routing.find(b"a/b/"), Some((target(0), &b"b/"[..])));
    }

    #[test]
    fn single_route_takes_every_key_unchanged() {
        let routing = Routing::single(target(3));
        assert_eq!(routing.find(b"any/key"), Some((target(3), &b"any/key"[..])));
        assert_eq!(routing.partitions(), [PartitionId(3)]);
    }

    #[test]
    fn routes_are_indexed_in_the_order_of_their_prefixes() {
        for prefixes in [&["", "a/", "b/"][..], &["a/", "b/"], &[""]] {
            let routing = routing(prefixes);
            let named = (0..routing.routes()).map(|at| routing.route(at).unwrap().0);
            assert!(named.eq(prefixes.iter().map(|prefix| prefix.as_bytes())), "{prefixes:?}");
            assert_eq!(routing.route(prefixes.len()), None);
            assert_eq!(routing.partitions().len(), prefixes.len());
        }
        assert_eq!(routing(&[""]).find(b""), None, "an empty key is nobody's");
    }

    #[test]
    fn routes_with_equal_prefixes_are_refused() {
        let twice = [("a/".to_owned(), target(0)), ("a/".to_owned(), target(1))];
        let error = Routing::by_prefix(TenantId(0), twice).unwrap_err();
        assert_eq!(error, RoutingError::Twice("a/".to_owned()));
    }

    #[test]
    fn commands_on_all_keys_concern_only_the_routes_of_the_clients_tenant() {
        let of = |prefix: &str, partition, tenant| {
            (prefix.to_owned(), Target { tenant: TenantId(tenant), ..target(partition) })
        };
        let shared = [of("", 0, 0), of("a/", 1, 1), of("b/", 2, 0), of("c/", 3, 1)];
        let routing = Routing::by_prefix(TenantId(0), shared.clone()).unwrap();
        assert_eq!(routing.partitions(), [PartitionId(0), PartitionId(2)]);
        assert_eq!(routing.routes(), 2);
        assert_eq!(routing.find(b"a/x").unwrap().0.partition, PartitionId(1));
        let of_one = Routing::by_prefix(TenantId(1), shared).unwrap();
        assert_eq!(of_one.route(0).unwrap().0, b"a/");
        assert_eq!(of_one.partitions(), [PartitionId(1), PartitionId(3)]);
        let of_none = Routing::by_prefix(TenantId(2), []).unwrap();
        assert_eq!((of_none.routes(), of_none.find(b"a"), of_none.partitions()), (0, None, vec![]));
    }

    proptest! {
        #[test]
        fn routing_finds_the_same_target_as_a_search_of_all_prefixes(prefixes in btree_set("[ab]{0,4}", 0..12), keys in vec("[ab]{0,6}", 20)) {
            let prefixes: Vec<&str> = prefixes.iter().map(String::as_str).collect();
            let routing = routing(&prefixes);
            for key in &keys {
                let longest = prefixes
                    .iter()
                    .enumerate()
                    .filter(|(_, prefix)| key.starts_with(**prefix) && key.len() > prefix.len())
                    .max_by_key(|(_, prefix)| prefix.len());
                let expected = longest.map(|(at, prefix)| (target(at), &key.as_bytes()[prefix.len()..]));
                prop_assert_eq!(routing.find(key.as_bytes()), expected);
            }
        }
    }
}
