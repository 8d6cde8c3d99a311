//! Numbers and texts within a frame: little-endian, lengths before what they measure.

use uuid::Uuid;

use super::error::FrameError;
use super::kind::FrameKind;

/// Writes a payload.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// One byte.
    pub fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    /// 0 or 1.
    pub fn bool(&mut self, value: bool) {
        self.u8(u8::from(value));
    }

    /// Two bytes.
    pub fn u16(&mut self, value: u16) {
        self.0.extend(value.to_le_bytes());
    }

    /// Four bytes.
    pub fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    /// Eight bytes.
    pub fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    /// Eight bytes.
    pub fn size(&mut self, value: usize) {
        self.u64(value as u64);
    }

    /// Four bytes, IEEE 754.
    pub fn f32(&mut self, value: f32) {
        self.u32(value.to_bits());
    }

    /// How many items follow: four bytes.
    ///
    /// # Panics
    /// If there are 2³² or more.
    pub fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).expect("what is sent has fewer than 2³² parts"));
    }

    /// Bytes after their number.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend(bytes);
    }

    /// UTF-8 after the number of its bytes.
    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// 16 bytes.
    pub fn uuid(&mut self, id: &Uuid) {
        self.0.extend(id.as_bytes());
    }

    /// 0, or 1 and the value.
    pub fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.bool(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }

    /// The payload.
    pub fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// Reads a payload. Whatever the bytes are, it neither panics nor allocates more than they have.
#[derive(Debug)]
pub struct Reader<'a> {
    kind: FrameKind,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads the payload of a frame of this kind.
    pub fn new(kind: FrameKind, payload: &'a [u8]) -> Self {
        Self {
            kind,
            rest: payload,
        }
    }

    /// An error in this payload.
    pub fn wrong(&self, reason: impl ToString) -> FrameError {
        FrameError::malformed(self.kind, reason)
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], FrameError> {
        match self.rest.split_at_checked(length) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None => Err(self.wrong("it is too short")),
        }
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FrameError> {
        let taken = self.take(N)?;
        Ok(std::array::from_fn(|i| taken[i]))
    }

    /// One byte.
    ///
    /// # Errors
    /// [`FrameError::Malformed`] if there is none; so do all that follow.
    pub fn u8(&mut self) -> Result<u8, FrameError> {
        Ok(self.array::<1>()?[0])
    }

    /// 0 or 1.
    ///
    /// # Errors
    /// If it is something else.
    pub fn bool(&mut self) -> Result<bool, FrameError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.wrong(format!("{other} is neither yes nor no"))),
        }
    }

    /// Two bytes.
    ///
    /// # Errors
    /// If they are not there.
    pub fn u16(&mut self) -> Result<u16, FrameError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Four bytes.
    ///
    /// # Errors
    /// If they are not there.
    pub fn u32(&mut self) -> Result<u32, FrameError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Eight bytes.
    ///
    /// # Errors
    /// If they are not there.
    pub fn u64(&mut self) -> Result<u64, FrameError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Eight bytes that count something.
    ///
    /// # Errors
    /// If they are not there, or the machine cannot count so far.
    pub fn size(&mut self) -> Result<usize, FrameError> {
        let value = self.u64()?;
        usize::try_from(value).map_err(|error| self.wrong(error))
    }

    /// Four bytes, IEEE 754.
    ///
    /// # Errors
    /// If they are not there.
    pub fn f32(&mut self) -> Result<f32, FrameError> {
        Ok(f32::from_bits(self.u32()?))
    }

    /// How many items follow, of which each has at least `size` bytes (at least 1).
    ///
    /// # Errors
    /// If so many cannot be there.
    pub fn count(&mut self, size: usize) -> Result<usize, FrameError> {
        let count = self.u32()? as usize;
        if count > self.rest.len() / size.max(1) {
            return Err(self.wrong(format!("it cannot have {count} parts")));
        }
        Ok(count)
    }

    /// Items after their number; each has at least `size` bytes.
    ///
    /// # Errors
    /// If one is malformed.
    pub fn list<T>(
        &mut self,
        size: usize,
        mut read: impl FnMut(&mut Self) -> Result<T, FrameError>,
    ) -> Result<Vec<T>, FrameError> {
        let count = self.count(size)?;
        // What is read can be larger than its bytes: the list grows instead of being reserved.
        let mut list = Vec::new();
        for _ in 0..count {
            list.push(read(self)?);
        }
        Ok(list)
    }

    /// Bytes after their number.
    ///
    /// # Errors
    /// If they are not there.
    pub fn bytes(&mut self) -> Result<&'a [u8], FrameError> {
        let length = self.count(1)?;
        self.take(length)
    }

    /// UTF-8 after the number of its bytes.
    ///
    /// # Errors
    /// If it is not there, or not UTF-8.
    pub fn text(&mut self) -> Result<String, FrameError> {
        let bytes = self.bytes()?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(error) => Err(self.wrong(error)),
        }
    }

    /// 16 bytes.
    ///
    /// # Errors
    /// If they are not there.
    pub fn uuid(&mut self) -> Result<Uuid, FrameError> {
        Ok(Uuid::from_bytes(self.array()?))
    }

    /// 0, or 1 and a value.
    ///
    /// # Errors
    /// If the value is malformed.
    pub fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, FrameError>,
    ) -> Result<Option<T>, FrameError> {
        match self.bool()? {
            true => read(self).map(Some),
            false => Ok(None),
        }
    }

    /// To be called when all has been read.
    ///
    /// # Errors
    /// If something is left.
    pub fn finish(self) -> Result<(), FrameError> {
        match self.rest.is_empty() {
            true => Ok(()),
            false => Err(self.wrong(format!("{} bytes too many", self.rest.len()))),
        }
    }
}
