//! Copies of policies between tenants, which a copied simulation continues with.

use super::TenantPolicy;

/// Copying of a policy with its state, implemented for every [`Clone`] policy.
pub trait CopyTenantPolicy {
    /// Returns a boxed copy.
    fn copy(&self) -> Box<dyn TenantPolicy>;
}

impl<P: TenantPolicy + Clone + 'static> CopyTenantPolicy for P {
    fn copy(&self) -> Box<dyn TenantPolicy> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn TenantPolicy> {
    fn clone(&self) -> Self {
        (**self).copy()
    }
}
