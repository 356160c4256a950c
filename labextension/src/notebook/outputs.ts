import { isCodeCellModel } from '@jupyterlab/cells';
import type { IOutput } from '@jupyterlab/nbformat';
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { IOutputAreaModel } from '@jupyterlab/outputarea';
import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';

import { requestOutputs } from './kernel';
import { named, withoutWidget, type OutputName } from './outputNames';

/** Milliseconds between two questions about outputs that are still written to. */
const INTERVAL = 3000;

interface Place {
  area: IOutputAreaModel;
  index: number;
  name: OutputName;
}

/**
 * Writes into a notebook what its kernel has shown while no page of it listened.
 *
 * A page that was loaded while a cell ran does not hear what the kernel writes into that cell's
 * outputs: nobody in it has asked for them. So outputs that were still written to when the notebook
 * was saved are asked for, from when it is opened until they are as they stay.
 */
export class MissedOutputs implements IDisposable {
  constructor(private readonly _panel: NotebookPanel) {
    _panel.disposed.connect(this.dispose, this);
    void Promise.all([_panel.context.ready, _panel.sessionContext.ready]).then(() => {
      if (!this._isDisposed) {
        _panel.sessionContext.kernelChanged.connect(this._onKernelChanged, this);
        _panel.sessionContext.connectionStatusChanged.connect(this._onConnection, this);
        void this._catchUp();
      }
    });
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    if (!this._isDisposed) {
      this._isDisposed = true;
      window.clearTimeout(this._timer);
      Signal.clearData(this);
    }
  }

  private _onKernelChanged(): void {
    void this._catchUp();
  }

  private _onConnection(_: unknown, status: string): void {
    if (status === 'connected') {
      void this._catchUp();
    }
  }

  private async _catchUp(): Promise<void> {
    window.clearTimeout(this._timer);
    const open = this._unfinished();
    if (open.length === 0) {
      return;
    }
    const kernel = this._panel.sessionContext.session?.kernel ?? null;
    const asked = Object.fromEntries(open.map(({ name }) => [name.output, name.revision]));
    const reply = kernel === null ? 'unknown' : await requestOutputs(kernel, asked);
    if (this._isDisposed) {
      return;
    }
    if (reply !== 'stuck') {
      // What the kernel showed meanwhile may have moved the places.
      for (const place of this._unfinished()) {
        const id = place.name.output;
        if (!(id in asked)) {
          continue;
        }
        if (reply === 'unknown' || reply.unknown.includes(id)) {
          place.area.set(place.index, withoutWidget(place.area.get(place.index).toJSON()));
        } else if (id in reply.outputs) {
          place.area.set(place.index, {
            output_type: 'display_data',
            ...reply.outputs[id]
          } as IOutput);
        }
      }
    }
    this._timer = window.setTimeout(() => void this._catchUp(), INTERVAL);
  }

  /** The outputs that are still written to, as far as this notebook knows. */
  private _unfinished(): Place[] {
    const found: Place[] = [];
    for (const cell of this._panel.content.model?.cells ?? []) {
      if (!isCodeCellModel(cell)) {
        continue;
      }
      for (let index = 0; index < cell.outputs.length; index++) {
        const name = named(cell.outputs.get(index).metadata);
        if (name !== null && !name.over) {
          found.push({ area: cell.outputs, index, name });
        }
      }
    }
    return found;
  }

  private _isDisposed = false;
  private _timer: number | undefined;
}
