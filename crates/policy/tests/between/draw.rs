//! Problems for policies between tenants, drawn from a seed.

use sherwood_model::{BackendId, DemandCurve, ResourceKind, SplitMix64};
use sherwood_policy::tenants::{Share, TenantSeen, Tenants};

/// Form of the miss ratio curves of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Convex,
    /// Nothing is saved below the working set, everything above it.
    Cliff,
    /// Two falls with a flat part between them.
    Plateau,
    Staircase,
    /// Falls on the whole, with measurement noise.
    Noisy,
    Rising,
    Flat,
    /// A shape of its own for each tenant.
    Mixed,
}

const SHAPES: [Shape; 8] = [
    Shape::Convex,
    Shape::Cliff,
    Shape::Plateau,
    Shape::Staircase,
    Shape::Noisy,
    Shape::Rising,
    Shape::Flat,
    Shape::Mixed,
];

/// Points of a curve.
const POINTS: u64 = 64;

#[derive(Debug)]
pub(crate) struct Problem {
    pub(crate) tenants: Tenants,
    pub(crate) shape: Shape,
}

impl Problem {
    /// Draws 2 to 1,024 tenants and 1 to 6 resources; every third problem has weights.
    pub(crate) fn draw(seed: u64) -> Self {
        let mut draw = Draw(SplitMix64::new(seed));
        let count = match seed % 20 {
            0..12 => draw.whole(2, 4),
            12..16 => draw.whole(5, 15),
            16..19 => draw.whole(16, 128),
            _ => draw.whole(129, 1_024),
        };
        let shape = if seed.is_multiple_of(4) { Shape::Convex } else { SHAPES[draw.whole(0, 7) as usize] };
        let kinds = kinds(draw.whole(1, 6) as usize);
        let total = Share {
            bytes: draw.whole(1 << 20, 1 << 34),
            rates: kinds.iter().map(|_| draw.ratio() * 1e5 + 100.0).collect(),
        };
        let weights: Vec<u64> =
            (0..count).map(|_| if seed.is_multiple_of(3) { draw.whole(1, 8) } else { 1 }).collect();
        let sum: u64 = weights.iter().sum();
        let floored = draw.ratio() < 0.5;
        let seen = weights.iter().map(|&weight| {
            let part = weight as f64 / sum as f64;
            let base = Share {
                bytes: u64::try_from(u128::from(total.bytes) * u128::from(weight) / u128::from(sum)).unwrap(),
                rates: total.rates.iter().map(|rate| rate * part).collect(),
            };
            let floor = Share { bytes: if floored { base.bytes / 200 } else { 0 }, rates: vec![] };
            draw.tenant(shape, &kinds, total.bytes, count, base, floor)
        });
        let seen = seen.collect();
        Self { tenants: Tenants::new(kinds, total, seen), shape }
    }
}

fn kinds(count: usize) -> Vec<ResourceKind> {
    let all = [
        ResourceKind::Reads(BackendId(0)),
        ResourceKind::Writes(BackendId(0)),
        ResourceKind::Network,
        ResourceKind::Reads(BackendId(1)),
        ResourceKind::Reads(BackendId(2)),
        ResourceKind::Writes(BackendId(1)),
    ];
    all[..count].to_vec()
}

struct Draw(SplitMix64);

impl Draw {
    /// A number from 0 to below 1.
    fn ratio(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn whole(&mut self, least: u64, most: u64) -> u64 {
        least + self.0.next_u64() % (most - least + 1)
    }

    fn tenant(
        &mut self,
        shape: Shape,
        kinds: &[ResourceKind],
        total_bytes: u64,
        count: u64,
        base: Share,
        floor: Share,
    ) -> TenantSeen {
        // The curves of many tenants end near what each can have, or nobody's would bend.
        let range = (total_bytes as f64 * (0.1 + 4.0 * self.ratio()) / count as f64) as u64 + POINTS;
        let miss_ratio = self.curve(shape, range);
        let writes = self.ratio() * 0.5;
        let mut demand = Vec::new();
        for kind in kinds {
            let units = 0.1 + 4.0 * self.ratio();
            let none = self.ratio() < 0.1;
            demand.push(match kind {
                _ if none => DemandCurve::constant(0.0),
                ResourceKind::Reads(BackendId(0)) => {
                    DemandCurve::of_misses(units * (1.0 - writes), 1.0, &miss_ratio)
                }
                ResourceKind::Reads(_) => {
                    let own = self.curve(shape, range);
                    DemandCurve::of_misses(units, 1.0, &own)
                }
                ResourceKind::Writes(_) => DemandCurve::constant(units * writes),
                ResourceKind::Network => DemandCurve::of_misses(units * 1_000.0, self.ratio(), &miss_ratio),
            });
        }
        TenantSeen { base, floor, miss_ratio, demand }
    }

    fn curve(&mut self, shape: Shape, range: u64) -> DemandCurve {
        let shape = if shape == Shape::Mixed { SHAPES[self.whole(0, 6) as usize] } else { shape };
        let (first, second, bend) = (self.ratio(), self.ratio(), 0.2 + 5.0 * self.ratio());
        let low = if self.ratio() < 0.2 { 0.0 } else { self.ratio() * 0.3 };
        let steps = self.whole(2, 6) as f64;
        // Cut off at 1, a salt would make the first part of a convex curve concave.
        let salt = if shape != Shape::Convex && self.ratio() < 0.5 { 0.01 } else { 0.0 };
        let points = (0..=POINTS).map(|point| {
            let at = point as f64 / POINTS as f64;
            let misses = match shape {
                Shape::Convex => low + (1.0 - low) * libm::pow(1.0 - at, 1.0 + bend),
                Shape::Cliff => {
                    if at < first {
                        1.0
                    } else {
                        low
                    }
                }
                Shape::Plateau if at < first.min(second) => 1.0 - 0.5 * at,
                Shape::Plateau if at < first.max(second) => 0.6,
                Shape::Plateau => low,
                Shape::Staircase => 1.0 - (1.0 - low) * libm::floor(at * steps) / steps,
                Shape::Noisy => low + (1.0 - low) * libm::pow(1.0 - at, 1.0 + bend) + 0.1 * self.ratio(),
                Shape::Rising => 0.3 + 0.5 * at,
                Shape::Flat | Shape::Mixed => first,
            };
            let misses = if point == 0 && shape != Shape::Rising { 1.0 } else { misses };
            (range * point / POINTS, (misses + salt).min(1.0))
        });
        DemandCurve::new(points)
    }
}
