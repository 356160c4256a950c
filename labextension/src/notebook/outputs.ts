import { isCodeCellModel } from '@jupyterlab/cells';
import type { IOutput } from '@jupyterlab/nbformat';
import type { NotebookPanel } from '@jupyterlab/notebook';
import type { IOutputAreaModel } from '@jupyterlab/outputarea';
import type { Kernel } from '@jupyterlab/services';
import type { ReadonlyPartialJSONObject } from '@lumino/coreutils';
import type { IDisposable } from '@lumino/disposable';
import { Signal } from '@lumino/signaling';

import { requestOutputs, type Outputs, type Silence } from './kernelRequests';

const METADATA = 'hpu_magic';
const WIDGET = 'application/vnd.jupyter.widget-view+json';

/** An output's identity, which is stored in its metadata. */
interface OutputName {
  /** Name of the output in the kernel. */
  output: string;
  /** Number of times that it has been written. */
  revision: number;
  /** Whether it is final. */
  over: boolean;
}

/** Return the identity of an output, or null if it has none. */
function named(metadata: ReadonlyPartialJSONObject): OutputName | null {
  const name = metadata[METADATA] as Partial<OutputName> | undefined;
  return typeof name?.output === 'string' && typeof name.revision === 'number'
    ? { output: name.output, revision: name.revision, over: name.over === true }
    : null;
}

/** Return the final form of an output that its kernel has discarded: only text and pictures. */
function withoutWidget(output: IOutput): IOutput {
  const { [WIDGET]: _, ...data } = (output.data ?? {}) as Record<string, unknown>;
  const metadata = (output.metadata ?? {}) as Record<string, unknown>;
  const name = { ...(metadata[METADATA] as object), over: true };
  return { ...output, data, metadata: { ...metadata, [METADATA]: name } } as IOutput;
}

/** Milliseconds between requests for outputs that are not final. */
const INTERVAL = 3000;

interface OutputPlace {
  area: IOutputAreaModel;
  index: number;
  name: OutputName;
}

/**
 * Updates a notebook's outputs that its kernel wrote while no page was open.
 *
 * A page that was loaded while a cell was running does not receive that cell's outputs, because it
 * did not send the request. Therefore, the page keeps requesting all outputs that were not final
 * when the notebook was saved, until they are final.
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
    const known = Object.fromEntries(open.map(({ name }) => [name.output, name.revision]));
    const reply = kernel === null ? 'unknown' : await this._request(kernel, known);
    if (this._isDisposed) {
      return;
    }
    if (reply !== 'stuck') {
      // Outputs that were added during the request may have shifted the others.
      for (const place of this._unfinished()) {
        const id = place.name.output;
        if (!(id in known)) {
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
    window.clearTimeout(this._timer); // of a simultaneous call
    this._timer = window.setTimeout(() => void this._catchUp(), INTERVAL);
  }

  private async _request(
    kernel: Kernel.IKernelConnection,
    known: Record<string, number>
  ): Promise<Outputs | Silence> {
    try {
      return await requestOutputs(kernel, known);
    } catch {
      return 'stuck'; // the kernel is restarting
    }
  }

  /** Return the notebook's outputs that are not final. */
  private _unfinished(): OutputPlace[] {
    const found: OutputPlace[] = [];
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
