import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { Token } from '@lumino/coreutils';

import type { Machine } from '../model/machine';
import { NotebookDevice } from './device';

/** The devices of all open notebooks. */
export class NotebookDevices {
  constructor(
    private readonly _tracker: INotebookTracker,
    machine: Machine | null
  ) {
    _tracker.forEach(panel => this.of(panel));
    _tracker.widgetAdded.connect((_, panel) => this.of(panel));
    machine?.changed.connect(this._onSample, this);
  }

  /** Return the device of a notebook, one and the same for each view. */
  of(panel: NotebookPanel): NotebookDevice {
    let device = this._devices.get(panel);
    if (device === undefined) {
      device = new NotebookDevice(panel);
      this._devices.set(panel, device);
    }
    return device;
  }

  /** A kernel that holds a card may have the extension loaded, whatever its notebook says. */
  private _onSample(machine: Machine): void {
    const holders = machine.snapshot?.cards.flatMap(card => card.holders) ?? [];
    const kernels = new Set(holders.map(holder => holder.kernel?.id));
    this._tracker.forEach(panel => {
      if (kernels.has(panel.sessionContext.session?.kernel?.id)) {
        this.of(panel).holdsCard();
      }
    });
  }

  private readonly _devices = new WeakMap<NotebookPanel, NotebookDevice>();
}

export const INotebookDevices = new Token<NotebookDevices>(
  'hpu_magic:INotebookDevices',
  'What the kernels of the open notebooks tell of their mode, card and memory.'
);
