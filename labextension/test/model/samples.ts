import type { Fit } from '../../src/model/fit';
import type { Card, Holder, Snapshot } from '../../src/model/snapshot';

const GIB = 2 ** 30;

export function card(moduleId: number, changes: Partial<Card> = {}): Card {
  return {
    module_id: moduleId,
    name: 'GAUDI2',
    generation: 'GAUDI2',
    simulated: true,
    memory_used: 0,
    memory_total: 96 * GIB,
    utilization: null,
    temperature: null,
    power: null,
    clock: null,
    error: null,
    holders: [],
    ...changes
  };
}

export function kernelHolder(path: string, state = 'idle', idle: number | null = 0.1): Holder {
  const name = path.split('/').pop() ?? path;
  const notebook = { path, name, type: 'notebook' };
  const kernel = { id: `id-of-${name}`, name: 'python3', state, notebook };
  return {
    pid: 4711,
    command: 'python -m ipykernel_launcher',
    user: 'ada',
    idle,
    kernel,
    fit: null
  };
}

/** A running fit, modified by `changes`. */
export function fit(changes: Partial<Fit> = {}): Fit {
  return {
    model: 'DigitReader',
    began: 1700000000,
    phase: 'training',
    epoch: 3,
    epochs: 10,
    batch: 40,
    share: 0.279,
    remaining: 40.2,
    rate: 42,
    loss_name: 'loss',
    loss: 0.23123,
    broken: '',
    stoppable: true,
    ...changes
  };
}

export function snapshot(time: number, cards: Card[] = [card(0)], reason: string | null = null) {
  return { time, source: 'simulator', reason, cards } satisfies Snapshot;
}
