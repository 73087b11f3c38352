//! Tests of a whole node without ports, on a clock that the test drives; compiled into the unit
//! tests, because only they can drive the clock.

mod changes;
mod cold_cache;
mod deadlines_match_the_simulator;
mod driven;
mod guard_rollback;
mod matches_the_simulator;
mod staged;
mod tenants;
mod tenants_match_the_simulator;
mod throttled;
