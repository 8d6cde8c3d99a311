//! The examples of the SQL reference are statements.

use std::path::Path;

#[test]
fn every_example_of_the_reference_parses() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/sql.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut statements = 0;
    for block in page.split("```sql\n").skip(1) {
        let block = block.split("```").next().unwrap();
        for piece in skewer_sql::split(block) {
            statements += 1;
            if let Err(error) = skewer_sql::parse(&piece.sql) {
                panic!("{error}");
            }
        }
    }
    assert!(statements > 50, "{statements}");
}
