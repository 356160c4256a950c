import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

import { notebookPlugins } from './notebook';

const plugins: JupyterFrontEndPlugin<unknown>[] = [...notebookPlugins];

export default plugins;
