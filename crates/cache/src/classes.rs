//! The deadline classes of accesses, and their usage. [`crate::deadlines`] has the multipliers.

use std::time::Duration;

use sherwood_model::{DeadlineClass, PartitionId};

use crate::access::Access;
use crate::engine::Cache;
use crate::usage::{ClassUsage, Usage};

impl Cache {
    /// The class of a partition's deadlines for a caller that can wait this long.
    #[must_use]
    pub fn deadline_class(&self, partition: PartitionId, within: Duration) -> DeadlineClass {
        self.partitions[partition.index()].deadlines.classes.of(within)
    }

    /// The upper bound of the deadlines of a partition's class; none for deadlines of any length.
    #[must_use]
    pub fn class_upto(&self, partition: PartitionId, class: DeadlineClass) -> Option<Duration> {
        self.partitions[partition.index()].deadlines.classes.upto(class)
    }

    /// Usage of a partition by deadline class, in their order. Locks each shard for reading, one
    /// after the other, if the partition has several classes.
    #[must_use]
    pub fn class_usage(&self, partition: PartitionId) -> Vec<ClassUsage> {
        let classes = &self.partitions[partition.index()].deadlines.classes;
        let of_class = |class| {
            let set = self.queue_set(partition, class);
            let mut usage = ClassUsage {
                upto: classes.upto(DeadlineClass(class)),
                multiplier: self.deadlines.multiplier(set),
                items: 0,
                bytes: 0,
                hits: 0,
                misses: 0,
                deadline_missed: self.deadlines.deadline_missed(partition, class),
            };
            if self.queue_sets == 1 {
                let Usage { items, used_bytes, hits, misses, .. } = self.usage(partition);
                return ClassUsage { items, bytes: used_bytes, hits, misses, ..usage };
            }
            self.shards.iter().for_each(|shard| shard.add_class_to(set, &mut usage));
            usage
        };
        (0..classes.count()).map(of_class).collect()
    }

    /// Tells the cache of a missed deadline after a miss that no store follows, such as a failed
    /// fetch. A store tells by [`AccessFlags::DEADLINE_MISSED`](crate::AccessFlags).
    pub fn note_deadline_missed(&self, partition: PartitionId, class: DeadlineClass) {
        self.deadlines.note_fill(partition, class.0.min(self.last_class(partition)), true);
    }

    /// The deadline class of an access, if it has one.
    #[inline]
    pub(crate) fn class(&self, partition: PartitionId, access: &Access) -> Option<u8> {
        access.class.map(|class| class.0.min(self.last_class(partition)))
    }

    /// The class of the longest deadlines, and of items stored without one.
    pub(crate) fn last_class(&self, partition: PartitionId) -> u8 {
        self.partitions[partition.index()].deadlines.classes.last().0
    }

    /// The queue set of a deadline class.
    pub(crate) fn queue_set(&self, partition: PartitionId, class: u8) -> usize {
        partition.index() * self.queue_sets + usize::from(class)
    }

    /// Learns from a store whether its caller's deadline was met.
    pub(crate) fn note_fill(&self, partition: PartitionId, access: &Access) {
        if let Some(class) = self.class(partition, access) {
            self.deadlines.note_fill(partition, class, access.flags.tells_missed_deadline());
        }
    }
}
