//! Asking for memory before it is needed.

/// Lets the processor fetch the cache line at the start of `place` while it goes on with something else. Changes nothing but
/// when a later access is served; on processors for which Rust has no such instruction it does nothing at all.
#[inline]
pub(crate) fn prefetch<T: ?Sized>(place: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

        let place = std::ptr::from_ref(place).cast::<i8>();
        // SAFETY: every such processor has the instruction, and it neither faults nor reads as far as the program can tell.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = place;
}
