//! Named SELECT statements over schema `sys`, one file each: in `web/views` what the page shows, in `web/metrics`
//! and `web/traces` what other programs read.
//!
//! A file begins with comments: what the view shows, then a line for each parameter:
//!
//! ```text
//! -- The plan of a query.
//! -- $query_id BIGINT: the query
//! -- $px BIGINT = 1200: pixels of the time axis
//! SELECT … WHERE query_id = $query_id
//! ```
//!
//! Parameters become literals of the text, so that the text which runs is the text which the page shows.

use std::collections::BTreeMap;

use skewer_sql::quote;
use thiserror::Error;

/// A view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// Its name, which is also its file's.
    pub name: &'static str,
    /// What its file has.
    text: &'static str,
}

macro_rules! views {
    ($(#[$doc:meta])* $all:ident in $folder:literal: $($name:literal),* $(,)?) => {
        $(#[$doc])*
        pub const $all: &[View] = &[$(View {
            name: $name,
            text: include_str!(concat!("../../", $folder, "/", $name, ".sql")),
        }),*];
    };
}

views![
    /// The page's views, by name.
    VIEWS in "views":
    "activity",
    "alerts",
    "arrows",
    "cluster_nodes",
    "communication",
    "compare",
    "compare_history",
    "compare_noise",
    "compare_runs",
    "density",
    "diagnoses",
    "exchange_keys",
    "exchanges",
    "heavy_keys",
    "lineage_edge",
    "lineage_node",
    "links",
    "metric_lanes",
    "metric_sources",
    "node_metrics",
    "operator_metrics",
    "operator_tasks",
    "plan",
    "predicate_cover",
    "query",
    "receivers",
    "recent",
    "record_anomaly",
    "record_blame",
    "record_column",
    "record_dearest",
    "record_group",
    "record_histogram",
    "record_impact",
    "record_inputs",
    "record_makes",
    "record_operators",
    "record_output",
    "record_ranked",
    "record_rows",
    "record_why",
    "running",
    "running_operators",
    "running_usual",
    "statement_diagnosis",
    "statement_history",
    "statements",
    "table_column",
    "tasks",
    "time_split",
    "timeline",
    "traces",
    "verdict",
    "what_if",
    "worker_queries",
    "worker_scores",
    "worker_spans",
    "workers",
];

views![
    /// What `/metrics` of a server has, by name. A comment declares each family of metrics, as
    /// `-- counter skewer_queries: Statements that ended.`
    METRICS in "metrics":
    "alerts",
    "execution",
    "links",
    "nodes",
    "profiler",
    "queries",
    "running",
];

views![
    /// What spans of queries are made of, by name.
    TRACES in "traces":
    "queries",
    "tasks",
];

/// Why a view cannot be asked for.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ViewError {
    /// There is no view of the name.
    #[error("there is no view {0}")]
    Unknown(String),
    /// A parameter has no value.
    #[error("view {view} needs the parameter {parameter}")]
    Missing {
        /// The view.
        view: &'static str,
        /// The parameter.
        parameter: &'static str,
    },
    /// A parameter that the view does not have.
    #[error("view {view} has no parameter {parameter}")]
    Surplus {
        /// The view.
        view: &'static str,
        /// The parameter.
        parameter: String,
    },
    /// A value that is not of its parameter's type.
    #[error("parameter {parameter} of view {view} is {kind}, not '{value}'")]
    Value {
        /// The view.
        view: &'static str,
        /// The parameter.
        parameter: &'static str,
        /// The type.
        kind: Kind,
        /// The value.
        value: String,
    },
}

/// The type of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A 64-bit integer, or NULL.
    Bigint,
    /// A text, or NULL.
    Varchar,
    /// 64-bit integers, separated by commas.
    Bigints,
    /// The name of a table as schema `sys` has it, or of a column.
    Identifier,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bigint => "an integer",
            Self::Bigints => "a list of integers",
            Self::Varchar => "a text",
            Self::Identifier => "a name",
        })
    }
}

/// A parameter of a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    /// Its name, without `$`.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// Its value if none is given.
    pub default: Option<&'static str>,
}

/// No value.
const NULL: &str = "NULL";

/// Finds a view.
///
/// # Errors
/// [`ViewError::Unknown`].
pub fn find_view(name: &str) -> Result<View, ViewError> {
    let found = VIEWS.iter().find(|view| view.name == name);
    found
        .copied()
        .ok_or_else(|| ViewError::Unknown(name.to_owned()))
}

/// Finds one of [`TRACES`].
///
/// # Errors
/// [`ViewError::Unknown`].
pub fn find_trace(name: &str) -> Result<View, ViewError> {
    let found = TRACES.iter().find(|view| view.name == name);
    found
        .copied()
        .ok_or_else(|| ViewError::Unknown(name.to_owned()))
}

impl View {
    /// The parameters, in the order of the file.
    pub fn parameters(&self) -> impl Iterator<Item = Parameter> {
        self.text.lines().filter_map(parameter)
    }

    /// The comments at the beginning of the file, without their dashes.
    pub fn comments(&self) -> impl Iterator<Item = &'static str> {
        self.text.lines().map_while(|line| line.strip_prefix("-- "))
    }

    /// The statement, with `values` for its parameters.
    ///
    /// # Errors
    /// [`ViewError`] if values are missing, are too many, or do not fit.
    pub fn sql(&self, values: &BTreeMap<String, String>) -> Result<String, ViewError> {
        let parameters: Vec<_> = self.parameters().collect();
        let surplus = values
            .keys()
            .find(|name| parameters.iter().all(|known| known.name != *name));
        if let Some(parameter) = surplus {
            return Err(ViewError::Surplus {
                view: self.name,
                parameter: parameter.clone(),
            });
        }
        let mut literals = BTreeMap::new();
        for parameter in parameters {
            let given = values.get(parameter.name).map(String::as_str);
            let value = given.or(parameter.default).ok_or(ViewError::Missing {
                view: self.name,
                parameter: parameter.name,
            })?;
            let literal = literal(parameter.kind, value).ok_or_else(|| ViewError::Value {
                view: self.name,
                parameter: parameter.name,
                kind: parameter.kind,
                value: value.to_owned(),
            })?;
            literals.insert(parameter.name, literal);
        }
        Ok(filled(&self.body(), &literals))
    }

    /// The file without the lines of its parameters.
    fn body(&self) -> String {
        let lines = self.text.lines().filter(|line| parameter(line).is_none());
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// The parameter that a line declares, if it does.
fn parameter(line: &'static str) -> Option<Parameter> {
    let declaration = line.strip_prefix("-- $")?;
    let (declaration, _meaning) = declaration.split_once(':')?;
    let (declaration, default) = match declaration.split_once(" = ") {
        Some((declaration, default)) => (declaration, Some(default.trim())),
        None => (declaration, None),
    };
    let (name, kind) = declaration.split_once(' ')?;
    let kind = match kind.trim() {
        "BIGINT" => Kind::Bigint,
        "BIGINTS" => Kind::Bigints,
        "VARCHAR" => Kind::Varchar,
        "IDENTIFIER" => Kind::Identifier,
        _ => return None,
    };
    Some(Parameter {
        name,
        kind,
        default,
    })
}

/// A value as SQL, if it is of its type.
fn literal(kind: Kind, value: &str) -> Option<String> {
    match kind {
        Kind::Bigint | Kind::Varchar if value == NULL => Some(NULL.to_owned()),
        Kind::Bigints => {
            let numbers = value.split(',').map(|number| number.parse::<i64>());
            let numbers: Vec<String> = numbers
                .map(|number| number.map(|number| number.to_string()))
                .collect::<Result<_, _>>()
                .ok()?;
            Some(numbers.join(", "))
        }
        // After a minus sign, a negative number would begin a comment.
        Kind::Bigint => match value.parse::<i64>().ok()? {
            negative @ ..0 => Some(format!("({negative})")),
            number => Some(number.to_string()),
        },
        Kind::Varchar => Some(quote::literal(value)),
        Kind::Identifier => {
            let fits = !value.is_empty() && value.split('.').all(|part| !part.is_empty());
            fits.then(|| quote::recorded_table(value))
        }
    }
}

/// `text` with literals for `$name`. A `$` before anything else stays.
fn filled(text: &str, literals: &BTreeMap<&'static str, String>) -> String {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, after) = rest.split_at(at);
        filled.push_str(before);
        let name = &after[1..];
        let end = name.find(|c: char| !c.is_ascii_lowercase() && c != '_' && !c.is_ascii_digit());
        let name = &name[..end.unwrap_or(name.len())];
        match literals.get(name) {
            Some(literal) => filled.push_str(literal),
            None => filled.push_str(&after[..=name.len()]),
        }
        rest = &after[1 + name.len()..];
    }
    filled.push_str(rest);
    filled
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const VIEW: View = View {
        name: "example",
        text: "-- An example.\n-- $a BIGINT: one\n-- $b VARCHAR = x: two\n-- $t IDENTIFIER = main.t: a table\nSELECT $a - $a, $b, '$' FROM $t",
    };

    fn sql(values: &[(&str, &str)]) -> Result<String, ViewError> {
        let values = values
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        VIEW.sql(&values.collect())
    }

    #[test]
    fn parameters_become_literals() {
        assert_eq!(
            sql(&[("a", "3")]).unwrap(),
            "-- An example.\nSELECT 3 - 3, 'x', '$' FROM t"
        );
        assert_eq!(
            sql(&[
                ("a", "-3"),
                ("b", "it's; DROP TABLE t; --"),
                ("t", "My Table")
            ])
            .unwrap(),
            "-- An example.\nSELECT (-3) - (-3), 'it''s; DROP TABLE t; --', '$' FROM \"My Table\""
        );
        assert!(sql(&[("a", "NULL")]).unwrap().contains("NULL - NULL"));
        // A value is not filled in again.
        assert!(sql(&[("a", "1"), ("b", "$a")]).unwrap().contains("'$a'"));
    }

    #[test]
    fn integers_of_a_list_are_separated_by_commas() {
        let list = |value| literal(Kind::Bigints, value);
        assert_eq!(list("1,-2,3").as_deref(), Some("1, -2, 3"));
        for value in ["", "1,", "1;2", "1, 2", "NULL", "1) OR (1"] {
            assert_eq!(list(value), None, "{value}");
        }
    }

    #[test]
    fn values_that_do_not_fit_are_refused() {
        let error = |values: &[(&str, &str)]| sql(values).unwrap_err().to_string();
        assert_eq!(error(&[]), "view example needs the parameter a");
        assert_eq!(
            error(&[("a", "1"), ("c", "1")]),
            "view example has no parameter c"
        );
        for value in [
            "",
            "x",
            "1 OR 1",
            "1;",
            "99999999999999999999",
            "1.5",
            "0x10",
        ] {
            assert_eq!(
                error(&[("a", value)]),
                format!("parameter a of view example is an integer, not '{value}'")
            );
        }
        for value in ["", ".", "a."] {
            assert!(
                error(&[("a", "1"), ("t", value)]).contains("is a name"),
                "{value}"
            );
        }
        assert_eq!(
            find_view("nosuch").unwrap_err().to_string(),
            "there is no view nosuch"
        );
    }

    #[test]
    fn every_file_is_a_view_and_declares_its_parameters() {
        for (folder, views) in [("views", VIEWS), ("metrics", METRICS), ("traces", TRACES)] {
            every_file_is_one_of(folder, views);
        }
    }

    fn every_file_is_one_of(folder: &str, views: &[View]) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .unwrap()
            .join(folder);
        let files = std::fs::read_dir(folder).unwrap();
        let mut files: Vec<String> = files
            .map(|entry| {
                entry
                    .unwrap()
                    .path()
                    .file_stem()
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned()
            })
            .collect();
        files.sort();
        let names: Vec<_> = views.iter().map(|view| view.name).collect();
        assert_eq!(names, files);
        for view in views {
            let comment = view.text.lines().next().unwrap();
            assert!(
                comment.starts_with("-- ") && !comment.starts_with("-- $"),
                "{}: {comment}",
                view.name
            );
            let values = view
                .parameters()
                .map(|parameter| (parameter.name.to_owned(), "1".to_owned()));
            let sql = view.sql(&values.collect()).unwrap();
            assert!(!sql.contains('$'), "{}: {sql}", view.name);
            assert!(!sql.trim_end().ends_with(';'), "{}", view.name);
        }
    }
}
