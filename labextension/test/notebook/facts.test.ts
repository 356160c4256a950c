import { describe, expect, it } from 'vitest';

import {
  asksForMode,
  modeToStore,
  parseFacts,
  storedMode,
  usesExtension
} from '../../src/notebook/facts';
import { fit } from '../model/samples';

describe('parseFacts', () => {
  it('reads the reply of a kernel with a card', () => {
    const reply = {
      status: 'ok',
      version: '0.1.0',
      simulated: true,
      loaded: 'eager',
      requested: 'lazy',
      card: 0,
      in_use: 0,
      peak: 5,
      limit: 10,
      fit: fit()
    };
    expect(parseFacts(reply)).toEqual({
      version: '0.1.0',
      simulated: true,
      loaded: 'eager',
      requested: 'lazy',
      card: 0,
      inUse: 0,
      peak: 5,
      limit: 10,
      fit: fit()
    });
  });

  it('treats unknown values as absent', () => {
    const parsed = parseFacts({
      status: 'ok',
      loaded: 'quick',
      card: '0',
      in_use: -1,
      fit: { model: 7 }
    });
    expect(parsed).toMatchObject({ loaded: null, card: null, inUse: null, fit: null });
  });

  it.each([null, undefined, 'ok', [], {}, { status: 'error' }])('refuses %j', content => {
    expect(parseFacts(content)).toBeNull();
  });
});

describe('storedMode', () => {
  it('reads the mode in the metadata', () => {
    expect(storedMode({ mode: 'lazy' })).toBe('lazy');
  });

  it.each([undefined, null, 'lazy', { mode: 'fast' }, { mode: '"); evil("' }, ['lazy']])(
    'ignores %j',
    metadata => {
      expect(storedMode(metadata)).toBeNull();
    }
  );
});

describe('usesExtension', () => {
  it.each([
    '%load_ext hpu_magic',
    'import hpu_magic.lightning',
    'x = 1\n%hpu',
    '  %hpu_mode lazy',
    '%%hpu_capture step\nx + 1'
  ])('recognizes %j', source => {
    expect(usesExtension(source)).toBe(true);
  });

  it.each(['import torch', 'x = a %hpu', '%hpux', 'device = "hpu"', '# my_hpu_magics'])(
    'does not recognize %j',
    source => {
      expect(usesExtension(source)).toBe(false);
    }
  );
});

describe('asksForMode', () => {
  it.each([
    '%hpu_mode lazy',
    'x = 1\n%hpu_mode eager --restart',
    '%hpu_mode --restart lazy',
    'hpu_magic.mode("lazy")'
  ])('recognizes %j', source => {
    expect(asksForMode(source)).toBe(true);
  });

  it.each(['%hpu_mode', '%hpu_mode --restart', 'lazy = 1', '# %hpu_mode lazy', 'hpu_magic.mode()'])(
    'does not recognize %j',
    source => {
      expect(asksForMode(source)).toBe(false);
    }
  );
});

describe('modeToStore', () => {
  it('stores a mode requested in a cell', () => {
    expect(modeToStore('lazy', null, true)).toBe('lazy');
    expect(modeToStore('lazy', 'eager', true)).toBe('lazy');
  });

  it('stores the mode of the kernel if the file differs', () => {
    expect(modeToStore('lazy', 'eager', false)).toBe('lazy');
  });

  it('does not store the mode at the start of the kernel', () => {
    expect(modeToStore('lazy', null, false)).toBeNull();
  });

  it('stores neither a stored nor an unrequested mode', () => {
    expect(modeToStore('lazy', 'lazy', true)).toBeNull();
    expect(modeToStore(null, 'lazy', false)).toBeNull();
    expect(modeToStore(null, null, true)).toBeNull();
  });
});
