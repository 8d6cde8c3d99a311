//! Calls of functions: which there are within an expression, what that says of it, and new ones.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use datafusion::functions::all_default_functions;
use datafusion::functions_aggregate::all_default_aggregate_functions;
use datafusion::logical_expr::Volatility;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident,
    ObjectName, Query, Visit, Visitor, WindowType,
};

/// A call.
pub struct Call {
    /// As DataFusion knows it.
    pub name: String,
    /// Whether it has an OVER clause.
    pub windowed: bool,
    in_subquery: bool,
}

impl Call {
    /// Whether it is of other rows of the query around it than one.
    pub fn is_of_rows(&self) -> bool {
        static AGGREGATES: LazyLock<HashSet<String>> = LazyLock::new(|| {
            let functions = all_default_aggregate_functions();
            let names = functions
                .iter()
                .map(|function| (function.name(), function.aliases()));
            names_and_aliases(names)
        });
        !self.in_subquery && (self.windowed || AGGREGATES.contains(&self.name))
    }

    /// Whether it may return another value each time.
    pub fn is_volatile(&self) -> bool {
        static VOLATILE: LazyLock<HashSet<String>> = LazyLock::new(|| {
            let functions = all_default_functions();
            let volatile = functions
                .iter()
                .filter(|function| function.signature().volatility == Volatility::Volatile);
            names_and_aliases(volatile.map(|function| (function.name(), function.aliases())))
        });
        VOLATILE.contains(&self.name)
    }
}

fn names_and_aliases<'a>(
    functions: impl Iterator<Item = (&'a str, &'a [String])>,
) -> HashSet<String> {
    let names = functions.flat_map(|(name, aliases)| {
        let aliases = aliases.iter().cloned();
        aliases.chain([name.to_owned()])
    });
    names.collect()
}

/// `function(args)`, or over a window.
pub fn called(function: &str, args: Vec<Expr>, over: Option<WindowType>) -> Expr {
    let args = args.into_iter().map(FunctionArgExpr::Expr);
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(function)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: args.map(FunctionArg::Unnamed).collect(),
            clauses: vec![],
        }),
        filter: None,
        null_treatment: None,
        over,
        within_group: vec![],
    })
}

/// The first call in `nodes` that `is` it.
pub fn call<N: Visit>(nodes: &[N], is: impl Fn(&Call) -> bool) -> Option<Call> {
    let mut looks = Looks { is, queries: 0 };
    nodes
        .iter()
        .find_map(|node| node.visit(&mut looks).break_value())
}

struct Looks<F> {
    is: F,
    /// In how many subqueries it looks.
    queries: usize,
}

impl<F: Fn(&Call) -> bool> Visitor for Looks<F> {
    type Break = Call;

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<Call> {
        self.queries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<Call> {
        self.queries -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Call> {
        if let Expr::Function(function) = expr {
            let call = Call {
                name: function.name.to_string().to_ascii_lowercase(),
                windowed: function.over.is_some(),
                in_subquery: self.queries > 0,
            };
            if (self.is)(&call) {
                return ControlFlow::Break(call);
            }
        }
        ControlFlow::Continue(())
    }
}

/// How many expressions there are in `nodes`.
pub fn size<N: Visit>(nodes: &[N]) -> usize {
    struct Counts(usize);
    impl Visitor for Counts {
        type Break = ();

        fn pre_visit_expr(&mut self, _: &Expr) -> ControlFlow<()> {
            self.0 += 1;
            ControlFlow::Continue(())
        }
    }
    let mut counts = Counts(0);
    for node in nodes {
        let _: ControlFlow<()> = node.visit(&mut counts);
    }
    counts.0
}

/// Whether a function is called in `nodes` that may return something else each time.
pub fn differs_each_time<N: Visit>(nodes: &[N]) -> bool {
    call(nodes, Call::is_volatile).is_some()
}
