//! A database, a session in it, and how its results are shown.

use std::io::{self, BufRead, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, UInt64Type};
use skewer::Database;

use crate::backend::Backend;
use crate::completion_names::{self, SharedNames};
use crate::error::ShellError;
use crate::format::plan::PlanWriter;
use crate::format::{self, Format, Layout, ResultWriter, Shown};
use crate::hint;
use crate::meta_commands;
use crate::remote::{Address, Remote};
use crate::resources::Resources;
use crate::runner::{Event, Runner};
use crate::script::{Script, Step};
use crate::statement_kind::StatementKind;
use crate::terminal::Terminal;
use crate::units;
use crate::web::Page;

/// Rows of a result that a terminal shows.
const DEFAULT_MAX_ROWS: usize = 40;

/// Whether to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// With the next statement.
    Continue,
    /// To the end, as `.quit` asks.
    Quit,
}

/// Everything the shell remembers between statements.
pub struct Shell {
    /// `None` if it is a server's.
    database: Option<Database>,
    /// The user's session.
    session: Backend,
    /// For the shell's own questions, so that `last_query_id()` stays the user's.
    questions: Backend,
    /// What databases may use.
    resources: Resources,
    runner: Runner,
    pub terminal: Terminal,
    pub format: Format,
    /// Rows shown on a terminal; `None` shows all.
    pub max_rows: Option<usize>,
    /// Whether each statement's time is written to standard error.
    pub timer: bool,
    /// Whether a person is typing.
    pub interactive: bool,
    /// Whether a person is told that a statement has a diagnosis.
    pub hints: bool,
    /// The query that a hint was looked for last.
    hinted: Option<i64>,
    names: SharedNames,
    /// The profiler's page, once `.web` has asked for it.
    page: Option<Page>,
}

impl Shell {
    /// Opens the database at `path`, or one in memory.
    pub fn open(
        path: Option<&Path>,
        resources: Resources,
        runner: Runner,
        terminal: Terminal,
    ) -> Result<Shell, ShellError> {
        let sessions = sessions(path, &resources)?;
        Ok(Shell::new(sessions, resources, runner, terminal))
    }

    /// Connects to a server, whose certificate may be named.
    pub async fn connect(
        address: &Address,
        certificate: Option<&Path>,
        resources: Resources,
        runner: Runner,
        terminal: Terminal,
    ) -> Result<Shell, ShellError> {
        let (session, questions) = Remote::connect(address, certificate).await?;
        let sessions = (None, Backend::Remote(session), Backend::Remote(questions));
        Ok(Shell::new(sessions, resources, runner, terminal))
    }

    fn new(
        (database, session, questions): Sessions,
        resources: Resources,
        runner: Runner,
        terminal: Terminal,
    ) -> Shell {
        Shell {
            database,
            session,
            questions,
            resources,
            runner,
            terminal,
            format: Format::Table,
            max_rows: Some(DEFAULT_MAX_ROWS),
            timer: false,
            interactive: false,
            hints: true,
            hinted: None,
            names: SharedNames::default(),
            page: None,
        }
    }

    /// Turns to another database; the old one stays open if that fails.
    pub async fn reopen(&mut self, path: Option<PathBuf>) -> Result<(), ShellError> {
        let (database, session, questions) = sessions(path.as_deref(), &self.resources)?;
        // It shows the old one.
        self.page = None;
        let old = std::mem::replace(&mut self.database, database);
        self.session = session;
        self.questions = questions;
        self.refresh_names();
        match old {
            Some(old) => Ok(old.close().await?),
            None => Ok(()),
        }
    }

    /// The address of the profiler's page for this database, on a query or on all.
    pub fn page_address(&mut self, query_id: Option<i64>) -> Result<String, ShellError> {
        let Some(database) = &self.database else {
            return Err(ShellError::Usage(
                "this shell is connected to a server: start the server with --http-listen, and open the \
                 address that it prints"
                    .to_owned(),
            ));
        };
        let page = match &mut self.page {
            Some(page) => page,
            none => none.insert(Page::serve(database)?),
        };
        Ok(page.address(query_id))
    }

    /// The session's last query, if it is of this process.
    pub fn last_query_id(&self) -> Option<i64> {
        match &self.session {
            Backend::Local(session) => session.last_query_id(),
            Backend::Remote(_) => None,
        }
    }

    /// Writes what is still in memory of schema `sys`.
    pub async fn close(self) -> Result<(), ShellError> {
        drop(self.page);
        match self.database {
            Some(database) => Ok(database.close().await?),
            None => Ok(()),
        }
    }

    /// The names that completion offers; refreshed in the background.
    pub fn names(&self) -> SharedNames {
        SharedNames::clone(&self.names)
    }

    /// Reads the names again, without waiting for them.
    pub fn refresh_names(&self) {
        if !self.interactive {
            return;
        }
        completion_names::refresh(self.questions.clone(), self.names());
    }

    /// Forgets a Ctrl-C from before.
    pub async fn forget_interrupts(&mut self) {
        self.runner.forget_interrupts().await;
    }

    /// Runs a script from the beginning to its end or its first error; `name` is for errors.
    pub async fn run_script(
        &mut self,
        mut lines: impl BufRead,
        name: Option<&str>,
    ) -> Result<Flow, ShellError> {
        let mut script = Script::default();
        let mut line = String::new();
        loop {
            line.clear();
            let read = lines.read_line(&mut line);
            let end = read.map_err(|source| ShellError::File {
                path: name.unwrap_or("standard input").into(),
                source,
            })? == 0;
            let steps = if end {
                script.rest()
            } else {
                script.line(&line)
            };
            if self.run_steps(steps, name).await? == Flow::Quit {
                return Ok(Flow::Quit);
            }
            if end {
                return Ok(Flow::Continue);
            }
        }
    }

    /// Runs the script in a file.
    pub async fn run_file(&mut self, path: &Path) -> Result<Flow, ShellError> {
        let file = std::fs::File::open(path).map_err(|source| ShellError::File {
            path: path.to_owned(),
            source,
        })?;
        let name = path.display().to_string();
        self.run_script(io::BufReader::new(file), Some(&name)).await
    }

    /// Runs steps in order, until one fails.
    pub async fn run_steps(
        &mut self,
        steps: Vec<Step>,
        script: Option<&str>,
    ) -> Result<Flow, ShellError> {
        for step in steps {
            let (line, outcome) = match step {
                Step::Sql { text, line } => {
                    (line, self.run_sql(&text).await.map(|()| Flow::Continue))
                }
                Step::Dot { text, line } => (line, Box::pin(meta_commands::run(self, &text)).await),
            };
            match (outcome, script) {
                (Ok(Flow::Continue), _) => {}
                (Ok(Flow::Quit), _) => return Ok(Flow::Quit),
                (Err(error), Some(script)) => {
                    return Err(ShellError::InScript {
                        script: script.to_owned(),
                        line,
                        error: Box::new(error),
                    });
                }
                (Err(error), None) => return Err(error),
            }
        }
        Ok(Flow::Continue)
    }

    /// Runs one statement of the user and shows its result.
    pub async fn run_sql(&mut self, sql: &str) -> Result<(), ShellError> {
        let session = self.session.clone();
        let kind = StatementKind::of_sql(sql);
        let time = self.show(&session, sql, kind).await?;
        if kind.changes_names() {
            self.refresh_names();
        }
        if self.interactive && self.hints && kind != StatementKind::Explain && time >= hint::LEAST {
            self.hint().await;
        }
        Ok(())
    }

    /// Prints one line with the worst diagnosis of the session's last query. An error is ignored:
    /// the user did not ask for a hint.
    async fn hint(&mut self) {
        let query_id = match &self.session {
            Backend::Local(session) => session.last_query_id(),
            remote @ Backend::Remote(_) => {
                let remote = remote.clone();
                let answer = self.answer(&remote, hint::LAST_QUERY).await;
                let row = answer.as_ref().and_then(hint::first_row);
                row.and_then(|row| row.integer("query_id"))
            }
        };
        if query_id.is_none() || query_id == self.hinted {
            return;
        }
        self.hinted = query_id;
        let questions = self.questions.clone();
        let sql = hint::sql(query_id.unwrap_or_default());
        let answer = self.answer(&questions, &sql).await;
        if let Some(line) = answer.as_ref().and_then(hint::line) {
            let palette = self.terminal.error_palette();
            eprintln!("{}", palette.dim.paint(format!("hint: {line}")));
        }
    }

    /// Runs a query of the shell's own and returns its first batch.
    async fn answer(&mut self, backend: &Backend, sql: &str) -> Option<RecordBatch> {
        let mut found: Option<RecordBatch> = None;
        let receive = |event: Event<'_>| {
            if let Event::Rows(batch) = event
                && batch.num_rows() > 0
            {
                found.get_or_insert_with(|| batch.clone());
            }
            Ok(())
        };
        let run = self.runner.run(backend, sql, receive).await;
        run.ok().and(found)
    }

    /// Runs a statement of the shell's own and shows its result.
    pub async fn ask(&mut self, sql: &str) -> Result<(), ShellError> {
        let session = self.questions.clone();
        self.show(&session, sql, StatementKind::of_sql(sql)).await?;
        Ok(())
    }

    /// Shows what was recorded of a query that has ended, by default of the session's last one,
    /// also if it failed or was cancelled.
    pub async fn report(&mut self, query_id: Option<i64>) -> Result<(), ShellError> {
        let session = match &self.session {
            Backend::Local(session) => session.clone(),
            remote @ Backend::Remote(_) => {
                let id = query_id.map(|id| id.to_string()).unwrap_or_default();
                let remote = remote.clone();
                let sql = format!("SHOW PROFILE {id}");
                self.show(&remote, &sql, StatementKind::Explain).await?;
                return Ok(());
            }
        };
        let Some(query_id) = query_id.or_else(|| session.last_query_id()) else {
            return Err(ShellError::Usage(
                "no query has run yet in this session".to_owned(),
            ));
        };
        let known = format!("SELECT 1 FROM sys.queries WHERE query_id = {query_id}");
        let mut rows = 0;
        let count = |event: Event<'_>| {
            if let Event::Rows(batch) = event {
                rows += batch.num_rows();
            }
            Ok(())
        };
        let questions = self.questions.clone();
        self.runner.run(&questions, &known, count).await?;
        if rows == 0 {
            return Err(ShellError::Usage(format!(
                "sys.queries has no query {query_id}"
            )));
        }
        // Its own statements are not the session's: what asks for them is not recorded.
        let profile = session.profile_of(query_id).await?;
        let mut out = BufWriter::new(io::stdout().lock());
        let writer = PlanWriter::new(self.terminal.output_palette().enabled);
        writer.document(&skewer::report::text(&profile), &mut out)?;
        Ok(out.flush()?)
    }

    /// Runs a statement, shows its result as its kind wants it, and returns its time.
    async fn show(
        &mut self,
        session: &Backend,
        sql: &str,
        kind: StatementKind,
    ) -> Result<Duration, ShellError> {
        let layout = self.layout();
        let format = self.format;
        let mut out = BufWriter::new(io::stdout().lock());
        let mut writer: Option<Box<dyn ResultWriter>> = None;
        let mut changed = None;
        let receive = |event: Event<'_>| -> Result<(), ShellError> {
            match event {
                Event::Columns(schema) if schema.fields().is_empty() || kind.is_change() => {}
                Event::Columns(_) if kind == StatementKind::Explain && format == Format::Table => {
                    writer = Some(Box::new(PlanWriter::new(layout.palette.enabled)));
                }
                Event::Columns(schema) => writer = Some(format::writer(format, schema, layout)),
                Event::Rows(batch) => match &mut writer {
                    Some(writer) => writer.batch(batch, &mut out)?,
                    None => changed = count(batch),
                },
            }
            Ok(())
        };
        let is_styled = matches!(session, Backend::Remote(_))
            && kind == StatementKind::Explain
            && format == Format::Table
            && layout.palette.enabled;
        if is_styled {
            self.set_report_styles(session, true).await;
        }
        let finished = self.runner.run(session, sql, receive).await;
        if is_styled {
            self.set_report_styles(session, false).await;
        }
        let finished = finished?;
        let shown = match &mut writer {
            Some(writer) => Some(writer.finish(&mut out)?),
            None => None,
        };
        out.flush()?;
        drop(out);
        let palette = self.terminal.error_palette();
        for notice in &finished.notices {
            eprintln!("{} {notice}", palette.dim.paint("notice:"));
        }
        self.footer(kind, shown, changed, finished.time);
        Ok(finished.time)
    }

    /// Has a server send the styles of a report's lines beside their text, or no longer. A server
    /// that refuses sends reports without colour.
    async fn set_report_styles(&mut self, session: &Backend, with_styles: bool) {
        let set = format!("SET profile.report_styles = {with_styles}");
        self.answer(session, &set).await;
    }

    fn layout(&self) -> Layout {
        let width = self.terminal.output.then(|| self.terminal.width());
        Layout {
            width,
            max_rows: width.and(self.max_rows),
            palette: self.terminal.output_palette(),
        }
    }

    /// What is said about a statement beside its result.
    fn footer(
        &self,
        kind: StatementKind,
        shown: Option<Shown>,
        changed: Option<u64>,
        time: Duration,
    ) {
        let mut parts = Vec::new();
        let mut elided = false;
        if let Some(shown) = shown.filter(|_| kind != StatementKind::Explain) {
            let mut rows = units::counted(shown.rows, "row");
            if shown.shown_rows < shown.rows {
                elided = true;
                rows = format!("{rows} ({} shown)", units::count(shown.shown_rows));
            }
            parts.push(rows);
            if shown.shown_columns < shown.columns {
                elided = true;
                let columns = units::counted(shown.columns as u64, "column");
                parts.push(format!("{columns} ({} shown)", shown.shown_columns));
            }
        } else if let (None, Some(changed)) = (shown, changed) {
            parts.extend(
                kind.past()
                    .map(|past| format!("{} {past}", units::counted(changed, "row"))),
            );
        }
        if self.timer {
            parts.push(units::duration(time));
        }
        if parts.is_empty() || !(self.interactive || self.timer || elided) {
            return;
        }
        let palette = self.terminal.error_palette();
        eprintln!("{}", palette.dim.paint(parts.join(" · ")));
    }
}

/// What INSERT and its kin answer: how many rows.
fn count(batch: &RecordBatch) -> Option<u64> {
    if batch.num_rows() != 1 {
        return None;
    }
    let counts = cast(batch.columns().first()?, &DataType::UInt64).ok()?;
    Some(counts.as_primitive::<UInt64Type>().value(0))
}

type Sessions = (Option<Database>, Backend, Backend);

fn sessions(path: Option<&Path>, resources: &Resources) -> Result<Sessions, ShellError> {
    let database = resources.open(path, None)?;
    let session = Backend::Local(database.session());
    let questions = Backend::Local(database.session());
    Ok((Some(database), session, questions))
}
