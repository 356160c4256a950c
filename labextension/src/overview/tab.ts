import { MainAreaWidget, ToolbarButton } from '@jupyterlab/apputils';
import { undoIcon } from '@jupyterlab/ui-components';

import { trans } from '../model/translation';
import type { Machine } from '../model/machine';
import { LENGTHS, Overview } from './overview';
import type { Length } from './overview';

const names = (): Record<Length, string> => ({
  600: trans.__('10 min'),
  3600: trans.__('1 h'),
  21600: trans.__('6 h'),
  86400: trans.__('24 h')
});

/**
 * Create a tab with the overview and its buttons. The tab shows the last `length` seconds if that
 * is one of `LENGTHS`, and calls `open` to open a card's tab.
 */
export function overviewTab(
  machine: Machine,
  open: (moduleId: number) => void,
  length: unknown
): MainAreaWidget<Overview> {
  const content = new Overview(machine, open);
  content.length = LENGTHS.find(one => one === length) ?? content.length;
  const tab = new MainAreaWidget({ content });
  tab.addClass('hpu-PastTab');
  const labels = names();
  const lengths = LENGTHS.map(length => {
    const button = new ToolbarButton({
      label: labels[length],
      tooltip: trans.__('Show the last %1', labels[length]),
      onClick: () => {
        content.length = length;
      }
    });
    tab.toolbar.addItem(`length-${length}`, button);
    return button;
  });
  const fit = new ToolbarButton({
    label: trans.__('Fit height'),
    tooltip: trans.__('Scale each curve to its highest value instead of the card’s memory'),
    onClick: () => {
      content.fitted = !content.fitted;
    }
  });
  const reset = new ToolbarButton({
    icon: undoIcon,
    label: trans.__('Reset zoom'),
    tooltip: trans.__(
      'Show the latest data again (double-click or Escape). Drag, or press + and -, to zoom; ' +
        'press the arrow keys, or turn the wheel with Shift, to move.'
    ),
    onClick: () => content.resetZoom()
  });
  tab.toolbar.addItem('fit', fit);
  tab.toolbar.addItem('reset-zoom', reset);
  const follow = () => {
    LENGTHS.forEach((length, i) => {
      lengths[i]!.pressed = content.length === length && !content.zoomed;
    });
    fit.pressed = content.fitted;
    reset.enabled = content.zoomed;
  };
  content.stateChanged.connect(follow);
  follow();
  return tab;
}
