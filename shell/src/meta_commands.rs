//! Dot commands. Those that tell about the database are SQL that anybody could type, and
//! `.help` shows it.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use skewer_sql::quote::literal;

use crate::error::ShellError;
use crate::format::Format;
use crate::highlight;
use crate::shell::{Flow, Shell};
use crate::web::open_in_browser;

/// A dot command.
pub struct Command {
    /// With its dot.
    pub name: &'static str,
    /// What it takes, for `.help`; empty if nothing.
    pub argument: &'static str,
    /// What it does.
    pub about: &'static str,
    /// What it runs: `{schemas}` and `{table}` are replaced.
    sql: &'static [&'static str],
}

/// In the order of `.help`.
pub const COMMANDS: &[Command] = &[
    Command {
        name: ".tables",
        argument: "[SCHEMA]",
        about: "tables and views",
        sql: &["SELECT table_schema, table_name, table_type\n\
                FROM information_schema.tables WHERE {schemas}\n\
                ORDER BY table_schema, table_name"],
    },
    Command {
        name: ".schema",
        argument: "[TABLE]",
        about: "columns and their types",
        sql: &[
            "SELECT table_schema, table_name, column_name, data_type, is_nullable\n\
                FROM information_schema.columns WHERE {table}\n\
                ORDER BY table_schema, table_name, ordinal_position",
        ],
    },
    Command {
        name: ".profile",
        argument: "[QUERY_ID]",
        about: "EXPLAIN PROFILE's report on the last query, or on this one",
        sql: &["-- all of it is SQL over sys, which EXPLAIN PROFILE (AS SQL) <query> prints"],
    },
    Command {
        name: ".web",
        argument: "[QUERY_ID]",
        about: "open the profiler's page, on the last query or on this one",
        sql: &[],
    },
    Command {
        name: ".mode",
        argument: "[table|csv|json|ndjson|markdown]",
        about: "how results are written",
        sql: &[],
    },
    Command {
        name: ".maxrows",
        argument: "[N|all]",
        about: "rows shown before the middle ones are left out",
        sql: &[],
    },
    Command {
        name: ".timer",
        argument: "[on|off]",
        about: "whether each statement's time is shown",
        sql: &[],
    },
    Command {
        name: ".hints",
        argument: "[on|off]",
        about: "whether a slow statement's worst diagnosis is printed after it",
        sql: &[],
    },
    Command {
        name: ".read",
        argument: "FILE",
        about: "run the statements in a file",
        sql: &[],
    },
    Command {
        name: ".open",
        argument: "[PATH]",
        about: "turn to the database at PATH, or to an empty one in memory",
        sql: &[],
    },
    Command {
        name: ".help",
        argument: "",
        about: "this list",
        sql: &[],
    },
    Command {
        name: ".quit",
        argument: "",
        about: "leave",
        sql: &[],
    },
];

/// Schemas that are there in every database: only shown when asked for.
const SYSTEM_SCHEMAS: &str = "table_schema NOT IN ('information_schema', 'sys')";

/// Runs one line that begins with a dot.
pub async fn run(shell: &mut Shell, line: &str) -> Result<Flow, ShellError> {
    // A semicolon at the end is a habit.
    let line = line.trim().trim_end_matches(';').trim_end();
    let (name, argument) = match line.split_once(char::is_whitespace) {
        Some((name, argument)) => (name, unquoted(argument.trim())),
        None => (line, ""),
    };
    if name == ".exit" {
        return Ok(Flow::Quit);
    }
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        return Err(ShellError::Usage(format!(
            "there is no command {name}; .help lists them"
        )));
    };
    if command.argument.is_empty() && !argument.is_empty() {
        return Err(ShellError::Usage(format!("{name} takes no argument")));
    }
    match name {
        ".help" => help(shell)?,
        ".quit" => return Ok(Flow::Quit),
        ".mode" => mode(shell, argument)?,
        ".maxrows" => max_rows(shell, argument)?,
        ".timer" => timer(shell, argument)?,
        ".hints" => hints(shell, argument)?,
        ".profile" => profile(shell, command, argument).await?,
        ".web" => web(shell, command, argument)?,
        ".read" if argument.is_empty() => return Err(usage(command)),
        ".read" => return Box::pin(shell.run_file(Path::new(argument))).await,
        ".open" => {
            let path = (!argument.is_empty()).then(|| PathBuf::from(argument));
            shell.reopen(path).await?;
        }
        _ => ask(shell, command, argument).await?,
    }
    Ok(Flow::Continue)
}

/// Runs the command's SQL.
async fn ask(shell: &mut Shell, command: &Command, argument: &str) -> Result<(), ShellError> {
    let schemas = match argument {
        "" => SYSTEM_SCHEMAS.to_owned(),
        schema => format!("table_schema = {}", literal(schema)),
    };
    let table = match argument.rsplit_once('.') {
        _ if argument.is_empty() => SYSTEM_SCHEMAS.to_owned(),
        Some((schema, table)) => format!(
            "table_schema = {} AND table_name = {}",
            literal(schema),
            literal(table)
        ),
        None => format!("table_name = {}", literal(argument)),
    };
    for sql in command.sql {
        let sql = sql
            .replace("{schemas}", &schemas)
            .replace("{table}", &table);
        shell.ask(&sql).await?;
    }
    Ok(())
}

/// Reports on a query that has ended.
async fn profile(shell: &mut Shell, command: &Command, argument: &str) -> Result<(), ShellError> {
    let query = match argument {
        "" => None,
        number => Some(number.parse().map_err(|_| usage(command))?),
    };
    shell.report(query).await
}

/// Prints the address of the profiler's page, and opens it for a person.
fn web(shell: &mut Shell, command: &Command, argument: &str) -> Result<(), ShellError> {
    use std::io::Write as _;
    let query_id = match argument {
        "" => shell.last_query_id(),
        number => Some(number.parse().map_err(|_| usage(command))?),
    };
    let address = shell.page_address(query_id)?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{address}")?;
    if shell.interactive {
        writeln!(
            out,
            "The address opens once; .web gives another one. The page is served until you leave."
        )?;
        open_in_browser(&address);
    }
    Ok(())
}

fn help(shell: &Shell) -> Result<(), ShellError> {
    use std::io::Write as _;
    let palette = shell.terminal.output_palette();
    let mut text = String::new();
    for command in COMMANDS {
        let call = format!("{} {}", command.name, command.argument);
        let padded = format!("{call:<42}");
        let _ = writeln!(text, "{}{}", palette.strong.paint(padded), command.about);
        for sql in command.sql {
            let sql = sql
                .replace("{schemas}", SYSTEM_SCHEMAS)
                .replace("{table}", SYSTEM_SCHEMAS);
            for line in sql.lines() {
                let _ = writeln!(text, "    {}", highlight::paint(line, &palette));
            }
            text.push('\n');
        }
    }
    text.push_str(
        "\nStatements end with a semicolon. Ctrl-C cancels the one that runs, Ctrl-D leaves.\n",
    );
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

fn mode(shell: &mut Shell, argument: &str) -> Result<(), ShellError> {
    if argument.is_empty() {
        eprintln!("{}", shell.format.name());
        return Ok(());
    }
    shell.format = Format::from_str(argument, true).map_err(|_| {
        let names: Vec<_> = Format::value_variants().iter().map(|f| f.name()).collect();
        ShellError::Usage(format!(
            "there is no mode {argument}: it is one of {}",
            names.join(", ")
        ))
    })?;
    Ok(())
}

fn max_rows(shell: &mut Shell, argument: &str) -> Result<(), ShellError> {
    shell.max_rows = match argument {
        "" => {
            let rows = shell
                .max_rows
                .map_or("all".to_owned(), |rows| rows.to_string());
            eprintln!("{rows}");
            return Ok(());
        }
        "all" => None,
        number => match number.parse() {
            Ok(rows) if rows > 0 => Some(rows),
            _ => {
                return Err(ShellError::Usage(format!(
                    ".maxrows takes a number of rows or all, not {number}"
                )));
            }
        },
    };
    Ok(())
}

fn timer(shell: &mut Shell, argument: &str) -> Result<(), ShellError> {
    shell.timer = switched(".timer", shell.timer, argument)?;
    Ok(())
}

fn hints(shell: &mut Shell, argument: &str) -> Result<(), ShellError> {
    shell.hints = switched(".hints", shell.hints, argument)?;
    Ok(())
}

/// What a switch is after a command: without an argument it is turned over.
fn switched(command: &str, now: bool, argument: &str) -> Result<bool, ShellError> {
    match argument {
        "" => Ok(!now),
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(ShellError::Usage(format!(
            "{command} takes on or off, not {other}"
        ))),
    }
}

fn usage(command: &Command) -> ShellError {
    ShellError::Usage(format!("usage: {} {}", command.name, command.argument))
}

/// A path may be written in quotes, as in SQL.
fn unquoted(argument: &str) -> &str {
    let inner = |quote| argument.strip_prefix(quote)?.strip_suffix(quote);
    inner('\'').or_else(|| inner('"')).unwrap_or(argument)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_unquoted_as_paths() {
        assert_eq!(unquoted("'a b.sql'"), "a b.sql");
        assert_eq!(unquoted("plain.sql"), "plain.sql");
        assert_eq!(unquoted("'"), "'");
    }
}
