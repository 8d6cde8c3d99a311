//! The web server as a browser meets it: bytes over TCP.

mod actions;
mod client;
mod logins;
mod metrics;
mod pages;
mod traces;
mod truth;
mod views;
