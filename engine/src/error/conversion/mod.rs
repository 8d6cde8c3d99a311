//! Errors of DataFusion, Arrow, and the crates below, as errors that a person understands.

mod cluster;
mod files;
mod messages;
mod storage;

use std::io;

use datafusion::arrow::error::ArrowError;
use datafusion::common::{DataFusionError, SchemaError};
use datafusion::object_store;
use datafusion::parquet::errors::ParquetError;
use skewer_cluster::write::WriteError;
use skewer_compat::operators::memory_pool::LIMIT_REACHED;
use skewer_compat::suggest::suggest;
use skewer_exec::waits::Stalled;
use skewer_net::{LostWorker, NetError, RemoteFailure};
use skewer_storage::StorageError;
use tokio::task::JoinError;

use self::messages::{
    CORRELATED, NO_JOIN, NO_SIGNATURE, NOT_RECURSIVE, WRONG_TYPES, physical_plan_gap, plain,
    without_attempts,
};
use super::Error;
use crate::settings::show_age;

impl Error {
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
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Self {
        Self::from_datafusion(&error)
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
