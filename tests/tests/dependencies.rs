//! One DataFusion, one arrow: record batches of two versions do not fit together.

use std::collections::BTreeMap;

/// Crates whose types cross crate boundaries; of each there must be one version.
const ONE_VERSION: &[&str] = &[
    "arrow",
    "arrow-array",
    "arrow-schema",
    "datafusion",
    "datafusion-common",
    "datafusion-expr",
    "datafusion-physical-plan",
    "object_store",
    "parquet",
    "redb",
    "sqlparser",
];

#[test]
fn there_is_one_version_of_arrow_and_datafusion() {
    let lock = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock");
    let lock = std::fs::read_to_string(lock).unwrap();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut name = "";
    for line in lock.lines() {
        if let Some(value) = line.strip_prefix("name = ") {
            name = value.trim_matches('"');
        } else if let Some(value) = line.strip_prefix("version = ") {
            versions
                .entry(name)
                .or_default()
                .push(value.trim_matches('"'));
        }
    }
    for name in ONE_VERSION {
        assert_eq!(
            versions.get(name).map(Vec::len),
            Some(1),
            "{name}: {:?}",
            versions.get(name)
        );
    }
}
