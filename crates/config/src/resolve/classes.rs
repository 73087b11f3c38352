//! `deadlines` of a `[[backend]]`: the deadline classes of its partitions.

use std::time::Duration;

use sherwood_cache::{DeadlineClasses, DeadlineCost, DeadlineOptions};
use sherwood_model::DEADLINE_MAX;

use crate::problem::Problems;
use crate::raw::{RawBackend, RawDeadlineClasses};
use crate::scope::{Given, Setting, given, in_range, one_of};
use crate::units::Span;

const CLASSES: Setting = Setting::new("[[backend]]", "deadlines.classes", "10");
const UPTO: Setting = Setting::new("[[backend]]", "deadlines.upto", "\"100ms\"");
const STEP: Setting = Setting::new("[[backend]]", "deadlines.step", "0.01");
const COST: Setting = Setting::new("[[backend]]", "deadlines.cost", "\"paper\"");

/// Number of classes and longest deadline told apart by default, which MicroFuge's evaluation
/// leaves open: ten classes of 10 ms.
const CLASSES_DEFAULT: u32 = 10;
const UPTO_DEFAULT: Span = Span(Duration::from_millis(100));
const UPTO_MIN: Span = Span(Duration::from_millis(1));
const UPTO_MAX: Span = Span(DEADLINE_MAX);
const STEP_MIN: f64 = 0.0001;

/// Resolves the deadline classes of a backend; one without the table.
pub(super) fn resolve(raw: &RawBackend, problems: &mut Problems<'_>) -> DeadlineOptions {
    let Some(table) = &raw.deadlines else { return DeadlineOptions::ONE };
    let RawDeadlineClasses { classes, upto, bounds, step, cost } = table.get_ref();
    let costs = [("paper", DeadlineCost::Paper), ("measured", DeadlineCost::Measured)];
    DeadlineOptions {
        classes: match given(bounds) {
            None => equal(given(classes), given(upto), problems),
            Some(bounds) => {
                if let Some(origin) =
                    given(classes).map(|classes| classes.origin).or(given(upto).map(|upto| upto.origin))
                {
                    let message = "[[backend]] deadlines has bounds beside classes or upto; bounds say both: remove the others";
                    problems.add(&origin, message);
                }
                bounded(&bounds, problems)
            }
        },
        step: in_range(problems, STEP, given(step), DeadlineOptions::ONE.step, STEP_MIN..=1.0),
        cost: one_of(problems, COST, given(cost), &costs),
    }
}

fn equal(
    classes: Option<Given<u32>>,
    upto: Option<Given<Span>>,
    problems: &mut Problems<'_>,
) -> DeadlineClasses {
    let classes = in_range(problems, CLASSES, classes, CLASSES_DEFAULT, 1..=16);
    let upto = in_range(problems, UPTO, upto, UPTO_DEFAULT, UPTO_MIN..=UPTO_MAX);
    DeadlineClasses::of_equal_width(classes as u8, upto.0).unwrap_or_default()
}

fn bounded(Given { value, origin }: &Given<Vec<Span>>, problems: &mut Problems<'_>) -> DeadlineClasses {
    let over = value.iter().find(|bound| **bound > UPTO_MAX);
    if let Some(bound) = over {
        let message = format!(
            "[[backend]] deadlines.bounds has {bound}; a bound must be at most {UPTO_MAX}: set bounds = [\"10ms\", \"100ms\"]"
        );
        problems.add(origin, message);
    }
    let bounds: Vec<Duration> = value.iter().map(|bound| bound.0).collect();
    DeadlineClasses::with_bounds(&bounds).unwrap_or_else(|error| {
        let message = format!("[[backend]] deadlines.bounds: {error}: set bounds = [\"10ms\", \"100ms\"]");
        problems.add(origin, message);
        DeadlineClasses::ONE
    })
}
