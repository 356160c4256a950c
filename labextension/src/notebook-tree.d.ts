// Of Notebook 7, which brings it along; JupyterLab does not have it.
declare module '@jupyter-notebook/tree' {
  import type { Token } from '@lumino/coreutils';
  import type { TabPanel } from '@lumino/widgets';

  export const INotebookTree: Token<TabPanel>;
}
