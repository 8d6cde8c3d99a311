//! Parquet, CSV and JSON files as tables.

use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::DataFusionError;
use datafusion::common::config::{CsvOptions, TableParquetOptions};
use datafusion::datasource::ViewTable;
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl,
};
use datafusion::datasource::provider_as_source;
use datafusion::execution::SessionState;
use datafusion::functions::expr_fn::coalesce;
use datafusion::logical_expr::{
    DdlStatement, Expr, LogicalPlan, LogicalPlanBuilder, cast, lit, when,
};
use datafusion::object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use datafusion::scalar::ScalarValue;
use datafusion::sql::parser::{CreateExternalTable, Statement as DFStatement};
use futures::TryStreamExt;
use skewer_exec::IdentifiedTable;
use skewer_sql::{CopyOptions, nearest};

use super::parquet_files::ParquetFiles;
use super::zones::{in_zone, zone_of};
use crate::error::Error;

/// How files are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    Parquet,
    Csv,
    /// One JSON object per line, or one array of objects.
    Json,
}

impl FileKind {
    /// The kind that a format or an extension names.
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name.to_lowercase().as_str() {
            "parquet" | "pq" => Some(Self::Parquet),
            "csv" | "tsv" => Some(Self::Csv),
            "json" | "ndjson" | "jsonl" => Some(Self::Json),
            _ => None,
        }
    }

    /// The kind of a file by its name.
    pub(crate) fn of_path(path: &str) -> Option<Self> {
        Self::named(Path::new(path).extension()?.to_str()?)
    }

    /// The kinds as a statement can name them.
    pub(crate) const NAMES: &'static str = "parquet, csv or json";
}

/// How a CSV file is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CsvDialect {
    pub(crate) header: bool,
    pub(crate) delimiter: u8,
    pub(crate) quote: u8,
    pub(crate) escape: Option<u8>,
    /// What stands for NULL; the empty field where it is not said.
    pub(crate) null: Option<String>,
}

impl Default for CsvDialect {
    /// RFC 4180 with a header.
    fn default() -> Self {
        Self {
            header: true,
            delimiter: b',',
            quote: b'"',
            escape: None,
            null: None,
        }
    }
}

/// The options of COPY that say how a CSV file is written.
const CSV_OPTIONS: [&str; 5] = ["header", "delimiter", "quote", "escape", "null"];

impl CsvDialect {
    /// Reads the options of COPY or CREATE EXTERNAL TABLE. Those of `also` belong to others.
    pub(crate) fn from_options(
        kind: FileKind,
        path: &str,
        options: &CopyOptions,
        also: &[&str],
    ) -> Result<Self, Error> {
        let mut dialect = Self::default();
        if path.to_lowercase().ends_with(".tsv") {
            dialect.delimiter = b'\t';
        }
        for (name, value) in &options.others {
            if also.contains(&name.as_str()) {
                continue;
            }
            let name = match name.as_str() {
                "has_header" => "header",
                "delim" | "sep" => "delimiter",
                "nullstr" | "null_value" | "null_regex" => "null",
                other => other,
            };
            if !CSV_OPTIONS.contains(&name) {
                let known: Vec<_> = CSV_OPTIONS.iter().chain(also).copied().collect();
                return Err(Error::UnknownSetting {
                    name: name.to_owned(),
                    suggestions: match nearest(name, known.iter().copied()) {
                        near if near.is_empty() => known.iter().map(|n| (*n).to_owned()).collect(),
                        near => near,
                    },
                });
            }
            if kind != FileKind::Csv {
                return Err(Error::InvalidValue {
                    name: name.to_owned(),
                    value: value.clone(),
                    expected: "it is an option of CSV files".to_owned(),
                });
            }
            match name {
                "header" => dialect.header = parse_bool(name, value)?,
                "delimiter" => dialect.delimiter = parse_character(name, value)?,
                "quote" => dialect.quote = parse_character(name, value)?,
                "escape" => dialect.escape = Some(parse_character(name, value)?),
                _ => dialect.null = Some(value.clone()),
            }
        }
        Ok(dialect)
    }
}

fn parse_bool(name: &str, value: &str) -> Result<bool, Error> {
    match value.to_lowercase().as_str() {
        "true" | "on" | "yes" | "1" => Ok(true),
        "false" | "off" | "no" | "0" => Ok(false),
        _ => Err(Error::InvalidValue {
            name: name.to_owned(),
            value: value.to_owned(),
            expected: "it is true or false".to_owned(),
        }),
    }
}

fn parse_character(name: &str, value: &str) -> Result<u8, Error> {
    match value {
        "\\t" | "tab" => Ok(b'\t'),
        _ => match value.as_bytes() {
            [byte] if byte.is_ascii() => Ok(*byte),
            _ => Err(Error::InvalidValue {
                name: name.to_owned(),
                value: value.to_owned(),
                expected: "it is one ASCII character".to_owned(),
            }),
        },
    }
}

/// Files that a query reads as one table.
#[derive(Debug, Clone)]
pub(crate) struct FileTable {
    /// Files, directories or patterns.
    pub(crate) locations: Vec<String>,
    pub(crate) kind: FileKind,
    pub(crate) csv: CsvDialect,
    /// The columns, if they are not to be found in the files.
    pub(crate) schema: Option<SchemaRef>,
    /// The statement that declared the columns.
    declared: Option<Box<CreateExternalTable>>,
}

impl FileTable {
    /// The files of one location, with columns as they are found in them, or as given.
    pub(crate) fn new(
        location: &str,
        kind: FileKind,
        csv: CsvDialect,
        schema: Option<SchemaRef>,
    ) -> Self {
        Self {
            locations: vec![location.to_owned()],
            kind,
            csv,
            schema,
            declared: None,
        }
    }

    /// The files that a name in FROM means, if it looks like a path.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let kind = FileKind::of_path(name).or_else(|| Self::kind_within(name))?;
        let csv = CsvDialect {
            delimiter: if name.to_lowercase().ends_with(".tsv") {
                b'\t'
            } else {
                b','
            },
            ..CsvDialect::default()
        };
        Some(Self::new(name, kind, csv, None))
    }

    /// The kind of the first file of a directory whose kind is known.
    fn kind_within(name: &str) -> Option<FileKind> {
        // Without a slash it may as well be a table that is not there.
        if !name.contains('/') {
            return None;
        }
        let mut names: Vec<_> = std::fs::read_dir(name)
            .ok()?
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort();
        names.iter().find_map(|file| FileKind::of_path(file))
    }

    /// The files of CREATE EXTERNAL TABLE.
    pub(crate) fn external(statement: &CreateExternalTable) -> Result<Self, Error> {
        let kind = FileKind::named(&statement.file_type).ok_or_else(|| Error::InvalidValue {
            name: "STORED AS".to_owned(),
            value: statement.file_type.clone(),
            expected: format!("it is {}", FileKind::NAMES),
        })?;
        let options = CopyOptions {
            format: None,
            others: statement
                .options
                .iter()
                .map(|(name, value)| {
                    let name = name.to_lowercase();
                    let name = name.strip_prefix("format.").unwrap_or(&name).to_owned();
                    let value = match value.clone().into_string() {
                        Some(text) => text,
                        None => value.to_string(),
                    };
                    (name, value)
                })
                .collect(),
        };
        let first = statement.locations.first().map_or("", String::as_str);
        let csv = CsvDialect::from_options(kind, first, &options, &[])?;
        Ok(Self {
            locations: statement.locations.clone(),
            kind,
            csv,
            schema: None,
            declared: (!statement.columns.is_empty()).then(|| Box::new(statement.clone())),
        })
    }

    /// Whether the format numbers its rows. Others are asked too, to say that they do not.
    pub(crate) fn has_row_ids(&self) -> bool {
        true
    }

    /// The locations as one text.
    pub(crate) fn path(&self) -> String {
        self.locations.join(", ")
    }

    /// The existing files, sorted by their paths.
    pub(crate) async fn list(
        &self,
        state: &SessionState,
    ) -> Result<Vec<(ListingTableUrl, ObjectMeta)>, Error> {
        let mut files = Vec::new();
        for location in &self.locations {
            let url = ListingTableUrl::parse(location)?;
            let store = state.runtime_env().object_store(&url)?;
            let extension = self.extension(&url);
            let listed = url
                .list_all_files(state, store.as_ref(), &extension)
                .await?
                .try_collect::<Vec<_>>()
                .await;
            let mut found = match listed {
                Ok(found) => found,
                Err(error) => match Error::from(error) {
                    Error::File { message, .. } => {
                        return Err(Error::File {
                            path: location.clone(),
                            line: None,
                            message,
                        });
                    }
                    other => return Err(other),
                },
            };
            found.sort_by(|a, b| a.location.cmp(&b.location));
            if found.is_empty() {
                return Err(Error::File {
                    path: location.clone(),
                    line: None,
                    message: "there is no such file".to_owned(),
                });
            }
            files.extend(found.into_iter().map(|meta| (url.clone(), meta)));
        }
        Ok(files)
    }

    /// What files of a directory must end with; files that were named need not end with anything.
    fn extension(&self, url: &ListingTableUrl) -> String {
        if !url.is_folder() {
            return String::new();
        }
        match self.kind {
            FileKind::Parquet => ".parquet",
            FileKind::Csv => ".csv",
            FileKind::Json => ".json",
        }
        .to_owned()
    }

    /// The files as a table; with `row_ids` their row numbers are its last column.
    pub(crate) async fn provider(
        &self,
        state: &SessionState,
        row_ids: bool,
    ) -> Result<Arc<dyn TableProvider>, Error> {
        if row_ids && self.kind != FileKind::Parquet {
            return Err(Error::Unsupported(format!(
                "rows of {} have no ids that stay; import the file with CREATE TABLE … AS SELECT * FROM '{}'",
                self.path(),
                self.path()
            )));
        }
        let files = self.list(state).await?;
        if self.kind == FileKind::Parquet {
            for (url, meta) in &files {
                let store = state.runtime_env().object_store(url)?;
                check_footer(&*store, meta).await?;
            }
        }
        let format = self.format(state, &files)?;
        let mut schema = self.schema.clone();
        if let Some(declared) = &self.declared {
            schema = Some(declared_schema(state, declared).await?);
        }
        let mut urls: Vec<ListingTableUrl> = Vec::new();
        for (url, _) in &files {
            if !urls.contains(url) {
                urls.push(url.clone());
            }
        }
        let Some(first) = urls.first() else {
            return Err(Error::Internal(
                "a list of files without a location".to_owned(),
            ));
        };
        let options = ListingOptions::new(format).with_file_extension(self.extension(first));
        let schema = match schema {
            Some(schema) => schema,
            None => options.infer_schema(state, first).await?,
        };
        let schema = in_zone(&schema, zone_of(state.config_options()));
        if let (FileKind::Csv, Some(null)) = (self.kind, &self.csv.null) {
            return nulls_said(urls, options, &schema, null);
        }
        let config = ListingTableConfig::new_with_multi_paths(urls)
            .with_listing_options(options)
            .with_schema(SchemaRef::clone(&schema));
        let table: Arc<dyn TableProvider> = Arc::new(ListingTable::try_new(config)?);
        if self.kind != FileKind::Parquet || schema.column_with_name(skewer_exec::ROW_ID).is_some()
        {
            return Ok(table);
        }
        let with_ids: Arc<dyn TableProvider> =
            Arc::new(ParquetFiles::open(state, schema, &files).await?);
        let inner = if row_ids {
            Arc::clone(&with_ids)
        } else {
            table
        };
        Ok(Arc::new(IdentifiedTable::new(inner, with_ids, self.path())))
    }

    fn format(
        &self,
        state: &SessionState,
        files: &[(ListingTableUrl, ObjectMeta)],
    ) -> Result<Arc<dyn FileFormat>, Error> {
        Ok(match self.kind {
            FileKind::Parquet => {
                Arc::new(ParquetFormat::default().with_options(TableParquetOptions {
                    global: state.config_options().execution.parquet.clone(),
                    ..TableParquetOptions::default()
                }))
            }
            FileKind::Csv => {
                let options = CsvOptions {
                    has_header: Some(self.csv.header),
                    delimiter: self.csv.delimiter,
                    quote: self.csv.quote,
                    escape: self.csv.escape,
                    // A line break in quotes is part of its value; it costs splitting one file.
                    newlines_in_values: Some(true),
                    null_regex: self.csv.null.as_ref().map(|text| exactly(text)),
                    ..CsvOptions::default()
                };
                Arc::new(CsvFormat::default().with_options(options))
            }
            FileKind::Json => {
                let first = files.first().map(|(_, meta)| format!("/{}", meta.location));
                let is_array = first.is_some_and(|path| begins_with_array(&path));
                Arc::new(JsonFormat::default().with_newline_delimited(!is_array))
            }
        })
    }
}

/// Looks at the last bytes of a Parquet file: DataFusion trusts the length that they say.
async fn check_footer(store: &dyn ObjectStore, meta: &ObjectMeta) -> Result<(), Error> {
    const FOOTER: u64 = 8;
    let broken = |message: &str| Error::File {
        path: format!("/{}", meta.location),
        line: None,
        message: format!("it is not a readable Parquet file: {message}"),
    };
    if meta.size < FOOTER + 4 {
        return Err(broken(&format!("it has only {} bytes", meta.size)));
    }
    let footer = store
        .get_range(&meta.location, meta.size - FOOTER..meta.size)
        .await
        .map_err(|e| Error::from(DataFusionError::from(e)))?;
    let (length, magic) = footer.split_at(4);
    if magic != b"PAR1" && magic != b"PARE" {
        return Err(broken("it does not end as one; it may be truncated"));
    }
    let length = length.try_into().map_or(u32::MAX, u32::from_le_bytes);
    if u64::from(length) > meta.size - FOOTER {
        return Err(broken("its footer is longer than the file"));
    }
    Ok(())
}

/// A CSV table in which `null` stands for NULL: DataFusion reads it as text, and what is not NULL
/// is cast.
fn nulls_said(
    urls: Vec<ListingTableUrl>,
    options: ListingOptions,
    schema: &SchemaRef,
    null: &str,
) -> Result<Arc<dyn TableProvider>, Error> {
    let texts: Vec<_> = schema
        .fields()
        .iter()
        .map(|field| Field::new(field.name(), DataType::Utf8, true))
        .collect();
    let config = ListingTableConfig::new_with_multi_paths(urls)
        .with_listing_options(options)
        .with_schema(Arc::new(Schema::new(texts)));
    let table = provider_as_source(Arc::new(ListingTable::try_new(config)?));
    let scan = LogicalPlanBuilder::scan("file", table, None)?.build()?;
    let columns = scan
        .schema()
        .columns()
        .into_iter()
        .zip(schema.fields())
        .map(|(column, field)| {
            let text = Expr::Column(column);
            // The reader takes empty fields for NULL.
            let value = match field.data_type().is_string() && !null.is_empty() {
                true => coalesce(vec![text.clone(), lit("")]),
                false => text.clone(),
            };
            let value = when(text.eq(lit(null)), lit(ScalarValue::Null)).otherwise(value)?;
            Ok(cast(value, field.data_type().clone()).alias(field.name()))
        })
        .collect::<Result<Vec<_>, Error>>()?;
    let plan = LogicalPlanBuilder::from(scan).project(columns)?.build()?;
    Ok(Arc::new(ViewTable::new(plan, None)))
}

/// A regular expression that only `text` matches.
pub(crate) fn exactly(text: &str) -> String {
    let mut pattern = String::from("^");
    for c in text.chars() {
        if !c.is_alphanumeric() && c.is_ascii() {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    pattern.push('$');
    pattern
}

/// Whether the first character of a file that is not space opens an array.
fn begins_with_array(path: &str) -> bool {
    use std::io::Read;
    let Ok(file) = std::fs::File::open(path) else {
        return false;
    };
    std::io::BufReader::new(file)
        .bytes()
        .map_while(Result::ok)
        .find(|byte| !byte.is_ascii_whitespace())
        == Some(b'[')
}

/// The columns that CREATE EXTERNAL TABLE declares.
async fn declared_schema(
    state: &SessionState,
    declared: &CreateExternalTable,
) -> Result<SchemaRef, Error> {
    let statement = DFStatement::CreateExternalTable(declared.clone());
    match Box::pin(state.statement_to_plan(statement)).await? {
        LogicalPlan::Ddl(DdlStatement::CreateExternalTable(plan)) => {
            Ok(Arc::new(plan.schema.as_arrow().clone()))
        }
        other => Err(Error::Internal(format!(
            "CREATE EXTERNAL TABLE was planned as {}",
            other.display()
        ))),
    }
}
