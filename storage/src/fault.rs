//! A disk that fails where a test wants it to.
