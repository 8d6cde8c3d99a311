// Builds ../dist from src: the page, its style sheet, its script, and one script for each piece that is loaded when
// it is first shown; all under stable names. `node build.mjs` writes them; SOURCES.sha256 tells the Rust test which
// sources they came from.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, rmSync, writeFileSync, mkdirSync } from 'node:fs';
import { join, dirname, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
const dist = join(here, '..', 'dist');

/** Pieces by name: a module, and its component. web/page/src/assets.rs lists the same names. */
const PIECES = {
  cluster: ['src/pages/cluster.tsx', 'Cluster'],
  communication: ['src/views/communication.tsx', 'Communication'],
  compare: ['src/pages/compare.tsx', 'Compare'],
  home: ['src/pages/home.tsx', 'Home'],
  live: ['src/pages/live.tsx', 'Live'],
  operator: ['src/views/details.tsx', 'Details'],
  records: ['src/views/records.tsx', 'Records'],
  traces: ['src/views/traces.tsx', 'Traces'],
};

/** What several pieces need: it is part of the page's script, which all of them have. */
const COMMON = ['src/pages/alerts.tsx', 'src/pages/progress.tsx', 'src/pages/running.ts', 'src/pages/strip.tsx'];

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
const digest = hash.digest('hex');

const version = digest.slice(0, 12);

/** Builds one script (and style sheet) without writing it. */
async function bundle(entry, options) {
  const result = await build({
    absWorkingDir: here,
    stdin: { contents: entry, resolveDir: here, loader: 'ts' },
    outdir: dist,
    bundle: true,
    minify: true,
    write: false,
    metafile: true,
    format: 'esm',
    target: 'es2022',
    // Calls of h(…) are shorter than those that tsconfig.json asks for.
    tsconfigRaw: { compilerOptions: { jsx: 'react', jsxFactory: 'h', jsxFragmentFactory: 'Fragment', strict: true } },
    inject: ['src/jsx.ts'],
    legalComments: 'none',
    charset: 'utf8',
    loader: { '.css': 'empty' },
    define: { 'process.env.NODE_ENV': '"production"', VERSION: JSON.stringify(version) },
    logLevel: 'warning',
    ...options,
  });
  const text = (ending) => result.outputFiles.find((file) => file.path.endsWith(ending))?.text ?? '';
  return { script: text('.js'), style: text('.css'), modules: Object.keys(result.metafile.inputs) };
}

/** The same on every machine, wherever its packages are. */
const nameOf = (path) => relative(here, path).split('\\').join('/').replace(/^.*?(?=node_modules\/)/, '');

/** A plugin that answers imports of modules: `answer` gets a module's path, and tells where it comes from, if not from its file. */
const resolving = (answer) => ({
  name: 'resolving',
  setup({ onResolve, onLoad, resolve }) {
    onResolve({ filter: /.*/ }, async ({ path, pluginData, ...more }) => {
      if (pluginData === 'asked' || more.kind === 'entry-point') return undefined;
      if (path === 'shared') return { path, namespace: 'made' };
      return answer((await resolve(path, { ...more, pluginData: 'asked' })).path);
    });
    onLoad({ filter: /.*/, namespace: 'made' }, ({ pluginData, path }) => ({ contents: path === 'shared' ? shared() : pluginData, resolveDir: here }));
  },
});

// The page's script with what pieces take from it, by place in a list: the module `shared` of src/piece.tsx.
const PAGE = ['src/main.tsx', ...COMMON].map((path) => `import "./${path}";`).join('\n');
let takes = [];
function shared() {
  const imports = takes.map(({ path, name }, i) => `import { ${name} as s${i} } from ${JSON.stringify(path)};`);
  return `${imports.join('\n')}\nexport const shared = () => [${takes.map((_, i) => `s${i}`)}];`;
}
const plain = resolving(() => undefined);
const { modules } = await bundle(PAGE, { format: 'iife', plugins: [plain] });
const inPage = new Set(modules.filter((path) => /\.(tsx?|m?js)$/.test(path)).map((path) => nameOf(join(here, path))));

/** The script of a piece, where `make` tells the contents of a module that is in the page's script. */
const pieceScript = ([module, component], answer, options) =>
  bundle(`import { ${component} } from "./${module}"; OUT(${component});`, { plugins: [resolving((path) => (inPage.has(nameOf(path)) ? answer(path) : undefined))], ...options });

const taken = new Map();
for (const piece of Object.values(PIECES)) {
  const { script } = await pieceScript(piece, (path) => ({ path: `page:${path}`, external: true }), { minify: false });
  for (const [, names, path] of script.matchAll(/^import \{([^}]*)\} from "page:([^"]*)";$/gm)) {
    for (const item of names.split(',').filter((item) => item.trim())) {
      const name = item.trim().split(' as ')[0];
      taken.set(`${nameOf(path)} ${name}`, { path, name });
    }
  }
}
const order = [...taken.keys()].sort();
takes = order.map((key) => taken.get(key));
const place = new Map(order.map((key, i) => [key, i]));

mkdirSync(dist, { recursive: true });
for (const file of readdirSync(dist)) rmSync(join(dist, file));
const write = (name, text) => writeFileSync(join(dist, name), text);
write('app.js', (await bundle(PAGE, { format: 'iife', plugins: [plain] })).script);
const found = new Map();
for (const [name, piece] of Object.entries(PIECES)) {
  const contents = (path) => order.filter((key) => key.startsWith(`${nameOf(path)} `))
    .map((key) => `export const ${key.split(' ')[1]} = S[${place.get(key)}];`).join('\n');
  const { script, modules } = await pieceScript(piece, (path) => ({ path: nameOf(path), namespace: 'made', pluginData: contents(path), sideEffects: false }));
  // A module script when the page loads it, a plain one within an exported file: it has to be valid as both.
  write(`${name}.js`, `(globalThis.skewer??={})["${name} ${version}"]=(S,OUT)=>{"use strict";${script.trim()}};\n`);
  for (const path of modules) if (/^src\/.*\.tsx?$/.test(path) && path !== 'src/jsx.ts') found.set(path, [...(found.get(path) ?? []), name]);
}
for (const [path, names] of found) if (names.length > 1) console.warn(`${path} is in several pieces: ${names.join(', ')}`);
const all = [PAGE, ...Object.values(PIECES).map(([module]) => `import "./${module}";`)].join('\n');
write('app.css', (await bundle(all, { plugins: [plain], loader: {} })).style);
write('index.html', readFileSync(join(here, 'src', 'index.html')));
write('SOURCES.sha256', `${digest}\n`);
