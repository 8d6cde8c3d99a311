// What is selected, as chips that remove it. Its height stays the same, so that nothing jumps.
import { batch } from '@preact/signals';
import type { JSX } from 'preact';
import { clipped, describe, tableName } from '../describe';
import { duration } from '../format';
import { useQuery } from '../query';
import { clearSelection, hovered, isSelected, select, selection, selectRecords, selectTime } from '../state';
import { NextFinding } from './diagnoses';
import './selection_bar.css';

function Chip({ what, name, remove, over }: { what: string; name: string; remove: () => void; over?: (on: boolean) => void }): JSX.Element {
  return (
    <li onPointerEnter={() => over?.(true)} onPointerLeave={() => over?.(false)}>
      <span class="faint">{what}</span> {name}
      <button type="button" onClick={() => batch(() => { hovered.value = {}; remove(); })} aria-label={`Remove ${what} ${name} from the selection`}>×</button>
    </li>
  );
}

const MANY = 8;

export function SelectionBar(): JSX.Element {
  const query = useQuery();
  const { operators, workers, partitions, time, records } = selection.value;
  return (
    <div class="selection" role="region" aria-label="Selection">
      <NextFinding />
      {!isSelected.value && <span class="faint hint">Nothing is selected: click an operator, a worker or a partition in any view.</span>}
      <ul>
        {operators.size > MANY
          ? <Chip what="operators" name={String(operators.size)} remove={() => (selection.value = { ...selection.value, operators: new Set() })} />
          : [...operators].map((id) => {
            const row = query.byId.get(id);
            return <Chip key={`o${id}`} what={`${id}`} name={row ? clipped(describe(row).title, 32) : 'operator'} remove={() => select('operators', id, true)}
              over={(on) => (hovered.value = on ? { operator: id } : {})} />;
          })}
        {[...workers].map((id) => <Chip key={`w${id}`} what="worker" name={String(id)} remove={() => select('workers', id, true)} />)}
        {partitions.size > MANY
          ? <Chip what="partitions" name={String(partitions.size)} remove={() => (selection.value = { ...selection.value, partitions: new Set() })} />
          : [...partitions].map((id) => <Chip key={`p${id}`} what="partition" name={String(id)} remove={() => select('partitions', id, true)} />)}
        {time && <Chip what="time" name={`${duration(time[0])} – ${duration(time[1])} (${duration(time[1] - time[0])})`} remove={() => selectTime(undefined)} />}
        {records.size > MANY
          ? <Chip what="records" name={String(records.size)} remove={() => selectRecords([])} />
          : [...records].map((record) => <Chip key={`r${record}`} what="row" name={tableName(record).replace(/^(.*)#(\d+)$/, '$2 of $1')} remove={() => selectRecords([...records].filter((other) => other !== record))} />)}
      </ul>
      <button type="button" class="clear" disabled={!isSelected.value} onClick={clearSelection} title="Clear the selection (Esc clears part after part)">Clear</button>
    </div>
  );
}
