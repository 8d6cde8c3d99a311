//! The comparison of two queries.

mod json;
mod text;

pub(crate) use json::lines as json_lines;
pub(crate) use text::document as text;
