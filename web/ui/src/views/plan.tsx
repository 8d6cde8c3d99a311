// The plan as a tree: operators with their own time, edges with their rows, fragments as boxes.
import { useComputed, useSignal, type Signal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect, useLayoutEffect, useMemo, useRef } from 'preact/hooks';
import { cividis } from '../colour';
import { useView } from '../data';
import { clipped } from '../describe';
import { bytes, count, duration, plural, share, short, times } from '../format';
import { useKeys } from '../keys';
import { Choice, Panel, Tip } from '../panel';
import { useQuery, type PlanRow } from '../query';
import { hovered, search, select, selection, setSearch } from '../state';
import { layout, type Box, type Layout, type PlanNode } from './plan_tree';
import './plan.css';

interface HeavyKey { operator_id: number; key: string }

const PAD = 12;
const WIDEST = 15;
const MINIMAP_FROM = 40;

/** The share of an exchange's rows that went to another worker. */
function crossing(row: PlanRow): number | undefined {
  const between = row.name.startsWith('Network') || Number(row.crossed_rows ?? 0) > 0;
  return between && row.sent_rows !== null && Number(row.sent_rows) > 0 ? Number(row.crossed_rows ?? 0) / Number(row.sent_rows) : undefined;
}

function width(rows: number, most: number, linear: boolean): number {
  if (rows <= 0) return 1;
  return Math.max(1.5, WIDEST * (linear ? rows / most : Math.log10(1 + rows) / Math.log10(1 + most)));
}

function badges(node: PlanNode, finished: boolean): [string, string][] {
  const found: [string, string][] = [];
  for (const row of node.rows) {
    if (row.time_skew !== null && row.time_skew >= 1.2 && row.share >= 0.05) found.push(['warn', `skew ${times(row.time_skew)}`]);
    else if (row.row_skew !== null && row.row_skew >= 2 && row.rows_out >= 10_000 && row.share >= 0.01) found.push(['warn', `rows skewed ${times(row.row_skew)}`]);
    if (row.spilled_bytes) found.push(['warn', `spilled ${bytes(row.spilled_bytes)}`]);
    // What was expected of all rows says nothing of a part of them.
    if (finished && node.wrong.includes(row)) found.push([row.kind === 'join' ? 'warn' : '', `expected ${short(row.estimated_rows)}`]);
  }
  if (node.row.kind === 'recursive') found.push(['', 'in rounds']);
  return found;
}

function nodeLabel(node: PlanNode, finished: boolean): string {
  const own = node.rows.reduce((sum, row) => sum + row.self_ns, 0);
  const part = node.rows.reduce((sum, row) => sum + row.share, 0);
  const what = node.folded ? `${node.rows.length} operators, folded: ${node.rows.map((row) => row.operator_id).join(', ')}` : `${node.line}, operator ${node.row.operator_id}`;
  return [what, node.role && `${node.role} input`, `own time ${duration(own)}, ${share(part)}`, plural(node.row.rows_out, 'row'), ...badges(node, finished).map(([, text]) => text),
    node.hidden.length ? `${node.hidden.length} operators below are hidden` : ''].filter(Boolean).join('; ');
}

function matches(node: PlanNode, needle: string, keys: ReadonlyMap<number, string>): boolean {
  return node.rows.some((row) => `${row.operator_id} ${row.name} ${row.kind} ${row.details} ${row.table_name ?? ''} ${keys.get(row.operator_id) ?? ''}`.toLowerCase().includes(needle))
    || node.line.toLowerCase().includes(needle);
}

export function Plan(): JSX.Element {
  const query = useQuery();
  const view = useView<PlanRow>('plan', { query_id: query.id });
  const heavy = useView<HeavyKey>('heavy_keys', { query_id: query.id });
  const internal = search.value['internal'] === '1';
  const fold = search.value['fold'] !== '0';
  const linear = search.value['edges'] === 'linear';
  const unfolded = useSignal<ReadonlySet<string>>(new Set());
  const collapsed = useSignal<ReadonlySet<string>>(new Set());
  const needle = useSignal('');
  const focused = useSignal('');
  const tip = useSignal<At | undefined>(undefined);
  const view_y = useSignal<readonly [number, number]>([0, 1]);
  const measured = useSignal(0);
  const frame = useRef<HTMLDivElement | null>(null);
  // The frame comes and goes with the panel's content.
  const framed = useMemo(() => {
    const observer = new ResizeObserver(([entry]) => (measured.value = Math.floor(entry!.contentRect.width)));
    return (element: HTMLDivElement | null) => {
      observer.disconnect();
      frame.current = element;
      if (element) observer.observe(element);
    };
  }, []);
  const frameWidth = measured.value;
  const tree = useRef<HTMLDivElement>(null);
  const typed = useRef({ text: '', at: 0 });

  const keys = useMemo(() => {
    const found = new Map<number, string>();
    for (const { operator_id, key } of heavy.rows ?? []) found.set(operator_id, `${found.get(operator_id) ?? ''} ${key}`);
    return found;
  }, [heavy.rows]);
  const text = needle.value.trim().toLowerCase();
  const wanted = useComputed(() => {
    const rows = new Set(selection.value.operators);
    return rows;
  });
  const shown = useMemo(() => {
    const find = (layout: Layout) => layout.nodes.filter((node) => matches(node, text, keys));
    let made = layout(query, { internal, fold, unfolded: unfolded.value, collapsed: collapsed.value, wanted: wanted.value });
    if (text) {
      // What is found inside folded chains must be seen.
      const all = layout(query, { internal, fold: false, unfolded: new Set(), collapsed: new Set(), wanted: new Set() });
      const hits = new Set(find(all).map((node) => node.row.operator_id));
      made = layout(query, { internal, fold, unfolded: unfolded.value, collapsed: new Set(), wanted: new Set([...wanted.value, ...hits]) });
    }
    return made;
  }, [query, internal, fold, unfolded.value, collapsed.value, wanted.value, text, keys]);
  const hits = useMemo(() => (text ? shown.nodes.filter((node) => matches(node, text, keys)) : []), [shown, text, keys]);

  const { nodes, columns, nodeHeight, height, indent, dense } = shown;
  const mapped = nodes.length > MINIMAP_FROM;
  const inner = Math.max(frameWidth, columns * indent + (dense ? 300 : 250));
  const most = Math.max(1, ...query.plan.map((row) => Math.max(row.rows_out, row.estimated_rows ?? 0)));
  const current = nodes.find((node) => node.key === focused.value) ?? nodes[0];
  const hasInternal = query.plan.some((row) => row.is_internal);

  const flip = (set: { value: ReadonlySet<string> }, key: string, on: boolean) => {
    const next = new Set(set.value);
    if (on) next.add(key);
    else next.delete(key);
    set.value = next;
  };
  const focus = (node: PlanNode | undefined) => {
    if (!node) return;
    focused.value = node.key;
    tree.current?.querySelector<HTMLElement>(`[data-key="${node.key}"]`)?.focus();
  };
  const unfold = (node: PlanNode) => {
    flip(unfolded, node.key, true);
    focused.value = String(node.row.operator_id);
  };
  const press = (node: PlanNode, more: boolean) => {
    focused.value = node.key;
    if (node.folded) unfold(node);
    else select('operators', node.row.operator_id, more);
  };
  // The focus follows a node whose key changed as it was unfolded.
  useLayoutEffect(() => {
    if (tree.current?.contains(document.activeElement) || document.activeElement === document.body) {
      const element = tree.current?.querySelector<HTMLElement>(`[data-key="${focused.value}"]`);
      if (element && document.activeElement !== element && focused.value) element.focus({ preventScroll: true });
    }
  }, [shown]);

  const onKey = (event: KeyboardEvent) => {
    if (!current || event.ctrlKey || event.metaKey || event.altKey) return;
    const done = () => {
      event.preventDefault();
      event.stopPropagation();
    };
    switch (event.key) {
      case 'ArrowDown': focus(nodes[current.index + 1]); break;
      case 'ArrowUp': focus(nodes[current.index - 1]); break;
      case 'Home': focus(nodes[0]); break;
      case 'End': focus(nodes[nodes.length - 1]); break;
      case 'ArrowRight':
        if (current.folded) unfold(current);
        else if (current.hidden.length) flip(collapsed, current.key, false);
        else focus(current.children[0]);
        break;
      case 'ArrowLeft':
        if (!current.folded && !current.hidden.length && current.children.length > 0) flip(collapsed, current.key, true);
        else focus(current.parent);
        break;
      case 'Enter': case ' ': press(current, event.shiftKey); break;
      default: {
        // Type-ahead: capital letters, since small ones are keys of the page.
        if (event.key.length !== 1 || !/\p{Lu}/u.test(event.key)) return;
        const now = Date.now();
        typed.current = { text: (now - typed.current.at < 900 ? typed.current.text : '') + event.key.toLowerCase(), at: now };
        const order = [...nodes.slice(current.index + 1), ...nodes.slice(0, current.index + 1)];
        focus(order.find((node) => node.text.title.toLowerCase().startsWith(typed.current.text)));
      }
    }
    done();
  };
  useKeys([
    { key: 'f', does: 'Fold or unfold internal operators of the plan', run: () => setSearch({ internal: internal ? undefined : '1' }) },
    { key: 'z', does: 'Fold or unfold small operators of the plan', run: () => { unfolded.value = new Set(); setSearch({ fold: fold ? '0' : undefined }); } },
    { key: 'A–Z', does: 'In the plan: go to the next operator whose name begins so', run: () => undefined },
  ], internal, fold);

  // Brings what was selected elsewhere into view.
  const chosen = selection.value.operators;
  useEffect(() => {
    const first = nodes.find((node) => node.rows.some((row) => chosen.has(row.operator_id)));
    const area = frame.current;
    if (!first || !area || (first.y >= area.scrollTop && first.y + nodeHeight <= area.scrollTop + area.clientHeight)) return;
    area.scrollTo({ top: first.y - area.clientHeight / 3 });
  }, [chosen, shown]);
  useEffect(() => {
    const first = hits[0];
    if (first && frame.current) frame.current.scrollTo({ top: first.y - frame.current.clientHeight / 3 });
  }, [hits]);
  const scrolled = () => {
    const area = frame.current;
    if (area) view_y.value = [area.scrollTop / height, (area.scrollTop + area.clientHeight) / height];
  };
  useEffect(scrolled, [height, frameWidth]);

  const heaviest = nodes.reduce<PlanNode | undefined>((best, node) => (!node.folded && (!best || node.row.share > best.row.share) ? node : best), undefined);
  const lit = (node: PlanNode) => node.rows.some((row) => chosen.has(row.operator_id));
  const dim = (node: PlanNode) => (text ? !hits.includes(node) : chosen.size > 0 && !lit(node));
  return (
    <Panel
      id="plan" class="plan" title="Plan" views={[view, heavy].filter((one) => !one.error)}
      empty={<>No plan was recorded. {query.info.profile_level === 'off' ? "Level off records no operators: SET profile.level = 'counters'." : 'The statement failed before it had one, or has none.'}</>}
      tools={<>
        <input
          type="search" placeholder="Search (/)" aria-label="Search operators, tables and keys" value={needle.value} size={13}
          onInput={(event) => (needle.value = event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key === 'Escape') {
              needle.value = '';
              event.currentTarget.blur();
            } else if (event.key === 'Enter' && hits.length) {
              selection.value = { ...selection.value, operators: new Set(hits.flatMap((node) => (node.folded ? [] : [node.row.operator_id]))) };
            }
          }}
        />
        {text && <span class="faint" role="status">{hits.length} of {nodes.length}</span>}
        <Choice label="Width of edges" value={linear ? 'linear' : 'log'} options={[['log', 'log'], ['linear', 'linear']]} onChange={(value) => setSearch({ edges: value === 'log' ? undefined : value })} />
        <button type="button" aria-pressed={!fold} title="Show operators below 1 % one by one (z)" onClick={() => { unfolded.value = new Set(); setSearch({ fold: fold ? '0' : undefined }); }}>Small</button>
        {hasInternal && <button type="button" aria-pressed={internal} title="Show internal operators (f)" onClick={() => setSearch({ internal: internal ? undefined : '1' })}>Internal</button>}
      </>}
    >
      <div class={`plan-outer${mapped ? ' mapped' : ''}`}>
        <div
          class="plan-frame" ref={framed} onScroll={scrolled}
        >
          <div
            ref={tree} role="tree" aria-multiselectable="true" class={`tree${dense ? ' dense' : ''}`} onKeyDown={onKey}
            aria-label={`Plan of ${plural(query.plan.length, 'operator')}${heaviest ? `; ${heaviest.text.title}, operator ${heaviest.row.operator_id}, has most of the own time, ${share(heaviest.row.share)}` : ''}`}
            style={{ height: `${height}px`, width: `${inner}px` }}
          >
            {frameWidth > 0 && <Drawing shown={shown} width={inner} most={most} linear={linear} />}
            {frameWidth > 0 && nodes.map((node) => (
              <Item
                key={node.key} node={node} shown={shown} left={PAD + node.column * indent} width={inner - 2 * PAD - node.column * indent} tip={tip}
                look={`${lit(node) ? ' lit' : ''}${dim(node) ? ' dim' : ''}${text && hits.includes(node) ? ' hit' : ''}`} selected={lit(node)} focusable={node === current}
                press={press} focused={() => (focused.value = node.key)}
              />
            ))}
          </div>
        </div>
        {mapped && <Minimap shown={shown} lit={lit} hits={hits} range={view_y} to={(part) => frame.current?.scrollTo({ top: part * height - frame.current.clientHeight / 2 })} />}
      </div>
      <p class="how">Rows flow up. Edge: width = rows, outline = rows expected, colour = share that crosses workers <span class="ramp" aria-hidden="true" /> 0 to 100 %. Bar: own time.</p>
      <Hover tip={tip} />
    </Panel>
  );
}

interface At { x: number; y: number; node: PlanNode }

function Item({ node, shown, left, width, tip, look, selected, focusable, press, focused }: {
  node: PlanNode; shown: Layout; left: number; width: number; tip: Signal<At | undefined>; look: string; selected: boolean; focusable: boolean;
  press: (node: PlanNode, more: boolean) => void; focused: () => void;
}): JSX.Element {
  const { info } = useQuery();
  const finished = info.status === 'finished';
  const { nodeHeight, dense } = shown;
  const over = useComputed(() => node.rows.some((row) => row.operator_id === hovered.value.operator));
  const part = node.rows.reduce((sum, row) => sum + row.share, 0);
  const own = node.rows.reduce((sum, row) => sum + row.self_ns, 0);
  const siblings = node.parent?.children ?? [node];
  const point = (event: PointerEvent) => (tip.value = { x: event.clientX, y: event.clientY, node });
  return (
    <div
      role="treeitem" data-key={node.key} aria-level={node.level} aria-setsize={siblings.length} aria-posinset={siblings.indexOf(node) + 1}
      aria-selected={selected} aria-expanded={node.folded || node.hidden.length ? false : node.children.length ? true : undefined}
      aria-label={nodeLabel(node, finished)} tabIndex={focusable ? 0 : -1} class={`op fade${node.folded ? ' chain' : ''}${look}${over.value ? ' over' : ''}`}
      style={{ left: `${left}px`, top: `${node.y}px`, width: `${width}px`, height: `${node.folded && !dense ? nodeHeight - 16 : nodeHeight}px` }}
      onClick={(event) => press(node, event.shiftKey || event.ctrlKey || event.metaKey)}
      onDblClick={() => !node.folded && setSearch({ tab: 'operator' })}
      onFocus={focused}
      onPointerEnter={(event) => {
        if (!node.folded) hovered.value = { operator: node.row.operator_id };
        point(event);
      }}
      onPointerMove={point}
      onPointerLeave={() => {
        hovered.value = {};
        tip.value = undefined;
      }}
    >
      {node.folded
        ? <div class="first"><span class="name">… {plural(node.rows.length, 'operator')}, {share(part)}</span><span class="what">{node.rows.map((row) => row.operator_id).join(', ')}</span></div>
        : <>
          <div class="first">
            <span class="id">{node.row.operator_id}</span>
            {node.role && <span class="badge">{node.role}</span>}
            <span class="name">{node.text.title}</span>
            {dense && <span class="what">{node.text.subject}</span>}
            <span class="marks">{badges(node, finished).map(([look, words]) => <span key={words} class={`badge ${look}`}>{words}</span>)}</span>
            <span class="time">{duration(own)} <b>{share(part)}</b></span>
          </div>
          {!dense && <div class="what">{node.text.subject || '\u00a0'}</div>}
          <div class="meter"><i style={{ width: `${100 * part}%` }} /></div>
          {node.hidden.length > 0 && <span class="more">+ {plural(node.hidden.length, 'operator')}, {share(node.hidden.reduce((sum, row) => sum + row.share, 0))}</span>}
        </>}
    </div>
  );
}

function Hover({ tip }: { tip: Signal<At | undefined> }): JSX.Element {
  return <Tip at={tip.value}>{tip.value && <Facts node={tip.value.node} />}</Tip>;
}

function Facts({ node }: { node: PlanNode }): JSX.Element {
  if (node.folded) return <><b>{plural(node.rows.length, 'operator')} below 1 %</b>{node.rows.slice(0, 12).map((row) => <div key={row.operator_id}>{row.operator_id} {row.name.replace(/Exec$/, '')} <span class="faint">{duration(row.self_ns)}</span></div>)}<div class="faint">A click unfolds them.</div></>;
  const { row } = node;
  const crosses = crossing(row);
  const facts: [string, string | undefined][] = [
    ['own time', `${duration(row.self_ns)}, ${share(row.share)}`],
    ['waited for input', duration(row.input_wait_ns)],
    ['rows', row.estimated_rows === null ? count(row.rows_out) : `${count(row.rows_out)}, expected ${count(row.estimated_rows)}`],
    ['rows in', row.rows_in ? count(row.rows_in) : undefined],
    ['crossed workers', crosses === undefined ? undefined : `${count(row.crossed_rows)} rows, ${share(crosses)}`],
    ['sent', row.sent_bytes === null ? undefined : bytes(row.sent_bytes)],
    ['time skew', row.time_skew === null || row.tasks < 2 ? undefined : `${times(row.time_skew)} the mean of ${row.tasks} tasks`],
    ['memory', row.peak_memory_bytes ? bytes(row.peak_memory_bytes) : undefined],
    ['fragment', String(row.fragment_id)],
  ];
  return <><b>{node.text.title}</b>{node.text.subject && <div>{clipped(node.text.subject, 160)}</div>}<dl>{facts.map(([name, value]) => value !== undefined && <><dt>{name}</dt><dd>{value}</dd></>)}</dl></>;
}

/** Boxes of fragments and edges, below the nodes. */
function Drawing({ shown, width: inner, most, linear }: { shown: Layout; width: number; most: number; linear: boolean }): JSX.Element {
  const { nodes, boxes, nodeHeight, height, gap, indent, dense } = shown;
  const finished = useQuery().info.status === 'finished';
  const scale = dense ? 0.6 : 1;
  const boxX = (box: Box) => PAD + box.column * indent - 7;
  return (
    <svg class="edges" width={inner} height={height} aria-hidden="true">
      {boxes.map((box) => (
        <g key={box.fragment}>
          <rect class="fragment" x={boxX(box)} y={box.top - gap / 2 - 3} width={inner - boxX(box) - 4} height={box.bottom - box.top + gap - 4} rx={8} />
          <text class="fragment" x={inner - 10} y={box.top - 5} text-anchor="end">{box.first === box.fragment ? 'fragment' : 'fragments'} {box.first === box.fragment ? '' : `${box.first} – `}{box.fragment}{box.tasks > 1 ? ` · ${box.tasks} tasks` : ''}</text>
        </g>
      ))}
      {nodes.map((node) => {
        const { parent } = node;
        if (!parent) return null;
        const source = node.row;
        const rows = source.rows_out;
        const target = parent.rows[parent.rows.length - 1]!;
        const crosses = crossing(target);
        const w = scale * width(rows, most, linear);
        const expected = source.estimated_rows === null || dense || !finished ? undefined : width(source.estimated_rows, most, linear);
        const straight = node.column === parent.column;
        const px = PAD + parent.column * indent + scale * (straight ? 16 : 36);
        const from = parent.y + (parent.folded && !dense ? nodeHeight - 16 : nodeHeight);
        const to = straight ? node.y : node.y + nodeHeight / 2;
        const path = straight ? `M${px} ${from}V${to}` : `M${px} ${from}V${to}H${PAD + node.column * indent}`;
        const colour = crosses === undefined ? 'var(--faint)' : cividis(crosses);
        const labelX = PAD + node.column * indent + 16 + WIDEST;
        return (
          <g key={node.key}>
            {expected !== undefined && <path d={path} stroke="var(--text)" stroke-width={expected + 3} class="expected" />}
            {expected !== undefined && <path d={path} stroke="var(--panel)" stroke-width={expected + 1} />}
            <path d={path} stroke={colour} stroke-width={w} class={crosses === undefined ? 'flow' : 'flow crosses'} />
            {!dense && <text x={labelX} y={node.y - gap / 2 + 5}>{short(rows)} {rows === 1 ? 'row' : 'rows'}{crosses !== undefined && ` · ${share(crosses)} crosses`}</text>}
          </g>
        );
      })}
    </svg>
  );
}

/** The whole plan in a column; a press or drag scrolls there. */
function Minimap({ shown, lit, hits, range, to }: {
  shown: Layout; lit: (node: PlanNode) => boolean; hits: PlanNode[]; range: Signal<readonly [number, number]>; to: (part: number) => void;
}): JSX.Element {
  const at = (event: PointerEvent) => {
    const box = (event.currentTarget as SVGElement).getBoundingClientRect();
    to((event.clientY - box.top) / box.height);
  };
  const { nodes, height, nodeHeight, columns } = shown;
  const step = 20 / Math.max(columns, 4);
  return (
    <svg
      class="minimap" viewBox={`0 0 46 ${height}`} preserveAspectRatio="none" aria-hidden="true"
      onPointerDown={(event) => {
        (event.currentTarget as SVGElement).setPointerCapture(event.pointerId);
        at(event);
      }}
      onPointerMove={(event) => event.buttons && at(event)}
    >
      {nodes.map((node) => {
        const part = node.rows.reduce((sum, row) => sum + row.share, 0);
        const x = 2 + node.column * step;
        return <rect key={node.key} x={x} y={node.y} width={Math.max(3, (42 - x) * Math.max(0.3, Math.min(1, part * 4)))} height={nodeHeight} class={lit(node) || hits.includes(node) ? 'lit' : part >= 0.05 ? 'hot' : ''} />;
      })}
      <rect class="range" x={0.5} y={range.value[0] * height} width={45} height={Math.max(range.value[1] - range.value[0], 0) * height} />
    </svg>
  );
}
