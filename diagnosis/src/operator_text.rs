//! What an operator does, in the words of SQL rather than of the physical plan.

use crate::text::{WIDTH, shortened};

/// What an operator does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// What it is: `Aggregate, partial`.
    pub title: String,
    /// What it works on: `count(*) by rating`; may be empty.
    pub subject: String,
}

impl Description {
    /// Both in one line.
    pub fn line(&self) -> String {
        match self.subject.as_str() {
            "" => self.title.clone(),
            subject => format!("{}: {subject}", self.title),
        }
    }
}

/// Describes an operator by its name and details in `sys.operators`, and the table it scans.
pub fn describe(name: &str, details: &str, table: Option<&str>) -> Description {
    let fields = Fields::parse(details);
    let list = |key: &str| expressions(fields.get(key));
    let (title, subject) = match name {
        "DataSourceExec" => return scan(&fields, table),
        "ProjectionExec" => ("Projection".to_owned(), list("expr")),
        "TimedEvaluationExec" => ("Evaluate".to_owned(), list("expr")),
        "FilterExec" => ("Filter".to_owned(), expression(fields.bare())),
        "AggregateExec" => aggregate(&fields),
        "RepartitionExec" => ("Exchange".to_owned(), exchange(&fields)),
        "NetworkShuffleExec" => (
            "Exchange between workers".to_owned(),
            exchange_between_workers(&fields),
        ),
        "NetworkCoalesceExec" => (
            "Gather from workers".to_owned(),
            details.trim_start_matches("from ").to_owned(),
        ),
        "NetworkBroadcastExec" => ("Broadcast to workers".to_owned(), receivers(&fields)),
        "CoalescePartitionsExec" => (
            "Merge partitions".to_owned(),
            first(&fields).trim_start_matches(", ").to_owned(),
        ),
        "SortPreservingMergeExec" => {
            let order = expressions(fields.bare());
            ("Merge sorted".to_owned(), [order, first(&fields)].concat())
        }
        "SortExec" | "SortExec(TopK)" => match number_in(details, "fetch=") {
            Some(fetch) => (format!("Top {fetch}"), list("expr")),
            None => ("Sort".to_owned(), list("expr")),
        },
        "GlobalLimitExec" | "LocalLimitExec" => ("Limit".to_owned(), limit(&fields)),
        "HashJoinExec" => ("Hash join".to_owned(), join(&fields)),
        "SortMergeJoinExec" => ("Sort-merge join".to_owned(), join(&fields)),
        "NestedLoopJoinExec" => ("Nested-loop join".to_owned(), join(&fields)),
        "CrossJoinExec" => ("Cross join".to_owned(), String::new()),
        "UnnestExec" => ("Unnest".to_owned(), String::new()),
        "UnionExec" | "InterleaveExec" | "ChildrenIsolatorUnionExec" => {
            ("Union".to_owned(), String::new())
        }
        "PlaceholderRowExec" => ("One row".to_owned(), String::new()),
        "EmptyExec" => ("No rows".to_owned(), String::new()),
        "WindowAggExec" | "BoundedWindowAggExec" => ("Window".to_owned(), window(&fields)),
        other => (words(other), expression(details)),
    };
    Description { title, subject }
}

/// An operator in a few words, in one line.
pub fn title(name: &str, details: &str, table: Option<&str>) -> String {
    shortened(&describe(name, details, table).line(), WIDTH)
}

/// A table as users write it: without the schema that need not be written.
pub fn table_name(logged: &str) -> &str {
    logged.strip_prefix("main.").unwrap_or(logged)
}

fn scan(fields: &Fields<'_>, table: Option<&str>) -> Description {
    let files = fields.get("file_groups");
    let title = match table {
        Some(table) => format!("Scan {}", table_name(table)),
        None if files.is_empty() => "Scan of memory".to_owned(),
        None => match files.matches(", ").count() + files.matches("], [").count() {
            0 => format!("Scan {}", file_name(files)),
            _ => "Scan of files".to_owned(),
        },
    };
    let mut subject = expressions(fields.get("projection"));
    let predicate = expression(fields.get("predicate"));
    if !predicate.is_empty() {
        let space = if subject.is_empty() { "" } else { " " };
        subject.push_str(&format!("{space}where {predicate}"));
    }
    Description { title, subject }
}

/// `{1 group: [[a/b.parquet]]}` → `b.parquet`
fn file_name(groups: &str) -> &str {
    let path = groups.trim_end_matches([']', '}']);
    let path = path.rsplit(['/', '[']).next().unwrap_or(path);
    path.split(':').next().unwrap_or(path)
}

fn aggregate(fields: &Fields<'_>) -> (String, String) {
    let title = match fields.get("mode") {
        "Partial" => "Aggregate, partial",
        "Final" | "FinalPartitioned" => "Aggregate, final",
        _ => "Aggregate",
    };
    let values = expressions(fields.get("aggr"));
    let keys = expressions(fields.get("gby"));
    let subject = match (values.is_empty(), keys.is_empty()) {
        (_, true) => values,
        (true, false) => format!("by {keys}"),
        (false, false) => format!("{values} by {keys}"),
    };
    (title.to_owned(), subject)
}

fn exchange(fields: &Fields<'_>) -> String {
    let partitioning = fields.get("partitioning");
    let inputs = fields.get("input_partitions");
    let (kind, arguments) = partitioning.split_once('(').unwrap_or((partitioning, ""));
    let arguments = arguments.strip_suffix(')').unwrap_or(arguments);
    let (keys, outputs) = arguments.rsplit_once(", ").unwrap_or(("", arguments));
    match kind {
        "Hash" => format!("hash of {}, {inputs} → {outputs}", expressions(keys)),
        "RoundRobinBatch" => format!("round robin, {inputs} → {outputs}"),
        _ => expression(partitioning),
    }
}

/// The same of workers. Each sends to the partitions of all of them, so their numbers are not comparable.
fn exchange_between_workers(fields: &Fields<'_>) -> String {
    let partitions = exchange(fields);
    match partitions.rsplit_once(", ") {
        Some((how, _)) => how.to_owned(),
        None => partitions,
    }
}

/// How many tasks get all rows of a broadcast.
fn receivers(fields: &Fields<'_>) -> String {
    match fields.get("consumer_tasks") {
        "" => String::new(),
        tasks => format!("{tasks} tasks"),
    }
}

fn first(fields: &Fields<'_>) -> String {
    match fields.get("fetch") {
        "" => String::new(),
        fetch => format!(", first {fetch}"),
    }
}

fn limit(fields: &Fields<'_>) -> String {
    let skip = match fields.get("skip") {
        "" | "0" => String::new(),
        skip => format!(" after {skip}"),
    };
    match fields.get("fetch") {
        "" | "None" => format!("all{skip}"),
        fetch => format!("{fetch}{skip}"),
    }
}

fn join(fields: &Fields<'_>) -> String {
    let kind = match fields.get("join_type") {
        "" | "Inner" => String::new(),
        kind => format!("{} ", words(kind).to_lowercase()),
    };
    let pairs = strip(fields.get("on"), '[', ']');
    let mut conditions: Vec<String> = split(pairs)
        .into_iter()
        .map(|pair| split(strip(pair, '(', ')')).join(" = "))
        .map(|pair| expression(&pair))
        .collect();
    let filter = expression(fields.get("filter"));
    if !filter.is_empty() {
        conditions.push(filter);
    }
    match conditions.is_empty() {
        true => kind.trim_end().to_owned(),
        false => format!("{kind}on {}", conditions.join(" and ")),
    }
}

fn window(fields: &Fields<'_>) -> String {
    let functions = split(strip(fields.get("wdw"), '[', ']'));
    let functions = functions
        .into_iter()
        .filter(|item| !item.starts_with("frame: "))
        .map(|item| item.split(": Field {").next().unwrap_or(item))
        .map(|item| item.split(" ROWS BETWEEN").next().unwrap_or(item))
        .map(|item| item.split(" RANGE BETWEEN").next().unwrap_or(item))
        .map(expression);
    functions.collect::<Vec<_>>().join(", ")
}

fn number_in<'a>(details: &'a str, key: &str) -> Option<&'a str> {
    let (_, rest) = details.split_once(key)?;
    let end = rest.find(|c: char| !c.is_ascii_digit());
    Some(&rest[..end.unwrap_or(rest.len())]).filter(|number| !number.is_empty())
}

/// `HashJoinExec` → `Hash join`
fn words(name: &str) -> String {
    let name = name.strip_suffix("Exec").unwrap_or(name);
    let mut words = String::new();
    for (position, character) in name.char_indices() {
        if position > 0 && character.is_uppercase() {
            words.push(' ');
            words.extend(character.to_lowercase());
        } else {
            words.push(character);
        }
    }
    words
}

/// The `key=value` pairs of an operator's details, and what has no key.
struct Fields<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Fields<'a> {
    fn parse(details: &'a str) -> Self {
        let mut fields: Vec<(&str, &str)> = Vec::new();
        for item in split(details) {
            let key = item.split_once('=').filter(|(key, _)| {
                !key.is_empty() && key.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')
            });
            fields.push(key.unwrap_or(("", item)));
        }
        Self(fields)
    }

    fn get(&self, key: &str) -> &'a str {
        let field = self.0.iter().find(|(own, _)| *own == key);
        field.map_or("", |(_, value)| value)
    }

    /// What has no key.
    fn bare(&self) -> &'a str {
        self.get("")
    }
}

/// Splits at `, ` outside brackets and quotes.
fn split(text: &str) -> Vec<&str> {
    let mut items = Vec::new();
    let (mut depth, mut start, mut quoted) = (0_i32, 0, false);
    for (position, character) in text.char_indices() {
        match character {
            '"' => quoted = !quoted,
            '(' | '[' | '{' if !quoted => depth += 1,
            ')' | ']' | '}' if !quoted => depth -= 1,
            ',' if depth == 0 && !quoted && text[position..].starts_with(", ") => {
                items.push(text[start..position].trim());
                start = position + 1;
            }
            _ => {}
        }
    }
    items.push(text[start..].trim());
    items.retain(|item| !item.is_empty());
    items
}

fn strip(text: &str, open: char, close: char) -> &str {
    text.strip_prefix(open)
        .and_then(|rest| rest.strip_suffix(close))
        .unwrap_or(text)
}

/// A list of expressions in brackets, without aliases that repeat them.
fn expressions(list: &str) -> String {
    let items = split(strip(list, '[', ']'));
    let items = items.into_iter().map(|item| {
        let item = expression(item);
        match item.split_once(" as ") {
            Some((value, alias)) if value == alias || names_its_value(alias) => value.to_owned(),
            _ => item,
        }
    });
    items.collect::<Vec<_>>().join(", ")
}

/// Whether an alias is only the planner's text of the expression.
fn names_its_value(alias: &str) -> bool {
    alias.contains(['(', ' '])
}

/// An expression without column indices and type names: `split_part(r@0,Utf8("-"),Int64(2))` →
/// `split_part(r, '-', 2)`.
fn expression(text: &str) -> String {
    let text = without_types(&without_indices(text));
    let text = unnested(&text);
    text.replace("count(1)", "count(*)")
        .replace(" ASC NULLS LAST", "")
        .replace(" DESC NULLS FIRST", " DESC")
        .replace(" ASC", "")
}

/// `a@0` → `a`
fn without_indices(text: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('@') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        let named = before.ends_with(|c: char| c.is_alphanumeric() || "_)]\"*".contains(c));
        clean.push_str(before);
        if digits == 0 || !named {
            clean.push('@');
        }
        rest = if named { &after[digits..] } else { after };
    }
    clean + rest
}

/// `Utf8("x")` → `'x'`, `Int64(2)` → `2`
fn without_types(text: &str) -> String {
    const TYPES: [&str; 16] = [
        "LargeUtf8",
        "Utf8View",
        "Utf8",
        "UInt8",
        "UInt16",
        "UInt32",
        "UInt64",
        "Int8",
        "Int16",
        "Int32",
        "Int64",
        "Float32",
        "Float64",
        "Boolean",
        "Date32",
        "Date64",
    ];
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let starts_word = !clean.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let literal = TYPES.iter().filter(|_| starts_word).find_map(|name| {
            let value = rest.strip_prefix(name)?.strip_prefix('(')?;
            if let Some(quoted) = value.strip_prefix('"') {
                let (value, after) = quoted.split_once("\")")?;
                return Some((format!("'{value}'"), after));
            }
            let (value, after) = value.split_once(')')?;
            Some((value.to_owned(), after))
        });
        match literal {
            Some((value, after)) => {
                clean.push_str(&value);
                rest = after;
            }
            None => {
                let next = rest.chars().next().map_or(1, char::len_utf8);
                clean.push_str(&rest[..next]);
                rest = &rest[next..];
            }
        }
    }
    clean
}

/// `__unnest_placeholder(x,depth=1)` → `unnest(x)`
fn unnested(text: &str) -> String {
    let text = text.replace("__unnest_placeholder(", "unnest(");
    let mut clean = String::with_capacity(text.len());
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once(",depth=") {
        clean.push_str(before);
        rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    clean + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_described_in_the_words_of_sql() {
        for (name, details, expected) in [
            (
                "SortPreservingMergeExec",
                "[d@1 DESC], fetch=5",
                "Merge sorted: d DESC, first 5",
            ),
            (
                "SortExec(TopK)",
                "SortExec: TopK(fetch=5), expr=[d@1 DESC], preserve_partitioning=[true]",
                "Top 5: d DESC",
            ),
            (
                "SortExec",
                "expr=[key@0 ASC NULLS LAST], preserve_partitioning=[true]",
                "Sort: key",
            ),
            (
                "ProjectionExec",
                "expr=[key@0 as key, max(weather.snow)@1 - min(weather.snow)@2 as d]",
                "Projection: key, max(weather.snow) - min(weather.snow) as d",
            ),
            (
                "AggregateExec",
                "mode=FinalPartitioned, gby=[split_part(r,Utf8(\"-\"),Int64(2))@0 as \
                 split_part(r,Utf8(\"-\"),Int64(2))], aggr=[count(Int64(1))]",
                "Aggregate, final: count(*) by split_part(r,'-',2)",
            ),
            (
                "AggregateExec",
                "mode=Partial, gby=[key@0 as key], aggr=[]",
                "Aggregate, partial: by key",
            ),
            (
                "RepartitionExec",
                "partitioning=Hash([key@0], 2), input_partitions=3",
                "Exchange: hash of key, 3 → 2",
            ),
            (
                "RepartitionExec",
                "partitioning=RoundRobinBatch(2), input_partitions=1",
                "Exchange: round robin, 1 → 2",
            ),
            (
                "NetworkShuffleExec",
                "partitioning=Hash([key@0, day@1], 6), input_partitions=2",
                "Exchange between workers: hash of key, day",
            ),
            (
                "NetworkCoalesceExec",
                "from 3 tasks",
                "Gather from workers: 3 tasks",
            ),
            (
                "NetworkBroadcastExec",
                "input_partitions=2, consumer_tasks=3, output_partitions=6",
                "Broadcast to workers: 3 tasks",
            ),
            ("ChildrenIsolatorUnionExec", "", "Union"),
            (
                "FilterExec",
                "snow@1 > 3, projection=[key@0]",
                "Filter: snow > 3",
            ),
            ("FilterExec", "", "Filter"),
            (
                "TimedEvaluationExec",
                "expr=[upper(key@0) LIKE %1%]",
                "Evaluate: upper(key) LIKE %1%",
            ),
            (
                "HashJoinExec",
                "mode=CollectLeft, join_type=LeftSemi, on=[(key@0, k@1)], filter=snow@0 < s@1",
                "Hash join: left semi on key = k and snow < s",
            ),
            (
                "BoundedWindowAggExec",
                "wdw=[row_number() ORDER BY [w.key ASC NULLS LAST] RANGE BETWEEN UNBOUNDED \
                 PRECEDING AND CURRENT ROW: Field { \"row_number() x\": UInt64 }, frame: RANGE \
                 BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW], mode=[Sorted]",
                "Window: row_number() ORDER BY [w.key]",
            ),
            ("GlobalLimitExec", "skip=2, fetch=3", "Limit: 3 after 2"),
            ("SymmetricHashJoinExec", "", "Symmetric hash join"),
            (
                "DataSourceExec",
                "file_groups={1 group: [[tmp/rp/w.parquet]]}, projection=[key, snow], \
                 file_type=parquet, predicate=snow@1 > 3, required_guarantees=[]",
                "Scan w.parquet: key, snow where snow > 3",
            ),
            (
                "DataSourceExec",
                "partitions=2, partition_sizes=[2, 1]",
                "Scan of memory",
            ),
        ] {
            assert_eq!(describe(name, details, None).line(), expected);
        }
        let scan = describe("DataSourceExec", "projection=[key]", Some("main.ratings"));
        assert_eq!(scan.line(), "Scan ratings: key");
    }

    #[test]
    fn expressions_have_neither_indices_nor_type_names() {
        for (given, expected) in [
            ("a@0 + b@12", "a + b"),
            ("mail = x@ and y", "mail = x@ and y"),
            ("sum(Int64(1))", "sum(1)"),
            ("MyInt64(1)", "MyInt64(1)"),
            (
                "__unnest_placeholder(string_to_array(w.key,Utf8(\",\")),depth=1)@0",
                "unnest(string_to_array(w.key,','))",
            ),
        ] {
            assert_eq!(expression(given), expected);
        }
    }
}
