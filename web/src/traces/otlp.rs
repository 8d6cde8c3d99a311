//! Spans as the JSON of OTLP: identifiers are hexadecimal digits, and 64-bit numbers are texts.

use serde_json::{Value as Json, json};

use super::span::{Parent, Span, Value};

/// The flags of a span that has no parent, or one in this process.
const SAMPLED: u32 = 1;
/// The parent is known to be in another process.
const HAS_REMOTE_PARENT: u32 = 0x300;
/// The status of a span that failed.
const ERROR: u32 = 2;

/// The body of a request to `/v1/traces`.
pub(super) fn request(service: &str, spans: &[Span]) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let resource = [
        ("service.name", Value::Text(service.to_owned())),
        ("service.version", Value::Text(version.to_owned())),
    ];
    json!({
        "resourceSpans": [{
            "resource": { "attributes": attributes(&resource) },
            "scopeSpans": [{
                "scope": { "name": "skewer", "version": version },
                "spans": spans.iter().map(span).collect::<Json>(),
            }],
        }],
    })
    .to_string()
}

fn span(span: &Span) -> Json {
    let mut json = json!({
        "traceId": span.trace_id,
        "spanId": span.span_id,
        "flags": SAMPLED,
        "name": span.name,
        "kind": span.kind as u32,
        "startTimeUnixNano": span.start_ns.to_string(),
        "endTimeUnixNano": span.end_ns.to_string(),
        "attributes": attributes(&span.attributes),
    });
    match &span.parent {
        Parent::None => {}
        Parent::Span(id) => json["parentSpanId"] = json!(id),
        Parent::Remote(parent) => {
            json["parentSpanId"] = json!(parent.span_id());
            json["flags"] = json!(HAS_REMOTE_PARENT | u32::from(parent.flags()));
        }
    }
    if let Some(error) = &span.error {
        json["status"] = json!({ "code": ERROR, "message": error });
    }
    json
}

fn attributes(attributes: &[(&str, Value)]) -> Json {
    let attributes = attributes.iter().map(|(key, value)| {
        let value = match value {
            Value::Text(text) => json!({ "stringValue": text }),
            Value::Integer(number) => json!({ "intValue": number.to_string() }),
        };
        json!({ "key": key, "value": value })
    });
    attributes.collect()
}

/// How many spans an answer says that the collector did not take.
pub(super) fn rejected(answer: &[u8]) -> u64 {
    let answer: Json = serde_json::from_slice(answer).unwrap_or_default();
    let rejected = &answer["partialSuccess"]["rejectedSpans"];
    let text = rejected.as_str().and_then(|text| text.parse().ok());
    text.or(rejected.as_u64()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::span::SpanKind;
    use super::*;

    #[test]
    fn a_span_is_json_as_protocol_buffers_map_it() {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let span = Span {
            trace_id: "4bf92f3577b34da6a3ce929d0e0e4736".to_owned(),
            span_id: "0123456789abcdef".to_owned(),
            parent: Parent::Remote(parent.parse().unwrap()),
            name: "SELECT".to_owned(),
            kind: SpanKind::Server,
            start_ns: 1_796_005_426_373_378_350,
            end_ns: 1_796_005_426_373_378_351,
            attributes: vec![
                ("db.query.text", Value::Text("SELECT \"a\"".to_owned())),
                ("skewer.rows", Value::Integer(i64::MAX)),
            ],
            error: Some("no".to_owned()),
        };
        let request: Json = serde_json::from_str(&request("shop", &[span])).unwrap();
        let of_service = &request["resourceSpans"][0];
        assert_eq!(
            of_service["resource"]["attributes"][0],
            json!({ "key": "service.name", "value": { "stringValue": "shop" } })
        );
        let expected = json!({
            "traceId": "4bf92f3577b34da6a3ce929d0e0e4736",
            "spanId": "0123456789abcdef",
            "parentSpanId": "00f067aa0ba902b7",
            "flags": 0x301,
            "name": "SELECT",
            "kind": 2,
            "startTimeUnixNano": "1796005426373378350",
            "endTimeUnixNano": "1796005426373378351",
            "attributes": [
                { "key": "db.query.text", "value": { "stringValue": "SELECT \"a\"" } },
                { "key": "skewer.rows", "value": { "intValue": "9223372036854775807" } },
            ],
            "status": { "code": 2, "message": "no" },
        });
        assert_eq!(of_service["scopeSpans"][0]["spans"], json!([expected]));
    }

    #[test]
    fn a_collector_may_take_a_part() {
        assert_eq!(
            rejected(b"{\"partialSuccess\":{\"rejectedSpans\":\"3\"}}"),
            3
        );
        assert_eq!(rejected(b"{\"partialSuccess\":{\"rejectedSpans\":4}}"), 4);
        for answer in ["", "{}", "{\"partialSuccess\":{}}", "<html>"] {
            assert_eq!(rejected(answer.as_bytes()), 0, "{answer}");
        }
    }
}
