//! Distribution of the screen's rows.

use ratatui::layout::Rect;

/// The parts of the screen from top to bottom; a part without rows is not drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Layout {
    pub(super) header: Rect,
    pub(super) progress: Rect,
    pub(super) verdict: Rect,
    pub(super) plot: Rect,
    pub(super) backends: Rect,
    /// Number of columns of the table of backends.
    pub(super) backend_columns: usize,
    pub(super) events: Rect,
    pub(super) footer: Rect,
}

impl Layout {
    /// Distributes `area` for `backends` backends.
    ///
    /// The verdict has priority, followed by header, progress and footer. The remaining rows go to
    /// the backends, one or two rows of events, and a plot of at least [`PLOT_ROWS_MIN`] rows, for
    /// which backends may be left out. Rows left over enlarge the plot and, once that is tall
    /// enough, the verdict and the events.
    pub(super) fn new(area: Rect, backends: usize) -> Self {
        let height = area.height;
        let [verdict, header, progress, footer] = [1, 2, 3, 7].map(|from| u16::from(height >= from));
        let free = height - verdict - header - progress - footer;

        let plottable = area.width >= PLOT_COLUMNS_MIN && free >= 11;
        let plot_min = if plottable { PLOT_ROWS_MIN } else { 0 };
        let event = u16::from(free >= 6) + u16::from(free >= 18);
        let rows = |columns: usize| {
            u16::try_from(backends.div_ceil(columns)).map_or(u16::MAX, |rows| rows.saturating_add(1))
        };
        let for_backends = free - plot_min - event;
        let roomy = for_backends.saturating_sub(rows(1)) >= ROOMY;
        let backend_columns = if area.width < TWO_COLUMNS_MIN || roomy { 1 } else { 2 };
        let backend_rows = for_backends.min(rows(backend_columns));

        let mut spare = for_backends - backend_rows;
        let mut more = |rows: u16| {
            let given = if plottable && spare >= rows + 2 { rows } else { 0 };
            spare -= given;
            given
        };
        let (event, verdict) = (event + more(2), verdict + more(2));
        let plot = if plottable { plot_min + spare } else { 0 };

        let mut top = area.y;
        let mut take = |rows: u16| {
            let part = Rect { y: top, height: rows, ..area };
            top += rows;
            part
        };
        Self {
            header: take(header),
            progress: take(progress),
            verdict: take(verdict),
            plot: take(plot),
            backends: take(backend_rows),
            backend_columns,
            events: take(event),
            footer: Rect { y: area.bottom() - footer, height: footer, ..area },
        }
    }
}

/// Least rows of a plot: four of the curve, the slowdowns, the time.
const PLOT_ROWS_MIN: u16 = 6;

/// Least width, in columns, of a readable curve of the SLO's percentile.
const PLOT_COLUMNS_MIN: u16 = 40;

/// Width for two columns of backends, each with name, bar, allocation, hits, waiting calls, P99 and
/// slowdown.
const TWO_COLUMNS_MIN: u16 = 72;

/// Unused rows required before the backends are set in a single column.
const ROOMY: u16 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(width: u16, height: u16) -> [u16; 5] {
        let layout = Layout::new(Rect::new(0, 0, width, height), 20);
        let parts = [layout.verdict, layout.plot, layout.backends, layout.events, layout.footer];
        parts.map(|part| part.height)
    }

    #[test]
    fn scarce_rows_of_the_screen_go_to_the_important_parts() {
        assert_eq!(rows(80, 1), [1, 0, 0, 0, 0]);
        assert_eq!(rows(20, 5), [1, 0, 2, 0, 0]);
        assert_eq!(rows(80, 12), [1, 0, 7, 1, 1]);
        assert_eq!(rows(80, 16), [1, 6, 5, 1, 1]);
        assert_eq!(rows(80, 24), [1, 7, 11, 2, 1]);
        assert_eq!(rows(60, 40), [3, 9, 21, 4, 1]);
        assert_eq!(rows(120, 40), [3, 9, 21, 4, 1]);
    }

    #[test]
    fn parts_of_the_screen_are_contiguous_and_inside_the_area() {
        for width in [0, 1, 20, 39, 40, 71, 72, 80, 200] {
            for height in 0..=100 {
                for backends in [0, 1, 20, 1_000_000] {
                    let area = Rect::new(3, 2, width, height);
                    let l = Layout::new(area, backends);
                    let parts = [l.header, l.progress, l.verdict, l.plot, l.backends, l.events, l.footer];
                    let mut top = area.y;
                    for part in parts {
                        assert!(part.y >= top && part.bottom() <= area.bottom(), "{area} {l:?}");
                        top = part.bottom();
                    }
                }
            }
        }
    }
}
