// Login by user and password, or by the token in the address that the shell printed.
import { signal, useSignal } from '@preact/signals';
import type { JSX } from 'preact';
import { refresh } from './data';
import { loginListeners, source } from './source';

export const needsLogin = signal(false);

/** Exchanges a token behind `#` for a cookie, and takes it out of the address before anything else is asked. */
export async function startLogin(): Promise<void> {
  loginListeners.push(() => (needsLogin.value = true));
  if (source.kind !== 'server') return;
  const token = /^#token=([\w-]+)$/.exec(location.hash)?.[1];
  if (!token) return;
  history.replaceState(null, '', location.pathname + location.search);
  await source.act('token', { token }).catch(() => (needsLogin.value = true));
}

export function Login(): JSX.Element {
  const user = useSignal('');
  const password = useSignal('');
  const error = useSignal('');
  const waits = useSignal(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    waits.value = true;
    error.value = '';
    try {
      await source.act('login', { user: user.value, password: password.value });
      needsLogin.value = false;
      refresh();
    } catch (failure) {
      error.value = failure instanceof Error ? failure.message : String(failure);
    }
    password.value = '';
    waits.value = false;
  };
  return (
    <form class="login panel" onSubmit={(event) => void submit(event)}>
      <h1>Log in</h1>
      <p class="note">
        Use a user of the database (<code>skewer user add</code>). Without users, open the address that the server
        printed when it started, or the one that <code>.web</code> prints in the shell: it has a token.
      </p>
      <label>User <input name="user" autocomplete="username" required value={user.value} onInput={(event) => (user.value = event.currentTarget.value)} /></label>
      <label>Password <input name="password" type="password" autocomplete="current-password" required value={password.value} onInput={(event) => (password.value = event.currentTarget.value)} /></label>
      {error.value && <p class="message bad" role="alert">{error.value}</p>}
      <button disabled={waits.value}>Log in</button>
    </form>
  );
}
