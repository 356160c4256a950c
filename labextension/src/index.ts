import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { notebookPlugins } from './notebook';
import { cardPlugin } from './plugins/card';
import { machinePlugin } from './plugins/machine';
import { overviewPlugin } from './plugins/overview';
import { sidebarPlugin } from './plugins/sidebar';

const plugins: JupyterFrontEndPlugin<unknown>[] = [
  machinePlugin,
  sidebarPlugin,
  cardPlugin,
  overviewPlugin,
  ...notebookPlugins
];

export default plugins;
