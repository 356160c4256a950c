// The progress of a fit, as reported by its kernel, and a human-readable description of it.

import { percent, rate, rough } from './units';
import { trans } from './translation';

export const PHASES = ['starting', 'training', 'validating', 'stopping'] as const;
export type Phase = (typeof PHASES)[number];

/** The state of a running fit; null means unknown. The server uses the same field names. */
export interface Fit {
  readonly model: string;
  /** Seconds since the epoch. */
  readonly began: number;
  readonly phase: Phase;
  /** Counted from 1; null before the first batch. */
  readonly epoch: number | null;
  readonly epochs: number | null;
  readonly batch: number;
  /** Completed share, from 0 to 1. */
  readonly share: number | null;
  /** Approximate seconds until the planned end. */
  readonly remaining: number | null;
  /** Optimizer steps per second. */
  readonly rate: number | null;
  readonly loss_name: string;
  /** A string if the loss is not finite, because JSON cannot represent such numbers. */
  readonly loss: number | string | null;
  /** The values that became NaN or infinite, and at which step; empty if there are none. */
  readonly broken: string;
  /** Whether the sidebar can stop the fit. */
  readonly stoppable: boolean;
}

function isNumberOrNull(value: unknown): boolean {
  return value === null || typeof value === 'number';
}

/** Parse the fit that a kernel reports; return null if it is invalid. */
export function parseFit(value: unknown): Fit | null {
  if (typeof value !== 'object' || value === null) {
    return null;
  }
  const { model, began, phase, loss_name, loss, broken, ...others } = value as Partial<Fit>;
  const valid =
    [model, loss_name, broken].every(text => typeof text === 'string') &&
    [began, others.batch].every(number => typeof number === 'number') &&
    PHASES.some(one => one === phase) &&
    (typeof loss === 'string' || isNumberOrNull(loss)) &&
    [others.epoch, others.epochs, others.share, others.remaining, others.rate].every(
      isNumberOrNull
    );
  return valid ? (value as Fit) : null;
}

/** Return the phase of a fit, or an empty string while it is training. */
export function fitPhase({ phase }: Fit): string {
  switch (phase) {
    case 'starting':
      return trans.__('Starting');
    case 'validating':
      return trans.__('Validating');
    case 'stopping':
      return trans.__('Stopping');
    default:
      return '';
  }
}

/** Return the current position of a fit: `epoch 3 of 10`. */
export function fitPlace({ epoch, epochs, batch, share }: Fit): string {
  if (epoch === null) {
    return '';
  }
  const place = epochs ? trans.__('epoch %1 of %2', epoch, epochs) : trans.__('epoch %1', epoch);
  // If the total number of steps is unknown, show the batch number instead of a percentage.
  return share === null && batch > 0 ? trans.__('%1, batch %2', place, batch) : place;
}

/** Return the speed of a fit: `42.0 steps/s`. */
export function fitRate(fit: Fit): string {
  return fit.rate === null ? '' : rate(fit.rate);
}

/** Return the loss of a fit with its name in the model: `loss 0.231`. */
export function fitLoss({ loss_name, loss }: Fit): string {
  if (loss === null) {
    return '';
  }
  return `${loss_name} ${typeof loss === 'string' ? loss : String(Number(loss.toPrecision(3)))}`;
}

/** Return the remaining time of a fit: `40 s left`. */
export function fitLeft({ remaining }: Fit): string {
  return remaining === null ? '' : trans.__('%1 left', rough(remaining));
}

/** Describe a fit: `DigitReader: epoch 3 of 10, 42.0 steps/s, loss 0.231, about 40 s left`. */
export function fitText(fit: Fit): string {
  // `broken` already names the loss.
  const loss = typeof fit.loss === 'string' && fit.broken !== '' ? '' : fitLoss(fit);
  const left = fit.remaining === null ? '' : trans.__('about %1 left', rough(fit.remaining));
  const parts = [fitPhase(fit).toLowerCase(), fitPlace(fit), fit.broken, fitRate(fit), loss, left];
  return `${fit.model}: ${parts.filter(part => part !== '').join(', ')}`;
}

/** Describe a fit briefly: `42 %, 40 s left`. */
export function fitBrief(fit: Fit): string {
  if (fit.phase === 'starting' || fit.phase === 'stopping') {
    return fitPhase(fit).toLowerCase();
  }
  if (fit.share === null) {
    return fitPlace(fit) || fitPhase(fit).toLowerCase() || trans.__('training');
  }
  const done = percent(Math.floor(100 * fit.share));
  return fit.remaining === null ? done : `${done}, ${fitLeft(fit)}`;
}
