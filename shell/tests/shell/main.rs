//! The binary from the outside.

mod command_line;
mod demo;
mod dot_commands;
mod formats;
mod support;
