//! The values that a subquery's references take.

use std::sync::Arc;

use datafusion::arrow::datatypes::Fields;
use datafusion::common::alias::AliasGenerator;
use datafusion::common::{Column, ExprSchema, Result};
use datafusion::logical_expr::logical_plan::SubqueryAlias;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Operator, binary_expr};

use super::repeatable::repeatable;
use super::{DOMAIN, ROWS};

/// The distinct values of columns of a plan, or of more rows than it has, once for each place where a
/// subquery is pushed down to; or its very rows, for one place.
#[derive(Debug)]
pub struct Domain {
    /// With the columns `names`.
    values: LogicalPlan,
    /// What it is called begins with this.
    prefix: &'static str,
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
        let names = renamed(columns, aliases);
        let values = LogicalPlanBuilder::from(rows).project(named(&names))?;
        Ok(Self {
            values: values.distinct()?.build()?,
            prefix: DOMAIN,
            names,
            has_nulls,
        })
    }

    /// The rows of `input` themselves with all of their columns, for a subquery that is pushed down to one
    /// place.
    ///
    /// # Errors
    /// None of its own; those of building a plan.
    pub fn of_rows(input: LogicalPlan, aliases: &AliasGenerator) -> Result<Self> {
        let names = renamed(input.schema().columns(), aliases);
        let values = LogicalPlanBuilder::from(input).project(named(&names))?;
        Ok(Self {
            values: values.build()?,
            prefix: ROWS,
            names,
            has_nulls: true,
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
        let side = SubqueryAlias::try_new(values, aliases.next(self.prefix))?;
        Ok(LogicalPlan::SubqueryAlias(side))
    }
}

/// What the columns of a domain are called in a subquery.
fn renamed(columns: Vec<Column>, aliases: &AliasGenerator) -> Vec<(Column, String)> {
    let columns = columns.into_iter();
    columns
        .map(|column| (column, aliases.next("__outer")))
        .collect()
}

/// Columns under these names.
fn named(names: &[(Column, String)]) -> Vec<Expr> {
    let names = names.iter();
    names
        .map(|(column, name)| Expr::Column(column.clone()).alias(name))
        .collect()
}
