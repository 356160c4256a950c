// Bundle lib/ into the folder that the Python package includes. The list of packages that
// JupyterLab shares with extensions comes from the installed JupyterLab.
import { execFileSync } from 'node:child_process';
import { dirname, join } from 'node:path';

const python = process.env.PYTHON ?? 'python';
const jupyterlab = execFileSync(
  python,
  ['-c', 'import importlib.util as u; print(u.find_spec("jupyterlab").origin)'],
  { encoding: 'utf8' }
).trim();
const builder = join('node_modules', '.bin', 'build-labextension');
const core = join(dirname(jupyterlab), 'staging');
execFileSync(builder, ['--core-path', core, '.'], { stdio: 'inherit' });
