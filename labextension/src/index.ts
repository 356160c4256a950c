import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { notebookPlugins } from './notebook';
import { machinePlugin } from './plugins/machine';
import { sidebarPlugin } from './plugins/sidebar';

const plugins: JupyterFrontEndPlugin<unknown>[] = [
  machinePlugin,
  sidebarPlugin,
  ...notebookPlugins
];

export default plugins;
