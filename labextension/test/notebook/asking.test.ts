import { beforeEach, describe, expect, it } from 'vitest';

import { Asking } from '../../src/notebook/asking';

describe('Asking', () => {
  let asking: Asking;

  beforeEach(() => {
    asking = new Asking();
  });

  it('sends no requests to a kernel without the extension', () => {
    expect(asking.worthwhile).toBe(false);
  });

  it('sends requests after a cell that uses the extension, until the kernel does not support them', () => {
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

  it('tolerates two missing replies', () => {
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

  it('tolerates missing replies again after the next cell', () => {
    asking.used();
    asking.silent();
    asking.silent();
    asking.used();
    asking.silent();
    expect(asking.worthwhile).toBe(true);
  });

  it('resets after a restart', () => {
    asking.used();
    asking.answered();
    asking.started();
    expect(asking.worthwhile).toBe(false);
  });
});
