// What tells dear records apart: each column's values by latency, against all records.
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { signal } from '@preact/signals';
import { cividis, isLight } from '../../colour';
import { useView, type View } from '../../data';
import { count, duration, plural, share } from '../../format';
import { Panel } from '../../panel';
import { bounds, startOf, tableName, type Scope, type Tail } from './scope';

interface Column {
  column_name: string;
  data_type: string;
}

interface Part {
  /** An octave of latency; null is the whole range. */
  bin: number | null;
  records: number;
  distance: number;
  value: string | null;
  low: number | null;
  high: number | null;
  by_length: boolean;
  share: number;
  share_of_all: number;
}

const MOST = 12;
/** Fewer records differ from all by chance. */
const FEW = 20;

const READABLE = /^(Int|UInt|Float|Decimal|Utf8|LargeUtf8|Boolean)/;

const number = (value: number | null) => (value === null ? '' : Number(value.toPrecision(4)).toLocaleString('en'));

/** Which values: `kind = 'pdf'`, `length(body) 399 to 47,397`. */
function words(name: string, part: Part): string {
  if (part.low !== null) return `${part.by_length ? `length(${name})` : name} ${number(part.low)} to ${number(part.high)}`;
  return part.value === null ? `${name} is NULL` : `${name} = '${part.value.length > 30 ? `${part.value.slice(0, 30)}…` : part.value}'`;
}

const found = signal<Record<string, Part | undefined>>({});

export function Columns({ scope: asked, tail }: { scope: Scope; tail: Tail | undefined }): JSX.Element | null {
  // Without a range, the tail is compared.
  const byTail = asked.low === undefined && asked.high === undefined && tail !== undefined;
  const scope = byTail ? { ...asked, low: startOf(tail.from) } : asked;
  const where = byTail ? 'tail' : 'range';
  const columns = useView<Column>('table_column', { table_name: scope.source });
  const readable = columns.rows?.filter((row) => READABLE.test(row.data_type)).slice(0, MOST) ?? [];
  const ranged = scope.low !== undefined || scope.high !== undefined;
  const best = readable.map((row) => [row.column_name, found.value[`${scope.source} ${row.column_name}`]] as const)
    .filter((pair): pair is [string, Part] => pair[1] !== undefined).sort((a, b) => b[1].distance - a[1].distance)[0];
  const sentence = !ranged || !best ? 'Select a range of latencies to see what tells its records apart.'
    : best[1].records < FEW ? `The ${where} has ${plural(best[1].records, 'record')}: too few to compare. Look at the rows above.`
      : best[1].distance >= 0.3 ? `Most telling: ${words(...best)}: ${share(best[1].share)} of the ${plural(best[1].records, 'record')} of the ${where}, ${share(best[1].share_of_all)} of all.`
        : `No column tells the records of the ${where} apart.`;
  return (
    <Panel id="record-columns" title="What tells them apart" views={[columns]} note={<span aria-live="polite">{sentence}</span>}
      empty={<p>The columns of {tableName(scope.source)} are unknown: the table is no longer here, or it is a file.</p>}>
      <div class="cells" role="table" aria-label={`Columns of ${tableName(scope.source)} by latency`}>
        {readable.map((row) => <Line key={row.column_name} name={row.column_name} scope={scope} ranged={ranged} />)}
      </div>
      <p class="faint legend">
        <span>as in all records</span>{[0, 0.25, 0.5, 0.75, 1].map((at) => <i key={at} style={{ background: cividis(at) }} />)}<span>values that are rare elsewhere</span>
        <i class="few" /><span>fewer than {FEW} records</span>
      </p>
    </Panel>
  );
}

function Line({ name, scope, ranged }: { name: string; scope: Scope; ranged: boolean }): JSX.Element {
  const view: View<Part> = useView<Part>('record_column', { query_id: scope.query.id, table_name: scope.source, table: scope.source, column: name, ...bounds(scope) });
  const range = view.rows?.find((row) => row.bin === null);
  useEffect(() => {
    found.value = { ...found.value, [`${scope.source} ${name}`]: range };
  }, [range]);
  const cells = view.rows?.filter((row) => row.bin !== null) ?? [];
  const least = cells[0]?.bin ?? 0;
  const most = cells[cells.length - 1]?.bin ?? 0;
  return (
    <div role="row" class="line" aria-busy={view.loading && !view.rows}>
      <span role="rowheader" class="name" title={name}>{name}</span>
      <span class="octaves" role="cell">
        {view.error ? <span class="faint">{view.error.slice(0, 80)}</span> : Array.from({ length: most - least + 1 }, (_, i) => {
          const cell = cells.find((row) => row.bin === least + i);
          const inside = !ranged || ((scope.low ?? 0) < 2 ** (least + i + 1) && (scope.high ?? Infinity) > 2 ** (least + i));
          const text = cell && `${duration(2 ** (least + i))} to ${duration(2 ** (least + i + 1))}, ${plural(cell.records, 'record')}: ${words(name, cell)} in ${share(cell.share)}, of all ${share(cell.share_of_all)}`;
          return <i key={i} title={text} class={`${cell ? '' : 'none'} ${cell && cell.records < FEW ? 'few' : ''} ${inside ? '' : 'dim'}`}
            style={cell && cell.records >= FEW ? { background: cividis(cell.distance), color: isLight(cell.distance) ? '#000' : '#fff' } : {}}><span class="visually-hidden">{text}</span></i>;
        })}
      </span>
      <span role="cell" class="words">{ranged && range ? <>{words(name, range)}: <b>{share(range.share)}</b> <span class="faint">of all {share(range.share_of_all)}</span></> : <span class="faint">{duration(2 ** least)} to {duration(2 ** (most + 1))}, {count(cells.reduce((sum, cell) => sum + cell.records, 0))} records</span>}</span>
    </div>
  );
}
