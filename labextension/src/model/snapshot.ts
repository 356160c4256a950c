// The card data that the server sends. The server uses the same field names.

import type { Fit } from './fit';

/** The notebook, console or file of a kernel. */
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
  /** Seconds since the last cell ended: 0 while a cell is running, null if unknown. */
  readonly idle: Measurement;
  readonly kernel: HolderKernel | null;
  /** The fit that the process is running, if it reports one. */
  readonly fit: Fit | null;
}

/** A value in a card's sample, or null if it is missing. */
export type Measurement = number | null;

/** One card. Values are in bytes, percent, °C, W and MHz. */
export interface Card {
  /** The number by which users and the vendor's software identify the card. */
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

/** All cards of the machine at a given time, in seconds since the epoch. */
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

/** Return the holders of `cards`. A kernel is listed once per card, without its child processes. */
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

/** Sort holdings by the idle time of their holders, longest first. */
export function longestIdleFirst(held: readonly Held[]): Held[] {
  return [...held].sort((first, second) => (second.holder.idle ?? 0) - (first.holder.idle ?? 0));
}

/** Return whether the server could not read any of the cards, with `reason` as the cause. */
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

/** A holder of a card, from the first to the last sample in which it held the card. */
export interface HolderSpan {
  readonly id: number;
  readonly card: number;
  readonly pid: number;
  readonly command: string;
  /** Name of the kernel, if the holder is a kernel of this server. */
  readonly kernel: string | null;
  /** Path of the kernel's notebook or console. */
  readonly notebook: string | null;
  readonly from: number;
  readonly to: number;
  /** Whether the holder still holds the card. */
  readonly held: boolean;
}

/** The server's history of the last day, which it records even without clients. */
export interface PastAnswer extends PastSamples {
  /** Seconds between samples. */
  readonly interval: number;
  /** Seconds that the history covers. */
  readonly length: number;
  /** Time of the first sample, which changes when the server is restarted. */
  readonly begun: number | null;
  readonly holders: readonly HolderSpan[];
}

/** Return a key that is the same for all cards that a notebook or program holds. */
export function holderKey({ notebook, command, kernel, pid }: HolderSpan): string {
  return notebook ?? (kernel !== null ? `kernel ${kernel} ${pid}` : command || `process ${pid}`);
}

/** A message in the stream. */
export type StreamMessage =
  ({ readonly type: 'history' } & PastSamples) | ({ readonly type: 'snapshot' } & Snapshot);

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Return whether a decoded response is a history of the last day. */
export function isPastAnswer(value: unknown): value is PastAnswer {
  if (!isRecord(value)) {
    return false;
  }
  const numbers = typeof value.interval === 'number' && typeof value.length === 'number';
  return numbers && Array.isArray(value.time) && Array.isArray(value.holders);
}

/** Return whether a decoded response is a snapshot. */
export function isSnapshot(value: unknown): value is Snapshot {
  return isRecord(value) && typeof value.time === 'number' && Array.isArray(value.cards);
}

/** Parse a message from the stream; return null if it is invalid. */
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
