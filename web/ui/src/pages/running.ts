// What is known of a statement that runs: how far it is, and how sure that is.
import { useRef } from 'preact/hooks';
import { useView, type View } from '../data';
import { duration, share } from '../format';

/** A row of the view `running`. */
export interface Running {
  query_id: number;
  sql: string;
  state: 'running' | 'waiting';
  elapsed_ns: number;
  rows: number;
  fraction: number | null;
  /** Not in `sys.running` yet. */
  user_name?: string | null;
}

/** A row of the view `running_usual`. */
export interface Usual {
  query_id: number;
  runs: number;
  shortest_ns: number;
  median_ns: number;
  longest_ns: number;
  last_query_id: number;
}

/** Share of the time that is over: between `low` and `high`, undefined if nothing is known. */
export interface Estimate {
  low: number | undefined;
  high: number | undefined;
  text: string;
}

/** What was seen of each statement: elapsed time and share of the input, newest last. */
type Samples = Map<number, [number, number][]>;
const RECENT_NS = 10e9;

function span(low: number, high: number): string {
  const [a, b] = [duration(low), duration(high)];
  return a === b || high < 1e9 ? `about ${b} left` : `${a} to ${b} left`;
}

export function estimate(row: Running, usual: Usual | undefined, samples: Samples): Estimate {
  const seconds = row.elapsed_ns;
  const before = usual && `${usual.runs === 1 ? 'an earlier run' : `${usual.runs} earlier runs`} took ${usual.runs === 1 ? duration(usual.median_ns) : `${duration(usual.shortest_ns)} to ${duration(usual.longest_ns)}`}`;
  if (row.state === 'waiting') return { low: 0, high: 0, text: 'waits for another statement to end' };
  const f = row.fraction;
  if (f !== null && f >= 0.02 && f < 1) {
    // The rate since the start and the rate of the last seconds: what is left lies between.
    const seen = samples.get(row.query_id) ?? [];
    const from = seen.find(([at]) => at >= seconds - RECENT_NS) ?? [0, 0];
    const rates = [f / seconds];
    if (seconds - from[0] > 1e9 && f > from[1]) rates.push((f - from[1]) / (seconds - from[0]));
    const left = rates.map((rate) => (1 - f) / rate);
    const [least, most] = [Math.min(...left), Math.max(...left)];
    return { low: seconds / (seconds + most), high: seconds / (seconds + least), text: `${share(f)} of the input read, ${span(least, most)}` };
  }
  const read = f === null ? 'size of the input unknown' : f >= 1 ? 'all input read' : `${share(f)} of the input read`;
  if (usual && seconds < usual.longest_ns) {
    // One or two runs say little: this one may take twice as long.
    const longest = usual.longest_ns * (usual.runs < 3 ? 2 : 1);
    return { low: seconds / longest, high: Math.min(seconds / usual.shortest_ns, 1), text: `${read}, ${before}` };
  }
  return { low: undefined, high: undefined, text: before ? `${read}, longer than before: ${before}` : `${read}, no earlier run to compare with` };
}

/** The statements that run now, and how far each is. */
export function useRunning(every: number): { view: View<Running>; usual: View<Usual>; of: (row: Running) => Estimate } {
  const view = useView<Running>('running', {}, every);
  const samples = useRef<Samples>(new Map());
  const known = useRef('');
  const ids = (view.rows ?? []).map((row) => row.query_id).join(',');
  // Asked for as long as something runs: the answer changes only when other statements run.
  const usual = useView<Usual>('running_usual', ids ? {} : undefined, 4000);
  if (ids !== known.current) {
    known.current = ids;
    for (const id of samples.current.keys()) if (!view.rows?.some((row) => row.query_id === id)) samples.current.delete(id);
  }
  for (const row of view.rows ?? []) {
    const list = samples.current.get(row.query_id) ?? [];
    if (row.fraction !== null && list[list.length - 1]?.[0] !== row.elapsed_ns) list.push([row.elapsed_ns, row.fraction]);
    while (list.length > 60) list.shift();
    samples.current.set(row.query_id, list);
  }
  return { view, usual, of: (row) => estimate(row, usual.rows?.find((other) => other.query_id === row.query_id), samples.current) };
}

/** `5 s ago`, `3 h ago`. */
export function ago(ns: number | null | undefined): string {
  if (ns === null || ns === undefined) return '–';
  const seconds = ns / 1e9;
  if (seconds < 1) return 'now';
  if (seconds < 100) return `${Math.floor(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} days ago`;
}

/** A statement on one line. */
export function oneLine(sql: string): string {
  return sql.replace(/\s+/g, ' ').trim();
}

/** Use as `every` of a view that is asked for anew when its page opens, and then no more. */
export const ON_OPENING = 2 ** 31 - 1;
