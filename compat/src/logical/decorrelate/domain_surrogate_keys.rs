//! Numbers for what a subquery is asked for, where it makes many rows of one value.
//!
//! The rows of a subquery carry what they are made for. If that is a list, and each of its elements a row,
//! they would take the square of its length. So the values of such a [`Domain`] have numbers, which the rows
//! carry in their place, and the query around the subquery has the number of its own values:
//!
//! ```text
//! SELECT (SELECT sum(x) FROM unnest(t.list) AS x) FROM t
//!
//! SELECT s FROM t LEFT JOIN d ON d.list IS NOT DISTINCT FROM t.list LEFT JOIN (
//!   SELECT d.number, sum(x) AS s
//!   FROM d LEFT JOIN (SELECT number, unnest(list) AS x FROM d) AS e ON e.number = d.number
//!   GROUP BY d.number
//! ) AS sums ON sums.number = d.number
//! ```
//!
//! where `d` is `SELECT list, row_number() OVER () AS number FROM (SELECT DISTINCT list FROM t)`, which is
//! [made once](crate::logical::common_subplan::Shared). Where the query is distributed it is made at each place: the numbers
//! are those of the values in their order.
//!
//! A list that an operator above reads, beside its elements, is carried by them after all; for its length the
//! domain has a column.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema, JoinType, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Operator, binary_expr};

use super::domain::Domain;
use super::references::references;
use super::{Asked, Unnesting, column_named, correlated, has_all};
use crate::logical::common_subplan::Shared;

impl Asked {
    /// The domain of a subquery with these references, if its values have numbers.
    pub(super) fn numbered_of(&self, references: &[Column]) -> Option<&Domain> {
        let mut numbered = self.numbered.iter();
        numbered.find(|domain| {
            let has = |(column, _)| references.contains(column);
            domain.values().count() == references.len() && domain.values().all(has)
        })
    }
}

impl Unnesting<'_> {
    /// `node` with the numbers of what its subqueries are asked for as columns of its inputs, where those make
    /// many rows of one value; and what they are asked for.
    pub(super) fn with_numbers(&self, mut node: LogicalPlan) -> Result<(LogicalPlan, Asked)> {
        let mut asked = Asked {
            rows: self.asked(&node)?,
            numbered: Vec::new(),
        };
        for (subquery, references) in correlated(&node)? {
            let asking = |input: &LogicalPlan| has_all(input, &references);
            let Some(asking) = asked.rows.iter().position(asking) else {
                continue;
            };
            let rows = &asked.rows[asking];
            let is_known = asked.numbered_of(&references).is_some();
            if is_known || !multiplies(&subquery.subquery, rows.schema())? {
                continue;
            }
            let domain = self.numbered(Domain::of_columns(
                rows,
                references,
                &self.aliases,
                self.determinism,
            )?)?;
            let mut places = 0..;
            let numbered = node.map_children(|input| match places.next() == Some(asking) {
                true => self.with_number(input, &domain).map(Transformed::yes),
                false => Ok(Transformed::no(input)),
            })?;
            node = numbered.data.recompute_schema()?;
            asked.numbered.push(domain);
        }
        Ok((node, asked))
    }

    /// `domain` with numbers of its values.
    pub(super) fn numbered(&self, domain: Domain) -> Result<Domain> {
        let made_once = |rows| self.made_once_as(Shared::values, rows);
        domain.numbered(&self.aliases, (!self.is_distributed).then_some(made_once))
    }

    /// `input` with the numbers of its values in `domain`.
    pub(super) fn with_number(&self, input: LogicalPlan, domain: &Domain) -> Result<LogicalPlan> {
        let side = domain.side(&self.aliases)?;
        let own = input.schema().columns().into_iter().map(Expr::Column);
        let mut columns: Vec<Expr> = own.collect();
        let mut conditions = Vec::new();
        for (column, name) in domain.values() {
            let own = Expr::Column(column.clone());
            let value = column_named(name, &side)?;
            conditions.push(binary_expr(own, Operator::IsNotDistinctFrom, value));
        }
        for (column, name) in domain.keys() {
            columns.push(column_named(name, &side)?.alias(&column.name));
        }
        LogicalPlanBuilder::from(input)
            .join_on(side, JoinType::Left, conditions)?
            .project(columns)?
            .build()
    }
}

/// Whether the rows that `subquery` makes for a value of `around` would take much more than it: the value has
/// lists, or is a text that a list is made of.
pub(super) fn multiplies(subquery: &LogicalPlan, around: &DFSchema) -> Result<bool> {
    for column in references(subquery)? {
        if around.has_column(&column) && has_lists(around.field_from_column(&column)?.data_type()) {
            return Ok(true);
        }
    }
    let mut found = false;
    subquery.apply(|node| {
        if let LogicalPlan::Unnest(_) = node {
            for column in references(node)? {
                found |= around.has_column(&column)
                    && !around
                        .field_from_column(&column)?
                        .data_type()
                        .is_primitive();
            }
        }
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

fn has_lists(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(fields) => fields.iter().any(|field| has_lists(field.data_type())),
        other => other.is_nested(),
    }
}
