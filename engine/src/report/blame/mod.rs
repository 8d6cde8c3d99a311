//! Why records are expensive, in the columns of their table: predicates that separate them from
//! the others.
//!
//! 1. What each record of a table took is summed up, in SQL (`sql/blame_sample.sql`); the dearest
//!    records and a sample of the others are joined with the table.
//! 2. [`search`] looks for conditions about one property ([`features`]) that hold for much of the
//!    time and few of the records, and draws lines where a person would ([`readable`]).
//! 3. SQL counts exactly what they hold for, and decides which of them separate expensive records
//!    (`sql/blame_count.sql`).
//! 4. The best are kept, and the time of the query without their rows is estimated as it is for a
//!    single record ([`without`]). Whether that saves enough for a report is decided there, too.
//!
//! [`without`]: super::without
//!
//! `function` is the table function `sys.blame(query_id)`.

mod features;
mod function;
mod readable;
mod search;

use std::collections::HashSet;

use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type};

pub(crate) use function::Blame;

use super::answer::{Inquiry, rows};
use super::base_record::{identifier, literal, table_sql};
use super::details::table_name;
use super::header::Header;
use super::layout::item;
use super::units::{counted, duration, percent};
use super::without::{Records, query_without};
use crate::error::Error;
use features::Feature;
use search::{Condition, FINALISTS, Sample, Shape};

const SECTION: &str = "What tells them apart";

/// The dearest records are looked at one by one …
const DEAREST: i64 = 500;

/// … and about so many of the others.
const OTHERS: i64 = 20_000;

/// What holds for `records` of a table that took `ns` if they are separated from all of its records.
const RULE: &str = include_str!("../sql/blame_rule.sql");

/// Rows that a predicate holds for beside those of a narrower one are dear as well if they took so many
/// times an even share of the time.
const DEAR: f64 = 4.0;

/// A predicate adds nothing to a better one for fewer rows unless its rows took so many times the
/// time.
const ADDS: f64 = 1.05;

/// Predicates that are named of a query.
pub(super) const NAMED: usize = 5;

/// Predicates that a report shows.
const SHOWN: usize = 3;

/// A predicate over a table's columns and what its rows cost.
#[derive(Debug, Clone)]
pub(super) struct Blamed {
    /// As in the log.
    pub(super) table: String,
    /// SQL that stands as it is in a WHERE.
    pub(super) predicate: String,
    /// Rows of the table that fulfil it, and all rows of the table.
    pub(super) matched: i64,
    pub(super) table_rows: i64,
    /// Of the time of the table's records.
    pub(super) time_share: f64,
    /// About what the query would take without them.
    pub(super) without_ns: Option<i64>,
    /// Whether that is so much less that a report shows the predicate.
    saves_much: bool,
    /// The statement that runs the query without them; `None` if the query is not to be run again.
    pub(super) verify: Option<String>,
    shape: Shape,
}

impl Blamed {
    /// Rows of all rows of the table.
    pub(super) fn row_share(&self) -> f64 {
        self.matched as f64 / self.table_rows.max(1) as f64
    }

    /// Time for the rows beside the share that they would have if all cost alike.
    fn excess(&self) -> f64 {
        self.time_share - self.row_share()
    }

    /// Whether it holds for rows that are half of a narrower one's time or more, and for others that take
    /// about what any row does. (What two have beyond all of the time between them is of rows that they
    /// share.)
    fn only_widens(&self, narrower: &Self) -> bool {
        let rows = self.row_share() - narrower.row_share();
        let shared = self.time_share + narrower.time_share - 1.0;
        self.table == narrower.table
            && rows > 0.0
            && shared >= narrower.time_share / 2.0
            && self.time_share - narrower.time_share < DEAR * rows
    }

    /// By what the report and `sys.blame` put the best first: share of time that is out of
    /// proportion, in steps of 2 %; how telling; how short.
    fn rank(&self) -> (i64, Shape, i64, usize) {
        let excess = (self.excess() * 50.0).round() as i64;
        (-excess, self.shape, self.matched, self.predicate.len())
    }

    /// The finding in one sentence.
    pub(super) fn sentence(&self, header: &Header) -> String {
        let mut sentence = format!(
            "{}: {} of {} of {} ({}), {} of the time",
            self.predicate,
            counted(self.matched, "row"),
            super::units::count(self.table_rows),
            table_name(&self.table),
            percent(self.row_share()),
            percent(self.time_share)
        );
        if let Some(without) = self.without_ns {
            sentence.push_str(&format!(
                "; without {} the query takes about {} instead of {}",
                if self.matched == 1 { "it" } else { "them" },
                duration(without),
                duration(header.query_ns())
            ));
        }
        sentence.push('.');
        sentence
    }
}

/// The predicates that separate a query's expensive records, best first.
#[derive(Debug, Clone, Default)]
pub(super) struct Predicates {
    pub(super) blamed: Vec<Blamed>,
}

impl Predicates {
    /// Looks for them in the tables of which much was measured, and keeps those that are worth
    /// showing in a report.
    ///
    /// # Errors
    /// If schema `sys` cannot be read. A table that cannot be read is passed over.
    pub(super) async fn worth_showing(
        inquiry: &mut Inquiry<'_>,
        header: &Header,
    ) -> Result<Self, Error> {
        let tables = measured_tables(inquiry, header).await?;
        let mut found = find(inquiry, header, &tables, Measured::is_much, SHOWN).await?;
        found.retain(|blamed| blamed.saves_much);
        // Other words for the same rows are `sys.blame`'s to tell.
        let mut said = HashSet::new();
        found.retain(|blamed| {
            let time = blamed.time_share.to_bits();
            said.insert((blamed.table.clone(), blamed.matched, time))
        });
        Ok(Self {
            blamed: without_wider(found),
        })
    }

    /// The section as text; nothing if there is nothing to say.
    pub(super) fn lines(&self, header: &Header) -> Vec<String> {
        if self.blamed.is_empty() {
            return Vec::new();
        }
        let mut lines = vec![SECTION.to_owned()];
        for blamed in &self.blamed {
            lines.extend(item("◆", &blamed.sentence(header)));
        }
        lines
    }
}

/// Those that say more than a narrower one.
fn without_wider(found: Vec<Blamed>) -> Vec<Blamed> {
    let is_wider = |one: &Blamed| found.iter().any(|other| one.only_widens(other));
    let says_more: Vec<bool> = found.iter().map(|one| !is_wider(one)).collect();
    let found = found.into_iter().zip(says_more);
    found
        .filter_map(|(one, says)| says.then_some(one))
        .collect()
}

/// The predicates of a query that separate its expensive records, at most so many, best first:
/// over those of its [`measured_tables`] that `looks_at` chooses, and that are still the same.
async fn find(
    inquiry: &mut Inquiry<'_>,
    header: &Header,
    tables: &[Measured],
    looks_at: fn(&Measured) -> bool,
    at_most: usize,
) -> Result<Vec<Blamed>, Error> {
    let mut found = Vec::new();
    for table in tables {
        if looks_at(table) && table.records > 1 && !header.is_replaced(&table.name) {
            found.extend(of_table(inquiry, header, table).await?);
        }
    }
    found.sort_by_key(Blamed::rank);
    let mut kept = without_repetitions(found);
    kept.truncate(at_most);
    if kept.is_empty() {
        return Ok(kept);
    }
    let several = tables.len() > 1 || scanned_tables(inquiry, header).await? > 1;
    for blamed in &mut kept {
        let records = Records::Where(&blamed.predicate);
        let without = query_without(inquiry, SECTION, header, &blamed.table, records).await?;
        blamed.without_ns = without.map(|without| without.ns);
        blamed.saves_much = without.is_some_and(|without| without.saves_much);
        if header.is_query() {
            let table = match several {
                true => format!("{} ", table_sql(&blamed.table)),
                false => String::new(),
            };
            blamed.verify = Some(format!(
                "EXPLAIN PROFILE QUERY {} WITHOUT {table}({});",
                header.query_id, blamed.predicate
            ));
        }
    }
    Ok(kept)
}

/// What was measured of a table's records.
struct Measured {
    /// As in the log.
    name: String,
    records: i64,
    total_ns: i64,
    is_much: bool,
}

impl Measured {
    /// Whether a report looks for predicates over the table.
    fn is_much(&self) -> bool {
        self.is_much
    }

    /// So many nanoseconds of the time of all.
    fn share(&self, ns: i64) -> f64 {
        ns as f64 / self.total_ns.max(1) as f64
    }
}

/// The tables of whose records time was measured, those of much time first; none of a query that
/// has no log of records, or whose tables are elsewhere.
async fn measured_tables(
    inquiry: &mut Inquiry<'_>,
    header: &Header,
) -> Result<Vec<Measured>, Error> {
    if !header.has_log() || header.imported_from.is_some() {
        return Ok(Vec::new());
    }
    let sql =
        include_str!("../sql/blamed_tables.sql").replace("$query_id", &header.query_id.to_string());
    let answer = inquiry.ask(SECTION, sql).await?;
    let tables = rows(&answer).filter_map(|row| {
        Some(Measured {
            name: row.text("table_name")?,
            records: row.sum("records"),
            total_ns: row.sum("total_ns"),
            is_much: row.flag("is_much"),
        })
    });
    Ok(tables.collect())
}

/// The first of the [`measured_tables`] that is not there any more.
async fn unreadable<'a>(inquiry: &mut Inquiry<'_>, tables: &'a [Measured]) -> Option<&'a str> {
    for table in tables {
        let sql = format!("SELECT * FROM {} LIMIT 0", table_sql(&table.name));
        if inquiry.ask_if_possible(SECTION, sql).await.is_none() {
            return Some(&table.name);
        }
    }
    None
}

/// Records that stand out, and whose rows are no longer in their table.
struct Gone<'a> {
    /// As in the log.
    table: &'a str,
    records: i64,
    /// Of the time of the table's records.
    time_share: f64,
}

/// Those of the first of the [`measured_tables`] that has such records, which took much of all that
/// was measured.
async fn gone<'a>(
    inquiry: &mut Inquiry<'_>,
    header: &Header,
    tables: &'a [Measured],
) -> Result<Option<Gone<'a>>, Error> {
    let all_ns: i64 = tables.iter().map(|table| table.total_ns).sum();
    for table in tables {
        if header.is_replaced(&table.name) {
            continue;
        }
        let sql = include_str!("../sql/blame_gone.sql")
            .replace("$query_id", &header.query_id.to_string())
            .replace("$table_name", &literal(&table.name))
            .replace("$table", &table_sql(&table.name))
            .replace("$measured_ns", &all_ns.to_string())
            .replace("$rule", RULE.trim_end());
        let Some(answer) = inquiry.ask_if_possible(SECTION, sql).await else {
            continue;
        };
        if let Some(row) = rows(&answer).next() {
            return Ok(Some(Gone {
                table: &table.name,
                records: row.sum("records"),
                time_share: table.share(row.sum("ns")),
            }));
        }
    }
    Ok(None)
}

async fn scanned_tables(inquiry: &mut Inquiry<'_>, header: &Header) -> Result<usize, Error> {
    let sql = include_str!("../sql/scanned_tables.sql")
        .replace("$query_id", &header.query_id.to_string());
    let answer = inquiry.ask(SECTION, sql).await?;
    let mut tables: Vec<_> = rows(&answer)
        .filter_map(|row| row.text("table_name"))
        .collect();
    tables.sort();
    tables.dedup();
    Ok(tables.len())
}

/// Of predicates, best first, those that say something that none before them says: of each column
/// one, and none whose rows are more but took no more time. Other words for the very same rows
/// stay.
fn without_repetitions(found: Vec<Blamed>) -> Vec<Blamed> {
    let mut kept: Vec<(Blamed, String)> = Vec::new();
    for blamed in found {
        let column = column_of(&blamed.predicate);
        let repeats = kept.iter().any(|(better, of)| {
            let same_table = better.table == blamed.table;
            let same_rows = better.matched == blamed.matched;
            let adds = blamed.time_share > better.time_share * ADDS || same_rows;
            same_table && (*of == column || (better.matched <= blamed.matched && !adds))
        });
        if !repeats {
            kept.push((blamed, column));
        }
    }
    kept.into_iter().map(|(blamed, _)| blamed).collect()
}

/// What a predicate is about: the text before its operator, without a function.
fn column_of(predicate: &str) -> String {
    let subject = predicate.split([' ', '=']).next().unwrap_or(predicate);
    match subject.split_once('(') {
        Some((_, rest)) => rest.trim_end_matches(')').to_owned(),
        None => subject.to_owned(),
    }
}

/// The predicates over one table, counted exactly; those that are not worth naming are left out.
async fn of_table(
    inquiry: &mut Inquiry<'_>,
    header: &Header,
    table: &Measured,
) -> Result<Vec<Blamed>, Error> {
    let from = table_sql(&table.name);
    let one = format!("SELECT * FROM {from} LIMIT 1");
    let Some(one) = inquiry.ask_if_possible(SECTION, one).await else {
        return Ok(Vec::new());
    };
    let Some(schema) = one
        .iter()
        .find(|batch| batch.num_rows() > 0)
        .map(RecordBatch::schema)
    else {
        return Ok(Vec::new());
    };
    let features = Feature::of(&schema);
    let about = |sql: &str| {
        sql.replace("$query_id", &header.query_id.to_string())
            .replace("$table_name", &literal(&table.name))
            .replace("$table", &from)
    };
    let conditions = conditions(inquiry, &about, &features, table.records).await?;
    if conditions.is_empty() {
        return Ok(Vec::new());
    }
    count(inquiry, &about, table, conditions).await
}

/// Conditions that look good in a sample, best first.
async fn conditions(
    inquiry: &mut Inquiry<'_>,
    about: &(dyn Fn(&str) -> String + Sync),
    features: &[Feature],
    records: i64,
) -> Result<Vec<Condition>, Error> {
    let stride = (records / OTHERS).max(1);
    let named = features.iter().enumerate();
    let named: Vec<String> = named
        .map(|(index, feature)| format!("{} AS f{index}", feature.sql()))
        .collect();
    let sql = about(include_str!("../sql/blame_sample.sql"))
        .replace("$dearest", &DEAREST.to_string())
        .replace("$stride", &stride.to_string())
        .replace("$features", &named.join(",\n  "));
    let Some(answer) = inquiry.ask_if_possible(SECTION, sql).await else {
        return Ok(Vec::new());
    };
    let sample = sample(&answer, records)?;
    let mut found: Vec<Condition> = Vec::new();
    for (index, feature) in features.iter().enumerate() {
        let values = feature.values(&answer, index)?;
        found.extend(search::conditions(feature, &values, &sample));
    }
    found.sort_by(|a, b| b.excess.total_cmp(&a.excess));
    found.dedup_by(|a, b| a.predicate == b.predicate);
    found.truncate(FINALISTS);
    Ok(found)
}

/// What the records of the sample took, and for how many each of them stands.
fn sample(answer: &[RecordBatch], records: i64) -> Result<Sample, Error> {
    let mut sample = Sample::default();
    let mut dear = Vec::new();
    for batch in answer {
        let ns = cast(batch.column(0), &DataType::Float64)?;
        let ns = ns.as_primitive::<Float64Type>().iter();
        sample.ns.extend(ns.map(|ns| ns.unwrap_or(0.0)));
        let is_dear = batch.column(1).as_boolean().iter();
        dear.extend(is_dear.map(|is| is == Some(true)));
    }
    let dearest = dear.iter().filter(|is| **is).count() as f64;
    let others = dear.len() as f64 - dearest;
    let weight = ((records as f64 - dearest) / others.max(1.0)).max(1.0);
    let weights = dear.iter().map(|is| if *is { 1.0 } else { weight });
    sample.weight.extend(weights);
    Ok(sample)
}

/// Counts what the conditions hold for in the whole table, and keeps those that separate expensive
/// records.
async fn count(
    inquiry: &mut Inquiry<'_>,
    about: &(dyn Fn(&str) -> String + Sync),
    table: &Measured,
    conditions: Vec<Condition>,
) -> Result<Vec<Blamed>, Error> {
    let counts = conditions.iter().enumerate().map(|(index, condition)| {
        let predicate = condition.qualified();
        format!(
            "count(*) FILTER (WHERE {predicate}) AS rows_{index},\n    \
             count(spent.row_id) FILTER (WHERE {predicate}) AS records_{index},\n    \
             CAST(sum(spent.self_ns) FILTER (WHERE {predicate}) AS BIGINT) AS ns_{index}"
        )
    });
    let counts = counts.collect::<Vec<_>>().join(",\n    ");
    let each = |prefix: &str| {
        let each = (0..conditions.len()).map(|index| format!("{prefix}{index}"));
        each.collect::<Vec<_>>().join(", ")
    };
    let sql = about(include_str!("../sql/blame_count.sql"))
        .replace("$numbers", &each(""))
        .replace("$rows", &each("rows_"))
        .replace("$records", &each("records_"))
        .replace("$times", &each("ns_"))
        .replace("$all_records", &table.records.to_string())
        .replace("$all_ns", &table.total_ns.to_string())
        .replace("$rule", RULE.trim_end())
        .replace("$counts", &counts);
    let Some(answer) = inquiry.ask_if_possible(SECTION, sql).await else {
        return Ok(Vec::new());
    };
    let found = rows(&answer).filter_map(|row| {
        let number = usize::try_from(row.integer("number")?).ok()?;
        let condition = conditions.get(number)?;
        let matched = row.sum("matched_rows");
        Some(Blamed {
            table: table.name.clone(),
            shape: if condition.is_equality && matched == 1 {
                Shape::Single
            } else {
                condition.shape
            },
            predicate: condition.predicate.clone(),
            matched,
            table_rows: row.sum("table_rows"),
            time_share: table.share(row.sum("ns")),
            without_ns: None,
            saves_much: false,
            verify: None,
        })
    });
    Ok(found.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blamed(predicate: &str, matched: i64, time_share: f64) -> Blamed {
        Blamed {
            table: "main.t".to_owned(),
            predicate: predicate.to_owned(),
            matched,
            table_rows: 1000,
            time_share,
            without_ns: None,
            saves_much: false,
            verify: None,
            shape: Shape::Natural,
        }
    }

    #[test]
    fn what_holds_for_a_dear_record_and_for_ordinary_ones_is_left_out() {
        let left = |found: &[Blamed]| {
            let left = without_wider(found.to_vec()).into_iter();
            left.map(|blamed| blamed.predicate).collect::<Vec<_>>()
        };
        let long = blamed("length(s) > 1000000", 1, 0.8);
        let of_its_kind = blamed("k = 5", 400, 0.9);
        assert_eq!(
            left(&[long.clone(), of_its_kind.clone()]),
            [&*long.predicate]
        );
        assert_eq!(left(&[of_its_kind, long.clone()]), [&*long.predicate]);
        // Others of its kind are dear, too.
        let kind = blamed("k = 5", 40, 0.98);
        assert_eq!(left(&[kind, long.clone()]).len(), 2);
        // They need not be the same rows.
        let others = blamed("id < 300", 300, 0.15);
        assert_eq!(left(&[long.clone(), others]).len(), 2);
        // Nor most of them.
        let (some, more) = (blamed("k = 1", 100, 0.5), blamed("k < 3", 200, 0.55));
        assert_eq!(left(&[more, some]).len(), 2);
        let elsewhere = Blamed {
            table: "main.u".to_owned(),
            ..blamed("k = 5", 400, 0.9)
        };
        assert_eq!(left(&[long, elsewhere]).len(), 2);
    }
}
