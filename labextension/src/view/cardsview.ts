import type { IDisposable } from '@lumino/disposable';
import type { Message } from '@lumino/messaging';
import { Widget } from '@lumino/widgets';

import type { Machine } from '../model/machine';
import { frames } from './frame';

/**
 * A widget that shows the machine's cards, requests samples while it is visible, and is drawn at
 * most once per frame.
 */
export abstract class CardsView extends Widget {
  constructor(protected readonly machine: Machine) {
    super();
    machine.changed.connect(this.request, this);
  }

  override dispose(): void {
    if (!this.isDisposed) {
      this.machine.changed.disconnect(this.request, this);
      this._look(false);
      super.dispose();
    }
  }

  /** Draw all changes; called in an animation frame while the widget is visible. */
  protected abstract draw(): void;

  /** Request a redraw in the next frame. */
  protected request(): void {
    if (this.isVisible) {
      frames.request(this._draw);
    }
  }

  protected override onAfterAttach(msg: Message): void {
    super.onAfterAttach(msg);
    this._look(this.isVisible);
  }

  protected override onAfterShow(msg: Message): void {
    super.onAfterShow(msg);
    this._look(true);
  }

  protected override onBeforeHide(msg: Message): void {
    super.onBeforeHide(msg);
    this._look(false);
  }

  protected override onBeforeDetach(msg: Message): void {
    super.onBeforeDetach(msg);
    this._look(false);
  }

  private _look(visible: boolean): void {
    if (visible && !this._watching) {
      this._watching = this.machine.watch();
      this.request();
    } else if (!visible) {
      this._watching?.dispose();
      this._watching = null;
      frames.cancel(this._draw);
      this._stopCountdown();
    }
  }

  private _stopCountdown(): void {
    // Clearing a timeout that does not exist takes as long as the rest of a small redraw.
    if (this._countdown !== 0) {
      window.clearTimeout(this._countdown);
      this._countdown = 0;
    }
  }

  private readonly _draw = (): void => {
    this.draw();
    this._stopCountdown();
    if ('retryAt' in this.machine.connection) {
      // The view shows the seconds until the next attempt.
      this._countdown = window.setTimeout(() => this.request(), 1000);
    }
  };

  private _watching: IDisposable | null = null;
  private _countdown = 0;
}
