//! What the case studies are told with: headings, statements with their times, a verdict.

use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::compute::concat_batches;
use datafusion::arrow::datatypes::SchemaRef;
use skewer::{Database, Session};

use crate::backend::Backend;
use crate::error::ShellError;
use crate::format::cells::Cells;
use crate::format::plan::PlanWriter;
use crate::format::table::TableWriter;
use crate::format::{Layout, ResultWriter};
use crate::highlight;
use crate::runner::{Event, Runner};
use crate::terminal::{Palette, Terminal};
use crate::units;
use crate::web::{Page, open_in_browser};

/// The narrative's width, also on wider terminals: longer lines are hard to read.
const WIDTH: usize = 100;
/// Rows shown of a result.
const MAX_ROWS: usize = 10;
/// Runs of a query of which the median is told.
const RUNS: usize = 3;
/// Slower queries run once: three times would only bore.
const SLOW: Duration = Duration::from_secs(8);

/// Tells a story about a database.
pub struct Stage {
    session: Session,
    runner: Runner,
    palette: Palette,
    boxes: bool,
    steps: u32,
    out: io::Stdout,
}

/// All rows of a result.
pub struct Answer {
    /// The rows, in one batch.
    pub rows: RecordBatch,
    /// How long the statement took.
    pub time: Duration,
}

impl Answer {
    /// A value as text.
    pub fn text(&self, column: usize, row: usize) -> Result<String, ShellError> {
        if row >= self.rows.num_rows() || column >= self.rows.num_columns() {
            return Err(ShellError::Demo(format!(
                "a result has no row {row} or no column {column}"
            )));
        }
        let cells = Cells::new(&self.rows).map_err(crate::format::WriteError::from)?;
        let value = cells
            .get(column, row)
            .map_err(crate::format::WriteError::from)?;
        Ok(value.unwrap_or_else(|| "NULL".to_owned()))
    }

    /// A number, as a double.
    pub fn number(&self, column: usize, row: usize) -> Result<f64, ShellError> {
        let text = self.text(column, row)?;
        text.parse()
            .map_err(|_| ShellError::Demo(format!("expected a number and got {text}")))
    }
}

impl Stage {
    /// A stage with a session of its own in `database`.
    pub fn new(database: &Database, runner: Runner, terminal: Terminal) -> Stage {
        Stage {
            session: database.session(),
            runner,
            palette: terminal.output_palette(),
            boxes: terminal.output,
            steps: 0,
            out: io::stdout(),
        }
    }

    /// The session in which statements run, to register functions.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// The study's name and what it is about.
    pub fn title(&mut self, name: &str, about: &str) -> Result<(), ShellError> {
        let rule = "━".repeat(WIDTH);
        writeln!(self.out, "{}", self.palette.heading.paint(name))?;
        writeln!(self.out, "{}", self.palette.dim.paint(rule))?;
        self.say(about)
    }

    /// The next step's heading.
    pub fn step(&mut self, heading: &str) -> Result<(), ShellError> {
        self.steps += 1;
        let number = self.palette.heading.paint(self.steps.to_string());
        let heading = self.palette.strong.paint(heading);
        Ok(writeln!(self.out, "\n{number}  {heading}\n")?)
    }

    /// A paragraph, wrapped.
    pub fn say(&mut self, text: &str) -> Result<(), ShellError> {
        for line in wrap(text, WIDTH - INDENT.len()) {
            writeln!(self.out, "{INDENT}{line}")?;
        }
        Ok(self.out.flush()?)
    }

    /// Makes a file, and tells its name, size and time.
    pub fn file(
        &mut self,
        path: &Path,
        what: &str,
        make: impl FnOnce(&Path) -> io::Result<u64>,
    ) -> Result<(), ShellError> {
        let started = Instant::now();
        let bytes = make(path).map_err(|source| ShellError::File {
            path: path.to_owned(),
            source,
        })?;
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let about = format!("{name}: {what}, {}", units::bytes(bytes));
        self.timed(&about, started.elapsed())
    }

    /// Runs a statement and tells it and its time; its result is only returned.
    pub async fn run(&mut self, sql: &str) -> Result<Answer, ShellError> {
        self.sql(sql)?;
        let answer = self.ask(sql).await?;
        self.timed("", answer.time)?;
        Ok(answer)
    }

    /// Runs a statement and tells it, its result and its time.
    pub async fn show(&mut self, sql: &str) -> Result<Answer, ShellError> {
        self.sql(sql)?;
        let answer = self.ask(sql).await?;
        self.table(&answer)?;
        Ok(answer)
    }

    /// Runs EXPLAIN PROFILE and tells what it says.
    pub async fn explain(&mut self, sql: &str) -> Result<(), ShellError> {
        let sql = format!("EXPLAIN PROFILE\n{sql}");
        self.sql(&sql)?;
        let answer = self.ask(&sql).await?;
        let mut writer = PlanWriter::new(self.palette.enabled);
        writer.batch(&answer.rows, &mut self.out)?;
        writer.finish(&mut self.out)?;
        Ok(self.out.flush()?)
    }

    /// Runs a query a few times; tells it, its result and the median of the times.
    pub async fn measure(&mut self, sql: &str) -> Result<Answer, ShellError> {
        self.sql(sql)?;
        let mut answer = self.ask(sql).await?;
        self.table(&answer)?;
        let mut times = vec![answer.time];
        while times.len() < RUNS && answer.time < SLOW {
            times.push(self.ask(sql).await?.time);
        }
        answer.time = median(&mut times);
        let about = match times.len() {
            1 => String::new(),
            runs => format!("median of {runs} runs"),
        };
        self.timed(&about, answer.time)?;
        Ok(answer)
    }

    /// Runs a query with the one setting and with the other in turn, `pairs` times; tells the statements and the
    /// medians of the times, and gives the answers with these times.
    pub async fn pairs(
        &mut self,
        settings: [&str; 2],
        sql: &str,
        pairs: usize,
    ) -> Result<[Answer; 2], ShellError> {
        let [mut first, mut second] = [
            self.with_setting(settings[0], sql).await?,
            self.with_setting(settings[1], sql).await?,
        ];
        // The runs so far have warmed up, and do not count.
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..pairs {
            for (setting, times) in settings.iter().zip(&mut times) {
                self.ask(setting).await?;
                times.push(self.ask(sql).await?.time);
            }
        }
        let [of_first, of_second] = &mut times;
        first.time = median(of_first);
        second.time = median(of_second);
        let first_time = units::duration(first.time);
        let about = format!("medians of {pairs} pairs in turn · {first_time}");
        self.timed(&about, second.time)?;
        Ok([first, second])
    }

    /// Runs a query with a setting; tells both, and the result.
    async fn with_setting(&mut self, setting: &str, sql: &str) -> Result<Answer, ShellError> {
        self.sql(setting)?;
        self.ask(setting).await?;
        self.show(sql).await
    }

    /// Runs a statement without telling it.
    pub async fn ask(&mut self, sql: &str) -> Result<Answer, ShellError> {
        let mut columns: Option<SchemaRef> = None;
        let mut batches = Vec::new();
        let receive = |event: Event<'_>| {
            match event {
                Event::Columns(schema) => columns = Some(schema),
                Event::Rows(batch) => batches.push(batch.clone()),
            }
            Ok(())
        };
        let finished = self
            .runner
            .run(&Backend::Local(self.session.clone()), sql, receive)
            .await?;
        let columns =
            columns.ok_or_else(|| ShellError::Demo("a statement gave no result".to_owned()))?;
        let rows = concat_batches(&columns, &batches).map_err(crate::format::WriteError::from)?;
        Ok(Answer {
            rows,
            time: finished.time,
        })
    }

    /// Both times, and how many times faster.
    pub fn verdict(&mut self, before: Duration, after: Duration) -> Result<(), ShellError> {
        let longest = before.max(after).as_secs_f64().max(f64::MIN_POSITIVE);
        let bar = |time: Duration| {
            let share = time.as_secs_f64() / longest;
            "█".repeat(((share * BAR as f64).round() as usize).max(1))
        };
        writeln!(self.out)?;
        for (name, time, style) in [
            ("before", before, self.palette.bad),
            ("after", after, self.palette.good),
        ] {
            let time_text = units::duration(time);
            let bar = style.paint(bar(time));
            writeln!(self.out, "{INDENT}{name:<8}{time_text:>9}  {bar}")?;
        }
        let factor = before.as_secs_f64() / after.as_secs_f64().max(f64::MIN_POSITIVE);
        let verdict = if factor >= 1.05 {
            self.palette
                .good
                .paint(format!("{factor:.1} times as fast"))
        } else {
            self.palette
                .bad
                .paint("no faster: at this size the cause does not weigh".to_owned())
        };
        Ok(writeln!(self.out, "\n{INDENT}{verdict}")?)
    }

    /// Serves the profiler's page about the slowest query until the person at the terminal has seen it. Elsewhere
    /// nobody could open it.
    pub async fn show_page(&mut self, database: &Database) -> Result<(), ShellError> {
        if !self.boxes || !io::stdin().is_terminal() {
            return Ok(());
        }
        let sql = "SELECT query_id FROM sys.queries WHERE profile_level = 'records' ORDER BY execution_ns DESC LIMIT 1";
        let slowest: Vec<(i64,)> = self.session.query_as(sql).await?;
        let page = Page::serve(database)?;
        let address = page.address(slowest.first().map(|(query_id,)| *query_id));
        writeln!(self.out)?;
        self.say("See it: the profiler's page about the slow query is at")?;
        writeln!(self.out, "{INDENT}{}", self.palette.strong.paint(&address))?;
        self.say("Press Ctrl-C to end.")?;
        open_in_browser(&address);
        self.runner.interrupted().await;
        Ok(())
    }

    /// Where everything was kept.
    pub fn kept(&mut self, directory: &Path, database: &Path) -> Result<(), ShellError> {
        let text = format!(
            "kept in {}; skewer {} opens the database",
            directory.display(),
            database.display()
        );
        Ok(writeln!(
            self.out,
            "{INDENT}{}",
            self.palette.dim.paint(text)
        )?)
    }

    /// How to look further.
    pub fn hint(&mut self, study: &str) -> Result<(), ShellError> {
        let text = format!("skewer demo {study} --keep DIR keeps the files and the database");
        Ok(writeln!(
            self.out,
            "{INDENT}{}",
            self.palette.dim.paint(text)
        )?)
    }

    fn sql(&mut self, sql: &str) -> Result<(), ShellError> {
        // Statements are painted whole, so that strings over several lines stay strings.
        let painted = highlight::paint(&format!("{sql};"), &self.palette);
        for line in painted.lines() {
            writeln!(self.out, "{INDENT}{line}")?;
        }
        Ok(self.out.flush()?)
    }

    fn table(&mut self, answer: &Answer) -> Result<(), ShellError> {
        let layout = Layout {
            width: self.boxes.then_some(WIDTH - INDENT.len()),
            max_rows: Some(MAX_ROWS),
            palette: self.palette,
        };
        let mut drawn = Vec::new();
        let mut writer = TableWriter::new(answer.rows.schema(), layout);
        writer.batch(&answer.rows, &mut drawn)?;
        writer.finish(&mut drawn)?;
        for line in String::from_utf8_lossy(&drawn).lines() {
            writeln!(self.out, "{INDENT}{line}")?;
        }
        Ok(())
    }

    fn timed(&mut self, about: &str, time: Duration) -> Result<(), ShellError> {
        let separator = if about.is_empty() { "" } else { " · " };
        let text = format!("{about}{separator}{}", units::duration(time));
        writeln!(self.out, "{INDENT}{}", self.palette.dim.paint(text))?;
        Ok(self.out.flush()?)
    }
}

/// The median of at least one time.
fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Under a step's heading.
const INDENT: &str = "   ";
/// Columns of the longer bar of the verdict.
const BAR: usize = 60;

/// Lines of at most `width` characters, broken at spaces.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = &mut lines[..];
        let Some(line) = line.last_mut() else { break };
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paragraphs_are_wrapped_at_spaces() {
        assert_eq!(
            wrap("one two\n  three four", 9),
            ["one two", "three", "four"]
        );
    }
}
