//! Sessions with other plans.

use rand::RngExt;
use rand::seq::IndexedRandom;
use skewer::{Database, Session};

use crate::cases::{Random, run};

/// Settings with all the values that are tried.
const VALUES: &[(&str, &[&str])] = &[
    (
        "datafusion.execution.target_partitions",
        &["1", "2", "3", "8"],
    ),
    ("datafusion.execution.batch_size", &["1", "2", "7", "8192"]),
    (
        "datafusion.execution.skip_partial_aggregation_probe_rows_threshold",
        &["0", "100000"],
    ),
    (
        "datafusion.execution.skip_partial_aggregation_probe_ratio_threshold",
        &["0.0", "0.8"],
    ),
    ("datafusion.execution.coalesce_batches", FLAG),
    ("datafusion.execution.parquet.pushdown_filters", FLAG),
    ("datafusion.execution.parquet.reorder_filters", FLAG),
    ("datafusion.execution.parquet.pruning", FLAG),
    ("datafusion.execution.parquet.enable_page_index", FLAG),
    ("datafusion.execution.parquet.bloom_filter_on_read", FLAG),
    (
        "datafusion.optimizer.hash_join_single_partition_threshold",
        &["0", "1048576"],
    ),
    (
        "datafusion.optimizer.hash_join_single_partition_threshold_rows",
        &["0", "131072"],
    ),
    ("datafusion.optimizer.max_passes", &["1", "3"]),
];

const FLAG: &[&str] = &["true", "false"];

/// Flags that say what a query means, or whether one that cannot be planned fails.
const OTHER_MEANING: &[&str] = &["skip_failed_rules"];

/// A session some of whose settings are others than usual, and these settings. Flags of the optimizer are
/// all tried that there are.
pub async fn session(database: &Database, random: &mut Random) -> (Session, Vec<String>) {
    let session = database.session();
    let flags = "SELECT name FROM information_schema.df_settings \
                 WHERE name LIKE 'datafusion.optimizer.%' AND value IN ('true', 'false') ORDER BY name";
    let (_, flags, _) = run(&session, flags).await.unwrap();
    assert!(flags.len() > 15, "{flags:?}");
    let is_other = |name: &String| OTHER_MEANING.iter().any(|other| name.ends_with(other));
    let flags = flags.iter().filter(|name| !is_other(name));
    let flags = flags.map(|name| (name.as_str(), FLAG));
    let all = VALUES.iter().copied().chain(flags);
    let mut with = Vec::new();
    let share = random.random_range(1..4);
    for (name, values) in all {
        if random.random_range(0..4) < share {
            let value = values.choose(random).expect("a value");
            let set = format!("SET {name} = {value}");
            // A setting that this version does not have, or does not let be set, has one value.
            if session.sql(&set).await.is_ok() {
                with.push(set);
            }
        }
    }
    (session, with)
}
