//! What streams and continuous queries are, read from the statements that the catalog keeps.

use std::ops::ControlFlow;
use std::time::Duration;

use datafusion::sql::sqlparser::ast::{
    self, Expr, GroupByExpr, JoinOperator, ObjectName, Query, SetExpr, TableFactor, Visit,
};
use skewer_profiling::Level;
use skewer_sql::{CreateContinuousQuery, CreateStream, Statement};

use super::window::{Windows, is_column, window_call};
use crate::catalog::names::fold;
use crate::error::Error;
use crate::remedies::RemedyMode;

/// The statement that creates a stream, as the catalog keeps it.
pub(crate) fn stream(sql: &str) -> Result<CreateStream, Error> {
    match skewer_sql::parse(sql)? {
        Statement::CreateStream(stream) => Ok(*stream),
        _ => Err(Error::Internal(format!("not a stream: {sql}"))),
    }
}

/// The statement that creates a continuous query, as the catalog keeps it.
pub(crate) fn continuous_query(sql: &str) -> Result<CreateContinuousQuery, Error> {
    match skewer_sql::parse(sql)? {
        Statement::CreateContinuousQuery(query) => Ok(*query),
        _ => Err(Error::Internal(format!("not a continuous query: {sql}"))),
    }
}

/// The name and delay of a stream's watermark.
pub(crate) fn watermark(stream: &CreateStream) -> Option<(String, i64)> {
    let watermark = stream.watermark.as_ref()?;
    Some((fold(&watermark.column), watermark.delay_ns))
}

/// The level at which micro-batches are recorded.
pub(crate) fn level(query: &CreateContinuousQuery) -> Result<Level, Error> {
    let Some(level) = &query.level else {
        return Ok(Level::default());
    };
    level.parse().map_err(|_| Error::InvalidValue {
        name: "PROFILE".to_owned(),
        value: level.clone(),
        expected: "it is off, counters, calls or records".to_owned(),
    })
}

/// What micro-batches do about skew that earlier ones have shown.
pub(crate) fn remedies(query: &CreateContinuousQuery) -> Result<RemedyMode, Error> {
    let Some(remedies) = &query.remedies else {
        return Ok(RemedyMode::default());
    };
    let mode = RemedyMode::from_text(remedies).ok_or_else(|| Error::InvalidValue {
        name: "REMEDIES".to_owned(),
        value: remedies.clone(),
        expected: "it is off, advise or auto".to_owned(),
    })?;
    let deadline = query.deadline_ns.map(i64::unsigned_abs);
    Ok(mode.within(deadline.map(Duration::from_nanos)))
}

/// The SELECT that a continuous query is.
///
/// # Errors
/// [`Error::Unsupported`] for whatever has no meaning for rows that come bit by bit.
pub(crate) fn select(query: &Query) -> Result<&ast::Select, Error> {
    let refuse = |what: &str, instead: &str| {
        Err(Error::Unsupported(format!(
            "{what} in a continuous query; {instead}"
        )))
    };
    let sort = "order the target table when you read it";
    if query.order_by.is_some() {
        return refuse("ORDER BY", sort);
    }
    if query.limit_clause.is_some() || query.fetch.is_some() {
        return refuse(
            "LIMIT",
            "limit the rows of the target table when you read it",
        );
    }
    let SetExpr::Select(select) = &*query.body else {
        let instead = "write one SELECT; several continuous queries may have one target table";
        return refuse("UNION, VALUES or parentheses", instead);
    };
    if select.distinct.is_some() {
        return refuse(
            "DISTINCT",
            "use SELECT DISTINCT when you read the target table",
        );
    }
    Ok(select)
}

/// Makes sure that the stream is the first table of FROM, that the query names it nowhere else, and
/// that joins keep the stream's rows. `is_stream` tells whether a name is of a stream.
pub(crate) fn stream_name(
    query: &Query,
    is_stream: impl Fn(&ObjectName) -> bool,
) -> Result<ObjectName, Error> {
    let select = select(query)?;
    let mut streams = Vec::new();
    let _: ControlFlow<()> = ast::visit_relations(query, |name| {
        if is_stream(name) {
            streams.push(name.clone());
        }
        ControlFlow::Continue(())
    });
    let first = select.from.first();
    let first_name = first.and_then(|first| match &first.relation {
        TableFactor::Table { name, .. } => Some(name),
        _ => None,
    });
    let (Some(first), Some(name), [only]) = (first, first_name, streams.as_slice()) else {
        return Err(Error::Unsupported(match streams.len() {
            0 => "a continuous query that reads no stream; write SELECT … FROM stream, or use INSERT INTO … SELECT"
                .to_owned(),
            1 => "a continuous query whose stream is not the first table of FROM; write SELECT … FROM stream …"
                .to_owned(),
            _ => "a continuous query that reads streams several times; write one continuous query for each, and \
                  join their target tables"
                .to_owned(),
        }));
    };
    if name != only {
        return Err(Error::Unsupported(format!(
            "a continuous query whose stream {only} is not the first table of FROM; write SELECT … FROM {only} …"
        )));
    }
    for join in &first.joins {
        let keeps_rows = matches!(
            &join.join_operator,
            JoinOperator::Join(_)
                | JoinOperator::Inner(_)
                | JoinOperator::Left(_)
                | JoinOperator::LeftOuter(_)
                | JoinOperator::CrossJoin(_)
        );
        if !keeps_rows {
            return Err(Error::Unsupported(format!(
                "this join in a continuous query: {}; a row without a match in the stream has no time at which \
                 it is final. Use JOIN or LEFT JOIN",
                join.to_string().trim()
            )));
        }
    }
    Ok(name.clone())
}

/// The windows that a query groups by; `None` if it does not group.
///
/// # Errors
/// [`Error::Invalid`] if GROUP BY has no window, or if there are different windows.
pub(crate) fn windows(
    query: &Query,
    watermark: Option<&(String, i64)>,
) -> Result<Option<Windows>, Error> {
    let select = select(query)?;
    let groups = match &select.group_by {
        GroupByExpr::Expressions(groups, modifiers) if modifiers.is_empty() => groups.as_slice(),
        _ => {
            return Err(Error::Unsupported(
                "GROUP BY ALL and WITH ROLLUP in a continuous query; list the groups".to_owned(),
            ));
        }
    };
    let mut found: Option<Windows> = None;
    let mut wrong = None;
    let _ = ast::visit_expressions(query, |expr| {
        let call = match window_call(expr) {
            Ok(Some(call)) => call,
            Ok(None) => return ControlFlow::Continue(()),
            Err(error) => {
                wrong = Some(error);
                return ControlFlow::Break(());
            }
        };
        let on_time = watermark.is_some_and(|(column, _)| is_column(&call.column, column));
        if !on_time {
            wrong = Some(not_on_time(expr, watermark));
        } else if found.is_some_and(|found| found != call.windows) {
            wrong = Some(Error::Unsupported(format!(
                "several windows in a continuous query, as {expr}; write one continuous query for each window"
            )));
        }
        found = Some(call.windows);
        match wrong {
            Some(_) => ControlFlow::Break(()),
            None => ControlFlow::Continue(()),
        }
    });
    if let Some(wrong) = wrong {
        return Err(wrong);
    }
    let mut has_window = false;
    for group in groups {
        has_window |= is_window(select, group)?;
    }
    match (found, has_window) {
        (None, _) if groups.is_empty() => Ok(None),
        (Some(windows), true) => Ok(Some(windows)),
        (Some(_), _) if groups.is_empty() => Err(Error::Invalid(
            "a window needs GROUP BY; without groups write date_bin(INTERVAL '1 minute', ts)"
                .to_owned(),
        )),
        _ => Err(without_window(watermark)),
    }
}

/// Whether a group is a window: a call, or the position or alias of one in SELECT.
fn is_window(select: &ast::Select, group: &Expr) -> Result<bool, Error> {
    if window_call(group)?.is_some() {
        return Ok(true);
    }
    let item = match group {
        Expr::Value(value) => {
            let position = value.value.to_string().parse::<usize>().ok();
            let place = position.and_then(|position| position.checked_sub(1));
            place.and_then(|place| select.projection.get(place))
        }
        Expr::Identifier(name) => select.projection.iter().find(
            |item| matches!(item, ast::SelectItem::ExprWithAlias { alias, .. } if alias == name),
        ),
        _ => None,
    };
    match item {
        Some(ast::SelectItem::UnnamedExpr(expr) | ast::SelectItem::ExprWithAlias { expr, .. }) => {
            Ok(window_call(expr)?.is_some())
        }
        _ => Ok(false),
    }
}

fn not_on_time(expr: &Expr, watermark: Option<&(String, i64)>) -> Error {
    Error::Invalid(match watermark {
        Some((column, _)) => format!(
            "{expr} is not a window of the stream: its first argument must be {column}, the column of the WATERMARK"
        ),
        None => format!(
            "{expr} needs a stream with a WATERMARK, which tells when a window is complete: write CREATE STREAM s \
             (ts TIMESTAMP, …, WATERMARK FOR ts AS ts - INTERVAL '5 seconds') FROM …"
        ),
    })
}

/// The error for an aggregate that would never be complete.
pub(crate) fn without_window(watermark: Option<&(String, i64)>) -> Error {
    let column = watermark.map_or("ts", |(column, _)| column);
    let mut text = format!(
        "an aggregate in a continuous query needs a window, as its groups would never be complete: write GROUP BY \
         tumble({column}, INTERVAL '1 minute') or hop({column}, INTERVAL '1 minute', INTERVAL '10 seconds')"
    );
    if watermark.is_none() {
        text.push_str(
            ", and declare WATERMARK FOR ts AS ts - INTERVAL '5 seconds' in CREATE STREAM",
        );
    }
    Error::Invalid(text)
}

/// The names of the query's WITH clauses.
pub(crate) fn cte_names(query: &Query) -> Vec<String> {
    struct Names(Vec<String>);
    impl ast::Visitor for Names {
        type Break = ();
        fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
            let ctes = query.with.iter().flat_map(|with| &with.cte_tables);
            self.0.extend(ctes.map(|cte| fold(&cte.alias.name)));
            ControlFlow::Continue(())
        }
    }
    let mut names = Names(Vec::new());
    let _ = query.visit(&mut names);
    names.0
}
