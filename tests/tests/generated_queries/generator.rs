//! Queries with everything.

use rand::RngExt;
use rand::seq::{IndexedRandom, SliceRandom};

use crate::cases::Random;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Integer,
    Float,
    Text,
}

/// A query in parentheses and the types of its columns, which are called `c0`, `c1`, …
#[derive(Debug, Clone)]
pub struct Relation {
    pub sql: String,
    pub types: Vec<Type>,
}

/// Generates queries with everything.
pub struct Generator {
    random: Random,
    aliases: usize,
}

impl Generator {
    pub fn new(random: Random) -> Self {
        Self { random, aliases: 0 }
    }

    fn alias(&mut self) -> String {
        self.aliases += 1;
        format!("r{}", self.aliases)
    }

    pub fn below(&mut self, n: usize) -> usize {
        self.random.random_range(0..n)
    }

    fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices.choose(&mut self.random).expect("a choice")
    }

    pub fn relation(&mut self, depth: usize) -> Relation {
        if depth == 0 {
            return if self.below(2) == 0 {
                Relation {
                    sql: "(SELECT a AS c0, b AS c1, f AS c2, s AS c3 FROM t)".to_owned(),
                    types: vec![Type::Integer, Type::Integer, Type::Float, Type::Text],
                }
            } else {
                Relation {
                    sql: "(SELECT a AS c0, d AS c1, s AS c2 FROM u)".to_owned(),
                    types: vec![Type::Integer, Type::Integer, Type::Text],
                }
            };
        }
        match self.below(13) {
            0 | 1 => self.project(depth),
            2 => self.filter(depth),
            3 | 4 => self.join(depth),
            5 | 6 => self.aggregate(depth),
            7 => self.distinct(depth),
            8 => self.set_operation(depth),
            9 => self.sort_limit(depth),
            10 => self.window(depth),
            11 => self.unnest(depth),
            _ => self.subquery(depth),
        }
    }

    /// An expression of a type over columns of these types.
    fn expression(&mut self, types: &[Type], wanted: Type, alias: &str) -> String {
        let columns: Vec<usize> = (0..types.len()).filter(|c| types[*c] == wanted).collect();
        let column = columns.choose(&mut self.random);
        let Some(column) = column.filter(|_| self.below(10) > 0) else {
            return match wanted {
                Type::Integer => "CAST(7 AS BIGINT)".to_owned(),
                Type::Float => "CAST(0.5 AS DOUBLE)".to_owned(),
                Type::Text => "'p,q'".to_owned(),
            };
        };
        let column = format!("{alias}.c{column}");
        let number = self.below(4);
        match (wanted, self.below(6)) {
            (Type::Integer, 0) => format!("{column} + {number}"),
            (Type::Integer, 1) => format!("coalesce({column}, {number})"),
            (Type::Integer, 2) => format!("same({column})"),
            (Type::Integer, 3) => {
                format!("CASE WHEN {column} > {number} THEN {column} ELSE -1 END")
            }
            (Type::Float, 0) => format!("{column} * 0.5"),
            (Type::Text, 0) => format!("upper({column})"),
            (Type::Text, 1) => format!("{column} || ',{number}'"),
            (Type::Text, 2) => format!("replace({column}, 'x', 'yx')"),
            _ => column,
        }
    }

    fn predicate(&mut self, types: &[Type], alias: &str) -> String {
        let wanted = [Type::Integer, Type::Integer, Type::Float, Type::Text][self.below(4)];
        let left = self.expression(types, wanted, alias);
        let number = self.below(5);
        let one = match (wanted, self.below(5)) {
            (_, 0) => format!("{left} IS NOT NULL"),
            (Type::Text, 1 | 2) => format!("{left} LIKE '%{}%'", self.pick(&["x", "y", "z", ","])),
            (Type::Text, _) => format!("{left} >= 'x1'"),
            (Type::Integer, 1) => format!("{left} IN (1, 2, {number})"),
            (Type::Integer, 3) => format!("{left} = {number}"),
            (_, 2) => format!("{left} <> {number}"),
            (_, _) => format!("{left} > {number}"),
        };
        match self.below(6) {
            0 => format!("NOT ({one})"),
            1 => format!("({one} OR {})", self.predicate(types, alias)),
            2 => format!("{one} AND {}", self.predicate(types, alias)),
            _ => one,
        }
    }

    fn project(&mut self, depth: usize) -> Relation {
        let input = self.relation(depth - 1);
        let alias = self.alias();
        let width = 1 + self.below(4);
        let mut types = Vec::new();
        let mut items = Vec::new();
        for position in 0..width {
            let wanted = [Type::Integer, Type::Integer, Type::Float, Type::Text][self.below(4)];
            let expression = self.expression(&input.types, wanted, &alias);
            items.push(format!("{expression} AS c{position}"));
            types.push(wanted);
        }
        let sql = format!(
            "(SELECT {} FROM {} AS {alias})",
            items.join(", "),
            input.sql
        );
        Relation { sql, types }
    }

    fn filter(&mut self, depth: usize) -> Relation {
        let input = self.relation(depth - 1);
        let alias = self.alias();
        let predicate = self.predicate(&input.types, &alias);
        let sql = format!("(SELECT * FROM {} AS {alias} WHERE {predicate})", input.sql);
        Relation { sql, ..input }
    }

    /// Two columns of the same type to join on, if there are any.
    fn condition(&mut self, left: &Relation, right: &Relation, l: &str, r: &str) -> Option<String> {
        let mut pairs = Vec::new();
        for (i, one) in left.types.iter().enumerate() {
            for (j, other) in right.types.iter().enumerate() {
                if one == other {
                    pairs.push(format!("{l}.c{i} = {r}.c{j}"));
                }
            }
        }
        pairs.choose(&mut self.random).cloned()
    }

    fn join(&mut self, depth: usize) -> Relation {
        let left = self.relation(depth - 1);
        let below = self.below(depth);
        let right = self.relation(below);
        let (l, r) = (self.alias(), self.alias());
        let Some(mut on) = self.condition(&left, &right, &l, &r) else {
            return left;
        };
        if self.below(4) == 0 {
            let more = self.predicate(&right.types, &r);
            on = format!("{on} AND {more}");
        }
        if self.below(6) == 0 {
            let (inner, alias) = (self.relation(0), self.alias());
            let of_left = self.condition(&inner, &left, &alias, &l);
            let of_right = self.condition(&inner, &right, &alias, &r);
            let conditions: Vec<String> = of_left.into_iter().chain(of_right).collect();
            if !conditions.is_empty() {
                let not = self.pick(&["", "NOT "]);
                on = format!(
                    "{on} AND {not}EXISTS (SELECT 1 FROM {} AS {alias} WHERE {})",
                    inner.sql,
                    conditions.join(" AND ")
                );
            }
        }
        let kind = self.pick(&[
            "INNER",
            "INNER",
            "LEFT",
            "RIGHT",
            "FULL",
            "LEFT SEMI",
            "LEFT ANTI",
        ]);
        let mut items: Vec<_> = (0..left.types.len())
            .map(|c| format!("{l}.c{c} AS c{c}"))
            .collect();
        let mut types = left.types.clone();
        if !kind.contains("SEMI") && !kind.contains("ANTI") {
            for (c, kind) in right.types.iter().enumerate().take(3) {
                items.push(format!("{r}.c{c} AS c{}", types.len()));
                types.push(*kind);
            }
        }
        let sql = format!(
            "(SELECT {} FROM {} AS {l} {kind} JOIN {} AS {r} ON {on})",
            items.join(", "),
            left.sql,
            right.sql
        );
        Relation { sql, types }
    }

    fn aggregate(&mut self, depth: usize) -> Relation {
        let input = self.relation(depth - 1);
        let alias = self.alias();
        let mut items = Vec::new();
        let mut types = Vec::new();
        let mut keys = Vec::new();
        for _ in 0..self.below(3) {
            let wanted = [Type::Integer, Type::Text][self.below(2)];
            let key = self.expression(&input.types, wanted, &alias);
            if key.contains(&alias) {
                keys.push((types.len() + 1).to_string());
                items.push(format!("{key} AS c{}", types.len()));
                types.push(wanted);
            }
        }
        for _ in 0..=self.below(3) {
            let argument = self.expression(&input.types, Type::Integer, &alias);
            let float = self.expression(&input.types, Type::Float, &alias);
            let text = self.expression(&input.types, Type::Text, &alias);
            let (item, kind) = match self.below(9) {
                0 => ("count(*)".to_owned(), Type::Integer),
                1 => (format!("count({text})"), Type::Integer),
                2 => (format!("count(DISTINCT {argument})"), Type::Integer),
                3 => (format!("sum({argument})"), Type::Integer),
                4 => (format!("avg({float})"), Type::Float),
                5 => (format!("max({text})"), Type::Text),
                6 => (format!("min({argument})"), Type::Integer),
                7 => {
                    let filter = self.predicate(&input.types, &alias);
                    (format!("sum({float}) FILTER (WHERE {filter})"), Type::Float)
                }
                _ => (format!("max({argument}) - min({argument})"), Type::Integer),
            };
            items.push(format!("{item} AS c{}", types.len()));
            types.push(kind);
        }
        let mut sql = format!("SELECT {} FROM {} AS {alias}", items.join(", "), input.sql);
        if !keys.is_empty() {
            let rollup = self.below(6) == 0;
            let keys = if rollup {
                let keys = items[..keys.len()].iter();
                let keys: Vec<_> = keys
                    .map(|item| item.rsplit_once(" AS ").unwrap().0)
                    .collect();
                format!("ROLLUP ({})", keys.join(", "))
            } else {
                keys.join(", ")
            };
            sql = format!("{sql} GROUP BY {keys}");
            if self.below(4) == 0 {
                sql = format!("{sql} HAVING count(*) > 1");
            }
        }
        Relation {
            sql: format!("({sql})"),
            types,
        }
    }

    fn distinct(&mut self, depth: usize) -> Relation {
        let input = self.project(depth);
        let alias = self.alias();
        let sql = format!("(SELECT DISTINCT * FROM {} AS {alias})", input.sql);
        Relation { sql, ..input }
    }

    fn set_operation(&mut self, depth: usize) -> Relation {
        let left = self.relation(depth - 1);
        let below = self.below(depth);
        let right = self.relation(below);
        let (l, r) = (self.alias(), self.alias());
        let types: Vec<_> = left.types.iter().copied().take(2).collect();
        let mut sides = Vec::new();
        for (side, alias) in [(&left, &l), (&right, &r)] {
            let items: Vec<_> = types
                .iter()
                .enumerate()
                .map(|(c, kind)| format!("{} AS c{c}", self.expression(&side.types, *kind, alias)))
                .collect();
            sides.push(format!(
                "SELECT {} FROM {} AS {alias}",
                items.join(", "),
                side.sql
            ));
        }
        let operation = self.pick(&[
            "UNION ALL",
            "UNION ALL",
            "UNION",
            "INTERSECT",
            "EXCEPT",
            "INTERSECT ALL",
            "EXCEPT ALL",
        ]);
        let sql = format!("({} {operation} {})", sides[0], sides[1]);
        Relation { sql, types }
    }

    /// Ordered by all columns, in any sequence: rows that tie are the same.
    fn order(&mut self, types: &[Type]) -> Vec<usize> {
        let mut columns: Vec<usize> = (0..types.len()).collect();
        columns.shuffle(&mut self.random);
        columns
    }

    fn sort_limit(&mut self, depth: usize) -> Relation {
        let input = self.relation(depth - 1);
        let alias = self.alias();
        let order = by(&self.order(&input.types));
        let (limit, offset) = (1 + self.below(9), self.below(3));
        let rows = match self.below(4) {
            0 => {
                // Of a part of the order all rows that tie are returned.
                let order = by(&self.order(&input.types[..1]));
                format!("ORDER BY {order} FETCH FIRST {limit} ROWS WITH TIES")
            }
            1 => format!("ORDER BY {order} LIMIT (SELECT {limit}) OFFSET (SELECT {offset})"),
            _ => format!("ORDER BY {order} LIMIT {limit} OFFSET {offset}"),
        };
        let sql = format!("(SELECT * FROM {} AS {alias} {rows})", input.sql);
        Relation { sql, ..input }
    }

    fn window(&mut self, depth: usize) -> Relation {
        let input = self.relation(depth - 1);
        let alias = self.alias();
        let order = by(&self.order(&input.types));
        let argument = self.expression(&input.types, Type::Integer, &alias);
        let key = self.below(input.types.len());
        let function = match self.below(4) {
            0 => format!("row_number() OVER (ORDER BY {order})"),
            1 => format!("rank() OVER (PARTITION BY c{key} ORDER BY {order})"),
            2 => format!("sum({argument}) OVER (PARTITION BY c{key})"),
            _ => format!("lag({argument}) OVER (ORDER BY {order})"),
        };
        let mut types = input.types;
        // An unsigned rank becomes what the others are.
        let sql = format!(
            "(SELECT {alias}.*, CAST({function} AS BIGINT) AS c{} FROM {} AS {alias})",
            types.len(),
            input.sql
        );
        types.push(Type::Integer);
        Relation { sql, types }
    }

    fn unnest(&mut self, depth: usize) -> Relation {
        let input = self.relation(depth - 1);
        let alias = self.alias();
        let text = self.expression(&input.types, Type::Text, &alias);
        let number = self.expression(&input.types, Type::Integer, &alias);
        let sql = format!(
            "(SELECT {number} AS c0, unnest(string_to_array({text}, ',')) AS c1 FROM {} AS {alias})",
            input.sql
        );
        Relation {
            sql,
            types: vec![Type::Integer, Type::Text],
        }
    }

    fn subquery(&mut self, depth: usize) -> Relation {
        let (outer, inner) = (self.relation(depth - 1), self.relation(0));
        let (o, i) = (self.alias(), self.alias());
        let value = self.expression(&outer.types, Type::Integer, &o);
        let other = self.expression(&inner.types, Type::Integer, &i);
        let from = format!("{} AS {o}", outer.sql);
        let inside = format!("{} AS {i}", inner.sql);
        let condition = match self.below(5) {
            0 => format!("{value} IN (SELECT {other} FROM {inside})"),
            1 => format!("{value} > (SELECT min({other}) FROM {inside})"),
            2 => match self.condition(&outer, &inner, &o, &i) {
                Some(on) => format!("EXISTS (SELECT 1 FROM {inside} WHERE {on})"),
                None => "true".to_owned(),
            },
            3 => match self.condition(&outer, &inner, &o, &i) {
                Some(on) => format!("NOT EXISTS (SELECT 1 FROM {inside} WHERE {on})"),
                None => "true".to_owned(),
            },
            _ => match self.condition(&outer, &inner, &o, &i) {
                Some(on) => format!("{value} <= (SELECT max({other}) FROM {inside} WHERE {on})"),
                None => "true".to_owned(),
            },
        };
        let sql = format!("(SELECT * FROM {from} WHERE {condition})");
        Relation { sql, ..outer }
    }

    /// A whole query, and the columns that it is ordered by, if it is.
    pub fn query(&mut self) -> (String, Option<Vec<usize>>) {
        let depth = 1 + self.below(4);
        let relation = self.relation(depth);
        let from = format!("SELECT * FROM {} AS q", relation.sql);
        match self.below(4) {
            0 => {
                let order = self.order(&relation.types);
                (format!("{from} ORDER BY {}", by(&order)), Some(order))
            }
            1 => {
                let sql = format!(
                    "WITH q AS {} SELECT * FROM q UNION ALL SELECT * FROM q",
                    relation.sql
                );
                (sql, None)
            }
            _ => (from, None),
        }
    }
}

/// Columns as ORDER BY takes them.
fn by(columns: &[usize]) -> String {
    let columns: Vec<_> = columns.iter().map(|c| format!("c{c}")).collect();
    columns.join(", ")
}
