declare module '*.svg' {
  const text: string;
  export default text;
}

// A package that is part of Notebook 7 but not of JupyterLab.
declare module '@jupyter-notebook/tree' {
  import type { Token } from '@lumino/coreutils';
  import type { TabPanel } from '@lumino/widgets';

  export const INotebookTree: Token<TabPanel>;
}
