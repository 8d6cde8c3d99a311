//! Who speaks which version.

use super::body::{Reader, Writer};
use super::error::FrameError;
use super::kind::FrameKind;

/// The version of the protocol that this build speaks. Nodes of different versions do not work
/// together: a cluster is upgraded as a whole.
pub const PROTOCOL_VERSION: u16 = 1;

const MAGIC: u32 = u32::from_le_bytes(*b"SKWR");

/// The first frame of a connection, from both sides. Its layout is the same in all versions; later
/// ones may add to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The version of the protocol.
    pub version: u16,
    /// The software and its version, for people.
    pub software: String,
    /// How people call the node.
    pub name: String,
}

impl Hello {
    /// One's own.
    pub fn new(version: u16, name: &str) -> Self {
        Self {
            version,
            software: format!("skewer {}", env!("CARGO_PKG_VERSION")),
            name: name.to_owned(),
        }
    }

    /// The payload.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Writer::default();
        body.u32(MAGIC);
        body.u16(self.version);
        body.text(&self.software);
        body.text(&self.name);
        body.finish()
    }

    /// Reads a payload.
    ///
    /// # Errors
    /// If it is no HELLO.
    pub fn decode(payload: &[u8]) -> Result<Self, FrameError> {
        let mut body = Reader::new(FrameKind::Hello, payload);
        if body.u32()? != MAGIC {
            return Err(body.wrong("that is not Skewer's"));
        }
        Ok(Self {
            version: body.u16()?,
            software: body.text()?,
            name: body.text()?,
        })
    }
}
