// What the server says of the cards; field names are the server's.

import type { Fit } from './fit';

/** The notebook, console or file that a kernel belongs to. */
export interface Notebook {
  readonly path: string;
  readonly name: string;
  readonly type: string;
}

/** A kernel of this server. */
export interface HolderKernel {
  readonly id: string;
  readonly name: string;
  readonly state: string;
  readonly notebook: Notebook | null;
}

/** A process that holds a card. */
export interface Holder {
  readonly pid: number;
  readonly command: string;
  readonly user: string | null;
  /** Seconds since it last ran a cell, 0 while it runs one; null where nobody knows. */
  readonly idle: Measurement;
  readonly kernel: HolderKernel | null;
  /** The fit that runs in it, where it tells of one. */
  readonly fit: Fit | null;
}

/** What can be absent from a card's sample. */
export type Measurement = number | null;

/** One card; memory in bytes, utilisation in per cent, °C, W and MHz. */
export interface Card {
  /** The number by which users know the card, and the vendor's bridge takes it. */
  readonly module_id: number;
  readonly name: string;
  readonly generation: string | null;
  readonly simulated: boolean;
  readonly memory_used: Measurement;
  readonly memory_total: Measurement;
  readonly utilization: Measurement;
  readonly temperature: Measurement;
  readonly power: Measurement;
  readonly clock: Measurement;
  readonly error: string | null;
  readonly holders: readonly Holder[];
}

/** All cards of the machine at one time (seconds since 1970). */
export interface Snapshot {
  readonly time: number;
  readonly source: 'hlml' | 'hl-smi' | 'simulator' | 'none';
  readonly reason: string | null;
  readonly cards: readonly Card[];
}

/** A card together with a process that holds it. */
export interface Held {
  readonly card: Card;
  readonly holder: Holder;
}

/** Return who holds which of `cards`; a kernel once a card, whatever processes it has started. */
export function holdings(cards: readonly Card[]): Held[] {
  return cards.flatMap(card => {
    const kernels = new Set<string>();
    return card.holders
      .filter(({ kernel }) => {
        const known = kernel !== null && kernels.has(kernel.id);
        kernels.add(kernel?.id ?? '');
        return !known;
      })
      .map(holder => ({ card, holder }));
  });
}

/** Return holdings with those first whose holders have been idle for longest. */
export function longestIdleFirst(held: readonly Held[]): Held[] {
  return [...held].sort((one, other) => (other.holder.idle ?? 0) - (one.holder.idle ?? 0));
}

/** Whether the server could not read any card this time; its `reason` says why. */
export function isMissed({ cards, reason }: Snapshot): boolean {
  return reason !== null && cards.length > 0 && cards.every(card => card.error === reason);
}

/** The measurements that have a history. */
export const METRICS = ['memory_used', 'utilization', 'temperature', 'power'] as const;
export type Metric = (typeof METRICS)[number];

/** Samples from before this client connected, as columns. */
export interface PastSamples {
  readonly time: readonly number[];
  readonly cards: Readonly<Record<string, Partial<Record<Metric, readonly Measurement[]>>>>;
}

/** What the stream sends. */
export type StreamMessage =
  ({ readonly type: 'history' } & PastSamples) | ({ readonly type: 'snapshot' } & Snapshot);

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Whether a decoded answer has the shape of a snapshot. */
export function isSnapshot(value: unknown): value is Snapshot {
  return isRecord(value) && typeof value.time === 'number' && Array.isArray(value.cards);
}

/** Return the message in a frame of the stream, or null where it is something else. */
export function parseMessage(text: unknown): StreamMessage | null {
  if (typeof text !== 'string') {
    return null;
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  if (!isRecord(value)) {
    return null;
  }
  const history = value.type === 'history' && Array.isArray(value.time) && isRecord(value.cards);
  const snapshot = value.type === 'snapshot' && isSnapshot(value);
  return history || snapshot ? (value as unknown as StreamMessage) : null;
}
