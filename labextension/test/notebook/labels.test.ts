import { describe, expect, it } from 'vitest';

import { modeView, statusView } from '../../src/notebook/labels';
import type { Part } from '../../src/notebook/labels';
import { fit } from '../model/samples';
import { facts } from './examples';

const GIB = 2 ** 30;
const ALL: Part[] = ['card', 'mode', 'memory', 'fit'];
const LIMITS = { memoryWarning: 80, memoryCritical: 95 };
const holding = (used: number) => facts({ card: 0, inUse: used, peak: used, limit: 96 * GIB });

describe('statusView', () => {
  it('shows card, mode and memory', () => {
    const view = statusView(holding(12.3 * GIB), ALL, LIMITS);
    expect(view.text).toBe('HPU 0 · eager · 12.3 / 96 GiB');
    expect(view.level).toBe('normal');
    expect(view.tooltip).toContain('simulated');
  });

  it('shows the parts of the setting', () => {
    expect(statusView(holding(0), ['mode'], LIMITS).text).toBe('HPU · eager');
    expect(statusView(holding(48 * GIB), ['card', 'memory'], LIMITS).text).toBe(
      'HPU 0 · 48.0 / 96 GiB'
    );
  });

  it('distinguishes the loaded and the requested mode', () => {
    const waiting = facts({ requested: 'lazy' });
    expect(statusView(waiting, ALL, LIMITS).text).toBe('HPU · eager → lazy');
    const before = facts({ loaded: null, requested: 'lazy' });
    expect(statusView(before, ALL, LIMITS).text).toBe('HPU · lazy requested');
    expect(statusView(facts({ loaded: null }), ALL, LIMITS).text).toBe('HPU · torch not loaded');
  });

  it('shows the fit on any device', () => {
    const view = statusView(facts({ fit: fit() }), ALL, LIMITS);
    expect(view.text).toBe('HPU · eager · Fit: 27 %, 40 s left');
    expect(view.tooltip.split('\n')).toContain(
      'Fit of DigitReader: epoch 3 of 10, 42.0 steps/s, loss 0.231, about 40 s left'
    );
    expect(statusView(facts({ fit: fit() }), ['mode'], LIMITS).text).toBe('HPU · eager');
  });

  it.each([
    [79.9, 'normal'],
    [80, 'warning'],
    [95.1, 'critical']
  ])('has a level for %d percent of the memory: %s', (percent, level) => {
    expect(statusView(holding((percent / 100) * 96 * GIB), ALL, LIMITS).level).toBe(level);
  });

  it('does not mention simulation for a real card', () => {
    expect(statusView(facts({ simulated: false }), ALL, LIMITS).tooltip).not.toContain('simulated');
  });

  it('shows a peak of at least the memory in use', () => {
    const reset = facts({ card: 0, inUse: 5 * GIB, peak: 0, limit: 96 * GIB });
    expect(statusView(reset, ALL, LIMITS).tooltip).toContain('at most 5.00 GiB');
  });
});

describe('modeView', () => {
  it('shows the loaded mode', () => {
    const view = modeView(facts(), null);
    expect(view).toMatchObject({ value: 'eager', pending: false });
    expect(view.labels).toEqual({ eager: 'eager', lazy: 'lazy' });
  });

  it('shows that a requested mode needs a restart', () => {
    const view = modeView(facts({ requested: 'lazy' }), 'lazy');
    expect(view).toMatchObject({ value: 'lazy', pending: true });
    expect(view.labels).toEqual({ eager: 'eager', lazy: 'eager → lazy after restart' });
  });

  it('shows the mode of the file without a reply of the kernel', () => {
    expect(modeView(null, 'lazy')).toMatchObject({ value: 'lazy', pending: false });
  });

  it('prefers the requested mode to the mode of the file', () => {
    expect(modeView(facts({ requested: 'eager' }), 'lazy').value).toBe('eager');
  });

  it('has no value without a loaded or requested mode', () => {
    expect(modeView(facts({ loaded: null }), null).value).toBe('');
    expect(modeView(null, null).value).toBe('');
  });
});
