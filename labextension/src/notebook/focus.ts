import type { ILabShell } from '@jupyterlab/application';
import type { INotebookTracker } from '@jupyterlab/notebook';
import type { IDisposable } from '@lumino/disposable';
import { Poll } from '@lumino/polling';
import { Signal, type ISignal } from '@lumino/signaling';

import type { NotebookDevice } from './device';
import type { NotebookDevices } from './devices';

/** Milliseconds between requests to the kernel of the focused notebook. */
const INTERVAL = 2000;

/**
 * The device of the focused notebook, polled while a view shows it.
 *
 * The device is not polled while the page is hidden, if the kernel does not reply, or while another
 * kind of document has the focus.
 */
export class FocusedDevice implements IDisposable {
  constructor(
    private readonly _shell: ILabShell,
    private readonly _tracker: INotebookTracker,
    private readonly _devices: NotebookDevices
  ) {
    this._poll = new Poll({
      name: 'hpu_magic:kernel-facts',
      auto: false,
      frequency: { interval: INTERVAL, backoff: false },
      standby: () => this._isIdle() || 'when-hidden',
      factory: async () => this._device?.refresh()
    });
    _shell.currentChanged.connect(this._update, this);
    _tracker.currentChanged.connect(this._update, this);
    this._update();
  }

  /** Emitted when the focus or the focused device changes. */
  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** The device, or null while no notebook has the focus. */
  get device(): NotebookDevice | null {
    return this._device;
  }

  /** Whether a view shows the device. */
  get isWatched(): boolean {
    return this._isWatched;
  }
  set isWatched(value: boolean) {
    this._isWatched = value;
    this._wake();
  }

  get isDisposed(): boolean {
    return this._poll.isDisposed;
  }

  dispose(): void {
    this._poll.dispose();
    Signal.clearData(this);
  }

  private _isIdle(): boolean {
    return !this._isWatched || !this._device?.worthAsking;
  }

  private _update(): void {
    const panel = this._tracker.currentWidget;
    const focused = panel !== null && this._shell.currentWidget === panel;
    const device = focused ? this._devices.of(panel) : null;
    if (device !== this._device) {
      this._device?.changed.disconnect(this._onDeviceChanged, this);
      this._device = device;
      device?.changed.connect(this._onDeviceChanged, this);
      this._onDeviceChanged();
      if (this._isWatched) {
        void device?.refresh();
      }
    }
  }

  private _onDeviceChanged(): void {
    this._changed.emit();
    this._wake();
  }

  private _wake(): void {
    if (this._isIdle()) {
      void this._poll.stop();
    } else if (this._poll.state.phase === 'constructed' || this._poll.state.phase === 'stopped') {
      void this._poll.start();
    }
  }

  private readonly _changed = new Signal<this, void>(this);
  private _device: NotebookDevice | null = null;
  private _isWatched = false;
  private readonly _poll: Poll;
}
