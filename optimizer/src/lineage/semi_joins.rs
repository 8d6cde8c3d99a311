//! Semi and mark joins in the rewrite: rows are made of those that they are found among, too.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, JoinType, Result};
use datafusion::functions_aggregate::expr_fn::count;
use datafusion::logical_expr::logical_plan::{Join, Projection};
use datafusion::logical_expr::{AggregateUDF, Expr, LogicalPlan, ScalarUDF, lit, when};
use skewer_compat::functions::group_constant::GroupConstant;
use skewer_compat::functions::row_numbers::RowNumbers;

use super::{AnnotatedPlan, HIDDEN, LineageRewrite, hidden_column};

impl LineageRewrite {
    /// A semi or mark join that knows what its rows were found among.
    pub(super) fn tested(
        &mut self,
        join: &Join,
        kept: (AnnotatedPlan, Vec<Expr>),
        tested: (AnnotatedPlan, Vec<Expr>),
    ) -> Result<AnnotatedPlan> {
        // A semi join has those rows that a mark join marks.
        let mark = match (join.join_type, join.schema.iter().last()) {
            (JoinType::LeftMark, Some((qualifier, field))) => {
                Some((qualifier.cloned(), field.name().clone()))
            }
            _ => None,
        };
        let marker = mark.as_ref().map(|_| self.name("marker"));
        let (joined, is_marked) = match &join.filter {
            None => self.tested_by_keys(join, kept, tested, marker)?,
            Some(filter) => self.tested_by_pairs(join, filter, kept, tested, marker)?,
        };
        let AnnotatedPlan { plan, records } = joined.plan;
        let mut columns = joined.columns;
        if let (Some((qualifier, name)), Some(is_marked)) = (mark, is_marked) {
            columns.push(is_marked.alias_qualified(qualifier, name));
        }
        let annotated = AnnotatedPlan { plan, records };
        for hidden in annotated.hidden_columns()? {
            if !columns.contains(&hidden) {
                columns.push(hidden);
            }
        }
        let plan = Arc::new(annotated.plan);
        Ok(AnnotatedPlan {
            plan: LogicalPlan::Projection(Projection::try_new(columns, plan)?),
            records: annotated.records,
        })
    }

    /// The rows of `tested` with the same keys are a group each, which the one row of `kept` or
    /// several are joined with. Without keys they all are one group, if there are any.
    fn tested_by_keys(
        &mut self,
        join: &Join,
        (kept, kept_keys): (AnnotatedPlan, Vec<Expr>),
        (tested, tested_keys): (AnnotatedPlan, Vec<Expr>),
        marker: Option<String>,
    ) -> Result<(Joined, Option<Expr>)> {
        let columns = columns_of(&kept.plan);
        // As columns of what is grouped: so what is known of keys at run time filters it, too.
        let (tested, keys) = self.with_keys(tested, tested_keys, Vec::new())?;
        let mut groups = keys.clone();
        if groups.is_empty() {
            // Groups of no keys at all are one, also of no rows.
            groups.push(lit(true).alias(self.name("key")));
        }
        let tested = self.captured(tested, groups, Vec::new())?;
        let keys = keys.into_iter();
        let (tested, is_marked) = marked(tested, marker)?;
        let plan = joined(join, (kept.plan, kept_keys), (tested.plan, keys), None)?;
        let mut records = kept.records;
        records.extend(tested.records);
        let plan = AnnotatedPlan { plan, records };
        Ok((Joined { plan, columns }, is_marked))
    }

    /// Where more is asked for than equal keys, each row of `kept` has a group of its own: all rows
    /// of `tested` with which it fulfils `filter`.
    fn tested_by_pairs(
        &mut self,
        join: &Join,
        filter: &Expr,
        (kept, kept_keys): (AnnotatedPlan, Vec<Expr>),
        (tested, tested_keys): (AnnotatedPlan, Vec<Expr>),
        marker: Option<String>,
    ) -> Result<(Joined, Option<Expr>)> {
        let asked = self.asked(filter, tested, tested_keys, kept.plan.schema())?;
        let (tested, _) = marked(asked.tested, marker.clone())?;
        let Numbered {
            plan,
            number,
            mut values,
            columns,
        } = self.numbered(&kept)?;
        let keys = asked.keys.into_iter();
        let pairs = joined(
            join,
            (plan, kept_keys),
            (tested.plan, keys),
            Some(asked.filter),
        )?;
        let pairs = AnnotatedPlan {
            plan: pairs,
            records: tested.records,
        };
        let mut is_marked = None;
        if let Some(marker) = marker {
            let name = self.name("marks");
            let marker = Expr::Column(Column::new_unqualified(marker));
            values.push(count(marker).alias(&name));
            is_marked = Some(Expr::Column(Column::new_unqualified(name)).gt(lit(0_i64)));
        }
        let mut plan = self.captured(pairs, vec![number], values)?;
        if let Some(is_marked) = &is_marked {
            self.forget_empty(&mut plan, is_marked)?;
        }
        let mut records = kept.records;
        records.append(&mut plan.records);
        plan.records = records;
        Ok((Joined { plan, columns }, is_marked))
    }

    /// The rows of `kept`, with a number: they may be equal, and of the same records.
    fn numbered(&mut self, kept: &AnnotatedPlan) -> Result<Numbered> {
        let name = self.name("row");
        let number = Expr::Column(Column::new_unqualified(&name));
        let hidden = kept.hidden();
        let any_value = AggregateUDF::from(GroupConstant::default());
        let (mut values, mut columns) = (Vec::new(), Vec::new());
        for column in kept.plan.schema().columns() {
            // All values of a column are the same where the number is.
            let value = any_value.call(vec![Expr::Column(column.clone())]);
            if hidden.contains(&column.name) {
                values.push(value.alias(column.name));
                continue;
            }
            if column.name.starts_with(HIDDEN) {
                continue;
            }
            let name = self.name("value");
            values.push(value.alias(&name));
            let value = Expr::Column(Column::new_unqualified(name));
            columns.push(value.alias_qualified(column.relation, column.name));
        }
        let mut numbered = columns_of(&kept.plan);
        let numbers = ScalarUDF::from(RowNumbers::new(self.recorder.worker_id()));
        numbered.push(numbers.call(vec![]).alias(name));
        let kept = Arc::new(kept.plan.clone());
        Ok(Numbered {
            plan: LogicalPlan::Projection(Projection::try_new(numbered, kept)?),
            number,
            values,
            columns,
        })
    }

    /// Of `tested` only its records, `columns`, and `keys` as columns, whose names it gives.
    fn with_keys(
        &mut self,
        tested: AnnotatedPlan,
        keys: Vec<Expr>,
        mut columns: Vec<Expr>,
    ) -> Result<(AnnotatedPlan, Vec<Expr>)> {
        columns.extend(tested.hidden_columns()?);
        let mut keys_of = Vec::new();
        for key in keys {
            let name = self.name("key");
            keys_of.push(Expr::Column(Column::new_unqualified(&name)));
            columns.push(key.alias(name));
        }
        let plan = Projection::try_new(columns, Arc::new(tested.plan))?;
        let tested = AnnotatedPlan {
            plan: LogicalPlan::Projection(plan),
            records: tested.records,
        };
        Ok((tested, keys_of))
    }

    /// Of `tested` only what is asked for, under names that `kept` does not have.
    fn asked(
        &mut self,
        filter: &Expr,
        tested: AnnotatedPlan,
        tested_keys: Vec<Expr>,
        kept: &DFSchema,
    ) -> Result<Asked> {
        let schema = tested.plan.schema();
        let mut columns = Vec::new();
        let mut renamed: HashMap<&Column, Expr> = HashMap::new();
        for column in filter.column_refs() {
            if schema.has_column(column) && !kept.has_column(column) {
                let name = self.name("tested");
                renamed.insert(column, Expr::Column(Column::new_unqualified(&name)));
                columns.push(Expr::Column(column.clone()).alias(name));
            }
        }
        let filter = filter.clone().transform(|expr| {
            let new = match &expr {
                Expr::Column(column) => renamed.get(column).cloned(),
                _ => None,
            };
            Ok(new.map_or_else(|| Transformed::no(expr), Transformed::yes))
        })?;
        let (tested, keys) = self.with_keys(tested, tested_keys, columns)?;
        Ok(Asked {
            tested,
            keys,
            filter: filter.data,
        })
    }

    /// Groups that nothing is in are no records.
    fn forget_empty(&mut self, groups: &mut AnnotatedPlan, is_any: &Expr) -> Result<()> {
        let schema = groups.plan.schema();
        let mut columns = columns_of(&groups.plan);
        for record in &mut groups.records {
            let id = hidden_column(schema, &record.id)?;
            record.id = self.name("id");
            columns.push(when(is_any.clone(), id).end()?.alias(&record.id));
        }
        let plan = Projection::try_new(columns, Arc::new(groups.plan.clone()))?;
        groups.plan = LogicalPlan::Projection(plan);
        Ok(())
    }
}

/// What a semi or mark join becomes.
struct Joined {
    /// Its rows, with columns of both sides, and the records of both.
    plan: AnnotatedPlan,
    /// The columns of the side whose rows are returned.
    columns: Vec<Expr>,
}

/// The side of a join whose rows are returned, with a number for each.
struct Numbered {
    plan: LogicalPlan,
    number: Expr,
    /// Aggregates that return the columns.
    values: Vec<Expr>,
    /// The columns of the rows, above the aggregate, but for hidden ones, which have their names.
    columns: Vec<Expr>,
}

/// What a join asks of the rows that it tests.
struct Asked {
    tested: AnnotatedPlan,
    keys: Vec<Expr>,
    /// The condition besides equal keys.
    filter: Expr,
}

/// Whether the rewrite can tell which rows of `tested` others are found among.
pub(super) fn can_be_told(join: &Join, tested: &AnnotatedPlan) -> bool {
    // Where no keys have to be equal, every row would have to be compared with every other.
    let is_by_keys = join.filter.is_none() || !join.on.is_empty();
    is_by_keys && !join.null_aware && !tested.records.is_empty()
}

fn columns_of(plan: &LogicalPlan) -> Vec<Expr> {
    let columns = plan.schema().columns().into_iter();
    columns.map(Expr::Column).collect()
}

/// `tested` with a column `marker`, if there is to be one; and how it is known after an outer join
/// that a row has a partner.
fn marked(tested: AnnotatedPlan, marker: Option<String>) -> Result<(AnnotatedPlan, Option<Expr>)> {
    let Some(marker) = marker else {
        return Ok((tested, None));
    };
    let mut columns = columns_of(&tested.plan);
    columns.push(lit(true).alias(&marker));
    let plan = Projection::try_new(columns, Arc::new(tested.plan))?;
    let tested = AnnotatedPlan {
        plan: LogicalPlan::Projection(plan),
        records: tested.records,
    };
    let is_marked = Expr::Column(Column::new_unqualified(marker)).is_not_null();
    Ok((tested, Some(is_marked)))
}

/// The join that a semi join becomes, or a mark join, which returns rows without partners, too.
fn joined(
    join: &Join,
    (kept, kept_keys): (LogicalPlan, Vec<Expr>),
    (tested, tested_keys): (LogicalPlan, impl Iterator<Item = Expr>),
    filter: Option<Expr>,
) -> Result<LogicalPlan> {
    let join_type = match join.join_type {
        JoinType::LeftMark => JoinType::Left,
        _ => JoinType::Inner,
    };
    Ok(LogicalPlan::Join(Join::try_new(
        Arc::new(kept),
        Arc::new(tested),
        kept_keys.into_iter().zip(tested_keys).collect(),
        filter,
        join_type,
        join.join_constraint,
        join.null_equality,
        false,
    )?))
}
