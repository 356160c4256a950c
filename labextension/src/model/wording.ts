// What the views say. No markup here: views show these sentences as text.

import { fitBrief } from './fit';
import { failureOf } from './connection';
import type { ConnectionState } from './connection';
import type { MachineOptions } from './machine';
import type { HolderSpan } from './past';
import { reasonOf } from './server';
import { holdings, longestIdleFirst } from './snapshot';
import type { Card, Held, Holder, Snapshot } from './snapshot';
import { percent, usage } from './units';

/** How full a card is, in words that style sheets know. */
export type MemoryLevel = 'normal' | 'warning' | 'critical';

/** Why a view has nothing, or nothing new, to show. */
export interface Notice {
  readonly kind:
    'waiting' | 'empty' | 'remark' | 'missed' | 'lost' | 'blocked' | 'missing' | 'refused';
  readonly title: string;
  readonly detail: string;
  /** When the next attempt is made, `Date.now()`'s time. */
  readonly retryAt?: number;
}

/** Return a card's generation as the vendor spells it in prose, `Gaudi2`, or else its name. */
export function productName(card: Card): string {
  return (card.generation ?? card.name).replace(/\bGAUDI/g, 'Gaudi');
}

/** Return the number by which a card is known to users. */
export function cardTitle(card: Pick<Card, 'index'>): string {
  return `HPU ${card.index}`;
}

/** Name a card with its product, where that is known: `HPU 0 (Gaudi2)`. */
export function cardLabel(card: Card): string {
  const name = productName(card);
  return name ? `${cardTitle(card)} (${name})` : cardTitle(card);
}

/** Say what the machine has: `8 Gaudi2 cards`. */
export function inventory(cards: readonly Card[]): string {
  // A card that cannot be read has no name.
  const names = new Set(cards.map(productName).filter(name => name !== ''));
  const words = [String(cards.length)];
  words.push(...(names.size === 1 ? names : ['Gaudi']));
  words.push(cards.length === 1 ? 'card' : 'cards');
  return words.join(' ');
}

/**
 * What is known of a card's holder: seen, not seen although there must be one, none,
 * or nothing, because the card cannot be read.
 */
export type Occupancy = 'held' | 'unseen' | 'free' | 'unknown';

// The driver itself takes up to about a hundredth of a free card's memory.
const MOST_OF_FREE_CARD = 1 / 50;

/** Tell whether a card is in use. */
export function occupancy(card: Card): Occupancy {
  if (card.holders.length > 0) {
    return 'held';
  }
  if (card.error !== null) {
    return 'unknown';
  }
  return (memoryShare(card) ?? 0) > MOST_OF_FREE_CARD ? 'unseen' : 'free';
}

/** Say how many of them are in use: `2 in use`. */
export function inUse(cards: readonly Card[]): string {
  const held = cards.filter(card => ['held', 'unseen'].includes(occupancy(card))).length;
  return `${held === 0 ? 'none' : held} in use`;
}

/** Return the share of a card's memory that is in use, or null where it is not known. */
export function memoryShare(card: Card): number | null {
  if (card.memory_used === null || !card.memory_total) {
    return null;
  }
  return Math.min(Math.max(card.memory_used / card.memory_total, 0), 1);
}

/** Return how full a card is by the user's thresholds. */
export function memoryLevel(
  share: number | null,
  options: Pick<MachineOptions, 'memoryWarning' | 'memoryCritical'>
): MemoryLevel {
  const full = 100 * (share ?? 0);
  if (full >= options.memoryCritical) {
    return 'critical';
  }
  return full >= options.memoryWarning ? 'warning' : 'normal';
}

/** Write a card's memory: `12.3 / 96 GiB`. */
export function memoryText(card: Card): string {
  if (card.memory_used === null || card.memory_total === null) {
    return '';
  }
  return usage(card.memory_used, card.memory_total);
}

/** Write what else is known of a card; what is absent takes no place. */
export function measurements(card: Card): { text: string; label: string }[] {
  const known: { text: string; label: string }[] = [];
  if (card.utilization !== null) {
    known.push({ text: percent(card.utilization), label: 'Utilisation' });
  }
  if (card.temperature !== null) {
    known.push({ text: `${Math.round(card.temperature)} °C`, label: 'Temperature' });
  }
  if (card.power !== null) {
    known.push({ text: `${Math.round(card.power)} W`, label: 'Power' });
  }
  return known;
}

/** Name a holder: its notebook, its kernel, or the process. */
export function holderName(holder: Holder): string {
  if (holder.kernel) {
    return holder.kernel.notebook?.name || `Kernel ${holder.kernel.name} without a notebook`;
  }
  return holder.command || `Process ${holder.pid}`;
}

/** Name a holder of the past as one of the present is named. */
export function spanName(span: HolderSpan): string {
  const { pid, command, kernel, notebook } = span;
  const name = notebook?.split('/').pop() ?? '';
  const path = notebook === null ? null : { path: notebook, name, type: 'notebook' };
  const known = kernel === null ? null : { id: '', name: kernel, state: '', notebook: path };
  return holderName({ pid, command, user: null, idle: null, kernel: known, fit: null });
}

/** Name the kernel that can be shut down: `the kernel of a.ipynb`. */
export function kernelPhrase(holder: Holder): string {
  const notebook = holder.kernel?.notebook;
  return notebook ? `the kernel of ${notebook.name}` : `kernel ${holder.kernel?.name ?? ''}`;
}

const UNITS: readonly [number, string][] = [
  [86400, 'days'],
  [3600, 'h'],
  [60, 'min']
];

/** Say for how long a session has been idle, as the Python side does: `idle for 2 h`. */
export function activity(idle: number | null): string {
  if (idle === null) {
    return '';
  }
  if (idle === 0) {
    return 'busy';
  }
  const [scale, unit] = UNITS.find(([scale]) => idle >= scale) ?? [];
  if (scale === undefined) {
    return 'idle';
  }
  const count = Math.floor(idle / scale);
  return `idle for ${count} ${count === 1 && unit === 'days' ? 'day' : unit}`;
}

/** Say what a session does, or for how long it has been idle: `in a fit: 42 %, 40 s left`. */
export function doing({ fit, idle }: Holder): string {
  return fit === null ? activity(idle) : `in a fit: ${fitBrief(fit)}`;
}

/** Say more of a holder, for a second line. */
export function holderDetail(holder: Holder): string {
  const { kernel, idle, pid, user } = holder;
  // A kernel that starts, restarts or is dead is neither idle nor busy.
  const told = kernel === null || ['idle', 'busy'].includes(kernel.state) ? activity(idle) : '';
  const parts = [told || (kernel?.state ?? ''), `process ${pid}`, kernel ? '' : (user ?? '')];
  return parts.filter(part => part !== '').join(' · ');
}

/** Say which card a holder has, and whether it uses it: `HPU 1: a.ipynb, idle for 2 h`. */
export function heldText({ card, holder }: Held): string {
  const said = doing(holder);
  // That somebody is idle just now is no news.
  const idle = said === '' || said === 'idle' ? '' : `, ${said}`;
  return `${cardTitle(card)}: ${holderName(holder)}${idle}`;
}

/** A kernel that ran something a minute ago is at work. */
const IDLE_ENOUGH = 60;

/** Where no card is free, return the kernel that has been idle for longest. */
export function idlest(cards: readonly Card[]): Held | null {
  if (cards.some(card => occupancy(card) === 'free')) {
    return null;
  }
  const kernels = holdings(cards).filter(({ holder }) => holder.kernel !== null);
  const [first] = longestIdleFirst(kernels);
  return first !== undefined && (first.holder.idle ?? 0) >= IDLE_ENOUGH ? first : null;
}

/** Say what shutting a holder down means, before it is done. */
export function shutdownWarning(card: Card, holder: Holder): string {
  const path = holder.kernel?.notebook?.path;
  const what = path ? `The kernel of ${path}` : `A ${holder.kernel?.name ?? ''} kernel`;
  const running =
    holder.fit === null
      ? 'A cell is running in it now'
      : `A fit runs in it (${fitBrief(holder.fit)})`;
  const isBusy = holder.kernel?.state === 'busy' || holder.fit !== null;
  const busy = isBusy ? ` ${running}; it will not finish.` : '';
  return (
    `${what} holds ${cardTitle(card)}.${busy} Its variables are lost: models, ` +
    'tensors and results that were not saved to a file. The document itself stays as it is.'
  );
}

/** Say why a request for the cards failed. */
export function unreadable(error: unknown): string {
  const kind = failureOf(error);
  const title = notice({ kind, retryAt: 0 }, null, null)?.title;
  return kind === 'lost' ? reasonOf(error) : `${title}.`;
}

/** Say why there is nothing, nothing new, or not all to show; null when all is well. */
export function notice(
  state: ConnectionState,
  snapshot: Snapshot | null,
  missed: string | null
): Notice | null {
  switch (state.kind) {
    case 'lost':
      return {
        kind: 'lost',
        title: 'Connection to the server lost',
        detail: snapshot ? 'The figures are the last that arrived.' : '',
        retryAt: state.retryAt
      };
    case 'blocked':
      return {
        kind: 'blocked',
        title: 'No live figures',
        detail:
          'The server answers, but no WebSocket to it opens; a proxy in between may not pass them on.',
        retryAt: state.retryAt
      };
    case 'missing':
      return {
        kind: 'missing',
        title: 'The server extension is off',
        detail:
          'The Jupyter server runs without hpu_magic. Install it in the server’s environment, ' +
          'or turn it on with “jupyter server extension enable hpu_magic”, and restart the server.',
        retryAt: state.retryAt
      };
    case 'refused':
      return {
        kind: 'refused',
        title: 'No permission',
        detail:
          'The Jupyter server does not let you see its cards. Log in again, or ask for access.',
        retryAt: state.retryAt
      };
    default:
      break;
  }
  if (snapshot === null) {
    return { kind: 'waiting', title: 'Looking for cards …', detail: '' };
  }
  if (snapshot.cards.length === 0) {
    return { kind: 'empty', title: 'No Gaudi cards to show', detail: snapshot.reason ?? '' };
  }
  if (missed !== null) {
    return { kind: 'missed', title: 'No new figures', detail: missed };
  }
  return snapshot.reason
    ? { kind: 'remark', title: 'Not everything can be seen', detail: snapshot.reason }
    : null;
}

/** Whether the figures beside a notice are old ones. */
export function isStale(problem: Notice | null): boolean {
  return problem !== null && problem.kind !== 'remark' && problem.kind !== 'waiting';
}
