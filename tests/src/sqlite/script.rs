//! The records of a script.

/// How the values of a result are ordered before they are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// As the query orders them.
    AsTheyAre,
    /// By rows, as text.
    Rows,
    /// All values by themselves, as text.
    Values,
}

/// One record.
#[derive(Debug)]
pub(super) enum Record {
    Statement(Statement),
    Query(Query),
}

/// A statement and whether it should fail.
#[derive(Debug)]
pub(super) struct Statement {
    pub(super) line: usize,
    pub(super) sql: String,
    pub(super) fails: bool,
}

/// A query and its result.
#[derive(Debug)]
pub(super) struct Query {
    pub(super) line: usize,
    pub(super) sql: String,
    /// A letter for each column: `I`nteger, `R`eal, `T`ext.
    pub(super) types: Vec<char>,
    pub(super) order: Order,
    pub(super) label: Option<String>,
    /// Values, one each; or their number and hash in one line.
    pub(super) expected: Vec<String>,
}

/// The records that this database runs, up to `halt`.
///
/// # Errors
/// The line of what is no record.
pub(super) fn records(text: &str) -> Result<Vec<Record>, String> {
    let mut lines = text.lines().enumerate().peekable();
    let mut records = Vec::new();
    let mut is_ours = true;
    while let Some((number, line)) = lines.next() {
        let line_number = number + 1;
        let words: Vec<&str> = line
            .split('#')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        let mut block = || {
            let mut block = Vec::new();
            while let Some((_, line)) = lines.next_if(|(_, line)| !line.trim().is_empty()) {
                block.push(line.trim_end().to_owned());
            }
            block
        };
        match words[..] {
            [] | ["hash-threshold", _] => continue,
            ["halt"] if is_ours => break,
            ["halt"] => {}
            ["skipif", name] => {
                is_ours &= !is_this(name);
                continue;
            }
            ["onlyif", name] => {
                is_ours &= is_this(name);
                continue;
            }
            ["statement", outcome @ ("ok" | "error")] => {
                let statement = Statement {
                    line: line_number,
                    sql: block().join("\n"),
                    fails: outcome == "error",
                };
                if is_ours {
                    records.push(Record::Statement(statement));
                }
            }
            ["query", types, ref options @ ..] => {
                let mut sql = block();
                let expected = match sql.iter().position(|line| line == "----") {
                    Some(end) => sql.split_off(end).split_off(1),
                    None => Vec::new(),
                };
                let query = Query {
                    line: line_number,
                    sql: sql.join("\n"),
                    types: types.chars().collect(),
                    order: match options.first() {
                        None | Some(&"nosort") => Order::AsTheyAre,
                        Some(&"rowsort") => Order::Rows,
                        Some(&"valuesort") => Order::Values,
                        Some(other) => return Err(format!("{line_number}: no order {other}")),
                    },
                    label: options.get(1).map(|label| (*label).to_owned()),
                    expected,
                };
                if is_ours {
                    records.push(Record::Query(query));
                }
            }
            _ => return Err(format!("{line_number}: no record: {line}")),
        }
        is_ours = true;
    }
    Ok(records)
}

/// Whether conditions about a database are about this one. Its syntax is PostgreSQL's, but what that
/// refuses need not be refused here.
fn is_this(name: &str) -> bool {
    name == "skewer"
}
