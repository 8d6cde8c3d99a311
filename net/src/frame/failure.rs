//! Errors that keep their class on the other side.
//!
//! A worker's `DataFusionError` becomes a [`RemoteFailure`]: what kind of failure it is, which
//! variant of which error it was, its text, and the worker it happened on. The other side makes of
//! it a `DataFusionError` of the same variant again, so that whatever classifies errors there
//! (division by zero, out of memory, a full disk) need not know that it came from elsewhere.

use std::io;

use datafusion::arrow::error::ArrowError;
use datafusion::common::DataFusionError;
use datafusion::object_store;
use datafusion::parquet::errors::ParquetError;
use thiserror::Error;

use super::body::{Reader, Writer};
use super::error::FrameError;
use super::kind::FrameKind;
use super::lost::LostWorker;
use super::variant::{Variant, describe};

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

/// A failure on another node.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{text}")]
pub struct RemoteFailure {
    pub(crate) variant: Variant,
    /// Where it happened, as people call the node.
    pub node: String,
    /// What the error says.
    pub text: String,
    /// Of a lost worker its name, of a missing file its path; else empty.
    pub(crate) subject: String,
}

impl RemoteFailure {
    /// What is to be sent of an error that came up on `node`. An error that `node` itself received
    /// from another one keeps that one's name.
    pub fn from_error(error: &DataFusionError, node: &str) -> Self {
        let (variant, mut text, subject) = describe(error);
        let node = match origin(error) {
            Some(origin) => {
                if let Some(plain) = text.strip_suffix(&located("", &origin)) {
                    text.truncate(plain.len());
                }
                origin
            }
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
        let located = || located(&self.text, &self.node);
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
        match self.variant {
            Variant::Lost => error,
            _ => error.context(format!("{ORIGIN}{}", self.node)),
        }
    }
}

/// Begins the context of an error that another node has sent.
const ORIGIN: &str = "on ";

fn located(text: &str, node: &str) -> String {
    format!("{text} (on {node})")
}

/// The node that sent the failure of which [`RemoteFailure::into_datafusion`] made this error.
fn origin(error: &DataFusionError) -> Option<String> {
    match error {
        DataFusionError::Context(context, inner) => {
            let origin = context.strip_prefix(ORIGIN).map(str::to_owned);
            origin.or_else(|| self::origin(inner))
        }
        DataFusionError::Diagnostic(_, inner) => origin(inner),
        DataFusionError::Shared(inner) => origin(inner),
        DataFusionError::External(inner) => {
            let remote = inner.downcast_ref::<RemoteFailure>();
            remote.map(|remote| remote.node.clone())
        }
        _ => None,
    }
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
        let sent = RemoteFailure::from_error(error, "worker 3");
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
            assert_eq!(
                RemoteFailure::from_error(&error, "w").class(),
                FailureClass::User
            );
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
            RemoteFailure::from_error(&error, "worker 3").class(),
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
    fn a_failure_names_the_worker_that_it_happened_on_and_not_those_that_passed_it_on() {
        for error in [
            DataFusionError::Internal("a bug".to_owned()),
            DataFusionError::ResourcesExhausted("no memory".to_owned()),
            DataFusionError::ParquetError(Box::new(ParquetError::General("torn".to_owned()))),
            DataFusionError::IoError(io::Error::other("no disk")),
        ] {
            let first = RemoteFailure::from_error(&error, "worker 3");
            let received = DataFusionError::Shared(Arc::new(first.clone().into_datafusion()));
            let second = RemoteFailure::from_error(&received.context("a join"), "worker 1");
            assert_eq!(second, first);
            let text = second.into_datafusion().to_string();
            assert_eq!(text.matches("(on worker 3)").count(), 1, "{text}");
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
        assert_eq!(LostWorker::in_error(&second), Some(&lost));
        let wrapped = DataFusionError::from(ArrowError::ExternalError(Box::new(second)));
        assert_eq!(LostWorker::in_error(&wrapped), Some(&lost));
    }

    #[test]
    fn a_very_long_text_is_cut() {
        let error = DataFusionError::Execution("ä".repeat(1_000_000));
        let sent = RemoteFailure::from_error(&error, "worker 3").encode();
        assert!(sent.len() < FrameKind::Error.limit());
        RemoteFailure::decode(&sent).unwrap();
    }
}
