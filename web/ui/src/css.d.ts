declare module '*.css';
declare module 'shared' {
  /** What pieces take from the page's script, in the order that build.mjs gives them. */
  export const shared: () => readonly unknown[];
}
