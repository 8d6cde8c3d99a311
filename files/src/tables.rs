//! Tables of files: what a pass found in each of them, put together.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::config::CsvOptions;
use datafusion::datasource::{ViewTable, provider_as_source};
use datafusion::execution::SessionState;
use datafusion::functions::expr_fn::coalesce;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, cast, lit, when};
use datafusion::object_store::ObjectMeta;
use datafusion::scalar::ScalarValue;
use skewer_exec::IdentifiedTable;

use crate::csv_types::Kinds;
use crate::error::FilesError;
use crate::json_source::JsonDialect;
use crate::json_types::Keys;
use crate::locate::{Located, unreadable};
use crate::partitions::Partitions;
use crate::passes::{self, Pass};
use crate::scan::{FilesTable, Format, Layout, Origin, ScanFile};
use crate::{FileKind, FileTable, csv_file, json_file, parquet_file, place_store};
use skewer_compat::session_zone::{in_zone, zone_of};
use skewer_sql::sql_name;

impl FileTable {
    /// The files as a table; with `row_ids` their row numbers are its last column.
    ///
    /// Columns and types are those of all records of all files, by name: files are read to their
    /// end for it, unless the statement says the columns.
    ///
    /// # Errors
    /// Files that are missing or cannot be read, or whose columns do not fit together.
    pub async fn provider(
        &self,
        state: &SessionState,
        row_ids: bool,
    ) -> Result<Arc<dyn TableProvider>, FilesError> {
        if row_ids && self.kind != FileKind::Parquet {
            return Err(FilesError::Unsupported(format!(
                "rows of {} have no ids that stay; import the file with CREATE TABLE … AS SELECT * FROM '{}'",
                self.path(),
                self.path()
            )));
        }
        let given = self.given(state).await?;
        let threads = state.config_options().execution.target_partitions;
        let files = self.clone();
        let table = match self.kind {
            FileKind::Parquet => return self.parquet(state, given, row_ids).await,
            FileKind::Csv => passes::run(threads, move |pass| files.csv_table(given, pass)).await?,
            FileKind::Json => {
                passes::run(threads, move |pass| files.json_table(given, pass)).await?
            }
        };
        match &self.csv.null {
            Some(null) if self.kind == FileKind::Csv => nulls_said(table, null),
            _ => Ok(Arc::new(table)),
        }
    }

    async fn parquet(
        &self,
        state: &SessionState,
        given: Option<SchemaRef>,
        row_ids: bool,
    ) -> Result<Arc<dyn TableProvider>, FilesError> {
        let table = self.clone();
        let files = passes::run(1, move |_| {
            let files = table.files()?;
            files.iter().try_for_each(parquet_file::check_footer)?;
            Ok(files)
        })
        .await?;
        let metas = files.iter().map(meta).collect::<Result<Vec<_>, _>>()?;
        let contents = parquet_file::contents(state, &metas).await?;
        let schemas: Vec<&SchemaRef> = contents.iter().map(|(schema, _)| schema).collect();
        let found = parquet_file::union(&files, &schemas)?;
        let partitions = Partitions::of_files(&files, given.as_deref())?;
        let columns: Vec<Field> = match &given {
            None => {
                let found = Arc::new(Schema::new(found));
                let shown = in_zone(&found, zone_of(state.config_options()));
                shown.fields().iter().map(|f| f.as_ref().clone()).collect()
            }
            Some(given) => {
                let names = found.iter().map(|field| field.name().as_str());
                let names: Vec<&str> = names.collect();
                for field in given.fields() {
                    let name = field.name();
                    let wrong = |message: &str| Err(unreadable(&self.path(), message));
                    match found.iter().find(|found| found.name() == name) {
                        _ if partitions.place(name).is_some() => {}
                        Some(found)
                            if !parquet_file::fits(found.data_type(), field.data_type()) =>
                        {
                            return wrong(&format!(
                                "column {name} is {} in the files, which {} cannot hold; declare it \
                                 so, and CAST it in a query",
                                sql_name(found.data_type()),
                                sql_name(field.data_type())
                            ));
                        }
                        Some(_) => {}
                        None => {
                            return wrong(&format!(
                                "there is no column {name}; there are {}",
                                names.join(", ")
                            ));
                        }
                    }
                }
                given.fields().iter().map(|f| f.as_ref().clone()).collect()
            }
        };
        let builder = TableBuilder::new(columns, partitions, given.as_deref());
        let read = builder.file_columns();
        let mut layout = builder.layout(Format::Parquet, &read);
        let mut rows = 0;
        for (place, (meta, (schema, statistics))) in metas.into_iter().zip(contents).enumerate() {
            let statistics = parquet_file::statistics_of(&schema, &statistics, &layout.file_schema);
            let here = statistics.num_rows.get_value().copied().unwrap_or(0) as i64;
            layout.files.push(ScanFile {
                meta,
                values: builder.partitions.values[place].clone(),
                starts: Vec::new(),
                statistics: Some(statistics),
                first_row: rows,
            });
            rows += here;
        }
        let table = builder.build(vec![layout]);
        if table.schema.column_with_name(skewer_exec::ROW_ID).is_some() {
            return Ok(Arc::new(table));
        }
        let with_ids: Arc<dyn TableProvider> = Arc::new(table.clone().with_row_ids());
        let inner: Arc<dyn TableProvider> = match row_ids {
            true => Arc::clone(&with_ids),
            false => Arc::new(table),
        };
        Ok(Arc::new(IdentifiedTable::new(inner, with_ids, self.path())))
    }

    fn csv_table(&self, given: Option<SchemaRef>, pass: &Pass) -> Result<FilesTable, FilesError> {
        let files = self.files()?;
        let partitions = Partitions::of_files(&files, given.as_deref())?;
        let mut shapes = Vec::with_capacity(files.len());
        for file in &files {
            let starts = csv_file::record_starts(&file.path, &self.csv, pass)?;
            let shape = match given {
                Some(_) => csv_file::CsvShape::default(),
                None => csv_file::shape(&file.path, &self.csv, &starts, pass)?,
            };
            shapes.push((starts, shape));
        }
        let columns: Vec<Field> = match &given {
            Some(given) => given.fields().iter().map(|f| f.as_ref().clone()).collect(),
            None => self.csv_columns(&files, &shapes)?,
        };
        let builder = TableBuilder::new(columns, partitions, given.as_deref());
        let read = builder.file_columns();
        let mut layouts: Vec<Layout> = Vec::new();
        for (place, (file, (starts, shape))) in files.iter().zip(shapes).enumerate() {
            let header: Vec<&str> = match given {
                Some(_) => read.iter().map(String::as_str).collect(),
                None => shape.header.iter().map(String::as_str).collect(),
            };
            if header.is_empty() {
                continue;
            }
            let options = CsvOptions {
                has_header: Some(self.csv.header),
                delimiter: self.csv.delimiter_of(&file.path),
                quote: self.csv.quote,
                escape: self.csv.escape,
                // The table knows where records begin; DataFusion must not guess.
                newlines_in_values: Some(true),
                ..CsvOptions::default()
            };
            let mut layout = builder.layout(Format::Csv(Box::new(options)), &header);
            layout.batch_rows = batch_rows(shape.longest);
            add(
                &mut layouts,
                layout,
                ScanFile {
                    meta: meta(file)?,
                    values: builder.partitions.values[place].clone(),
                    starts,
                    statistics: None,
                    first_row: 0,
                },
            );
        }
        Ok(builder.build(layouts))
    }

    /// The columns of all CSV files, by name, in the order in which they first come.
    fn csv_columns(
        &self,
        files: &[Located],
        shapes: &[(Vec<u64>, csv_file::CsvShape)],
    ) -> Result<Vec<Field>, FilesError> {
        let mut columns: Vec<(&str, Kinds)> = Vec::new();
        let mut width = None;
        for (file, (_, shape)) in files.iter().zip(shapes) {
            if shape.header.is_empty() {
                continue;
            }
            let found = shape.header.len();
            let width = *width.get_or_insert(found);
            if !self.csv.header && found != width {
                let message = format!("the row has {found} fields in place of {width}");
                return Err(FilesError::File {
                    path: file.name(),
                    line: Some(1),
                    message,
                });
            }
            for (name, kinds) in shape.header.iter().zip(&shape.kinds) {
                match columns.iter_mut().find(|(known, _)| known == name) {
                    Some((_, known)) => known.merge(*kinds),
                    None => columns.push((name, *kinds)),
                }
            }
        }
        if columns.is_empty() {
            return Err(self.empty(files));
        }
        let columns = columns.into_iter();
        Ok(columns
            .map(|(name, kinds)| Field::new(name, kinds.data_type(), true))
            .collect())
    }

    /// The error for files without anything to make columns of.
    fn empty(&self, files: &[Located]) -> FilesError {
        let name = match files {
            [file] => file.name(),
            _ => self.path(),
        };
        let message = format!(
            "{} empty, so that the columns are not known; say them in CREATE EXTERNAL TABLE",
            match files.len() {
                1 => "the file is",
                _ => "all files are",
            }
        );
        unreadable(&name, &message)
    }

    fn json_table(&self, given: Option<SchemaRef>, pass: &Pass) -> Result<FilesTable, FilesError> {
        let files = self.files()?;
        let partitions = Partitions::of_files(&files, given.as_deref())?;
        let mut keys = Keys::default();
        let mut shapes = Vec::with_capacity(files.len());
        for file in &files {
            let array = json_file::is_array(&file.path)?;
            let starts = match array {
                true => Vec::new(),
                false => json_file::record_starts(&file.path, pass)?,
            };
            if given.is_none()
                && let Some(found) = json_file::keys(&file.path, array, &starts, pass)?
            {
                keys.merge(found);
            }
            shapes.push((array, starts));
        }
        let columns: Vec<Field> = match &given {
            Some(given) => given.fields().iter().map(|f| f.as_ref().clone()).collect(),
            None => keys.fields().iter().map(|f| f.as_ref().clone()).collect(),
        };
        if columns.is_empty() {
            return Err(self.empty(&files));
        }
        let builder = TableBuilder::new(columns, partitions, given.as_deref());
        let read = builder.file_columns();
        let mut layouts: Vec<Layout> = Vec::new();
        for (place, (file, (array, starts))) in files.iter().zip(shapes).enumerate() {
            let format = Format::Json(JsonDialect {
                array,
                nested_text: given.is_none() && keys.has_nested_text(),
                checked: given.is_some(),
            });
            add(
                &mut layouts,
                builder.layout(format, &read),
                ScanFile {
                    meta: meta(file)?,
                    values: builder.partitions.values[place].clone(),
                    starts,
                    statistics: None,
                    first_row: 0,
                },
            );
        }
        Ok(builder.build(layouts))
    }
}

/// Adds a file to the layout like `layout`, which is added if there is none.
fn add(layouts: &mut Vec<Layout>, layout: Layout, file: ScanFile) {
    let same = layouts.iter_mut().find(|known| {
        known.format == layout.format
            && known.file_schema == layout.file_schema
            && known.origins == layout.origins
    });
    match same {
        Some(known) => {
            known.batch_rows = match (known.batch_rows, layout.batch_rows) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            known.files.push(file);
        }
        None => layouts.push(Layout {
            files: vec![file],
            ..layout
        }),
    }
}

/// Rows of a batch at most where a record has `longest` bytes: the texts of a column of a batch
/// have 2 GiB at most.
fn batch_rows(longest: usize) -> Option<usize> {
    const TEXT: usize = 1 << 30;
    const USUAL: usize = 8192;
    let fitting = TEXT / longest.max(1);
    (fitting < USUAL).then_some(fitting.max(1))
}

fn meta(file: &Located) -> Result<ObjectMeta, FilesError> {
    let meta = place_store::meta(&file.path, &file.metadata);
    meta.map_err(|error| unreadable(&file.name(), &error.to_string()))
}

/// Puts columns of files and those of partitions together.
struct TableBuilder {
    /// Of the table.
    fields: Vec<FieldRef>,
    partitions: Partitions,
}

impl TableBuilder {
    /// A table of `columns`, of which partitions take the place; partition columns that are not
    /// among them come after, unless the columns are `given`.
    fn new(columns: Vec<Field>, partitions: Partitions, given: Option<&Schema>) -> Self {
        let mut fields: Vec<FieldRef> = columns
            .into_iter()
            .filter(|field| given.is_some() || partitions.place(field.name()).is_none())
            .map(|field| match partitions.place(field.name()) {
                Some(place) => Arc::clone(&partitions.fields[place]),
                None => Arc::new(field),
            })
            .collect();
        if given.is_none() {
            fields.extend(partitions.fields.iter().cloned());
        }
        Self { fields, partitions }
    }

    /// The names of the columns that come from files.
    fn file_columns(&self) -> Vec<String> {
        let names = self.fields.iter().map(|field| field.name().clone());
        names
            .filter(|name| self.partitions.place(name).is_none())
            .collect()
    }

    /// How files are read that have the columns `names`, in this order.
    fn layout(&self, format: Format, names: &[impl AsRef<str>]) -> Layout {
        let mut file_fields = Vec::with_capacity(names.len());
        let mut origins = vec![Origin::Nowhere; self.fields.len()];
        for (place, name) in names.iter().enumerate() {
            let name = name.as_ref();
            let column = self.fields.iter().position(|field| field.name() == name);
            match (column, self.partitions.place(name)) {
                (Some(column), None) => {
                    origins[column] = Origin::File(place);
                    file_fields.push(self.fields[column].as_ref().clone());
                }
                // The folder's name counts.
                _ => file_fields.push(Field::new(
                    format!("{name} in the file"),
                    DataType::Utf8,
                    true,
                )),
            }
        }
        for (column, field) in self.fields.iter().enumerate() {
            if let Some(place) = self.partitions.place(field.name()) {
                origins[column] = Origin::Partition(place);
            }
        }
        Layout {
            format,
            file_schema: Arc::new(Schema::new(file_fields)),
            origins,
            files: Vec::new(),
            batch_rows: None,
        }
    }

    fn build(self, layouts: Vec<Layout>) -> FilesTable {
        FilesTable {
            schema: Arc::new(Schema::new(self.fields)),
            partitions: self.partitions.fields,
            layouts,
            row_ids: false,
        }
    }
}

/// A CSV table in which `null` stands for NULL: DataFusion reads it as text, and what is not NULL
/// is cast.
fn nulls_said(table: FilesTable, null: &str) -> Result<Arc<dyn TableProvider>, FilesError> {
    let schema = SchemaRef::clone(&table.schema);
    let is_partition = |name: &str| table.partitions.iter().any(|field| field.name() == name);
    let as_text = |schema: &SchemaRef| {
        let fields = schema.fields().iter().map(|field| match field.name() {
            name if is_partition(name) => Arc::clone(field),
            name => Arc::new(Field::new(name, DataType::Utf8, true)),
        });
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    };
    let mut texts = table.clone();
    texts.schema = as_text(&schema);
    for layout in &mut texts.layouts {
        layout.file_schema = as_text(&layout.file_schema);
    }
    let texts = provider_as_source(Arc::new(texts));
    let scan = LogicalPlanBuilder::scan("file", texts, None)?.build()?;
    let columns = scan
        .schema()
        .columns()
        .into_iter()
        .zip(schema.fields())
        .map(|(column, field)| {
            let text = Expr::Column(column);
            if is_partition(field.name()) {
                return Ok(text);
            }
            // The reader takes empty fields for NULL.
            let value = match field.data_type().is_string() && !null.is_empty() {
                true => coalesce(vec![text.clone(), lit("")]),
                false => text.clone(),
            };
            let value = when(text.eq(lit(null)), lit(ScalarValue::Null)).otherwise(value)?;
            Ok(cast(value, field.data_type().clone()).alias(field.name()))
        })
        .collect::<Result<Vec<_>, FilesError>>()?;
    let plan = LogicalPlanBuilder::from(scan).project(columns)?.build()?;
    Ok(Arc::new(ViewTable::new(plan, None)))
}
