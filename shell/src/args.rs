//! The command line.

use std::path::PathBuf;

use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::cluster::ClusterArguments;
use crate::demo::Study;
use crate::format::Format;
use crate::remote::Address;
use crate::resources::Resources;
use crate::serve::ServeArguments;
use crate::user::UserArguments;
use crate::worker::WorkerArguments;

/// What the binary was asked to do.
#[derive(Debug, Parser)]
#[command(
    name = "skewer",
    version,
    about = "A SQL database that explains itself in SQL.",
    long_about = "A SQL database that explains itself in SQL.\n\n\
        Without -c, -f or a pipe on standard input, an interactive shell starts.\n\
        Results go to standard output, everything else to standard error.\n\
        Exit status: 0 success, 1 a statement failed, 2 wrong usage, 130 cancelled.",
    args_conflicts_with_subcommands = true
)]
pub struct Arguments {
    /// What to do instead of running SQL.
    #[command(subcommand)]
    pub command: Option<Command>,

    #[command(flatten)]
    pub sql: SqlArguments,
}

/// Where the database is, what to run and how to show it.
#[derive(Debug, Args)]
pub struct SqlArguments {
    /// Directory of the database, created if absent; without it the database is in memory
    pub path: Option<PathBuf>,

    /// Connect to a server, as host:port or postgresql://user@host:port, instead of opening a
    /// database; the password comes from PGPASSWORD or is asked for
    #[arg(long, value_name = "ADDR", value_parser = Address::parse, conflicts_with = "path")]
    pub connect: Option<Address>,

    /// PEM file with the server's certificate, or with one that has signed it: no other server is
    /// spoken to
    #[arg(long, value_name = "FILE", requires = "connect")]
    pub certificate: Option<PathBuf>,

    /// Run this SQL and exit; may be repeated and mixed with -f, in order
    #[arg(
        short = 'c',
        long = "command",
        value_name = "SQL",
        allow_hyphen_values = true
    )]
    command_text: Vec<String>,

    /// Run the statements of this file (- is standard input) and exit
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    file: Vec<PathBuf>,

    /// How to write results
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,

    /// What the database may use.
    #[command(flatten)]
    pub resources: Resources,

    /// The -c and -f arguments in the order in which they were given.
    #[arg(skip)]
    pub sources: Vec<Source>,
}

/// One -c or -f argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The text of `-c`.
    Text(String),
    /// The file of `-f`.
    File(PathBuf),
}

/// A subcommand.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Generate a case study, find the record that makes it slow, remedy it, compare
    Demo(DemoArguments),
    /// Run SQL, as without a subcommand
    Shell(Box<SqlArguments>),
    /// Serve a database to PostgreSQL clients
    Serve(ServeArguments),
    /// Who may connect to a served database
    User(UserArguments),
    /// Make a cluster, let workers join, turn them out
    Cluster(ClusterArguments),
    /// Run as a worker of a cluster
    Worker(WorkerArguments),
}

/// What `skewer demo` takes.
#[derive(Debug, Args)]
pub struct DemoArguments {
    /// Which case study
    #[arg(value_enum, default_value_t = Study::Movies)]
    pub study: Study,

    /// How many records to generate: movies, trips or snowfall measurements
    #[arg(long, value_parser = clap::value_parser!(u64).range(10..))]
    pub rows: Option<u64>,

    /// Seed of the generated data; the same seed and rows make the same files
    #[arg(long, default_value_t = 42)]
    pub seed: u64,

    /// Keep the generated files and the database in this directory
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
}

impl SqlArguments {
    /// One text that is run at a server.
    pub fn at_server(
        connect: Address,
        certificate: Option<PathBuf>,
        text: String,
        format: Format,
    ) -> SqlArguments {
        SqlArguments {
            path: None,
            connect: Some(connect),
            certificate,
            command_text: Vec::new(),
            file: Vec::new(),
            format,
            resources: Resources::default(),
            sources: vec![Source::Text(text)],
        }
    }

    fn order_sources(&mut self, matches: &ArgMatches) {
        let mut sources: Vec<(usize, Source)> = Vec::new();
        let texts = matches.indices_of("command_text").into_iter().flatten();
        sources.extend(texts.zip(self.command_text.drain(..).map(Source::Text)));
        let files = matches.indices_of("file").into_iter().flatten();
        sources.extend(files.zip(self.file.drain(..).map(Source::File)));
        sources.sort_by_key(|(position, _)| *position);
        self.sources = sources.into_iter().map(|(_, source)| source).collect();
    }
}

impl Arguments {
    /// Reads the process's arguments; prints help or a usage error and exits when they ask for it.
    pub fn read() -> Arguments {
        Arguments::from(&Arguments::command().get_matches())
    }

    fn from(matches: &ArgMatches) -> Arguments {
        let mut arguments =
            Arguments::from_arg_matches(matches).unwrap_or_else(|error| error.exit());
        // With other subcommands, `-c` and `-f` do not exist and have no positions.
        match (&mut arguments.command, matches.subcommand()) {
            (Some(Command::Shell(sql)), Some((_, matches))) => sql.order_sources(matches),
            (None, _) => arguments.sql.order_sources(matches),
            _ => {}
        }
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Arguments, clap::Error> {
        let matches = Arguments::command().try_get_matches_from(args)?;
        Ok(Arguments::from(&matches))
    }

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn sources_keep_the_order_in_which_they_were_given() {
        let arguments = parse(&["skewer", "db", "-c", "a", "-f", "b.sql", "-c", "c"]).unwrap();
        assert_eq!(arguments.sql.path, Some(PathBuf::from("db")));
        assert_eq!(
            arguments.sql.sources,
            [
                Source::Text("a".into()),
                Source::File("b.sql".into()),
                Source::Text("c".into())
            ]
        );
    }

    #[test]
    fn demo_without_a_study_is_movies() {
        let arguments = parse(&["skewer", "demo", "--rows", "50"]).unwrap();
        let Some(Command::Demo(demo)) = arguments.command else {
            panic!("not a demo")
        };
        assert_eq!(
            (demo.study, demo.rows, demo.seed),
            (Study::Movies, Some(50), 42)
        );
    }

    #[test]
    fn an_unknown_format_is_refused() {
        assert!(parse(&["skewer", "--format", "xml"]).is_err());
        assert!(parse(&["skewer", "demo", "taxis"]).is_err());
        assert!(parse(&["skewer", "demo", "--rows", "1"]).is_err());
    }

    #[test]
    fn a_size_without_sense_is_refused_with_the_accepted_form() {
        assert!(parse(&["skewer", "--memory-limit", "4GB", "--threads", "2"]).is_ok());
        let refused = parse(&["skewer", "--memory-limit", "4 parsecs"]).unwrap_err();
        let text = refused.to_string();
        assert!(
            text.contains("4 parsecs") && text.contains("512MiB"),
            "{text}"
        );
        assert!(parse(&["skewer", "--threads", "0"]).is_err());
    }
}
