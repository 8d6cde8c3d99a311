//! The parameters of a prepared statement: which there are, and values put in their places.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr,
    FunctionArguments, LimitClause, ObjectName, Query, TableFactor, Value, ValueWithSpan, VisitMut,
    VisitorMut,
};
use thiserror::Error;

use crate::statement::Statement;
use skewer_compat::statement::desugar::{ALL_OF, ANY_OF};

/// Parameters that do not fit their statement.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParameterError {
    /// `$n` has no value.
    #[error("parameter {name} has no value: {given} given")]
    Missing {
        /// `$n`, as written.
        name: String,
        /// How many values there are.
        given: usize,
    },
    /// More values than parameters.
    #[error("the statement takes {taken} parameters, {given} given")]
    TooMany {
        /// How many parameters the statement has.
        taken: usize,
        /// How many values there are.
        given: usize,
    },
    /// A `?` or a named parameter.
    #[error("parameter {0} is not numbered: write $1, $2, …")]
    NotNumbered(String),
}

/// Puts `values` where the statement says `$1`, `$2`, …; those with a declared type are cast to it.
pub fn bind(
    statement: &mut Statement,
    values: &[Expr],
    types: &[DataType],
) -> Result<(), ParameterError> {
    let mut binder = Binder {
        values,
        types,
        taken: 0,
    };
    if let ControlFlow::Break(error) = visit(statement, &mut binder) {
        return Err(error);
    }
    if binder.taken < values.len() {
        return Err(ParameterError::TooMany {
            taken: binder.taken,
            given: values.len(),
        });
    }
    Ok(())
}

/// Visits the expressions of statements that can have parameters.
fn visit<V: VisitorMut>(statement: &mut Statement, visitor: &mut V) -> ControlFlow<V::Break> {
    match statement {
        Statement::Query(query) => query.visit(visitor),
        Statement::Insert(insert) => insert.visit(visitor),
        Statement::Update(update) => update.visit(visitor),
        Statement::Delete(delete) => delete.visit(visitor),
        Statement::CreateTable(table) => table.visit(visitor),
        Statement::ExplainProfile(explain) => {
            visit(&mut explain.statement, visitor)?;
            for without in &mut explain.without {
                without.predicate.visit(visitor)?;
            }
            ControlFlow::Continue(())
        }
        Statement::Explain(explain) => visit_datafusion(explain, visitor),
        _ => ControlFlow::Continue(()),
    }
}

fn visit_datafusion<V: VisitorMut>(
    statement: &mut DFStatement,
    visitor: &mut V,
) -> ControlFlow<V::Break> {
    match statement {
        DFStatement::Statement(statement) => statement.visit(visitor),
        DFStatement::Explain(explain) => visit_datafusion(&mut explain.statement, visitor),
        _ => ControlFlow::Continue(()),
    }
}

/// The parameters that a statement names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parameters {
    /// The highest number: there are so many values to give.
    pub count: usize,
    /// What `CAST($n AS type)`, `$n::type`, `LIMIT $n` or `generate_series(1, $n)` says, by number from 1.
    pub casts: BTreeMap<usize, DataType>,
}

/// Says `x = $n` for `x < ANY ($n)` and `x < ALL ($n)`, and beside `coalesce(x, $n)`, `CASE … THEN x ELSE $n END` and
/// their like, so that the type of `$n` can be inferred. Gives the numbers of the parameters of ANY and ALL: they are
/// lists of what is inferred.
pub fn compare_elements(statement: &mut Statement) -> BTreeSet<usize> {
    let mut elements = Elements(BTreeSet::new());
    let _: ControlFlow<ParameterError> = visit(statement, &mut elements);
    elements.0
}

struct Elements(BTreeSet<usize>);

impl VisitorMut for Elements {
    type Break = ParameterError;

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        let mut beside: Vec<&mut Expr> = match expr {
            Expr::Function(function) => values_beside(function),
            Expr::Case {
                conditions,
                else_result,
                ..
            } => {
                let results = conditions.iter_mut().map(|when| &mut when.result);
                results.chain(else_result.as_deref_mut()).collect()
            }
            _ => Vec::new(),
        };
        let compared = compared(&mut beside);
        if !compared.is_empty() {
            let value = std::mem::replace(expr, Expr::value(Value::Null));
            *expr = when_all(compared, value);
            return ControlFlow::Continue(());
        }
        let Expr::Function(function) = expr else {
            return ControlFlow::Continue(());
        };
        let name = function.name.to_string();
        let FunctionArguments::List(list) = &function.args else {
            return ControlFlow::Continue(());
        };
        let args: Vec<&Expr> = list.args.iter().filter_map(argument).collect();
        if let [value, _, list] = args.as_slice()
            && (name == ANY_OF || name == ALL_OF)
            && let Some(parameter) = placeholder(bare(list))
        {
            self.0.insert(number(parameter)?);
            let compared = Expr::BinaryOp {
                left: Box::new((*value).clone()),
                op: BinaryOperator::Eq,
                right: Box::new(bare(list).clone()),
            };
            *expr = Expr::Nested(Box::new(compared));
        }
        ControlFlow::Continue(())
    }
}

/// The arguments of a function that are all of the type of its result.
fn values_beside(function: &mut Function) -> Vec<&mut Expr> {
    let name = function.name.to_string().to_lowercase();
    let FunctionArguments::List(list) = &mut function.args else {
        return Vec::new();
    };
    if !matches!(
        name.as_str(),
        "coalesce" | "nullif" | "greatest" | "least" | "ifnull" | "nvl"
    ) {
        return Vec::new();
    }
    let values = list.args.iter_mut().filter_map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    });
    values.collect()
}

/// Puts a value that is none in the places of parameters beside it; gives the comparisons with them.
fn compared(beside: &mut [&mut Expr]) -> Vec<Expr> {
    let known = beside
        .iter()
        .find(|value| placeholder(bare(value)).is_none());
    let Some(known) = known.map(|value| (**value).clone()) else {
        return Vec::new();
    };
    let parameters = beside
        .iter_mut()
        .filter(|value| placeholder(bare(value)).is_some());
    let compared = parameters.map(|parameter| Expr::BinaryOp {
        left: Box::new(Expr::Nested(Box::new(known.clone()))),
        op: BinaryOperator::Eq,
        right: Box::new(bare(&std::mem::replace(&mut **parameter, known.clone())).clone()),
    });
    compared.collect()
}

/// `CASE WHEN a = $1 AND b = $2 THEN value END`.
fn when_all(conditions: Vec<Expr>, value: Expr) -> Expr {
    let all = conditions.into_iter().reduce(|all, one| Expr::BinaryOp {
        left: Box::new(all),
        op: BinaryOperator::And,
        right: Box::new(one),
    });
    Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: vec![CaseWhen {
            condition: all.unwrap_or_else(|| Expr::value(Value::Boolean(true))),
            result: value,
        }],
        else_result: None,
    }
}

/// An expression without parentheses around it.
fn bare(mut expr: &Expr) -> &Expr {
    while let Expr::Nested(inner) = expr {
        expr = inner;
    }
    expr
}

/// Which parameters a statement has.
///
/// # Errors
/// [`ParameterError::NotNumbered`] for one that is not `$n`.
pub fn parameters(statement: &Statement) -> Result<Parameters, ParameterError> {
    let mut finder = Finder::default();
    match visit(&mut statement.clone(), &mut finder) {
        ControlFlow::Break(error) => Err(error),
        ControlFlow::Continue(()) => Ok(finder.found),
    }
}

#[derive(Default)]
struct Finder {
    found: Parameters,
}

impl Finder {
    /// Notes that a parameter, if it is one, counts something.
    fn counts(&mut self, expr: &Expr) -> ControlFlow<ParameterError> {
        if let Some(name) = placeholder(bare(expr)) {
            let number = number(name)?;
            self.found
                .casts
                .entry(number)
                .or_insert(DataType::BigInt(None));
        }
        ControlFlow::Continue(())
    }

    /// Notes parameters that are the bounds of a series of numbers.
    fn series(&mut self, name: &ObjectName, args: &[FunctionArg]) -> ControlFlow<ParameterError> {
        let name = name.0.last().and_then(|part| part.as_ident());
        let is_series = name.is_some_and(|name| {
            matches!(
                name.value.to_lowercase().as_str(),
                "generate_series" | "range"
            )
        });
        let args: Vec<&Expr> = args.iter().filter_map(argument).collect();
        let number = |arg: &&&Expr| matches!(bare(arg), Expr::Value(value) if matches!(value.value, Value::Number(..)));
        if !is_series || args.iter().find(number).is_none() {
            return ControlFlow::Continue(());
        }
        args.into_iter().try_for_each(|arg| self.counts(arg))
    }
}

fn argument(arg: &FunctionArg) -> Option<&Expr> {
    match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    }
}

impl VisitorMut for Finder {
    type Break = ParameterError;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        match &query.limit_clause {
            Some(LimitClause::LimitOffset { limit, offset, .. }) => {
                let offset = offset.as_ref().map(|offset| &offset.value);
                limit
                    .iter()
                    .chain(offset)
                    .try_for_each(|rows| self.counts(rows))
            }
            Some(LimitClause::OffsetCommaLimit { offset, limit }) => {
                self.counts(offset)?;
                self.counts(limit)
            }
            None => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_table_factor(&mut self, table: &mut TableFactor) -> ControlFlow<Self::Break> {
        match table {
            TableFactor::Table {
                name,
                args: Some(args),
                ..
            } => self.series(name, &args.args),
            TableFactor::Function { name, args, .. } => self.series(name, args),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        match expr {
            Expr::Cast {
                expr, data_type, ..
            } => {
                if let Some(name) = placeholder(expr) {
                    self.found.casts.insert(number(name)?, data_type.clone());
                }
            }
            Expr::Function(function) => {
                if let FunctionArguments::List(list) = &function.args {
                    self.series(&function.name, &list.args)?;
                }
            }
            other => {
                if let Some(name) = placeholder(other) {
                    self.found.count = self.found.count.max(number(name)?);
                }
            }
        }
        ControlFlow::Continue(())
    }
}

fn placeholder(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(ValueWithSpan {
            value: Value::Placeholder(name),
            ..
        }) => Some(name),
        _ => None,
    }
}

/// `$n` → n, from 1.
fn number(name: &str) -> ControlFlow<ParameterError, usize> {
    let number = name.strip_prefix('$').and_then(|n| n.parse().ok());
    match number.filter(|n| (1..=MOST).contains(n)) {
        Some(number) => ControlFlow::Continue(number),
        None => ControlFlow::Break(ParameterError::NotNumbered(name.to_owned())),
    }
}

/// As many as PostgreSQL's protocol can count.
const MOST: usize = 65_535;

struct Binder<'a> {
    values: &'a [Expr],
    types: &'a [DataType],
    /// The highest number seen.
    taken: usize,
}

impl VisitorMut for Binder<'_> {
    type Break = ParameterError;

    // Post-order, so that a value which is put in is not visited itself.
    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        let Some(name) = placeholder(expr) else {
            return ControlFlow::Continue(());
        };
        let number = number(name)?;
        self.taken = self.taken.max(number);
        let Some(value) = self.values.get(number - 1) else {
            return ControlFlow::Break(ParameterError::Missing {
                name: name.to_owned(),
                given: self.values.len(),
            });
        };
        *expr = match self.types.get(number - 1) {
            Some(data_type) => Expr::Cast {
                kind: CastKind::Cast,
                expr: Box::new(value.clone()),
                data_type: data_type.clone(),
                array: false,
                format: None,
            },
            // A parameter that stays one, for its type to be inferred from where it stands.
            None if placeholder(value).is_some() => value.clone(),
            None => Expr::Nested(Box::new(value.clone())),
        };
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    fn bound(sql: &str, execute: &str) -> Result<String, ParameterError> {
        let Ok(Statement::Prepare {
            types,
            mut statement,
            ..
        }) = parse(sql)
        else {
            panic!("{sql}")
        };
        let Ok(Statement::Execute { parameters, .. }) = parse(execute) else {
            panic!("{execute}")
        };
        bind(&mut statement, &parameters, &types)?;
        match *statement {
            Statement::Query(query) => Ok(query.to_string()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn values_take_the_places_of_their_numbers() {
        let sql = bound("PREPARE p(INT) AS SELECT $2, $1, $2", "EXECUTE p(7, 'x')").unwrap();
        assert_eq!(sql, "SELECT ('x'), CAST(7 AS INT), ('x')");
    }

    #[test]
    fn parameters_are_counted_and_their_casts_known() {
        let statement = parse("SELECT $3, CAST($1 AS INT) + $2::bigint").unwrap();
        let found = parameters(&statement).unwrap();
        assert_eq!(found.count, 3);
        assert_eq!(found.casts.keys().collect::<Vec<_>>(), [&1, &2]);
        let statement = parse("EXPLAIN SELECT $1").unwrap();
        assert_eq!(parameters(&statement).unwrap().count, 1);
        let statement = parse("SELECT $0").unwrap();
        assert!(parameters(&statement).is_err());
    }

    #[test]
    fn parameters_that_count_are_known() {
        for sql in [
            "SELECT a FROM t LIMIT $1 OFFSET ($2)",
            "SELECT a FROM t FETCH FIRST $1 ROWS ONLY",
            "SELECT * FROM generate_series(1, $1)",
            "SELECT * FROM t, generate_series(1, $1) AS g",
        ] {
            let casts = parameters(&parse(sql).unwrap()).unwrap().casts;
            assert_eq!(casts.get(&1), Some(&DataType::BigInt(None)), "{sql}");
        }
        let sql = "SELECT * FROM generate_series($1, $2)";
        assert!(parameters(&parse(sql).unwrap()).unwrap().casts.is_empty());
    }

    #[test]
    fn lists_are_inferred_by_their_elements() {
        let mut statement = parse("SELECT a = ANY ($1), b <> ALL (($2)), c = ANY (d)").unwrap();
        let lists = compare_elements(&mut statement);
        assert_eq!(lists.into_iter().collect::<Vec<_>>(), [1, 2]);
        let Statement::Query(query) = statement else {
            panic!("{statement:?}")
        };
        let expected = "SELECT (a = $1), (b = $2), any_of(c, '=', d)";
        assert_eq!(query.to_string(), expected);
    }

    #[test]
    fn values_are_inferred_by_those_beside_them() {
        for (sql, expected) in [
            (
                "SELECT coalesce($1, a, $2)",
                "SELECT CASE WHEN (a) = $1 AND (a) = $2 THEN coalesce(a, a, a) END",
            ),
            (
                "SELECT CASE WHEN b THEN $1 ELSE a END",
                "SELECT CASE WHEN (a) = $1 THEN CASE WHEN b THEN a ELSE a END END",
            ),
            ("SELECT coalesce($1, $2)", "SELECT coalesce($1, $2)"),
        ] {
            let mut statement = parse(sql).unwrap();
            compare_elements(&mut statement);
            let Statement::Query(query) = statement else {
                panic!("{statement:?}")
            };
            assert_eq!(query.to_string(), expected);
        }
    }

    #[test]
    fn missing_and_superfluous_values_are_errors() {
        assert!(matches!(
            bound("PREPARE p AS SELECT $2", "EXECUTE p(7)"),
            Err(ParameterError::Missing { .. })
        ));
        assert!(matches!(
            bound("PREPARE p AS SELECT $1", "EXECUTE p(7, 8)"),
            Err(ParameterError::TooMany { taken: 1, given: 2 })
        ));
    }
}
