//! Completion: what may stand at the cursor, best first.

use std::path::Path;

use clap::ValueEnum;
use reedline::{Completer, CompletionResult, Span, Suggestion};
use skewer_sql::lex::{self, Kind, Token};
use skewer_sql::quote;

use crate::completion_names::{Names, SharedNames};
use crate::format::Format;
use crate::keywords::{KEYWORDS, is_keyword};
use crate::meta_commands;

/// Longer lists are not read by anybody.
const MOST_SUGGESTIONS: usize = 200;

/// Completes SQL and dot commands.
pub struct SqlCompleter {
    names: SharedNames,
}

impl SqlCompleter {
    /// Offers the names in `names`, as they are at the time.
    pub fn new(names: SharedNames) -> SqlCompleter {
        SqlCompleter { names }
    }
}

impl Completer for SqlCompleter {
    fn complete(&mut self, line: &str, pos: usize) -> CompletionResult {
        let found = candidates(line, pos, &self.names.read());
        let mut suggestions: Vec<Suggestion> = Vec::new();
        for candidate in found.items {
            if suggestions
                .iter()
                .any(|known| known.value == candidate.text)
            {
                continue;
            }
            suggestions.push(Suggestion {
                value: candidate.text,
                description: (!candidate.about.is_empty()).then_some(candidate.about),
                span: Span::new(found.start, pos),
                append_whitespace: candidate.space,
                ..Suggestion::default()
            });
            if suggestions.len() == MOST_SUGGESTIONS {
                break;
            }
        }
        CompletionResult::fresh(suggestions)
    }
}

/// Something that may stand at the cursor.
#[derive(Debug, PartialEq, Eq)]
struct Candidate {
    text: String,
    about: String,
    /// Whether a space follows.
    space: bool,
}

/// Candidates, and the byte at which the text that they replace begins.
#[derive(Debug)]
struct Found {
    start: usize,
    items: Vec<Candidate>,
}

fn candidates(line: &str, pos: usize, names: &Names) -> Found {
    let before = line.get(..pos).unwrap_or(line);
    if before.starts_with('.') {
        return dot_candidates(before, names);
    }
    let tokens: Vec<Token<'_>> = lex::tokens(before).collect();
    let none = |start| Found {
        start,
        items: Vec::new(),
    };
    match tokens.last() {
        Some(last) if last.kind == Kind::Comment => none(pos),
        Some(last) if !last.closed && last.kind == Kind::Text => {
            let start = last.start + 1;
            Found {
                start,
                items: paths(&before[start..]),
            }
        }
        Some(last) if last.kind == Kind::Number => none(pos),
        _ => sql_candidates(line, &tokens, pos, names),
    }
}

fn sql_candidates(line: &str, before: &[Token<'_>], pos: usize, names: &Names) -> Found {
    let (typed, context) = match before.split_last() {
        Some((last, rest)) if matches!(last.kind, Kind::Word) => (last.text, rest),
        Some((last, rest)) if last.kind == Kind::QuotedName && !last.closed => (last.text, rest),
        _ => ("", before),
    };
    let start = pos - typed.len();
    let prefix = typed.trim_start_matches(['"', '`']).to_lowercase();
    let starts = |name: &str| name.to_lowercase().starts_with(&prefix);
    let mut items = Vec::new();
    let scope = Scope::of_statement(line, pos, names);

    let qualifiers = qualifiers(context);
    if !qualifiers.is_empty() {
        if let [schema] = qualifiers.as_slice() {
            let tables = names.tables.iter().filter(|table| table.schema == *schema);
            items.extend(
                tables
                    .filter(|table| starts(&table.name))
                    .map(|table| Candidate {
                        text: quote::identifier(&table.name),
                        about: table.kind.to_lowercase(),
                        space: false,
                    }),
            );
        }
        items.extend(
            scope
                .columns(Some(&qualifiers), names)
                .filter(|c| starts(&c.name))
                .map(column),
        );
        return Found { start, items };
    }

    if wants_table(context) {
        items.extend(tables(names, &starts));
        return Found { start, items };
    }
    if prefix.is_empty() && scope.tables.is_empty() {
        return Found { start, items };
    }
    items.extend(
        scope
            .columns(None, names)
            .filter(|c| starts(&c.name))
            .map(column),
    );
    if prefix.is_empty() {
        return Found { start, items };
    }
    if scope.tables.is_empty() {
        let user = names.columns.iter().filter(|c| !is_system(&c.schema));
        items.extend(user.filter(|c| starts(&c.name)).map(column));
    }
    if !scope.tables.is_empty() && starts("_row_id") {
        items.push(Candidate {
            text: "_row_id".into(),
            about: "the row's id".into(),
            space: false,
        });
    }
    let lower = typed.chars().all(|c| !c.is_uppercase());
    items.extend(
        KEYWORDS
            .iter()
            .filter(|word| starts(word))
            .map(|word| Candidate {
                text: if lower {
                    word.to_lowercase()
                } else {
                    (*word).to_owned()
                },
                about: String::new(),
                space: true,
            }),
    );
    items.extend(
        names
            .functions
            .iter()
            .filter(|name| starts(name))
            .map(|name| Candidate {
                text: format!("{name}("),
                about: "function".into(),
                space: false,
            }),
    );
    items.extend(tables(names, &starts));
    Found { start, items }
}

fn tables(names: &Names, starts: &dyn Fn(&str) -> bool) -> Vec<Candidate> {
    let visible = |schema: &str| !is_system(schema);
    let mut items: Vec<Candidate> = names
        .tables
        .iter()
        .filter(|table| visible(&table.schema) && starts(&table.name))
        .map(|table| Candidate {
            text: quote::identifier(&table.name),
            about: table.kind.to_lowercase(),
            space: false,
        })
        .collect();
    let mut schemas: Vec<&str> = names
        .tables
        .iter()
        .map(|table| table.schema.as_str())
        .collect();
    schemas.dedup();
    items.extend(
        schemas
            .into_iter()
            .filter(|s| starts(s))
            .map(|schema| Candidate {
                text: format!("{}.", quote::identifier(schema)),
                about: "schema".into(),
                space: false,
            }),
    );
    items
}

fn column(column: &crate::completion_names::ColumnName) -> Candidate {
    Candidate {
        text: quote::identifier(&column.name),
        about: format!("{}.{} {}", column.schema, column.table, column.data_type),
        space: false,
    }
}

/// The schemas whose tables one names in full.
fn is_system(schema: &str) -> bool {
    matches!(schema, "sys" | "information_schema")
}

/// The tables that a statement names, with the names under which it does.
struct Scope {
    /// (schema, table, alias)
    tables: Vec<(String, String, Option<String>)>,
}

impl Scope {
    /// Looks at the whole statement around the cursor: FROM may come after it.
    fn of_statement(line: &str, pos: usize, names: &Names) -> Scope {
        let all: Vec<Token<'_>> = lex::tokens(line).collect();
        let semicolon = |token: &&Token<'_>| token.text == ";";
        let from = all
            .iter()
            .take_while(|t| t.start < pos)
            .filter(semicolon)
            .last();
        let from = from.map_or(0, |token| token.start + 1);
        let words: Vec<&Token<'_>> = all
            .iter()
            .skip_while(|token| token.start < from)
            .take_while(|token| token.start < pos || token.text != ";")
            .filter(|token| !matches!(token.kind, Kind::Space | Kind::Comment))
            .collect();
        let mut tables = Vec::new();
        for (i, word) in words.iter().enumerate() {
            let Some(name) = identifier(word) else {
                continue;
            };
            let schema = (i >= 2 && words[i - 1].text == ".")
                .then(|| identifier(words[i - 2]))
                .flatten();
            let found = names.tables.iter().find(|table| {
                table.name == name
                    && schema
                        .as_ref()
                        .map_or(!is_system(&table.schema), |s| *s == table.schema)
            });
            let Some(table) = found else { continue };
            let alias = match (words.get(i + 1), words.get(i + 2)) {
                (Some(r#as), Some(alias)) if r#as.text.eq_ignore_ascii_case("as") => {
                    identifier(alias)
                }
                (Some(alias), _) if !is_keyword(alias.text) => identifier(alias),
                _ => None,
            };
            tables.push((table.schema.clone(), table.name.clone(), alias));
        }
        Scope { tables }
    }

    /// Columns of the tables in scope, or of those that `qualifiers` name.
    fn columns<'a>(
        &'a self,
        qualifiers: Option<&'a [String]>,
        names: &'a Names,
    ) -> impl Iterator<Item = &'a crate::completion_names::ColumnName> {
        names.columns.iter().filter(move |column| match qualifiers {
            None => self
                .tables
                .iter()
                .any(|(schema, table, _)| *schema == column.schema && *table == column.table),
            Some([name]) => {
                let aliased = self.tables.iter().any(|(schema, table, alias)| {
                    alias.as_ref() == Some(name)
                        && *schema == column.schema
                        && *table == column.table
                });
                aliased || (column.table == *name && !is_system(&column.schema))
            }
            Some([schema, table]) => column.schema == *schema && column.table == *table,
            Some(_) => false,
        })
    }
}

/// `a.b.` before the cursor: a, b.
fn qualifiers(context: &[Token<'_>]) -> Vec<String> {
    let mut names = Vec::new();
    let mut rest = context;
    while let [before @ .., name, dot] = rest {
        let Some(name) = (dot.text == ".").then(|| identifier(name)).flatten() else {
            break;
        };
        names.insert(0, name);
        rest = before;
    }
    names
}

/// The name that a token spells, if it can be one.
fn identifier(token: &Token<'_>) -> Option<String> {
    match token.kind {
        Kind::Word => Some(token.text.to_lowercase()),
        Kind::QuotedName => Some(token.text.trim_matches(['"', '`']).to_owned()),
        _ => None,
    }
}

/// Whether a table's name is what comes next.
fn wants_table(context: &[Token<'_>]) -> bool {
    let before = context
        .iter()
        .rev()
        .find(|token| !matches!(token.kind, Kind::Space | Kind::Comment));
    before.is_some_and(|token| {
        [
            "from", "join", "into", "table", "update", "describe", "view", "copy", "truncate",
        ]
        .iter()
        .any(|word| token.text.eq_ignore_ascii_case(word))
    })
}

fn dot_candidates(before: &str, names: &Names) -> Found {
    let Some((command, argument)) = before.split_once(char::is_whitespace) else {
        let commands = meta_commands::COMMANDS
            .iter()
            .filter(|c| c.name.starts_with(before));
        return Found {
            start: 0,
            items: commands
                .map(|command| Candidate {
                    text: command.name.to_owned(),
                    about: command.about.to_owned(),
                    space: !command.argument.is_empty(),
                })
                .collect(),
        };
    };
    let argument = argument.trim_start();
    let plain = |text: &str| Candidate {
        text: text.to_owned(),
        about: String::new(),
        space: false,
    };
    let items = match command {
        ".mode" => Format::value_variants()
            .iter()
            .map(|f| plain(f.name()))
            .collect(),
        ".timer" | ".hints" => vec![plain("on"), plain("off")],
        ".maxrows" => vec![plain("40"), plain("all")],
        ".schema" | ".tables" => tables(names, &|_| true),
        ".read" | ".open" => paths(argument),
        _ => Vec::new(),
    };
    Found {
        start: before.len() - argument.len(),
        items: items
            .into_iter()
            .filter(|item| item.text.starts_with(argument))
            .collect(),
    }
}

/// Files and directories whose path begins with `typed`.
fn paths(typed: &str) -> Vec<Candidate> {
    let (directory, name) = match typed.rfind('/') {
        Some(slash) => typed.split_at(slash + 1),
        None => ("", typed),
    };
    let listed = if directory.is_empty() {
        Path::new(".")
    } else {
        Path::new(directory)
    };
    let Ok(entries) = listed.read_dir() else {
        return Vec::new();
    };
    let mut items: Vec<Candidate> = entries
        .flatten()
        .filter_map(|entry| {
            let file = entry.file_name().into_string().ok()?;
            let hidden = file.starts_with('.') && !name.starts_with('.');
            if hidden || !file.starts_with(name) {
                return None;
            }
            let slash = if entry.path().is_dir() { "/" } else { "" };
            Some(Candidate {
                text: format!("{directory}{file}{slash}"),
                about: String::new(),
                space: false,
            })
        })
        .collect();
    items.sort_by(|a, b| a.text.cmp(&b.text));
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::completion_names::{ColumnName, TableName};

    fn names() -> Names {
        let table = |schema: &str, name: &str| TableName {
            schema: schema.into(),
            name: name.into(),
            kind: "BASE TABLE".into(),
        };
        let column = |schema: &str, table: &str, name: &str| ColumnName {
            schema: schema.into(),
            table: table.into(),
            name: name.into(),
            data_type: "Int64".into(),
        };
        Names {
            tables: vec![
                table("public", "trips"),
                table("public", "Zones"),
                table("sys", "queries"),
                table("sys", "operator_stats"),
            ],
            columns: vec![
                column("public", "trips", "cost"),
                column("public", "trips", "Distance"),
                column("public", "Zones", "code"),
                column("sys", "queries", "query_id"),
            ],
            functions: vec!["count".into(), "coalesce".into()],
        }
    }

    /// Completions at the `|` in `text`.
    fn completions_at(text: &str) -> Vec<String> {
        let pos = text.find('|').unwrap();
        let line = text.replacen('|', "", 1);
        let found = candidates(&line, pos, &names());
        found.items.into_iter().map(|item| item.text).collect()
    }

    #[test]
    fn keywords_follow_the_case_that_is_typed() {
        assert_eq!(completions_at("SEL|"), ["SELECT"]);
        assert_eq!(completions_at("sel|"), ["select"]);
        assert_eq!(completions_at("|"), [""; 0]);
    }

    #[test]
    fn after_from_there_are_tables_and_schemas() {
        assert_eq!(completions_at("SELECT * FROM t|"), ["trips"]);
        assert_eq!(
            completions_at("SELECT * FROM |"),
            ["trips", "\"Zones\"", "public.", "sys."]
        );
        assert_eq!(completions_at("SELECT * FROM sys.q|"), ["queries"]);
    }

    #[test]
    fn columns_come_from_the_tables_of_the_statement() {
        assert_eq!(
            completions_at("SELECT co| FROM trips")[..2],
            ["cost", "column"]
        );
        assert_eq!(
            completions_at("SELECT t.| FROM trips AS t"),
            ["cost", "\"Distance\""]
        );
        assert_eq!(
            completions_at("SELECT q.| FROM sys.queries q"),
            ["query_id"]
        );
        assert_eq!(
            completions_at("SELECT * FROM sys.queries WHERE |"),
            ["query_id"]
        );
        assert_eq!(
            completions_at("SELECT 1 FROM \"Zones\"; SELECT | FROM trips"),
            ["cost", "\"Distance\""]
        );
    }

    #[test]
    fn nothing_is_offered_in_comments_and_numbers() {
        assert_eq!(completions_at("-- sel|"), [""; 0]);
        assert_eq!(completions_at("SELECT 1|"), [""; 0]);
    }

    #[test]
    fn dot_commands_and_their_arguments_complete() {
        assert_eq!(completions_at(".ta|"), [".tables"]);
        assert_eq!(completions_at(".mode m|"), ["markdown"]);
        assert_eq!(completions_at(".schema tr|"), ["trips"]);
    }

    #[test]
    fn paths_complete_in_strings() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("data.csv"), "").unwrap();
        let base = dir.path().to_str().unwrap();
        let typed = format!("COPY trips FROM '{base}/da|'");
        // The closing quote is behind the cursor, as editors with pairs put it.
        assert_eq!(completions_at(&typed), [format!("{base}/data.csv")]);
    }
}
