//! Calls in FROM of functions that make rows of lists.

use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, ObjectName, TableAlias, TableFactor, TableFunctionArgs,
};

use super::UNNEST;

/// A call in FROM of a function that makes rows of a list.
pub(super) struct Call {
    pub(super) function: &'static str,
    pub(super) arguments: Vec<Expr>,
    pub(super) ordinality: bool,
    pub(super) alias: Option<TableAlias>,
}

impl Call {
    pub(super) fn of_table(table: &mut TableFactor) -> Option<Self> {
        let (function, arguments, ordinality, alias) = match table {
            TableFactor::UNNEST {
                alias,
                array_exprs,
                with_offset: false,
                with_offset_alias: None,
                with_ordinality,
            } => (UNNEST, array_exprs.clone(), *with_ordinality, alias),
            TableFactor::Function {
                name,
                args,
                with_ordinality,
                alias,
                ..
            } => (function(name)?, values(args)?, *with_ordinality, alias),
            TableFactor::Table {
                name,
                args:
                    Some(TableFunctionArgs {
                        args,
                        settings: None,
                    }),
                with_ordinality,
                alias,
                sample: None,
                ..
            } => (function(name)?, values(args)?, *with_ordinality, alias),
            _ => return None,
        };
        if arguments.is_empty() {
            return None;
        }
        Some(Self {
            function,
            arguments,
            ordinality,
            alias: alias.take(),
        })
    }
}

/// The function of this name.
pub(super) fn function(name: &ObjectName) -> Option<&'static str> {
    let [part] = name.0.as_slice() else {
        return None;
    };
    let name = &part.as_ident()?.value;
    let functions = [UNNEST, "generate_series", "range"];
    functions
        .into_iter()
        .find(|function| name.eq_ignore_ascii_case(function))
}

/// The arguments, if none has a name.
fn values(arguments: &[FunctionArg]) -> Option<Vec<Expr>> {
    let value = |argument: &FunctionArg| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
        _ => None,
    };
    arguments.iter().map(value).collect()
}
