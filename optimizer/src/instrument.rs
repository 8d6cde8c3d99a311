//! Numbering the operators of a physical plan and wrapping each for counting and timing.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::cte_worktable::CteWorkTable;
use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::Result;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::memory::{DataSourceExec, MemorySourceConfig};
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::logical_expr::LogicalPlan;
use datafusion::physical_expr::window::SlidingAggregateWindowExpr;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use datafusion::physical_plan::windows::{
    BoundedWindowAggExec, PlainAggregateWindowExpr, WindowAggExec,
};
use datafusion::physical_plan::work_table::WorkTableExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, displayable};
use skewer_compat::operators::materialized::SharedRowsExec;
use skewer_exec::frames::OPERATOR_PAIRS;
use skewer_exec::{
    AggregateOrigin, CapturedFrames, CarriedState, Exchange, FrameCapture, IdentifiedTable,
    KeySample, LineageCapture, NumberedExec, Observed, OutputRecordsExec, ProfiledExec, ROW_ID,
    RestartExec, RowCapture, ScanOrigin, is_exchange, operator_kind, routing,
};
use skewer_profiling::operator_kind::{FRAMES_OF_ROWS, PARTS_OF_FRAMES};
use skewer_profiling::{Fragment, Operator, OperatorKind, Recorder, Routing};

use crate::details::{with_hoisted, without_hidden};
use crate::join_order::plan_relations::{Matched, PlanRelations};
use crate::lineage::HIDDEN;
use crate::remedies::{Possible, Remedies, hashes_keys, possible_remedies};

/// What the logical plan tells about the operators.
#[derive(Debug, Default)]
pub struct PlanFacts {
    /// Scans of the record level, with the names of their id columns.
    pub scans: Vec<(Vec<String>, Arc<ScanOrigin>)>,
    /// Columns that stand for expressions evaluated below, and the expressions.
    pub hoisted_exprs: Vec<(String, String)>,
    /// The tables that are scanned: their names in the log, and their schemas.
    pub tables: Vec<(String, SchemaRef)>,
    /// What is to be done about skew.
    pub remedies: Option<Arc<Remedies>>,
    /// The relations that operators return, if these are the operators of the plan that relations were named for.
    pub relations: Option<Arc<PlanRelations>>,
}

impl PlanFacts {
    /// What `plan` says of the tables it scans.
    ///
    /// # Errors
    /// None of its own; those of walking a plan.
    pub fn of_plan(plan: &LogicalPlan) -> Result<Self> {
        let mut tables = Vec::new();
        plan.apply_with_subqueries(|node| {
            if let LogicalPlan::TableScan(scan) = node {
                let provider = source_as_provider(&scan.source).ok();
                // That of a recursive query is not scanned.
                if provider.as_ref().is_some_and(|p| p.is::<CteWorkTable>()) {
                    return Ok(TreeNodeRecursion::Continue);
                }
                let table = provider
                    .as_ref()
                    .and_then(|p| p.downcast_ref::<IdentifiedTable>());
                let name = match table {
                    Some(table) => table.log_name.clone(),
                    None => scan.table_name.to_string(),
                };
                tables.push((name, scan.source.schema()));
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(Self {
            tables,
            ..Self::default()
        })
    }
}

/// Where a plan is cut into the parts that workers run; without workers it is not.
pub trait StageBoundaries: std::fmt::Debug + Send + Sync {
    /// What `plan` is for the query, if it is there only for sending plans to workers.
    fn boundary_of(&self, plan: &Arc<dyn ExecutionPlan>) -> Option<StageBoundary>;

    /// `exchange`, which is a [`StageBoundary::Exchange`] with a sender, with another sender: a `RepartitionExec`
    /// with as many partitions as the one before.
    ///
    /// # Errors
    /// If `exchange` or `sender` are other operators.
    fn with_sender(
        &self,
        exchange: &Arc<dyn ExecutionPlan>,
        sender: Arc<dyn ExecutionPlan>,
    ) -> Result<Arc<dyn ExecutionPlan>>;
}

/// An operator that is there only for sending plans to workers.
#[derive(Debug, Clone)]
pub enum StageBoundary {
    /// It hands the plan below to workers: no operator of the query.
    Root,
    /// It stands for a leaf of which every worker has a part.
    Leaf(Arc<dyn ExecutionPlan>),
    /// An exchange between workers.
    Exchange {
        /// How many workers run what is below.
        tasks: usize,
        /// The operator below that sends rows to where they belong, which is one with the
        /// exchange.
        sender: Option<Arc<dyn ExecutionPlan>>,
    },
}

/// Wraps every operator of `plan`, tells the recorder of operators and fragments, and tells the
/// scans which operators they became.
///
/// # Errors
/// Those of putting wrapped children into an operator.
pub fn instrument(
    plan: Arc<dyn ExecutionPlan>,
    recorder: &Arc<Recorder>,
    known: PlanFacts,
) -> Result<Arc<dyn ExecutionPlan>> {
    instrument_stages(plan, recorder, known, None)
}

/// The same for a plan that is cut: its operators are numbered so that the numbers travel with
/// the parts.
///
/// # Errors
/// As [`instrument`].
pub fn instrument_stages(
    plan: Arc<dyn ExecutionPlan>,
    recorder: &Arc<Recorder>,
    known: PlanFacts,
    boundaries: Option<&dyn StageBoundaries>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let remedies = known.remedies.clone();
    let (plan, applied) = match &remedies {
        Some(remedies) => match remedies.apply(Arc::clone(&plan), boundaries) {
            Ok(applied) => applied,
            Err(error) => {
                // The plan as it is returns the same.
                debug_assert!(false, "a remedy does not fit: {error}");
                tracing::warn!(%error, "a query runs without its remedies, which do not fit its plan");
                (plan, Vec::new())
            }
        },
        None => (plan, Vec::new()),
    };
    let mut instrumentation = Instrumentation {
        recorder,
        known,
        boundaries,
        shown: Shown::default(),
        possible: possible_remedies(&plan, boundaries)?,
        exchanges: vec![],
        relations: HashMap::new(),
        numbers: HashMap::new(),
        rows: vec![],
        operators: 0,
        fragments: 0,
    };
    let relations = instrumentation.known.relations.clone();
    if let Some(relations) = &relations {
        instrumentation.relations =
            relations.matched(&plan, &|scan| instrumentation.scanned_table(scan));
    }
    // What is known of its nodes is known by their addresses.
    let _alive = Arc::clone(&plan);
    let fragment_id = instrumentation.fragment(None, &plan, 1);
    let place = Place {
        fragment_id,
        parent: None,
        tasks: 1,
    };
    let (wrapped, _) = instrumentation.wrap(plan, place, None)?;
    if let Some(relations) = relations {
        relations.set_found(instrumentation.relations, &instrumentation.numbers);
    }
    if let Some(remedies) = remedies {
        remedies.set_applied(applied, &instrumentation.exchanges);
    }
    for row in instrumentation.rows {
        recorder.operator(row);
    }
    Ok(wrapped)
}

struct Instrumentation<'a> {
    recorder: &'a Arc<Recorder>,
    known: PlanFacts,
    boundaries: Option<&'a dyn StageBoundaries>,
    shown: Shown,
    /// What can be done about skew of the exchanges that hash keys.
    possible: Vec<Possible>,
    /// The numbers of these exchanges, as far as they have been wrapped.
    exchanges: Vec<i64>,
    /// The relations that operators return, by their addresses.
    relations: HashMap<*const (), Matched>,
    /// The numbers of operators, by their addresses, if relations are known.
    numbers: HashMap<*const (), i64>,
    /// Rows of `sys.operators`, parents before children.
    rows: Vec<Operator>,
    operators: i64,
    fragments: i64,
}

/// What the nodes of a plan that is not cut show of themselves, each asked once.
#[derive(Default)]
struct Shown {
    statistics: StatisticsContext,
    lines: HashMap<*const (), Arc<str>>,
}

/// Where an operator is put.
#[derive(Debug, Clone, Copy)]
struct Place {
    fragment_id: i64,
    /// The operator above.
    parent: Option<i64>,
    /// How many workers run the operator.
    tasks: usize,
}

impl Instrumentation<'_> {
    fn next_operator(&mut self) -> i64 {
        self.operators += 1;
        self.operators - 1
    }

    fn fragment(
        &mut self,
        parent: Option<i64>,
        root: &Arc<dyn ExecutionPlan>,
        tasks: usize,
    ) -> i64 {
        let fragment_id = self.fragments;
        self.fragments += 1;
        self.recorder.fragment(Fragment {
            fragment_id,
            parent_fragment_id: parent,
            tasks: (tasks * root.output_partitioning().partition_count()) as i64,
            plan: self.text_of(root),
        });
        fragment_id
    }

    /// One line that says what a node does.
    fn line(&mut self, plan: &Arc<dyn ExecutionPlan>) -> Arc<str> {
        let line = || Arc::from(displayable(plan.as_ref()).one_line().to_string().trim());
        // Those of cut plans may be made anew whenever they are asked for, where others were.
        if self.boundaries.is_some() {
            return line();
        }
        let lines = &mut self.shown.lines;
        let known = lines.entry(Arc::as_ptr(plan).cast()).or_insert_with(line);
        Arc::clone(known)
    }

    /// How many rows it is expected to return.
    fn estimated_rows(&self, plan: &dyn ExecutionPlan) -> Option<i64> {
        let arguments = StatisticsArgs::new();
        let statistics = match self.boundaries {
            Some(_) => StatisticsContext::new().compute(plan, &arguments),
            None => self.shown.statistics.compute(plan, &arguments),
        };
        Some(*statistics.ok()?.num_rows.get_value()? as i64)
    }

    /// The operators from `root` down to where other fragments begin, as indented text.
    fn text_of(&mut self, root: &Arc<dyn ExecutionPlan>) -> String {
        let mut text = String::new();
        self.write(root, 0, &mut text);
        text
    }

    fn write(&mut self, plan: &Arc<dyn ExecutionPlan>, depth: usize, text: &mut String) {
        let boundary = self.boundary(plan);
        // Those that get no number, as in `wrap`.
        let is_numbered = !is_the_profilers(plan) && !matches!(boundary, Some(StageBoundary::Root));
        if is_numbered {
            let shown = match &boundary {
                Some(StageBoundary::Leaf(original)) => original,
                _ => plan,
            };
            let line = self.line(shown);
            text.push_str(&"  ".repeat(depth));
            text.push_str(&line);
            text.push('\n');
        }
        if matches!(boundary, Some(StageBoundary::Exchange { .. })) || is_exchange(plan.as_ref()) {
            return;
        }
        for child in plan.children() {
            self.write(child, depth + usize::from(is_numbered), text);
        }
    }

    fn boundary(&self, plan: &Arc<dyn ExecutionPlan>) -> Option<StageBoundary> {
        self.boundaries?.boundary_of(plan)
    }

    /// Wraps `plan`, whose rows' keys are sampled by `keys`; also returns the leaves below it that
    /// no scan has been matched with yet.
    fn wrap(
        &mut self,
        plan: Arc<dyn ExecutionPlan>,
        place: Place,
        keys: Option<KeySample>,
    ) -> Result<(Arc<dyn ExecutionPlan>, Vec<i64>)> {
        let boundary = self.boundary(&plan);
        if is_the_profilers(&plan) || matches!(boundary, Some(StageBoundary::Root)) {
            let child = Arc::clone(plan.children()[0]);
            let (child, leaves) = self.wrap(child, place, keys)?;
            return Ok((replace_children_if_necessary(plan, vec![child])?, leaves));
        }
        let shown = match &boundary {
            Some(StageBoundary::Leaf(original)) => Arc::clone(original),
            _ => Arc::clone(&plan),
        };
        let operator_id = self.next_operator();
        let address = Arc::as_ptr(&plan).cast();
        if !self.relations.is_empty() {
            self.numbers.insert(address, operator_id);
        }
        let expected = self.relations.get(&address).and_then(Matched::expected);
        let captured = captured_groups(plan.as_ref());
        if let Some(groups) = &captured {
            groups.add_operator(operator_id, self.next_operator());
        }
        let row = Operator {
            fragment_id: place.fragment_id,
            operator_id,
            parent_operator_id: place.parent,
            name: shown.name().to_owned(),
            details: match &boundary {
                Some(StageBoundary::Exchange {
                    sender: Some(sender),
                    ..
                }) => self.details(sender),
                Some(StageBoundary::Exchange { tasks, .. }) => format!("from {tasks} tasks"),
                _ => self.details(&shown),
            },
            estimated_rows: expected.or_else(|| self.estimated_rows(plan.as_ref())),
            sql_span: None,
            captures: captured.is_some(),
            table_name: self.scanned_table(shown.as_ref()),
            kind: None,
            is_internal: None,
            captured_records: None,
            routing: None,
            remedies: self.possible_remedies(&plan, boundary.as_ref(), operator_id),
            relation: None,
        };
        let (kind, routing) = classified(&shown, boundary.as_ref());
        self.rows.push(row.with_kind(kind).with_routing(routing));
        for frames in captured_frames(plan.as_ref()) {
            self.number_frames(&frames, place.fragment_id, operator_id);
        }
        let (plan, mut leaves) = self.wrap_children(plan, place, operator_id, boundary.as_ref())?;
        if plan.children().is_empty() && may_scan(shown.as_ref()) {
            leaves.push(operator_id);
        }
        self.match_scans(plan.as_ref(), &mut leaves);
        let exchange = match boundary {
            Some(StageBoundary::Exchange { .. }) => Exchange::BetweenWorkers,
            _ => Exchange::of_operator(plan.as_ref()),
        };
        let observed = Observed {
            inner: plan,
            fragment_id: place.fragment_id,
            operator_id,
            task: 0,
            exchange,
            keys: keys.map(Arc::new),
            recorder: Arc::clone(self.recorder),
        };
        let wrapped: Arc<dyn ExecutionPlan> = match self.boundaries {
            Some(_) => Arc::new(NumberedExec::new(observed)),
            None => Arc::new(ProfiledExec::observing(observed)),
        };
        Ok((wrapped, leaves))
    }

    /// What can be done about skew of operator `operator_id`, if it is an exchange that hashes keys.
    fn possible_remedies(
        &mut self,
        plan: &Arc<dyn ExecutionPlan>,
        boundary: Option<&StageBoundary>,
        operator_id: i64,
    ) -> Option<String> {
        let sender = match boundary {
            Some(StageBoundary::Exchange { sender, .. }) => sender.as_ref()?,
            _ => plan,
        };
        if !hashes_keys(sender.as_ref()) {
            return None;
        }
        let possible = self.possible.get(self.exchanges.len());
        self.exchanges.push(operator_id);
        Some(possible.map(Possible::text).unwrap_or_default())
    }

    /// Gives numbers to what window `operator_id` makes of the frames of its rows.
    fn number_frames(&mut self, frames: &AggregateOrigin, fragment_id: i64, operator_id: i64) {
        for pair in 0..OPERATOR_PAIRS {
            let numbers = [self.next_operator(), self.next_operator()];
            frames.add_operator(numbers[0], numbers[1]);
            for (of_pair, number) in numbers.into_iter().enumerate() {
                let name = match 2 * pair + of_pair {
                    0 => FRAMES_OF_ROWS,
                    _ => PARTS_OF_FRAMES,
                };
                self.rows.push(Operator::of_captured_records(
                    OperatorKind::Frames,
                    name,
                    fragment_id,
                    number,
                    operator_id,
                ));
            }
        }
    }

    /// Wraps what is below operator `operator_id`.
    fn wrap_children(
        &mut self,
        plan: Arc<dyn ExecutionPlan>,
        place: Place,
        operator_id: i64,
        boundary: Option<&StageBoundary>,
    ) -> Result<(Arc<dyn ExecutionPlan>, Vec<i64>)> {
        let below = Place {
            parent: Some(operator_id),
            ..place
        };
        if let Some(StageBoundary::Exchange { tasks, sender }) = boundary {
            // What sends is put together anew by the worker: it gets no number of its own.
            let [child] = plan.children()[..] else {
                return Ok((plan, Vec::new()));
            };
            let root = match sender {
                Some(sender) => Arc::clone(sender.children()[0]),
                None => Arc::clone(child),
            };
            let keys = sender
                .as_ref()
                .and_then(|s| KeySample::of_exchange(s.as_ref(), operator_id, self.recorder));
            let below = Place {
                fragment_id: self.fragment(Some(place.fragment_id), &root, *tasks),
                tasks: *tasks,
                ..below
            };
            let (root, leaves) = self.wrap(root, below, keys)?;
            let child = match sender {
                Some(sender) => replace_children_if_necessary(Arc::clone(sender), vec![root])?,
                None => root,
            };
            return Ok((replace_children_if_necessary(plan, vec![child])?, leaves));
        }
        let exchange = is_exchange(plan.as_ref());
        let mut leaves = Vec::new();
        let mut children = Vec::new();
        let originals: Vec<_> = plan.children().into_iter().cloned().collect();
        for (input, child) in originals.into_iter().enumerate() {
            let below = Place {
                fragment_id: match exchange {
                    true => self.fragment(Some(place.fragment_id), &child, place.tasks),
                    false => place.fragment_id,
                },
                ..below
            };
            let (operator, recorder) = (plan.as_ref(), self.recorder);
            let keys = KeySample::of_exchange(operator, operator_id, recorder)
                .or_else(|| KeySample::of_join_input(operator, operator_id, input, recorder));
            let (child, child_leaves) = self.wrap(child, below, keys)?;
            children.push(child);
            leaves.extend(child_leaves);
        }
        if children.is_empty() {
            return Ok((plan, leaves));
        }
        Ok((replace_children_if_necessary(plan, children)?, leaves))
    }

    /// The first operator that has a scan's id column has one leaf below it: the scan.
    fn match_scans(&mut self, plan: &dyn ExecutionPlan, leaves: &mut Vec<i64>) {
        let schema = plan.schema();
        let carried = carried_scans(plan);
        let rows = &mut self.rows;
        self.known.scans.retain(|(names, scan)| {
            let is_carried = carried.iter().any(|carried| Arc::ptr_eq(carried, scan));
            let has_column = names.iter().any(|name| schema.index_of(name).is_ok());
            if !is_carried && !has_column {
                return true;
            }
            match leaves[..] {
                [leaf] => {
                    scan.set_operator_id(leaf);
                    if let Some(row) = rows.iter_mut().find(|row| row.operator_id == leaf) {
                        row.table_name = Some(scan.table_name.to_string());
                    }
                    leaves.clear();
                    false
                }
                // A branch of a union has the columns of the others, too, as NULLs: the scan is in one of those
                // that follow.
                [] => true,
                _ => false,
            }
        });
    }

    /// The table that a scan reads, if only one of the query's tables can be that.
    fn scanned_table(&self, plan: &dyn ExecutionPlan) -> Option<String> {
        let scan = plan.downcast_ref::<DataSourceExec>()?;
        let tables = &self.known.tables;
        // What it returns may have other names than the columns of its files.
        let files = scan.data_source().downcast_ref::<FileScanConfig>();
        let files = files.map(|files| files.file_source().table_schema().file_schema());
        let of_files = tables
            .iter()
            .filter(|(_, table)| files.is_some_and(|columns| visible(columns).eq(visible(table))));
        let mut names: Vec<_> = of_files.map(|(name, _)| name).collect();
        if names.is_empty() {
            let schema = plan.schema();
            let has_all = |table: &SchemaRef| {
                let mut columns = visible(&schema);
                columns.all(|name| table.index_of(name).is_ok())
            };
            let could_be = tables.iter().filter(|(_, table)| has_all(table));
            names = could_be.map(|(name, _)| name).collect();
        }
        let (first, others) = names.split_first()?;
        let is_one = others.iter().all(|other| other == first);
        is_one.then(|| (*first).clone())
    }

    /// One line that says what the operator does, without what only the profiler put there.
    fn details(&mut self, plan: &Arc<dyn ExecutionPlan>) -> String {
        let line = self.line(plan);
        let details = line
            .strip_prefix(plan.name())
            .map_or(line.as_ref(), |rest| rest.trim_start_matches([':', ' ']));
        without_hidden(&with_hoisted(details, &self.known.hoisted_exprs))
    }
}

/// The names of the columns that were created with the table, in order.
fn visible(schema: &Schema) -> impl Iterator<Item = &str> {
    let names = schema.fields().iter().map(|field| field.name().as_str());
    names.filter(|name| !is_hidden(name))
}

/// Whether a column is one of row ids, or the profiler's.
fn is_hidden(name: &str) -> bool {
    name == ROW_ID || name.starts_with(HIDDEN)
}

/// The kind of an operator, and of an exchange how it finds the partition of a row.
fn classified(
    plan: &Arc<dyn ExecutionPlan>,
    boundary: Option<&StageBoundary>,
) -> (OperatorKind, Option<Routing>) {
    let found = routing(plan.as_ref());
    match boundary {
        Some(StageBoundary::Exchange { sender, .. }) => {
            let sender = sender.as_ref();
            let of_sender = || sender.and_then(|sender| routing(sender.as_ref()));
            (OperatorKind::Exchange, found.or_else(of_sender))
        }
        _ => (operator_kind(plan.as_ref()), found),
    }
}

/// Whether a leaf may read a table whose rows have ids, rather than rows that the query names.
fn may_scan(leaf: &dyn ExecutionPlan) -> bool {
    if leaf.is::<EmptyExec>()
        || leaf.is::<PlaceholderRowExec>()
        || leaf.is::<SharedRowsExec>()
        || leaf.is::<WorkTableExec>()
    {
        return false;
    }
    let source = leaf.downcast_ref::<DataSourceExec>();
    let in_memory = source.is_some_and(|leaf| leaf.data_source().is::<MemorySourceConfig>());
    let schema = leaf.schema();
    let mut fields = schema.fields().iter();
    !in_memory || fields.any(|field| is_hidden(field.name()))
}

/// The scans whose ids the operator puts into the state of a recursive query: no column has them where
/// a scan does so itself.
fn carried_scans(plan: &dyn ExecutionPlan) -> Vec<Arc<ScanOrigin>> {
    let mut scans = Vec::new();
    let walked = plan.apply_expressions(&mut |expression| {
        let function = expression.downcast_ref::<ScalarFunctionExpr>();
        let state = function.and_then(|call| call.fun().inner().downcast_ref::<CarriedState>());
        scans.extend(state.into_iter().flat_map(CarriedState::scans).cloned());
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(walked.is_ok(), "nothing in it fails");
    scans
}

/// What the operator makes records of: the groups that an aggregate's `lineage_capture` gives ids to,
/// or the rows that a projection's `row_capture` does.
fn captured_groups(plan: &dyn ExecutionPlan) -> Option<Arc<AggregateOrigin>> {
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let mut items = projection.expr().iter();
        return items.find_map(|item| captured_rows(&item.expr));
    }
    let aggregate = plan.downcast_ref::<AggregateExec>()?;
    aggregate.aggr_expr().iter().find_map(|function| {
        let capture = function.fun().inner().downcast_ref::<LineageCapture>()?;
        Some(Arc::clone(capture.groups()))
    })
}

/// The rows that a `row_capture` gives ids to; it may be inside the `carried_state` of another recursive
/// query, whose static term this one is.
fn captured_rows(expression: &Arc<dyn PhysicalExpr>) -> Option<Arc<AggregateOrigin>> {
    let mut rows = None;
    let walked = expression.apply(|part| {
        let function = part.downcast_ref::<ScalarFunctionExpr>();
        let capture = function.and_then(|call| call.fun().inner().downcast_ref::<RowCapture>());
        rows = capture.map(|capture| Arc::clone(capture.rows()));
        Ok(match rows {
            Some(_) => TreeNodeRecursion::Stop,
            None => TreeNodeRecursion::Continue,
        })
    });
    debug_assert!(walked.is_ok(), "nothing in it fails");
    rows
}

/// The frames that a window's `frame_capture` gives ids to.
fn captured_frames(plan: &dyn ExecutionPlan) -> Vec<Arc<AggregateOrigin>> {
    let functions = match plan.downcast_ref::<BoundedWindowAggExec>() {
        Some(window) => window.window_expr(),
        None => plan
            .downcast_ref::<WindowAggExec>()
            .map_or(&[][..], |window| window.window_expr()),
    };
    let frames = functions.iter().filter_map(|function| {
        let function = function.as_any();
        let function = match function.downcast_ref::<SlidingAggregateWindowExpr>() {
            Some(sliding) => sliding.get_aggregate_expr(),
            None => function
                .downcast_ref::<PlainAggregateWindowExpr>()?
                .get_aggregate_expr(),
        };
        match function
            .fun()
            .inner()
            .downcast_ref::<FrameCapture>()?
            .frames()
        {
            CapturedFrames::Logged(_, frames) => Some(Arc::clone(frames)),
            CapturedFrames::Carried(_) => None,
        }
    });
    frames.collect()
}

/// Whether an operator of a record-level plan is none of the query's: it has one input, and hands on its
/// rows.
fn is_the_profilers(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<OutputRecordsExec>() || plan.is::<RestartExec>()
}
