//! Scenarios: resource limits of backends over time.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use sherwood_model::{BackendId, ReplicaId, SplitMix64};

use super::limited::Limited;
use crate::unique;

/// A schedule of resource limits: a warm-up without limits, then measured minutes. Minute 0 is the
/// start of measurement.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Document")]
pub struct Scenario {
    /// Place in the RobinHood paper of the experiment that the scenario follows.
    pub paper: Option<String>,
    /// Number of minutes before measurement, without limits.
    pub warmup_min: f64,
    /// Number of measured minutes.
    pub measure_min: f64,
    /// Factor by which the time that limits add to service times is multiplied, by profile; 1 if
    /// not given. A larger scale has more workers and less queueing, so the same limit has less
    /// effect there.
    pub depth: BTreeMap<String, f64>,
    /// Course of the resource limits over the measured minutes.
    pub course: Course,
}

/// Course of limits over the measured minutes. Backends are numbered from 1 as in the document.
#[derive(Clone, Debug, PartialEq)]
pub enum Course {
    /// `(minute, limit)` points by backend or replica: linear between them, constant before the
    /// first and after the last.
    PiecewiseLinear(BTreeMap<Limited, Vec<(f64, f64)>>),
    /// A random walk of each listed backend.
    RandomWalk(RandomWalk),
}

/// A random walk of resource limits: in every step, each listed backend's level moves by one, up or
/// down with probability 1/2, between 0 and `levels`.
#[derive(Clone, Debug, PartialEq)]
pub struct RandomWalk {
    /// Length of a step in seconds, such that all listed backends together take at most 1,000,000
    /// steps.
    pub step_s: f64,
    /// Highest level of the walk, 1 to 35.
    pub levels: u32,
    /// Level of every backend before the first step.
    pub start_level: u32,
    /// Resource limits at level 0 and at the highest level, by backend; linear between.
    pub range: BTreeMap<u16, (f64, f64)>,
    /// SplitMix64 state from which the given walk was drawn.
    pub seed: u64,
    /// The random walk of each backend's resource limit, as the document gives it: one digit (0-9,
    /// a-z) for each step, the level after that step.
    pub walk: BTreeMap<u16, String>,
}

/// Selects a realisation of a random walk. Other scenarios have only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walk {
    /// The walk written in the document.
    Given,
    /// A walk drawn from SplitMix64 in this state: one draw per backend and step, in the order of
    /// backends; a set top bit means up.
    Drawn {
        /// State of the generator before the first draw.
        seed: u64,
    },
}

/// A realisation of a scenario: the limit of every backend at every minute, from 0 (no capacity
/// left) to 1 (unlimited).
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    timelines: BTreeMap<BackendId, Timeline>,
    /// Limits of replicas that have their own.
    replicas: BTreeMap<(BackendId, ReplicaId), Timeline>,
}

#[derive(Clone, Debug, PartialEq)]
enum Timeline {
    /// Limits at points of time in minutes, ascending, and linear between them; at least one point.
    Linear(Vec<(f64, f64)>),
    /// Limits of successive steps of equal length, at least one step.
    Steps { step_min: f64, limits: Vec<f64> },
}

impl Scenario {
    /// Factor by which the time that limits add to service times is multiplied at `profile`; not
    /// included in [`Scenario::limits`].
    #[must_use]
    pub fn depth(&self, profile: &str) -> f64 {
        self.depth.get(profile).copied().unwrap_or(1.0)
    }

    /// The limits over time; `walk` selects the realisation of a random walk.
    #[must_use]
    pub fn limits(&self, walk: Walk) -> Limits {
        let mut replicas = BTreeMap::new();
        let timelines = match &self.course {
            Course::PiecewiseLinear(points) => {
                let mut timelines = BTreeMap::new();
                for (limited, points) in points {
                    let (backend, line) = (BackendId(limited.backend - 1), Timeline::Linear(points.clone()));
                    match limited.replica {
                        None => timelines.insert(backend, line),
                        Some(replica) => replicas.insert((backend, ReplicaId(replica)), line),
                    };
                }
                timelines
            }
            Course::RandomWalk(random) => {
                let levels = match walk {
                    Walk::Given => random.given_levels(),
                    Walk::Drawn { seed } => random.drawn_levels(seed, self.steps(random)),
                };
                let steps =
                    levels.into_iter().map(|(id, levels)| (BackendId(id - 1), random.timeline(id, &levels)));
                steps.collect()
            }
        };
        Limits { timelines, replicas }
    }

    /// Number of random-walk steps that cover the measured minutes, at least 1.
    pub(super) fn steps(&self, random: &RandomWalk) -> usize {
        libm::ceil(self.measure_min * 60.0 / random.step_s).max(1.0) as usize
    }
}

impl RandomWalk {
    fn given_levels(&self) -> BTreeMap<u16, Vec<u32>> {
        let level = |digit: char| digit.to_digit(36).expect("a valid walk is made of digits");
        self.walk.iter().map(|(&id, digits)| (id, digits.chars().map(level).collect())).collect()
    }

    fn drawn_levels(&self, seed: u64, steps: usize) -> BTreeMap<u16, Vec<u32>> {
        let mut draws = SplitMix64::new(seed);
        let mut walks: BTreeMap<u16, Vec<u32>> = self.range.keys().map(|&id| (id, Vec::new())).collect();
        for _ in 0..steps {
            for levels in walks.values_mut() {
                let level = levels.last().copied().unwrap_or(self.start_level);
                let up = draws.next_u64() >> 63 == 1;
                levels.push(if up { (level + 1).min(self.levels) } else { level.saturating_sub(1) });
            }
        }
        walks
    }

    fn timeline(&self, id: u16, levels: &[u32]) -> Timeline {
        let (low, high) = self.range[&id];
        let limit = |&level: &u32| low + (high - low) * f64::from(level) / f64::from(self.levels);
        Timeline::Steps { step_min: self.step_s / 60.0, limits: levels.iter().map(limit).collect() }
    }
}

impl Limits {
    /// The share of its resource that `backend` has left at `minute` of the measurement, in (0, 1];
    /// 1 before minute 0 and for backends that the scenario does not name. After the last point or
    /// step the last limit applies. Replicas may have limits of their own
    /// ([`Self::replica_limit`]).
    #[must_use]
    pub fn limit(&self, backend: BackendId, minute: f64) -> f64 {
        if minute < 0.0 {
            return 1.0;
        }
        self.timelines.get(&backend).map_or(1.0, |timeline| timeline.at(minute))
    }

    /// Like [`Self::limit`], for a replica: its own limit if it has one, else its backend's.
    #[must_use]
    pub fn replica_limit(&self, backend: BackendId, replica: ReplicaId, minute: f64) -> f64 {
        match self.replicas.get(&(backend, replica)) {
            Some(timeline) if minute >= 0.0 => timeline.at(minute),
            _ => self.limit(backend, minute),
        }
    }

    /// The backends that have a limit at some time, or a replica with one, in the order of their
    /// ids.
    pub fn backends(&self) -> impl Iterator<Item = BackendId> {
        let whole = self.timelines.keys().copied();
        let backends: BTreeSet<BackendId> = whole.chain(self.replicas.keys().map(|key| key.0)).collect();
        backends.into_iter()
    }
}

impl Timeline {
    fn at(&self, minute: f64) -> f64 {
        match self {
            Self::Linear(points) => interpolate(points, minute),
            Self::Steps { step_min, limits } => {
                let step = (minute / step_min) as usize;
                limits[step.min(limits.len() - 1)]
            }
        }
    }
}

fn interpolate(points: &[(f64, f64)], minute: f64) -> f64 {
    let next = points.partition_point(|&(at, _)| at <= minute);
    match (next.checked_sub(1).map(|before| points[before]), points.get(next)) {
        (Some((from, low)), Some(&(to, high))) => low + (high - low) * (minute - from) / (to - from),
        (Some((_, only)), None) | (None, Some(&(_, only))) => only,
        (None, None) => 1.0,
    }
}

/// A scenario as written in the document, with the fields of both kinds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    paper: Option<String>,
    warmup_min: f64,
    measure_min: f64,
    #[serde(default, deserialize_with = "unique::map")]
    depth: BTreeMap<String, f64>,
    kind: DocumentKind,
    #[serde(default, deserialize_with = "unique::map_or_none")]
    limits: Option<BTreeMap<Limited, Vec<(f64, f64)>>>,
    step_s: Option<f64>,
    levels: Option<u32>,
    start_level: Option<u32>,
    #[serde(default, deserialize_with = "unique::map_or_none")]
    range: Option<BTreeMap<u16, (f64, f64)>>,
    seed: Option<u64>,
    #[serde(default, deserialize_with = "unique::map_or_none")]
    walk: Option<BTreeMap<u16, String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum DocumentKind {
    PiecewiseLinear,
    RandomWalk,
}

impl TryFrom<Document> for Scenario {
    type Error = String;

    fn try_from(document: Document) -> Result<Self, String> {
        let Document {
            paper,
            warmup_min,
            measure_min,
            depth,
            kind,
            limits,
            step_s,
            levels,
            start_level,
            range,
            seed,
            walk,
        } = document;
        let course = match (kind, limits, (step_s, levels, start_level, range, seed, walk)) {
            (DocumentKind::PiecewiseLinear, Some(limits), (None, None, None, None, None, None)) => {
                Course::PiecewiseLinear(limits)
            }
            (
                DocumentKind::RandomWalk,
                None,
                (Some(step_s), Some(levels), Some(start_level), Some(range), Some(seed), Some(walk)),
            ) => Course::RandomWalk(RandomWalk { step_s, levels, start_level, range, seed, walk }),
            (DocumentKind::PiecewiseLinear, ..) => {
                return Err(
                    "a piecewise_linear scenario has `limits` and no field of a random walk".to_owned()
                );
            }
            (DocumentKind::RandomWalk, ..) => {
                return Err(
                    "a random_walk scenario has `step_s`, `levels`, `start_level`, `range`, `seed` and `walk`, and no `limits`"
                        .to_owned(),
                );
            }
        };
        Ok(Self { paper, warmup_min, measure_min, depth, course })
    }
}
