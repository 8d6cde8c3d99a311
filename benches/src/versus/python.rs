//! Python with DuckDB: a virtual environment that the experiment makes itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::BenchError;

/// Writes the tables and queries of TPC-DS.
const GENERATE_TPCDS: &str = include_str!("generate_tpcds.py");

/// DuckDB, and the version of it for which PyPI has the extension that generates TPC-DS.
const TPCDS_PACKAGES: [&str; 2] = ["duckdb==1.5.5", "duckdb-extension-tpcds==1.5.5"];

/// The interpreter of an environment with DuckDB of a version, and with Arrow for its answers.
///
/// # Errors
/// If `python3` is not there, or packages cannot be installed.
pub fn with_duckdb(version: &str, environments: &Path) -> Result<PathBuf, BenchError> {
    let duckdb = format!("duckdb=={version}");
    let packages = [duckdb.as_str(), "pyarrow"];
    interpreter(
        &environments.join(format!("duckdb-{version}")),
        "import duckdb, pyarrow",
        &packages,
    )
}

/// Writes the tables of TPC-DS as Parquet files, and its queries as SQL files.
///
/// # Errors
/// If the scale factor is below 0.01, for which the generator does not end, or if the packages cannot be
/// installed.
pub fn generate_tpcds(
    scale: f64,
    tables: &Path,
    queries: &Path,
    environments: &Path,
) -> Result<(), BenchError> {
    /// The least scale factor that was seen to end.
    const LEAST: f64 = 0.01;
    if scale < LEAST {
        return Err(BenchError::Unexpected(format!(
            "TPC-DS is generated at scale factor {LEAST} and more, not {scale}"
        )));
    }
    let python = interpreter(
        &environments.join("tpcds"),
        "import duckdb, duckdb_extension_tpcds",
        &TPCDS_PACKAGES,
    )?;
    let mut command = Command::new(python);
    command.args(["-c", GENERATE_TPCDS, &scale.to_string()]);
    run(command.arg(tables).arg(queries))
}

/// The interpreter of an environment in which `import` works.
fn interpreter(environment: &Path, import: &str, packages: &[&str]) -> Result<PathBuf, BenchError> {
    let python = environment.join("bin").join("python");
    if python.exists() && run(Command::new(&python).args(["-c", import])).is_ok() {
        return Ok(python);
    }
    run(Command::new("python3")
        .args(["-m", "venv"])
        .arg(environment))?;
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet"]);
    run(install.args(packages))?;
    Ok(python)
}

fn run(command: &mut Command) -> Result<(), BenchError> {
    let output = command
        .output()
        .map_err(BenchError::file(command.get_program()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(BenchError::Unexpected(format!(
        "{}: {}",
        Path::new(command.get_program()).display(),
        String::from_utf8_lossy(&output.stderr).trim()
    )))
}
