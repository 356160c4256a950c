import { InputDialog, Notification } from '@jupyterlab/apputils';

import type { Machine } from './model/machine';
import type { Card, Holder } from './model/snapshot';
import { cardTitle, holderName, productName } from './model/wording';

/** A kernel of this server together with the card that it holds. */
export interface Held {
  readonly card: Card;
  readonly holder: Holder;
}

/** Let the user choose one of `choices`; no question is asked where there is no choice. */
async function pick<T>(
  title: string,
  choices: readonly T[],
  write: (choice: T) => string,
  nothing: string
): Promise<T | undefined> {
  if (choices.length === 0) {
    Notification.info(nothing, { autoClose: 5000 });
    return undefined;
  }
  const items = choices.map(write);
  const answer = await InputDialog.getItem({ title, items });
  return answer.button.accept ? choices[items.indexOf(answer.value ?? '')] : undefined;
}

/** Ask for one of the machine's cards. */
export async function pickCard(machine: Machine, title: string): Promise<Card | undefined> {
  const { cards, reason } = await machine.fetch();
  const write = (card: Card) => `${cardTitle(card)} (${productName(card)})`;
  return pick(title, cards, write, reason ?? 'There is no Gaudi card.');
}

/** Ask for one of the kernels of this server that hold a card. */
export async function pickHeld(machine: Machine, title: string): Promise<Held | undefined> {
  const { cards } = await machine.fetch();
  const held = cards.flatMap(card =>
    card.holders.filter(holder => holder.kernel).map(holder => ({ card, holder }))
  );
  const write = ({ card, holder }: Held) => `${cardTitle(card)}: ${holderName(holder)}`;
  return pick(title, held, write, 'No kernel of this server holds a card.');
}
