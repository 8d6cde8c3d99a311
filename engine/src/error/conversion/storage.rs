//! Errors of the storage, as errors that a person understands.

use skewer_sql::ObjectKind;
use skewer_storage::{Object, StorageError};

use crate::error::Error;

impl Error {
    pub(super) fn from_storage(error: &StorageError) -> Self {
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
}

impl From<StorageError> for Error {
    fn from(error: StorageError) -> Self {
        Self::from_storage(&error)
    }
}
