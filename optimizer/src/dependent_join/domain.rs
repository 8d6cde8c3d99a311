//! The values that a subquery's references take.

use std::sync::Arc;

use datafusion::arrow::datatypes::Fields;
use datafusion::common::alias::AliasGenerator;
use datafusion::common::{Column, ExprSchema, Result};
use datafusion::logical_expr::logical_plan::SubqueryAlias;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Operator, binary_expr};

use super::DOMAIN;
use super::repeatable::repeatable;

/// The distinct values of columns of a plan, or of more rows than it has, once for each place where a
/// subquery is pushed down to.
#[derive(Debug)]
pub struct Domain {
    /// With the columns `names`.
    values: LogicalPlan,
    /// The columns that a subquery refers to, and what they are called in it.
    names: Vec<(Column, String)>,
    /// Whether one of them may be NULL.
    has_nulls: bool,
}

impl Domain {
    /// That of `columns` of `input`, the rows that the subquery is asked for.
    ///
    /// # Errors
    /// [`DataFusionError::NotImplemented`](datafusion::common::DataFusionError::NotImplemented) if `input`
    /// would not return the same rows when it is run twice.
    pub fn of(input: &LogicalPlan, columns: Vec<Column>, aliases: &AliasGenerator) -> Result<Self> {
        let rows = repeatable(input, &columns)?;
        let mut has_nulls = false;
        for column in &columns {
            has_nulls |= rows.schema().field_from_column(column)?.is_nullable();
        }
        let names: Vec<(Column, String)> = columns
            .into_iter()
            .map(|column| (column, aliases.next("__outer")))
            .collect();
        let values = names
            .iter()
            .map(|(column, name)| Expr::Column(column.clone()).alias(name));
        let values = LogicalPlanBuilder::from(rows)
            .project(values.collect::<Vec<_>>())?
            .distinct()?
            .build()?;
        Ok(Self {
            values,
            names,
            has_nulls,
        })
    }

    /// The names of its columns in a subquery.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.names.iter().map(|(_, name)| name)
    }

    /// Its columns in a subquery, as those of a table.
    pub fn fields(&self) -> &Fields {
        self.values.schema().fields()
    }

    /// Its columns, as the rows have them that the subquery is asked for, and what they are called in it.
    pub fn columns(&self) -> impl Iterator<Item = (&Column, &String)> {
        self.names.iter().map(|(column, name)| (column, name))
    }

    /// What `column` around the subquery is called in it.
    pub fn name_of(&self, column: &Column) -> Option<&String> {
        let mut names = self.names.iter();
        names.find_map(|(known, name)| (known == column).then_some(name))
    }

    /// Whether two of its values are the same.
    pub fn is_same(&self, left: Expr, right: Expr) -> Expr {
        let operator = match self.has_nulls {
            true => Operator::IsNotDistinctFrom,
            false => Operator::Eq,
        };
        binary_expr(left, operator, right)
    }

    /// Whether joins may compare its values as keys, of which NULL is equal to none.
    pub fn is_key(&self) -> bool {
        !self.has_nulls
    }

    /// Its values, as one more side of a join.
    ///
    /// # Errors
    /// None of its own; those of building a plan.
    pub fn side(&self, aliases: &AliasGenerator) -> Result<LogicalPlan> {
        let values = Arc::new(self.values.clone());
        let side = SubqueryAlias::try_new(values, aliases.next(DOMAIN))?;
        Ok(LogicalPlan::SubqueryAlias(side))
    }
}
