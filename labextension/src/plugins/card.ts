import { ILabShell, ILayoutRestorer } from '@jupyterlab/application';
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, IThemeManager, WidgetTracker } from '@jupyterlab/apputils';
import type { MainAreaWidget } from '@jupyterlab/apputils';

import type { CardCharts } from '../card/cardcharts';
import type { StopFit } from '../card/fits';
import { stopHoldersFit } from '../holders';
import type { Machine } from '../model/machine';
import { pickCard } from '../pick';
import type { Place } from '../place';
import { CommandIDs, IMachine, IPlace, PALETTE_CATEGORY } from '../tokens';
import { cardIcon } from '../view/icons';
import { trans } from '../model/translation';
import { cardTitle } from '../model/wording';

type Tab = MainAreaWidget<CardCharts>;

/** Create a card's tab; the code of the charts is loaded for the first tab. */
async function makeTab(machine: Machine, moduleId: number): Promise<Tab> {
  const [{ CardCharts }, { cardTab }] = await Promise.all([
    import('../card/cardcharts'),
    import('../card/tab')
  ]);
  const stop: StopFit = (card, holder) => stopHoldersFit(machine, card, holder);
  const tab = cardTab(new CardCharts(machine, moduleId, stop));
  tab.id = `hpu_magic-card-tab-${moduleId}`;
  return tab;
}

function addCommands(
  { commands }: JupyterFrontEnd,
  machine: Machine,
  place: Place,
  tracker: WidgetTracker<Tab>
): void {
  const opening = new Map<number, Promise<Tab>>();
  const open = async (moduleId: number): Promise<Tab> => {
    const tab = await makeTab(machine, moduleId);
    await tracker.add(tab);
    place.add(tab, 'HPU card');
    tab.disposed.connect(() => opening.delete(moduleId));
    return tab;
  };
  commands.addCommand(CommandIDs.openCard, {
    label: args =>
      typeof args.moduleId === 'number'
        ? trans.__('Open %1', cardTitle(args.moduleId))
        : trans.__('Open HPU Card…'),
    caption: trans.__('Show the history of a card: memory, utilization, power'),
    icon: cardIcon,
    execute: async args => {
      const moduleId =
        typeof args.moduleId === 'number'
          ? args.moduleId
          : (await pickCard(machine, trans.__('Open a card')))?.module_id;
      if (moduleId === undefined) {
        return;
      }
      if (place.isElsewhere) {
        place.open(`card-${moduleId}`);
        return;
      }
      // There is only one tab per card, even while it is loading.
      const tab = opening.get(moduleId) ?? open(moduleId);
      opening.set(moduleId, tab);
      place.activate(await tab);
    }
  });
  const current = () => {
    const tab = tracker.currentWidget;
    return tab !== null && place.isCurrent(tab) ? tab : null;
  };
  const isEnabled = () => current() !== null;
  commands.addCommand(CommandIDs.togglePause, {
    label: () =>
      current()?.content.paused ? trans.__('Resume HPU Charts') : trans.__('Pause HPU Charts'),
    caption: trans.__('Pause or resume the charts of the current card'),
    isEnabled,
    execute: () => {
      const charts = current()?.content;
      if (charts) {
        charts.paused = !charts.paused;
      }
    }
  });
  commands.addCommand(CommandIDs.resetZoom, {
    label: trans.__('Reset Zoom of HPU Charts'),
    isEnabled,
    execute: () => current()?.content.resetZoom()
  });
}

/** Tabs with the history of cards, and their commands. */
export const cardPlugin: JupyterFrontEndPlugin<void> = {
  id: 'hpu_magic:card',
  description: 'Tabs with the history of a Gaudi card.',
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
    const tracker = new WidgetTracker<Tab>({ namespace: 'hpu_magic-cards' });
    addCommands(app, machine, place, tracker);
    // Only restored in JupyterLab, because Notebook 7 would restore the tabs on every page.
    if (shell !== null) {
      void restorer?.restore(tracker, {
        command: CommandIDs.openCard,
        args: tab => ({ moduleId: tab.content.moduleId }),
        name: tab => String(tab.content.moduleId)
      });
    }
    themes?.themeChanged.connect(() => tracker.forEach(tab => tab.content.restyle()));
    for (const command of [CommandIDs.openCard, CommandIDs.togglePause, CommandIDs.resetZoom]) {
      palette?.addItem({ command, category: PALETTE_CATEGORY });
    }
  }
};
