//! Tables of results, as text and as HTML.

use std::fmt::Write;

use super::comparison::{Group, Measure};
use crate::chart::{Cell, number, table, word};

/// A table with a label for each row.
pub(super) struct Table {
    /// Heading of the labels, and their width.
    label: (String, usize),
    /// Headings and widths of the other columns.
    columns: Vec<(&'static str, usize)>,
    rows: Vec<Row>,
}

/// A row of a table.
pub(super) struct Row {
    pub(super) label: String,
    pub(super) cells: Vec<String>,
    /// Text at the end of the row: after its cells in a text, after its label in HTML.
    pub(super) suffix: String,
}

/// A column with the estimates of a measure.
pub(super) struct Column<R> {
    pub(super) head: &'static str,
    pub(super) width: usize,
    pub(super) measure: Measure<R>,
    pub(super) decimals: usize,
}

impl Table {
    /// Returns a table without rows.
    pub(super) fn new(label: &str, width: usize, columns: &[(&'static str, usize)]) -> Self {
        Self { label: (label.to_owned(), width), columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Returns a table with a row for each group.
    pub(super) fn of<R, O>(
        label: &str,
        width: usize,
        columns: &[Column<R>],
        groups: &[Group<'_, R, O>],
    ) -> Self {
        let heads: Vec<_> = columns.iter().map(|column| (column.head, column.width)).collect();
        let mut table = Self::new(label, width, &heads);
        let cell = |group, column: &Column<R>| column.measure.cell(group, column.decimals);
        table.rows.extend(groups.iter().map(|group| Row {
            label: group.policy().to_owned(),
            cells: columns.iter().map(|column| cell(group, column)).collect(),
            suffix: group.suffix.clone(),
        }));
        table
    }

    pub(super) fn push(&mut self, row: Row) {
        self.rows.push(row);
    }

    /// Formats the table with aligned columns; `indent` precedes the labels of rows.
    pub(super) fn text(&self, indent: &str) -> String {
        let (label, width) = (&self.label.0, self.label.1);
        let mut text = format!("{label:<width$}");
        for (head, width) in &self.columns {
            let _ = write!(text, " {head:>width$}");
        }
        text.push('\n');
        for Row { label, cells, suffix } in &self.rows {
            let _ = write!(text, "{:<width$}", format!("{indent}{label}"));
            for (cell, (_, width)) in cells.iter().zip(&self.columns) {
                let _ = write!(text, " {cell:>width$}");
            }
            let _ = writeln!(text, "{suffix}");
        }
        text
    }

    /// Formats the table as HTML, with `label` as the heading of the labels.
    pub(super) fn html(&self, label: &str) -> String {
        let heads = self.columns.iter().map(|(head, _)| number(head));
        let head: Vec<Cell> = [word(label)].into_iter().chain(heads).collect();
        let row = |Row { label, cells, suffix }: &Row| {
            [word(label.clone() + suffix)].into_iter().chain(cells.iter().map(number)).collect()
        };
        table(&head, &self.rows.iter().map(row).collect::<Vec<_>>())
    }
}
