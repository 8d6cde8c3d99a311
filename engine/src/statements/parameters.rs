//! Statements with values for `$1`, `$2`, …, and what is known of them before they run.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as DFStatement;
use datafusion::sql::sqlparser::ast::{self, CastKind, Expr, Value};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use skewer_sql::Statement;
use skewer_sql::parameters::{self, Parameters};

use super::prepare::with_values;
use super::{as_statement, execute_parsed};
use crate::catalog::planned::shown_columns;
use crate::error::Error;
use crate::prepared::StatementDescription;
use crate::profile::report_schema;
use crate::query_stream::QueryStream;
use crate::session::Session;
use skewer_sql::sql_name;

/// Runs one statement with `values` for its parameters.
pub(crate) async fn execute(
    session: &Session,
    sql: &str,
    values: &[ScalarValue],
) -> Result<QueryStream, Error> {
    let mut statement = skewer_sql::parse(sql)?;
    let values = values.iter().map(literal).collect::<Result<Vec<_>, _>>()?;
    bind(&mut statement, &values)?;
    let sql = match values.is_empty() {
        true => Cow::Borrowed(sql),
        false => with_values(sql, &mut statement),
    };
    execute_parsed(session, &sql, statement).await
}

/// What a statement takes and gives.
pub(crate) async fn describe(
    session: &Session,
    sql: &str,
    declared: &[Option<DataType>],
) -> Result<StatementDescription, Error> {
    let statement = skewer_sql::parse(sql)?;
    let named = parameters::parameters(&statement).map_err(|e| Error::Invalid(e.to_string()))?;
    let types = infer(session, &statement, &named, declared).await?;
    let columns = columns(session, sql, statement, &types).await?;
    Ok(StatementDescription {
        parameters: types,
        columns,
    })
}

fn bind(statement: &mut Statement, values: &[Expr]) -> Result<(), Error> {
    parameters::bind(statement, values, &[]).map_err(|error| Error::Invalid(error.to_string()))
}

/// The types of a statement's parameters: as declared, as cast, as DataFusion infers them from
/// their surroundings, else text.
async fn infer(
    session: &Session,
    statement: &Statement,
    named: &Parameters,
    declared: &[Option<DataType>],
) -> Result<Vec<DataType>, Error> {
    let mut types: Vec<Option<DataType>> = declared.to_vec();
    types.resize(named.count.max(declared.len()), None);
    for (number, cast) in &named.casts {
        if let Some(unknown @ None) = types.get_mut(number - 1) {
            *unknown = Some(arrow_type(session, cast).await?);
        }
    }
    if types.iter().take(named.count).any(Option::is_none) {
        let mut partial = statement.clone();
        let values = types.iter().take(named.count).enumerate();
        let values = values.map(|(n, data_type)| match data_type {
            Some(data_type) => null_of(data_type),
            None => Ok(Expr::value(Value::Placeholder(format!("${}", n + 1)))),
        });
        bind(&mut partial, &values.collect::<Result<Vec<_>, _>>()?)?;
        let lists = parameters::compare_elements(&mut partial);
        let inferred = inferred(session, partial).await?;
        for (n, unknown) in types.iter_mut().enumerate().filter(|(_, t)| t.is_none()) {
            let found = inferred.get(&format!("${}", n + 1)).cloned().flatten();
            *unknown = match lists.contains(&(n + 1)) {
                true => Some(list_of(found.unwrap_or(DataType::Utf8))),
                false => found,
            };
        }
    }
    let types = types.into_iter().map(|t| t.unwrap_or(DataType::Utf8));
    Ok(types.collect())
}

fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}

/// What DataFusion finds out about placeholders. What it cannot plan without knowing types tells
/// nothing; whether the statement is wrong is seen when all types are there.
async fn inferred(
    session: &Session,
    statement: Statement,
) -> Result<HashMap<String, Option<DataType>>, Error> {
    let Some(statement) = plannable(statement) else {
        return Ok(HashMap::new());
    };
    let planned = session.catalog().plan(statement).await;
    Ok(match planned {
        Ok(plan) => plan.get_parameter_types().unwrap_or_default(),
        Err(_) => HashMap::new(),
    })
}

/// The part of a statement that DataFusion's planner understands.
fn plannable(statement: Statement) -> Option<DFStatement> {
    let plain = |statement| DFStatement::Statement(Box::new(statement));
    Some(match statement {
        Statement::Query(query) => as_statement(query),
        Statement::Insert(insert) => plain(ast::Statement::Insert(*insert)),
        Statement::Update(update) => plain(ast::Statement::Update(*update)),
        Statement::Delete(delete) => plain(ast::Statement::Delete(*delete)),
        Statement::CreateTable(table) => as_statement(table.query?),
        Statement::ExplainProfile(explain) => return plannable(*explain.statement),
        Statement::Explain(explain) => match *explain {
            DFStatement::Explain(explain) => *explain.statement,
            other => other,
        },
        Statement::Recorded { .. }
        | Statement::Diff { .. }
        | Statement::ShowProfile { .. }
        | Statement::ExportProfile { .. }
        | Statement::ImportProfile { .. }
        | Statement::CreateExternalTable(_)
        | Statement::CreateView(_)
        | Statement::CreateSchema { .. }
        | Statement::Drop { .. }
        | Statement::CreateIndex(_)
        | Statement::DropIndex
        | Statement::CreateQuarantine(_)
        | Statement::DropQuarantine { .. }
        | Statement::AlterTable(_)
        | Statement::Truncate { .. }
        | Statement::Rebalance { .. }
        | Statement::CreateStream(_)
        | Statement::CreateContinuousQuery(_)
        | Statement::Refresh { .. }
        | Statement::CopyFrom(_)
        | Statement::CopyTo(_)
        | Statement::Set { .. }
        | Statement::Show { .. }
        | Statement::Reset { .. }
        | Statement::ShowTables { .. }
        | Statement::ShowSchemas
        | Statement::ShowCreate { .. }
        | Statement::Describe(_)
        | Statement::DescribeQuery(_)
        | Statement::Prepare { .. }
        | Statement::Execute { .. }
        | Statement::Deallocate { .. }
        | Statement::Other(_) => return None,
    })
}

/// The columns of a statement's result, if it has one.
async fn columns(
    session: &Session,
    sql: &str,
    mut statement: Statement,
    types: &[DataType],
) -> Result<Option<SchemaRef>, Error> {
    let nulls = types.iter().map(null_of).collect::<Result<Vec<_>, _>>()?;
    let takes = parameters::parameters(&statement).map_or(0, |named| named.count);
    bind(&mut statement, &nulls[..takes.min(nulls.len())])?;
    let text = |names: &[&str]| {
        let fields = names.iter().map(|n| Field::new(*n, DataType::Utf8, true));
        Some(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
    };
    Ok(match statement {
        Statement::Query(query) => {
            let plan = session.catalog().plan(as_statement(query)).await?;
            Some(result_columns(session, plan))
        }
        Statement::ExplainProfile(_) | Statement::ShowProfile { .. } => {
            Some(report_schema(session))
        }
        Statement::Explain(_) => text(&["plan_type", "plan"]),
        Statement::Rebalance { .. } => Some(super::rebalance::columns()),
        Statement::ExportProfile { format, .. } => {
            Some(super::export_profile::exported_columns(format))
        }
        Statement::ImportProfile { .. } => Some(super::export_profile::imported_columns()),
        // What an EXECUTE stands for may change when it is run again.
        Statement::Execute { .. } => {
            let mut resolved = super::prepare::resolve(session, statement)?;
            match &mut resolved {
                Statement::Query(query) => {
                    let query = as_statement(query.clone());
                    let plan = session.catalog().plan(query).await?;
                    Some(result_columns(session, plan))
                }
                _ => None,
            }
        }
        // These only look: running them changes nothing.
        Statement::Show { .. }
        | Statement::ShowTables { .. }
        | Statement::ShowSchemas
        | Statement::ShowCreate { .. }
        | Statement::Describe(_)
        | Statement::DescribeQuery(_) => {
            let stream = execute_parsed(session, sql, statement).await?;
            Some(stream.schema())
        }
        Statement::Other(other) if is_show_functions(&other) => {
            let stream = execute_parsed(session, sql, Statement::Other(other)).await?;
            Some(stream.schema())
        }
        insert @ (Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_)) => {
            check(session, insert)?;
            None
        }
        // They return a count or nothing, or are refused.
        Statement::Recorded { .. }
        | Statement::Diff { .. }
        | Statement::CreateTable(_)
        | Statement::CreateExternalTable(_)
        | Statement::CreateView(_)
        | Statement::CreateSchema { .. }
        | Statement::Drop { .. }
        | Statement::CreateIndex(_)
        | Statement::DropIndex
        | Statement::CreateQuarantine(_)
        | Statement::DropQuarantine { .. }
        | Statement::AlterTable(_)
        | Statement::Truncate { .. }
        | Statement::CreateStream(_)
        | Statement::CreateContinuousQuery(_)
        | Statement::Refresh { .. }
        | Statement::CopyFrom(_)
        | Statement::CopyTo(_)
        | Statement::Set { .. }
        | Statement::Reset { .. }
        | Statement::Prepare { .. }
        | Statement::Deallocate { .. }
        | Statement::Other(_) => None,
    })
}

/// The columns of a plan's result when it runs: until types are coerced, a CASE has the type of its first value.
/// What cannot be coerced is for running to say.
fn result_columns(session: &Session, plan: LogicalPlan) -> SchemaRef {
    let state = session.catalog().planning_state();
    let planned = Arc::clone(plan.schema().inner());
    let coerced = state
        .analyzer()
        .execute_and_check(plan, state.config_options(), |_, _| {});
    match coerced {
        Ok(plan) => shown_columns(plan.schema().inner()),
        Err(_) => shown_columns(&planned),
    }
}

/// Whether the tables are there that a statement names.
fn check(session: &Session, statement: Statement) -> Result<(), Error> {
    match plannable(statement) {
        Some(statement) => session.catalog().check(&statement),
        None => Ok(()),
    }
}

fn is_show_functions(statement: &DFStatement) -> bool {
    matches!(statement, DFStatement::Statement(inner)
        if matches!(**inner, ast::Statement::ShowFunctions { .. }))
}

/// NULL with a type.
fn null_of(data_type: &DataType) -> Result<Expr, Error> {
    match data_type {
        DataType::Null => Ok(Expr::value(Value::Null)),
        other => cast(Expr::value(Value::Null), other),
    }
}

/// A value as it would be written in SQL.
fn literal(value: &ScalarValue) -> Result<Expr, Error> {
    if value.is_null() {
        return null_of(&value.data_type());
    }
    Ok(match value {
        ScalarValue::Boolean(Some(value)) => Expr::value(Value::Boolean(*value)),
        ScalarValue::Utf8(Some(text))
        | ScalarValue::LargeUtf8(Some(text))
        | ScalarValue::Utf8View(Some(text)) => Expr::value(Value::SingleQuotedString(text.clone())),
        ScalarValue::Binary(Some(bytes))
        | ScalarValue::LargeBinary(Some(bytes))
        | ScalarValue::BinaryView(Some(bytes))
        | ScalarValue::FixedSizeBinary(_, Some(bytes)) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            Expr::value(Value::HexStringLiteral(hex))
        }
        ScalarValue::List(list) => {
            let items = list.value(0);
            let mut elements = Vec::with_capacity(items.len());
            for n in 0..items.len() {
                elements.push(literal(&ScalarValue::try_from_array(&items, n)?)?);
            }
            let array = Expr::Array(ast::Array {
                elem: elements,
                named: true,
            });
            cast(array, &value.data_type())?
        }
        other => {
            let array = other.to_array()?;
            let options = FormatOptions::new();
            let text = ArrayFormatter::try_new(&array, &options)?
                .value(0)
                .to_string();
            cast(
                Expr::value(Value::SingleQuotedString(text)),
                &other.data_type(),
            )?
        }
    })
}

fn cast(expr: Expr, data_type: &DataType) -> Result<Expr, Error> {
    let name = sql_name(data_type);
    let data_type = Parser::new(&GenericDialect {})
        .try_with_sql(&name)
        .and_then(|mut parser| parser.parse_data_type())
        .map_err(|_| Error::Unsupported(format!("parameters of type {name}")))?;
    Ok(Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(expr),
        data_type,
        array: false,
        format: None,
    })
}

/// What a type's SQL name means to DataFusion.
async fn arrow_type(session: &Session, data_type: &ast::DataType) -> Result<DataType, Error> {
    let sql = format!("SELECT CAST(NULL AS {data_type})");
    let Statement::Query(query) = skewer_sql::parse(&sql)? else {
        return Err(Error::Internal(sql));
    };
    let plan = session.catalog().plan(as_statement(query)).await?;
    Ok(plan.schema().field(0).data_type().clone())
}
