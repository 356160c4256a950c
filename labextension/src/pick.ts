import { InputDialog, Notification } from '@jupyterlab/apputils';

import type { Machine } from './model/machine';
import { holdings, longestIdleFirst } from './model/snapshot';
import type { Card, Held, Snapshot } from './model/snapshot';
import { cardLabel, heldText, unreadable } from './model/wording';
import { trans } from './model/translation';

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
  if (choices.length === 1) {
    return choices[0];
  }
  const items = choices.map(write);
  const answer = await InputDialog.getItem({ title, items });
  return answer.button.accept ? choices[items.indexOf(answer.value ?? '')] : undefined;
}

/** Return the cards as they are now; where they cannot be read, say so and return null. */
async function look(machine: Machine): Promise<Snapshot | null> {
  try {
    return await machine.fetch();
  } catch (error) {
    Notification.error(trans.__('The cards cannot be read. %1', unreadable(error)), {
      autoClose: 8000
    });
    return null;
  }
}

/** Ask for one of the machine's cards. */
export async function pickCard(machine: Machine, title: string): Promise<Card | undefined> {
  const seen = await look(machine);
  return seen
    ? pick(title, seen.cards, cardLabel, seen.reason ?? trans.__('There is no Gaudi card.'))
    : undefined;
}

/** Ask which of the notebooks in `held` to go to; the longest idle comes first. */
export function pickNotebook(held: readonly Held[]): Promise<Held | undefined> {
  const notebooks = longestIdleFirst(held).filter(({ holder }) => holder.kernel?.notebook);
  return pick(
    trans.__('Go to the notebook'),
    notebooks,
    heldText,
    trans.__('No notebook of this server holds a card.')
  );
}

/** Ask which of the kernels in `held` to shut down; the longest idle comes first. */
export function pickKernel(held: readonly Held[]): Promise<Held | undefined> {
  const kernels = longestIdleFirst(held).filter(({ holder }) => holder.kernel);
  const title = trans.__('Shut down a kernel that holds a card');
  return pick(title, kernels, heldText, trans.__('No kernel of this server holds a card.'));
}

/** Return who holds the machine's cards now; undefined where they cannot be read. */
export async function fetchHoldings(machine: Machine): Promise<Held[] | undefined> {
  const seen = await look(machine);
  return seen ? holdings(seen.cards) : undefined;
}
