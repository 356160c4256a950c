import { describe, expect, it } from 'vitest';

import { ServerError } from '../../src/model/server';
import {
  activity,
  cardLabel,
  heldText,
  holderDetail,
  holderName,
  idlest,
  inUse,
  inventory,
  isStale,
  kernelPhrase,
  measurements,
  memoryLevel,
  memoryShare,
  memoryText,
  notice,
  occupancy,
  productName,
  shutdownWarning,
  unreadable
} from '../../src/model/wording';
import { card, fit, kernelHolder, snapshot } from './samples';

const process = {
  pid: 99,
  command: 'python <b>train.py</b>',
  user: 'grace',
  idle: null,
  kernel: null,
  fit: null
};

describe('the headline', () => {
  it('counts all cards and cards in use', () => {
    const cards = [card(0, { holders: [process] }), card(1), card(2)];
    expect(inventory(cards)).toBe('3 Gaudi2 cards');
    expect(inUse(cards)).toBe('1 in use');
    expect(inUse([card(0)])).toBe('none in use');
    expect(inUse([card(0, { memory_used: 2 ** 33 })])).toBe('1 in use');
  });

  it('contains only properties common to all cards', () => {
    const mixed = [card(0, { simulated: false }), card(1, { generation: 'GAUDI3' })];
    expect(inventory(mixed)).toBe('2 Gaudi cards');
    expect(inventory([card(0, { simulated: false })])).toBe('1 Gaudi2 card');
    const lost = card(1, { name: '', generation: null, error: 'The card is lost.' });
    expect(inventory([card(0), lost])).toBe('2 Gaudi2 cards');
  });
});

describe('a card', () => {
  it('is named by its generation or its name', () => {
    expect(productName(card(0, { name: 'HL-225' }))).toBe('Gaudi2');
    expect(productName(card(0, { name: 'HL-225', generation: null }))).toBe('HL-225');
    expect(cardLabel(card(1))).toBe('HPU 1 (Gaudi2)');
    expect(cardLabel(card(1, { name: '', generation: null }))).toBe('HPU 1');
  });

  it('is free only if its holders are known', () => {
    expect(occupancy(card(0))).toBe('free');
    expect(occupancy(card(0, { memory_used: 2 ** 29 }))).toBe('free');
    expect(occupancy(card(0, { memory_used: 2 ** 33 }))).toBe('unseen');
    expect(occupancy(card(0, { error: 'No permission.' }))).toBe('unknown');
    expect(occupancy(card(0, { holders: [process], error: 'Hot.' }))).toBe('held');
  });

  it('has no text for missing values', () => {
    const blank = card(0, { memory_used: null });
    expect(memoryText(blank)).toBe('');
    expect(memoryShare(blank)).toBeNull();
    expect(measurements(blank)).toEqual([]);
    expect(memoryShare(card(0, { memory_total: 0 }))).toBeNull();
  });

  it('lists known values', () => {
    const texts = measurements(card(0, { utilization: 41.6, temperature: 38, power: 310.2 }));
    expect(texts.map(one => one.text)).toEqual(['42 %', '38 °C', '310 W']);
  });

  it('uses the thresholds of the user', () => {
    const options = { memoryWarning: 80, memoryCritical: 95 };
    const levels = [null, 0.1, 0.8, 0.94, 0.95, 1].map(share => memoryLevel(share, options));
    expect(levels).toEqual(['normal', 'normal', 'warning', 'warning', 'critical', 'critical']);
  });
});

describe('a holder', () => {
  it('is named by its notebook, kernel or command', () => {
    const held = kernelHolder('work/a.ipynb');
    expect(holderName(held)).toBe('a.ipynb');
    const bare = { ...held, kernel: { ...held.kernel!, notebook: null } };
    expect(holderName(bare)).toBe('Kernel python3 without a notebook');
    const [worker, other] = [held, bare].map(one => ({ ...one, command: 'rank 2 of a.ipynb' }));
    expect(holderName(worker!)).toBe('rank 2 of a.ipynb');
    expect(holderName(other!)).toBe('rank 2 of Kernel python3 without a notebook');
    expect(holderName({ ...held, command: 'VLLM::EngineCore' })).toBe('vLLM in a.ipynb');
    expect(kernelPhrase(held)).toBe('the kernel of a.ipynb');
    expect(kernelPhrase(bare)).toBe('kernel python3');
    expect(shutdownWarning(card(3), bare)).toMatch(/^A python3 kernel holds HPU 3\./);
    expect(holderName(process)).toBe('python <b>train.py</b>');
    expect(holderName({ ...process, command: '' })).toBe('Process 99');
  });

  it('shows its process, and its user if it is another user', () => {
    expect(holderDetail(kernelHolder('a.ipynb', 'busy', 0))).toBe('busy · process 4711');
    expect(holderDetail(process)).toBe('process 99 · grace');
    const elsewhere = { ...process, command: 'b.ipynb', idle: 7300 };
    expect(holderDetail(elsewhere)).toBe('idle for 2 h · process 99 · grace');
    expect(holderDetail(kernelHolder('a.ipynb', 'idle', null))).toBe('idle · process 4711');
    expect(holderDetail(kernelHolder('a.ipynb', 'idle', 300))).toBe(
      'idle for 5 min · process 4711'
    );
    expect(holderDetail(kernelHolder('a.ipynb', 'dead', 300))).toBe('dead · process 4711');
    expect(holderDetail({ ...process, user: null })).toBe('process 99');
    const server = { ...kernelHolder('a.ipynb', 'idle', null), command: 'VLLM::EngineCore' };
    expect(holderDetail(server)).toBe('process 4711');
  });

  it('is shut down after a warning with notebook, card and lost data', () => {
    const text = shutdownWarning(card(3), kernelHolder('work/a.ipynb', 'busy'));
    expect(text).toContain('work/a.ipynb');
    expect(text).toContain('HPU 3');
    expect(text).toContain('It is running a cell');
    expect(text).toContain('variables will be lost');
    expect(shutdownWarning(card(3), kernelHolder('a.ipynb'))).not.toContain('It is running a cell');
    const fitting = { ...kernelHolder('a.ipynb', 'idle'), fit: fit() };
    expect(shutdownWarning(card(3), fitting)).toContain(
      'It is running a fit (27 %, 40 s left), which will not finish.'
    );
  });
});

describe('idleness', () => {
  it.each([
    [null, ''],
    [0, 'busy'],
    [0.1, 'idle'],
    [59.9, 'idle'],
    [60, 'idle for 1 min'],
    [3599, 'idle for 59 min'],
    [7300, 'idle for 2 h'],
    [86400, 'idle for 1 day'],
    [3 * 86400, 'idle for 3 days']
  ])('after %s s is %j', (idle, text) => {
    expect(activity(idle)).toBe(text);
  });

  it('is shown next to a card if it lasts', () => {
    const held = (idle: number | null) => ({
      card: card(1),
      holder: kernelHolder('a.ipynb', 'idle', idle)
    });
    expect([7300, 0, 5, null].map(idle => heldText(held(idle)))).toEqual([
      'HPU 1: a.ipynb, idle for 2 h',
      'HPU 1: a.ipynb, busy',
      'HPU 1: a.ipynb',
      'HPU 1: a.ipynb'
    ]);
    const fitting = { ...kernelHolder('a.ipynb', 'busy', 0), fit: fit() };
    expect(heldText({ card: card(1), holder: fitting })).toBe(
      'HPU 1: a.ipynb, in a fit: 27 %, 40 s left'
    );
  });

  it('suggests a holder only if no card is free', () => {
    const held = (at: number, name: string, idle: number | null) =>
      card(at, { holders: [kernelHolder(`${name}.ipynb`, 'idle', idle)] });
    const cards = [held(0, 'a', 70), held(1, 'b', 7300), held(2, 'c', 0)];
    expect(idlest(cards)?.holder.kernel?.notebook?.name).toBe('b.ipynb');
    expect(idlest([...cards, card(3)])).toBeNull();
    expect(idlest([held(0, 'a', 59), held(1, 'b', null)])).toBeNull();
    expect(idlest([card(0, { holders: [{ ...process, idle: 7300 }] })])).toBeNull();
    expect(idlest([])).toBeNull();
  });
});

describe('unreadable', () => {
  it.each([
    [new ServerError(404, 'Not Found'), 'The server extension is not running.'],
    [new ServerError(403, 'Forbidden'), 'No permission.'],
    [new ServerError(500, 'The server answered 500.'), 'The server answered 500.'],
    [new Error('Failed to fetch'), 'Failed to fetch']
  ])('explains %s', (error, why) => {
    expect(unreadable(error)).toBe(why);
  });
});

describe('notice', () => {
  const live = { kind: 'live' } as const;

  it('is null without problems', () => {
    expect(notice(live, snapshot(1), null)).toBeNull();
    expect(notice({ kind: 'connecting' }, snapshot(1), null)).toBeNull();
  });

  it('waits for the first sample', () => {
    expect(notice({ kind: 'connecting' }, null, null)?.kind).toBe('waiting');
  });

  it('contains the reason for missing cards or samples', () => {
    const none = notice(live, snapshot(1, [], 'The Gaudi driver is not loaded.'), null);
    expect(none).toMatchObject({
      title: 'No Gaudi cards to show',
      detail: 'The Gaudi driver is not loaded.'
    });
    const hung = notice(live, snapshot(1), 'The driver did not answer within 5 s.');
    expect(hung).toMatchObject({ kind: 'missed', title: 'No new data' });
    expect(isStale(hung)).toBe(true);
  });

  it('does not report current samples with a remark as missing', () => {
    const remark = notice(live, snapshot(1, [card(0)], 'HPU 0 is in use by others.'), null);
    expect(remark?.detail).toBe('HPU 0 is in use by others.');
    expect(isStale(remark)).toBe(false);
  });

  it('reports old samples as old', () => {
    const lost = { kind: 'lost', retryAt: 5 } as const;
    expect(notice(lost, snapshot(1), null)).toMatchObject({ retryAt: 5 });
    expect(notice(lost, snapshot(1), null)?.detail).toContain('last');
    expect(notice(lost, null, null)?.detail).toBe('');
  });

  it.each(['missing', 'refused', 'blocked'] as const)(
    'explains a fix if the connection is %s',
    kind => {
      expect(notice({ kind, retryAt: 5 }, null, null)?.detail.length).toBeGreaterThan(20);
    }
  );
});
