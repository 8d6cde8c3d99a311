// Pairs the operators of two plans.

/** What an operator must have to be paired. */
export interface Node {
  operator_id: number;
  parent_operator_id: number | null;
  name: string;
  kind: string;
  details: string;
  table_name: string | null;
}

export interface Pair<T> {
  before: T | undefined;
  after: T | undefined;
  depth: number;
}

interface Tree<T> {
  roots: T[];
  children: (node: T) => T[];
  depth: (node: T) => number;
}

function treeOf<T extends Node>(nodes: readonly T[]): Tree<T> {
  const byId = new Map(nodes.map((node) => [node.operator_id, node]));
  const lists = new Map<number, T[]>();
  const roots: T[] = [];
  for (const node of nodes) {
    if (node.parent_operator_id === null || !byId.has(node.parent_operator_id)) roots.push(node);
    else lists.set(node.parent_operator_id, [...(lists.get(node.parent_operator_id) ?? []), node]);
  }
  const depth = (node: T): number => {
    let deep = 0;
    for (let at = node.parent_operator_id; at !== null && byId.has(at); at = byId.get(at)!.parent_operator_id) deep++;
    return deep;
  };
  return { roots, children: (node) => lists.get(node.operator_id) ?? [], depth };
}

/** Details without literals and files, which differ between runs of one statement. */
const plain = (details: string) => details.replace(/file_groups=\{.*?\]\]\}/, '').replace(/'[^']*'|\d+/g, '#');

function likeness(a: Node, b: Node): number {
  if ((a.table_name ?? '') !== (b.table_name ?? '')) return 0;
  if (a.name !== b.name && a.kind !== b.kind) return 0;
  return (a.name === b.name ? 2 : 1) + (a.table_name ? 2 : 0) + (plain(a.details) === plain(b.details) ? 1 : 0);
}

interface Found<T> {
  score: number;
  pairs: readonly (readonly [T, T])[];
}

/**
 * Pairs operators with the same name, or else kind, that read the same table; alike details count in favour. Pairs keep
 * who is above whom, not the order of a join's inputs. Same plans are paired by number.
 */
export function align<T extends Node>(before: readonly T[], after: readonly T[], same: boolean): Pair<T>[] {
  const [old, now] = [treeOf(before), treeOf(after)];
  const partner = new Map<T, T>();
  if (same) {
    const byId = new Map(before.map((node) => [node.operator_id, node]));
    for (const node of after) if (byId.has(node.operator_id)) partner.set(node, byId.get(node.operator_id)!);
  } else {
    const none: Found<T> = { score: 0, pairs: [] };
    const known = new Map<string, Found<T>>();
    /** The best pairs of two subtrees. */
    const best = (a: T, b: T): Found<T> => {
      const key = `${a.operator_id} ${b.operator_id}`;
      const found = known.get(key);
      if (found) return found;
      let winner = none;
      const like = likeness(a, b);
      if (like > 0) {
        const below = forest(old.children(a), now.children(b));
        winner = { score: like + below.score, pairs: [[a, b], ...below.pairs] };
      }
      for (const child of old.children(a)) {
        const skipped = best(child, b);
        if (skipped.score > winner.score) winner = skipped;
      }
      for (const child of now.children(b)) {
        const skipped = best(a, child);
        if (skipped.score > winner.score) winner = skipped;
      }
      known.set(key, winner);
      return winner;
    };
    /** Pairs subtrees, the most alike first, each once. */
    const forest = (as: readonly T[], bs: readonly T[]): Found<T> => {
      const options = as.flatMap((a, i) => bs.map((b, j) => ({ a, b, far: Math.abs(i - j), found: best(a, b) }))).filter((option) => option.found.score > 0);
      options.sort((x, y) => y.found.score - x.found.score || x.far - y.far);
      const used = new Set<T>();
      const pairs: (readonly [T, T])[] = [];
      let score = 0;
      for (const { a, b, found } of options) {
        if (used.has(a) || used.has(b)) continue;
        used.add(a).add(b);
        score += found.score;
        pairs.push(...found.pairs);
      }
      return { score, pairs };
    };
    for (const [a, b] of forest(old.roots, now.roots).pairs) partner.set(b, a);
  }
  // The newer plan in its order; operators that are gone follow the one that they were below.
  const paired = new Map([...partner].map(([b, a]) => [a, b]));
  const rows: Pair<T>[] = [];
  const shown = new Set<T>();
  const gone = (node: T): void => {
    for (const child of old.children(node)) {
      if (paired.has(child) || shown.has(child)) continue;
      shown.add(child);
      rows.push({ before: child, after: undefined, depth: old.depth(child) });
      gone(child);
    }
  };
  const show = (node: T): void => {
    const other = partner.get(node);
    rows.push({ before: other, after: node, depth: now.depth(node) });
    if (other) gone(other);
    now.children(node).forEach(show);
  };
  now.roots.forEach(show);
  for (const node of before) if (!paired.has(node) && !shown.has(node)) rows.push({ before: node, after: undefined, depth: old.depth(node) });
  return rows;
}
