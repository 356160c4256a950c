// The text of each view, without markup.

import { fitBrief } from './fit';
import { failureOf } from './connection';
import type { ConnectionState } from './connection';
import type { MachineOptions } from './machine';
import { reasonOf } from './server';
import { holdings, longestIdleFirst } from './snapshot';
import type { Card, Held, Holder, HolderSpan, Snapshot } from './snapshot';
import { percent, usage } from './units';
import { trans } from './translation';

/** The level of a card's memory usage, as named in the style sheets. */
export type MemoryLevel = 'normal' | 'warning' | 'critical';

/** Why a view shows no data, or no new data. */
export interface Notice {
  readonly kind:
    'waiting' | 'empty' | 'remark' | 'missed' | 'lost' | 'blocked' | 'missing' | 'refused';
  readonly title: string;
  readonly detail: string;
  /** Time of the next attempt, in milliseconds as returned by `Date.now()`. */
  readonly retryAt?: number;
}

/** Return a card's generation in the vendor's spelling, `Gaudi2`, or else its name. */
export function productName(card: Card): string {
  return (card.generation ?? card.name).replace(/\bGAUDI/g, 'Gaudi');
}

/** Return the name of a card: `HPU 0`. */
export function cardTitle(moduleId: number): string {
  return `HPU ${moduleId}`;
}

/** Return the name of a card with its product name, if known: `HPU 0 (Gaudi2)`. */
export function cardLabel(card: Card): string {
  const name = productName(card);
  return name ? `${cardTitle(card.module_id)} (${name})` : cardTitle(card.module_id);
}

/** Return the number of cards and their product name: `8 Gaudi2 cards`. */
export function inventory(cards: readonly Card[]): string {
  // An unreadable card has no name.
  const names = new Set(cards.map(productName).filter(name => name !== ''));
  const [name] = names.size === 1 ? names : ['Gaudi'];
  return trans._n('%1 %2 card', '%1 %2 cards', cards.length, name!);
}

/** How a card is used: it has a visible, an invisible or no holder, or it cannot be read. */
export type Occupancy = 'held' | 'unseen' | 'free' | 'unknown';

// The driver itself uses up to about 1 % of a free card's memory.
const MOST_OF_FREE_CARD = 1 / 50;

/** Return how a card is used. */
export function occupancy(card: Card): Occupancy {
  if (card.holders.length > 0) {
    return 'held';
  }
  if (card.error !== null) {
    return 'unknown';
  }
  return (memoryShare(card) ?? 0) > MOST_OF_FREE_CARD ? 'unseen' : 'free';
}

/** Return the number of cards in use: `2 in use`. */
export function inUse(cards: readonly Card[]): string {
  const held = cards.filter(card => ['held', 'unseen'].includes(occupancy(card))).length;
  return held === 0 ? trans.__('none in use') : trans._n('%1 in use', '%1 in use', held);
}

/** Return the share of a card's memory that is in use, or null if it is unknown. */
export function memoryShare(card: Card): number | null {
  if (card.memory_used === null || !card.memory_total) {
    return null;
  }
  return Math.min(Math.max(card.memory_used / card.memory_total, 0), 1);
}

/** Return the level of a card's memory according to the user's thresholds. */
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

/** Return the memory of a card: `12.3 / 96 GiB`. */
export function memoryText(card: Card): string {
  if (card.memory_used === null || card.memory_total === null) {
    return '';
  }
  return usage(card.memory_used, card.memory_total);
}

/** Return a card's other known measurements. */
export function measurements(card: Card): { text: string; label: string }[] {
  const known: { text: string; label: string }[] = [];
  if (card.utilization !== null) {
    known.push({ text: percent(card.utilization), label: trans.__('Utilization') });
  }
  if (card.temperature !== null) {
    known.push({ text: `${Math.round(card.temperature)} °C`, label: trans.__('Temperature') });
  }
  if (card.power !== null) {
    known.push({ text: `${Math.round(card.power)} W`, label: trans.__('Power') });
  }
  return known;
}

/** The start of the names of processes in which vLLM uses a card. */
const SERVER = 'VLLM::';

/** Return the name of a holder: its notebook, kernel or process and, for a worker, its rank. */
export function holderName(holder: Holder): string {
  if (holder.kernel) {
    const { notebook, name } = holder.kernel;
    const kernel = notebook?.name || trans.__('Kernel %1 without a notebook', name);
    if (holder.command.startsWith(SERVER)) {
      return trans.__('vLLM in %1', kernel);
    }
    const rank = /^rank (\d+) of /.exec(holder.command)?.[1];
    return rank === undefined ? kernel : trans.__('rank %1 of %2', rank, kernel);
  }
  return holder.command || trans.__('Process %1', holder.pid);
}

/** Return the name of a past holder in the same form as `holderName`. */
export function spanName(span: HolderSpan): string {
  const { pid, command, kernel, notebook } = span;
  const name = notebook?.split('/').pop() ?? '';
  const path = notebook === null ? null : { path: notebook, name, type: 'notebook' };
  const known = kernel === null ? null : { id: '', name: kernel, state: '', notebook: path };
  return holderName({ pid, command, user: null, idle: null, kernel: known, fit: null });
}

/** Return the name of a notebook (with its workers) or program, whose bars share a color. */
export function sessionName(span: HolderSpan): string {
  return spanName(span.kernel === null ? span : { ...span, command: '' });
}

/** Return the name of a kernel for use in a sentence: `the kernel of a.ipynb`. */
export function kernelPhrase(holder: Holder): string {
  const notebook = holder.kernel?.notebook;
  return notebook
    ? trans.__('the kernel of %1', notebook.name)
    : trans.__('kernel %1', holder.kernel?.name ?? '');
}

/** Idle times shorter than this, in seconds, are not shown. */
const SHORTEST_IDLENESS = 60;

/** Return whether a session has been idle long enough to show the idle time. */
export function isLongIdle(idle: number | null): idle is number {
  return idle !== null && idle >= SHORTEST_IDLENESS;
}

/** Return the activity of a session in the same form as in Python: `idle for 2 h`. */
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

/** Translate the state of a kernel as reported by Jupyter Server. */
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

/** Return the fit or the activity of a session: `in a fit: 42 %, 40 s left`. */
export function doing({ fit, idle }: Holder): string {
  return fit === null ? activity(idle) : trans.__('in a fit: %1', fitBrief(fit));
}

/** Return additional information about a holder for a second line. */
export function holderDetail(holder: Holder): string {
  const { kernel, idle, pid, user } = holder;
  // A kernel that is starting, restarting or dead is neither idle nor busy.
  const state = kernel === null || ['idle', 'busy'].includes(kernel.state) ? activity(idle) : '';
  // A server may be busy while the kernel that started it is idle.
  const serves = holder.command.startsWith(SERVER);
  const parts = [
    serves ? '' : state || stateText(kernel?.state ?? ''),
    trans.__('process %1', pid),
    kernel ? '' : (user ?? '')
  ];
  return parts.filter(part => part !== '').join(' · ');
}

/** Return a holder with its card and activity: `HPU 1: a.ipynb, idle for 2 h`. */
export function heldText({ card, holder }: Held): string {
  // Omit short idle times.
  const isNews = holder.fit !== null || holder.idle === 0 || isLongIdle(holder.idle);
  const idle = isNews ? `, ${doing(holder)}` : '';
  return `${cardTitle(card.module_id)}: ${holderName(holder)}${idle}`;
}

/** Return the kernel that has been idle the longest, or null if a card is free. */
export function idlest(cards: readonly Card[]): Held | null {
  if (cards.some(card => occupancy(card) === 'free')) {
    return null;
  }
  const kernels = holdings(cards).filter(({ holder }) => holder.kernel !== null);
  const [first] = longestIdleFirst(kernels);
  return first !== undefined && isLongIdle(first.holder.idle) ? first : null;
}

/** Return a warning about the consequences of shutting down a holder. */
export function shutdownWarning(card: Card, holder: Holder): string {
  const path = holder.kernel?.notebook?.path;
  const title = cardTitle(card.module_id);
  const fit = holder.fit;
  const running =
    fit === null
      ? trans.__('It is running a cell, which will not finish.')
      : trans.__('It is running a fit (%1), which will not finish.', fitBrief(fit));
  return [
    path
      ? trans.__('The kernel of %1 holds %2.', path, title)
      : trans.__('A %1 kernel holds %2.', holder.kernel?.name ?? '', title),
    ...(holder.kernel?.state === 'busy' || fit !== null ? [running] : []),
    trans.__(
      'All of its variables will be lost, such as models, tensors and results that are not ' +
        'saved to a file. The document does not change.'
    )
  ].join(' ');
}

/** Return why a request for the cards failed. */
export function unreadable(error: unknown): string {
  const kind = failureOf(error);
  const title = notice({ kind, retryAt: 0 }, null, null)?.title;
  return kind === 'lost' ? reasonOf(error) : `${title}.`;
}

/** Return why data is missing, stale or incomplete, or null if there is no problem. */
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
        detail: snapshot ? trans.__('The values are from the last sample.') : '',
        retryAt: state.retryAt
      };
    case 'blocked':
      return {
        kind: 'blocked',
        title: trans.__('No live data'),
        detail: trans.__(
          'The server responds, but no WebSocket can be opened. A proxy may block WebSockets.'
        ),
        retryAt: state.retryAt
      };
    case 'missing':
      return {
        kind: 'missing',
        title: trans.__('The server extension is not running'),
        detail: trans.__(
          'The Jupyter server runs without hpu_magic. Install it in the server’s environment, or ' +
            'enable it with “jupyter server extension enable hpu_magic”, and restart the server.'
        ),
        retryAt: state.retryAt
      };
    case 'refused':
      return {
        kind: 'refused',
        title: trans.__('No permission'),
        detail: trans.__(
          'You are not allowed to see the cards of this Jupyter server. Log in again, or request access.'
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
    return { kind: 'missed', title: trans.__('No new data'), detail: missed };
  }
  return snapshot.reason
    ? { kind: 'remark', title: trans.__('Some data is not available'), detail: snapshot.reason }
    : null;
}

/** Return whether the values next to a notice are stale. */
export function isStale(problem: Notice | null): boolean {
  return problem !== null && problem.kind !== 'remark' && problem.kind !== 'waiting';
}
