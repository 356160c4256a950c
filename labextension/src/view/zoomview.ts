import type { Message } from '@lumino/messaging';
import { Signal } from '@lumino/signaling';
import type { ISignal } from '@lumino/signaling';
import type { Widget } from '@lumino/widgets';

import type { Machine } from '../model/machine';
import { CardsView } from './cardsview';
import { keyZoom } from './zoomKeys';
import type { TimeRange } from './zoomKeys';

/** A tab whose time axis the user can zoom. */
export abstract class ZoomView extends CardsView {
  constructor(machine: Machine) {
    super(machine);
    this.addClass('hpu-Tab');
    this.title.closable = true;
    this.node.tabIndex = 0;
    this.node.addEventListener('keydown', event => {
      if (!event.ctrlKey && !event.altKey && !event.metaKey) {
        this.keyed(event);
      }
    });
  }

  /** Emitted when the zoom, or any other state shown by the tab's buttons, changes. */
  get stateChanged(): ISignal<this, void> {
    return this._stateChanged;
  }

  /** Whether the tab shows a fixed part of the history. */
  get zoomed(): boolean {
    return this.zoom !== null;
  }

  resetZoom(): void {
    this.zoomTo(null);
  }

  override dispose(): void {
    Signal.clearData(this);
    super.dispose();
  }

  /** Called when the size may have changed. */
  protected abstract resized(): void;

  protected override onActivateRequest(msg: Message): void {
    super.onActivateRequest(msg);
    this.node.focus();
  }

  protected override onResize(msg: Widget.ResizeMessage): void {
    super.onResize(msg);
    this.resized();
  }

  protected override onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this.resized();
  }

  /** Handle a key without modifiers; a control inside the view may have the focus. */
  protected keyed(event: KeyboardEvent): void {
    if (event.target === this.node) {
      this.zoomByKey(event);
    }
  }

  /** Zoom or move if the key is bound to such an action, and return whether it is. */
  protected zoomByKey(event: KeyboardEvent): boolean {
    const zoom = keyZoom(event.key, this.range, this.whole);
    if (zoom !== undefined) {
      event.preventDefault();
      this.zoomTo(zoom);
    }
    return zoom !== undefined;
  }

  /** Show a part of the history, or the latest time range if it is null. */
  protected zoomTo(zoom: TimeRange | null): void {
    this.zoom = zoom;
    this.changed();
  }

  /** Emit `stateChanged` and draw. */
  protected changed(): void {
    this._stateChanged.emit();
    this.request();
  }

  /** The time range that the user selected, the entire history and the visible time range. */
  protected zoom: TimeRange | null = null;
  protected whole: TimeRange = { min: 0, max: 1 };
  protected range: TimeRange = this.whole;
  private readonly _stateChanged = new Signal<this, void>(this);
}
