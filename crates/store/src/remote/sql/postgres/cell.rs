//! Converts values of PostgreSQL's types from their binary form.
//!
//! Numbers are formatted as by the server, times in UTC. The binary form of a type is defined by
//! its `send` function in the server's sources and has been stable for decades.

use std::error::Error;

use bytes::Bytes;
use tokio_postgres::types::{FromSql, Kind, Type};

use crate::remote::spelling::Compared;
use crate::remote::sql::answer::Cell;

type Read<T> = Result<T, Box<dyn Error + Sync + Send>>;

impl<'a> FromSql<'a> for Cell {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Read<Self> {
        Ok(cell(kind, raw).unwrap_or_else(|error| Self::Unread(error.to_string())))
    }

    fn from_sql_null(_kind: &Type) -> Read<Self> {
        Ok(Self::Null)
    }

    fn accepts(_kind: &Type) -> bool {
        true
    }
}

/// Returns the way in which the server compares keys with a column of this type.
pub(super) fn compared(kind: &Type) -> Compared {
    match *kind {
        Type::INT2 | Type::INT4 | Type::INT8 | Type::OID | Type::NUMERIC => Compared::Decimal,
        Type::FLOAT4 | Type::FLOAT8 => Compared::Float,
        Type::UUID => Compared::Uuid,
        Type::BYTEA => Compared::Bytes,
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::CHAR => Compared::Text,
        _ => match kind.kind() {
            Kind::Enum(_) => Compared::Text,
            Kind::Domain(inner) => compared(inner),
            _ if kind.name() == "citext" => Compared::Text,
            _ => Compared::Other,
        },
    }
}

fn cell(kind: &Type, raw: &[u8]) -> Read<Cell> {
    Ok(match *kind {
        Type::BOOL => Cell::Bool(fixed::<1>(raw)? != [0]),
        Type::INT2 => number(i16::from_be_bytes(fixed(raw)?)),
        Type::INT4 => number(i32::from_be_bytes(fixed(raw)?)),
        Type::INT8 => number(i64::from_be_bytes(fixed(raw)?)),
        Type::OID => number(u32::from_be_bytes(fixed(raw)?)),
        Type::FLOAT4 => Cell::Number(float(f32::from_be_bytes(fixed(raw)?))),
        Type::FLOAT8 => Cell::Number(float(f64::from_be_bytes(fixed(raw)?))),
        Type::NUMERIC => Cell::Number(numeric(raw)?),
        Type::BYTEA => Cell::Bytes(Bytes::copy_from_slice(raw)),
        Type::JSON => Cell::Json(std::str::from_utf8(raw)?.to_owned()),
        Type::JSONB => match raw.split_first() {
            Some((1, json)) => Cell::Json(std::str::from_utf8(json)?.to_owned()),
            _ => return Err("jsonb of another version than 1".into()),
        },
        Type::UUID => text(uuid(fixed(raw)?)),
        Type::DATE => text(date(i32::from_be_bytes(fixed(raw)?))),
        Type::TIME => text(time(i64::from_be_bytes(fixed(raw)?))),
        Type::TIMESTAMP => text(timestamp(i64::from_be_bytes(fixed(raw)?), "")),
        Type::TIMESTAMPTZ => text(timestamp(i64::from_be_bytes(fixed(raw)?), "+00")),
        Type::VOID => Cell::Null,
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN | Type::XML | Type::CHAR => {
            Cell::Text(Bytes::copy_from_slice(raw))
        }
        _ => match kind.kind() {
            Kind::Enum(_) => Cell::Text(Bytes::copy_from_slice(raw)),
            Kind::Domain(inner) => cell(inner, raw)?,
            Kind::Array(inner) => array(inner, raw)?,
            _ if kind.name() == "citext" => Cell::Text(Bytes::copy_from_slice(raw)),
            _ => {
                return Err(format!(
                    "a column has type {kind}, which is not read; cast it, as in `column::text`"
                )
                .into());
            }
        },
    })
}

fn number(number: impl ToString) -> Cell {
    Cell::Number(number.to_string())
}

fn text(text: String) -> Cell {
    Cell::Text(text.into())
}

fn fixed<const N: usize>(raw: &[u8]) -> Read<[u8; N]> {
    raw.try_into().map_err(|_| format!("{} bytes came, where {N} were expected", raw.len()).into())
}

/// Takes the first `N` bytes off `raw`.
fn take<const N: usize>(raw: &mut &[u8]) -> Read<[u8; N]> {
    let (first, rest) = raw.split_first_chunk::<N>().ok_or("a value ended early")?;
    *raw = rest;
    Ok(*first)
}

fn float(value: impl Into<f64> + ToString + Copy) -> String {
    let wide: f64 = value.into();
    if wide.is_finite() {
        value.to_string()
    } else if wide.is_nan() {
        "NaN".to_owned()
    } else {
        (if wide > 0.0 { "Infinity" } else { "-Infinity" }).to_owned()
    }
}

/// Formats a `numeric`: the number of groups of four decimal digits, the weight of the first one
/// (an exponent of 10000), the sign, the number of digits after the point, and the groups.
fn numeric(mut raw: &[u8]) -> Read<String> {
    let groups = u16::from_be_bytes(take(&mut raw)?);
    let weight = i32::from(i16::from_be_bytes(take(&mut raw)?));
    let sign = u16::from_be_bytes(take(&mut raw)?);
    let digits = usize::from(u16::from_be_bytes(take(&mut raw)?));
    let groups = (0..groups).map(|_| take(&mut raw).map(u16::from_be_bytes)).collect::<Read<Vec<_>>>()?;
    let group = |place: i32| {
        let at = usize::try_from(weight - place).ok();
        at.and_then(|at| groups.get(at)).copied().unwrap_or(0)
    };
    let mut out = match sign {
        0 => String::new(),
        0x4000 => "-".to_owned(),
        0xC000 => return Ok("NaN".to_owned()),
        0xD000 => return Ok("Infinity".to_owned()),
        0xF000 => return Ok("-Infinity".to_owned()),
        _ => return Err("a numeric has an unknown sign".into()),
    };
    out.push_str(&group(weight.max(0)).to_string());
    for place in (0..weight.max(0)).rev() {
        out.push_str(&format!("{:04}", group(place)));
    }
    if digits > 0 {
        let places = i32::try_from(digits.div_ceil(4))?;
        let fraction: String = (1..=places).map(|place| format!("{:04}", group(-place))).collect();
        out.push('.');
        out.push_str(&fraction[..digits]);
    }
    Ok(out)
}

fn uuid(bytes: [u8; 16]) -> String {
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Days from 1970 to PostgreSQL's epoch, the start of the year 2000.
const ORIGIN_DAYS: i64 = 10_957;
const DAY_MICROS: i64 = 86_400_000_000;

fn date(days: i32) -> String {
    match days {
        i32::MAX => "infinity".to_owned(),
        i32::MIN => "-infinity".to_owned(),
        days => {
            let (date, era) = civil(days.into());
            format!("{date}{era}")
        }
    }
}

fn timestamp(micros: i64, zone: &str) -> String {
    match micros {
        i64::MAX => "infinity".to_owned(),
        i64::MIN => "-infinity".to_owned(),
        micros => {
            let (date, era) = civil(micros.div_euclid(DAY_MICROS));
            format!("{date} {}{zone}{era}", time(micros.rem_euclid(DAY_MICROS)))
        }
    }
}

/// Formats a time of day, given in microseconds from midnight.
fn time(micros: i64) -> String {
    let (seconds, micros) = (micros.div_euclid(1_000_000), micros.rem_euclid(1_000_000));
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let fraction = match micros {
        0 => String::new(),
        micros => format!(".{micros:06}").trim_end_matches('0').to_owned(),
    };
    format!("{hours:02}:{minutes:02}:{seconds:02}{fraction}")
}

/// Formats a day counted from PostgreSQL's epoch; the second part is the suffix of years before the
/// first.
///
/// Years start in March, so that the leap day is the last of its year, and are grouped in eras of
/// 400 years, which all have the same number of days.
fn civil(days: i64) -> (String, &'static str) {
    let days = days + ORIGIN_DAYS + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    match year {
        1.. => (format!("{year:04}-{month:02}-{day:02}"), ""),
        // There is no year 0.
        _ => (format!("{:04}-{month:02}-{day:02}", 1 - year), " BC"),
    }
}

/// Formats an array of one dimension as JSON.
fn array(inner: &Type, mut raw: &[u8]) -> Read<Cell> {
    let dimensions = i32::from_be_bytes(take(&mut raw)?);
    let (_flags, _type): ([u8; 4], [u8; 4]) = (take(&mut raw)?, take(&mut raw)?);
    let mut json = vec![b'['];
    match dimensions {
        0 => {}
        1 => {
            let count = i32::from_be_bytes(take(&mut raw)?);
            let _lower_bound: [u8; 4] = take(&mut raw)?;
            for at in 0..count {
                if at > 0 {
                    json.push(b',');
                }
                element(inner, &mut raw)?.write_json(&mut json);
            }
        }
        _ => {
            return Err(
                "a column has an array of arrays, which is not read; cast it, as in `to_json(column)`".into(),
            );
        }
    }
    json.push(b']');
    Ok(Cell::Json(String::from_utf8(json)?))
}

fn element(inner: &Type, raw: &mut &[u8]) -> Read<Cell> {
    let Ok(len) = usize::try_from(i32::from_be_bytes(take(raw)?)) else { return Ok(Cell::Null) };
    let (value, rest) = raw.split_at_checked(len).ok_or("an array ended early")?;
    *raw = rest;
    cell(inner, value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numeric_of(weight: i16, sign: u16, digits: u16, groups: &[u16]) -> String {
        let head = [groups.len() as u16, weight as u16, sign, digits];
        let raw: Vec<u8> = head.iter().chain(groups).flat_map(|word| word.to_be_bytes()).collect();
        numeric(&raw).unwrap()
    }

    #[test]
    fn postgres_numeric_is_formatted_with_all_its_digits() {
        assert_eq!(numeric_of(0, 0, 0, &[]), "0");
        assert_eq!(numeric_of(0, 0, 2, &[1, 5000]), "1.50");
        assert_eq!(numeric_of(1, 0x4000, 0, &[12]), "-120000");
        assert_eq!(numeric_of(-1, 0, 6, &[1, 2300]), "0.000123");
        assert_eq!(numeric_of(-2, 0, 5, &[1000]), "0.00001");
        assert_eq!(numeric_of(2, 0, 3, &[1, 0, 42, 1230]), "100000042.123");
        assert_eq!(numeric_of(0, 0xC000, 0, &[]), "NaN");
    }

    #[test]
    fn postgres_days_are_formatted_as_calendar_dates() {
        assert_eq!(date(0), "2000-01-01");
        assert_eq!(date(59), "2000-02-29");
        assert_eq!(date(8_825), "2024-02-29");
        assert_eq!(date(-10_957), "1970-01-01");
        assert_eq!(date(-730_119), "0001-01-01");
        assert_eq!(date(-730_120), "0001-12-31 BC");
        assert_eq!(date(i32::MAX), "infinity");
        assert_eq!(timestamp(-1_000, "+00"), "1999-12-31 23:59:59.999+00");
        assert_eq!(timestamp(DAY_MICROS + 3_661_000_000, ""), "2000-01-02 01:01:01");
    }

    #[test]
    fn postgres_array_is_converted_to_json() {
        let mut raw = Vec::new();
        for word in [1, 1, 25, 3, 1] {
            raw.extend_from_slice(&i32::to_be_bytes(word));
        }
        for text in ["a", "\""] {
            raw.extend_from_slice(&i32::to_be_bytes(1));
            raw.extend_from_slice(text.as_bytes());
        }
        raw.extend_from_slice(&i32::to_be_bytes(-1));
        assert_eq!(cell(&Type::TEXT_ARRAY, &raw).unwrap(), Cell::Json(r#"["a","\"",null]"#.into()));
    }

    #[test]
    fn error_of_an_unsupported_postgres_type_has_a_remedy() {
        let error = cell(&Type::INET, &[]).unwrap_err().to_string();
        assert_eq!(error, "a column has type inet, which is not read; cast it, as in `column::text`");
    }

    proptest! {
        #[test]
        fn any_bytes_of_a_postgres_value_are_converted_or_refused(raw in prop::collection::vec(any::<u8>(), 0..40)) {
            for kind in [
                Type::BOOL, Type::INT2, Type::INT4, Type::INT8, Type::FLOAT4, Type::FLOAT8, Type::NUMERIC, Type::JSON, Type::JSONB,
                Type::UUID, Type::DATE, Type::TIME, Type::TIMESTAMP, Type::TIMESTAMPTZ, Type::TEXT, Type::INT4_ARRAY, Type::INET,
            ] {
                let _ = cell(&kind, &raw);
            }
        }
    }
}
