//! The page and the rows of one query in one HTML file, which opens without a server.

use std::collections::BTreeMap;
use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use crate::assets::{INDEX, QUERY_PIECES, SCRIPT, STYLE};

/// A view that a file has, and for which values of its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Export {
    /// The view.
    pub view: &'static str,
    /// Values of parameters that are the same in all files.
    pub fixed: &'static [(&'static str, &'static str)],
    /// If the view is there once for each row of another view: that view, and pairs of a parameter and the column
    /// with its value.
    pub each: Option<(&'static str, &'static [(&'static str, &'static str)])>,
}

const fn once(view: &'static str) -> Export {
    Export {
        view,
        fixed: &[],
        each: None,
    }
}

const fn with(view: &'static str, fixed: &'static [(&'static str, &'static str)]) -> Export {
    Export {
        fixed,
        ..once(view)
    }
}

const fn each(
    view: &'static str,
    of: &'static str,
    columns: &'static [(&'static str, &'static str)],
) -> Export {
    Export {
        each: Some((of, columns)),
        ..once(view)
    }
}

const EXCHANGE: &[(&str, &str)] = &[("exchange_id", "exchange_id")];
const RECORD: &[(&str, &str)] = &[("table_name", "table_name"), ("row_id", "row_id")];

/// What a file has.
pub const EXPORTS: &[Export] = &[
    once("query"),
    once("plan"),
    once("verdict"),
    once("time_split"),
    once("diagnoses"),
    once("heavy_keys"),
    each("operator_tasks", "plan", &[("operator_id", "operator_id")]),
    each(
        "operator_metrics",
        "plan",
        &[("operator_id", "operator_id")],
    ),
    with("activity", &[("by", "fragment")]),
    with("activity", &[("by", "operator")]),
    with("activity", &[("by", "worker")]),
    with("timeline", &[("by", "fragment")]),
    with("timeline", &[("by", "operator")]),
    with("timeline", &[("by", "worker")]),
    with("density", &[("by", "fragment")]),
    with("density", &[("by", "operator")]),
    with("density", &[("by", "worker")]),
    once("tasks"),
    once("metric_lanes"),
    once("traces"),
    once("exchanges"),
    each("communication", "exchanges", EXCHANGE),
    each("receivers", "exchanges", EXCHANGE),
    each("exchange_keys", "exchanges", EXCHANGE),
    once("record_anomaly"),
    once("record_ranked"),
    once("record_blame"),
    with("record_histogram", &[("measure", "expressions")]),
    with("record_histogram", &[("measure", "operators")]),
    with("record_histogram", &[("measure", "groups")]),
    each(
        "record_dearest",
        "record_histogram",
        &[("source", "source")],
    ),
    each("record_operators", "record_anomaly", RECORD),
    each("record_impact", "record_anomaly", RECORD),
    each("record_makes", "record_anomaly", RECORD),
    each(
        "record_rows",
        "record_anomaly",
        &[("table", "table_name"), ("row_ids", "row_id")],
    ),
    each(
        "what_if",
        "record_anomaly",
        &[("table_name", "table_name"), ("row_ids", "row_id")],
    ),
    once("lineage_node"),
];

/// So many times a view is in a file at most.
pub const MOST_OF_ONE_VIEW: usize = 256;

/// Pixels of time axes: an exported file cannot ask for more when it is zoomed.
pub const PIXELS: &str = "2048";

/// A view that a file has: what was asked for, and what came.
#[derive(Debug, Clone)]
pub struct ExportedView {
    /// The view.
    pub name: &'static str,
    /// The values of its parameters.
    pub values: BTreeMap<String, String>,
    /// What ran.
    pub sql: String,
    /// Its rows, as an Arrow IPC stream.
    pub rows: Vec<u8>,
}

/// The page with the rows of `views`, which are all about query `query_id`.
pub fn html(query_id: i64, views: &[ExportedView]) -> String {
    let views: Vec<_> = views
        .iter()
        .map(|view| {
            serde_json::json!({
                "name": view.name,
                "params": view.values,
                "sql": view.sql,
                "arrow": STANDARD.encode(&view.rows),
            })
        })
        .collect();
    let data = serde_json::json!({ "query": query_id, "views": views });
    // Within a script element, only `<` could end it.
    let data = data.to_string().replace('<', "\\u003c");
    let style = STYLE.text;
    // A piece adds itself to what the page's script looks into when it starts.
    let texts = QUERY_PIECES.iter().chain([&SCRIPT]).map(|asset| asset.text);
    let scripts: String = texts
        .clone()
        .map(|text| format!("<script>{text}</script>\n"))
        .collect();
    let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text)));
    let hashes: Vec<_> = texts.map(hash).collect();
    let policy = format!(
        "default-src 'none'; script-src {}; style-src {}; img-src data:; base-uri 'none'; form-action 'none'",
        hashes.join(" "),
        hash(style),
    );
    let mut page = String::with_capacity(data.len() + scripts.len() + style.len() + 2_000);
    for line in INDEX.text.lines() {
        let written = match line.trim() {
            l if l.starts_with("<meta charset") => writeln!(
                page,
                "{line}\n<meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">"
            ),
            l if l.starts_with("<title>") => {
                writeln!(page, "<title>Skewer: profile of query {query_id}</title>")
            }
            l if l.starts_with("<link rel=\"stylesheet\"") => {
                writeln!(page, "<style>{style}</style>")
            }
            l if l.starts_with("<script src=") => write!(
                page,
                "<script type=\"application/json\" id=\"export\">{data}</script>\n{scripts}"
            ),
            _ => writeln!(page, "{line}"),
        };
        // A String takes all text.
        debug_assert!(written.is_ok());
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exports_name_views_and_their_parameters() {
        use crate::views::find_view;
        for export in EXPORTS {
            let view = find_view(export.view).unwrap();
            let known: Vec<_> = view.parameters().map(|parameter| parameter.name).collect();
            let fixed = export.fixed.iter().map(|(name, _)| *name);
            let of_rows = export.each.iter().flat_map(|(of, columns)| {
                find_view(of).unwrap();
                columns.iter().map(|(name, _)| *name)
            });
            let given: Vec<_> = fixed.chain(of_rows).chain(["query_id", "px"]).collect();
            for name in &given[..given.len() - 2] {
                assert!(
                    known.contains(name),
                    "{} has no parameter {name}",
                    export.view
                );
            }
            for parameter in view
                .parameters()
                .filter(|parameter| parameter.default.is_none())
            {
                assert!(
                    given.contains(&parameter.name),
                    "{}: {}",
                    export.view,
                    parameter.name
                );
            }
        }
    }

    #[test]
    fn a_file_has_everything_inside() {
        let view = ExportedView {
            name: "query",
            values: BTreeMap::from([("query_id".to_owned(), "3".to_owned())]),
            sql: "SELECT '</script>'".to_owned(),
            rows: vec![1, 2, 3],
        };
        let page = html(3, &[view]);
        assert!(page.contains("<title>Skewer: profile of query 3</title>"));
        assert!(page.contains(r#""sql":"SELECT '\u003c/script>'""#));
        assert!(page.contains(r#""arrow":"AQID""#));
        assert!(page.contains("script-src 'sha256-"));
        assert!(!page.contains("src=\"/") && !page.contains("href=\"/app"));
        assert_eq!(
            page.matches("</script>").count(),
            2 + QUERY_PIECES.len(),
            "a script of the page ends early"
        );
        assert_eq!(page.matches("</style>").count(), 1);
    }
}
