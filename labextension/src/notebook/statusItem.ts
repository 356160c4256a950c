import { Widget } from '@lumino/widgets';
import { Signal, type ISignal } from '@lumino/signaling';

import type { FocusedDevice } from './focus';
import { statusView } from './labels';
import type { NotebookOptions } from './settings';

/** The card, mode and memory of the focused notebook's kernel; a click shows all cards. */
export class StatusItem extends Widget {
  constructor(
    private readonly _focused: FocusedDevice,
    openSidebar: () => void
  ) {
    super();
    this.addClass('hpu-StatusItem');
    this._button = document.createElement('button');
    this._button.type = 'button';
    this._button.addEventListener('click', openSidebar);
    this.node.append(this._button);
    this._focused.changed.connect(this._refresh, this);
  }

  /** Whether there is anything to show. */
  get isActive(): boolean {
    return this._isActive;
  }

  get activeStateChanged(): ISignal<this, void> {
    return this._activeStateChanged;
  }

  set options(options: NotebookOptions) {
    this._options = options;
    this._focused.isWatched = options.statusBar.length > 0;
    this._refresh();
  }

  override dispose(): void {
    Signal.clearData(this);
    super.dispose();
  }

  private _refresh(): void {
    const options = this._options;
    const facts = this._focused.device?.facts ?? null;
    const active = facts !== null && options !== null && options.statusBar.length > 0;
    if (active) {
      const view = statusView(facts, options.statusBar, options);
      this._button.textContent = view.text;
      this._button.title = view.tooltip;
      this.node.dataset.level = view.level;
    }
    if (active !== this._isActive) {
      this._isActive = active;
      this._activeStateChanged.emit();
    }
  }

  private readonly _activeStateChanged = new Signal<this, void>(this);
  private readonly _button: HTMLButtonElement;
  private _isActive = false;
  private _options: NotebookOptions | null = null;
}
