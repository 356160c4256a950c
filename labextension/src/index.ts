import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { notebookPlugins } from './notebook';
import { cardPlugin } from './plugins/card';
import { machinePlugin } from './plugins/machine';
import { sidebarPlugin } from './plugins/sidebar';

const plugins: JupyterFrontEndPlugin<unknown>[] = [
  machinePlugin,
  sidebarPlugin,
  cardPlugin,
  ...notebookPlugins
];

export default plugins;
