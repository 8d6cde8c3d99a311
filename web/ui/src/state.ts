// The state of the page: where it is and what is selected. The URL has all of it.
import { batch, computed, effect, signal } from '@preact/signals';
import { source } from './source';

/** A range of nanoseconds since the query's start. */
export type Range = readonly [number, number];

/** What all views of a query share. Empty sets select everything. */
export interface Selection {
  operators: ReadonlySet<number>;
  workers: ReadonlySet<number>;
  partitions: ReadonlySet<number>;
  /** Views show this range; undefined is the whole query. */
  time: Range | undefined;
  /** Records as `table#row`. */
  records: ReadonlySet<string>;
}

const NOTHING: Selection = { operators: new Set(), workers: new Set(), partitions: new Set(), time: undefined, records: new Set() };

export const path = signal('/');
/** The parts of the URL after `?` that are not the selection. */
export const search = signal<Record<string, string>>({});
export const selection = signal<Selection>(NOTHING);
/** The operator, worker or partition under the pointer: views light it up, nothing is filtered by it. */
export const hovered = signal<{ operator?: number; worker?: number; partition?: number }>({});

const UNITS: [string, number][] = [['s', 1e9], ['ms', 1e6], ['us', 1e3], ['ns', 1]];

function writeTime(ns: number): string {
  for (const [unit, size] of UNITS) if (ns >= size && Number.isInteger((ns / size) * 1000)) return `${ns / size}${unit}`;
  return `${Math.round(ns)}ns`;
}

function readTime(text: string): number | undefined {
  const match = /^(-?[\d.]+)(s|ms|us|ns)$/.exec(text);
  return match ? Math.round(Number(match[1]) * UNITS.find(([unit]) => unit === match[2])![1]) : undefined;
}

export function writeSelection(selected: Selection): Record<string, string> {
  const parts = [
    ...[...selected.operators].map((id) => `op:${id}`),
    ...[...selected.workers].map((id) => `w:${id}`),
    ...[...selected.partitions].map((id) => `p:${id}`),
    ...[...selected.records].map((record) => `r:${record}`),
  ];
  const written: Record<string, string> = {};
  if (parts.length) written['sel'] = parts.join(',');
  if (selected.time) written['t'] = `${writeTime(selected.time[0])}-${writeTime(selected.time[1])}`;
  return written;
}

export function readSelection(parameters: Record<string, string>): Selection {
  const sets = { op: new Set<number>(), w: new Set<number>(), p: new Set<number>(), r: new Set<string>() };
  for (const part of (parameters['sel'] ?? '').split(',')) {
    const match = /^(op|w|p|r):(.+)$/.exec(part);
    if (!match) continue;
    const kind = match[1] as keyof typeof sets;
    if (kind === 'r') sets.r.add(match[2]!);
    else if (/^\d+$/.test(match[2]!)) sets[kind].add(Number(match[2]));
  }
  const [from, to] = (parameters['t'] ?? '').split('-').map(readTime);
  const time = from !== undefined && to !== undefined && to > from ? ([from, to] as const) : undefined;
  return { operators: sets.op, workers: sets.w, partitions: sets.p, time, records: sets.r };
}

/** A file has no server behind its paths: there the URL's part after `#` is the state. */
const inFile = source.kind === 'file';

function readUrl(): void {
  const url = inFile ? new URL(location.hash.slice(1) || `/q/${source.query}`, 'http://file') : new URL(location.href);
  const parameters = Object.fromEntries(url.searchParams);
  batch(() => {
    path.value = url.pathname;
    selection.value = readSelection(parameters);
    const { sel: _, t: __, ...rest } = parameters;
    search.value = rest;
  });
}

function writeUrl(): string {
  const all = { ...search.value, ...writeSelection(selection.value) };
  const text = Object.entries(all)
    .map(([key, value]) => `${encodeURIComponent(key)}=${encodeURIComponent(value).replace(/%3A/g, ':').replace(/%2C/g, ',')}`)
    .join('&');
  return `${inFile ? '#' : ''}${path.value}${text ? `?${text}` : ''}`;
}

export function startState(): void {
  readUrl();
  addEventListener(inFile ? 'hashchange' : 'popstate', readUrl);
  // Selections replace the entry of the history; only another page or tab adds one.
  effect(() => {
    const url = writeUrl();
    const now = inFile ? location.hash : location.pathname + location.search;
    if (url !== now) history.replaceState(null, '', url);
  });
}

/** Goes to another page. What was selected stays behind. */
export function go(target: string): void {
  const url = new URL(target, 'http://page');
  const parameters = Object.fromEntries(url.searchParams);
  history.pushState(null, '', (inFile ? '#' : '') + target);
  batch(() => {
    path.value = url.pathname;
    selection.value = readSelection(parameters);
    const { sel: _, t: __, ...rest } = parameters;
    search.value = rest;
    hovered.value = {};
  });
  scrollTo(0, 0);
}

/** Sets or (undefined) removes parts of the URL after `?`, as a step of the history. */
export function setSearch(changes: Record<string, string | undefined>): void {
  history.pushState(null, '', location.href);
  const next = { ...search.value };
  for (const [key, value] of Object.entries(changes)) {
    if (value === undefined) delete next[key];
    else next[key] = value;
  }
  search.value = next;
}

type Kind = 'operators' | 'workers' | 'partitions';

/** Selects one thing, or with `more` adds or removes it. Selecting what alone is selected clears it. */
export function select(kind: Kind, id: number, more = false): void {
  const now = selection.value[kind];
  const next = new Set(more ? now : []);
  if (now.has(id) && (more || now.size === 1)) next.delete(id);
  else next.add(id);
  selection.value = { ...selection.value, [kind]: next };
}

export function selectTime(time: Range | undefined): void {
  selection.value = { ...selection.value, time: time && [Math.round(time[0]), Math.round(time[1])] };
}

export function selectRecords(records: Iterable<string>): void {
  selection.value = { ...selection.value, records: new Set(records) };
}

/** Clears the innermost part of the selection: records, then time, partitions, workers, operators. */
export function clearInnermost(): boolean {
  const { operators, workers, partitions, time, records } = selection.value;
  if (records.size) selection.value = { ...selection.value, records: new Set() };
  else if (time) selection.value = { ...selection.value, time: undefined };
  else if (partitions.size) selection.value = { ...selection.value, partitions: new Set() };
  else if (workers.size) selection.value = { ...selection.value, workers: new Set() };
  else if (operators.size) selection.value = { ...selection.value, operators: new Set() };
  else return false;
  return true;
}

export function clearSelection(): void {
  selection.value = NOTHING;
}

export const isSelected = computed(() => {
  const { operators, workers, partitions, time, records } = selection.value;
  return operators.size + workers.size + partitions.size + records.size > 0 || time !== undefined;
});
