//! The server as psql sees it.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use skewer_server::Users;
use skewer_tests::served::Served;

use crate::clients::{Ran, asked, skip, skip_part};

/// Long enough for any machine, short enough for a test that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

const TABLES: &str = "\
    CREATE TABLE songs (id INT NOT NULL, title TEXT, price DECIMAL(6, 2), tags TEXT[]);
    INSERT INTO songs VALUES (1, 'Yes', 0.99, ['a', 'b']), (2, NULL, NULL, NULL);
    CREATE VIEW titles AS SELECT title FROM songs;
";

/// The major version of psql; without one the test is skipped.
fn version(test: &str) -> Option<u32> {
    let mut ask = Command::new("psql");
    ask.arg("--version");
    let Some(said) = asked(ask) else {
        skip(test, "there is no psql (apt-get install postgresql-client)");
        return None;
    };
    let number = said.split_whitespace().nth(2)?;
    number.split('.').next()?.parse().ok()
}

fn start(served: &Served, args: &[&str], script: &str) -> Child {
    let mut psql = Command::new("psql");
    let port = served.address.port().to_string();
    let mut child = psql
        .args(["-X", "-q", "-h", "127.0.0.1", "-U", "ada", "-p", &port])
        .args(args)
        .arg("skewer")
        .env("LC_ALL", "C.UTF-8")
        .env_remove("PGPASSWORD")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(script.as_bytes()).unwrap();
    child
}

fn psql(served: &Served, script: &str) -> Ran {
    let child = start(served, &[], script);
    Ran::from(child.wait_with_output().unwrap())
}

#[test]
fn psql_describes_what_there_is() {
    if version("psql_describes_what_there_is").is_none() {
        return;
    }
    let served = Served::start();
    psql(&served, TABLES).success();
    let said = psql(&served, "\\d\n\\dt\n\\dv\n\\d songs\n").success();
    let expected = "        List of relations
 Schema |  Name  | Type  | Owner 
--------+--------+-------+-------
 main   | songs  | table | ada
 main   | titles | view  | ada
(2 rows)

       List of relations
 Schema | Name  | Type  | Owner 
--------+-------+-------+-------
 main   | songs | table | ada
(1 row)

       List of relations
 Schema |  Name  | Type | Owner 
--------+--------+------+-------
 main   | titles | view | ada
(1 row)

                   Table \"main.songs\"
 Column |     Type     | Collation | Nullable | Default 
--------+--------------+-----------+----------+---------
 id     | integer      |           | not null | 
 title  | text         |           |          | 
 price  | numeric(6,2) |           |          | 
 tags   | text[]       |           |          | 

";
    assert_eq!(said, expected);
    // What else there is about tables, schemas, databases, roles, functions, types, privileges:
    // psql asks in many words, and must not fail.
    let rest = "\\d+ songs\n\\d+ titles\n\\dn\n\\dn+\n\\l\n\\du\n\\df lower\n\\dT\n\\z\n\\dp songs\n\\dx\n\\dt sys.*\n\\sv titles\n\\conninfo\n";
    let said = psql(&served, rest).success();
    for part in [
        "sys    | queries",
        "skewer | ada",
        "SELECT title FROM songs",
        "Superuser",
        "lower",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn psql_copies_from_and_to_its_own_files() {
    if version("psql_copies_from_and_to_its_own_files").is_none() {
        return;
    }
    let served = Served::start();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("songs.csv");
    let file = file.to_str().unwrap();
    psql(&served, TABLES).success();
    let script = format!(
        "\\copy songs TO '{file}' CSV HEADER\n\
         CREATE TABLE again (id INT, title TEXT, price DECIMAL(6, 2), tags TEXT[]);\n\
         \\copy again FROM '{file}' CSV HEADER\n\
         \\pset format unaligned\n\\pset null NULL\n\
         SELECT * FROM again ORDER BY id;\n\
         COPY again (id, title) FROM STDIN;\n3\ta\\tb\n4\t\\N\n\\.\n\
         COPY (SELECT id, title FROM again WHERE id > 2 ORDER BY id) TO STDOUT;\n"
    );
    let said = psql(&served, &script).success();
    let csv = std::fs::read_to_string(file).unwrap();
    assert_eq!(csv, "id,title,price,tags\n1,Yes,0.99,\"{a,b}\"\n2,,,\n");
    let expected = "id|title|price|tags\n1|Yes|0.99|{a,b}\n2|NULL|NULL|NULL\n(2 rows)\n\
                    3\ta\\tb\n4\t\\N\n";
    assert!(said.ends_with(expected), "{said}");
    std::fs::write(file, "id,title\n5,good\nsix,bad\n").unwrap();
    let failed = psql(
        &served,
        &format!("\\copy again (id, title) FROM '{file}' CSV HEADER\n"),
    );
    assert!(
        failed.stderr.contains("line 3, column id: 'six'"),
        "{failed:?}"
    );
    let count = psql(&served, "\\t\nSELECT count(*) FROM again;\n").success();
    assert_eq!(count.trim().lines().last().unwrap().trim(), "4");
}

#[test]
fn psql_shows_errors_where_they_are_and_goes_on() {
    if version("psql_shows_errors_where_they_are_and_goes_on").is_none() {
        return;
    }
    let served = Served::start();
    let ran = psql(
        &served,
        "SELECT 'ä',\n  nothing FROM sys.queries;\nSELECT * FORM t;\n\\echo :LAST_ERROR_SQLSTATE\nSELECT 41 + 1;\n",
    );
    assert!(
        ran.stdout.starts_with("42601\n") && ran.stdout.contains("42\n"),
        "{ran:?}"
    );
    let caret = "LINE 2:   nothing FROM sys.queries;\n          ^\n";
    assert!(ran.stderr.contains(caret), "{}", ran.stderr);
    let stopping = start(
        &served,
        &["-v", "ON_ERROR_STOP=1"],
        "SELECT 1 / 0;\nSELECT 'never';\n",
    );
    let stopped = Ran::from(stopping.wait_with_output().unwrap());
    assert_eq!((stopped.status, stopped.stdout.as_str()), (Some(3), ""));
}

#[test]
fn psql_prepares_stores_and_fetches_in_pieces() {
    let Some(version) = version("psql_prepares_stores_and_fetches_in_pieces") else {
        return;
    };
    let served = Served::start();
    let script = "\\pset format unaligned\n\\t on\n\
        PREPARE twice AS SELECT $1 * 2;\nEXECUTE twice(21);\n\
        SELECT 6 AS n \\gset\nSELECT :n + 1;\n\
        \\set FETCH_COUNT 100\nSELECT value FROM generate_series(1, 1000);\n\
        BEGIN;\nSELECT 'in a block';\nCOMMIT;\n";
    let ran = psql(&served, script);
    assert!(ran.stdout.starts_with("42\n7\n1\n2\n3\n"), "{ran:?}");
    assert!(ran.stdout.ends_with("\n999\n1000\nin a block\n"), "{ran:?}");
    if version < 16 {
        let reason = format!("\\bind needs psql 16, this is {version}");
        return skip_part(
            "psql_prepares_stores_and_fetches_in_pieces, \\bind",
            &reason,
        );
    }
    let bound = psql(
        &served,
        "\\t on\nSELECT $1::INT + $2::INT \\bind 40 2 \\g\n",
    )
    .success();
    assert!(bound.contains("42"), "{bound}");
}

#[test]
fn psql_shows_profiles_and_the_tables_of_sys() {
    if version("psql_shows_profiles_and_the_tables_of_sys").is_none() {
        return;
    }
    let served = Served::start();
    psql(&served, TABLES).success();
    let script = "EXPLAIN PROFILE SELECT title, count(*) FROM songs GROUP BY title;\n\
        \\t on\n\\pset format unaligned\n\
        SELECT sql, rows_returned FROM sys.queries WHERE query_id = last_query_id();\n\
        SHOW PROFILE;\nSHOW PROFILE 999999;\n";
    let ran = psql(&served, script);
    for part in [
        "                 EXPLAIN PROFILE",
        "Scan songs: title",
        "Where the time went",
        "SELECT title, count(*) FROM songs GROUP BY title|2\n",
    ] {
        assert!(ran.stdout.contains(part), "{part}: {ran:?}");
    }
    assert_eq!(
        ran.stdout.matches("Where the time went").count(),
        2,
        "{ran:?}"
    );
    assert!(
        ran.stderr.contains("sys.queries has no query 999999"),
        "{}",
        ran.stderr
    );
}

#[test]
fn psql_reaches_a_server_beyond_loopback_only_encrypted_and_with_a_password() {
    let test = "psql_reaches_a_server_beyond_loopback_only_encrypted_and_with_a_password";
    if version(test).is_none() {
        return;
    }
    let served = Served::on("0.0.0.0:0", |directory| {
        Users::add(directory, "ada", "lovelace").unwrap();
    });
    let key = std::fs::metadata(served.directory().join("server.key")).unwrap();
    assert_eq!(key.permissions().mode() & 0o7777, 0o600);
    let port = served.address.port();
    let ask = |user: &str, password: &str, options: &str| {
        let mut psql = Command::new("psql");
        psql.args(["-X", "-q", "-t", "-A", "-w", "-c", "SELECT current_user"])
            .arg(format!(
                "host=127.0.0.1 port={port} user={user} dbname=skewer {options}"
            ))
            .env("LC_ALL", "C.UTF-8")
            .env("PGPASSWORD", password);
        Ran::from(psql.output().unwrap())
    };
    for options in ["sslmode=require", "sslmode=require channel_binding=require"] {
        assert_eq!(
            ask("ada", "lovelace", options).success(),
            "ada\n",
            "{options}"
        );
    }
    let plain = ask("ada", "lovelace", "sslmode=disable");
    assert!(
        plain.stderr.contains("takes only encrypted connections"),
        "{plain:?}"
    );
    for (user, password) in [("ada", "byron"), ("eve", "lovelace"), ("ada", "")] {
        let refused = ask(user, password, "sslmode=require");
        assert!(refused.status != Some(0), "{user} {password}: {refused:?}");
        assert_eq!(refused.stdout, "", "{user} {password}");
    }
}

#[test]
fn ctrl_c_in_psql_cancels_the_statement() {
    if version("ctrl_c_in_psql_cancels_the_statement").is_none() {
        return;
    }
    let served = Served::start();
    let script = "SELECT count(*) FROM generate_series(1, 1000000000000);\nSELECT 'goes on';\n";
    let mut psql = start(&served, &[], script);
    let begun = Instant::now();
    while psql.try_wait().unwrap().is_none() {
        assert!(begun.elapsed() < PATIENCE, "it is not cancelled");
        // Before the statement runs it would do nothing.
        std::thread::sleep(Duration::from_millis(200));
        let mut kill = Command::new("kill");
        kill.args(["-INT", &psql.id().to_string()]);
        kill.stderr(Stdio::null()).status().unwrap();
    }
    let ran = Ran::from(psql.wait_with_output().unwrap());
    assert!(
        ran.stderr
            .contains("the statement was cancelled on request"),
        "{ran:?}"
    );
}
