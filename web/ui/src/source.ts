// Where views come from: the server that sent the page, or an exported file that has them inside.
import type { Params } from './data';

export interface Source {
  /** `file` has one query and no server: nothing can be cancelled, verified or asked for anew. */
  readonly kind: 'server' | 'file';
  /** An Arrow IPC stream with the rows of a view. */
  view(name: string, params: Params): Promise<Uint8Array>;
  /** The SQL of a view, with literals for its parameters. */
  sql(name: string, params: Params): Promise<string>;
  /** Asks the server to do something. Resolves to its answer; rejects with its message. */
  act(action: string, body: unknown): Promise<unknown>;
  /** The query that an exported file shows. */
  readonly query?: number;
}

/** The server asks for a login. */
export class LoginNeeded extends Error {}

function search(params: Params): string {
  return new URLSearchParams(Object.entries(params).map(([key, value]) => [key, String(value)])).toString();
}

async function failure(response: Response): Promise<Error> {
  const text = (await response.text()).trim();
  if (response.status === 401) return new LoginNeeded(text || 'log in first');
  return new Error(text || `the server answered ${response.status}`);
}

/** Is called when the server wants a login; the page then shows the form. */
export const loginListeners: (() => void)[] = [];

async function checked(request: Promise<Response>): Promise<Response> {
  let response: Response;
  try {
    response = await request;
  } catch {
    throw new Error('The server does not answer. Is it still running?');
  }
  if (response.ok) return response;
  const error = await failure(response);
  if (error instanceof LoginNeeded) loginListeners.forEach((listener) => listener());
  throw error;
}

class Server implements Source {
  readonly kind = 'server';
  async view(name: string, params: Params): Promise<Uint8Array> {
    const response = await checked(fetch(`/api/view/${name}?${search(params)}`));
    return new Uint8Array(await response.arrayBuffer());
  }
  async sql(name: string, params: Params): Promise<string> {
    return (await checked(fetch(`/api/sql/${name}?${search(params)}`))).text();
  }
  async act(action: string, body: unknown): Promise<unknown> {
    const response = await checked(fetch(`/api/${action}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', 'x-skewer': '1' },
      body: JSON.stringify(body),
    }));
    const text = await response.text();
    return text ? JSON.parse(text) : undefined;
  }
}

/** What EXPORT PROFILE writes into the page. */
interface Exported {
  query: number;
  views: { name: string; params: Record<string, string>; sql: string; arrow: string }[];
}

/** Parameters that say how much to show, not what: a file has each view once, of the whole time. */
const WINDOW = new Set(['lo', 'hi', 'px', 'limit', 'level']);

class File implements Source {
  readonly kind = 'file';
  readonly query: number;
  constructor(private readonly exported: Exported) {
    this.query = exported.query;
  }
  private find(name: string, params: Params): Exported['views'][number] {
    const found = this.exported.views.find((view) => view.name === name
      && Object.entries(params).every(([key, value]) => WINDOW.has(key) || view.params[key] === undefined || view.params[key] === String(value)));
    if (!found) throw new Error('The exported file does not have this. Open the database to see it.');
    return found;
  }
  async view(name: string, params: Params): Promise<Uint8Array> {
    return Uint8Array.from(atob(this.find(name, params).arrow), (c) => c.charCodeAt(0));
  }
  async sql(name: string, params: Params): Promise<string> {
    return this.find(name, params).sql;
  }
  async act(): Promise<unknown> {
    throw new Error('This is an exported file. Open the database to do that.');
  }
}

const exported = document.getElementById('export')?.textContent;
export const source: Source = exported ? new File(JSON.parse(exported) as Exported) : new Server();
