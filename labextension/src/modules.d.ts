declare module '*.svg' {
  const text: string;
  export default text;
}

// A package of Notebook 7 that JupyterLab does not contain.
declare module '@jupyter-notebook/tree' {
  import type { Token } from '@lumino/coreutils';
  import type { TabPanel } from '@lumino/widgets';

  export const INotebookTree: Token<TabPanel>;
}
