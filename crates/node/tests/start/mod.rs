//! Tests of a whole node without ports, on a clock that the test drives; compiled into the unit
//! tests, because only they can drive the clock.

mod begun_cold;
mod beside_the_simulator;
mod driven;
mod guard_goes_back;
