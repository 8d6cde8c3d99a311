//! Median snowfall per state and day of the year, and per state and year: one key is hot.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::Volatility;

use super::Plan;
use super::generate::weather::{DEFAULT_ROWS, HOT_ZIP, generate, state_of};
use super::stage::Stage;
use crate::error::ShellError;
use crate::units;

const QUERY: &str = "SELECT state, period, round(median(snowfall), 2) AS median_snowfall
FROM (SELECT state, snowfall, unnest(make_array(left(date, 5), right(date, 4))) AS period
      FROM weather)
GROUP BY state, period ORDER BY state, period";

/// Where the time of the slowest result rows went.
const KIND: &str = "SELECT output_row, round(total_ns / 1e6, 2) AS total_ms,
       round(computation_ns / 1e6, 2) AS computation_ms,
       round(shuffle_ns / 1e6, 2) AS shuffle_ms,
       round(100.0 * shuffle_ns / total_ns, 1) AS shuffle_percent
FROM sys.output_latency WHERE query_id = last_query_id() ORDER BY total_ns DESC LIMIT 3";

/// Tells the study.
pub(super) async fn tell(stage: &mut Stage, plan: Plan<'_>) -> Result<(), ShellError> {
    let rows = plan.rows.unwrap_or(DEFAULT_ROWS);
    stage.title(
        "Snowfall",
        "What is the median snowfall per state and day of the year, and per state and year? Every \
         measurement counts for two groups.",
    )?;
    stage.session().register_row_udf(
        "state_of",
        vec![DataType::Utf8View],
        DataType::Utf8View,
        Volatility::Immutable,
        |row| {
            let state = match &row[0] {
                ScalarValue::Utf8(Some(zip)) | ScalarValue::Utf8View(Some(zip)) => state_of(zip),
                _ => None,
            };
            Ok(ScalarValue::Utf8View(state.map(str::to_owned)))
        },
    );

    stage.step("Load the file")?;
    let path = plan.directory.join("weather.csv");
    let what = format!(
        "{}, seed {}",
        units::counted(rows, "measurement"),
        plan.seed
    );
    stage.file(&path, &what, |path| generate(path, rows, plan.seed))?;
    stage
        .run("CREATE TABLE measurements (zip TEXT, date TEXT, snowfall DOUBLE)")
        .await?;
    stage
        .run(&format!("COPY measurements\nFROM '{}'", path.display()))
        .await?;
    stage
        .run(
            "CREATE TABLE weather AS
SELECT state_of(zip) AS state, zip, date, snowfall FROM measurements",
        )
        .await?;

    stage.step("The slow query")?;
    let before = stage.measure(QUERY).await?;

    stage.step("Ask why")?;
    stage.explain(QUERY).await?;

    stage.step("Computation or shuffle? And which key? By SQL over the profile")?;
    let kind = stage.show(KIND).await?;
    let output_row = kind.text(0, 0)?;
    let shuffle = kind.number(4, 0)?;
    let key = format!(
        "SELECT w.zip, left(w.date, 5) AS day, count(*) AS measurements,
       round(100.0 * count(*) / (SELECT count(*) FROM weather), 1) AS percent_of_all
FROM backward_trace(last_query_id(), {output_row}) AS t JOIN weather AS w ON t.row_id = w._row_id
GROUP BY w.zip, day ORDER BY measurements DESC LIMIT 3"
    );
    let key = stage.show(&key).await?;
    let zip = key.text(0, 0)?;
    let day = key.text(1, 0)?;
    let verdict = if shuffle > 50.0 {
        format!(
            "No measurement is expensive to compute: {shuffle} % of the slowest row's latency is \
             shuffle, the aggregation of its key."
        )
    } else {
        // Happens with few rows, where a pause of the machine outweighs any aggregation.
        format!("Shuffle, the aggregation of its key, is {shuffle} % of the slowest row's latency.")
    };
    stage.say(&format!(
        "{verdict} Behind that key stands one station, {zip}, with {} % of all measurements dated \
         {day}: its clock has lost month and day.",
        key.text(3, 0)?
    ))?;
    if zip != HOT_ZIP {
        return Err(ShellError::Demo(format!(
            "the profile leads to station {zip}, not to {HOT_ZIP}, which is the hot one"
        )));
    }

    stage.step("The remedy: one measurement per station and day")?;
    stage
        .run(
            "CREATE OR REPLACE TABLE weather AS
SELECT state, zip, date, avg(snowfall) AS snowfall FROM weather GROUP BY state, zip, date",
        )
        .await?;
    let after = stage.measure(QUERY).await?;
    stage.verdict(before.time, after.time)
}
