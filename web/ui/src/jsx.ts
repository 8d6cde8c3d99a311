// What JSX becomes; build.mjs gives it to every module.
export { Fragment, h } from 'preact';
