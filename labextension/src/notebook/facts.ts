/** What a kernel tells of its device, and what the notebook's file says about it. */

import { parseFit } from '../model/fit';
import type { Fit } from '../model/fit';

export const MODES = ['eager', 'lazy'] as const;
export type Mode = (typeof MODES)[number];

/** State of a kernel's process; null stands for what is not there yet or not known. */
export interface KernelFacts {
  readonly version: string;
  readonly simulated: boolean;
  /** The mode of this process; null until torch is imported. */
  readonly loaded: Mode | null;
  /** The mode that the next process will load. */
  readonly requested: Mode | null;
  /** Module id of the card that the process holds. */
  readonly card: number | null;
  /** Bytes on it. */
  readonly memoryUsed: number | null;
  readonly memoryPeak: number | null;
  readonly memoryLimit: number | null;
  /** The fit that runs in it. */
  readonly fit: Fit | null;
}

export function isMode(value: unknown): value is Mode {
  return MODES.some(mode => mode === value);
}

/** Read the content of a status reply; null if it is none. */
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
    memoryUsed: count(content.memory_used),
    memoryPeak: count(content.memory_peak),
    memoryLimit: count(content.memory_limit),
    fit: parseFit(content.fit)
  };
}

/** The mode in a notebook's `hpu_magic` metadata, if there is a known one. */
export function storedMode(metadata: unknown): Mode | null {
  return isRecord(metadata) && isMode(metadata.mode) ? metadata.mode : null;
}

// A magic of ours at the start of a line, or the package by name.
const NAMES = /\bhpu_magic\b|^[ \t]*%{1,2}hpu(?:_[a-z]+)?\b/m;

/** Whether a cell uses hpu_magic, so that its kernel may answer for it. */
export function usesExtension(source: string): boolean {
  return NAMES.test(source);
}

const TYPED = /^[ \t]*%hpu_mode\b.*\b(?:eager|lazy)\b|\bhpu_magic\.mode\(\s*['"]/m;

/** Whether a cell asks for a mode. */
export function asksForMode(source: string): boolean {
  return TYPED.test(source);
}

/**
 * The mode that the notebook's file should say after its kernel told what is requested there.
 *
 * A mode asked for in a cell is followed. One that the kernel merely started with (an
 * administrator may set it for everybody) is written to no file that says nothing itself.
 */
export function modeToStore(
  requested: Mode | null,
  stored: Mode | null,
  asked: boolean
): Mode | null {
  return requested !== stored && (asked || stored !== null) ? requested : null;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function count(value: unknown): number | null {
  return typeof value === 'number' && value >= 0 ? value : null;
}
