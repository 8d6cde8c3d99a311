// The links between the nodes as a matrix: round trips or lost packets, by sender and receiver.
import type { JSX } from 'preact';
import { cividis, isLight } from '../colour';
import { useView } from '../data';
import { bytes, count, duration, share, times } from '../format';
import { Choice, Panel } from '../panel';
import { hovered, search, selection, setSearch } from '../state';
import { nameOf } from './strip';

/** A row of the view `links`. */
interface Connection {
  worker_id: number;
  peer_id: number;
  rtt_ns: number;
  min_rtt_ns: number;
  sent_packets: number;
  lost_packets: number;
  loss: number | null;
  congestion_events: number;
  sent_bytes: number;
  received_bytes: number;
}

/** A link that lost less is as good as any. */
const LOSS = 0.001;

export function Links({ total }: { total: number }): JSX.Element {
  const view = useView<Connection>('links', {}, 3000);
  const by = search.value['links'] === 'loss' ? 'loss' : 'rtt';
  const rows = view.rows ?? [];
  const ids = [...new Set(rows.flatMap((row) => [row.worker_id, row.peer_id]))].sort((a, b) => a - b);
  const named = (id: number) => nameOf({ worker_id: id }, total);
  const valueOf = (row: Connection) => (by === 'rtt' ? row.rtt_ns : row.loss ?? 0);
  const values = rows.map(valueOf);
  const [least, most] = [Math.min(...values), Math.max(...values)];
  // Round trips differ by powers of ten: each step of colour is a factor.
  const part = (value: number) => (by === 'loss' ? value / Math.max(most, LOSS) : most > least ? Math.log(value / least) / Math.log(Math.max(most / least, 4)) : 0);
  const { workers } = selection.value;
  return (
    <Panel
      id="links" title="Links" views={[view]} note={<b>{finding(rows, named)}</b>} empty="No node is connected with another."
      tools={<Choice label="Show" value={by} options={[['rtt', 'Round trip'], ['loss', 'Lost packets']]} onChange={(next) => setSearch({ links: next === 'rtt' ? undefined : next })} />}
    >
      <div class="scroll" tabIndex={0} role="region" aria-label="Links, by sender and receiver">
        <table class="links">
          <thead><tr><th scope="col">From, to</th>{ids.map((id) => <th scope="col" key={id}>{named(id)}</th>)}</tr></thead>
          <tbody>
            {ids.map((from) => (
              <tr key={from} class={workers.size > 0 && !workers.has(from) ? 'dim' : ''} onPointerEnter={() => (hovered.value = { worker: from })} onPointerLeave={() => (hovered.value = {})}>
                <th scope="row">{named(from)}</th>
                {ids.map((to) => {
                  const row = rows.find((one) => one.worker_id === from && one.peer_id === to);
                  if (!row) return <td key={to} class="none">{from === to ? '' : '–'}</td>;
                  const amount = part(valueOf(row));
                  return (
                    <td key={to} style={{ background: cividis(amount), color: isLight(amount) ? '#000' : '#fff' }}
                      title={`Round trip ${duration(row.rtt_ns)}, shortest ${duration(row.min_rtt_ns)}; ${count(row.lost_packets)} of ${count(row.sent_packets)} packets lost; congested ${count(row.congestion_events)} times; ${bytes(row.sent_bytes)} sent, ${bytes(row.received_bytes)} received`}>
                      <b>{by === 'rtt' ? duration(row.rtt_ns) : lossOf(row)}</b><small>{by === 'rtt' ? `${lossOf(row)} lost` : `${count(row.lost_packets)} packets`}</small>
                    </td>
                  );
                })}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

const lossOf = ({ loss }: Connection) => (loss === 0 ? '0 %' : share(loss));

function finding(rows: readonly Connection[], named: (id: number) => string): string {
  if (!rows.length) return '';
  const name = (row: Connection) => `from ${named(row.worker_id)} to ${named(row.peer_id)}`;
  const lossy = rows.reduce((worst, row) => ((row.loss ?? 0) > (worst.loss ?? 0) ? row : worst));
  const slow = rows.reduce((worst, row) => (row.rtt_ns > worst.rtt_ns ? row : worst));
  const trips = rows.map((row) => row.rtt_ns).sort((a, b) => a - b);
  const usual = trips[trips.length >> 1]!;
  const said: string[] = [];
  if ((lossy.loss ?? 0) >= LOSS) said.push(`The link ${name(lossy)} lost ${share(lossy.loss)} of its packets.`);
  if (slow.rtt_ns >= 3 * usual && slow.rtt_ns >= 1e6) said.push(`A round trip ${name(slow)} takes ${duration(slow.rtt_ns)}, ${times(slow.rtt_ns / usual)} the median.`);
  return said.join(' ') || `No link stands out: round trips take at most ${duration(slow.rtt_ns)}, and ${lossy.loss ? `at most ${share(lossy.loss)} of the packets` : 'no packets'} were lost.`;
}
