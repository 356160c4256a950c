import { element } from '../view/dom';

/** Mouse actions on the rows; positions are fractions of the width. */
export interface PointerActions {
  /** Read the values at a position, or the current values if it is null. */
  point(share: number | null): void;
  /** Zoom to a selection. */
  select(from: number, to: number): void;
  /** Move the visible time range by a share of its length. */
  pan(share: number): void;
  /** Reset the zoom. */
  reset(): void;
}

const NARROWEST_SELECTION = 4; // px; a narrower selection counts as a click

/** The vertical line through all rows at the mouse position, and the selection. */
export class Pointer {
  constructor(
    private readonly _area: HTMLElement,
    private readonly _actions: PointerActions
  ) {
    this.node.setAttribute('aria-hidden', 'true');
    this._line.hidden = this._marked.hidden = true;
    _area.addEventListener('pointermove', event => this._moved(event));
    _area.addEventListener('pointerleave', () => this._left());
    _area.addEventListener('pointerdown', event => this._pressed(event));
    _area.addEventListener('pointerup', event => this._released(event));
    _area.addEventListener('pointercancel', () => this._stop());
    _area.addEventListener('dblclick', event => {
      if (this._share(event) !== null) {
        _actions.reset();
      }
    });
    _area.addEventListener('wheel', event => this._wheeled(event), { passive: false });
  }

  private readonly _line = element('div', 'hpu-Past-line');
  private readonly _marked = element('div', 'hpu-Past-marked');
  readonly node = element('div', 'hpu-Past-pointer', this._line, this._marked);

  /** Cover the plots, which start at `left` and are `width` pixels wide. */
  place(left: number, width: number): void {
    this._width = width;
    this.node.style.left = `${left}px`;
    this.node.style.width = `${width}px`;
  }

  /** Show the line at a share of the width, or hide it. */
  mark(share: number | null): void {
    this._line.hidden = share === null;
    if (share !== null) {
      this._line.style.transform = `translateX(${(share * this._width).toFixed(1)}px)`;
    }
  }

  /** Return the position of the mouse over the plots, or null if it is outside them. */
  private _share(event: MouseEvent): number | null {
    const share = (event.clientX - this.node.getBoundingClientRect().left) / this._width;
    return this._width > 0 && share >= 0 && share <= 1 ? share : null;
  }

  private _moved(event: PointerEvent): void {
    const share = this._share(event);
    if (this._from !== null) {
      const to = share ?? (event.movementX < 0 ? 0 : 1);
      this._marked.hidden = false;
      this._marked.style.left = `${100 * Math.min(this._from, to)}%`;
      this._marked.style.width = `${100 * Math.abs(to - this._from)}%`;
      this._to = to;
    }
    this._actions.point(share);
  }

  private _left(): void {
    if (this._from === null) {
      this._actions.point(null);
    }
  }

  private _pressed(event: PointerEvent): void {
    const share = this._share(event);
    if (event.button === 0 && event.pointerType === 'mouse' && share !== null) {
      this._from = this._to = share;
      this._area.setPointerCapture(event.pointerId);
      event.preventDefault(); // do not select text
    }
  }

  private _released(event: PointerEvent): void {
    const [from, to] = [this._from, this._to];
    this._stop();
    if (from !== null && Math.abs(to - from) * this._width >= NARROWEST_SELECTION) {
      this._actions.select(Math.min(from, to), Math.max(from, to));
    }
    if (this._share(event) === null) {
      this._actions.point(null);
    }
  }

  private _stop(): void {
    this._from = null;
    this._marked.hidden = true;
  }

  /** Move in time with a horizontal wheel, or with the wheel while Shift is pressed. */
  private _wheeled(event: WheelEvent): void {
    const by = event.deltaX || (event.shiftKey ? event.deltaY : 0);
    if (by !== 0 && this._share(event) !== null) {
      event.preventDefault();
      this._actions.pan(by / Math.max(this._width, 1));
    }
  }

  private _width = 0;
  private _from: number | null = null;
  private _to = 0;
}
