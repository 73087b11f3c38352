//! Tests that draw the screen into memory.

use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};

use super::super::live::{Live, LiveBackend};
use super::super::share::LoadShare;
use super::slowdowns::Slowdowns;
use super::view;

/// A run at minute 146: two slowdowns have ended, two are active, the SLO is violated.
fn spikes() -> Live {
    let (warm_up, measured) = (Duration::from_secs(100), Duration::from_secs(300));
    let minute = 146.0;
    let elapsed = warm_up + measured.mul_f64(minute / view::SCENARIO_MINUTES);
    Live {
        policy: "robinhood".to_owned(),
        run: (2, 2),
        share: LoadShare::WHOLE,
        elapsed,
        length: (warm_up, measured),
        minute,
        bound: Duration::from_millis(150),
        current: Some(Duration::from_micros(183_400)),
        late: None,
        curve: curve(elapsed),
        violation_ratio: 0.073,
        requests: (137_204, 3),
        backends: (1..=20).map(|id| backend(id, minute)).collect(),
        total_bytes: 343_597_384,
        dashboard: "http://127.0.0.1:8080".to_owned(),
        events: [
            "moved 3.1 MiB: b05 +2.0 MiB (blocked 41% of the slow requests), b08 +1.1 MiB (33%); \
             given by b01 -1.2 MiB, b06 -1.0 MiB, 8 more",
            "kept the budgets: no finished request in the window",
            "moved 3.2 MiB: b08 +3.2 MiB (blocked 72% of the slow requests); \
             given by b06 -0.4 MiB, b01 -0.3 MiB, b02 -0.2 MiB, b03 -0.2 MiB, b04 -0.2 MiB, b07 -0.2 MiB, 12 more",
        ]
        .map(str::to_owned)
        .to_vec(),
    }
}

/// Observations every 0.5 s with peaks where the scenario slows backends down.
fn curve(elapsed: Duration) -> Vec<(f64, f64)> {
    let at = |step: u64| step as f64 / 2.0;
    let minute = |second: f64| (second - 100.0) * 0.6;
    let bump = |m: f64, from: f64, until: f64, ms: f64| {
        if m < from || m > until {
            0.0
        } else {
            ms * (1.0 - ((m - from) / (until - from) * 2.0 - 1.0).powi(2))
        }
    };
    let seen = |m: f64| {
        let noise = ((m * 7.3).rem_euclid(1.0) - 0.5) * 16.0;
        62.0 + noise + bump(m, 5.0, 52.0, 75.0) + bump(m, 86.0, 122.0, 260.0) + bump(m, 130.0, 180.0, 150.0)
    };
    let steps = (elapsed.as_secs_f64() * 2.0) as u64;
    (0..=steps).map(|step| (at(step), seen(minute(at(step))))).collect()
}

fn backend(id: u64, minute: f64) -> LiveBackend {
    let limit = match (id, minute as u64) {
        (6, 2..51) => 0.4,
        (1, 85..121) => 0.38,
        (5, 128..178) => 0.42,
        (8, 130..178) => 0.14,
        _ => 1.0,
    };
    LiveBackend {
        name: format!("b{id:02}"),
        bytes: (4 + id * 37 % 29 + if limit < 1.0 { 30 } else { 0 }) << 20,
        limit,
        waiting: if limit < 1.0 { 14 } else { (id % 4 / 3) as u32 },
        query_p99: (id != 13).then(|| Duration::from_millis(if limit < 0.2 { 212 } else { 6 * id })),
        hit_ratio: 0.35 + id as f64 * 0.03,
    }
}

/// Slowdowns of the run up to `live`, recorded once a minute.
fn seen_until(live: &Live) -> Slowdowns {
    let mut slowdowns = Slowdowns::default();
    for minute in 0..=live.minute as u32 {
        let elapsed = live.length.0 + live.length.1.mul_f64(f64::from(minute) / view::SCENARIO_MINUTES);
        let backends = (1..=20).map(|id| backend(id, minute.into())).collect();
        slowdowns.note(&Live { run: live.run, elapsed, backends, ..Live::default() });
    }
    slowdowns.note(live);
    slowdowns
}

fn drawn(width: u16, height: u16, live: &Live, slowdowns: &Slowdowns) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("memory is a terminal");
    terminal
        .draw(|frame| view::render(frame.area(), frame.buffer_mut(), live, slowdowns))
        .expect("memory can be drawn to");
    terminal
}

fn text(width: u16, height: u16, live: &Live) -> String {
    drawn(width, height, live, &seen_until(live)).backend().to_string()
}

#[test]
fn demo_screen_of_a_small_terminal_has_all_parts() {
    insta::assert_snapshot!(text(80, 24, &spikes()));
}

#[test]
fn demo_screen_of_a_large_terminal_has_larger_parts() {
    insta::assert_snapshot!(text(120, 40, &spikes()));
}

#[test]
fn demo_screen_labels_the_warm_up() {
    let mut live = spikes();
    live.elapsed = Duration::from_secs(40);
    live.minute = -36.0;
    live.current = None;
    live.events.clear();
    live.backends.iter_mut().for_each(|backend| backend.limit = 1.0);
    insta::assert_snapshot!(text(80, 24, &live));
}

#[test]
fn demo_screen_of_a_tiny_terminal_shows_slo_compliance() {
    let mut live = spikes();
    live.current = Some(Duration::from_millis(84));
    insta::assert_snapshot!(text(24, 8, &live));
}

#[test]
fn share_of_the_load_is_in_the_first_line_of_the_screen() {
    let live = Live { share: LoadShare::WHOLE.smaller().unwrap(), ..spikes() };
    let text = text(80, 24, &live);
    let first = text.lines().next().unwrap_or_default();
    assert!(first.contains("robinhood, run 2 of 2, half of the load"), "{first}");
}

#[test]
fn requests_sent_behind_schedule_are_reported_in_the_last_line_of_the_screen() {
    let live = Live { late: Some(Duration::from_millis(25)), ..spikes() };
    let last = |width| text(width, 24, &live).lines().last().unwrap_or_default().replace('"', "");
    let warning = "the load is sent 25 ms late: something else keeps this machine busy";
    assert!(last(80).trim_end().ends_with(warning), "{}", last(80));
    assert!(last(40).trim_end().ends_with("load 25 ms late"), "{}", last(40));
}

/// Draws the screen at all sizes, also by resizing from one to the next.
#[test]
fn demo_screen_can_be_drawn_at_every_size() {
    let (live, empty) = (spikes(), Live::default());
    let slowdowns = seen_until(&live);
    for width in (0..=140).chain([200, 300]) {
        for height in (0..=12).chain((15..=60).step_by(5)) {
            drawn(width, height, &live, &slowdowns);
            drawn(width, height, &empty, &Slowdowns::default());
        }
    }
    let mut terminal = drawn(80, 24, &live, &slowdowns);
    for (width, height) in [(20, 5), (200, 60), (1, 1), (80, 24)] {
        terminal.backend_mut().resize(width, height);
        let resized =
            terminal.draw(|frame| view::render(frame.area(), frame.buffer_mut(), &live, &slowdowns)).is_ok();
        assert!(resized, "{width}x{height}");
    }
}

#[test]
fn demo_screen_can_be_drawn_with_every_figure() {
    let extremes = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, f64::MIN, -0.0, 1e-300];
    let times = [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(u32::MAX.into())];
    for (extreme, time) in extremes.into_iter().flat_map(|extreme| times.map(|time| (extreme, time))) {
        let mut live = spikes();
        live.elapsed = time;
        live.minute = extreme;
        live.bound = time;
        live.current = Some(time);
        live.violation_ratio = extreme;
        live.requests = (u64::MAX, u64::MAX);
        live.total_bytes = u64::MAX;
        live.curve.extend([
            (extreme, 1.0),
            (1.0, extreme),
            (extreme, extreme),
            (150.0, extreme),
            (151.0, 9.0),
        ]);
        let odd = LiveBackend {
            name: "名前の長いバックエンド\u{7}\n".repeat(9),
            bytes: u64::MAX,
            limit: extreme,
            waiting: u32::MAX,
            query_p99: Some(time),
            hit_ratio: extreme,
        };
        live.backends.push(odd);
        live.events.push("\u{1b}[2J名前".repeat(99));
        for lengths in [(Duration::ZERO, Duration::ZERO), (time, time), live.length] {
            live.length = lengths;
            for (width, height) in [(1, 1), (20, 5), (41, 16), (80, 24), (160, 50)] {
                drawn(width, height, &live, &seen_until(&spikes()));
            }
        }
    }
}

#[test]
fn slo_compliance_on_the_screen_is_coloured() {
    let mut live = spikes();
    for (current, colour) in [(150, Color::Green), (151, Color::Red)] {
        live.current = Some(Duration::from_millis(current));
        let terminal = drawn(80, 24, &live, &Slowdowns::default());
        let cell = &terminal.backend().buffer()[(1, 2)];
        assert_eq!((cell.symbol(), cell.fg), ("P", colour));
        assert!(cell.modifier.contains(Modifier::REVERSED));
        let roomy = drawn(120, 40, &live, &Slowdowns::default());
        for row in 2..5 {
            let cell = &roomy.backend().buffer()[(1, row)];
            assert!(cell.fg == colour && cell.modifier.contains(Modifier::REVERSED), "row {row}");
        }
    }
}

#[test]
fn curve_above_the_axis_has_an_arrow_and_changes_colour_at_the_bound() {
    let mut live = spikes();
    live.curve = vec![(100.0, 75.0), (250.0, 75.0), (250.0, 600.0), (300.0, 601.0), (340.0, 600.0)];
    let terminal = drawn(80, 24, &live, &Slowdowns::default());
    let buffer = terminal.backend().buffer();
    let row = |row: u16| (0..80).map(|column| buffer[(column, row)].symbol()).collect::<String>();
    assert!(row(3).starts_with(" 600 ms ") && row(3).matches('▲').count() == 1, "{}", row(3));
    let colours = |row: u16| -> Vec<Color> {
        let curve = |cell: &&ratatui::buffer::Cell| {
            ('\u{2801}'..='\u{28ff}').contains(&cell.symbol().chars().next().unwrap_or(' '))
        };
        (8..80).map(|column| &buffer[(column, row)]).filter(curve).map(|cell| cell.fg).collect()
    };
    assert!(colours(3).contains(&Color::Red) && !colours(3).contains(&Color::Green));
    assert!(colours(7).contains(&Color::Green) && !colours(7).contains(&Color::Red));
}

#[test]
fn slowed_backends_are_kept_when_rows_are_scarce() {
    let text = text(80, 12, &spikes());
    assert!(text.contains("b05") && text.contains("b08") && text.contains("to 42%"), "{text}");
    assert!(!text.contains("b01"), "{text}");
}
