import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

/** What belongs to one notebook: status bar, mode switch, busy-card notification. */
export const notebookPlugins: JupyterFrontEndPlugin<unknown>[] = [];
