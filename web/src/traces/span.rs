//! Queries as spans: rows of schema `sys` with ids.

use std::collections::{BTreeMap, HashMap};

use skewer::{EndedQuery, Error, FromRow, Session, TraceParent};
use skewer_page::views::find_trace;
use skewer_sql::lex::{Kind, tokens};

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Integer(i64),
}

/// Who else takes part in a span, as OpenTelemetry numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpanKind {
    Internal = 1,
    Server = 2,
}

/// What a span hangs below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Parent {
    /// Nothing: it begins a trace.
    None,
    /// A span of a client.
    Remote(TraceParent),
    /// A span of ours.
    Span(String),
}

/// A span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Span {
    /// 32 hexadecimal digits.
    pub(super) trace_id: String,
    /// 16 hexadecimal digits.
    pub(super) span_id: String,
    pub(super) parent: Parent,
    pub(super) name: String,
    pub(super) kind: SpanKind,
    /// Nanoseconds since 1970.
    pub(super) start_ns: i64,
    pub(super) end_ns: i64,
    pub(super) attributes: Vec<(&'static str, Value)>,
    /// Why it failed.
    pub(super) error: Option<String>,
}

/// A row of `web/traces/queries.sql`.
#[derive(Debug, Clone)]
struct Query {
    query_id: i64,
    sql: String,
    status: String,
    error: Option<String>,
    level: String,
    user: Option<String>,
    rows: i64,
    started_ns: i64,
    ended_ns: i64,
    queued_ns: i64,
    planning_ns: i64,
    execution_ns: i64,
}

/// A row of `web/traces/tasks.sql`.
#[derive(Debug, Clone)]
struct Task {
    query_id: i64,
    fragment_id: i64,
    parent_fragment_id: Option<i64>,
    worker_id: i64,
    partition: i64,
    started_ns: i64,
    ended_ns: i64,
    wall_ns: i64,
    cpu_ns: Option<i64>,
    rows: Option<i64>,
}

/// The spans of queries.
///
/// # Errors
/// Whatever reading schema `sys` fails with.
pub(super) async fn read(session: &Session, ended: &[EndedQuery]) -> Result<Vec<Span>, Error> {
    let ids: Vec<String> = ended
        .iter()
        .map(|query| query.query_id.to_string())
        .collect();
    let ids = ids.join(",");
    let parents: HashMap<i64, Option<TraceParent>> = ended
        .iter()
        .map(|query| (query.query_id, query.trace_parent))
        .collect();
    let mut tasks: HashMap<i64, Vec<Task>> = HashMap::new();
    for task in read_tasks(session, &ids).await? {
        tasks.entry(task.query_id).or_default().push(task);
    }
    let mut spans = Vec::new();
    for query in read_queries(session, &ids).await? {
        let tasks = tasks.remove(&query.query_id).unwrap_or_default();
        let parent = parents.get(&query.query_id).copied().flatten();
        spans_of_query(&query, &tasks, parent, &mut spans);
    }
    Ok(spans)
}

/// The rows of a file in `web/traces`.
async fn rows<T: FromRow>(session: &Session, name: &str, ids: &str) -> Result<Vec<T>, Error> {
    let values = [("query_ids".to_owned(), ids.to_owned())];
    let sql = find_trace(name).and_then(|view| view.sql(&values.into()));
    let sql = sql.map_err(|error| Error::Internal(error.to_string()))?;
    session.query_as(&sql).await
}

async fn read_queries(session: &Session, ids: &str) -> Result<Vec<Query>, Error> {
    type Row = (
        i64,
        String,
        String,
        Option<String>,
        String,
        Option<String>,
        i64,
        i64,
        i64,
        i64,
        i64,
        i64,
    );
    let rows: Vec<Row> = rows(session, "queries", ids).await?;
    let queries = rows.into_iter().map(|row| {
        let (query_id, sql, status, error, level, user, rows, ..) = row;
        let (.., started_ns, ended_ns, queued_ns, planning_ns, execution_ns) = row;
        Query {
            query_id,
            sql,
            status,
            error,
            level,
            user,
            rows,
            started_ns,
            ended_ns,
            queued_ns,
            planning_ns,
            execution_ns,
        }
    });
    Ok(queries.collect())
}

async fn read_tasks(session: &Session, ids: &str) -> Result<Vec<Task>, Error> {
    type Row = (
        i64,
        i64,
        Option<i64>,
        i64,
        i64,
        i64,
        i64,
        i64,
        Option<i64>,
        Option<i64>,
    );
    let rows: Vec<Row> = rows(session, "tasks", ids).await?;
    let tasks = rows.into_iter().map(|row| {
        let (query_id, fragment_id, parent_fragment_id, worker_id, partition, ..) = row;
        let (.., started_ns, ended_ns, wall_ns, cpu_ns, rows) = row;
        Task {
            query_id,
            fragment_id,
            parent_fragment_id,
            worker_id,
            partition,
            started_ns,
            ended_ns,
            wall_ns,
            cpu_ns,
            rows,
        }
    });
    Ok(tasks.collect())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An id that no other span has: 64 random bits.
fn span_id() -> String {
    hex(&rand::random::<[u8; 8]>())
}

/// The first word of a statement: what spans are named by must not differ with each statement.
fn operation(sql: &str) -> String {
    let mut tokens = tokens(sql);
    let word = tokens.find(|token| token.kind == Kind::Word);
    word.map_or("QUERY".to_owned(), |word| word.text.to_uppercase())
}

fn spans_of_query(
    query: &Query,
    tasks: &[Task],
    parent: Option<TraceParent>,
    spans: &mut Vec<Span>,
) {
    let trace_id = match parent {
        Some(parent) => parent.trace_id(),
        None => hex(&rand::random::<[u8; 16]>()),
    };
    let span = |parent: Parent, name: &str, from: i64, until: i64, attributes| Span {
        trace_id: trace_id.clone(),
        span_id: span_id(),
        parent,
        name: name.to_owned(),
        kind: SpanKind::Internal,
        start_ns: from,
        end_ns: until.max(from),
        attributes,
        error: None,
    };
    let operation = operation(&query.sql);
    let mut root = span(
        parent.map_or(Parent::None, Parent::Remote),
        &operation,
        query.started_ns,
        query.ended_ns,
        vec![
            ("db.system.name", Value::Text("skewer".to_owned())),
            ("db.operation.name", Value::Text(operation.clone())),
            ("db.query.text", Value::Text(query.sql.clone())),
            ("db.response.returned_rows", Value::Integer(query.rows)),
            ("skewer.query_id", Value::Integer(query.query_id)),
            ("skewer.status", Value::Text(query.status.clone())),
            ("skewer.profile_level", Value::Text(query.level.clone())),
        ],
    );
    root.kind = SpanKind::Server;
    if let Some(user) = &query.user {
        root.attributes
            .push(("user.name", Value::Text(user.clone())));
    }
    if query.status != "finished" {
        let error = query.error.clone();
        root.error = Some(error.unwrap_or_else(|| query.status.clone()));
    }
    let below_root = || Parent::Span(root.span_id.clone());
    // One after the other: a statement that waited has not been planned before.
    let planning = query.started_ns + query.queued_ns;
    let execution = planning + query.planning_ns;
    let executing = span(
        below_root(),
        "execution",
        execution,
        execution + query.execution_ns,
        Vec::new(),
    );
    let mut phases = vec![span(
        below_root(),
        "planning",
        planning,
        execution,
        Vec::new(),
    )];
    if query.queued_ns > 0 {
        phases.push(span(
            below_root(),
            "queue",
            query.started_ns,
            planning,
            Vec::new(),
        ));
    }
    // The time of a fragment is that of its tasks.
    let mut fragments: BTreeMap<i64, (Span, Option<i64>)> = BTreeMap::new();
    for task in tasks {
        let (fragment, _) = fragments.entry(task.fragment_id).or_insert_with(|| {
            let name = format!("fragment {}", task.fragment_id);
            let number = ("skewer.fragment_id", Value::Integer(task.fragment_id));
            let below = Parent::Span(executing.span_id.clone());
            let fragment = span(below, &name, task.started_ns, task.ended_ns, vec![number]);
            (fragment, task.parent_fragment_id)
        });
        fragment.start_ns = fragment.start_ns.min(task.started_ns);
        fragment.end_ns = fragment.end_ns.max(task.ended_ns);
    }
    let ids: HashMap<i64, String> = fragments
        .iter()
        .map(|(number, (fragment, _))| (*number, fragment.span_id.clone()))
        .collect();
    for (fragment, parent) in fragments.values_mut() {
        // A fragment that read nothing has no tasks: what is below it hangs below the execution.
        if let Some(id) = parent.and_then(|parent| ids.get(&parent)) {
            fragment.parent = Parent::Span(id.clone());
        }
    }
    let tasks = tasks.iter().map(|task| {
        let mut attributes = vec![
            ("skewer.fragment_id", Value::Integer(task.fragment_id)),
            ("skewer.worker", Value::Integer(task.worker_id)),
            ("skewer.partition", Value::Integer(task.partition)),
            ("skewer.wall_ns", Value::Integer(task.wall_ns)),
        ];
        let known = [("skewer.rows", task.rows), ("skewer.cpu_ns", task.cpu_ns)];
        let known = known
            .into_iter()
            .filter_map(|(name, value)| Some((name, Value::Integer(value?))));
        attributes.extend(known);
        let below = Parent::Span(ids[&task.fragment_id].clone());
        span(below, "task", task.started_ns, task.ended_ns, attributes)
    });
    let tasks: Vec<Span> = tasks.collect();
    if query.execution_ns > 0 || !tasks.is_empty() {
        phases.push(executing);
    }
    spans.push(root);
    spans.extend(phases);
    spans.extend(fragments.into_values().map(|(fragment, _)| fragment));
    spans.extend(tasks);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query() -> Query {
        Query {
            query_id: 7,
            sql: "/* c */ select 1".to_owned(),
            status: "finished".to_owned(),
            error: None,
            level: "counters".to_owned(),
            user: None,
            rows: 3,
            started_ns: 1_000,
            ended_ns: 2_000,
            queued_ns: 100,
            planning_ns: 200,
            execution_ns: 650,
        }
    }

    fn task(fragment_id: i64, parent_fragment_id: Option<i64>, partition: i64) -> Task {
        Task {
            query_id: 7,
            fragment_id,
            parent_fragment_id,
            worker_id: 1,
            partition,
            started_ns: 1_400 - 10 * partition,
            ended_ns: 1_800 + 10 * partition,
            wall_ns: 50,
            cpu_ns: Some(40),
            rows: None,
        }
    }

    fn spans(query: &Query, tasks: &[Task], parent: Option<TraceParent>) -> Vec<Span> {
        let mut spans = Vec::new();
        spans_of_query(query, tasks, parent, &mut spans);
        spans
    }

    fn find<'a>(spans: &'a [Span], name: &str) -> &'a Span {
        let mut found = spans.iter().filter(|span| span.name == name);
        let span = found
            .next()
            .unwrap_or_else(|| panic!("no {name}: {spans:#?}"));
        assert_eq!(found.next(), None, "{name}");
        span
    }

    #[test]
    fn fragments_hang_below_their_parents_and_tasks_below_fragments() {
        let tasks = [
            task(0, None, 0),
            task(2, Some(1), 0),
            task(2, Some(1), 1),
            task(1, Some(0), 0),
            task(9, Some(8), 0),
        ];
        let spans = spans(&query(), &tasks, None);
        let below = |name: &str| Parent::Span(find(&spans, name).span_id.clone());
        let root = find(&spans, "SELECT");
        assert_eq!((&root.parent, root.kind), (&Parent::None, SpanKind::Server));
        for phase in ["queue", "planning", "execution"] {
            assert_eq!(find(&spans, phase).parent, below("SELECT"), "{phase}");
        }
        assert_eq!(find(&spans, "fragment 0").parent, below("execution"));
        assert_eq!(find(&spans, "fragment 1").parent, below("fragment 0"));
        assert_eq!(find(&spans, "fragment 2").parent, below("fragment 1"));
        assert_eq!(find(&spans, "fragment 9").parent, below("execution"));
        let of_2: Vec<&Span> = spans
            .iter()
            .filter(|span| span.name == "task" && span.parent == below("fragment 2"))
            .collect();
        assert_eq!(of_2.len(), 2);
        let fragment = find(&spans, "fragment 2");
        assert_eq!((fragment.start_ns, fragment.end_ns), (1_390, 1_810));
        assert_eq!(
            of_2[1].attributes[2],
            ("skewer.partition", Value::Integer(1))
        );
        assert!(spans.iter().all(|span| span.trace_id == root.trace_id));
        let ids: std::collections::HashSet<_> = spans.iter().map(|span| &span.span_id).collect();
        assert_eq!(ids.len(), spans.len());
    }

    #[test]
    fn phases_follow_each_other() {
        let spans = spans(&query(), &[], None);
        let times = |name: &str| {
            let span = find(&spans, name);
            (span.start_ns, span.end_ns)
        };
        assert_eq!(times("SELECT"), (1_000, 2_000));
        assert_eq!(times("queue"), (1_000, 1_100));
        assert_eq!(times("planning"), (1_100, 1_300));
        assert_eq!(times("execution"), (1_300, 1_950));
    }

    #[test]
    fn a_failed_query_of_a_client_belongs_to_its_trace() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent: TraceParent = text.parse().unwrap();
        let failed = Query {
            status: "failed".to_owned(),
            error: Some("no".to_owned()),
            execution_ns: 0,
            queued_ns: 0,
            ..query()
        };
        let spans = spans(&failed, &[], Some(parent));
        let root = find(&spans, "SELECT");
        assert_eq!(root.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!(root.parent, Parent::Remote(parent));
        assert_eq!(root.error.as_deref(), Some("no"));
        let names: Vec<_> = spans.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(names, ["SELECT", "planning"]);
    }
}
