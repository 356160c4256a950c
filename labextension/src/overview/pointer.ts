import { element } from '../view/dom';

/** What the mouse does over the rows; places are shares of their width. */
export interface PointerActions {
  /** A moment is pointed at, or none any more. */
  point(share: number | null): void;
  /** A stretch was marked. */
  select(from: number, to: number): void;
  /** The stretch in sight shall move by a share of its length. */
  pan(share: number): void;
  /** All shall be seen again. */
  reset(): void;
}

const NARROWEST_SELECTION = 4; // px; less is a click

/** The line through all rows where the mouse is, and the stretch that it marks. */
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

  /** Lie over the plots, which begin at `left` and are `width` pixels wide. */
  place(left: number, width: number): void {
    this._width = width;
    this.node.style.left = `${left}px`;
    this.node.style.width = `${width}px`;
  }

  /** Show the line at a share of the width, or not at all. */
  mark(share: number | null): void {
    this._line.hidden = share === null;
    if (share !== null) {
      this._line.style.transform = `translateX(${(share * this._width).toFixed(1)}px)`;
    }
  }

  /** Where over the plots the mouse is; null beside them. */
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
      event.preventDefault(); // no text is to be marked
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

  /** Move along the time with a wheel that turns sideways, or with Shift. */
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
