import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';

import { findPlace } from '../place';
import type { Place } from '../place';
import { IPlace } from '../tokens';

/** Provides the place where tabs open on this page, and opens the tab that its URL specifies. */
export const placePlugin: JupyterFrontEndPlugin<Place> = {
  id: 'hpu_magic:place',
  description: 'The place of the cards’ tabs in JupyterLab and on the pages of Notebook.',
  autoStart: true,
  provides: IPlace,
  activate: async (app: JupyterFrontEnd): Promise<Place> => {
    const place = await findPlace(app);
    if (place.hasTree) {
      const follow = () => void place.follow(app.commands, window.location.hash);
      // All commands must exist first.
      void Promise.all([app.started, app.restored]).then(follow);
      window.addEventListener('hashchange', follow);
    }
    return place;
  }
};
