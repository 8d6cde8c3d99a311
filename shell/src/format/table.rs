//! The `table` format: a box drawn to the terminal's width, plain ASCII in a pipe.
//!
//! On a terminal, the middle rows of a long result are left out, long values are cut with `…`,
//! and the middle columns give way when there are too many. In a pipe nothing is left out.

use std::collections::VecDeque;
use std::io::{self, Write};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::error::ArrowError;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::cells::{Cells, is_number, type_name};
use super::{Layout, ResultWriter, Shown, WriteError};

/// A column is not made narrower than this; rather, columns are left out.
const NARROWEST: usize = 12;
/// What stands for NULL.
const NULL: &str = "NULL";
/// What stands for something left out.
const ELLIPSIS: &str = "…";

/// Keeps the first rows as text and the last ones as they came, and draws them at the end.
pub struct TableWriter {
    schema: SchemaRef,
    layout: Layout,
    head: Vec<Vec<Option<String>>>,
    tail: VecDeque<RecordBatch>,
    tail_rows: usize,
    rows: u64,
}

impl TableWriter {
    /// A writer of results with these columns.
    pub fn new(schema: SchemaRef, layout: Layout) -> TableWriter {
        TableWriter {
            schema,
            layout,
            head: Vec::new(),
            tail: VecDeque::new(),
            tail_rows: 0,
            rows: 0,
        }
    }

    /// Rows to keep from the beginning and from the end of the result.
    fn ends(&self) -> (usize, usize) {
        match self.layout.max_rows {
            None => (usize::MAX, 0),
            Some(most) => (most.div_ceil(2), most / 2),
        }
    }

    /// The longest text that can matter for one cell.
    fn longest(&self) -> usize {
        self.layout.width.unwrap_or(usize::MAX)
    }

    fn text(&self, cells: &Cells<'_>, row: usize) -> Result<Vec<Option<String>>, ArrowError> {
        (0..self.schema.fields().len())
            .map(|column| {
                let text = cells.get(column, row)?;
                Ok(text.map(|text| one_line(&text, self.longest())))
            })
            .collect()
    }

    fn keep_tail(&mut self, batch: RecordBatch, limit: usize) {
        if limit == 0 || batch.num_rows() == 0 {
            return;
        }
        self.tail_rows += batch.num_rows();
        self.tail.push_back(batch);
        while let Some(first) = self.tail.front() {
            let spare = self.tail_rows - limit.min(self.tail_rows);
            if spare < first.num_rows() {
                break;
            }
            self.tail_rows -= first.num_rows();
            self.tail.pop_front();
        }
    }

    fn tail_text(&self, limit: usize) -> Result<Vec<Vec<Option<String>>>, ArrowError> {
        let mut skip = self.tail_rows - limit.min(self.tail_rows);
        let mut rows = Vec::new();
        for batch in &self.tail {
            let cells = Cells::new(batch)?;
            for row in skip.min(batch.num_rows())..batch.num_rows() {
                rows.push(self.text(&cells, row)?);
            }
            skip = skip.saturating_sub(batch.num_rows());
        }
        Ok(rows)
    }
}

impl ResultWriter for TableWriter {
    fn batch(&mut self, batch: &RecordBatch, _out: &mut dyn Write) -> Result<(), WriteError> {
        let (first, last) = self.ends();
        let into_head = (first - first.min(self.head.len())).min(batch.num_rows());
        let cells = Cells::new(batch)?;
        for row in 0..into_head {
            let text = self.text(&cells, row)?;
            self.head.push(text);
        }
        drop(cells);
        self.keep_tail(batch.slice(into_head, batch.num_rows() - into_head), last);
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Write) -> Result<Shown, WriteError> {
        let (_, last) = self.ends();
        let tail = self.tail_text(last)?;
        let shown = self.head.len() + tail.len();
        let elided = self.rows > shown as u64;
        let grid = Grid::new(&self.schema, &self.head, &tail, elided, &self.layout);
        match self.layout.width {
            Some(_) => grid.draw_box(&self.layout, out)?,
            None => grid.draw_ascii(out)?,
        }
        Ok(Shown {
            rows: self.rows,
            shown_rows: shown as u64,
            columns: self.schema.fields().len(),
            shown_columns: grid.columns.iter().filter(|c| c.index.is_some()).count(),
        })
    }
}

/// Everything that is to be drawn.
struct Grid<'a> {
    columns: Vec<Column>,
    head: &'a [Vec<Option<String>>],
    tail: &'a [Vec<Option<String>>],
    elided: bool,
}

/// A column of the drawing; without an index it stands for those that were left out.
struct Column {
    index: Option<usize>,
    name: String,
    type_name: String,
    right: bool,
    width: usize,
}

impl<'a> Grid<'a> {
    fn new(
        schema: &SchemaRef,
        head: &'a [Vec<Option<String>>],
        tail: &'a [Vec<Option<String>>],
        elided: bool,
        layout: &Layout,
    ) -> Grid<'a> {
        let mut columns: Vec<Column> = schema
            .fields()
            .iter()
            .enumerate()
            .map(|(index, field)| {
                let name = one_line(field.name(), layout.width.unwrap_or(usize::MAX));
                let type_name = type_name(field.data_type());
                let cells = head.iter().chain(tail).map(|row| &row[index]);
                let widest = cells
                    .map(|cell| cell.as_deref().unwrap_or(NULL).width())
                    .max()
                    .unwrap_or(0);
                let header = match layout.width {
                    Some(_) => name.width().max(type_name.width()),
                    None => name.width(),
                };
                Column {
                    index: Some(index),
                    right: is_number(field.data_type()),
                    width: widest.max(header),
                    name,
                    type_name,
                }
            })
            .collect();
        if let Some(width) = layout.width {
            fit(&mut columns, width);
        }
        Grid {
            columns,
            head,
            tail,
            elided,
        }
    }

    fn draw_box(&self, layout: &Layout, out: &mut dyn Write) -> io::Result<()> {
        let palette = &layout.palette;
        let rule = |left: &str, middle: &str, right: &str| {
            let lines: Vec<String> = self
                .columns
                .iter()
                .map(|column| "─".repeat(column.width + 2))
                .collect();
            let line = format!("{left}{}{right}", lines.join(middle));
            palette.dim.paint(line).to_string()
        };
        let edge = palette.dim.paint("│").to_string();
        let header = |text: fn(&Column) -> &str, style: nu_ansi_term::Style| {
            let cells = self.columns.iter().map(|column| {
                let text = cut(text(column), column.width);
                let padded = pad(&text, column.width, Align::Centre);
                format!(" {} ", style.paint(padded))
            });
            cells.collect::<Vec<_>>().join(&edge)
        };
        writeln!(out, "{}", rule("┌", "┬", "┐"))?;
        writeln!(
            out,
            "{edge}{}{edge}",
            header(|column| &column.name, palette.strong)
        )?;
        writeln!(
            out,
            "{edge}{}{edge}",
            header(|column| &column.type_name, palette.dim)
        )?;
        writeln!(out, "{}", rule("├", "┼", "┤"))?;
        for row in self.head {
            writeln!(out, "{edge}{}{edge}", self.row(row, &edge, palette.dim))?;
        }
        if self.elided {
            let dots = self.columns.iter().map(|column| {
                let padded = pad("·", column.width, column.align());
                format!(" {} ", palette.dim.paint(padded))
            });
            let line = dots.collect::<Vec<_>>().join(&edge);
            // Three rows, so that the gap is seen.
            for _ in 0..3 {
                writeln!(out, "{edge}{line}{edge}")?;
            }
        }
        for row in self.tail {
            writeln!(out, "{edge}{}{edge}", self.row(row, &edge, palette.dim))?;
        }
        writeln!(out, "{}", rule("└", "┴", "┘"))
    }

    fn draw_ascii(&self, out: &mut dyn Write) -> io::Result<()> {
        let lines: Vec<String> = self
            .columns
            .iter()
            .map(|column| "-".repeat(column.width + 2))
            .collect();
        let rule = format!("+{}+", lines.join("+"));
        let names: Vec<String> = self
            .columns
            .iter()
            .map(|column| format!(" {} ", pad(&column.name, column.width, Align::Left)))
            .collect();
        writeln!(out, "{rule}\n|{}|\n{rule}", names.join("|"))?;
        for row in self.head.iter().chain(self.tail) {
            writeln!(out, "|{}|", self.row(row, "|", nu_ansi_term::Style::new()))?;
        }
        writeln!(out, "{rule}")
    }

    fn row(&self, row: &[Option<String>], edge: &str, null: nu_ansi_term::Style) -> String {
        let cells = self.columns.iter().map(|column| {
            let value = match column.index {
                Some(index) => row[index].as_deref(),
                None => Some(ELLIPSIS),
            };
            match value {
                Some(text) => {
                    let text = cut(text, column.width);
                    format!(" {} ", pad(&text, column.width, column.align()))
                }
                None => format!(" {} ", null.paint(pad(NULL, column.width, column.align()))),
            }
        });
        cells.collect::<Vec<_>>().join(edge)
    }
}

impl Column {
    fn align(&self) -> Align {
        if self.right {
            Align::Right
        } else {
            Align::Left
        }
    }
}

/// Makes columns narrower, the widest first, until the box fits; if they would become narrower
/// than [`NARROWEST`], the middle ones are left out.
fn fit(columns: &mut Vec<Column>, width: usize) {
    // Each column has a space on both sides and an edge; one edge closes the row.
    let room = |columns: &[Column]| width.saturating_sub(3 * columns.len() + 1);
    let needed = |columns: &[Column], cap: usize| -> usize {
        columns.iter().map(|column| column.width.min(cap)).sum()
    };
    if needed(columns, NARROWEST) > room(columns) {
        let middle = columns.len() / 2;
        columns[middle] = Column {
            index: None,
            name: ELLIPSIS.into(),
            type_name: String::new(),
            right: false,
            width: 1,
        };
        // Those left and right of the ellipsis give way in turn; the first column stays.
        let mut at = middle;
        while needed(columns, NARROWEST) > room(columns) && columns.len() > 2 {
            let after = columns.len() - 1 - at;
            if after >= at && after > 0 {
                columns.remove(at + 1);
            } else {
                columns.remove(at - 1);
                at -= 1;
            }
        }
    }
    let cap = (1..=width)
        .rev()
        .find(|cap| needed(columns, *cap) <= room(columns))
        .unwrap_or(1);
    for column in columns {
        column.width = column.width.min(cap);
    }
}

#[derive(Clone, Copy)]
enum Align {
    Left,
    Centre,
    Right,
}

fn pad(text: &str, width: usize, align: Align) -> String {
    let space = width.saturating_sub(text.width());
    let left = match align {
        Align::Left => 0,
        Align::Centre => space / 2,
        Align::Right => space,
    };
    format!("{}{text}{}", " ".repeat(left), " ".repeat(space - left))
}

/// At most `width` columns of `text`, with `…` at the end if something is missing.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 0;
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide + 1 > width {
            break;
        }
        used += wide;
        kept.push(c);
    }
    kept.push_str(ELLIPSIS);
    kept
}

/// `text` on one line, without characters that move the cursor, and no longer than matters.
pub fn one_line(text: &str, longest: usize) -> String {
    let mut line = String::with_capacity(text.len().min(longest.saturating_mul(4)));
    // One more than fits, so that what is cut later is seen to be cut.
    for c in text.chars().take(longest.saturating_add(1)) {
        match c {
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            c if c.is_control() => line.extend(c.escape_unicode()),
            c => line.push(c),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{Int64Array, StringArray};
    use datafusion::arrow::datatypes::{DataType, Field, Schema};

    use super::*;
    use crate::terminal::Palette;

    fn layout(width: Option<usize>, max_rows: Option<usize>) -> Layout {
        Layout {
            width,
            max_rows,
            palette: Palette::new(false),
        }
    }

    fn drawn(batches: &[RecordBatch], layout: Layout) -> (String, Shown) {
        let mut writer = TableWriter::new(batches[0].schema(), layout);
        let mut out = Vec::new();
        for batch in batches {
            writer.batch(batch, &mut out).unwrap();
        }
        let shown = writer.finish(&mut out).unwrap();
        (String::from_utf8(out).unwrap(), shown)
    }

    fn numbers(from: i64, to: i64) -> RecordBatch {
        let schema = Schema::new(vec![
            Field::new("n", DataType::Int64, true),
            Field::new("text", DataType::Utf8, true),
        ]);
        let texts = (from..to).map(|n| (n % 2 == 0).then(|| format!("value {n}")));
        RecordBatch::try_new(
            Arc::new(schema),
            vec![
                Arc::new(Int64Array::from_iter_values(from..to)),
                Arc::new(StringArray::from_iter(texts)),
            ],
        )
        .unwrap()
    }

    #[test]
    fn a_pipe_gets_every_row_in_ascii() {
        let (text, shown) = drawn(&[numbers(0, 2), numbers(2, 3)], layout(None, None));
        assert_eq!(
            text,
            "+---+---------+\n\
             | n | text    |\n\
             +---+---------+\n\
             | 0 | value 0 |\n\
             | 1 | NULL    |\n\
             | 2 | value 2 |\n\
             +---+---------+\n"
        );
        assert_eq!(shown.shown_rows, 3);
    }

    #[test]
    fn a_terminal_gets_the_first_and_the_last_rows() {
        let batches = [numbers(0, 10), numbers(10, 11), numbers(11, 13)];
        let (text, shown) = drawn(&batches, layout(Some(80), Some(4)));
        assert_eq!(
            text,
            "┌────────┬──────────┐\n\
             │   n    │   text   │\n\
             │ bigint │ varchar  │\n\
             ├────────┼──────────┤\n\
             │      0 │ value 0  │\n\
             │      1 │ NULL     │\n\
             │      · │ ·        │\n\
             │      · │ ·        │\n\
             │      · │ ·        │\n\
             │     11 │ NULL     │\n\
             │     12 │ value 12 │\n\
             └────────┴──────────┘\n"
        );
        assert_eq!((shown.rows, shown.shown_rows), (13, 4));
    }

    #[test]
    fn a_box_never_exceeds_the_width() {
        for columns in 1..30 {
            let fields: Vec<_> = (0..columns)
                .map(|i| Field::new(format!("column {i}"), DataType::Utf8, true))
                .collect();
            let arrays = (0..columns)
                .map(|i| Arc::new(StringArray::from(vec!["é→x".repeat(i * 7)])) as _)
                .collect();
            let batch = RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap();
            for width in [20, 40, 80, 100] {
                let (text, shown) = drawn(std::slice::from_ref(&batch), layout(Some(width), None));
                let widest = text.lines().map(UnicodeWidthStr::width).max().unwrap();
                assert!(widest <= width, "{columns} columns in {width}:\n{text}");
                assert!(shown.shown_columns >= 1);
            }
        }
    }

    #[test]
    fn a_value_stays_on_its_line() {
        assert_eq!(one_line("a\nb\tc\u{1b}", 10), "a\\nb\\tc\\u{1b}");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("漢字漢字", 5), "漢字…");
    }
}
