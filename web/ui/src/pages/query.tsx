// The page of one query: verdict, split of its time, plan at the left, views at the right.
import type { JSX } from 'preact';
import { useMemo } from 'preact/hooks';
import { useView } from '../data';
import { useKeys } from '../keys';
import { makeQuery, QueryContext, type PlanRow, type QueryInfo } from '../query';
import { later } from '../piece';
import { go, search, setSearch } from '../state';
import { Diagnoses } from '../views/diagnoses';
import { Overview } from '../views/overview';
import { Plan } from '../views/plan';
import { SelectionBar } from '../views/selection_bar';
import { Summary } from '../views/summary';

const Communication = later('communication');
const Details = later('operator');
const Records = later('records');
const Traces = later('traces');

const TABS = [
  ['overview', 'Overview', Overview],
  ['communication', 'Communication', Communication],
  ['traces', 'Traces', Traces],
  ['records', 'Records', Records],
  ['diagnoses', 'Diagnoses', Diagnoses],
  ['operator', 'Operator', Details],
] as const;

export function QueryPage({ id, records }: { id: number; records: boolean }): JSX.Element {
  const info = useView<QueryInfo>('query', { query_id: id });
  const plan = useView<PlanRow>('plan', { query_id: id });
  const query = useMemo(
    () => (info.rows?.[0] && plan.rows ? makeQuery(info.rows[0], plan.rows) : undefined),
    [info.rows, plan.rows],
  );
  const tab = TABS.find(([name]) => name === search.value['tab']) ?? (records ? TABS[3] : TABS[0]);
  const show = (name: string) => setSearch({ tab: name });
  useKeys([
    ...TABS.map(([name, text], i) => ({ key: String(i + 1), does: `Show ${text}`, run: () => show(name) })),
    { key: 'c', does: 'Compare with the run before this one', run: () => {
      const previous = info.rows?.[0]?.previous_query_id;
      if (previous) go(`/q/${id}?cmp=${previous}`);
    } },
  ], id, info.rows);
  if (info.error || plan.error) return <p class="message bad" role="alert">{info.error ?? plan.error}</p>;
  if (info.rows?.length === 0) return <p class="message">There is no query {id}. It never ran, or profile.retention_age or profile.retention_bytes removed it.</p>;
  if (!query) return <p class="message" aria-busy="true">Loading…</p>;
  const View = tab[2];
  return (
    <QueryContext.Provider value={query}>
      <Summary />
      <SelectionBar />
      <div class="query">
        <Plan />
        <div class="right">
          <div class="tabs" role="tablist" aria-label="Views">
            {TABS.map(([name, text, View], i) => (
              <button
                key={name} type="button" role="tab" id={`tab-${name}`} aria-selected={name === tab[0]} aria-controls="view"
                tabIndex={name === tab[0] ? 0 : -1} title={`Key ${i + 1}`} onClick={() => show(name)} onPointerEnter={'ahead' in View ? View.ahead : undefined}
                onKeyDown={(event) => {
                  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
                  if (!step) return;
                  const next = TABS[(i + step + TABS.length) % TABS.length]![0];
                  show(next);
                  document.getElementById(`tab-${next}`)?.focus();
                }}
              >{text}</button>
            ))}
          </div>
          <div id="view" role="tabpanel" aria-labelledby={`tab-${tab[0]}`}><View /></div>
        </div>
      </div>
    </QueryContext.Provider>
  );
}
