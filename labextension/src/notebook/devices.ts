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

  /** Return the device of a notebook, one and the same for each view. */
  of(panel: NotebookPanel): NotebookDevice {
    let device = this._devices.get(panel);
    if (device === undefined) {
      device = new NotebookDevice(panel);
      this._devices.set(panel, device);
      void this._onOpened(panel, device);
    }
    return device;
  }

  /** A kernel may have run cells before this page, whether or not the file tells of them. */
  private async _onOpened(panel: NotebookPanel, device: NotebookDevice): Promise<void> {
    await Promise.all([panel.context.ready, panel.sessionContext.ready]);
    if (this._machine === null || !device.inUse || device.worthAsking) {
      return;
    }
    try {
      this._tell(await this._machine.fetch());
    } catch {
      // The cards cannot be read, which is for the views of them to say.
    }
  }

  private _onSample(machine: Machine): void {
    if (machine.snapshot !== null) {
      this._tell(machine.snapshot);
    }
  }

  /** A kernel that holds a card may have the extension loaded, whatever its notebook says. */
  private _tell(snapshot: Snapshot): void {
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
  'What the kernels of the open notebooks tell of their mode, card and memory.'
);
