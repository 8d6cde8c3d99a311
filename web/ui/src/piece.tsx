// Pieces of the page: scripts of their own, loaded when they are first shown. build.mjs makes them.
import { signal } from '@preact/signals';
import type { ComponentType, JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import { shared } from 'shared';
import { source } from './source';

/** What the build gives both sides, so that a piece of another version is not taken for this one's. */
declare const VERSION: string;
declare global {
  /** A piece's script adds a function here, which takes what it needs of this script and gives its component. */
  var skewer: Record<string, (shared: readonly unknown[], out: (component: unknown) => void) => void> | undefined;
}

/** Whether a script was loaded before: browsers keep that an import failed, unless its address is another one. */
const tried = new Map<string, number>();

async function load(name: string): Promise<void> {
  const key = `${name} ${VERSION}`;
  const known = globalThis.skewer?.[key];
  if (known || source.kind === 'file') return;
  const times = tried.get(name) ?? 0;
  tried.set(name, times + 1);
  try {
    await import(`/${name}.js${times ? `?${times}` : ''}`);
  } catch {
    throw new Error('The server does not answer. Is it still running?');
  }
  if (!globalThis.skewer?.[key]) throw new Error('The server has another version now. Load the page again.');
}

/** A component whose script is loaded when it is first shown. `ahead` loads it before. */
export function later<P extends object = object>(name: string): ComponentType<P> & { ahead: () => void } {
  const state = signal<ComponentType<P> | string | undefined>(undefined);
  let waits = false;
  const ahead = () => {
    if (waits || typeof state.peek() === 'function') return;
    waits = true;
    state.value = undefined;
    load(name).then(() => {
      const make = globalThis.skewer?.[`${name} ${VERSION}`];
      if (!make) throw new Error('The exported file does not have this. Open the database to see it.');
      make(shared(), (component) => (state.value = component as ComponentType<P>));
    }).catch((error: Error) => (state.value = error.message)).finally(() => (waits = false));
  };
  const Later = (properties: P): JSX.Element => {
    useEffect(ahead, []);
    const Loaded = state.value;
    if (typeof Loaded === 'function') return <Loaded {...properties} />;
    if (Loaded === undefined) return <p class="message" aria-busy="true">Loading…</p>;
    return <div class="message bad" role="alert"><p>{Loaded}</p><button type="button" onClick={ahead}>Try again</button></div>;
  };
  return Object.assign(Later, { ahead });
}
