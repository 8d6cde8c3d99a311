// What the parts of the Records tab share: which records, which range of latencies, what is checked to be left out.
import { signal } from '@preact/signals';
import type { Int, Params } from '../../data';
import { title, type Query } from '../../query';
import { search, selectRecords, selection, setSearch } from '../../state';

export type Measure = 'expressions' | 'operators' | 'groups';

export interface Scope {
  query: Query;
  measure: Measure;
  /** The table as in sys.record_latency; of groups `operator 3`. */
  source: string;
  /** Latencies from `low` on and below `high`; undefined is no bound. */
  low: number | undefined;
  high: number | undefined;
}

/** A row of `record_histogram`. */
export interface Bin {
  source: string;
  bin: number;
  records: number;
  time_ns: number;
  least_ns: number;
  most_ns: number;
  dearest: Int;
  sure_ns: number;
}

/** A row of `record_dearest`. */
export interface Dear {
  row_id: Int;
  latency_ns: number;
  share: number;
  method: 'measured' | 'apportioned' | 'replayed';
  error_ns: number | null;
  records: number;
  time_ns: number;
  all_records: number;
  all_ns: number;
}

/** The least latency of a quarter octave. */
export const startOf = (bin: number) => 2 ** (bin / 4);

export const bounds = (scope: Scope): Params => ({
  low_ns: scope.low === undefined ? 'NULL' : Math.ceil(scope.low), high_ns: scope.high === undefined ? 'NULL' : Math.ceil(scope.high),
});

/** The range in the URL: `lat=1000-2000`, in nanoseconds; either side may be missing. */
export function readRange(): [number | undefined, number | undefined] {
  const match = /^(\d*)-(\d*)$/.exec(search.value['lat'] ?? '');
  const number = (text: string | undefined) => (text ? Number(text) : undefined);
  return [number(match?.[1]), number(match?.[2])];
}

export function selectRange(low: number | undefined, high: number | undefined): void {
  const text = (value: number | undefined) => (value === undefined ? '' : Math.ceil(value));
  const lat = low === undefined && high === undefined ? undefined : `${text(low)}-${text(high)}`;
  if (search.value['lat'] !== lat) setSearch({ lat });
}

export interface Ref {
  source: string;
  id: string;
}

export const writeRef = (source: string, id: Int | string) => `${source}#${id}`;

export function readRef(text: string): Ref | undefined {
  const at = text.lastIndexOf('#');
  return at > 0 && /^-?\d+$/.test(text.slice(at + 1)) ? { source: text.slice(0, at), id: text.slice(at + 1) } : undefined;
}

/** The operator that makes the records of `operator 3`. */
export function makerOf(source: string): number | undefined {
  const match = /^operator (\d+)$/.exec(source);
  return match ? Number(match[1]) : undefined;
}

export const isTable = (source: string) => source !== 'result' && makerOf(source) === undefined;

export const tableName = (source: string) => source.replace(/^main\./, '');

/** A source in words: `ratings`, `groups of operator 3`. */
export function sourceName(source: string, query: Query): string {
  const maker = makerOf(source);
  if (maker === undefined) return source === 'result' ? 'the result' : tableName(source);
  const row = query.byId.get(maker);
  return `groups of operator ${maker}${row ? `, ${title(row)}` : ''}`;
}

/** A record in words: `row 777 of carts`. The id of a group has its worker in bits 51 to 62, its number in 0 to 31. */
export function recordName({ source, id }: Ref): string {
  if (source === 'result') return `result row ${id}`;
  return makerOf(source) === undefined ? `row ${id} of ${tableName(source)}` : groupName(id);
}

export function groupName(id: string): string {
  const bits = BigInt(id);
  return `group ${bits & 0xffffffffn}.${(bits >> 32n) & 0x7fffn} of worker ${(bits >> 51n) & 0xfffn}`;
}

export function pick(source: string, id: Int | string, more = false): void {
  const ref = writeRef(source, id);
  const records = new Set(more ? selection.value.records : []);
  if (more && records.has(ref)) records.delete(ref);
  else records.add(ref);
  selectRecords(records);
}

export const isPicked = (source: string, id: Int | string) => selection.value.records.has(writeRef(source, id));

/** What is checked to be left out: rows and predicates of one table. */
export interface Checked {
  query: number;
  table: string;
  rows: readonly string[];
  predicates: readonly string[];
}

const NOTHING: Checked = { query: -1, table: '', rows: [], predicates: [] };
export const checked = signal<Checked>(NOTHING);

/** Checks or unchecks. A statement leaves out rows of one table at a time, so another table starts anew. */
export function toggle(query: number, table: string, what: 'rows' | 'predicates', value: string): void {
  const now = checked.value.query === query && checked.value.table === table ? checked.value : { ...NOTHING, query, table };
  const had = now[what].includes(value);
  checked.value = { ...now, [what]: had ? now[what].filter((other) => other !== value) : [...now[what], value] };
}

export const isChecked = (query: number, table: string, what: 'rows' | 'predicates', value: string) =>
  checked.value.query === query && checked.value.table === table && checked.value[what].includes(value);

/** Reads `1.5 ms`; a number alone is nanoseconds. */
export function readDuration(text: string): number | undefined {
  const match = /^\s*([\d.]+)\s*(ns|us|µs|μs|ms|s)?\s*$/.exec(text);
  if (!match) return undefined;
  const unit = { ns: 1, us: 1e3, 'µs': 1e3, 'μs': 1e3, ms: 1e6, s: 1e9 }[match[2] ?? 'ns'] ?? 1;
  const value = Number(match[1]) * unit;
  return Number.isFinite(value) ? value : undefined;
}

export interface Tail {
  from: number;
  records: number;
  time: number;
}

/**
 * The dearest records, in whole bins, that took far more than their share of the time: the fewest that took half of it,
 * or else those whose share of the time exceeds their share of the records most.
 */
export function tailOf(bins: readonly Bin[]): Tail | undefined {
  const allTime = bins.reduce((sum, bin) => sum + bin.time_ns, 0);
  const allRecords = bins.reduce((sum, bin) => sum + bin.records, 0);
  let [records, time, most] = [0, 0, 0];
  let best: Tail | undefined;
  for (const bin of [...bins].reverse()) {
    records += bin.records;
    time += bin.time_ns;
    const [ofTime, ofRecords] = [time / allTime, records / allRecords];
    if (ofRecords > 0.25) break;
    if (ofTime >= 0.1 && ofTime >= 4 * ofRecords && ofTime - ofRecords > most) {
      most = ofTime - ofRecords;
      best = { from: bin.bin, records, time };
    }
    if (ofTime >= 0.5 && best) break;
  }
  return best;
}

/** Brings the card of what was selected into view, once it is there. */
export function reveal(): void {
  const smooth = !matchMedia('(prefers-reduced-motion: reduce)').matches;
  setTimeout(() => document.querySelector('.cards .card')?.scrollIntoView({ block: 'start', behavior: smooth ? 'smooth' : 'auto' }), 30);
}
