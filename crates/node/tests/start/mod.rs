//! A whole node on a clock that the test drives, without ports; compiled into the unit tests,
//! because only they can drive the clock.

mod begun_cold;
mod beside_the_simulator;
mod driven;
mod guard_goes_back;
