//! The bounds of what the tenants may have waiting.

/// A bound that tenants share: half of it is divided among them, the rest is common. So a tenant
/// always has its part, whatever the others have waiting.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Most that may wait, of all tenants.
    max: u32,
    /// Part of each tenant.
    part: u32,
    /// Most that may wait beyond the parts, and how much does.
    common: u32,
    common_used: u32,
}

impl Bounds {
    pub(crate) fn new(max: u32, tenants: u16) -> Self {
        let part = max / 2 / u32::from(tenants.max(1));
        Self { max, part, common: max - part * u32::from(tenants), common_used: 0 }
    }

    /// Most that may wait, of all tenants.
    pub(crate) fn max(&self) -> u32 {
        self.max
    }

    /// True if a tenant of which so much waits may have more wait.
    pub(crate) fn has_room(&self, waiting: u32) -> bool {
        waiting < self.part || self.common_used < self.common
    }

    /// Counts what begins to wait beside `before` of the same tenant.
    pub(crate) fn add(&mut self, before: u32) {
        self.common_used += u32::from(before >= self.part);
    }

    /// Counts what waits no longer, which leaves `after` of the same tenant.
    pub(crate) fn remove(&mut self, after: u32) {
        self.common_used -= u32::from(after >= self.part);
    }
}
