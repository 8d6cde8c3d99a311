//! The simple protocol: a script as one message.

use futures::SinkExt;
use pgwire::messages::PgWireBackendMessage as Backend;
use pgwire::messages::response::EmptyQueryResponse;

use crate::connection::{Connection, Failure};
use crate::error::SqlError;
use crate::statement::Command;

impl Connection {
    /// Runs the statements of a script, up to the first that fails.
    pub(crate) async fn simple_query(&mut self, script: &str) -> Result<(), Failure> {
        self.portals.remove("");
        let pieces = skewer::split(script);
        if pieces.is_empty() {
            let empty = Backend::EmptyQueryResponse(EmptyQueryResponse::new());
            self.socket.feed(empty).await?;
        }
        let mut from = 0;
        for piece in pieces {
            let start = script[from..].find(&piece.sql).map_or(from, |at| from + at);
            let outcome = self.run_statement(&piece.sql).await;
            outcome.map_err(|failure| moved(failure, &script[..start]))?;
            from = start + piece.sql.len();
        }
        self.transaction_is_over();
        Ok(self.ready().await?)
    }

    async fn run_statement(&mut self, sql: &str) -> Result<(), Failure> {
        let command = Command::parse(sql)?;
        self.check_block(&command)?;
        let limits = self.limits();
        limits.guard(self.carry_out(&command, sql)).await
    }
}

/// An error whose place counts from the beginning of the script.
fn moved(failure: Failure, before: &str) -> Failure {
    match failure {
        Failure::Sql(mut error) => {
            error.position = error
                .position
                .map(|position| position + before.chars().count());
            Failure::Sql(error)
        }
        broken => broken,
    }
}

impl Connection {
    /// # Errors
    /// If the block has failed and this does not end it.
    pub(crate) fn check_block(&self, command: &Command) -> Result<(), SqlError> {
        match command.ends_block() {
            true => Ok(()),
            false => self.transaction.check(),
        }
    }
}
