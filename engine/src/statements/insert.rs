//! INSERT INTO t VALUES … or SELECT ….

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, DataFusionError, ScalarValue};
use datafusion::logical_expr::dml::InsertOp;
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, Projection, Values, WriteOp};
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{self, SetExpr, TableObject};

use skewer_compat::logical::values_subqueries::with_selected_values;
use skewer_compat::suggest::suggest;
use skewer_sql::Statement;
use skewer_storage::TableMeta;

use super::{Context, Outcome, as_statement};
use crate::catalog::names::fold;
use crate::catalog::types::{must_be_assignable, rounded};
use crate::error::Error;

/// Appends rows; columns that are not listed get NULL.
pub(crate) async fn execute(
    context: &mut Context,
    mut insert: ast::Insert,
) -> Result<Outcome, Error> {
    let TableObject::TableName(name) = &insert.table.clone() else {
        return Err(Error::Unsupported(
            "INSERT into something other than a table".to_owned(),
        ));
    };
    if insert.returning.is_some() || insert.on.is_some() || insert.overwrite {
        return Err(Error::Unsupported(
            "INSERT with RETURNING, ON CONFLICT or OVERWRITE".to_owned(),
        ));
    }
    must_be_plain(&mut insert)?;
    let table = context.catalog.appendable_table(name)?;
    let _turn = context.turn_to_append(&table).await;
    check_width(&insert, table.schema.fields().len())?;
    let places = listed_columns(&insert, &table)?;
    keep_decimals_exact(&mut insert, &table, &places);
    let explicit = explicit_casts(&insert);
    let input = match insert.source.take_if(|source| !is_values(source)) {
        Some(source) => selected(context, source, &table, &places).await?,
        None => inserted(context, insert).await?,
    };
    let input = assignable(input, &table, &explicit)?;
    let (segments, rows) = context.write_query(&input, &table).await?;
    let mut transaction = context.storage().begin();
    transaction.add_segments(table.id, segments)?;
    context.commit(transaction).await?;
    context.session.database_inner().has_grown(table.id);
    Ok(Outcome::Count(rows))
}

/// The rows of a query as rows of `table`, column by column.
///
/// # Errors
/// If the query has another number of columns, or columns of types that the table's do not take.
pub(crate) async fn of_query(
    context: &Context,
    query: Box<ast::Query>,
    table: &TableMeta,
) -> Result<LogicalPlan, Error> {
    let places: Vec<usize> = (0..table.schema.fields().len()).collect();
    let input = selected(context, query, table, &places).await?;
    assignable(input, table, &HashSet::new())
}

/// The same rows, checked and rounded as assignments to the columns of `table` want it.
fn assignable(
    input: LogicalPlan,
    table: &TableMeta,
    explicit: &HashSet<(usize, usize)>,
) -> Result<LogicalPlan, Error> {
    check_types(&input, table, explicit)?;
    let input = round_fractions(input, explicit)?;
    Ok(with_selected_values(nullable_values(input)?)?)
}

/// Refuses all that other databases have between INSERT and the rows: nothing of it would be done.
fn must_be_plain(insert: &mut ast::Insert) -> Result<(), Error> {
    let template = skewer_sql::parse("INSERT INTO t SELECT 1")?;
    let Statement::Insert(mut plain) = template else {
        return Err(Error::Internal("INSERT is another statement".to_owned()));
    };
    let source = insert.source.take();
    plain.source = None;
    plain.into = insert.into;
    plain.has_table_keyword = insert.has_table_keyword;
    plain.table = insert.table.clone();
    plain.columns = insert.columns.clone();
    let is_plain = *plain == *insert && source.is_some();
    insert.source = source;
    match is_plain {
        true => Ok(()),
        false => Err(Error::Unsupported(
            "INSERT with more than a table, its columns, and VALUES or a query".to_owned(),
        )),
    }
}

fn is_values(source: &ast::Query) -> bool {
    matches!(*source.body, SetExpr::Values(_))
}

/// The rows of VALUES as columns of the table.
async fn inserted(context: &Context, insert: ast::Insert) -> Result<LogicalPlan, Error> {
    let statement = DFStatement::Statement(Box::new(ast::Statement::Insert(insert)));
    let plan = context.catalog.plan(statement).await?;
    let LogicalPlan::Dml(dml) = plan else {
        return Err(Error::Internal(format!(
            "INSERT was planned as {}",
            plan.display()
        )));
    };
    if !matches!(dml.op, WriteOp::Insert(InsertOp::Append)) {
        return Err(Error::Unsupported(format!("{}", dml.op)));
    }
    Ok(Arc::unwrap_or_clone(dml.input))
}

/// The rows of a query as columns of the table. (As the source of an INSERT, DataFusion 55.2 would give all
/// VALUES within the query the types of the table's columns.)
async fn selected(
    context: &Context,
    source: Box<ast::Query>,
    table: &TableMeta,
    places: &[usize],
) -> Result<LogicalPlan, Error> {
    let plan = context.catalog.plan(as_statement(source)).await?;
    let given = plan.schema().fields().len();
    if given != places.len() {
        return Err(Error::Invalid(format!(
            "each row of the query has {given} values for {} columns",
            places.len()
        )));
    }
    let fields = table.schema.fields().iter().enumerate();
    let columns = fields.map(|(column, field)| {
        let value = match places.iter().position(|place| *place == column) {
            Some(place) => Expr::from(plan.schema().qualified_field(place)),
            None => Expr::Literal(ScalarValue::Null, None),
        };
        let value = value.cast_to(field.data_type(), plan.schema())?;
        Ok(value.alias(field.name()))
    });
    let columns = columns.collect::<Result<Vec<_>, DataFusionError>>()?;
    let projection = Projection::try_new(columns, Arc::new(plan))?;
    Ok(LogicalPlan::Projection(projection))
}

/// The table's columns that the statement gives values for, in its order.
fn listed_columns(insert: &ast::Insert, table: &TableMeta) -> Result<Vec<usize>, Error> {
    if insert.columns.is_empty() {
        return Ok((0..table.schema.fields().len()).collect());
    }
    let mut places = Vec::with_capacity(insert.columns.len());
    for name in &insert.columns {
        let Some(column) = name.0.last().and_then(|part| part.as_ident()).map(fold) else {
            return Err(Error::Invalid(format!("{name} is not a column")));
        };
        let Ok(place) = table.schema.index_of(&column) else {
            let known = table.schema.fields().iter().map(|f| f.name().as_str());
            return Err(Error::UnknownColumn {
                suggestions: suggest(&column, known),
                name: column,
            });
        };
        if places.contains(&place) {
            return Err(Error::Invalid(format!("column {column} is listed twice")));
        }
        places.push(place);
    }
    Ok(places)
}

/// Numbers that VALUES has for DECIMAL columns go there as text: DataFusion reads them as DOUBLE,
/// which has 15 digits.
fn keep_decimals_exact(insert: &mut ast::Insert, table: &TableMeta, places: &[usize]) {
    let Some(SetExpr::Values(values)) = insert.source.as_mut().map(|q| &mut *q.body) else {
        return;
    };
    let rows = values.rows.iter_mut().flat_map(|row| {
        let columns = places.iter().map(|place| table.schema.field(*place));
        row.content.iter_mut().zip(columns)
    });
    for (value, _) in rows.filter(|(_, field)| field.data_type().is_decimal()) {
        let text = value.to_string();
        let digits = text.strip_prefix('-').unwrap_or(&text);
        if digits.len() > 15 && digits.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
            *value = ast::Expr::value(ast::Value::SingleQuotedString(text));
        }
    }
}

/// Which values of VALUES are casts that somebody wrote, by row and place.
fn explicit_casts(insert: &ast::Insert) -> HashSet<(usize, usize)> {
    let mut casts = HashSet::new();
    if let Some(SetExpr::Values(values)) = insert.source.as_ref().map(|q| &*q.body) {
        for (number, row) in values.rows.iter().enumerate() {
            for (place, value) in row.content.iter().enumerate() {
                let mut value = value;
                while let ast::Expr::Nested(inner) = value {
                    value = inner;
                }
                if matches!(value, ast::Expr::Cast { .. }) {
                    casts.insert((number, place));
                }
            }
        }
    }
    casts
}

/// DataFusion takes NOT NULL from the table for the rows of VALUES and then fails to build them;
/// our own error says which row and column it was.
fn nullable_values(plan: LogicalPlan) -> Result<LogicalPlan, Error> {
    let relaxed = plan.transform_up(|node| match node {
        LogicalPlan::Values(values) => {
            let fields = values.schema.iter().map(|(qualifier, field)| {
                let field = field.as_ref().clone().with_nullable(true);
                (qualifier.cloned(), Arc::new(field))
            });
            let schema =
                DFSchema::new_with_metadata(fields.collect(), values.schema.metadata().clone())?;
            Ok(Transformed::yes(LogicalPlan::Values(Values {
                schema: Arc::new(schema),
                values: values.values,
            })))
        }
        other => Ok(Transformed::yes(other.recompute_schema()?)),
    });
    Ok(relaxed?.data)
}

/// Refuses values that DataFusion has cast to the types of their columns without being asked.
fn check_types(
    input: &LogicalPlan,
    table: &TableMeta,
    explicit: &HashSet<(usize, usize)>,
) -> Result<(), Error> {
    let LogicalPlan::Projection(projection) = input else {
        return Ok(());
    };
    let source = &projection.input;
    for (field, expr) in table.schema.fields().iter().zip(&projection.expr) {
        let value = expr.clone().unalias();
        let value = match &value {
            Expr::Cast(cast) => &*cast.expr,
            other => other,
        };
        must_be_assignable(field, &value.get_type(source.schema())?)?;
        // The casts of VALUES are within its rows.
        let (Expr::Column(column), LogicalPlan::Values(values)) = (value, &**source) else {
            continue;
        };
        let place = source.schema().index_of_column(column)?;
        for (number, row) in values.values.iter().enumerate() {
            if explicit.contains(&(number, place)) {
                continue;
            }
            if let Some(Expr::Cast(cast)) = row.get(place) {
                must_be_assignable(field, &cast.expr.get_type(&DFSchema::empty())?)?;
            }
        }
    }
    Ok(())
}

/// Rounds numbers that DataFusion has cast to the integers of their columns without being asked.
fn round_fractions(
    input: LogicalPlan,
    explicit: &HashSet<(usize, usize)>,
) -> Result<LogicalPlan, Error> {
    let LogicalPlan::Projection(projection) = input else {
        return Ok(input);
    };
    let source = match Arc::unwrap_or_clone(projection.input) {
        LogicalPlan::Values(mut values) => {
            for (number, row) in values.values.iter_mut().enumerate() {
                for (place, value) in row.iter_mut().enumerate() {
                    if !explicit.contains(&(number, place)) {
                        *value = round_before_cast(std::mem::take(value), &DFSchema::empty())?;
                    }
                }
            }
            LogicalPlan::Values(values)
        }
        other => other,
    };
    let expressions = projection
        .expr
        .into_iter()
        .map(|value| round_before_cast(value, source.schema()))
        .collect::<Result<_, _>>()?;
    let rounded = Projection::try_new(expressions, Arc::new(source))?;
    Ok(LogicalPlan::Projection(rounded))
}

fn round_before_cast(value: Expr, schema: &DFSchema) -> Result<Expr, Error> {
    Ok(match value {
        Expr::Alias(mut alias) => {
            *alias.expr = round_before_cast(*alias.expr, schema)?;
            Expr::Alias(alias)
        }
        Expr::Cast(mut cast) => {
            let from = cast.expr.get_type(schema)?;
            let to = Expr::Cast(cast.clone()).get_type(schema)?;
            *cast.expr = rounded(*cast.expr, &from, &to);
            Expr::Cast(cast)
        }
        other => other,
    })
}

/// Says which row has too few or too many values, which DataFusion does not.
fn check_width(insert: &ast::Insert, columns: usize) -> Result<(), Error> {
    let expected = match insert.columns.len() {
        0 => columns,
        listed => listed,
    };
    let Some(SetExpr::Values(values)) = insert.source.as_ref().map(|q| &*q.body) else {
        return Ok(());
    };
    for (number, row) in values.rows.iter().enumerate() {
        let given = row.content.len();
        if given != expected {
            return Err(Error::Invalid(format!(
                "row {} has {given} values for {expected} columns",
                number + 1
            )));
        }
    }
    Ok(())
}
