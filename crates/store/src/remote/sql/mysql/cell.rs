//! Converts column values of MySQL's types.

use bytes::Bytes;
use mysql_async::consts::{ColumnFlags, ColumnType};
use mysql_async::{Column, Value};

use crate::remote::spelling::Compared;
use crate::remote::sql::answer::Cell;

/// The number of MySQL's binary character set, which marks columns of bytes.
const BINARY: u16 = 63;

/// Converts the value of a column to a [`Cell`]. A value of an unexpected type is kept as bytes.
pub(super) fn cell(column: &Column, value: Value) -> Cell {
    match value {
        Value::NULL => Cell::Null,
        Value::Int(number) => Cell::Number(number.to_string()),
        Value::UInt(number) => Cell::Number(number.to_string()),
        Value::Float(number) => Cell::Number(number.to_string()),
        Value::Double(number) => Cell::Number(number.to_string()),
        Value::Date(year, month, day, hour, minute, second, micros) => {
            let date = format!("{year:04}-{month:02}-{day:02}");
            let text = match column.column_type() {
                ColumnType::MYSQL_TYPE_DATE | ColumnType::MYSQL_TYPE_NEWDATE => date,
                _ => format!("{date} {hour:02}:{minute:02}:{second:02}{}", fraction(column, micros)),
            };
            Cell::Text(text.into())
        }
        Value::Time(negative, days, hours, minutes, seconds, micros) => {
            let sign = if negative { "-" } else { "" };
            let hours = u64::from(days) * 24 + u64::from(hours);
            let fraction = fraction(column, micros);
            Cell::Text(format!("{sign}{hours:02}:{minutes:02}:{seconds:02}{fraction}").into())
        }
        Value::Bytes(bytes) => of_bytes(column, bytes.into()),
    }
}

fn of_bytes(column: &Column, bytes: Bytes) -> Cell {
    match column.column_type() {
        ColumnType::MYSQL_TYPE_DECIMAL | ColumnType::MYSQL_TYPE_NEWDECIMAL => {
            match String::from_utf8(bytes.into()) {
                Ok(text) => Cell::Number(text),
                Err(error) => Cell::Bytes(error.into_bytes().into()),
            }
        }
        ColumnType::MYSQL_TYPE_JSON => match String::from_utf8(bytes.into()) {
            Ok(text) => Cell::Json(text),
            Err(error) => Cell::Bytes(error.into_bytes().into()),
        },
        // At most 64 bits, in big-endian order.
        ColumnType::MYSQL_TYPE_BIT if bytes.len() <= 8 => {
            Cell::Number(bytes.iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte)).to_string())
        }
        ColumnType::MYSQL_TYPE_GEOMETRY => Cell::Bytes(bytes),
        _ if column.character_set() == BINARY => Cell::Bytes(bytes),
        _ => Cell::Text(bytes),
    }
}

/// Returns the way in which the server compares keys with a column. The column's collation is not
/// known, since the server converts text to the character set of the connection, but a flag marks
/// binary columns.
pub(super) fn compared(column: &Column) -> Compared {
    use ColumnType::*;
    let flags = column.flags();
    match column.column_type() {
        MYSQL_TYPE_TINY
        | MYSQL_TYPE_SHORT
        | MYSQL_TYPE_INT24
        | MYSQL_TYPE_LONG
        | MYSQL_TYPE_LONGLONG
        | MYSQL_TYPE_DECIMAL
        | MYSQL_TYPE_NEWDECIMAL => Compared::Decimal,
        MYSQL_TYPE_FLOAT | MYSQL_TYPE_DOUBLE => Compared::Float,
        // MariaDB's UUID and addresses are text that has no sign.
        MYSQL_TYPE_STRING if flags.contains(ColumnFlags::UNSIGNED_FLAG) => Compared::Other,
        MYSQL_TYPE_VARCHAR
        | MYSQL_TYPE_VAR_STRING
        | MYSQL_TYPE_STRING
        | MYSQL_TYPE_ENUM
        | MYSQL_TYPE_SET
        | MYSQL_TYPE_TINY_BLOB
        | MYSQL_TYPE_BLOB
        | MYSQL_TYPE_MEDIUM_BLOB
        | MYSQL_TYPE_LONG_BLOB => match flags.contains(ColumnFlags::BINARY_FLAG) {
            true => Compared::Bytes,
            false => Compared::Text,
        },
        _ => Compared::Other,
    }
}

/// Formats the fraction of a second with the column's number of digits.
fn fraction(column: &Column, micros: u32) -> String {
    match usize::from(column.decimals()) {
        0 => String::new(),
        // If the column has no number of digits, the digits that are not zero.
        digits if digits > 6 && micros == 0 => String::new(),
        digits => format!(".{:.*}", digits.min(6), format!("{micros:06}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(kind: ColumnType) -> Column {
        Column::new(kind).with_character_set(45)
    }

    #[test]
    fn mysql_times_are_text_with_as_many_digits_as_their_column() {
        let text = |kind, decimals, value| cell(&column(kind).with_decimals(decimals), value);
        let at = Value::Date(2024, 2, 29, 7, 8, 9, 120_000);
        assert_eq!(text(ColumnType::MYSQL_TYPE_DATE, 0, at.clone()), Cell::Text("2024-02-29".into()));
        assert_eq!(
            text(ColumnType::MYSQL_TYPE_DATETIME, 3, at.clone()),
            Cell::Text("2024-02-29 07:08:09.120".into())
        );
        assert_eq!(text(ColumnType::MYSQL_TYPE_TIMESTAMP, 0, at), Cell::Text("2024-02-29 07:08:09".into()));
        let for_long = Value::Time(true, 2, 1, 0, 5, 0);
        assert_eq!(text(ColumnType::MYSQL_TYPE_TIME, 39, for_long), Cell::Text("-49:00:05".into()));
    }

    #[test]
    fn mysql_bytes_are_converted_by_the_type_of_their_column() {
        let bytes = || Value::Bytes(b"10".to_vec());
        assert_eq!(cell(&column(ColumnType::MYSQL_TYPE_NEWDECIMAL), bytes()), Cell::Number("10".into()));
        assert_eq!(cell(&column(ColumnType::MYSQL_TYPE_JSON), bytes()), Cell::Json("10".into()));
        assert_eq!(cell(&column(ColumnType::MYSQL_TYPE_BLOB), bytes()), Cell::Text("10".into()));
        let blob = column(ColumnType::MYSQL_TYPE_BLOB).with_character_set(BINARY);
        assert_eq!(cell(&blob, bytes()), Cell::Bytes("10".into()));
        let bits = Value::Bytes(vec![1, 2]);
        assert_eq!(cell(&column(ColumnType::MYSQL_TYPE_BIT), bits), Cell::Number("258".into()));
        assert_eq!(cell(&column(ColumnType::MYSQL_TYPE_TINY), Value::NULL), Cell::Null);
        assert_eq!(cell(&column(ColumnType::MYSQL_TYPE_TINY), Value::Int(-1)), Cell::Number("-1".into()));
    }
}
