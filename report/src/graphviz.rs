//! The plan as a graph for `dot`: operators, and rows on the edges between them.

use std::fmt::Write;

use skewer_diagnosis::units::{count, counted, duration, percent};
use skewer_diagnosis::{Operator, Plan};

use crate::layout::shortened;

/// Columns of the first line in a node.
const NODE_WIDTH: usize = 48;

/// Shades of red by share of self time: ColorBrewer's, readable under black text.
const SHADES: [(f64, &str); 5] = [
    (0.50, "#fb6a4a"),
    (0.20, "#fc9272"),
    (0.10, "#fcbba1"),
    (0.02, "#fee0d2"),
    (0.00, "#ffffff"),
];

/// The graph. An edge points where rows flow, and its width grows with their number.
pub(crate) fn lines(plan: &Plan, title: &str) -> Vec<String> {
    let mut lines = vec![
        "digraph profile {".to_owned(),
        format!("  graph [rankdir=BT, label={}, labelloc=t];", quoted(title)),
        "  node [shape=box, style=\"filled,rounded\", fontname=\"Helvetica\"];".to_owned(),
        "  edge [fontname=\"Helvetica\"];".to_owned(),
    ];
    for operator in &plan.operators {
        lines.push(format!(
            "  op{} [label={}, fillcolor=\"{}\"];",
            operator.operator_id,
            quoted(&label(operator)),
            shade(operator.share)
        ));
    }
    let most = plan
        .operators
        .iter()
        .map(|operator| operator.rows_out)
        .max();
    for operator in &plan.operators {
        if let Some(parent) = operator.parent_operator_id {
            lines.push(format!(
                "  op{} -> op{parent} [label={}, penwidth={:.1}];",
                operator.operator_id,
                quoted(&count(operator.rows_out)),
                width(operator.rows_out, most.unwrap_or(0))
            ));
        }
    }
    lines.push("}".to_owned());
    lines
}

fn label(operator: &Operator) -> String {
    let mut label = format!("{} {}", operator.operator_id, operator.description.title);
    if !operator.description.subject.is_empty() {
        let _ = write!(
            label,
            "\n{}",
            shortened(&operator.description.subject, NODE_WIDTH)
        );
    }
    let _ = write!(
        label,
        "\n{} · {} self, {}",
        counted(operator.rows_out, "row"),
        duration(operator.self_ns),
        percent(operator.share)
    );
    label
}

fn shade(share: f64) -> &'static str {
    let shade = SHADES.iter().find(|(least, _)| share >= *least);
    shade.map_or("#ffffff", |(_, shade)| shade)
}

/// 1 to 5, by the logarithm of the rows.
fn width(rows: i64, most: i64) -> f64 {
    let log = |rows: i64| (1.0 + rows.max(0) as f64).ln();
    1.0 + 4.0 * log(rows) / log(most).max(1.0)
}

fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{}\"", text.replace('\n', "\\n"))
}
