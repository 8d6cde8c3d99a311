//! Metrics as OpenMetrics text, version 1.0.0.
//!
//! The crate `prometheus-client` is for metrics that live in the process. Here families, labels and values come from
//! SQL, so nothing is left for its registry to do; and its version 0.25 writes label values as they are, without the
//! escapes that texts of users need. What remains is this file.

use std::collections::HashSet;
use std::fmt::Write;

/// The media type of the text.
pub(crate) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The units that names of families end with, in base units as the standard asks for.
const UNITS: [&str; 3] = ["bytes", "ratio", "seconds"];

/// What a family counts or measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
    Info,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Counter, Self::Gauge, Self::Histogram, Self::Info];

    fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }

    /// The kind of a name.
    pub(crate) fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// What follows the family's name in the name of a sample that has no suffix of its own.
    fn suffix(self) -> &'static str {
        match self {
            Self::Counter => "_total",
            Self::Info => "_info",
            Self::Gauge | Self::Histogram => "",
        }
    }
}

/// A number, as exact as it came.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    Integer(i64),
    Float(f64),
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Integer(number) => write!(f, "{number}"),
            Self::Float(number) if number.is_nan() => f.write_str("NaN"),
            Self::Float(number) if number.is_infinite() => {
                f.write_str(if *number > 0.0 { "+Inf" } else { "-Inf" })
            }
            // With a point or an exponent, as the standard asks for of `le`.
            Self::Float(number) => write!(f, "{number:?}"),
        }
    }
}

/// Names and values, in the order in which they are written.
pub(crate) type Labels = Vec<(String, String)>;

/// One value of a family.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    /// `_bucket`, `_count` or `_sum` in a histogram; empty otherwise.
    pub(crate) suffix: &'static str,
    pub(crate) labels: Labels,
    pub(crate) value: Number,
}

/// Metrics of one name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Family {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) help: String,
    pub(crate) samples: Vec<Sample>,
}

impl Family {
    /// A family without labels.
    pub(crate) fn single(name: &str, kind: Kind, help: &str, value: Number) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            help: help.to_owned(),
            samples: vec![Sample {
                suffix: "",
                labels: Labels::new(),
                value,
            }],
        }
    }
}

/// All families as text. Of families of one name, and of samples of one name and the same labels, the first is
/// written: a repetition would make the whole text invalid.
pub(crate) fn encode(families: &[Family]) -> String {
    let mut text = String::new();
    let mut names = HashSet::new();
    for family in families {
        let name = metric_name(&family.name);
        if names.insert(name.clone()) {
            encode_family(&name, family, &mut text);
        }
    }
    text.push_str("# EOF\n");
    text
}

fn encode_family(name: &str, family: &Family, text: &mut String) {
    // A String takes all text.
    let _ = writeln!(text, "# TYPE {name} {}", family.kind.name());
    let unit = UNITS
        .iter()
        .find(|unit| name.ends_with(&format!("_{unit}")) && family.kind != Kind::Info);
    if let Some(unit) = unit {
        let _ = writeln!(text, "# UNIT {name} {unit}");
    }
    let _ = writeln!(text, "# HELP {name} {}", escaped(&family.help));
    let mut written = HashSet::new();
    for sample in &family.samples {
        let suffix = match sample.suffix {
            "" => family.kind.suffix(),
            suffix => suffix,
        };
        let series = format!("{name}{suffix}{}", braced(&sample.labels));
        if written.insert(series.clone()) {
            let _ = writeln!(text, "{series} {}", sample.value);
        }
    }
}

fn braced(labels: &Labels) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let labels: Vec<String> = labels
        .iter()
        .map(|(name, value)| format!("{}=\"{}\"", label_name(name), escaped(value)))
        .collect();
    format!("{{{}}}", labels.join(","))
}

/// A text as it stands between quotes, or behind HELP.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// A name with an underscore for each character that names of metrics may not have.
fn metric_name(name: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let name: String = name
        .chars()
        .map(|c| if allowed(c) { c } else { '_' })
        .collect();
    match name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
        true => format!("_{name}"),
        false => name,
    }
}

/// The same for names of labels.
fn label_name(name: &str) -> String {
    metric_name(name).replace(':', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(labels: &[(&str, &str)]) -> Labels {
        let pairs = labels.iter();
        pairs
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn sample(suffix: &'static str, of: &[(&str, &str)], value: Number) -> Sample {
        Sample {
            suffix,
            labels: labels(of),
            value,
        }
    }

    #[test]
    fn families_have_type_unit_and_help_and_the_text_has_an_end() {
        let families = [
            Family {
                name: "skewer_queries".to_owned(),
                kind: Kind::Counter,
                help: "Statements.".to_owned(),
                samples: vec![
                    sample("", &[("status", "failed")], Number::Integer(0)),
                    sample("", &[("status", "finished")], Number::Integer(7)),
                ],
            },
            Family {
                name: "skewer_seconds".to_owned(),
                kind: Kind::Histogram,
                help: "Time.".to_owned(),
                samples: vec![
                    sample("_bucket", &[("le", "1.0")], Number::Integer(1)),
                    sample("_bucket", &[("le", "+Inf")], Number::Integer(2)),
                    sample("_count", &[], Number::Integer(2)),
                    sample("_sum", &[], Number::Float(2.5)),
                ],
            },
            Family::single(
                "skewer_rss_bytes",
                Kind::Gauge,
                "Memory.",
                Number::Float(1e21),
            ),
        ];
        let expected = "\
# TYPE skewer_queries counter
# HELP skewer_queries Statements.
skewer_queries_total{status=\"failed\"} 0
skewer_queries_total{status=\"finished\"} 7
# TYPE skewer_seconds histogram
# UNIT skewer_seconds seconds
# HELP skewer_seconds Time.
skewer_seconds_bucket{le=\"1.0\"} 1
skewer_seconds_bucket{le=\"+Inf\"} 2
skewer_seconds_count 2
skewer_seconds_sum 2.5
# TYPE skewer_rss_bytes gauge
# UNIT skewer_rss_bytes bytes
# HELP skewer_rss_bytes Memory.
skewer_rss_bytes 1e21
# EOF
";
        assert_eq!(encode(&families), expected);
        assert_eq!(encode(&[]), "# EOF\n");
    }

    #[test]
    fn texts_are_escaped_and_names_have_allowed_characters() {
        let nasty = "a \"b\" \\ \n} 1\n# EOF é";
        let family = Family {
            name: "skewer_node_cpu share/é".to_owned(),
            kind: Kind::Gauge,
            help: nasty.to_owned(),
            samples: vec![sample("", &[("1 alert:x", nasty)], Number::Float(f64::NAN))],
        };
        let text = encode(&[family]);
        let expected = "\
# TYPE skewer_node_cpu_share__ gauge
# HELP skewer_node_cpu_share__ a \\\"b\\\" \\\\ \\n} 1\\n# EOF é
skewer_node_cpu_share__{_1_alert_x=\"a \\\"b\\\" \\\\ \\n} 1\\n# EOF é\"} NaN
# EOF
";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_is_there_already_is_not_written_again() {
        let twice = sample("", &[("worker", "1")], Number::Integer(1));
        let family = Family {
            name: "a".to_owned(),
            kind: Kind::Gauge,
            help: String::new(),
            samples: vec![twice.clone(), twice],
        };
        let text = encode(&[family.clone(), family]);
        assert_eq!(text.matches("a{worker=\"1\"} 1\n").count(), 1, "{text}");
        assert_eq!(text.matches("# TYPE a gauge\n").count(), 1, "{text}");
    }

    #[test]
    fn numbers_are_as_the_standard_writes_them() {
        let written = |number: f64| Number::Float(number).to_string();
        assert_eq!(written(1.0), "1.0");
        assert_eq!(written(0.0025), "0.0025");
        assert_eq!(written(f64::INFINITY), "+Inf");
        assert_eq!(written(f64::NEG_INFINITY), "-Inf");
        assert_eq!(Number::Integer(i64::MAX).to_string(), "9223372036854775807");
    }
}
