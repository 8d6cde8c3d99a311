//! Runs the smallest query of each gap of DataFusion on Skewer, which closes them.

use skewer::Database;
use skewer_compat::gaps::{Canary, GAPS};
use skewer_tests::contents::query;

#[tokio::test]
async fn skewer_closes_each_gap() {
    let database = Database::in_memory().unwrap();
    let session = database.session();
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for gap in GAPS {
        let (sql, right) = match gap.canary {
            Canary::Rows(sql, right) => (sql, Ok(right)),
            Canary::Fails(sql, message) => (sql, Err(message)),
            Canary::None(_) => continue,
        };
        seen += 1;
        let rows = query(&session, sql).await;
        let is_right = match (&rows, right) {
            (Ok(rows), Ok(right)) => rows == right,
            (Err(error), Err(message)) => error.to_string().contains(message),
            _ => false,
        };
        if !is_right {
            wrong.push(format!("{}: {sql}\n  {rows:?}, not {right:?}", gap.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 40, "only {seen} gaps were looked at");
}
