//! Which exchanges must send equal keys to equal partitions, and who relies on it.

use std::sync::Arc;

use datafusion::common::{JoinSide, JoinType, NullEquality, Result};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{Distribution, PhysicalExpr};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode, SortMergeJoinExec};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::union::InterleaveExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties, Partitioning};
use skewer_compat::operators::conservative_properties::ConservativePropertiesExec;
use skewer_exec::TimedEvaluationExec;

use super::{Possible, Remedy};
use crate::instrument::{StageBoundaries, StageBoundary};

/// The exchanges of a plan that hash keys, by number.
#[derive(Debug, Default)]
pub(super) struct Exchanges {
    exchanges: Vec<HashExchange>,
    classes: Vec<Class>,
    joins: Vec<Join>,
}

/// An exchange that hashes keys.
#[derive(Debug)]
pub(super) struct HashExchange {
    pub(super) keys: Vec<Arc<dyn PhysicalExpr>>,
    /// The operator that sends the rows.
    input: Arc<dyn ExecutionPlan>,
    /// Outputs for all tasks that read.
    pub(super) partitions: usize,
    /// Outputs for each task that reads.
    pub(super) per_task: usize,
    keeps_order: bool,
    /// Exchanges whose equal keys have to meet; `None` if nobody relies on where this one sends rows.
    class: Option<usize>,
    /// The join that gets its rows one by one, and as which input.
    join: Option<(usize, JoinSide)>,
}

/// Exchanges that must send equal keys to equal partitions.
#[derive(Debug, Default)]
struct Class {
    members: Vec<usize>,
    /// Whether other rows that cannot be sent elsewhere must meet theirs.
    is_fixed: bool,
}

/// A join of partitions.
#[derive(Debug)]
struct Join {
    kind: JoinType,
    /// Whether NULL matches NULL, or decides the result as in NOT IN.
    nulls_matter: bool,
    /// Whether an operator above relies on the partitions of the join's rows.
    output_is_needed: bool,
}

/// What is above an operator, up to the next exchange.
#[derive(Debug, Clone, Copy, Default)]
struct Above {
    /// Who relies on the partitions of the operator's rows.
    class: Option<usize>,
    /// The join that gets the operator's rows one by one, and as which input.
    join: Option<(usize, JoinSide)>,
}

impl Exchanges {
    pub(super) fn of_plan(
        plan: &Arc<dyn ExecutionPlan>,
        boundaries: Option<&dyn StageBoundaries>,
    ) -> Self {
        let mut exchanges = Self::default();
        exchanges.visit(plan, boundaries, Above::default());
        exchanges
    }

    pub(super) fn len(&self) -> usize {
        self.exchanges.len()
    }

    pub(super) fn exchange(&self, number: usize) -> &HashExchange {
        &self.exchanges[number]
    }

    /// The exchanges that have to send equal keys to equal partitions with one; it is among them.
    pub(super) fn members(&self, number: usize) -> &[usize] {
        match self.exchanges[number].class {
            Some(class) => &self.classes[class].members,
            None => &[],
        }
    }

    /// The exchange into the other input of the join that one goes into.
    pub(super) fn partner(&self, number: usize) -> Option<usize> {
        let (join, _) = self.exchanges[number].join?;
        let [first, second] = *self.members(number) else {
            return None;
        };
        let other = if first == number { second } else { first };
        let (joined, _) = self.exchanges[other].join?;
        (joined == join).then_some(other)
    }

    /// What can be done about skew of an exchange.
    pub(super) fn possible(&self, number: usize) -> Result<Possible> {
        let exchange = &self.exchanges[number];
        let Some(class) = exchange.class.map(|class| &self.classes[class]) else {
            return Ok(Possible::default());
        };
        let alike = |member: &usize| {
            let member = &self.exchanges[*member];
            let is_plain = member.keys.iter().all(|key| key.is::<Column>());
            is_plain
                && !member.keeps_order
                && member.partitions == exchange.partitions
                && member.per_task == exchange.per_task
                && member.keys.len() == exchange.keys.len()
        };
        if class.is_fixed || exchange.partitions < 2 || !class.members.iter().all(alike) {
            return Ok(Possible::default());
        }
        let mut possible = vec![Remedy::Map];
        if let Some((join, side)) = exchange.join {
            let join = &self.joins[join];
            if self.may_split(number, join, side) {
                possible.push(Remedy::Split);
            }
            if !join.nulls_matter && exchange.has_nullable_key()? {
                match returns_unmatched(join.kind, side) {
                    true if join.output_is_needed => {}
                    true => possible.push(Remedy::DealNulls),
                    false => possible.push(Remedy::DropNulls),
                }
            }
        }
        Ok(Possible(possible))
    }

    /// Whether rows of one key may be dealt, if the other input's rows of that key are copied.
    fn may_split(&self, number: usize, join: &Join, side: JoinSide) -> bool {
        self.partner(number).is_some()
            && !join.output_is_needed
            && !join.nulls_matter
            && splits(join.kind, side)
    }

    fn visit(
        &mut self,
        plan: &Arc<dyn ExecutionPlan>,
        boundaries: Option<&dyn StageBoundaries>,
        above: Above,
    ) {
        let boundary = boundaries.and_then(|boundaries| boundaries.boundary_of(plan));
        let nothing = Above::default();
        match boundary {
            Some(StageBoundary::Leaf(_)) => return self.fix(above),
            Some(StageBoundary::Exchange { sender, .. }) => {
                let below = match &sender {
                    Some(sender) => {
                        let per_task = plan.output_partitioning().partition_count();
                        self.add(sender, per_task, above);
                        sender.children().first().copied().cloned()
                    }
                    None => plan.children().first().copied().cloned(),
                };
                if let Some(child) = &below {
                    self.visit(child, boundaries, nothing);
                }
                return;
            }
            Some(StageBoundary::Root) | None => {}
        }
        if plan.is::<RepartitionExec>() {
            let per_task = plan.output_partitioning().partition_count();
            self.add(plan, per_task, above);
            return self.visit(plan.children()[0], boundaries, nothing);
        }
        if let Some(join) = join_of_partitions(plan.as_ref(), above) {
            let class = above.class.unwrap_or_else(|| self.new_class());
            self.joins.push(join);
            let number = self.joins.len() - 1;
            for (child, side) in plan
                .children()
                .into_iter()
                .zip([JoinSide::Left, JoinSide::Right])
            {
                let above = Above {
                    class: Some(class),
                    join: Some((number, side)),
                };
                self.visit(child, boundaries, above);
            }
            return;
        }
        let children = plan.children();
        match children.as_slice() {
            [] => self.fix(above),
            [child] => {
                let requirements = plan.input_distribution_requirements();
                let below = match requirements.child_distribution(0) {
                    Some(Distribution::SinglePartition) => nothing,
                    Some(Distribution::KeyPartitioned(_)) => Above {
                        class: Some(above.class.unwrap_or_else(|| self.new_class())),
                        join: None,
                    },
                    _ => Above {
                        class: above.class,
                        join: above.join.filter(|_| hands_on_rows(plan.as_ref())),
                    },
                };
                self.visit(child, boundaries, below);
            }
            children => {
                let requirements = plan.input_distribution_requirements();
                let collects = collects_left(plan.as_ref());
                // It is not made of inputs that are partitioned in different ways.
                let interleaves = plan.is::<InterleaveExec>();
                for (index, child) in children.iter().enumerate() {
                    let relies = matches!(
                        requirements.child_distribution(index),
                        Some(Distribution::KeyPartitioned(_))
                    );
                    let class = match collects {
                        true if index == 0 => None,
                        true => above.class,
                        // What these rely on is not known: their rows stay where they are.
                        false if relies || interleaves || above.class.is_some() => {
                            let class = above.class.unwrap_or_else(|| self.new_class());
                            self.classes[class].is_fixed = true;
                            Some(class)
                        }
                        false => None,
                    };
                    self.visit(child, boundaries, Above { class, join: None });
                }
            }
        }
    }

    fn new_class(&mut self) -> usize {
        self.classes.push(Class::default());
        self.classes.len() - 1
    }

    /// Rows that meet others of a class come from an operator that cannot send them elsewhere.
    fn fix(&mut self, above: Above) {
        if let Some(class) = above.class {
            self.classes[class].is_fixed = true;
        }
    }

    /// Adds an exchange of which a task reads `per_task` outputs, if it hashes keys.
    fn add(&mut self, exchange: &Arc<dyn ExecutionPlan>, per_task: usize, above: Above) {
        let hashes = exchange.downcast_ref::<RepartitionExec>();
        let Some(exchange) = hashes.filter(|exchange| is_hash(exchange)) else {
            return self.fix(above);
        };
        let Partitioning::Hash(keys, partitions) = exchange.partitioning() else {
            return;
        };
        if let Some(class) = above.class {
            self.classes[class].members.push(self.exchanges.len());
        }
        self.exchanges.push(HashExchange {
            keys: keys.clone(),
            input: Arc::clone(exchange.input()),
            partitions: *partitions,
            per_task,
            keeps_order: exchange.preserve_order(),
            class: above.class,
            join: above.join,
        });
    }
}

impl HashExchange {
    fn has_nullable_key(&self) -> Result<bool> {
        let schema = self.input.schema();
        for key in &self.keys {
            if key.nullable(&schema)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Whether an exchange hashes keys.
pub(crate) fn is_hash(exchange: &RepartitionExec) -> bool {
    matches!(exchange.partitioning(), Partitioning::Hash(..))
}

/// The join of partitions that `plan` is.
fn join_of_partitions(plan: &dyn ExecutionPlan, above: Above) -> Option<Join> {
    let (kind, null_equality, null_aware) = if let Some(join) = plan.downcast_ref::<HashJoinExec>()
    {
        if *join.partition_mode() != PartitionMode::Partitioned {
            return None;
        }
        (*join.join_type(), join.null_equality(), join.null_aware)
    } else {
        let join = plan.downcast_ref::<SortMergeJoinExec>()?;
        (join.join_type(), join.null_equality(), false)
    };
    Some(Join {
        kind,
        nulls_matter: null_aware || null_equality == NullEquality::NullEqualsNull,
        output_is_needed: above.class.is_some(),
    })
}

/// Whether `plan` reads its first input as a whole, and passes on the partitions of the second.
fn collects_left(plan: &dyn ExecutionPlan) -> bool {
    let join = plan.downcast_ref::<HashJoinExec>();
    join.is_some_and(|join| *join.partition_mode() == PartitionMode::CollectLeft)
}

/// Whether each row that `plan` returns is made of one row of its input, wherever that is.
fn hands_on_rows(plan: &dyn ExecutionPlan) -> bool {
    plan.is::<FilterExec>()
        || plan.is::<ProjectionExec>()
        || plan.is::<ConservativePropertiesExec>()
        || plan.is::<TimedEvaluationExec>()
        || plan
            .downcast_ref::<SortExec>()
            .is_some_and(|sort| sort.preserve_partitioning() && sort.fetch().is_none())
}

/// Whether a join returns rows of an input that have no partner.
fn returns_unmatched(kind: JoinType, side: JoinSide) -> bool {
    match side {
        JoinSide::Left => matches!(
            kind,
            JoinType::Left | JoinType::Full | JoinType::LeftAnti | JoinType::LeftMark
        ),
        _ => matches!(
            kind,
            JoinType::Right | JoinType::Full | JoinType::RightAnti | JoinType::RightMark
        ),
    }
}

/// Whether rows of one key of an input may be in several partitions, if all rows of that key of the other input are
/// in each. Rows of the other input must not be returned without a partner, or once for each.
fn splits(kind: JoinType, side: JoinSide) -> bool {
    match side {
        JoinSide::Left => matches!(
            kind,
            JoinType::Inner
                | JoinType::Left
                | JoinType::LeftSemi
                | JoinType::LeftAnti
                | JoinType::LeftMark
        ),
        _ => matches!(
            kind,
            JoinType::Inner
                | JoinType::Right
                | JoinType::RightSemi
                | JoinType::RightAnti
                | JoinType::RightMark
        ),
    }
}
