//! Tests of deadline classes.

use sherwood_cache::{DeadlineClasses, DeadlineCost, DeadlineOptions};

use super::*;

fn deadlines(keys: &str) -> DeadlineOptions {
    config(&format!("[[backend]]\nname = \"a\"\n{keys}")).backends[0].deadlines
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn deadlines_have_one_class_unless_configured() {
    assert_eq!(deadlines(""), DeadlineOptions::ONE);
    let ten = DeadlineClasses::of_equal_width(10, ms(100)).unwrap();
    assert_eq!(deadlines("deadlines = {}"), DeadlineOptions { classes: ten, ..DeadlineOptions::ONE });
}

#[test]
fn every_key_of_deadline_classes_is_resolved() {
    let classes = DeadlineClasses::of_equal_width(4, ms(200)).unwrap();
    let expected = DeadlineOptions { classes, step: 0.5, cost: DeadlineCost::Measured };
    let keys = "deadlines = { classes = 4, upto = \"200ms\", step = 0.5, cost = \"measured\" }";
    assert_eq!(deadlines(keys), expected);
    let classes = DeadlineClasses::with_bounds(&[ms(10), ms(30)]).unwrap();
    let expected = DeadlineOptions { classes, ..DeadlineOptions::ONE };
    assert_eq!(deadlines("deadlines.bounds = [\"10ms\", \"30ms\"]"), expected);
}

#[test]
fn invalid_deadline_classes_are_refused() {
    let refused = |keys: &str| problem(&format!("[[backend]]\nname = \"a\"\ndeadlines = {{ {keys} }}"));
    for (keys, part) in [
        ("classes = 17", "deadlines.classes is 17; it must be 1 to 16: set deadlines.classes = 10"),
        ("upto = \"25h\"", "deadlines.upto is 25h; it must be 1ms to 1d"),
        ("step = 0.0", "deadlines.step is 0; it must be at least 0.0001: set deadlines.step = 0.01"),
        ("cost = \"mesured\"", "did you mean \"measured\"?"),
        ("bounds = [\"30ms\", \"10ms\"]", "the deadline class up to 10ms follows one up to 30ms"),
        ("bounds = []", "0 deadline classes were asked for: there may be 1 to 16"),
        ("bounds = [\"1s\", \"25h\"]", "has 25h; a bound must be at most 1d"),
        ("bounds = [\"1s\", \"2s\"], classes = 2", "remove the others"),
    ] {
        let problem = refused(keys);
        assert!(problem.contains(part), "{problem}");
    }
}
