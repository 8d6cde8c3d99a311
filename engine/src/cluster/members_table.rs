//! `sys.cluster`: the nodes of a cluster as they are now.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use datafusion::arrow::array::{
    ArrayRef, Int64Array, RecordBatch, StringArray, TimestampNanosecondArray,
};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::{DataFusionError, Result};
use datafusion::datasource::MemTable;
use skewer_storage::Snapshot;

use super::master::Inner;
use super::members::MemberState;

/// The table's name in schema `sys`.
const CLUSTER: &str = "cluster";

/// Schema `sys` of a master: with one more table.
pub(crate) struct SysOfMaster {
    sys: Arc<dyn SchemaProvider>,
    master: Weak<Inner>,
    snapshot: Arc<Snapshot>,
}

impl fmt::Debug for SysOfMaster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("schema sys of a master")
    }
}

impl SysOfMaster {
    /// `sys`, and the nodes of the cluster with what they have in `snapshot`.
    pub(crate) fn new(
        sys: Arc<dyn SchemaProvider>,
        master: Weak<Inner>,
        snapshot: Arc<Snapshot>,
    ) -> Self {
        Self {
            sys,
            master,
            snapshot,
        }
    }
}

#[async_trait]
impl SchemaProvider for SysOfMaster {
    fn table_names(&self) -> Vec<String> {
        let mut names = self.sys.table_names();
        names.push(CLUSTER.to_owned());
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>, DataFusionError> {
        match (name, self.master.upgrade()) {
            (CLUSTER, Some(master)) => {
                let rows = rows(&master, &self.snapshot)?;
                let table = MemTable::try_new(rows.schema(), vec![vec![rows]])?;
                Ok(Some(Arc::new(table)))
            }
            _ => self.sys.table(name).await,
        }
    }

    fn table_exist(&self, name: &str) -> bool {
        name == CLUSTER || self.sys.table_exist(name)
    }
}

/// A node's part of the tables.
#[derive(Debug, Clone, Copy, Default)]
struct Share {
    segments: i64,
    rows: i64,
    bytes: i64,
}

/// By owner; each segment is looked at once.
fn shares_of(snapshot: &Snapshot) -> HashMap<u32, Share> {
    let mut shares: HashMap<u32, Share> = HashMap::new();
    for table in snapshot
        .schemas()
        .iter()
        .flat_map(|name| snapshot.tables(name))
    {
        for segment in &table.segments {
            let share = shares.entry(segment.owner).or_default();
            share.segments += 1;
            share.rows = share.rows.saturating_add_unsigned(segment.rows);
            share.bytes = share.bytes.saturating_add_unsigned(segment.bytes);
        }
    }
    shares
}

fn nanos(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

fn rows(master: &Inner, snapshot: &Snapshot) -> Result<RecordBatch> {
    let members = master.members.list();
    let shares = shares_of(snapshot);
    let shares: Vec<Share> = members
        .iter()
        .map(|member| shares.get(&member.number).copied().unwrap_or_default())
        .collect();
    let text = |values: Vec<Option<String>>| -> ArrayRef { Arc::new(StringArray::from(values)) };
    let integers = |values: Vec<Option<i64>>| -> ArrayRef { Arc::new(Int64Array::from(values)) };
    let times = |values: Vec<Option<i64>>| -> ArrayRef {
        Arc::new(TimestampNanosecondArray::from(values).with_timezone("+00:00"))
    };
    let each = members.iter();
    let of_share = |of: fn(&Share) -> i64| integers(shares.iter().map(|s| Some(of(s))).collect());
    let columns: Vec<(&str, ArrayRef)> = vec![
        (
            "worker_id",
            integers(each.clone().map(|m| Some(i64::from(m.number))).collect()),
        ),
        (
            "name",
            text(each.clone().map(|m| Some(m.name.clone())).collect()),
        ),
        (
            "state",
            text(each.clone().map(|m| Some(m.state.to_string())).collect()),
        ),
        (
            "reason",
            text(
                each.clone()
                    .map(|member| match &member.state {
                        MemberState::Lost(reason) => Some(reason.to_string()),
                        MemberState::Alive | MemberState::Leaving => None,
                    })
                    .collect(),
            ),
        ),
        (
            "address",
            text(
                each.clone()
                    .map(|m| m.address.map(|a| a.to_string()))
                    .collect(),
            ),
        ),
        (
            "since",
            times(each.clone().map(|m| Some(nanos(m.since))).collect()),
        ),
        (
            "last_heartbeat",
            times(each.clone().map(|m| m.last_heartbeat.map(nanos)).collect()),
        ),
        (
            "clock_offset_ns",
            integers(each.clone().map(|m| Some(m.clock?.offset_ns)).collect()),
        ),
        (
            "clock_error_ns",
            integers(each.clone().map(|m| Some(m.clock?.error_ns)).collect()),
        ),
        (
            "version",
            text(
                each.map(|m| (!m.version.is_empty()).then(|| m.version.clone()))
                    .collect(),
            ),
        ),
        ("segments", of_share(|share| share.segments)),
        ("rows", of_share(|share| share.rows)),
        ("bytes", of_share(|share| share.bytes)),
    ];
    let (fields, arrays): (Vec<Field>, Vec<ArrayRef>) = columns
        .into_iter()
        .map(|(name, array)| (Field::new(name, array.data_type().clone(), true), array))
        .unzip();
    let schema: SchemaRef = Arc::new(Schema::new(fields));
    Ok(RecordBatch::try_new(schema, arrays)?)
}
