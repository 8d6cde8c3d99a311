//! The plan as a tree, with what each operator did.

use skewer_diagnosis::units::{bar, bytes, count, duration, percent, times};
use skewer_diagnosis::{Operator, Plan};
use unicode_width::UnicodeWidthStr;

use crate::document::{Document, Line, Style};
use crate::layout::{WIDTH, left, right, shortened};

/// The section; empty if no operator was recorded.
pub(crate) fn section(plan: &Plan) -> Document {
    let mut section = Document::default();
    if plan.operators.is_empty() {
        return section;
    }
    let tree = Tree::of_plan(plan);
    let columns = columns(plan, &tree);
    let tree_width = WIDTH - columns.iter().map(|column| column.width).sum::<usize>();
    let mut heading = Line::default();
    heading.push("Plan", Style::Title);
    heading.push(" ".repeat(tree_width - "Plan".len()), Style::Plain);
    for column in &columns {
        heading.push(column.cells[0].clone(), Style::Dim);
    }
    heading.trim_end();
    section.push(heading);
    for (row, (prefix, operator)) in (1..).zip(&tree.lines) {
        let id = format!("{} ", right(&operator.operator_id.to_string(), 3));
        let room = tree_width.saturating_sub(id.width() + prefix.width());
        let what = shortened(&operator.description.line(), room);
        let mut line = Line::default();
        line.push(id, Style::Plain);
        line.push(prefix.clone(), Style::Dim);
        line.push(left(&what, room), Style::Plain);
        for column in &columns {
            let style = if column.is_bar {
                bar_style(operator.share)
            } else {
                Style::Plain
            };
            line.push(column.cells[row].clone(), style);
        }
        line.trim_end();
        section.push(line);
    }
    section
}

/// A bar is red from three eighths of all self time on, and yellow from an eighth on.
fn bar_style(share: f64) -> Style {
    if share >= 0.375 {
        Style::LargeBar
    } else if share >= 0.125 {
        Style::MediumBar
    } else {
        Style::SmallBar
    }
}

/// A column beside the tree as it is drawn.
struct DrawnColumn {
    /// The title, then a cell for each operator, all of one width.
    cells: Vec<String>,
    width: usize,
    is_bar: bool,
}

/// The columns for which an operator has a value.
fn columns(plan: &Plan, tree: &Tree<'_>) -> Vec<DrawnColumn> {
    let bars = optional_columns(plan) <= COLUMNS_BESIDE_BARS;
    let mut drawn = Vec::new();
    for column in COLUMNS {
        let cells = tree.lines.iter();
        let cells: Vec<String> = cells.map(|(_, operator)| (column.cell)(operator)).collect();
        let is_bar = column.title.is_empty();
        if cells.iter().all(String::is_empty) || (is_bar && !bars) {
            continue;
        }
        let titled = [column.title.to_owned()].into_iter().chain(cells);
        let titled: Vec<String> = titled.collect();
        let width = titled.iter().map(|cell| cell.width()).max().unwrap_or(0);
        let (align, gap): (fn(&str, usize) -> String, _) =
            if is_bar { (left, " ") } else { (right, "  ") };
        let titled = titled
            .iter()
            .map(|cell| format!("{gap}{}", align(cell, width)));
        drawn.push(DrawnColumn {
            cells: titled.collect(),
            width: width + gap.len(),
            is_bar,
        });
    }
    drawn
}

/// How many of the columns are shown that only some plans have.
fn optional_columns(plan: &Plan) -> usize {
    let shown = COLUMNS.iter().skip(ALWAYS).filter(|column| {
        let mut operators = plan.operators.iter();
        operators.any(|operator| !(column.cell)(operator).is_empty())
    });
    shown.count()
}

/// A column beside the tree, shown if any operator has a value.
struct Column {
    title: &'static str,
    cell: fn(&Operator) -> String,
}

/// Columns of a whole bar, for an operator with all the self time.
const BAR_WIDTH: usize = 8;

/// Bars are drawn beside at most this many optional columns: the tree needs the room more.
const COLUMNS_BESIDE_BARS: usize = 2;

/// The first columns, for which every operator has a value: rows, self, share and its bar.
const ALWAYS: usize = 4;

const COLUMNS: [Column; 9] = [
    Column {
        title: "rows",
        cell: |operator| count(operator.rows_out),
    },
    Column {
        title: "self",
        cell: |operator| duration(operator.self_ns),
    },
    Column {
        title: "share",
        cell: |operator| percent(operator.share),
    },
    Column {
        title: "",
        cell: |operator| bar(operator.share, BAR_WIDTH),
    },
    Column {
        title: "waited",
        cell: |operator| if_any(operator.wait_ns(), duration),
    },
    Column {
        title: "cached",
        cell: |operator| operator.cached_share().map(percent).unwrap_or_default(),
    },
    Column {
        title: "memory",
        cell: |operator| if_any(operator.peak_memory_bytes, bytes),
    },
    Column {
        title: "spilled",
        cell: |operator| if_any(operator.spilled_bytes, bytes),
    },
    Column {
        title: "skew",
        cell: |operator| operator.notable_skew().map(times).unwrap_or_default(),
    },
];

fn if_any(number: i64, text: fn(i64) -> String) -> String {
    match number {
        0 => String::new(),
        number => text(number),
    }
}

/// The lines of the tree: each operator and the branches before it.
struct Tree<'a> {
    lines: Vec<(String, &'a Operator)>,
}

/// Plans that are deeper are drawn without indenting an operator's only input.
const DEEP: usize = 9;

impl<'a> Tree<'a> {
    fn of_plan(plan: &'a Plan) -> Self {
        let mut tree = Self { lines: Vec::new() };
        let flat = depth(plan, None) > DEEP;
        for root in plan.inputs(None) {
            tree.add(plan, root, "", "", flat);
        }
        tree
    }

    fn add(&mut self, plan: &'a Plan, operator: &'a Operator, own: &str, below: &str, flat: bool) {
        self.lines.push((own.to_owned(), operator));
        let inputs: Vec<&Operator> = plan.inputs(Some(operator.operator_id)).collect();
        for (position, input) in inputs.iter().enumerate() {
            let last = position + 1 == inputs.len();
            let (corner, edge) = match (flat && inputs.len() == 1, last) {
                (true, _) => ("", ""),
                (false, true) => ("└─ ", "   "),
                (false, false) => ("├─ ", "│  "),
            };
            let (own, below) = (format!("{below}{corner}"), format!("{below}{edge}"));
            self.add(plan, input, &own, &below, flat);
        }
    }
}

fn depth(plan: &Plan, parent: Option<i64>) -> usize {
    let inputs = plan.inputs(parent);
    inputs
        .map(|input| 1 + depth(plan, Some(input.operator_id)))
        .max()
        .unwrap_or(0)
}
