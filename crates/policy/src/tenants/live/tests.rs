//! Tests of the level between tenants on a world of closed-loop tenants.

use super::world::{Load, MIB, World, assert_sums};

/// A tenant whose keys fit into a little more than its baseline of 64 MiB, and one to which cache
/// is of little use.
fn fits_and_wide() -> Vec<Load> {
    vec![Load::linear(80 * MIB, 0.01, 0.05), Load::linear(640 * MIB, 0.3, 0.05)]
}

#[test]
fn tenants_reach_what_hare_divides_and_are_never_below_their_baselines() {
    let mut world = World::new("hare", 64 * MIB, fits_and_wide());
    let bases = [world.baseline(0), world.baseline(1)];
    world.run(30, |world| assert_sums(&world.controller));
    world.run(270, |world| {
        assert_sums(&world.controller);
        for (served, base) in world.served.iter().zip(bases) {
            assert!(*served >= base * 0.98, "{served} of {base} at {:?}", world.now);
        }
    });
    let gain = world.controller.latest().expect("it decided").division.gain;
    for (served, base) in world.served.iter().zip(bases) {
        assert!(*served >= base * (gain - 0.01), "{served} of {base}");
    }
}
