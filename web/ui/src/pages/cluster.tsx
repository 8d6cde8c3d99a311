// The nodes: alerts, how the workers are, which differs from the others, readings over time, and the links between them.
import type { JSX } from 'preact';
import { bytes, duration, plural, share, times } from '../format';
import { useView } from '../data';
import { Choice, Panel } from '../panel';
import { hovered, search, select, selection, setSearch } from '../state';
import { Alerts, useAlerts } from './alerts';
import { Links } from './links';
import { newest, NodeReadings, useReadings } from './node_readings';
import { State } from './progress';
import { ago, ON_OPENING } from './running';
import { nameOf, useWorkers, type Worker } from './strip';
import './cluster.css';

interface Node {
  worker_id: number;
  name: string;
  state: string;
  reason: string | null;
  version: string;
  segments: number;
  rows: number;
  bytes: number;
  since_ns: number;
  heartbeat_ns: number;
}

interface Part {
  query_id: number;
  worker_id: number;
  self_ns: number;
  rows: number;
  share: number;
  work_ratio: number;
  rows_ratio: number;
  row_time_ratio: number;
}

interface Score {
  worker_id: number;
  queries: number;
  self_ns: number;
  share: number;
  work_ratio: number;
  rows_ratio: number;
  row_time_ratio: number;
  work_z: number;
  rows_z: number;
  row_time_z: number;
}

const COUNTS = [['10', '10 queries'], ['30', '30 queries'], ['100', '100 queries']] as const;

export function Cluster(): JSX.Element {
  const queries = Number(search.value['n'] ?? 10);
  const workers = useWorkers();
  const isCluster = (workers.rows?.length ?? 0) > 1;
  // Workers within one process are in no list of nodes.
  const hasNodes = isCluster && workers.rows?.some((worker) => worker.worker_id > 0 && worker.address !== 'in process');
  const nodes = useView<Node>('cluster_nodes', hasNodes ? {} : undefined, 3000);
  const scores = useView<Score>('worker_scores', isCluster ? { queries } : undefined, ON_OPENING);
  const parts = useView<Part>('worker_queries', isCluster ? { queries } : undefined, ON_OPENING);
  const alerts = useAlerts();
  const readings = useReadings();
  // What a node read last is newer than what it read while a query ran.
  const all = (workers.rows ?? []).map((worker) => {
    const [cpu, memory, cores] = ['cpu_share', 'rss_bytes', 'effective_cores'].map((metric) => newest(readings, worker.worker_id, metric));
    if (!cpu || !memory) return worker;
    const most = cores?.high ?? worker.cores;
    return { ...worker, cpu_share: Math.min(cpu.mean, most ?? Infinity), cores: most, rss_bytes: memory.mean, read_ago_ns: Math.max(-memory.at_ns, 0) };
  });
  const lost = all.filter((worker) => worker.state === 'lost');
  return (
    <>
      <h1 class="visually-hidden">Cluster</h1>
      <Panel id="alerts" title="Alerts" views={[alerts]} empty="No alert: every reading of the last minutes is within its threshold.">
        <Alerts alerts={alerts.rows ?? []} />
      </Panel>
      <Panel
        id="workers" class="workers" title={isCluster ? 'Workers' : 'Process'} views={[workers, ...(hasNodes ? [nodes] : []), ...(isCluster ? [scores, parts] : [])]}
        tools={<Choice label="Newest queries" value={String(queries)} options={COUNTS as readonly (readonly [string, string])[]} onChange={(n) => setSearch({ n: n === '10' ? undefined : n })} />}
        note={lost.length ? <span class="bad">{lost.map((worker) => nameOf(worker, all.length)).join(', ')}: lost. What it recorded is missing.</span> : isCluster ? verdict(scores.rows ?? [], queries) : 'There are no workers: this process runs all queries by itself.'}
      >
        <WorkerTable workers={all} nodes={nodes.rows ?? []} scores={scores.rows ?? []} parts={parts.rows ?? []} isCluster={isCluster} />
      </Panel>
      <NodeReadings view={readings} total={all.length} />
      {isCluster && <Links total={all.length} />}
    </>
  );
}

const WORST = 3.5;

/** What is odd about a worker, and how odd: rows and time per row tell the data from the machine. */
function judge(score: Score): { z: number; text: string; odd: boolean } {
  const far = (z: number, ratio: number) => Math.abs(z) >= WORST && (ratio >= 1.2 || ratio <= 1 / 1.2);
  const texts: string[] = [];
  if (far(score.row_time_z, score.row_time_ratio)) texts.push(score.row_time_ratio > 1 ? `takes ${times(score.row_time_ratio)} the time per row (a slower or busier machine, or dearer rows)` : `takes ${times(score.row_time_ratio)} the time per row`);
  if (far(score.rows_z, score.rows_ratio)) texts.push(score.rows_ratio > 1 ? `gets ${times(score.rows_ratio)} the rows (the data is uneven)` : `gets ${times(score.rows_ratio)} the rows`);
  if (!texts.length && far(score.work_z, score.work_ratio)) texts.push(`works ${times(score.work_ratio)} as long as the others`);
  const z = [score.row_time_z, score.rows_z, score.work_z].reduce((most, one) => (Math.abs(one) > Math.abs(most) ? one : most), 0);
  if (score.queries < 3) return { z, text: 'too few queries to compare', odd: false };
  return { z: texts.length ? z : 0, text: texts.join(' and ') || 'as the others', odd: texts.length > 0 };
}

function verdict(scores: Score[], queries: number): string {
  const judged = scores.map((score) => ({ score, ...judge(score) })).filter((one) => one.odd).sort((a, b) => Math.abs(b.z) - Math.abs(a.z));
  const worst = judged[0];
  if (worst) return `Worker ${worst.score.worker_id} ${worst.text}, in the median of ${plural(worst.score.queries, 'query', 'queries')}.`;
  const used = scores[0]?.queries ?? 0;
  return used ? `No worker differs from the others, over ${plural(used, 'query', 'queries')} of the newest ${queries}.` : 'No query of several workers is among the newest: nothing can be compared.';
}

function WorkerTable({ workers, nodes, scores, parts, isCluster }: { workers: Worker[]; nodes: Node[]; scores: Score[]; parts: Part[]; isCluster: boolean }): JSX.Element {
  const most = Math.max(...scores.map((score) => score.share), 0.01);
  return (
    <div class="scroll">
      <table class="plain">
        <thead><tr>
          <th scope="col">Worker</th><th scope="col">State</th><th scope="col" class="number">Clock ahead</th><th scope="col" class="number">Cores busy</th><th scope="col" class="number">Memory</th>
          {isCluster && <><th scope="col" class="number">Stored</th><th scope="col">Share of the work</th><th scope="col">Time per row</th><th scope="col">Against the others</th></>}
        </tr></thead>
        <tbody>
          {workers.map((worker) => {
            const id = worker.worker_id;
            const node = nodes.find((one) => one.worker_id === id);
            const score = scores.find((one) => one.worker_id === id);
            const judged = score && judge(score);
            const dim = selection.value.workers.size > 0 && !selection.value.workers.has(id);
            return (
              <tr key={id} class={dim ? 'dim' : ''} onPointerEnter={() => (hovered.value = { worker: id })} onPointerLeave={() => (hovered.value = {})}>
                <th scope="row"><button type="button" aria-pressed={selection.value.workers.has(id)} onClick={(event) => select('workers', id, event.shiftKey || event.ctrlKey)}>{nameOf(worker, workers.length)}</button><small title={node && `${node.name}, version ${node.version}, ${node.state} for ${duration(node.since_ns)}`}>{worker.address}</small></th>
                <td class="text"><State state={node?.state ?? worker.state} />{node?.reason && <span class="bad"> {node.reason}</span>}</td>
                <td>{id === 0 ? '0' : <>{duration(worker.clock_offset_ns)}<small>± {duration(worker.clock_error_ns)}</small></>}</td>
                <td>{worker.cpu_share === null ? '–' : worker.cpu_share.toFixed(2)}{worker.cores !== null && ` of ${Number(worker.cores.toFixed(2))}`}<small>{ago(worker.read_ago_ns)}</small></td>
                <td>{bytes(worker.rss_bytes && Math.round(worker.rss_bytes))}<small>{ago(worker.read_ago_ns)}</small></td>
                {isCluster && <>
                  <td>{node ? <>{plural(node.rows, 'row')}<small>{bytes(node.bytes)}</small></> : '–'}</td>
                  <td class="text">{score ? <span class="part"><span class="track"><span style={{ width: `${((score.share / most) * 100).toFixed(1)}%` }} /></span>{share(score.share)}</span> : <span class="faint">{id === 0 ? 'not compared' : '–'}</span>}</td>
                  <td class="text">{score && <Strips of={parts.filter((part) => part.worker_id === id)} middle={score.row_time_ratio} />}</td>
                  <td class="text judged">{judged ? <><span class={judged.odd ? 'badge bad' : 'badge'}><span aria-hidden="true">{!judged.odd ? '✓ ' : judged.z > 0 ? '▲ ' : '▼ '}</span>{judged.odd ? `z ${Math.abs(judged.z).toFixed(1)}` : 'usual'}</span> {judged.text}</> : ''}</td>
                </>}
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

const PLOT = 132;

/** One mark per query on a log axis from a quarter to four times; the long mark is the median. */
function Strips({ of, middle }: { of: Part[]; middle: number }): JSX.Element {
  const x = (ratio: number) => PLOT / 2 + (Math.min(Math.max(Math.log2(ratio || 1), -2), 2) / 4) * (PLOT - 12);
  return (
    <svg class="strips" width={PLOT} height={24} role="img" aria-label={`Median ${times(middle)} over ${plural(of.length, 'query', 'queries')}`}>
      <path class="axis" d={[0.5, 1, 2].map((ratio) => `M${x(ratio)} 2V17`).join('')} />
      <path class="one" d={of.map((part) => `M${x(part.row_time_ratio).toFixed(1)} 6V14`).join('')} />
      <path class="median" d={`M${x(middle).toFixed(1)} 2V18`} />
      {[0.5, 1, 2].map((ratio) => <text key={ratio} x={x(ratio)} y={23.5}>{ratio === 0.5 ? '½' : ratio} ×</text>)}
    </svg>
  );
}
