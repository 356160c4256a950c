import type { Holder, Snapshot } from '../../src/model/snapshot';
import type { KernelFacts } from '../../src/notebook/facts';
import { card, snapshot } from '../model/samples';

/** Facts of a kernel that has imported torch but holds no card, modified by `others`. */
export function facts(others: Partial<KernelFacts> = {}): KernelFacts {
  return {
    version: '0.1.0',
    simulated: true,
    loaded: 'eager',
    requested: null,
    card: null,
    inUse: null,
    peak: null,
    limit: null,
    fit: null,
    ...others
  };
}

/** A process; with a path, the kernel of that notebook. */
export function holder(pid: number, path?: string, idle: number | null = null): Holder {
  const name = path?.split('/').pop() ?? '';
  return {
    pid,
    command: 'python train.py',
    user: 'ada',
    idle,
    fit: null,
    kernel:
      path === undefined
        ? null
        : {
            id: `kernel-${pid}`,
            name: 'python3',
            state: 'idle',
            notebook: { path, name, type: 'notebook' }
          }
  };
}

/** A machine with a simulated card for each list of holders. */
export function machine(...holders: Holder[][]): Snapshot {
  return snapshot(
    0,
    holders.map((held, index) => card(index, { holders: held }))
  );
}
