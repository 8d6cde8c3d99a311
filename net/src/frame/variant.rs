//! Which error a failure was.

use std::error::Error as StdError;
use std::io;

use datafusion::arrow::error::ArrowError;
use datafusion::common::DataFusionError;
use datafusion::object_store;
use datafusion::parquet::errors::ParquetError;

use super::failure::{FailureClass, RemoteFailure};
use super::lost::LostWorker;

/// Which error it was. The number is what is on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Variant {
    Plan = 1,
    Configuration = 2,
    Execution = 3,
    NotImplemented = 4,
    ResourcesExhausted = 5,
    Internal = 6,
    ArrowCast = 20,
    ArrowCompute = 21,
    ArrowDivideByZero = 22,
    ArrowOverflow = 23,
    ArrowInvalidArgument = 24,
    ArrowParse = 25,
    ArrowSchema = 26,
    ArrowMemory = 27,
    ArrowCsv = 28,
    ArrowJson = 29,
    ArrowParquet = 30,
    ArrowNotYetImplemented = 31,
    ArrowDictionaryKeyOverflow = 32,
    Io = 40,
    IoNotFound = 41,
    IoPermissionDenied = 42,
    IoStorageFull = 43,
    Parquet = 44,
    ObjectNotFound = 45,
    Object = 46,
    Lost = 50,
    Cancelled = 51,
    Foreign = 52,
}

impl Variant {
    pub(crate) const ALL: [Self; 29] = [
        Self::Plan,
        Self::Configuration,
        Self::Execution,
        Self::NotImplemented,
        Self::ResourcesExhausted,
        Self::Internal,
        Self::ArrowCast,
        Self::ArrowCompute,
        Self::ArrowDivideByZero,
        Self::ArrowOverflow,
        Self::ArrowInvalidArgument,
        Self::ArrowParse,
        Self::ArrowSchema,
        Self::ArrowMemory,
        Self::ArrowCsv,
        Self::ArrowJson,
        Self::ArrowParquet,
        Self::ArrowNotYetImplemented,
        Self::ArrowDictionaryKeyOverflow,
        Self::Io,
        Self::IoNotFound,
        Self::IoPermissionDenied,
        Self::IoStorageFull,
        Self::Parquet,
        Self::ObjectNotFound,
        Self::Object,
        Self::Lost,
        Self::Cancelled,
        Self::Foreign,
    ];

    pub(crate) fn class(self) -> FailureClass {
        match self {
            Self::ResourcesExhausted
            | Self::ArrowMemory
            | Self::Io
            | Self::IoNotFound
            | Self::IoPermissionDenied
            | Self::IoStorageFull
            | Self::Parquet
            | Self::ArrowParquet
            | Self::ObjectNotFound
            | Self::Object => FailureClass::Resource,
            Self::Lost => FailureClass::Lost,
            Self::Cancelled => FailureClass::Cancelled,
            Self::Internal => FailureClass::Bug,
            _ => FailureClass::User,
        }
    }
}

/// Which error it is, what it says, and its subject: of a lost worker its name, of a missing file
/// its path, else nothing.
pub(crate) fn describe(error: &DataFusionError) -> (Variant, String, String) {
    let plain = |variant, text: &str| (variant, text.to_owned(), String::new());
    match error {
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
            describe(inner)
        }
        DataFusionError::Shared(inner) => describe(inner),
        DataFusionError::Collection(errors) => match errors.first() {
            Some(first) => describe(first),
            None => plain(Variant::Internal, "an empty collection of errors"),
        },
        DataFusionError::ArrowError(inner, _) => describe_arrow(inner),
        DataFusionError::ParquetError(inner) => match &**inner {
            ParquetError::External(inner) => describe_foreign(&**inner),
            ParquetError::General(text) => plain(Variant::Parquet, text),
            other => plain(Variant::Parquet, &other.to_string()),
        },
        DataFusionError::ObjectStore(inner) => match &**inner {
            object_store::Error::NotFound { path, source } => {
                (Variant::ObjectNotFound, source.to_string(), path.clone())
            }
            other => match io_cause(other) {
                Some(cause) => describe_io(cause),
                None => match other {
                    object_store::Error::Generic { source, .. } => {
                        plain(Variant::Object, &source.to_string())
                    }
                    other => plain(Variant::Object, &other.to_string()),
                },
            },
        },
        DataFusionError::IoError(inner) => describe_io(inner),
        DataFusionError::NotImplemented(text) => plain(Variant::NotImplemented, text),
        DataFusionError::Plan(text) => plain(Variant::Plan, text),
        DataFusionError::Configuration(text) => plain(Variant::Configuration, text),
        DataFusionError::SQL(inner, _) => plain(Variant::Plan, &inner.to_string()),
        DataFusionError::SchemaError(inner, _) => plain(Variant::Plan, &inner.to_string()),
        DataFusionError::Execution(text) => plain(Variant::Execution, text),
        DataFusionError::ExecutionJoin(inner) if inner.is_cancelled() => {
            plain(Variant::Cancelled, "the query was cancelled")
        }
        DataFusionError::ResourcesExhausted(text) => plain(Variant::ResourcesExhausted, text),
        DataFusionError::External(inner) => describe_foreign(&**inner),
        DataFusionError::Internal(text) => plain(Variant::Internal, text),
        other => plain(Variant::Internal, &other.strip_backtrace()),
    }
}

fn describe_arrow(error: &ArrowError) -> (Variant, String, String) {
    let plain = |variant, text: &str| (variant, text.to_owned(), String::new());
    match error {
        ArrowError::ExternalError(inner) => describe_foreign(&**inner),
        ArrowError::IoError(_, inner) => describe_io(inner),
        ArrowError::NotYetImplemented(text) => plain(Variant::ArrowNotYetImplemented, text),
        ArrowError::CastError(text) => plain(Variant::ArrowCast, text),
        ArrowError::MemoryError(text) => plain(Variant::ArrowMemory, text),
        ArrowError::ParseError(text) => plain(Variant::ArrowParse, text),
        ArrowError::SchemaError(text) => plain(Variant::ArrowSchema, text),
        ArrowError::ComputeError(text) => plain(Variant::ArrowCompute, text),
        ArrowError::DivideByZero => plain(Variant::ArrowDivideByZero, "division by zero"),
        ArrowError::ArithmeticOverflow(text) => plain(Variant::ArrowOverflow, text),
        ArrowError::CsvError(text) => plain(Variant::ArrowCsv, text),
        ArrowError::JsonError(text) => plain(Variant::ArrowJson, text),
        ArrowError::InvalidArgumentError(text) => plain(Variant::ArrowInvalidArgument, text),
        ArrowError::ParquetError(text) => plain(Variant::ArrowParquet, text),
        ArrowError::DictionaryKeyOverflowError => plain(Variant::ArrowDictionaryKeyOverflow, ""),
        other => plain(Variant::ArrowCompute, &other.to_string()),
    }
}

fn describe_io(error: &io::Error) -> (Variant, String, String) {
    let variant = match error.kind() {
        io::ErrorKind::NotFound => Variant::IoNotFound,
        io::ErrorKind::PermissionDenied => Variant::IoPermissionDenied,
        io::ErrorKind::StorageFull => Variant::IoStorageFull,
        _ => Variant::Io,
    };
    (variant, error.to_string(), String::new())
}

fn describe_foreign(error: &(dyn StdError + Send + Sync + 'static)) -> (Variant, String, String) {
    if let Some(lost) = error.downcast_ref::<LostWorker>() {
        (Variant::Lost, lost.reason.clone(), lost.name.clone())
    } else if let Some(remote) = error.downcast_ref::<RemoteFailure>() {
        (remote.variant, remote.text.clone(), remote.subject.clone())
    } else if let Some(inner) = error.downcast_ref::<DataFusionError>() {
        describe(inner)
    } else if let Some(inner) = error.downcast_ref::<ArrowError>() {
        describe_arrow(inner)
    } else if let Some(cause) = io_cause(error) {
        describe_io(cause)
    } else {
        (Variant::Foreign, error.to_string(), String::new())
    }
}

fn io_cause<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a io::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(io) = error.downcast_ref::<io::Error>() {
            return Some(io);
        }
        next = error.source();
    }
    None
}
