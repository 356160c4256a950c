import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { notebookPlugins } from './notebook';
import { cardPlugin } from './plugins/card';
import { machinePlugin } from './plugins/machine';
import { overviewPlugin } from './plugins/overview';
import { placePlugin } from './plugins/place';
import { sidebarPlugin } from './plugins/sidebar';

const plugins: JupyterFrontEndPlugin<unknown>[] = [
  machinePlugin,
  placePlugin,
  sidebarPlugin,
  cardPlugin,
  overviewPlugin,
  ...notebookPlugins
];

export default plugins;
