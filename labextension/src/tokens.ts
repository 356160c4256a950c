import { Token } from '@lumino/coreutils';

import type { Machine } from './model/machine';
import type { Place } from './place';

/** Ids of the commands, for palettes, menus and other plugins. */
export const CommandIDs = {
  openSidebar: 'hpu_magic:open-sidebar',
  openCard: 'hpu_magic:open-card',
  openOverview: 'hpu_magic:open-overview',
  goToHolder: 'hpu_magic:go-to-holder',
  shutDownHolder: 'hpu_magic:shut-down-holder',
  togglePause: 'hpu_magic:toggle-pause',
  resetZoom: 'hpu_magic:reset-zoom'
} as const;

/** Where the commands stand in the palette. */
export const PALETTE_CATEGORY = 'HPU';

/** The settings' plugin; the schema is schema/plugin.json. */
export const SETTINGS_ID = 'hpu_magic:plugin';

/** The cards of the server's machine, one model for all views. */
export const IMachine = new Token<Machine>(
  'hpu_magic:IMachine',
  'The Gaudi cards of the machine that runs the Jupyter server.'
);

/** Where tabs go on this page. */
export const IPlace = new Token<Place>(
  'hpu_magic:IPlace',
  'Where tabs go: JupyterLab’s main area, or the tabs of Notebook’s page of files.'
);
