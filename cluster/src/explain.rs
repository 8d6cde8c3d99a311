//! A distributed plan as text: what runs where, and what is exchanged.

use std::fmt::Write;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::memory::DataSourceExec;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig};
use datafusion::physical_plan::{ExecutionPlan, displayable};
use datafusion_distributed::{
    DistributedExec, DistributedLeafExec, NetworkBoundaryExt, NetworkBroadcastExec,
    NetworkShuffleExec,
};
use skewer_exec::NumberedExec;
use skewer_optimizer::instrument::{PlanFacts, instrument_stages};
use skewer_profiling::{Level, Recorder, RecorderLimits};

use crate::stage_boundaries::DistributedBoundaries;
use crate::sys;

/// What runs where, by workers with these `numbers`, the fragment that makes the result first: the workers of each, its operators,
/// and below each scan which worker reads which segments. Fragments have the numbers that schema
/// `sys` will give them; those between exchanges within a worker are part of the one around them.
///
/// # Errors
/// Those of numbering the operators.
pub fn as_text(plan: &Arc<dyn ExecutionPlan>, numbers: &[u32]) -> Result<String> {
    let nobody = Recorder::new(0, Level::Off, 1.0, RecorderLimits::default());
    let numbered = instrument_stages(
        Arc::clone(plan),
        &nobody,
        PlanFacts::default(),
        Some(&DistributedBoundaries),
    )?;
    let mut text = String::new();
    // Whoever plans the query returns its rows.
    let head = [0];
    let mut waiting = vec![Fragment {
        workers: &head,
        plan: match numbered.is::<DistributedExec>() {
            true => Arc::clone(numbered.children()[0]),
            false => numbered,
        },
    }];
    let mut next = 0;
    while let Some(fragment) = waiting.get(next).cloned() {
        next += 1;
        let workers = listed(fragment.workers);
        let number = number_of(&fragment.plan);
        line(&mut text, 0, &format!("fragment {number} on {workers}"));
        operators(&mut text, &fragment.plan, 1, numbers, &mut waiting);
    }
    Ok(text.trim_end().to_owned())
}

/// A part of the plan that workers run.
#[derive(Debug, Clone)]
struct Fragment<'a> {
    /// Their numbers.
    workers: &'a [u32],
    plan: Arc<dyn ExecutionPlan>,
}

/// Workers as a person says it.
fn listed(numbers: &[u32]) -> String {
    let consecutive = numbers.windows(2).all(|pair| pair[0] + 1 == pair[1]);
    match numbers {
        [one] => format!("worker {one}"),
        [first, .., last] if consecutive => format!("workers {first} to {last}"),
        numbers => {
            let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
            format!("workers {}", numbers.join(", "))
        }
    }
}

/// The number of the fragment that begins with `plan`, or with what it sends.
fn number_of(plan: &Arc<dyn ExecutionPlan>) -> i64 {
    match plan.downcast_ref::<NumberedExec>() {
        Some(numbered) => numbered.observed().fragment_id,
        None => plan.children().first().map_or(0, |child| number_of(child)),
    }
}

fn operators<'a>(
    text: &mut String,
    plan: &Arc<dyn ExecutionPlan>,
    depth: usize,
    numbers: &'a [u32],
    waiting: &mut Vec<Fragment<'a>>,
) {
    if let Some(numbered) = plan.downcast_ref::<NumberedExec>() {
        return operators(text, &numbered.observed().inner, depth, numbers, waiting);
    }
    if let Some(boundary) = plan.as_network_boundary() {
        let stage = boundary.input_stage();
        if let Some(below) = stage.local_plan() {
            let how = if plan.is::<NetworkShuffleExec>() {
                "shuffled"
            } else if plan.is::<NetworkBroadcastExec>() {
                "broadcast"
            } else {
                "gathered"
            };
            let exchange = format!("{}: fragment {} {how}", plan.name(), number_of(below));
            line(text, depth, &exchange);
            waiting.push(Fragment {
                workers: numbers.get(..stage.task_count()).unwrap_or(numbers),
                plan: Arc::clone(below),
            });
        }
        return;
    }
    let leaf = plan.downcast_ref::<DistributedLeafExec>();
    let shown = leaf.map_or(plan, DistributedLeafExec::original);
    let content = displayable(shown.as_ref()).one_line().to_string();
    line(text, depth, content.trim_end());
    let parts = leaf.iter().flat_map(|leaf| leaf.variants());
    for (worker, part) in numbers.iter().zip(parts) {
        line(
            text,
            depth + 1,
            &format!("worker {worker}: {}", files_of(part)),
        );
    }
    for child in plan.children() {
        operators(text, child, depth + 1, numbers, waiting);
    }
}

/// The files that a scan reads, or what else.
fn files_of(scan: &Arc<dyn ExecutionPlan>) -> String {
    if let Some(read) = sys::read_by(scan) {
        return read;
    }
    let files = scan
        .downcast_ref::<DataSourceExec>()
        .and_then(|scan| scan.data_source().downcast_ref::<FileScanConfig>());
    let Some(files) = files else {
        return scan.name().to_owned();
    };
    let mut names = String::new();
    for file in files.file_groups.iter().flat_map(FileGroup::iter) {
        if !names.is_empty() {
            names.push_str(", ");
        }
        names.push_str(&name_of(file));
    }
    match names.is_empty() {
        true => "nothing".to_owned(),
        false => names,
    }
}

fn name_of(file: &PartitionedFile) -> String {
    let name = file.object_meta.location.filename().unwrap_or_default();
    match &file.range {
        Some(range) => format!("{name}:{}..{}", range.start, range.end),
        None => name.to_owned(),
    }
}

fn line(text: &mut String, depth: usize, content: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{:indent$}{content}", "", indent = 2 * depth);
}
