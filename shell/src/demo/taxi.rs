//! Average cost of a trip per borough, by ray casting: one borough has 20,004 vertices.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result as FunctionResult, ScalarValue};
use datafusion::logical_expr::Volatility;
use skewer::Session;

use super::Plan;
use super::generate::taxi::{DEFAULT_TRIPS, generate_boroughs, generate_trips};
use super::polygon::{self, Polygon};
use super::stage::Stage;
use crate::error::ShellError;
use crate::units;

const QUERY: &str =
    "SELECT b.name AS borough, count(*) AS trips, round(avg(t.cost), 2) AS average_cost
FROM trips t JOIN boroughs b ON inside(b.polygon, t.longitude, t.latitude)
GROUP BY b.name ORDER BY b.name";

/// The other attribution: all the time spent on a record, in whichever result row.
const WHICH: &str = "SELECT table_name, row_id, count(*) AS evaluations,
       round(sum(latency_ns) / 1e6, 1) AS self_ms,
       round(100.0 * sum(latency_ns) / sum(sum(latency_ns)) OVER (PARTITION BY table_name), 1)
         AS percent_of_table
FROM sys.record_latency WHERE query_id = last_query_id()
GROUP BY table_name, row_id ORDER BY self_ms DESC LIMIT 3";

/// Tells the study.
pub(super) async fn tell(stage: &mut Stage, plan: Plan<'_>) -> Result<(), ShellError> {
    let trips = plan.rows.unwrap_or(DEFAULT_TRIPS);
    stage.title(
        "Taxi trips",
        "What does a trip cost on average, by the borough where it begins? Boroughs are polygons; \
         inside(), a function in Rust over one row, casts a ray through them.",
    )?;
    register(stage.session());

    stage.step("Load the files")?;
    let path = plan.directory.join("trips.csv");
    let what = format!("{}, seed {}", units::counted(trips, "trip"), plan.seed);
    stage.file(&path, &what, |path| generate_trips(path, trips, plan.seed))?;
    let boroughs = plan.directory.join("boroughs.csv");
    stage.file(&boroughs, "5 boroughs as WKT polygons", |path| {
        generate_boroughs(path, plan.seed)
    })?;
    stage
        .run("CREATE TABLE trips (id BIGINT, longitude DOUBLE, latitude DOUBLE, cost DOUBLE)")
        .await?;
    stage
        .run(&format!("COPY trips\nFROM '{}'", path.display()))
        .await?;
    stage
        .run(&format!(
            "CREATE TABLE boroughs AS SELECT name, polygon(polygon) AS polygon\nFROM '{}'",
            boroughs.display()
        ))
        .await?;

    stage.step("The slow query")?;
    let before = stage.measure(QUERY).await?;

    stage.step("Ask why")?;
    stage.explain(QUERY).await?;

    stage.step("The record, by SQL over the profile")?;
    stage.say(
        "No trip is expensive by itself. But what did each record cost in all the rows that it was \
         part of?",
    )?;
    let which = stage.show(WHICH).await?;
    let (table, row_id) = (which.text(0, 0)?, which.text(1, 0)?);
    if !table.ends_with("boroughs") {
        return Err(ShellError::Demo(format!(
            "the profile names a record of {table}, not of the boroughs"
        )));
    }
    let borough = format!(
        "SELECT _row_id, name, vertices(polygon) AS vertices,
       (SELECT round(avg(vertices(polygon)), 0) FROM boroughs WHERE _row_id <> {row_id}) AS others
FROM boroughs WHERE _row_id = {row_id}"
    );
    let borough = stage.show(&borough).await?;
    stage.say(&format!(
        "{} takes {} % of the time spent on boroughs: each trip is held against its {} vertices.",
        borough.text(1, 0)?,
        which.text(4, 0)?,
        units::count(borough.number(2, 0)? as u64)
    ))?;

    stage.step("The remedy: a simpler polygon, exact to about five metres")?;
    stage
        .run(&format!(
            "UPDATE boroughs SET polygon = simplify(polygon, 0.00005) WHERE _row_id = {row_id}"
        ))
        .await?;
    stage
        .show("SELECT name, vertices(polygon) AS vertices FROM boroughs ORDER BY name")
        .await?;
    let after = stage.measure(QUERY).await?;
    if before.rows == after.rows {
        stage.say("The result is the same, to the cent.")?;
    } else {
        stage.say("The result differs by the trips that begin on the coast.")?;
    }
    stage.verdict(before.time, after.time)
}

/// The row functions: `polygon`, `inside`, `vertices`, `simplify`.
fn register(session: &Session) {
    let (text, bytes, double) = (DataType::Utf8View, DataType::BinaryView, DataType::Float64);
    session.register_row_udf(
        "polygon",
        vec![text],
        bytes.clone(),
        Volatility::Immutable,
        |row| {
            let polygon = Polygon::parse(text_of(&row[0])?).map_err(external)?;
            Ok(ScalarValue::BinaryView(Some(polygon.to_bytes())))
        },
    );
    session.register_row_udf(
        "inside",
        vec![bytes.clone(), double.clone(), double.clone()],
        DataType::Boolean,
        Volatility::Immutable,
        |row| {
            let (x, y) = (double_of(&row[1])?, double_of(&row[2])?);
            let inside = polygon::contains(bytes_of(&row[0])?, x, y);
            Ok(ScalarValue::Boolean(Some(inside)))
        },
    );
    session.register_row_udf(
        "vertices",
        vec![bytes.clone()],
        DataType::Int64,
        Volatility::Immutable,
        |row| {
            let polygon = Polygon::from_bytes(bytes_of(&row[0])?).map_err(external)?;
            Ok(ScalarValue::Int64(Some(polygon.vertices() as i64)))
        },
    );
    session.register_row_udf(
        "simplify",
        vec![bytes.clone(), double],
        bytes,
        Volatility::Immutable,
        |row| {
            let polygon = Polygon::from_bytes(bytes_of(&row[0])?).map_err(external)?;
            let simple = polygon.simplify(double_of(&row[1])?);
            Ok(ScalarValue::BinaryView(Some(simple.to_bytes())))
        },
    );
}

fn external(error: polygon::NotAPolygon) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

fn text_of(value: &ScalarValue) -> FunctionResult<&str> {
    match value {
        ScalarValue::Utf8(Some(text))
        | ScalarValue::LargeUtf8(Some(text))
        | ScalarValue::Utf8View(Some(text)) => Ok(text),
        other => Err(unexpected("a text", other)),
    }
}

fn bytes_of(value: &ScalarValue) -> FunctionResult<&[u8]> {
    match value {
        ScalarValue::Binary(Some(bytes))
        | ScalarValue::LargeBinary(Some(bytes))
        | ScalarValue::BinaryView(Some(bytes)) => Ok(bytes),
        other => Err(unexpected("a polygon", other)),
    }
}

fn double_of(value: &ScalarValue) -> FunctionResult<f64> {
    match value {
        ScalarValue::Float64(Some(double)) => Ok(*double),
        other => Err(unexpected("a number", other)),
    }
}

fn unexpected(expected: &str, found: &ScalarValue) -> DataFusionError {
    DataFusionError::Execution(format!("expected {expected}, found {found}"))
}
