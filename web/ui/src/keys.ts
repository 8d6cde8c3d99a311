// Keys of the page. Every key is also a button; `?` lists all that act now.
import { useEffect } from 'preact/hooks';
import { signal } from '@preact/signals';

export interface Key {
  /** As `KeyboardEvent.key`, or two keys one after the other: `g q`. */
  key: string;
  does: string;
  run: (event: KeyboardEvent) => void;
}

/** Later sets come first: an open view's keys before the page's. */
const sets = signal<readonly (readonly Key[])[]>([]);
export const helpIsOpen = signal(false);

export function activeKeys(): Key[] {
  const seen = new Set<string>();
  return [...sets.value].reverse().flat().filter((key) => !seen.has(key.key) && seen.add(key.key));
}

/** Adds keys while a component is shown. `keys` may close over the newest state. */
export function useKeys(keys: readonly Key[], ...when: unknown[]): void {
  useEffect(() => {
    sets.value = [...sets.value, keys];
    return () => {
      sets.value = sets.value.filter((other) => other !== keys);
    };
  }, when);
}

let prefix = '';
let prefixAt = 0;

export function startKeys(): void {
  addEventListener('keydown', (event) => {
    const target = event.target as HTMLElement;
    // An open dialog has the keys: Escape closes it.
    if (document.querySelector('dialog[open]')) return;
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (target.matches('input, textarea, select, [contenteditable]') && event.key !== 'Escape') return;
    const keys = activeKeys();
    const pair = Date.now() - prefixAt < 1500 ? `${prefix} ${event.key}` : '';
    const found = keys.find((key) => key.key === pair) ?? keys.find((key) => key.key === event.key);
    if (found) {
      prefix = '';
      event.preventDefault();
      found.run(event);
    } else if (event.key.length === 1) {
      prefix = event.key;
      prefixAt = Date.now();
    }
  });
}
