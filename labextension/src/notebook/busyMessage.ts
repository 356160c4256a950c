import { holdings, longestIdleFirst } from '../model/snapshot';
import type { Card, Held, Holder, Snapshot } from '../model/snapshot';
import { activity, cardTitle, doing, holderName, isLongIdle } from '../model/wording';
import { trans } from '../model/translation';

/** The text of a notification, and the kernels for its buttons. */
export interface BusyReport {
  readonly message: string;
  /** This server's kernels that hold the busy cards. */
  readonly kernels: readonly Held[];
}

/** Number of characters after which JupyterLab truncates notifications. */
const LONGEST_MESSAGE = 140;
const LONGEST_NAME = 48;
const MOST_NAMES = 3;

// The vendor's error message. If "No devices found." follows, the machine has no card.
const BUSY = /synStatus=\d+ \[[^\]]*\] Device acquire failed\.(?!\s*No devices found)/;

/** Return whether an error means that a card is busy. */
export function isBusyError(text: string): boolean {
  return BUSY.test(text);
}

/** Report the holders of the cards that an error in the kernel `kernelId` refers to. */
export function busyReport(error: string, snapshot: Snapshot, kernelId: string): BusyReport {
  const held = longestIdleFirst(holdings(candidates(error, snapshot))).filter(
    ({ holder }) => holder.kernel?.id !== kernelId
  );
  const kernels = held.filter(({ holder }) => holder.kernel !== null);
  const [first, ...others] = held;
  if (first === undefined) {
    return { message: nobody(snapshot), kernels };
  }
  if (others.length > 0) {
    return { message: several(held), kernels };
  }
  const { card, holder } = first;
  const who = holder.kernel
    ? shortName(holder)
    : trans.__('process %1 (%2)', holder.pid, shortName(holder));
  const title = cardTitle(card.module_id);
  const message =
    holder.fit !== null || isLongIdle(holder.idle)
      ? trans.__('%1 is busy: %2 holds it, %3.', title, who, doing(holder))
      : trans.__('%1 is busy: %2 holds it.', title, who);
  return { message, kernels };
}

/** Return the cards that the error names, or else all cards. */
function candidates(error: string, snapshot: Snapshot): readonly Card[] {
  const named = [...error.matchAll(/\bHPU (\d+) by\b/g)].map(match => Number(match[1]));
  const cards = snapshot.cards.filter(card => named.includes(card.module_id));
  return cards.length > 0 ? cards : snapshot.cards;
}

function nobody(snapshot: Snapshot): string {
  if (snapshot.cards.length === 0) {
    return trans.__('A card is busy, but this server cannot see its holder.');
  }
  return trans.__(
    'A card is busy, but no holder is visible. If it was released just now, run the cell again.'
  );
}

/** Return a message with as many holders as fit and the idle time of the first one. */
function several(held: readonly Held[]): string {
  const names = [...new Set(held.map(({ holder }) => shortName(holder)))];
  const { idle } = held[0]!.holder;
  const messages: string[] = [];
  for (let shown = MOST_NAMES; shown > 0; shown--) {
    const who = list(names, shown);
    if (isLongIdle(idle)) {
      messages.push(
        names.length === 1
          ? trans.__('No card is free: %1 holds them, the first %2.', who, activity(idle))
          : trans.__('No card is free: %1 hold them, the first %2.', who, activity(idle))
      );
    }
    messages.push(
      names.length === 1
        ? trans.__('No card is free: %1 holds them.', who)
        : trans.__('No card is free: %1 hold them.', who)
    );
  }
  const fitting = messages.find(message => message.length <= LONGEST_MESSAGE);
  return fitting ?? trans.__('No card is free.');
}

/** Return a list of at most `shown` names: `a, b and 2 others`. */
function list(names: readonly string[], shown: number): string {
  const words = names.slice(0, shown);
  const others = names.length - words.length;
  if (others > 0) {
    words.push(trans._n('another', '%1 others', others));
  }
  const last = words.pop() ?? '';
  return words.length > 0 ? trans.__('%1 and %2', words.join(', '), last) : last;
}

function shortName(holder: Holder): string {
  const name = holderName(holder);
  return name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME - 1)}…` : name;
}
