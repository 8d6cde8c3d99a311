//! The plan as a tree, with what each operator did.

use std::collections::BTreeMap;

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

    /// Nothing but hands on batches.
    fn is_scan(&self) -> bool {
        self.name == "DataSourceExec"
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
        if header.has_records() {
            let sql = include_str!("sql/scanned_tables.sql").replace("$query_id", &query_id);
            let scanned = inquiry.ask(section, sql).await?;
            let scanned = rows(&scanned);
            tables.extend(scanned.filter_map(|row| {
                Some((row.integer("operator_id")?, row.text("table_name")?))
            }));
        }
        let operators = rows(&answer).map(|row| {
            let operator_id = row.sum("operator_id");
            let name = row.text("name").unwrap_or_default();
            let details = row.text("details").unwrap_or_default();
            let table = tables.remove(&operator_id);
            Operator {
                operator_id,
                parent_operator_id: row.integer("parent_operator_id"),
                description: describe(&name, &details, table.as_deref()),
                name,
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

    /// Rows that came out of scans.
    pub(super) fn rows_scanned(&self) -> i64 {
        let scans = self.operators.iter().filter(|operator| operator.is_scan());
        scans.map(|operator| operator.rows_out).sum()
    }

    /// The section as text.
    pub(super) fn lines(&self) -> Vec<String> {
        let columns: Vec<Column> = COLUMNS
            .iter()
            .filter(|column| {
                let mut operators = self.operators.iter();
                column.always || operators.any(|operator| (column.cell)(operator).is_some())
            })
            .copied()
            .collect();
        let columns_width: usize = columns.iter().map(|column| column.width + 2).sum();
        let tree_width = WIDTH - columns_width;
        let tree = Tree::of(self);
        let mut heading = left("Plan", tree_width);
        for column in &columns {
            heading.push_str("  ");
            heading.push_str(&column.aligned(column.title));
        }
        let mut lines = vec![heading.trim_end().to_owned()];
        for (prefix, operator) in &tree.lines {
            let room = tree_width.saturating_sub(prefix.width()).max(8);
            let what = shortened(&operator.description.line(), room);
            let mut line = left(&format!("{prefix}{what}"), tree_width);
            for column in &columns {
                let cell = (column.cell)(operator).unwrap_or_default();
                line.push_str("  ");
                line.push_str(&column.aligned(&cell));
            }
            lines.push(line.trim_end().to_owned());
        }
        lines
    }
}

/// A column beside the tree.
#[derive(Clone, Copy)]
struct Column {
    title: &'static str,
    width: usize,
    /// Shown also if no operator has a value.
    always: bool,
    left_aligned: bool,
    cell: fn(&Operator) -> Option<String>,
}

impl Column {
    fn aligned(&self, text: &str) -> String {
        match self.left_aligned {
            true => left(text, self.width),
            false => right(text, self.width),
        }
    }
}

fn column(title: &'static str, width: usize, cell: fn(&Operator) -> Option<String>) -> Column {
    Column {
        title,
        width,
        always: false,
        left_aligned: false,
        cell,
    }
}

/// Columns that the bar of an operator with all the self time has.
const BAR_WIDTH: usize = 8;

static COLUMNS: std::sync::LazyLock<Vec<Column>> = std::sync::LazyLock::new(|| {
    let positive = |number: i64, text: fn(i64) -> String| (number > 0).then(|| text(number));
    let _ = positive;
    vec![
        Column {
            always: true,
            ..column("rows", 11, |operator| Some(count(operator.rows_out)))
        },
        Column {
            always: true,
            ..column("self", 9, |operator| Some(duration(operator.self_ns)))
        },
        Column {
            always: true,
            left_aligned: true,
            ..column("share", 6 + 1 + BAR_WIDTH, |operator| {
                let share = percent(operator.share);
                Some(format!(
                    "{} {}",
                    right(&share, 6),
                    bar(operator.share, BAR_WIDTH)
                ))
            })
        },
        column("waited", 8, |operator| {
            (operator.input_wait_ns > 0).then(|| duration(operator.input_wait_ns))
        }),
        column("memory", 8, |operator| {
            (operator.peak_memory_bytes > 0).then(|| bytes(operator.peak_memory_bytes))
        }),
        column("spilled", 8, |operator| {
            (operator.spilled_bytes > 0).then(|| bytes(operator.spilled_bytes))
        }),
        column("skew", 4, |operator| operator.notable_skew().map(times)),
    ]
});

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
            tree.add(plan, root, "  ", "  ", flat);
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
