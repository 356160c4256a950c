import { describe, expect, it, vi } from 'vitest';

// JupyterLab's icons import all of its components, which jsdom does not support.
vi.mock('@jupyterlab/ui-components', () => ({ stopIcon: { element: () => undefined } }));

import type { Fit } from '../../src/model/fit';
import { FitView } from '../../src/view/fit';
import { fit } from '../model/samples';

/** A view and its elements; the test resolves its Stop requests. */
function shown(first: Fit) {
  const answers: ((done: boolean) => void)[] = [];
  const view = new FitView(() => new Promise(resolve => answers.push(resolve)));
  document.body.replaceChildren(view.node);
  view.show(first, 'first.ipynb');
  const find = (name: string) => view.node.querySelector<HTMLElement>(name)!;
  return { view, answers, button: find('button'), bar: find('[role=progressbar]'), find };
}

/** Run the callbacks of settled promises. */
const heard = () => new Promise(resolve => setTimeout(resolve));

describe('FitView', () => {
  it('shows each value in its place and describes all for screen readers', () => {
    const { bar, find } = shown(fit());
    const figures = [...find('.hpu-Fit-figures').children].map(node => node.textContent);
    expect(figures).toEqual(['epoch 3 of 10', '40 s left', '42.0 steps/s', 'loss 0.231']);
    expect(find('.hpu-Fit-name').textContent).toBe('DigitReader');
    expect(bar.getAttribute('aria-label')).toBe('Fit of first.ipynb');
    expect(bar.getAttribute('aria-valuenow')).toBe('27');
    expect(bar.getAttribute('aria-valuetext')).toContain('about 40 s left');
    expect(find('.hpu-Fit-broken').hidden).toBe(true);
  });

  it('keeps the places of unknown values', () => {
    const { view, bar, find } = shown(fit());
    view.show(fit({ share: null, remaining: null, rate: null, loss: null }), 'first.ipynb');
    const figures = [...find('.hpu-Fit-figures').children].map(node => node.textContent);
    expect(figures).toEqual(['epoch 3 of 10, batch 40', '', '', '']);
    expect(bar.hasAttribute('aria-valuenow')).toBe(false);
    expect(view.node.classList.contains('hpu-mod-unknown')).toBe(true);
    view.show(fit(), 'first.ipynb');
    expect(view.node.classList.contains('hpu-mod-unknown')).toBe(false);
  });

  it('shows a broken loss as text', () => {
    const { view, find } = shown(fit());
    view.show(fit({ broken: '<b>loss</b> NaN since step 31' }), 'first.ipynb');
    expect(find('.hpu-Fit-broken').textContent).toBe('<b>loss</b> NaN since step 31');
    expect(find('.hpu-Fit-broken').hidden).toBe(false);
  });

  it('sends one stop request and shows it until the end', async () => {
    const { view, answers, button, find } = shown(fit());
    expect(button.getAttribute('aria-label')).toBe('Stop the fit of first.ipynb');
    button.click();
    button.click();
    expect(answers.length).toBe(1);
    expect(find('.hpu-Fit-phase').textContent).toBe('Stopping');
    answers[0]!(true);
    await heard();
    view.show(fit(), 'first.ipynb');
    expect(find('.hpu-Fit-phase').textContent).toBe('Stopping');
    expect(button.getAttribute('aria-disabled')).toBe('true');
    expect(button.getAttribute('aria-label')).toBe('Stopping the fit of first.ipynb');
    // The next fit of the same notebook can be stopped, too.
    view.show(fit({ began: 1700000100 }), 'first.ipynb');
    expect(find('.hpu-Fit-phase').textContent).toBe('');
    expect(button.getAttribute('aria-disabled')).toBe('false');
    view.show(null, 'first.ipynb');
    expect(view.node.hidden).toBe(true);
  });

  it('enables the button after a failed stop', async () => {
    const { answers, button, find } = shown(fit());
    button.click();
    answers[0]!(false);
    await heard();
    expect(find('.hpu-Fit-phase').textContent).toBe('');
    button.click();
    expect(answers.length).toBe(2);
  });

  it('shows a stop of another page and hides an unavailable button', () => {
    const { view, answers, button, find } = shown(fit({ phase: 'stopping' }));
    expect(find('.hpu-Fit-phase').textContent).toBe('Stopping');
    button.click();
    expect(answers).toEqual([]);
    view.show(fit({ stoppable: false }), 'first.ipynb');
    expect(button.hidden).toBe(true);
  });
});
