//! Placeholder while the crash test is written.
