import type { Card, Holder, HolderKernel, Snapshot } from '../model/snapshot';
import { cardTitle, holderName } from '../model/wording';

/** The kernel to go to or to shut down so that a card becomes free. */
export interface BusyHolder {
  readonly card: Card;
  readonly holder: Holder;
  readonly kernel: HolderKernel;
}

/** What the notification says, and whom it offers to go to. */
export interface BusyReport {
  readonly message: string;
  /** Set where one kernel of this server holds the one card in question. */
  readonly holder: BusyHolder | null;
}

/** JupyterLab cuts notifications off at 140 characters. */
const LONGEST_NAME = 48;

// The vendor's sentence; "No devices found." behind it means that there is no card at all.
const BUSY = /synStatus=\d+ \[[^\]]*\] Device acquire failed\.(?!\s*No devices found)/;

/** Whether an error says that a card could not be had because it is taken. */
export function isBusyError(text: string): boolean {
  return BUSY.test(text);
}

/** Tell who holds the card that an error in kernel `kernelId` is about. */
export function busyReport(error: string, snapshot: Snapshot, kernelId: string): BusyReport {
  const held = candidates(error, snapshot)
    .flatMap(card => card.holders.map(holder => ({ card, holder })))
    .filter(({ holder }) => holder.kernel?.id !== kernelId);
  const [first, ...others] = held;
  if (first === undefined) {
    return { message: nobody(snapshot), holder: null };
  }
  if (others.length > 0) {
    const names = [...new Set(held.map(({ holder }) => shortName(holder)))];
    return { message: `All cards are busy. They are held by ${list(names)}.`, holder: null };
  }
  const { card, holder } = first;
  const who = holder.kernel ? shortName(holder) : `process ${holder.pid} (${shortName(holder)})`;
  return {
    message: `${cardTitle(card)} is busy: ${who} holds it.`,
    holder: holder.kernel && { card, holder, kernel: holder.kernel }
  };
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

function list(names: readonly string[]): string {
  const [first, second, ...others] = names;
  if (second === undefined) {
    return String(first);
  }
  return others.length > 0 ? `${first} and ${others.length + 1} others` : `${first} and ${second}`;
}

function shortName(holder: Holder): string {
  const name = holderName(holder);
  return name.length > LONGEST_NAME ? `${name.slice(0, LONGEST_NAME - 1)}…` : name;
}
