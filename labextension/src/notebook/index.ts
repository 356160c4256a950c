import {
  ILabShell,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { IToolbarWidgetRegistry, Notification } from '@jupyterlab/apputils';
import { INotebookTracker, type NotebookPanel } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';
import type { CommandRegistry } from '@lumino/commands';

import { goToHolder, shutDownHolder } from '../holders';
import type { Machine } from '../model/machine';
import type { Held } from '../model/snapshot';
import { cardTitle } from '../model/wording';
import { pickKernel, pickNotebook } from '../pick';
import { CommandIDs, IMachine } from '../tokens';
import { BusyCardWatch } from './busyCard';
import { INotebookDevices, NotebookDevices } from './devices';
import { FocusedDevice } from './focus';
import { ModeSwitch } from './modeSwitch';
import { MissedOutputs } from './outputs';
import { followOptions } from './settings';
import { StatusItem } from './statusItem';
import { trans } from '../model/translation';

const devices: JupyterFrontEndPlugin<NotebookDevices> = {
  id: 'hpu_magic:kernel-facts',
  description: 'Requests the device of notebook kernels and restores stored modes.',
  autoStart: true,
  requires: [INotebookTracker],
  optional: [IMachine],
  provides: INotebookDevices,
  activate: (_: JupyterFrontEnd, tracker: INotebookTracker, machine: Machine | null) =>
    new NotebookDevices(tracker, machine)
};

const statusBar: JupyterFrontEndPlugin<void> = {
  id: 'hpu_magic:status-bar',
  description: 'Shows card, mode and memory of the focused notebook in the status bar.',
  autoStart: true,
  requires: [INotebookTracker, INotebookDevices],
  optional: [ILabShell, IStatusBar, ISettingRegistry],
  activate: (
    app: JupyterFrontEnd,
    tracker: INotebookTracker,
    all: NotebookDevices,
    shell: ILabShell | null,
    bar: IStatusBar | null,
    settings: ISettingRegistry | null
  ) => {
    if (shell === null || bar === null) {
      return; // Notebook 7 does not have a status bar
    }
    const item = new StatusItem(
      new FocusedDevice(shell, tracker, all),
      () => void app.commands.execute(CommandIDs.openSidebar)
    );
    followOptions(settings, options => {
      item.options = options;
    });
    bar.registerStatusItem('hpu_magic:device', {
      item,
      align: 'left',
      rank: 100,
      isActive: () => item.isActive,
      activeStateChanged: item.activeStateChanged
    });
  }
};

const modeSwitch: JupyterFrontEndPlugin<void> = {
  id: 'hpu_magic:mode-switch',
  description: 'Offers eager and lazy mode in the toolbar of notebooks that use hpu_magic.',
  autoStart: true,
  requires: [INotebookDevices, IToolbarWidgetRegistry],
  optional: [ISettingRegistry],
  activate: (
    _: JupyterFrontEnd,
    all: NotebookDevices,
    toolbars: IToolbarWidgetRegistry,
    settings: ISettingRegistry | null
  ) => {
    const switches = new Set<ModeSwitch>();
    let wanted = false;
    followOptions(settings, options => {
      wanted = options.modeSwitch;
      switches.forEach(each => {
        each.isWanted = wanted;
      });
    });
    // The position in the toolbar is set in schema/plugin.json and can be changed by users.
    toolbars.addFactory<NotebookPanel>('Notebook', 'hpu-mode', panel => {
      const added = new ModeSwitch(all.of(panel));
      added.isWanted = wanted;
      switches.add(added);
      added.disposed.connect(() => switches.delete(added));
      return added;
    });
  }
};

const busyCard: JupyterFrontEndPlugin<void> = {
  id: 'hpu_magic:busy-card',
  description: 'Names the holder when a cell fails because a card is busy.',
  autoStart: true,
  requires: [INotebookTracker, IMachine],
  optional: [ISettingRegistry],
  activate: (
    app: JupyterFrontEnd,
    tracker: INotebookTracker,
    machine: Machine,
    settings: ISettingRegistry | null
  ) => {
    const watch = new BusyCardWatch(tracker, app.serviceManager.serverSettings, {
      openSidebar: () => void app.commands.execute(CommandIDs.openSidebar),
      goTo: kernels => void goTo(app.commands, kernels),
      shutDown: kernels => void free(machine, kernels)
    });
    followOptions(settings, options => {
      watch.isWanted = options.busyNotifications;
    });
  }
};

async function goTo(commands: CommandRegistry, kernels: readonly Held[]): Promise<void> {
  const held = await pickNotebook(kernels);
  await (held && goToHolder(commands, held.holder));
}

async function free(machine: Machine, kernels: readonly Held[]): Promise<void> {
  const held = await pickKernel(kernels);
  if (held && (await shutDownHolder(machine, held.card, held.holder))) {
    const title = cardTitle(held.card.module_id);
    Notification.success(trans.__('%1 is free. Run the cell again.', title), { autoClose: 8000 });
  }
}

const outputs: JupyterFrontEndPlugin<void> = {
  id: 'hpu_magic:outputs',
  description: 'Updates outputs that were written while no page was open.',
  autoStart: true,
  requires: [INotebookTracker],
  activate: (_: JupyterFrontEnd, tracker: INotebookTracker) => {
    tracker.forEach(panel => new MissedOutputs(panel));
    tracker.widgetAdded.connect((_, panel) => new MissedOutputs(panel));
  }
};

/** The plugins for notebooks: status bar, mode switch, busy-card notification, outputs. */
export const notebookPlugins: JupyterFrontEndPlugin<unknown>[] = [
  devices,
  statusBar,
  modeSwitch,
  busyCard,
  outputs
];
