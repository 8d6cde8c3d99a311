// The page: header, routes, keys, login.
import './app.css';
import { signal } from '@preact/signals';
import { Component, render, type ComponentChildren, type JSX } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { setTheme, startTheme, theme } from './colour';
import { refresh } from './data';
import { activeKeys, helpIsOpen, startKeys, useKeys } from './keys';
import { Login, needsLogin, startLogin } from './login';
import { Link, panelKeys } from './panel';
import { QueryPage } from './pages/query';
import { later } from './piece';
import { source } from './source';
import { clearInnermost, go, path, search, startState } from './state';

export const announcement = signal('');

const Cluster = later('cluster');
const Compare = later<{ query: number; other: number }>('compare');
const Home = later('home');
const Live = later('live');

function Page(): JSX.Element {
  const query = /^\/q\/(\d+)(\/records)?$/.exec(path.value);
  if (query) {
    const id = Number(query[1]);
    const other = search.value['cmp'];
    if (other && /^\d+$/.test(other)) return <Compare key={`${id}-${other}`} query={id} other={Number(other)} />;
    return <QueryPage key={id} id={id} records={query[2] !== undefined} />;
  }
  if (path.value === '/cluster') return <Cluster />;
  if (path.value === '/live') return <Live />;
  if (path.value === '/') return <Home />;
  return <p class="message">There is no page {path.value}. <Link to="/">All statements</Link></p>;
}

function Header(): JSX.Element {
  const pages = [['/', 'Statements', 'g q'], ['/live', 'Live', 'g l'], ['/cluster', 'Cluster', 'g c']] as const;
  return (
    <header class="top">
      <a class="skip" href="#main">Skip to content</a>
      <Link to="/" class="brand">Skewer</Link>
      {source.kind === 'server' && <nav aria-label="Pages">
        {pages.map(([to, text, key]) => (
          <a key={to} href={to} data-to={to} title={`Key ${key}`} aria-current={path.value === to ? 'page' : undefined}>{text}</a>
        ))}
      </nav>}
      {source.kind === 'file' && <span class="faint">exported profile of query {source.query}</span>}
      <span class="grow" />
      {source.kind === 'server' && <button type="button" onClick={refresh} title="Ask for everything again (r)">Refresh</button>}
      <button type="button" onClick={() => setTheme(theme.value === 'dark' ? 'light' : 'dark')} title="Switch colours">{theme.value === 'dark' ? 'Light' : 'Dark'}</button>
      <button type="button" onClick={() => (helpIsOpen.value = true)} title="Keys (?)">Keys</button>
    </header>
  );
}

function Help(): JSX.Element | null {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (helpIsOpen.value) dialog.current?.showModal();
    else dialog.current?.close();
  }, [helpIsOpen.value]);
  return (
    <dialog ref={dialog} aria-label="Keys" onClose={() => (helpIsOpen.value = false)}>
      <h2>Keys</h2>
      <dl class="keys">{activeKeys().map((key) => <div key={key.key}><dt>{key.key.split(' ').map((k) => <kbd key={k}>{k === ' ' ? 'Space' : k}</kbd>)}</dt><dd>{key.does}</dd></div>)}</dl>
      <form method="dialog"><button>Close</button></form>
    </dialog>
  );
}

/** A fault of one page must not blank the others. */
class Guard extends Component<{ children: ComponentChildren }, { error?: Error }> {
  override state: { error?: Error } = {};
  static getDerivedStateFromError(error: Error) {
    return { error };
  }
  render() {
    const { error } = this.state;
    if (!error) return this.props.children;
    return (
      <div class="message bad" role="alert">
        <p>This page failed: {error.message}</p>
        <button type="button" onClick={() => this.setState({ error: undefined as never })}>Try again</button>
      </div>
    );
  }
}

const pageKeys = [
  { key: '?', does: 'Show these keys', run: () => { helpIsOpen.value = true; } },
  { key: 'Escape', does: 'Clear the innermost part of the selection', run: () => { clearInnermost(); } },
  { key: 'g q', does: 'Go to the statements', run: () => go('/') },
  { key: 'g c', does: 'Go to the cluster', run: () => go('/cluster') },
  { key: 'g l', does: 'Go to what runs now', run: () => go('/live') },
  { key: 'r', does: 'Ask for everything again', run: refresh },
  { key: '/', does: 'Search', run: () => { document.querySelector<HTMLInputElement>('input[type=search]')?.focus(); } },
  ...panelKeys,
].filter((key) => source.kind === 'server' || !/^g |^r$/.test(key.key));

function App(): JSX.Element {
  useKeys(pageKeys);
  // Links with a path of this page do not load anything.
  useEffect(() => {
    const click = (event: MouseEvent) => {
      const link = (event.target as HTMLElement).closest<HTMLAnchorElement>('a[data-to]');
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
      event.preventDefault();
      go(link.dataset['to']!);
    };
    addEventListener('click', click);
    return () => removeEventListener('click', click);
  }, []);
  return (
    <>
      <Header />
      <main id="main" tabIndex={-1}>{needsLogin.value ? <Login /> : <Guard key={path.value}><Page /></Guard>}</main>
      <p class="visually-hidden" aria-live="polite">{announcement.value}</p>
      <Help />
    </>
  );
}

startTheme();
startState();
startKeys();
void startLogin().then(() => render(<App />, document.getElementById('app')!));
