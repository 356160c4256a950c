import { holdings, longestIdleFirst } from '../model/snapshot';
import type { Card, Held, Holder, Snapshot } from '../model/snapshot';
import { activity, cardTitle, doing, holderName } from '../model/wording';

/** What the notification says, and whom it offers to go to. */
export interface BusyReport {
  readonly message: string;
  /** The kernels of this server that hold the cards in question. */
  readonly kernels: readonly Held[];
}

/** JupyterLab cuts notifications off at this many characters. */
const LONGEST_MESSAGE = 140;
const LONGEST_NAME = 48;
const MOST_NAMES = 3;

// The vendor's sentence; "No devices found." behind it means that there is no card at all.
const BUSY = /synStatus=\d+ \[[^\]]*\] Device acquire failed\.(?!\s*No devices found)/;

/** Whether an error says that a card could not be had because it is taken. */
export function isBusyError(text: string): boolean {
  return BUSY.test(text);
}

/** Tell who holds the card that an error in kernel `kernelId` is about. */
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
  const who = holder.kernel ? shortName(holder) : `process ${holder.pid} (${shortName(holder)})`;
  const what = holder.fit === null ? idleness(holder) : `, ${doing(holder)}`;
  return { message: `${cardTitle(card)} is busy: ${who} holds it${what}.`, kernels };
}

/** The cards that the error names, else all of them. */
function candidates(error: string, snapshot: Snapshot): readonly Card[] {
  const named = [...error.matchAll(/\bcard (\d+) by\b/g)].map(match => Number(match[1]));
  const cards = snapshot.cards.filter(card => named.includes(card.module_id));
  return cards.length > 0 ? cards : snapshot.cards;
}

function nobody(snapshot: Snapshot): string {
  if (snapshot.cards.length === 0) {
    return 'A card is busy, and its holder cannot be seen from this server.';
  }
  return 'A card is busy, but nobody is seen to hold one. If it was released just now, run the cell again.';
}

/** Name as many holders as there is room for, and for how long the first has been idle. */
function several(held: readonly Held[]): string {
  const names = [...new Set(held.map(({ holder }) => shortName(holder)))];
  const verb = names.length === 1 ? 'holds' : 'hold';
  const idle = idleness(held[0]!.holder).replace(', idle', ', the first idle');
  const ends = idle === '' ? ['.'] : [`${idle}.`, '.'];
  for (let shown = MOST_NAMES; shown > 0; shown--) {
    for (const end of ends) {
      const message = `No card is free: ${list(names, shown)} ${verb} them${end}`;
      if (message.length <= LONGEST_MESSAGE) {
        return message;
      }
    }
  }
  return 'No card is free.';
}

/** Say for how long a holder has been idle; nothing where that is no time. */
function idleness(holder: Holder): string {
  const said = activity(holder.idle);
  return said.startsWith('idle for') ? `, ${said}` : '';
}

/** Write a list with at most `shown` of the names: `a, b and 2 others`. */
function list(names: readonly string[], shown: number): string {
  const words = names.slice(0, shown);
  const others = names.length - words.length;
  if (others > 0) {
    words.push(others === 1 ? 'another' : `${others} others`);
  }
  const last = words.pop() ?? '';
  return words.length > 0 ? `${words.join(', ')} and ${last}` : last;
}

function shortName(holder: Holder): string {
  const name = holderName(holder);
  return name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME - 1)}…` : name;
}
