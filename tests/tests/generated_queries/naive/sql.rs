//! Naive queries as SQL.

use super::{Ask, AskList, Fold, Kind, Look, Match, Naive, Pairs, Scalar, Sets, Step};

impl Scalar {
    pub fn sql(&self) -> String {
        match self {
            Self::Column(c) => format!("c{c}"),
            Self::Constant(n) => n.to_string(),
            Self::Same(c) => format!("same(c{c})"),
            Self::Plus(c, n) => format!("c{c} + {n}"),
            Self::Coalesce(c, n) => format!("coalesce(c{c}, {n})"),
        }
    }
}

impl Fold {
    pub fn sql(self) -> String {
        match self {
            Self::CountAll => "count(*)".to_owned(),
            Self::Count(c) => format!("count(c{c})"),
            Self::Sum(c) => format!("sum(c{c})"),
            Self::Max(c) => format!("max(c{c})"),
        }
    }
}

impl Match {
    fn sql(self) -> String {
        let equal = self.equal.map(|(l, r)| format!("l.c{l} = r.c{r}"));
        let less = self.less.map(|(l, r)| format!("l.c{l} < r.c{r}"));
        let all: Vec<_> = equal.into_iter().chain(less).collect();
        match all.is_empty() {
            true => "true".to_owned(),
            false => all.join(" AND "),
        }
    }
}

impl Look {
    fn sql(self, right: &Naive, matching: Match, is_random: bool) -> String {
        let is_read = if is_random { " AND l.random >= 0" } else { "" };
        let met = format!("({}) AS r WHERE {}{is_read}", right.sql(), matching.sql());
        match self {
            Self::All(fold) => format!("SELECT {} FROM {met}", fold.sql()),
            Self::Group(fold) => {
                let keys = matching.equal.map(|(_, r)| format!(" GROUP BY r.c{r}"));
                format!(
                    "SELECT {} FROM {met}{}",
                    fold.sql(),
                    keys.unwrap_or_default()
                )
            }
            Self::First(c) => {
                format!("SELECT r.c{c} FROM {met} ORDER BY r.c{c} NULLS FIRST LIMIT 1")
            }
            Self::Twice(fold) => format!(
                "SELECT {} FROM (SELECT * FROM {met} UNION ALL SELECT * FROM {met}) AS q",
                fold.sql()
            ),
            Self::Second => {
                let columns = in_order(0..right.width());
                format!(
                    "SELECT q.c0 FROM (SELECT DISTINCT * FROM {met}) AS q \
                     ORDER BY {columns} LIMIT 1 OFFSET 1"
                )
            }
            Self::GreatestGroup(c) => format!(
                "SELECT max(q.n) FROM (SELECT count(*) AS n FROM {met} GROUP BY r.c{c}) AS q"
            ),
            Self::RolledUp(c) => format!(
                "SELECT sum(q.n + 100 + 10000 * q.g) FROM (SELECT count(*) AS n, grouping(r.c{c}) AS g \
                 FROM {met} GROUP BY ROLLUP (r.c{c})) AS q"
            ),
            Self::FirstTwo(key) => {
                let columns = key_first(key, right.width());
                format!(
                    "SELECT sum(q.c0) FROM (SELECT DISTINCT ON (c{key}) c0 FROM {met} \
                     ORDER BY {columns} LIMIT 2) AS q"
                )
            }
            Self::GreatestPartition(c) => format!(
                "SELECT max(q.n) FROM (SELECT count(*) OVER (PARTITION BY r.c{c}) AS n FROM {met}) AS q"
            ),
            Self::Equals(c) => format!(
                "SELECT count(*) FROM ({}) AS q WHERE EXISTS (SELECT 1 FROM {met} AND r.c{c} = q.c{c})",
                right.sql()
            ),
            Self::RolledUpAround => format!(
                "SELECT sum(q.n + 100 + 10000 * q.g) FROM (SELECT count(*) AS n, grouping(l.c0) AS g \
                 FROM {met} GROUP BY ROLLUP (l.c0)) AS q"
            ),
            Self::Walked(from, to) => format!(
                "SELECT count(*) FROM (WITH RECURSIVE walked AS (\
                 SELECT r.c{from} AS place, 0 AS step FROM {met} UNION ALL \
                 SELECT o.c{to}, w.step + 1 FROM walked AS w JOIN ({}) AS o ON o.c{to} = w.place \
                 WHERE w.step < 1) SELECT * FROM walked) AS q",
                right.sql()
            ),
        }
    }
}

impl Pairs {
    /// FROM and WHERE of the subquery that asks for them.
    fn sql(&self) -> String {
        let ((left, right), (around, equal)) = (self.on, self.equal);
        let less = self
            .less
            .map(|(around, left)| format!(" AND l.c{around} < r.c{left}"));
        format!(
            "({}) AS r JOIN ({}) AS o ON r.c{left} = o.c{right} WHERE o.c{equal} = l.c{around}{}",
            self.left.sql(),
            self.right.sql(),
            less.unwrap_or_default()
        )
    }
}

impl Ask {
    /// The condition, or the value, of `pairs`.
    fn sql(self, pairs: &Pairs) -> String {
        let pairs = pairs.sql();
        let not = |is| if is { "" } else { "NOT " };
        match self {
            Self::Exists(has) => format!("{}EXISTS (SELECT 1 FROM {pairs})", not(has)),
            Self::Marked(has) => {
                format!("CAST({}EXISTS (SELECT 1 FROM {pairs}) AS BIGINT)", not(has))
            }
            Self::In(is, l, o) => format!("l.c{l} {}IN (SELECT o.c{o} FROM {pairs})", not(is)),
            Self::Greatest(o) => format!("(SELECT max(o.c{o}) FROM {pairs})"),
        }
    }
}

impl Kind {
    pub fn sql(self) -> &'static str {
        match self {
            Self::Inner => "JOIN",
            Self::Left => "LEFT JOIN",
            Self::Right => "RIGHT JOIN",
            Self::Full => "FULL JOIN",
        }
    }
}

impl Naive {
    pub fn sql(&self) -> String {
        let named = |items: Vec<String>| {
            let items = items.iter().enumerate();
            items
                .map(|(c, item)| format!("{item} AS c{c}"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        match self {
            Self::Scan(table) => format!("SELECT a AS c0, b AS c1 FROM {table}"),
            Self::View => "SELECT a AS c0, b AS c1 FROM v".to_owned(),
            Self::Filter(input, scalar, number) => {
                format!(
                    "SELECT * FROM ({}) AS q WHERE {} > {number}",
                    input.sql(),
                    scalar.sql()
                )
            }
            Self::Equal(input, scalar, number) => {
                format!(
                    "SELECT * FROM ({}) AS q WHERE {} = {number}",
                    input.sql(),
                    scalar.sql()
                )
            }
            Self::Project(input, scalars) => {
                let items = named(scalars.iter().map(Scalar::sql).collect());
                format!("SELECT {items} FROM ({}) AS q", input.sql())
            }
            Self::Join(left, right, kind, l, r) => {
                format!(
                    "SELECT {} FROM ({}) AS l {} ({}) AS r ON l.c{l} = r.c{r}",
                    named(of_both(left, right)),
                    left.sql(),
                    kind.sql(),
                    right.sql()
                )
            }
            Self::JoinOn(left, right, kind, matching) => {
                format!(
                    "SELECT {} FROM ({}) AS l {} ({}) AS r ON {}",
                    named(of_both(left, right)),
                    left.sql(),
                    kind.sql(),
                    right.sql(),
                    matching.sql()
                )
            }
            Self::JoinIf(left, right, kind, matching, third) => {
                let not = if third.has { "" } else { "NOT " };
                let ((l, equal), (r, least)) = (third.equal, third.least);
                format!(
                    "SELECT {} FROM ({}) AS l {} ({}) AS r ON {} AND {not}EXISTS \
                     (SELECT 1 FROM ({}) AS o WHERE o.c{equal} = l.c{l} AND o.c{least} >= r.c{r})",
                    named(of_both(left, right)),
                    left.sql(),
                    kind.sql(),
                    right.sql(),
                    matching.sql(),
                    third.rows.sql()
                )
            }
            Self::Asked(input, pairs, ask) => {
                let (rows, asked) = (input.sql(), ask.sql(pairs));
                match ask.is_value() {
                    true => {
                        format!(
                            "SELECT l.*, {asked} AS c{} FROM ({rows}) AS l",
                            input.width()
                        )
                    }
                    false => format!("SELECT * FROM ({rows}) AS l WHERE {asked}"),
                }
            }
            Self::Twice(input, l, r) => {
                format!(
                    "SELECT * FROM (WITH q AS ({}) SELECT {} FROM q AS l JOIN q AS r \
                     ON l.c{l} = r.c{r}) AS q",
                    input.sql(),
                    named(of_both(input, input))
                )
            }
            Self::In(left, right, is, columns) => {
                let not = if *is { "" } else { "NOT " };
                let own: Vec<_> = columns.iter().map(|(l, _)| format!("l.c{l}")).collect();
                let others: Vec<_> = columns.iter().map(|(_, r)| format!("r.c{r}")).collect();
                format!(
                    "SELECT * FROM ({}) AS l WHERE ({}) {not}IN (SELECT {} FROM ({}) AS r)",
                    left.sql(),
                    own.join(", "),
                    others.join(", "),
                    right.sql()
                )
            }
            Self::Looked(left, right, look, matching, is_random) => {
                let own: Vec<_> = (0..left.width()).map(|c| format!("l.c{c}")).collect();
                let random = if *is_random {
                    ", random() AS random"
                } else {
                    ""
                };
                format!(
                    "SELECT {}, ({}) AS c{} FROM (SELECT *{random} FROM ({}) AS l) AS l",
                    own.join(", "),
                    look.sql(right, *matching, *is_random),
                    left.width(),
                    left.sql()
                )
            }
            Self::Marked(left, right, has, matching) => {
                let not = if *has { "" } else { "NOT " };
                format!(
                    "SELECT l.*, CAST({not}EXISTS (SELECT 1 FROM ({}) AS r WHERE {}) AS BIGINT) \
                     AS c{} FROM ({}) AS l",
                    right.sql(),
                    matching.sql(),
                    left.width(),
                    left.sql()
                )
            }
            Self::Using(left, right, kind, (l, r), least) => {
                let side = |input: &Self, key: usize, name: &str| {
                    let columns: Vec<_> = (0..input.width())
                        .map(|c| format!("c{c} AS {name}{c}"))
                        .collect();
                    let columns = columns.join(", ");
                    format!(
                        "(SELECT c{key} AS k, {columns} FROM ({}) AS q)",
                        input.sql()
                    )
                };
                let names: Vec<_> = (0..self.width()).map(|c| format!("c{c}")).collect();
                format!(
                    "SELECT * FROM (SELECT * FROM {} AS l {} {} AS r USING (k) \
                     WHERE k IS NULL OR k >= {least}) AS q ({})",
                    side(left, *l, "l"),
                    kind.sql(),
                    side(right, *r, "r"),
                    names.join(", ")
                )
            }
            Self::Tested(left, right, has, matching) => {
                let not = if *has { "" } else { "NOT " };
                format!(
                    "SELECT * FROM ({}) AS l WHERE {not}EXISTS (SELECT 1 FROM ({}) AS r WHERE {})",
                    left.sql(),
                    right.sql(),
                    matching.sql()
                )
            }
            Self::TestedOr(left, right, has, matching, column, number) => {
                let not = if *has { "" } else { "NOT " };
                format!(
                    "SELECT * FROM ({}) AS l WHERE {not}EXISTS (SELECT 1 FROM ({}) AS r WHERE {}) \
                     OR l.c{column} > {number}",
                    left.sql(),
                    right.sql(),
                    matching.sql()
                )
            }
            Self::GreaterThanAll(left, right, l, r) => {
                format!(
                    "SELECT * FROM ({}) AS l WHERE l.c{l} > (SELECT max(r.c{r}) FROM ({}) AS r)",
                    left.sql(),
                    right.sql()
                )
            }
            Self::DistinctOn(input, key) => {
                let columns = key_first(*key, input.width());
                format!(
                    "SELECT * FROM (SELECT DISTINCT ON (c{key}) * FROM ({}) AS q \
                     ORDER BY {columns}) AS q",
                    input.sql()
                )
            }
            Self::Window(input, sums) => {
                let sums = sums
                    .iter()
                    .zip(input.width()..)
                    .map(|((sum, over), column)| {
                        format!("sum(c{sum}) OVER ({}) AS c{column}", over.sql())
                    });
                let sums = sums.collect::<Vec<_>>().join(", ");
                format!("SELECT *, {sums} FROM ({}) AS q", input.sql())
            }
            Self::ByPlace(input, functions) => {
                let width = input.width();
                let functions = functions
                    .iter()
                    .zip(width..)
                    .map(|(function, column)| format!("{} AS c{column}", function.sql(width)));
                let functions = functions.collect::<Vec<_>>().join(", ");
                format!(
                    "SELECT *, {functions} FROM (SELECT DISTINCT * FROM ({}) AS q) AS q",
                    input.sql()
                )
            }
            Self::Unnest(input, one, [first, second], true) => {
                format!(
                    "SELECT q.c{one} AS c0, e AS c1 FROM ({}) AS q, \
                     unnest(make_array(q.c{first}, q.c{second})) AS e",
                    input.sql()
                )
            }
            Self::Listed(input, [first, second], is_column, ask) => {
                let rows = input.sql();
                let (list, rows) = match is_column {
                    true => (
                        "unnest(l.list)".to_owned(),
                        format!(
                            "SELECT *, make_array(c{first}, c{second}) AS list FROM ({rows}) AS q"
                        ),
                    ),
                    false => (format!("unnest(make_array(l.c{first}, l.c{second}))"), rows),
                };
                let columns: Vec<_> = (0..input.width()).map(|c| format!("c{c}")).collect();
                let columns = columns.join(", ");
                let (value, condition) = match ask {
                    AskList::Greatest => (format!("SELECT max(v) FROM {list} AS v"), String::new()),
                    AskList::Place(column) => {
                        let is = format!("v = l.c{column}");
                        let value = format!(
                            "SELECT min(place) FROM {list} WITH ORDINALITY AS v(v, place) WHERE {is}"
                        );
                        (value, String::new())
                    }
                    AskList::In(is, column) => {
                        let not = if *is { "" } else { "NOT " };
                        let list = format!("SELECT v FROM {list} AS v");
                        (String::new(), format!("l.c{column} {not}IN ({list})"))
                    }
                    AskList::Exists(has, number) => {
                        let not = if *has { "" } else { "NOT " };
                        let greater = format!("SELECT 1 FROM {list} AS v WHERE v > {number}");
                        (String::new(), format!("{not}EXISTS ({greater})"))
                    }
                };
                match ask.is_value() {
                    true => format!(
                        "SELECT {columns}, ({value}) AS c{} FROM ({rows}) AS l",
                        input.width()
                    ),
                    false => format!("SELECT {columns} FROM ({rows}) AS l WHERE {condition}"),
                }
            }
            Self::Unnest(input, one, [first, second], false) => {
                format!(
                    "SELECT c{one} AS c0, unnest(make_array(c{first}, c{second})) AS c1 \
                     FROM ({}) AS q",
                    input.sql()
                )
            }
            Self::Limit(input, rows) => {
                let columns = in_order(0..input.width());
                format!(
                    "SELECT * FROM (SELECT DISTINCT * FROM ({}) AS q \
                     ORDER BY {columns} LIMIT {rows}) AS q",
                    input.sql()
                )
            }
            Self::FirstWithTies(input, column, rows) => format!(
                "SELECT * FROM ({}) AS q ORDER BY q.c{column} FETCH FIRST {rows} ROWS WITH TIES",
                input.sql()
            ),
            Self::InOther(left, right, is) => {
                let operation = if *is { "INTERSECT" } else { "EXCEPT" };
                format!("{} {operation} {}", left.sql(), right.sql())
            }
            Self::GroupingSets(input, keys, sets, folds) => {
                let mut items: Vec<_> = keys.iter().map(|c| format!("q.c{c}")).collect();
                let all = items.join(", ");
                let group = match sets {
                    Sets::Rollup => format!("ROLLUP ({all})"),
                    Sets::Cube => format!("CUBE ({all})"),
                    Sets::Listed(sets) => {
                        let set = |set: &Vec<bool>| {
                            let kept = items.iter().zip(set).filter(|(_, is_in)| **is_in);
                            let kept: Vec<_> = kept.map(|(item, _)| item.as_str()).collect();
                            format!("({})", kept.join(", "))
                        };
                        let sets: Vec<_> = sets.iter().map(set).collect();
                        format!("GROUPING SETS ({})", sets.join(", "))
                    }
                };
                items.extend(folds.iter().map(|fold| fold.sql()));
                format!(
                    "SELECT {} FROM ({}) AS q GROUP BY {group}",
                    named(items),
                    input.sql()
                )
            }
            Self::Aggregate(input, keys, folds) => {
                let mut items: Vec<_> = keys.iter().map(|c| format!("q.c{c}")).collect();
                let group = items.join(", ");
                items.extend(folds.iter().map(|fold| fold.sql()));
                let group = if keys.is_empty() {
                    group
                } else {
                    format!(" GROUP BY {group}")
                };
                format!("SELECT {} FROM ({}) AS q{group}", named(items), input.sql())
            }
            Self::UnionAll(left, right) => format!("{} UNION ALL {}", left.sql(), right.sql()),
            Self::Union(left, right) => format!("{} UNION {}", left.sql(), right.sql()),
            Self::Reached(input, other, c, (from, to), steps, step) => {
                let (distinct, value, groups) = match step {
                    Step::Met => ("", "s.c0".to_owned(), String::new()),
                    Step::Pairs | Step::Among | Step::First | Step::Value | Step::Greatest => {
                        ("", "r.c1".to_owned(), String::new())
                    }
                    Step::Distinct => ("DISTINCT ", "r.c1".to_owned(), String::new()),
                    Step::Grouped => {
                        let groups = format!(" GROUP BY o.c{to}, r.step");
                        ("", "max(r.c1)".to_owned(), groups)
                    }
                    Step::Framed => {
                        let sum = format!("sum(r.c1) OVER (PARTITION BY o.c{to})");
                        ("", sum, String::new())
                    }
                };
                let columns = in_order(0..other.width());
                let other = other.sql();
                let first = format!(
                    "SELECT c{to} FROM (SELECT DISTINCT * FROM ({other}) AS o WHERE o.c{from} = r.c0) AS q \
                     ORDER BY {columns} LIMIT 1"
                );
                let reached = match step {
                    Step::Met => "reached AS r JOIN reached AS s ON r.c1 = s.c1",
                    _ => "reached AS r",
                };
                let condition = match step {
                    Step::Greatest => " AND r.c1 = (SELECT max(c1) FROM reached)",
                    _ => "",
                };
                let term = match step {
                    Step::First => format!(
                        "SELECT o.c{to} AS c0, r.c1, r.step + 1 AS step FROM reached AS r, \
                         LATERAL ({first}) AS o WHERE r.step < {steps}"
                    ),
                    Step::Value => format!(
                        "SELECT ({first}) AS c0, r.c1, r.step + 1 AS step FROM reached AS r \
                         WHERE r.step < {steps}"
                    ),
                    Step::Among => format!(
                        "SELECT o.c{to} AS c0, o.c{from} AS c1, 1 AS step FROM ({other}) AS o \
                         LEFT SEMI JOIN reached AS r ON r.c0 = o.c{from} AND r.step < 1"
                    ),
                    _ => format!(
                        "SELECT {distinct}o.c{to} AS c0, {value} AS c1, r.step + 1 AS step FROM {reached} \
                         JOIN ({other}) AS o ON r.c0 = o.c{from} \
                         WHERE r.step < {steps}{condition}{groups}"
                    ),
                };
                format!(
                    "SELECT c0, c1 FROM (WITH RECURSIVE reached AS ( \
                     SELECT c{c} AS c0, c{c} AS c1, 0 AS step FROM ({}) AS q UNION ALL \
                     {term}) SELECT c0, c1 FROM reached) AS q",
                    input.sql(),
                )
            }
            Self::Distinct(input) => format!("SELECT DISTINCT * FROM ({}) AS q", input.sql()),
        }
    }
}

/// The columns of two inputs.
fn of_both(left: &Naive, right: &Naive) -> Vec<String> {
    let columns = |side: &str, input: &Naive| {
        let columns = 0..input.width();
        columns.map(|c| format!("{side}.c{c}")).collect::<Vec<_>>()
    };
    [columns("l", left), columns("r", right)].concat()
}

/// The key first, and no column twice: DataFusion 55.2 panics then.
fn key_first(key: usize, width: usize) -> String {
    let others = (0..width).filter(|c| *c != key);
    in_order(std::iter::once(key).chain(others))
}

/// Columns as ORDER BY takes them for the order of [`Value`]s.
pub fn in_order(columns: impl Iterator<Item = usize>) -> String {
    let columns: Vec<_> = columns.map(|c| format!("c{c} NULLS FIRST")).collect();
    columns.join(", ")
}
