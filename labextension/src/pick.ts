import { InputDialog, Notification } from '@jupyterlab/apputils';

import type { Machine } from './model/machine';
import { holdings, longestIdleFirst } from './model/snapshot';
import type { Card, Held, Snapshot } from './model/snapshot';
import { cardLabel, heldText, unreadable } from './model/wording';
import { trans } from './model/translation';

/** Let the user select one of `choices`; if there is only one, return it without a dialog. */
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
  if (choices.length === 1) {
    return choices[0];
  }
  const items = choices.map(write);
  const answer = await InputDialog.getItem({ title, items });
  return answer.button.accept ? choices[items.indexOf(answer.value ?? '')] : undefined;
}

/** Request the current state of the cards; show an error and return null if that fails. */
async function fetchCards(machine: Machine): Promise<Snapshot | null> {
  try {
    return await machine.fetch();
  } catch (error) {
    Notification.error(trans.__('The cards cannot be read. %1', unreadable(error)), {
      autoClose: 8000
    });
    return null;
  }
}

/** Let the user select one of the machine's cards. */
export async function pickCard(machine: Machine, title: string): Promise<Card | undefined> {
  const snapshot = await fetchCards(machine);
  return snapshot
    ? pick(title, snapshot.cards, cardLabel, snapshot.reason ?? trans.__('There is no Gaudi card.'))
    : undefined;
}

/** Let the user select one of the notebooks in `held`, longest idle first. */
export function pickNotebook(held: readonly Held[]): Promise<Held | undefined> {
  const notebooks = longestIdleFirst(held).filter(({ holder }) => holder.kernel?.notebook);
  return pick(
    trans.__('Go to the notebook'),
    notebooks,
    heldText,
    trans.__('No notebook of this server holds a card.')
  );
}

/** Let the user select one of the kernels in `held` to shut down, longest idle first. */
export function pickKernel(held: readonly Held[]): Promise<Held | undefined> {
  const kernels = longestIdleFirst(held).filter(({ holder }) => holder.kernel);
  const title = trans.__('Shut down a kernel that holds a card');
  return pick(title, kernels, heldText, trans.__('No kernel of this server holds a card.'));
}

/** Return the current holders of the machine's cards, or undefined if they cannot be read. */
export async function fetchHoldings(machine: Machine): Promise<Held[] | undefined> {
  const snapshot = await fetchCards(machine);
  return snapshot ? holdings(snapshot.cards) : undefined;
}
