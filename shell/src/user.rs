//! `skewer user`: who may connect to a served database.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;

use clap::{Args, Subcommand};
use skewer_server::Users;

use crate::error::ShellError;

/// What `skewer user` takes.
#[derive(Debug, Args)]
pub struct UserArguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Add a user, or give it another password; asks for it, or reads a line of standard input
    Add {
        /// The user's name
        name: String,
        /// Directory of the database
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
    /// Remove a user
    Remove {
        /// The user's name
        name: String,
        /// Directory of the database
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
    /// List the users
    List {
        /// Directory of the database
        #[arg(long, value_name = "DIR")]
        data: PathBuf,
    },
}

/// Adds, removes or lists users.
pub fn run(arguments: &UserArguments) -> Result<(), ShellError> {
    match &arguments.action {
        Action::Add { name, data } => {
            let password = password(name)?;
            std::fs::create_dir_all(data).map_err(|source| ShellError::File {
                path: data.clone(),
                source,
            })?;
            Ok(Users::add(data, name, &password)?)
        }
        Action::Remove { name, data } => match Users::remove(data, name)? {
            true => Ok(()),
            false => Err(ShellError::Usage(format!("there is no user {name}"))),
        },
        Action::List { data } => {
            let mut out = io::stdout().lock();
            for name in Users::read(data)?.names() {
                writeln!(out, "{name}")?;
            }
            Ok(())
        }
    }
}

/// Typed twice without being shown, or the first line of what comes through a pipe.
fn password(name: &str) -> Result<String, ShellError> {
    let failed = |source| ShellError::File {
        path: "standard input".into(),
        source,
    };
    if io::stdin().is_terminal() {
        let prompt = format!("Password of {name}: ");
        let password = rpassword::prompt_password(prompt).map_err(failed)?;
        let again = rpassword::prompt_password("Again: ").map_err(failed)?;
        if password != again {
            return Err(ShellError::Usage("the passwords differ".to_owned()));
        }
        return Ok(password);
    }
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map_err(failed)?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}
