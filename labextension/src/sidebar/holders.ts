import { closeIcon, consoleIcon, launchIcon, notebookIcon } from '@jupyterlab/ui-components';

import type { Card, Holder } from '../model/snapshot';
import { cardTitle, holderDetail, holderName, kernelPhrase } from '../model/wording';
import { element, iconButton, setAttribute, setText } from '../view/dom';
import { FitView } from '../view/fit';
import { trans } from '../model/translation';

/** Actions on a holder. */
export interface HolderActions {
  goTo(holder: Holder): void;
  shutDown(card: Card, holder: Holder): void;
  /** Resolves to whether the fit received the request. */
  stopFit(card: Card, holder: Holder): Promise<boolean>;
}

/** A process that holds a card: its name and, for a kernel, buttons to open or shut it down. */
export class HolderRow {
  constructor(
    private _card: Card,
    private _holder: Holder,
    actions: HolderActions
  ) {
    const text = element('div', 'hpu-Holder-text', this._name, this._detail);
    const head = (this._head = element('div', 'hpu-Holder-head', this._icon, text));
    this._fit = new FitView(() => actions.stopFit(this._card, this._holder));
    this.node.append(head, this._fit.node);
    const { kernel } = _holder;
    const isNotebook = kernel
      ? kernel.notebook?.type === 'notebook'
      : _holder.command.endsWith('.ipynb'); // a kernel of another server
    const icon = isNotebook ? notebookIcon : consoleIcon;
    icon.element({ container: this._icon, tag: 'span', elementSize: 'normal' });
    if (kernel?.notebook) {
      const label = trans.__('Go to %1', kernel.notebook.name);
      head.append(iconButton(launchIcon, label, () => actions.goTo(this._holder)));
    }
    if (kernel) {
      const label = trans.__(
        'Shut down %1, which holds %2',
        kernelPhrase(_holder),
        cardTitle(_card.module_id)
      );
      const shutDown = () => actions.shutDown(this._card, this._holder);
      head.append(iconButton(closeIcon, label, shutDown));
    }
    this.update(_card, _holder);
  }

  readonly node = element('li', 'hpu-Holder');

  /** Show the holder's newest sample; `front` is the kernel of the active notebook. */
  update(card: Card, holder: Holder, front: string | null = null): void {
    this._card = card;
    this._holder = holder;
    const isFront = holder.kernel !== null && holder.kernel.id === front;
    this.node.classList.toggle('hpu-mod-front', isFront);
    setText(this._name, holderName(holder));
    setText(this._detail, holderDetail(holder));
    setAttribute(this._head, 'title', holder.kernel?.notebook?.path ?? holder.command);
    this._fit.show(holder.fit, holderName(holder));
  }

  private readonly _head: HTMLElement;
  private readonly _fit: FitView;
  private readonly _icon = element('span', 'hpu-Holder-icon');
  private readonly _name = element('div', 'hpu-Holder-name');
  private readonly _detail = element('div', 'hpu-Holder-detail');
}

/** The properties that determine a row's buttons; if they change, the row is replaced. */
function identity({ pid, kernel }: Holder): string {
  return JSON.stringify([pid, kernel?.id, kernel?.notebook?.type, kernel?.notebook?.name]);
}

/** The processes that hold one card. */
export class HolderList {
  constructor(private readonly _actions: HolderActions) {}

  readonly node = element('ul', 'hpu-Holders');

  update(card: Card, front: string | null): void {
    this.node.hidden = card.holders.length === 0;
    const gone = new Set(this._rows.keys());
    for (const holder of card.holders) {
      const key = identity(holder);
      gone.delete(key);
      let row = this._rows.get(key);
      if (!row) {
        row = new HolderRow(card, holder, this._actions);
        this._rows.set(key, row);
        this.node.append(row.node);
      }
      row.update(card, holder, front);
    }
    for (const key of gone) {
      this._rows.get(key)?.node.remove();
      this._rows.delete(key);
    }
  }

  private readonly _rows = new Map<string, HolderRow>();
}
