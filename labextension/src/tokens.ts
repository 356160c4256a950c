import { Token } from '@lumino/coreutils';

import type { Machine } from './model/machine';
import type { Place } from './place';

/** Command IDs for palettes, menus and other plugins. */
export const CommandIDs = {
  openSidebar: 'hpu_magic:open-sidebar',
  openCard: 'hpu_magic:open-card',
  openOverview: 'hpu_magic:open-overview',
  goToHolder: 'hpu_magic:go-to-holder',
  shutDownHolder: 'hpu_magic:shut-down-holder',
  togglePause: 'hpu_magic:toggle-pause',
  resetZoom: 'hpu_magic:reset-zoom'
} as const;

/** The commands' category in the palette. */
export const PALETTE_CATEGORY = 'HPU';

/** ID of the settings, whose schema is schema/plugin.json. */
export const SETTINGS_ID = 'hpu_magic:plugin';

/** The model of the cards, shared by all views. */
export const IMachine = new Token<Machine>(
  'hpu_magic:IMachine',
  'The Gaudi cards of the machine that runs the Jupyter server.'
);

/** The place where tabs open on this page. */
export const IPlace = new Token<Place>(
  'hpu_magic:IPlace',
  'The place of tabs: JupyterLab’s main area, or the tabs of Notebook’s file browser page.'
);
