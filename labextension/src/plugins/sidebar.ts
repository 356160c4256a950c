import { ILabShell, ILayoutRestorer } from '@jupyterlab/application';
import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette, IThemeManager } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import type { NotebookPanel } from '@jupyterlab/notebook';

import { goToHolder, shutDownHolder, stopHoldersFit } from '../holders';
import type { Machine } from '../model/machine';
import { fetchHoldings, pickKernel, pickNotebook } from '../pick';
import { CardsPanel } from '../sidebar/panel';
import type { Place } from '../place';
import { CommandIDs, IMachine, IPlace, PALETTE_CATEGORY } from '../tokens';
import { cardIcon } from '../view/icons';
import { trans } from '../model/translation';

function addCommands(
  { commands }: JupyterFrontEnd,
  machine: Machine,
  place: Place,
  panel: CardsPanel
): void {
  commands.addCommand(CommandIDs.openSidebar, {
    label: trans.__('Show HPU Cards'),
    caption: trans.__('Show all cards of the machine and their holders'),
    icon: cardIcon,
    execute: () => (place.isElsewhere ? place.open('cards') : place.activate(panel))
  });
  commands.addCommand(CommandIDs.goToHolder, {
    label: trans.__('Go to the Notebook That Holds a Card…'),
    execute: async () => {
      const all = await fetchHoldings(machine);
      const held = all && (await pickNotebook(all));
      await (held && goToHolder(commands, held.holder));
    }
  });
  commands.addCommand(CommandIDs.shutDownHolder, {
    label: trans.__('Shut Down the Kernel That Holds a Card…'),
    execute: async () => {
      const all = await fetchHoldings(machine);
      const held = all && (await pickKernel(all));
      await (held && shutDownHolder(machine, held.card, held.holder));
    }
  });
}

/** Mark the row of the active notebook, or no row if another document is active. */
function followFront(panel: CardsPanel, shell: ILabShell, tracker: INotebookTracker): void {
  const follow = () => {
    const notebook = tracker.currentWidget;
    const inFront = notebook !== null && shell.currentWidget === notebook;
    panel.front = inFront ? (notebook.sessionContext.session?.kernel?.id ?? null) : null;
  };
  shell.currentChanged.connect(follow);
  tracker.currentChanged.connect(follow);
  const connect = (notebook: NotebookPanel) => {
    notebook.sessionContext.kernelChanged.connect(follow);
  };
  tracker.forEach(connect);
  tracker.widgetAdded.connect((_, notebook) => connect(notebook));
  follow();
}

/** The sidebar, and the commands for the holders of cards. */
export const sidebarPlugin: JupyterFrontEndPlugin<void> = {
  id: 'hpu_magic:sidebar',
  description: 'A sidebar with all Gaudi cards of the machine and their holders.',
  autoStart: true,
  requires: [IMachine, IPlace],
  optional: [ILayoutRestorer, ICommandPalette, IThemeManager, ILabShell, INotebookTracker],
  activate: (
    app: JupyterFrontEnd,
    machine: Machine,
    place: Place,
    restorer: ILayoutRestorer | null,
    palette: ICommandPalette | null,
    themes: IThemeManager | null,
    shell: ILabShell | null,
    tracker: INotebookTracker | null
  ): void => {
    const panel = new CardsPanel(machine, {
      openOverview: () => void app.commands.execute(CommandIDs.openOverview),
      open: moduleId => void app.commands.execute(CommandIDs.openCard, { moduleId }),
      goTo: holder => void goToHolder(app.commands, holder),
      shutDown: (card, holder) => void shutDownHolder(machine, card, holder),
      stopFit: (card, holder) => stopHoldersFit(machine, card, holder)
    });
    addCommands(app, machine, place, panel);
    if (shell !== null && tracker !== null) {
      followFront(panel, shell, tracker);
    }
    if (place.hasTree) {
      panel.title.label = panel.title.caption;
      place.add(panel, 'HPU cards');
    } else {
      app.shell.add(panel, 'left', { rank: 300, type: 'HPU cards' });
      restorer?.add(panel, panel.id);
    }
    themes?.themeChanged.connect(() => panel.restyle());
    for (const command of [
      CommandIDs.openSidebar,
      CommandIDs.goToHolder,
      CommandIDs.shutDownHolder
    ]) {
      palette?.addItem({ command, category: PALETTE_CATEGORY });
    }
  }
};
