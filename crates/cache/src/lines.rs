//! Hints to the processor to load cache lines before they are read.

/// Bytes of a cache line.
const LINE_BYTES: usize = 64;

/// Prefetches the cache line of an element, if it exists.
#[inline]
pub(crate) fn element<T>(slice: &[T], index: usize) {
    if let Some(element) = slice.get(index) {
        line(std::ptr::from_ref(element).cast());
    }
}

/// Prefetches the cache line at which a value begins.
#[inline]
pub(crate) fn start<T>(value: &T) {
    line(std::ptr::from_ref(value).cast());
}

/// Prefetches the lines of the first `max` bytes of a slice that will be read in order.
#[inline]
pub(crate) fn bytes(bytes: &[u8], max: usize) {
    let max = bytes.len().min(max);
    for at in (0..max).step_by(LINE_BYTES) {
        element(bytes, at);
    }
    // The slice may begin within a line, so its end may be one line further.
    element(bytes, max.saturating_sub(1));
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn line(at: *const i8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: the instruction exists on every processor of this architecture. It is a hint: it
    // reads nothing into the program, changes nothing and faults for no address, so any address is
    // valid.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at) }
}

/// Does nothing: Rust has no stable prefetch instruction for other architectures, so look-ups wait
/// for each line.
#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn line(_at: *const i8) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefetch_out_of_bounds_is_ignored() {
        element::<u64>(&[], 0);
        element(&[1, 2], 2);
        bytes(&[], 100);
    }
}
