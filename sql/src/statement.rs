//! What can be said.

use std::fmt;

use datafusion::sql::parser::{CreateExternalTable, Statement as DFStatement};
use datafusion::sql::sqlparser::ast;

use crate::copy::{CopyFrom, CopyTo};
use crate::explain_profile::{ExplainProfile, ProfileFormat};
use crate::export_profile::ExportFormat;
use crate::quarantine::CreateQuarantine;
use crate::streams::{CreateContinuousQuery, CreateStream};

/// One statement.
#[derive(Debug, Clone)]
pub enum Statement {
    /// SELECT, VALUES, WITH …
    Query(Box<ast::Query>),
    /// EXPLAIN and EXPLAIN ANALYZE, as DataFusion has them.
    Explain(Box<DFStatement>),
    /// EXPLAIN PROFILE: runs its statement and says where the time went.
    ExplainProfile(ExplainProfile),
    /// `QUERY n`, which only EXPLAIN PROFILE takes: the statement that query n was.
    Recorded {
        /// As in `sys.queries`.
        query_id: i64,
    },
    /// `DIFF a, b`, which only EXPLAIN PROFILE takes: what changed from query a to query b.
    Diff {
        /// As in `sys.queries`.
        before: i64,
        /// As in `sys.queries`.
        after: i64,
    },
    /// SHOW PROFILE: the report on a query that has ended.
    ShowProfile {
        /// As in `sys.queries`; `None` for the session's last one.
        query_id: Option<i64>,
        /// How to write the report.
        format: ProfileFormat,
        /// Whether to print the SQL behind each section instead of its result.
        as_sql: bool,
    },
    /// EXPORT PROFILE: what was recorded of a query, in files.
    ExportProfile {
        /// As in `sys.queries`.
        query_id: i64,
        /// The directory or file to write.
        path: String,
        /// What to write.
        format: ExportFormat,
    },
    /// IMPORT PROFILE: what EXPORT PROFILE wrote becomes a query of schema `sys`.
    ImportProfile {
        /// The directory to read.
        path: String,
    },
    /// CREATE TABLE, also AS a query.
    CreateTable(Box<ast::CreateTable>),
    /// CREATE EXTERNAL TABLE: a name for files.
    CreateExternalTable(Box<CreateExternalTable>),
    /// CREATE VIEW.
    CreateView(Box<ast::CreateView>),
    /// CREATE SCHEMA.
    CreateSchema {
        /// The new schema.
        name: ast::ObjectName,
        /// Whether an existing one is fine.
        if_not_exists: bool,
    },
    /// CREATE STREAM.
    CreateStream(Box<CreateStream>),
    /// CREATE CONTINUOUS QUERY.
    CreateContinuousQuery(Box<CreateContinuousQuery>),
    /// REFRESH: what waits is processed now.
    Refresh {
        /// A stream or a continuous query.
        kind: ObjectKind,
        /// Which.
        name: ast::ObjectName,
    },
    /// DROP of tables, views, schemas, streams or continuous queries.
    Drop {
        /// What they are.
        kind: ObjectKind,
        /// Whether a missing one is fine.
        if_exists: bool,
        /// Which.
        names: Vec<ast::ObjectName>,
        /// Whether a schema's tables and views go with it.
        cascade: bool,
    },
    /// CREATE INDEX. There are no indexes: it is only looked at.
    CreateIndex(Box<ast::CreateIndex>),
    /// DROP INDEX, which finds none.
    DropIndex,
    /// CREATE QUARANTINE: rows of a table that queries leave out if their session asks for it.
    CreateQuarantine(Box<CreateQuarantine>),
    /// DROP QUARANTINE.
    DropQuarantine {
        /// Whether a missing one is fine.
        if_exists: bool,
        /// Which; `None` for the only one of its table.
        name: Option<ast::ObjectName>,
        /// Its table, if it is named.
        table: Option<ast::ObjectName>,
    },
    /// ALTER TABLE.
    AlterTable(Box<ast::AlterTable>),
    /// TRUNCATE.
    Truncate {
        /// Whether a missing table is fine.
        if_exists: bool,
        /// The tables to empty.
        names: Vec<ast::ObjectName>,
    },
    /// REBALANCE: rows to the workers that are there now.
    Rebalance {
        /// Which tables; all if it names none.
        names: Vec<ast::ObjectName>,
    },
    /// INSERT.
    Insert(Box<ast::Insert>),
    /// DELETE.
    Delete(Box<ast::Delete>),
    /// UPDATE.
    Update(Box<ast::Update>),
    /// COPY a table FROM a file.
    CopyFrom(CopyFrom),
    /// COPY a table or a query TO a file.
    CopyTo(CopyTo),
    /// SET name = value.
    Set {
        /// Lower-case, dotted.
        name: String,
        /// As written, without quotes.
        value: String,
    },
    /// SHOW name, or SHOW ALL.
    Show {
        /// Lower-case, dotted; `None` for ALL.
        name: Option<String>,
    },
    /// RESET name, or RESET ALL.
    Reset {
        /// Lower-case, dotted; `None` for ALL.
        name: Option<String>,
    },
    /// SHOW TABLES, with `FROM schema` and `LIKE pattern`.
    ShowTables {
        /// Only this schema.
        schema: Option<String>,
        /// Only names like this.
        like: Option<String>,
    },
    /// SHOW SCHEMAS.
    ShowSchemas,
    /// SHOW CREATE TABLE, VIEW, STREAM or CONTINUOUS QUERY.
    ShowCreate {
        /// Which of them.
        kind: ObjectKind,
        /// Of what.
        name: ast::ObjectName,
    },
    /// DESCRIBE and SHOW COLUMNS FROM.
    Describe(ast::ObjectName),
    /// DESCRIBE of a query.
    DescribeQuery(Box<ast::Query>),
    /// PREPARE.
    Prepare {
        /// The name to EXECUTE.
        name: String,
        /// Declared types of the parameters, possibly fewer than there are.
        types: Vec<ast::DataType>,
        /// What to execute.
        statement: Box<Statement>,
    },
    /// EXECUTE.
    Execute {
        /// A prepared name.
        name: String,
        /// Its parameters.
        parameters: Vec<ast::Expr>,
    },
    /// DEALLOCATE, of one name or of all.
    Deallocate {
        /// `None` for ALL.
        name: Option<String>,
    },
    /// Whatever else sqlparser knows: DataFusion plans or refuses it.
    Other(Box<DFStatement>),
}

/// Kinds of things that have names in a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// A table.
    Table,
    /// A view.
    View,
    /// A schema.
    Schema,
    /// A stream.
    Stream,
    /// A continuous query.
    ContinuousQuery,
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Table => "table",
            Self::View => "view",
            Self::Schema => "schema",
            Self::Stream => "stream",
            Self::ContinuousQuery => "continuous query",
        })
    }
}
