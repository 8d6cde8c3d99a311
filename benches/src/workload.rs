//! The queries whose slow-down is measured.

use tpchgen::q_and_a::queries;

use crate::data::{self, Batches};
use crate::error::BenchError;

/// A query and the tables that it reads.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    /// How results call it.
    pub name: &'static str,
    /// The database that it runs on.
    pub corpus: CorpusName,
    /// What it reads.
    pub tables: &'static [&'static str],
    query: Query,
}

#[derive(Debug, Clone, Copy)]
enum Query {
    Text(&'static str),
    /// A query of TPC-H, of one statement.
    Tpch {
        number: i32,
        limit: &'static str,
    },
}

/// The generated databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CorpusName {
    /// One table, `movies(line)`: 2,103 lines, 98 MB.
    Movies,
    /// One table, `students(student, grade, age)`: 5 M rows.
    Students,
    /// One table, `weather(reading, zip, date, snowfall)`: 2.1 M rows.
    Weather,
    /// TPC-H at scale factor 1.
    Tpch,
}

impl CorpusName {
    /// Name of its directory.
    pub fn directory(self) -> &'static str {
        match self {
            Self::Movies => "movies",
            Self::Students => "students",
            Self::Weather => "weather",
            Self::Tpch => "tpch-sf1",
        }
    }

    /// Its tables' rows.
    pub fn generate(self) -> Vec<(&'static str, Batches)> {
        match self {
            Self::Movies => vec![("movies", data::movies(2_103))],
            Self::Students => vec![("students", data::students(5_000_000))],
            Self::Weather => vec![("weather", data::weather(2_100_000))],
            Self::Tpch => data::tpch(1.0),
        }
    }
}

impl Workload {
    /// The query.
    pub fn sql(&self) -> Result<String, BenchError> {
        match self.query {
            Query::Text(sql) => Ok(sql.to_owned()),
            Query::Tpch { number, limit } => {
                let statements = tpch_query(number)?;
                Ok(format!("{}{limit}", statements.join(";")))
            }
        }
    }
}

/// What the specification's validation puts into the templates of TPC-H's queries.
const TPCH_VALUES: [&[&str]; 22] = [
    &["90"],
    &["15", "BRASS", "EUROPE"],
    &["BUILDING", "1995-03-15"],
    &["1993-07-01"],
    &["ASIA", "1994-01-01"],
    &["1994-01-01", "0.06", "24"],
    &["FRANCE", "GERMANY"],
    &["BRAZIL", "AMERICA", "ECONOMY ANODIZED STEEL"],
    &["green"],
    &["1993-10-01"],
    &["GERMANY", "0.0001"],
    &["MAIL", "SHIP", "1994-01-01"],
    &["special", "requests"],
    &["1995-09-01"],
    &["1996-01-01"],
    &[
        "Brand#45",
        "MEDIUM POLISHED",
        "49",
        "14",
        "23",
        "45",
        "19",
        "3",
        "36",
        "9",
    ],
    &["Brand#23", "MED BOX"],
    &["300"],
    &["Brand#12", "Brand#23", "Brand#34", "1", "10", "20"],
    &["forest", "1994-01-01", "CANADA"],
    &["SAUDI ARABIA"],
    &["13", "31", "23", "29", "30", "18", "17"],
];

/// The statements of a query of TPC-H, of which one gives rows: query 15 makes a view before it
/// and drops it after it.
pub fn tpch_query(number: i32) -> Result<Vec<String>, BenchError> {
    let values = usize::try_from(number - 1).ok();
    let values = values.and_then(|place| TPCH_VALUES.get(place));
    let (Some(values), Some(sql)) = (values, queries::query(number)) else {
        return Err(BenchError::Unexpected(format!(
            "TPC-H has no query {number}"
        )));
    };
    // The view's name ends with the number of a stream.
    let mut sql = sql
        .replace(" day (3)", " day")
        .replace("revenue:s", "revenue0");
    for (position, value) in values.iter().enumerate().rev() {
        sql = sql.replace(&format!(":{}", position + 1), value);
    }
    let statements = sql.split(';').map(str::trim);
    Ok(statements
        .filter(|statement| !statement.is_empty())
        .map(str::to_owned)
        .collect())
}

/// Everything that is measured: the three applications of the PerfDebug paper and four queries of
/// TPC-H.
pub const WORKLOADS: [Workload; 8] = [
    Workload {
        name: "movies: ratings per star",
        corpus: CorpusName::Movies,
        tables: &["movies"],
        query: Query::Text(
            "SELECT split_part(rating, '_', 2) AS stars, count(*) AS ratings FROM \
             (SELECT unnest(string_to_array(split_part(line, ':', 2), ',')) AS rating FROM movies) \
             GROUP BY stars",
        ),
    },
    Workload {
        name: "students: average age per grade",
        corpus: CorpusName::Students,
        tables: &["students"],
        query: Query::Text("SELECT grade, avg(age) AS age FROM students GROUP BY grade"),
    },
    Workload {
        name: "weather: max − min per state and day",
        corpus: CorpusName::Weather,
        tables: &["weather"],
        query: Query::Text(
            "SELECT left(zip, 2) AS state, left(date, 5) AS day, \
             max(snowfall) - min(snowfall) AS delta FROM weather GROUP BY state, day",
        ),
    },
    Workload {
        name: "weather: max − min per state and day, and per state and year",
        corpus: CorpusName::Weather,
        tables: &["weather"],
        query: Query::Text(
            "SELECT state, period, max(snowfall) - min(snowfall) AS delta FROM \
             (SELECT left(zip, 2) AS state, snowfall, \
             unnest(make_array(left(date, 5), right(date, 4))) AS period FROM weather) \
             GROUP BY state, period",
        ),
    },
    Workload {
        name: "TPC-H Q1",
        corpus: CorpusName::Tpch,
        tables: &["lineitem"],
        query: Query::Tpch {
            number: 1,
            limit: "",
        },
    },
    Workload {
        name: "TPC-H Q3",
        corpus: CorpusName::Tpch,
        tables: &["customer", "orders", "lineitem"],
        query: Query::Tpch {
            number: 3,
            limit: " LIMIT 10",
        },
    },
    Workload {
        name: "TPC-H Q9",
        corpus: CorpusName::Tpch,
        tables: &[
            "part", "supplier", "lineitem", "partsupp", "orders", "nation",
        ],
        query: Query::Tpch {
            number: 9,
            limit: "",
        },
    },
    Workload {
        name: "TPC-H Q18",
        corpus: CorpusName::Tpch,
        tables: &["customer", "orders", "lineitem"],
        query: Query::Tpch {
            number: 18,
            limit: " LIMIT 100",
        },
    },
];
