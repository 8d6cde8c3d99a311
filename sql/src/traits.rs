//! What everyone else must know of a statement, decided in one place.
//!
//! [`Statement::traits`] is one exhaustive match: a new statement does not compile before it has its traits.

use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast;

use crate::statement::{ObjectKind, Statement};

/// The traits of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatementTraits {
    /// Whether `sys.queries` gets a row.
    pub recording: Recording,
    /// Whether it waits in the admission queue before it runs.
    pub is_queued: bool,
    /// Whether EXPLAIN PROFILE can run it.
    pub is_profilable: bool,
    /// Whether PREPARE takes it.
    pub is_preparable: bool,
    /// Whether a read-only session runs it: it neither changes nor writes anything, and records nothing.
    pub is_read_only: bool,
    /// What it returns.
    pub returns: Returns,
    /// What it changes.
    pub changes: Changes,
    /// The command tag that a PostgreSQL client gets when the statement ends.
    pub tag: CommandTag,
}

/// When a statement is recorded in schema `sys`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recording {
    /// At the session's level, and within its budget. Queries that read only system tables are not recorded.
    Query,
    /// At the session's level.
    Always,
    /// Without counters: it measures by itself.
    Uncounted,
    /// Never, so that looking at the last query does not replace it.
    Never,
    /// As the statement that it runs.
    Inner,
}

/// What a statement returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Returns {
    /// Rows.
    Rows,
    /// Lines of a report, with a layout of their own.
    Report,
    /// How many rows it changed.
    Count,
    /// Nothing.
    Nothing,
    /// What the statement returns that EXECUTE names.
    OfPrepared,
}

/// What a statement changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changes {
    /// Nothing.
    Nothing,
    /// Settings and prepared statements of the session.
    Session,
    /// Rows, and where they are.
    Data,
    /// Tables, views and schemas.
    Definitions,
    /// What the statement changes that EXECUTE or EXPLAIN names.
    Inner,
}

/// How the end of a statement is told to PostgreSQL clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandTag {
    /// With the number of rows returned: `SELECT 3`.
    RowsReturned,
    /// Rows come, and their number is not told: `EXPLAIN`.
    Rows(&'static str),
    /// With the number of rows that were counted: `INSERT 0 3`; and what has changed.
    RowsCounted(&'static str, Changes),
    /// `CREATE TABLE`; and what has changed.
    Done(&'static str, Changes),
    /// As the prepared statement of this name.
    Execute(String),
    /// `PREPARE` of a name, for a statement with this tag.
    Prepare(String, Box<CommandTag>),
}

/// The tag of CREATE INDEX, which does nothing.
pub const CREATE_INDEX: CommandTag = CommandTag::Done("CREATE INDEX", Changes::Nothing);
/// The tag of DROP INDEX, which does nothing.
pub const DROP_INDEX: CommandTag = CommandTag::Done("DROP INDEX", Changes::Nothing);

impl CommandTag {
    /// Whether data or definitions have changed when the statement is done. What EXECUTE changes is in the tag of
    /// the prepared statement.
    pub fn changes(&self) -> bool {
        match self {
            Self::RowsCounted(_, changes) | Self::Done(_, changes) => {
                matches!(changes, Changes::Data | Changes::Definitions)
            }
            Self::RowsReturned | Self::Rows(_) | Self::Execute(_) | Self::Prepare(..) => false,
        }
    }
}

impl StatementTraits {
    /// A statement that looks and changes nothing.
    fn look(returns: Returns, tag: CommandTag) -> Self {
        Self {
            recording: Recording::Never,
            is_queued: false,
            is_profilable: false,
            is_preparable: false,
            is_read_only: true,
            returns,
            changes: Changes::Nothing,
            tag,
        }
    }

    /// A statement that changes rows, and counts them.
    fn change(tag: &'static str) -> Self {
        Self {
            recording: Recording::Always,
            is_queued: true,
            is_profilable: true,
            is_read_only: false,
            changes: Changes::Data,
            ..Self::look(Returns::Count, CommandTag::RowsCounted(tag, Changes::Data))
        }
    }

    /// A statement that changes definitions.
    fn definition(tag: &'static str) -> Self {
        Self {
            recording: Recording::Always,
            is_read_only: false,
            changes: Changes::Definitions,
            ..Self::look(
                Returns::Nothing,
                CommandTag::Done(tag, Changes::Definitions),
            )
        }
    }

    /// A statement about the session.
    fn session(tag: &'static str) -> Self {
        Self {
            is_read_only: false,
            changes: Changes::Session,
            ..Self::look(Returns::Nothing, CommandTag::Done(tag, Changes::Session))
        }
    }

    fn preparable(self) -> Self {
        Self {
            is_preparable: true,
            ..self
        }
    }
}

impl Statement {
    /// The traits of the statement.
    pub fn traits(&self) -> StatementTraits {
        let show = || StatementTraits::look(Returns::Rows, CommandTag::Rows("SHOW"));
        let report = |tag| StatementTraits::look(Returns::Report, CommandTag::Rows(tag));
        match self {
            Self::Query(_) => StatementTraits {
                recording: Recording::Query,
                is_queued: true,
                is_profilable: true,
                is_preparable: true,
                ..StatementTraits::look(Returns::Rows, CommandTag::RowsReturned)
            },
            Self::Explain(explain) => StatementTraits {
                recording: if is_analyze(explain) {
                    Recording::Uncounted
                } else {
                    Recording::Never
                },
                is_queued: true,
                ..StatementTraits::look(Returns::Report, CommandTag::Rows("EXPLAIN"))
            },
            Self::ExplainProfile(_) => StatementTraits {
                recording: Recording::Inner,
                is_read_only: false,
                changes: Changes::Inner,
                ..report("EXPLAIN")
            },
            // They stand only within EXPLAIN PROFILE.
            Self::Recorded { .. } | Self::Diff { .. } => StatementTraits {
                recording: Recording::Inner,
                is_read_only: false,
                ..report("EXPLAIN")
            },
            Self::ShowProfile { .. } => report("SHOW"),
            Self::ExportProfile { .. } => StatementTraits {
                is_read_only: false,
                ..StatementTraits::look(Returns::Rows, CommandTag::Rows("EXPORT"))
            },
            Self::ImportProfile { .. } => StatementTraits {
                is_read_only: false,
                ..StatementTraits::look(Returns::Rows, CommandTag::Rows("IMPORT"))
            },
            Self::CreateTable(table) => StatementTraits {
                is_queued: true,
                is_profilable: true,
                ..match &table.query {
                    Some(_) => StatementTraits {
                        returns: Returns::Count,
                        tag: CommandTag::RowsCounted("SELECT", Changes::Definitions),
                        ..StatementTraits::definition("CREATE TABLE")
                    },
                    None => StatementTraits::definition("CREATE TABLE"),
                }
            },
            Self::CreateExternalTable(_) => StatementTraits::definition("CREATE TABLE"),
            Self::CreateView(_) => StatementTraits::definition("CREATE VIEW"),
            Self::CreateSchema { .. } => StatementTraits::definition("CREATE SCHEMA"),
            Self::Drop { kind, .. } => StatementTraits::definition(match kind {
                ObjectKind::Table => "DROP TABLE",
                ObjectKind::View => "DROP VIEW",
                ObjectKind::Schema => "DROP SCHEMA",
                ObjectKind::Stream => "DROP STREAM",
                ObjectKind::ContinuousQuery => "DROP CONTINUOUS QUERY",
            }),
            Self::CreateStream(_) => StatementTraits::definition("CREATE STREAM"),
            Self::CreateContinuousQuery(_) => {
                StatementTraits::definition("CREATE CONTINUOUS QUERY")
            }
            // Each micro-batch is recorded as a query of its own.
            Self::Refresh { .. } => StatementTraits {
                recording: Recording::Never,
                is_queued: false,
                is_profilable: false,
                ..StatementTraits::change("REFRESH")
            },
            // There are no indexes: nothing changes.
            Self::CreateIndex(_) => StatementTraits {
                is_read_only: false,
                ..StatementTraits::look(Returns::Nothing, CREATE_INDEX)
            },
            Self::DropIndex => StatementTraits {
                is_read_only: false,
                ..StatementTraits::look(Returns::Nothing, DROP_INDEX)
            },
            Self::CreateQuarantine(_) => StatementTraits::definition("CREATE QUARANTINE"),
            Self::DropQuarantine { .. } => StatementTraits::definition("DROP QUARANTINE"),
            Self::AlterTable(_) => StatementTraits::definition("ALTER TABLE"),
            Self::Truncate { .. } => StatementTraits::definition("TRUNCATE TABLE"),
            Self::Rebalance { .. } => StatementTraits {
                recording: Recording::Always,
                is_read_only: false,
                changes: Changes::Data,
                ..StatementTraits::look(Returns::Rows, CommandTag::Rows("REBALANCE"))
            },
            Self::Insert(_) => StatementTraits::change("INSERT 0").preparable(),
            Self::Delete(_) => StatementTraits::change("DELETE").preparable(),
            Self::Update(_) => StatementTraits::change("UPDATE").preparable(),
            Self::CopyFrom(_) => StatementTraits::change("COPY"),
            Self::CopyTo(_) => StatementTraits {
                changes: Changes::Nothing,
                tag: CommandTag::RowsCounted("COPY", Changes::Nothing),
                ..StatementTraits::change("COPY")
            },
            Self::Set { .. } => StatementTraits::session("SET"),
            Self::Reset { .. } => StatementTraits::session("RESET"),
            Self::Show { .. }
            | Self::ShowTables { .. }
            | Self::ShowSchemas
            | Self::ShowCreate { .. }
            | Self::Describe(_)
            | Self::DescribeQuery(_) => show(),
            Self::Prepare {
                name, statement, ..
            } => {
                let inner = Box::new(statement.traits().tag);
                StatementTraits {
                    tag: CommandTag::Prepare(name.clone(), inner),
                    ..StatementTraits::session("PREPARE")
                }
            }
            Self::Execute { name, .. } => StatementTraits {
                recording: Recording::Inner,
                is_read_only: false,
                changes: Changes::Inner,
                ..StatementTraits::look(Returns::OfPrepared, CommandTag::Execute(name.clone()))
            },
            Self::Deallocate { .. } => StatementTraits::session("DEALLOCATE"),
            // SHOW FUNCTIONS; the engine refuses the rest.
            Self::Other(_) => show(),
        }
    }
}

/// Whether an EXPLAIN runs its statement.
pub fn is_analyze(statement: &DFStatement) -> bool {
    match statement {
        DFStatement::Explain(explain) => explain.options.analyze,
        DFStatement::Statement(statement) => {
            matches!(**statement, ast::Statement::Explain { analyze: true, .. })
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    #[test]
    fn statements_have_their_traits() {
        let of = |sql: &str| parse(sql).unwrap_or_else(|e| panic!("{sql}: {e}")).traits();
        for (sql, recording, returns, changes) in [
            (
                "SELECT 1",
                Recording::Query,
                Returns::Rows,
                Changes::Nothing,
            ),
            (
                "EXPLAIN SELECT 1",
                Recording::Never,
                Returns::Report,
                Changes::Nothing,
            ),
            (
                "EXPLAIN ANALYZE SELECT 1",
                Recording::Uncounted,
                Returns::Report,
                Changes::Nothing,
            ),
            (
                "EXPLAIN PROFILE SELECT 1",
                Recording::Inner,
                Returns::Report,
                Changes::Inner,
            ),
            (
                "INSERT INTO t VALUES (1)",
                Recording::Always,
                Returns::Count,
                Changes::Data,
            ),
            (
                "COPY t TO 'x.csv'",
                Recording::Always,
                Returns::Count,
                Changes::Nothing,
            ),
            (
                "CREATE TABLE t AS SELECT 1",
                Recording::Always,
                Returns::Count,
                Changes::Definitions,
            ),
            (
                "CREATE TABLE t (a INT)",
                Recording::Always,
                Returns::Nothing,
                Changes::Definitions,
            ),
            (
                "CREATE INDEX i ON t (a)",
                Recording::Never,
                Returns::Nothing,
                Changes::Nothing,
            ),
            (
                "CREATE QUARANTINE ON t WHERE (a > 1)",
                Recording::Always,
                Returns::Nothing,
                Changes::Definitions,
            ),
            (
                "SET x = 1",
                Recording::Never,
                Returns::Nothing,
                Changes::Session,
            ),
            ("SHOW x", Recording::Never, Returns::Rows, Changes::Nothing),
            (
                "EXECUTE p (1)",
                Recording::Inner,
                Returns::OfPrepared,
                Changes::Inner,
            ),
        ] {
            let traits = of(sql);
            assert_eq!(traits.recording, recording, "{sql}");
            assert_eq!(traits.returns, returns, "{sql}");
            assert_eq!(traits.changes, changes, "{sql}");
        }
        let prepare = of("PREPARE p AS DELETE FROM t");
        let delete = CommandTag::RowsCounted("DELETE", Changes::Data);
        assert_eq!(
            prepare.tag,
            CommandTag::Prepare("p".to_owned(), Box::new(delete))
        );
    }

    #[test]
    fn only_statements_that_look_are_read_only() {
        for (sql, expected) in [
            ("SELECT 1", true),
            ("EXPLAIN SELECT 1", true),
            ("EXPLAIN ANALYZE SELECT 1", true),
            ("SHOW TABLES", true),
            ("SHOW PROFILE 3", true),
            ("DESCRIBE t", true),
            ("EXPLAIN PROFILE SELECT 1", false),
            ("INSERT INTO t VALUES (1)", false),
            ("CREATE TABLE t AS SELECT 1", false),
            ("CREATE INDEX i ON t (a)", false),
            ("DROP TABLE t", false),
            ("COPY t TO 'x.csv'", false),
            ("EXPORT PROFILE 3 TO 'x'", false),
            ("IMPORT PROFILE FROM 'x'", false),
            ("SET x = 1", false),
            ("PREPARE p AS SELECT 1", false),
            ("EXECUTE p", false),
            ("REBALANCE", false),
            ("CREATE STREAM s (a INT) FROM INSERT", false),
            ("CREATE CONTINUOUS QUERY q INTO t AS SELECT a FROM s", false),
            ("REFRESH CONTINUOUS QUERY q", false),
            ("DROP STREAM s", false),
        ] {
            let statement = parse(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
            assert_eq!(statement.traits().is_read_only, expected, "{sql}");
        }
    }

    #[test]
    fn only_queries_and_changes_of_rows_are_prepared() {
        for (sql, expected) in [
            ("SELECT 1", true),
            ("INSERT INTO t VALUES (1)", true),
            ("UPDATE t SET a = 1", true),
            ("DELETE FROM t", true),
            ("CREATE TABLE t AS SELECT 1", false),
            ("SHOW TABLES", false),
        ] {
            assert_eq!(
                parse(sql).unwrap().traits().is_preparable,
                expected,
                "{sql}"
            );
        }
    }
}
