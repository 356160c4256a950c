import type { Machine } from '../model/machine';
import { Past } from '../model/past';
import { trans } from '../model/translation';
import { notice } from '../model/wording';
import { element, setText } from '../view/dom';
import { overviewIcon } from '../view/icons';
import { NoticeBox } from '../view/notice';
import { ZoomView } from '../view/zoomview';
import { clockTime, TimeAxis } from './axis';
import { Pointer } from './pointer';
import { PastRow } from './row';
import type { Scene } from './row';
import { Legend } from './legend';

/** Possible lengths of the time range that ends now, in seconds. */
export const LENGTHS = [600, 3600, 21600, 86400] as const;
export type Length = (typeof LENGTHS)[number];

const DEFAULT_LENGTH: Length = 3600;
const DAY = 24 * 3600;

// Pixels.
const HEADINGS = 96;
const ROW_EXTRAS = 40;
const LOWEST_PLOT = 34;
const HIGHEST_PLOT = 150;
/** Below this width, labels are placed above the curves. */
const NARROW = 620;

/** Number of key presses that move the reading position across the entire width. */
const STEPS = 100;

/** All cards and their holders on one time axis. */
export class Overview extends ZoomView {
  constructor(
    machine: Machine,
    private readonly _open: (moduleId: number) => void
  ) {
    super(machine);
    this.id = 'hpu_magic-overview';
    this.addClass('hpu-Past');
    this.title.label = trans.__('HPU overview');
    this.title.caption = trans.__('The last 24 hours of all cards and their holders');
    this.title.icon = overviewIcon;
    this._past = new Past(machine);
    this._past.changed.connect(this.request, this);
    this._legend = new Legend(this._past);
    this._notice = new NoticeBox(() => machine.retry());
    this._list.setAttribute('aria-label', trans.__('Cards of this machine'));
    this._spoken.setAttribute('aria-live', 'polite');
    this._at.hidden = true;
    this._axis.node.append(this._at);
    const head = element('div', 'hpu-Past-axis', this._remark, this._axis.node);
    this._rowsArea.append(this._axis.lines, this._list, this._pointer.node);
    this.node.append(
      this._notice.node,
      head,
      this._rowsArea,
      this._legend.node,
      this._empty,
      this._spoken
    );
  }

  /** Length of the time range that ends now, in seconds, if the view is not zoomed. */
  get length(): Length {
    return this._length;
  }
  set length(length: Length) {
    this._length = length;
    this.zoomTo(null);
  }

  /** Whether curves are scaled to their highest visible value instead of to the card's memory. */
  get fitted(): boolean {
    return this._fitted;
  }
  set fitted(fitted: boolean) {
    this._fitted = fitted;
    this.changed();
  }

  /** Apply the colors of a new theme. */
  restyle(): void {
    this._rows.forEach(row => row.restyle());
    this.changed();
  }

  override dispose(): void {
    this._past.dispose();
    this._rows.forEach(row => row.dispose());
    this._rows.clear();
    super.dispose();
  }

  protected resized(): void {
    this.changed();
  }

  protected draw(): void {
    const { snapshot, missed, connection } = this.machine;
    const problem = notice(connection, snapshot, missed);
    this._notice.show(problem);
    this._update();
    const failure = this._past.failure;
    setText(this._empty, failure ? trans.__('The history cannot be read: %1', failure) : '');
    this._empty.hidden = failure === null;
    this.toggleClass('hpu-mod-narrow', this.node.clientWidth < NARROW);
    const width = this._axis.node.clientWidth;
    if (this._rows.size === 0 || width === 0) {
      return;
    }
    this._plan(width);
    this._readOut();
  }

  /** Create a row for each card, sorted by number. */
  private _update(): void {
    const modules = (this.machine.snapshot?.cards ?? []).map(card => card.module_id);
    const gone = [...this._rows.keys()].filter(moduleId => !modules.includes(moduleId));
    for (const moduleId of gone) {
      this._rows.get(moduleId)!.dispose();
      this._rows.delete(moduleId);
    }
    const added = modules.filter(moduleId => !this._rows.has(moduleId));
    for (const moduleId of added) {
      this._rows.set(moduleId, new PastRow(moduleId, this.machine, this._past, this._open));
    }
    if (gone.length + added.length > 0) {
      const order = [...this._rows.keys()].sort((first, second) => first - second);
      this._list.append(...order.map(moduleId => this._rows.get(moduleId)!.node));
      this._drawn = '';
    }
  }

  /** Draw the rows, unless the change is smaller than a pixel. */
  private _plan(width: number): void {
    const past = this._past.history?.latest ?? -Infinity;
    const now = Math.max(this.machine.snapshot?.time ?? 0, past);
    const step = this._length / width;
    const max = Math.ceil(now / step) * step;
    this.whole = { min: now - DAY, max: now };
    this.range = this.zoom ?? { min: max - this._length, max };
    const { min, max: end } = this.range;
    const version = `${this._past.version} ${this._rows.size} ${this._fitted}`;
    const key = `${version} ${min} ${end} ${width} ${this.node.clientHeight}`;
    if (key === this._drawn) {
      return;
    }
    this._drawn = key;
    const share = (this.node.clientHeight - HEADINGS) / this._rows.size - ROW_EXTRAS;
    const height = Math.round(Math.min(Math.max(share, LOWEST_PLOT), HIGHEST_PLOT));
    const scene: Scene = { range: this.range, now, width, height, fitted: this._fitted };
    this._axis.draw(this.range, width);
    const rows = [...this._rows.values()];
    this._legend.draw(rows.flatMap(row => row.draw(scene)));
    const both = rows.some(row => row.hasUtilization);
    setText(this._remark, both ? trans.__('memory, utilization dotted') : trans.__('memory'));
    this._pointer.place(this._axis.node.offsetLeft, width);
  }

  /** Show the values at the pointer, or the current values. */
  private _readOut(): void {
    const at = this._reading;
    const { min, max } = this.range;
    const within = at !== null && at >= min && at <= max;
    const share = within ? (at - min) / (max - min) : null;
    this._pointer.mark(share);
    this._at.hidden = share === null;
    if (share !== null) {
      this._at.style.left = `${(100 * share).toFixed(2)}%`;
      this._at.classList.toggle('hpu-mod-left', share > 0.8);
      setText(this._at, clockTime(at!));
    }
    for (const row of this._rows.values()) {
      row.read(within ? at : null);
    }
  }

  protected override changed(): void {
    this._drawn = '';
    super.changed();
  }

  private _read(at: number | null): void {
    this._reading = at;
    this.request();
  }

  protected override keyed(event: KeyboardEvent): void {
    const rows = [...this._rows.values()].sort((first, second) => first.moduleId - second.moduleId);
    const focused = rows.findIndex(row => row.title === event.target);
    if (focused >= 0 && this._moved(event.key, rows, focused)) {
      event.preventDefault();
      return;
    }
    if ((focused >= 0 || event.target === this.node) && this.zoomByKey(event)) {
      this._read(null);
    }
  }

  /** Move to another row or to another time in the same row, and return whether the key was handled. */
  private _moved(key: string, rows: readonly PastRow[], focused: number): boolean {
    const aim = { ArrowUp: focused - 1, ArrowDown: focused + 1, Home: 0, End: rows.length - 1 }[
      key
    ];
    if (aim !== undefined) {
      rows[aim]?.title.focus();
      return true;
    }
    if (key !== 'ArrowLeft' && key !== 'ArrowRight') {
      return false;
    }
    const { min, max } = this.range;
    const step = ((max - min) / STEPS) * (key === 'ArrowLeft' ? -1 : 1);
    const at = Math.min(Math.max((this._reading ?? max) + step, min), max);
    this._read(at);
    setText(this._spoken, `${clockTime(at)}: ${rows[focused]!.read(at)}`);
    return true;
  }

  private readonly _past: Past;
  private readonly _rows = new Map<number, PastRow>();
  private readonly _axis = new TimeAxis();
  private readonly _remark = element('span', 'hpu-Past-remark');
  private readonly _at = element('span', 'hpu-Past-at');
  private readonly _list = element('ul', 'hpu-Past-rows');
  private readonly _rowsArea = element('div', 'hpu-Past-area');
  private readonly _empty = element('div', 'hpu-Past-empty');
  private readonly _spoken = element('div', 'hpu-Past-spoken');
  private readonly _legend: Legend;
  private readonly _notice: NoticeBox;
  private readonly _pointer = new Pointer(this._rowsArea, {
    point: share => this._read(share === null ? null : this._moment(share)),
    select: (from, to) => this.zoomTo({ min: this._moment(from), max: this._moment(to) }),
    pan: share => this._pan(share),
    reset: () => this.zoomTo(null)
  });
  private _length: Length = DEFAULT_LENGTH;
  private _fitted = false;
  private _reading: number | null = null;
  private _drawn = '';

  private _moment(share: number): number {
    return this.range.min + share * (this.range.max - this.range.min);
  }

  private _pan(share: number): void {
    const { min, max } = this.range;
    const by = Math.min(Math.max(share * (max - min), this.whole.min - min), this.whole.max - max);
    this.zoomTo({ min: min + by, max: max + by });
  }
}
