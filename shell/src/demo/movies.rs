//! Ratings per star, from lines `movie:uid_rating,uid_rating,…`: one movie has most of them.

use super::generate::movies::{DEFAULT_LINES, generate};
use super::stage::Stage;
use super::{Plan, expensive};
use crate::error::ShellError;
use crate::units;

const QUERY: &str = "SELECT split_part(rating, '_', 2) AS stars, count(*) AS ratings
FROM (SELECT unnest(string_to_array(split_part(line, ':', 2), ',')) AS rating FROM movies)
GROUP BY stars ORDER BY stars";

/// Tells the study.
pub(super) async fn tell(stage: &mut Stage, plan: Plan<'_>) -> Result<(), ShellError> {
    let lines = plan.rows.unwrap_or(DEFAULT_LINES);
    stage.title(
        "Movie ratings",
        "A text file has a line per movie: movie:uid_rating,uid_rating,… How often was each number \
         of stars given? The query parses every line. It is slower than it should be: why?",
    )?;

    stage.step("Load the file")?;
    let path = plan.directory.join("movies.txt");
    let mut planted = 0;
    let what = format!("{}, seed {}", units::counted(lines, "line"), plan.seed);
    stage.file(&path, &what, |path| {
        let file = generate(path, lines, plan.seed)?;
        planted = file.hot_movie;
        Ok(file.bytes)
    })?;
    stage
        .run("CREATE TABLE movies (line TEXT NOT NULL)")
        .await?;
    // A delimiter that no line contains: each line is one column.
    let copy = format!(
        "COPY movies\nFROM '{}'\n(FORMAT csv, HEADER false, DELIMITER '|')",
        path.display()
    );
    stage.run(&copy).await?;

    stage.step("The slow query")?;
    let before = stage.measure(QUERY).await?;

    stage.step("Ask why")?;
    stage.explain(QUERY).await?;

    stage.step("The record, by SQL over the profile")?;
    let found = expensive::input(stage).await?;
    let record = format!(
        "SELECT _row_id, left(line, 44) || '…' AS line, length(line) AS characters,
       round(100.0 * length(line) / (SELECT sum(length(line)) FROM movies), 1) AS percent
FROM movies WHERE _row_id = {}",
        found.row_id
    );
    let record = stage.show(&record).await?;
    let movie = record.text(1, 0)?;
    if !movie.starts_with(&format!("{planted}:")) {
        return Err(ShellError::Demo(format!(
            "the profile names the line {movie}, not movie {planted}, which is the long one"
        )));
    }
    stage.say(&format!(
        "One line of {} has {} % of all characters. While one thread parses it, the others wait.",
        units::count(lines),
        record.text(3, 0)?
    ))?;

    stage.step("The remedy: without that record")?;
    stage
        .run(&format!(
            "DELETE FROM movies WHERE _row_id = {}",
            found.row_id
        ))
        .await?;
    let after = stage.measure(QUERY).await?;
    stage.verdict(before.time, after.time)
}
