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
//!   SELECT d.number, sum(x) AS s FROM d LEFT JOIN (SELECT number, unnest(list) AS x FROM d) GROUP BY d.number
//! ) AS sums ON sums.number = d.number
//! ```
//!
//! where `d`, which is [made once](crate::shared_rows::Shared), is
//! `SELECT list, row_number() OVER () AS number FROM (SELECT DISTINCT list FROM t)`.

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ExprSchema, JoinType, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Operator, binary_expr};

use super::domain::Domain;
use super::references::references;
use super::{Unnesting, correlated, has_all, named};

impl Unnesting<'_> {
    /// `node` with the numbers of what its subqueries are asked for as columns of its inputs, where those make
    /// many rows of one value.
    pub(super) fn with_numbers(&self, mut node: LogicalPlan) -> Result<LogicalPlan> {
        for (subquery, references) in correlated(&node)? {
            let asked = self.asked(&node)?;
            let asking = |input: &LogicalPlan| has_all(input, &references);
            let Some(asking) = asked.iter().position(asking) else {
                continue;
            };
            let rows = &asked[asking];
            let is_known = self.known(rows, &references).is_some();
            if is_known || !multiplies(&subquery.subquery, rows.schema())? {
                continue;
            }
            let domain = self.numbered(rows, references)?;
            let mut places = 0..;
            node = node
                .map_children(|input| match places.next() == Some(asking) {
                    true => self.with_number(input, &domain).map(Transformed::yes),
                    false => Ok(Transformed::no(input)),
                })?
                .data
                .recompute_schema()?;
            self.numbered.borrow_mut().push(domain);
        }
        Ok(node)
    }

    /// The domain of a subquery with these references to `input`, which has the numbers of its values.
    pub(super) fn known(&self, input: &LogicalPlan, references: &[Column]) -> Option<Domain> {
        let all = self.numbered.borrow();
        let mut known = all.iter().filter(|domain| {
            let mut keys = domain.keys();
            keys.all(|(number, _)| input.schema().has_column(number))
        });
        let is_of = |domain: &&Domain| {
            let others = domain.columns().count() - domain.keys().count();
            others == references.len()
                && references
                    .iter()
                    .all(|column| domain.name_of(column).is_some())
        };
        known.find(is_of).cloned()
    }

    /// The values of a subquery with these references to `asked`, with numbers.
    pub(super) fn numbered(&self, asked: &LogicalPlan, references: Vec<Column>) -> Result<Domain> {
        let values = Domain::of(asked, references, &self.aliases)?;
        values.numbered(&self.aliases, |values| self.made_once(values))
    }

    /// `input` with the numbers of its values in `domain`.
    pub(super) fn with_number(&self, input: LogicalPlan, domain: &Domain) -> Result<LogicalPlan> {
        let side = domain.side(&self.aliases)?;
        let keys: Vec<&Column> = domain.keys().map(|(number, _)| number).collect();
        let mut columns: Vec<Expr> = input
            .schema()
            .columns()
            .into_iter()
            .map(Expr::Column)
            .collect();
        let mut conditions = Vec::new();
        for (column, name) in domain.columns() {
            let value = named(name, &side)?;
            match keys.contains(&column) {
                true => columns.push(value.alias(&column.name)),
                false => {
                    let own = Expr::Column(column.clone());
                    conditions.push(binary_expr(own, Operator::IsNotDistinctFrom, value));
                }
            }
        }
        LogicalPlanBuilder::from(input)
            .join_on(side, JoinType::Left, conditions)?
            .project(columns)?
            .build()
    }
}

/// Whether the rows that `subquery` makes for a value of `around` would take much more than it: the value is a
/// list, or a text that a list is made of.
pub(super) fn multiplies(subquery: &LogicalPlan, around: &DFSchema) -> Result<bool> {
    let is_nested = |column: &Column| -> Result<bool> {
        Ok(around.field_from_column(column)?.data_type().is_nested())
    };
    for column in references(subquery)? {
        if around.has_column(&column) && is_nested(&column)? {
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
