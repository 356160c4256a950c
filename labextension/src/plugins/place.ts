import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';

import { findPlace } from '../place';
import type { Place } from '../place';
import { IPlace } from '../tokens';

/** Knows where tabs go on this page, and opens those that its address asks for. */
export const placePlugin: JupyterFrontEndPlugin<Place> = {
  id: 'hpu_magic:place',
  description: 'Where the tabs of cards go, in JupyterLab and on the pages of Notebook.',
  autoStart: true,
  provides: IPlace,
  activate: async (app: JupyterFrontEnd): Promise<Place> => {
    const place = await findPlace(app);
    if (place.hasTree) {
      const follow = () => void place.follow(app.commands, window.location.hash);
      // Not before all commands are there.
      void Promise.all([app.started, app.restored]).then(follow);
      window.addEventListener('hashchange', follow);
    }
    return place;
  }
};
