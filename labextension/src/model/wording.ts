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
import { trans } from './translation';

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
export function cardTitle(moduleId: number): string {
  return `HPU ${moduleId}`;
}

/** Name a card with its product, where that is known: `HPU 0 (Gaudi2)`. */
export function cardLabel(card: Card): string {
  const name = productName(card);
  return name ? `${cardTitle(card.module_id)} (${name})` : cardTitle(card.module_id);
}

/** Say what the machine has: `8 Gaudi2 cards`. */
export function inventory(cards: readonly Card[]): string {
  // A card that cannot be read has no name.
  const names = new Set(cards.map(productName).filter(name => name !== ''));
  const [name] = names.size === 1 ? names : ['Gaudi'];
  return trans._n('%1 %2 card', '%1 %2 cards', cards.length, name!);
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
  return held === 0 ? trans.__('none in use') : trans._n('%1 in use', '%1 in use', held);
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
    known.push({ text: percent(card.utilization), label: trans.__('Utilisation') });
  }
  if (card.temperature !== null) {
    known.push({ text: `${Math.round(card.temperature)} °C`, label: trans.__('Temperature') });
  }
  if (card.power !== null) {
    known.push({ text: `${Math.round(card.power)} W`, label: trans.__('Power') });
  }
  return known;
}

/** Name a holder: its notebook, its kernel, or the process; of workers their rank, too. */
export function holderName(holder: Holder): string {
  if (holder.kernel) {
    const { notebook, name } = holder.kernel;
    const kernel = notebook?.name || trans.__('Kernel %1 without a notebook', name);
    const rank = /^rank (\d+) of /.exec(holder.command)?.[1];
    return rank === undefined ? kernel : trans.__('rank %1 of %2', rank, kernel);
  }
  return holder.command || trans.__('Process %1', holder.pid);
}

/** Name a holder of the past as one of the present is named. */
export function spanName(span: HolderSpan): string {
  const { pid, command, kernel, notebook } = span;
  const name = notebook?.split('/').pop() ?? '';
  const path = notebook === null ? null : { path: notebook, name, type: 'notebook' };
  const known = kernel === null ? null : { id: '', name: kernel, state: '', notebook: path };
  return holderName({ pid, command, user: null, idle: null, kernel: known, fit: null });
}

/** Name whose bars have one number and colour: a notebook with all of its workers, or a program. */
export function sessionName(span: HolderSpan): string {
  return spanName(span.kernel === null ? span : { ...span, command: '' });
}

/** Name the kernel that can be shut down: `the kernel of a.ipynb`. */
export function kernelPhrase(holder: Holder): string {
  const notebook = holder.kernel?.notebook;
  return notebook
    ? trans.__('the kernel of %1', notebook.name)
    : trans.__('kernel %1', holder.kernel?.name ?? '');
}

/** A session that was active within this many seconds is idle for no time that is worth telling. */
const SHORTEST_IDLENESS = 60;

/** Whether a session has been idle for a time that is worth telling. */
export function isLongIdle(idle: number | null): idle is number {
  return idle !== null && idle >= SHORTEST_IDLENESS;
}

/** Say for how long a session has been idle, as the Python side does: `idle for 2 h`. */
export function activity(idle: number | null): string {
  if (idle === null) {
    return '';
  }
  if (idle === 0) {
    return trans.__('busy');
  }
  if (!isLongIdle(idle)) {
    return trans.__('idle');
  }
  if (idle >= 86400) {
    return trans._n('idle for %1 day', 'idle for %1 days', Math.floor(idle / 86400));
  }
  return idle >= 3600
    ? trans.__('idle for %1 h', Math.floor(idle / 3600))
    : trans.__('idle for %1 min', Math.floor(idle / 60));
}

/** Say what a kernel does, which Jupyter Server tells in a word. */
function stateText(state: string): string {
  switch (state) {
    case 'starting':
      return trans.__('starting');
    case 'restarting':
      return trans.__('restarting');
    case 'dead':
      return trans.__('dead');
    case 'busy':
      return trans.__('busy');
    case 'idle':
      return trans.__('idle');
    default:
      return state;
  }
}

/** Say what a session does, or for how long it has been idle: `in a fit: 42 %, 40 s left`. */
export function doing({ fit, idle }: Holder): string {
  return fit === null ? activity(idle) : trans.__('in a fit: %1', fitBrief(fit));
}

/** Say more of a holder, for a second line. */
export function holderDetail(holder: Holder): string {
  const { kernel, idle, pid, user } = holder;
  // A kernel that starts, restarts or is dead is neither idle nor busy.
  const told = kernel === null || ['idle', 'busy'].includes(kernel.state) ? activity(idle) : '';
  const parts = [
    told || stateText(kernel?.state ?? ''),
    trans.__('process %1', pid),
    kernel ? '' : (user ?? '')
  ];
  return parts.filter(part => part !== '').join(' · ');
}

/** Say which card a holder has, and whether it uses it: `HPU 1: a.ipynb, idle for 2 h`. */
export function heldText({ card, holder }: Held): string {
  // That somebody is idle just now is no news.
  const isNews = holder.fit !== null || holder.idle === 0 || isLongIdle(holder.idle);
  const idle = isNews ? `, ${doing(holder)}` : '';
  return `${cardTitle(card.module_id)}: ${holderName(holder)}${idle}`;
}

/** Where no card is free, return the kernel that has been idle for longest. */
export function idlest(cards: readonly Card[]): Held | null {
  if (cards.some(card => occupancy(card) === 'free')) {
    return null;
  }
  const kernels = holdings(cards).filter(({ holder }) => holder.kernel !== null);
  const [first] = longestIdleFirst(kernels);
  return first !== undefined && isLongIdle(first.holder.idle) ? first : null;
}

/** Say what shutting a holder down means, before it is done. */
export function shutdownWarning(card: Card, holder: Holder): string {
  const path = holder.kernel?.notebook?.path;
  const title = cardTitle(card.module_id);
  const fit = holder.fit;
  const running =
    fit === null
      ? trans.__('A cell is running in it now; it will not finish.')
      : trans.__('A fit runs in it (%1); it will not finish.', fitBrief(fit));
  return [
    path
      ? trans.__('The kernel of %1 holds %2.', path, title)
      : trans.__('A %1 kernel holds %2.', holder.kernel?.name ?? '', title),
    ...(holder.kernel?.state === 'busy' || fit !== null ? [running] : []),
    trans.__(
      'Its variables are lost: models, tensors and results that were not saved to a file. ' +
        'The document itself stays as it is.'
    )
  ].join(' ');
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
        title: trans.__('Connection to the server lost'),
        detail: snapshot ? trans.__('The figures are the last that arrived.') : '',
        retryAt: state.retryAt
      };
    case 'blocked':
      return {
        kind: 'blocked',
        title: trans.__('No live figures'),
        detail: trans.__(
          'The server answers, but no WebSocket to it opens; a proxy in between may not pass them on.'
        ),
        retryAt: state.retryAt
      };
    case 'missing':
      return {
        kind: 'missing',
        title: trans.__('The server extension is off'),
        detail: trans.__(
          'The Jupyter server runs without hpu_magic. Install it in the server’s environment, ' +
            'or turn it on with “jupyter server extension enable hpu_magic”, and restart the server.'
        ),
        retryAt: state.retryAt
      };
    case 'refused':
      return {
        kind: 'refused',
        title: trans.__('No permission'),
        detail: trans.__(
          'The Jupyter server does not let you see its cards. Log in again, or ask for access.'
        ),
        retryAt: state.retryAt
      };
    default:
      break;
  }
  if (snapshot === null) {
    return { kind: 'waiting', title: trans.__('Looking for cards …'), detail: '' };
  }
  if (snapshot.cards.length === 0) {
    return {
      kind: 'empty',
      title: trans.__('No Gaudi cards to show'),
      detail: snapshot.reason ?? ''
    };
  }
  if (missed !== null) {
    return { kind: 'missed', title: trans.__('No new figures'), detail: missed };
  }
  return snapshot.reason
    ? { kind: 'remark', title: trans.__('Not everything can be seen'), detail: snapshot.reason }
    : null;
}

/** Whether the figures beside a notice are old ones. */
export function isStale(problem: Notice | null): boolean {
  return problem !== null && problem.kind !== 'remark' && problem.kind !== 'waiting';
}
