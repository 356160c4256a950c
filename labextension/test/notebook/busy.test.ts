import { describe, expect, it } from 'vitest';

import { busyReport, isBusyError } from '../../src/notebook/busy';
import { holder, machine } from './examples';

const VENDOR = 'synStatus=8 [Device not found] Device acquire failed.';

describe('isBusyError', () => {
  it.each([
    VENDOR,
    `${VENDOR} All cards are held (card 0 by process 12 (python)): shut down that notebook`,
    'RuntimeError: synStatus=26 [Generic failure] Device acquire failed.\nException raised from',
    'synStatus=20 [Device already acquired] Device acquire failed.'
  ])('knows %j', text => {
    expect(isBusyError(text)).toBe(true);
  });

  it.each([
    `${VENDOR} No devices found.`,
    'synStatus=9 [Device-type mismatch] Process already acquired device of different type.',
    'CUDA out of memory',
    ''
  ])('does not take %j for a busy card', text => {
    expect(isBusyError(text)).toBe(false);
  });
});

describe('busyReport', () => {
  const report = (...cards: Parameters<typeof machine>) =>
    busyReport(VENDOR, machine(...cards), 'kernel-1');

  it('names the notebook that holds the card, and offers its kernel', () => {
    const { message, holder: found } = report([holder(2, 'work/first.ipynb')]);
    expect(message).toBe('HPU 0 is busy: first.ipynb holds it.');
    expect(found?.kernel.id).toBe('kernel-2');
    expect(found?.card.index).toBe(0);
  });

  it('names a process that is no kernel of this server, and offers nothing', () => {
    const { message, holder: found } = report([holder(7)]);
    expect(message).toBe('HPU 0 is busy: process 7 (python train.py) holds it.');
    expect(found).toBeNull();
  });

  it('names two of many', () => {
    const { message, holder: found } = report(
      [holder(2, 'a.ipynb')],
      [holder(3, 'b.ipynb')],
      [holder(4, 'c.ipynb')]
    );
    expect(message).toBe('All cards are busy. They are held by a.ipynb and 2 others.');
    expect(found).toBeNull();
  });

  it('keeps to the cards that the error names', () => {
    const snapshot = machine([holder(2, 'a.ipynb')], [holder(3, 'b.ipynb')]);
    const text = `${VENDOR} The card that this process may use is held (card 1 by process 3 (x)).`;
    expect(busyReport(text, snapshot, 'kernel-1').holder?.kernel.id).toBe('kernel-3');
  });

  it('does not blame the kernel that asks', () => {
    expect(report([holder(1, 'mine.ipynb')]).message).toContain('nobody');
  });

  it('says so when no holder is seen', () => {
    expect(report([]).message).toContain('nobody is seen');
    expect(report().message).toContain('cannot be seen from this server');
  });

  it('stays below the length at which JupyterLab cuts off', () => {
    const long = `${'very-'.repeat(40)}long.ipynb`;
    for (const { message } of [
      report([holder(2, long)]),
      report([holder(2, long)], [holder(3, `x${long}`)]),
      report([]),
      report()
    ]) {
      expect(message.length).toBeLessThanOrEqual(140);
    }
  });
});
