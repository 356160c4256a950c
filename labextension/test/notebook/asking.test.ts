import { beforeEach, describe, expect, it } from 'vitest';

import { Asking } from '../../src/notebook/asking';

describe('Asking', () => {
  let asking: Asking;

  beforeEach(() => {
    asking = new Asking();
  });

  it('asks no kernel that never used the extension', () => {
    expect(asking.worthwhile).toBe(false);
  });

  it('asks after a cell that uses it, until the kernel does not know the question', () => {
    asking.used();
    expect(asking.worthwhile).toBe(true);
    asking.refused();
    expect(asking.worthwhile).toBe(false);
    asking.used();
    expect(asking.worthwhile).toBe(true);
  });

  it('stops when the extension was unloaded', () => {
    asking.used();
    asking.answered();
    asking.refused();
    expect(asking.worthwhile).toBe(false);
  });

  it('bears with a stuck kernel twice', () => {
    asking.used();
    asking.answered();
    asking.silent();
    asking.silent();
    expect(asking.worthwhile).toBe(true);
    asking.answered();
    asking.silent();
    asking.silent();
    expect(asking.worthwhile).toBe(true);
    asking.silent();
    expect(asking.worthwhile).toBe(false);
  });

  it('starts over with its patience at the next cell', () => {
    asking.used();
    asking.silent();
    asking.silent();
    asking.used();
    asking.silent();
    expect(asking.worthwhile).toBe(true);
  });

  it('forgets everything at a restart', () => {
    asking.used();
    asking.answered();
    asking.started();
    expect(asking.worthwhile).toBe(false);
  });
});
