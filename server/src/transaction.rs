//! BEGIN … COMMIT over an engine whose statements commit one by one.
//!
//! Drivers send BEGIN unasked, so it is accepted, with a warning. After an error the rest of the
//! block is refused, as PostgreSQL does. ROLLBACK fails if there is something to roll back, and
//! says what: nobody is told that a change is undone which is not.

use pgwire::messages::response::TransactionStatus;

use crate::error::SqlError;

/// Characters of a statement that ROLLBACK shows.
const SHOWN: usize = 60;
/// Statements that ROLLBACK shows.
const MOST: usize = 5;

/// What BEGIN answers with.
pub(crate) const WARNING: &str =
    "each statement commits on its own: ROLLBACK cannot undo earlier statements";

/// The block that a connection is in.
#[derive(Debug, Default)]
pub(crate) struct Transaction {
    state: State,
    /// The statements of the block that changed something, shortened, and how many they were.
    changes: Vec<String>,
    changed: usize,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    None,
    Open,
    Failed,
}

impl Transaction {
    pub(crate) fn status(&self) -> TransactionStatus {
        match self.state {
            State::None => TransactionStatus::Idle,
            State::Open => TransactionStatus::Transaction,
            State::Failed => TransactionStatus::Error,
        }
    }

    /// `false` if there is a block already.
    pub(crate) fn begin(&mut self) -> bool {
        let is_new = self.state == State::None;
        if is_new {
            self.state = State::Open;
        }
        is_new
    }

    /// A statement has succeeded that changed something.
    pub(crate) fn has_changed(&mut self, sql: &str) {
        if self.state == State::None {
            return;
        }
        self.changed += 1;
        if self.changes.len() < MOST {
            let line = sql.split_whitespace().collect::<Vec<_>>().join(" ");
            let mut shown: String = line.chars().take(SHOWN).collect();
            if shown.len() < line.len() {
                shown.push('…');
            }
            self.changes.push(shown);
        }
    }

    /// A statement has failed.
    pub(crate) fn fail(&mut self) {
        if self.state == State::Open {
            self.state = State::Failed;
        }
    }

    /// # Errors
    /// 25P02 in a block whose earlier statement has failed.
    pub(crate) fn check(&self) -> Result<(), SqlError> {
        if self.state == State::Failed {
            let message = "an earlier statement of this block has failed: statements are ignored \
                           until ROLLBACK or COMMIT";
            return Err(SqlError::new("25P02", message));
        }
        Ok(())
    }

    /// Ends the block; whether all of its statements succeeded, `None` if there was no block.
    ///
    /// # Errors
    /// If the block has failed and earlier statements of it stay.
    pub(crate) fn commit(&mut self) -> Result<Option<bool>, SqlError> {
        let ended = std::mem::take(self);
        match ended.state {
            State::None => Ok(None),
            State::Open => Ok(Some(true)),
            State::Failed => ended.undone().map(|()| Some(false)),
        }
    }

    /// Ends the block; `false` if there was none.
    ///
    /// # Errors
    /// If there is something that would have to be undone.
    pub(crate) fn rollback(&mut self) -> Result<bool, SqlError> {
        let ended = std::mem::take(self);
        let was_open = ended.state != State::None;
        ended.undone().map(|()| was_open)
    }

    fn undone(self) -> Result<(), SqlError> {
        if self.changed == 0 {
            return Ok(());
        }
        let mut shown = self.changes.join("; ");
        if self.changed > self.changes.len() {
            shown.push_str(&format!("; and {} more", self.changed - self.changes.len()));
        }
        let count = match self.changed {
            1 => "1 statement of this block was".to_owned(),
            n => format!("{n} statements of this block were"),
        };
        let message = format!("{count} committed and cannot be rolled back: {shown}");
        Err(SqlError::new("0A000", message)
            .hint("the block is over; each statement is a transaction of its own"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rollback_names_what_stays() {
        let mut block = Transaction::default();
        assert!(block.begin() && !block.begin());
        block.has_changed("INSERT INTO t\n VALUES (1)");
        let error = block.rollback().unwrap_err();
        assert!(
            error
                .message
                .ends_with("rolled back: INSERT INTO t VALUES (1)"),
            "{}",
            error.message
        );
        assert_eq!(block.status(), TransactionStatus::Idle);
    }

    #[test]
    fn nothing_runs_after_an_error_and_nothing_is_claimed_undone() {
        let mut block = Transaction::default();
        block.begin();
        block.fail();
        assert_eq!(block.check().unwrap_err().code, "25P02");
        assert_eq!(block.rollback(), Ok(true));
        assert_eq!(block.rollback(), Ok(false));
        block.begin();
        block.has_changed("DELETE FROM t");
        block.fail();
        assert!(block.commit().is_err());
        assert_eq!(block.check(), Ok(()));
    }
}
