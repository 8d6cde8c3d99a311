// What all views of one query need to know of it: its row, its plan, its workers.
import { createContext } from 'preact';
import { useContext } from 'preact/hooks';
import type { Int } from './data';
import { describe } from './describe';

/** A row of the view `query`. */
export interface QueryInfo {
  query_id: number;
  sql: string;
  fingerprint: string;
  status: 'finished' | 'failed' | 'cancelled';
  error: string | null;
  profile_level: 'off' | 'counters' | 'calls' | 'records';
  sample_rate: number | null;
  lineage: string | null;
  started_at: string;
  /** The user of the session; `local` in a program that embeds the database. */
  user_name: string | null;
  /** How long the statement waited for admission, before planning. */
  queued_ns: number | null;
  /** When the first rows were ready for the reader, since the statement arrived. */
  first_row_ns: number | null;
  planning_ns: number | null;
  execution_ns: number | null;
  rows_returned: number | null;
  imported_from: string | null;
  events_dropped: number;
  given_up: string | null;
  overhead_ns: number | null;
  lost_workers: string | null;
  crossed_rows: number | null;
  crossed_bytes: number | null;
  /** When execution began, in nanoseconds since the statement arrived. */
  execution_start_ns: number;
  /** The last moment that anything was recorded, in nanoseconds since the statement arrived. */
  end_ns: number;
  /** The run of the same statement before this one. */
  previous_query_id: number | null;
}

/** A row of the view `plan`. */
export interface PlanRow {
  operator_id: number;
  parent_operator_id: number | null;
  fragment_id: number;
  name: string;
  kind: string;
  is_internal: boolean;
  details: string;
  table_name: string | null;
  sql_span: string | null;
  rows_in: number;
  rows_out: number;
  estimated_rows: number | null;
  bytes_out: number | null;
  self_ns: number;
  /** Part of the self time of all operators, 0 to 1. */
  share: number;
  input_wait_ns: number | null;
  peak_memory_bytes: number | null;
  spilled_bytes: number | null;
  tasks: number;
  calls: number | null;
  /** The greatest task's rows or time by the mean of all tasks: 1 is even. */
  row_skew: number | null;
  time_skew: number | null;
  /** Rows and bytes that went through an exchange, and the rows that went to another worker. */
  sent_rows: Int | null;
  sent_bytes: Int | null;
  crossed_rows: Int | null;
}

export interface Query {
  id: number;
  info: QueryInfo;
  plan: PlanRow[];
  byId: ReadonlyMap<number, PlanRow>;
  childrenOf: (operator: number) => PlanRow[];
}

export function makeQuery(info: QueryInfo, plan: PlanRow[]): Query {
  const byId = new Map(plan.map((row) => [row.operator_id, row]));
  const children = new Map<number, PlanRow[]>();
  for (const row of plan) {
    if (row.parent_operator_id === null) continue;
    const list = children.get(row.parent_operator_id) ?? [];
    list.push(row);
    children.set(row.parent_operator_id, list);
  }
  return { id: info.query_id, info, plan, byId, childrenOf: (operator) => children.get(operator) ?? [] };
}

export const QueryContext = createContext<Query | undefined>(undefined);

export function useQuery(): Query {
  const query = useContext(QueryContext);
  if (!query) throw new Error('this view belongs into a query page');
  return query;
}

const titles = new WeakMap<object, string>();

/** An operator in a few words, the same in every view: `Hash join`, `Scan ratings`, `Exchange between workers`. */
export function title(row: Pick<PlanRow, 'name' | 'details' | 'table_name'>): string {
  const known = titles.get(row) ?? describe(row).title;
  titles.set(row, known);
  return known;
}

const KINDS = [['join'], ['exchange'], ['aggregate'], ['sort', 'window', 'limit'], ['scan', 'values'], ['evaluation', 'projection', 'filter'], ['unnest']];

/** The colour of an operator's kind, by `category`, the same in every view. */
export function colourOfKind(kind: string): number {
  const found = KINDS.findIndex((kinds) => kinds.includes(kind));
  return found < 0 ? KINDS.length : found;
}
