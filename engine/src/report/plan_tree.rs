//! The plan as a tree, with what each operator did.

use std::collections::BTreeMap;

use skewer_profiling::OperatorKind;
use unicode_width::UnicodeWidthStr;

use super::answer::{Inquiry, rows};
use super::details::{Description, describe};
use super::header::Header;
use super::layout::{WIDTH, left, right, shortened};
use super::units::{bar, bytes, count, duration, percent, times};
use crate::error::Error;

/// An operator of the plan and what it did, over all its partitions.
#[derive(Debug, Clone)]
pub(super) struct Operator {
    pub(super) operator_id: i64,
    pub(super) parent_operator_id: Option<i64>,
    pub(super) name: String,
    pub(super) kind: OperatorKind,
    pub(super) description: Description,
    pub(super) table: Option<String>,
    pub(super) partitions: i64,
    pub(super) rows_in: i64,
    pub(super) rows_out: i64,
    pub(super) estimated_rows: Option<i64>,
    pub(super) self_ns: i64,
    /// Of all operators' self time.
    pub(super) share: f64,
    pub(super) input_wait_ns: i64,
    pub(super) peak_memory_bytes: i64,
    pub(super) spilled_bytes: i64,
    /// Most rows that a partition returned over the mean.
    pub(super) row_skew: Option<f64>,
    /// Longest self time of a partition over the mean.
    pub(super) time_skew: Option<f64>,
}

/// Skew below this is the ordinary unevenness of batches.
const NOTABLE_SKEW: f64 = 1.2;

/// The skew of an operator with less of all self time than this is noise.
const NOTABLE_SHARE: f64 = 0.05;

impl Operator {
    /// The skew in time, if it is worth a person's attention.
    pub(super) fn notable_skew(&self) -> Option<f64> {
        self.time_skew.filter(|skew| {
            self.partitions > 1 && *skew >= NOTABLE_SKEW && self.share >= NOTABLE_SHARE
        })
    }

    /// What a task of it waited for input, in the mean.
    pub(super) fn wait_ns(&self) -> i64 {
        self.input_wait_ns / self.partitions.max(1)
    }

    /// operator 7, Evaluate: upper(key)
    pub(super) fn named(&self, width: usize) -> String {
        let what = shortened(&self.description.line(), width);
        format!("operator {}, {what}", self.operator_id)
    }

    /// Whether its input comes from other tasks, so that it can wait for it.
    pub(super) fn is_exchange(&self) -> bool {
        self.kind == OperatorKind::Exchange
    }
}

/// The operators of a query, parents before children.
#[derive(Debug, Clone, Default)]
pub(super) struct Plan {
    pub(super) operators: Vec<Operator>,
}

impl Plan {
    /// Reads it from schema `sys`; a query of level `off` has none.
    ///
    /// # Errors
    /// If `sys` cannot be read.
    pub(super) async fn read(inquiry: &mut Inquiry<'_>, header: &Header) -> Result<Self, Error> {
        let query_id = header.query_id.to_string();
        let section = "The plan";
        let sql = include_str!("sql/plan.sql").replace("$query_id", &query_id);
        let answer = inquiry.ask(section, sql).await?;
        let mut tables: BTreeMap<i64, String> = BTreeMap::new();
        let sql = include_str!("sql/scanned_tables.sql").replace("$query_id", &query_id);
        let scanned = inquiry.ask(section, sql).await?;
        let scanned = rows(&scanned);
        tables.extend(
            scanned.filter_map(|row| Some((row.integer("operator_id")?, row.text("table_name")?))),
        );
        let internal = rows(&answer).filter(|row| row.flag("is_internal"));
        let internal = internal.filter_map(|row| {
            Some((
                row.integer("operator_id")?,
                row.integer("parent_operator_id"),
            ))
        });
        let internal: BTreeMap<i64, Option<i64>> = internal.collect();
        let shown = rows(&answer).filter(|row| !row.flag("is_internal"));
        let operators = shown.map(|row| {
            let operator_id = row.sum("operator_id");
            let name = row.text("name").unwrap_or_default();
            let details = row.text("details").unwrap_or_default();
            let kind = row.text("kind");
            let table = tables.remove(&operator_id);
            Operator {
                operator_id,
                parent_operator_id: shown_above(row.integer("parent_operator_id"), &internal),
                description: describe(&name, &details, table.as_deref()),
                name,
                kind: kind
                    .and_then(|kind| OperatorKind::from_name(&kind))
                    .unwrap_or(OperatorKind::Other),
                table,
                partitions: row.sum("partitions"),
                rows_in: row.sum("rows_in"),
                rows_out: row.sum("rows_out"),
                estimated_rows: row.integer("estimated_rows"),
                self_ns: row.sum("self_ns"),
                share: row.float("share").unwrap_or(0.0),
                input_wait_ns: row.sum("input_wait_ns"),
                peak_memory_bytes: row.sum("peak_memory_bytes"),
                spilled_bytes: row.sum("spilled_bytes"),
                row_skew: row.float("row_skew"),
                time_skew: row.float("time_skew"),
            }
        });
        Ok(Self {
            operators: operators.collect(),
        })
    }

    /// The operator of an id.
    pub(super) fn operator(&self, operator_id: i64) -> Option<&Operator> {
        let mut operators = self.operators.iter();
        operators.find(|operator| operator.operator_id == operator_id)
    }

    /// The operators that an operator reads from.
    pub(super) fn inputs(&self, parent: Option<i64>) -> impl Iterator<Item = &Operator> {
        let operators = self.operators.iter();
        operators.filter(move |operator| operator.parent_operator_id == parent)
    }

    /// How many of the columns are shown that only some plans have.
    fn optional_columns(&self) -> usize {
        let shown = COLUMNS.iter().skip(ALWAYS).filter(|column| {
            let mut operators = self.operators.iter();
            operators.any(|operator| !(column.cell)(operator).is_empty())
        });
        shown.count()
    }

    /// The section as text.
    pub(super) fn lines(&self) -> Vec<String> {
        let tree = Tree::of(self);
        let bars = self.optional_columns() <= COLUMNS_BESIDE_BARS;
        let mut columns: Vec<Vec<String>> = Vec::new();
        let mut tree_width = WIDTH;
        for column in COLUMNS {
            let cells = tree.lines.iter();
            let cells: Vec<String> = cells.map(|(_, operator)| (column.cell)(operator)).collect();
            let empty = cells.iter().all(String::is_empty);
            if empty || (column.title.is_empty() && !bars) {
                continue;
            }
            let titled = [column.title.to_owned()].into_iter().chain(cells);
            let titled: Vec<String> = titled.collect();
            let width = titled.iter().map(|cell| cell.width()).max().unwrap_or(0);
            let align = if column.title.is_empty() { left } else { right };
            let gap = if column.title.is_empty() { " " } else { "  " };
            let titled = titled
                .iter()
                .map(|cell| format!("{gap}{}", align(cell, width)));
            columns.push(titled.collect());
            tree_width -= width + gap.len();
        }
        let mut lines = vec![left("Plan", tree_width)];
        for (prefix, operator) in &tree.lines {
            let start = format!("{} {prefix}", right(&operator.operator_id.to_string(), 3));
            let room = tree_width.saturating_sub(start.width());
            let what = shortened(&operator.description.line(), room);
            lines.push(left(&format!("{start}{what}"), tree_width));
        }
        for (row, line) in lines.iter_mut().enumerate() {
            columns
                .iter()
                .for_each(|column| line.push_str(&column[row]));
            line.truncate(line.trim_end().len());
        }
        lines
    }
}

/// The operator that takes the rows of one whose parent is given, with no regard to the internal ones, of
/// which each is given with its parent.
fn shown_above(parent: Option<i64>, internal: &BTreeMap<i64, Option<i64>>) -> Option<i64> {
    let mut above = parent;
    while let Some(next) = above.and_then(|parent| internal.get(&parent)) {
        above = *next;
    }
    above
}

/// A column beside the tree, shown if any operator has a value.
struct Column {
    title: &'static str,
    cell: fn(&Operator) -> String,
}

/// Columns that the bar of an operator with all the self time has.
const BAR_WIDTH: usize = 8;

/// Bars are drawn beside no more optional columns than this: the tree needs the room more.
const COLUMNS_BESIDE_BARS: usize = 2;

/// Columns that every operator has a value for: rows, self, share and its bar.
const ALWAYS: usize = 4;

const COLUMNS: [Column; 8] = [
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

/// The lines of the tree: what is drawn before each operator.
struct Tree<'a> {
    lines: Vec<(String, &'a Operator)>,
}

/// Plans that are deeper are drawn without indenting an operator's only input.
const DEEP: usize = 9;

impl<'a> Tree<'a> {
    fn of(plan: &'a Plan) -> Self {
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
