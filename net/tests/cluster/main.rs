//! Nodes on loopback, with real sockets and certificates.

mod proxy;
mod query;
mod source;
mod streams;
mod support;
mod trust;
