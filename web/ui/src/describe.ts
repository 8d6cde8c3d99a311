// What an operator does, in the words of SQL rather than of the physical plan, as the text report says it.
import type { PlanRow } from './query';

export interface Description {
  /** What it is: `Aggregate, partial`. */
  title: string;
  /** What it works on: `count(*) by rating`; may be empty. */
  subject: string;
}

/** Splits at `, ` outside brackets and quotes. */
export function split(text: string): string[] {
  const items: string[] = [];
  let [depth, start, quoted] = [0, 0, false];
  for (let i = 0; i < text.length; i++) {
    const c = text[i]!;
    if (c === '"') quoted = !quoted;
    else if (quoted) continue;
    else if ('([{'.includes(c)) depth++;
    else if (')]}'.includes(c)) depth--;
    else if (c === ',' && depth === 0 && text[i + 1] === ' ') {
      items.push(text.slice(start, i).trim());
      start = i + 1;
    }
  }
  items.push(text.slice(start).trim());
  return items.filter((item) => item);
}

const strip = (text: string, open: string, close: string) => (text.startsWith(open) && text.endsWith(close) ? text.slice(1, -1) : text);

/** An expression without column indices and type names: `split_part(r@0, Utf8("-"))` → `split_part(r, '-')`. */
export function expression(text: string): string {
  return text
    .replace(/([\p{L}\p{N}_)\]"*])@\d+/gu, '$1')
    .replace(/\b(?:LargeUtf8|Utf8View|Utf8)\("([^"]*)"\)/g, "'$1'")
    .replace(/\b(?:LargeUtf8|Utf8View|Utf8|U?Int(?:8|16|32|64)|Float(?:32|64)|Boolean|Date(?:32|64))\(([^)]*)\)/g, '$1')
    .replace(/__unnest_placeholder\(/g, 'unnest(').replace(/,depth=\d+/g, '')
    .replace(/count\(1\)/g, 'count(*)').replace(/ ASC NULLS LAST/g, '').replace(/ DESC NULLS FIRST/g, ' DESC').replace(/ ASC/g, '');
}

/** A list of expressions in brackets, without aliases that repeat them. */
function expressions(list: string): string {
  return split(strip(list, '[', ']')).map((item) => {
    const clean = expression(item);
    const at = clean.indexOf(' as ');
    if (at < 0) return clean;
    const [value, alias] = [clean.slice(0, at), clean.slice(at + 4)];
    return value === alias || /[( ]/.test(alias) ? value : clean;
  }).join(', ');
}

/** `HashJoinExec` → `Hash join` */
function words(name: string): string {
  return name.replace(/Exec$/, '').replace(/(?<=.)\p{Lu}/gu, (c) => ` ${c.toLowerCase()}`);
}

export const tableName = (name: string) => name.replace(/^main\./, '');

export function describe({ name, details, table_name }: Pick<PlanRow, 'name' | 'details' | 'table_name'>): Description {
  const fields = split(details).map((item) => /^([a-z_]+)=(.*)$/s.exec(item)?.slice(1) ?? ['', item]);
  const get = (key: string) => fields.find(([own]) => own === key)?.[1] ?? '';
  const list = (key: string) => expressions(get(key));
  const first = get('fetch') ? `, first ${get('fetch')}` : '';
  const say = (title: string, subject = '') => ({ title, subject });
  switch (name) {
    case 'DataSourceExec': {
      const files = get('file_groups');
      const one = /^\{1 group: \[\[([^,]*)\]\]\}$/.exec(files)?.[1]?.split('/').pop()?.split(':')[0];
      const predicate = expression(get('predicate')).replace(/ AND DynamicFilter \[.*?\]|^DynamicFilter \[.*?\]( AND )?/, '');
      return say(table_name ? `Scan ${tableName(table_name)}` : !files ? 'Scan of memory' : one ? `Scan ${one}` : 'Scan of files',
        [list('projection'), predicate && `where ${predicate}`].filter(Boolean).join(' '));
    }
    case 'ProjectionExec': return say('Projection', list('expr'));
    case 'TimedEvaluationExec': return say('Evaluate', list('expr'));
    case 'FilterExec': return say('Filter', expression(get('')));
    case 'AggregateExec': {
      const mode = get('mode');
      const keys = list('gby');
      return say(`Aggregate${mode === 'Partial' ? ', partial' : mode.startsWith('Final') ? ', final' : ''}`,
        [list('aggr'), keys && `by ${keys}`].filter(Boolean).join(' '));
    }
    case 'RepartitionExec':
    case 'NetworkShuffleExec': {
      const [, kind, inner] = /^(\w+)\((.*)\)$/s.exec(get('partitioning')) ?? [];
      const between = name === 'NetworkShuffleExec';
      const at = inner?.lastIndexOf(', ') ?? -1;
      const how = kind === 'Hash' && at >= 0 ? `hash of ${expressions(inner!.slice(0, at))}` : kind === 'RoundRobinBatch' ? 'round robin' : expression(get('partitioning'));
      const outputs = inner?.slice(at < 0 ? 0 : at + 2);
      return say(between ? 'Exchange between workers' : 'Exchange', between || !kind ? how : `${how}, ${get('input_partitions')} → ${outputs}`);
    }
    case 'NetworkCoalesceExec': return say('Gather from workers', details.replace(/^from /, ''));
    case 'NetworkBroadcastExec': return say('Broadcast to workers', get('consumer_tasks') && `${get('consumer_tasks')} tasks`);
    case 'CoalescePartitionsExec': return say('Merge partitions', first.slice(2));
    case 'SortPreservingMergeExec': return say('Merge sorted', expressions(get('')) + first);
    case 'SortExec':
    case 'SortExec(TopK)': {
      const fetch = /fetch=(\d+)/.exec(details)?.[1];
      return say(fetch ? `Top ${fetch}` : 'Sort', list('expr'));
    }
    case 'GlobalLimitExec':
    case 'LocalLimitExec': {
      const skip = get('skip');
      const fetch = get('fetch');
      return say('Limit', `${!fetch || fetch === 'None' ? 'all' : fetch}${skip && skip !== '0' ? ` after ${skip}` : ''}`);
    }
    case 'HashJoinExec':
    case 'SortMergeJoinExec':
    case 'NestedLoopJoinExec': {
      const kind = get('join_type');
      const on = split(strip(get('on'), '[', ']')).map((pair) => expression(split(strip(pair, '(', ')')).join(' = ')));
      if (get('filter')) on.push(expression(get('filter')));
      return say({ H: 'Hash join', S: 'Sort-merge join', N: 'Nested-loop join' }[name[0]!]!,
        [kind && kind !== 'Inner' ? words(kind).toLowerCase() : '', on.length ? `on ${on.join(' and ')}` : ''].filter(Boolean).join(' '));
    }
    case 'CrossJoinExec': return say('Cross join');
    case 'UnnestExec': return say('Unnest');
    case 'UnionExec':
    case 'InterleaveExec':
    case 'ChildrenIsolatorUnionExec': return say('Union');
    case 'PlaceholderRowExec': return say('One row');
    case 'EmptyExec': return say('No rows');
    case 'RecursiveQueryExec': return say(`Recursive query ${get('name')}`.trim(), get('is_distinct') === 'true' ? 'until no row is new' : 'until a round returns no row');
    case 'WorkTableExec': return say(`Rows of ${get('name')}`, 'of the round before');
    case 'WindowAggExec':
    case 'BoundedWindowAggExec':
      return say('Window', split(strip(get('wdw'), '[', ']')).filter((item) => !item.startsWith('frame: '))
        .map((item) => expression(item.split(': Field {')[0]!.split(/ (?:ROWS|RANGE) BETWEEN/)[0]!)).join(', '));
    default: return say(words(name), expression(details));
  }
}

/** Both in one line. */
export function line(row: Pick<PlanRow, 'name' | 'details' | 'table_name'>): string {
  const { title, subject } = describe(row);
  return subject ? `${title}: ${subject}` : title;
}

export function clipped(text: string, length: number): string {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}
