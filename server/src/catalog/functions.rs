//! Functions of PostgreSQL's that psql and drivers call.

use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

use datafusion::arrow::array::{Array, AsArray, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, TypeSignature,
    Volatility,
};
use pgwire::api::Type;
use skewer::Session;

use super::{DATABASE, MAIN, oid};
use crate::encode::types::PgType;
use crate::settings::{SERVER_VERSION, SharedSettings};

/// A function that gives the same whatever it is asked.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Constant {
    name: &'static str,
    value: ScalarValue,
    signature: Signature,
}

/// The function `name` of any arguments, which gives `value`.
fn constant(name: &'static str, value: ScalarValue) -> ScalarUDF {
    let any = vec![TypeSignature::Nullary, TypeSignature::VariadicAny];
    ScalarUDF::from(Constant {
        name,
        value,
        signature: Signature::one_of(any, Volatility::Immutable),
    })
}

impl ScalarUDFImpl for Constant {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(self.value.data_type())
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        Ok(ColumnarValue::Scalar(self.value.clone()))
    }
}

/// Privileges: whoever is connected may do everything.
const PRIVILEGES: [&str; 8] = [
    "has_any_column_privilege",
    "has_column_privilege",
    "has_database_privilege",
    "has_function_privilege",
    "has_schema_privilege",
    "has_sequence_privilege",
    "has_table_privilege",
    "pg_has_role",
];

/// What there is nothing of: comments, defaults, constraints, indexes, rules.
const NOTHING: [&str; 14] = [
    "col_description",
    "obj_description",
    "pg_get_constraintdef",
    "pg_get_expr",
    "pg_get_indexdef",
    "pg_get_partkeydef",
    "pg_get_ruledef",
    "pg_get_serial_sequence",
    "pg_get_statisticsobjdef_columns",
    "pg_get_triggerdef",
    "pg_get_viewdef",
    "shobj_description",
    "pg_get_function_result",
    "pg_get_function_identity_arguments",
];

/// Gives a client's session PostgreSQL's functions.
pub(super) fn install(session: &Session, user: &str, process: i32) {
    let text = |text: &str| ScalarValue::Utf8(Some(text.to_owned()));
    let version = format!(
        "PostgreSQL {SERVER_VERSION} (Skewer {})",
        env!("CARGO_PKG_VERSION")
    );
    let schemas = ScalarValue::new_list_nullable(&[text(MAIN)], &DataType::Utf8);
    let constants = [
        ("current_catalog", text(DATABASE)),
        ("current_database", text(DATABASE)),
        ("current_role", text(user)),
        ("current_schema", text(MAIN)),
        ("current_schemas", ScalarValue::List(schemas)),
        ("current_user", text(user)),
        // Pools ask for it: there are no such locks.
        ("pg_advisory_unlock_all", text("")),
        ("pg_backend_pid", ScalarValue::from(process)),
        ("pg_encoding_to_char", text("UTF8")),
        ("pg_function_is_visible", ScalarValue::from(true)),
        ("pg_get_function_arguments", text("")),
        ("pg_get_userbyid", text(user)),
        ("pg_is_in_recovery", ScalarValue::from(false)),
        ("pg_type_is_visible", ScalarValue::from(true)),
        ("session_user", text(user)),
        ("user", text(user)),
        ("version", text(&version)),
    ];
    for (name, value) in constants {
        session.register_udf(constant(name, value));
    }
    for name in PRIVILEGES {
        session.register_udf(constant(name, ScalarValue::from(true)));
    }
    for name in NOTHING {
        session.register_udf(constant(name, ScalarValue::Utf8(None)));
    }
    let number = DataType::Int64;
    session.register_row_udf(
        "pg_table_is_visible",
        vec![number.clone()],
        DataType::Boolean,
        Volatility::Immutable,
        |args| Ok(ScalarValue::Boolean(integer(&args[0]).map(oid::is_visible))),
    );
    session.register_row_udf(
        "to_regtype",
        vec![DataType::Utf8],
        DataType::Int64,
        Volatility::Immutable,
        |args| Ok(ScalarValue::Int64(string(&args[0]).and_then(type_named))),
    );
    session.register_row_udf(
        "format_type",
        vec![number.clone(), number],
        DataType::Utf8,
        Volatility::Immutable,
        |args| {
            let modifier = integer(&args[1]).unwrap_or(-1);
            Ok(ScalarValue::Utf8(
                integer(&args[0]).map(|oid| format_type(oid, modifier)),
            ))
        },
    );
}

/// Gives a client's session the functions that read and set the settings of its connection.
pub(super) fn install_settings(session: &Session, settings: SharedSettings) {
    let execution = |message: String| DataFusionError::Execution(message);
    let shared = settings.clone();
    session.register_udf(ScalarUDF::from(SettingFunction {
        name: "current_setting",
        least: 1,
        signature: Signature::user_defined(Volatility::Volatile),
        answer: Arc::new(move |args: &[Option<&str>]| {
            let Some(name) = args.first().copied().flatten() else {
                return Ok(None);
            };
            let is_missing_ok = args.get(1).copied().flatten() == Some("true");
            match shared.get(name) {
                None if !is_missing_ok => Err(execution(format!("there is no setting {name}"))),
                value => Ok(value),
            }
        }),
    }));
    session.register_udf(ScalarUDF::from(SettingFunction {
        name: "set_config",
        least: 2,
        signature: Signature::user_defined(Volatility::Volatile),
        answer: Arc::new(move |args: &[Option<&str>]| {
            let [Some(name), Some(value), ..] = args else {
                return Err(execution("set_config takes a name and a value".to_owned()));
            };
            settings.set(name, value).map_err(execution)?;
            Ok(Some((*value).to_owned()))
        }),
    }));
}

/// A function of texts, the last of which may be left out.
struct SettingFunction {
    name: &'static str,
    /// How many arguments it needs.
    least: usize,
    signature: Signature,
    answer: Arc<Answer>,
}

type Answer = dyn Fn(&[Option<&str>]) -> Result<Option<String>> + Send + Sync;

impl std::fmt::Debug for SettingFunction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("SettingFunction").field(&self.name).finish()
    }
}

impl PartialEq for SettingFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name && Arc::ptr_eq(&self.answer, &other.answer)
    }
}

impl Eq for SettingFunction {}

impl Hash for SettingFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl ScalarUDFImpl for SettingFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        if types.len() < self.least || types.len() > self.least + 1 {
            let message = format!("{}() takes {} arguments", self.name, self.least);
            return Err(DataFusionError::Plan(message));
        }
        Ok(vec![DataType::Utf8; types.len()])
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let arrays = ColumnarValue::values_to_arrays(&args.args)?;
        let texts: Vec<_> = arrays
            .iter()
            .map(|array| array.as_string::<i32>())
            .collect();
        let rows = arrays.first().map_or(0, |array| array.len());
        let answers = (0..rows).map(|row| {
            let given: Vec<Option<&str>> = texts
                .iter()
                .map(|texts| texts.is_valid(row).then(|| texts.value(row)))
                .collect();
            (self.answer)(&given)
        });
        let answers: StringArray = answers.collect::<Result<_>>()?;
        Ok(ColumnarValue::Array(Arc::new(answers)))
    }
}

/// Gives the catalog's own session what its tables are made with.
pub(super) fn install_own(session: &Session) {
    let text = DataType::Utf8;
    let names = |name: &'static str, function: fn(&str, &str) -> i64| {
        session.register_row_udf(
            name,
            vec![DataType::Utf8, DataType::Utf8],
            DataType::Int64,
            Volatility::Immutable,
            move |args| match (string(&args[0]), string(&args[1])) {
                (Some(schema), Some(table)) => Ok(ScalarValue::from(function(schema, table))),
                _ => Ok(ScalarValue::Int64(None)),
            },
        );
    };
    names("oid_of_table", oid::of_table);
    names("oid_of_schema", |schema, _| oid::of_schema(schema));
    let types = |name: &'static str, function: fn(&PgType) -> i64| {
        session.register_row_udf(
            name,
            vec![text.clone()],
            DataType::Int64,
            Volatility::Immutable,
            move |args| match string(&args[0]) {
                Some(arrow) => {
                    let data_type = DataType::from_str(arrow).unwrap_or(DataType::Utf8);
                    Ok(ScalarValue::from(function(&PgType::of_type(&data_type))))
                }
                None => Ok(ScalarValue::Int64(None)),
            },
        );
    };
    types("oid_of_type", |kind| i64::from(kind.kind.oid()));
    types("modifier_of_type", |kind| i64::from(kind.modifier));
    types("size_of_type", |kind| i64::from(kind.size()));
}

fn integer(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::Int64(value) => *value,
        _ => None,
    }
}

fn string(value: &ScalarValue) -> Option<&str> {
    value.try_as_str().flatten()
}

/// The oid of a type by either of its names; `None` for those that Skewer has not.
fn type_named(name: &str) -> Option<i64> {
    let known = TYPES
        .iter()
        .map(|kind| (kind.name(), i64::from(kind.oid())));
    let mut known = known.filter(|(short, oid)| *short == name || format_type(*oid, -1) == name);
    known.next().map(|(_, oid)| oid)
}

/// The types that `pg_type` lists.
const TYPES: [Type; 18] = [
    Type::BOOL,
    Type::BYTEA,
    Type::INT2,
    Type::INT4,
    Type::INT8,
    Type::TEXT,
    Type::JSON,
    Type::FLOAT4,
    Type::FLOAT8,
    Type::BPCHAR,
    Type::VARCHAR,
    Type::DATE,
    Type::TIME,
    Type::TIMESTAMP,
    Type::TIMESTAMPTZ,
    Type::INTERVAL,
    Type::NUMERIC,
    Type::UUID,
];

/// A type's name in SQL.
pub(super) fn format_type(oid: i64, modifier: i64) -> String {
    if oid == 0 {
        return "-".to_owned();
    }
    let kind = u32::try_from(oid).ok().and_then(Type::from_oid);
    let Some(kind) = kind else {
        return "???".to_owned();
    };
    if let postgres_types::Kind::Array(item) = kind.kind() {
        return format!("{}[]", format_type(i64::from(item.oid()), modifier));
    }
    let name = match kind {
        Type::BOOL => "boolean",
        Type::INT2 => "smallint",
        Type::INT4 => "integer",
        Type::INT8 => "bigint",
        Type::FLOAT4 => "real",
        Type::FLOAT8 => "double precision",
        Type::NUMERIC if modifier >= 4 => {
            let packed = modifier - 4;
            return format!("numeric({},{})", packed >> 16, packed & 0xFFFF);
        }
        Type::VARCHAR => "character varying",
        Type::BPCHAR => "character",
        Type::TIME => "time without time zone",
        Type::TIMETZ => "time with time zone",
        Type::TIMESTAMP => "timestamp without time zone",
        Type::TIMESTAMPTZ => "timestamp with time zone",
        ref other => other.name(),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_their_names_in_sql() {
        assert_eq!(format_type(1700, ((10 << 16) | 2) + 4), "numeric(10,2)");
        assert_eq!(format_type(1016, -1), "bigint[]");
        assert_eq!(format_type(25, -1), "text");
        assert_eq!(format_type(0, -1), "-");
        assert_eq!(format_type(1, -1), "???");
    }

    #[test]
    fn types_are_found_by_both_of_their_names() {
        assert_eq!(type_named("int8"), Some(20));
        assert_eq!(type_named("timestamp with time zone"), Some(1184));
        assert_eq!(type_named("hstore"), None);
    }
}
