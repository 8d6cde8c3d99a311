//! `sys.cluster`: the nodes of a cluster as they are now.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use datafusion::arrow::array::{
    ArrayRef, Int64Array, RecordBatch, StringArray, TimestampNanosecondArray,
};
use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::catalog::SchemaProvider;
use datafusion::common::Result;
use skewer_profiling::{OneMoreTable, nanos_since_epoch};
use skewer_storage::Snapshot;

use crate::master::Inner;
use crate::membership::MemberState;

/// `sys` of a master, with the nodes of the cluster and what they have in `snapshot`.
pub(crate) fn with_cluster(
    sys: Arc<dyn SchemaProvider>,
    master: Weak<Inner>,
    snapshot: Arc<Snapshot>,
) -> OneMoreTable {
    OneMoreTable::new(sys, "cluster", move || {
        let master = master.upgrade();
        master.map(|master| rows(&master, &snapshot)).transpose()
    })
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
            times(
                each.clone()
                    .map(|m| Some(nanos_since_epoch(m.since)))
                    .collect(),
            ),
        ),
        (
            "last_heartbeat",
            times(
                each.clone()
                    .map(|m| m.last_heartbeat.map(nanos_since_epoch))
                    .collect(),
            ),
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
