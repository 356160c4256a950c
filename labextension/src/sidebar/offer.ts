import type { Held } from '../model/snapshot';
import { cardTitle } from '../model/wording';
import { element, setText } from '../view/dom';
import { HolderRow } from './holders';
import type { HolderActions } from './holders';
import { trans } from '../model/translation';

/** Shows the kernel that has been idle the longest, with its buttons, if no card is free. */
export class Offer {
  constructor(private readonly _actions: HolderActions) {
    this.node.setAttribute('role', 'status');
    this.node.hidden = true;
    this.node.append(this._title, this._list);
  }

  readonly node = element('div', 'hpu-Offer');

  show(held: Held | null): void {
    this.node.hidden = held === null;
    if (held === null) {
      return;
    }
    const { card, holder } = held;
    setText(
      this._title,
      trans.__('No card is free. %1 has been idle the longest:', cardTitle(card.module_id))
    );
    const key = `${card.module_id} ${holder.pid} ${holder.kernel?.notebook?.name}`;
    if (key !== this._key) {
      this._key = key;
      this._row = new HolderRow(card, holder, this._actions);
      this._list.replaceChildren(this._row.node);
    }
    this._row?.update(card, holder);
  }

  private _key = '';
  private _row: HolderRow | null = null;
  private readonly _title = element('div', 'hpu-Offer-title');
  private readonly _list = element('ul', 'hpu-Holders');
}
