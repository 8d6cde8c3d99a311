//! Frames to bytes, and bytes, however they are split, to frames.
//!
//! A frame is its payload's length (u32, little-endian), its kind (u8), and the payload.

use bytes::Bytes;
use datafusion::arrow::buffer::{Buffer, MutableBuffer};

use super::body::{Reader, Writer};
use super::error::FrameError;
use super::kind::FrameKind;

/// Bytes before a payload.
pub const HEADER: usize = 5;

/// How much is allocated for a payload before its bytes have come. Beyond that the buffer grows as
/// they do, so that a length is never believed by more than this.
const TRUSTED: usize = 8 * 1024 * 1024;

/// A frame that has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What it is.
    pub kind: FrameKind,
    /// Its payload, aligned as Arrow likes it, so that batches need not be copied again.
    pub payload: Buffer,
}

/// A frame's bytes.
///
/// # Errors
/// [`FrameError::TooLong`] if the payload is longer than its kind may be.
pub fn encode(kind: FrameKind, payload: &[u8]) -> Result<Bytes, FrameError> {
    let mut bytes = Vec::with_capacity(HEADER + payload.len());
    bytes.extend(header(kind, payload.len())?);
    bytes.extend(payload);
    Ok(bytes.into())
}

/// The bytes before a payload of `length` bytes.
///
/// # Errors
/// [`FrameError::TooLong`] if the payload is longer than its kind may be.
pub fn header(kind: FrameKind, length: usize) -> Result<[u8; HEADER], FrameError> {
    let limit = kind.limit();
    match u32::try_from(length) {
        Ok(short) if length <= limit => {
            let [a, b, c, d] = short.to_le_bytes();
            Ok([a, b, c, d, kind as u8])
        }
        _ => Err(FrameError::TooLong {
            kind,
            length,
            limit,
        }),
    }
}

/// The END frame of a direction in which so many frames, with so many rows, came before it.
pub fn end(frames: u64, rows: u64) -> Bytes {
    let mut body = Writer::default();
    body.u64(frames);
    body.u64(rows);
    encode(FrameKind::End, &body.finish()).expect("an END is 16 bytes long")
}

/// Reads one direction of a stream.
///
/// ```
/// use skewer_net::frame::{Decoder, FrameKind, codec, encode};
///
/// let mut bytes = encode(FrameKind::Reply, b"yes")?.to_vec();
/// bytes.extend(codec::end(1, 0));
/// let mut decoder = Decoder::default();
/// let mut rest = &bytes[..];
/// assert_eq!(decoder.feed(&mut rest)?.unwrap().payload.as_slice(), b"yes");
/// assert!(decoder.finish().is_err());
/// assert_eq!(decoder.feed(&mut rest)?.unwrap().kind, FrameKind::End);
/// assert!(decoder.finish().is_ok());
/// # Ok::<(), skewer_net::frame::FrameError>(())
/// ```
#[derive(Debug, Default)]
pub struct Decoder {
    header: [u8; HEADER],
    /// How much of the header has come.
    read: usize,
    payload: Option<Payload>,
    frames: u64,
    rows: u64,
    ended: bool,
}

#[derive(Debug)]
struct Payload {
    kind: FrameKind,
    length: usize,
    bytes: MutableBuffer,
}

impl Decoder {
    /// Takes bytes from the front of `input`, up to the end of a frame, which it returns; `None`
    /// if all of `input` was taken and the frame is not complete.
    ///
    /// # Errors
    /// If the bytes are no frame, or come after the last one, or END counts other frames than
    /// came. The decoder is of no use then.
    pub fn feed(&mut self, input: &mut &[u8]) -> Result<Option<Frame>, FrameError> {
        loop {
            if self.ended {
                return match input.is_empty() {
                    true => Ok(None),
                    false => Err(FrameError::AfterEnd),
                };
            }
            if self.payload.is_none() {
                let wanted = HEADER - self.read;
                let (taken, rest) = input.split_at(wanted.min(input.len()));
                self.header[self.read..self.read + taken.len()].copy_from_slice(taken);
                self.read += taken.len();
                *input = rest;
                if self.read < HEADER {
                    return Ok(None);
                }
                self.payload = Some(Payload::new(self.header)?);
                self.read = 0;
            }
            let Some(payload) = &mut self.payload else {
                continue;
            };
            let wanted = payload.length - payload.bytes.len();
            let (taken, rest) = input.split_at(wanted.min(input.len()));
            payload.bytes.extend_from_slice(taken);
            *input = rest;
            if taken.len() < wanted {
                return Ok(None);
            }
            let kind = payload.kind;
            let bytes = std::mem::replace(&mut payload.bytes, MutableBuffer::new(0));
            self.payload = None;
            let payload = Buffer::from(bytes);
            self.count(kind, &payload)?;
            return Ok(Some(Frame { kind, payload }));
        }
    }

    /// Notes that a batch had so many rows, which END counts too.
    pub fn add_rows(&mut self, rows: usize) {
        self.rows += rows as u64;
    }

    /// To be asked when no more bytes come.
    ///
    /// # Errors
    /// [`FrameError::Truncated`] if the last frame was not END or ERROR.
    pub fn finish(&self) -> Result<(), FrameError> {
        match self.ended {
            true => Ok(()),
            false => Err(FrameError::Truncated),
        }
    }

    fn count(&mut self, kind: FrameKind, payload: &Buffer) -> Result<(), FrameError> {
        self.ended = kind.is_last();
        if kind == FrameKind::End {
            let mut body = Reader::new(kind, payload);
            for (what, received) in [("frames", self.frames), ("rows", self.rows)] {
                let counted = body.u64()?;
                if counted != received {
                    return Err(FrameError::Miscounted {
                        what,
                        counted,
                        received,
                    });
                }
            }
            body.finish()?;
        }
        self.frames += 1;
        Ok(())
    }
}

impl Payload {
    fn new([a, b, c, d, kind]: [u8; HEADER]) -> Result<Self, FrameError> {
        let kind = FrameKind::from_byte(kind)?;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        let limit = kind.limit();
        if length > limit {
            return Err(FrameError::TooLong {
                kind,
                length,
                limit,
            });
        }
        Ok(Self {
            kind,
            length,
            bytes: MutableBuffer::with_capacity(length.min(TRUSTED)),
        })
    }
}
