// Builds ../dist from src: one script, one style sheet, one page, under stable names.
// `node build.mjs` writes them; SOURCES.sha256 tells the Rust test which sources they came from.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync, mkdirSync } from 'node:fs';
import { join, dirname, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const dist = join(here, '..', 'dist');
mkdirSync(dist, { recursive: true });

await build({
  absWorkingDir: here,
  entryPoints: { app: 'src/main.tsx' },
  outdir: dist,
  bundle: true,
  minify: true,
  format: 'iife',
  target: 'es2022',
  jsx: 'automatic',
  jsxImportSource: 'preact',
  legalComments: 'none',
  charset: 'utf8',
  define: { 'process.env.NODE_ENV': '"production"' },
  logLevel: 'warning',
});
writeFileSync(join(dist, 'index.html'), readFileSync(join(here, 'src', 'index.html')));

/** Every file that decides what the build makes, in byte order of its path. */
function sources(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    return entry.isDirectory() ? sources(path) : [path];
  });
}
const files = [...sources(join(here, 'src')), ...['build.mjs', 'package.json', 'package-lock.json', 'tsconfig.json'].map((name) => join(here, name))]
  .map((path) => relative(here, path).split('\\').join('/'))
  .sort((a, b) => (a < b ? -1 : 1));
const hash = createHash('sha256');
for (const file of files) {
  const bytes = readFileSync(join(here, file));
  hash.update(`${file}\n${bytes.length}\n`);
  hash.update(bytes);
}
writeFileSync(join(dist, 'SOURCES.sha256'), `${hash.digest('hex')}\n`);
