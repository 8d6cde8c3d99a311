//! Errors that keep their class on the other side.
//!
//! A worker's `DataFusionError` becomes a [`RemoteFailure`]: what kind of failure it is, which
//! variant of which error it was, its text, and the worker it happened on. The other side makes of
//! it a `DataFusionError` of the same variant again, so that whatever classifies errors there
//! (division by zero, out of memory, a full disk) need not know that it came from elsewhere.

use std::error::Error as StdError;
use std::io;

use datafusion::arrow::error::ArrowError;
use datafusion::common::DataFusionError;
use datafusion::object_store;
use datafusion::parquet::errors::ParquetError;
use thiserror::Error;

use super::body::{Reader, Writer};
use super::error::FrameError;
use super::kind::FrameKind;

/// Texts are cut to this many bytes: an error's frame has to be short.
const LONGEST_TEXT: usize = 32 * 1024;

/// What can be done about a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FailureClass {
    /// The statement or its data: change them.
    User = 1,
    /// Memory, disk, files: give more, or repair.
    Resource = 2,
    /// A node is gone: try again when it is back.
    Lost = 3,
    /// Somebody stopped it.
    Cancelled = 4,
    /// A bug.
    Bug = 5,
}

/// Which error it was. The number is what is on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Variant {
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
    const ALL: [Self; 29] = [
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

    fn class(self) -> FailureClass {
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

/// A node that a query needs does not answer any more.
///
/// It is found in a query's error with [`LostWorker::of`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{name} was lost: {reason}")]
pub struct LostWorker {
    /// Which, as people call it.
    pub name: String,
    /// What became of it, as far as one knows.
    pub reason: String,
}

impl LostWorker {
    /// The lost worker behind an error, however deep it is wrapped.
    pub fn of(error: &DataFusionError) -> Option<&Self> {
        match error {
            DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
                Self::of(inner)
            }
            DataFusionError::Shared(inner) => Self::of(inner),
            DataFusionError::Collection(errors) => errors.iter().find_map(Self::of),
            DataFusionError::External(inner) => Self::behind(&**inner),
            DataFusionError::ArrowError(inner, _) => match &**inner {
                ArrowError::ExternalError(inner) => Self::behind(&**inner),
                _ => None,
            },
            _ => None,
        }
    }

    fn behind<'a>(error: &'a (dyn StdError + Send + Sync + 'static)) -> Option<&'a Self> {
        match error.downcast_ref::<Self>() {
            Some(lost) => Some(lost),
            None => error.downcast_ref::<DataFusionError>().and_then(Self::of),
        }
    }
}

impl From<LostWorker> for DataFusionError {
    fn from(lost: LostWorker) -> Self {
        Self::External(Box::new(lost))
    }
}

/// A failure on another node.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text}")]
pub struct RemoteFailure {
    variant: Variant,
    /// Where it happened, as people call the node.
    pub node: String,
    /// What the error says.
    pub text: String,
    /// Of a lost worker its name, of a missing file its path; else empty.
    subject: String,
}

impl RemoteFailure {
    /// What is to be sent of an error that came up on `node`. An error that `node` itself received
    /// from another one keeps that one's name.
    pub fn of(error: &DataFusionError, node: &str) -> Self {
        let (variant, text, subject) = describe(error);
        let node = match remote(error) {
            Some(remote) => remote.node.clone(),
            None => node.to_owned(),
        };
        Self {
            variant,
            node,
            text: cut(text),
            subject: cut(subject),
        }
    }

    /// A bug that is not an error of DataFusion's, as bytes that nobody should have sent.
    pub fn bug(text: impl ToString, node: &str) -> Self {
        Self {
            variant: Variant::Internal,
            node: node.to_owned(),
            text: cut(text.to_string()),
            subject: String::new(),
        }
    }

    /// What can be done about it.
    pub fn class(&self) -> FailureClass {
        self.variant.class()
    }

    /// The payload of an ERROR frame.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Writer::default();
        body.u8(self.class() as u8);
        body.u8(self.variant as u8);
        body.text(&self.node);
        body.text(&self.text);
        body.text(&self.subject);
        body.finish()
    }

    /// Reads the payload of an ERROR frame.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn decode(payload: &[u8]) -> Result<Self, FrameError> {
        let mut body = Reader::new(FrameKind::Error, payload);
        let class = body.u8()?;
        let number = body.u8()?;
        let variant = Variant::ALL
            .into_iter()
            .find(|variant| *variant as u8 == number)
            .filter(|variant| variant.class() as u8 == class)
            .ok_or_else(|| body.wrong(format!("there is no error {class}.{number}")))?;
        let failure = Self {
            variant,
            node: body.text()?,
            text: body.text()?,
            subject: body.text()?,
        };
        body.finish()?;
        Ok(failure)
    }

    /// An error of the class and variant that it was. What is not the user's doing names the node.
    pub fn into_datafusion(self) -> DataFusionError {
        let text = self.text.clone();
        let located = || format!("{} (on {})", self.text, self.node);
        let arrow = |error: ArrowError| DataFusionError::ArrowError(Box::new(error), None);
        let io = |kind: io::ErrorKind| DataFusionError::IoError(io::Error::new(kind, located()));
        let error = match self.variant {
            Variant::Plan => DataFusionError::Plan(text),
            Variant::Configuration => DataFusionError::Configuration(text),
            Variant::Execution => DataFusionError::Execution(text),
            Variant::NotImplemented => DataFusionError::NotImplemented(text),
            Variant::ResourcesExhausted => DataFusionError::ResourcesExhausted(located()),
            Variant::Internal => DataFusionError::Internal(located()),
            Variant::ArrowCast => arrow(ArrowError::CastError(text)),
            Variant::ArrowCompute => arrow(ArrowError::ComputeError(text)),
            Variant::ArrowDivideByZero => arrow(ArrowError::DivideByZero),
            Variant::ArrowOverflow => arrow(ArrowError::ArithmeticOverflow(text)),
            Variant::ArrowInvalidArgument => arrow(ArrowError::InvalidArgumentError(text)),
            Variant::ArrowParse => arrow(ArrowError::ParseError(text)),
            Variant::ArrowSchema => arrow(ArrowError::SchemaError(text)),
            Variant::ArrowMemory => arrow(ArrowError::MemoryError(located())),
            Variant::ArrowCsv => arrow(ArrowError::CsvError(text)),
            Variant::ArrowJson => arrow(ArrowError::JsonError(text)),
            Variant::ArrowParquet => arrow(ArrowError::ParquetError(located())),
            Variant::ArrowNotYetImplemented => arrow(ArrowError::NotYetImplemented(text)),
            Variant::ArrowDictionaryKeyOverflow => arrow(ArrowError::DictionaryKeyOverflowError),
            Variant::Io => io(io::ErrorKind::Other),
            Variant::IoNotFound => io(io::ErrorKind::NotFound),
            Variant::IoPermissionDenied => io(io::ErrorKind::PermissionDenied),
            Variant::IoStorageFull => io(io::ErrorKind::StorageFull),
            Variant::Parquet => {
                DataFusionError::ParquetError(Box::new(ParquetError::General(located())))
            }
            Variant::ObjectNotFound => {
                DataFusionError::ObjectStore(Box::new(object_store::Error::NotFound {
                    path: self.subject.clone(),
                    source: located().into(),
                }))
            }
            Variant::Object => {
                DataFusionError::ObjectStore(Box::new(object_store::Error::Generic {
                    store: "remote",
                    source: located().into(),
                }))
            }
            Variant::Lost => LostWorker {
                name: self.subject.clone(),
                reason: text,
            }
            .into(),
            Variant::Cancelled | Variant::Foreign => {
                return DataFusionError::External(Box::new(self));
            }
        };
        // The failure itself goes along, for who wants to know where it was.
        let context = format!("on {}", self.node);
        match self.variant {
            Variant::Lost => error,
            _ => error.context(context),
        }
    }
}

/// The failure that another node sent and that this error was made of, if its class needs one.
fn remote(error: &DataFusionError) -> Option<&RemoteFailure> {
    match error {
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => remote(inner),
        DataFusionError::Shared(inner) => remote(inner),
        DataFusionError::External(inner) => inner.downcast_ref::<RemoteFailure>(),
        _ => None,
    }
}

/// Variant, text, subject.
fn describe(error: &DataFusionError) -> (Variant, String, String) {
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
            other => plain(Variant::Parquet, &other.to_string()),
        },
        DataFusionError::ObjectStore(inner) => match &**inner {
            object_store::Error::NotFound { path, .. } => {
                (Variant::ObjectNotFound, inner.to_string(), path.clone())
            }
            other => match io_cause(other) {
                Some(cause) => describe_io(cause),
                None => plain(Variant::Object, &other.to_string()),
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

fn cut(mut text: String) -> String {
    if text.len() > LONGEST_TEXT {
        let mut end = LONGEST_TEXT;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn there_and_back(error: &DataFusionError) -> DataFusionError {
        let sent = RemoteFailure::of(error, "worker 3");
        let came = RemoteFailure::decode(&sent.encode()).unwrap();
        assert_eq!(came, sent);
        came.into_datafusion()
    }

    fn unwrapped(error: DataFusionError) -> DataFusionError {
        match error {
            DataFusionError::Context(_, inner) => *inner,
            other => other,
        }
    }

    #[test]
    fn a_users_error_comes_back_as_it_was() {
        let arrow = |error| DataFusionError::ArrowError(Box::new(error), None);
        for error in [
            arrow(ArrowError::DivideByZero),
            arrow(ArrowError::CastError("Cannot cast 'x' to Int64".to_owned())),
            arrow(ArrowError::ArithmeticOverflow("too large".to_owned())),
            DataFusionError::Execution("no such luck".to_owned()),
            DataFusionError::Plan("no such column".to_owned()),
            DataFusionError::NotImplemented("that".to_owned()),
        ] {
            assert_eq!(RemoteFailure::of(&error, "w").class(), FailureClass::User);
            let text = error.strip_backtrace();
            let back = unwrapped(there_and_back(&DataFusionError::Shared(Arc::new(error))));
            assert_eq!(back.strip_backtrace(), text);
        }
    }

    #[test]
    fn a_full_disk_is_a_full_disk_however_it_is_wrapped_and_names_the_worker() {
        let io = io::Error::new(io::ErrorKind::StorageFull, "no space left");
        let store = object_store::Error::Generic {
            store: "LocalFileSystem",
            source: Box::new(io),
        };
        let error = DataFusionError::External(Box::new(store)).context("writing a segment");
        assert_eq!(
            RemoteFailure::of(&error, "worker 3").class(),
            FailureClass::Resource
        );
        match unwrapped(there_and_back(&error)) {
            DataFusionError::IoError(io) => {
                assert_eq!(io.kind(), io::ErrorKind::StorageFull);
                assert!(io.to_string().contains("worker 3"), "{io}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_lost_worker_keeps_its_own_name_over_several_hops() {
        let lost = LostWorker {
            name: "worker 2".to_owned(),
            reason: "it does not answer".to_owned(),
        };
        let first = there_and_back(&lost.clone().into());
        let second = there_and_back(&DataFusionError::Shared(Arc::new(first)));
        assert_eq!(LostWorker::of(&second), Some(&lost));
        let wrapped = DataFusionError::from(ArrowError::ExternalError(Box::new(second)));
        assert_eq!(LostWorker::of(&wrapped), Some(&lost));
    }

    #[test]
    fn a_very_long_text_is_cut() {
        let error = DataFusionError::Execution("ä".repeat(1_000_000));
        let sent = RemoteFailure::of(&error, "worker 3").encode();
        assert!(sent.len() < FrameKind::Error.limit());
        RemoteFailure::decode(&sent).unwrap();
    }
}
