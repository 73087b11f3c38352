//! Memory of the process: what the cache's blocks take, what clients have the node hold, and the
//! work that keeps both within their limits.

pub(crate) mod background;
pub(crate) mod buffers;
pub(crate) mod mapped;
pub(crate) mod resident;
