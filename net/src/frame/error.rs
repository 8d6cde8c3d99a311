//! What can be wrong with bytes.

use thiserror::Error;

use super::kind::FrameKind;

/// Bytes that are not what the protocol says. Always a bug of one of the two sides, or a peer that
/// was cut off: QUIC has already detected what networks do to packets.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// No frame has this kind.
    #[error("there is no frame of kind {byte:#04x}")]
    UnknownKind {
        /// The byte.
        byte: u8,
    },

    /// A frame that is longer than its kind may be.
    #[error("a {kind:?} frame of {length} bytes: at most {limit} are allowed")]
    TooLong {
        /// Which.
        kind: FrameKind,
        /// Its length, in bytes.
        length: usize,
        /// [`FrameKind::limit`].
        limit: usize,
    },

    /// The bytes ended before END or ERROR.
    #[error("the stream was cut off: it ended before its END")]
    Truncated,

    /// Something came after END or ERROR.
    #[error("something came after the end of the stream")]
    AfterEnd,

    /// END counts other frames or rows than came.
    #[error("END counts {counted} {what}, but {received} came")]
    Miscounted {
        /// Frames or rows.
        what: &'static str,
        /// What END says.
        counted: u64,
        /// What came.
        received: u64,
    },

    /// A frame that cannot come here.
    #[error("a {found:?} frame came where {expected} was expected")]
    Unexpected {
        /// Which.
        found: FrameKind,
        /// What could have come.
        expected: &'static str,
    },

    /// A frame's payload is not what its kind says.
    #[error("a {kind:?} frame is malformed: {reason}")]
    Malformed {
        /// Which.
        kind: FrameKind,
        /// What does not fit.
        reason: String,
    },
}

impl FrameError {
    pub(crate) fn malformed(kind: FrameKind, reason: impl ToString) -> Self {
        Self::Malformed {
            kind,
            reason: reason.to_string(),
        }
    }
}
