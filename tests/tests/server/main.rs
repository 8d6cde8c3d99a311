//! The server as clients see it.

mod asyncpg;
mod clients;
mod driver;
mod fairness;
mod node;
mod psql;
mod psycopg;
