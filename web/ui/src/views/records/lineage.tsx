// Where records went: a column for each operator that makes records, a few nodes each, all others as one node.
import { useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { useCallback, useMemo } from 'preact/hooks';
import { useView, type Int } from '../../data';
import { count, duration, plural, short } from '../../format';
import { Panel } from '../../panel';
import { title, type Query } from '../../query';
import { selection } from '../../state';
import { isPicked, makerOf, pick, readRef, tableName } from './scope';

interface NodeRow {
  /** -1 is the result. */
  operator_id: number;
  source: string;
  /** null: all records that are not named. */
  id: Int | null;
  records: number;
  total_ns: number;
  source_table: string | null;
  source_row_id: Int | null;
}

interface EdgeRow {
  operator_id: number;
  id: Int | null;
  to_operator_id: number;
  to_id: Int | null;
  edges: number;
  pairs: number;
  latency_ns: number;
}

interface Placed extends NodeRow {
  key: string;
  x: number;
  y: number;
}

const [ROW, HEAD, GAP] = [40, 30, 16];
const keyOf = (operator: number, id: Int | null) => `${operator}:${id ?? ''}`;

function layout(nodes: readonly NodeRow[], edges: readonly EdgeRow[], width: number) {
  // A column's level is the longest way to the result.
  const level = new Map<number, number>([[-1, 0]]);
  for (let changed = true, turns = 0; changed && turns < 100; turns++) {
    changed = false;
    for (const edge of edges) {
      const above = level.get(edge.to_operator_id);
      if (above === undefined || edge.operator_id === edge.to_operator_id || (level.get(edge.operator_id) ?? -1) > above) continue;
      level.set(edge.operator_id, above + 1);
      changed = true;
    }
  }
  const columns = Math.max(...level.values()) + 1;
  const pitch = Math.max(width / columns, 148);
  const box = pitch * 0.68;
  const filled = new Map<number, number>();
  const heads: { x: number; y: number; operator: number; source: string }[] = [];
  const placed = new Map<string, Placed>();
  for (const node of nodes) {
    const at = level.get(node.operator_id);
    if (at === undefined) continue;
    const column = columns - 1 - at;
    let y = filled.get(column) ?? 0;
    const x = columns === 1 ? 0 : (column / (columns - 1)) * (Math.max(width, pitch * columns) - box - 2) + 1;
    if (!heads.some((head) => head.operator === node.operator_id)) {
      if (y) y += GAP;
      heads.push({ x, y, operator: node.operator_id, source: node.source });
      y += HEAD;
    }
    const key = keyOf(node.operator_id, node.id);
    placed.set(key, { ...node, key, x, y });
    filled.set(column, y + ROW);
  }
  return { placed, heads, box, height: Math.max(...filled.values(), 60) + 4, width: Math.max(width, pitch * columns) };
}

/** The way of the most impactful source through the focus: down to the base record, up to the result. */
function boldPath(placed: ReadonlyMap<string, Placed>, edges: readonly EdgeRow[], focus: Placed | undefined): Set<EdgeRow> {
  const path = new Set<EdgeRow>();
  if (!focus) return path;
  const [table, row] = [focus.source_table, focus.source_row_id];
  const descends = (node: Placed | undefined) => node?.id !== null && node?.source_table === table && node?.source_row_id === row;
  for (const [mine, other] of [['to', 'from'], ['from', 'to']] as const) {
    let at: Placed | undefined = focus;
    for (let steps = 0; at && steps < 50; steps++) {
      const end = (edge: EdgeRow, side: 'to' | 'from') => placed.get(side === 'to' ? keyOf(edge.to_operator_id, edge.to_id) : keyOf(edge.operator_id, edge.id));
      const here: EdgeRow | undefined = edges.filter((edge) => end(edge, mine) === at && descends(end(edge, other)))
        .sort((a, b) => end(b, other)!.total_ns - end(a, other)!.total_ns)[0];
      if (!here || path.has(here)) break;
      path.add(here);
      at = end(here, other);
    }
  }
  return path;
}

export function Lineage({ query }: { query: Query }): JSX.Element {
  const k = useSignal(5);
  const seen = useSignal(0);
  const width = seen.value;
  // The panel shows its content only when rows have arrived, so the element comes and goes.
  const element = useCallback((drawing: HTMLDivElement | null) => {
    if (!drawing) return;
    const observer = new ResizeObserver(([entry]) => (seen.value = Math.floor(entry!.contentRect.width)));
    observer.observe(drawing);
    return () => observer.disconnect();
  }, []);
  const lit = useSignal<string | undefined>(undefined);
  const refs = [...selection.value.records];
  const focusRef = refs.length ? readRef(refs[refs.length - 1]!) : undefined;
  const nodes = useView<NodeRow>('lineage_node', { query_id: query.id, k: k.value, pinned: focusRef?.source ?? 'NULL', row_id: focusRef?.id ?? 'NULL' });
  const named = nodes.rows?.filter((row) => row.id !== null).map((row) => keyOf(row.operator_id, row.id)).join(',');
  const edges = useView<EdgeRow>('lineage_edge', named ? { query_id: query.id, nodes: named } : undefined);
  const drawn = useMemo(() => (nodes.rows && edges.rows ? layout(nodes.rows, edges.rows, Math.max(width - 2, 300)) : undefined), [nodes.rows, edges.rows, width]);
  const focus = useMemo(() => {
    if (!drawn) return undefined;
    const all = [...drawn.placed.values()];
    return all.find((node) => node.source === focusRef?.source && String(node.id) === focusRef?.id)
      ?? all.filter((node) => node.operator_id === -1 && node.id !== null).sort((a, b) => b.total_ns - a.total_ns)[0];
  }, [drawn, focusRef?.source, focusRef?.id]);
  const bold = useMemo(() => (drawn ? boldPath(drawn.placed, edges.rows!, focus) : new Set<EdgeRow>()), [drawn, focus]);
  const onPath = new Set([...bold].flatMap((edge) => [keyOf(edge.operator_id, edge.id), keyOf(edge.to_operator_id, edge.to_id)]));
  const most = Math.max(...(nodes.rows ?? []).map((row) => row.total_ns), 1);
  const name = (node: NodeRow) => {
    if (node.id === null) return `${short(node.records)} others`;
    if (node.operator_id === -1 || makerOf(node.source) === undefined) return `row ${node.id}`;
    const bits = BigInt(node.id);
    return `group ${bits & 0xffffffffn}.${(bits >> 32n) & 0x7fffn} · w${(bits >> 51n) & 0xfffn}`;
  };
  const head = (operator: number, source: string) => {
    if (operator === -1) return 'Result';
    const row = query.byId.get(operator);
    return makerOf(source) === undefined ? `${operator} Scan ${tableName(source)}` : `${operator} ${row ? title(row) : 'Operator'}`;
  };
  // A source of no time of its own was not waited for.
  const source = focus && [...drawn!.placed.values()].find((node) => node.id !== null && node.source === focus.source_table && node.id === focus.source_row_id);
  const who = focus && name(focus).replace(/^row/, focus.operator_id === -1 ? 'Result row' : 'Row').replace(/^g/, 'G');
  const sentence = !focus ? 'Columns are the operators whose records are told apart.'
    : focus === source ? `${who} of ${tableName(focus.source)} took ${duration(focus.total_ns)} itself; bold is the slowest that was made of it.`
      : source ? `${who} took ${duration(focus.total_ns)} in total, most of it for row ${source.id} of ${tableName(source.source)} (bold).`
        : `${who} took ${duration(focus.total_ns)} in total; no single record of a table made it slow.`;
  const step = (event: KeyboardEvent, node: Placed) => {
    const way = { ArrowDown: [0, 1], ArrowUp: [0, -1], ArrowRight: [1, 0], ArrowLeft: [-1, 0] }[event.key];
    if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      press(node, event.shiftKey);
    }
    if (!way || !drawn) return;
    event.preventDefault();
    const all = [...drawn.placed.values()].filter((other) => (way[0] ? (other.x - node.x) * way[0] > 1 : Math.abs(other.x - node.x) < 1 && (other.y - node.y) * way[1]! > 0));
    const next = all.sort((a, b) => Math.abs(a.x - node.x) - Math.abs(b.x - node.x) || Math.abs(a.y - node.y) - Math.abs(b.y - node.y))[0];
    if (next) document.getElementById(`lineage-${next.key}`)?.focus();
  };
  const press = (node: NodeRow, more: boolean) => {
    if (node.id === null) k.value = Math.min(k.value * 2, 40);
    else pick(node.source, node.id, more);
  };
  return (
    <Panel id="record-lineage" title="Lineage" views={[nodes, edges]} note={<span>{sentence}</span>}
      empty={<p>No lineage was recorded.</p>}
      tools={<><span class="faint">{k.value} dearest of each</span>
        <button type="button" disabled={k.value <= 3} onClick={() => { k.value = Math.max(Math.floor(k.value / 2), 3); }}>Fewer</button>
        <button type="button" disabled={k.value >= 40} onClick={() => { k.value = Math.min(k.value * 2, 40); }}>More</button></>}>
      <div ref={element} class={`lineage ${nodes.loading || edges.loading ? 'waits' : ''}`}>
        {drawn && (
          <svg width={drawn.width} height={drawn.height} role="group" aria-label={`Lineage. ${sentence}`}>
            {edges.rows!.map((edge) => {
              const [from, to] = [drawn.placed.get(keyOf(edge.operator_id, edge.id)), drawn.placed.get(keyOf(edge.to_operator_id, edge.to_id))];
              if (!from || !to) return null;
              const [x1, y1, x2, y2] = [from.x + drawn.box, from.y + (ROW - 6) / 2, to.x, to.y + (ROW - 6) / 2];
              const bend = Math.max((x2 - x1) / 2, 20);
              const near = lit.value !== undefined && (lit.value === from.key || lit.value === to.key);
              return (
                <path key={`${from.key} ${to.key}`} d={`M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`}
                  class={`${bold.has(edge) ? 'bold' : ''} ${near ? 'near' : ''} ${lit.value !== undefined && !near ? 'far' : ''}`}
                  stroke-width={Math.min(1 + Math.log10(Math.max(edge.edges, 1)) * 0.9, 8)}>
                  <title>{`${plural(edge.edges, 'edge')} from ${name(from)} to ${name(to)}`}</title>
                </path>
              );
            })}
            {drawn.heads.map((item) => <text key={item.operator} x={item.x} y={item.y + 17} class="head">{cut(head(item.operator, item.source), drawn.box)}</text>)}
            {[...drawn.placed.values()].map((node) => {
              const label = node.id === null ? `${plural(node.records, 'other record')} of ${head(node.operator_id, node.source)}, at most ${duration(node.total_ns)}. Show more of them.`
                : `${head(node.operator_id, node.source)}: ${name(node)}, ${duration(node.total_ns)}`;
              return (
                <g key={node.key} id={`lineage-${node.key}`} tabIndex={0} role="button" aria-label={label} aria-pressed={node.id === null ? undefined : isPicked(node.source, node.id)}
                  transform={`translate(${node.x} ${node.y})`}
                  class={`node ${node.id === null ? 'others' : ''} ${onPath.has(node.key) ? 'bold' : ''} ${node.id !== null && isPicked(node.source, node.id) ? 'picked' : ''}`}
                  onClick={(event) => press(node, event.shiftKey || event.ctrlKey || event.metaKey)} onKeyDown={(event) => step(event, node)}
                  onPointerEnter={() => { lit.value = node.key; }} onPointerLeave={() => { lit.value = undefined; }}
                  onFocus={() => { lit.value = node.key; }} onBlur={() => { lit.value = undefined; }}>
                  <title>{label}</title>
                  <rect width={drawn.box} height={ROW - 6} rx="5" />
                  <rect class="amount" y={ROW - 9} height="3" width={Math.max((node.total_ns / most) * drawn.box, node.total_ns && 1)} />
                  <text x="8" y="14">{cut(name(node), drawn.box - 12)}</text>
                  <text x="8" y="27" class="small">{node.id === null ? `≤ ${duration(node.total_ns)} each` : duration(node.total_ns)}</text>
                </g>
              );
            })}
          </svg>
        )}
      </div>
      <p class="faint legend"><span>Lines grow with the logarithm of their edges ({count(edges.rows?.reduce((sum, row) => sum + row.edges, 0) ?? 0)} in all). Bold: the way of the record that was waited for most. Click “others” for more.</span></p>
    </Panel>
  );
}

const cut = (text: string, width: number) => (text.length * 6.6 > width ? `${text.slice(0, Math.max(Math.floor(width / 6.6) - 1, 3))}…` : text);
