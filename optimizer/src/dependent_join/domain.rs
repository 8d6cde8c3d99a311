//! The values that a subquery's references take.

use std::sync::Arc;

use datafusion::arrow::datatypes::Fields;
use datafusion::common::alias::AliasGenerator;
use datafusion::common::{Column, ExprSchema, Result};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::logical_plan::SubqueryAlias;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, Operator, binary_expr};

use super::repeatable::repeatable;
use super::{DOMAIN, ROWS};

/// The distinct values of columns of a plan, or of more rows than it has, once for each place where a
/// subquery is pushed down to; or its very rows, for one place.
#[derive(Debug, Clone)]
pub struct Domain {
    /// With the columns `names`.
    values: LogicalPlan,
    /// What it is called begins with this.
    prefix: &'static str,
    /// The columns that a subquery refers to, and what they are called in it; the last of them is the number, if
    /// its values have one.
    names: Vec<(Column, String)>,
    is_numbered: bool,
    /// Whether one of the columns by which its values are told apart may be NULL.
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
            is_numbered: false,
            has_nulls,
        })
    }

    /// The same values, each with a number, by which they are told apart. `made_once` has them and their numbers
    /// made at one place for all.
    ///
    /// # Errors
    /// Those of `made_once`, and of building a plan.
    pub fn numbered(
        self,
        aliases: &AliasGenerator,
        made_once: impl FnOnce(LogicalPlan) -> Result<LogicalPlan>,
    ) -> Result<Self> {
        let own = self.names.iter().map(|(_, name)| name);
        let mut columns: Vec<Expr> = own
            .map(|name| Expr::Column(Column::new_unqualified(name)))
            .collect();
        let numbered = LogicalPlanBuilder::from(self.values).window([row_number()])?;
        let last = numbered.schema().columns().pop().map(Expr::Column);
        let mut names = self.names;
        names.extend(renamed(
            vec![Column::new_unqualified(aliases.next("__number"))],
            aliases,
        ));
        let number = names.last().zip(last);
        columns.extend(number.map(|((_, name), last)| last.alias(name)));
        Ok(Self {
            values: made_once(numbered.project(columns)?.build()?)?,
            names,
            is_numbered: true,
            has_nulls: false,
            ..self
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
            is_numbered: false,
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

    /// Those by which its values are told apart.
    pub fn keys(&self) -> impl Iterator<Item = (&Column, &String)> {
        let others = match self.is_numbered {
            true => self.names.len() - 1,
            false => 0,
        };
        self.columns().skip(others)
    }

    /// What `column` around the subquery is called in it.
    pub fn name_of(&self, column: &Column) -> Option<&String> {
        let mut names = self.names.iter();
        names.find_map(|(known, name)| (known == column).then_some(name))
    }

    /// Whether a column by which its values are told apart is the same for two of them.
    pub fn is_same(&self, left: Expr, right: Expr) -> Expr {
        let operator = match self.has_nulls {
            true => Operator::IsNotDistinctFrom,
            false => Operator::Eq,
        };
        binary_expr(left, operator, right)
    }

    /// Whether joins may compare them as keys, of which NULL is equal to none.
    pub fn are_keys(&self) -> bool {
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
