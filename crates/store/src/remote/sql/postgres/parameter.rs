//! Converts keys and values to parameters of PostgreSQL's types.
//!
//! The server determines a parameter's type: that of the column it is compared with. A key is
//! bytes, which are sent as text for most types; the server parses it like a literal. An invalid
//! literal cannot be the key of a row, but the server would fail the whole statement, so literals
//! of the frequent types are checked here.

use bytes::{BufMut, Bytes, BytesMut};
use tokio_postgres::types::{Format, IsNull, Kind, ToSql, Type, to_sql_checked};

/// A key or value as a parameter that fits the type which the server determined; null if it has no
/// form of that type.
#[derive(Debug)]
pub(super) struct Parameter(Option<(Bytes, Format)>);

impl Parameter {
    /// The null parameter, which equals nothing.
    pub(super) const NULL: Self = Self(None);

    /// Removes the parameter with this number, counted from 1, and all others with the same
    /// content; false if there is no such parameter.
    pub(super) fn exclude(parameters: &mut [Option<Self>], number: usize) -> bool {
        let named = number.checked_sub(1).and_then(|at| parameters.get(at)?.as_ref()?.content().cloned());
        let Some(named) = named else { return false };
        let is_named = |one: &Self| one.content() == Some(&named);
        parameters.iter_mut().for_each(|one| drop(one.take_if(|one| is_named(one))));
        true
    }

    /// Returns the bytes of the parameter; none for null.
    fn content(&self) -> Option<&Bytes> {
        self.0.as_ref().map(|(bytes, _)| bytes)
    }

    /// Converts `bytes` to a value of `kind`; none if they are invalid. Only numbers, UUIDs, text
    /// and bytes are checked; other types are checked by the server.
    pub(super) fn new(kind: &Type, bytes: Bytes) -> Option<Self> {
        if let Kind::Domain(inner) = kind.kind() {
            return Self::new(inner, bytes);
        }
        if *kind == Type::BYTEA {
            return Some(Self(Some((bytes, Format::Binary))));
        }
        // PostgreSQL's text cannot contain a zero byte.
        let text = std::str::from_utf8(&bytes).ok().filter(|text| !text.contains('\0'))?;
        let fits = match *kind {
            Type::INT2 => text.parse::<i16>().is_ok(),
            Type::INT4 => text.parse::<i32>().is_ok(),
            Type::INT8 => text.parse::<i64>().is_ok(),
            Type::OID => text.parse::<u32>().is_ok(),
            Type::FLOAT4 | Type::FLOAT8 => text.parse::<f64>().is_ok(),
            Type::NUMERIC => is_decimal(text),
            Type::UUID => is_uuid(text),
            _ => true,
        };
        fits.then(|| Self(Some((bytes, Format::Text))))
    }
}

/// Checks for a decimal number with an optional sign, point and exponent, or a special number.
fn is_decimal(text: &str) -> bool {
    if text.parse::<f64>().is_ok_and(|number| !number.is_finite())
        && !text.contains(|c: char| c.is_ascii_digit())
    {
        return true;
    }
    let exponent = text.split_once(['e', 'E']).map(|(_, exponent)| exponent);
    let is_short = exponent.is_none_or(|exponent| exponent.parse::<i16>().is_ok());
    is_short && text.bytes().any(|byte| byte.is_ascii_digit()) && text.parse::<f64>().is_ok()
}

/// Checks for 32 hexadecimal digits, perhaps in braces, and with a hyphen after any group of four.
fn is_uuid(text: &str) -> bool {
    let inner = text.strip_prefix('{').map_or(Some(text), |rest| rest.strip_suffix('}'));
    let mut digits = 0;
    let fits = inner.is_some_and(|inner| {
        inner.bytes().all(|byte| match byte {
            // A second hyphen in a row is found by the server.
            b'-' => digits % 4 == 0 && (4..32).contains(&digits),
            byte => {
                digits += 1;
                byte.is_ascii_hexdigit()
            }
        })
    });
    fits && digits == 32
}

impl ToSql for Parameter {
    fn to_sql(
        &self,
        _kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        let Some((bytes, _)) = &self.0 else { return Ok(IsNull::Yes) };
        out.put_slice(bytes);
        Ok(IsNull::No)
    }

    fn accepts(_kind: &Type) -> bool {
        true
    }

    fn encode_format(&self, _kind: &Type) -> Format {
        self.0.as_ref().map_or(Format::Binary, |(_, format)| *format)
    }

    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excluding_a_parameter_removes_all_parameters_with_the_same_content() {
        let text = |key: &'static str| Parameter::new(&Type::TEXT, key.into());
        let mut parameters = [text("a"), text("b"), text("b")];
        assert!(Parameter::exclude(&mut parameters, 2));
        assert_eq!(parameters.each_ref().map(Option::is_some), [true, false, false]);
        assert!(!Parameter::exclude(&mut parameters, 3), "it is removed already");
        assert!(!Parameter::exclude(&mut parameters, 0) && !Parameter::exclude(&mut parameters, 4));
    }

    #[test]
    fn key_that_is_no_literal_of_the_parameter_type_is_refused() {
        let fits = |kind: Type, key: &'static [u8]| Parameter::new(&kind, Bytes::from_static(key)).is_some();
        assert!(
            fits(Type::INT4, b"-12")
                && fits(Type::INT2, b"32767")
                && fits(Type::INT8, b"9223372036854775807")
        );
        assert!(!fits(Type::INT4, b"1x") && !fits(Type::INT4, b"") && !fits(Type::INT2, b"32768"));
        assert!(!fits(Type::INT4, b"1 OR 1=1") && !fits(Type::INT4, b"3000000000"));
        assert!(fits(Type::UUID, b"6ba7b810-9dad-11d1-80b4-00c04fd430c8"));
        assert!(fits(Type::UUID, b"{6BA7B8109dad11d180b4-00c04fd430c8}"));
        for other in [
            "6ba7b810-9dad-11d1-80b4-00c04fd430cg",
            "1",
            "{6ba7b8109dad11d180b400c04fd430c8",
            "6ba7b8109dad11d180b400c04fd430c8-",
        ] {
            assert!(!fits(Type::UUID, other.as_bytes()), "{other}");
        }
        assert!(
            fits(Type::NUMERIC, b"1.50e3") && !fits(Type::NUMERIC, b"1e99999") && fits(Type::NUMERIC, b"NaN")
        );
        assert!(fits(Type::TEXT, "é".as_bytes()) && !fits(Type::TEXT, b"\xff") && !fits(Type::TEXT, b"a\0"));
        assert!(fits(Type::BYTEA, b"\xff\0"));
    }
}
