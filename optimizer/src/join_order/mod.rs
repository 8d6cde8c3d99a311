//! The order of joins, by estimated cost.
//!
//! DataFusion 55.2 joins in the order of FROM, and its rules make trees of joins left-deep. So this step runs
//! after its optimizer, once for each statement, before plans are profiled or made physical: profiled and plain
//! plans have the same order.
//!
//! * `island`: a tree of inner joins, its leaves and conditions
//! * [`statistics`]: what is known of tables
//! * `sample`, `selectivity`: for which share of rows a predicate holds
//! * `estimate`: how many rows there are, and what is in their columns
//! * `cardinality`: how many rows a node returns
//! * `relation`: names of relations, `known_rows`: how many rows they had in earlier queries, and `feedback`: estimates
//!   corrected by them
//! * [`plan_relations`]: which operators of a plan return relations
//! * `sizes`: how many rows joined leaves have, and what joining them costs
//! * `enumerate`: the search for the cheapest tree
//! * `build`: the plan of a tree
//! * `equal_subplans`: subplans that a query has several times, computed once
//! * `outer_joins`: inner joins below left joins
//! * `semi_joins`: semi joins below other joins
//! * `reducers`: semi joins below aggregates, where joins above ask for few groups
//!
//! An island keeps the order of the text if one of its leaves cannot be estimated, if its joins take no time
//! worth speaking of, or if another order would not be clearly cheaper. A new plan must have the schema of the old
//! one, and no more joins without keys.

mod build;
mod cardinality;
mod enumerate;
mod equal_subplans;
mod estimate;
mod feedback;
mod inequalities;
mod island;
mod known_rows;
mod outer_joins;
pub mod plan_relations;
mod reducers;
mod relation;
mod sample;
mod selectivity;
mod semi_joins;
mod sizes;
pub mod statistics;

use std::cell::Cell;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::execution::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::logical_expr::logical_plan::Explain;
use skewer_compat::rules::join_sides::{JoinEstimates, JoinInputs};
use skewer_compat::rules::without_unread_columns;

use self::cardinality::Estimator;
use self::equal_subplans::EqualSubplans;
use self::estimate::Estimate;
pub use self::feedback::CorrectedEstimate;
use self::feedback::Feedback;
use self::inequalities::Inequalities;
use self::island::{Island, JoinTree, LeafSet};
pub use self::known_rows::{FeedbackUsed, KnownRows, Returned};
use self::outer_joins::OuterJoins;
use self::plan_relations::PlanRelations;
use self::reducers::Reducers;
pub use self::relation::Relation;
use self::relation::Relations;
pub use self::sample::{can_be_sampled, columns_of};
use self::selectivity::ColumnEstimate;
use self::semi_joins::SemiJoins;
use self::sizes::Sizes;
use self::statistics::Summaries;

/// Below this cost, about one row passed on each, an order is not worth searching for: some milliseconds.
const SMALL_COST: f64 = 100_000.0;
/// The share of the text's cost that another order may have to replace it.
const CLEARLY_CHEAPER: f64 = 0.9;
/// Rows below which it does not matter which side of a join is collected.
const FEW_ROWS: f64 = 50_000.0;
/// The share of the cost of the order without feedback that an order by feedback may have to replace it: the former has
/// run, and the sizes of other joins are estimates.
const CLEARLY_CHEAPER_BY_FEEDBACK: f64 = 0.8;
/// Rows that each leaf is assumed to have when the order is random.
const UNKNOWN_ROWS: f64 = 1_000.0;

/// How the order of joins is chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum JoinOrder {
    /// The cheapest by estimates.
    #[default]
    Cost,
    /// As they are written, for those who know better.
    Text,
    /// Another one for each seed: for tests, which look for differences in results.
    Random(u64),
}

/// A plan whose joins are in order.
#[derive(Debug)]
pub struct OrderedJoins {
    /// The plan, with the schema of the one that was given.
    pub plan: LogicalPlan,
    /// What its joins get, for the rule that chooses sides; `None` if they are small.
    pub estimates: Option<JoinEstimates>,
    /// The relations that its operators return, for those who count rows.
    pub relations: Option<PlanRelations>,
    /// Estimates that earlier queries corrected.
    pub corrected: Vec<CorrectedEstimate>,
    /// What earlier queries counted, as far as that decided the order; `None` if it was not to be heeded.
    pub feedback: Option<FeedbackUsed>,
}

/// What is known of the tables of a query.
#[derive(Debug, Clone, Copy)]
pub struct Knowledge<'a> {
    /// Statistics of tables.
    pub summaries: &'a Summaries,
    /// What earlier queries counted, if that is to be heeded.
    pub known: Option<&'a KnownRows>,
}

/// How a plan is going to run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlannedRun {
    /// On several workers. They share no rows: no worker has the rows of another one.
    pub is_distributed: bool,
    /// With the lineage of each row, which has to be the lineage of the query as it is written.
    pub traces_records: bool,
}

/// Puts the joins of `optimized` in order; `None` if it stays as it is.
///
/// # Errors
/// Fails if a plan cannot be built. `optimized` can be run all the same.
pub fn order_joins(
    optimized: &LogicalPlan,
    Knowledge { summaries, known }: Knowledge<'_>,
    order: JoinOrder,
    state: &SessionState,
    PlannedRun {
        is_distributed,
        traces_records,
    }: PlannedRun,
) -> Result<Option<OrderedJoins>> {
    if order == JoinOrder::Text || !can_be_ordered(optimized)? {
        return Ok(None);
    }
    let explained = match optimized {
        LogicalPlan::Explain(explain) => explain.plan.as_ref(),
        plan => plan,
    };
    let relations = Relations::new(summaries);
    let feedback = known.and_then(|known| Feedback::new(&relations, summaries, known));
    let threshold = &state.config_options().optimizer;
    let step = Step {
        estimator: Estimator::new(summaries, feedback.as_ref()),
        order,
        collected: threshold.hash_join_single_partition_threshold_rows,
        islands: Cell::new(0),
    };
    let estimator = (order == JoinOrder::Cost).then_some(&step.estimator);
    let reducers = Reducers {
        estimator,
        added: Cell::new(0),
    };
    let ordered = OuterJoins { estimator }
        .moved_below(explained.clone())?
        .transform_data(|plan| SemiJoins { estimator }.moved_below(plan))?
        .transform_data(|plan| match traces_records {
            // A row of a semi join is made of the rows that it was compared with.
            true => Ok(Transformed::no(plan)),
            false => Inequalities { estimator }.aggregated(plan),
        })?
        .transform_data(|plan| step.ordered(plan))?
        .transform_data(|plan| reducers.added_to(plan))?;
    let mut plan = ordered.data;
    if ordered.transformed {
        plan = without_unread_columns(plan, state)?;
        let has_changed = !plan.schema().iter().eq(explained.schema().iter());
        if has_changed {
            return Ok(None);
        }
    }
    let mut has_shared = false;
    if !is_distributed {
        let shared = EqualSubplans { estimator }.shared(plan)?;
        has_shared = shared.transformed;
        plan = shared.data;
    }
    let (inputs, corrected) = match &feedback {
        Some(feedback) => feedback.listing(|| step.estimator.join_inputs(&plan)),
        None => (step.estimator.join_inputs(&plan), Vec::new()),
    };
    let estimates = (order == JoinOrder::Cost && inputs.iter().flatten().any(are_many))
        .then(|| JoinEstimates(inputs.into()));
    let relations = (!is_distributed)
        .then(|| PlanRelations::of_plan(&plan, &step.estimator, &relations, summaries));
    if !ordered.transformed && !has_shared && estimates.is_none() && relations.is_none() {
        return Ok(None);
    }
    if let LogicalPlan::Explain(explain) = optimized {
        plan = LogicalPlan::Explain(Explain {
            plan: Arc::new(plan),
            ..explain.clone()
        });
    }
    let used = known.map(|_| match &feedback {
        Some(feedback) => feedback.used(),
        None => FeedbackUsed::Nothing(summaries.versions().collect()),
    });
    Ok(Some(OrderedJoins {
        plan,
        estimates,
        relations,
        corrected,
        feedback: used,
    }))
}

fn are_many(inputs: &JoinInputs) -> bool {
    inputs.left.rows + inputs.right.rows >= FEW_ROWS
}

/// Whether there is a join in `plan`, and nothing that other rewrites have shared or replaced.
fn can_be_ordered(plan: &LogicalPlan) -> Result<bool> {
    let (mut has_join, mut has_extension) = (false, false);
    plan.apply_with_subqueries(|node| {
        has_join |= matches!(node, LogicalPlan::Join(_));
        has_extension |= matches!(node, LogicalPlan::Extension(_));
        Ok(match has_extension {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(has_join && !has_extension)
}

/// What becomes of an island.
enum Decision {
    /// Something of it cannot be estimated: the joins within may be islands of their own.
    Unknown,
    /// It keeps its order.
    Kept,
    Ordered(LogicalPlan),
}

struct Step<'a> {
    estimator: Estimator<'a>,
    order: JoinOrder,
    /// How many rows are collected into one partition at most.
    collected: usize,
    /// How many islands have been ordered.
    islands: Cell<u64>,
}

impl Step<'_> {
    fn ordered(&self, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
        plan.transform_down_with_subqueries(|node| {
            if matches!(node, LogicalPlan::RecursiveQuery(_)) {
                return Ok(Transformed::new(node, false, TreeNodeRecursion::Jump));
            }
            if !island::is_root(&node) {
                return Ok(Transformed::no(node));
            }
            let Some(mut island) = Island::below(&node)? else {
                return Ok(Transformed::no(node));
            };
            let is_known = |leaf: &Arc<LogicalPlan>| self.estimator.estimate(leaf).is_some();
            if self.order == JoinOrder::Cost && !island.leaves.iter().all(is_known) {
                return Ok(Transformed::no(node));
            }
            let mut has_changed = false;
            for leaf in &mut island.leaves {
                let ordered = self.ordered(leaf.as_ref().clone())?;
                if ordered.transformed {
                    has_changed = true;
                    *leaf = Arc::new(ordered.data);
                }
            }
            Ok(match self.decide(&island, &node, has_changed)? {
                Decision::Unknown => Transformed::no(node),
                Decision::Kept => Transformed::new(node, false, TreeNodeRecursion::Jump),
                Decision::Ordered(plan) => Transformed::new(plan, true, TreeNodeRecursion::Jump),
            })
        })
    }

    /// Decides about the `island` that begins at `root`. `has_changed` says that joins within its leaves were reordered.
    fn decide(&self, island: &Island, root: &LogicalPlan, has_changed: bool) -> Result<Decision> {
        let is_random = matches!(self.order, JoinOrder::Random(_));
        let mut leaves = island.leaves.clone();
        if !build::tell_leaves_apart(&mut leaves)? {
            return Ok(Decision::Unknown);
        }
        build::filter_leaves(island, &mut leaves)?;
        let estimates = || -> Option<Vec<Estimate>> {
            let estimates = leaves.iter().map(|leaf| match is_random {
                true => Some(unknown(leaf)),
                false => self.estimator.estimate(leaf),
            });
            estimates.collect()
        };
        let feedback = self.estimator.feedback();
        let plain = match feedback {
            Some(feedback) => feedback.paused(estimates),
            None => estimates(),
        };
        let Some(plain) = plain else {
            return Ok(Decision::Unknown);
        };
        let sizes = Sizes::new(island, &plain, self.collected, None);
        let mut chosen = self.choose(island, &sizes, has_changed);
        if let Some(feedback) = feedback
            && let Some(estimates) = estimates()
        {
            let before = feedback.sets(island, &leaves);
            let sizes = Sizes::new(island, &estimates, self.collected, Some(before));
            let corrected = self.choose(island, &sizes, has_changed);
            let cost = |tree: &Option<JoinTree>| sizes.cost(tree.as_ref().unwrap_or(&island.text));
            if cost(&corrected) < cost(&chosen) * CLEARLY_CHEAPER_BY_FEEDBACK {
                chosen = corrected;
            }
        }
        let Some(tree) = chosen else {
            return Ok(Decision::Kept);
        };
        Ok(
            match build::joined(island, &leaves, &tree, root.schema())? {
                Some(plan) => Decision::Ordered(plan),
                None => Decision::Unknown,
            },
        )
    }

    /// The order of an island; `None` if it stays as it is.
    fn choose(&self, island: &Island, sizes: &Sizes<'_>, has_changed: bool) -> Option<JoinTree> {
        let as_written = || has_changed.then(|| island.text.clone());
        if island.leaves.len() < 3 {
            return as_written();
        }
        let number = self.islands.get();
        self.islands.set(number + 1);
        let keyless = |tree: &JoinTree| without_keys(tree, sizes);
        let tree = match self.order {
            JoinOrder::Text => return as_written(),
            JoinOrder::Random(seed) => enumerate::random(sizes, seed.wrapping_add(number)),
            JoinOrder::Cost => {
                let cost = sizes.cost(&island.text);
                if cost < SMALL_COST {
                    return as_written();
                }
                let tree = enumerate::cheapest(sizes);
                if sizes.cost(&tree) > cost * CLEARLY_CHEAPER {
                    return as_written();
                }
                tree
            }
        };
        match keyless(&tree) > keyless(&island.text) {
            true => as_written(),
            false => Some(tree),
        }
    }
}

/// How many joins of `tree` have no keys, and no side of one row at most.
fn without_keys(tree: &JoinTree, sizes: &Sizes<'_>) -> usize {
    let JoinTree::Join(left, right) = tree else {
        return 0;
    };
    let (of_left, of_right): (LeafSet, LeafSet) = (left.leaf_set(), right.leaf_set());
    let is_single = |set| sizes.size(set).worst <= 1.0;
    let is_keyless =
        !sizes.has_key(of_left, of_right) && !is_single(of_left) && !is_single(of_right);
    usize::from(is_keyless) + without_keys(left, sizes) + without_keys(right, sizes)
}

fn unknown(leaf: &LogicalPlan) -> Estimate {
    let columns = leaf.schema().fields().len();
    Estimate {
        rows: UNKNOWN_ROWS,
        worst: UNKNOWN_ROWS,
        columns: vec![ColumnEstimate::with_distinct(UNKNOWN_ROWS); columns],
    }
}
