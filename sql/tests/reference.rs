//! The examples of the SQL reference and of the page on streams are statements.

use std::path::Path;

/// Parses the examples of a page; gives their number.
fn examples(page: &str) -> usize {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(page);
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
    statements
}

#[test]
fn every_example_parses() {
    for (page, at_least) in [("../docs/sql.md", 50), ("../docs/streams.md", 15)] {
        let statements = examples(page);
        assert!(statements > at_least, "{page}: {statements}");
    }
}
