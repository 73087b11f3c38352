//! Simulation of a replicated store: the order of writes, and the values that reads may return.

mod events;
mod history;
