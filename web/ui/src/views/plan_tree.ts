// Where everything of a plan is drawn: a chain of operators goes straight down, the smaller inputs of an operator
// with several are indented. So the width of a plan grows with the logarithm of its size.
import { describe, line, type Description } from '../describe';
import type { PlanRow, Query } from '../query';

/** Chains of operators below this share of all own time are folded. */
const SMALL = 0.01;
const FOLDS_FROM = 6;
const DENSE_FROM = 60;

export interface PlanNode {
  /** The operator's id; of a folded chain that of its first, with `~` before it. */
  key: string;
  row: PlanRow;
  text: Description;
  line: string;
  /** Operators that stand behind this node: itself, or a folded chain's. */
  rows: PlanRow[];
  /** Operators whose estimate goes wrong here. */
  wrong: PlanRow[];
  folded: boolean;
  /** Operators below that are hidden, since the node is collapsed. */
  hidden: PlanRow[];
  parent: PlanNode | undefined;
  children: PlanNode[];
  column: number;
  level: number;
  index: number;
  y: number;
  /** `build` and `probe` of a join, `first` and `rounds` of a recursive query. */
  role: string;
}

export interface Box {
  fragment: number;
  /** The uppermost fragment of a folded chain that passes through several. */
  first: number;
  column: number;
  top: number;
  bottom: number;
  tasks: number;
}

export interface Layout {
  nodes: PlanNode[];
  boxes: Box[];
  columns: number;
  height: number;
  nodeHeight: number;
  gap: number;
  /** How far an input is indented. */
  indent: number;
  dense: boolean;
}

export interface Options {
  internal: boolean;
  fold: boolean;
  /** Chains that were unfolded, and nodes that were collapsed, by key. */
  unfolded: ReadonlySet<string>;
  collapsed: ReadonlySet<string>;
  /** Operators that must be visible. */
  wanted: ReadonlySet<number>;
}

/** Whether hiding an operator would hide something to look at. */
function isQuiet(row: PlanRow, most: number): boolean {
  return row.share < SMALL && !row.spilled_bytes && row.kind !== 'recursive' && row.kind !== 'scan'
    && Number(row.crossed_rows ?? 0) < 0.02 * most && !(row.kind === 'join' && misjudged(row) >= 10);
}

/** By which factor the estimate of rows is wrong; 1 if it is right or not known. */
export function misjudged(row: PlanRow): number {
  if (row.estimated_rows === null) return 1;
  const [low, high] = [Math.min(row.estimated_rows, row.rows_out), Math.max(row.estimated_rows, row.rows_out)];
  return high < 1000 ? 1 : high / Math.max(low, 1);
}

/** Whether the estimate goes wrong here, by ten times or more: what the operators above inherit is no news. */
function misjudgedHere(query: Query, row: PlanRow): boolean {
  const wrong = misjudged(row);
  const isOver = (one: PlanRow) => (one.estimated_rows ?? 0) > one.rows_out;
  return wrong >= 10 && query.childrenOf(row.operator_id).every((child) => misjudged(child) < wrong / 10 || isOver(child) !== isOver(row));
}

export function layout(query: Query, options: Options): Layout {
  const root = query.plan.find((row) => row.parent_operator_id === null);
  const nodes: PlanNode[] = [];
  const most = Math.max(1, ...query.plan.map((row) => row.rows_out));
  const folds = options.fold && query.plan.length > FOLDS_FROM;
  const inputs = (row: PlanRow): PlanRow[] => query.childrenOf(row.operator_id)
    .flatMap((child) => (child.is_internal && !options.internal ? inputs(child) : [child]));
  const sizes = new Map<number, number>();
  // Children have greater ids than their parents.
  for (const row of [...query.plan].sort((a, b) => b.operator_id - a.operator_id)) {
    sizes.set(row.operator_id, query.childrenOf(row.operator_id).reduce((sum, child) => sum + sizes.get(child.operator_id)!, 1));
  }
  const below = (row: PlanRow): PlanRow[] => {
    const all: PlanRow[] = [];
    const stack = inputs(row);
    while (stack.length) {
      const next = stack.pop()!;
      all.push(next);
      stack.push(...inputs(next));
    }
    return all;
  };
  const quiet = (row: PlanRow) => isQuiet(row, most) && !options.wanted.has(row.operator_id);

  interface Task { row: PlanRow; parent: PlanNode | undefined; column: number; role: string; free: boolean }
  const todo: Task[] = root ? [{ row: root, parent: undefined, column: 0, role: '', free: true }] : [];
  if (root?.is_internal && !options.internal) todo.splice(0, 1, ...inputs(root).map((row) => ({ row, parent: undefined, column: 0, role: '', free: true })));
  while (todo.length) {
    const { row, parent, column, role, free } = todo.pop()!;
    let rows = [row];
    let key = String(row.operator_id);
    let folded = false;
    if (folds && free && quiet(row)) {
      const chain = [row];
      for (let next = inputs(row); next.length === 1 && quiet(next[0]!); next = inputs(next[0]!)) chain.push(next[0]!);
      if (chain.length > 1) {
        folded = !options.unfolded.has(`~${row.operator_id}`);
        if (folded) {
          rows = chain;
          key = `~${row.operator_id}`;
        }
      }
    }
    const last = rows[rows.length - 1]!;
    const node: PlanNode = {
      key, row, text: describe(row), line: line(row), rows, wrong: rows.filter((row) => misjudgedHere(query, row)), folded, hidden: [], parent, children: [], column,
      level: (parent?.level ?? 0) + 1, index: nodes.length, y: 0, role,
    };
    nodes.push(node);
    parent?.children.push(node);
    if (options.collapsed.has(key)) {
      node.hidden = below(last);
      continue;
    }
    const next = inputs(last);
    const roles = row.kind === 'join' && next.length === 2 ? ['build', 'probe'] : row.kind === 'recursive' && next.length === 2 ? ['first', 'rounds'] : [];
    const ordered = next.map((child, i) => ({ child, role: roles[i] ?? '' }))
      .sort((a, b) => sizes.get(a.child.operator_id)! - sizes.get(b.child.operator_id)!);
    // The largest input is drawn last, straight below; the stack turns the order around.
    ordered.forEach(({ child, role }, i) => todo.splice(todo.length - i, 0, {
      row: child, parent: node, column: i === ordered.length - 1 ? column : column + 1, role,
      free: folded || rows.length > 1 || !(folds && quiet(row)) || next.length > 1,
    }));
  }

  const dense = nodes.length > DENSE_FROM;
  const [nodeHeight, gap, indent] = dense ? [26, 14, 28] : [47, 25, 44];
  let y = 22;
  for (const node of nodes) {
    node.y = y;
    y += nodeHeight + gap;
  }
  const boxes = new Map<number, Box>();
  for (const node of nodes) {
    const fragment = node.rows[node.rows.length - 1]!.fragment_id;
    const box = boxes.get(fragment);
    if (!box) boxes.set(fragment, { fragment, first: node.rows[0]!.fragment_id, column: node.column, top: node.y, bottom: node.y + nodeHeight, tasks: node.rows[node.rows.length - 1]!.tasks });
    else {
      box.bottom = Math.max(box.bottom, node.y + nodeHeight);
      box.column = Math.min(box.column, node.column);
    }
  }
  return {
    nodes, boxes: [...boxes.values()].sort((a, b) => a.column - b.column), columns: Math.max(0, ...nodes.map((node) => node.column)) + 1,
    height: y, nodeHeight, gap, indent, dense,
  };
}
