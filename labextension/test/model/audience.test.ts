import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { Audience } from '../../src/model/audience';

class Page extends EventTarget {
  hidden = false;

  show(visible: boolean): void {
    this.hidden = !visible;
    this.dispatchEvent(new Event('visibilitychange'));
  }
}

describe('Audience', () => {
  const events: string[] = [];
  let page: Page;
  let audience: Audience;

  beforeEach(() => {
    vi.useFakeTimers();
    events.length = 0;
    page = new Page();
    const note = (event: string) => () => events.push(event);
    audience = new Audience(note('gathered'), note('left'), page as unknown as Document);
  });

  afterEach(() => {
    audience.dispose();
    vi.useRealTimers();
  });

  it('starts with the first view and stops after the last', () => {
    const first = audience.join();
    const second = audience.join();
    first.dispose();
    vi.advanceTimersByTime(60_000);
    expect(events).toEqual(['gathered']);
    second.dispose();
    vi.advanceTimersByTime(60_000);
    expect(events).toEqual(['gathered', 'left']);
  });

  it('continues while one view replaces another', () => {
    audience.join().dispose();
    vi.advanceTimersByTime(500);
    audience.join();
    vi.advanceTimersByTime(60_000);
    expect(events).toEqual(['gathered']);
  });

  it('stops while the page is hidden', () => {
    audience.join();
    page.show(false);
    vi.advanceTimersByTime(60_000);
    page.show(true);
    expect(events).toEqual(['gathered', 'left', 'gathered']);
  });

  it('does not start on a hidden page', () => {
    page.show(false);
    audience.join();
    expect(events).toEqual([]);
  });
});
