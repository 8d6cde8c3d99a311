//! A distributed plan as text: what runs where, and what is exchanged.

use std::fmt::Write;
use std::sync::Arc;

use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::memory::DataSourceExec;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, displayable};
use datafusion_distributed::{
    DistributedExec, DistributedLeafExec, NetworkBoundaryExt, NetworkBroadcastExec,
    NetworkShuffleExec,
};

/// The fragments that workers run, the one that makes the result first, each with its operators.
/// A fragment is where another says that rows come from it.
pub fn as_text(plan: &Arc<dyn ExecutionPlan>) -> String {
    let mut text = String::new();
    let mut waiting = Vec::new();
    let root = match plan.is::<DistributedExec>() {
        true => Arc::clone(plan.children()[0]),
        false => Arc::clone(plan),
    };
    heading(&mut text, "result", 1, &root);
    operators(&mut text, &root, 1, &mut waiting);
    let mut next = 0;
    while let Some(stage) = waiting.get(next).cloned() {
        next += 1;
        let name = format!("stage {}", stage.number);
        heading(&mut text, &name, stage.tasks, &stage.plan);
        operators(&mut text, &stage.plan, 1, &mut waiting);
    }
    text.trim_end().to_owned()
}

/// A part of the plan that workers run.
#[derive(Debug, Clone)]
struct Stage {
    number: usize,
    tasks: usize,
    plan: Arc<dyn ExecutionPlan>,
}

fn heading(text: &mut String, name: &str, tasks: usize, plan: &Arc<dyn ExecutionPlan>) {
    let partitions = plan.output_partitioning().partition_count();
    let workers = match tasks {
        1 => "worker 0".to_owned(),
        tasks => format!("workers 0 to {}", tasks - 1),
    };
    line(
        text,
        0,
        &format!("{name} on {workers}, partitions={partitions}"),
    );
}

fn operators(
    text: &mut String,
    plan: &Arc<dyn ExecutionPlan>,
    depth: usize,
    waiting: &mut Vec<Stage>,
) {
    if let Some(boundary) = plan.as_network_boundary() {
        let stage = boundary.input_stage();
        let kind = if plan.is::<NetworkShuffleExec>() {
            "shuffle"
        } else if plan.is::<NetworkBroadcastExec>() {
            "broadcast"
        } else {
            "gather"
        };
        let partitions = plan.output_partitioning().partition_count();
        let number = stage.num();
        let exchange = format!(
            "{}: {kind} from stage {number}, partitions={partitions}",
            plan.name()
        );
        line(text, depth, &exchange);
        if let Some(below) = stage.local_plan() {
            waiting.push(Stage {
                number,
                tasks: stage.task_count(),
                plan: Arc::clone(below),
            });
        }
        return;
    }
    let Some(leaf) = plan.downcast_ref::<DistributedLeafExec>() else {
        line(
            text,
            depth,
            displayable(plan.as_ref()).one_line().to_string().trim_end(),
        );
        for child in plan.children() {
            operators(text, child, depth + 1, waiting);
        }
        return;
    };
    let original = leaf.original();
    line(
        text,
        depth,
        displayable(original.as_ref())
            .one_line()
            .to_string()
            .trim_end(),
    );
    for (worker, variant) in leaf.variants().iter().enumerate() {
        line(
            text,
            depth + 1,
            &format!("worker {worker}: {}", files_of(variant)),
        );
    }
}

/// The files that a scan reads.
fn files_of(scan: &Arc<dyn ExecutionPlan>) -> String {
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
