//! Which operators of a physical plan return which relations, so that counted rows can be told by relation.
//!
//! The planner turns joins around, adds projections and exchanges, and moves filters into scans. What it keeps is the
//! tree of scans, joins, aggregates and filters of groups: both plans are reduced to it, and the trees are laid over
//! each other.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::source::DataSourceExec;
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::logical_plan::{Distinct, TableScan};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::scalar_subquery::ScalarSubqueryExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use parking_lot::Mutex;
use skewer_compat::rules::join_sides::is_join;
use skewer_exec::IdentifiedTable;

use super::cardinality::Estimator;
use super::known_rows::{KnownRows, Returned};
use super::relation::{Relation, Relations};
use super::statistics::Summaries;

/// Nested nodes that are looked through.
const MOST_NESTED: usize = 300;

/// What a node does to rows.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// Reads a table, which has this name in the log if that is known.
    Scan(Option<String>),
    Join,
    Aggregate,
    /// Leaves out groups of an aggregate.
    GroupFilter,
    /// Anything else without inputs.
    Leaf,
}

impl Kind {
    fn fits(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Scan(Some(one)), Self::Scan(Some(other))) => one == other,
            (Self::Scan(_), Self::Scan(_)) => true,
            _ => self == other,
        }
    }
}

/// A node of a plan that is reduced to scans, joins, aggregates and filters of groups.
#[derive(Debug)]
struct Node<T> {
    kind: Kind,
    /// The nodes below, of each input.
    inputs: Vec<Vec<Self>>,
    content: T,
}

/// Whether `nodes` are an aggregate, some of whose groups a filter above may leave out.
fn are_groups<T>(nodes: &[Node<T>]) -> bool {
    matches!(
        nodes,
        [Node {
            kind: Kind::Aggregate,
            ..
        }]
    )
}

/// What a node of a logical plan returns.
#[derive(Debug, Clone, Copy)]
struct Estimated {
    relation: Option<Relation>,
    /// Estimated rows.
    rows: Option<f64>,
}

/// An operator, by its address.
type Address = *const ();

/// The relations that the operators of a query return.
#[derive(Debug)]
pub struct PlanRelations {
    nodes: Arc<[Node<Estimated>]>,
    /// The versions of the tables that relations are made of.
    versions: Arc<[u64]>,
    found: Mutex<Vec<OperatorRelation>>,
}

/// An operator that returns a relation.
#[derive(Debug, Clone, PartialEq)]
pub struct OperatorRelation {
    /// The operator.
    pub operator_id: i64,
    /// What it returns.
    pub relation: Relation,
    /// Whether it returns all rows, if the operators of `builds` do return any.
    pub is_all: bool,
    /// Inputs of joins that are read first: where a partition of one has no rows, rows of this operator are not read.
    pub builds: Vec<Build>,
}

/// An input that a join reads first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Build<T = i64> {
    /// The operator.
    pub operator: T,
    /// Its partitions.
    pub partitions: usize,
}

/// What an operator returned.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RowsReturned {
    /// Rows of all partitions.
    pub rows: u64,
    /// Partitions that returned rows.
    pub partitions: usize,
}

/// What is known of an operator before it has a number.
#[derive(Debug, Clone)]
pub(crate) struct Matched {
    pub(crate) relation: Relation,
    /// Estimated rows.
    pub(crate) rows: Option<f64>,
    is_all: bool,
    builds: Vec<Build<Address>>,
}

impl Matched {
    /// How many rows the operator is expected to return, if something above does not ask for only some of them.
    pub(crate) fn expected(&self) -> Option<i64> {
        self.rows.filter(|_| self.is_all).map(|rows| rows as i64)
    }
}

impl PlanRelations {
    /// The relations of `plan`, which is what the planner gets.
    pub(super) fn of_plan(
        plan: &LogicalPlan,
        estimator: &Estimator<'_>,
        relations: &Relations<'_>,
        summaries: &Summaries,
    ) -> Self {
        let logical = Logical {
            estimator,
            relations,
        };
        Self {
            nodes: logical.nodes(plan, MOST_NESTED).unwrap_or_default().into(),
            versions: summaries.versions().collect(),
            found: Mutex::default(),
        }
    }

    /// The relations of the same plan, for another run of it.
    pub fn of_another_run(&self) -> Self {
        Self {
            nodes: Arc::clone(&self.nodes),
            versions: Arc::clone(&self.versions),
            found: Mutex::default(),
        }
    }

    /// The operators of `plan` that return relations, by address. `table_of` names the table that a scan reads.
    pub(crate) fn matched(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        table_of: &dyn Fn(&dyn ExecutionPlan) -> Option<String>,
    ) -> HashMap<Address, Matched> {
        let mut matched = HashMap::new();
        let mut closed = HashSet::new();
        if runtime_filters(plan, &mut closed, MOST_NESTED).is_none() {
            return matched;
        }
        let physical = Physical { table_of, closed };
        let above = Above::default();
        if let Some(nodes) = physical.nodes(plan, &above, MOST_NESTED) {
            lay_over(&self.nodes, &nodes, &mut matched);
        }
        matched
    }

    /// The operators of the plan have got numbers.
    pub(crate) fn set_found(
        &self,
        matched: HashMap<Address, Matched>,
        operators: &HashMap<Address, i64>,
    ) {
        let number = |address: &Address| operators.get(address).copied();
        let found = matched.iter().filter_map(|(address, matched)| {
            let builds = matched.builds.iter().map(|build| {
                Some(Build {
                    operator: number(&build.operator)?,
                    partitions: build.partitions,
                })
            });
            Some(OperatorRelation {
                operator_id: number(address)?,
                relation: matched.relation,
                is_all: matched.is_all,
                builds: builds.collect::<Option<_>>()?,
            })
        });
        *self.found.lock() = found.collect();
    }

    /// The query has ended: `known` remembers how many `rows` its operators returned. Gives the operators that returned
    /// all rows of a relation, and the names of these relations.
    pub fn count(
        &self,
        query_id: i64,
        rows: &HashMap<i64, RowsReturned>,
        known: &KnownRows,
    ) -> HashMap<i64, String> {
        let has_rows = |build: &Build| {
            let returned = rows.get(&build.operator);
            returned.is_some_and(|returned| returned.partitions == build.partitions)
        };
        let (mut counted, mut names) = (Vec::new(), HashMap::new());
        for found in self.found.lock().iter() {
            let Some(RowsReturned { rows, .. }) = rows.get(&found.operator_id) else {
                continue;
            };
            let is_all = found.is_all && found.builds.iter().all(has_rows);
            let returned = Returned {
                rows: *rows,
                is_all,
                query_id,
            };
            counted.push((found.relation, returned));
            if is_all {
                let Relation(name) = found.relation;
                names.insert(found.operator_id, format!("{name:016x}"));
            }
        }
        known.remember(self.versions.iter().copied(), counted);
        names
    }
}

/// Reduces a logical plan.
struct Logical<'a> {
    estimator: &'a Estimator<'a>,
    relations: &'a Relations<'a>,
}

impl Logical<'_> {
    /// The uppermost nodes of `plan`; `None` if it is nested too deeply.
    fn nodes(&self, plan: &LogicalPlan, depth: usize) -> Option<Vec<Node<Estimated>>> {
        let depth = depth.checked_sub(1)?;
        let below = |input: &LogicalPlan| self.nodes(input, depth);
        let node = |kind, inputs| {
            let content = Estimated {
                relation: self.relations.of(plan),
                rows: self.estimator.estimate(plan).map(|estimate| estimate.rows),
            };
            vec![Node {
                kind,
                inputs,
                content,
            }]
        };
        Some(match plan {
            LogicalPlan::TableScan(scan) => node(Kind::Scan(log_name(scan)), Vec::new()),
            LogicalPlan::Filter(filter) => match filter.input.as_ref() {
                LogicalPlan::TableScan(scan) => node(Kind::Scan(log_name(scan)), Vec::new()),
                input => {
                    let nodes = below(input)?;
                    match are_groups(&nodes) {
                        true => node(Kind::GroupFilter, vec![nodes]),
                        false => nodes,
                    }
                }
            },
            LogicalPlan::Join(join) => {
                node(Kind::Join, vec![below(&join.left)?, below(&join.right)?])
            }
            LogicalPlan::Aggregate(aggregate) => {
                node(Kind::Aggregate, vec![below(&aggregate.input)?])
            }
            LogicalPlan::Distinct(Distinct::All(input)) => {
                node(Kind::Aggregate, vec![below(input)?])
            }
            // Its operators run several times.
            LogicalPlan::RecursiveQuery(_) => vec![leaf(Estimated {
                relation: None,
                rows: None,
            })],
            _ if plan.inputs().is_empty() => vec![leaf(Estimated {
                relation: None,
                rows: None,
            })],
            _ => {
                let inputs = plan.inputs().into_iter().map(below);
                let inputs: Option<Vec<_>> = inputs.collect();
                inputs?.into_iter().flatten().collect()
            }
        })
    }
}

fn leaf<T>(content: T) -> Node<T> {
    Node {
        kind: Kind::Leaf,
        inputs: Vec::new(),
        content,
    }
}

fn log_name(scan: &TableScan) -> Option<String> {
    let provider = source_as_provider(&scan.source).ok()?;
    let table = provider.downcast_ref::<IdentifiedTable>()?;
    Some(table.log_name.clone())
}

/// What operators above do to those below.
#[derive(Debug, Clone, Default)]
struct Above {
    /// Whether one may stop before it has all rows.
    stops: bool,
    /// Inputs that joins above read first.
    builds: Vec<Build<Address>>,
}

/// An operator of a physical plan.
#[derive(Debug, Clone)]
struct Placed {
    address: Address,
    is_all: bool,
    builds: Vec<Build<Address>>,
}

/// Reduces a physical plan.
struct Physical<'a> {
    table_of: &'a dyn Fn(&dyn ExecutionPlan) -> Option<String>,
    /// Operators within which every runtime filter that is read is made, too.
    closed: HashSet<Address>,
}

impl Physical<'_> {
    /// The uppermost nodes of `plan`; `None` if it is nested too deeply.
    fn nodes(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        above: &Above,
        depth: usize,
    ) -> Option<Vec<Node<Placed>>> {
        let depth = depth.checked_sub(1)?;
        let placed = || Placed {
            address: address(plan),
            is_all: !above.stops && plan.fetch().is_none() && self.closed.contains(&address(plan)),
            builds: above.builds.clone(),
        };
        let children = plan.children();
        if children.is_empty() || plan.is::<RecursiveQueryExec>() {
            let is_scan = plan.is::<DataSourceExec>();
            let kind = match is_scan {
                true => Kind::Scan((self.table_of)(plan.as_ref())),
                false => Kind::Leaf,
            };
            return Some(vec![Node {
                kind,
                inputs: Vec::new(),
                content: placed(),
            }]);
        }
        if is_join(plan)
            && let [left, right] = children[..]
        {
            let (of_left, of_right) = of_inputs(plan, left, above);
            let inputs = vec![
                self.nodes(left, &of_left, depth)?,
                self.nodes(right, &of_right, depth)?,
            ];
            return Some(vec![Node {
                kind: Kind::Join,
                inputs,
                content: placed(),
            }]);
        }
        let mut own = children;
        if plan.is::<ScalarSubqueryExec>() {
            own.truncate(1);
        }
        let aggregate = plan.downcast_ref::<AggregateExec>();
        let is_limit = plan.is::<GlobalLimitExec>() || plan.is::<LocalLimitExec>();
        let reads_all = plan.is::<SortExec>()
            || aggregate.is_some_and(|aggregate| aggregate.limit_options().is_none());
        let below = Above {
            stops: !reads_all && (above.stops || is_limit || plan.fetch().is_some()),
            builds: above.builds.clone(),
        };
        let inputs = own.iter().map(|child| self.nodes(child, &below, depth));
        let inputs: Option<Vec<_>> = inputs.collect();
        let mut nodes: Vec<Node<Placed>> = inputs?.into_iter().flatten().collect();
        if aggregate.is_some_and(|aggregate| returns_groups(*aggregate.mode())) {
            return Some(vec![Node {
                kind: Kind::Aggregate,
                inputs: vec![nodes],
                content: placed(),
            }]);
        }
        if plan.is::<FilterExec>() {
            if are_groups(&nodes) {
                return Some(vec![Node {
                    kind: Kind::GroupFilter,
                    inputs: vec![nodes],
                    content: placed(),
                }]);
            }
            // A filter that is not within the scan.
            if let [node] = &mut nodes[..]
                && matches!(node.kind, Kind::Scan(_))
            {
                node.content = placed();
            }
        }
        Some(nodes)
    }
}

fn address(plan: &Arc<dyn ExecutionPlan>) -> Address {
    Arc::as_ptr(plan).cast()
}

/// What `join` does to its inputs.
fn of_inputs(
    join: &Arc<dyn ExecutionPlan>,
    left: &Arc<dyn ExecutionPlan>,
    above: &Above,
) -> (Above, Above) {
    let reads_left_first =
        join.is::<HashJoinExec>() || join.is::<NestedLoopJoinExec>() || join.is::<CrossJoinExec>();
    if !reads_left_first {
        // It may end with either input.
        let stopped = Above {
            stops: true,
            builds: above.builds.clone(),
        };
        return (stopped.clone(), stopped);
    }
    let of_left = Above {
        stops: false,
        builds: above.builds.clone(),
    };
    let mut of_right = above.clone();
    of_right.stops |= join.fetch().is_some();
    of_right.builds.push(Build {
        operator: address(left),
        partitions: left.output_partitioning().partition_count(),
    });
    (of_left, of_right)
}

fn returns_groups(mode: AggregateMode) -> bool {
    !matches!(mode, AggregateMode::Partial | AggregateMode::PartialReduce)
}

/// The filters that operators give to others while they run, by id.
#[derive(Debug, Default)]
struct RuntimeFilters {
    made: HashSet<u64>,
    read: HashSet<u64>,
}

/// The filters that the operators of `plan` make and read; `None` if it is nested too deeply. Adds to `closed` the
/// operators from whose inputs none outside leaves out rows: every filter that is read within is made there.
fn runtime_filters(
    plan: &Arc<dyn ExecutionPlan>,
    closed: &mut HashSet<Address>,
    depth: usize,
) -> Option<RuntimeFilters> {
    let depth = depth.checked_sub(1)?;
    let mut filters = RuntimeFilters::default();
    for child in plan.children() {
        let of_child = runtime_filters(child, closed, depth)?;
        filters.made.extend(of_child.made);
        filters.read.extend(of_child.read);
    }
    let made = plan.dynamic_expressions_produced();
    let made = made.iter().filter_map(|made| made.expression_id());
    filters.made.extend(made);
    // Nothing in it fails.
    let _ = plan.apply_expressions(&mut |root| {
        root.apply(|part| {
            filters.read.extend(part.expression_id());
            Ok(TreeNodeRecursion::Continue)
        })
    });
    if filters.read.is_subset(&filters.made) {
        closed.insert(address(plan));
    }
    Some(filters)
}

/// Finds for each node of `logical` the one of `physical` that stands for it.
fn lay_over(
    logical: &[Node<Estimated>],
    physical: &[Node<Placed>],
    matched: &mut HashMap<Address, Matched>,
) {
    if logical.len() != physical.len() {
        return;
    }
    for (of_plan, operator) in logical.iter().zip(physical) {
        if !has_shape(of_plan, operator) {
            continue;
        }
        if let Some(relation) = of_plan.content.relation {
            let Placed {
                address,
                is_all,
                ref builds,
            } = operator.content;
            let rows = of_plan.content.rows;
            let builds = builds.clone();
            matched.insert(
                address,
                Matched {
                    relation,
                    rows,
                    is_all,
                    builds,
                },
            );
        }
        match (&of_plan.inputs[..], &operator.inputs[..]) {
            ([left, right], [first, second]) => {
                let as_written = have_shapes(left, first) && have_shapes(right, second);
                let turned = have_shapes(left, second) && have_shapes(right, first);
                match (as_written, turned) {
                    (true, false) => {
                        lay_over(left, first, matched);
                        lay_over(right, second, matched);
                    }
                    (false, true) => {
                        lay_over(left, second, matched);
                        lay_over(right, first, matched);
                    }
                    // Two places of one table: nobody can tell which is which.
                    _ => {}
                }
            }
            ([input], [below]) => lay_over(input, below, matched),
            _ => {}
        }
    }
}

/// Whether two trees have the same scans, joins and aggregates, with the inputs of joins in any order.
fn has_shape(logical: &Node<Estimated>, physical: &Node<Placed>) -> bool {
    if !logical.kind.fits(&physical.kind) || logical.inputs.len() != physical.inputs.len() {
        return false;
    }
    match (&logical.inputs[..], &physical.inputs[..]) {
        ([left, right], [first, second]) => {
            have_shapes(left, first) && have_shapes(right, second)
                || have_shapes(left, second) && have_shapes(right, first)
        }
        (logical, physical) => logical
            .iter()
            .zip(physical)
            .all(|(logical, physical)| have_shapes(logical, physical)),
    }
}

fn have_shapes(logical: &[Node<Estimated>], physical: &[Node<Placed>]) -> bool {
    logical.len() == physical.len()
        && logical
            .iter()
            .zip(physical)
            .all(|(logical, physical)| has_shape(logical, physical))
}
