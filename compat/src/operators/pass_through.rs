//! The methods of an operator that passes for another one.

/// Implements the methods of `ExecutionPlan` that are those of the operator in a field: all but `execute` and
/// `metrics`. `pass_through!(inner)` stands in the `impl` block.
///
/// To plan inspection the type then *is* that operator. It needs a method
/// `around(&self, inner: Arc<dyn ExecutionPlan>) -> Arc<dyn ExecutionPlan>`, which gives the same around another
/// operator.
#[macro_export]
macro_rules! pass_through {
    ($($field:ident).+) => {
        fn name(&self) -> &str {
            self.$($field).+.name()
        }

        fn downcast_delegate(&self) -> Option<&dyn ::datafusion::physical_plan::ExecutionPlan> {
            Some(self.$($field).+.as_ref())
        }

        fn properties(&self) -> &::std::sync::Arc<::datafusion::physical_plan::PlanProperties> {
            self.$($field).+.properties()
        }

        fn maintains_input_order(&self) -> Vec<bool> {
            self.$($field).+.maintains_input_order()
        }

        fn children(
            &self,
        ) -> Vec<&::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>> {
            self.$($field).+.children()
        }

        fn replace_children(
            self: ::std::sync::Arc<Self>,
            children: Vec<::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>>,
            options: ::datafusion::physical_plan::ReplaceChildrenOptions,
        ) -> ::datafusion::common::Result<
            ::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>,
        > {
            let inner = ::std::sync::Arc::clone(&self.$($field).+);
            Ok(self.around(inner.replace_children(children, options)?))
        }

        fn with_new_children(
            self: ::std::sync::Arc<Self>,
            children: Vec<::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>>,
        ) -> ::datafusion::common::Result<
            ::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>,
        > {
            let recompute = ::datafusion::physical_plan::ChildrenPropertiesMode::Recompute;
            let options = ::datafusion::physical_plan::ReplaceChildrenOptions::new(recompute);
            self.replace_children(children, options)
        }

        fn apply_expressions(
            &self,
            f: &mut dyn FnMut(
                &::std::sync::Arc<dyn ::datafusion::physical_expr::PhysicalExpr>,
            ) -> ::datafusion::common::Result<
                ::datafusion::common::tree_node::TreeNodeRecursion,
            >,
        ) -> ::datafusion::common::Result<::datafusion::common::tree_node::TreeNodeRecursion> {
            self.$($field).+.apply_expressions(f)
        }

        fn child_stats_requests(
            &self,
            partition: Option<usize>,
        ) -> Vec<::datafusion::physical_plan::statistics::ChildStats> {
            self.$($field).+.child_stats_requests(partition)
        }

        fn statistics_from_inputs(
            &self,
            input_stats: &[::std::sync::Arc<::datafusion::common::Statistics>],
            args: &::datafusion::physical_plan::statistics::StatisticsArgs,
        ) -> ::datafusion::common::Result<::std::sync::Arc<::datafusion::common::Statistics>> {
            self.$($field).+.statistics_from_inputs(input_stats, args)
        }

        fn reset_state(
            self: ::std::sync::Arc<Self>,
        ) -> ::datafusion::common::Result<
            ::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>,
        > {
            let inner = ::std::sync::Arc::clone(&self.$($field).+);
            Ok(self.around(inner.reset_state()?))
        }

        fn with_new_state(
            &self,
            state: ::std::sync::Arc<dyn ::std::any::Any + Send + Sync>,
        ) -> Option<::std::sync::Arc<dyn ::datafusion::physical_plan::ExecutionPlan>> {
            Some(self.around(self.$($field).+.with_new_state(state)?))
        }

        fn fetch(&self) -> Option<usize> {
            self.$($field).+.fetch()
        }
    };
}
