// The matrix of an exchange: senders by receivers, with sums on both sides, in some order.

/** A row of the view `communication`. */
export interface Sent {
  source_worker: number;
  source_partition: number | null;
  destination_worker: number;
  destination_partition: number | null;
  rows: number;
  bytes: number;
  batches: number;
  first_ns: number | null;
  last_ns: number | null;
}

/** A row of the view `receivers`. */
export interface Received {
  worker_id: number;
  partition: number | null;
  rows: number;
  bytes: number;
  local_rows: number;
  local_bytes: number;
  self_ns: number | null;
  input_wait_ns: number | null;
}

export type Amount = 'rows' | 'bytes';
export type Order = 'number' | 'amount' | 'similarity';
export type Level = 'partitions' | 'workers';

/** What went from a sender to a receiver, or to or from one of them. */
export interface Load {
  rows: number;
  bytes: number;
  /** The part that stayed on its worker. */
  localRows: number;
  localBytes: number;
  batches: number;
  first: number;
  last: number;
}

export interface End extends Load {
  worker: number;
  /** Null: the whole worker. */
  partition: number | null;
  /** What a receiver's exchange worked and waited, in nanoseconds. */
  self: number | null;
}

export interface Matrix {
  senders: End[];
  receivers: End[];
  /** By the senders' and receivers' places; undefined: nothing was sent. */
  cells: (Load | undefined)[][];
  total: Load;
  /** The greatest cell, sender and receiver. */
  most: { cell: number; sender: number; receiver: number };
  /** The mean of a receiver and of a sender, with those that have nothing. */
  mean: { sender: number; receiver: number };
}

const none = (): Load => ({ rows: 0, bytes: 0, localRows: 0, localBytes: 0, batches: 0, first: Infinity, last: -Infinity });

function add(load: Load, sent: Sent): void {
  load.rows += sent.rows;
  load.bytes += sent.bytes;
  load.batches += sent.batches;
  if (sent.source_worker === sent.destination_worker) {
    load.localRows += sent.rows;
    load.localBytes += sent.bytes;
  }
  load.first = Math.min(load.first, sent.first_ns ?? Infinity);
  load.last = Math.max(load.last, sent.last_ns ?? -Infinity);
}

export const local = (load: Load, by: Amount): number => (by === 'rows' ? load.localRows : load.localBytes);

/** Sums what was sent to workers or partitions, and puts both sides into order. */
export function makeMatrix(sent: readonly Sent[], received: readonly Received[], level: Level, by: Amount, order: Order): Matrix {
  const senders = new Map<string, End>();
  const receivers = new Map<string, End>();
  const cells = new Map<string, Load>();
  const total = none();
  const end = (ends: Map<string, End>, worker: number, partition: number | null): [string, End] => {
    const shown = level === 'workers' ? null : partition;
    const key = `${worker}/${shown}`;
    let found = ends.get(key);
    if (!found) ends.set(key, (found = { ...none(), worker, partition: shown, self: null }));
    return [key, found];
  };
  for (const row of received) {
    const [, receiver] = end(receivers, row.worker_id, row.partition);
    if (row.self_ns !== null) receiver.self = (receiver.self ?? 0) + row.self_ns;
  }
  for (const row of sent) {
    const [from, sender] = end(senders, row.source_worker, row.source_partition);
    const [to, receiver] = end(receivers, row.destination_worker, row.destination_partition);
    const key = `${from} ${to}`;
    let cell = cells.get(key);
    if (!cell) cells.set(key, (cell = none()));
    for (const load of [sender, receiver, cell, total]) add(load, row);
  }
  const at = (from: End, to: End) => cells.get(`${from.worker}/${from.partition} ${to.worker}/${to.partition}`);
  const number = (a: End, b: End) => a.worker - b.worker || (a.partition ?? -1) - (b.partition ?? -1);
  let rows = [...senders.values()].sort(number);
  let columns = [...receivers.values()].sort(number);
  if (order === 'amount') {
    rows.sort((a, b) => b[by] - a[by]);
    columns.sort((a, b) => b[by] - a[by]);
  } else if (order === 'similarity') {
    const values = rows.map((from) => columns.map((to) => at(from, to)?.[by] ?? 0));
    const rowOrder = seriate(values);
    const columnOrder = seriate(columns.map((_, c) => values.map((row) => row[c]!)));
    rows = rowOrder.map((i) => rows[i]!);
    columns = columnOrder.map((i) => columns[i]!);
  }
  const table = rows.map((from) => columns.map((to) => at(from, to)));
  return {
    senders: rows, receivers: columns, cells: table, total,
    most: {
      cell: Math.max(0, ...table.map((row) => Math.max(0, ...row.map((cell) => cell?.[by] ?? 0)))),
      sender: Math.max(0, ...rows.map((row) => row[by])),
      receiver: Math.max(0, ...columns.map((column) => column[by])),
    },
    mean: { sender: rows.length ? total[by] / rows.length : 0, receiver: columns.length ? total[by] / columns.length : 0 },
  };
}

export const SERIATED = 64;

/**
 * Orders vectors so that similar ones are neighbours: the leaves of a tree that joins the nearest two groups first
 * (mean distance), each group turned so that the ends that meet are the nearest. More than 64 vectors stay as they are.
 * Distance: Euclid's between vectors whose sums are 1, so that the amount alone does not matter.
 */
export function seriate(vectors: readonly (readonly number[])[]): number[] {
  const n = vectors.length;
  if (n < 3 || n > SERIATED) return vectors.map((_, i) => i);
  const parts = vectors.map((vector) => {
    const sum = vector.reduce((a, b) => a + b, 0) || 1;
    return vector.map((value) => value / sum);
  });
  const distance = parts.map((a) => parts.map((b) => Math.hypot(...a.map((value, i) => value - b[i]!))));
  // Vectors of one number have no shape: these are ordered by their size.
  if (vectors[0]!.length < 2) return vectors.map((_, i) => i).sort((a, b) => vectors[b]![0]! - vectors[a]![0]!);
  let groups = vectors.map((_, i) => [i]);
  while (groups.length > 1) {
    let best = { a: 0, b: 1, distance: Infinity };
    for (let a = 0; a < groups.length; a++) {
      for (let b = a + 1; b < groups.length; b++) {
        let sum = 0;
        for (const i of groups[a]!) for (const j of groups[b]!) sum += distance[i]![j]!;
        const mean = sum / (groups[a]!.length * groups[b]!.length);
        if (mean < best.distance - 1e-12) best = { a, b, distance: mean };
      }
    }
    const [left, right] = [groups[best.a]!, groups[best.b]!];
    const turned = [[left, right], [left, [...right].reverse()], [[...left].reverse(), right], [[...left].reverse(), [...right].reverse()]] as const;
    const joint = ([l, r]: readonly [readonly number[], readonly number[]]) => distance[l[l.length - 1]!]![r[0]!]!;
    const [l, r] = turned.reduce((nearest, pair) => (joint(pair) < joint(nearest) - 1e-12 ? pair : nearest));
    groups = [...groups.filter((_, i) => i !== best.a && i !== best.b), [...l, ...r]];
  }
  return groups[0]!;
}
