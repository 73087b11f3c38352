//! Messages by which nodes lend each other rates, as Protocol Buffers. What names a resource or
//! tenant that the receiver does not have is left out.

use prost::{DecodeError, Message as _};
use proto::rate_message::Contents;
use sherwood_config::ResourceSetup;
use sherwood_dispatch::{RateAmount, RateAsk, RateGrant, RatePart};
use sherwood_model::{Instant, ResourceId, TenantId};

use super::generated as proto;
use crate::cluster::{RateContents, RateMessage};
use crate::names::Names;

/// Requests and answers in a message, at most. Each takes at most some 6 KiB, and the names of all
/// as much as 128 KiB, so that they fit into 256 KiB.
pub(super) const MESSAGES_MAX: usize = 16;

/// The names that messages refer to.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub(super) names: &'a Names,
    pub(super) resources: &'a [ResourceSetup],
}

/// Returns messages as bytes.
pub(super) fn encode(known: Known<'_>, messages: &[RateMessage]) -> Vec<u8> {
    let mut writer = Writer { known, resources: Vec::new(), tenants: Vec::new() };
    let messages = messages.iter().map(|message| writer.message(message)).collect();
    proto::Rates { resources: writer.resources, tenants: writer.tenants, messages }.encode_to_vec()
}

/// Returns the requests and answers in these bytes that are for the node `own`.
///
/// # Errors
/// If they are no such message.
pub(super) fn decode(known: Known<'_>, own: &str, bytes: &[u8]) -> Result<Vec<RateContents>, DecodeError> {
    let proto::Rates { resources, tenants, messages } = proto::Rates::decode(bytes)?;
    let resource = |name: &String| known.resources.iter().position(|resource| resource.name == *name);
    let reader = Reader {
        resources: resources.iter().map(|name| resource(name).map(ResourceId::from_index)).collect(),
        tenants: tenants.iter().map(|name| known.names.tenant_id(name)).collect(),
    };
    let messages = messages.into_iter().filter(|message| message.to == own).take(MESSAGES_MAX);
    Ok(messages.filter_map(|message| message.contents).map(|contents| reader.contents(contents)).collect())
}

/// Writes messages, and collects the names that they refer to.
struct Writer<'a> {
    known: Known<'a>,
    resources: Vec<String>,
    tenants: Vec<String>,
}

impl Writer<'_> {
    fn message(&mut self, RateMessage { to, contents }: &RateMessage) -> proto::RateMessage {
        let contents = match contents {
            RateContents::Ask(RateAsk { incarnation, stamp, wants }) => Contents::Ask(proto::RateAsk {
                incarnation: *incarnation,
                stamp_ns: stamp.as_nanos(),
                wants: self.amounts(wants),
            }),
            RateContents::Grant(RateGrant { incarnation, stamp, parts, loans }) => {
                Contents::Grant(proto::RateGrant {
                    incarnation: *incarnation,
                    stamp_ns: stamp.as_nanos(),
                    parts: parts.as_ref().map(|parts| self.parts(parts)),
                    loans: self.amounts(loans),
                })
            }
        };
        proto::RateMessage { to: to.to_string(), contents: Some(contents) }
    }

    fn amounts(&mut self, amounts: &[RateAmount]) -> Vec<proto::RateAmount> {
        let amount = |RateAmount { resource, tenant, per_s }: &RateAmount| proto::RateAmount {
            resource: self.resource(*resource),
            tenant: position(&mut self.tenants, self.known.names.tenant(*tenant)),
            per_s: *per_s,
        };
        amounts.iter().map(amount).collect()
    }

    fn parts(&mut self, parts: &[RatePart]) -> proto::RateParts {
        let part = |RatePart { resource, per_s }: &RatePart| proto::RatePart {
            resource: self.resource(*resource),
            per_s: *per_s,
        };
        proto::RateParts { parts: parts.iter().map(part).collect() }
    }

    fn resource(&mut self, resource: ResourceId) -> u32 {
        position(&mut self.resources, &self.known.resources[resource.index()].name)
    }
}

/// Returns the position of a name, which is added if it is new.
fn position(names: &mut Vec<String>, name: &str) -> u32 {
    let known = names.iter().position(|known| known == name);
    let position = known.unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    });
    position as u32
}

/// This node's ids of the names in a message; none for names that it does not have.
struct Reader {
    resources: Vec<Option<ResourceId>>,
    tenants: Vec<Option<TenantId>>,
}

impl Reader {
    fn contents(&self, contents: Contents) -> RateContents {
        match contents {
            Contents::Ask(proto::RateAsk { incarnation, stamp_ns, wants }) => {
                let (stamp, wants) = (Instant::from_nanos(stamp_ns), self.amounts(&wants));
                RateContents::Ask(RateAsk { incarnation, stamp, wants })
            }
            Contents::Grant(proto::RateGrant { incarnation, stamp_ns, parts, loans }) => {
                let (stamp, loans) = (Instant::from_nanos(stamp_ns), self.amounts(&loans));
                let parts = parts.map(|of| of.parts.iter().filter_map(|part| self.part(part)).collect());
                RateContents::Grant(RateGrant { incarnation, stamp, parts, loans })
            }
        }
    }

    fn amounts(&self, amounts: &[proto::RateAmount]) -> Vec<RateAmount> {
        let amount = |&proto::RateAmount { resource, tenant, per_s }: &proto::RateAmount| {
            let tenant = self.tenants.get(tenant as usize).copied().flatten()?;
            Some(RateAmount { resource: self.resource(resource)?, tenant, per_s })
        };
        amounts.iter().filter_map(amount).collect()
    }

    fn part(&self, part: &proto::RatePart) -> Option<RatePart> {
        Some(RatePart { resource: self.resource(part.resource)?, per_s: part.per_s })
    }

    fn resource(&self, position: u32) -> Option<ResourceId> {
        self.resources.get(position as usize).copied().flatten()
    }
}

#[cfg(test)]
mod tests {
    use sherwood_model::{BackendId, Legs, ResourceKind, Unit};

    use super::*;

    fn names(tenants: &[&str]) -> Names {
        Names::new(vec!["store".to_owned()], tenants.iter().map(|name| (*name).to_owned()).collect(), &[])
    }

    fn resources(names: &[&str]) -> Vec<ResourceSetup> {
        let resource = |name: &&str| ResourceSetup {
            name: (*name).to_owned(),
            kind: ResourceKind::Reads(BackendId(0)),
            unit: Unit::Count,
            legs: Legs::default(),
            total_per_s: 1.0,
        };
        names.iter().map(resource).collect()
    }

    fn amount(resource: u16, tenant: u16, per_s: f64) -> RateAmount {
        RateAmount { resource: ResourceId(resource), tenant: TenantId(tenant), per_s }
    }

    fn part(resource: u16, per_s: f64) -> RatePart {
        RatePart { resource: ResourceId(resource), per_s }
    }

    fn ask(wants: Vec<RateAmount>) -> RateContents {
        RateContents::Ask(RateAsk { incarnation: 7, stamp: Instant::from_nanos(99), wants })
    }

    fn grant(parts: Option<Vec<RatePart>>, loans: Vec<RateAmount>) -> RateContents {
        RateContents::Grant(RateGrant { incarnation: 7, stamp: Instant::from_nanos(99), parts, loans })
    }

    fn to(name: &str, contents: &RateContents) -> RateMessage {
        RateMessage { to: name.into(), contents: contents.clone() }
    }

    #[test]
    fn requests_and_answers_are_received_by_the_node_that_they_are_for() {
        let (tenants, resources) = (names(&["x", "y"]), resources(&["reads", "writes"]));
        let known = Known { names: &tenants, resources: &resources };
        let contents = [
            ask(vec![amount(1, 1, 5.0), amount(0, 1, 2.5)]),
            ask(Vec::new()),
            grant(None, vec![amount(1, 0, 3.0)]),
            grant(Some(vec![part(0, 4.0), part(1, 1e9)]), Vec::new()),
            grant(Some(Vec::new()), Vec::new()),
        ];
        let mut messages: Vec<_> = contents.iter().map(|contents| to("b", contents)).collect();
        messages.insert(2, to("c", &ask(vec![amount(0, 0, 1.0)])));
        let bytes = encode(known, &messages);
        assert_eq!(decode(known, "b", &bytes).unwrap(), contents);
        assert_eq!(decode(known, "a", &bytes).unwrap(), []);
        assert!(decode(known, "b", b"\xff\xff").is_err());
    }

    #[test]
    fn names_are_translated_and_unknown_ones_left_out() {
        let (tenants, of_sender) = (names(&["x", "y"]), resources(&["reads", "writes"]));
        let (others, of_receiver) = (names(&["y", "z"]), resources(&["network", "reads"]));
        let sender = Known { names: &tenants, resources: &of_sender };
        let receiver = Known { names: &others, resources: &of_receiver };
        let amounts = vec![amount(0, 0, 1.0), amount(0, 1, 2.0), amount(1, 1, 3.0)];
        let sent = [to("b", &grant(Some(vec![part(0, 4.0), part(1, 5.0)]), amounts))];
        let received = decode(receiver, "b", &encode(sender, &sent)).unwrap();
        assert_eq!(received, [grant(Some(vec![part(1, 4.0)]), vec![amount(1, 0, 2.0)])]);
    }

    #[test]
    fn largest_message_fits_the_bus() {
        let tenants: Vec<String> = (0..1_024).map(|index| format!("{index:0>64}")).collect();
        let tenants = Names::new(vec!["store".to_owned()], tenants, &[]);
        let of: Vec<String> = (0..64).map(|index| format!("{index:0>64}")).collect();
        let resources = resources(&of.iter().map(String::as_str).collect::<Vec<_>>());
        let known = Known { names: &tenants, resources: &resources };
        let wants =
            |first: u16| (0..256).map(|i| amount(i % 64, (first * 256 + i) % 1_024, f64::MAX)).collect();
        let messages: Vec<_> = (0..MESSAGES_MAX).map(|at| to(&of[0], &ask(wants(at as u16)))).collect();
        assert!(encode(known, &messages).len() <= super::super::MESSAGE_BYTES_MAX);
    }
}
