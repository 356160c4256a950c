import { stopIcon } from '@jupyterlab/ui-components';

import { fitLeft, fitLoss, fitPhase, fitPlace, fitRate, fitText } from '../model/fit';
import type { Fit } from '../model/fit';
import { element, iconButton, setAttribute, setText } from './dom';
import { trans } from '../model/translation';

/**
 * The state of a fit, with a button that stops it.
 *
 * Each value has a fixed place, so that the other values do not move when it changes.
 */
export class FitView {
  /** `stop` resolves to whether the fit received the request. */
  constructor(stop: () => Promise<boolean>) {
    this._stop = iconButton(stopIcon, '', () => void this._press(stop));
    this._bar.setAttribute('role', 'progressbar');
    this._bar.setAttribute('aria-valuemin', '0');
    this._bar.setAttribute('aria-valuemax', '100');
    this._bar.append(this._fill);
    this._figures.append(this._place, this._left, this._rate, this._loss);
    const head = element('div', 'hpu-Fit-head', this._name, this._phase, this._stop);
    this.node.append(head, this._bar, this._figures, this._broken);
    this.node.hidden = true;
  }

  readonly node = element('div', 'hpu-Fit');

  /** Show the fit of `holder` with the heading `name`, or nothing if it is null. */
  show(fit: Fit | null, holder: string, name = fit?.model ?? ''): void {
    this.node.hidden = fit === null;
    if (fit === null) {
      this._pressed = null;
      return;
    }
    this._began = fit.began;
    const stopping = fit.phase === 'stopping' || this._pressed === fit.began;
    setText(this._name, name);
    setText(this._phase, stopping ? trans.__('Stopping') : fitPhase(fit));
    this._showStop(fit, holder, stopping);
    this._showBar(fit, holder);
    const figures: [Element, string][] = [
      [this._place, fitPlace(fit)],
      [this._left, fitLeft(fit)],
      [this._rate, fitRate(fit)],
      [this._loss, fitLoss(fit)]
    ];
    for (const [node, text] of figures) {
      setText(node, text);
      setAttribute(node, 'title', text);
    }
    setText(this._broken, fit.broken);
    this._broken.hidden = fit.broken === '';
  }

  private _showStop(fit: Fit, holder: string, stopping: boolean): void {
    const label = stopping
      ? trans.__('Stopping the fit of %1', holder)
      : trans.__('Stop the fit of %1', holder);
    // The button remains visible while it is disabled.
    this._stop.hidden = !fit.stoppable;
    setAttribute(this._stop, 'aria-disabled', String(stopping));
    setAttribute(this._stop, 'aria-label', label);
    setAttribute(this._stop, 'title', label);
  }

  private _showBar(fit: Fit, holder: string): void {
    this.node.classList.toggle('hpu-mod-unknown', fit.share === null);
    this._fill.style.transform = fit.share === null ? '' : `scaleX(${fit.share.toFixed(4)})`;
    setAttribute(this._bar, 'aria-label', trans.__('Fit of %1', holder));
    setAttribute(this._bar, 'aria-valuetext', fitText(fit));
    if (fit.share === null) {
      this._bar.removeAttribute('aria-valuenow');
    } else {
      setAttribute(this._bar, 'aria-valuenow', String(Math.floor(100 * fit.share)));
    }
  }

  private async _press(stop: () => Promise<boolean>): Promise<void> {
    if (this._stop.getAttribute('aria-disabled') === 'true') {
      return;
    }
    const began = this._began;
    this._pressed = began;
    setText(this._phase, trans.__('Stopping'));
    this._stop.setAttribute('aria-disabled', 'true');
    if (!(await stop()) && this._pressed === began) {
      this._pressed = null;
      setText(this._phase, '');
      this._stop.setAttribute('aria-disabled', 'false');
    }
  }

  /** Start times of the fit that is shown and of the fit whose Stop button was pressed. */
  private _began = 0;
  private _pressed: number | null = null;
  private readonly _name = element('span', 'hpu-Fit-name');
  private readonly _phase = element('span', 'hpu-Fit-phase');
  private readonly _stop: HTMLButtonElement;
  private readonly _bar = element('div', 'hpu-Fit-bar');
  private readonly _fill = element('div', 'hpu-Fit-fill');
  private readonly _figures = element('div', 'hpu-Fit-figures');
  private readonly _place = element('span', 'hpu-Fit-place');
  private readonly _left = element('span', 'hpu-Fit-left');
  private readonly _rate = element('span', 'hpu-Fit-rate');
  private readonly _loss = element('span', 'hpu-Fit-loss');
  private readonly _broken = element('div', 'hpu-Fit-broken');
}
