//! `SET`, `SHOW` and `RESET`: what can be set, and to what.

use std::time::Duration;

use datafusion::arrow::array::timezone::Tz;
use datafusion::common::config::ConfigOptions;
use skewer_compat::functions::zones;
use skewer_compat::suggest::suggest;
use skewer_optimizer::join_order::JoinOrder;
use skewer_profiling::{Level, LineageMode, Retention};
use skewer_sql::TraceParent;

use crate::catalog::quarantine::RowsSeen;
use crate::error::Error;
use crate::remedies::RemedyMode;

/// What a session records of its queries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ProfileSettings {
    /// How much is recorded (`profile.level`).
    pub level: Level,
    /// How level `records` keeps what it learns (`profile.lineage`).
    pub lineage: LineageMode,
    /// The share of base records that are traced, in (0, 1] (`profile.sample_rate`).
    pub sample_rate: f64,
    /// The share of a query's time that recording may take, in (0, 1] (`profile.budget`): then it
    /// decides how much is recorded of queries, unless the level is `off`.
    pub budget: Option<f64>,
    /// Bytes of records' log that a query keeps in memory, on each worker (`profile.memory_bytes`):
    /// what is more is written while it runs.
    pub spill_bytes: usize,
    /// Whether reports have a second column with the styles of their lines
    /// (`profile.report_styles`).
    pub report_styles: bool,
}

impl Default for ProfileSettings {
    /// Totals per operator, of every record.
    fn default() -> Self {
        Self {
            level: Level::Counters,
            lineage: LineageMode::Log,
            sample_rate: 1.0,
            budget: None,
            spill_bytes: 64 << 20,
            report_styles: false,
        }
    }
}

/// The value of a setting that is on or off.
pub(crate) fn parse_switch(name: &str, value: &str) -> Result<bool, Error> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "on" | "1" => Ok(true),
        "false" | "off" | "0" => Ok(false),
        _ => Err(Error::Invalid(format!(
            "{name} is true or false, not '{value}'"
        ))),
    }
}

/// What operators of all queries may hold in memory.
pub(crate) const MEMORY_LIMIT: &str = "memory_limit";

/// What decoded columns may take in memory.
pub(crate) const CACHE_SIZE: &str = "cache_size";

/// What temporary files of all queries may take.
pub(crate) const MAX_TEMP_DIRECTORY_SIZE: &str = "max_temp_directory_size";

/// Where operators spill to.
const TEMP_DIRECTORY: &str = "datafusion.runtime.temp_directory";

/// How many statements run queries at once.
pub(crate) const MAX_RUNNING_QUERIES: &str = "max_running_queries";

/// After how long a query fails that does not go on.
pub(crate) const STALL_TIMEOUT: &str = "stall_timeout";

/// An operator that is at work is called far more often, however slow it is.
pub(crate) const DEFAULT_STALL_TIMEOUT: Duration = Duration::from_secs(300);

/// Whether queries leave out the rows of quarantines.
pub(crate) const QUARANTINE: &str = "quarantine";

/// How joins are put in order.
pub(crate) const JOIN_ORDER: &str = "join_order";

/// Whether estimates heed rows that earlier queries counted.
pub(crate) const CARDINALITY_FEEDBACK: &str = "cardinality_feedback";

/// Whether plans of queries are kept for their next runs.
pub(crate) const PLAN_CACHE: &str = "plan_cache";

/// What is done about skew that earlier runs have shown.
pub(crate) const REMEDIES: &str = "remedies";

/// What the seed of a random order follows.
const RANDOM: &str = "random ";

/// The caller's span of a session's statements.
pub(crate) const TRACE_PARENT: &str = "trace.parent";

/// What replaced segments may take that queries saw.
pub(crate) const SNAPSHOT_BYTES: &str = "profile.snapshot_bytes";

/// No budget, and no span.
const NONE: &str = "none";

/// No limit.
pub(crate) const UNLIMITED: &str = "unlimited";

/// Where DataFusion keeps what belongs to the whole database.
pub(crate) const RUNTIME: &str = "datafusion.runtime.";

/// Our settings and what they are about; DataFusion's are beside them.
pub(crate) const OWN_SETTINGS: [(&str, &str); 20] = [
    (
        CACHE_SIZE,
        "Bytes of decoded columns that are kept in memory for later queries, as '2 GB', or 0 for none; a \
         quarter of the memory limit, or of the machine's memory, by default; of the whole database",
    ),
    (
        CARDINALITY_FEEDBACK,
        "Whether plans heed how many rows joins, filters and groups returned in earlier queries: on or off",
    ),
    (
        JOIN_ORDER,
        "Order in which tables are joined: cost, the cheapest by statistics; text, as written; or \
         random n, another one for each number n",
    ),
    (
        MAX_RUNNING_QUERIES,
        "How many statements run queries at once, or unlimited: the others wait for their turn; of \
         the whole database",
    ),
    (
        MAX_TEMP_DIRECTORY_SIZE,
        "Bytes of temporary files that all queries may have together, as '50 GB'; of the whole \
         database",
    ),
    (
        MEMORY_LIMIT,
        "Bytes that operators of all queries may hold together, as '2 GB', or unlimited; of the \
         whole database",
    ),
    (
        PLAN_CACHE,
        "Whether a query that has come before takes the plan of its last run, if that has not changed: on or off",
    ),
    (
        "profile.budget",
        "Share of a query's time that profiling may take, as '5%', which then picks level and \
         sample rate of each query by itself; or none",
    ),
    (
        "profile.level",
        "How much is recorded of each query: off, counters, calls or records",
    ),
    (
        "profile.lineage",
        "How level records keeps what it learns: log, every edge of lineage and every latency; or \
         piggyback, only the most impactful sources of result rows",
    ),
    (
        "profile.memory_bytes",
        "Bytes of the log of records that a query keeps in memory, on each worker, as '64 MB': what is \
         more is written while it runs",
    ),
    (
        "profile.report_styles",
        "Whether reports have a second column, styles, from which a terminal colours their lines",
    ),
    (
        "profile.retention_age",
        "Age after which schema sys forgets a query, as '7 days'; of the whole database",
    ),
    (
        "profile.retention_bytes",
        "Bytes that schema sys may take, as '1 GB'; of the whole database",
    ),
    (
        "profile.sample_rate",
        "Share of base records that level records traces, above 0 and at most 1",
    ),
    (
        SNAPSHOT_BYTES,
        "Bytes of replaced rows that are kept, as '1 GB', so that EXPLAIN PROFILE QUERY runs on what \
         the query saw; of the whole database",
    ),
    (
        QUARANTINE,
        "Whether queries leave out the rows of quarantines: on or off",
    ),
    (
        REMEDIES,
        "What is done about skew that earlier runs of a statement have shown: off, nothing; advise, reports say \
         what would help; auto, later runs do it as long as it saves time; or random n, later runs do anything \
         that does not change the result, for tests",
    ),
    (
        STALL_TIMEOUT,
        "Time after which a query fails if none of its operators makes progress, as '5 minutes'; 0 for never",
    ),
    (
        TRACE_PARENT,
        "The caller's span that statements belong to, as a W3C traceparent; or none",
    ),
];

/// DataFusion's settings that would take the ground from under the engine.
const FIXED: [(&str, &str); 5] = [
    ("datafusion.catalog.create_default_catalog_and_schema", ""),
    ("datafusion.catalog.default_catalog", ""),
    ("datafusion.catalog.information_schema", ""),
    (
        "datafusion.sql_parser.dialect",
        "statements are parsed before settings apply",
    ),
    (
        "datafusion.sql_parser.enable_ident_normalization",
        "names are lower-case unless quoted",
    ),
];

/// The canonical name of a setting: aliases are replaced.
pub(crate) fn canonical(name: &str) -> &str {
    match name {
        "timezone" | "time.zone" => "datafusion.execution.time_zone",
        "search_path" | "schema" => "datafusion.catalog.default_schema",
        "max_memory" | "datafusion.runtime.memory_limit" => MEMORY_LIMIT,
        "datafusion.runtime.max_temp_directory_size" => MAX_TEMP_DIRECTORY_SIZE,
        "temp_directory" => TEMP_DIRECTORY,
        "threads" => "datafusion.execution.target_partitions",
        other => other,
    }
}

/// `name` is not a setting: says which are near.
pub(crate) fn unknown(name: &str, options: &ConfigOptions) -> Error {
    let entries = options.entries();
    let known = OWN_SETTINGS
        .iter()
        .map(|(name, _)| *name)
        .chain(entries.iter().map(|entry| entry.key.as_str()));
    // People drop the prefix: then it is none of those that are only spelled alike.
    let without_prefix = |known: &str| known.rsplit('.').next() == Some(name);
    let is_end = known.clone().any(without_prefix);
    let near = known.clone();
    let near = near.filter(|known| !is_end || known.contains(name));
    let mut suggestions = suggest(name, near);
    if suggestions.is_empty() {
        let last = name.rsplit('.').next().unwrap_or(name);
        let ends = known.filter(|k| k.rsplit('.').next() == Some(last));
        suggestions = ends.map(str::to_owned).take(3).collect();
    }
    Error::UnknownSetting {
        name: name.to_owned(),
        suggestions,
    }
}

/// Options of DataFusion's that memory and tasks are made by, and how large they may be.
const MOST: [(&str, u128); 2] = [
    ("datafusion.execution.batch_size", 1 << 20),
    ("datafusion.execution.target_partitions", 4096),
];

/// Sets one of DataFusion's options.
pub(crate) fn set_option(
    options: &mut ConfigOptions,
    name: &str,
    value: &str,
) -> Result<(), Error> {
    let Some(entry) = options.entries().into_iter().find(|e| e.key == name) else {
        if name.starts_with(RUNTIME) {
            let expected = match name {
                TEMP_DIRECTORY => {
                    "the directory of temporary files is set when the database is opened, as by \
                     the shell's --temp-directory"
                }
                _ => "it is fixed",
            };
            return Err(Error::InvalidValue {
                name: name.to_owned(),
                value: value.to_owned(),
                expected: expected.to_owned(),
            });
        }
        return Err(unknown(name, options));
    };
    if let Some((_, why)) = FIXED.iter().find(|(fixed, _)| *fixed == name) {
        return Err(Error::InvalidValue {
            name: name.to_owned(),
            value: value.to_owned(),
            expected: if why.is_empty() {
                "it is fixed".to_owned()
            } else {
                (*why).to_owned()
            },
        });
    }
    if name == "datafusion.execution.time_zone" && value.parse::<Tz>().is_err() {
        return Err(Error::InvalidValue {
            name: name.to_owned(),
            value: value.to_owned(),
            expected: "it is a time zone, as 'Europe/Oslo', 'UTC' or '+02:00'".to_owned(),
        });
    }
    if let Some((_, most)) = MOST.iter().find(|(limited, _)| *limited == name)
        && value.trim().parse().is_ok_and(|value: u128| value > *most)
    {
        return Err(Error::InvalidValue {
            name: name.to_owned(),
            value: value.to_owned(),
            expected: format!("it is at most {most}"),
        });
    }
    options.set(name, value).map_err(|_| Error::InvalidValue {
        name: name.to_owned(),
        value: value.to_owned(),
        expected: format!(
            "it is {} ({})",
            entry.value.as_deref().unwrap_or("not set"),
            entry.description.lines().next().unwrap_or_default().trim()
        ),
    })
}

/// A value as it is kept: zones have one spelling, and `DEFAULT` and `LOCAL` are UTC.
pub(crate) fn spelled(name: &str, value: &str) -> String {
    if name != "datafusion.execution.time_zone" {
        return value.to_owned();
    }
    if value.eq_ignore_ascii_case("default") || value.eq_ignore_ascii_case("local") {
        return zones::UTC.to_owned();
    }
    zones::canonical(value).unwrap_or_else(|| value.to_owned())
}

/// A level's name.
pub(crate) fn parse_level(name: &str, value: &str) -> Result<Level, Error> {
    value
        .to_lowercase()
        .parse()
        .map_err(|_| Error::InvalidValue {
            name: name.to_owned(),
            value: value.to_owned(),
            expected: format!("it is one of {}", Level::ALL.map(Level::name).join(", ")),
        })
}

/// A mode's name.
pub(crate) fn parse_lineage_mode(name: &str, value: &str) -> Result<LineageMode, Error> {
    value.parse().map_err(|_| Error::InvalidValue {
        name: name.to_owned(),
        value: value.to_owned(),
        expected: format!(
            "it is one of {}",
            LineageMode::ALL.map(LineageMode::name).join(", ")
        ),
    })
}

/// A share above 0 and at most 1.
pub(crate) fn parse_sample_rate(name: &str, value: &str) -> Result<f64, Error> {
    match value.parse::<f64>() {
        Ok(rate) if rate > 0.0 && rate <= 1.0 => Ok(rate),
        _ => Err(Error::InvalidValue {
            name: name.to_owned(),
            value: value.to_owned(),
            expected: "it is a share above 0 and at most 1".to_owned(),
        }),
    }
}

/// A number above 0; `None` is `unlimited`.
pub(crate) fn parse_running_queries(value: &str) -> Result<Option<usize>, Error> {
    if value.trim().eq_ignore_ascii_case(UNLIMITED) {
        return Ok(None);
    }
    match value.trim().parse() {
        Ok(queries) if queries > 0 => Ok(Some(queries)),
        _ => Err(Error::InvalidValue {
            name: MAX_RUNNING_QUERIES.to_owned(),
            value: value.to_owned(),
            expected: "it is a number above 0, or unlimited".to_owned(),
        }),
    }
}

/// A share of time above 0 and at most 1, as `5%` or `0.05`; `None` is `none`.
pub(crate) fn parse_budget(name: &str, value: &str) -> Result<Option<f64>, Error> {
    let text = value.trim().to_lowercase();
    if text == NONE {
        return Ok(None);
    }
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.trim().parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse::<f64>(),
    };
    match share {
        Ok(share) if share > 0.0 && share <= 1.0 => Ok(Some(share)),
        _ => Err(Error::InvalidValue {
            name: name.to_owned(),
            value: value.to_owned(),
            expected: "it is a share of the time above 0 and at most 1, as '5%' or 0.05, or none"
                .to_owned(),
        }),
    }
}

/// How SHOW writes a budget.
pub(crate) fn show_budget(budget: Option<f64>) -> String {
    match budget {
        // Without what only the division by 100 left.
        Some(share) => format!("{}%", (share * 1e8).round() / 1e6),
        None => NONE.to_owned(),
    }
}

/// A span of a caller; `None` is `none`.
pub(crate) fn parse_trace_parent(value: &str) -> Result<Option<TraceParent>, Error> {
    if value.eq_ignore_ascii_case(NONE) {
        return Ok(None);
    }
    let parent = value.parse().map_err(|error| Error::InvalidValue {
        name: TRACE_PARENT.to_owned(),
        value: value.to_owned(),
        expected: format!("{error}, or none"),
    });
    parent.map(Some)
}

/// What is done about skew.
pub(crate) fn parse_remedies(value: &str) -> Result<RemedyMode, Error> {
    RemedyMode::from_text(value).ok_or_else(|| Error::InvalidValue {
        name: REMEDIES.to_owned(),
        value: value.to_owned(),
        expected: "it is one of off, advise, auto, and random with a number, as 'random 7'"
            .to_owned(),
    })
}

/// A way to put joins in order.
pub(crate) fn parse_join_order(value: &str) -> Result<JoinOrder, Error> {
    let text = value.trim().to_ascii_lowercase();
    let seed = text
        .strip_prefix(RANDOM)
        .and_then(|seed| seed.trim().parse().ok());
    match (text.as_str(), seed) {
        ("cost", _) => Ok(JoinOrder::Cost),
        ("text", _) => Ok(JoinOrder::Text),
        (_, Some(seed)) => Ok(JoinOrder::Random(seed)),
        (_, None) => Err(Error::InvalidValue {
            name: JOIN_ORDER.to_owned(),
            value: value.to_owned(),
            expected: "it is one of cost, text, and random with a number, as 'random 7'".to_owned(),
        }),
    }
}

/// Which rows queries see.
pub(crate) fn parse_rows_seen(value: &str) -> Result<RowsSeen, Error> {
    match parse_switch(QUARANTINE, value) {
        Ok(true) => Ok(RowsSeen::NotQuarantined),
        Ok(false) => Ok(RowsSeen::All),
        Err(_) => Err(Error::InvalidValue {
            name: QUARANTINE.to_owned(),
            value: value.to_owned(),
            expected: "it is on or off".to_owned(),
        }),
    }
}

/// How SHOW writes it.
pub(crate) fn show_rows_seen(rows_seen: RowsSeen) -> &'static str {
    match rows_seen {
        RowsSeen::All => "off",
        RowsSeen::NotQuarantined => "on",
    }
}

/// How SHOW writes a way to put joins in order.
pub(crate) fn show_join_order(order: JoinOrder) -> String {
    match order {
        JoinOrder::Cost => "cost".to_owned(),
        JoinOrder::Text => "text".to_owned(),
        JoinOrder::Random(seed) => format!("{RANDOM}{seed}"),
    }
}

/// How SHOW writes a span of a caller.
pub(crate) fn show_trace_parent(parent: Option<TraceParent>) -> String {
    parent.map_or(NONE.to_owned(), |parent| parent.to_string())
}

/// A memory limit as people write it: `4GB`, `512 MiB`, `1073741824`; `None` is `unlimited`.
///
/// ```
/// use skewer::parse_memory_limit;
///
/// assert_eq!(parse_memory_limit("1.5 GB").unwrap(), Some(3 << 29));
/// assert_eq!(parse_memory_limit("unlimited").unwrap(), None);
/// let refused = parse_memory_limit("4 parsecs").unwrap_err().to_string();
/// assert!(refused.starts_with("memory_limit cannot be '4 parsecs'"));
/// ```
///
/// # Errors
/// [`Error::InvalidValue`], which shows the accepted forms.
pub fn parse_memory_limit(value: &str) -> Result<Option<usize>, Error> {
    if value.trim().eq_ignore_ascii_case(UNLIMITED) {
        return Ok(None);
    }
    let bytes = parse_bytes(MEMORY_LIMIT, value)
        .ok()
        .filter(|bytes| *bytes > 0);
    match bytes.map(usize::try_from) {
        Some(Ok(bytes)) => Ok(Some(bytes)),
        _ => Err(Error::InvalidValue {
            name: MEMORY_LIMIT.to_owned(),
            value: value.to_owned(),
            expected: "it is a size, as '512MiB', '4GB' or 1073741824 bytes, or unlimited"
                .to_owned(),
        }),
    }
}

/// A size of the cache of decoded columns, as people write it: `4GB`, `0`; `None` is `default`.
///
/// ```
/// use skewer::parse_cache_size;
///
/// assert_eq!(parse_cache_size("1.5 GB").unwrap(), Some(3 << 29));
/// assert_eq!(parse_cache_size("0").unwrap(), Some(0));
/// assert_eq!(parse_cache_size("default").unwrap(), None);
/// ```
///
/// # Errors
/// [`Error::InvalidValue`], which shows the accepted forms.
pub fn parse_cache_size(value: &str) -> Result<Option<usize>, Error> {
    if value.trim().eq_ignore_ascii_case("default") {
        return Ok(None);
    }
    let bytes = parse_bytes(CACHE_SIZE, value).ok();
    match bytes.map(usize::try_from) {
        Some(Ok(bytes)) => Ok(Some(bytes)),
        _ => Err(Error::InvalidValue {
            name: CACHE_SIZE.to_owned(),
            value: value.to_owned(),
            expected:
                "it is a size, as '512MiB', '4GB' or 1073741824 bytes, 0 for none, or default"
                    .to_owned(),
        }),
    }
}

/// `1073741824`, `512 MB`, `1.5GiB`: units are powers of 1024.
pub(crate) fn parse_bytes(name: &str, value: &str) -> Result<u64, Error> {
    let (number, unit) = split_unit(value);
    let factor: Option<u64> = match unit.as_str() {
        "" | "b" | "byte" | "bytes" => Some(1),
        "k" | "kb" | "kib" => Some(1 << 10),
        "m" | "mb" | "mib" => Some(1 << 20),
        "g" | "gb" | "gib" => Some(1 << 30),
        "t" | "tb" | "tib" => Some(1 << 40),
        _ => None,
    };
    match (number.parse::<f64>(), factor) {
        (Ok(n), Some(factor)) if n.is_finite() && n >= 0.0 => Ok((n * factor as f64) as u64),
        _ => Err(Error::InvalidValue {
            name: name.to_owned(),
            value: value.to_owned(),
            expected: "it is a number of bytes, as 1073741824, '512 MB' or '1 GB'".to_owned(),
        }),
    }
}

/// `90`, `'90 seconds'`, `'12 hours'`, `'7 days'`.
pub(crate) fn parse_age(name: &str, value: &str) -> Result<Duration, Error> {
    let (number, unit) = split_unit(value);
    let seconds: Option<f64> = match unit.as_str() {
        "" | "s" | "sec" | "second" | "seconds" => Some(1.0),
        "m" | "min" | "minute" | "minutes" => Some(60.0),
        "h" | "hour" | "hours" => Some(3600.0),
        "d" | "day" | "days" => Some(86400.0),
        "w" | "week" | "weeks" => Some(7.0 * 86400.0),
        _ => None,
    };
    let age = match (number.parse::<f64>(), seconds) {
        (Ok(n), Some(unit)) => Duration::try_from_secs_f64(n * unit).ok(),
        _ => None,
    };
    age.ok_or_else(|| Error::InvalidValue {
        name: name.to_owned(),
        value: value.to_owned(),
        expected: "it is a time, as '90 seconds', '12 hours' or '7 days'".to_owned(),
    })
}

fn split_unit(value: &str) -> (String, String) {
    let value = value.trim();
    let end = value
        .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
        .unwrap_or(value.len());
    let (number, unit) = value.split_at(end);
    (number.replace('_', ""), unit.trim().to_lowercase())
}

/// How SHOW writes a size: in the largest unit that says it exactly, so that SET takes it back.
pub(crate) fn show_bytes(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let fits = |(shift, _): &(u32, &str)| bytes > 0 && bytes.trailing_zeros() >= *shift;
    match units.into_iter().find(fits) {
        Some((shift, unit)) => format!("{} {unit}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// How SHOW writes a time.
pub(crate) fn show_age(age: Duration) -> String {
    match age.as_secs_f64() {
        1.0 => "1 second".to_owned(),
        seconds => format!("{seconds} seconds"),
    }
}

/// How SHOW writes a retention.
pub(crate) fn show_retention(retention: Retention) -> (String, String) {
    (
        retention.bytes.to_string(),
        format!("{} seconds", retention.age.as_secs()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ages_have_units() {
        assert_eq!(parse_bytes("x", "1 GB").unwrap(), 1 << 30);
        assert_eq!(parse_bytes("x", "1.5kib").unwrap(), 1536);
        assert!(parse_bytes("x", "1 parsec").is_err());
        assert_eq!(parse_age("x", "7 days").unwrap().as_secs(), 604_800);
        assert_eq!(parse_age("x", "90").unwrap().as_secs(), 90);
        assert!(parse_age("x", "soon").is_err());
    }

    #[test]
    fn a_size_is_shown_as_it_can_be_set() {
        for bytes in [1, 1000, 1024, 3 << 19, 5 << 30, (5 << 30) + 1, 1 << 50] {
            let shown = show_bytes(bytes);
            assert_eq!(parse_bytes("x", &shown).unwrap(), bytes, "{shown}");
        }
        assert_eq!(show_bytes(2 << 30), "2 GiB");
        assert_eq!(show_bytes(3 << 19), "1536 KiB");
    }

    #[test]
    fn a_budget_is_a_share_of_the_time_or_none() {
        for (text, share) in [("5%", 0.05), ("0.05", 0.05), ("2.5 %", 0.025), ("1", 1.0)] {
            let parsed = parse_budget("x", text).unwrap().unwrap();
            assert!((parsed - share).abs() < 1e-12, "{text}");
            let shown = show_budget(Some(parsed));
            assert_eq!(parse_budget("x", &shown).unwrap(), Some(parsed), "{shown}");
        }
        assert_eq!(parse_budget("x", "None").unwrap(), None);
        for refused in ["", "0", "0%", "-1%", "101%", "5 percent", "NaN"] {
            assert!(parse_budget("x", refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn an_order_of_joins_is_shown_as_it_can_be_set() {
        for order in [JoinOrder::Cost, JoinOrder::Text, JoinOrder::Random(7)] {
            assert_eq!(parse_join_order(&show_join_order(order)).unwrap(), order);
        }
        for refused in ["", "random", "random -1", "fast"] {
            assert!(parse_join_order(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_memory_limit_is_a_size_above_0_or_none() {
        assert_eq!(parse_memory_limit("512MiB").unwrap(), Some(512 << 20));
        assert_eq!(parse_memory_limit("Unlimited").unwrap(), None);
        for refused in ["", "0", "-1", "80%", "lots", "4 XB", "GB", "1e999 GB"] {
            assert!(parse_memory_limit(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_cache_size_is_a_size_or_default() {
        assert_eq!(parse_cache_size("512MiB").unwrap(), Some(512 << 20));
        assert_eq!(parse_cache_size("0").unwrap(), Some(0));
        assert_eq!(parse_cache_size("Default").unwrap(), None);
        for refused in ["", "-1", "80%", "unlimited", "4 XB", "1e999 GB"] {
            assert!(parse_cache_size(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn an_unknown_setting_names_near_ones() {
        let Error::UnknownSetting { suggestions, .. } =
            unknown("profile.levle", &ConfigOptions::new())
        else {
            panic!()
        };
        assert_eq!(suggestions, ["profile.level", "profile.lineage"]);
        let Error::UnknownSetting { suggestions, .. } =
            unknown("batch_size", &ConfigOptions::new())
        else {
            panic!()
        };
        assert!(
            suggestions.contains(&"datafusion.execution.batch_size".to_owned()),
            "{suggestions:?}"
        );
    }
}
