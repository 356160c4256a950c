import { describe, expect, it } from 'vitest';

import { busyReport, isBusyError } from '../../src/notebook/busyMessage';
import { fit } from '../model/samples';
import { holder, machine } from './examples';

const VENDOR = 'synStatus=8 [Device not found] Device acquire failed.';

describe('isBusyError', () => {
  it.each([
    VENDOR,
    `${VENDOR} All cards are held (HPU 0 by process 12 (python)): shut down that notebook`,
    'RuntimeError: synStatus=26 [Generic failure] Device acquire failed.\nException raised from',
    'synStatus=20 [Device already acquired] Device acquire failed.'
  ])('recognizes %j', text => {
    expect(isBusyError(text)).toBe(true);
  });

  it.each([
    `${VENDOR} No devices found.`,
    'synStatus=9 [Device-type mismatch] Process already acquired device of different type.',
    'CUDA out of memory',
    ''
  ])('does not recognize %j', text => {
    expect(isBusyError(text)).toBe(false);
  });
});

describe('busyReport', () => {
  const report = (...cards: Parameters<typeof machine>) =>
    busyReport(VENDOR, machine(...cards), 'kernel-1');

  it('names the notebook that holds the card and offers its kernel', () => {
    const { message, kernels } = report([holder(2, 'work/first.ipynb')]);
    expect(message).toBe('HPU 0 is busy: first.ipynb holds it.');
    expect(kernels.map(held => [held.card.module_id, held.holder.pid])).toEqual([[0, 2]]);
  });

  it("shows the progress of the holder's fit", () => {
    expect(report([{ ...holder(2, 'first.ipynb', 0), fit: fit() }]).message).toBe(
      'HPU 0 is busy: first.ipynb holds it, in a fit: 27 %, 40 s left.'
    );
  });

  it('names a process outside the server and offers nothing', () => {
    const { message, kernels } = report([holder(7)]);
    expect(message).toBe('HPU 0 is busy: process 7 (python train.py) holds it.');
    expect(kernels).toEqual([]);
  });

  it('names up to three holders and offers all kernels', () => {
    const held = ['a', 'b', 'c', 'd', 'e'].map((name, at) => [holder(at + 2, `${name}.ipynb`)]);
    const messages = [2, 3, 4, 5].map(count => report(...held.slice(0, count)).message);
    expect(messages).toEqual([
      'No card is free: a.ipynb and b.ipynb hold them.',
      'No card is free: a.ipynb, b.ipynb and c.ipynb hold them.',
      'No card is free: a.ipynb, b.ipynb, c.ipynb and another hold them.',
      'No card is free: a.ipynb, b.ipynb, c.ipynb and 2 others hold them.'
    ]);
    expect(report(...held, [holder(9)]).kernels).toHaveLength(5);
  });

  it('starts with the holder that has been idle for longest', () => {
    const { message, kernels } = report(
      [holder(2, 'a.ipynb', 0)],
      [holder(3, 'b.ipynb', 300)],
      [holder(4, 'c.ipynb', 7300)]
    );
    expect(message).toBe(
      'No card is free: c.ipynb, b.ipynb and a.ipynb hold them, the first idle for 2 h.'
    );
    expect(kernels.map(({ card }) => card.module_id)).toEqual([2, 1, 0]);
    expect(report([holder(3, 'b.ipynb', 300)]).message).toBe(
      'HPU 0 is busy: b.ipynb holds it, idle for 5 min.'
    );
  });

  it('counts a kernel with several processes on a card once', () => {
    const [main, worker] = [holder(2, 'a.ipynb'), { ...holder(2, 'a.ipynb'), pid: 20 }];
    const { message, kernels } = report([main, worker]);
    expect(message).toBe('HPU 0 is busy: a.ipynb holds it.');
    expect(kernels).toHaveLength(1);
    expect(report([main], [main]).message).toBe('No card is free: a.ipynb holds them.');
  });

  it('considers only the cards in the error', () => {
    const snapshot = machine([holder(2, 'a.ipynb')], [holder(3, 'b.ipynb')]);
    const text = `${VENDOR} The card that this process may use is held (HPU 1 by process 3 (x)).`;
    const { kernels } = busyReport(text, snapshot, 'kernel-1');
    expect(kernels.map(({ holder }) => holder.kernel?.id)).toEqual(['kernel-3']);
  });

  it('excludes the kernel that raised the error', () => {
    expect(report([holder(1, 'mine.ipynb')]).message).toContain('no holder');
  });

  it('reports that no holder is visible', () => {
    expect(report([]).message).toContain('no holder is visible');
    expect(report().message).toContain('this server cannot see its holder');
  });

  it("is shorter than JupyterLab's limit", () => {
    const long = `${'very-'.repeat(40)}long.ipynb`;
    for (const { message } of [
      report([holder(2, long, 7300)], [holder(3, `x${long}`, 60)], [holder(4, `y${long}`)]),
      report([holder(2, long)]),
      report([holder(2, long)], [holder(3, `x${long}`)]),
      report([holder(2, long)], [holder(3, `x${long}`)], [holder(4, `y${long}`)]),
      report([]),
      report()
    ]) {
      expect(message.length).toBeLessThanOrEqual(140);
    }
  });
});
