import type { Machine } from '../model/machine';
import { trans } from '../model/translation';
import { idlest, inUse, inventory, isStale, notice } from '../model/wording';
import { CardsView } from '../view/cardsview';
import { element, iconButton, setText } from '../view/dom';
import { cardIcon, overviewIcon } from '../view/icons';
import { NoticeBox } from '../view/notice';
import { Offer } from './offer';
import { CardRow } from './row';
import type { CardActions } from './row';

/** The sidebar: all cards of the machine and their holders. */
export class CardsPanel extends CardsView {
  constructor(
    machine: Machine,
    private readonly _actions: CardActions
  ) {
    super(machine);
    this.id = 'hpu_magic-sidebar';
    this.addClass('hpu-Cards');
    this.title.icon = cardIcon;
    this.title.caption = trans.__('HPU cards');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('HPU cards'));
    this._notice = new NoticeBox(() => machine.retry());
    this._list.setAttribute('aria-label', trans.__('Cards of this machine'));
    this._offer = new Offer(_actions);
    const overview = trans.__('Open the overview of all cards');
    this._headline.append(iconButton(overviewIcon, overview, () => _actions.openOverview()));
    this.node.append(this._headline, this._notice.node, this._offer.node, this._list);
    this._resized.observe(this._list);
  }

  /** ID of the active notebook's kernel, whose row is marked. */
  get front(): string | null {
    return this._front;
  }
  set front(kernelId: string | null) {
    if (kernelId !== this._front) {
      this._front = kernelId;
      this.request();
    }
  }

  /** Apply the colors of a new theme. */
  restyle(): void {
    this._rows.forEach(row => row.restyle());
    this.request();
  }

  override dispose(): void {
    this._resized.disconnect();
    super.dispose();
  }

  protected draw(): void {
    const { snapshot, missed, connection, history, options } = this.machine;
    const problem = notice(connection, snapshot, missed);
    this._notice.show(problem);
    this.node.classList.toggle('hpu-mod-stale', isStale(problem));
    const cards = snapshot?.cards ?? [];
    this._headline.hidden = cards.length === 0;
    if (cards.length > 0) {
      setText(this._inventory, inventory(cards));
      setText(this._inUse, inUse(cards));
      this._badge.hidden = !cards.every(card => card.simulated);
    }
    this._offer.show(isStale(problem) ? null : idlest(cards));
    const gone = new Set(this._rows.keys());
    for (const card of cards) {
      gone.delete(card.module_id);
      const row = this._rows.get(card.module_id) ?? this._add(card.module_id);
      row.update(card, options, this._front);
      row.drawHistory(history.series(card.module_id));
    }
    for (const moduleId of gone) {
      this._rows.get(moduleId)?.node.remove();
      this._rows.delete(moduleId);
    }
  }

  private _add(moduleId: number): CardRow {
    const row = new CardRow(moduleId, this._actions);
    this._rows.set(moduleId, row);
    // Rows are sorted by card number, including those that are added later.
    const later = [...this._rows.keys()].filter(other => other > moduleId);
    const next = later.length > 0 ? this._rows.get(Math.min(...later))!.node : null;
    this._list.insertBefore(row.node, next);
    return row;
  }

  /** Also handles the appearance of a scroll bar, which reduces the width. */
  private readonly _resized = new ResizeObserver(() => {
    if (this._list.clientWidth !== this._width) {
      this._width = this._list.clientWidth;
      this.restyle();
    }
  });
  private _width = 0;
  private _front: string | null = null;
  private readonly _inventory = element('span', 'hpu-Cards-inventory');
  private readonly _badge = element('span', 'hpu-Badge', trans.__('simulated'));
  private readonly _inUse = element('span', 'hpu-Cards-inUse');
  private readonly _headline = element(
    'div',
    'hpu-Cards-headline',
    element('div', 'hpu-Cards-words', this._inventory, ' ', this._badge, ' ', this._inUse)
  );
  private readonly _list = element('ul', 'hpu-Cards-list');
  private readonly _notice: NoticeBox;
  private readonly _offer: Offer;
  private readonly _rows = new Map<number, CardRow>();
}
