import type { MachineOptions } from '../model/machine';
import type { Series } from '../model/history';
import type { Card } from '../model/snapshot';
import { capacity, peak, percent, span, upperEdge } from '../model/units';
import {
  cardLabel,
  cardTitle,
  measurements,
  memoryLevel,
  memoryShare,
  memoryText,
  occupancy,
  productName
} from '../model/wording';
import type { Occupancy } from '../model/wording';
import { element, setAttribute, setText } from '../view/dom';
import { HolderList } from './holders';
import type { HolderActions } from './holders';
import { Sparkline } from './sparkline';
import { trans } from '../model/translation';

/** Actions on a card and its holders. */
export interface CardActions extends HolderActions {
  open(moduleId: number): void;
  openOverview(): void;
}

/** Return text that says whether a card is free or in use, unless its holders are listed below. */
function occupancyText(state: Occupancy): string {
  if (state === 'free') {
    return trans.__('free');
  }
  return state === 'unseen' ? trans.__('in use') : '';
}

/** One card in the sidebar. */
export class CardRow {
  constructor(moduleId: number, actions: CardActions) {
    this._holders = new HolderList(actions);
    this._title.type = 'button';
    this._meter.setAttribute('role', 'meter');
    this._meter.setAttribute('aria-valuemin', '0');
    this._meter.setAttribute('aria-valuemax', '100');
    this._meter.append(this._fill);
    const head = element('div', 'hpu-Card-head', this._title, this._state);
    this._figures.append(this._usage, this._facts);
    const parts = [head, this._meter, this._figures, this._sparkline.node, this._error];
    this.node.append(...parts, this._holders.node);
    // The button is for keyboard users; with the mouse, the entire row can be clicked.
    this.node.addEventListener('click', () => actions.open(moduleId));
  }

  readonly node = element('li', 'hpu-Card');

  /** Show the card's newest sample; `front` is the kernel of the active notebook. */
  update(card: Card, options: MachineOptions, front: string | null): void {
    const state = occupancy(card);
    const free = state === 'free';
    setText(this._number, cardTitle(card.module_id));
    setText(this._name, productName(card));
    this._name.hidden = productName(card) === '';
    setText(this._state, occupancyText(state));
    if (free !== this._free) {
      this._free = free;
      this.node.classList.toggle('hpu-mod-free', free);
      this.restyle();
    }
    setAttribute(this._title, 'aria-label', trans.__('%1: open charts', cardLabel(card)));
    this._total = card.memory_total;
    this._updateMemory(card, options);
    this._updateFacts(card);
    // Hide the line if the card is free and has no other measurements.
    this._figures.hidden =
      state !== 'held' && !card.memory_used && this._facts.childElementCount === 0;
    this._error.hidden = card.error === null;
    setText(this._error, card.error ?? '');
    this._holders.update(card, front);
    const isFront = front !== null && card.holders.some(({ kernel }) => kernel?.id === front);
    this.node.classList.toggle('hpu-mod-front', isFront);
    setAttribute(this.node, 'aria-current', String(isFront));
  }

  /** Draw the memory usage of the last few minutes. */
  drawHistory(series: Series): void {
    let lowest = Infinity;
    let highest = 0;
    for (const value of series.memory_used) {
      lowest = value < lowest ? value : lowest;
      highest = value > highest ? value : highest;
    }
    // Do not draw the driver's own memory on a free card.
    const quiet = highest === 0 || (this._free && highest === lowest);
    this._sparkline.node.hidden = quiet;
    if (!quiet) {
      const edge = upperEdge(highest, this._total);
      this._sparkline.draw(series.time, series.memory_used, series.span, edge);
      this._describeHistory(series.span, highest, edge);
    }
  }

  /** Apply the theme's colors and the panel's width. */
  restyle(): void {
    this._sparkline.restyle();
  }

  private _updateMemory(card: Card, options: MachineOptions): void {
    const share = memoryShare(card);
    const text = memoryText(card);
    this._meter.hidden = share === null;
    setText(this._usage, text);
    setAttribute(this.node, 'data-level', memoryLevel(share, options));
    if (share !== null && share !== this._share) {
      this._share = share;
      this._fill.style.transform = `scaleX(${share.toFixed(4)})`;
      setAttribute(this._meter, 'aria-label', trans.__('Memory of %1', cardTitle(card.module_id)));
      setAttribute(this._meter, 'aria-valuenow', String(Math.round(100 * share)));
      setAttribute(this._meter, 'aria-valuetext', `${text} (${percent(100 * share)})`);
    }
  }

  private _updateFacts(card: Card): void {
    const known = measurements(card);
    while (this._facts.childElementCount > known.length) {
      this._facts.lastElementChild!.remove();
    }
    known.forEach(({ text, label }, position) => {
      let fact = this._facts.children[position];
      if (!fact) {
        fact = element('span', 'hpu-Card-fact');
        this._facts.append(fact);
      }
      setText(fact, text);
      setAttribute(fact, 'title', label);
      setAttribute(fact, 'aria-label', `${label} ${text}`);
    });
  }

  private _describeHistory(length: number, highest: number, edge: number): void {
    const described = `${length} ${highest} ${edge}`;
    if (described !== this._described) {
      this._described = described;
      this._sparkline.node.title = trans.__(
        'Memory in the last %1: up to %2. The upper edge is %3.',
        span(length),
        peak(highest, this._total),
        capacity(edge)
      );
    }
  }

  private _share: number | null = null;
  private _described = '';
  private _free = false;
  private readonly _number = element('span', 'hpu-Card-number');
  private readonly _name = element('span', 'hpu-Card-name');
  private readonly _title = element('button', 'hpu-Card-title', this._number, this._name);
  private readonly _state = element('span', 'hpu-Card-state');
  private readonly _meter = element('div', 'hpu-Meter');
  private readonly _fill = element('div', 'hpu-Meter-fill');
  private readonly _figures = element('div', 'hpu-Card-figures');
  private readonly _usage = element('span', 'hpu-Card-usage');
  private readonly _facts = element('span', 'hpu-Card-facts');
  private readonly _sparkline = new Sparkline();
  private _total: number | null = null;
  private readonly _error = element('div', 'hpu-Card-error');
  private readonly _holders: HolderList;
}
