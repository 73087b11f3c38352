//! Log lines: as JSON with the fields of an event, and as text without its details.

use std::fmt::{self, Debug};

use serde::Serialize;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The field with the details of an event in JSON. Its sentence says the same to people.
const DETAILS: &str = "data";
const MESSAGE: &str = "message";

/// A log line in JSON.
#[derive(Serialize)]
struct Line<'a> {
    timestamp: String,
    level: &'a str,
    fields: Map<String, Value>,
}

/// Returns a log line in JSON with only a message.
pub(crate) fn json(level: &str, message: &str) -> String {
    encoded(level, Map::from_iter([(MESSAGE.to_owned(), message.into())]))
}

fn encoded(level: &str, fields: Map<String, Value>) -> String {
    let mut timestamp = String::new();
    // A time that cannot be formatted is left out.
    let _ = SystemTime.format_time(&mut Writer::new(&mut timestamp));
    serde_json::to_string(&Line { timestamp, level, fields }).unwrap_or_default()
}

/// The format of one JSON object a line.
pub(crate) struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = JsonFields(Map::new());
        event.record(&mut fields);
        writeln!(writer, "{}", encoded(event.metadata().level().as_str(), fields.0))
    }
}

struct JsonFields(Map<String, Value>);

impl JsonFields {
    fn set(&mut self, field: &Field, value: impl Into<Value>) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

impl Visit for JsonFields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        match field.name() {
            DETAILS => self.set(field, serde_json::from_str(&text).unwrap_or(Value::String(text))),
            _ => self.set(field, text),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.set(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.set(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.set(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.set(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.set(field, value);
    }
}

/// The fields of a line of text: the message, then all others but the details.
pub(crate) struct Text;

impl<'w> FormatFields<'w> for Text {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut fields_of = TextFields { writer, any: false, result: Ok(()) };
        fields.record(&mut fields_of);
        fields_of.result
    }
}

struct TextFields<'w> {
    writer: Writer<'w>,
    any: bool,
    result: fmt::Result,
}

impl Visit for TextFields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == DETAILS {
            return;
        }
        let blank = if std::mem::replace(&mut self.any, true) { " " } else { "" };
        let written = match field.name() {
            MESSAGE => write!(self.writer, "{blank}{value:?}"),
            name => write!(self.writer, "{blank}{name}={value:?}"),
        };
        self.result = self.result.and(written);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn decide() {
        let data = serde_json::json!({"moves": [{"partition": "b", "before_bytes": 1, "after_bytes": 2}]});
        tracing::info!(kind = "decision", moved = 1_u64, data = %data, "moved 1 B: \"b\"");
    }

    #[test]
    fn json_line_has_an_events_details_as_fields() {
        let written = Written::default();
        let to = written.clone();
        let logs = tracing_subscriber::fmt().event_format(Json).with_writer(move || to.clone());
        tracing::subscriber::with_default(logs.finish(), decide);
        let line: Value = serde_json::from_slice(&written.0.lock().unwrap()).unwrap();
        assert_eq!(line["level"], "INFO");
        assert!(line["timestamp"].as_str().is_some_and(|time| time.ends_with('Z')));
        let fields = &line["fields"];
        assert_eq!(fields["message"], "moved 1 B: \"b\"");
        assert_eq!((&fields["kind"], &fields["moved"]), (&"decision".into(), &1.into()));
        assert_eq!(fields["data"]["moves"][0]["after_bytes"], 2);
    }

    #[test]
    fn line_of_text_has_no_details() {
        let written = Written::default();
        let to = written.clone();
        let logs = tracing_subscriber::fmt().with_ansi(false).without_time().with_target(false);
        let logs = logs.fmt_fields(Text).with_writer(move || to.clone());
        tracing::subscriber::with_default(logs.finish(), decide);
        let line = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        assert_eq!(line, " INFO moved 1 B: \"b\" kind=\"decision\" moved=1\n");
    }

    #[test]
    fn json_line_of_a_message_is_one_line() {
        let line = json("ERROR", "a\nb");
        assert!(!line.contains('\n'));
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap()["fields"]["message"], "a\nb");
    }
}
