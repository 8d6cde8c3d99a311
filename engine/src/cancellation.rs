//! Telling what a statement began that the statement is cancelled.

use std::future::Future;

use skewer_compat::operators::scheduling::Cancellation;

tokio::task_local! {
    static CANCELLATION: Cancellation;
}

/// Runs `future`, whose statements `cancellation` cancels.
pub(crate) async fn scope<F: Future>(cancellation: Cancellation, future: F) -> F::Output {
    CANCELLATION.scope(cancellation, future).await
}

/// What cancels the statement that runs in this task; nothing does outside of [`scope`].
pub(crate) fn cancellation() -> Cancellation {
    let current = CANCELLATION.try_with(Cancellation::clone);
    current.unwrap_or_default()
}
