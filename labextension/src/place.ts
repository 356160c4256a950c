import type { JupyterFrontEnd } from '@jupyterlab/application';
import { PageConfig, URLExt } from '@jupyterlab/coreutils';
import type { CommandRegistry } from '@lumino/commands';
import type { TabPanel, Widget } from '@lumino/widgets';

import { CommandIDs } from './tokens';

/** The content of a separate page, specified by the part of its URL after `#hpu-`. */
export type Page = 'cards' | 'overview' | `card-${number}`;

const PREFIX = '#hpu-';

/**
 * The place where tabs open: JupyterLab's main area, or the tabs on Notebook's file browser page.
 * Notebook's other pages show only one document, so they open the file browser page instead.
 */
export class Place {
  constructor(
    private readonly _app: JupyterFrontEnd,
    private readonly _tree: TabPanel | null,
    /** Whether tabs open on another page. */
    readonly isElsewhere: boolean
  ) {}

  /** Whether the cards have a tab on this page because it has no permanent sidebar. */
  get hasTree(): boolean {
    return this._tree !== null;
  }

  add(tab: Widget, type: string): void {
    if (this._tree) {
      this._tree.addWidget(tab);
    } else {
      this._app.shell.add(tab, 'main', { type });
    }
  }

  /** Whether a tab is in the foreground. */
  isCurrent(tab: Widget): boolean {
    return tab === (this._tree ? this._tree.currentWidget : this._app.shell.currentWidget);
  }

  activate(tab: Widget): void {
    if (this._tree) {
      this._tree.currentWidget = tab;
      tab.activate();
    } else {
      this._app.shell.activateById(tab.id);
    }
  }

  /** Show `page` in a separate browser tab. */
  open(page: Page): void {
    const address = URLExt.join(PageConfig.getBaseUrl(), 'tree') + PREFIX + page;
    window.open(address, `hpu_magic-${page}`);
  }

  /** Show the content that the fragment of this page's URL specifies. */
  async follow(commands: CommandRegistry, hash: string): Promise<void> {
    const page = hash.startsWith(PREFIX) ? hash.slice(PREFIX.length) : '';
    const card = /^card-(\d{1,4})$/.exec(page);
    if (page === 'cards') {
      await commands.execute(CommandIDs.openSidebar);
    } else if (page === 'overview') {
      await commands.execute(CommandIDs.openOverview);
    } else if (card) {
      await commands.execute(CommandIDs.openCard, { moduleId: Number(card[1]) });
    }
  }
}

/** Return the place where tabs open on this page. */
export async function findPlace(app: JupyterFrontEnd): Promise<Place> {
  const page = PageConfig.getOption('notebookPage'); // empty in JupyterLab
  if (page !== 'tree') {
    return new Place(app, null, page !== '');
  }
  const { INotebookTree } = await import('@jupyter-notebook/tree');
  return new Place(app, await app.resolveOptionalService(INotebookTree), false);
}
