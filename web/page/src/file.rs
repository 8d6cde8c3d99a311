//! The page and the rows of one query in one HTML file, which opens without a server.

use std::collections::BTreeMap;
use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use crate::assets::{INDEX, SCRIPT, STYLE};

/// A view that a file has, and for which values of its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Export {
    /// The view.
    pub view: &'static str,
    /// If it is there several times: the parameter, and the view and column with its values.
    pub each: Option<(&'static str, &'static str, &'static str)>,
}

const fn once(view: &'static str) -> Export {
    Export { view, each: None }
}

/// What a file has.
pub const EXPORTS: &[Export] = &[once("query"), once("plan")];

/// So many times a view is in a file at most.
pub const MOST_OF_ONE_VIEW: usize = 64;

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
    let script = SCRIPT.text;
    let style = STYLE.text;
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; base-uri 'none'; \
         form-action 'none'",
        STANDARD.encode(Sha256::digest(script)),
        STANDARD.encode(Sha256::digest(style)),
    );
    let mut page = String::with_capacity(data.len() + script.len() + style.len() + 2_000);
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
                "<script type=\"application/json\" id=\"export\">{data}</script>\n<script>{script}</script>\n"
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
            2,
            "the page's script ends early"
        );
        assert_eq!(page.matches("</style>").count(), 1);
    }
}
