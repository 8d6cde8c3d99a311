//! A DataFusion session with all repairs.

use std::sync::Arc;

use datafusion::execution::{FunctionRegistry, SessionStateBuilder};
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, WindowUDF};
use datafusion::prelude::SessionContext;

use crate::functions::guarded::GuardedFunction;
use crate::functions::octet_length::OctetLength;
use crate::functions::patterns::{EscapedPattern, PatternKind};
use crate::functions::quantified::{Quantified, Quantifier};
use crate::functions::series;
use crate::functions::shift::Shift;
use crate::functions::totals::average::RoundedAverage;
use crate::functions::totals::extremes::Extreme;
use crate::functions::totals::sum::CheckedSum;
use crate::functions::zones::Timezone;
use crate::logical::explicit_casts::ExplicitCasts;
use crate::rules::dependencies::ForgetsUnnestedKeys;
use crate::rules::{ArithmeticPlanner, CheckArithmetic, logical_rules, physical_rules};
use crate::statement::unnest_names::NamesUnnested;
use crate::statement::untyped_lists::ReadsLists;

/// Builds a session with DataFusion's default features and all repaired rules and functions.
///
/// It replaces the rules that `builder` has. Statements and plans are rewritten elsewhere:
/// [`gaps`](crate::gaps) has the order.
pub fn repaired(builder: SessionStateBuilder) -> SessionContext {
    let mut state = builder
        .with_expr_planners(vec![Arc::new(ArithmeticPlanner)])
        .with_default_features()
        .with_analyzer_rule(Arc::new(ExplicitCasts))
        .with_optimizer_rules(logical_rules())
        .with_physical_optimizer_rules(physical_rules())
        .with_relation_planners(vec![Arc::new(NamesUnnested), Arc::new(ForgetsUnnestedKeys)])
        .with_analyzer_rule(Arc::new(CheckArithmetic))
        .build();
    let registered = state.register_expr_planner(Arc::new(ReadsLists));
    debug_assert!(registered.is_ok());
    let context = SessionContext::new_with_state(state);
    register_functions(&context);
    context
}

fn register_functions(context: &SessionContext) {
    for function in GuardedFunction::all(context.state().scalar_functions().values()) {
        context.register_udf(function.as_ref().clone());
    }
    context.register_udf(ScalarUDF::from(OctetLength::default()));
    context.register_udf(ScalarUDF::from(Timezone::default()));
    for kind in [PatternKind::Like, PatternKind::Similar] {
        context.register_udf(ScalarUDF::from(EscapedPattern::new(kind)));
    }
    for quantifier in [Quantifier::Any, Quantifier::All] {
        context.register_udf(ScalarUDF::from(Quantified::new(quantifier)));
    }
    series::register(context);
    context.register_udaf(AggregateUDF::from(CheckedSum::default()));
    context.register_udaf(AggregateUDF::from(RoundedAverage::default()));
    context.register_udaf(AggregateUDF::from(Extreme::max()));
    context.register_udaf(AggregateUDF::from(Extreme::min()));
    context.register_udwf(WindowUDF::from(Shift::lead()));
    context.register_udwf(WindowUDF::from(Shift::lag()));
}
