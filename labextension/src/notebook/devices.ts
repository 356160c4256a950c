import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { Token } from '@lumino/coreutils';

import type { Machine } from '../model/machine';
import type { Snapshot } from '../model/snapshot';
import { NotebookDevice } from './device';

/** The devices of all open notebooks. */
export class NotebookDevices {
  constructor(
    private readonly _tracker: INotebookTracker,
    private readonly _machine: Machine | null
  ) {
    _tracker.forEach(panel => this.of(panel));
    _tracker.widgetAdded.connect((_, panel) => this.of(panel));
    _machine?.changed.connect(this._onSample, this);
  }

  /** Return a notebook's device, which is the same object for all views. */
  of(panel: NotebookPanel): NotebookDevice {
    let device = this._devices.get(panel);
    if (device === undefined) {
      device = new NotebookDevice(panel);
      this._devices.set(panel, device);
      void this._onOpened(panel, device);
    }
    return device;
  }

  /** Check whether the kernel holds a card, because it may have run cells that were deleted. */
  private async _onOpened(panel: NotebookPanel, device: NotebookDevice): Promise<void> {
    await Promise.all([panel.context.ready, panel.sessionContext.ready]);
    if (this._machine === null || !device.inUse || device.worthAsking) {
      return;
    }
    try {
      this._notifyHolders(await this._machine.fetch());
    } catch {
      // The views that show the cards report this error.
    }
  }

  private _onSample(machine: Machine): void {
    if (machine.snapshot !== null) {
      this._notifyHolders(machine.snapshot);
    }
  }

  /** Notify the devices whose kernels hold a card, because they may have loaded the extension. */
  private _notifyHolders(snapshot: Snapshot): void {
    const holders = snapshot.cards.flatMap(card => card.holders);
    const pids = new Map(holders.map(({ kernel, pid }) => [kernel?.id, pid]));
    this._tracker.forEach(panel => {
      const kernelId = panel.sessionContext.session?.kernel?.id;
      const pid = kernelId === undefined ? undefined : pids.get(kernelId);
      if (pid !== undefined) {
        this.of(panel).holdsCard(pid);
      }
    });
  }

  private readonly _devices = new WeakMap<NotebookPanel, NotebookDevice>();
}

export const INotebookDevices = new Token<NotebookDevices>(
  'hpu_magic:INotebookDevices',
  'Mode, card and memory of the kernels of open notebooks.'
);
