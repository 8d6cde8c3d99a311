// Where a finding is: selects it and opens the view that shows it best.
import { batch } from '@preact/signals';
import type { Query } from './query';
import { search, selection, setSearch, writeSelection, type Selection } from './state';

export interface Place {
  rule?: string;
  operator_id: number | null;
  fragment_id: number | null;
  partition: number | null;
  worker_id: number | null;
  exchange_id?: number | null;
  table_name?: string | null;
  row_id?: number | bigint | null;
}

function tabOf(place: Place): string {
  if (place.row_id !== null && place.row_id !== undefined || place.rule === 'shuffle latency') return 'records';
  if (place.exchange_id !== null && place.exchange_id !== undefined) return 'communication';
  if (place.rule === 'incomplete profile') return 'overview';
  if (place.operator_id !== null) return 'operator';
  if (place.fragment_id !== null || place.worker_id !== null) return 'overview';
  return search.value['tab'] ?? 'overview';
}

function selectionOf(query: Query, place: Place): Selection {
  const set = (id: number | null) => new Set(id === null ? [] : [id]);
  const operators = place.operator_id === null && place.fragment_id !== null
    ? new Set(query.plan.filter((row) => row.fragment_id === place.fragment_id && !row.is_internal).map((row) => row.operator_id))
    : set(place.operator_id);
  const isRecord = place.table_name && place.row_id !== null && place.row_id !== undefined;
  return {
    operators, workers: set(place.worker_id), partitions: set(place.partition), time: undefined,
    records: new Set(isRecord ? [`${place.table_name}#${place.row_id}`] : []),
  };
}

export function show(query: Query, place: Place): void {
  batch(() => {
    const tab = tabOf(place);
    if (tab !== search.value['tab']) setSearch({ tab });
    selection.value = selectionOf(query, place);
  });
}

/** The path of a place, for links. */
export function pathOf(query: Query, place: Place): string {
  const parts = new URLSearchParams({ tab: tabOf(place), ...writeSelection(selectionOf(query, place)) });
  return `/q/${query.id}?${parts.toString()}`;
}
