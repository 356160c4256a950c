// Information that a kernel reports about its device, and the mode stored in the notebook file.

import { parseFit } from '../model/fit';
import type { Fit } from '../model/fit';
import { isRecord } from '../model/snapshot';

export const MODES = ['eager', 'lazy'] as const;
export type Mode = (typeof MODES)[number];

/** The state of a kernel's process; null means missing or unknown. */
export interface KernelFacts {
  readonly version: string;
  readonly simulated: boolean;
  /** The mode of this process, or null until torch is imported. */
  readonly loaded: Mode | null;
  /** The mode that the next process will load. */
  readonly requested: Mode | null;
  /** Module ID of the card that the process holds. */
  readonly card: number | null;
  /** The card's memory in bytes: the amount in use, the peak and the limit. */
  readonly inUse: number | null;
  readonly peak: number | null;
  readonly limit: number | null;
  /** The running fit. */
  readonly fit: Fit | null;
}

export function isMode(value: unknown): value is Mode {
  return MODES.some(mode => mode === value);
}

/** Parse the content of a status reply; return null if it is invalid. */
export function parseFacts(content: unknown): KernelFacts | null {
  if (!isRecord(content) || content.status !== 'ok') {
    return null;
  }
  return {
    version: String(content.version ?? ''),
    simulated: content.simulated === true,
    loaded: isMode(content.loaded) ? content.loaded : null,
    requested: isMode(content.requested) ? content.requested : null,
    card: count(content.card),
    inUse: count(content.in_use),
    peak: count(content.peak),
    limit: count(content.limit),
    fit: parseFit(content.fit)
  };
}

/** Return the mode in a notebook's `hpu_magic` metadata, or null if it is missing or invalid. */
export function storedMode(metadata: unknown): Mode | null {
  return isRecord(metadata) && isMode(metadata.mode) ? metadata.mode : null;
}

// An hpu_magic command at the start of a line, or the package's name.
const NAMES = /\bhpu_magic\b|^[ \t]*%{1,2}hpu(?:_[a-z]+)?\b/m;

/** Return whether a cell uses hpu_magic, in which case its kernel may reply to requests. */
export function usesExtension(source: string): boolean {
  return NAMES.test(source);
}

const TYPED = /^[ \t]*%hpu_mode\b.*\b(?:eager|lazy)\b|\bhpu_magic\.mode\(\s*['"]/m;

/** Return whether a cell sets a mode. */
export function asksForMode(source: string): boolean {
  return TYPED.test(source);
}

/**
 * Return the mode to store in the notebook's file when its kernel reports the requested mode.
 *
 * A mode that a cell has set is stored. A mode that the kernel was started with, which an
 * administrator may have set for all users, is not stored in a file that has no mode.
 */
export function modeToStore(
  requested: Mode | null,
  stored: Mode | null,
  asked: boolean
): Mode | null {
  return requested !== stored && (asked || stored !== null) ? requested : null;
}

function count(value: unknown): number | null {
  return typeof value === 'number' && value >= 0 ? value : null;
}
