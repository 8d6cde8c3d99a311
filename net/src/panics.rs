//! What panics mean.
//!
//! A panic ends a statement, not the process: whoever runs the statement catches it. What it says is for who
//! wrote the code. [`log_panics`] keeps it from the terminal and notes where it was, so that errors can say it.

use std::any::Any;
use std::collections::VecDeque;
use std::panic::{self, PanicHookInfo};

use parking_lot::Mutex;

/// Threads whose panics are caught have names that begin so.
const OURS: &str = "skewer";

/// So many panics are remembered: until their errors have been made.
const REMEMBERED: usize = 64;

/// What the latest panics said, and where.
static LATEST: Mutex<VecDeque<(String, String)>> = Mutex::new(VecDeque::new());

/// What a panic means to the person who wrote the statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Panic {
    /// A text or list is larger than an array can hold, and how it was said.
    TooLarge(String),
    /// A bug, and what it said.
    Bug(String),
}

/// From now on panics go to the log; those on threads of others to where they went before, too, if there is
/// no log.
pub fn log_panics() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        remember(panic);
        tracing::error!(%panic, "a bug, or a message that nobody should send");
        let thread = std::thread::current();
        let is_ours = thread.name().is_some_and(|name| name.starts_with(OURS));
        if !is_ours && !tracing::enabled!(tracing::Level::ERROR) {
            before(panic);
        }
    }));
}

fn remember(panic: &PanicHookInfo<'_>) {
    let Some(place) = panic.location() else {
        return;
    };
    let file = place.file();
    // Of a path in cargo's registry the crate and what is in it.
    let crates = file.split_once("/registry/src/").map(|(_, rest)| rest);
    let file = crates
        .and_then(|rest| rest.split_once('/'))
        .map_or(file, |(_, rest)| rest);
    let place = format!("{file}:{}", place.line());
    let mut latest = LATEST.lock();
    if latest.len() == REMEMBERED {
        latest.pop_front();
    }
    latest.push_back((panic_text(panic.payload()).to_owned(), place));
}

/// Where the latest panic that said `text` was, if panics are logged.
fn place_of(text: &str) -> Option<String> {
    let latest = LATEST.lock();
    let mut found = latest.iter().rev().filter(|(said, _)| said == text);
    found.next().map(|(_, place)| place.clone())
}

/// What a panic said.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "of unknown cause",
    }
}

impl Panic {
    /// What a panic that has been caught means.
    pub fn from_payload(panic: &(dyn Any + Send)) -> Self {
        Self::that_said(panic_text(panic))
    }

    /// What one means that somebody else has caught.
    pub fn that_said(text: &str) -> Self {
        let place = place_of(text);
        let at = place.as_ref().map(|place| format!(" (at {place})"));
        let at = at.unwrap_or_default();
        match is_too_large(text, &place.unwrap_or_default()) {
            true => Self::TooLarge(format!(
                "texts or lists would be larger than 2147483647 bytes, and a batch of rows holds no more{at}"
            )),
            false => Self::Bug(format!("{text}{at}")),
        }
    }

    /// What the task of a [`JoinError`](tokio::task::JoinError) says that has panicked, which cannot be asked.
    pub fn of_task(error: &tokio::task::JoinError) -> Option<Self> {
        if !error.is_panic() {
            return None;
        }
        let text = error.to_string();
        let said = text.split_once("panicked with message \"");
        let said = said.and_then(|(_, rest)| rest.strip_suffix('"'));
        Some(Self::that_said(said.unwrap_or("of unknown cause")))
    }
}

/// Whether a panic says that a vector, or the offsets of an array, would have to count further than they do.
fn is_too_large(text: &str, place: &str) -> bool {
    let of_arrays = place.starts_with("arrow-") || place.starts_with("datafusion-");
    let counts = text.contains("capacity overflow") || text.contains("offset overflow");
    // `a || b` counts the bytes of its results so.
    counts || (of_arrays && place.contains("/concat_elements.rs:"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_is_told_from_bugs() {
        assert!(matches!(
            Panic::that_said("capacity overflow"),
            Panic::TooLarge(_)
        ));
        assert!(matches!(
            Panic::that_said("byte array offset overflow"),
            Panic::TooLarge(_)
        ));
        let bug = "index out of bounds: the len is 0 but the index is 0";
        assert_eq!(Panic::that_said(bug), Panic::Bug(bug.to_owned()));
    }

    #[tokio::test]
    async fn a_task_says_what_it_panicked_with() {
        let task = tokio::spawn(async { panic!("of a task that nobody asks") });
        let error = task.await.unwrap_err();
        let Some(Panic::Bug(said)) = Panic::of_task(&error) else {
            panic!("{error}");
        };
        assert!(said.starts_with("of a task that nobody asks"), "{said}");
    }
}
