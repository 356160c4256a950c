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
  it('reads a reply of a kernel that holds a card', () => {
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

  it('takes what it does not know as absent', () => {
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
  it('reads the choice in the metadata', () => {
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
  ])('sees %j', source => {
    expect(usesExtension(source)).toBe(true);
  });

  it.each(['import torch', 'x = a %hpu', '%hpux', 'device = "hpu"', '# my_hpu_magics'])(
    'does not take %j for a sign',
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
  ])('sees %j', source => {
    expect(asksForMode(source)).toBe(true);
  });

  it.each(['%hpu_mode', '%hpu_mode --restart', 'lazy = 1', '# %hpu_mode lazy', 'hpu_magic.mode()'])(
    'does not see %j',
    source => {
      expect(asksForMode(source)).toBe(false);
    }
  );
});

describe('modeToStore', () => {
  it('follows a mode that was asked for in a cell', () => {
    expect(modeToStore('lazy', null, true)).toBe('lazy');
    expect(modeToStore('lazy', 'eager', true)).toBe('lazy');
  });

  it('follows the kernel where the file says something else', () => {
    expect(modeToStore('lazy', 'eager', false)).toBe('lazy');
  });

  it('writes nothing into a file for a mode that the kernel started with', () => {
    expect(modeToStore('lazy', null, false)).toBeNull();
  });

  it('writes nothing that is stored already, and nothing that nobody asked for', () => {
    expect(modeToStore('lazy', 'lazy', true)).toBeNull();
    expect(modeToStore(null, 'lazy', false)).toBeNull();
    expect(modeToStore(null, null, true)).toBeNull();
  });
});
