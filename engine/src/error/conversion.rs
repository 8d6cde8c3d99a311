//! Errors of DataFusion, Arrow, and the crates below, as errors that a person understands.

use std::io;

use datafusion::arrow::error::ArrowError;
use datafusion::common::{DataFusionError, SchemaError};
use datafusion::object_store;
use datafusion::parquet::errors::ParquetError;
use skewer_cluster::write::WriteError;
use skewer_compat::operators::memory_pool::LIMIT_REACHED;
use skewer_compat::suggest::suggest;
use skewer_exec::waits::Stalled;
use skewer_files::FilesError;
use skewer_net::{FailureClass, LostWorker, NetError, Panic, RemoteFailure};
use skewer_node::Error as NodeError;
use skewer_sql::ObjectKind;
use skewer_storage::{Object, StorageError};
use tokio::task::JoinError;

use super::Error;
use crate::settings::show_age;

impl Error {
    /// An operator, or a function that one calls, has panicked.
    pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> Self {
        Self::from_panic(Panic::from_payload(panic))
    }

    fn from_panic(panic: Panic) -> Self {
        match panic {
            Panic::TooLarge(text) => Self::Execution(text),
            Panic::Bug(text) => Self::Internal(text),
        }
    }

    fn from_join(error: &JoinError) -> Self {
        match Panic::of_task(error) {
            Some(panic) => Self::from_panic(panic),
            None if error.is_cancelled() => Self::Cancelled,
            None => Self::Internal(error.to_string()),
        }
    }

    /// Carries this error through DataFusion, to come out of [`Error::from`] unchanged.
    pub(crate) fn into_datafusion(self) -> DataFusionError {
        DataFusionError::External(Box::new(self))
    }

    /// What a DataFusion error means to the person who wrote the statement.
    pub(crate) fn from_datafusion(error: &DataFusionError) -> Self {
        match error {
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
                Self::from_datafusion(inner)
            }
            DataFusionError::Shared(inner) => Self::from_datafusion(inner),
            DataFusionError::Collection(errors) => errors.first().map_or_else(
                || Self::Internal("an empty collection of errors".to_owned()),
                Self::from_datafusion,
            ),
            DataFusionError::External(inner) => Self::from_foreign(&**inner),
            DataFusionError::ArrowError(inner, _) => Self::from_arrow(inner),
            DataFusionError::ParquetError(inner) => Self::from_parquet(inner),
            DataFusionError::ObjectStore(inner) => Self::from_object_store(inner),
            DataFusionError::IoError(inner) => Self::from_io(inner),
            DataFusionError::SQL(inner, _) => Self::Invalid(inner.to_string()),
            DataFusionError::NotImplemented(text) => Self::Unsupported(physical_plan_gap(text)),
            DataFusionError::Plan(text) if text.contains(NO_SIGNATURE) => {
                Self::Invalid(without_attempts(text))
            }
            DataFusionError::Plan(text) if text.starts_with(NO_JOIN) => {
                Self::Unsupported(CORRELATED.to_owned())
            }
            DataFusionError::Plan(text) | DataFusionError::Configuration(text) => {
                Self::from_planning(text)
            }
            DataFusionError::SchemaError(inner, _) => Self::from_schema(inner),
            DataFusionError::Execution(text) => Self::Execution(plain(text)),
            DataFusionError::Internal(text) if text.starts_with(NOT_RECURSIVE) => {
                Self::Unsupported(
                    "a recursive query that names itself in subqueries alone; name it in FROM, too"
                        .to_owned(),
                )
            }
            DataFusionError::ExecutionJoin(inner) => Self::from_join(inner),
            DataFusionError::Internal(text) if text.contains(NO_SIGNATURE) => {
                Self::Invalid(without_attempts(text))
            }
            DataFusionError::Internal(text) if WRONG_TYPES.iter().any(|one| text.contains(one)) => {
                Self::Invalid(plain(text))
            }
            DataFusionError::ResourcesExhausted(text) if text.starts_with(LIMIT_REACHED) => {
                Self::OutOfMemory(text.clone())
            }
            DataFusionError::ResourcesExhausted(text) => {
                Self::OutOfMemory(format!("out of memory: {text}"))
            }
            other => Self::Internal(other.strip_backtrace()),
        }
    }

    fn from_planning(text: &str) -> Self {
        let unknown_function = || {
            let rest = text.strip_prefix("Invalid function '")?;
            let (name, rest) = rest.split_once('\'')?;
            // DataFusion suggests the nearest of all functions, however far it is.
            let suggested = rest.split_once("Did you mean '").map(|(_, name)| name);
            let suggested = suggested.and_then(|name| name.split('\'').next());
            Some(Self::UnknownFunction {
                name: name.to_owned(),
                suggestions: suggest(name, suggested),
            })
        };
        unknown_function().unwrap_or_else(|| Self::Invalid(plain(text)))
    }

    fn from_schema(error: &SchemaError) -> Self {
        match error {
            SchemaError::FieldNotFound {
                field,
                valid_fields,
            } => {
                let mut suggestions = suggest(
                    field.name(),
                    valid_fields.iter().map(|column| column.name()),
                );
                suggestions.dedup();
                Self::UnknownColumn {
                    name: field.flat_name(),
                    suggestions,
                }
            }
            other => Self::Invalid(other.to_string()),
        }
    }

    fn from_foreign(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Self {
        if let Some(ours) = error.downcast_ref::<Error>() {
            ours.clone()
        } else if let Some(inner) = error.downcast_ref::<DataFusionError>() {
            Self::from_datafusion(inner)
        } else if let Some(skewer_diagnosis::Error::Invalid(text)) = error.downcast_ref() {
            Self::Invalid(text.clone())
        } else if let Some(inner) = error.downcast_ref::<StorageError>() {
            Self::from_storage(inner)
        } else if let Some(WriteError::NotNull { table, column, row }) = error.downcast_ref() {
            Self::NotNull {
                table: table.clone(),
                column: column.clone(),
                row: *row,
            }
        } else if let Some(Stalled { timeout, waits }) = error.downcast_ref() {
            Self::Stalled(format!(
                "the query has stalled: none of its operators has done anything for {}, which is \
                 the stall_timeout; {waits}. Please report it; SET stall_timeout = 0 lets such \
                 queries wait",
                show_age(*timeout)
            ))
        } else if let Some(inner) = error.downcast_ref::<LostWorker>() {
            Self::from_lost(inner)
        } else if let Some(inner) = error.downcast_ref::<NetError>() {
            Self::from_net(inner)
        } else if let Some(inner) = error.downcast_ref::<RemoteFailure>() {
            Self::from_remote(inner)
        } else if let Some(inner) = error.downcast_ref::<JoinError>() {
            Self::from_join(inner)
        } else if let Some(inner) = error.downcast_ref::<ArrowError>() {
            Self::from_arrow(inner)
        } else if let Some(inner) = error.downcast_ref::<ParquetError>() {
            Self::from_parquet(inner)
        } else if let Some(inner) = error.downcast_ref::<object_store::Error>() {
            Self::from_object_store(inner)
        } else if let Some(inner) = error.downcast_ref::<io::Error>() {
            Self::from_io(inner)
        } else {
            Self::Execution(error.to_string())
        }
    }

    fn from_lost(lost: &LostWorker) -> Self {
        Self::WorkerLost {
            name: lost.name.clone(),
            reason: lost.reason.clone(),
            tables: Vec::new(),
        }
    }

    fn from_net(error: &NetError) -> Self {
        match error {
            NetError::Lost(lost) => Self::from_lost(lost),
            NetError::Remote(failure) => Self::from_remote(failure),
            other => Self::Cluster(other.clone()),
        }
    }

    /// What has no variant of its own on the wire.
    fn from_remote(failure: &RemoteFailure) -> Self {
        match failure.class() {
            FailureClass::Cancelled => Self::Cancelled,
            FailureClass::User => Self::Execution(failure.text.clone()),
            _ => Self::Execution(format!("{} (on {})", failure.text, failure.node)),
        }
    }

    fn from_files(error: FilesError) -> Self {
        match error {
            FilesError::File {
                path,
                line,
                message,
            } => Self::File {
                path,
                line,
                message,
            },
            FilesError::Io { path, error } => match Self::from_io(&error) {
                Self::Io(message) => Self::File {
                    path: path.display().to_string(),
                    line: None,
                    message,
                },
                other => other,
            },
            FilesError::Write { path, error } => match Self::from_datafusion(&error) {
                Self::Corrupt { message, .. } | Self::Io(message) | Self::File { message, .. } => {
                    Self::File {
                        path: path.display().to_string(),
                        line: None,
                        message,
                    }
                }
                other => other,
            },
            FilesError::UnknownOption { name, suggestions } => {
                Self::UnknownSetting { name, suggestions }
            }
            FilesError::InvalidValue {
                name,
                value,
                expected,
            } => Self::InvalidValue {
                name,
                value,
                expected,
            },
            FilesError::Unsupported(what) => Self::Unsupported(what),
            FilesError::Invalid(what) => Self::Invalid(what),
            FilesError::Cancelled => Self::Cancelled,
            FilesError::DataFusion(error) => Self::from_datafusion(&error),
            other => Self::Internal(other.to_string()),
        }
    }

    fn from_storage(error: &StorageError) -> Self {
        let text = error.to_string();
        match error {
            StorageError::WorkerLost { worker, detail } => Self::WorkerLost {
                name: worker.clone(),
                reason: detail.clone(),
                tables: Vec::new(),
            },
            StorageError::OtherHome { .. } => Self::Invalid(text),
            StorageError::Locked { .. } => Self::Locked(text),
            StorageError::Corrupt { path, detail } => Self::Corrupt {
                path: path.display().to_string(),
                message: detail.clone(),
            },
            StorageError::Conflict { detail } => Self::Conflict(detail.clone()),
            StorageError::NotFound { object, name } => match object {
                Object::Schema => Self::UnknownSchema {
                    name: name.clone(),
                    suggestions: Vec::new(),
                },
                Object::Table | Object::View => Self::UnknownTable {
                    name: name.clone(),
                    suggestions: Vec::new(),
                },
                Object::Column => Self::UnknownColumn {
                    name: name.clone(),
                    suggestions: Vec::new(),
                },
                Object::Quarantine => Self::Invalid(text),
                Object::Stream => Self::UnknownObject {
                    kind: ObjectKind::Stream,
                    name: name.clone(),
                    suggestions: Vec::new(),
                },
                Object::ContinuousQuery => Self::UnknownObject {
                    kind: ObjectKind::ContinuousQuery,
                    name: name.clone(),
                    suggestions: Vec::new(),
                },
            },
            StorageError::AlreadyExists { object, name } => {
                let kind = match object {
                    Object::Schema => ObjectKind::Schema,
                    Object::Table => ObjectKind::Table,
                    Object::View => ObjectKind::View,
                    Object::Stream => ObjectKind::Stream,
                    Object::ContinuousQuery => ObjectKind::ContinuousQuery,
                    Object::Column | Object::Quarantine => return Self::Invalid(text),
                };
                let name = name.strip_prefix("main.").unwrap_or(name).to_owned();
                Self::AlreadyExists { kind, name }
            }
            StorageError::DiskFull { path } => Self::DiskFull(path.display().to_string()),
            StorageError::UnsupportedType { .. } => Self::Unsupported(text),
            StorageError::Invalid { detail } => Self::Invalid(detail.clone()),
            StorageError::Io { .. } | StorageError::Format { .. } => Self::Io(text),
            _ => Self::Internal(text),
        }
    }

    fn from_arrow(error: &ArrowError) -> Self {
        match error {
            ArrowError::ExternalError(inner) => Self::from_foreign(&**inner),
            ArrowError::IoError(_, inner) => Self::from_io(inner),
            ArrowError::NotYetImplemented(text) => Self::Unsupported(text.clone()),
            // Which file it was is found out by `StatementCatalog::diagnose`.
            ArrowError::CsvError(text)
            | ArrowError::JsonError(text)
            | ArrowError::ParseError(text) => Self::File {
                path: String::new(),
                line: None,
                message: text.clone(),
            },
            ArrowError::CastError(text) => Self::InvalidCast(text.clone()),
            ArrowError::ComputeError(text)
            | ArrowError::InvalidArgumentError(text)
            | ArrowError::SchemaError(text) => Self::Execution(text.clone()),
            ArrowError::ArithmeticOverflow(text) => Self::OutOfRange(text.clone()),
            ArrowError::DivideByZero => Self::DivisionByZero,
            ArrowError::ParquetError(text) => Self::unreadable(text.clone()),
            other => Self::Execution(other.to_string()),
        }
    }

    fn from_parquet(error: &ParquetError) -> Self {
        match error {
            ParquetError::External(inner) => Self::from_foreign(&**inner),
            other => Self::unreadable(other.to_string()),
        }
    }

    /// Parquet that cannot be decoded; which file it was is found out by
    /// `StatementCatalog::diagnose`.
    fn unreadable(message: String) -> Self {
        Self::Corrupt {
            path: String::new(),
            message,
        }
    }

    fn from_object_store(error: &object_store::Error) -> Self {
        match error {
            object_store::Error::NotFound { path, .. } => Self::File {
                path: path.clone(),
                line: None,
                message: "there is no such file".to_owned(),
            },
            object_store::Error::Generic { source, .. }
                if let Some(lost @ StorageError::WorkerLost { .. }) = source.downcast_ref() =>
            {
                Self::from_storage(lost)
            }
            other => match io_cause(other) {
                Some(io) if io.kind() == io::ErrorKind::StorageFull => {
                    Self::DiskFull(io.to_string())
                }
                _ => Self::Io(other.to_string()),
            },
        }
    }

    pub(crate) fn from_io(error: &io::Error) -> Self {
        if let Some(inner) = error.get_ref() {
            let inner: &(dyn std::error::Error + Send + Sync + 'static) = inner;
            if inner.is::<Error>() || inner.is::<DataFusionError>() || inner.is::<StorageError>() {
                return Self::from_foreign(inner);
            }
        }
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::DiskFull(error.to_string())
            }
            io::ErrorKind::OutOfMemory => Self::OutOfMemory(format!("out of memory: {error}")),
            _ => Self::Io(error.to_string()),
        }
    }
}

/// How DataFusion begins to tell of a function that takes no such arguments.
const NO_SIGNATURE: &str = " failed to match any signature, errors: ";

/// How DataFusion begins to tell of a scalar subquery where it makes no join of one.
const NO_JOIN: &str = "Correlated scalar subquery can only be used in ";

const CORRELATED: &str = "this correlated subquery; write it as a join";

/// What DataFusion says of wrong arguments, without its attempt at each signature, which it calls
/// an internal error: the function as it was called and the candidates remain, or the first attempt.
fn without_attempts(text: &str) -> String {
    if let Some(from) = text.find("No function matches") {
        return text[from..].to_owned();
    }
    let Some((function, attempts)) = text.split_once(NO_SIGNATURE) else {
        return text.to_owned();
    };
    let first = attempts.split(",Error ").next().unwrap_or(attempts);
    format!("{function} does not take these arguments: {}", plain(first))
}

/// How DataFusion begins to tell of arguments and types that do not go together, which it calls internal errors
/// where it has not looked at them before.
const WRONG_TYPES: [&str; 9] = [
    "Coercion from ",
    "DISTINCT aggregate should have exactly one argument",
    "Expected a Map type",
    "Failed to coerce types",
    "Min/Max accumulator not implemented",
    "Nth value indices are 1 based",
    "Unavailable default cast",
    "Unsupported data type",
    "could not cast array of type",
];

/// What errors say of themselves that are within others.
const KINDS: [&str; 4] = [
    "Error during planning: ",
    "Execution error: ",
    "Internal error: ",
    "Optimizer rule 'simplify_expressions' failed\ncaused by\n",
];

/// What DataFusion says of a mistake, without the kinds of the errors that it is within.
fn plain(text: &str) -> String {
    let mut text = match text.find(".\nThis issue was likely caused by a bug in DataFusion") {
        Some(end) => text[..end].to_owned(),
        None => text.to_owned(),
    };
    if let Some((_, why)) = text
        .strip_prefix("Assertion failed: ")
        .and_then(|assertion| assertion.split_once(": "))
    {
        // What follows is "left: 2, right: 1): why", where values were compared.
        let why = why.rsplit_once("): ").map_or(why, |(_, why)| why);
        text = why.to_owned();
    }
    for kind in KINDS {
        if text.contains(kind) {
            text = text.replace(kind, "");
        }
    }
    text
}

/// A subquery that could not be made a join comes to the operators as an expression.
fn physical_plan_gap(text: &str) -> String {
    let subquery = text.starts_with("Physical plan does not support logical expression")
        && ["OuterReferenceColumn", "Subquery", "Exists"]
            .iter()
            .any(|kind| text.contains(kind));
    if subquery {
        CORRELATED.to_owned()
    } else {
        text.to_owned()
    }
}

/// What reading a recursive query's rows says where it is not known to be recursive: the planner does
/// not look for its name in subqueries.
const NOT_RECURSIVE: &str = "Unexpected empty work table";

/// The operating system's error among the causes of `error`.
fn io_cause<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(io);
        }
        cause = error.source();
    }
    None
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Self {
        Self::from_datafusion(&error)
    }
}

impl From<NetError> for Error {
    fn from(error: NetError) -> Self {
        Self::from_net(&error)
    }
}

impl From<FilesError> for Error {
    fn from(error: FilesError) -> Self {
        Self::from_files(error)
    }
}

impl From<StorageError> for Error {
    fn from(error: StorageError) -> Self {
        Self::from_storage(&error)
    }
}

impl From<skewer_diagnosis::Error> for Error {
    fn from(error: skewer_diagnosis::Error) -> Self {
        match error {
            skewer_diagnosis::Error::Invalid(text) => Self::Invalid(text),
            skewer_diagnosis::Error::Source(error) => Self::from_datafusion(&error),
        }
    }
}

impl From<NodeError> for Error {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::Invalid(text) => Self::Invalid(text),
            NodeError::Net(error) => Self::from_net(&error),
            NodeError::Storage(error) => Self::from_storage(&error),
            NodeError::DataFusion(error) => Self::from_datafusion(&error),
            NodeError::WorkerLost {
                name,
                reason,
                tables,
            } => Self::WorkerLost {
                name,
                reason,
                tables,
            },
            NodeError::File { .. } => Self::Io(error.to_string()),
            NodeError::Threads(error) => Self::from_io(&error),
            NodeError::Stopped => Self::Cancelled,
        }
    }
}

impl From<ArrowError> for Error {
    fn from(error: ArrowError) -> Self {
        Self::from_arrow(&error)
    }
}
