//! The values that a subquery's references take.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::alias::AliasGenerator;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, ExprSchema, Result};
use datafusion::functions_nested::cardinality::cardinality_udf;
use datafusion::functions_nested::length::array_length_udf;
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::logical_plan::SubqueryAlias;
use datafusion::logical_expr::{
    Expr, ExprFunctionExt, LogicalPlan, LogicalPlanBuilder, Operator, ScalarUDF, binary_expr,
};

use super::determinism::Determinism;
use super::{DOMAIN, ROWS};

/// What the names of columns of numbers begin with: no user has such a key.
pub const NUMBER: &str = "__number";

/// The distinct values of columns of a plan, or of more rows than it has, once for each place where a
/// subquery is pushed down to; or its very rows, for one place.
#[derive(Debug, Clone)]
pub struct Domain {
    /// With the columns `names`, and those of `numbers`.
    rows: LogicalPlan,
    /// What it is called begins with this.
    prefix: &'static str,
    /// The columns that a subquery refers to, and what they are called in it.
    names: Vec<(Column, String)>,
    numbers: Option<Numbers>,
    /// Whether one of the columns by which its values are told apart may be NULL.
    has_nulls: bool,
}

/// The columns of a domain whose values have numbers, beside these values.
#[derive(Debug, Clone)]
struct Numbers {
    /// As [`Domain::names`].
    number: (Column, String),
    sizes: Vec<Size>,
}

/// How long a list is: to say so takes less than the list.
#[derive(Debug, Clone)]
struct Size {
    function: Arc<ScalarUDF>,
    of: Column,
    name: (Column, String),
}

impl Domain {
    /// That of `columns` of `input`, the rows that the subquery is asked for.
    ///
    /// # Errors
    /// [`DataFusionError::NotImplemented`](datafusion::common::DataFusionError::NotImplemented) if `input`
    /// would not return the same rows when it is run twice.
    pub fn of_columns(
        input: &LogicalPlan,
        columns: Vec<Column>,
        aliases: &AliasGenerator,
        determinism: Determinism<'_>,
    ) -> Result<Self> {
        let rows = determinism.deterministic_plan(input, &columns)?;
        let mut has_nulls = false;
        for column in &columns {
            has_nulls |= rows.schema().field_from_column(column)?.is_nullable();
        }
        let names = renamed(columns, aliases);
        let values = LogicalPlanBuilder::from(rows).project(columns_as(&names))?;
        Ok(Self {
            rows: values.distinct()?.build()?,
            prefix: DOMAIN,
            names,
            numbers: None,
            has_nulls,
        })
    }

    /// The same values, each with a number, by which they are told apart. `made_once` has them and their numbers
    /// made at one place for all; without it they are the same wherever they are made.
    ///
    /// # Errors
    /// Those of `made_once`, and of building a plan.
    pub fn numbered(
        self,
        aliases: &AliasGenerator,
        made_once: Option<impl FnOnce(LogicalPlan) -> Result<LogicalPlan>>,
    ) -> Result<Self> {
        let column = |name: &String| Expr::Column(Column::new_unqualified(name));
        let columns_as = |what| {
            let column = Column::new_unqualified(aliases.next(what));
            (column, aliases.next(what))
        };
        let own = self.names.iter().map(|(_, name)| column(name));
        let mut columns: Vec<Expr> = own.collect();
        let mut number = row_number();
        if made_once.is_none() {
            let order = columns.iter().map(|key| key.clone().sort(true, true));
            number = number.order_by(order.collect()).build()?;
        }

        let mut sizes = Vec::new();
        for (of, name) in &self.names {
            let field = self.rows.schema().field_with_unqualified_name(name)?;
            if !matches!(
                field.data_type(),
                DataType::List(_) | DataType::LargeList(_)
            ) {
                continue;
            }
            for function in [cardinality_udf(), array_length_udf()] {
                let size = Size {
                    function,
                    of: of.clone(),
                    name: columns_as("__size"),
                };
                columns.push(size.function.call(vec![column(name)]).alias(&size.name.1));
                sizes.push(size);
            }
        }
        let numbers = Numbers {
            number: columns_as(NUMBER),
            sizes,
        };
        let rows = LogicalPlanBuilder::from(self.rows).window([number])?;
        let number = rows.schema().columns().pop().map(Expr::Column);
        columns.extend(number.map(|number| number.alias(&numbers.number.1)));
        let rows = rows.project(columns)?.build()?;
        Ok(Self {
            rows: match made_once {
                Some(made_once) => made_once(rows)?,
                None => rows,
            },
            numbers: Some(numbers),
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
        let values = LogicalPlanBuilder::from(input).project(columns_as(&names))?;
        Ok(Self {
            rows: values.build()?,
            prefix: ROWS,
            names,
            numbers: None,
            has_nulls: true,
        })
    }

    /// Its columns, as the rows have them that the subquery is asked for, and what they are called in it: the
    /// values, and what there is beside them.
    pub fn columns(&self) -> impl Iterator<Item = (&Column, &String)> {
        let numbers = self.numbers.iter();
        let beside = numbers.flat_map(|numbers| {
            let sizes = numbers.sizes.iter().map(|size| &size.name);
            sizes.chain([&numbers.number])
        });
        let all = self.names.iter().chain(beside);
        all.map(|(column, name)| (column, name))
    }

    /// Those that a subquery refers to.
    pub fn values(&self) -> impl Iterator<Item = (&Column, &String)> {
        self.names.iter().map(|(column, name)| (column, name))
    }

    /// Those by which its values are told apart.
    pub fn keys(&self) -> impl Iterator<Item = (&Column, &String)> {
        let keys = match &self.numbers {
            Some(numbers) => std::slice::from_ref(&numbers.number),
            None => self.names.as_slice(),
        };
        keys.iter().map(|(column, name)| (column, name))
    }

    /// What a key is called where a plan has it twice.
    pub fn other_name(&self, aliases: &AliasGenerator) -> String {
        aliases.next(match self.numbers {
            Some(_) => NUMBER,
            None => "__inner",
        })
    }

    /// Their names in a subquery.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.columns().map(|(_, name)| name)
    }

    /// One of its columns in a subquery, as that of a table.
    ///
    /// # Errors
    /// If it has none of this name.
    pub fn field(&self, name: &str) -> Result<FieldRef> {
        let field = self.rows.schema().field_with_unqualified_name(name)?;
        Ok(Arc::clone(field))
    }

    /// What `column` around the subquery is called in it.
    pub fn name_of(&self, column: &Column) -> Option<&String> {
        let mut columns = self.columns();
        columns.find_map(|(known, name)| (known == column).then_some(name))
    }

    /// What says how long those of `columns` are that have lists.
    pub fn sizes_of(&self, columns: &[Column]) -> Vec<Column> {
        let sizes = self.numbers.iter().flat_map(|numbers| &numbers.sizes);
        let sizes = sizes.filter(|size| columns.contains(&size.of));
        sizes.map(|size| size.name.0.clone()).collect()
    }

    /// `expression` of a subquery, in which columns of the domain say how long its lists are.
    ///
    /// # Errors
    /// None of its own; those of rewriting an expression.
    pub fn with_sizes(&self, expression: Expr) -> Result<Expr> {
        let Some(numbers) = &self.numbers else {
            return Ok(expression);
        };
        let with_sizes = expression.transform_down(|part| {
            if let Expr::ScalarFunction(call) = &part
                && let [Expr::OuterReferenceColumn(_, of)] = call.args.as_slice()
                && let mut sizes = numbers.sizes.iter()
                && let Some(size) = sizes.find(|s| s.of == *of && s.function == call.func)
            {
                let (column, name) = &size.name;
                let size = Expr::OuterReferenceColumn(self.field(name)?, column.clone());
                return Ok(Transformed::yes(size));
            }
            Ok(Transformed::no(part))
        })?;
        Ok(with_sizes.data)
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
        let rows = Arc::new(self.rows.clone());
        let side = SubqueryAlias::try_new(rows, aliases.next(self.prefix))?;
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
fn columns_as(names: &[(Column, String)]) -> Vec<Expr> {
    let names = names.iter();
    names
        .map(|(column, name)| Expr::Column(column.clone()).alias(name))
        .collect()
}
