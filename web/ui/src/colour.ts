// Colours. Amounts: cividis, which reads the same in grey and for colour-blind eyes. Categories: Okabe and
// Ito's eight. Both are light enough on dark ground and dark enough on light ground with an outline.
import { signal } from '@preact/signals';

/** Cividis at 0, 1/8 … 1 (Nuñez, Anderton, Renslow 2018). */
const CIVIDIS: readonly (readonly [number, number, number])[] = [
  [0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 92, 109], [112, 113, 115], [138, 134, 120], [165, 156, 116], [195, 179, 105], [254, 232, 56],
];

export function cividis(amount: number): string {
  const at = Math.min(Math.max(amount, 0), 1) * (CIVIDIS.length - 1);
  const low = Math.min(Math.floor(at), CIVIDIS.length - 2);
  const mix = [0, 1, 2].map((i) => Math.round(CIVIDIS[low]![i]! + (at - low) * (CIVIDIS[low + 1]![i]! - CIVIDIS[low]![i]!)));
  return `rgb(${mix.join(' ')})`;
}

/** Whether dark text reads better on this amount's colour. */
export function isLight(amount: number): boolean {
  return amount > 0.55;
}

const OKABE_ITO = ['#0072b2', '#e69f00', '#009e73', '#cc79a7', '#56b4e9', '#d55e00', '#f0e442', '#999999'];

/** The colour of the n-th category, from 0. From the ninth on they repeat: add a pattern or a label. */
export function category(n: number): string {
  return OKABE_ITO[n % OKABE_ITO.length]!;
}

export type Theme = 'light' | 'dark';
const wished = matchMedia('(prefers-color-scheme: dark)');
export const theme = signal<Theme>('light');

export function setTheme(next: Theme | undefined): void {
  try {
    if (next) localStorage.setItem('theme', next);
    else localStorage.removeItem('theme');
  } catch { /* Storage may be off: the choice then lasts as long as the page. */ }
  theme.value = next ?? (wished.matches ? 'dark' : 'light');
  document.documentElement.dataset['theme'] = theme.value;
}

export function startTheme(): void {
  let stored: string | null = null;
  try { stored = localStorage.getItem('theme'); } catch { /* as above */ }
  setTheme(stored === 'dark' || stored === 'light' ? stored : undefined);
  wished.addEventListener('change', () => {
    let kept: string | null = null;
    try { kept = localStorage.getItem('theme'); } catch { /* as above */ }
    if (!kept) setTheme(undefined);
  });
}

/** The colours that canvases need, from the style sheet's variables. */
export interface Ink {
  text: string;
  faint: string;
  line: string;
  ground: string;
  panel: string;
  accent: string;
  warn: string;
  bad: string;
}

export function ink(): Ink {
  const style = getComputedStyle(document.documentElement);
  const read = (name: string) => style.getPropertyValue(`--${name}`).trim();
  return {
    text: read('text'), faint: read('faint'), line: read('line'), ground: read('ground'), panel: read('panel'),
    accent: read('accent'), warn: read('warn'), bad: read('bad'),
  };
}
