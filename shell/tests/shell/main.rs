//! The binary from the outside.

mod command_line;
mod connect;
mod demo;
mod dot_commands;
mod formats;
#[cfg(unix)]
mod interactive;
#[cfg(unix)]
mod pseudo_terminal;
mod resources;
mod server;
mod support;
