import { ILabShell, ILayoutRestorer } from '@jupyterlab/application';
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, IThemeManager, WidgetTracker } from '@jupyterlab/apputils';
import type { MainAreaWidget } from '@jupyterlab/apputils';

import type { Machine } from '../model/machine';
import { trans } from '../model/translation';
import type { Overview } from '../overview/overview';
import type { Place } from '../place';
import { CommandIDs, IMachine, IPlace, PALETTE_CATEGORY } from '../tokens';
import { overviewIcon } from '../view/icons';

type Tab = MainAreaWidget<Overview>;

/** Create the tab; its code is loaded when it is opened for the first time. */
async function makeTab(app: JupyterFrontEnd, machine: Machine, length: unknown): Promise<Tab> {
  const { overviewTab } = await import('../overview/tab');
  const open = (moduleId: number) => void app.commands.execute(CommandIDs.openCard, { moduleId });
  const tab = overviewTab(machine, open, length);
  tab.id = 'hpu_magic-overview-tab';
  return tab;
}

/** The tab with all cards on one time axis, and its command. */
export const overviewPlugin: JupyterFrontEndPlugin<void> = {
  id: 'hpu_magic:overview',
  description: 'A tab with the last 24 hours of all Gaudi cards and their holders.',
  autoStart: true,
  requires: [IMachine, IPlace],
  optional: [ILabShell, ILayoutRestorer, ICommandPalette, IThemeManager],
  activate: (
    app: JupyterFrontEnd,
    machine: Machine,
    place: Place,
    shell: ILabShell | null,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    themes: IThemeManager | null
  ): void => {
    const tracker = new WidgetTracker<Tab>({ namespace: 'hpu_magic-overview' });
    let opening: Promise<Tab> | null = null;
    const open = async (length: unknown): Promise<Tab> => {
      const tab = await makeTab(app, machine, length);
      await tracker.add(tab);
      place.add(tab, 'HPU overview');
      tab.content.stateChanged.connect(() => void tracker.save(tab));
      tab.disposed.connect(() => {
        opening = null;
      });
      return tab;
    };
    app.commands.addCommand(CommandIDs.openOverview, {
      label: trans.__('Open HPU Overview'),
      caption: trans.__('Show the last 24 hours of all cards and their holders on one time axis'),
      icon: overviewIcon,
      execute: async args => {
        if (place.isElsewhere) {
          place.open('overview');
          return;
        }
        opening ??= open(args.length);
        place.activate(await opening);
      }
    });
    // Only restored in JupyterLab, because Notebook 7 would restore the tab on every page.
    if (shell !== null) {
      void restorer?.restore(tracker, {
        command: CommandIDs.openOverview,
        args: tab => ({ length: tab.content.length }),
        name: () => 'overview'
      });
    }
    themes?.themeChanged.connect(() => tracker.forEach(tab => tab.content.restyle()));
    palette?.addItem({ command: CommandIDs.openOverview, category: PALETTE_CATEGORY });
  }
};
