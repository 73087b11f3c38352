//! The operating system's process that the daemon runs in: its clocks, randomness, memory and CPU
//! time.
//!
//! | module | contents |
//! |---|---|
//! | `clock` | monotonic time for decisions, wall time for display |
//! | `entropy` | the generator of random words |
//! | `vital` | the end of the process when essential work fails |
//! | `cpu` | processor time, read from `/proc` |
//! | `buffers` | the bytes held for clients, within one budget |
//! | `mapped` | the memory of the cache's blocks |
//! | `resident` | resident memory, and the ceiling of the cache that keeps it within a limit |
//! | `background` | the cache's background work, shared by the housekeeper and listeners |
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a driver: it owns clocks, randomness and memory"
)]

pub mod background;
pub mod buffers;
pub mod clock;
pub mod cpu;
pub mod entropy;
pub mod mapped;
pub mod resident;
pub mod vital;
