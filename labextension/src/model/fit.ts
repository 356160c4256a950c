// How far a fit is, as its kernel tells it, and the same in words.

import { percent, rate, rough } from './units';
import { trans } from './translation';

export const PHASES = ['starting', 'training', 'validating', 'stopping'] as const;
export type Phase = (typeof PHASES)[number];

/** State of a fit that runs; null stands for what is not known. Field names are the server's. */
export interface Fit {
  readonly model: string;
  /** Seconds since 1970. */
  readonly began: number;
  readonly phase: Phase;
  /** Counted from 1; null before the first batch. */
  readonly epoch: number | null;
  readonly epochs: number | null;
  readonly batch: number;
  /** How much is done, from 0 to 1. */
  readonly share: number | null;
  /** Seconds until the planned end, about. */
  readonly remaining: number | null;
  /** Optimizer steps per second. */
  readonly rate: number | null;
  readonly loss_name: string;
  /** As text where it is not finite, for which JSON has no number. */
  readonly loss: number | string | null;
  /** What became NaN or infinite, and when; empty where nothing did. */
  readonly broken: string;
  /** Whether it can be stopped from here. */
  readonly stoppable: boolean;
}

function isNumberOrNull(value: unknown): boolean {
  return value === null || typeof value === 'number';
}

/** Read a fit that a kernel tells of; null if it is none. */
export function parseFit(value: unknown): Fit | null {
  if (typeof value !== 'object' || value === null) {
    return null;
  }
  const { model, began, phase, loss_name, loss, broken, ...others } = value as Partial<Fit>;
  const whole =
    [model, loss_name, broken].every(text => typeof text === 'string') &&
    [began, others.batch].every(number => typeof number === 'number') &&
    PHASES.some(one => one === phase) &&
    (typeof loss === 'string' || isNumberOrNull(loss)) &&
    [others.epoch, others.epochs, others.share, others.remaining, others.rate].every(
      isNumberOrNull
    );
  return whole ? (value as Fit) : null;
}

/** Write what it does, where that is not training. */
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

/** Write where it is: `epoch 3 of 10`. */
export function fitPlace({ epoch, epochs, batch, share }: Fit): string {
  if (epoch === null) {
    return '';
  }
  const place = epochs ? trans.__('epoch %1 of %2', epoch, epochs) : trans.__('epoch %1', epoch);
  // Where nobody knows how much is left, that it goes on.
  return share === null && batch > 0 ? trans.__('%1, batch %2', place, batch) : place;
}

/** Write its pace: `42.0 steps/s`. */
export function fitRate(fit: Fit): string {
  return fit.rate === null ? '' : rate(fit.rate);
}

/** Write its loss, by the name that the model gave it: `loss 0.231`. */
export function fitLoss({ loss_name, loss }: Fit): string {
  if (loss === null) {
    return '';
  }
  return `${loss_name} ${typeof loss === 'string' ? loss : String(Number(loss.toPrecision(3)))}`;
}

/** Write how long it will go on: `40 s left`. */
export function fitLeft({ remaining }: Fit): string {
  return remaining === null ? '' : trans.__('%1 left', rough(remaining));
}

/** Tell all: `DigitReader: epoch 3 of 10, 42.0 steps/s, loss 0.231, about 40 s left`. */
export function fitText(fit: Fit): string {
  // What is broken names the loss already.
  const loss = typeof fit.loss === 'string' && fit.broken !== '' ? '' : fitLoss(fit);
  const left = fit.remaining === null ? '' : trans.__('about %1 left', rough(fit.remaining));
  const parts = [fitPhase(fit).toLowerCase(), fitPlace(fit), fit.broken, fitRate(fit), loss, left];
  return `${fit.model}: ${parts.filter(part => part !== '').join(', ')}`;
}

/** Tell the most important: `42 %, 40 s left`. */
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
