//! The tables of `pg_catalog`: what there is, as queries over `information_schema`; what Skewer
//! has not, as empty tables with their columns.

use super::DATABASE;

/// Tables with rows: their queries. `{user}` and `{database}` are put in.
const FILLED: [(&str, &str); 11] = [
    (
        "pg_namespace",
        "SELECT oid_of_schema(schema_name, '') AS oid, schema_name AS nspname, \
           CAST(10 AS BIGINT) AS nspowner, CAST(NULL AS VARCHAR[]) AS nspacl \
         FROM (SELECT schema_name FROM information_schema.schemata UNION \
               SELECT 'information_schema' UNION SELECT 'pg_catalog') AS s",
    ),
    (
        "pg_class",
        "SELECT oid_of_table(table_schema, table_name) AS oid, table_name AS relname, \
           oid_of_schema(table_schema, '') AS relnamespace, CAST(0 AS BIGINT) AS reltype, \
           CAST(0 AS BIGINT) AS reloftype, CAST(10 AS BIGINT) AS relowner, \
           CAST(0 AS BIGINT) AS relam, CAST(0 AS BIGINT) AS relfilenode, \
           CAST(0 AS BIGINT) AS reltablespace, 0 AS relpages, CAST(-1 AS REAL) AS reltuples, \
           0 AS relallvisible, CAST(0 AS BIGINT) AS reltoastrelid, false AS relhasindex, \
           false AS relisshared, 'p' AS relpersistence, \
           CASE WHEN table_type LIKE '%VIEW%' THEN 'v' ELSE 'r' END AS relkind, \
           0 AS relchecks, false AS relhasrules, false AS relhastriggers, \
           false AS relhassubclass, false AS relrowsecurity, false AS relforcerowsecurity, \
           true AS relispopulated, 'd' AS relreplident, false AS relispartition, \
           CAST(NULL AS VARCHAR[]) AS relacl, CAST(NULL AS VARCHAR[]) AS reloptions, \
           CAST(NULL AS VARCHAR) AS relpartbound \
         FROM information_schema.tables",
    ),
    (
        "pg_attribute",
        "SELECT oid_of_table(table_schema, table_name) AS attrelid, column_name AS attname, \
           oid_of_type(data_type) AS atttypid, -1 AS attstattarget, \
           CAST(size_of_type(data_type) AS SMALLINT) AS attlen, \
           CAST(row_number() OVER (PARTITION BY table_schema, table_name \
             ORDER BY ordinal_position) AS SMALLINT) AS attnum, 0 AS attndims, \
           CAST(modifier_of_type(data_type) AS INT) AS atttypmod, is_nullable = 'NO' AS attnotnull, \
           false AS atthasdef, false AS atthasmissing, '' AS attidentity, '' AS attgenerated, \
           false AS attisdropped, true AS attislocal, 0 AS attinhcount, \
           CAST(0 AS BIGINT) AS attcollation, CAST(NULL AS VARCHAR[]) AS attacl, \
           'x' AS attstorage, '' AS attcompression, CAST(NULL AS VARCHAR[]) AS attoptions, \
           CAST(NULL AS VARCHAR[]) AS attfdwoptions \
         FROM information_schema.columns",
    ),
    (
        "pg_type",
        "SELECT CAST(oid AS BIGINT) AS oid, typname, CAST(11 AS BIGINT) AS typnamespace, \
           CAST(10 AS BIGINT) AS typowner, CAST(typlen AS SMALLINT) AS typlen, \
           typlen > 0 AS typbyval, 'b' AS typtype, typcategory, false AS typispreferred, \
           true AS typisdefined, ',' AS typdelim, CAST(0 AS BIGINT) AS typrelid, \
           CAST(typelem AS BIGINT) AS typelem, CAST(typarray AS BIGINT) AS typarray, \
           false AS typnotnull, CAST(0 AS BIGINT) AS typbasetype, -1 AS typtypmod, \
           0 AS typndims, CAST(0 AS BIGINT) AS typcollation, \
           CASE WHEN typelem > 0 THEN 'array_in' ELSE concat(typname, '_in') END AS typinput, \
           CASE WHEN typelem > 0 THEN 'array_recv' ELSE concat(typname, '_recv') END AS typreceive, \
           CAST(NULL AS VARCHAR) AS typdefault, CAST(NULL AS VARCHAR[]) AS typacl, \
           CAST(0 AS BIGINT) AS typsubscript \
         FROM (VALUES (16, 'bool', 1, 'B', 0, 1000), (17, 'bytea', -1, 'U', 0, 1001), \
           (18, 'char', 1, 'S', 0, 1002), (19, 'name', 64, 'S', 0, 1003), \
           (20, 'int8', 8, 'N', 0, 1016), (21, 'int2', 2, 'N', 0, 1005), \
           (23, 'int4', 4, 'N', 0, 1007), (25, 'text', -1, 'S', 0, 1009), \
           (26, 'oid', 4, 'N', 0, 1028), (114, 'json', -1, 'U', 0, 199), \
           (700, 'float4', 4, 'N', 0, 1021), (701, 'float8', 8, 'N', 0, 1022), \
           (705, 'unknown', -2, 'X', 0, 0), (1042, 'bpchar', -1, 'S', 0, 1014), \
           (1043, 'varchar', -1, 'S', 0, 1015), (1082, 'date', 4, 'D', 0, 1182), \
           (1083, 'time', 8, 'D', 0, 1183), (1114, 'timestamp', 8, 'D', 0, 1115), \
           (1184, 'timestamptz', 8, 'D', 0, 1185), (1186, 'interval', 16, 'T', 0, 1187), \
           (1700, 'numeric', -1, 'N', 0, 1231), (2950, 'uuid', 16, 'U', 0, 2951), \
           (1000, '_bool', -1, 'A', 16, 0), (1001, '_bytea', -1, 'A', 17, 0), \
           (1005, '_int2', -1, 'A', 21, 0), (1007, '_int4', -1, 'A', 23, 0), \
           (1016, '_int8', -1, 'A', 20, 0), (1009, '_text', -1, 'A', 25, 0), \
           (1015, '_varchar', -1, 'A', 1043, 0), (1021, '_float4', -1, 'A', 700, 0), \
           (1022, '_float8', -1, 'A', 701, 0), (1231, '_numeric', -1, 'A', 1700, 0), \
           (1182, '_date', -1, 'A', 1082, 0), (1183, '_time', -1, 'A', 1083, 0), \
           (1115, '_timestamp', -1, 'A', 1114, 0), (1185, '_timestamptz', -1, 'A', 1184, 0), \
           (1187, '_interval', -1, 'A', 1186, 0)) \
           AS t (oid, typname, typlen, typcategory, typelem, typarray)",
    ),
    (
        "pg_database",
        "SELECT CAST(1 AS BIGINT) AS oid, '{database}' AS datname, CAST(10 AS BIGINT) AS datdba, \
           6 AS encoding, 'c' AS datlocprovider, false AS datistemplate, true AS datallowconn, \
           -1 AS datconnlimit, CAST(1663 AS BIGINT) AS dattablespace, 'C' AS datcollate, \
           'C' AS datctype, CAST(NULL AS VARCHAR) AS daticulocale, \
           CAST(NULL AS VARCHAR[]) AS datacl",
    ),
    (
        "pg_roles",
        "SELECT CAST(10 AS BIGINT) AS oid, '{user}' AS rolname, true AS rolsuper, \
           true AS rolinherit, true AS rolcreaterole, true AS rolcreatedb, true AS rolcanlogin, \
           false AS rolreplication, -1 AS rolconnlimit, false AS rolbypassrls, \
           CAST(NULL AS TIMESTAMP) AS rolvaliduntil, CAST(NULL AS VARCHAR[]) AS rolconfig",
    ),
    (
        "pg_user",
        "SELECT '{user}' AS usename, CAST(10 AS BIGINT) AS usesysid, true AS usecreatedb, \
           true AS usesuper",
    ),
    (
        "pg_proc",
        "SELECT DISTINCT oid_of_table('pg_catalog', routine_name) AS oid, \
           routine_name AS proname, CAST(11 AS BIGINT) AS pronamespace, \
           CAST(10 AS BIGINT) AS proowner, CASE function_type WHEN 'AGGREGATE' THEN 'a' \
             WHEN 'WINDOW' THEN 'w' ELSE 'f' END AS prokind, CAST(0 AS BIGINT) AS prorettype, \
           CAST(NULL AS VARCHAR) AS prosrc, CAST(NULL AS VARCHAR[]) AS proacl \
         FROM information_schema.routines",
    ),
    (
        "pg_tables",
        "SELECT table_schema AS schemaname, table_name AS tablename, '{user}' AS tableowner, \
           CAST(NULL AS VARCHAR) AS tablespace, false AS hasindexes, false AS hasrules, \
           false AS hastriggers, false AS rowsecurity \
         FROM information_schema.tables WHERE table_type NOT LIKE '%VIEW%'",
    ),
    (
        "pg_views",
        "SELECT t.table_schema AS schemaname, t.table_name AS viewname, '{user}' AS viewowner, \
           regexp_replace(v.definition, '^CREATE (OR REPLACE )?VIEW .+? AS ', '', 'i') \
             AS definition, \
           oid_of_table(t.table_schema, t.table_name) AS viewoid \
         FROM information_schema.tables AS t LEFT JOIN information_schema.views AS v \
           ON v.table_schema = t.table_schema AND v.table_name = t.table_name \
         WHERE t.table_type LIKE '%VIEW%'",
    ),
    (
        "pg_tablespace",
        "SELECT CAST(1663 AS BIGINT) AS oid, 'pg_default' AS spcname, \
           CAST(10 AS BIGINT) AS spcowner, CAST(NULL AS VARCHAR[]) AS spcacl, \
           CAST(NULL AS VARCHAR[]) AS spcoptions",
    ),
];

/// Tables of what Skewer has not, with their columns: numbers first, then texts after a `|`.
const EMPTY: [(&str, &str); 34] = [
    ("pg_aggregate", "aggfnoid | aggkind"),
    ("pg_am", "oid | amname amtype"),
    ("pg_attrdef", "oid adrelid adnum | adbin"),
    ("pg_auth_members", "roleid member grantor |"),
    ("pg_cast", "oid castsource casttarget |"),
    ("pg_collation", "oid collnamespace | collname"),
    (
        "pg_constraint",
        "oid connamespace conrelid contypid conindid conparentid confrelid conkey confkey | \
         conname contype confupdtype confdeltype confmatchtype condeferrable condeferred convalidated",
    ),
    (
        "pg_depend",
        "classid objid objsubid refclassid refobjid refobjsubid | deptype",
    ),
    ("pg_description", "objoid classoid objsubid | description"),
    ("pg_enum", "oid enumtypid enumsortorder | enumlabel"),
    ("pg_event_trigger", "oid | evtname"),
    (
        "pg_extension",
        "oid extowner extnamespace | extname extversion",
    ),
    ("pg_foreign_data_wrapper", "oid | fdwname"),
    ("pg_foreign_server", "oid srvfdw | srvname"),
    ("pg_foreign_table", "ftrelid ftserver | ftoptions"),
    (
        "pg_index",
        "indexrelid indrelid indnatts indkey indclass indoption | indisunique indisprimary \
         indisclustered indisvalid indexprs indpred indisreplident",
    ),
    (
        "pg_indexes",
        "| schemaname tablename indexname tablespace indexdef",
    ),
    (
        "pg_inherits",
        "inhrelid inhparent inhseqno | inhdetachpending",
    ),
    ("pg_language", "oid | lanname"),
    (
        "pg_matviews",
        "| schemaname matviewname matviewowner definition",
    ),
    ("pg_opclass", "oid | opcname"),
    ("pg_operator", "oid oprleft oprright oprresult | oprname"),
    ("pg_partitioned_table", "partrelid | partstrat"),
    (
        "pg_policy",
        "oid polrelid | polname polcmd polpermissive polroles polqual polwithcheck",
    ),
    ("pg_publication", "oid | pubname puballtables"),
    ("pg_publication_namespace", "oid pnpubid pnnspid |"),
    ("pg_publication_rel", "oid prpubid prrelid | prqual prattrs"),
    ("pg_range", "rngtypid rngsubtype rngmultitypid |"),
    ("pg_rewrite", "oid ev_class | rulename ev_type ev_enabled"),
    ("pg_sequence", "seqrelid seqtypid |"),
    ("pg_shdescription", "objoid classoid | description"),
    (
        "pg_statistic_ext",
        "oid stxrelid stxnamespace stxstattarget | stxname stxkind",
    ),
    ("pg_subscription", "oid subdbid | subname"),
    (
        "pg_trigger",
        "oid tgrelid tgparentid tgconstraint | tgname tgisinternal tgenabled tgdeferrable tginitdeferred",
    ),
];

/// All tables.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    let filled = FILLED.iter().map(|(name, _)| *name);
    filled.chain(EMPTY.iter().map(|(name, _)| *name))
}

/// Whether the table never has rows.
pub(super) fn is_empty(name: &str) -> bool {
    EMPTY.iter().any(|(empty, _)| *empty == name)
}

/// Whether a column of one of the empty tables holds numbers, or has the name of one that does elsewhere.
pub(super) fn is_number(column: &str) -> bool {
    let numbers = |columns: &str| {
        let (numbers, _) = columns.split_once('|').unwrap_or((columns, ""));
        numbers.split_whitespace().any(|number| number == column)
    };
    column.ends_with("oid")
        || column.ends_with("relid")
        || EMPTY.iter().any(|(_, columns)| numbers(columns))
}

/// The query that makes a table.
pub(super) fn query(name: &str, user: &str) -> Option<String> {
    if let Some((_, sql)) = FILLED.iter().find(|(filled, _)| *filled == name) {
        let user = user.replace('\'', "''");
        return Some(sql.replace("{user}", &user).replace("{database}", DATABASE));
    }
    let (_, columns) = EMPTY.iter().find(|(empty, _)| *empty == name)?;
    let (numbers, texts) = columns.split_once('|').unwrap_or((columns, ""));
    let numbers = numbers
        .split_whitespace()
        .map(|c| format!("CAST(NULL AS BIGINT) AS {c}"));
    let texts = texts
        .split_whitespace()
        .map(|c| format!("CAST(NULL AS VARCHAR) AS {c}"));
    let columns = numbers.chain(texts).collect::<Vec<_>>().join(", ");
    Some(format!("SELECT {columns} WHERE false"))
}
