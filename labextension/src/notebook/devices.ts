import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';
import { Token } from '@lumino/coreutils';

import { NotebookDevice } from './device';

/** The devices of all open notebooks. */
export class NotebookDevices {
  constructor(tracker: INotebookTracker) {
    tracker.forEach(panel => this.of(panel));
    tracker.widgetAdded.connect((_, panel) => this.of(panel));
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

  private readonly _devices = new WeakMap<NotebookPanel, NotebookDevice>();
}

export const INotebookDevices = new Token<NotebookDevices>(
  'hpu_magic:INotebookDevices',
  'What the kernels of the open notebooks tell of their mode, card and memory.'
);
