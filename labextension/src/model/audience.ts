import { DisposableDelegate } from '@lumino/disposable';
import type { IDisposable } from '@lumino/disposable';

/** The part of `Document` that reports whether the page is visible. */
export type VisibilitySource = Pick<
  Document,
  'hidden' | 'addEventListener' | 'removeEventListener'
>;

/** Milliseconds to keep the stream open while no view is visible, for example between two views. */
const GRACE = 2000;

/**
 * The visible views. The stream is open while at least one view is visible on a visible page, and
 * closes shortly afterwards.
 */
export class Audience implements IDisposable {
  constructor(
    private readonly _gathered: () => void,
    private readonly _left: () => void,
    private readonly _page: VisibilitySource = document
  ) {
    this._page.addEventListener('visibilitychange', this._update);
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  dispose(): void {
    this._isDisposed = true;
    window.clearTimeout(this._timer);
    this._page.removeEventListener('visibilitychange', this._update);
  }

  /** Count a view as visible until the result is disposed. */
  join(): IDisposable {
    const view = new DisposableDelegate(() => {
      this._views.delete(view);
      this._update();
    });
    this._views.add(view);
    this._update();
    return view;
  }

  private readonly _update = (): void => {
    const watching = this._views.size > 0 && !this._page.hidden;
    window.clearTimeout(this._timer);
    if (watching && !this._watching) {
      this._watching = true;
      this._gathered();
    } else if (!watching && this._watching && !this._isDisposed) {
      this._timer = window.setTimeout(() => {
        this._watching = false;
        this._left();
      }, GRACE);
    }
  };

  private readonly _views = new Set<IDisposable>();
  private _watching = false;
  private _timer = 0;
  private _isDisposed = false;
}
