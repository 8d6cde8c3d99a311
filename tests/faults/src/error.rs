//! Why a case, or the whole laboratory, cannot go on.

use std::fmt;

/// A sentence for a person.
#[derive(Debug, Clone)]
pub struct Error(pub String);

/// With [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with this text.
    pub fn new(text: impl Into<String>) -> Error {
        Error(text.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// Says what was tried when something failed.
pub trait Context<T> {
    /// Puts `what` before the error's text.
    ///
    /// # Errors
    /// If `self` is an error.
    fn context(self, what: impl fmt::Display) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Error(format!("{what}: {error}")))
    }
}
