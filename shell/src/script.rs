//! Scripts: statements and dot commands, taken as soon as they are whole.

use skewer::{is_complete as ends, split};

/// Something to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A statement without its semicolon, and the line on which it begins.
    Sql { text: String, line: u64 },
    /// A dot command.
    Dot { text: String, line: u64 },
}

/// Collects lines into [`Step`]s.
#[derive(Debug, Default)]
pub struct Script {
    pending: String,
    /// Line of the script on which `pending` begins, from 1.
    pending_line: u64,
    lines: u64,
}

impl Script {
    /// Takes the next line, with or without its newline; gives the steps that it completes.
    pub fn line(&mut self, line: &str) -> Vec<Step> {
        self.lines += 1;
        if self.pending.trim().is_empty() {
            self.pending.clear();
            self.pending_line = self.lines;
            if is_dot_command(line) {
                return vec![Step::Dot {
                    text: line.trim().to_owned(),
                    line: self.lines,
                }];
            }
        }
        self.pending.push_str(line);
        if !line.ends_with('\n') {
            self.pending.push('\n');
        }
        if line.contains(';') && ends(&self.pending) {
            return self.rest();
        }
        Vec::new()
    }

    /// The end of the script: what is left, whether or not a semicolon ends it.
    pub fn rest(&mut self) -> Vec<Step> {
        let before = self.pending_line.saturating_sub(1);
        let pieces = split(&self.pending).into_iter();
        let steps = pieces.map(|piece| Step::Sql {
            text: piece.sql,
            line: before + piece.line,
        });
        let steps = steps.collect();
        self.pending.clear();
        steps
    }

    /// The steps of a whole script.
    pub fn steps(text: &str) -> Vec<Step> {
        let mut script = Script::default();
        let mut steps: Vec<Step> = text
            .split_inclusive('\n')
            .flat_map(|line| script.line(line))
            .collect();
        steps.extend(script.rest());
        steps
    }
}

/// Whether the line is a command to the shell; `.5` is not.
pub fn is_dot_command(line: &str) -> bool {
    let line = line.trim_start();
    line.strip_prefix('.')
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_alphabetic()))
}

/// Whether what was typed can run: a dot command, statements with their semicolon, or nothing.
pub fn is_complete(typed: &str) -> bool {
    let nothing = || typed.trim_end().ends_with(';') && split(typed).is_empty();
    typed.trim().is_empty()
        || is_dot_command(typed)
        || is_farewell(typed)
        || ends(typed)
        || nothing()
}

/// `quit` and `exit` without a dot, as people type them everywhere.
pub fn is_farewell(typed: &str) -> bool {
    matches!(
        typed.trim().trim_end_matches(';').to_lowercase().as_str(),
        "quit" | "exit"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sql(text: &str, line: u64) -> Step {
        Step::Sql {
            text: text.into(),
            line,
        }
    }

    #[test]
    fn steps_know_their_lines() {
        assert_eq!(
            Script::steps("SELECT 1;\n\n.mode csv\n-- two\nSELECT\n 2; SELECT ';\n.x';\nSELECT 4"),
            [
                sql("SELECT 1", 1),
                Step::Dot {
                    text: ".mode csv".into(),
                    line: 3
                },
                sql("SELECT\n 2", 5),
                sql("SELECT ';\n.x'", 6),
                sql("SELECT 4", 8),
            ]
        );
    }

    #[test]
    fn a_statement_runs_at_its_semicolon() {
        assert!(is_complete("SELECT 1;"));
        assert!(is_complete(".tables"));
        assert!(is_complete("exit"));
        assert!(is_complete("  "));
        assert!(is_complete(";"));
        assert!(!is_complete("-- not yet"));
        assert!(!is_complete("SELECT 1"));
        assert!(!is_complete("SELECT ';"));
        assert!(!is_complete(".5;\nSELECT"));
    }
}
