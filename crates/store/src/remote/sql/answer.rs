//! Converts rows to values: finds the columns of the key, the value, the time to live and the tags.
//!
//! Pure. Drivers convert the types of their servers to [`Cell`]s.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use sherwood_model::Tags;

use super::options::{SqlOptions, SqlValue};
use crate::remote::Each;
use crate::remote::asking::Rows;
use crate::remote::spelling::Compared;
use crate::{Cause, Found};

/// The value of one column in a row, converted from the server's type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Null,
    Bool(bool),
    /// A number in JSON's form, or `NaN` or `Infinity`.
    Number(String),
    /// Text, in UTF-8 unless the server is at fault.
    Text(Bytes),
    /// JSON text of the server, unchanged.
    Json(String),
    Bytes(Bytes),
    /// A value that cannot be converted, with the reason.
    Unread(String),
}

impl Cell {
    /// Bytes of the cell's content, counted against the bound of an answer.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Null | Self::Bool(_) => 1,
            Self::Number(text) | Self::Json(text) | Self::Unread(text) => text.len(),
            Self::Text(bytes) | Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// The reason why the value cannot be converted.
    fn unread(&self) -> Option<&str> {
        match self {
            Self::Unread(detail) => Some(detail),
            _ => None,
        }
    }

    fn into_bytes(self) -> Option<Bytes> {
        match self {
            Self::Null | Self::Unread(_) => None,
            Self::Bool(value) => Some(Bytes::from_static(if value { b"true" } else { b"false" })),
            Self::Number(text) | Self::Json(text) => Some(text.into()),
            Self::Text(bytes) | Self::Bytes(bytes) => Some(bytes),
        }
    }

    /// Appends the cell's value to `to` as JSON.
    pub(super) fn write_json(&self, to: &mut Vec<u8>) {
        match self {
            Self::Null | Self::Unread(_) => to.extend_from_slice(b"null"),
            Self::Bool(value) => to.extend_from_slice(if *value { b"true" } else { b"false" }),
            Self::Number(text) if is_json_number(text) => to.extend_from_slice(text.as_bytes()),
            Self::Number(text) => write_string(text, to),
            Self::Text(bytes) => write_string(&String::from_utf8_lossy(bytes), to),
            Self::Json(text) => to.extend_from_slice(text.as_bytes()),
            Self::Bytes(bytes) => write_string(&STANDARD.encode(bytes), to),
        }
    }
}

fn is_json_number(text: &str) -> bool {
    serde_json::from_str::<serde_json::Number>(text).is_ok()
}

fn write_string(text: &str, to: &mut Vec<u8>) {
    serde_json::to_writer(to, text).expect("a string is JSON, and memory takes it");
}

/// The result of a read statement: every row has as many cells as there are columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Answer {
    pub(super) columns: Vec<String>,
    /// The way in which the server compares keys with the first column.
    pub(super) compared: Compared,
    pub(super) rows: Vec<Vec<Cell>>,
}

/// The use of a statement's columns: as key, value, time to live or tags.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    /// True if the first column is the key.
    keyed: bool,
    value: SqlValue,
    ttl_column: Option<String>,
    tags_column: Option<String>,
}

/// The positions of the time to live, tags and value among the columns of one answer.
struct Places {
    ttl: Option<usize>,
    tags: Option<usize>,
    /// Columns of the value, in order.
    value: Vec<usize>,
}

impl Shape {
    pub(super) fn new(options: &SqlOptions, keyed: bool) -> Self {
        let (ttl_column, tags_column) = (options.ttl_column.clone(), options.tags_column.clone());
        Self { keyed, value: options.value, ttl_column, tags_column }
    }

    /// True if the value is a single column and the store reads no times to live or tags.
    pub(super) fn is_single_column(&self) -> bool {
        self.value == SqlValue::Column && self.ttl_column.is_none() && self.tags_column.is_none()
    }

    /// The value of one key, from the first row of the answer.
    ///
    /// # Errors
    /// [`Cause::Statement`] when the columns are not those of the options.
    pub(super) fn one(&self, answer: Answer) -> Result<Option<Found>, Cause> {
        let places = self.places(&answer.columns)?;
        match answer.rows.into_iter().next() {
            Some(row) => self.found(&answer.columns, &places, row),
            None => Ok(None),
        }
    }

    /// Returns the values of many keys by the first column of their rows, or the error of a row. If
    /// several rows have equal keys, the last one with a value counts.
    ///
    /// # Errors
    /// As [`one`](Self::one), and when a key cannot be converted.
    pub(super) fn many(&self, answer: Answer) -> Result<Rows<Each>, Cause> {
        let places = self.places(&answer.columns)?;
        let mut rows = Rows::new(answer.compared, answer.rows.len());
        for row in answer.rows {
            let key = match row.first() {
                Some(Cell::Unread(detail)) => return Err(wrong(detail.clone())),
                key => key.cloned().and_then(Cell::into_bytes),
            };
            let found = self.found(&answer.columns, &places, row);
            if let Some(key) = key
                && (found != Ok(None) || rows.get(&key).is_none())
            {
                rows.insert(key, found);
            }
        }
        Ok(rows)
    }

    /// Checks that the columns of a statement are those that the options name. They are the same
    /// for every answer.
    ///
    /// # Errors
    /// As [`one`](Self::one).
    pub(super) fn check(&self, columns: &[String]) -> Result<(), Cause> {
        self.places(columns).map(drop)
    }

    fn places(&self, columns: &[String]) -> Result<Places, Cause> {
        let place = |option: &str, name: &Option<String>| match name {
            None => Ok(None),
            Some(name) => match columns.iter().position(|column| column == name) {
                Some(at) => Ok(Some(at)),
                None => Err(wrong(format!("its answer has no column `{name}`, which `{option}` names"))),
            },
        };
        let ttl = place("ttl_column", &self.ttl_column)?;
        let tags = place("tags_column", &self.tags_column)?;
        // The JSON of a row contains the key; a single column does not.
        let first = usize::from(self.keyed && self.value == SqlValue::Column);
        let value: Vec<_> =
            (first..columns.len()).filter(|at| Some(*at) != ttl && Some(*at) != tags).collect();
        match (self.value, value.len()) {
            (SqlValue::Json, 1..) | (SqlValue::Column, 1) => Ok(Places { ttl, tags, value }),
            (SqlValue::Json, _) => Err(wrong("its answer has no columns".into())),
            (SqlValue::Column, count) => {
                let key = if self.keyed { " after the key" } else { "" };
                Err(wrong(format!(
                    "its answer has {count} columns of values{key}, where 1 is accepted, or any number with value = \"json\""
                )))
            }
        }
    }

    fn found(&self, columns: &[String], places: &Places, mut row: Vec<Cell>) -> Each {
        if let Some(detail) = row.iter().find_map(Cell::unread) {
            return Err(wrong(detail.to_owned()));
        }
        let mut take =
            |at: usize| row.get_mut(at).map_or(Cell::Null, |cell| std::mem::replace(cell, Cell::Null));
        let good_for = places.ttl.map(&mut take).map_or(Ok(None), seconds)?;
        let tags =
            places.tags.map(&mut take).and_then(Cell::into_bytes).map_or(Tags::NONE, |text| tags(&text));
        let value = match self.value {
            SqlValue::Column => take(places.value[0]).into_bytes(),
            SqlValue::Json => Some(object(columns, &places.value, &row)),
        };
        Ok(value.map(|value| Found { value, flags: 0, good_for, tags }))
    }
}

/// Formats the columns of a row at `places` as a JSON object.
fn object(columns: &[String], places: &[usize], row: &[Cell]) -> Bytes {
    let mut json = Vec::with_capacity(64);
    json.push(b'{');
    for (i, &at) in places.iter().enumerate() {
        if i > 0 {
            json.push(b',');
        }
        write_string(&columns[at], &mut json);
        json.push(b':');
        row.get(at).unwrap_or(&Cell::Null).write_json(&mut json);
    }
    json.push(b'}');
    json.into()
}

/// Longest time to live of a value, in seconds; more means unlimited.
const SECONDS_MAX: f64 = 365.0 * 86_400.0;

fn seconds(cell: Cell) -> Result<Option<Duration>, Cause> {
    let Some(bytes) = cell.into_bytes() else { return Ok(None) };
    let text = String::from_utf8_lossy(&bytes);
    match text.trim().parse::<f64>() {
        Ok(seconds) if !seconds.is_nan() => {
            Ok(Some(Duration::from_secs_f64(seconds.clamp(0.0, SECONDS_MAX))))
        }
        _ => {
            // The text may be any user data, which must not be logged.
            let bytes = text.len();
            Err(wrong(format!(
                "its `ttl_column` has a text of {bytes} bytes, where a number of seconds is accepted"
            )))
        }
    }
}

fn tags(text: &[u8]) -> Tags {
    let names = text.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    names.filter(|name| !name.is_empty()).collect()
}

fn wrong(detail: String) -> Cause {
    Cause::Statement { detail }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> SqlOptions {
        SqlOptions::new("db:1", "me", "shop", "SELECT :key")
    }

    fn answer(columns: &[&str], rows: Vec<Vec<Cell>>) -> Answer {
        Answer { columns: columns.iter().map(|&name| name.into()).collect(), rows, ..Answer::default() }
    }

    fn of(rows: &Rows<Each>, key: &'static str) -> Found {
        rows.get(&key.into()).cloned().expect("it has a row").expect("it is valid").expect("it has a value")
    }

    fn text(text: &'static str) -> Cell {
        Cell::Text(Bytes::from_static(text.as_bytes()))
    }

    fn number(text: &str) -> Cell {
        Cell::Number(text.into())
    }

    #[test]
    fn value_of_a_single_column_is_returned_unchanged() {
        let shape = Shape::new(&options(), false);
        let one = |cell| shape.one(answer(&["v"], vec![vec![cell]])).unwrap().map(|found| found.value);
        assert_eq!(one(text("é")), Some("é".into()));
        assert_eq!(one(number("-12")), Some("-12".into()));
        assert_eq!(one(Cell::Bool(true)), Some("true".into()));
        assert_eq!(one(Cell::Bytes(b"\xff\x00"[..].into())), Some(b"\xff\x00"[..].into()));
        assert_eq!(one(Cell::Null), None);
        assert_eq!(shape.one(answer(&["v"], vec![])).unwrap(), None);
    }

    #[test]
    fn row_of_several_columns_becomes_a_json_object_in_their_order() {
        let shape = Shape::new(&SqlOptions { value: SqlValue::Json, ..options() }, true);
        let columns = ["id", "z", "a\"", "n", "d", "b", "j", "t"];
        let row = vec![
            number("7"),
            text("\"é\n"),
            Cell::Null,
            number("NaN"),
            number("1.50"),
            Cell::Bytes(b"\xff\x00"[..].into()),
            Cell::Json("{\"x\":[1]}".into()),
            Cell::Bool(false),
        ];
        let found = shape.many(answer(&columns, vec![row])).unwrap();
        let value = of(&found, "7").value;
        let expected =
            r#"{"id":7,"z":"\"é\n","a\"":null,"n":"NaN","d":1.50,"b":"/wA=","j":{"x":[1]},"t":false}"#;
        assert_eq!(value, expected);
        assert!(serde_json::from_slice::<serde_json::Value>(&value).is_ok());
    }

    #[test]
    fn time_to_live_and_tags_are_read_from_the_configured_columns() {
        let (ttl_column, tags_column) = (Some("ttl".into()), Some("tags".into()));
        let shape = Shape::new(&SqlOptions { ttl_column, tags_column, ..options() }, true);
        let columns = ["id", "ttl", "v", "tags"];
        let row = |key, ttl, tags| vec![text(key), ttl, text("v"), tags];
        let rows = vec![
            row("a", number("1.5"), text("x, y ,,")),
            row("b", number("-3"), Cell::Null),
            row("c", Cell::Null, text("")),
            row("d", text("1e300"), Cell::Null),
        ];
        let found = shape.many(answer(&columns, rows)).unwrap();
        let of = |key: &'static str| of(&found, key);
        assert_eq!(of("a").good_for, Some(Duration::from_millis(1500)));
        assert_eq!(of("a").tags, [&b"x"[..], b"y"].into_iter().collect());
        assert_eq!((of("b").good_for, of("b").tags), (Some(Duration::ZERO), Tags::NONE));
        assert_eq!((of("c").good_for, of("c").tags), (None, Tags::NONE));
        assert_eq!(of("d").good_for, Some(Duration::from_secs(365 * 86_400)));
        assert_eq!(of("a").value, "v");
        let rows = vec![row("a", text("soon"), Cell::Null), row("b", Cell::Null, Cell::Null)];
        let found = shape.many(answer(&columns, rows)).unwrap();
        assert!(found.get(&"b".into()).is_some_and(Result::is_ok), "a bad row fails its own key only");
        let cause = found.get(&"a".into()).unwrap().as_ref().unwrap_err();
        assert!(
            cause.to_string().contains("its `ttl_column` has a text of 4 bytes, where a number of seconds"),
            "{cause}"
        );
    }

    #[test]
    fn columns_that_differ_from_the_options_are_an_error_of_the_statement() {
        let refused = |shape: &Shape, columns: &[&str]| {
            let columns: Vec<_> = columns.iter().map(|&name| name.to_owned()).collect();
            shape.check(&columns).unwrap_err().to_string()
        };
        let (one, keyed) = (Shape::new(&options(), false), Shape::new(&options(), true));
        assert!(refused(&one, &["a", "b"]).contains("2 columns of values, where 1 is accepted"));
        assert!(refused(&one, &[]).contains("0 columns of values"));
        assert!(refused(&keyed, &["k"]).contains("0 columns of values after the key"));
        let timed = Shape::new(&SqlOptions { ttl_column: Some("ttl".into()), ..options() }, false);
        assert!(refused(&timed, &["v"]).contains("no column `ttl`, which `ttl_column` names"));
        let json = Shape::new(&SqlOptions { value: SqlValue::Json, ..options() }, false);
        assert!(refused(&json, &[]).contains("no columns"));
    }
}
